//! Why a handshake failed, in HAProxy's wording.

use crate::judge::Invalid;
use std::{fmt, io};

/// Why a handshake failed. By the time this is returned, the alert has been sent, if one is due.
#[derive(Debug)]
pub enum HandshakeError {
    /// The peer closed before it sent anything.
    Empty,
    /// The peer closed, or the socket failed, during the handshake.
    Aborted(io::Error),
    /// The client sent an HTTP request in clear text.
    ClearHttp,
    /// The first bytes are not a valid ClientHello.
    BadHello(penstock_rules::HelloError),
    /// `strict-sni`, and there is no certificate for the requested name (or no name was requested).
    UnknownName,
    /// The peer's certificate was refused.
    Certificate {
        /// OpenSSL's `X509_V_ERR_*`.
        verify: u32,
        /// Whether a certificate above it in the chain was refused, rather than itself.
        authority: bool,
    },
    /// The peer's certificate has X.509 version 1, which webpki does not read.
    Version1,
    /// A server presented a certificate for another name than the one sent as SNI.
    WrongName,
    /// A server presented a certificate for another name than that of `verifyhost`.
    WrongHost,
    /// The certificate of the server in whose place a client was to be answered does not validate.
    Origin(Invalid),
    /// TLS failed: no common version or suite, a bad signature, or an alert from the peer.
    Tls(rustls::Error),
    /// The line of handshakes was longer than `tune.crypto.max-wait`.
    TurnedAway,
    /// An internal error, which affects only this connection.
    Internal(&'static str),
}

impl HandshakeError {
    /// HAProxy's sentence for the error, as in `fc_err_str` and the log's error line.
    pub fn message(&self) -> &'static str {
        match self {
            HandshakeError::Empty => "Connection closed during SSL handshake",
            HandshakeError::Aborted(_) => "Connection error during SSL handshake",
            HandshakeError::Certificate { authority: true, .. } => "SSL client CA chain cannot be verified",
            HandshakeError::Certificate { authority: false, .. } => "SSL client certificate not trusted",
            HandshakeError::Version1 => "SSL client certificate of X.509 version 1 not supported",
            HandshakeError::WrongHost => "Server presented an SSL certificate different from the configured one",
            HandshakeError::WrongName => "Server presented an SSL certificate different from the expected one",
            _ => "SSL handshake failure",
        }
    }

    /// Whether TLS failed for a certificate of the peer that cannot be used at all: its key is too weak, or it cannot be decoded.
    pub fn is_for_certificate(&self) -> bool {
        matches!(self, HandshakeError::Tls(rustls::Error::InvalidCertificate(_)))
    }

    /// HAProxy's number for the error (`fc_err`).
    pub fn code(&self) -> u32 {
        match self {
            HandshakeError::Empty => 24,
            HandshakeError::Aborted(_) => 25,
            HandshakeError::Certificate { authority: true, .. } => 30,
            HandshakeError::Certificate { authority: false, .. } | HandshakeError::Version1 => 31,
            HandshakeError::WrongHost => 32,
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
            HandshakeError::Origin(invalid) => write!(f, " ({invalid})"),
            HandshakeError::Tls(e) => write!(f, " ({e})"),
            HandshakeError::TurnedAway => {
                f.write_str(" (turned away: the wait would be longer than tune.crypto.max-wait)")
            }
            HandshakeError::Internal(what) => write!(f, " ({what})"),
            HandshakeError::Empty
            | HandshakeError::WrongHost
            | HandshakeError::WrongName
            | HandshakeError::Version1 => Ok(()),
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
