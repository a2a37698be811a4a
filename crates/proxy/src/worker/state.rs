//! What the tasks of one worker share.

use super::{buffer::Buffers, clock::Clock, encoders::Encoders, pulse::Pulse, roster::Roster, turn::Rounds};
use crate::{
    exchange::state::{Exchange, Unused},
    http2::mux::MuxPool,
    inspect::Described,
    log::Logger,
    observe::{
        counters::{Cells, WorkerCounters},
        http_counters::{Protocol, Side, Tally},
    },
    process::{fault::Fault, handle::Handle, shared::Shared},
    server::{Seen, Server, ServerRef},
    servers::{pool::Pool, question::Questions},
    spoe::Agents,
};
use penstock_compression::Verifier;
use penstock_config::{model::ProxyId, syslog};
use penstock_engine::hw::Compressor;
use penstock_sys::Spares;
use slab::Slab;
use std::{
    cell::{Cell, RefCell},
    hash::{BuildHasher, RandomState},
    io,
    sync::{Arc, atomic::Ordering},
    task::Waker,
};

/// What the tasks of one worker share.
pub(crate) struct Worker {
    pub id: usize,
    pub handle: Handle,
    pub shared: Arc<Shared>,
    pub clock: Clock,
    pub buffers: Buffers,
    pub encoders: Encoders,
    /// The device that compresses, if there is one.
    pub compressor: Compressor,
    /// What proves that it did so rightly.
    pub verifier: RefCell<Verifier>,
    /// How many of the worker's tasks use up their turns.
    pub rounds: Rounds,
    exchanges: Unused,
    /// The worker's sessions, as an operator lists and ends them.
    pub roster: Roster,
    pub pool: Pool,
    /// Connections to servers that speak HTTP/2.
    pub muxes: MuxPool,
    /// What services have said about themselves.
    pub described: Described,
    /// What waits for agents, and who carries it.
    pub agents: Agents,
    /// Host names being resolved for servers, on the worker that does this.
    pub questions: Questions,
    pub logger: Logger,
    /// A waker for the task of each connection.
    pub connections: RefCell<Slab<Waker>>,
    /// Whether the worker is draining: it accepts nothing and finishes its connections.
    pub draining: Cell<bool>,
    /// Tells the acceptors to stop.
    pub accepted_enough: tokio::sync::watch::Sender<bool>,
    /// Notified when the worker is draining and its last connection has ended.
    pub drained: tokio::sync::Notify,
    /// Notified when a client has connected.
    pub arrivals: tokio::sync::Notify,
    /// Spare descriptors, released when no others are left, so that an operator can still reach the stats page to find
    /// out why.
    reserve: Spares,
    exhaustion_told: Cell<u64>,
    /// Random numbers, not suitable for secrets: a sequence of its own.
    pub rng: RefCell<fastrand::Rng>,
    /// The quarter of an hour, in UTC, for which the offset of local time is cached, and that offset.
    pub zone: Cell<(i64, i32)>,
    /// The fault that a test has planted.
    pub planted: Option<Fault>,
}

/// Spare descriptors of each worker, for an operator's connections.
const RESERVE: usize = 4;

impl Worker {
    /// A worker that has nothing to do yet.
    pub fn new(id: usize, handle: Handle, shared: Arc<Shared>, buffers: Buffers) -> Worker {
        Worker {
            id,
            clock: Clock::new(shared.backends.started()),
            buffers,
            encoders: Encoders::new(shared.clone()),
            compressor: Compressor::default(),
            verifier: RefCell::default(),
            rounds: Rounds::default(),
            exchanges: Unused::default(),
            roster: Roster::default(),
            pool: Pool::new(shared.clone(), id),
            muxes: MuxPool::new(shared.clone()),
            described: Described::default(),
            agents: Agents::new(&shared, &mut fastrand::Rng::with_seed(RandomState::new().hash_one(id))),
            questions: Questions::default(),
            logger: Logger::new(shared.logs.clone()),
            connections: RefCell::default(),
            draining: Cell::new(false),
            accepted_enough: tokio::sync::watch::Sender::new(false),
            drained: tokio::sync::Notify::new(),
            arrivals: tokio::sync::Notify::new(),
            reserve: Spares::new(RESERVE),
            exhaustion_told: Cell::new(0),
            rng: RefCell::new(fastrand::Rng::with_seed(RandomState::new().hash_one(id))),
            zone: Cell::new((i64::MIN, 0)),
            planted: Fault::planted(),
            handle,
            shared,
        }
    }

    /// Counts a new connection by HTTP of a frontend or a backend.
    pub fn tally(&self, proxy: ProxyId, side: Side, protocol: Protocol) -> Tally {
        Tally::new(self.shared.counters.clone(), self.id, proxy, side, protocol)
    }

    /// Notifies `drained` if the worker is draining and has no connection left.
    pub fn check_drained(&self) {
        if self.draining.get() && self.connections.borrow().is_empty() {
            self.drained.notify_one();
        }
    }

    /// What the watchdog sees of this worker.
    pub fn pulse(&self) -> &Pulse {
        &self.shared.pulses[self.id]
    }

    /// The cells this worker counts in.
    pub fn counters(&self) -> &WorkerCounters {
        self.shared.counters.worker(self.id)
    }

    /// The cells in which this worker counts for a server.
    pub fn cells<'a>(&self, server: &'a Server) -> &'a Cells {
        &server.with.cells[self.id]
    }

    /// Takes an exchange in its initial state; to be returned with [`Worker::give_exchange`].
    pub fn take_exchange(&self) -> Box<Exchange> {
        self.exchanges.take()
    }

    /// Takes back an exchange that has ended.
    pub fn give_exchange(&self, x: Box<Exchange>) {
        self.exchanges.give(x, &self.buffers);
    }

    /// The number of the next request of the process.
    pub fn next_request(&self) -> u32 {
        self.shared.requests.fetch_add(1, Ordering::Relaxed)
    }

    /// Milliseconds since the process started, which rates are based on.
    pub fn now_ms(&self) -> u64 {
        self.clock.ms()
    }

    /// Writes a line about the process to its log.
    pub fn log_process(&self, severity: u8, text: &str) {
        self.logger.send_process(self.clock.unix_us(), severity, text.as_bytes());
    }

    /// Releases a spare descriptor so that one connection can be accepted; returns whether there was one.
    pub fn spend_reserve(&self) -> bool {
        self.reserve.spend()
    }

    /// Refills the reserve as far as descriptors are available, at the start and when a connection has ended.
    pub fn refill_reserve(&self) {
        self.reserve.refill();
    }

    /// Reports that connections cannot be accepted, at most once a second.
    pub fn accept_failed(&self, e: &io::Error) {
        self.tell_exhaustion(|| format!("accept(): {e}; trying again in 100 ms"));
        self.refill_reserve();
    }

    /// Reports, at most once a second, what this machine has no more of.
    pub fn tell_exhaustion(&self, text: impl FnOnce() -> String) {
        let now = self.now_ms() / 1000 + 1;
        if self.exhaustion_told.replace(now) != now {
            self.log_process(syslog::ALERT, &text());
        }
    }

    /// Takes note of what an exchange has seen of a server, on which its health depends. While the worker is draining that is nothing: what a
    /// device brings back goes to the next process.
    pub fn observe(&self, server: ServerRef, seen: Seen) {
        if !self.draining.get() {
            self.shared.backends.observe(server, seen, self.clock.now().into_std());
        }
    }
}
