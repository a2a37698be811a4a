//! CPU time of this thread, and rounds until the time is up.

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// CPU time of this thread.
pub(super) fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// Rounds until the time is up, three at least.
pub(super) struct Rounds {
    started: Instant,
    time: Duration,
    done: usize,
}

impl Rounds {
    pub(super) fn new(time: Duration) -> Rounds {
        Rounds { started: Instant::now(), time, done: 0 }
    }

    pub(super) fn more(&mut self) -> bool {
        self.done += 1;
        self.done <= 3 || self.started.elapsed() < self.time
    }
}

/// Microseconds of CPU of each of `share` results of a call, over about three milliseconds of calls.
pub(super) fn each(call: &dyn Fn(), share: usize) -> f64 {
    const SLICE: Duration = Duration::from_millis(3);
    let wall = Instant::now();
    let start = thread_time();
    let mut calls = 0;
    loop {
        call();
        calls += 1;
        let spent = thread_time() - start;
        // A clock that stands still ends as well.
        if spent >= SLICE || wall.elapsed() > 100 * SLICE {
            return spent.as_secs_f64() * 1e6 / f64::from(calls) / share as f64;
        }
    }
}
