//! Services, which answer requests inside the process (the stats page, `/metrics`). They are implemented in crates
//! above this one and passed down as a trait.

use super::handle::Handle;
use penstock_config::model::Proxy;
use std::sync::Arc;
use tokio::sync::mpsc::Receiver;

/// A request for a [`Service`].
pub struct ServiceRequest<'a> {
    /// The method.
    pub method: &'a [u8],
    /// Path and query.
    pub target: &'a [u8],
    /// Header fields, in order. Any credentials among them have not been checked yet.
    pub fields: &'a [(&'a [u8], &'a [u8])],
    /// The whole body, at most `tune.bufsize` bytes.
    pub body: &'a [u8],
    /// The proxy whose rules led here: the one with `stats enable` or the `use-service` rule.
    pub proxy: &'a Proxy,
    /// Whether a condition of `stats admin` holds.
    pub admin: bool,
    /// Access to the running process.
    pub handle: &'a Handle,
}

impl ServiceRequest<'_> {
    /// The value of the first field of that name.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields.iter().find(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| *value)
    }
}

/// The response of a [`Service`].
#[derive(Debug, Default)]
pub struct ServiceResponse {
    /// Status code.
    pub status: u16,
    /// Header fields, except those for framing, which the worker adds.
    pub fields: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// What follows the body, as it comes, until the other end is dropped. Its bound is all that is kept for a client that
    /// does not read.
    pub stream: Option<Receiver<Vec<u8>>>,
}

/// Answers requests inside the process. It is called on a thread beside the workers, so that it may take its time.
pub trait Service: Send + Sync {
    /// The name that logs show in place of a server's.
    fn log_name(&self) -> &'static str;
    /// Answers one request.
    fn answer(&self, request: ServiceRequest<'_>) -> ServiceResponse;
}

/// The services a configuration may refer to.
#[derive(Clone, Default)]
pub struct Services {
    /// `stats enable`: the page, its CSV and its actions.
    pub stats: Option<Arc<dyn Service>>,
    /// `http-request use-service NAME`, by name (`prometheus-exporter`).
    pub named: Vec<(&'static str, Arc<dyn Service>)>,
}

impl Services {
    /// The service of that name.
    pub fn find(&self, name: &str) -> Option<&Arc<dyn Service>> {
        self.named.iter().find(|(n, _)| *n == name).map(|(_, s)| s)
    }
}
