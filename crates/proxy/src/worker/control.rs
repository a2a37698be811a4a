//! What a worker is told from outside its thread.

use crate::accept::accepted::Moved;
use penstock_engine::Plan;

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
    /// Write a line of the process to its log.
    Log(u8, String),
}
