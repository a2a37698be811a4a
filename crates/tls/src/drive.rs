//! The task that runs a worker's queue.

use crate::line;
use penstock_engine::{Next, worker};
use std::{future::poll_fn, pin::pin, task::Poll};
use tokio::{task::yield_now, time::sleep_until};

/// Runs the queue of this thread's engine, and the line in front of it; one task of each worker. Does nothing while
/// nothing waits.
pub async fn drive_engine() {
    tokio::join!(drive_queue(), line::drive());
}

/// A batch closes when nothing else is runnable. `yield_now` resumes this task after the I/O driver has been polled
/// with zero timeout and after every task which that made runnable; if none of them has queued anything by then, the
/// worker has nothing to add. (tokio's `on_thread_park` fires before that poll, and would be the wrong place.)
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
