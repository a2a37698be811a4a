//! Where log lines go.

use crate::span::Span;
use std::path::PathBuf;

/// `log TARGET [len N] [format F] [sample R:S] FACILITY [LEVEL [MINLEVEL]]`.
#[derive(Clone, Debug)]
pub struct LogTarget {
    /// Where to.
    pub address: LogAddress,
    /// `len`, 1024.
    pub len: u32,
    /// `format`.
    pub format: LogTransport,
    /// `sample RANGES:SIZE`, as written.
    pub sample: Option<String>,
    /// Facility 0..=23.
    pub facility: u8,
    /// Highest severity number sent, 7 (debug) by default.
    pub level: u8,
    /// Lowest severity number used: more severe ones are written as this, 0 (emerg) by default.
    pub minlevel: u8,
    /// Where it was written.
    pub span: Span,
}

/// Where a log line goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogAddress {
    /// UDP syslog, port 514 by default.
    Udp(String, u16),
    /// A unix datagram socket.
    Unix(PathBuf),
    /// `fd@N`, `stdout` is 1, `stderr` is 2.
    Fd(i32),
}

/// `format` of a log target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum LogTransport {
    /// None is named: as `local`, with the host's name where `log-send-hostname` asks for it.
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
