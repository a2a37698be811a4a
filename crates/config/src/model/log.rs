//! Where log lines go.

use super::{Bind, ServerHost, ServerSettings};
use crate::span::{Span, Spanned};
use std::{path::PathBuf, time::Duration};

/// `log TARGET [len N] [format F] [sample R:S] FACILITY [LEVEL [MINLEVEL]]`.
#[derive(Clone, Debug)]
pub struct LogTarget {
    /// The destination.
    pub address: LogAddress,
    /// `len`: the maximum length of a line in bytes, 1024 by default.
    pub len: u32,
    /// `format`.
    pub format: LogTransport,
    /// `sample RANGES:SIZE`, as written.
    pub sample: Option<String>,
    /// Facility 0..=23.
    pub facility: u8,
    /// Highest severity number that is sent, 7 (debug) by default.
    pub level: u8,
    /// Lowest severity number that is used, 0 (emerg) by default: more severe lines are sent with this one.
    pub minlevel: u8,
    /// Where the `log` line is in the configuration.
    pub span: Span,
}

/// The destination of log lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogAddress {
    /// UDP syslog, port 514 by default.
    Udp(String, u16),
    /// A unix datagram socket.
    Unix(PathBuf),
    /// `fd@N`; `stdout` is 1, `stderr` is 2.
    Fd(i32),
    /// `ring@NAME`: a [`Ring`], or [`Ring::BUILT_IN`].
    Ring(String),
}

/// `format` of a log target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum LogTransport {
    /// No format is named: like `local`, with the host name if `log-send-hostname` is set.
    Usual,
    Local,
    Rfc3164,
    Rfc5424,
    Priority,
    Short,
    Timed,
    Iso,
    Raw,
}

/// `ring`: the newest lines in memory, which operators read and servers receive.
#[derive(Clone, Debug)]
pub struct Ring {
    /// The section's name.
    pub name: String,
    /// `description`, or the name.
    pub description: String,
    /// `format`, which counts instead of that of `log` lines.
    pub format: LogTransport,
    /// `maxlen`: the longest line, in bytes; anything longer is cut.
    pub maxlen: Option<Spanned<u64>>,
    /// `size`: the memory for lines, in bytes.
    pub size: u64,
    /// `timeout connect`.
    pub connect: Option<Duration>,
    /// `timeout server`: how long a server may take nothing.
    pub server: Option<Duration>,
    /// `server`: each receives every line, over TCP.
    pub servers: Vec<RingServer>,
    /// Where the section is in the configuration.
    pub span: Span,
}

/// `log-forward`: syslog messages of others, which are sent to log targets.
#[derive(Clone, Debug)]
pub struct LogForward {
    /// The section's name.
    pub name: String,
    /// `bind`: where messages come over TCP or TLS.
    pub binds: Vec<Bind>,
    /// `dgram-bind`: where they come over UDP.
    pub datagrams: Vec<Bind>,
    /// `backlog`.
    pub backlog: Option<u32>,
    /// `maxconn`.
    pub maxconn: u32,
    /// `timeout client`: how long a connection may be silent.
    pub client: Option<Duration>,
    /// `log` lines of its own.
    pub logs: Vec<LogTarget>,
    /// `log global`: those of `global` as well.
    pub log_global: bool,
    /// Where the section is in the configuration.
    pub span: Span,
}

impl LogForward {
    /// A section with HAProxy's defaults.
    pub fn new(name: String, span: Span) -> LogForward {
        LogForward {
            name,
            binds: Vec::new(),
            datagrams: Vec::new(),
            backlog: None,
            maxconn: 10,
            client: None,
            logs: Vec::new(),
            log_global: false,
            span,
        }
    }
}

/// A `server` line of a `ring`.
#[derive(Clone, Debug)]
pub struct RingServer {
    /// The server's name.
    pub name: String,
    /// Where its line is in the configuration.
    pub span: Span,
    /// Its IP address or name.
    pub host: ServerHost,
    /// Its port.
    pub port: u16,
    /// The settings of a server, of which `log-proto` and those of TLS matter.
    pub settings: ServerSettings,
}

/// `log-proto`: how lines are told apart on a connection (RFC 6587).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogProto {
    /// Each line ends with a line feed.
    #[default]
    Legacy,
    /// Each line follows its length and a blank.
    OctetCount,
}

impl Ring {
    /// The name of the ring that is always there.
    pub const BUILT_IN: &str = "buf0";
    /// Bytes that a ring needs for a line besides those of the line itself.
    pub const LINE_OVERHEAD: u64 = 4;

    /// A section with HAProxy's defaults; `size` is that of a buffer.
    pub fn new(name: String, size: u64, span: Span) -> Ring {
        Ring {
            description: name.clone(),
            name,
            format: LogTransport::Raw,
            maxlen: None,
            size,
            connect: None,
            server: None,
            servers: Vec::new(),
            span,
        }
    }

    /// The ring that is always there: 1 MiB, as in HAProxy.
    pub fn built_in() -> Ring {
        Ring {
            description: "in-memory ring buffer".into(),
            format: LogTransport::Timed,
            ..Ring::new(Ring::BUILT_IN.into(), 1 << 20, Span::default())
        }
    }

    /// The longest line that the ring stores.
    pub fn line_max(&self) -> u64 {
        let room = self.size.saturating_sub(Ring::LINE_OVERHEAD);
        self.maxlen.as_ref().map_or(room, |maxlen| maxlen.value.min(room))
    }
}
