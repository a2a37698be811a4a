//! What one turn of the worker's loop may spend on public-key work.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Most public-key work of one turn: what other connections of the worker may be held up by.
pub const TURN_BUDGET: Duration = Duration::from_micros(300);
/// What of it is planned. The rest is for what no plan sees: tasks woken, caches that are cold, a piece that takes longer than
/// when it was measured. (With 230 planned, 1 to 3 % of the turns took longer than 300.)
pub(super) const PLANNED: Duration = Duration::from_micros(190);

/// The time since some moment.
pub(super) fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The turn that runs. Work comes in pieces whose costs are known; after each, what the clock says counts where it is more.
pub(super) struct Turn {
    clock: fn() -> Duration,
    /// What the clock said when nothing had been spent.
    zero: Duration,
    spent: Duration,
    /// The next piece may be begun whatever it costs.
    free: bool,
}

impl Turn {
    /// Begins with what has been spent before. `free`: the first piece is begun in any case, so that what costs more than what
    /// is left comes to its turn as well.
    pub fn begin(clock: fn() -> Duration, spent: Duration, free: bool) -> Turn {
        Turn { clock, zero: clock().saturating_sub(spent), spent, free }
    }

    /// Whether a piece of this cost may be begun where all up to `until` may be spent.
    pub fn has_room(&self, cost: Duration, until: Duration) -> bool {
        self.free || self.spent + cost <= until
    }

    /// A piece of this cost is done.
    pub fn charge(&mut self, cost: Duration) {
        self.free = false;
        self.spent = (self.spent + cost).max((self.clock)().saturating_sub(self.zero));
    }

    /// What has been spent.
    pub fn spent(&self) -> Duration {
        self.spent
    }

    /// What is left up to `until`.
    pub fn left(&self, until: Duration) -> Duration {
        until.saturating_sub(self.spent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        static NOW: Cell<u64> = const { Cell::new(0) };
    }
    const US: fn(u64) -> Duration = Duration::from_micros;

    #[test]
    fn what_the_clock_says_counts_where_it_is_more_than_was_planned() {
        NOW.set(1000);
        let mut turn = Turn::begin(|| US(NOW.get()), US(50), false);
        assert!(turn.has_room(US(50), US(100)) && !turn.has_room(US(51), US(100)));
        turn.charge(US(20));
        assert_eq!(turn.spent(), US(70), "no time has passed: what was planned");
        NOW.set(1090);
        turn.charge(US(5));
        assert_eq!((turn.spent(), turn.left(US(100))), (US(140), US(0)));
    }

    #[test]
    fn the_first_piece_is_begun_in_any_case_and_no_other() {
        let mut turn = Turn::begin(Duration::default, US(10), true);
        assert!(turn.has_room(US(1000), US(100)));
        turn.charge(US(1000));
        assert!(!turn.has_room(US(1), US(100)));
    }
}
