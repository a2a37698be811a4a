//! When a server is checked next, and how a result affects its health.

use super::{Effect, Outcome, Verdict, outcome::printable};
use crate::server::Check;
use penstock_config::model::ServerCheck;
use std::time::Duration;

/// What a result means for the server's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conclusion {
    /// No change.
    Steady,
    /// The server goes down.
    Down,
    /// The server comes up.
    Up,
    /// The server stays up only for clients tied to it.
    Stopping,
}

impl Check {
    /// Counts a result: `rise` successes in a row bring a server up, `fall` failures in a row take it down. Returns the
    /// conclusion, and whether its health changed.
    pub fn record(&mut self, outcome: &Outcome, duration: Option<Duration>) -> (Conclusion, bool) {
        self.status = outcome.verdict.short();
        self.description = outcome.verdict.description();
        self.code = outcome.code;
        // Whatever is said about the check is made from this.
        self.info = printable(&outcome.info);
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

    /// Counts what an agent says. Only its own words take the server down: an agent that cannot be asked, or that talks nonsense, changes
    /// nothing.
    pub fn record_agent(&mut self, outcome: &Outcome, duration: Duration) -> (Conclusion, bool) {
        let before = self.health;
        let steady = !matches!(outcome.verdict, Verdict::L7Ok | Verdict::L7Status);
        let (conclusion, moved) = self.record(outcome, Some(duration));
        self.running = false;
        if steady {
            self.health = before;
            return (Conclusion::Steady, false);
        }
        (conclusion, moved)
    }
}

/// The time to the next check: `inter` if the server is healthy, `downinter` if it is down, `fastinter` in between.
pub fn interval(check: &ServerCheck, health: &Check) -> Duration {
    let special = match health.health {
        0 => check.downinter,
        _ if health.is_well() => None,
        _ => check.fastinter,
    };
    special.unwrap_or(check.inter)
}

/// `spread-checks`: moves a check by up to that percentage of its interval, either way; `random` is between 0 and 1.
pub fn spread(interval: Duration, percent: u32, random: f64) -> Duration {
    let share = f64::from(percent.min(50)) / 100.0;
    interval.mul_f64(1.0 + share * (2.0 * random - 1.0))
}

/// The delay of the first check: spread evenly over the interval, so that a start causes no burst.
pub fn first(interval: Duration, index: usize, count: usize, longest: Option<Duration>) -> Duration {
    let interval = longest.map_or(interval, |longest| interval.min(longest));
    // At most a second, so that the state is known soon.
    interval.min(Duration::from_secs(1)).mul_f64(index as f64 / count.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_server_says_moves_a_cursor_or_ends_a_line() {
        let mut check = Check::new(2, 3);
        let info = "-ERR \u{1b}[31mno\r\nJan 1 forged\u{9b}0m\u{7f}";
        check.record(&Outcome::new(Verdict::L7Status, info), None);
        assert_eq!(check.info, "-ERR ?[31mno??Jan 1 forged?0m?");
    }
}
