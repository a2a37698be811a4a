//! Clients of every kind, for endurance: versions, groups, resumption, and one in a hundred that vanishes at some point of its
//! handshake. Signatures are verified.

use crate::{Failure, client::any_certificate, differences::dice::Dice};
use rustls::{
    ClientConfig, ClientConnection,
    client::Resumption,
    crypto::{SupportedKxGroup, aws_lc_rs::default_provider, aws_lc_rs::kx_group},
    pki_types::ServerName,
    version::{TLS12, TLS13},
};
use socket2::SockRef;
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// One client in this many leaves before its exchange is complete.
const VANISHING: usize = 100;
/// One client in this many resumes its session, if it has one.
const RESUMING: usize = 5;

/// What became of all clients.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Handshakes completed.
    pub done: AtomicU64,
    /// Of those, resumed.
    pub resumed: AtomicU64,
    /// Clients that left on purpose.
    pub vanished: AtomicU64,
    /// Clients that failed without being meant to.
    pub failed: AtomicU64,
}

/// A configuration for each version and group, once with sessions and once without.
fn configs() -> Result<Vec<[Arc<ClientConfig>; 2]>, Failure> {
    let groups: [&'static dyn SupportedKxGroup; 4] =
        [kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1, kx_group::X25519MLKEM768];
    let mut configs = Vec::new();
    for version in [&TLS12, &TLS13] {
        for group in groups.into_iter().filter(|group| group.usable_for_version(version.version)) {
            let mut provider = default_provider();
            provider.kx_groups = vec![group];
            let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
                .with_protocol_versions(&[version])
                .map_err(|e| e.to_string())?
                .dangerous()
                .with_custom_certificate_verifier(any_certificate())
                .with_no_client_auth();
            let with = Arc::new(config.clone());
            config.resumption = Resumption::disabled();
            configs.push([with, Arc::new(config)]);
        }
    }
    Ok(configs)
}

/// Runs `count` clients, `clients` at once, spread over `addresses`.
///
/// # Errors
/// A configuration that cannot be made.
pub fn run(addresses: &[SocketAddr], count: u64, clients: u64, seed: u64) -> Result<Outcome, Failure> {
    let configs = configs()?;
    let outcome = Outcome::default();
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for client in 0..clients {
            let (configs, outcome, next) = (&configs, &outcome, &next);
            let mut dice = Dice::new(seed + client);
            let body = move || {
                while next.fetch_add(1, Ordering::Relaxed) < count {
                    let address = addresses[dice.below(addresses.len())];
                    let config = &configs[dice.below(configs.len())];
                    let config = &config[usize::from(dice.below(RESUMING) != 0)];
                    let leaves = (dice.below(VANISHING) == 0).then(|| dice.below(6));
                    let cut = dice.below(250);
                    match visit(address, config.clone(), leaves, cut) {
                        Ok(Some(resumed)) => {
                            outcome.done.fetch_add(1, Ordering::Relaxed);
                            outcome.resumed.fetch_add(resumed.into(), Ordering::Relaxed);
                        }
                        Ok(None) => _ = outcome.vanished.fetch_add(1, Ordering::Relaxed),
                        Err(why) => {
                            outcome.failed.fetch_add(1, Ordering::Relaxed);
                            eprintln!("{address}: {why}");
                        }
                    }
                }
            };
            std::thread::Builder::new().stack_size(256 * 1024).spawn_scoped(scope, body).expect("a thread");
        }
    });
    Ok(outcome)
}

/// One client. It leaves where `leaves` says (0 to 5), by a reset or an end; whether it resumed, if it came to its end.
fn visit(
    address: SocketAddr,
    config: Arc<ClientConfig>,
    leaves: Option<usize>,
    cut: usize,
) -> Result<Option<bool>, Failure> {
    let failed = |e: std::io::Error| e.to_string();
    let mut socket = TcpStream::connect(address).map_err(failed)?;
    socket.set_nodelay(true).map_err(failed)?;
    socket.set_read_timeout(Some(Duration::from_secs(60))).map_err(failed)?;
    if leaves.is_some() && cut.is_multiple_of(2) {
        SockRef::from(&socket).set_linger(Some(Duration::ZERO)).map_err(failed)?;
    }
    let name = ServerName::try_from("localhost").expect("a valid name");
    let mut tls = ClientConnection::new(config, name).map_err(|e| e.to_string())?;
    let mut hello = Vec::new();
    tls.write_tls(&mut hello).map_err(failed)?;
    match leaves {
        Some(0) => return Ok(None),
        Some(1) => {
            // Part of a hello.
            socket.write_all(&hello[..cut.min(hello.len())]).map_err(failed)?;
            return Ok(None);
        }
        Some(2) => {
            // A hello, and gone before it can be answered.
            socket.write_all(&hello).map_err(failed)?;
            return Ok(None);
        }
        _ => socket.write_all(&hello).map_err(failed)?,
    }
    if leaves == Some(3) {
        // With the start of the answer.
        let _ = socket.read(&mut [0; 64]).map_err(failed)?;
        return Ok(None);
    }
    while tls.is_handshaking() {
        if leaves == Some(4) && tls.wants_write() {
            // Before its Finished.
            return Ok(None);
        }
        tls.complete_io(&mut socket).map_err(|e| format!("handshake: {e}"))?;
    }
    if leaves == Some(5) {
        return Ok(None);
    }
    // A request, so that tickets come with its answer.
    let request = b"GET /alive HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let mut stream = rustls::Stream::new(&mut tls, &mut socket);
    stream.write_all(request).map_err(|e| format!("request: {e}"))?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(|e| format!("answer: {e}"))?;
    if !answer.starts_with(b"HTTP/1.1 200") && !answer.starts_with(b"HTTP/1.0 200") {
        return Err(format!("an answer that is none: {}", String::from_utf8_lossy(&answer[..answer.len().min(80)])));
    }
    Ok(Some(tls.handshake_kind() == Some(rustls::HandshakeKind::Resumed)))
}
