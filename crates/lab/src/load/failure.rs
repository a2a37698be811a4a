//! How a unit can fail: a sentence each.

use rustls::{AlertDescription, CertificateError, Error as TlsError};
use std::fmt;
use std::io;

/// What a verifier says of a handshake's signature: rustls itself has one word for it and for a chain's.
pub(crate) const WRONG_SIGNATURE: &str = "wrong signature";

/// How far a unit had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Connect,
    Tunnel,
    Handshake,
    Response,
    Idle,
    Close,
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            When::Connect => "while connecting",
            When::Tunnel => "before the tunnel was made",
            When::Handshake => "during the handshake",
            When::Response => "before the end of a response",
            When::Idle => "while it was idle",
            When::Close => "instead of a clean close",
        })
    }
}

impl When {
    /// The other side at that time.
    fn who(self) -> &'static str {
        if self == When::Tunnel { "the proxy" } else { "the server" }
    }
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Failure {
    Refused,
    /// There is no tunnel, and why.
    Proxy(String),
    Unreachable(String),
    Reset(When),
    Closed(When),
    TimedOut(When),
    Alert(AlertDescription),
    NotTls,
    Certificate(CertificateError),
    Signature,
    Tls(TlsError),
    NoHttp2,
    Http1(penstock_http::Error),
    Http2(String),
    NoPorts,
    NoDescriptors,
    Socket(io::ErrorKind),
}

impl Failure {
    /// The server's fault, or no one's.
    pub(crate) fn of_socket(error: &io::Error, stage: When) -> Failure {
        use io::ErrorKind as Kind;
        match error.kind() {
            Kind::ConnectionRefused => Failure::Refused,
            Kind::ConnectionReset | Kind::BrokenPipe | Kind::ConnectionAborted => Failure::Reset(stage),
            Kind::TimedOut => Failure::TimedOut(stage),
            Kind::UnexpectedEof => Failure::Closed(stage),
            Kind::AddrNotAvailable | Kind::AddrInUse => Failure::NoPorts,
            Kind::HostUnreachable | Kind::NetworkUnreachable => Failure::Unreachable(error.to_string()),
            _ => match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
                Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => Failure::NoDescriptors,
                _ => Failure::Socket(error.kind()),
            },
        }
    }

    /// Whether the failure is one of this machine, which has run out of ports or descriptors.
    pub(crate) fn is_ours(&self) -> bool {
        matches!(self, Failure::NoPorts | Failure::NoDescriptors)
    }
}

impl From<TlsError> for Failure {
    fn from(error: TlsError) -> Failure {
        match error {
            TlsError::AlertReceived(alert) => Failure::Alert(alert),
            TlsError::InvalidMessage(
                rustls::InvalidMessage::InvalidContentType | rustls::InvalidMessage::UnknownProtocolVersion,
            ) => Failure::NotTls,
            TlsError::General(what) if what == WRONG_SIGNATURE => Failure::Signature,
            TlsError::InvalidCertificate(why) => Failure::Certificate(why),
            other => Failure::Tls(other),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Refused => f.write_str("the server refused the connection: nothing listens there"),
            Failure::Unreachable(why) => write!(f, "the server cannot be reached: {why}"),
            Failure::Proxy(why) => write!(f, "the proxy made no tunnel: {why}"),
            Failure::Reset(stage) => write!(f, "{} reset the connection {stage}", stage.who()),
            Failure::Closed(stage) => write!(f, "{} closed the connection {stage}", stage.who()),
            Failure::TimedOut(stage) => write!(f, "{} did not answer in time, {stage}", stage.who()),
            Failure::Alert(alert) => write!(f, "the server ended the connection with the TLS alert {alert:?}"),
            Failure::NotTls => f.write_str("the server does not speak TLS: its first bytes are no TLS record"),
            Failure::Certificate(why) => write!(f, "the server's certificate is not accepted: {why}"),
            Failure::Signature => f.write_str("the server's signature of the handshake is wrong"),
            Failure::Tls(why) => write!(f, "TLS: {why}"),
            Failure::NoHttp2 => f.write_str("the server does not agree to HTTP/2"),
            Failure::Http1(why) => write!(f, "the response is no valid HTTP/1.1: {why:?}"),
            Failure::Http2(why) => write!(f, "HTTP/2: {why}"),
            Failure::NoPorts => f.write_str(
                "this machine has no free local port left: give more source addresses, or widen net.ipv4.ip_local_port_range",
            ),
            Failure::NoDescriptors => f.write_str("this machine allows no more open files: raise the limit (ulimit -n)"),
            Failure::Socket(kind) => write!(f, "the connection failed: {kind}"),
        }
    }
}
