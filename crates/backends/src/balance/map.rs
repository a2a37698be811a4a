//! A table with one entry per unit of weight: `static-rr` walks it, and map-based hashes index it.

use super::{Algorithm, Demand, Member, Row, View, Weights};

pub(super) const ROWS: &[Row] =
    &[Row { name: "static-rr", weights: |_| Weights::Fixed, build: |_, view| Box::new(StaticRr(Map::new(view))) }];

/// `balance static-rr`.
#[derive(Debug)]
struct StaticRr(Map);

impl Algorithm for StaticRr {
    fn choose(&mut self, view: View<'_>, demand: &Demand) -> Option<usize> {
        self.0.rotate(view.members, demand)
    }

    fn update(&mut self, _: usize, _: &Member, view: View<'_>) {
        self.0.recompute(view);
    }

    fn fills_every_server(&self) -> bool {
        true
    }
}

/// The table, and the position of the walk.
#[derive(Debug, Default)]
pub(super) struct Map {
    table: Vec<usize>,
    next: usize,
}

impl Map {
    pub(super) fn new(view: View<'_>) -> Map {
        let mut map = Map::default();
        map.recompute(view);
        map
    }

    /// Each entry goes to the server that is furthest behind its share; among equals, to the first declared. The score
    /// is compared after division, with the same rounding as in HAProxy's tables.
    pub(super) fn recompute(&mut self, view: View<'_>) {
        self.table.clear();
        let backups = view.totals.active == 0;
        let total = i64::from(view.totals.weight);
        let mut group: Vec<(usize, i64, i64)> = view
            .members
            .iter()
            .enumerate()
            .filter(|(_, m)| m.backup == backups && m.usable())
            .map(|(index, m)| (index, i64::from(m.eweight), 0))
            .collect();
        for _ in 0..total {
            if total == 1 {
                self.table.extend(group.first().map(|g| g.0));
                break;
            }
            let (mut best, mut most) = (None, 0);
            for (place, (_, weight, score)) in group.iter_mut().enumerate() {
                *score += *weight;
                let rank = (*score + total) / total;
                if best.is_none() || rank > most {
                    (best, most) = (Some(place), rank);
                }
            }
            if let Some(place) = best {
                group[place].2 -= total;
                self.table.push(group[place].0);
            }
        }
    }

    pub(super) fn by_hash(&self, hash: u32) -> Option<usize> {
        let length = u32::try_from(self.table.len()).ok().filter(|&n| n > 0)?;
        Some(self.table[(hash % length) as usize])
    }

    pub(super) fn rotate(&mut self, members: &[Member], demand: &Demand) -> Option<usize> {
        let length = self.table.len();
        if length == 0 {
            return None;
        }
        if self.next >= length {
            self.next = 0;
        }
        let start = self.next;
        let mut avoided = None;
        for step in 0..length {
            let place = (start + step) % length;
            // A position past the end is kept: if servers come back before the next request, the walk continues from
            // there.
            let (server, after) = (self.table[place], place + 1);
            if members[server].has_room(&demand.load) {
                if demand.avoid != Some(server) {
                    self.next = after;
                    return Some(server);
                }
                avoided = Some((server, after));
            }
        }
        if let Some((_, after)) = avoided {
            self.next = after;
        }
        avoided.map(|(server, _)| server)
    }
}
