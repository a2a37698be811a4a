//! What a worker is told from outside its thread.

use crate::{accept::accepted::Moved, server::Server};
use penstock_engine::Plan;
use std::sync::Arc;

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
}
