//! Everything an operator can see or change: command in, snapshot out.

use super::{service::Services, shared::Shared};
use crate::server::Shutdown;
use crate::worker::control::Control;
use penstock_engine::Plan;
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, AtomicU32, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};
use tokio::sync::mpsc::UnboundedSender;

/// A running data plane. Cheap to clone; the workers run until [`Handle::stop`] or until a drain has ended.
#[derive(Clone)]
pub struct Handle {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub shared: Arc<Shared>,
    /// What answers requests inside the process.
    pub services: Services,
    pub state: AtomicU8,
    /// Workers that are handing a connection to another. Whoever enters looks at `state` afterwards, and whoever changes `state`
    /// looks here afterwards, so that one of them sees the other: hence `SeqCst` for both.
    pub handing_over: AtomicU32,
    pub started: Instant,
    pub workers: Vec<UnboundedSender<Control>>,
    pub threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What the process is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It accepts connections.
    Running,
    /// It finishes those it has (SIGUSR1).
    Draining,
    /// It ends now (SIGTERM).
    Stopping,
}

impl Handle {
    /// Of workers that listen to these.
    pub(crate) fn new(shared: Arc<Shared>, services: Services, workers: Vec<UnboundedSender<Control>>) -> Handle {
        Handle {
            inner: Arc::new(Inner {
                shared,
                services,
                state: AtomicU8::new(0),
                handing_over: AtomicU32::new(0),
                started: Instant::now(),
                workers,
                threads: Mutex::default(),
            }),
        }
    }
    /// Configuration and shared state.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }
    /// Certificates, crt-lists, authorities, OCSP responses and ticket keys, and what may be done to them while the workers run.
    pub fn certificates(&self) -> &penstock_tls::Store {
        &self.inner.shared.certificates
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
    /// Stops listening, closes idle connections, lets every exchange finish; the workers end with the last one, or when
    /// `hard-stop-after` says so.
    pub fn drain(&self) {
        self.tell(1, || Control::Drain);
    }
    /// Ends the sessions with servers: clients that have no response yet get a 502.
    pub fn end_sessions(&self) {
        for backend in self.inner.shared.backends.iter() {
            backend.servers().iter().for_each(|server| server.shut_sessions(Shutdown::Operator));
        }
    }
    /// Ends now: every connection is closed.
    pub fn stop(&self) {
        self.tell(2, || Control::Stop);
    }
    /// Lets every worker compute handshakes by this plan from now on. What has been asked for is answered all the same.
    pub fn change_engine(&self, plan: &Plan) {
        for worker in &self.inner.workers {
            let _ = worker.send(Control::Engine(Box::new(plan.clone())));
        }
    }
    /// What was done beside the workers: passwords hashed, and requests answered by services.
    pub fn aside(&self) -> [(&'static str, crate::process::aside::AsideReport); 2] {
        let shared = self.shared();
        [("passwords", shared.hashing.report()), ("services", shared.answering.report())]
    }
    /// How many turns of tasks were used up: each time, a task that had more to do went to the end of the line.
    pub fn turns_spent(&self) -> u64 {
        self.shared().pulses.iter().map(crate::worker::pulse::Pulse::turns_spent).sum()
    }
    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.inner.workers.len()
    }
    /// To be called once a second: what happened in the second before is what [`Handle::snapshot`] says.
    pub fn pace(&self) {
        let shared = self.shared();
        shared.pace.look(shared);
    }
    /// Writes a line of the process to its log, with a syslog severity.
    pub fn log(&self, severity: u8, text: String) {
        // A process without workers writes nothing any more.
        let _ = self.inner.workers.first().map(|worker| worker.send(Control::Log(severity, text)));
    }
    /// Whether all workers have ended.
    pub fn is_finished(&self) -> bool {
        self.lock().iter().all(JoinHandle::is_finished)
    }
    /// Waits until all workers have ended.
    pub fn wait(&self) {
        let threads = std::mem::take(&mut *self.lock());
        for thread in threads {
            // A panic was reported by the hook when it happened.
            let _ = thread.join();
        }
    }
    /// As [`Handle::wait`], for at most `limit`; whether they have ended.
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

    fn tell(&self, state: u8, message: impl Fn() -> Control) {
        self.inner.state.fetch_max(state, Ordering::SeqCst);
        for worker in &self.inner.workers {
            // A worker that has ended needs to be told nothing.
            let _ = worker.send(message());
        }
    }
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.inner.threads.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
