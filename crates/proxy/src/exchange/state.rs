//! What is known of a request and its response while they are under way.

use super::ends::Counts;
use crate::server::{Presence, Server, ServerId};
use crate::worker::buffer::{Buffer, Buffers};
use penstock_http::{RequestHead, ResponseHead};
use penstock_rules::{LogFacts, ServerConnFacts, Txn};
use std::{cell::RefCell, sync::Arc};
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
    pub server: Option<Arc<Server>>,
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
    pub persistent: Option<ServerId>,
    /// What the persistence cookie said.
    pub cookie: CookiePersistence,
    /// The response head has gone to the client.
    pub responded: bool,
    /// It was no request: its line has the format of failed connections.
    pub refused: bool,
    /// Another attempt at a server is left.
    pub may_retry: bool,
    pub presence: Option<Presence>,
    /// Where its worker has it in the roster.
    pub listed: Option<usize>,
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

/// What a persistence cookie said and when, and what became of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CookiePersistence {
    /// The request goes to the server that its cookie names.
    pub direct: bool,
    /// `ignore-persist` holds: no cookie is read, and none set.
    pub ignored: bool,
    /// When the cookie was last sent, and when first, in seconds since 1970, where it tells.
    pub last: Option<u64>,
    pub first: Option<u64>,
}

impl Exchange {
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
}

/// A worker's exchanges, kept between requests with the memory they have grown to.
#[derive(Default)]
#[expect(clippy::vec_box, reason = "an exchange is some kilobytes, and is handed out in the box it was kept in")]
pub(crate) struct Kept(RefCell<Vec<Box<Exchange>>>);

/// Exchanges kept for reuse by each worker.
const KEPT: usize = 256;

impl Kept {
    /// One that nothing is known of yet.
    pub fn take(&self) -> Box<Exchange> {
        self.0.borrow_mut().pop().unwrap_or_default()
    }
    /// Takes back one that has ended.
    pub fn give(&self, mut x: Box<Exchange>, buffers: &Buffers) {
        x.request.clear();
        x.response.clear();
        x.txn.clear();
        x.log = LogFacts::default();
        x.times = Times::default();
        (x.backend, x.server, x.persistent, x.presence) = (None, None, None, None);
        x.listed = None;
        x.server_conn = ServerConnFacts::default();
        if let Some(body) = x.body.take() {
            buffers.give(body);
        }
        x.forget_response_body(buffers);
        x.cookie = CookiePersistence::default();
        (x.body_complete, x.responded, x.announced, x.continued) = (false, false, None, 0);
        x.response_announced = None;
        x.refused = false;
        let mut kept = self.0.borrow_mut();
        if kept.len() < KEPT {
            kept.push(x);
        }
    }
}

/// Milliseconds from one moment to a later one, or to the same: much happens without a wait between.
pub(crate) fn ms_between(from: Instant, to: Instant) -> i64 {
    if from == to {
        return 0;
    }
    to.saturating_duration_since(from).as_millis() as i64
}
