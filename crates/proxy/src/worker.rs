//! A worker: one thread with its own reactor, listening sockets, buffers and connections. It shares nothing that it
//! would have to wait for.

pub(crate) mod buffer;
pub(crate) mod clock;
pub(crate) mod control;
pub(crate) mod encoders;
pub(crate) mod present;
pub(crate) mod pulse;
pub(crate) mod roster;
pub(crate) mod state;
pub(crate) mod task;
pub(crate) mod turn;

use crate::{
    accept::{self, listener::Listener, spread},
    process::{handle::Handle, shared::Shared},
    servers::{checks, resolve},
};
use buffer::Buffers;
use control::Control;
use penstock_engine::Plan;
use pulse::Who;
use rustix::thread::{CpuSet, sched_setaffinity};
use state::Worker;
use std::{
    io,
    rc::Rc,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};
use tokio::{runtime::LocalOptions, sync::mpsc::UnboundedReceiver, task::JoinHandle};

/// What a worker's thread is started with.
pub(crate) struct Seed {
    pub id: usize,
    pub handle: Handle,
    pub control: UnboundedReceiver<Control>,
    pub listeners: Vec<Listener>,
    pub engine: Plan,
    pub ready: std::sync::mpsc::Sender<io::Result<()>>,
}

/// Task polls between two looks at the reactor: enough of them to make that look cheap, and few enough that a
/// connection's bytes wait microseconds rather than milliseconds (measured without a bound: passes of 66 ms of CPU
/// time).
const EVENTS_PER_PASS: u32 = 64;

/// The main function of a worker's thread.
pub(crate) fn run(seed: Seed) {
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
    let buffers = Buffers::new(shared.config.global.tune.bufsize, shared.memory.clone());
    let worker = Rc::new(Worker::new(id, handle, shared, buffers));
    worker.refill_reserve();
    if worker.shared.acceptors.iter().flatten().any(Option::is_some) {
        penstock_tls::warm_up();
    }
    plan.install();
    plan.install_compressor(&worker.compressor);
    let serving = serve(worker.clone(), control, listeners, plan, ready);
    runtime.block_on(task::turns(&worker, Who::Worker, serving));
    // Connections that are still open end here; their log lines are written.
    drop(runtime);
    penstock_engine::worker::uninstall();
    worker.compressor.install(None, None);
    worker.pool.close();
    worker.muxes.clear();
    worker.logger.flush();
    pulse.end();
}

async fn serve(
    worker: Rc<Worker>,
    mut control: UnboundedReceiver<Control>,
    listeners: Vec<Listener>,
    mut plan: Plan,
    ready: std::sync::mpsc::Sender<io::Result<()>>,
) {
    let spawn = |listener: Listener| {
        let who = Who::Acceptor { proxy: listener.proxy, bind: listener.bind };
        task::spawn(&worker, who, accept::run(worker.clone(), listener))
    };
    let mut acceptors: Vec<_> = listeners.into_iter().map(spawn).collect();
    let logger = worker.clone();
    task::spawn(&worker, Who::Worker, async move { logger.logger.run(&logger.clock).await });
    task::spawn(&worker, Who::Worker, keep_house(worker.clone()));
    task::spawn(&worker, Who::Worker, penstock_tls::drive_engine());
    task::spawn(&worker, Who::Worker, drive_compressor(worker.clone()));
    task::spawn(&worker, Who::Worker, report_engine(worker.clone()));
    if worker.id == 0 {
        checks::start(&worker);
        resolve::start(&worker);
        task::spawn(&worker, Who::Worker, checks::tick(worker.clone()));
        task::spawn(&worker, Who::Worker, checks::tell(worker.clone()));
    }
    // If this fails, the code that started the thread no longer waits.
    let _ = ready.send(Ok(()));
    drop(ready);
    loop {
        tokio::select! {
            // Messages that were sent before the end are handled before the end.
            biased;
            message = control.recv() => {
                worker.clock.turn_begins();
                match message {
                    Some(Control::Drain) => {
                        drain(&worker, std::mem::take(&mut acceptors)).await;
                        // The process that takes over may be waiting for the device, and few handshakes are left for this
                        // one.
                        if plan.has_device() {
                            plan.without_device();
                            plan.install();
                            plan.install_compressor(&worker.compressor);
                        }
                    }
                    Some(Control::Engine(_)) if worker.draining.get() => {}
                    Some(Control::Engine(next)) => {
                        plan = *next;
                        plan.install();
                        plan.install_compressor(&worker.compressor);
                    }
                    Some(Control::Errand(errand)) => errand.run(&worker),
                    Some(Control::Log(severity, text)) => worker.log_process(severity, &text),
                    Some(Control::Server(server)) => {
                        resolve::resolve_for(&worker, &server);
                        checks::start_for(&worker, server);
                    }
                    Some(Control::Connection(moved)) => spread::arrived(&worker, *moved),
                    Some(Control::Stop) | None => return,
                }
            }
            () = worker.drained.notified() => {
                // A connection that was just accepted is counted once its task has run; when it ends, this is called
                // again.
                tokio::task::yield_now().await;
                if worker.connections.borrow().is_empty() {
                    return;
                }
            }
        }
    }
}

/// Closes the listening sockets and what is idle, and lets the rest finish.
async fn drain(worker: &Worker, acceptors: Vec<JoinHandle<()>>) {
    worker.accepted_enough.send_replace(true);
    for acceptor in acceptors {
        // An acceptor that failed has reported it.
        let _ = acceptor.await;
    }
    // After this loop, every connection that another worker hands over has arrived in this worker's channel.
    while worker.handle.inner.handing_over.load(Ordering::SeqCst) > 0 {
        tokio::task::yield_now().await;
    }
    // Lets the tasks of the newest connections start, so that they are counted.
    tokio::task::yield_now().await;
    worker.draining.set(true);
    worker.pool.close();
    worker.muxes.clear();
    worker.connections.borrow().iter().for_each(|(_, waker)| waker.wake_by_ref());
    worker.check_drained();
}

/// Inspects the idle connections to servers and publishes the engine's report, once a second: the only thing that an idle worker wakes
/// up for.
async fn keep_house(worker: Rc<Worker>) {
    loop {
        worker.shared.engines.publish(worker.id, worker.compressor.report());
        tokio::time::sleep(Duration::from_secs(1)).await;
        worker.pool.purge();
        worker.muxes.purge();
    }
}

/// Collects what the device has compressed, if there is one. While something is due, the worker's loop does not sleep: its timers have
/// a resolution of a millisecond, and an answer takes a fraction of that.
async fn drive_compressor(worker: Rc<Worker>) {
    loop {
        std::future::poll_fn(|cx| worker.compressor.poll_work(cx)).await;
        while worker.compressor.turn(Instant::now()) {
            tokio::task::yield_now().await;
        }
    }
}

/// Publishes the engine's report for other threads while clients come.
async fn report_engine(worker: Rc<Worker>) {
    loop {
        worker.arrivals.notified().await;
        tokio::time::sleep(ENGINE_REPORT_INTERVAL).await;
        worker.shared.engines.publish(worker.id, worker.compressor.report());
    }
}

/// How old the published report of the engine may be while clients come; without them, a second. Its counters belong to this thread;
/// others see a copy.
const ENGINE_REPORT_INTERVAL: Duration = Duration::from_millis(200);

/// Binds the thread to the CPUs that `cpu-map` assigns to it.
fn pin(id: usize, shared: &Shared) {
    if let Some(cpus) = shared.config.global.cpu_map.get(&(id as u32 + 1)) {
        let mut set = CpuSet::new();
        for &cpu in cpus {
            if (cpu as usize) < CpuSet::MAX_CPU {
                set.set(cpu as usize);
            }
        }
        // If the machine lacks these CPUs, the thread stays where it is, as in HAProxy.
        let _ = sched_setaffinity(None, &set);
    }
}
