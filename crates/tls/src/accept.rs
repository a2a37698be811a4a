//! A client's connection: ClientHello, the configuration it chooses, the handshake.

use crate::{
    HandshakeError, Loader, TlsStream,
    handshake::{self, Flight, read_some},
    provider::default_provider,
    session::Session,
};
use penstock_config::{Config, Diagnostics, model::Bind};
use penstock_rules::{ClientHello, HelloError};
use rustls::{ServerConfig, server::UnbufferedServerConnection};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use std::{io, sync::Arc};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

/// Everything a `bind ... ssl` line needs to accept connections. Immutable, shared by all workers.
pub struct Acceptor {
    default: Arc<ServerConfig>,
}

impl Acceptor {
    /// Loads what a `bind` line names. All that is wrong is said in `diagnostics`; `None` when it cannot start.
    pub fn build(
        _config: &Config,
        bind: &Bind,
        loader: &dyn Loader,
        diagnostics: &mut Diagnostics,
    ) -> Option<Acceptor> {
        let tls = bind.tls.as_ref()?;
        let Some(crt) = tls.crt.first() else {
            diagnostics.error(bind.span, "this bind line has 'ssl' but no certificate").hint("add 'crt FILE'");
            return None;
        };
        let shown = crt.value.display();
        let pem = match loader.read(&crt.value) {
            Ok(pem) => pem,
            Err(e) => {
                diagnostics.error(crt.span, format!("certificate '{shown}' cannot be read: {e}"));
                return None;
            }
        };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        let key = PrivateKeyDer::from_pem_slice(&pem);
        let (Ok(chain), Ok(key)) = (chain, key) else {
            diagnostics.error(crt.span, format!("'{shown}' holds no certificate with its key"));
            return None;
        };
        let mut built = match ServerConfig::builder_with_provider(default_provider().into())
            .with_safe_default_protocol_versions()
            .expect("the provider has suites of both versions")
            .with_no_client_auth()
            .with_single_cert(chain, key)
        {
            Ok(built) => built,
            Err(e) => {
                diagnostics.error(crt.span, format!("certificate '{shown}' is not usable: {e}"));
                return None;
            }
        };
        built.alpn_protocols = tls.conf.alpn.clone().unwrap_or_default().into_iter().map(String::into_bytes).collect();
        Some(Acceptor { default: Arc::new(built) })
    }

    /// Accepts on a fresh connection. `prefix` is what has been read from it already.
    ///
    /// Dropping the future drops the connection, at any point. Time limits are the caller's.
    ///
    /// # Errors
    /// Why the handshake failed; the peer has been sent its alert.
    pub async fn accept<S>(&self, mut stream: S, prefix: Vec<u8>) -> Result<TlsStream<S>, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut input = prefix;
        let config = loop {
            match ClientHello::read(&input) {
                Ok(Some(_hello)) => break self.default.clone(),
                Ok(None) => {}
                Err(error) => {
                    let _ = stream.write_all(&hello_alert(error)).await;
                    return Err(HandshakeError::BadHello(error));
                }
            }
            if read_some(&mut stream, &mut input).await.map_err(HandshakeError::Aborted)? == 0 {
                return Err(match input.is_empty() {
                    true => HandshakeError::Empty,
                    false => HandshakeError::Aborted(io::ErrorKind::UnexpectedEof.into()),
                });
            }
        };
        let session = UnbufferedServerConnection::new(config).map_err(HandshakeError::Tls)?;
        handshake::run(stream, Flight::new(Session::Server(Box::new(session)), input)).await
    }
}

/// The plaintext alert (RFC 8446, 6.2) for bytes that are no ClientHello.
fn hello_alert(error: HelloError) -> [u8; 7] {
    const UNEXPECTED_MESSAGE: u8 = 10;
    const DECODE_ERROR: u8 = 50;
    let description = match error {
        HelloError::Malformed(_) | HelloError::TooLong => DECODE_ERROR,
        HelloError::NotTls | HelloError::BadRecord | HelloError::NotClientHello => UNEXPECTED_MESSAGE,
    };
    [0x15, 3, 1, 0, 2, 2, description]
}
