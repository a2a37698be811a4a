//! What a worker is told from outside its thread.

use super::state::Worker;
use crate::{accept::accepted::Moved, server::Server};
use penstock_engine::Plan;
use std::{rc::Rc, sync::Arc};

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
    /// Check this server, which was added, and have its name resolved.
    Server(Arc<Server>),
    /// Write a line of the process to its log.
    Log(u8, String),
    /// Do this.
    Errand(Errand),
}

type Job = Box<dyn FnOnce(&Rc<Worker>) + Send>;

/// Something small to be done by a worker; what may take longer starts a task, whose turns are bounded.
pub(crate) struct Errand(Job);

impl Errand {
    pub fn new(job: impl FnOnce(&Rc<Worker>) + Send + 'static) -> Errand {
        Errand(Box::new(job))
    }

    pub fn run(self, worker: &Rc<Worker>) {
        (self.0)(worker);
    }
}
