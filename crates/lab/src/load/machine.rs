//! What this machine did meanwhile: time its threads ran or waited, time its host took away, the wall clock.

use std::fs;
use std::time::{Duration, Instant, SystemTime};

/// A thread's account with the scheduler.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    /// On a core.
    pub ran: Duration,
    /// Ready, but without one.
    pub waited: Duration,
}

impl Spent {
    pub(crate) fn of_this_thread() -> Spent {
        Spent::read("/proc/thread-self/schedstat")
    }

    pub(crate) fn of_thread(id: i32) -> Spent {
        Spent::read(&format!("/proc/self/task/{id}/schedstat"))
    }

    fn read(path: &str) -> Spent {
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut numbers = text.split_whitespace().map(|word| Duration::from_nanos(word.parse().unwrap_or(0)));
        Spent { ran: numbers.next().unwrap_or_default(), waited: numbers.next().unwrap_or_default() }
    }

    pub(crate) fn since(self, before: Spent) -> Spent {
        Spent { ran: self.ran.saturating_sub(before.ran), waited: self.waited.saturating_sub(before.waited) }
    }
}

/// The clocks and the host's account at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub at: Instant,
    wall: SystemTime,
    /// Ticks of all cores, and those of them that the host gave to others.
    ticks: u64,
    stolen: u64,
}

impl Moment {
    pub(crate) fn now() -> Moment {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let fields: Vec<u64> = stat
            .lines()
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .skip(1)
            .map(|word| word.parse().unwrap_or(0))
            .collect();
        // Guests' time, behind the eighth, is in the first two already.
        let ticks = fields.iter().take(8).sum();
        Moment { at: Instant::now(), wall: SystemTime::now(), ticks, stolen: fields.get(7).copied().unwrap_or(0) }
    }

    /// Seconds since 1970.
    pub(crate) fn unix(&self) -> f64 {
        self.wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
    }

    /// The share of this machine's time that its host gave to others since `before`.
    pub(crate) fn stolen_since(&self, before: &Moment) -> f64 {
        let ticks = self.ticks.saturating_sub(before.ticks);
        if ticks == 0 { 0.0 } else { self.stolen.saturating_sub(before.stolen) as f64 / ticks as f64 }
    }

    /// How far the wall clock was moved since `before`, seconds.
    pub(crate) fn clock_moved_since(&self, before: &Moment) -> f64 {
        (self.unix() - before.unix()) - (self.at - before.at).as_secs_f64()
    }
}
