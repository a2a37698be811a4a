//! A client and a server on one thread, over loopback; the server's steps are timed.

use super::{certificate::Identity, clock::thread_time};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, HandshakeKind, ServerConfig, ServerConnection,
    SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, aws_lc_rs},
    version::{TLS12, TLS13},
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::{
    net::{TcpListener, TcpStream},
    sync::Arc,
    time::{Duration, Instant},
};

/// Full or resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Full,
    Resumed,
}

/// Both ends, ready to meet.
pub(super) struct Pair {
    server: Arc<ServerConfig>,
    full: Arc<ClientConfig>,
    resuming: Arc<ClientConfig>,
    listener: TcpListener,
}

/// The longest wait: loopback answers at once, so beyond it something is in the way.
const PATIENCE: Duration = Duration::from_secs(5);

impl Pair {
    pub(super) fn new(identity: &Identity, tls12: bool) -> Result<Pair, String> {
        let provider = Arc::new(CryptoProvider {
            kx_groups: vec![aws_lc_rs::kx_group::X25519],
            cipher_suites: vec![
                aws_lc_rs::cipher_suite::TLS13_AES_256_GCM_SHA384,
                aws_lc_rs::cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
                aws_lc_rs::cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
            ],
            ..aws_lc_rs::default_provider()
        });
        let versions = if tls12 { &[&TLS12] } else { &[&TLS13] };
        let bad = |e: rustls::Error| format!("the certificate cannot be used: {e}");
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions)
            .map_err(bad)?
            .with_no_client_auth()
            .with_single_cert(identity.chain.clone(), identity.key.clone_key())
            .map_err(bad)?;
        server.ticketer = aws_lc_rs::Ticketer::new().map_err(bad)?;
        let client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions)
            .map_err(bad)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anything(provider)))
            .with_no_client_auth();
        let mut full = client.clone();
        full.resumption = Resumption::disabled();
        let mut resuming = client;
        resuming.resumption = Resumption::in_memory_sessions(4);
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| format!("cannot listen on loopback: {e}"))?;
        let pair = Pair { server: Arc::new(server), full: Arc::new(full), resuming: Arc::new(resuming), listener };
        // The libraries warm up, and the resuming client gets its first ticket.
        pair.once(Kind::Full)?;
        pair.once(Kind::Resumed)?;
        Ok(pair)
    }

    /// Microseconds of server CPU of each handshake, over handshakes of about `time`.
    pub(super) fn slice(&self, kind: Kind, time: Duration) -> Result<f64, String> {
        let wall = Instant::now();
        let (mut spent, mut count) = (Duration::ZERO, 0u32);
        while spent < time && wall.elapsed() < 100 * time {
            let (own, did) = self.once(kind)?;
            if (did == HandshakeKind::Resumed) != (kind == Kind::Resumed) {
                return Err(format!("a handshake that should be {kind:?} was {did:?}"));
            }
            spent += own;
            count += 1;
        }
        Ok(spent.as_secs_f64() * 1e6 / f64::from(count.max(1)))
    }

    /// One connection: the server's CPU time, and what kind of handshake it was.
    fn once(&self, kind: Kind) -> Result<(Duration, HandshakeKind), String> {
        let cannot = |what: &'static str| move |e: std::io::Error| format!("{what} over loopback: {e}");
        let broken = |e: rustls::Error| format!("the handshake failed: {e}");
        let config = if kind == Kind::Full { &self.full } else { &self.resuming };
        let address = self.listener.local_addr().map_err(cannot("no address"))?;
        let mut near = TcpStream::connect_timeout(&address, PATIENCE).map_err(cannot("cannot connect"))?;
        near.set_read_timeout(Some(PATIENCE)).map_err(cannot("cannot bound reading"))?;
        near.set_nodelay(true).map_err(cannot("cannot set TCP_NODELAY"))?;
        let name = ServerName::try_from("localhost").map_err(|e| e.to_string())?;
        let mut client = ClientConnection::new(config.clone(), name).map_err(broken)?;
        client.write_tls(&mut near).map_err(cannot("cannot write"))?;

        let mut own = Duration::ZERO;
        let start = thread_time();
        let (mut far, _) = self.listener.accept().map_err(cannot("cannot accept"))?;
        far.set_read_timeout(Some(PATIENCE)).map_err(cannot("cannot bound reading"))?;
        far.set_nodelay(true).map_err(cannot("cannot set TCP_NODELAY"))?;
        let mut server = ServerConnection::new(self.server.clone()).map_err(broken)?;
        own += thread_time() - start;

        while server.is_handshaking() || client.is_handshaking() {
            let start = thread_time();
            if server.wants_read() && server.is_handshaking() {
                server.read_tls(&mut far).map_err(cannot("cannot read"))?;
                server.process_new_packets().map_err(broken)?;
            }
            while server.wants_write() {
                server.write_tls(&mut far).map_err(cannot("cannot write"))?;
            }
            own += thread_time() - start;
            if client.is_handshaking() {
                client.read_tls(&mut near).map_err(cannot("cannot read"))?;
                client.process_new_packets().map_err(broken)?;
            }
            while client.wants_write() {
                client.write_tls(&mut near).map_err(cannot("cannot write"))?;
            }
        }
        let did = server.handshake_kind().ok_or("the handshake has no kind")?;
        let start = thread_time();
        server.send_close_notify();
        while server.wants_write() {
            server.write_tls(&mut far).map_err(cannot("cannot write"))?;
        }
        drop((server, far));
        own += thread_time() - start;
        // The client takes its tickets, up to the end.
        while client.read_tls(&mut near).map_err(cannot("cannot read"))? > 0 {
            client.process_new_packets().map_err(broken)?;
        }
        Ok((own, did))
    }
}

/// The client accepts every certificate: the cost of checking is not counted, and the server is known.
#[derive(Debug)]
struct Anything(Arc<CryptoProvider>);

impl ServerCertVerifier for Anything {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }
    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
