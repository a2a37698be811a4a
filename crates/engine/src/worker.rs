//! The queue of the worker this thread is. rustls' hooks are `Send + Sync` statics, so they find it through the thread.

use crate::{Answer, Class, Counters, DeviceReport, Engine, Failure, Next, Op, Queue, Settings, Share, Ticket, native};
use rustix::time::{ClockId, clock_gettime};
use std::{
    cell::{Cell, RefCell},
    marker::PhantomData,
    task::{Context, Poll, Waker},
    time::Instant,
};

#[derive(Default)]
struct Worker {
    queue: Option<Queue>,
    /// The driver, while there is no queue to wake it: it waits for one to be installed.
    driver: Option<Waker>,
    /// Counters of operations that never entered a queue.
    inline: Counters,
}

thread_local! {
    static WORKER: RefCell<Worker> = RefCell::default();
    /// Handshakes in progress, and all connections.
    static PRESENT: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    /// Number of steps that handshakes have made; while it grows, more operations may come.
    static STEPS: Cell<u64> = const { Cell::new(0) };
    static SHARE: Cell<Share> = const { Cell::new(0) };
}

/// Counts a connection of this worker while it lives: first as a handshake, then as one that computation would hold up.
///
/// With one handshake open, nothing can join its operations, so they do not wait; with no other connection, nothing is
/// held up by computing them at once.
pub struct InProgress {
    opening: bool,
    /// Keeps the value on its thread, where it is counted.
    here: PhantomData<*const ()>,
}

impl InProgress {
    /// Counts a handshake that begins.
    #[must_use]
    pub fn handshake() -> InProgress {
        let (handshakes, all) = PRESENT.get();
        PRESENT.set((handshakes + 1, all + 1));
        stir();
        InProgress { opening: true, here: PhantomData }
    }

    /// The handshake is over; the connection goes on.
    pub fn opened(&mut self) {
        if std::mem::take(&mut self.opening) {
            let (handshakes, all) = PRESENT.get();
            PRESENT.set((handshakes - 1, all));
        }
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.opened();
        let (handshakes, all) = PRESENT.get();
        PRESENT.set((handshakes, all - 1));
    }
}

/// Notes that a handshake has made a step: another operation may follow soon, so a batch about to close waits one more turn.
pub fn stir() {
    STEPS.set(STEPS.get() + 1);
}

/// Sets the share on whose behalf operations are submitted from now on.
pub fn set_share(share: Share) {
    SHARE.set(share);
}

/// Installs an engine on this thread, replacing any other. Without one, everything is computed natively at once.
pub fn install(engine: Box<dyn Engine>, settings: Settings) {
    WORKER.with(|worker| {
        let worker = &mut *worker.borrow_mut();
        match &mut worker.queue {
            Some(queue) => queue.replace(engine, settings),
            none => *none = Some(Queue::new(engine, settings)),
        }
        worker.driver.take().into_iter().for_each(Waker::wake);
    });
}

/// Removes the engine. Operations it has not answered are answered natively first.
pub fn uninstall() {
    WORKER.with(|worker| {
        let worker = &mut *worker.borrow_mut();
        if let Some(mut queue) = worker.queue.take() {
            queue.drain(Instant::now());
            worker.driver = queue.take_driver();
            worker.inline.add(&queue.counters);
            worker.inline.is_benched = false;
        }
    });
}

/// Whether this thread has an engine, so that an operation may have to wait.
pub fn may_wait() -> bool {
    WORKER.with(|worker| worker.borrow().queue.is_some())
}

/// Name of this thread's engine.
pub fn engine_name() -> &'static str {
    WORKER.with(|worker| worker.borrow().queue.as_ref().map_or("native", Queue::name))
}

/// Counters of this thread's queue.
pub fn counters() -> Counters {
    WORKER.with(|worker| {
        let worker = worker.borrow();
        let mut sum = worker.inline.clone();
        if let Some(queue) = &worker.queue {
            sum.add(&queue.counters);
            queue.engine().within().into_iter().for_each(|within| sum.add_faults(within));
        }
        sum
    })
}

/// State of this thread's device; `None` if its engine has none.
pub fn device() -> Option<DeviceReport> {
    WORKER.with(|worker| worker.borrow().queue.as_ref().and_then(Queue::device))
}

/// Queues `op` if waiting pays, or answers it at once from what was computed ahead.
///
/// # Errors
/// The operation itself, if it is better computed at once.
pub fn submit(op: Op) -> Result<Ticket, Op> {
    WORKER.with(|worker| {
        let mut worker = worker.borrow_mut();
        let Some(queue) = &mut worker.queue else { return Err(op) };
        if let Some(ticket) = queue.at_hand(&op) {
            return Ok(ticket);
        }
        let (handshakes, all) = PRESENT.get();
        if queue.wants(&op, handshakes == 1, all > 1) {
            Ok(queue.submit(op, SHARE.get(), Instant::now()))
        } else {
            Err(op)
        }
    })
}

/// Computes `op` natively, at once.
///
/// # Errors
/// If the operation has no result: see [`Failure`].
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

/// Reports a handshake that failed as one with a wrong shared secret does, whichever side is at fault: an engine that
/// does not check every key exchange rechecks the next ones.
pub fn suspect() {
    with_queue(Queue::suspect);
}

/// For the driver: ready while this thread's queue has work. Otherwise the next submission wakes it, even one to an
/// engine installed later.
pub fn poll_work(cx: &mut Context<'_>) -> Poll<()> {
    WORKER.with(|worker| {
        let worker = &mut *worker.borrow_mut();
        match &mut worker.queue {
            Some(queue) => queue.poll_work(cx),
            None => {
                worker.driver = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    })
}

/// For the driver: registers it to be woken at the next submission.
pub fn watch_submissions(cx: &mut Context<'_>) {
    with_queue(|queue| queue.watch_submissions(cx));
}

/// For the driver: steps that the worker's handshakes have made. If a pass of the worker's loop leaves the number unchanged, no
/// operation is about to join a batch.
pub fn stirred() -> u64 {
    STEPS.get() + with_queue(|queue| queue.submitted()).unwrap_or(0)
}

/// For the driver: one turn of the queue.
pub fn turn(runnable: bool) -> Next {
    let began = thread_cpu_ns();
    with_queue(|queue| {
        let next = queue.turn(Instant::now(), runnable);
        queue.counters.turned(thread_cpu_ns() - began);
        next
    })
    .unwrap_or(Next::Idle)
}

pub(crate) fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn with_queue<R>(body: impl FnOnce(&mut Queue) -> R) -> Option<R> {
    WORKER.with(|worker| worker.borrow_mut().queue.as_mut().map(body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Classes, Curve,
        sw::{Costs, Sw},
    };
    use penstock_lanes::Lanes;
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        task::Wake,
    };

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_driver_older_than_the_engine_drives_it() {
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let mut cx = Context::from_waker(&waker);
        let engine = || Box::new(Sw::new(Lanes::detect(), Costs::assumed(), Classes::default()));
        let mut times = 0;
        // Without an engine, with one, and with another after a while without: each time the driver must hear of an operation.
        for _ in 0..2 {
            assert!(poll_work(&mut cx).is_pending());
            install(engine(), Settings::default());
            assert!(woken.0.load(Ordering::Relaxed) > times, "the driver hears of the engine");
            assert!(poll_work(&mut cx).is_pending());
            let _ticket = with_queue(|queue| queue.submit(Op::KeyGen { curve: Curve::X25519 }, 0, Instant::now()));
            assert!(poll_work(&mut cx).is_ready());
            while turn(false) != Next::Idle {}
            assert!(poll_work(&mut cx).is_pending());
            uninstall();
            times = woken.0.load(Ordering::Relaxed);
        }
    }
}
