//! A connection to a server: re-encryption, and TLS health checks.

use crate::{
    HandshakeError, Loader, TlsStream, authorities,
    certificate::{self, Extras, Parts},
    handshake::{self, Flight, Opening},
    session::Session,
    settings,
    verify::Servers,
};
use penstock_config::{
    Config, Diagnostics, Span,
    model::{ServerTls, Verify},
};
use penstock_engine::{Share, worker::Presence};
use rustls::{
    ClientConfig,
    client::{Resumption, Tls12Resumption, UnbufferedClientConnection},
    sign::SingleCertAndKey,
};
use rustls_pki_types::ServerName;
use std::{net::Ipv4Addr, sync::Arc, time::Duration};
use tokio::io::{AsyncRead, AsyncWrite};

/// Sessions remembered for a server, by the name it was asked for.
const SESSIONS: usize = 64;

/// Everything a `server ... ssl` line needs to connect. Immutable, shared by all workers; sessions to resume are kept in it,
/// so they never leave the line, its authorities and its names.
pub struct Connector {
    config: Arc<ClientConfig>,
    /// The server's certificate is looked at.
    verifies: bool,
}

impl Connector {
    /// Loads what a `server` line names; `span` is the line's. All that is wrong is said in `diagnostics`; `None` when it
    /// cannot start.
    pub fn build(
        config: &Config,
        tls: &ServerTls,
        span: Span,
        loader: &dyn Loader,
        diagnostics: &mut Diagnostics,
    ) -> Option<Connector> {
        let global = &config.global;
        // Each is tried whatever became of the others, so that all errors are said at once.
        let settings = settings::resolve(&tls.conf, &global.tls_server, span, diagnostics);
        let servers = servers(config, tls, span, loader, diagnostics);
        let extras = Extras::new(global.ssl_load_extra_files.as_deref(), global.ssl_load_extra_del_ext);
        let own = tls
            .crt
            .as_ref()
            .map(|crt| certificate::load(&crt.value, &Parts::default(), &extras, loader, crt.span, diagnostics));
        let (settings, servers) = (settings?, servers?);
        let verifies = servers.verifies();
        let builder = ClientConfig::builder_with_provider(settings.provider).with_protocol_versions(settings.versions);
        let builder = match builder {
            Ok(builder) => builder.dangerous().with_custom_certificate_verifier(Arc::new(servers)),
            Err(e) => {
                diagnostics.error(span, format!("these TLS settings cannot be used together: {e}"));
                return None;
            }
        };
        let mut built = match own {
            None => builder.with_no_client_auth(),
            Some(own) => {
                let certified = own?.certified.as_ref().clone();
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified)))
            }
        };
        built.alpn_protocols = tls.conf.alpn.iter().flatten().map(|protocol| protocol.clone().into_bytes()).collect();
        built.resumption = match tls.no_ssl_reuse {
            true => Resumption::disabled(),
            false if tls.conf.no_tls_tickets || global.tls_server.no_tls_tickets => {
                Resumption::in_memory_sessions(SESSIONS).tls12_resumption(Tls12Resumption::SessionIdOnly)
            }
            false => Resumption::in_memory_sessions(SESSIONS),
        };
        Some(Connector { config: Arc::new(built), verifies })
    }

    /// The same, offering these protocols instead of the line's.
    pub fn offering(&self, protocols: &[&[u8]]) -> Connector {
        let mut config = ClientConfig::clone(&self.config);
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Connector { config: Arc::new(config), verifies: self.verifies }
    }

    /// The name that the server's certificate must be for. rustls sends no SNI for an address, so an address stands for "no name".
    ///
    /// # Errors
    /// What is asked for is no DNS name, as with a port behind it or where it is an address: rustls cannot send that, and no
    /// certificate is for it. Without a name to go by, any would do.
    fn name(&self, sni: Option<&str>) -> Result<ServerName<'static>, HandshakeError> {
        let asked = sni.map(|name| name.trim_end_matches('.')).filter(|name| !name.is_empty());
        match asked.map(|name| ServerName::try_from(name.to_owned())) {
            Some(Ok(name @ ServerName::DnsName(_))) => Ok(name),
            Some(_) if self.verifies => Err(HandshakeError::WrongName),
            _ => Ok(ServerName::IpAddress(Ipv4Addr::UNSPECIFIED.into())),
        }
    }

    /// Runs the handshake over a connected socket. `sni` is the name to ask for, where there is one: it is what the server's
    /// certificate must be for, else `verifyhost` is, else any name will do.
    ///
    /// # Errors
    /// Why the handshake failed.
    pub async fn connect<S>(&self, stream: S, sni: Option<&str>) -> Result<TlsStream<S>, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = self.name(sni)?;
        // Making the connection makes its key pairs already.
        let config = self.config.clone();
        let presence = Presence::handshake();
        let mut waited = Duration::ZERO;
        let session =
            handshake::suspended(true, OURS, &mut waited, move || UnbufferedClientConnection::new(config, name))
                .await?
                .map_err(HandshakeError::Tls)?;
        let flight = Flight::new(Session::Client(Box::new(session)), Vec::new());
        let mut open = handshake::run(stream, flight, Opening { presence, permit: None, share: OURS }, waited).await?;
        open.facts_mut().sni = sni.map(str::to_owned);
        Ok(open)
    }
}

/// The share of our own connections to servers: none of a frontend's.
const OURS: Share = Share::MAX;

fn servers(
    config: &Config,
    tls: &ServerTls,
    span: Span,
    loader: &dyn Loader,
    diagnostics: &mut Diagnostics,
) -> Option<Servers> {
    let verify = tls.conf.verify.or(config.global.ssl_server_verify).unwrap_or(Verify::Required);
    if verify == Verify::None {
        return Some(Servers::unverified());
    }
    let Some(ca_file) = &tls.conf.ca_file else {
        diagnostics
            .error(span, "this server is to be verified, but no authority is named to verify it by")
            .hint("add 'ca-file FILE' or 'ca-file @system-ca'; on a network you trust, 'verify none'");
        return None;
    };
    let anchors = authorities::certificates(ca_file, loader, diagnostics)?;
    let roots = authorities::roots(&anchors, ca_file, diagnostics);
    let crls = match &tls.conf.crl_file {
        Some(file) => authorities::revocations(file, loader, diagnostics)?,
        None => Vec::new(),
    };
    match Servers::new(anchors, roots, crls, tls.verifyhost.clone()) {
        Ok(servers) => Some(servers),
        Err(e) => {
            diagnostics.error(span, format!("this server cannot be verified: {e}"));
            None
        }
    }
}
