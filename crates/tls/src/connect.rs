//! A connection to a server: re-encryption, and TLS health checks.

use crate::{
    HandshakeError, Loader, TlsStream,
    handshake::{self, Flight},
    provider::default_provider,
    session::Session,
};
use penstock_config::{Config, Diagnostics, model::ServerTls};
use rustls::{ClientConfig, RootCertStore, client::UnbufferedClientConnection};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use std::{net::Ipv4Addr, sync::Arc};
use tokio::io::{AsyncRead, AsyncWrite};

/// Everything a `server ... ssl` line needs to connect. Immutable, shared by all workers.
pub struct Connector {
    config: Arc<ClientConfig>,
}

impl Connector {
    /// Loads what a `server` line names. All that is wrong is said in `diagnostics`; `None` when it cannot start.
    pub fn build(
        _config: &Config,
        tls: &ServerTls,
        loader: &dyn Loader,
        diagnostics: &mut Diagnostics,
    ) -> Option<Connector> {
        let mut roots = RootCertStore::empty();
        if let Some(file) = &tls.conf.ca_file {
            let pem = loader.read(&file.value).map_err(|e| {
                diagnostics.error(file.span, format!("'{}' cannot be read: {e}", file.value.display()));
            });
            roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem.ok()?).flatten());
        }
        let mut built = ClientConfig::builder_with_provider(default_provider().into())
            .with_safe_default_protocol_versions()
            .expect("the provider has suites of both versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        built.alpn_protocols = tls.conf.alpn.clone().unwrap_or_default().into_iter().map(String::into_bytes).collect();
        Some(Connector { config: Arc::new(built) })
    }

    /// Runs the handshake over a connected socket. `sni` is the name to ask for, where there is one.
    ///
    /// # Errors
    /// Why the handshake failed.
    pub async fn connect<S>(&self, stream: S, sni: Option<&str>) -> Result<TlsStream<S>, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        // rustls sends no SNI for an address, so an address stands for "no name".
        let name = sni
            .and_then(|name| ServerName::try_from(name.to_owned()).ok())
            .unwrap_or(ServerName::IpAddress(Ipv4Addr::UNSPECIFIED.into()));
        // Making the connection makes its key pairs already.
        let config = self.config.clone();
        let session = handshake::suspended(move || UnbufferedClientConnection::new(config, name))
            .await?
            .map_err(HandshakeError::Tls)?;
        let mut open = handshake::run(stream, Flight::new(Session::Client(Box::new(session)), Vec::new())).await?;
        open.facts_mut().sni = sni.map(str::to_owned);
        Ok(open)
    }
}
