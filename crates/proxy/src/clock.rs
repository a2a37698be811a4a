//! The worker's time: read from the system when a task is woken, and then the same for all it does until it waits again.
//! A request asks for the time a dozen times within a few microseconds.

use std::{
    cell::Cell,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::time::Instant;

/// One worker's clock.
pub(crate) struct Clock {
    now: Cell<Instant>,
    /// `now` in the two forms that counters and logs want, once one of them has asked.
    derived: Cell<Option<Derived>>,
    /// When the process started.
    started: std::time::Instant,
    /// A moment by both clocks: the one that never steps back, and microseconds since 1970.
    anchor: Cell<(Instant, u64)>,
}

#[derive(Clone, Copy)]
struct Derived {
    /// Since the process started.
    ms: u64,
    /// Since 1970.
    unix_us: u64,
}

/// So often the time of day is read again: it may have been set.
const ANCHOR: Duration = Duration::from_millis(200);

impl Clock {
    /// For a process that started then.
    pub fn new(started: std::time::Instant) -> Self {
        let now = Instant::now();
        Clock { now: Cell::new(now), derived: Cell::new(None), started, anchor: Cell::new((now, time_of_day())) }
    }
    /// Reads the time; called when a task has been woken.
    pub fn tick(&self) -> Instant {
        let now = Instant::now();
        self.now.set(now);
        self.derived.set(None);
        now
    }
    /// For a poll: a tick, unless it is the first one, which runs in the turn that made the future.
    pub fn resume(&self, woken: &mut bool) {
        if std::mem::replace(woken, true) {
            self.tick();
        }
    }
    /// The time of the last [`Clock::tick`].
    pub fn now(&self) -> Instant {
        self.now.get()
    }
    /// That time in milliseconds since the process started, by which rates are counted.
    pub fn ms(&self) -> u64 {
        self.derived().ms
    }
    /// That time in microseconds since 1970.
    pub fn unix_us(&self) -> u64 {
        self.derived().unix_us
    }
    fn derived(&self) -> Derived {
        self.derived.get().unwrap_or_else(|| {
            let ms = self.now().into_std().saturating_duration_since(self.started).as_millis() as u64;
            let derived = Derived { ms, unix_us: self.read_unix_us() };
            self.derived.set(Some(derived));
            derived
        })
    }
    fn read_unix_us(&self) -> u64 {
        let now = self.now();
        let (then, unix_us) = self.anchor.get();
        let since = now.saturating_duration_since(then);
        if since < ANCHOR {
            return unix_us + since.as_micros() as u64;
        }
        let unix_us = time_of_day();
        self.anchor.set((now, unix_us));
        unix_us
    }
    /// In seconds.
    pub fn unix_s(&self) -> u64 {
        self.unix_us() / 1_000_000
    }
}

/// Microseconds since 1970.
fn time_of_day() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
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
}
