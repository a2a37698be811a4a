//! Where log lines go.

use crate::span::Span;
use std::path::PathBuf;

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
