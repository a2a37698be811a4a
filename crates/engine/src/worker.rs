//! The queue of the worker this thread is. rustls' hooks are `Send + Sync` statics, so they find it through the thread.

use crate::{Answer, Class, Counters, Engine, Failure, Next, Op, Queue, Settings, Ticket, native};
use std::{
    cell::RefCell,
    task::{Context, Poll},
    time::Instant,
};

#[derive(Default)]
struct Worker {
    queue: Option<Queue>,
    /// Of operations that never entered a queue.
    inline: Counters,
}

thread_local! {
    static WORKER: RefCell<Worker> = RefCell::default();
}

/// Gives this thread an engine. Without one, everything is computed natively on the spot.
pub fn install(engine: Box<dyn Engine>, settings: Settings) {
    WORKER.with(|worker| worker.borrow_mut().queue = Some(Queue::new(engine, settings)));
}

/// Takes the engine away again. What it still owes is answered natively first.
pub fn uninstall() {
    WORKER.with(|worker| {
        let worker = &mut *worker.borrow_mut();
        if let Some(mut queue) = worker.queue.take() {
            queue.drain(Instant::now());
            worker.inline.add(&queue.counters);
        }
    });
}

/// Whether this thread has an engine that can make a caller wait.
pub fn may_wait() -> bool {
    WORKER.with(|worker| worker.borrow().queue.is_some())
}

/// Name of the engine that serves this thread now.
pub fn engine_name() -> &'static str {
    WORKER.with(|worker| worker.borrow().queue.as_ref().map_or("native", Queue::name))
}

/// The counters of this thread.
pub fn counters() -> Counters {
    WORKER.with(|worker| {
        let worker = worker.borrow();
        let mut sum = worker.inline.clone();
        if let Some(queue) = &worker.queue {
            sum.add(&queue.counters);
        }
        sum
    })
}

/// Queues `op` if the engine serves its class; gives it back if it is better computed on the spot.
///
/// # Errors
/// The operation itself, untouched.
pub fn submit(op: Op) -> Result<Ticket, Op> {
    WORKER.with(|worker| {
        let mut worker = worker.borrow_mut();
        match &mut worker.queue {
            Some(queue) if queue.serves(op.class()) => Ok(queue.submit(op, Instant::now())),
            _ => Err(op),
        }
    })
}

/// Computes `op` on the spot, natively.
///
/// # Errors
/// As the operation has it.
pub fn perform(op: &Op) -> Result<Answer, Failure> {
    count_inline(op.class());
    native::compute(op)
}

fn count_inline(class: Class) {
    WORKER.with(|worker| {
        let mut worker = worker.borrow_mut();
        let counters = worker.inline.class_mut(class);
        counters.ops += 1;
        counters.inline += 1;
    });
}

/// For the driver: ready while the queue has work.
pub fn poll_work(cx: &mut Context<'_>) -> Poll<()> {
    with_queue(|queue| queue.poll_work(cx)).unwrap_or(Poll::Pending)
}

/// For the driver: wakes it at the next submission.
pub fn watch_submissions(cx: &mut Context<'_>) {
    with_queue(|queue| queue.watch_submissions(cx));
}

/// For the driver: how many operations were ever queued.
pub fn submitted() -> u64 {
    with_queue(|queue| queue.submitted()).unwrap_or(0)
}

/// For the driver: one turn of the queue.
pub fn turn(runnable: bool) -> Next {
    with_queue(|queue| queue.turn(Instant::now(), runnable)).unwrap_or(Next::Idle)
}

fn with_queue<R>(body: impl FnOnce(&mut Queue) -> R) -> Option<R> {
    WORKER.with(|worker| worker.borrow_mut().queue.as_mut().map(body))
}
