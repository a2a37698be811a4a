//! The queue of the worker this thread is. rustls' hooks are `Send + Sync` statics, so they find it through the thread.

use crate::{Answer, Class, Counters, DeviceReport, Engine, Failure, Next, Op, Queue, Settings, Share, Ticket, native};
use rustix::time::{ClockId, clock_gettime};
use std::{
    cell::{Cell, RefCell},
    marker::PhantomData,
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
    /// Handshakes under way, and connections at all.
    static PRESENT: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    /// Signs of life: handshakes that have made a step.
    static STEPS: Cell<u64> = const { Cell::new(0) };
    static SHARE: Cell<Share> = const { Cell::new(0) };
}

/// A connection of this worker, counted while this lives: first as a handshake, then as one that computation holds up.
///
/// With one handshake open, nothing can join its operations, so they do not wait; with no other connection, nothing is
/// held up by computing them on the spot.
pub struct Presence {
    opening: bool,
    /// It counts on this thread.
    here: PhantomData<*const ()>,
}

impl Presence {
    /// A handshake begins.
    #[must_use]
    pub fn handshake() -> Presence {
        let (handshakes, all) = PRESENT.get();
        PRESENT.set((handshakes + 1, all + 1));
        stir();
        Presence { opening: true, here: PhantomData }
    }

    /// It is over, the connection stays.
    pub fn opened(&mut self) {
        if std::mem::take(&mut self.opening) {
            let (handshakes, all) = PRESENT.get();
            PRESENT.set((handshakes - 1, all));
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.opened();
        let (handshakes, all) = PRESENT.get();
        PRESENT.set((handshakes, all - 1));
    }
}

/// A handshake has made a step: another operation may be near, so a batch that has nothing else to wait for does so once more.
pub fn stir() {
    STEPS.set(STEPS.get() + 1);
}

/// What is submitted from now on is for this share, until told otherwise.
pub fn set_share(share: Share) {
    SHARE.set(share);
}

/// Gives this thread an engine, in the place of the one it may have. Without one, everything is computed natively on the spot.
pub fn install(engine: Box<dyn Engine>, settings: Settings) {
    WORKER.with(|worker| match &mut worker.borrow_mut().queue {
        Some(queue) => queue.replace(engine, settings),
        none => *none = Some(Queue::new(engine, settings)),
    });
}

/// Takes the engine away again. What it still owes is answered natively first.
pub fn uninstall() {
    WORKER.with(|worker| {
        let worker = &mut *worker.borrow_mut();
        if let Some(mut queue) = worker.queue.take() {
            queue.drain(Instant::now());
            worker.inline.add(&queue.counters);
            worker.inline.is_benched = false;
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
            queue.engine().within().into_iter().for_each(|within| sum.add_faults(within));
        }
        sum
    })
}

/// What this thread's device does, if its engine has one.
pub fn device() -> Option<DeviceReport> {
    WORKER.with(|worker| worker.borrow().queue.as_ref().and_then(Queue::device))
}

/// Queues `op` if it gains by waiting, or answers it at once with what was made ahead; gives it back if it is better
/// computed on the spot.
///
/// # Errors
/// The operation itself, untouched.
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

/// A handshake has failed as it does with a wrong secret, whoever's fault that was: an engine that does not check every key exchange
/// looks closer at the next ones.
pub fn suspect() {
    with_queue(Queue::suspect);
}

/// For the driver: ready while the queue has work.
pub fn poll_work(cx: &mut Context<'_>) -> Poll<()> {
    with_queue(|queue| queue.poll_work(cx)).unwrap_or(Poll::Pending)
}

/// For the driver: wakes it at the next submission.
pub fn watch_submissions(cx: &mut Context<'_>) {
    with_queue(|queue| queue.watch_submissions(cx));
}

/// For the driver: signs of life of the worker's handshakes so far. Unchanged over a pass of the worker's loop, it has
/// nothing to add to a batch.
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
