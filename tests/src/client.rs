//! Connections to the proxy under test, opened the way a scenario's header line says.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, ServerConfig, SignatureScheme, StreamOwned};
use socket2::{Domain, Socket, Type};

use crate::Failure;
use crate::certificates::Certificates;
use crate::scenario::Section;
use crate::wire::Wire;

/// How long a client waits for bytes before it calls the connection silent.
pub const PATIENCE: Duration = Duration::from_secs(8);

/// Opens a connection as `[request]` and `[tcp]` sections describe it: `from=ADDRESS`, `tls`, `sni=`, `alpn=`, `cert=`.
pub fn open(address: SocketAddr, section: &Section) -> Result<Wire, Failure> {
    let failed = |e: std::io::Error| format!("line {}: cannot connect to {address}: {e}", section.line);
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).map_err(failed)?;
    if let Some(from) = section.option("from") {
        let from: IpAddr = from.parse().map_err(|_| format!("line {}: from={from} is no address", section.line))?;
        socket.bind(&SocketAddr::new(from, 0).into()).map_err(failed)?;
    }
    socket.connect_timeout(&address.into(), PATIENCE).map_err(failed)?;
    let stream: std::net::TcpStream = socket.into();
    stream.set_nodelay(true).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    if !section.arguments.iter().skip(1).any(|a| a == "tls") {
        return Ok(Wire::Plain(stream));
    }
    let alpn: Vec<&str> = section.option("alpn").map(|a| a.split(',').collect()).unwrap_or_default();
    let config = client_config(&alpn, section.option("cert"))?;
    let name = section.option("sni").unwrap_or("127.0.0.1").to_owned();
    let name = ServerName::try_from(name).map_err(|e| format!("line {}: {e}", section.line))?;
    let connection = ClientConnection::new(config, name).map_err(|e| e.to_string())?;
    Ok(Wire::TlsClient(Box::new(StreamOwned::new(connection, stream))))
}

/// Opens a unix stream connection.
pub fn open_unix(path: &Path) -> Result<Wire, Failure> {
    let stream = UnixStream::connect(path).map_err(|e| format!("{}: {e}", path.display()))?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(|e| e.to_string())?;
    Ok(Wire::Unix(stream))
}

/// A client that accepts any certificate: what is presented is the scenario's business.
pub fn client_config(alpn: &[&str], certificate: Option<&str>) -> Result<Arc<ClientConfig>, Failure> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)));
    let mut config = match certificate {
        None => builder.with_no_client_auth(),
        Some(name) => {
            let (chain, key) = identity(name)?;
            builder.with_client_auth_cert(chain, key).map_err(|e| e.to_string())?
        }
    };
    config.alpn_protocols = alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
    Ok(Arc::new(config))
}

/// A TLS server with one of the scenario certificates, for origins.
pub fn server_config(name: &str, alpn: &[&str]) -> Result<Arc<ServerConfig>, Failure> {
    let (chain, key) = identity(name)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|e| e.to_string())?;
    config.alpn_protocols = alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
    Ok(Arc::new(config))
}

fn identity(name: &str) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Failure> {
    let path = Certificates::shared().pem(name);
    let failed = |e: rustls::pki_types::pem::Error| format!("{}: {e}", path.display());
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(&path).map_err(failed)?.collect();
    Ok((chain.map_err(failed)?, PrivateKeyDer::from_pem_file(&path).map_err(failed)?))
}

/// A verifier that takes any certificate, for clients whose business is something else.
pub fn any_certificate() -> Arc<dyn ServerCertVerifier> {
    Arc::new(AnyCertificate(Arc::new(aws_lc_rs::default_provider())))
}

#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
