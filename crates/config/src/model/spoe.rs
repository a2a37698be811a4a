//! `filter spoe`: agents that are asked about sessions, and what they are told.

use super::{LogTarget, ProxyId};
use crate::span::{Line, Span, Spanned, Word};
use std::{path::PathBuf, time::Duration};

/// `filter spoe [engine NAME] config FILE`.
#[derive(Clone, Debug)]
pub struct SpoeFilter {
    /// The engine's name: the scope of the file that is meant.
    pub engine: Option<Word>,
    /// The file that holds the engine's sections.
    pub file: Spanned<PathBuf>,
    /// The filter's line.
    pub span: Span,
}

/// An engine: what a filter's scope of its file says.
#[derive(Clone, Debug)]
pub struct SpoeEngine {
    /// The filter's name of it, or else the agent's.
    pub name: String,
    /// The proxy that has the filter.
    pub proxy: ProxyId,
    /// The `spoe-agent` section.
    pub agent: SpoeAgent,
    /// The `spoe-message` sections.
    pub messages: Vec<SpoeMessage>,
    /// The `spoe-group` sections.
    pub groups: Vec<SpoeGroup>,
}

/// A `spoe-agent` section.
#[derive(Clone, Debug)]
pub struct SpoeAgent {
    /// The agent's name.
    pub name: Word,
    /// `messages`: those that are sent at their events.
    pub messages: Vec<Word>,
    /// `groups`: those that rules may send.
    pub groups: Vec<Word>,
    /// `use-backend`: the backend whose servers are the agent.
    pub backend: Option<Word>,
    /// `timeout hello`.
    pub hello: Option<Duration>,
    /// `timeout idle`.
    pub idle: Option<Duration>,
    /// `timeout processing`.
    pub processing: Option<Duration>,
    /// `max-frame-size`; by default what fits into a buffer.
    pub max_frame_size: Option<u32>,
    /// `max-waiting-frames`.
    pub waiting_max: usize,
    /// `maxconnrate`: connections opened in a second; 0 for any number.
    pub connection_rate: u32,
    /// `maxerrrate`: errors in a second, after which nothing is sent; 0 for any number.
    pub error_rate: u32,
    /// `option pipelining`.
    pub pipelining: bool,
    /// `option async`.
    pub is_async: bool,
    /// `option send-frag-payload`.
    pub fragments: bool,
    /// `option dontlog-normal`.
    pub dontlog_normal: bool,
    /// `option continue-on-error`.
    pub continue_on_error: bool,
    /// `option force-set-var`.
    pub force_set_var: bool,
    /// `option var-prefix`; by default the agent's name.
    pub var_prefix: Option<String>,
    /// `option set-on-error`.
    pub on_error: Option<String>,
    /// `option set-process-time`.
    pub process_time: Option<String>,
    /// `option set-total-time`.
    pub total_time: Option<String>,
    /// `register-var-names`.
    pub registered: Vec<String>,
    /// `log` lines.
    pub logs: Vec<LogTarget>,
    /// `log global`.
    pub log_global: bool,
}

impl SpoeAgent {
    /// A section without any line.
    pub fn new(name: Word) -> SpoeAgent {
        SpoeAgent {
            name,
            messages: Vec::new(),
            groups: Vec::new(),
            backend: None,
            hello: None,
            idle: None,
            processing: None,
            max_frame_size: None,
            waiting_max: 20,
            connection_rate: 0,
            error_rate: 0,
            pipelining: true,
            is_async: true,
            fragments: true,
            dontlog_normal: false,
            continue_on_error: false,
            force_set_var: false,
            var_prefix: None,
            on_error: None,
            process_time: None,
            total_time: None,
            registered: Vec::new(),
            logs: Vec::new(),
            log_global: false,
        }
    }

    /// What the names of its variables begin with, behind their scope and before a dot.
    pub fn prefix(&self) -> &str {
        self.var_prefix.as_deref().unwrap_or(&self.name.text)
    }
}

/// A `spoe-message` section.
#[derive(Clone, Debug)]
pub struct SpoeMessage {
    /// The message's name.
    pub name: Word,
    /// `args`: expressions, each perhaps with a name and `=` before it.
    pub arguments: Vec<Word>,
    /// `event`, and the condition, beginning at `if`; no words if there is none.
    pub event: Option<(SpoeEvent, Line)>,
    /// `acl` lines.
    pub acls: Vec<Line>,
}

/// A `spoe-group` section.
#[derive(Clone, Debug)]
pub struct SpoeGroup {
    /// The group's name.
    pub name: Word,
    /// `messages`.
    pub messages: Vec<Word>,
}

/// The moments at which messages are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpoeEvent {
    /// A stream begins: a connection of `mode tcp`, or a request.
    ClientSession,
    /// There is a connection to the server.
    ServerSession,
    /// Before `tcp-request content` rules of the frontend.
    FrontendTcpRequest,
    /// Before `tcp-request content` rules of the backend.
    BackendTcpRequest,
    /// Before `tcp-response content` rules.
    TcpResponse,
    /// Before `http-request` rules of the frontend.
    FrontendHttpRequest,
    /// Before `http-request` rules of the backend.
    BackendHttpRequest,
    /// Before `http-response` rules.
    HttpResponse,
}

impl SpoeEvent {
    /// Every event, in the order of the manual.
    pub const ALL: [SpoeEvent; 8] = [
        SpoeEvent::ClientSession,
        SpoeEvent::ServerSession,
        SpoeEvent::FrontendTcpRequest,
        SpoeEvent::BackendTcpRequest,
        SpoeEvent::TcpResponse,
        SpoeEvent::FrontendHttpRequest,
        SpoeEvent::BackendHttpRequest,
        SpoeEvent::HttpResponse,
    ];

    /// The manual's name of it.
    pub fn name(self) -> &'static str {
        match self {
            SpoeEvent::ClientSession => "on-client-session",
            SpoeEvent::ServerSession => "on-server-session",
            SpoeEvent::FrontendTcpRequest => "on-frontend-tcp-request",
            SpoeEvent::BackendTcpRequest => "on-backend-tcp-request",
            SpoeEvent::TcpResponse => "on-tcp-response",
            SpoeEvent::FrontendHttpRequest => "on-frontend-http-request",
            SpoeEvent::BackendHttpRequest => "on-backend-http-request",
            SpoeEvent::HttpResponse => "on-http-response",
        }
    }

    /// The event at which a `listen` section sends what is for this one: as in HAProxy, its messages of both sides go together.
    pub fn of_listen(self) -> SpoeEvent {
        match self {
            SpoeEvent::BackendTcpRequest => SpoeEvent::FrontendTcpRequest,
            SpoeEvent::BackendHttpRequest => SpoeEvent::FrontendHttpRequest,
            event => event,
        }
    }

    /// Whether only a filter of a frontend sees it.
    pub fn is_of_frontend(self) -> bool {
        matches!(self, SpoeEvent::ClientSession | SpoeEvent::FrontendTcpRequest | SpoeEvent::FrontendHttpRequest)
    }
}
