//! Servers of the data plane: those of `penstock_backends`, each with what its connections need.

use crate::observe::counters::Cells;
use penstock_config::model::{ProxyId, ServerSettings};
use penstock_rules::{Compiler, Expr, LogFormat, Places, ServerFacts, log::Purpose};
use penstock_tls::Connector;

pub use penstock_backends::server::*;

/// What the data plane stores with each server, for as long as the server exists.
pub struct Parts {
    /// What rules can see of the server.
    pub(crate) facts: ServerFacts,
    /// What is evaluated for each of its connections.
    pub(crate) expressions: Expressions,
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
        Parts { facts, expressions: Expressions::default(), connector: None, check_connector: None, cells }
    }

    /// How many idle connections each worker keeps to it.
    pub fn idle_by_worker(&self) -> Vec<u64> {
        self.cells.iter().map(|cells| cells.idle_connections.read()).collect()
    }
}

/// What is evaluated for each connection to a server.
#[derive(Default)]
pub(crate) struct Expressions {
    /// `sni`.
    pub(crate) sni: Option<Expr>,
    /// `pool-conn-name`.
    pub(crate) pool_name: Option<Expr>,
    /// `set-proxy-v2-tlv-fmt`, by type.
    pub(crate) tlvs: Vec<(u8, LogFormat)>,
}

impl Expressions {
    /// Compiles those of a server of this proxy; errors are added to the compiler's diagnostics.
    pub(crate) fn compile(settings: &ServerSettings, proxy: ProxyId, compiler: &mut Compiler<'_>) -> Expressions {
        let sni = settings.prepared_tls().and_then(|tls| tls.sni.as_ref());
        let sni = sni.and_then(|line| compiler.expression(line, proxy, Places::SERVER));
        let pool_name = settings.pool_conn_name.as_ref();
        let pool_name = pool_name.and_then(|line| compiler.expression(line, proxy, Places::SERVER));
        let tlvs = settings.proxy_v2_tlvs.iter();
        let compiled = tlvs
            .filter_map(|(kind, format)| Some((*kind, compiler.format(format, Purpose::Text, proxy, Places::SERVER)?)));
        let tlvs = compiled.collect();
        Expressions { sni, pool_name, tlvs }
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
