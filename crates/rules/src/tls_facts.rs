//! What is known of the TLS session of a connection, for the `ssl_*` fetches and the log's `%sslv` and `%sslc`.

use crate::x509;
use std::sync::Arc;

/// Facts about an established TLS session. Filled in by the TLS layer after the handshake, and never changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFacts {
    /// The protocol version in OpenSSL's spelling: `TLSv1.2`, `TLSv1.3`.
    pub version: &'static str,
    /// The cipher in OpenSSL's spelling: `TLS_AES_128_GCM_SHA256`, `ECDHE-RSA-AES128-GCM-SHA256`.
    pub cipher: &'static str,
    /// Bits of the symmetric key (`ssl_fc_use_keysize`, `ssl_fc_alg_keysize`).
    pub keysize: u16,
    /// The group of the key exchange in HAProxy's spelling, `SECP256R1`, if one was used.
    pub group: Option<&'static str>,
    /// The server name the client asked for; on a connection to a server, the one we asked for.
    pub sni: Option<String>,
    /// The protocol agreed on.
    pub alpn: Option<Vec<u8>>,
    /// Whether the session was resumed, without a certificate and a signature.
    pub resumed: bool,
    /// The session id of the ServerHello; empty if it has none.
    pub session_id: Box<[u8]>,
    /// Parts of the ClientHello, if `tune.ssl.capture-buffer-size` asks for them.
    pub hello: Option<Box<Captured>>,
    /// The certificate the peer presented, leaf first.
    pub peer: Option<Arc<PeerCertificate>>,
    /// The certificate we presented, leaf in DER (`ssl_f_*`).
    pub own: Option<Arc<[u8]>>,
    /// OpenSSL's number for the result of verifying the peer's certificate; 0 if it passed or none was sent.
    pub verify: u32,
    /// The first error among the authorities of the chain (`ssl_c_ca_err`).
    pub ca_err: u32,
    /// Depth of that error (`ssl_c_ca_err_depth`).
    pub ca_err_depth: u32,
    /// The error of the leaf (`ssl_c_err`).
    pub leaf_err: u32,
    /// The worker's engine during the handshake: `native`, `sw`, `hw`, `hw+sw`.
    pub engine: &'static str,
    /// How long the handshake was parked, waiting for the engine, µs.
    pub engine_wait_us: u32,
}

/// What is kept of a ClientHello.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// The legacy version in the ClientHello (`ssl_fc_protocol_hello_id`).
    pub version: u16,
    /// The cipher suites it offers, two bytes each, truncated to the configured size (`ssl_fc_cipherlist_bin`).
    pub ciphers: Box<[u8]>,
}

/// What `send-proxy-v2` says about certificates.
impl TlsFacts {
    /// The first common name of the peer's subject.
    pub fn peer_common_name(&self) -> Option<String> {
        let common_name = x509::NamePart { entry: Some("CN"), occurrence: 1, rfc2253: false };
        x509::subject(self.peer.as_ref()?.leaf(), &common_name)
    }

    /// How our certificate is signed, in OpenSSL's spelling: `RSA-SHA256`.
    pub fn own_signature_algorithm(&self) -> Option<String> {
        x509::signature_algorithm(self.own.as_ref()?)
    }

    /// Type and bits of our key: `RSA2048`, `EC256`.
    pub fn own_key(&self) -> Option<String> {
        x509::key_with_size(self.own.as_ref()?)
    }
}

/// A peer's certificate chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerCertificate {
    /// DER of each, leaf first.
    pub chain: Vec<Vec<u8>>,
}

impl PeerCertificate {
    /// The leaf's DER (`ssl_c_der`).
    pub fn leaf(&self) -> &[u8] {
        self.chain.first().map_or(&[], Vec::as_slice)
    }
}
