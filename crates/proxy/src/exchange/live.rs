//! A running exchange, as all its steps see it.

use super::{ends::Client, state::Exchange};
use crate::{connection::Conn, worker::state::Worker};
use penstock_config::model::Proxy;
use std::rc::Rc;

/// A request, the client that sent it, and the connection and worker that serve it.
pub(crate) struct Live<'a, 'w> {
    /// The connection's worker.
    pub worker: &'w Rc<Worker>,
    /// The client's connection, or one stream of it.
    pub conn: &'a mut Conn<'w>,
    /// The client's end.
    pub client: &'a mut dyn Client,
    /// The state of the request and its response.
    pub x: &'a mut Exchange,
}

impl<'a, 'w> Live<'a, 'w> {
    pub fn new(conn: &'a mut Conn<'w>, client: &'a mut dyn Client, x: &'a mut Exchange) -> Self {
        Live { worker: conn.worker, conn, client, x }
    }
    /// The proxy whose settings apply: the backend, once there is one.
    pub fn proxy(&self) -> &'w Proxy {
        &self.worker.shared.config.proxies[self.x.backend.unwrap_or(self.conn.frontend)]
    }
}
