//! A running exchange, as all its steps see it.

use super::{ends::Client, state::Exchange};
use crate::{connection::Conn, worker::state::Worker};
use penstock_config::model::Proxy;
use std::rc::Rc;

/// A request, the client that sent it, and the connection and worker that serve it.
pub(crate) struct Live<'a> {
    /// The worker, by a reference of its own, so that it can be used while the connection is borrowed mutably.
    pub worker: &'a Rc<Worker>,
    /// The client's connection, or one stream of it.
    pub conn: &'a mut Conn,
    /// The client's end.
    pub client: &'a mut dyn Client,
    /// The state of the request and its response.
    pub x: &'a mut Exchange,
}

impl<'a> Live<'a> {
    pub fn new(worker: &'a Rc<Worker>, conn: &'a mut Conn, client: &'a mut dyn Client, x: &'a mut Exchange) -> Self {
        Live { worker, conn, client, x }
    }
    /// The proxy whose settings apply: the backend, once there is one.
    pub fn proxy(&self) -> &'a Proxy {
        &self.worker.shared.config.proxies[self.x.backend.unwrap_or(self.conn.frontend)]
    }
}
