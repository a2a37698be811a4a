//! Verification of servers in whose place clients are answered: what is wrong with one is kept, since clients are told.

use crate::verify::{self, Servers};
use aws_lc_rs::digest::{SHA256, digest};
use rustls::{
    CertificateError, DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Why a server's certificate does not validate: OpenSSL's number, `X509_V_ERR_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalid(pub u32);

const NOT_YET_VALID: u32 = 9;
const EXPIRED: u32 = 10;
const SELF_SIGNED: u32 = 18;
const REVOKED: u32 = 23;
const WRONG_NAME: u32 = 62;

impl Invalid {
    /// As the end of a sentence about the certificate.
    pub fn reason(self) -> &'static str {
        match self.0 {
            3 => "is on no current revocation list",
            7 => "has a wrong signature",
            NOT_YET_VALID => "is not valid yet",
            EXPIRED => "has expired",
            12 => "cannot be checked, since the revocation list has expired",
            SELF_SIGNED => "is self-signed",
            19 => "was issued by an authority that is not trusted",
            20 | 21 => "was issued by an unknown authority",
            REVOKED => "has been revoked",
            26 => "is not for servers",
            WRONG_NAME => "is for another name",
            _ => "is not valid",
        }
    }

    /// The alert that tells a client the same (RFC 8446, 6.2).
    pub(crate) fn alert(self) -> u8 {
        match self.0 {
            NOT_YET_VALID | EXPIRED => 45,
            SELF_SIGNED..=21 => 48,
            REVOKED => 44,
            _ => 42,
        }
    }

    fn of(error: &Error, leaf: &CertificateDer<'_>, above: &[CertificateDer<'_>]) -> Invalid {
        if verify::is_about_the_name(error) {
            return Invalid(WRONG_NAME);
        }
        match verify::refusal(error, leaf, above).code {
            // webpki looks at what the certificate may be used for first, OpenSSL at who issued it.
            1 if is_self_signed(leaf) => Invalid(SELF_SIGNED),
            code => Invalid(code),
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server's certificate {} (verification result {})", self.reason(), self.0)
    }
}

fn is_self_signed(leaf: &[u8]) -> bool {
    X509Certificate::from_der(leaf).is_ok_and(|(_, parsed)| parsed.issuer() == parsed.subject())
}

/// Verifies one server for one handshake, by a standard of its own beside that of its line.
pub(crate) struct Judge {
    by: Arc<Servers>,
    standard: Standard,
}

enum Standard {
    /// The line's. What is wrong with the server is kept.
    OfLine { tolerates: bool, found: Mutex<Option<Invalid>> },
    /// The certificate with this digest, which a client has seen the like of and accepted, and no other.
    Pinned([u8; 32]),
}

impl Judge {
    /// Keeps what is wrong with the server; if it `tolerates` that, the handshake goes on all the same.
    pub fn new(by: Arc<Servers>, tolerates: bool) -> Arc<Judge> {
        Arc::new(Judge { by, standard: Standard::OfLine { tolerates, found: Mutex::default() } })
    }

    /// Accepts the certificate with this digest ([`pin`]), and no other.
    pub fn pinned(by: Arc<Servers>, digest: [u8; 32]) -> Arc<Judge> {
        Arc::new(Judge { by, standard: Standard::Pinned(digest) })
    }

    /// What is wrong with the server, if something is.
    pub fn found(&self) -> Option<Invalid> {
        match &self.standard {
            Standard::OfLine { found, .. } => *found.lock().unwrap_or_else(PoisonError::into_inner),
            Standard::Pinned(_) => None,
        }
    }
}

/// The digest by which a certificate is pinned.
pub fn pin(leaf: &[u8]) -> [u8; 32] {
    digest(&SHA256, leaf).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

impl fmt::Debug for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judge").finish_non_exhaustive()
    }
}

impl ServerCertVerifier for Judge {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        above: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &self.standard {
            Standard::OfLine { tolerates, found } => {
                let verdict = self.by.verify_server_cert(leaf, above, name, ocsp, now);
                let Err(error) = verdict else { return verdict };
                *found.lock().unwrap_or_else(PoisonError::into_inner) = Some(Invalid::of(&error, leaf, above));
                if *tolerates { Ok(ServerCertVerified::assertion()) } else { Err(error) }
            }
            Standard::Pinned(digest) if pin(leaf) == *digest => Ok(ServerCertVerified::assertion()),
            Standard::Pinned(_) => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by.supported_verify_schemes()
    }
}
