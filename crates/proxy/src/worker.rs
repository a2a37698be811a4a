//! A worker: one thread with its own reactor, listening sockets, buffers and connections; it shares nothing it has to
//! wait for.

pub(crate) mod buffer;
pub(crate) mod clock;
pub(crate) mod turn;

use crate::{
    accept::{self, Accepted, Moved, listener::Listener},
    check,
    exchange::Kept,
    http2::MuxPool,
    log::{Logger, severity},
    observe::{counters::WorkerCounters, engine},
    process::{
        handle::{Handle, State},
        shared::Shared,
        watchdog::{Fault, Pulse},
    },
    servers::pool::{self, Pool},
};
use buffer::Buffers;
use clock::Clock;
use penstock_config::model::ServerSettings;
use penstock_engine::Plan;
use rustix::thread::{CpuSet, sched_setaffinity};
use slab::Slab;
use std::{
    cell::{Cell, RefCell},
    fs::File,
    io,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    task::Waker,
};
use tokio::{runtime::LocalOptions, sync::mpsc::UnboundedReceiver, task::JoinHandle};
use turn::{Rounds, Who};

/// What a worker is told from outside.
pub(crate) enum Control {
    /// Stop listening and finish what runs.
    Drain,
    /// End now.
    Stop,
    /// Serve a connection that another worker has accepted.
    Connection(Box<Moved>),
    /// Let this compute handshakes from now on.
    Engine(Box<Plan>),
}

/// What a worker's thread starts with.
pub(crate) struct Seed {
    pub id: usize,
    pub handle: Handle,
    pub control: UnboundedReceiver<Control>,
    pub listeners: Vec<Listener>,
    pub engine: Plan,
    pub ready: std::sync::mpsc::Sender<io::Result<()>>,
}

/// What the tasks of one worker share.
pub(crate) struct Worker {
    pub id: usize,
    pub handle: Handle,
    pub shared: Arc<Shared>,
    pub clock: Clock,
    pub buffers: Buffers,
    /// How many of its tasks use their turns up.
    pub rounds: Rounds,
    pub exchanges: Kept,
    pub pool: Pool,
    /// Connections to servers that speak HTTP/2.
    pub muxes: MuxPool,
    pub logger: Logger,
    /// A waker for the task of each connection.
    pub connections: RefCell<Slab<Waker>>,
    /// The worker finishes what it has.
    pub draining: Cell<bool>,
    /// Tells the acceptors to stop.
    pub accepted_enough: tokio::sync::watch::Sender<bool>,
    drained: tokio::sync::Notify,
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

/// Polls between two looks at the reactor: many enough to make that look cheap, few enough that a connection's bytes
/// wait microseconds, not milliseconds (measured: 66 ms of CPU in a pass without a bound).
const EVENTS_PER_PASS: u32 = 64;

/// A worker may have this many connections, and an eighth, more than the least busy one before it hands new ones over: the
/// system spreads well by itself when there are many, and a connection that moves costs two more system calls.
const SPREAD_SLACK: u32 = 2;

/// Descriptors each worker keeps for an operator's connections.
const RESERVE: usize = 4;

impl Worker {
    /// The life of a worker's thread.
    pub fn run(seed: Seed) {
        let Seed { id, handle, control, listeners, engine: plan, ready } = seed;
        let shared = handle.inner.shared.clone();
        pin(id, &shared);
        let pulse = shared.clone();
        let pulse = &pulse.pulses[id];
        pulse.begin();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .event_interval(EVENTS_PER_PASS)
            .max_io_events_per_tick(EVENTS_PER_PASS as usize * 4)
            .build_local(LocalOptions::default());
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(e) => return drop(ready.send(Err(e))),
        };
        let buffers = Buffers::new(shared.config.global.tune.bufsize);
        let worker = Rc::new(Worker::new(id, handle, shared, buffers));
        worker.refill_reserve();
        if worker.shared.acceptors.iter().flatten().any(Option::is_some) {
            penstock_tls::warm_up();
        }
        plan.install();
        let serving = worker.clone().serve(control, listeners, plan, ready);
        runtime.block_on(turn::turns(&worker, Who::Worker, serving));
        // Connections that are left end here; what they log goes out.
        drop(runtime);
        penstock_engine::worker::uninstall();
        worker.pool.clear(&worker);
        worker.muxes.clear();
        worker.logger.flush();
        pulse.end();
    }

    /// A worker that has nothing to do yet.
    pub fn new(id: usize, handle: Handle, shared: Arc<Shared>, buffers: Buffers) -> Worker {
        Worker {
            id,
            clock: Clock::new(shared.backends.started()),
            buffers,
            rounds: Rounds::default(),
            exchanges: Kept::default(),
            pool: Pool::new(&shared.config),
            muxes: MuxPool::default(),
            logger: Logger::new(shared.logs.clone()),
            connections: RefCell::default(),
            draining: Cell::new(false),
            accepted_enough: tokio::sync::watch::Sender::new(false),
            drained: tokio::sync::Notify::new(),
            reserve: RefCell::default(),
            exhaustion_told: Cell::new(0),
            random: Cell::new(random_seed(id)),
            zone: Cell::new((i64::MIN, 0)),
            planted: Fault::planted(),
            handle,
            shared,
        }
    }

    async fn serve(
        self: Rc<Self>,
        mut control: UnboundedReceiver<Control>,
        listeners: Vec<Listener>,
        mut plan: Plan,
        ready: std::sync::mpsc::Sender<io::Result<()>>,
    ) {
        let spawn = |listener: Listener| {
            let who = Who::Acceptor { proxy: listener.proxy, bind: listener.bind };
            turn::spawn(&self, who, accept::run(self.clone(), listener))
        };
        let mut acceptors: Vec<_> = listeners.into_iter().map(spawn).collect();
        let logger = self.clone();
        turn::spawn(&self, Who::Worker, async move { logger.logger.run(&logger.clock).await });
        turn::spawn(&self, Who::Worker, pool::run(self.clone()));
        turn::spawn(&self, Who::Worker, penstock_tls::drive_engine());
        turn::spawn(&self, Who::Worker, engine::report(self.clone()));
        if self.id == 0 {
            check::start(&self);
            crate::servers::resolve::start(&self);
            turn::spawn(&self, Who::Worker, check::tick(self.clone()));
            turn::spawn(&self, Who::Worker, check::tell(self.clone()));
        }
        // Whoever started us does not wait any more if this fails.
        let _ = ready.send(Ok(()));
        drop(ready);
        loop {
            tokio::select! {
                // What was sent before the end is heard before the end.
                biased;
                message = control.recv() => match message {
                    Some(Control::Drain) => {
                        self.drain(std::mem::take(&mut acceptors)).await;
                        // Whoever takes our place may be waiting for the device, and few handshakes are left for us.
                        if plan.has_device() {
                            plan.without_device();
                            plan.install();
                        }
                    }
                    Some(Control::Engine(_)) if self.draining.get() => {}
                    Some(Control::Engine(next)) => {
                        plan = *next;
                        plan.install();
                    }
                    Some(Control::Connection(moved)) => moved.start(self.clone()),
                    Some(Control::Stop) | None => return,
                },
                () = self.drained.notified() => {
                    // A connection that came last is counted once its task has begun; its end calls here again.
                    tokio::task::yield_now().await;
                    if self.connections.borrow().is_empty() {
                        return;
                    }
                }
            }
        }
    }

    /// Closes the listening sockets and what is idle, and lets the rest finish.
    async fn drain(&self, acceptors: Vec<JoinHandle<()>>) {
        self.accepted_enough.send_replace(true);
        for acceptor in acceptors {
            // One that failed has said so.
            let _ = acceptor.await;
        }
        // Afterwards every connection that another worker hands to this one has been sent to it.
        while self.handle.inner.handing_over.load(Ordering::SeqCst) > 0 {
            tokio::task::yield_now().await;
        }
        // The connections that came last begin with what they have sent, and are counted.
        tokio::task::yield_now().await;
        self.draining.set(true);
        self.pool.clear(self);
        self.muxes.clear();
        self.connections.borrow().iter().for_each(|(_, waker)| waker.wake_by_ref());
        self.check_drained();
    }

    /// The idle connections to a server that this worker may keep: the limit is the server's, each worker has its share.
    pub fn share_of_idle(&self, settings: &ServerSettings) -> usize {
        usize::try_from(settings.pool_max_conn).map_or(usize::MAX, |all| all.div_ceil(self.shared.loads.len()))
    }

    /// Ends the worker once it drains and has no connection left.
    pub fn check_drained(&self) {
        if self.draining.get() && self.connections.borrow().is_empty() {
            self.drained.notify_one();
        }
    }

    /// Starts a connection, here or on a worker with much less to do.
    pub fn take(self: &Rc<Self>, accepted: Accepted) {
        let Some(other) = self.less_busy() else { return accepted.start(self.clone()) };
        // Once the workers drain, the other one may end before it hears of it. One that is told to drain waits for those who
        // were seen here before.
        let inner = &self.handle.inner;
        inner.handing_over.fetch_add(1, Ordering::SeqCst);
        let running = self.handle.state() == State::Running;
        match if running { accepted.into_moved(other) } else { Err(accepted) } {
            // Where that worker has ended, the process is about to.
            Ok(moved) => drop(inner.workers[other].send(Control::Connection(Box::new(moved)))),
            Err(accepted) => accepted.start(self.clone()),
        }
        inner.handing_over.fetch_sub(1, Ordering::SeqCst);
    }

    /// Another worker that has so many connections less than this one, the one just accepted left out, that handing it over
    /// pays.
    fn less_busy(&self) -> Option<usize> {
        let loads = &self.shared.loads;
        if loads.len() == 1 || !self.shared.config.global.tune.listener_multi_queue {
            return None;
        }
        let mine = loads[self.id].load(Ordering::Relaxed).saturating_sub(1);
        let (other, least) =
            loads.iter().map(|load| load.load(Ordering::Relaxed)).enumerate().min_by_key(|&(_, load)| load)?;
        (mine > least + least / 8 + SPREAD_SLACK).then_some(other)
    }

    /// What the watchdog sees of this worker.
    pub fn pulse(&self) -> &Pulse {
        &self.shared.pulses[self.id]
    }

    /// The cells this worker counts in.
    pub fn counters(&self) -> &WorkerCounters {
        self.shared.counters.worker(self.id)
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

/// A start for the worker's random numbers that no two workers or runs share; never zero.
fn random_seed(id: usize) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(id) | 1
}

/// Binds the thread to the CPUs that `cpu-map` gives it.
fn pin(id: usize, shared: &Shared) {
    if let Some(cpus) = shared.config.global.cpu_map.get(&(id as u32 + 1)) {
        let mut set = CpuSet::new();
        for &cpu in cpus {
            if (cpu as usize) < CpuSet::MAX_CPU {
                set.set(cpu as usize);
            }
        }
        // CPUs that this machine lacks leave the thread where it is, as in HAProxy.
        let _ = sched_setaffinity(None, &set);
    }
}
