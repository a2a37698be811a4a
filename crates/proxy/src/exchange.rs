//! One request and its response, whatever protocols carry them: route, connect, forward, log. HTTP/1 connections and
//! HTTP/2 streams run the same code.

mod assign;
mod attempt;
pub(crate) mod buffered_body;
pub(crate) mod ends;
pub(crate) mod finish;
pub(crate) mod forward;
mod forwarded;
pub(crate) mod headers;
pub(crate) mod respond;
mod retry;
pub(crate) mod timeouts;
mod transfer;

pub(crate) use assign::{Attempts, Unserved, assign, connect, count_connect_error, facts_of};
pub(crate) use attempt::flush;

use crate::{
    connection::Conn,
    log::debug,
    route::{self, Route},
    server::Presence,
    worker::{
        buffer::{Buffer, Buffers},
        pulse::Stage,
        state::Worker,
        turn::{self, cost},
    },
};
use ends::{Client, Counts};
use penstock_config::model::Proxy;
use penstock_http::{RequestHead, ResponseHead};
use penstock_rules::{LogFacts, ServerConnFacts, Txn};
use std::sync::atomic::Ordering;
use tokio::time::Instant;

/// Everything a request needs while there is one. Kept by the worker between requests, with its memory.
#[derive(Default)]
pub(crate) struct Exchange {
    pub request: RequestHead,
    pub response: ResponseHead,
    pub txn: Txn,
    pub log: LogFacts,
    pub times: Times,
    /// The backend's place in the configuration, once chosen.
    pub backend: Option<usize>,
    /// The server, once chosen.
    pub server: Option<usize>,
    pub server_conn: ServerConnFacts,
    /// What was read of the body ahead of forwarding, and whether that is all.
    pub body: Option<Buffer>,
    pub body_complete: bool,
    /// What was read of the response's body ahead of forwarding, and whether that is all.
    pub response_body: Option<Buffer>,
    pub response_complete: bool,
    /// The length of the response's body, where its head told.
    pub response_announced: Option<u64>,
    /// What the log counts for `100 Continue` and early hints that were said here.
    pub continued: u64,
    /// The length of the body, where its head told.
    pub announced: Option<u64>,
    /// The server that persistence names.
    pub persistent: Option<usize>,
    /// What the persistence cookie said.
    pub cookie: crate::route::cookie::Persistence,
    /// The response head has gone to the client.
    pub responded: bool,
    /// It was no request: its line has the format of failed connections.
    pub refused: bool,
    /// Another attempt at a server is left.
    pub may_retry: bool,
    pub presence: Option<Presence>,
}

/// Moments of an exchange; what did not happen is `None`.
#[derive(Clone, Copy, Default)]
pub(crate) struct Times {
    /// The connection was ready for this request.
    pub ready: Option<Instant>,
    pub first_byte: Option<Instant>,
    pub complete: Option<Instant>,
    pub assigned: Option<Instant>,
    pub connected: Option<Instant>,
    pub answered: Option<Instant>,
}

impl Exchange {
    /// One of the worker's.
    pub fn take(worker: &Worker) -> Box<Exchange> {
        worker.exchanges.borrow_mut().pop().unwrap_or_default()
    }
    /// Gives it back.
    pub fn give(mut self: Box<Self>, worker: &Worker) {
        self.request.clear();
        self.response.clear();
        self.txn.clear();
        self.log = LogFacts::default();
        self.times = Times::default();
        (self.backend, self.server, self.persistent, self.presence) = (None, None, None, None);
        self.server_conn = ServerConnFacts::default();
        if let Some(body) = self.body.take() {
            worker.buffers.give(body);
        }
        self.forget_response_body(&worker.buffers);
        self.cookie = crate::route::cookie::Persistence::default();
        (self.body_complete, self.responded, self.announced, self.continued) = (false, false, None, 0);
        self.response_announced = None;
        self.refused = false;
        let mut kept = worker.exchanges.borrow_mut();
        if kept.len() < KEPT {
            kept.push(self);
        }
    }
    /// Its first byte is there.
    pub fn begin(&mut self, conn: &Conn, ready: Instant, first_byte: Instant) {
        self.times.ready = Some(ready);
        self.times.first_byte = Some(first_byte);
        self.log.Th = if conn.requests == 0 { conn.handshake_ms } else { 0 };
        self.log.Ti = ms_between(ready, first_byte);
        self.log.request_unix_us = conn.worker.clock.unix_us();
    }
    /// It gets its number in the process.
    pub fn number(&mut self, worker: &Worker) {
        self.log.request_counter = worker.shared.requests.fetch_add(1, Ordering::Relaxed);
    }
    /// Its head has been read.
    pub fn request_complete(&mut self, conn: &mut Conn) {
        let now = conn.worker.clock.now();
        self.times.complete = Some(now);
        self.log.TR = self.times.first_byte.map_or(-1, |first| ms_between(first, now));
        self.number(&conn.worker);
        conn.session.requests += 1;
        conn.worker.counters().frontend(conn.frontend).request(conn.worker.now_ms());
        let tune = &conn.worker.shared.config.global.tune;
        self.txn.received.keep(&self.request, tune.http_logurilen);
    }
    /// What answers it has no body, whatever became of its method since: the client asked with HEAD.
    pub fn wants_head_only(&self) -> bool {
        self.txn.received.method() == b"HEAD"
    }
    /// Rules will see no more of the body than they see now: there is no more, or no room for it.
    pub fn body_is_final(&self) -> bool {
        self.body_complete || self.body.as_ref().is_some_and(Buffer::is_full)
    }
    /// Lets go of what was read ahead of a response that does not go out.
    pub fn forget_response_body(&mut self, buffers: &Buffers) {
        if let Some(body) = self.response_body.take() {
            buffers.give(body);
        }
        self.response_complete = false;
    }
    /// So many bytes have come from the server.
    pub fn count_response(&mut self, upstream: Counts) {
        self.log.bytes_read = self.continued + upstream.received;
    }
    /// It ended before there was a response; the log shows this status.
    pub fn aborted(&mut self, status: u16) {
        self.txn.status = Some(status);
    }
    /// The proxy whose settings hold now: the backend's, once there is one.
    pub fn proxy<'a>(&self, conn: &'a Conn) -> &'a Proxy {
        &conn.worker.shared.config.proxies[self.backend.unwrap_or(conn.frontend)]
    }
}

/// Exchanges kept for reuse by each worker.
const KEPT: usize = 256;

/// Milliseconds from one moment to a later one, or to the same: much happens without a wait between.
pub(crate) fn ms_between(from: Instant, to: Instant) -> i64 {
    if from == to {
        return 0;
    }
    to.saturating_duration_since(from).as_millis() as i64
}

/// Runs an exchange whose request head has been read.
pub(crate) async fn run(conn: &mut Conn, client: &mut dyn Client, x: &mut Exchange) {
    conn.worker.pulse().enter(Stage::Route);
    turn::spend(cost::REQUEST);
    if let Some(fault) = conn.worker.planted.filter(|_| x.request.path() == b"/planted-fault") {
        fault.strike().await;
    }
    debug::request(conn, x);
    penstock_http::receive_hop_by_hop(&mut x.request.fields);
    match route::request(conn, client, x).await {
        Route::Backend(backend) => retry::to_backend(conn, client, x, backend).await,
        Route::Answered => {}
    }
    finish::run(conn, client, x);
}

/// A worker's exchanges, kept between requests.
pub(crate) type Kept = std::cell::RefCell<Vec<Box<Exchange>>>;
