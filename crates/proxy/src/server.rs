//! Servers as the data plane has them: those of `penstock_backends`, and with each what its connections need.

use crate::observe::counters::Cells;
use penstock_rules::{Expr, ServerFacts};
use penstock_tls::Connector;

pub use penstock_backends::server::*;

/// What the data plane keeps with each server. It comes and goes with the server.
pub struct Parts {
    /// What rules see of it.
    pub(crate) facts: ServerFacts,
    /// `sni`.
    pub(crate) sni: Option<Expr>,
    /// TLS towards it; `None` for clear text.
    pub(crate) connector: Option<Connector>,
    /// TLS of its checks, where its own traffic has none.
    pub(crate) check_connector: Option<Connector>,
    /// What each worker counts for it.
    pub(crate) cells: Box<[Cells]>,
}

impl Parts {
    /// Of a server that nothing more is said of, for that many workers.
    pub(crate) fn new(facts: ServerFacts, workers: usize) -> Parts {
        let cells = (0..workers).map(|_| Cells::default()).collect();
        Parts { facts, sni: None, connector: None, check_connector: None, cells }
    }

    /// Idle connections that each worker keeps to it.
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
