//! From a configuration to running workers, in three steps, each of which fails for reasons of its own.

use super::{handle::Handle, lists, log_threads, memory, service::Services, shared::Shared, watchdog};
use crate::{
    accept::listener::{Inherited, ListenError, Listener, Listeners},
    observe::sampling,
    peers, worker,
};
use penstock_config::{Config, Diagnostics, Span};
use penstock_engine::Plan;
use penstock_sys::MemoryGauge;
use std::{
    io,
    sync::{Arc, atomic::Ordering},
};
use tokio::sync::mpsc::unbounded_channel;

/// A configuration that has been checked as a whole and is ready to run.
pub struct Runtime {
    shared: Arc<Shared>,
    services: Services,
    workers: usize,
    engine: Plan,
    memory: Option<MemoryGauge>,
}

impl Runtime {
    /// Compiles rules, loads certificates and resolves server names. Opens no socket.
    ///
    /// Errors are added to `diagnostics`; returns `None` if the configuration cannot be started.
    pub fn build(config: Config, services: Services, diagnostics: &mut Diagnostics) -> Option<Self> {
        let workers = match config.global.nbthread {
            Some(n) => n as usize,
            None => std::thread::available_parallelism().map_or(1, usize::from),
        };
        let shared = Shared::build(config, workers, diagnostics)?;
        Some(Runtime { shared, services, workers, engine: Plan::native(), memory: None })
    }

    /// The engine that computes handshakes.
    pub fn engine(&self) -> &Plan {
        &self.engine
    }

    /// Chooses the engine that computes handshakes; without this call it is `native`.
    pub fn set_engine(&mut self, engine: Plan) {
        self.engine = engine;
    }

    /// Stops what clients can make the process allocate before it reaches the limit that this measures.
    pub fn set_memory_gauge(&mut self, gauge: Option<MemoryGauge>) {
        self.memory = gauge;
    }

    /// Whether any listener or server uses TLS.
    pub fn has_tls(&self) -> bool {
        let shared = &self.shared;
        shared.acceptors.iter().flatten().any(Option::is_some)
            || shared.backends.iter().any(|backend| backend.servers().iter().any(|s| s.with.connector.is_some()))
    }

    /// The configuration and the state that workers share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// How many workers there will be.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Opens every listening socket, before privileges are given up; see [`Listeners::open`].
    ///
    /// # Errors
    ///
    /// One error for each address that cannot be listened on.
    pub fn listen(&self, inherited: Inherited) -> Result<Listeners, Vec<ListenError>> {
        Listeners::open(&self.shared.config, &self.shared.namespaces, self.workers, inherited)
    }

    /// Opens the network interfaces that copies of the traffic are sent to, with the privileges that the process begins with; what fails, and
    /// where it is configured.
    pub fn open_tap_interfaces(&self) -> Vec<(Span, String)> {
        self.shared.taps.open_interfaces()
    }

    /// Opens what else copies of the traffic are written to, with the privileges that the process keeps; what fails, and where it is configured.
    pub fn open_taps(&self) -> Vec<(Span, String)> {
        self.shared.taps.open()
    }

    /// Starts the workers; returns once all of them accept connections.
    ///
    /// # Errors
    ///
    /// If a thread or its reactor cannot be created; then no thread is left running.
    pub fn start(self, listeners: Listeners) -> io::Result<Handle> {
        self.start_after(listeners, |_| {})
    }

    /// Like [`Runtime::start`], after changes that are made before the first connection is accepted.
    ///
    /// # Errors
    ///
    /// If a thread or its reactor cannot be created; then no thread is left running.
    pub fn start_after(self, listeners: Listeners, change: impl FnOnce(&Handle)) -> io::Result<Handle> {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..self.workers).map(|_| unbounded_channel()).unzip();
        let handle = Handle::new(self.shared, self.services, senders);
        if let Some(gauge) = self.memory {
            memory::watch::start(&handle, gauge)?;
        }
        let teller = handle.clone();
        handle.shared().taps.start(move |severity, text| teller.log(severity, text))?;
        change(&handle);
        handle.inner.begun.store(true, Ordering::SeqCst);
        let mut per_worker: Vec<Vec<_>> = (0..self.workers).map(|_| Vec::new()).collect();
        for listener in listeners.list {
            match listener.worker {
                Some(number) => per_worker[number].push(listener),
                None => {
                    for own in &mut per_worker {
                        own.push(Listener { socket: listener.socket.try_clone()?, ..listener });
                    }
                }
            }
        }
        let (ready, started) = std::sync::mpsc::channel();
        for ((id, control), listeners) in receivers.into_iter().enumerate().zip(per_worker) {
            let seed = worker::Seed {
                id,
                handle: handle.clone(),
                control,
                listeners,
                engine: self.engine.clone(),
                ready: ready.clone(),
            };
            let thread =
                std::thread::Builder::new().name(format!("worker-{}", id + 1)).spawn(move || worker::run(seed));
            match thread {
                Ok(thread) => handle.inner.threads.lock().expect("no worker holds it").push(thread),
                Err(e) => {
                    handle.stop();
                    handle.wait();
                    return Err(e);
                }
            }
        }
        drop(ready);
        for _ in 0..self.workers {
            if let Ok(Err(e)) = started.recv() {
                handle.stop();
                handle.wait();
                return Err(e);
            }
        }
        let (sockets, logs, succeeds) = (listeners.peers, listeners.logs, listeners.succeeds);
        let started = watchdog::start(handle.clone()).and_then(|()| sampling::start(&handle));
        let started = started.and_then(|()| lists::keep_tidy(handle.clone()));
        let started = started.and_then(|()| log_threads::start(&handle, logs));
        started.and_then(|()| peers::start(&handle, sockets, succeeds)).inspect_err(|_| {
            handle.stop();
            handle.wait();
        })?;
        Ok(handle)
    }
}
