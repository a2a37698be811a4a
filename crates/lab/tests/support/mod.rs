//! A TLS server of known behaviour: what the generator says of it can be checked.

#![allow(dead_code)]

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// What the server does to a connection.
#[derive(Clone, Copy, Debug)]
pub enum Behaviour {
    /// Answers each request after this long.
    Answer(Duration),
    /// Answers at once, but stalls once for `long`, beginning `after` its start.
    Stall { after: Duration, long: Duration },
    /// Closes TCP with a reset once it has read some bytes of the ClientHello.
    Reset,
    /// Takes everything and says nothing.
    Silent,
    /// Speaks HTTP without TLS.
    Clear,
    /// Shakes hands, and closes before any response.
    Hangup,
}

pub struct Server {
    pub address: SocketAddr,
    pub handshakes: Arc<AtomicU64>,
    pub resumed: Arc<AtomicU64>,
    /// The names that clients have asked for.
    pub names: Arc<Mutex<Vec<String>>>,
    stopped: Arc<AtomicBool>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

/// A key of P-256 with a certificate of its own for localhost.
pub fn config() -> (ServerConfig, String) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let mut config =
        ServerConfig::builder().with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new().unwrap();
    (config, made.cert.pem())
}

impl Server {
    pub fn start(behaviour: Behaviour) -> Server {
        Server::with(behaviour, config().0)
    }

    pub fn with(behaviour: Behaviour, config: ServerConfig) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server {
            address: listener.local_addr().unwrap(),
            handshakes: Arc::default(),
            resumed: Arc::default(),
            names: Arc::default(),
            stopped: Arc::default(),
        };
        let config = Arc::new(config);
        let began = Instant::now();
        let counts = (Arc::clone(&server.handshakes), Arc::clone(&server.resumed), Arc::clone(&server.stopped));
        let names = Arc::clone(&server.names);
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let (handshakes, resumed, stopped) = counts.clone();
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let (config, names) = (Arc::clone(&config), Arc::clone(&names));
                thread::spawn(move || {
                    let _ = socket.set_nodelay(true);
                    let _ = serve(socket, config, behaviour, began, (&handshakes, &resumed), &names);
                });
            }
        });
        server
    }

    pub fn url(&self) -> String {
        format!("https://localhost:{}/", self.address.port())
    }
}

/// A proxy that grants tunnels, to wherever it is told to and not where it is asked; the requests that it got.
pub fn proxy(to: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&heads);
    let address = proxy_that(move |mut socket, head| {
        seen.lock().unwrap().push(head);
        // In two pieces, behind an interim response.
        socket.write_all(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 Conn")?;
        thread::sleep(Duration::from_millis(1));
        socket.write_all(b"ection established\r\nVia: 1.1 it\r\n\r\n")?;
        let server = TcpStream::connect(to)?;
        let (mut up, mut down) = (server.try_clone()?, socket.try_clone()?);
        let back = thread::spawn(move || {
            let _ = std::io::copy(&mut up, &mut down);
            let _ = down.shutdown(Shutdown::Write);
        });
        let _ = std::io::copy(&mut socket, &mut &server);
        let _ = server.shutdown(Shutdown::Write);
        let _ = back.join();
        Ok(())
    });
    (address, heads)
}

/// A proxy that does this with each connection, whose request for a tunnel it has read.
pub fn proxy_that(deed: impl Fn(TcpStream, String) -> std::io::Result<()> + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let deed = Arc::new(deed);
    thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            let deed = Arc::clone(&deed);
            thread::spawn(move || {
                let _ = socket.set_nodelay(true);
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    socket.read_exact(&mut byte)?;
                    head.push(byte[0]);
                }
                deed(socket, String::from_utf8_lossy(&head).into_owned())
            });
        }
    });
    address
}

fn serve(
    mut socket: TcpStream,
    config: Arc<ServerConfig>,
    behaviour: Behaviour,
    began: Instant,
    (handshakes, resumed): (&AtomicU64, &AtomicU64),
    names: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    match behaviour {
        Behaviour::Reset => {
            socket.read_exact(&mut [0; 5])?;
            socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO))?;
            return Ok(());
        }
        Behaviour::Silent => {
            thread::sleep(Duration::from_secs(30));
            return Ok(());
        }
        Behaviour::Clear => {
            let _ = socket.read(&mut [0; 2048])?;
            socket.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")?;
            return Ok(());
        }
        Behaviour::Answer(_) | Behaviour::Stall { .. } | Behaviour::Hangup => {}
    }
    stall(behaviour, began);
    let mut tls = StreamOwned::new(ServerConnection::new(config).map_err(std::io::Error::other)?, socket);
    while tls.conn.is_handshaking() {
        tls.conn.complete_io(&mut tls.sock)?;
    }
    handshakes.fetch_add(1, Ordering::Relaxed);
    names.lock().unwrap().extend(tls.conn.server_name().map(str::to_owned));
    if tls.conn.handshake_kind() == Some(rustls::HandshakeKind::Resumed) {
        resumed.fetch_add(1, Ordering::Relaxed);
    }
    let mut pending = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let n = tls.read(&mut buffer)?;
        if n == 0 || matches!(behaviour, Behaviour::Hangup) {
            tls.conn.send_close_notify();
            tls.conn.complete_io(&mut tls.sock)?;
            return Ok(());
        }
        pending.extend_from_slice(&buffer[..n]);
        while let Some(end) = pending.windows(4).position(|window| window == b"\r\n\r\n") {
            let close = String::from_utf8_lossy(&pending[..end]).contains("Connection: close");
            pending.drain(..end + 4);
            if let Behaviour::Answer(delay) = behaviour {
                thread::sleep(delay);
            }
            stall(behaviour, began);
            tls.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")?;
            tls.flush()?;
            if close {
                tls.conn.send_close_notify();
                tls.conn.complete_io(&mut tls.sock)?;
                return Ok(());
            }
        }
    }
}

fn stall(behaviour: Behaviour, began: Instant) {
    if let Behaviour::Stall { after, long } = behaviour {
        let since = began.elapsed();
        if since > after && since < after + long {
            thread::sleep(after + long - since);
        }
    }
}
