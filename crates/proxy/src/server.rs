//! Servers of the data plane: those of `penstock_backends`, each with what its connections need.

use crate::observe::counters::Cells;
use penstock_rules::{Expr, ServerFacts};
use penstock_tls::Connector;

pub use penstock_backends::server::*;

/// What the data plane stores with each server, for as long as the server exists.
pub struct Parts {
    /// What rules can see of the server.
    pub(crate) facts: ServerFacts,
    /// The expression of `sni`.
    pub(crate) sni: Option<Expr>,
    /// Settings for TLS to it; `None` for clear text.
    pub(crate) connector: Option<Connector>,
    /// Settings for TLS in its checks, if its own traffic has none.
    pub(crate) check_connector: Option<Connector>,
    /// Each worker's counters for it.
    pub(crate) cells: Box<[Cells]>,
}

impl Parts {
    /// The parts of a server with default settings, for this many workers.
    pub(crate) fn new(facts: ServerFacts, workers: usize) -> Parts {
        let cells = (0..workers).map(|_| Cells::default()).collect();
        Parts { facts, sni: None, connector: None, check_connector: None, cells }
    }

    /// How many idle connections each worker keeps to it.
    pub fn idle_by_worker(&self) -> Vec<u64> {
        self.cells.iter().map(|cells| cells.idle_connections.read()).collect()
    }
}

/// The backends.
pub type Backends = penstock_backends::server::Backends<Parts>;
/// A backend.
pub type Backend = penstock_backends::server::Backend<Parts>;
/// A server.
pub type Server = penstock_backends::server::Server<Parts>;
/// A request's place on a server.
pub type Slot = penstock_backends::server::Slot<Parts>;
/// A request's presence in a backend.
pub type Presence = penstock_backends::server::Presence<Parts>;
