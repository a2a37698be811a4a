//! The task that gives a worker's queue its turns.

use crate::line;
use penstock_engine::{Next, worker};
use std::{future::poll_fn, pin::pin, task::Poll};
use tokio::{task::yield_now, time::sleep_until};

/// Runs the queue of this thread's engine, and the line before it; one task of each worker. Does nothing at all while nothing
/// waits.
pub async fn drive_engine() {
    tokio::join!(drive_queue(), line::drive());
}

/// A batch closes when nothing else is runnable. `yield_now` puts this task behind a poll of the I/O driver with zero
/// timeout and behind every task that poll made runnable; if none of them has queued anything by the time it comes back,
/// the worker has nothing to add (tokio's `on_thread_park` fires before that poll, and is the wrong place).
async fn drive_queue() {
    loop {
        poll_fn(worker::poll_work).await;
        let mut seen = worker::stirred();
        loop {
            yield_now().await;
            let stirred = worker::stirred();
            let runnable = std::mem::replace(&mut seen, stirred) != stirred;
            match worker::turn(runnable) {
                Next::Idle => break,
                Next::Soon => {}
                Next::At(time) => {
                    let mut sleep = pin!(sleep_until(time.into()));
                    poll_fn(|cx| {
                        if worker::stirred() != seen {
                            return Poll::Ready(());
                        }
                        worker::watch_submissions(cx);
                        sleep.as_mut().poll(cx)
                    })
                    .await;
                }
            }
        }
    }
}
