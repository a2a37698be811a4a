//! Load for `scripts/bench.py` that no ready-made tool gives: full TLS handshakes without a request, and many idle
//! connections held open.
//!
//!     penstock-load handshakes ADDRESS COUNT THREADS      COUNT full handshakes, then the number done
//!     penstock-load idle ADDRESS TARGET                   each line of standard input is a number of connections to
//!                                                         hold; each has served one request for TARGET

use std::io::{BufRead, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use penstock_tests::Failure;
use penstock_tests::client::any_certificate;
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::{default_provider, kx_group};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

type Tls = StreamOwned<ClientConnection, TcpStream>;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["handshakes", address, count, threads] => handshakes(address, count, threads),
        ["idle", address, target] => idle(address, target),
        _ => Err("see the comment at the top of penstock-load.rs".to_owned()),
    };
    if let Err(failure) = outcome {
        eprintln!("{failure}");
        std::process::exit(1);
    }
}

/// TLS 1.3 with X25519 and without resumption: the same work for every server measured.
fn config() -> Result<Arc<ClientConfig>, Failure> {
    let mut provider = default_provider();
    provider.kx_groups = vec![kx_group::X25519];
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| e.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(any_certificate())
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

fn connect(address: SocketAddr, config: &Arc<ClientConfig>) -> Result<Tls, Failure> {
    let stream = TcpStream::connect(address).map_err(|e| format!("connect: {e}"))?;
    let _ = stream.set_nodelay(true);
    let _ = stream.set_read_timeout(Some(Duration::from_secs(30)));
    let name = ServerName::try_from("localhost").expect("a valid name");
    let connection = ClientConnection::new(Arc::clone(config), name).map_err(|e| e.to_string())?;
    let mut tls = StreamOwned::new(connection, stream);
    while tls.conn.is_handshaking() {
        tls.conn.complete_io(&mut tls.sock).map_err(|e| format!("handshake: {e}"))?;
    }
    Ok(tls)
}

fn handshakes(address: &str, count: &str, threads: &str) -> Result<(), Failure> {
    let address: SocketAddr = address.parse().map_err(|_| "not an address")?;
    let count: usize = count.parse().map_err(|_| "not a count")?;
    let threads: usize = threads.parse().map_err(|_| "not a number of threads")?;
    let config = config()?;
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while next.fetch_add(1, Ordering::Relaxed) < count {
                    match connect(address, &config) {
                        Ok(mut tls) => {
                            tls.conn.send_close_notify();
                            let _ = tls.conn.complete_io(&mut tls.sock);
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(failure) => eprintln!("{failure}"),
                    }
                }
            });
        }
    });
    println!("{}", done.load(Ordering::Relaxed));
    Ok(())
}

fn idle(address: &str, target: &str) -> Result<(), Failure> {
    let address: SocketAddr = address.parse().map_err(|_| "not an address")?;
    let config = config()?;
    let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut held: Vec<Tls> = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let wanted: usize = line.map_err(|e| e.to_string())?.trim().parse().map_err(|_| "not a number")?;
        while held.len() < wanted {
            let mut tls = connect(address, &config)?;
            tls.write_all(request.as_bytes()).map_err(|e| format!("request: {e}"))?;
            let mut buffer = [0; 4096];
            let mut answer = Vec::new();
            while !answer.windows(4).any(|w| w == b"\r\n\r\n") {
                match tls.read(&mut buffer) {
                    Ok(0) => return Err("closed before an answer".to_owned()),
                    Ok(n) => answer.extend_from_slice(&buffer[..n]),
                    Err(e) => return Err(format!("answer: {e}")),
                }
            }
            held.push(tls);
        }
        println!("{}", held.len());
        std::io::stdout().flush().map_err(|e| e.to_string())?;
    }
    Ok(())
}
