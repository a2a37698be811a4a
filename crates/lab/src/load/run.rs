//! A run from its first connection to its report.

use super::machine::{Moment, Spent};
use super::pace::Budget;
use super::settings::{Checks, Tls};
use super::tally::{Counts, Live, Tally};
use super::worker::{Control, Part, Phase};
use super::{ClientCost, Error, LoadPlan, LoadReport, Second, doubts, fresh, probe, worker};
use crate::cost::Meter;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// How often [`Stop`] is looked at.
const STOP_CHECK: Duration = Duration::from_millis(50);

/// A shorter remainder is not counted as a second of its own.
const SLIVER: f64 = 0.05;

/// How long the last units may take beyond their time-out before they are dropped.
const DRAIN_GRACE: Duration = Duration::from_secs(1);

/// Ends a run early: what was measured by then is reported, and marked partial.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    asked: Arc<AtomicBool>,
    /// Another stop that ends this run too.
    parent: Option<Arc<AtomicBool>>,
}

impl Stop {
    /// Asks for the end.
    pub fn stop(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Whether the end was asked for.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.asked.load(Ordering::Relaxed) || self.parent.as_ref().is_some_and(|parent| parent.load(Ordering::Relaxed))
    }

    /// A stop of its own, which also takes effect when this one does.
    pub(crate) fn child(&self) -> Stop {
        Stop { asked: Arc::default(), parent: Some(Arc::clone(&self.asked)) }
    }
}

/// Carries out a plan on threads of this process, and waits for its end.
///
/// # Errors
/// The plan cannot be carried out: the server is not there, speaks no TLS, or does not agree to what is asked. What fails once
/// the load is running is counted in the report.
pub fn run(plan: &LoadPlan) -> Result<LoadReport, Error> {
    run_with(plan, &Stop::default(), &mut |_| {})
}

/// Like [`run`]; `observe` is called with each second as it ends, and `stop` may cut the run short.
///
/// # Errors
/// See [`run`].
pub fn run_with(plan: &LoadPlan, stop: &Stop, observe: &mut dyn FnMut(&Second)) -> Result<LoadReport, Error> {
    Ready::new(plan)?.run(stop, observe)
}

pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Error> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|e| Error::Local(format!("this machine does not give what a thread needs: {e}")))
}

/// A run whose threads wait for the word to begin.
pub(crate) struct Ready {
    plan: Arc<LoadPlan>,
    control: Arc<Control>,
    threads: Vec<Thread>,
    events: Receiver<Event>,
}

struct Thread {
    live: Arc<Live>,
    id: i32,
    /// The thread's account when the measurement began.
    began: Spent,
    /// The thread's account when the measurement ended.
    ended: Option<Spent>,
}

enum Event {
    Ready(usize, i32),
    Failed(String),
    Finished(usize, Box<Tally>, Spent),
}

impl Ready {
    /// Tries the server, and starts the threads.
    pub(crate) fn new(plan: &LoadPlan) -> Result<Ready, Error> {
        plan.check()?;
        let run = fresh::Run::new();
        let sample = run.sample(plan);
        // What cannot be asked for is said before the server is looked for.
        Tls::new(&sample, Checks::AsPlanned)?;
        let address = probe::resolve(plan)?;
        probe::probe(&sample, address)?;
        let plan = Arc::new(plan.clone());
        let control = Control::new();
        let budget = Budget::new(plan.count);
        let (sender, events) = channel();
        let mut threads = Vec::new();
        for number in 0..plan.threads {
            let live = Arc::new(Live::default());
            let share = Part {
                plan: Arc::clone(&plan),
                address,
                thread: number,
                // Each has its own, so that no count of references is shared.
                tls: Tls::new(&sample, Checks::AsPlanned)?,
                run,
                control: Arc::clone(&control),
                live: Arc::clone(&live),
                budget: Arc::clone(&budget),
            };
            let sender = sender.clone();
            Builder::new()
                .name(format!("load-{number}"))
                .spawn(move || thread(share, &sender))
                .map_err(|e| Error::Local(format!("this machine starts no more threads: {e}")))?;
            threads.push(Thread { live, id: 0, began: Spent::default(), ended: None });
        }
        for _ in 0..plan.threads {
            match events.recv() {
                Ok(Event::Ready(number, id)) => threads[number].id = id,
                Ok(Event::Failed(why)) => {
                    control.enter(Phase::Abandon);
                    return Err(Error::Local(why));
                }
                Ok(Event::Finished(..)) | Err(_) => {}
            }
        }
        Ok(Ready { plan, control, threads, events })
    }

    /// Makes the load.
    pub(crate) fn run(mut self, stop: &Stop, observe: &mut dyn FnMut(&Second)) -> Result<LoadReport, Error> {
        if !self.plan.warm_up.is_zero() {
            self.control.enter(Phase::WarmUp);
            let end = Instant::now() + self.plan.warm_up;
            while Instant::now() < end && !stop.is_stopped() {
                std::thread::sleep(STOP_CHECK.min(end.saturating_duration_since(Instant::now())));
            }
        }
        let meter = match self.plan.watch.is_empty() {
            true => None,
            false => Some(Meter::start(&self.plan.watch).map_err(|e| Error::Plan(e.to_string()))?),
        };
        for thread in &mut self.threads {
            thread.began = Spent::of_thread(thread.id);
        }
        let began = Moment::now();
        let before: Vec<Counts> = self.threads.iter().map(|thread| thread.live.read()).collect();
        self.control.enter(Phase::Measure);

        let mut tallies = Vec::new();
        let mut series = Series::new(before);
        let deadline = began.at + self.plan.duration;
        let mut ended_at = None;
        while ended_at.is_none() {
            let now = Instant::now();
            if now >= deadline || stop.is_stopped() {
                ended_at = Some(now);
            } else {
                let next = series.next_tick(began.at).min(deadline).min(now + STOP_CHECK);
                match self.events.recv_timeout(next.saturating_duration_since(now)) {
                    Ok(event) => self.hear(event, &mut tallies),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => ended_at = Some(Instant::now()),
                }
                if tallies.len() == self.threads.len() {
                    ended_at = Some(Instant::now());
                }
            }
            let now = Instant::now();
            if now >= series.next_tick(began.at) || ended_at.is_some() {
                series.tick(now - began.at, &self.threads, observe);
            }
        }
        self.control.enter(Phase::Drain);
        let server = meter.map(|meter| meter.read());
        for thread in &mut self.threads {
            if thread.ended.is_none() {
                thread.ended = Some(Spent::of_thread(thread.id));
            }
        }
        let ended = Moment::now();
        let cut_short = stop.is_stopped();
        self.drain(stop, &mut tallies);

        let mut tally = Tally::default();
        for one in tallies {
            tally.merge(one);
        }
        let seconds = (ended.at - began.at).as_secs_f64();
        let client = self.client_cost(seconds, tally.totals.done);
        let mut report = tally.into_report(LoadPlan::clone(&self.plan), began.unix(), seconds, series.seconds);
        report.partial = cut_short;
        report.client = client;
        report.server = server;
        report.doubts = doubts::of(&report, &began, &ended);
        Ok(report)
    }

    fn hear(&mut self, event: Event, tallies: &mut Vec<Tally>) {
        if let Event::Finished(number, tally, spent) = event {
            self.threads[number].ended.get_or_insert(spent);
            tallies.push(*tally);
        }
    }

    /// Waits for units that have begun, each for its time-out at the most; not when the run was cut short.
    fn drain(&mut self, stop: &Stop, tallies: &mut Vec<Tally>) {
        let deadline = Instant::now() + self.plan.timeout + DRAIN_GRACE;
        while tallies.len() < self.threads.len() {
            if stop.is_stopped() || Instant::now() >= deadline {
                self.control.enter(Phase::Abandon);
            }
            match self.events.recv_timeout(STOP_CHECK) {
                Ok(event) => self.hear(event, tallies),
                Err(RecvTimeoutError::Timeout) => {}
                // A thread that panicked has said so; the others' results stand.
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    }

    fn client_cost(&self, seconds: f64, units: u64) -> ClientCost {
        let spent = self.threads.iter().map(|thread| thread.ended.unwrap_or_default().since(thread.began));
        let mut cost = ClientCost::default();
        for one in spent {
            let ran = one.ran.as_secs_f64();
            let busy = (one.ran + one.waited).as_secs_f64() / seconds.max(f64::MIN_POSITIVE);
            cost.cpu_seconds += ran;
            cost.busiest_thread = cost.busiest_thread.max(busy.min(1.0));
        }
        cost.cpu_us_per_unit = cost.cpu_seconds * 1e6 / units.max(1) as f64;
        cost.bottleneck = cost.busiest_thread >= doubts::SATURATED;
        cost
    }
}

/// The main function of a thread.
fn thread(share: Part, events: &Sender<Event>) {
    let number = share.thread;
    let cores = &share.plan.cores;
    if !cores.is_empty() {
        let core = cores[number % cores.len()];
        let mut set = CpuSet::new();
        if core < CpuSet::MAX_CPU {
            set.set(core);
        }
        if let Err(e) = sched_setaffinity(None, &set) {
            let _ = events.send(Event::Failed(format!("a thread cannot be pinned to core {core}: {e}")));
            return;
        }
    }
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(e) => {
            let _ = events.send(Event::Failed(e.to_string()));
            return;
        }
    };
    // The receiver is gone if the run has failed elsewhere.
    let _ = events.send(Event::Ready(number, rustix::thread::gettid().as_raw_nonzero().get()));
    let tally = worker::run(share, &runtime);
    let _ = events.send(Event::Finished(number, Box::new(tally), Spent::of_this_thread()));
}

/// What each second brought.
struct Series {
    last: Vec<Counts>,
    at: Duration,
    seconds: Vec<Second>,
}

impl Series {
    fn new(last: Vec<Counts>) -> Series {
        Series { last, at: Duration::ZERO, seconds: Vec::new() }
    }

    fn next_tick(&self, began: Instant) -> Instant {
        began + Duration::from_secs(self.seconds.len() as u64 + 1)
    }

    fn tick(&mut self, at: Duration, threads: &[Thread], observe: &mut dyn FnMut(&Second)) {
        let mut second = Second { at: at.as_secs_f64(), seconds: (at - self.at).as_secs_f64(), ..Second::default() };
        for (thread, last) in threads.iter().zip(&mut self.last) {
            let now = thread.live.read();
            second.done += now.done - last.done;
            second.failed += now.failed - last.failed;
            second.body_bytes += now.body_bytes - last.body_bytes;
            second.open += now.open;
            *last = now;
        }
        self.at = at;
        // The end comes a little after the last whole second.
        match self.seconds.last_mut() {
            Some(last) if second.seconds < SLIVER => last.extend(&second),
            _ => {
                observe(&second);
                self.seconds.push(second);
            }
        }
    }
}
