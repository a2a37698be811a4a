//! What a rule can see when it runs, and what it can change.

use crate::{
    answer::Answer,
    facts::{ConnFacts, Now, PacketFields, ProxyFacts, ServerConnFacts, ServerFacts, StreamFacts, World},
    log::LogFacts,
    table::{Bandwidth, Tracking},
    userlist::Logins,
    vars::Store,
};
use penstock_config::model::ProxyId;
use penstock_http::{RequestHead, ResponseHead};
use std::{cell::RefCell, net::SocketAddr, sync::Arc};

/// Everything an evaluation may look at, borrowed for the evaluation. Requests on one HTTP/2 connection share its
/// [`Session`] and have a [`Txn`] each.
pub struct Context<'a> {
    /// The time of the evaluation.
    pub now: Now,
    /// How far the exchange has progressed.
    pub phase: Phase,
    /// The client's connection.
    pub conn: &'a ConnFacts,
    /// The frontend that accepted it.
    pub frontend: (ProxyId, &'a ProxyFacts),
    /// The backend, once chosen; until then HAProxy shows the frontend in its place.
    pub backend: Option<(ProxyId, &'a ProxyFacts)>,
    /// The server, once chosen.
    pub server: Option<&'a ServerFacts>,
    /// The connection to the server.
    pub server_conn: Option<&'a ServerConnFacts>,
    /// The request's head.
    pub request: Option<&'a mut RequestHead>,
    /// The response's head.
    pub response: Option<&'a mut ResponseHead>,
    /// Bytes buffered from the client: raw in TCP rules, the body in HTTP rules.
    pub input: Buffered<'a>,
    /// Bytes buffered from the server.
    pub output: Buffered<'a>,
    /// State of the connection.
    pub session: &'a mut Session,
    /// State of the request.
    pub txn: &'a mut Txn,
    /// What only a log line needs, as far as it is known yet.
    pub log: &'a LogFacts,
    /// Access to the rest of the process.
    pub world: &'a dyn World,
}

/// A text made of what a rule can see: a log format, for those who need not know how it is made.
pub trait Render: std::fmt::Debug + Send + Sync {
    /// Appends the text to `out`.
    fn render(&self, ctx: &Context<'_>, out: &mut Vec<u8>);
}

/// Something that holds or does not: an ACL, for those who need not know how it is made.
pub trait Decide: std::fmt::Debug + Send + Sync {
    /// Whether it holds.
    fn decide(&self, ctx: &Context<'_>) -> Answer;
}

impl Context<'_> {
    /// Renders the unique-id of the request, if the frontend has a format for it and it has not been rendered yet. As in
    /// HAProxy, what was no valid request has none.
    pub fn make_unique_id(&self) {
        if self.phase == Phase::Before {
            return;
        }
        let Some(format) = &self.frontend.1.unique_id_format else { return };
        if self.txn.unique_id.borrow().is_none() {
            // A format that asks for the unique-id itself finds nothing there, and does not ask again.
            *self.txn.unique_id.borrow_mut() = Some(Vec::new());
            let mut id = Vec::new();
            format.render(self, &mut id);
            *self.txn.unique_id.borrow_mut() = Some(id);
        }
    }
}

/// How far an exchange has progressed: request data is only available while there is a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// There is no request (yet): rules of the connection, or the log line of an invalid request.
    Before,
    /// From the request's head on, or in `mode tcp` from the start of the connection.
    #[default]
    During,
    /// The exchange is over and its log line is being written: nothing is buffered any more.
    After,
}

/// Bytes waiting in a buffer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Buffered<'a> {
    /// What is there.
    pub bytes: &'a [u8],
    /// Whether no more will come before the decision: the stream has ended, the buffer is full or the inspection delay
    /// is over.
    pub complete: bool,
    /// Whether the bytes are those of the connection and not of the body of a message.
    pub raw: bool,
    /// The announced length of an HTTP body, if there was one.
    pub announced: Option<u64>,
}

impl<'a> Buffered<'a> {
    /// The part of an HTTP body that is there.
    pub(crate) fn body(self) -> &'a [u8] {
        if self.raw { &[] } else { self.bytes }
    }
}

/// The state of a connection that rules read and write.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// Variables of scope `sess`.
    pub vars: Store,
    /// Variables of scope `check`; only in health checks.
    pub check_vars: Option<Box<Store>>,
    /// What rules of `tcp-request connection` and `session` track.
    pub tracking: Tracking,
    /// Requests received so far on the connection.
    pub requests: u64,
}

/// The state of a request and its response that rules read and write.
#[derive(Debug, Default)]
pub struct Txn {
    /// Variables of scope `txn`.
    pub vars: Store,
    /// Variables of scope `req`, dropped when the response begins.
    pub req_vars: Store,
    /// Variables of scope `res`.
    pub res_vars: Store,
    /// Whether the response has begun: which of the two scopes rules can use.
    pub(crate) responding: bool,
    /// Assignments by the `set-var` converter, deferred because the variables were borrowed.
    pub(crate) pending: RefCell<Vec<crate::vars::Assignment>>,
    /// What `content` and `http-request` rules track.
    pub tracking: Tracking,
    /// The request line as received, which logs show however rules change it.
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
    /// The name of the cache that the response comes from, if it does.
    pub cache: Option<Arc<str>>,
    /// The algorithm that compresses the response, if one does.
    pub compression: Option<&'static str>,
    /// The status of the server's response as it was received.
    pub server_status: Option<u16>,
    /// The status sent to the client, once known.
    pub status: Option<u16>,
    /// `unique-id-format`, rendered when first used.
    pub unique_id: RefCell<Option<Vec<u8>>>,
    /// Passwords that were checked for this request, and the one that has to be checked.
    pub logins: Logins,
    /// `set-log-level`.
    pub log_level: Option<LogLevel>,
    /// The destination set by `set-dst` and `set-dst-port`.
    pub dst: Option<SocketAddr>,
    /// The source set by `set-src` and `set-src-port`.
    pub src: Option<SocketAddr>,
    /// `set-priority-class`.
    pub priority_class: i32,
    /// `set-priority-offset`, in ms.
    pub priority_offset_ms: i32,
    /// `set-timeout client`.
    pub timeout_client_ms: Option<u64>,
    /// `set-timeout server`.
    pub timeout_server_ms: Option<u64>,
    /// `set-timeout tunnel`.
    pub timeout_tunnel_ms: Option<u64>,
    /// `set-bc-mark`, `set-bc-tos`.
    pub server_packets: PacketFields,
    /// `set-bandwidth-limit`.
    pub bandwidth: Vec<Bandwidth>,
    /// `disable-l7-retry`.
    pub no_retry: bool,
    /// `strict-mode off`: for the request, and for the response.
    pub lenient: [bool; 2],
    /// What `early-hint` rules have to say.
    pub early_hints: Vec<EarlyHint>,
    /// What a `tcp-request client-hello` rule does with the connection instead of only decrypting it.
    pub detour: Option<Detour>,
    /// The name that a `do-resolve` rule asks for.
    pub lookup: Option<Box<crate::lookup::Lookup>>,
    /// The services that inspect it: `http-request service-chain`.
    pub inspection: Option<Box<crate::inspection::Inspection>>,
    /// The client's end.
    pub client_stream: StreamFacts,
    /// The server's end.
    pub server_stream: StreamFacts,
    /// The last rule that made a decision.
    pub last_rule: Option<penstock_config::Span>,
}

/// What becomes of a connection because of its ClientHello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detour {
    /// `bypass`: it is passed on to this backend as it is.
    Bypass(ProxyId),
    /// `intercept`: a server of this backend is connected to first, and the client is answered in its place.
    Intercept(ProxyId),
}

/// A field of a 103 response.
#[derive(Clone, Debug)]
pub struct EarlyHint {
    /// The place of its rule in the list.
    pub(crate) rule: usize,
    /// Whether the field stands in one response with the field before.
    pub joins: bool,
    /// The field's name.
    pub name: Vec<u8>,
    /// The field's value.
    pub value: Vec<u8>,
}

impl Txn {
    /// Resets the state for another request, and keeps the allocated memory.
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

    /// The state in which a request comes back from a device, the step `bit` of its chain. What is about the client's connection
    /// and the response stays with the exchange that sent it there.
    pub fn behind(&self, bit: usize) -> Txn {
        Txn {
            vars: self.vars.clone(),
            req_vars: self.req_vars.clone(),
            tracking: self.tracking.clone(),
            request_captures: self.request_captures.clone(),
            unique_id: self.unique_id.clone(),
            log_level: Some(LogLevel::Silent),
            dst: self.dst,
            src: self.src,
            priority_class: self.priority_class,
            priority_offset_ms: self.priority_offset_ms,
            timeout_server_ms: self.timeout_server_ms,
            server_packets: self.server_packets,
            no_retry: self.no_retry,
            lenient: self.lenient,
            inspection: self.inspection.as_ref().map(|inspection| Box::new(inspection.behind(bit))),
            client_stream: self.client_stream,
            last_rule: self.last_rule,
            ..Txn::default()
        }
    }

    /// The client's address: as changed by rules for the request, else for its session, else that of its connection.
    pub fn source(&self, conn: &ConnFacts) -> Option<SocketAddr> {
        self.src.or(conn.source())
    }

    /// The address that the client connected to, as changed by rules for the request or its session.
    pub fn destination(&self, conn: &ConnFacts) -> Option<SocketAddr> {
        self.dst.or(conn.destination())
    }

    /// Called when a response begins, a server's or one made here: drops the variables of scope `req`, and lets rules use
    /// those of scope `res`.
    pub fn response_begins(&mut self) {
        self.req_vars.clear();
        self.responding = true;
    }
}

/// Method, target and version as received.
#[derive(Clone, Debug, Default)]
pub struct RequestLine {
    bytes: Vec<u8>,
    /// The positions of the two spaces.
    method: usize,
    target: usize,
}

impl RequestLine {
    /// Stores a copy of a request's line, truncated to `max` bytes (`tune.http.logurilen`).
    pub fn keep(&mut self, head: &RequestHead, max: usize) {
        self.clear();
        let mut take = |part: &[u8]| {
            let room = max.saturating_sub(self.bytes.len());
            self.bytes.extend_from_slice(&part[..part.len().min(room)]);
            self.bytes.len()
        };
        self.method = take(head.method());
        take(b" ");
        self.target = take(head.target());
        take(b" ");
        take(&head.received_version());
    }
    /// Resets it: no request was received.
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
    /// `HTTP/1.1`; the default version if the line was truncated before it.
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
