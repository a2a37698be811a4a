//! Which values of what was not published reproduce the published savings and gain: every combination is tried.
//!
//! What the savings compare was not published either, so there are readings as well as values. Nothing is fitted: the inputs take
//! round values, and a hit means that the rounded figures are the printed ones.

use crate::{
    inputs::{Attribution, Inputs},
    plan::{Fleet, fleet, on_one_server},
    published::{GAIN, SAVINGS},
    rates::{Mode, Rates},
};

/// What a saving may compare, each at 5K, 9K and 18K.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Both at the same level.
    SameLevel,
    /// For every 1,000 TPS: software at each level, accelerated at the 30K of its peak.
    AgainstPeak,
}

impl Reading {
    /// A description for the reader.
    pub fn describe(self) -> &'static str {
        match self {
            Reading::SameLevel => "software and accelerated, both at 5K, 9K and 18K",
            Reading::AgainstPeak => "per 1,000 TPS, software at 5K, 9K and 18K against accelerated at 30K",
        }
    }
}

/// One combination and the figures that follow from it.
#[derive(Clone, Debug)]
pub struct Found {
    /// What is compared.
    pub reading: Reading,
    /// The values, by the names of the inputs.
    pub values: Vec<(&'static str, String)>,
    /// The savings at 5K, 9K and 18K, percent.
    pub savings: [f64; 3],
    /// The largest distance to a printed figure, in points, printed figures in any order.
    pub off: f64,
}

impl Found {
    /// Whether the savings round to the printed ones, in whatever order.
    pub fn hits(&self) -> bool {
        let mut rounded = self.savings.map(f64::round);
        rounded.sort_by(f64::total_cmp);
        rounded == SAVINGS
    }
}

/// A ratio that may be meant by the published gain.
#[derive(Clone, Debug)]
pub struct Gain {
    /// What is compared.
    pub what: String,
    /// The ratio.
    pub ratio: f64,
}

impl Gain {
    /// Whether the ratio rounds to the printed one.
    pub fn hits(&self) -> bool {
        (self.ratio * 10.0).round() / 10.0 == GAIN
    }
}

/// The result of the search.
#[derive(Clone, Debug)]
pub struct Search {
    /// How many combinations were tried.
    pub tried: usize,
    /// The combinations that hit, with the server's cores as inferred.
    pub hits: Vec<Found>,
    /// The combinations that hit with 24 cores in a server, which the 18K row's idle share would need.
    pub hits_with_24: Vec<Found>,
    /// The nearest of all combinations, with the server's cores as inferred.
    pub nearest: Option<Found>,
    /// Every reading of the gain, nearest first.
    pub gains: Vec<Gain>,
}

const MONTHS: [f64; 7] = [12.0, 24.0, 36.0, 48.0, 60.0, 72.0, 84.0];
const UNITS: [f64; 2] = [1.0, 2.0];
const CARDS: [u32; 6] = [1, 2, 3, 4, 5, 6];
const COMPARED: [f64; 3] = [5_000.0, 9_000.0, 18_000.0];
/// The highest published rate with accelerators, in TPS.
const PEAK: f64 = 30_000.0;

/// Tries every combination.
pub fn search(inputs: &Inputs, rates: &Rates) -> Search {
    let mut search =
        Search { tried: 0, hits: Vec::new(), hits_with_24: Vec::new(), nearest: None, gains: gains(inputs, rates) };
    for total in [inputs.cores_per_server, 24.0] {
        for attribution in [Attribution::Whole, Attribution::Cores] {
            for (months, units) in MONTHS.into_iter().flat_map(|m| UNITS.map(|u| (m, u))) {
                for cards in CARDS {
                    for reading in [Reading::SameLevel, Reading::AgainstPeak] {
                        let mut tried = inputs.clone();
                        tried.attribution = attribution;
                        tried.months = months;
                        tried.units_per_server = units;
                        tried.cards_per_server = f64::from(cards);
                        let Some(found) = combination(reading, &tried, total, cards, rates) else { continue };
                        search.tried += 1;
                        let own = total == inputs.cores_per_server;
                        if found.hits() {
                            if own { &mut search.hits } else { &mut search.hits_with_24 }.push(found.clone());
                        }
                        if own && search.nearest.as_ref().is_none_or(|nearest| found.off < nearest.off) {
                            search.nearest = Some(found);
                        }
                    }
                }
            }
        }
    }
    search
}

/// The cost of a level per TPS, with this many cards bought for each server and cores paid for out of `total`.
fn combination(reading: Reading, inputs: &Inputs, total: f64, cards: u32, rates: &Rates) -> Option<Found> {
    // Allocations are the published ones in any case; 24 only says what a core is paid for.
    let cost = |mode: Mode, level: f64| {
        let share = on_one_server(mode, level, inputs, rates).ok()??;
        let paid = match inputs.attribution {
            Attribution::Whole => 1.0,
            Attribution::Cores => share.cores / total,
        };
        let cards = if mode == Mode::Hw { f64::from(cards) } else { 0.0 };
        let power = paid * inputs.server_kw + cards * inputs.card_kw;
        let monthly = (paid * inputs.server_usd + cards * inputs.card_usd) / inputs.months
            + power * inputs.pue * inputs.hours_per_month * inputs.usd_per_kwh
            + paid * inputs.units_per_server * inputs.unit_usd_year / 12.0;
        Some(monthly / level)
    };
    let mut savings = [0.0; 3];
    for (saving, level) in savings.iter_mut().zip(COMPARED) {
        let accelerated = if reading == Reading::AgainstPeak { PEAK } else { level };
        *saving = (1.0 - cost(Mode::Hw, accelerated)? / cost(Mode::Native, level)?) * 100.0;
    }
    let mut sorted = savings;
    sorted.sort_by(f64::total_cmp);
    let off = sorted.iter().zip(SAVINGS).map(|(own, printed)| (own - printed).abs()).fold(0.0, f64::max);
    let values = vec![
        ("cores-per-server", total.to_string()),
        ("attribution", inputs.attribution.name().to_owned()),
        ("months", inputs.months.to_string()),
        ("units-per-server", inputs.units_per_server.to_string()),
        ("cards in each server", cards.to_string()),
    ];
    Some(Found { reading, values, savings, off })
}

/// Ratios of software to accelerated that could be called the gain.
fn gains(inputs: &Inputs, rates: &Rates) -> Vec<Gain> {
    let mut gains = Vec::new();
    let plan = |mode, level| fleet(mode, level, inputs, rates).ok();
    let energy = |plan: &Fleet| plan.cost.energy / plan.level;
    let money = |plan: &Fleet| plan.cost.total() / plan.level;
    let cores = |plan: &Fleet| f64::from(plan.servers) * plan.share.cores / plan.level;
    let attribution = inputs.attribution.name();
    for level in COMPARED {
        for (accelerated, whose) in [(level, "the same"), (PEAK, "30K")] {
            let (Some(software), Some(hw)) = (plan(Mode::Native, level), plan(Mode::Hw, accelerated)) else { continue };
            let mut add = |what: &str, figure: &dyn Fn(&Fleet) -> f64| {
                let what = format!("{what}, software at {}K against accelerated at {whose}", level / 1000.0);
                gains.push(Gain { what, ratio: figure(&software) / figure(&hw) });
            };
            add(&format!("energy per TPS (attribution {attribution})"), &energy);
            add(&format!("cost per TPS (attribution {attribution}, {} months)", inputs.months), &money);
            add("cores per TPS", &cores);
        }
    }
    if let Some((device, native)) = rates.hw.as_ref().zip(rates.native.as_ref()) {
        for (cores, cards) in [(24.0, 6.0), (26.0, 6.0), (24.0, 5.0), (24.0, 4.0)] {
            let ratio = crate::plan::device_rate(device, cores, cards) / native.rate(cores);
            gains.push(Gain {
                what: format!("TPS of a server with {cores} cores and {cards} cards against none"),
                ratio,
            });
        }
    }
    gains.sort_by(|a, b| (a.ratio - GAIN).abs().total_cmp(&(b.ratio - GAIN).abs()));
    gains
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published;

    /// By hand, energy: 0.6 kW x 8/26 for 5K are 36.92 W per 1,000 TPS; (0.6 x 4/26 + 0.023) kW for 30K are 3.844; 9.606 times.
    #[test]
    fn the_gain_is_that_of_energy_between_the_first_and_the_last_row() {
        let search = search(&Inputs::default(), &published::rates());
        assert!((search.gains[0].ratio - 9.606).abs() < 0.001, "{:?}", search.gains[0]);
        assert!(search.gains[0].hits() && search.gains[0].what.starts_with("energy per TPS"), "{:?}", search.gains[0]);
        assert!(search.gains[0].what.contains("5K against accelerated at 30K"));
    }

    #[test]
    fn a_hit_is_in_the_printed_figures_and_nothing_else_is_one() {
        let search = search(&Inputs::default(), &published::rates());
        for found in search.hits.iter().chain(&search.hits_with_24) {
            let mut savings = found.savings.map(f64::round);
            savings.sort_by(f64::total_cmp);
            assert_eq!(savings, [84.0, 85.0, 86.0], "{found:?}");
        }
        let off = |savings: [f64; 3]| Found { reading: Reading::SameLevel, values: vec![], savings, off: 0.0 };
        assert!(off([86.4, 83.6, 84.9]).hits() && !off([86.6, 83.6, 84.9]).hits() && !off([84.0, 84.0, 85.0]).hits());
    }
}
