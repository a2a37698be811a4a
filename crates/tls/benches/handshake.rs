//! Server CPU per full handshake, ours against stock rustls on blocking sockets, taken in turns (A B A B).
//!
//! `cargo bench -p penstock-tls --bench handshake [-- rsa|ecdsa [connections [rounds [stock|ours|parked]]]]`, the last for a profiler. The client is stock rustls on a thread
//! of its own. `parked` is ours with an engine that computes natively, one operation at a time, but has every operation wait for it:
//! the cost of suspending, queueing and checking, without the gain of a batch. What counts is the CPU time of the server's thread, system calls included.

use penstock_config::{
    Config, Diagnostics, Span, Spanned,
    model::{Bind, BindTls},
};
use penstock_engine::{
    Settings,
    doubles::{Double, Manner},
    worker,
};
use penstock_tls::{Acceptor, Memory, Store, drive_engine};
use rustix::time::{ClockId, clock_gettime};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, client::Resumption};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::{LocalSet, spawn_local},
};

fn main() {
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    let kind = words.next().unwrap_or_else(|| "rsa".to_owned());
    let connections: usize = words.next().map_or(1000, |n| n.parse().expect("a number of connections"));
    let rounds: usize = words.next().map_or(5, |n| n.parse().expect("a number of rounds"));
    let only = words.next();
    let key = match kind.as_str() {
        "ecdsa" => rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256),
        _ => rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048),
    }
    .expect("a key");
    let cert = rcgen::CertificateParams::new(vec!["a.test".to_owned()]).unwrap().self_signed(&key).unwrap();
    let pem = cert.pem() + &key.serialize_pem();

    let mut taken = [Vec::new(), Vec::new(), Vec::new()];
    let servers = [stock as fn(&str, TcpListener, usize) -> u64, ours, parked];
    for round in 0..rounds + 1 {
        for (which, serve) in servers.into_iter().enumerate() {
            if only.as_deref().is_some_and(|only| only != ["stock", "ours", "parked"][which]) {
                continue;
            }
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let (server_pem, client_pem) = (pem.clone(), pem.clone());
            let server = thread::spawn(move || serve(&server_pem, listener, connections));
            let client = thread::spawn(move || clients(&client_pem, address, connections));
            let cpu_us = server.join().unwrap() as f64 / 1000.0 / connections as f64;
            client.join().unwrap();
            // The first round warms caches and libraries.
            if round > 0 {
                taken[which].push(cpu_us);
            }
        }
    }
    let middle = |list: &mut Vec<f64>| {
        list.sort_by(f64::total_cmp);
        list.get(list.len() / 2).copied().unwrap_or(f64::NAN)
    };
    let ranges = taken.each_ref().map(|list| list.iter().fold((f64::MAX, 0f64), |(a, b), x| (a.min(*x), b.max(*x))));
    let [stock, ours, parked] = taken.each_mut().map(middle);
    println!("{kind}: server CPU µs per TLS 1.3 handshake, {connections} connections, median of {rounds} (range)");
    println!("stock rustls  {stock:.1} ({:.1}-{:.1})", ranges[0].0, ranges[0].1);
    println!("penstock-tls  {ours:.1} ({:.1}-{:.1})", ranges[1].0, ranges[1].1);
    println!("parked        {parked:.1} ({:.1}-{:.1})", ranges[2].0, ranges[2].1);
    println!("ratio         {:.3}, parked {:.3}", ours / stock, parked / stock);
}

fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn stock(pem: &str, listener: TcpListener, connections: usize) -> u64 {
    let chain = CertificateDer::pem_slice_iter(pem.as_bytes()).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap();
    let config = Arc::new(ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap());
    let start = thread_cpu_ns();
    for _ in 0..connections {
        let (mut socket, _) = listener.accept().unwrap();
        socket.set_nodelay(true).unwrap();
        let mut tls = ServerConnection::new(config.clone()).unwrap();
        let mut stream = rustls::Stream::new(&mut tls, &mut socket);
        let mut byte = [0; 1];
        stream.read_exact(&mut byte).unwrap();
        stream.write_all(&byte).unwrap();
        stream.flush().unwrap();
    }
    thread_cpu_ns() - start
}

fn ours(pem: &str, listener: TcpListener, connections: usize) -> u64 {
    on_tokio(pem, listener, connections)
}

fn parked(pem: &str, listener: TcpListener, connections: usize) -> u64 {
    worker::install(Double::new(Manner::Prompt, 8), Settings::default());
    on_tokio(pem, listener, connections)
}

fn on_tokio(pem: &str, listener: TcpListener, connections: usize) -> u64 {
    let files = Memory([("/a.pem".into(), pem.as_bytes().to_vec())].into());
    let tls = BindTls { crt: vec![Spanned { value: "/a.pem".into(), span: Span::default() }], ..BindTls::default() };
    let bind = Bind { tls: Some(tls), ..Bind::new(Vec::new(), Span::default()) };
    let config = Config::default();
    let mut diagnostics = Diagnostics::default();
    let acceptor = Acceptor::build(&config, &bind, &Store::new(&config), &files, &mut diagnostics).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    listener.set_nonblocking(true).unwrap();
    let start = thread_cpu_ns();
    LocalSet::new().block_on(&runtime, async {
        spawn_local(drive_engine());
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        for _ in 0..connections {
            let (socket, _) = listener.accept().await.unwrap();
            socket.set_nodelay(true).unwrap();
            let mut tls = acceptor.accept(socket, Vec::new()).await.unwrap();
            let mut byte = [0; 1];
            tls.read_exact(&mut byte).await.unwrap();
            tls.write_all(&byte).await.unwrap();
        }
    });
    thread_cpu_ns() - start
}

fn clients(pem: &str, address: SocketAddr, connections: usize) {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem.as_bytes()).flatten());
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.resumption = Resumption::disabled();
    let mut provider = config.crypto_provider().as_ref().clone();
    // The same suite and group for both.
    provider.kx_groups.retain(|group| group.name() == rustls::NamedGroup::X25519);
    provider.cipher_suites.retain(|suite| suite.suite() == rustls::CipherSuite::TLS13_AES_128_GCM_SHA256);
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem.as_bytes()).flatten());
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    let config = Arc::new(config);
    for _ in 0..connections {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_nodelay(true).unwrap();
        let mut tls = ClientConnection::new(config.clone(), ServerName::try_from("a.test").unwrap()).unwrap();
        let mut stream = rustls::Stream::new(&mut tls, &mut socket);
        stream.write_all(b"x").unwrap();
        let mut byte = [0; 1];
        stream.read_exact(&mut byte).unwrap();
    }
}
