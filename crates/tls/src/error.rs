//! Why a handshake failed, in the words HAProxy's users know.

use std::{fmt, io};

/// The end of a handshake that did not succeed. By the time it is returned the alert has been sent, where one is due.
#[derive(Debug)]
pub enum HandshakeError {
    /// The peer closed before it sent anything.
    Empty,
    /// The peer closed, or the socket failed, in mid-handshake.
    Aborted(io::Error),
    /// A request in clear text.
    ClearHttp,
    /// What arrived first is no ClientHello, or a malformed one.
    BadHello(penstock_rules::HelloError),
    /// `strict-sni`, and no certificate for the name asked for (or none was asked for).
    UnknownName,
    /// The peer's certificate was refused; the number is OpenSSL's verification result.
    Certificate {
        /// OpenSSL's `X509_V_ERR_*`.
        verify: u32,
        /// Refused by the chain above it, not by itself.
        authority: bool,
    },
    /// A server presented a certificate for another name.
    WrongName,
    /// TLS refused: no common version or suite, a bad signature, an alert from the peer.
    Tls(rustls::Error),
    /// The line of handshakes was longer than `tune.crypto.max-wait`.
    TurnedAway,
    /// Something of ours broke; it cost this connection only.
    Internal(&'static str),
}

impl HandshakeError {
    /// HAProxy's sentence for it, as `fc_err_str` and the log's error line have it.
    pub fn message(&self) -> &'static str {
        match self {
            HandshakeError::Empty => "Connection closed during SSL handshake",
            HandshakeError::Aborted(_) => "Connection error during SSL handshake",
            HandshakeError::Certificate { authority: true, .. } => "SSL client CA chain cannot be verified",
            HandshakeError::Certificate { authority: false, .. } => "SSL client certificate not trusted",
            HandshakeError::WrongName => "Server presented an SSL certificate different from the expected one",
            _ => "SSL handshake failure",
        }
    }

    /// HAProxy's number for it (`fc_err`).
    pub fn code(&self) -> u32 {
        match self {
            HandshakeError::Empty => 24,
            HandshakeError::Aborted(_) => 25,
            HandshakeError::Certificate { authority: true, .. } => 30,
            HandshakeError::Certificate { authority: false, .. } => 31,
            HandshakeError::WrongName => 33,
            _ => 34,
        }
    }
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())?;
        match self {
            HandshakeError::Aborted(e) => write!(f, " ({e})"),
            HandshakeError::BadHello(e) => write!(f, " ({e:?})"),
            HandshakeError::ClearHttp => f.write_str(" (HTTP in clear text)"),
            HandshakeError::UnknownName => f.write_str(" (no certificate for the name asked for)"),
            HandshakeError::Certificate { verify, .. } => write!(f, " (verification result {verify})"),
            HandshakeError::Tls(e) => write!(f, " ({e})"),
            HandshakeError::TurnedAway => {
                f.write_str(" (turned away: the wait would be longer than tune.crypto.max-wait)")
            }
            HandshakeError::Internal(what) => write!(f, " ({what})"),
            HandshakeError::Empty | HandshakeError::WrongName => Ok(()),
        }
    }
}

impl std::error::Error for HandshakeError {}

impl From<HandshakeError> for io::Error {
    fn from(error: HandshakeError) -> io::Error {
        let kind = match &error {
            HandshakeError::Empty => io::ErrorKind::UnexpectedEof,
            HandshakeError::Aborted(e) => e.kind(),
            _ => io::ErrorKind::InvalidData,
        };
        io::Error::new(kind, error)
    }
}
