//! The named constants of the model, each with where it comes from.

use crate::error::{Problem, number};
use std::collections::BTreeSet;

/// The origin of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Stated in the published model of an eight-server rack.
    Published,
    /// Not stated there, but the only value from which published figures follow.
    Inferred,
    /// Not published: our assumption, to be overridden.
    Assumed,
    /// Ours by nature: a wish, or arithmetic.
    Ours,
    /// Given by the user.
    Given,
}

impl Origin {
    /// The origin in one word or two.
    pub fn name(self) -> &'static str {
        match self {
            Origin::Published => "published",
            Origin::Inferred => "inferred",
            Origin::Assumed => "NOT PUBLISHED",
            Origin::Ours => "own",
            Origin::Given => "given",
        }
    }
}

/// How much of a server a service pays for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribution {
    /// The whole server, whatever else runs there.
    Whole,
    /// The share of the server's cores that are allocated; cards are paid for whole.
    Cores,
}

impl Attribution {
    /// The word as it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Attribution::Whole => "whole",
            Attribution::Cores => "cores",
        }
    }
}

/// All named constants.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // INPUTS says what each is.
pub struct Inputs {
    pub server_usd: f64,
    pub card_usd: f64,
    pub server_kw: f64,
    pub card_kw: f64,
    pub usd_per_kwh: f64,
    pub pue: f64,
    pub unit_usd_year: f64,
    pub rack_units: f64,
    pub rack_kw: f64,
    pub servers_per_rack: f64,
    pub cores_per_server: f64,
    pub core_step: f64,
    pub months: f64,
    pub units_per_server: f64,
    pub cards_per_server: f64,
    pub hours_per_month: f64,
    pub max_utilisation: f64,
    pub attribution: Attribution,
    given: BTreeSet<&'static str>,
}

impl Default for Inputs {
    fn default() -> Self {
        Inputs {
            server_usd: 11_289.0,
            card_usd: 748.0,
            server_kw: 0.6,
            card_kw: 0.023,
            usd_per_kwh: 0.12,
            pue: 1.5,
            unit_usd_year: 75.76,
            rack_units: 42.0,
            rack_kw: 10.0,
            servers_per_rack: 8.0,
            cores_per_server: 26.0,
            core_step: 2.0,
            months: 36.0,
            units_per_server: 1.0,
            cards_per_server: 1.0,
            hours_per_month: 730.0,
            max_utilisation: 1.0,
            attribution: Attribution::Cores,
            given: BTreeSet::new(),
        }
    }
}

/// One named constant.
pub struct Input {
    /// The name as typed after `--`.
    pub name: &'static str,
    /// The constant's unit.
    pub unit: &'static str,
    /// The origin of the constant's default.
    pub origin: Origin,
    /// What the constant is, and why it has this default if that was not published.
    pub doc: &'static str,
    least: f64,
    most: f64,
    whole: bool,
    field: fn(&mut Inputs) -> &mut f64,
}

const fn real(
    name: &'static str,
    unit: &'static str,
    origin: Origin,
    range: (f64, f64),
    doc: &'static str,
    field: fn(&mut Inputs) -> &mut f64,
) -> Input {
    Input { name, unit, origin, doc, least: range.0, most: range.1, whole: false, field }
}

const fn count(
    name: &'static str,
    unit: &'static str,
    origin: Origin,
    range: (f64, f64),
    doc: &'static str,
    field: fn(&mut Inputs) -> &mut f64,
) -> Input {
    Input { whole: true, ..real(name, unit, origin, range, doc, field) }
}

use Origin::{Assumed, Inferred, Ours, Published};

/// A price, a power: above zero, below anything one buys for a rack.
const PRICE: (f64, f64) = (0.01, 1e9);
const POWER: (f64, f64) = (0.001, 1e4);

/// Every constant but the way of attribution, which is a word.
#[rustfmt::skip]
pub const INPUTS: &[Input] = &[
    real("server-usd", "USD", Published, PRICE, "price of a server", |i| &mut i.server_usd),
    real("card-usd", "USD", Published, PRICE, "price of a QuickAssist card", |i| &mut i.card_usd),
    real("server-kw", "kW", Published, POWER, "power of a server", |i| &mut i.server_kw),
    real("card-kw", "kW", Published, POWER, "power of a card", |i| &mut i.card_kw),
    real("usd-per-kwh", "USD/kWh", Published, (0.0001, 1e3), "price of energy", |i| &mut i.usd_per_kwh),
    real("pue", "", Published, (1.0, 10.0), "what the site draws for each kW of the rack", |i| &mut i.pue),
    real("unit-usd-year", "USD/U/year", Published, (0.0, 1e6), "price of a rack unit's space", |i| &mut i.unit_usd_year),
    count("rack-units", "U", Published, (1.0, 1e3), "height of a rack", |i| &mut i.rack_units),
    real("rack-kw", "kW", Published, (0.01, 1e6), "what a rack may draw, before PUE", |i| &mut i.rack_kw),
    count("servers-per-rack", "", Published, (1.0, 1e3), "servers in a rack", |i| &mut i.servers_per_rack),
    count("cores-per-server", "cores", Inferred, (1.0, 1e4), "of all counts only 26 gives the published idle shares at 5K, 9K and 30K", |i| &mut i.cores_per_server),
    count("core-step", "cores", Inferred, (1.0, 1e3), "cores are allocated in steps; every published allocation is even", |i| &mut i.core_step),
    count("months", "months", Assumed, (1.0, 1200.0), "amortisation of servers and cards; three years are usual", |i| &mut i.months),
    count("units-per-server", "U", Assumed, (1.0, 100.0), "rack units of a server", |i| &mut i.units_per_server),
    count("cards-per-server", "", Assumed, (1.0, 64.0), "most cards that a server takes", |i| &mut i.cards_per_server),
    real("hours-per-month", "h", Ours, (1.0, 744.0), "a year of 8,760 hours over twelve", |i| &mut i.hours_per_month),
    real("max-utilisation", "", Ours, (0.01, 1.0), "share of a measured rate that a plan may use; the published model uses all of it", |i| &mut i.max_utilisation),
];

/// The name of the one input that is a word.
pub const ATTRIBUTION: &str = "attribution";

impl Inputs {
    /// Sets one input by its name.
    ///
    /// # Errors
    /// There is no such input, or the value is not one that it can have.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), Problem> {
        if name == ATTRIBUTION {
            self.attribution = match text {
                "whole" => Attribution::Whole,
                "cores" => Attribution::Cores,
                _ => {
                    let expected = "expected 'whole' (the whole server) or 'cores' (its allocated cores)".into();
                    return Err(Problem::BadValue { name: name.into(), value: text.into(), expected });
                }
            };
            self.given.insert(ATTRIBUTION);
            return Ok(());
        }
        let input = INPUTS
            .iter()
            .find(|input| input.name == name)
            .ok_or_else(|| Problem::UnknownInput { name: name.into(), nearest: nearest(name) })?;
        *(input.field)(self) = number(name, text, input.least, input.most, input.whole)?;
        self.given.insert(input.name);
        Ok(())
    }

    /// The value of one input.
    pub fn value(&self, input: &Input) -> f64 {
        // The table's accessor lends for writing; a copy is lent.
        *(input.field)(&mut self.clone())
    }

    /// The origin of one input's value.
    pub fn origin(&self, input: &Input) -> Origin {
        if self.given.contains(input.name) { Origin::Given } else { input.origin }
    }

    /// The origin of the way of attribution.
    pub fn attribution_origin(&self) -> Origin {
        if self.given.contains(ATTRIBUTION) { Origin::Given } else { Origin::Assumed }
    }
}

/// The input whose name shares most letters at its beginning and parts with `name`.
fn nearest(name: &str) -> &'static str {
    let alike = |known: &str| {
        let parts = known.split('-').filter(|part| name.split('-').any(|p| p == *part)).count();
        parts * 8 + known.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count()
    };
    // The last of equals is taken: the table's order counts from its top.
    let names = INPUTS.iter().rev().map(|input| input.name);
    [ATTRIBUTION].into_iter().chain(names).max_by_key(|known| alike(known)).unwrap_or(ATTRIBUTION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_within_its_own_range() {
        let inputs = Inputs::default();
        for input in INPUTS {
            let value = inputs.value(input);
            assert!(Inputs::default().set(input.name, &value.to_string()).is_ok(), "{} = {value}", input.name);
        }
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let mut inputs = Inputs::default();
        for input in INPUTS {
            for text in ["NaN", "inf", "-1", "1e300", "", "x", "0x10"] {
                let refused = inputs.set(input.name, text).unwrap_err().to_string();
                assert!(refused.starts_with(input.name) && refused.contains("expected"), "{refused}");
            }
        }
        assert!(inputs.set("months", "1.5").is_err());
        assert!(inputs.set("attribution", "half").unwrap_err().to_string().contains("'whole'"));
        let unknown = inputs.set("server-price", "1").unwrap_err().to_string();
        assert!(unknown.contains("nearest one is 'server-usd'"), "{unknown}");
        assert_eq!(inputs, Inputs::default(), "what was refused has changed nothing");
    }

    #[test]
    fn what_is_given_says_so() {
        let mut inputs = Inputs::default();
        inputs.set("max-utilisation", "80%").unwrap();
        assert_eq!(inputs.max_utilisation, 0.8);
        let origins = |name: &str| inputs.origin(INPUTS.iter().find(|i| i.name == name).unwrap());
        assert_eq!(origins("max-utilisation"), Origin::Given);
        assert_eq!(origins("months"), Origin::Assumed);
        assert_eq!(origins("server-usd"), Origin::Published);
    }
}
