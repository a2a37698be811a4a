//! The programs of external checks that run now, so that they end with the process.

use rustix::process::{Pid, Signal, kill_process_group};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The programs that run, as leaders of process groups.
#[derive(Debug, Default)]
pub(crate) struct Programs(Mutex<Running>);

#[derive(Debug, Default)]
struct Running {
    groups: Vec<Pid>,
    /// Whether the process is ending: no program may outlive it.
    over: bool,
}

/// A program that runs, until this is dropped.
pub(crate) struct Entered<'a>(&'a Programs, Pid);

impl Programs {
    /// Notes that a program runs.
    pub fn enter(&self, pid: Pid) -> Entered<'_> {
        let mut running = self.lock();
        running.groups.push(pid);
        if running.over {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        Entered(self, pid)
    }
    /// Ends all programs, and each that is started from now on.
    pub fn end(&self) {
        let mut running = self.lock();
        running.over = true;
        for pid in &running.groups {
            let _ = kill_process_group(*pid, Signal::KILL);
        }
    }
    fn lock(&self) -> MutexGuard<'_, Running> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.lock().groups.retain(|pid| *pid != self.1);
    }
}
