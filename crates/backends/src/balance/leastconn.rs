//! `balance leastconn`: the server with the fewest requests relative to its weight; among equals, the one whose count
//! has been unchanged for longest.

use super::{Algorithm, Demand, EFFECTIVE_MAX, Member, Row, View, Weights};
use std::collections::BTreeSet;

pub(super) const ROWS: &[Row] =
    &[Row { name: "leastconn", weights: |_| Weights::Dynamic, build: |_, view| Box::new(LeastConn::new(view)) }];

/// Servers by load, separately for active servers and backups.
#[derive(Debug, Default)]
struct LeastConn {
    groups: [BTreeSet<(u32, u64, usize)>; 2],
    /// Each server's position: its load and turn.
    places: Vec<Option<(u32, u64)>>,
    turn: u64,
}

impl LeastConn {
    fn new(view: View<'_>) -> LeastConn {
        let mut tree = LeastConn::default();
        (0..view.members.len()).for_each(|server| tree.place(server, view.members));
        tree
    }

    fn place(&mut self, server: usize, members: &[Member]) {
        let member = &members[server];
        let group = &mut self.groups[usize::from(member.backup)];
        self.places.resize(members.len().max(self.places.len()), None);
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

impl Algorithm for LeastConn {
    fn choose(&mut self, view: View<'_>, demand: &Demand) -> Option<usize> {
        if let Some(lone) = view.lone_backup() {
            return Some(lone);
        }
        let mut avoided = None;
        for &(_, _, server) in &self.groups[view.group()] {
            let member = &view.members[server];
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

    fn update(&mut self, server: usize, _: &Member, view: View<'_>) {
        self.place(server, view.members);
    }

    fn moved(&mut self, server: usize, view: View<'_>) {
        let Some(&Some((load, _))) = self.places.get(server) else { return };
        if load != key(&view.members[server]) {
            self.place(server, view.members);
        }
    }
}

/// Requests in flight divided by weight; 0 for an idle server whatever its weight, so that idle servers are equals.
fn key(member: &Member) -> u32 {
    match member.served + member.queued {
        0 => 0,
        inflight => (inflight + 1).saturating_mul(EFFECTIVE_MAX) / member.eweight.max(1),
    }
}
