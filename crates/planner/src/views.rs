//! Three ways to look at the model: a rack, one server at the edge, and what 1,000 TPS cost.

use crate::{
    inputs::Inputs,
    plan::{device_rate, fleet, on_one_server, servers_in_rack, software_rate},
    rates::{Mode, Rates},
};

/// A rack whose servers all have this many cores for the service, and this many cards.
#[derive(Clone, Debug, PartialEq)]
pub struct RackPoint {
    /// Cores of each server for the service.
    pub cores: f64,
    /// Cards of each server; 0 is software.
    pub cards: u32,
    /// Servers that fit, and what limits them.
    pub servers: u32,
    /// TPS of all servers.
    pub tps: f64,
    /// Cores of all servers that are free for other work.
    pub free_cores: f64,
    /// kW of the rack, before PUE.
    pub kw: f64,
}

/// Most cores of a server in the rack view.
const RACK_CORES: f64 = 24.0;
/// Cards of a server in the rack view.
pub const RACK_CARDS: [u32; 5] = [0, 1, 2, 4, 6];

/// Rack TPS and free cores against cores per server, by cards per server.
pub fn rack(inputs: &Inputs, rates: &Rates) -> Vec<RackPoint> {
    let mut points = Vec::new();
    for cards in RACK_CARDS {
        let per_card = f64::from(cards);
        let (fit, _) = servers_in_rack(per_card, inputs);
        let mut cores = inputs.core_step;
        while cores <= RACK_CORES.min(inputs.cores_per_server) {
            let rate = match (cards, &rates.hw, rates.software()) {
                (0, _, Some((_, curve))) => software_rate(curve, cores),
                (0, _, None) | (_, None, _) => break,
                (_, Some(device), _) => device_rate(device, cores, per_card),
            };
            points.push(RackPoint {
                cores,
                cards,
                servers: fit as u32,
                tps: fit * rate * inputs.max_utilisation,
                free_cores: fit * (inputs.cores_per_server - cores),
                kw: fit * (inputs.server_kw + per_card * inputs.card_kw),
            });
            cores += inputs.core_step;
        }
    }
    points
}

/// What one level takes of one server at the edge.
#[derive(Clone, Debug, PartialEq)]
pub struct EdgePoint {
    /// The engine.
    pub mode: Mode,
    /// The level in TPS.
    pub level: f64,
    /// Cores allocated and the share that is idle; `None` where one server is not enough.
    pub cores: Option<(f64, f64)>,
}

/// The highest level of the edge view, as published.
pub const EDGE_MAX: f64 = 30_000.0;

/// Cores and idle share of one server against the service level, up to 30K.
pub fn edge(inputs: &Inputs, rates: &Rates) -> Vec<EdgePoint> {
    let levels = (1..=30).map(|k| f64::from(k) * EDGE_MAX / 30.0);
    let point = |mode: Mode, level: f64| {
        let share = on_one_server(mode, level, inputs, rates).ok().flatten();
        let cores = share.map(|share| (share.cores, 1.0 - share.cores / inputs.cores_per_server));
        EdgePoint { mode, level, cores }
    };
    rates.modes().into_iter().flat_map(|mode| levels.clone().map(move |level| point(mode, level))).collect()
}

/// What 1,000 TPS cost at one level.
#[derive(Clone, Debug, PartialEq)]
pub struct CostPoint {
    /// The engine.
    pub mode: Mode,
    /// The level in TPS.
    pub level: f64,
    /// USD a month for every 1,000 TPS.
    pub usd_per_1000_tps: f64,
}

/// USD a month for every 1,000 TPS at each level, by mode.
pub fn cost(levels: &[f64], inputs: &Inputs, rates: &Rates) -> Vec<CostPoint> {
    let modes = rates.modes();
    let pairs = levels.iter().flat_map(|level| modes.iter().map(move |mode| (*mode, *level)));
    pairs
        .filter_map(|(mode, level)| {
            let fleet = fleet(mode, level, inputs, rates).ok()?;
            Some(CostPoint { mode, level, usd_per_1000_tps: fleet.usd_per_1000_tps() })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published;

    #[test]
    fn a_rack_of_eight_servers_by_hand() {
        let points = rack(&Inputs::default(), &published::rates());
        let at = |cores: f64, cards: u32| points.iter().find(|p| p.cores == cores && p.cards == cards).unwrap();
        // 8 servers x 9,000.
        assert_eq!((at(12.0, 0).tps, at(12.0, 0).free_cores), (72_000.0, 112.0));
        // 8 x 30,000 from 4 cores on: a card's peak ends it.
        assert_eq!((at(4.0, 1).tps, at(24.0, 1).tps, at(24.0, 1).free_cores), (240_000.0, 240_000.0, 16.0));
        // Six cards with four cores each.
        assert_eq!(at(24.0, 6).tps, 1_440_000.0);
        assert!((at(24.0, 6).kw - 8.0 * 0.738).abs() < 1e-9);
        // Two cores feed one card better than two.
        assert_eq!(at(2.0, 2).tps, at(2.0, 1).tps);
        assert_eq!(points.len(), 5 * 12);
    }

    #[test]
    fn the_edge_ends_where_one_server_does() {
        let points = edge(&Inputs::default(), &published::rates());
        let cores = |mode, level| points.iter().find(|p| p.mode == mode && p.level == level).unwrap().cores;
        assert_eq!(cores(Mode::Native, 18_000.0), Some((26.0, 0.0)));
        assert_eq!(cores(Mode::Native, 19_000.0), None);
        assert_eq!(cores(Mode::Hw, 30_000.0).map(|(cores, _)| cores), Some(4.0));
    }

    #[test]
    fn nothing_to_draw_is_not_an_error() {
        assert!(rack(&Inputs::default(), &Rates::default()).is_empty());
        assert!(edge(&Inputs::default(), &Rates::default()).is_empty());
        assert!(cost(&published::LEVELS, &Inputs::default(), &Rates::default()).is_empty());
    }
}
