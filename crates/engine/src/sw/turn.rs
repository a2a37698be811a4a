//! The budget of one turn of the worker's loop for public-key work.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Most public-key work in one turn, by which other connections of the worker may be held up.
pub const TURN_BUDGET: Duration = Duration::from_micros(300);
/// The planned part of it. The rest is for what no plan sees: tasks woken, cold caches, a piece that takes longer than
/// measured. (With 230 planned, 1 to 3 % of the turns took longer than 300.)
pub(super) const PLANNED: Duration = Duration::from_micros(190);

/// A reading of a clock: the time since some fixed moment.
pub(super) fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The running turn. Work comes in pieces of known cost; after each, the larger of plan and clock counts.
pub(super) struct Turn {
    clock: fn() -> Duration,
    /// The clock's reading when nothing had been spent.
    zero: Duration,
    spent: Duration,
    /// Whether the next piece may begin whatever it costs.
    free: bool,
}

impl Turn {
    /// Begins a turn that has already spent `spent`. `free`: the first piece begins whatever it costs, so that a piece
    /// larger than any budget is done eventually.
    pub fn begin(clock: fn() -> Duration, spent: Duration, free: bool) -> Turn {
        Turn { clock, zero: clock().saturating_sub(spent), spent, free }
    }

    /// Whether a piece of this cost may begin, if `until` is the most that may be spent.
    pub fn has_room(&self, cost: Duration, until: Duration) -> bool {
        self.free || self.spent + cost <= until
    }

    /// Counts a piece of this cost.
    pub fn charge(&mut self, cost: Duration) {
        self.free = false;
        self.spent = (self.spent + cost).max((self.clock)().saturating_sub(self.zero));
    }

    /// The time spent so far.
    pub fn spent(&self) -> Duration {
        self.spent
    }

    /// The time left up to `until`.
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
