//! Translates rustls' names to those of OpenSSL.

use crate::session::Session;
use penstock_rules::{PeerCertificate, TlsFacts};
use rustls::{CipherSuite, HandshakeKind, NamedGroup, ProtocolVersion};
use std::sync::Arc;

/// The facts of a session. The caller adds SNI and verification.
pub(crate) fn facts(session: &Session) -> TlsFacts {
    let (cipher, keysize) = session.negotiated_cipher_suite().map_or(("", 0), |suite| openssl_cipher(suite.suite()));
    TlsFacts {
        version: session.protocol_version().map_or("", openssl_version),
        cipher,
        keysize,
        group: session.negotiated_key_exchange_group().and_then(|group| openssl_group(group.name())),
        alpn: session.alpn_protocol().map(<[u8]>::to_vec),
        resumed: session.handshake_kind() == Some(HandshakeKind::Resumed),
        peer: session
            .peer_certificates()
            .filter(|chain| !chain.is_empty())
            .map(|chain| Arc::new(PeerCertificate { chain: chain.iter().map(|cert| cert.to_vec()).collect() })),
        ..TlsFacts::default()
    }
}

/// The session id in a flight that starts with a ServerHello (RFC 5246, 7.4.1.3), whose record is never encrypted.
pub(crate) fn session_id(flight: &[u8]) -> Option<&[u8]> {
    const HANDSHAKE: u8 = 22;
    const SERVER_HELLO: u8 = 2;
    // Headers of record and message, version, random.
    const AT: usize = 5 + 4 + 2 + 32;
    if flight.first() != Some(&HANDSHAKE) || flight.get(5) != Some(&SERVER_HELLO) {
        return None;
    }
    let length = usize::from(*flight.get(AT)?);
    flight.get(AT + 1..AT + 1 + length).filter(|id| id.len() <= 32)
}

fn openssl_version(version: ProtocolVersion) -> &'static str {
    match version {
        ProtocolVersion::TLSv1_2 => "TLSv1.2",
        ProtocolVersion::TLSv1_3 => "TLSv1.3",
        _ => "unknown",
    }
}

/// OpenSSL's name of a suite, and the bits of its key.
pub(crate) fn openssl_cipher(suite: CipherSuite) -> (&'static str, u16) {
    use CipherSuite as S;
    match suite {
        S::TLS13_AES_128_GCM_SHA256 => ("TLS_AES_128_GCM_SHA256", 128),
        S::TLS13_AES_256_GCM_SHA384 => ("TLS_AES_256_GCM_SHA384", 256),
        S::TLS13_CHACHA20_POLY1305_SHA256 => ("TLS_CHACHA20_POLY1305_SHA256", 256),
        S::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => ("ECDHE-RSA-AES128-GCM-SHA256", 128),
        S::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => ("ECDHE-RSA-AES256-GCM-SHA384", 256),
        S::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => ("ECDHE-RSA-CHACHA20-POLY1305", 256),
        S::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 => ("ECDHE-ECDSA-AES128-GCM-SHA256", 128),
        S::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 => ("ECDHE-ECDSA-AES256-GCM-SHA384", 256),
        S::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 => ("ECDHE-ECDSA-CHACHA20-POLY1305", 256),
        _ => ("unknown", 0),
    }
}

fn openssl_group(group: NamedGroup) -> Option<&'static str> {
    Some(match group {
        NamedGroup::X25519 => "X25519",
        NamedGroup::secp256r1 => "SECP256R1",
        NamedGroup::secp384r1 => "SECP384R1",
        NamedGroup::X25519MLKEM768 => "X25519MLKEM768",
        _ => return None,
    })
}
