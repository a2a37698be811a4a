//! The names that people give to what TLS negotiates: RFCs', and OpenSSL's where these are another.

use rustls::{CipherSuite, NamedGroup, ProtocolVersion, SignatureScheme};

/// Suites with their OpenSSL names; in RFCs they are called like rustls' constants, but for a prefix.
const SUITES: [(CipherSuite, &str, &str); 9] = [
    (CipherSuite::TLS13_AES_128_GCM_SHA256, "TLS_AES_128_GCM_SHA256", ""),
    (CipherSuite::TLS13_AES_256_GCM_SHA384, "TLS_AES_256_GCM_SHA384", ""),
    (CipherSuite::TLS13_CHACHA20_POLY1305_SHA256, "TLS_CHACHA20_POLY1305_SHA256", ""),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "ECDHE-RSA-AES128-GCM-SHA256",
    ),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        "ECDHE-RSA-AES256-GCM-SHA384",
    ),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        "ECDHE-RSA-CHACHA20-POLY1305",
    ),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "ECDHE-ECDSA-AES128-GCM-SHA256",
    ),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "ECDHE-ECDSA-AES256-GCM-SHA384",
    ),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
    ),
];

/// Groups, with OpenSSL's second name.
const GROUPS: [(NamedGroup, &str, &str); 4] = [
    (NamedGroup::X25519, "x25519", ""),
    (NamedGroup::secp256r1, "secp256r1", "p256"),
    (NamedGroup::secp384r1, "secp384r1", "p384"),
    (NamedGroup::X25519MLKEM768, "x25519mlkem768", "hybrid"),
];

/// Signature algorithms by their names in RFC 8446.
const SIGNATURES: [(SignatureScheme, &str); 9] = [
    (SignatureScheme::RSA_PSS_SHA256, "rsa_pss_rsae_sha256"),
    (SignatureScheme::RSA_PSS_SHA384, "rsa_pss_rsae_sha384"),
    (SignatureScheme::RSA_PSS_SHA512, "rsa_pss_rsae_sha512"),
    (SignatureScheme::ECDSA_NISTP256_SHA256, "ecdsa_secp256r1_sha256"),
    (SignatureScheme::ECDSA_NISTP384_SHA384, "ecdsa_secp384r1_sha384"),
    (SignatureScheme::ED25519, "ed25519"),
    (SignatureScheme::RSA_PKCS1_SHA256, "rsa_pkcs1_sha256"),
    (SignatureScheme::RSA_PKCS1_SHA384, "rsa_pkcs1_sha384"),
    (SignatureScheme::RSA_PKCS1_SHA512, "rsa_pkcs1_sha512"),
];

pub(crate) fn suite(name: &str) -> Option<CipherSuite> {
    let is = |one: &str| one.eq_ignore_ascii_case(name);
    SUITES.iter().find(|(_, rfc, openssl)| is(rfc) || is(openssl)).map(|(suite, ..)| *suite)
}

pub(crate) fn group(name: &str) -> Option<NamedGroup> {
    let is = |one: &str| one.eq_ignore_ascii_case(name);
    GROUPS.iter().find(|(_, rfc, other)| is(rfc) || is(other)).map(|(group, ..)| *group)
}

pub(crate) fn signature(name: &str) -> Option<SignatureScheme> {
    SIGNATURES.iter().find(|(_, rfc)| rfc.eq_ignore_ascii_case(name)).map(|(scheme, _)| *scheme)
}

pub(crate) fn of_suite(suite: CipherSuite) -> String {
    SUITES.iter().find(|(one, ..)| *one == suite).map_or_else(|| format!("{suite:?}"), |(_, rfc, _)| (*rfc).into())
}

pub(crate) fn of_group(group: NamedGroup) -> String {
    GROUPS.iter().find(|(one, ..)| *one == group).map_or_else(|| format!("{group:?}"), |(_, rfc, _)| (*rfc).into())
}

pub(crate) fn of_signature(scheme: SignatureScheme) -> String {
    SIGNATURES.iter().find(|(one, _)| *one == scheme).map_or_else(|| format!("{scheme:?}"), |(_, rfc)| (*rfc).into())
}

pub(crate) fn of_version(version: ProtocolVersion) -> String {
    match version {
        ProtocolVersion::TLSv1_2 => "TLSv1.2".into(),
        ProtocolVersion::TLSv1_3 => "TLSv1.3".into(),
        other => format!("{other:?}"),
    }
}

/// What can be asked for, for messages.
pub(crate) fn known() -> [(&'static str, String); 3] {
    let join = |names: Vec<&str>| names.into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>().join(", ");
    [
        (
            "suites",
            join(SUITES.iter().map(|(_, rfc, openssl)| if openssl.is_empty() { *rfc } else { *openssl }).collect()),
        ),
        ("groups", join(GROUPS.iter().map(|(_, rfc, _)| *rfc).collect())),
        ("signatures", join(SIGNATURES.iter().map(|(_, rfc)| *rfc).collect())),
    ]
}
