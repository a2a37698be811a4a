//! What is wrong with what was asked.

use penstock_figures::number::whole;
use std::fmt;

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Problem {
    /// No input has this name.
    UnknownInput {
        /// The name as given.
        name: String,
        /// The nearest known name.
        nearest: &'static str,
    },
    /// A number outside of its range, or none at all.
    BadValue {
        /// The input's name.
        name: String,
        /// The value as given.
        value: String,
        /// The values that are allowed.
        expected: String,
    },
    /// A curve that no machine has: out of order, or falling.
    BadCurve {
        /// The mode whose curve it is.
        name: String,
        /// What is wrong with the curve.
        why: String,
    },
    /// A study that cannot be read.
    BadStudy(String),
    /// A mode without measured rates.
    NoRates(&'static str),
    /// No number of servers of this kind serves the level.
    Unreachable {
        /// The level asked for, TPS.
        level: f64,
        /// Why the level cannot be reached.
        why: String,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::UnknownInput { name, nearest } => {
                write!(f, "there is no input '{name}'; the nearest one is '{nearest}'")
            }
            Problem::BadValue { name, value, expected } => write!(f, "{name} cannot be '{value}': {expected}"),
            Problem::BadCurve { name, why } => write!(f, "the rates of {name} are not usable: {why}"),
            Problem::BadStudy(why) => write!(f, "the study cannot be used: {why}"),
            Problem::NoRates(mode) => write!(f, "there are no rates for {mode}"),
            Problem::Unreachable { level, why } => write!(f, "{} TPS cannot be served: {why}", whole(*level)),
        }
    }
}

impl std::error::Error for Problem {}

/// A finite number within a range, from text.
pub(crate) fn number(name: &str, text: &str, least: f64, most: f64, whole: bool) -> Result<f64, Problem> {
    let bad = |expected: String| Problem::BadValue { name: name.into(), value: text.into(), expected };
    let kind = if whole { "a whole number" } else { "a number" };
    let expected = || format!("expected {kind} from {least} to {most}");
    let (digits, percent) = match text.strip_suffix('%') {
        // A share is as well written in percent.
        Some(digits) if most == 1.0 => (digits, 100.0),
        _ => (text, 1.0),
    };
    let value: f64 = digits.trim().parse().map_err(|_| bad(expected()))?;
    let value = value / percent;
    let fits = value.is_finite() && (least..=most).contains(&value) && (!whole || value.fract() == 0.0);
    if fits { Ok(value) } else { Err(bad(expected())) }
}
