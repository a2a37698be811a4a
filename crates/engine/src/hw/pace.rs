//! Predicts how long a device takes, from what it has taken.

use crate::{Algorithm, Class, Curve, Work};
use std::time::Duration;

/// The work of one operation of each class, in hundredths of an RSA-2048 signature: from the rates that makers publish for
/// their cards. Only the proportions matter; a card's speed is measured.
pub const fn weight(class: Class) -> u32 {
    match class.work() {
        Work::Sign(Algorithm::Rsa2048) => 100,
        Work::Sign(Algorithm::Rsa3072) => 300,
        Work::Sign(Algorithm::Rsa4096) => 600,
        Work::Sign(Algorithm::EcdsaP256) => point(Curve::P256),
        Work::Sign(Algorithm::EcdsaP384) => point(Curve::P384),
        Work::KeyGen(curve) | Work::Derive(curve) => point(curve),
        Work::Agree(curve) => 2 * point(curve),
        _ => 0,
    }
}

/// The work of one multiplication of a point.
const fn point(curve: Curve) -> u32 {
    match curve {
        Curve::X25519 => 20,
        Curve::P256 => 40,
        Curve::P384 => 90,
    }
}

/// The times that a device's answers have taken so far.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The quickest recent answer of each class: the time it takes with nothing before it.
    least: [Option<Duration>; Class::COUNT],
    /// Time for a unit of work under load: a running mean, to which each answer contributes an eighth.
    unit_ns: f64,
}

impl Default for Pace {
    /// Start value for a card that has not been measured: 50,000 RSA-2048 signatures a second.
    fn default() -> Self {
        Pace { least: [None; Class::COUNT], unit_ns: 200.0 }
    }
}

impl Pace {
    /// Predicted time to answer an operation submitted now, behind this much work.
    pub fn predict(&self, class: Class, backlog: u32) -> Duration {
        let work = f64::from(backlog + weight(class)) * self.unit_ns;
        Duration::from_nanos(work.round() as u64).max(self.least[class as usize].unwrap_or_default())
    }

    /// Learns that an operation submitted behind this much work was answered after `took`.
    pub fn learn(&mut self, class: Class, backlog: u32, took: Duration) {
        const SHARE: f64 = 1.0 / 8.0;
        let unit = took.as_nanos() as f64 / f64::from((backlog + weight(class)).max(1));
        self.unit_ns += (unit - self.unit_ns) * SHARE;
        // It creeps upwards, so that one lucky answer is not believed for ever.
        let least = self.least[class as usize].map_or(took, |least| took.min(least + least / 64));
        self.least[class as usize] = Some(least);
    }

    /// The least time that an operation of this class takes, if it is known.
    pub fn least(&self, class: Class) -> Option<Duration> {
        self.least[class as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: fn(u64) -> Duration = Duration::from_micros;

    #[test]
    fn what_is_predicted_is_what_was_measured_and_grows_with_the_backlog() {
        let mut pace = Pace::default();
        for _ in 0..64 {
            pace.learn(Class::Rsa2048, 0, US(300));
        }
        // In tenths of a millisecond: a mean comes as near as it is let.
        let predicted = |pace: &Pace, backlog| (pace.predict(Class::Rsa2048, backlog).as_micros() + 5) / 100;
        assert_eq!((predicted(&pace, 0), predicted(&pace, 900)), (3, 30));
        // A card that does four at once takes no longer for four: what waits behind them is predicted sooner from then on.
        for _ in 0..64 {
            pace.learn(Class::Rsa2048, 300, US(300));
        }
        assert_eq!((predicted(&pace, 0), predicted(&pace, 900)), (3, 7));
    }

    #[test]
    fn a_card_that_becomes_slow_is_not_believed_to_be_quick_for_long() {
        let mut pace = Pace::default();
        pace.learn(Class::Rsa2048, 0, US(100));
        for _ in 0..200 {
            pace.learn(Class::Rsa2048, 0, US(800));
        }
        assert!(pace.predict(Class::Rsa2048, 0) >= US(790));
    }
}
