//! One thread of the generator: its share of the connections, as tasks on a runtime of its own.

use super::failure::{Failure, When};
use super::pace::{Pace, Start};
use super::settings::Tls;
use super::slot::Slot;
use super::tally::{Agreed, Live, Tally};
use super::wire::{Gauge, Opened, Route, Wire, source};
use super::{Arrivals, Http, LoadPlan, fresh, fresh::Fresh, http2, pace::Budget, tunnel};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::LocalSet;

/// The phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(crate) enum Phase {
    /// All threads wait for each other.
    Prepare,
    /// Load, but nothing counts.
    WarmUp,
    /// What happens counts.
    Measure,
    /// Nothing new begins; what has begun is finished.
    Drain,
    /// Everything is dropped.
    Abandon,
}

/// Tells all threads where the run is.
#[derive(Debug)]
pub(crate) struct Control {
    phase: AtomicU8,
    changed: watch::Sender<Phase>,
    /// When the load began.
    start: OnceLock<Instant>,
}

impl Control {
    pub(crate) fn new() -> Arc<Control> {
        let phase = Phase::Prepare;
        let start = OnceLock::new();
        Arc::new(Control { phase: AtomicU8::new(phase as u8), changed: watch::Sender::new(phase), start })
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.start.get_or_init(Instant::now);
        self.phase.store(phase as u8, Ordering::Release);
        let _ = self.changed.send_replace(phase);
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Prepare,
            1 => Phase::WarmUp,
            2 => Phase::Measure,
            3 => Phase::Drain,
            _ => Phase::Abandon,
        }
    }

    pub(crate) async fn reached(&self, phase: Phase) {
        let mut changes = self.changed.subscribe();
        // The sender lives as long as this.
        let _ = changes.wait_for(|now| *now >= phase).await;
    }
}

/// What a thread is given.
pub(crate) struct Part {
    pub plan: Arc<LoadPlan>,
    pub address: SocketAddr,
    pub thread: usize,
    pub tls: Option<Tls>,
    pub run: fresh::Run,
    pub control: Arc<Control>,
    pub live: Arc<Live>,
    pub budget: Arc<Budget>,
}

/// What a thread's connections share.
pub(crate) struct Worker {
    pub plan: Arc<LoadPlan>,
    /// Numbers for connections with names of their own.
    pub fresh: Option<Fresh>,
    pub gauge: Rc<Gauge>,
    control: Arc<Control>,
    pace: Pace,
    tally: RefCell<Tally>,
    /// Bytes in and out when the measurement began.
    traffic: Cell<(u64, u64)>,
    closed: Cell<bool>,
}

/// A unit in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit {
    turn: Start,
    /// Whether the unit began while results counted.
    measured: bool,
}

/// Makes the load, on this thread, from when all are ready until it is over.
pub(crate) fn run(share: Part, runtime: &Runtime) -> Tally {
    runtime.block_on(share.control.reached(Phase::WarmUp));
    let start = *share.control.start.get_or_init(Instant::now);
    let plan = Arc::clone(&share.plan);
    let pace = match plan.arrivals {
        Arrivals::Closed => Pace::closed(share.budget),
        Arrivals::Open(rate) => Pace::open(rate, start + plan.phase, share.thread, plan.threads, share.budget),
    };
    let worker = Rc::new(Worker {
        fresh: Fresh::new(&plan, share.run, share.thread),
        gauge: Rc::new(Gauge { live: share.live, ..Gauge::default() }),
        control: share.control,
        pace,
        tally: RefCell::default(),
        traffic: Cell::default(),
        closed: Cell::new(false),
        plan,
    });
    let plan = &worker.plan;
    let local = LocalSet::new();
    let mut slots = Vec::new();
    for number in (share.thread..plan.connections).step_by(plan.threads) {
        let tls = share.tls.as_ref().map(|tls| if plan.resume { tls.resuming() } else { tls.clone() });
        let route = Route {
            to: share.address,
            from: source(plan, number, share.address.ip()),
            tls,
            tunnel: tunnel::request(plan),
        };
        let slot = Slot::new(Rc::clone(&worker), route);
        slots.push(match plan.http {
            Http::One => local.spawn_local(slot.run()),
            Http::Two => local.spawn_local(http2::run(slot)),
        });
    }
    runtime.block_on(local.run_until(async {
        let all = async {
            for slot in slots {
                // A slot that panicked has said so.
                let _ = slot.await;
            }
        };
        tokio::select! {
            () = all => {}
            () = worker.attend() => {}
            () = worker.control.reached(Phase::Abandon) => {}
        }
    }));
    drop(local);
    worker.close_accounts();
    worker.tally.take()
}

impl Worker {
    /// Keeps the schedule, and the accounts that begin and end with the measurement; never returns.
    async fn attend(&self) {
        let phases = async {
            self.control.reached(Phase::Measure).await;
            self.traffic.set((self.gauge.bytes_in.get(), self.gauge.bytes_out.get()));
            self.control.reached(Phase::Drain).await;
            self.close_accounts();
            self.pace.close();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = phases => {}
            outcome = self.pace.run() => {
                if let Err(e) = outcome {
                    self.tally.borrow_mut().error(Failure::of_socket(&e, When::Connect));
                }
                std::future::pending::<()>().await;
            }
        }
    }

    /// What is known only when the measured time ends.
    fn close_accounts(&self) {
        if self.closed.replace(true) {
            return;
        }
        let end = Instant::now();
        let before = self.traffic.get();
        let mut tally = self.tally.borrow_mut();
        tally.totals.bytes_in = self.gauge.bytes_in.get() - before.0;
        tally.totals.bytes_out = self.gauge.bytes_out.get() - before.1;
        for age in self.pace.never_begun(end) {
            tally.totals.never_begun += 1;
            tally.latency.total.record(age);
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.control.phase() >= Phase::Drain
    }

    /// Waits until nothing new may begin.
    pub(crate) async fn over(&self) {
        self.control.reached(Phase::Drain).await;
    }

    /// Waits for the next unit; none when the run is over.
    pub(crate) async fn next(&self) -> Option<Unit> {
        if self.is_over() {
            return None;
        }
        let turn = self.pace.next().await?;
        let measured = self.control.phase() == Phase::Measure;
        if measured && turn.waited {
            self.tally.borrow_mut().latency.own_delay.record(turn.due.elapsed());
        }
        Some(Unit { turn, measured })
    }

    fn counts(&self) -> bool {
        self.control.phase() == Phase::Measure
    }

    /// A connection is ready.
    pub(crate) fn opened(&self, wire: &Wire, opened: Opened) {
        let agreed = wire.session().map(|session| Agreed::of(session).with_signature());
        if !self.counts() {
            return;
        }
        let mut tally = self.tally.borrow_mut();
        tally.latency.connect.record(opened.connect);
        if let Some(time) = opened.tunnel {
            tally.latency.tunnel.record(time);
        }
        if let Some(time) = opened.handshake {
            tally.latency.handshake.record(time);
        }
        if let Some(agreed) = agreed {
            tally.handshake(agreed);
        }
    }

    /// A response has come.
    pub(crate) fn response(&self, status: u16, body_bytes: u64, first_byte: std::time::Duration) {
        self.gauge.live.body(body_bytes);
        if !self.counts() {
            return;
        }
        let mut tally = self.tally.borrow_mut();
        tally.totals.responses += 1;
        tally.totals.body_bytes += body_bytes;
        tally.statuses[usize::from(status / 100).min(9)] += 1;
        tally.latency.first_byte.record(first_byte);
    }

    /// A connection was closed, not cleanly.
    pub(crate) fn unclean(&self) {
        if self.counts() {
            self.tally.borrow_mut().totals.unclean_closes += 1;
        }
    }

    /// A unit was finished at that moment.
    pub(crate) fn finish(&self, unit: Unit, at: Instant) {
        self.gauge.live.done();
        let mut tally = self.tally.borrow_mut();
        match self.control.phase() {
            Phase::Measure => tally.totals.done += 1,
            Phase::Drain if unit.measured => tally.totals.late += 1,
            _ => return,
        }
        if unit.measured {
            tally.latency.total.record(at.saturating_duration_since(unit.turn.due));
        }
    }

    /// A unit failed. One that was given up has waited all the same.
    pub(crate) fn fail(&self, unit: Unit, failure: Failure) {
        self.gauge.live.failed();
        let mut tally = self.tally.borrow_mut();
        if unit.measured && matches!(failure, Failure::TimedOut(_)) {
            tally.latency.total.record(unit.turn.due.elapsed());
        }
        if unit.measured || self.counts() {
            tally.error(failure);
        }
    }
}

/// How far a slot is.
pub(crate) type Progress = Cell<When>;
