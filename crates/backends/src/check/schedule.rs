//! When a server is checked next, and what a result makes of its health.

use super::{Effect, Outcome};
use crate::server::Check;
use penstock_config::model::ServerCheck;
use std::time::Duration;

/// What a result means for the server's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conclusion {
    /// Nothing changes.
    Steady,
    /// Down.
    Down,
    /// Up.
    Up,
    /// Up, for those bound to it.
    Stopping,
}

impl Check {
    /// Counts a result: `rise` successes in a row bring a server up, `fall` failures in a row take it down. Says what
    /// follows and whether the health moved.
    pub fn record(&mut self, outcome: &Outcome, duration: Option<Duration>) -> (Conclusion, bool) {
        self.status = outcome.verdict.short();
        self.description = outcome.verdict.description();
        self.code = outcome.code;
        self.info.clone_from(&outcome.info);
        self.duration = duration;
        let effect = outcome.verdict.effect();
        let top = self.rise + self.fall - 1;
        let mut moved = false;
        match effect {
            Effect::Neutral => {}
            Effect::Failed if self.health > 0 => {
                moved = true;
                self.failed += 1;
                self.health -= 1;
                if self.health < self.rise {
                    self.health = 0;
                }
            }
            Effect::Passed | Effect::Conditional if self.health < top => {
                moved = true;
                self.health += 1;
                if self.health >= self.rise {
                    self.health = top;
                }
            }
            _ => {}
        }
        let conclusion = match effect {
            Effect::Failed if self.health == 0 => Conclusion::Down,
            Effect::Passed if self.health >= self.rise => Conclusion::Up,
            Effect::Conditional if self.health >= self.rise => Conclusion::Stopping,
            _ => Conclusion::Steady,
        };
        (conclusion, moved)
    }
}

/// The time to the next check: `inter` when all is well, `downinter` when it is dead, `fastinter` in between.
pub fn interval(check: &ServerCheck, health: &Check) -> Duration {
    let special = match health.health {
        0 => check.downinter,
        _ if health.is_well() => None,
        _ => check.fastinter,
    };
    special.unwrap_or(check.inter)
}

/// `spread-checks` moves a check by up to that share of its interval, either way; `random` is between 0 and 1.
pub fn spread(interval: Duration, percent: u32, random: f64) -> Duration {
    let share = f64::from(percent.min(50)) / 100.0;
    interval.mul_f64(1.0 + share * (2.0 * random - 1.0))
}

/// The first checks are spread evenly over the interval, so that a start is not a burst.
pub fn first(interval: Duration, index: usize, count: usize, longest: Option<Duration>) -> Duration {
    let interval = longest.map_or(interval, |longest| interval.min(longest));
    // A second at most: an operator wants to know.
    interval.min(Duration::from_secs(1)).mul_f64(index as f64 / count.max(1) as f64)
}
