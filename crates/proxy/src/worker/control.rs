//! Messages to a worker from other threads.

use super::state::Worker;
use crate::{accept::accepted::Moved, server::Server};
use penstock_engine::Plan;
use std::{rc::Rc, sync::Arc};

/// A message to a worker from another thread.
pub(crate) enum Control {
    /// Stop listening, and finish what is running.
    Drain,
    /// End now.
    Stop,
    /// Serve a connection that another worker has accepted.
    Connection(Box<Moved>),
    /// Compute handshakes by this plan from now on.
    Engine(Box<Plan>),
    /// Check the health of this newly added server, and resolve its name.
    Server(Arc<Server>),
    /// Write a line about the process to its log.
    Log(u8, String),
    /// Run this function.
    Errand(Errand),
}

type Job = Box<dyn FnOnce(&Rc<Worker>) + Send>;

/// A short function for a worker to run; anything longer starts a task, whose turns are bounded.
pub(crate) struct Errand(Job);

impl Errand {
    pub fn new(job: impl FnOnce(&Rc<Worker>) + Send + 'static) -> Errand {
        Errand(Box::new(job))
    }

    pub fn run(self, worker: &Rc<Worker>) {
        (self.0)(worker);
    }
}
