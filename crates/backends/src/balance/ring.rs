//! `hash-type consistent` and `random`: every server has sixteen points per unit of weight on a ring of 2^32, at
//! positions that depend only on its id, or on its address (`hash-key`).

use super::{Algorithm, Demand, EFFECTIVE_MAX, Member, Row, Settings, View, Weights};
use crate::hash::avalanche;

pub(super) const ROWS: &[Row] = &[Row {
    name: "random",
    weights: |_| Weights::Dynamic,
    build: |settings, view| Box::new(Random::new(settings, view)),
}];

/// `balance random(DRAWS)`.
#[derive(Debug)]
struct Random {
    ring: Ring,
    draws: u32,
    factor: u32,
    rng: fastrand::Rng,
}

impl Random {
    fn new(settings: &Settings, view: View<'_>) -> Random {
        let draws = settings.balance.draws.max(1);
        let rng = fastrand::Rng::with_seed(settings.seed);
        Random { ring: Ring::new(view.members), draws, factor: settings.factor, rng }
    }
}

impl Algorithm for Random {
    /// Draws servers, and selects the one with the lowest load relative to its weight; `None` if that one is full.
    fn choose(&mut self, view: View<'_>, demand: &Demand) -> Option<usize> {
        let mut one = || match view.lone_backup() {
            Some(lone) => Some(lone),
            None => self.ring.by_hash(view, self.rng.u32(..), demand.avoid, self.factor),
        };
        let mut best = one()?;
        for _ in 1..self.draws {
            let (drawn, kept) = (one()?, best);
            let (a, b) = (&view.members[drawn], &view.members[kept]);
            let worse = u64::from(a.served) * u64::from(b.eweight) > u64::from(b.served) * u64::from(a.eweight);
            best = if worse { kept } else { drawn };
        }
        Some(best).filter(|&server| view.members[server].has_room(&demand.load))
    }

    fn update(&mut self, _: usize, _: &Member, view: View<'_>) {
        self.ring.recompute(view.members);
    }
}

/// The points of the usable servers, sorted, separately for active servers and backups.
#[derive(Debug, Default)]
pub(super) struct Ring {
    groups: [Vec<(u32, usize)>; 2],
    /// The point last used for a request without a key, and its group.
    last: Option<(usize, u32)>,
}

/// Whether `hash-balance-factor` lets a server take a request: it has fewer than `factor` percent of its share of all
/// requests, including this one.
fn allows(factor: u32, view: View<'_>, member: &Member) -> bool {
    if factor == 0 {
        return true;
    }
    let (weight, mine) = (u64::from(view.totals.weight), u64::from(member.eweight));
    let before = u64::from(member.cumulative);
    let total = (u64::from(view.served + 1) * u64::from(factor)).div_ceil(100);
    let rest = total % weight;
    let slots = mine * (total / weight) + (before + mine) * rest / weight - before * rest / weight;
    u64::from(member.served) < slots.max(1)
}

impl Ring {
    pub(super) fn new(members: &[Member]) -> Ring {
        let mut ring = Ring::default();
        ring.recompute(members);
        ring
    }

    pub(super) fn recompute(&mut self, members: &[Member]) {
        self.groups.iter_mut().for_each(Vec::clear);
        for (server, member) in members.iter().enumerate().filter(|(_, m)| m.usable()) {
            // A server never has more points than its configured weight provides.
            let points = member.eweight.min(EFFECTIVE_MAX);
            let group = &mut self.groups[usize::from(member.backup)];
            group.extend((0..points).map(|n| (avalanche(member.ring_key.wrapping_add(n)), server)));
        }
        self.groups.iter_mut().for_each(|group| group.sort_unstable());
        // If the last point is gone, the one after it counts as used.
        self.last = self.last.and_then(|(group, last)| {
            let place = self.groups[group].partition_point(|&(point, _)| point < last);
            Some((group, self.groups[group].get(place)?.0))
        });
    }

    /// The server whose point is nearest to `hash` on either side; if that is not allowed, the next one upwards that
    /// is.
    pub(super) fn by_hash(&self, view: View<'_>, hash: u32, avoid: Option<usize>, factor: u32) -> Option<usize> {
        let points = &self.groups[view.group()];
        let last = points.len().checked_sub(1)?;
        let after = points.partition_point(|&(point, _)| point < hash);
        let after = if after > last { 0 } else { after };
        let before = if after == 0 { last } else { after - 1 };
        let down = hash.wrapping_sub(points[before].0);
        let up = points[after].0.wrapping_sub(hash);
        let nearest = if down <= up { before } else { after };
        // At most once around the ring; after that, any server is better than none.
        let walk = (nearest..points.len()).chain(0..points.len());
        let mut server = points[nearest].1;
        for place in walk {
            server = points[place].1;
            if avoid != Some(server) && allows(factor, view, &view.members[server]) {
                break;
            }
        }
        Some(server)
    }

    /// For requests without a key: uses the points in turn.
    pub(super) fn rotate(&mut self, view: View<'_>, demand: &Demand) -> Option<usize> {
        let group = view.group();
        let points = &self.groups[group];
        let last = self.last.filter(|last| last.0 == group);
        let start = last.map_or(0, |(_, last)| points.partition_point(|&(point, _)| point <= last));
        let mut avoided = None;
        for step in 0..points.len() {
            let (point, server) = points[(start + step) % points.len()];
            self.last = Some((group, point));
            if view.members[server].has_room(&demand.load) {
                if demand.avoid != Some(server) {
                    return Some(server);
                }
                avoided = Some(server);
            }
        }
        avoided
    }
}
