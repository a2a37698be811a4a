//! Everything an operator can see or change: commands in, snapshots out.

use super::{service::Services, shared::Shared};
use crate::worker::{
    control::{Control, Errand},
    state::Worker,
};
use crate::{
    log::ring::Sink,
    observe::counter_file::{Before, Carried},
    peers::PeersView,
    server::Shutdown,
};
use penstock_engine::Plan;
use std::{
    fs::File,
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};
use tokio::sync::mpsc::UnboundedSender;

/// A running data plane. Cheap to clone; the workers run until [`Handle::stop`] or until a drain has finished.
#[derive(Clone)]
pub struct Handle {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub shared: Arc<Shared>,
    /// The services that answer requests inside the process.
    pub services: Services,
    pub state: AtomicU8,
    /// How many workers are handing a connection to another. A worker that increments this reads `state` afterwards,
    /// and code that changes `state` reads this afterwards, so that at least one of them sees the other: hence `SeqCst`
    /// for both.
    pub handing_over: AtomicU32,
    pub started: Instant,
    /// Whether the workers have been started, or are about to be: they then learn of changes by messages.
    pub begun: AtomicBool,
    pub workers: Vec<UnboundedSender<Control>>,
    pub threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What the process is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// The process accepts connections.
    Running,
    /// The process finishes its current connections and accepts no more (SIGUSR1).
    Draining,
    /// The process ends now (SIGTERM).
    Stopping,
}

impl Handle {
    /// A handle for the workers that receive from `workers`.
    pub(crate) fn new(shared: Arc<Shared>, services: Services, workers: Vec<UnboundedSender<Control>>) -> Handle {
        Handle {
            inner: Arc::new(Inner {
                shared,
                services,
                state: AtomicU8::new(0),
                handing_over: AtomicU32::new(0),
                started: Instant::now(),
                begun: AtomicBool::new(false),
                workers,
                threads: Mutex::default(),
            }),
        }
    }
    /// The configuration and the state that workers share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }
    /// The store of certificates, crt-lists, authorities, OCSP responses and ticket keys, all of which can be changed
    /// while the workers run.
    pub fn certificates(&self) -> &penstock_tls::Store {
        &self.inner.shared.certificates
    }
    /// Counts a connection to a stats socket: like HAProxy, `CumConns` and `CumReq` count it.
    pub fn count_operator(&self) {
        self.shared().operators.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
    /// When the workers were started.
    pub fn started(&self) -> Instant {
        self.inner.started
    }
    /// What the process is doing.
    pub fn state(&self) -> State {
        match self.inner.state.load(Ordering::SeqCst) {
            0 => State::Running,
            1 => State::Draining,
            _ => State::Stopping,
        }
    }
    /// Stops listening, closes idle connections and lets every exchange finish; the workers end with the last one, or
    /// when `hard-stop-after` expires.
    pub fn drain(&self) {
        if self.tell(1, || Control::Drain) == 0 {
            self.announce_ends();
        }
    }
    /// Ends the sessions with servers: clients that have not received a response yet get a 502.
    pub fn end_sessions(&self) {
        for backend in self.inner.shared.backends.iter() {
            backend.servers().iter().for_each(|server| server.shut_sessions(Shutdown::Operator));
        }
    }
    /// Ends now, closing every connection.
    pub fn stop(&self) {
        self.tell(2, || Control::Stop);
    }
    /// Makes every worker compute handshakes by this plan from now on. Operations that were already submitted are still
    /// answered.
    pub fn change_engine(&self, plan: &Plan) {
        for worker in &self.inner.workers {
            let _ = worker.send(Control::Engine(Box::new(plan.clone())));
        }
    }
    /// Statistics of the work done beside the workers: passwords hashed, and requests answered by services.
    pub fn aside(&self) -> [(&'static str, crate::process::slow_work::AsideReport); 2] {
        let shared = self.shared();
        [("passwords", shared.hashing.report()), ("services", shared.answering.report())]
    }
    /// Runs `work` on a thread of its own with a lower priority than the workers.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn beside(&self, name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        let work = move || {
            crate::process::slow_work::step_back();
            work();
        };
        std::thread::Builder::new().name(name.into()).spawn(work).map(drop)
    }
    /// How many task turns used up their whole budget, so that a task with more to do had to wait for the others.
    pub fn turns_spent(&self) -> u64 {
        self.shared().pulses.iter().map(crate::worker::pulse::Pulse::turns_spent).sum()
    }
    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.inner.workers.len()
    }
    /// Closes one second of the rates that [`Handle::snapshot`] reports; to be called once a second.
    pub fn pace(&self) {
        let shared = self.shared();
        shared.pace.look(shared);
    }
    /// Adds earlier processes' counters to those of this one, and keeps the sums in a file for the next one: whenever they are
    /// read, and at each call of [`Handle::keep_counters`]. Works once, and must be called before counters are first read.
    pub fn carry_counters(&self, before: Before, ledger: Option<File>) {
        if ledger.is_some() || !matches!(before, Before::Nothing) {
            let _ = self.shared().carried.set(Carried::new(before, ledger));
            self.keep_counters();
        }
    }
    /// Writes the current counters to the file given to [`Handle::carry_counters`], if there is one.
    pub fn keep_counters(&self) {
        if self.shared().carried.get().is_some_and(|carried| carried.open().are_kept()) {
            drop(self.snapshot());
        }
    }
    /// The state of peers. Waits for the thread that speaks with them.
    pub fn peers(&self) -> Vec<PeersView> {
        self.shared().peers.view()
    }
    /// The rings that log lines are kept in, the built-in one first.
    pub fn rings(&self) -> &[Arc<Sink>] {
        self.shared().logs.rings()
    }
    /// How many log lines for standard output (1) or standard error (2) were lost because nobody read them in time.
    pub fn log_lines_lost(&self, descriptor: i32) -> u64 {
        self.shared().logs.dropped_by(descriptor)
    }
    /// Tells those who read rings that there will be no more lines, and lets servers receive the last ones.
    pub fn end_logs(&self) {
        self.shared().logs.end();
    }
    /// How many peers there are besides this process, and with how many there is a session.
    pub fn peer_counts(&self) -> (u32, u32) {
        self.shared().peers.counts()
    }
    /// Runs `job` on every worker.
    pub(crate) fn each_worker(&self, job: fn(&Rc<Worker>)) {
        for worker in &self.inner.workers {
            // A worker that has ended has nothing to do.
            let _ = worker.send(Control::Errand(Errand::new(job)));
        }
    }
    /// Writes a line about the process to its log, with a syslog severity.
    pub fn log(&self, severity: u8, text: String) {
        // Without workers, the process no longer writes anything.
        let _ = self.inner.workers.first().map(|worker| worker.send(Control::Log(severity, text)));
    }
    /// Whether all workers have ended.
    pub fn is_finished(&self) -> bool {
        self.lock().iter().all(JoinHandle::is_finished)
    }
    /// Whether the process was told to end, and all workers have: whatever runs beside them ends then.
    pub(crate) fn has_ended(&self) -> bool {
        self.state() != State::Running && self.is_finished()
    }
    /// Waits until all workers have ended.
    pub fn wait(&self) {
        let threads = std::mem::take(&mut *self.lock());
        for thread in threads {
            // The panic hook has reported it already.
            let _ = thread.join();
        }
        self.shared().programs.end();
        self.shared().taps.end();
        self.end_logs();
    }
    /// Waits like [`Handle::wait`], but at most `limit`; returns whether all workers have ended.
    pub fn wait_for(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        while !self.is_finished() {
            if Instant::now() >= end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    /// Enters a state and tells the workers; returns the state before.
    fn tell(&self, state: u8, message: impl Fn() -> Control) -> u8 {
        let before = self.inner.state.fetch_max(state, Ordering::SeqCst);
        self.inner.shared.taps.drain();
        self.inner.shared.peers.ending.send_modify(|number| *number = number.wrapping_add(1));
        for worker in &self.inner.workers {
            // A worker that has ended needs no message.
            let _ = worker.send(message());
        }
        before
    }
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.inner.threads.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
