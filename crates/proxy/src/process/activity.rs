//! What the workers are doing and have done, for operators who inspect a running process.

use super::{handle::Handle, watchdog::named};
use std::{sync::atomic::Ordering::Relaxed, time::Duration};

/// A worker at one moment.
#[derive(Clone, Debug)]
pub struct WorkerView {
    /// The kernel's id of the worker's thread; 0 once that has ended.
    pub thread: i32,
    /// CPU time that the worker has used, if the system reports it.
    pub cpu: Option<Duration>,
    /// Number of task turns so far.
    pub turns: u64,
    /// Number of turns that used up their whole budget.
    pub turns_spent: u64,
    /// Number of the worker's current connections.
    pub connections: u32,
    /// Whether the worker is in a turn.
    pub working: bool,
    /// The owner of the current or latest turn.
    pub whose: String,
    /// What the worker is doing, or did last, in words.
    pub doing: &'static str,
    /// Statistics of the worker's crypto engine.
    pub engine: crate::engine::Report,
}

impl Handle {
    /// The current state of each worker.
    pub fn worker_views(&self) -> Vec<WorkerView> {
        let shared = self.shared();
        let views = shared.pulses.iter().zip(&shared.loads).enumerate().map(|(id, (pulse, load))| {
            let (thread, steps) = (pulse.thread(), pulse.steps());
            WorkerView {
                thread,
                cpu: penstock_sys::thread_cpu_time(thread).filter(|_| thread != 0),
                turns: steps / 2,
                turns_spent: pulse.turns_spent(),
                connections: load.load(Relaxed),
                working: steps % 2 == 1,
                whose: named(&shared.config, pulse.whose()),
                doing: pulse.doing(),
                engine: shared.engines.of(id),
            }
        });
        views.collect()
    }
}
