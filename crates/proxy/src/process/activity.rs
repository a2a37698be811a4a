//! What the workers do and have done, for whoever looks inside a running process.

use super::{handle::Handle, watchdog::named};
use std::{sync::atomic::Ordering::Relaxed, time::Duration};

/// A worker at one moment.
#[derive(Clone, Debug)]
pub struct WorkerView {
    /// The kernel's number of its thread; 0 once it has ended.
    pub thread: i32,
    /// CPU time that it has used, as far as the system tells.
    pub cpu: Option<Duration>,
    /// Turns of tasks so far.
    pub turns: u64,
    /// Those of them that were used up.
    pub turns_spent: u64,
    /// Connections that it has.
    pub connections: u32,
    /// It is in a turn.
    pub working: bool,
    /// Whose turn it is, or was last.
    pub whose: String,
    /// What it does, or did last.
    pub doing: &'static str,
    /// What its crypto engine did.
    pub engine: crate::engine::Report,
}

impl Handle {
    /// Each worker at this moment.
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
