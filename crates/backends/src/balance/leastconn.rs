//! `balance leastconn`: the server with the fewest requests for its weight; among equals, the one that has waited
//! longest since its count last changed.

use super::{Demand, EFFECTIVE_MAX, Member, Totals};
use std::collections::BTreeSet;

/// Servers by load, active ones and backups apart.
#[derive(Debug, Default)]
pub(super) struct LeastConn {
    groups: [BTreeSet<(u32, u64, usize)>; 2],
    /// Where each server stands: its load and turn.
    places: Vec<Option<(u32, u64)>>,
    turn: u64,
}

impl LeastConn {
    pub(super) fn new(members: &[Member]) -> LeastConn {
        let mut tree = LeastConn { places: vec![None; members.len()], ..LeastConn::default() };
        (0..members.len()).for_each(|server| tree.update(server, members));
        tree
    }

    pub(super) fn next(&self, members: &[Member], totals: &Totals, demand: &Demand) -> Option<usize> {
        let mut avoided = None;
        for &(_, _, server) in &self.groups[usize::from(totals.active == 0)] {
            let member = &members[server];
            let open = member.limit(&demand.load).saturating_add(member.maxqueue);
            if member.maxconn == 0 || member.served + member.queued < open {
                if demand.avoid != Some(server) {
                    return Some(server);
                }
                avoided = Some(server);
            }
        }
        avoided
    }

    /// After its count of requests changed.
    pub(super) fn reposition(&mut self, server: usize, members: &[Member]) {
        let Some((load, _)) = self.places[server] else { return };
        if load != key(&members[server]) {
            self.update(server, members);
        }
    }

    /// After its state or weight changed.
    pub(super) fn update(&mut self, server: usize, members: &[Member]) {
        let member = &members[server];
        let group = &mut self.groups[usize::from(member.backup)];
        if let Some((load, turn)) = self.places[server].take() {
            group.remove(&(load, turn, server));
        }
        if member.usable() {
            self.turn += 1;
            let place = (key(member), self.turn);
            group.insert((place.0, place.1, server));
            self.places[server] = Some(place);
        }
    }
}

/// Requests in flight over weight; an idle server is 0 whatever its weight, so that idle servers are equals.
fn key(member: &Member) -> u32 {
    match member.served + member.queued {
        0 => 0,
        inflight => (inflight + 1).saturating_mul(EFFECTIVE_MAX) / member.eweight.max(1),
    }
}
