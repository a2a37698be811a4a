//! `balance first`: the usable server with the lowest id that has room.

use super::{Demand, Member, Totals};
use std::collections::BTreeSet;

/// Usable servers in the order of their ids, active ones and backups apart.
#[derive(Debug, Default)]
pub(super) struct First {
    groups: [BTreeSet<(u32, usize)>; 2],
}

impl First {
    pub(super) fn new(members: &[Member]) -> First {
        let mut first = First::default();
        (0..members.len()).for_each(|server| first.update(server, members));
        first
    }

    pub(super) fn next(&self, members: &[Member], totals: &Totals, demand: &Demand) -> Option<usize> {
        let group = &self.groups[usize::from(totals.active == 0)];
        let mut open = group.iter().map(|&(_, server)| server).filter(|&s| members[s].has_room(&demand.load));
        let best = open.next()?;
        if demand.avoid != Some(best) {
            return Some(best);
        }
        open.next().or(Some(best))
    }

    pub(super) fn update(&mut self, server: usize, members: &[Member]) {
        let member = &members[server];
        let group = &mut self.groups[usize::from(member.backup)];
        if member.usable() {
            group.insert((member.id, server));
        } else {
            group.remove(&(member.id, server));
        }
    }
}
