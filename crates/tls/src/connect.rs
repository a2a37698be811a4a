//! A connection to a server: re-encryption, and TLS health checks.

use crate::{
    HandshakeError, Loader, TlsStream,
    accept::Requested,
    handshake::{self, Flight, Opening},
    judge::{Invalid, Judge},
    session::Session,
    store::{self, Store},
    verify::Servers,
};
use arc_swap::ArcSwap;
use penstock_config::{Diagnostics, Span, model::ServerTls};
use penstock_engine::{Share, worker::InProgress};
use rustls::{
    ClientConfig, PeerIncompatible,
    client::{Resumption, UnbufferedClientConnection},
};
use rustls_pki_types::ServerName;
use std::{net::Ipv4Addr, sync::Arc, time::Duration};
use tokio::io::{AsyncRead, AsyncWrite};

/// Most sessions stored for a server, by the requested name.
pub(crate) const SESSIONS: usize = 64;

/// Everything a `server ... ssl` line needs to connect, shared by all workers. It contains the sessions to resume, so
/// they are never used with another line, other authorities or other names.
pub struct Connector {
    live: Arc<ArcSwap<Client>>,
}

/// The settings of connections, until a command replaces them.
pub(crate) struct Client {
    pub config: Arc<ClientConfig>,
    /// What the server's certificate is verified by.
    pub servers: Arc<Servers>,
}

impl Client {
    /// A connector with another configuration.
    fn with(&self, config: ClientConfig) -> Connector {
        let client = Client { config: Arc::new(config), servers: self.servers.clone() };
        Connector { live: Arc::new(ArcSwap::from_pointee(client)) }
    }

    /// The configuration with another verifier. Sessions belong to the verifier that let them begin, so there are none to resume.
    fn verified_by(&self, judge: Arc<Judge>) -> ClientConfig {
        let mut config = ClientConfig::clone(&self.config);
        config.dangerous().set_certificate_verifier(judge);
        config.resumption = Resumption::disabled();
        config
    }
}

/// A server that a client's connection is for, and what is wrong with its certificate.
pub struct Probed<S> {
    /// The connection, over which nothing has been sent yet.
    pub stream: TlsStream<S>,
    /// What was found, if it was to be tolerated.
    pub invalid: Option<Invalid>,
}

impl Connector {
    /// Loads what a `server` line names into the store; `span` is the line's. Errors are added to `diagnostics`; `None`
    /// if the line cannot be used.
    pub fn build(
        tls: &ServerTls,
        span: Span,
        store: &Store,
        loader: &dyn Loader,
        diagnostics: &mut Diagnostics,
    ) -> Option<Connector> {
        store::connector(tls, span, store, loader, diagnostics)
    }

    pub(crate) fn new(live: Arc<ArcSwap<Client>>) -> Connector {
        Connector { live }
    }

    /// A copy of the connector that offers these protocols instead of the line's.
    pub fn offering(&self, protocols: &[&[u8]]) -> Connector {
        let client = self.live.load();
        let mut config = ClientConfig::clone(&client.config);
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        client.with(config)
    }

    /// A copy of the connector that accepts the certificate with this digest ([`crate::pin`]), and no other.
    pub fn pinned(&self, digest: [u8; 32]) -> Connector {
        let client = self.live.load();
        client.with(client.verified_by(Judge::pinned(client.servers.clone(), digest)))
    }

    /// Whether the line offers protocols by ALPN.
    pub fn offers(&self) -> bool {
        !self.live.load().config.alpn_protocols.is_empty()
    }

    /// Connects to a server in whose place a client is to be answered, before the client is. Of the protocols of the line, those are
    /// offered that the client offers, and nothing older is accepted than it accepts. With `tolerates`, a server that does not
    /// validate is returned, and what is wrong with it.
    ///
    /// # Errors
    ///
    /// As [`Connector::connect`], and [`HandshakeError::Origin`].
    pub async fn probe<S>(
        &self,
        stream: S,
        sni: Option<&str>,
        asked: &Requested,
        tolerates: bool,
    ) -> Result<Probed<S>, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let client = self.live.load_full();
        let judge = Judge::new(client.servers.clone(), tolerates);
        let mut config = client.verified_by(judge.clone());
        config.alpn_protocols.retain(|ours| asked.alpn.contains(ours));
        let opened = client.with(config).connect(stream, sni).await;
        let stream = opened.map_err(|error| judge.found().map_or(error, HandshakeError::Origin))?;
        if asked.only_tls13 && stream.facts().version != "TLSv1.3" {
            return Err(HandshakeError::Tls(PeerIncompatible::ServerDoesNotSupportTls12Or13.into()));
        }
        Ok(Probed { stream, invalid: judge.found() })
    }

    /// The name that the server's certificate must be for. rustls sends no SNI for an address, so an address stands for
    /// "no name".
    ///
    /// # Errors
    ///
    /// If `sni` is not a DNS name (it is an address, or has a port): rustls cannot send it, and no certificate would
    /// match it. Proceeding without a name would accept any certificate.
    fn name(verifies: bool, sni: Option<&str>) -> Result<ServerName<'static>, HandshakeError> {
        let asked = sni.map(|name| name.trim_end_matches('.')).filter(|name| !name.is_empty());
        match asked.map(|name| ServerName::try_from(name.to_owned())) {
            Some(Ok(name @ ServerName::DnsName(_))) => Ok(name),
            Some(_) if verifies => Err(HandshakeError::WrongName),
            _ => Ok(ServerName::IpAddress(Ipv4Addr::UNSPECIFIED.into())),
        }
    }

    /// Runs the handshake over a connected socket. The server's certificate must be for `sni`, which is also sent, else
    /// for `verifyhost`, else for any name.
    ///
    /// # Errors
    ///
    /// Why the handshake failed.
    pub async fn connect<S>(&self, stream: S, sni: Option<&str>) -> Result<TlsStream<S>, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        // Creating the connection generates its key pairs.
        let (config, name) = {
            let client = self.live.load();
            (client.config.clone(), Connector::name(client.servers.verifies(), sni)?)
        };
        let with_sni = matches!(name, ServerName::DnsName(_));
        let presence = InProgress::handshake();
        let mut waited = Duration::ZERO;
        let session =
            handshake::suspended(true, OURS, &mut waited, move || UnbufferedClientConnection::new(config, name))
                .await?
                .map_err(HandshakeError::Tls)?;
        let flight = Flight::new(Session::Client(Box::new(session)), Vec::new());
        let opened = handshake::run(stream, flight, Opening { presence, permit: None, share: OURS }, waited).await;
        let mut open = opened.map_err(|error| match error {
            HandshakeError::WrongName if !with_sni => HandshakeError::WrongHost,
            other => other,
        })?;
        open.facts_mut().sni = sni.map(str::to_owned);
        Ok(open)
    }
}

/// The share of handshakes with servers, which belong to no frontend.
const OURS: Share = Share::MAX;
