//! What the tasks of one worker share.

use super::{buffer::Buffers, clock::Clock, pulse::Pulse, roster::Roster, turn::Rounds};
use crate::{
    exchange::state::{Exchange, Kept},
    http2::mux::MuxPool,
    log::{Logger, severity},
    observe::counters::{Cells, WorkerCounters},
    process::{fault::Fault, handle::Handle, shared::Shared},
    server::Server,
    servers::{pool::Pool, question::Questions},
};
use penstock_backends::random;
use slab::Slab;
use std::{
    cell::{Cell, RefCell},
    fs::File,
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
    /// How many of its tasks use their turns up.
    pub rounds: Rounds,
    exchanges: Kept,
    /// Its sessions, as an operator lists and ends them.
    pub roster: Roster,
    pub pool: Pool,
    /// Connections to servers that speak HTTP/2.
    pub muxes: MuxPool,
    /// Names that are resolved for servers, on the worker that does it.
    pub questions: Questions,
    pub logger: Logger,
    /// A waker for the task of each connection.
    pub connections: RefCell<Slab<Waker>>,
    /// The worker finishes what it has.
    pub draining: Cell<bool>,
    /// Tells the acceptors to stop.
    pub accepted_enough: tokio::sync::watch::Sender<bool>,
    /// Called when the worker drains and has no connection left.
    pub drained: tokio::sync::Notify,
    /// Descriptors given up when there is no other left, so that the stats page can still be asked why.
    reserve: RefCell<Vec<File>>,
    exhaustion_told: Cell<u64>,
    /// State of the worker's random numbers.
    pub random: Cell<u64>,
    /// A quarter of an hour of UTC and how far local time is ahead in it.
    pub zone: Cell<(i64, i32)>,
    /// A fault that a test asked for.
    pub planted: Option<Fault>,
}

/// Descriptors each worker keeps for an operator's connections.
const RESERVE: usize = 4;

impl Worker {
    /// A worker that has nothing to do yet.
    pub fn new(id: usize, handle: Handle, shared: Arc<Shared>, buffers: Buffers) -> Worker {
        Worker {
            id,
            clock: Clock::new(shared.backends.started()),
            buffers,
            rounds: Rounds::default(),
            exchanges: Kept::default(),
            roster: Roster::default(),
            pool: Pool::new(shared.clone(), id),
            muxes: MuxPool::new(shared.clone()),
            questions: Questions::default(),
            logger: Logger::new(shared.logs.clone()),
            connections: RefCell::default(),
            draining: Cell::new(false),
            accepted_enough: tokio::sync::watch::Sender::new(false),
            drained: tokio::sync::Notify::new(),
            reserve: RefCell::default(),
            exhaustion_told: Cell::new(0),
            random: Cell::new(random::seed(id)),
            zone: Cell::new((i64::MIN, 0)),
            planted: Fault::planted(),
            handle,
            shared,
        }
    }

    /// Ends the worker once it drains and has no connection left.
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

    /// The cells this worker counts in for a server.
    pub fn cells<'a>(&self, server: &'a Server) -> &'a Cells {
        &server.with.cells[self.id]
    }

    /// An exchange that nothing is known of yet; to be given back.
    pub fn take_exchange(&self) -> Box<Exchange> {
        self.exchanges.take()
    }

    /// Takes back an exchange that has ended.
    pub fn give_exchange(&self, x: Box<Exchange>) {
        self.exchanges.give(x, &self.buffers);
    }

    /// The number of a request in the process.
    pub fn next_request(&self) -> u32 {
        self.shared.requests.fetch_add(1, Ordering::Relaxed)
    }

    /// Milliseconds since the process started, by which rates are counted.
    pub fn now_ms(&self) -> u64 {
        self.clock.ms()
    }

    /// Writes a line of the process itself to its log.
    pub fn log_process(&self, severity: u8, text: &str) {
        self.logger.send_process(self.clock.unix_us(), severity, text.as_bytes());
    }

    /// Gives up a descriptor so that one connection can be accepted; whether there was one.
    pub fn spend_reserve(&self) -> bool {
        self.reserve.borrow_mut().pop().is_some()
    }

    /// A connection has ended: if one had to be paid from the reserve, the descriptor goes back there.
    pub fn repay_reserve(&self) {
        if self.reserve.borrow().len() < RESERVE {
            self.refill_reserve();
        }
    }

    /// Takes descriptors for the reserve, as far as there are any.
    pub fn refill_reserve(&self) {
        let mut reserve = self.reserve.borrow_mut();
        while reserve.len() < RESERVE {
            match File::open("/dev/null") {
                Ok(file) => reserve.push(file),
                Err(_) => return,
            }
        }
    }

    /// Tells once a second that connections cannot be accepted.
    pub fn accept_failed(&self, e: &io::Error) {
        let now = self.now_ms() / 1000 + 1;
        if self.exhaustion_told.replace(now) != now {
            self.log_process(severity::ALERT, &format!("accept(): {e}; trying again in 100 ms"));
        }
        self.refill_reserve();
    }
}
