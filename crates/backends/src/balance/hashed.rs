//! Hashes of request data: `source`, `uri`, `url_param`, `hdr`, `rdp-cookie`, `hash`. `hash-type` selects whether a
//! table or a ring maps them to servers.

use super::{Algorithm, Demand, Member, Row, Settings, View, Weights, map::Map, ring::Ring};
use penstock_config::model::BalanceKey;

pub(super) const ROWS: &[Row] =
    &[row("source"), row("uri"), row("url_param"), row("hdr"), row("rdp-cookie"), row("hash")];

const fn row(name: &'static str) -> Row {
    Row { name, weights, build }
}

fn weights(settings: &Settings) -> Weights {
    if settings.hash_type.consistent { Weights::Dynamic } else { Weights::Fixed }
}

fn build(settings: &Settings, view: View<'_>) -> Box<dyn Algorithm> {
    if settings.hash_type.consistent {
        return Box::new(Consistent { ring: Ring::new(view.members), factor: settings.factor });
    }
    let lone_is_zero = !matches!(settings.balance.key, Some(BalanceKey::UrlParam { .. }));
    Box::new(MapBased { map: Map::new(view), lone_is_zero })
}

/// `hash-type consistent`.
#[derive(Debug)]
struct Consistent {
    ring: Ring,
    /// `hash-balance-factor`.
    factor: u32,
}

impl Algorithm for Consistent {
    fn choose(&mut self, view: View<'_>, demand: &Demand) -> Option<usize> {
        match (view.lone_backup(), demand.hash) {
            (Some(lone), _) => Some(lone),
            (None, Some(hash)) => self.ring.by_hash(view, hash, demand.avoid, self.factor),
            (None, None) => self.ring.rotate(view, demand),
        }
    }

    fn update(&mut self, _: usize, _: &Member, view: View<'_>) {
        self.ring.recompute(view.members);
    }

    fn moved_on_ring(&mut self, view: View<'_>) {
        self.ring.recompute(view.members);
    }
}

/// `hash-type map-based`.
#[derive(Debug)]
struct MapBased {
    map: Map,
    /// Whether, with one server in use, every key counts as 0, present or not: true for all keys except `url_param`. It
    /// matters for a lone backup, whose table also contains the other backups.
    lone_is_zero: bool,
}

impl Algorithm for MapBased {
    fn choose(&mut self, view: View<'_>, demand: &Demand) -> Option<usize> {
        if view.totals.used == 1 && self.lone_is_zero {
            return self.map.by_hash(0);
        }
        match demand.hash {
            Some(hash) => self.map.by_hash(hash),
            None => self.map.rotate(view.members, demand),
        }
    }

    fn update(&mut self, _: usize, _: &Member, view: View<'_>) {
        self.map.recompute(view);
    }
}
