//! One timer per connection, however many timeouts it has. Moving a deadline is a store; only when the armed timer
//! fires is it compared with the deadline that applies by then. Until then a poll is two comparisons.

use std::{
    future::Future,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio::{
    task::unconstrained,
    time::{Instant, Sleep},
};

/// The next moment at which something times out on a connection; no timer exists before it is first polled.
#[derive(Default)]
pub(crate) struct Deadline {
    due: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
    /// The task that the armed timer wakes.
    wakes: Option<Waker>,
}

impl Deadline {
    /// Sets the timeout to `after` from `now`; `None` means never.
    pub fn set(&mut self, now: Instant, after: Option<Duration>) {
        self.due = after.map(|after| now + after);
    }
    /// Sets the timeout to `due`; `None` means never.
    pub fn set_at(&mut self, due: Option<Instant>) {
        self.due = due;
    }
    /// The moment of the timeout.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }
    /// Ready once the deadline has passed. A timer that is armed for an earlier moment than needed is left to fire.
    pub fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(due) = self.due else { return Poll::Pending };
        let sleep = match &mut self.sleep {
            Some(sleep) => {
                if sleep.deadline() > due {
                    sleep.as_mut().reset(due);
                }
                sleep
            }
            empty => empty.insert(Box::pin(tokio::time::sleep_until(due))),
        };
        let wakes_us = self.wakes.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        if wakes_us && !sleep.is_elapsed() {
            return Poll::Pending;
        }
        // Outside the task's tokio budget: once that is used up, a poll is pending without having armed the timer.
        while pin!(unconstrained(sleep.as_mut())).poll(cx).is_ready() {
            if sleep.deadline() >= due || Instant::now() >= due {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(due);
        }
        if !wakes_us {
            self.wakes = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    fn block_on<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
    }

    #[test]
    fn a_deadline_moved_later_fires_then_and_not_before() {
        block_on(async {
            let start = Instant::now();
            let mut deadline = Deadline::default();
            deadline.set(start, Some(Duration::from_millis(5)));
            assert!(poll_fn(|cx| Poll::Ready(deadline.poll_expired(cx).is_pending())).await);
            deadline.set(start, Some(Duration::from_millis(40)));
            poll_fn(|cx| deadline.poll_expired(cx)).await;
            assert!(start.elapsed() >= Duration::from_millis(40));
        });
    }

    #[test]
    fn a_deadline_wakes_who_polled_it_last() {
        block_on(async {
            let mut deadline = Deadline::default();
            deadline.set(Instant::now(), Some(Duration::from_millis(5)));
            for _ in 0..2 {
                assert!(deadline.poll_expired(&mut Context::from_waker(Waker::noop())).is_pending());
            }
            // The assertion is that this returns at all.
            poll_fn(|cx| deadline.poll_expired(cx)).await;
        });
    }

    #[test]
    fn a_deadline_is_armed_by_a_task_that_has_used_up_its_turn() {
        block_on(async {
            let mut deadline = Deadline::default();
            deadline.set(Instant::now(), Some(Duration::from_millis(5)));
            poll_fn(|cx| {
                while tokio::task::coop::has_budget_remaining() {
                    if let Poll::Ready(spent) = tokio::task::coop::poll_proceed(cx) {
                        spent.made_progress();
                    }
                }
                deadline.poll_expired(cx)
            })
            .await;
            // The assertion is that this returns at all.
        });
    }

    #[test]
    fn a_deadline_moved_earlier_fires_earlier() {
        block_on(async {
            let mut deadline = Deadline::default();
            deadline.set(Instant::now(), Some(Duration::from_secs(3600)));
            assert!(poll_fn(|cx| Poll::Ready(deadline.poll_expired(cx).is_pending())).await);
            deadline.set(Instant::now(), Some(Duration::from_millis(5)));
            // The assertion is that this returns at all.
            poll_fn(|cx| deadline.poll_expired(cx)).await;
        });
    }
}
