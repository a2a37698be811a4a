//! One worker's queue: from submission to a checked answer. Pure: `now` comes in, the next deadline goes out.

use crate::{
    Answer, Class, Counters, Failure, Op, native,
    policy::{self, Decision, Limits, Load},
};
use slab::Slab;
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

mod bench;
use bench::Bench;

/// Names an operation between queue and engine. A number is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpId {
    index: usize,
    serial: u64,
}

/// Where an engine puts what it has computed.
pub type Answers = Vec<(OpId, Result<Answer, Failure>)>;

/// Something that computes operations. It may answer in any order, at any time, or never; the queue checks every answer
/// and redoes natively what is wrong, failed or late.
pub trait Engine {
    /// Its name in metrics and logs.
    fn name(&self) -> &'static str;
    /// How many operations of a class make a full batch; 0 for a class it does not serve.
    fn lanes(&self, class: Class) -> usize;
    /// Takes an operation of a batch that closes. `false` gives it back: no room.
    fn start(&mut self, id: OpId, op: &Rc<Op>, now: Instant) -> bool;
    /// Computes what was started, or collects what a device has finished.
    fn run(&mut self, now: Instant, answers: &mut Answers);
    /// When to call [`Engine::run`] again.
    fn next(&self, now: Instant) -> Next;
}

/// When the queue wants its next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// When something is submitted.
    Idle,
    /// After the worker's other tasks have run once.
    Soon,
    /// At this time, or when something is submitted.
    At(Instant),
}

impl Next {
    fn sooner(self, other: Next) -> Next {
        match (self, other) {
            (Next::Soon, _) | (_, Next::Soon) => Next::Soon,
            (Next::Idle, x) | (x, Next::Idle) => x,
            (Next::At(a), Next::At(b)) => Next::At(a.min(b)),
        }
    }
}

/// Bounds of a queue.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// When batches close.
    pub limits: Limits,
    /// From submission to the native redo of what has not been answered.
    pub deadline: Duration,
    /// Late operations in a row that bench the engine.
    pub late_max: u32,
    /// How long it stays benched before it is tried again; doubled with every trial that fails, up to a minute.
    pub bench: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            limits: Limits::default(),
            deadline: Duration::from_millis(100),
            late_max: 4,
            bench: Duration::from_secs(1),
        }
    }
}

/// The operations of one worker that wait for its engine.
pub struct Queue {
    engine: Box<dyn Engine>,
    settings: Settings,
    entries: Slab<Entry>,
    serial: u64,
    /// Not yet given to the engine, oldest first.
    queued: VecDeque<OpId>,
    queued_by_class: [usize; Class::COUNT],
    /// Given to the engine, oldest first: deadlines are in the same order.
    started: VecDeque<OpId>,
    answers: Answers,
    late_in_a_row: u32,
    bench: Option<Bench>,
    /// Times the engine was given anything since the queue was made; the driver's sign of life in the worker.
    submitted: u64,
    driver: Option<Waker>,
    pub(crate) counters: Counters,
}

struct Entry {
    serial: u64,
    op: Rc<Op>,
    slot: Rc<Slot>,
    submitted: Instant,
}

#[derive(Default)]
struct Slot {
    answer: RefCell<Option<Result<Answer, Failure>>>,
    waker: RefCell<Option<Waker>>,
    /// The ticket was dropped: nobody waits.
    gone: Cell<bool>,
}

/// The claim to one answer. Dropping it abandons the operation, which harms nobody.
pub struct Ticket(Rc<Slot>);

impl Ticket {
    /// Whether the answer is there; if not, the task is woken when it is.
    pub fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.0.answer.borrow().is_some() {
            return Poll::Ready(());
        }
        *self.0.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Whether the answer is there.
    pub fn is_ready(&self) -> bool {
        self.0.answer.borrow().is_some()
    }

    /// The answer, once.
    ///
    /// # Errors
    /// The operation's own failure, or [`Failure::Cancelled`] if it is not answered yet or was taken before.
    pub fn take(&self) -> Result<Answer, Failure> {
        self.0.answer.borrow_mut().take().unwrap_or(Err(Failure::Cancelled))
    }

    /// A second hold on the same claim, to wait by while another holder takes the answer.
    pub fn watch(&self) -> Watch {
        Watch(self.0.clone())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.gone.set(true);
    }
}

/// Sees when a ticket is answered, without owning its answer.
#[derive(Clone)]
pub struct Watch(Rc<Slot>);

impl Watch {
    /// Whether the answer is there (or was taken); if not, the task is woken when it is.
    pub fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.0.gone.get() || self.0.answer.borrow().is_some() {
            return Poll::Ready(());
        }
        *self.0.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Queue {
    /// An empty queue before `engine`.
    pub fn new(engine: Box<dyn Engine>, settings: Settings) -> Queue {
        Queue {
            engine,
            settings,
            entries: Slab::new(),
            serial: 0,
            queued: VecDeque::new(),
            queued_by_class: [0; Class::COUNT],
            started: VecDeque::new(),
            answers: Vec::new(),
            late_in_a_row: 0,
            bench: None,
            submitted: 0,
            driver: None,
            counters: Counters::default(),
        }
    }

    /// The engine's name.
    pub fn name(&self) -> &'static str {
        self.engine.name()
    }

    /// Whether an operation of `class` would wait here at all: the engine serves it and is not benched.
    pub fn serves(&self, class: Class) -> bool {
        self.bench.is_none() && self.engine.lanes(class) > 0
    }

    /// Queues an operation.
    pub fn submit(&mut self, op: Op, now: Instant) -> Ticket {
        self.counters.class_mut(op.class()).ops += 1;
        let slot = Rc::new(Slot::default());
        self.enqueue(Rc::new(op), slot.clone(), now);
        Ticket(slot)
    }

    fn enqueue(&mut self, op: Rc<Op>, slot: Rc<Slot>, now: Instant) -> OpId {
        self.serial += 1;
        self.queued_by_class[op.class() as usize] += 1;
        let index = self.entries.insert(Entry { serial: self.serial, op, slot, submitted: now });
        let id = OpId { index, serial: self.serial };
        self.queued.push_back(id);
        self.submitted += 1;
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
        id
    }

    /// How many operations were ever queued: unchanged over a turn of the worker means it had nothing to add.
    pub fn submitted(&self) -> u64 {
        self.submitted
    }

    /// Ready while there is anything queued or started; else the driver is woken by the next submission.
    pub fn poll_work(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.entries.is_empty() && self.bench.is_none() {
            self.driver = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// Wakes `cx` at the next submission.
    pub fn watch_submissions(&mut self, cx: &mut Context<'_>) {
        self.driver = Some(cx.waker().clone());
    }

    /// One turn: collects, expires, and closes the batch if its time has come. `runnable`: the worker has shown signs of
    /// other work since the last turn.
    pub fn turn(&mut self, now: Instant, runnable: bool) -> Next {
        self.collect(now);
        self.expire(now);
        let load = Load {
            queued: self.queued.len(),
            full: self.has_full_class(),
            oldest: self.queued.front().map_or(Duration::ZERO, |id| self.age(*id, now)),
            runnable,
        };
        let mut next = Next::Idle;
        match policy::decide(&load, &self.settings.limits) {
            Decision::Nothing => {}
            Decision::Wait(_) if runnable => next = Next::Soon,
            Decision::Wait(time) => next = Next::At(now + time),
            Decision::Close(reason) => {
                self.counters.closed(reason);
                self.close(now);
                self.collect(now);
            }
        }
        self.retry_bench(now);
        self.next(next, now)
    }

    /// Answers everything natively, now: for a worker that stops.
    pub fn drain(&mut self, now: Instant) {
        self.collect(now);
        let ids: Vec<OpId> = self.started.drain(..).chain(self.queued.drain(..)).collect();
        self.queued_by_class = [0; Class::COUNT];
        for id in ids {
            self.redo(id, now);
        }
    }

    fn next(&self, wanted: Next, now: Instant) -> Next {
        let mut next = wanted;
        if let Some(first) = self.started.iter().find(|id| self.entry(**id).is_some()) {
            let deadline = self.entry(*first).map_or(now, |e| e.submitted + self.settings.deadline);
            next = next.sooner(Next::At(deadline)).sooner(self.engine.next(now));
        }
        if let Some(bench) = &self.bench {
            next = next.sooner(Next::At(bench.retry_at));
        }
        next
    }

    fn entry(&self, id: OpId) -> Option<&Entry> {
        self.entries.get(id.index).filter(|e| e.serial == id.serial)
    }

    fn age(&self, id: OpId, now: Instant) -> Duration {
        self.entry(id).map_or(Duration::ZERO, |e| now.saturating_duration_since(e.submitted))
    }

    fn has_full_class(&self) -> bool {
        Class::ALL.iter().any(|class| {
            let lanes = self.engine.lanes(*class);
            lanes > 0 && self.queued_by_class[*class as usize] >= lanes
        })
    }

    /// Gives all that is queued to the engine.
    fn close(&mut self, now: Instant) {
        for (class, count) in Class::ALL.iter().zip(self.queued_by_class) {
            if count > 0 {
                let lanes = self.engine.lanes(*class).max(1);
                let counters = self.counters.class_mut(*class);
                for _ in 0..count / lanes {
                    counters.batch(lanes);
                }
                if count % lanes > 0 {
                    counters.batch(count % lanes);
                }
            }
        }
        self.queued_by_class = [0; Class::COUNT];
        while let Some(id) = self.queued.pop_front() {
            let Some(entry) = self.entries.get(id.index) else { continue };
            if entry.slot.gone.get() {
                let entry = self.entries.remove(id.index);
                self.counters.class_mut(entry.op.class()).abandoned += 1;
                continue;
            }
            let op = entry.op.clone();
            if self.engine.lanes(op.class()) > 0 && self.engine.start(id, &op, now) {
                self.started.push_back(id);
            } else {
                self.redo(id, now);
            }
        }
    }

    fn collect(&mut self, now: Instant) {
        if self.started.is_empty() {
            return;
        }
        let mut answers = std::mem::take(&mut self.answers);
        self.engine.run(now, &mut answers);
        for (id, result) in answers.drain(..) {
            // An answer to what was already redone, or to nothing: too late to matter.
            let Some(entry) = self.entry(id) else { continue };
            let op = entry.op.clone();
            if self.is_trial(id) {
                self.entries.remove(id.index);
                self.end_trial(&op, result, now);
                continue;
            }
            match result {
                Ok(answer) if op.accepts(&answer) => {
                    self.late_in_a_row = 0;
                    self.settle(id, Ok(answer), now);
                }
                Ok(_) => {
                    self.counters.class_mut(op.class()).wrong += 1;
                    self.bench(&op, now);
                    self.redo(id, now);
                }
                // Whether the peer's key is at fault is for the native library to say.
                Err(_) => self.redo(id, now),
            }
        }
        self.answers = answers;
        while self.started.front().is_some_and(|id| self.entry(*id).is_none()) {
            self.started.pop_front();
        }
    }

    fn expire(&mut self, now: Instant) {
        while let Some(&id) = self.started.front() {
            let Some(entry) = self.entry(id) else {
                self.started.pop_front();
                continue;
            };
            if now.saturating_duration_since(entry.submitted) < self.settings.deadline {
                break;
            }
            let op = entry.op.clone();
            self.started.pop_front();
            if self.is_trial(id) {
                self.entries.remove(id.index);
                self.end_trial(&op, Err(Failure::Internal), now);
                continue;
            }
            self.counters.class_mut(op.class()).late += 1;
            self.late_in_a_row += 1;
            self.redo(id, now);
            if self.late_in_a_row >= self.settings.late_max {
                self.bench(&op, now);
            }
        }
    }

    fn redo(&mut self, id: OpId, now: Instant) {
        let Some(entry) = self.entry(id) else { return };
        let op = entry.op.clone();
        if self.is_trial(id) {
            self.entries.remove(id.index);
            return;
        }
        if entry.slot.gone.get() {
            self.settle(id, Err(Failure::Cancelled), now);
            return;
        }
        self.counters.class_mut(op.class()).redone += 1;
        self.settle(id, native::compute(&op), now);
    }

    fn settle(&mut self, id: OpId, result: Result<Answer, Failure>, now: Instant) {
        let entry = self.entries.remove(id.index);
        let counters = self.counters.class_mut(entry.op.class());
        if entry.slot.gone.get() {
            counters.abandoned += 1;
            return;
        }
        counters.waited(now.saturating_duration_since(entry.submitted));
        *entry.slot.answer.borrow_mut() = Some(result);
        if let Some(waker) = entry.slot.waker.take() {
            waker.wake();
        }
    }
}
