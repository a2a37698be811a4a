//! The state of a request and its response while they are in progress.

use super::{
    caching::Caching,
    compress::Compressed,
    ends::{Client, Upstream},
};
use crate::inspect::{Inspected, crossing::Passage};
use crate::server::{Presence, Server, ServerId};
use crate::spoe::Consulted;
use crate::worker::buffer::{Buffer, Buffers};
use penstock_config::model::ProxyId;
use penstock_http::{Framing, RequestHead, ResponseHead};
use penstock_rules::{LogFacts, ServerConnFacts, Txn};
use std::{cell::RefCell, sync::Arc};
use tokio::time::Instant;

/// The state of one request and its response. The worker keeps it between requests, with the memory it has allocated.
#[derive(Default)]
pub(crate) struct Exchange {
    pub request: RequestHead,
    pub response: ResponseHead,
    pub txn: Txn,
    pub log: LogFacts,
    pub times: Times,
    /// The backend's place in the configuration, once chosen.
    pub backend: Option<ProxyId>,
    /// The server, once chosen.
    pub server: Option<Arc<Server>>,
    pub server_conn: ServerConnFacts,
    /// The part of the body that was read before forwarding, and whether that is all of it.
    pub body: Option<Buffer>,
    pub body_complete: bool,
    /// The part of the response's body that was read before forwarding, and whether that is all of it.
    pub response_body: Option<Buffer>,
    pub response_complete: bool,
    /// The length of the response's body, if its head gave one.
    pub response_announced: Option<u64>,
    /// What is compressed of the exchange.
    pub compressed: Compressed,
    /// What caches have to do with the exchange.
    pub caching: Option<Box<Caching>>,
    /// What services have left of the exchange's bodies.
    pub inspected: Inspected,
    /// Its part in the way through devices.
    pub passage: Passage,
    /// What agents were told about it.
    pub consulted: Consulted,
    /// The size of the `100 Continue` and early hints that were sent from here, for the log.
    pub continued: u64,
    /// The length of the request's body, if its head gave one.
    pub announced: Option<u64>,
    /// The server that persistence selects.
    pub persistent: Option<ServerId>,
    /// For each of its backend's `stick` rules the key that it takes from the request, once the request's head is gone.
    pub stick_keys: Option<Vec<Option<Box<[u8]>>>>,
    /// The state of the persistence cookie.
    pub cookie: CookiePersistence,
    /// Whether the response head has been sent to the client.
    pub responded: bool,
    /// Whether this is a TLS connection that is passed on without being decrypted.
    pub bypassed: bool,
    /// Whether it was a CONNECT that was answered: what follows on its connection is another one, in TLS.
    pub tunnels: bool,
    /// Set for the first request of a connection that was of `mode tcp` until then.
    pub switched: Option<Switched>,
    /// Whether the request was invalid; its log line has the format of failed connections.
    pub refused: bool,
    /// Whether another attempt at a server is left.
    pub may_retry: bool,
    pub presence: Option<Presence>,
    /// The slot of the session in its worker's roster.
    pub listed: Option<usize>,
}

/// How an exchange of `mode tcp` went on as HTTP: the rules that switched it have judged it.
#[derive(Clone, Copy)]
pub(crate) struct Switched {
    /// `switch-mode http proto h1`: the preface of HTTP/2 is no request.
    pub only_http1: bool,
}

/// The times of the events of an exchange; `None` if the event has not occurred.
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

/// The content and dates of a persistence cookie, and how it was used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CookiePersistence {
    /// Whether the request goes to the server that its cookie names.
    pub direct: bool,
    /// Whether `ignore-persist` applies: then no cookie is read, and none is set.
    pub ignored: bool,
    /// When the cookie was last sent, and when first, in seconds since 1970; `None` if it does not say.
    pub last: Option<u64>,
    pub first: Option<u64>,
}

impl Exchange {
    /// Whether the client asked with HEAD, so that the response has no body, whatever rules have made of the method.
    pub fn wants_head_only(&self) -> bool {
        self.txn.received.method() == b"HEAD"
    }
    /// How the request is framed once rules and services have had it, before it is compressed.
    pub fn request_framing(&self, client: &dyn Client) -> Framing {
        self.inspected.request_framing.unwrap_or_else(|| client.request_framing())
    }
    /// How the request is framed towards its server.
    pub fn sent_framing(&self, client: &dyn Client) -> Framing {
        if self.compressed.is_request_encoded { Framing::Chunked } else { self.request_framing(client) }
    }
    /// Whether rules will not see more of the body than now: there is no more of it, or no room.
    pub fn body_is_final(&self) -> bool {
        self.body_complete || self.body.as_ref().is_some_and(Buffer::is_full)
    }
    /// The backend, or service, for which the server that it is at counts.
    pub fn counted_backend(&self) -> Option<ProxyId> {
        self.passage.out.as_ref().map(|out| out.service).or(self.backend)
    }
    /// Discards what was read of a response that will not be sent.
    pub fn forget_response_body(&mut self, buffers: &Buffers) {
        if let Some(body) = self.response_body.take() {
            buffers.give(body);
        }
        self.response_complete = false;
    }
    /// Records how many bytes the server has sent.
    pub fn count_response(&mut self, upstream: &dyn Upstream) {
        self.log.bytes_read = self.continued + upstream.counts().received;
        self.note_stream(upstream);
    }
    /// Records what is known of the server's stream.
    pub fn note_stream(&mut self, upstream: &dyn Upstream) {
        if let Some(stream) = upstream.stream() {
            self.txn.server_stream = stream;
        }
    }
    /// Records that the exchange ended before there was a response; the log shows this status.
    pub fn aborted(&mut self, status: u16) {
        self.txn.status = Some(status);
    }
}

/// A worker's unused exchanges, with the memory they have allocated.
#[derive(Default)]
#[expect(clippy::vec_box, reason = "an exchange is some kilobytes, and is handed out in the box it was kept in")]
pub(crate) struct Unused(RefCell<Vec<Box<Exchange>>>);

/// Exchanges kept for reuse by each worker.
const KEPT: usize = 256;

impl Unused {
    /// Takes an exchange in its initial state.
    pub fn take(&self) -> Box<Exchange> {
        self.0.borrow_mut().pop().unwrap_or_default()
    }
    /// Takes back an exchange that has ended.
    pub fn give(&self, mut x: Box<Exchange>, buffers: &Buffers) {
        x.request.clear();
        x.response.clear();
        x.txn.clear();
        x.log = LogFacts::default();
        x.times = Times::default();
        (x.backend, x.server, x.persistent, x.presence, x.stick_keys) = (None, None, None, None, None);
        x.listed = None;
        x.server_conn = ServerConnFacts::default();
        if let Some(body) = x.body.take() {
            buffers.give(body);
        }
        x.forget_response_body(buffers);
        x.compressed = Compressed::default();
        x.caching = None;
        x.inspected = Inspected::default();
        x.passage = Passage::default();
        x.consulted = Consulted::default();
        x.cookie = CookiePersistence::default();
        (x.body_complete, x.responded, x.announced, x.continued) = (false, false, None, 0);
        x.response_announced = None;
        (x.refused, x.bypassed, x.tunnels, x.switched) = (false, false, false, None);
        let mut kept = self.0.borrow_mut();
        if kept.len() < KEPT {
            kept.push(x);
        }
    }
}

/// Milliseconds between two moments; 0 if they are equal, as is common since the clock stands still between waits.
pub(crate) fn ms_between(from: Instant, to: Instant) -> i64 {
    if from == to {
        return 0;
    }
    to.saturating_duration_since(from).as_millis() as i64
}
