//! One worker's queue: from submission to a checked answer. Pure: `now` comes in, the next deadline goes out.

use crate::{
    Answer, Answers, Class, Counters, DeviceReport, Engine, Failure, Fair, Next, Op, OpId, Share, native,
    policy::{self, Decision, Limits, Load},
};
use slab::Slab;
use std::{
    collections::VecDeque,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

mod bench;
mod ticket;
use bench::Bench;
use ticket::Slot;
pub use ticket::{Ticket, Watch};

/// Bounds of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// When batches close.
    pub limits: Limits,
    /// Time after which a started operation without an answer is redone natively.
    pub deadline: Duration,
    /// Consecutive late or failed operations after which the engine is benched.
    pub late_max: u32,
    /// Time on the bench before the first trial; doubled with every trial that fails, up to a minute.
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

/// Native work allowed in one turn beside the engine's own. Work beyond it waits for the next turn; the first piece never waits.
const NATIVE_PER_TURN: Duration = Duration::from_micros(150);

/// The operations of one worker that are waiting for its engine.
pub struct Queue {
    engine: Box<dyn Engine>,
    settings: Settings,
    entries: Slab<Entry>,
    serial: u64,
    /// Operations not yet given to the engine, by class.
    queued: [Fair<OpId>; Class::COUNT],
    queued_len: usize,
    /// The class that may close first in the next turn: it rotates, so that no class is starved.
    first: usize,
    /// Operations given to the engine, oldest first; their deadlines are in the same order.
    started: VecDeque<OpId>,
    answers: Answers,
    late_in_a_row: u32,
    bench: Option<Bench>,
    submitted: u64,
    driver: Option<Waker>,
    pub(crate) counters: Counters,
}

struct Entry {
    serial: u64,
    op: Rc<Op>,
    slot: Rc<Slot>,
    submitted: Instant,
    /// When the engine got it.
    started: Instant,
}

impl Queue {
    /// An empty queue before `engine`.
    pub fn new(engine: Box<dyn Engine>, settings: Settings) -> Queue {
        Queue {
            engine,
            settings,
            entries: Slab::new(),
            serial: 0,
            queued: Default::default(),
            queued_len: 0,
            first: 0,
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

    /// The engine itself.
    pub(crate) fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// What there is to tell of the engine's device.
    pub fn device(&self) -> Option<DeviceReport> {
        let mut report = self.engine.device()?;
        let bench = self.engine.within().unwrap_or(&self.counters);
        (report.counters.benched, report.counters.is_benched) = (bench.benched, u64::from(bench.is_benched));
        Some(report)
    }

    /// The queue's counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Reports to the engine a handshake that failed the way a wrong shared secret makes it fail.
    pub fn suspect(&mut self) {
        self.engine.suspect();
    }

    /// Whether operations of `class` are queued at all: the engine serves the class and is not benched.
    pub fn serves(&self, class: Class) -> bool {
        self.bench.is_none() && self.engine.lanes(class) > 0
    }

    /// Whether this operation should be queued. `alone`: no other handshake is open whose operations could join it.
    pub fn wants(&mut self, op: &Op, alone: bool, others: bool) -> bool {
        let class = op.class();
        self.engine.offered(class);
        self.serves(class) && self.engine.serves(op) && (!alone || self.engine.worth_alone(class, others))
    }

    /// An answer computed ahead of need, as a ticket that is already answered.
    pub fn at_hand(&mut self, op: &Op) -> Option<Ticket> {
        if !self.serves(op.class()) {
            return None;
        }
        let answer = self.engine.at_hand(op)?;
        let counters = self.counters.class_mut(op.class());
        counters.ops += 1;
        counters.at_hand += 1;
        Some(Ticket::answered(answer))
    }

    /// Queues an operation on behalf of `share`.
    pub fn submit(&mut self, op: Op, share: Share, now: Instant) -> Ticket {
        self.submit_shared(Rc::new(op), share, now)
    }

    /// Queues an operation that has other owners too.
    pub(crate) fn submit_shared(&mut self, op: Rc<Op>, share: Share, now: Instant) -> Ticket {
        let class = op.class();
        self.counters.class_mut(class).ops += 1;
        let slot = Rc::new(Slot::default());
        let id = self.enter(op, slot.clone(), now);
        self.queued[class as usize].push(share, id);
        self.queued_len += 1;
        self.submitted += 1;
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
        Ticket(slot)
    }

    fn enter(&mut self, op: Rc<Op>, slot: Rc<Slot>, now: Instant) -> OpId {
        self.serial += 1;
        let entry = Entry { serial: self.serial, op, slot, submitted: now, started: now };
        OpId { index: self.entries.insert(entry), serial: self.serial }
    }

    /// Number of operations ever queued. If a turn of the worker leaves it unchanged, the worker had nothing to add to a batch.
    pub fn submitted(&self) -> u64 {
        self.submitted
    }

    /// Ready while operations are queued or started; otherwise registers the driver to be woken by the next submission.
    pub fn poll_work(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.entries.is_empty() && self.bench.is_none() {
            self.driver = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// Takes the waker that is waiting for a submission; the caller wakes it.
    pub(crate) fn take_driver(&mut self) -> Option<Waker> {
        self.driver.take()
    }

    /// Wakes `cx` at the next submission.
    pub fn watch_submissions(&mut self, cx: &mut Context<'_>) {
        self.driver = Some(cx.waker().clone());
    }

    /// Runs one turn: closes due batches, lets the engine work, takes its answers. `runnable`: the worker has had other work
    /// since the last turn.
    pub fn turn(&mut self, now: Instant, runnable: bool) -> Next {
        let spent = self.close_due(now, runnable);
        self.retry_bench(now);
        self.collect(now, spent);
        // Last: what has been answered while this worker did not look is not late.
        self.expire(now);
        self.next(now, runnable)
    }

    /// Replaces the engine. Operations that are not answered yet are given to the new one.
    pub fn replace(&mut self, engine: Box<dyn Engine>, settings: Settings) {
        if let Some(within) = self.engine.within() {
            self.counters.add_faults(&Counters { is_benched: false, ..within.clone() });
        }
        (self.engine, self.settings) = (engine, settings);
        (self.late_in_a_row, self.counters.is_benched) = (0, false);
        let trial = self.bench.take().and_then(Bench::running);
        for id in std::mem::take(&mut self.started) {
            match self.entry(id) {
                Some(_) if Some(id) == trial => drop(self.entries.remove(id.index)),
                Some(entry) => {
                    self.queued[entry.op.class() as usize].push(0, id);
                    self.queued_len += 1;
                    self.submitted += 1;
                }
                None => {}
            }
        }
        self.driver.take().into_iter().for_each(Waker::wake);
    }

    /// Answers every operation natively, at once: for a worker that stops.
    pub fn drain(&mut self, now: Instant) {
        self.collect(now, Duration::ZERO);
        let mut ids: Vec<OpId> = self.started.drain(..).collect();
        for line in &mut self.queued {
            ids.extend(std::iter::from_fn(|| line.pop()));
        }
        self.queued_len = 0;
        for id in ids {
            self.redo(id, now);
        }
    }

    fn next(&self, now: Instant, runnable: bool) -> Next {
        let mut next = Next::Idle;
        for class in Class::ALL {
            match policy::decide(&self.load(class, now, runnable), &self.settings.limits) {
                Decision::Nothing => {}
                Decision::Wait(time) if !runnable => next = next.sooner(Next::At(now + time)),
                Decision::Wait(_) | Decision::Close(_) => next = Next::Soon,
            }
        }
        if let Some(first) = self.started.iter().find_map(|id| self.entry(*id)) {
            let deadline = Next::At(first.started + self.settings.deadline);
            next = next.sooner(deadline).sooner(self.engine.next(now));
        }
        if let Some(bench) = &self.bench {
            next = next.sooner(Next::At(bench.retry_at));
        }
        next
    }

    fn entry(&self, id: OpId) -> Option<&Entry> {
        self.entries.get(id.index).filter(|e| e.serial == id.serial)
    }

    fn load(&self, class: Class, now: Instant, runnable: bool) -> Load {
        let line = &self.queued[class as usize];
        let submitted = line.heads().filter_map(|id| self.entry(*id)).map(|entry| entry.submitted).min();
        Load {
            queued: line.len(),
            // Of a class that the engine has stopped serving, nothing waits for company.
            lanes: if self.serves(class) { self.engine.lanes(class) } else { 1 },
            oldest: submitted.map_or(Duration::ZERO, |since| now.saturating_duration_since(since)),
            busy: !line.is_empty() && self.serves(class) && self.engine.is_busy(class),
            runnable,
        }
    }

    /// Closes what is due. Returns what the native library took of this turn, as estimated.
    fn close_due(&mut self, now: Instant, runnable: bool) -> Duration {
        let mut spent = Duration::ZERO;
        if self.queued_len == 0 {
            return spent;
        }
        for place in 0..Class::COUNT {
            let class = Class::ALL[(self.first + place) % Class::COUNT];
            while let Decision::Close(reason) = policy::decide(&self.load(class, now, runnable), &self.settings.limits)
            {
                if !spent.is_zero() && spent + self.native_share(class) > NATIVE_PER_TURN {
                    self.first = (self.first + place) % Class::COUNT;
                    return spent;
                }
                self.counters.closed(reason);
                spent += self.close(class, now);
            }
        }
        spent
    }

    /// How many operations of a class close at once.
    fn take(&self, class: Class) -> usize {
        let queued = self.queued[class as usize].len();
        // What no engine serves is computed natively, one by one as far as a turn goes.
        if self.serves(class) { policy::batch(queued, self.engine.lanes(class), self.engine.most(class)) } else { 1 }
    }

    /// What the native library will take of this turn if a class closes now.
    fn native_share(&self, class: Class) -> Duration {
        let take = self.take(class);
        let batched = self.serves(class) && take >= self.engine.break_even(class);
        if batched { Duration::ZERO } else { self.engine.native_time(class) * take as u32 }
    }

    /// Gives a batch of one class to the engine, or computes it natively where it is too small to pay.
    fn close(&mut self, class: Class, now: Instant) -> Duration {
        let serves = self.serves(class);
        let take = self.take(class);
        let line = &mut self.queued[class as usize];
        let mut batch = Vec::with_capacity(take);
        for id in std::iter::from_fn(|| line.pop()).take(take) {
            self.queued_len -= 1;
            let Some(entry) = self.entries.get_mut(id.index) else { continue };
            if entry.slot.gone.get() {
                self.entries.remove(id.index);
                self.counters.class_mut(class).abandoned += 1;
                continue;
            }
            entry.started = now;
            batch.push((id, entry.op.clone()));
        }
        if batch.is_empty() {
            return Duration::ZERO;
        }
        if !serves || batch.len() < self.engine.break_even(class) {
            let time = self.engine.native_time(class) * batch.len() as u32;
            for (id, op) in batch {
                self.counters.class_mut(class).few += 1;
                self.settle(id, native::compute(&op), now);
            }
            return time;
        }
        let wanted = batch.len();
        let ids: Vec<OpId> = batch.iter().map(|(id, _)| *id).collect();
        self.engine.start(&mut batch, now);
        let left: Vec<OpId> = batch.iter().map(|(id, _)| *id).collect();
        self.started.extend(ids.into_iter().filter(|id| !left.contains(id)));
        if wanted > left.len() {
            self.counters.class_mut(class).batch(wanted - left.len());
        }
        let time = self.engine.native_time(class) * left.len() as u32;
        left.into_iter().for_each(|id| self.redo(id, now));
        time
    }

    fn collect(&mut self, now: Instant, spent: Duration) {
        if self.started.is_empty() {
            return;
        }
        let mut answers = std::mem::take(&mut self.answers);
        self.engine.run(now, spent, &mut answers);
        for (id, result) in answers.drain(..) {
            // An answer to an operation that has been redone, or to none: too late to matter.
            let Some(entry) = self.entry(id) else { continue };
            let op = entry.op.clone();
            if self.is_trial(id) {
                self.entries.remove(id.index);
                self.end_trial(&op, result, now);
                continue;
            }
            match result {
                Ok(answer) if self.engine.checks(op.class()) || op.accepts(&answer) => {
                    self.late_in_a_row = 0;
                    self.settle(id, Ok(answer), now);
                }
                Ok(_) | Err(Failure::Wrong) => {
                    self.counters.class_mut(op.class()).wrong += 1;
                    self.bench(&op, now);
                    self.redo(id, now);
                }
                Err(Failure::Device) => {
                    self.counters.class_mut(op.class()).failed += 1;
                    self.redo(id, now);
                    self.missed(&op, now);
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
            if now.saturating_duration_since(entry.started) < self.settings.deadline {
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
            self.redo(id, now);
            self.missed(&op, now);
        }
    }

    /// Counts an operation that the engine did not answer; after too many in a row the engine is benched.
    fn missed(&mut self, op: &Rc<Op>, now: Instant) {
        self.late_in_a_row += 1;
        if self.late_in_a_row >= self.settings.late_max {
            self.bench(op, now);
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
