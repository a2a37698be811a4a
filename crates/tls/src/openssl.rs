//! OpenSSL's numbers and messages for failed handshakes, as in `ssl_fc_err` and `ssl_bc_err`.

use crate::HandshakeError;
use penstock_rules::HelloError;
use rustls::{AlertDescription, Error, PeerIncompatible};

/// The part of a number that stands for OpenSSL's SSL library.
const SSL: u32 = 20 << 23;
/// OpenSSL's reason for its own internal errors.
const INTERNAL: (u32, &str) = (0xC0103, "internal error");

impl HandshakeError {
    /// OpenSSL's error number and reason; 0 if OpenSSL would have reported none.
    pub fn library(&self) -> (u32, &'static str) {
        let (reason, words) = match self {
            HandshakeError::Empty | HandshakeError::Aborted(_) | HandshakeError::TurnedAway => return (0, ""),
            HandshakeError::ClearHttp => (156, "http request"),
            HandshakeError::BadHello(HelloError::NotTls) => (267, "wrong version number"),
            HandshakeError::BadHello(HelloError::NotClientHello) => (244, "unexpected message"),
            HandshakeError::BadHello(HelloError::TooLong) => (152, "excessive message size"),
            HandshakeError::BadHello(HelloError::BadRecord) => (443, "invalid record"),
            HandshakeError::BadHello(HelloError::Malformed(_)) => (159, "length mismatch"),
            HandshakeError::UnknownName => (234, "callback failed"),
            HandshakeError::Certificate { .. }
            | HandshakeError::Version1
            | HandshakeError::WrongHost
            | HandshakeError::WrongName
            | HandshakeError::Origin(_) => (134, "certificate verify failed"),
            HandshakeError::Tls(error) => of_library(error),
            HandshakeError::Internal(_) => INTERNAL,
        };
        (SSL | reason, words)
    }
}

fn of_library(error: &Error) -> (u32, &'static str) {
    use PeerIncompatible as P;
    match error {
        Error::AlertReceived(alert) => (1000 + u32::from(u8::from(*alert)), alert_received(*alert)),
        Error::PeerIncompatible(P::NoCipherSuitesInCommon | P::NoKxGroupsInCommon) => (193, "no shared cipher"),
        Error::PeerIncompatible(P::KeyShareExtensionRequired) => (101, "no suitable key share"),
        Error::PeerIncompatible(P::NoSignatureSchemesInCommon) => (118, "no suitable signature algorithm"),
        Error::PeerIncompatible(
            P::Tls12NotOffered
            | P::Tls12NotOfferedOrEnabled
            | P::ServerDoesNotSupportTls12Or13
            | P::ServerTlsVersionIsDisabledByOurConfig
            | P::SupportedVersionsExtensionRequired,
        ) => (258, "unsupported protocol"),
        Error::NoCertificatesPresented => (199, "peer did not return a certificate"),
        Error::InvalidCertificate(_) => (134, "certificate verify failed"),
        Error::DecryptError => (281, "decryption failed or bad record mac"),
        Error::InvalidMessage(_) => (267, "wrong version number"),
        Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => (244, "unexpected message"),
        Error::NoApplicationProtocol => (235, "no application protocol"),
        _ => INTERNAL,
    }
}

fn alert_received(alert: AlertDescription) -> &'static str {
    use AlertDescription as A;
    match alert {
        A::UnexpectedMessage => "sslv3 alert unexpected message",
        A::BadRecordMac => "sslv3 alert bad record mac",
        A::RecordOverflow => "tlsv1 alert record overflow",
        A::HandshakeFailure => "sslv3 alert handshake failure",
        A::BadCertificate => "sslv3 alert bad certificate",
        A::UnsupportedCertificate => "sslv3 alert unsupported certificate",
        A::CertificateRevoked => "sslv3 alert certificate revoked",
        A::CertificateExpired => "sslv3 alert certificate expired",
        A::CertificateUnknown => "sslv3 alert certificate unknown",
        A::IllegalParameter => "sslv3 alert illegal parameter",
        A::UnknownCA => "tlsv1 alert unknown ca",
        A::AccessDenied => "tlsv1 alert access denied",
        A::DecodeError => "tlsv1 alert decode error",
        A::DecryptError => "tlsv1 alert decrypt error",
        A::ProtocolVersion => "tlsv1 alert protocol version",
        A::InsufficientSecurity => "tlsv1 alert insufficient security",
        A::InternalError => "tlsv1 alert internal error",
        A::InappropriateFallback => "tlsv1 alert inappropriate fallback",
        A::UserCanceled => "tlsv1 alert user cancelled",
        A::NoRenegotiation => "tlsv1 alert no renegotiation",
        A::MissingExtension => "tlsv13 alert missing extension",
        A::CertificateRequired => "tlsv13 alert certificate required",
        A::UnrecognisedName => "tlsv1 unrecognized name",
        A::NoApplicationProtocol => "tlsv1 alert no application protocol",
        _ => "reason unknown",
    }
}
