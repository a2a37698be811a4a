//! Messages over TCP, mutual TLS or a unix socket.

use super::protocol::{MESSAGE_MAX, Message};
use super::{Address, Error};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest time to connect and to shake hands.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// Who this side is, and whose signature the other side must bear: PEM files.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The authority of all machines of a test.
    pub ca: PathBuf,
    /// This machine's certificate.
    pub cert: PathBuf,
    /// This machine's private key.
    pub key: PathBuf,
}

impl Identity {
    fn roots(&self) -> Result<Arc<RootCertStore>, Error> {
        let mut roots = RootCertStore::empty();
        for root in certificates(&self.ca)? {
            roots.add(root).map_err(|e| unusable(&self.ca, &e))?;
        }
        Ok(Arc::new(roots))
    }

    fn own(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Error> {
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|e| unusable(&self.key, &e))?;
        Ok((certificates(&self.cert)?, key))
    }

    pub(super) fn server(&self) -> Result<Arc<ServerConfig>, Error> {
        let verifier = WebPkiClientVerifier::builder(self.roots()?).build().map_err(|e| unusable(&self.ca, &e))?;
        let (chain, key) = self.own()?;
        let config = ServerConfig::builder().with_client_cert_verifier(verifier).with_single_cert(chain, key);
        config.map(Arc::new).map_err(|e| unusable(&self.cert, &e))
    }

    pub(super) fn client(&self) -> Result<Arc<ClientConfig>, Error> {
        let (chain, key) = self.own()?;
        let config = ClientConfig::builder().with_root_certificates(self.roots()?).with_client_auth_cert(chain, key);
        config.map(Arc::new).map_err(|e| unusable(&self.cert, &e))
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let found = CertificateDer::pem_file_iter(file).map_err(|e| unusable(file, &e))?;
    found.collect::<Result<_, _>>().map_err(|e| unusable(file, &e))
}

fn unusable(file: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::Setup(format!("{} cannot be used: {why}", file.display()))
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Client(Box<StreamOwned<ClientConnection, TcpStream>>),
    Server(Box<StreamOwned<ServerConnection, TcpStream>>),
}

/// A line to the other side.
pub(super) struct Channel {
    stream: Stream,
    /// Bytes of a message that has not come whole.
    pending: Vec<u8>,
}

impl Channel {
    /// Connects to an agent.
    pub(super) fn connect(address: &Address, tls: Option<&Arc<ClientConfig>>) -> Result<Channel, String> {
        let stream = match address {
            Address::Unix(path) => {
                let refused = |e| format!("there is no agent at {}: {e}", path.display());
                Stream::Unix(UnixStream::connect(path).map_err(refused)?)
            }
            Address::Tcp { host, port } => {
                let found = Address::resolve(host, *port)?;
                if tls.is_none() && !found.iter().all(|address| address.ip().is_loopback()) {
                    return Err(
                        "it is on another machine: give --ca, --cert and --key (penstock bench certs makes them)"
                            .into(),
                    );
                }
                let mut socket = Err(io::ErrorKind::AddrNotAvailable.into());
                for address in found {
                    socket = TcpStream::connect_timeout(&address, CONNECT_PATIENCE);
                    if socket.is_ok() {
                        break;
                    }
                }
                let socket =
                    socket.map_err(|e| format!("it cannot be reached (penstock bench agent runs there?): {e}"))?;
                let _ = socket.set_nodelay(true);
                match tls {
                    None => Stream::Tcp(socket),
                    Some(config) => Stream::Client(Box::new(client(socket, config, host)?)),
                }
            }
        };
        Ok(Channel { stream, pending: Vec::new() })
    }

    /// Wraps the connection of a peer that has connected.
    pub(super) fn accept(socket: TcpStream, tls: Option<&Arc<ServerConfig>>) -> Result<Channel, String> {
        let _ = socket.set_nodelay(true);
        let stream = match tls {
            None => Stream::Tcp(socket),
            Some(config) => {
                let _ = socket.set_read_timeout(Some(CONNECT_PATIENCE));
                let connection = ServerConnection::new(Arc::clone(config)).map_err(|e| e.to_string())?;
                let mut tls = StreamOwned::new(connection, socket);
                while tls.conn.is_handshaking() {
                    tls.conn.complete_io(&mut tls.sock).map_err(|e| e.to_string())?;
                }
                Stream::Server(Box::new(tls))
            }
        };
        Ok(Channel { stream, pending: Vec::new() })
    }

    /// Wraps the connection of a peer that has connected to a unix socket.
    pub(super) fn accept_unix(socket: UnixStream) -> Channel {
        Channel { stream: Stream::Unix(socket), pending: Vec::new() }
    }

    /// Sends a message.
    pub(super) fn send(&mut self, message: &Message) -> Result<(), String> {
        let text = serde_json::to_vec(message).map_err(|e| e.to_string())?;
        let mut frame = u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes().to_vec();
        frame.extend_from_slice(&text);
        let sent = match &mut self.stream {
            Stream::Tcp(stream) => stream.write_all(&frame),
            Stream::Unix(stream) => stream.write_all(&frame),
            Stream::Client(stream) => stream.write_all(&frame).and_then(|()| stream.flush()),
            Stream::Server(stream) => stream.write_all(&frame).and_then(|()| stream.flush()),
        };
        sent.map_err(|e| format!("the connection broke: {e}"))
    }

    /// The next message, if it comes within `patience`.
    pub(super) fn receive(&mut self, patience: Duration) -> Result<Option<Message>, String> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some((length, rest)) = self.pending.split_first_chunk::<4>() {
                let length = u32::from_be_bytes(*length) as usize;
                if length > MESSAGE_MAX {
                    return Err("it says what penstock does not".into());
                }
                if rest.len() >= length {
                    let message = serde_json::from_slice(&rest[..length]);
                    self.pending.drain(..4 + length);
                    return message.map(Some).map_err(|e| format!("it says what is not understood here: {e}"));
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let mut buffer = [0; 16 * 1024];
            match self.read(&mut buffer, left) {
                Ok(0) => return Err("it closed the connection".into()),
                Ok(n) => self.pending.extend_from_slice(&buffer[..n]),
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => return Ok(None),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(format!("the connection broke: {e}")),
            }
        }
    }

    fn read(&mut self, buffer: &mut [u8], patience: Duration) -> io::Result<usize> {
        let patience = Some(patience);
        match &mut self.stream {
            Stream::Tcp(stream) => stream.set_read_timeout(patience).and_then(|()| stream.read(buffer)),
            Stream::Unix(stream) => stream.set_read_timeout(patience).and_then(|()| stream.read(buffer)),
            Stream::Client(stream) => stream.sock.set_read_timeout(patience).and_then(|()| stream.read(buffer)),
            Stream::Server(stream) => stream.sock.set_read_timeout(patience).and_then(|()| stream.read(buffer)),
        }
    }
}

fn client(
    socket: TcpStream,
    config: &Arc<ClientConfig>,
    host: &str,
) -> Result<StreamOwned<ClientConnection, TcpStream>, String> {
    let name = ServerName::try_from(host.to_owned()).map_err(|_| "its name can be in no certificate".to_owned())?;
    let _ = socket.set_read_timeout(Some(CONNECT_PATIENCE));
    let connection = ClientConnection::new(Arc::clone(config), name).map_err(|e| e.to_string())?;
    let mut tls = StreamOwned::new(connection, socket);
    while tls.conn.is_handshaking() {
        tls.conn.complete_io(&mut tls.sock).map_err(|e| format!("mutual TLS with it fails: {e}"))?;
    }
    Ok(tls)
}
