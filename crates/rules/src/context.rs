//! What a rule sees when it runs, and what it may leave behind.

use crate::{
    facts::{ConnFacts, Now, ProxyFacts, ProxyId, ServerConnFacts, ServerFacts, World},
    log::LogFacts,
    table::Tracking,
    userlist::Logins,
    vars::Store,
};
use penstock_http::{RequestHead, ResponseHead};
use std::{cell::RefCell, net::SocketAddr};

/// Everything an evaluation may look at, borrowed for the evaluation. Two requests of one HTTP/2 connection share its
/// [`Session`] and have a [`Txn`] each.
pub struct Context<'a> {
    /// The moment.
    pub now: Now,
    /// How far the exchange is.
    pub phase: Phase,
    /// The client's connection.
    pub conn: &'a ConnFacts,
    /// The frontend that took it.
    pub frontend: (ProxyId, &'a ProxyFacts),
    /// The backend chosen, once it is; until then HAProxy shows the frontend in its place.
    pub backend: Option<(ProxyId, &'a ProxyFacts)>,
    /// The server chosen, once it is.
    pub server: Option<&'a ServerFacts>,
    /// The connection to it.
    pub server_conn: Option<&'a ServerConnFacts>,
    /// The request's head.
    pub request: Option<&'a mut RequestHead>,
    /// The response's head.
    pub response: Option<&'a mut ResponseHead>,
    /// Bytes buffered from the client: raw in TCP rules, the body in HTTP rules.
    pub input: Buffered<'a>,
    /// The same from the server.
    pub output: Buffered<'a>,
    /// State of the connection.
    pub session: &'a mut Session,
    /// State of the request.
    pub txn: &'a mut Txn,
    /// What only a log line needs, as far as it is known yet.
    pub log: &'a LogFacts,
    /// What lives above.
    pub world: &'a dyn World,
}

/// How far an exchange is: what is known of a request depends on there being one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// There is a connection and no request yet, or none at all: rules of the connection, the log line of a bad request.
    Before,
    /// From a request's head, or the beginning of a connection in `mode tcp`, on.
    #[default]
    During,
    /// Its log line is written: what was buffered has gone.
    After,
}

/// Bytes waiting in a buffer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Buffered<'a> {
    /// What is there.
    pub bytes: &'a [u8],
    /// No more will come before the decision: the stream ended, the buffer is full or the inspection delay is over.
    pub complete: bool,
    /// The length announced for an HTTP body, where one was.
    pub announced: Option<u64>,
}

/// State of a connection that rules read and write.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// Variables of scope `sess`.
    pub vars: Store,
    /// Variables of scope `check`, where this is a health check.
    pub check_vars: Option<Box<Store>>,
    /// What `tcp-request connection` and `session` rules track.
    pub tracking: Tracking,
    /// Requests received so far on the connection.
    pub requests: u64,
}

/// State of a request and its response that rules read and write.
#[derive(Debug, Default)]
pub struct Txn {
    /// Variables of scope `txn`.
    pub vars: Store,
    /// Variables of scope `req`, gone when the request has been forwarded.
    pub req_vars: Store,
    /// Variables of scope `res`.
    pub res_vars: Store,
    /// Assignments by the `set-var` converter, made while the variables were borrowed.
    pub(crate) pending: RefCell<Vec<crate::vars::Assignment>>,
    /// What `content` and `http-request` rules track.
    pub tracking: Tracking,
    /// The request line as it was received, which logs show whatever rules make of it.
    pub received: RequestLine,
    /// `capture request header`, `http-request capture`: by slot.
    pub request_captures: Vec<Option<Vec<u8>>>,
    /// `capture response header`, `http-response capture`: by slot.
    pub response_captures: Vec<Option<Vec<u8>>>,
    /// The request's `capture cookie`.
    pub request_cookie: Option<Vec<u8>>,
    /// The response's `capture cookie`.
    pub response_cookie: Option<Vec<u8>>,
    /// The response's version as it was received.
    pub response_version: Option<penstock_http::Version>,
    /// The status the client is given, once known.
    pub status: Option<u16>,
    /// `unique-id-format`, rendered at its first use.
    pub unique_id: RefCell<Option<Vec<u8>>>,
    /// Passwords that were checked for this request, and the one that has to be.
    pub logins: Logins,
    /// `set-log-level`.
    pub log_level: Option<LogLevel>,
    /// The destination that `set-dst` and `set-dst-port` made.
    pub dst: Option<SocketAddr>,
    /// The source that `set-src` and `set-src-port` made.
    pub src: Option<SocketAddr>,
    /// `set-priority-class`.
    pub priority_class: i32,
    /// `set-priority-offset`, ms.
    pub priority_offset_ms: i32,
    /// `set-timeout server`.
    pub timeout_server_ms: Option<u64>,
    /// `set-timeout tunnel`.
    pub timeout_tunnel_ms: Option<u64>,
    /// `disable-l7-retry`.
    pub no_retry: bool,
    /// `strict-mode off`: for the request, for the response.
    pub lenient: [bool; 2],
    /// 103 responses that `early-hint` rules prepared, each a complete list of fields.
    pub early_hints: Vec<(Vec<u8>, Vec<u8>)>,
    /// The last rule that decided: file and line.
    pub last_rule: Option<penstock_config::Span>,
}

impl Txn {
    /// Forgets the request and keeps the memory.
    pub fn clear(&mut self) {
        let mut kept = Txn {
            vars: std::mem::take(&mut self.vars),
            req_vars: std::mem::take(&mut self.req_vars),
            res_vars: std::mem::take(&mut self.res_vars),
            request_captures: std::mem::take(&mut self.request_captures),
            response_captures: std::mem::take(&mut self.response_captures),
            received: std::mem::take(&mut self.received),
            ..Txn::default()
        };
        kept.vars.clear();
        kept.req_vars.clear();
        kept.res_vars.clear();
        kept.request_captures.clear();
        kept.response_captures.clear();
        kept.received.clear();
        *self = kept;
    }

    /// Where the client is: what rules said of the request, else of its session, else what its connection says.
    pub fn source(&self, conn: &ConnFacts) -> Option<SocketAddr> {
        self.src.or(conn.source())
    }

    /// Where the client went, in the same way.
    pub fn destination(&self, conn: &ConnFacts) -> Option<SocketAddr> {
        self.dst.or(conn.destination())
    }

    /// The request has been forwarded: variables of scope `req` end.
    pub fn request_forwarded(&mut self) {
        self.req_vars.clear();
    }
}

/// Method, target and version as they were received.
#[derive(Clone, Debug, Default)]
pub struct RequestLine {
    bytes: Vec<u8>,
    /// Where the two spaces are.
    method: usize,
    target: usize,
}

impl RequestLine {
    /// Keeps a copy of a request's line, cut at `max` bytes (`tune.http.logurilen`).
    pub fn keep(&mut self, head: &RequestHead, max: usize) {
        self.clear();
        self.bytes.extend_from_slice(head.method());
        self.method = self.bytes.len();
        self.bytes.push(b' ');
        self.bytes.extend_from_slice(head.target());
        self.target = self.bytes.len();
        self.bytes.push(b' ');
        self.bytes.extend_from_slice(head.version().as_str().as_bytes());
        self.bytes.truncate(max);
        (self.method, self.target) = (self.method.min(max), self.target.min(max));
    }
    /// Nothing was received.
    pub fn clear(&mut self) {
        *self = RequestLine { bytes: std::mem::take(&mut self.bytes), ..Default::default() };
        self.bytes.clear();
    }
    /// Whether there was no request.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
    /// `GET /path?query HTTP/1.1`.
    pub fn whole(&self) -> &[u8] {
        &self.bytes
    }
    /// `GET`.
    pub fn method(&self) -> &[u8] {
        &self.bytes[..self.method]
    }
    /// `/path?query`.
    pub fn target(&self) -> &[u8] {
        self.bytes.get(self.method + 1..self.target).unwrap_or_default()
    }
    /// `HTTP/1.1`; that of a request without a version where the line was cut before it.
    pub fn version(&self) -> &[u8] {
        match self.bytes.get(self.target + 1..).unwrap_or_default() {
            b"" if !self.bytes.is_empty() => b"HTTP/0.9",
            version => version,
        }
    }
}

/// `set-log-level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// No log line for this request.
    Silent,
    /// A syslog severity, 0 (emerg) to 7 (debug).
    Level(u8),
}
