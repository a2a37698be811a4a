//! The worker's time: read from the system when a task asks for it in its turn, and then constant until the turn ends or the task ticks,
//! since a request asks for the time a dozen times within a few microseconds.

use std::{
    cell::Cell,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::time::Instant;

/// One worker's clock.
pub(crate) struct Clock {
    now: Cell<Instant>,
    /// `now` in the two forms that counters and logs need: milliseconds since the process started, and microseconds
    /// since 1970.
    ms: Cell<u64>,
    unix_us: Cell<u64>,
    /// When the process started.
    started: std::time::Instant,
    anchor: Cell<Anchor>,
    /// Whether `now` is of an earlier turn.
    is_old: Cell<bool>,
}

/// One moment on every clock.
#[derive(Clone, Copy)]
struct Anchor {
    at: Instant,
    /// Microseconds since the process started.
    run_us: u64,
    /// Microseconds since 1970.
    unix_us: u64,
}

/// How often the time of day is read again, since it may have been set.
const ANCHOR: Duration = Duration::from_millis(200);

impl Clock {
    /// A clock for a process that started at `started`.
    pub fn new(started: std::time::Instant) -> Self {
        let now = Instant::now();
        let anchor = Anchor::new(now, started);
        let (ms, unix_us) = (Cell::new(anchor.run_us / 1_000), Cell::new(anchor.unix_us));
        Clock { now: Cell::new(now), ms, unix_us, started, anchor: Cell::new(anchor), is_old: Cell::new(false) }
    }
    /// Called when a task's turn begins: whoever asks for the time from now on is given that of this turn.
    pub fn turn_begins(&self) {
        self.is_old.set(true);
    }
    /// Reads the time; called by a task that wants to know how long something took within its turn.
    pub fn tick(&self) -> Instant {
        self.is_old.set(false);
        let now = Instant::now();
        let mut anchor = self.anchor.get();
        let mut since = now.saturating_duration_since(anchor.at);
        if since >= ANCHOR {
            anchor = Anchor::new(now, self.started);
            self.anchor.set(anchor);
            since = Duration::ZERO;
        }
        // Less than `ANCHOR`, so there are no whole seconds in it.
        let since_us = u64::from(since.subsec_micros());
        self.ms.set((anchor.run_us + since_us) / 1_000);
        self.unix_us.set(anchor.unix_us + since_us);
        self.now.set(now);
        now
    }
    /// The time of the last [`Clock::tick`], or of when it was first asked for in this turn.
    pub fn now(&self) -> Instant {
        self.tick_once();
        self.now.get()
    }
    /// That time in milliseconds since the process started, which rates are based on.
    pub fn ms(&self) -> u64 {
        self.tick_once();
        self.ms.get()
    }
    /// That time in microseconds since 1970.
    pub fn unix_us(&self) -> u64 {
        self.tick_once();
        self.unix_us.get()
    }
    /// An earlier moment in microseconds since 1970.
    pub fn unix_us_at(&self, then: Instant) -> u64 {
        let passed = self.now().saturating_duration_since(then);
        self.unix_us().saturating_sub(passed.as_micros() as u64)
    }
    /// That time in seconds since 1970.
    pub fn unix_s(&self) -> u64 {
        self.unix_us() / 1_000_000
    }

    fn tick_once(&self) {
        if self.is_old.get() {
            self.tick();
        }
    }
}

impl Anchor {
    fn new(at: Instant, started: std::time::Instant) -> Self {
        Anchor {
            at,
            run_us: at.into_std().saturating_duration_since(started).as_micros() as u64,
            unix_us: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_stands_still_between_ticks() {
        let clock = Clock::new(std::time::Instant::now());
        let (first, unix) = (clock.now(), clock.unix_us());
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!((clock.now(), clock.unix_us()), (first, unix));
        assert!(clock.tick() > first);
        assert!((5_000..1_000_000).contains(&(clock.unix_us() - unix)));
    }

    #[test]
    fn an_earlier_moment_has_the_date_that_it_had() {
        let clock = Clock::new(std::time::Instant::now());
        let (first, unix) = (clock.now(), clock.unix_us());
        std::thread::sleep(Duration::from_millis(5));
        clock.tick();
        assert!(clock.unix_us_at(first).abs_diff(unix) < 1_000);
        let later = clock.now() + Duration::from_secs(1);
        assert_eq!(clock.unix_us_at(later), clock.unix_us());
    }

    #[test]
    fn a_turn_has_its_own_time_without_a_tick() {
        let clock = Clock::new(std::time::Instant::now());
        let (first, unix) = (clock.now(), clock.unix_us());
        std::thread::sleep(Duration::from_millis(5));
        clock.turn_begins();
        assert!((5_000..1_000_000).contains(&(clock.unix_us() - unix)));
        let second = clock.now();
        assert!(second > first);
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(clock.now(), second);
    }
}
