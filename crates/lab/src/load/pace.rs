//! When units are due.
//!
//! Open loop: the unit with number n is due n distances after the start, and its time counts from then, whichever side is late. A
//! kernel timer wakes the thread, since tokio's own counts milliseconds.

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::unix::AsyncFd;
use tokio::sync::Semaphore;

/// How many units a run may have, over all threads.
#[derive(Debug)]
pub(crate) struct Budget(AtomicU64);

impl Budget {
    pub(crate) fn new(count: Option<u64>) -> Arc<Budget> {
        Arc::new(Budget(AtomicU64::new(count.unwrap_or(u64::MAX))))
    }

    fn is_spent(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    fn take(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

/// The thread's share of an open loop.
struct Schedule {
    start: Instant,
    first: Duration,
    distance: Duration,
    /// Units that are due and have not been started.
    due: Semaphore,
    begun: Cell<u64>,
}

impl Schedule {
    fn due_at(&self, number: u64) -> Instant {
        // A hundred years of nanoseconds fit.
        let after = self.distance.as_nanos().saturating_mul(u128::from(number));
        self.start + self.first + Duration::from_nanos(u64::try_from(after).unwrap_or(u64::MAX))
    }
}

/// Says when the next unit is due.
pub(crate) struct Pace {
    schedule: Option<Schedule>,
    budget: Arc<Budget>,
}

/// A unit that may begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    /// The time at which the unit was due.
    pub due: Instant,
    /// Whether the connection was waiting for the unit, so that any delay is our own.
    pub waited: bool,
}

impl Pace {
    /// A closed loop: each connection begins its next unit when it is ready.
    pub(crate) fn closed(budget: Arc<Budget>) -> Pace {
        Pace { schedule: None, budget }
    }

    /// Thread `thread` of `threads` has every `threads`th of `rate` units a second, the first of all at `start`.
    pub(crate) fn open(rate: f64, start: Instant, thread: usize, threads: usize, budget: Arc<Budget>) -> Pace {
        let distance = Duration::from_secs_f64(threads as f64 / rate);
        let first = Duration::from_secs_f64(thread as f64 / rate);
        let schedule = Schedule { start, first, distance, due: Semaphore::new(0), begun: Cell::new(0) };
        Pace { schedule: Some(schedule), budget }
    }

    /// Waits for the next unit; `None` when there are no more.
    pub(crate) async fn next(&self) -> Option<Start> {
        let Some(schedule) = &self.schedule else {
            return self.budget.take().then(|| Start { due: Instant::now(), waited: false });
        };
        let waited = match schedule.due.try_acquire() {
            Ok(permit) => {
                permit.forget();
                false
            }
            Err(_) => {
                schedule.due.acquire().await.ok()?.forget();
                true
            }
        };
        if !self.budget.take() {
            return None;
        }
        let number = schedule.begun.get();
        schedule.begun.set(number + 1);
        Some(Start { due: schedule.due_at(number), waited })
    }

    /// Lets units fall due, for as long as it is polled.
    pub(crate) async fn run(&self) -> io::Result<()> {
        let Some(schedule) = &self.schedule else { return std::future::pending().await };
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        // Deprecated for types whose descriptor may change under it; an OwnedFd's does not, and the new way is unsafe.
        #[allow(deprecated)]
        let timer = AsyncFd::new(timerfd_create(TimerfdClockId::Monotonic, flags)?)?;
        let mut released = 0;
        loop {
            let now = Instant::now();
            let mut more = 0;
            while schedule.due_at(released + more) <= now {
                more += 1;
            }
            if more > 0 {
                released += more;
                schedule.due.add_permits(usize::try_from(more).unwrap_or(usize::MAX));
            }
            arm(&timer, schedule.due_at(released).saturating_duration_since(now))?;
            let mut ready = timer.readable().await?;
            // It is read to be quiet; how often it rang does not matter.
            let _ = rustix::io::read(timer.get_ref(), &mut [0; 8]);
            ready.clear_ready();
        }
    }

    /// Lets no further unit begin.
    pub(crate) fn close(&self) {
        if let Some(schedule) = &self.schedule {
            schedule.due.close();
        }
    }

    /// The units that fell due and were never begun: how long ago each was due at `end`.
    pub(crate) fn never_begun(&self, end: Instant) -> Vec<Duration> {
        let Some(schedule) = &self.schedule else { return Vec::new() };
        if self.budget.is_spent() {
            return Vec::new();
        }
        (schedule.begun.get()..)
            .map(|number| schedule.due_at(number))
            .take_while(|due| *due < end)
            .map(|due| end - due)
            .collect()
    }
}

fn arm(timer: &AsyncFd<OwnedFd>, after: Duration) -> io::Result<()> {
    let after = after.max(Duration::from_nanos(1));
    let it_value = Timespec { tv_sec: after.as_secs() as _, tv_nsec: after.subsec_nanos().into() };
    let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &once)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_a_thread<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
    }

    #[test]
    fn units_are_due_at_even_distances_over_all_threads() {
        let start = Instant::now();
        let budget = Budget::new(None);
        let paces: Vec<Pace> = (0..3).map(|t| Pace::open(300.0, start, t, 3, Arc::clone(&budget))).collect();
        let due = |thread: usize, n: u64| paces[thread].schedule.as_ref().unwrap().due_at(n) - start;
        assert_eq!((due(0, 0), due(1, 0)), (Duration::ZERO, Duration::from_secs_f64(1.0 / 300.0)));
        assert_eq!(due(2, 4), Duration::from_secs_f64(2.0 / 300.0) + 4 * Duration::from_millis(10));
    }

    #[test]
    fn a_unit_that_waited_for_a_connection_still_counts_from_when_it_was_due() {
        on_a_thread(async {
            let start = Instant::now();
            let pace = Pace::open(1000.0, start, 0, 1, Budget::new(None));
            let _ = tokio::time::timeout(Duration::from_millis(30), pace.run()).await;
            let first = pace.next().await.unwrap();
            assert!(first.due == start && !first.waited);
            let behind = pace.never_begun(start + Duration::from_millis(30));
            assert_eq!(behind.len(), 29);
            assert_eq!(behind[0], Duration::from_millis(29));
        });
    }

    #[test]
    fn all_threads_together_keep_to_the_budget() {
        on_a_thread(async {
            let budget = Budget::new(Some(5));
            let paces = [Pace::closed(Arc::clone(&budget)), Pace::closed(budget)];
            let mut turns = 0;
            while paces[turns % 2].next().await.is_some() {
                turns += 1;
            }
            assert_eq!(turns, 5);
        });
    }
}
