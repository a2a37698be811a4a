//! A worker: one thread with its own reactor, listening sockets, buffers and connections; it shares nothing it has to
//! wait for.

use crate::{Handle, Listener, Shared, buffer::Buffers};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::{io, rc::Rc, sync::Arc};
use tokio::{sync::mpsc::UnboundedReceiver, task::LocalSet};

/// What a worker is told from outside.
pub(crate) enum Control {
    /// Stop listening and finish what runs.
    Drain,
    /// End now.
    Stop,
}

/// What a worker's thread starts with.
pub(crate) struct Seed {
    pub id: usize,
    pub handle: Handle,
    pub control: UnboundedReceiver<Control>,
    pub listeners: Vec<Listener>,
    pub ready: std::sync::mpsc::Sender<io::Result<()>>,
}

/// What the tasks of one worker share.
pub(crate) struct Worker {
    pub id: usize,
    pub handle: Handle,
    pub shared: Arc<Shared>,
    pub buffers: Buffers,
}

/// Polls between two looks at the reactor: many enough to make that look cheap, few enough that a connection's bytes
/// wait microseconds, not milliseconds (measured: 66 ms of CPU in a pass without a bound).
const EVENTS_PER_PASS: u32 = 64;

impl Worker {
    /// The life of a worker's thread.
    pub fn run(seed: Seed) {
        let Seed { id, handle, mut control, listeners, ready } = seed;
        let shared = handle.inner.shared.clone();
        pin(id, &shared);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .event_interval(EVENTS_PER_PASS)
            .max_io_events_per_tick(EVENTS_PER_PASS as usize * 4)
            .build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(e) => return drop(ready.send(Err(e))),
        };
        let buffers = Buffers::new(shared.config.global.tune.bufsize);
        let worker = Rc::new(Worker { id, handle, shared, buffers });
        let local = LocalSet::new();
        local.block_on(&runtime, async {
            let _listeners = listeners;
            let _ = ready.send(Ok(()));
            while let Some(message) = control.recv().await {
                match message {
                    Control::Drain | Control::Stop => break,
                }
            }
            let _ = (&worker.id, &worker.handle, &worker.shared, &worker.buffers);
        });
    }
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
