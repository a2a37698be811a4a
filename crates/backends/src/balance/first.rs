//! `balance first`: the usable server with the lowest id that has room.

use super::{Algorithm, Demand, Member, Row, View, Weights};
use std::collections::BTreeSet;

pub(super) const ROWS: &[Row] =
    &[Row { name: "first", weights: |_| Weights::Dynamic, build: |_, view| Box::new(First::new(view)) }];

/// Usable servers in the order of their ids, separately for active servers and backups.
#[derive(Debug, Default)]
struct First {
    groups: [BTreeSet<(u32, usize)>; 2],
}

impl First {
    fn new(view: View<'_>) -> First {
        let mut first = First::default();
        (0..view.members.len()).for_each(|server| first.place(server, view.members));
        first
    }

    fn place(&mut self, server: usize, members: &[Member]) {
        let member = &members[server];
        let group = &mut self.groups[usize::from(member.backup)];
        if member.usable() {
            group.insert((member.id, server));
        } else {
            group.remove(&(member.id, server));
        }
    }
}

impl Algorithm for First {
    fn choose(&mut self, view: View<'_>, demand: &Demand) -> Option<usize> {
        if let Some(lone) = view.lone_backup() {
            return Some(lone);
        }
        let group = self.groups[view.group()].iter().map(|&(_, server)| server);
        let mut open = group.filter(|&server| view.members[server].has_room(&demand.load));
        let best = open.next()?;
        if demand.avoid != Some(best) {
            return Some(best);
        }
        open.next().or(Some(best))
    }

    fn update(&mut self, server: usize, _: &Member, view: View<'_>) {
        self.place(server, view.members);
    }

    fn fills_every_server(&self) -> bool {
        true
    }
}
