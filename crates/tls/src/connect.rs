//! A connection to a server: re-encryption, and TLS health checks.

use crate::{
    HandshakeError, Loader, TlsStream,
    handshake::{self, Flight, Opening},
    session::Session,
    store::{self, Store},
};
use arc_swap::ArcSwap;
use penstock_config::{Diagnostics, Span, model::ServerTls};
use penstock_engine::{Share, worker::InProgress};
use rustls::{ClientConfig, client::UnbufferedClientConnection};
use rustls_pki_types::ServerName;
use std::{net::Ipv4Addr, sync::Arc, time::Duration};
use tokio::io::{AsyncRead, AsyncWrite};

/// Sessions remembered for a server, by the name it was asked for.
pub(crate) const SESSIONS: usize = 64;

/// Everything a `server ... ssl` line needs to connect, shared by all workers. Sessions to resume are kept in it, so they never
/// leave the line, its authorities and its names.
pub struct Connector {
    live: Arc<ArcSwap<Client>>,
}

/// What connections are made with until a command changes it.
pub(crate) struct Client {
    pub config: Arc<ClientConfig>,
    /// The server's certificate is looked at.
    pub verifies: bool,
}

impl Connector {
    /// Loads what a `server` line names into the store; `span` is the line's. All that is wrong is said in `diagnostics`; `None`
    /// when it cannot start.
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

    /// The same, offering these protocols instead of the line's.
    pub fn offering(&self, protocols: &[&[u8]]) -> Connector {
        let client = self.live.load();
        let mut config = ClientConfig::clone(&client.config);
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let client = Client { config: Arc::new(config), verifies: client.verifies };
        Connector { live: Arc::new(ArcSwap::from_pointee(client)) }
    }

    /// The name that the server's certificate must be for. rustls sends no SNI for an address, so an address stands for "no name".
    ///
    /// # Errors
    /// What is asked for is no DNS name, as with a port behind it or where it is an address: rustls cannot send that, and no
    /// certificate is for it. Without a name to go by, any would do.
    fn name(verifies: bool, sni: Option<&str>) -> Result<ServerName<'static>, HandshakeError> {
        let asked = sni.map(|name| name.trim_end_matches('.')).filter(|name| !name.is_empty());
        match asked.map(|name| ServerName::try_from(name.to_owned())) {
            Some(Ok(name @ ServerName::DnsName(_))) => Ok(name),
            Some(_) if verifies => Err(HandshakeError::WrongName),
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
        // Making the connection makes its key pairs already.
        let (config, name) = {
            let client = self.live.load();
            (client.config.clone(), Connector::name(client.verifies, sni)?)
        };
        let presence = InProgress::handshake();
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
