//! Loads that `penstock bench load` is not for, for the scripts: clients that vanish, floods, and requests from chosen ports.
//!
//!     penstock-load mixed ADDRESS,... COUNT CLIENTS SEED  COUNT clients of every kind, one in a hundred vanishing at some point;
//!                                                         then how many were served, resumed, vanished and failed
//!     penstock-load aborted ADDRESS COUNT                 COUNT clients that send a hello and are gone at once
//!     penstock-load flood ADDRESS NAME FRAMES N PAUSE     FRAMES frames of an HTTP/2 flood, N at a time with PAUSE µs of
//!                                                         listening after each, on a new connection whenever it is
//!                                                         cut; then how many were sent on each connection
//!     penstock-load paced ADDRESS new|keep RATE SECONDS THREADS PORT...
//!                                                         RATE requests a second from these local ports, each on a
//!                                                         new TLS connection or on the thread's own; then the median
//!                                                         and the 99th percentile of their times, in µs

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use penstock_tests::Failure;
use penstock_tests::client::any_certificate;
use penstock_tests::mixed;
use penstock_tests::probes::floods::FLOODS;
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::{default_provider, kx_group};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use socket2::{Domain, Socket, Type};

type Tls = StreamOwned<ClientConnection, TcpStream>;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["mixed", addresses, count, clients, seed] => mixed(addresses, [count, clients, seed]),
        ["aborted", address, count] => aborted(address, count),
        ["paced", address, kind @ ("new" | "keep"), rate, seconds, threads, ref ports @ ..] => {
            paced(address, kind == "keep", [rate, seconds, threads], ports)
        }
        ["flood", address, name, frames, at_a_time, pause] => flood(address, name, [frames, at_a_time, pause]),
        _ => Err("see the comment at the top of penstock-load.rs".to_owned()),
    };
    if let Err(failure) = outcome {
        eprintln!("{failure}");
        std::process::exit(1);
    }
}

/// TLS 1.3 with X25519, and never a resumption.
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

fn handshake(stream: TcpStream, config: &Arc<ClientConfig>) -> Result<Tls, Failure> {
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

fn mixed(addresses: &str, numbers: [&str; 3]) -> Result<(), Failure> {
    let addresses: Vec<SocketAddr> = addresses
        .split(',')
        .map(|a| a.parse().map_err(|_| format!("'{a}' is not an address")))
        .collect::<Result<_, _>>()?;
    let [count, clients, seed] = numbers.map(|n| n.parse::<u64>().map_err(|_| format!("{n} is not a number")));
    let outcome = mixed::run(&addresses, count?, clients?, seed?)?;
    let [done, resumed, vanished, failed] =
        [&outcome.done, &outcome.resumed, &outcome.vanished, &outcome.failed].map(|n| n.load(Ordering::Relaxed));
    println!("{done} done, {resumed} resumed, {vanished} vanished, {failed} failed");
    Ok(())
}

fn aborted(address: &str, count: &str) -> Result<(), Failure> {
    let address: SocketAddr = address.parse().map_err(|_| "not an address")?;
    let count: usize = count.parse().map_err(|_| "not a count")?;
    let config = config()?;
    for _ in 0..count {
        let mut stream = TcpStream::connect(address).map_err(|e| format!("connect: {e}"))?;
        let name = ServerName::try_from("localhost").expect("a valid name");
        let mut tls = ClientConnection::new(Arc::clone(&config), name).map_err(|e| e.to_string())?;
        tls.write_tls(&mut stream).map_err(|e| format!("hello: {e}"))?;
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).map_err(|e| e.to_string())?;
    }
    println!("{count}");
    Ok(())
}

/// Sends a request and reads the head of its answer, which has no body.
fn exchange(tls: &mut Tls, request: &str) -> Result<(), Failure> {
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
    Ok(())
}

/// The connections a flood needed, each with the frames it was let send.
fn flood(address: &str, name: &str, numbers: [&str; 3]) -> Result<(), Failure> {
    let address: SocketAddr = address.parse().map_err(|_| "not an address")?;
    let flood = FLOODS.iter().find(|flood| flood.name == name).ok_or("there is no such flood")?;
    let [frames, at_a_time, pause] = numbers.map(|n| n.parse::<u32>().map_err(|_| format!("{n} is not a number")));
    let (frames, at_a_time, pause) = (frames?, at_a_time?, Duration::from_micros(pause?.into()));
    let mut sent = 0;
    while sent < frames {
        let on_this = flood.send(address, frames - sent, at_a_time, pause)?;
        println!("{on_this}");
        sent += on_this;
    }
    Ok(())
}

/// Times count from when a request was due, not from when a thread was free to send it: a server that stalls is not
/// spared the requests that wait behind.
fn paced(address: &str, keep: bool, numbers: [&str; 3], ports: &[&str]) -> Result<(), Failure> {
    let address: SocketAddr = address.parse().map_err(|_| "not an address")?;
    let [rate, seconds, threads] = numbers.map(|n| n.parse::<u32>().map_err(|_| format!("{n} is not a number")));
    let (rate, seconds, threads) = (rate?, seconds?, threads? as usize);
    let ports: Vec<u16> =
        ports.iter().map(|p| p.parse().map_err(|_| format!("{p} is no port"))).collect::<Result<_, _>>()?;
    if ports.len() < threads || rate == 0 {
        return Err("a port for each thread, and a rate, are needed".to_owned());
    }
    let config = config()?;
    let count = (rate * seconds) as usize;
    // Time for the connections that are kept to be made.
    let start = Instant::now() + Duration::from_secs(if keep { 2 } else { 0 });
    let work = &|thread: usize| -> Result<Vec<u32>, Failure> {
        let mut mine = ports.iter().skip(thread).step_by(threads).cycle();
        let mut open = || handshake(connect_from(*mine.next().expect("a cycle"), address)?, &config);
        let request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let mut kept = if keep { Some(open()?) } else { None };
        let mut times = Vec::with_capacity(count / threads + 1);
        for at in (thread..count).step_by(threads) {
            let due = start + Duration::from_secs_f64(at as f64 / f64::from(rate));
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            match &mut kept {
                Some(tls) => exchange(tls, request)?,
                None => exchange(&mut open()?, request)?,
            }
            times.push(due.elapsed().as_micros() as u32);
        }
        Ok(times)
    };
    let mut times = Vec::with_capacity(count);
    std::thread::scope(|scope| -> Result<(), Failure> {
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        for thread in running {
            times.extend(thread.join().map_err(|_| "a thread panicked")??);
        }
        Ok(())
    })?;
    times.sort_unstable();
    println!("{} {}", times[times.len() / 2], times[times.len() * 99 / 100]);
    Ok(())
}

/// From that local port. It is reset at its end, so that the port can be used again at once.
fn connect_from(port: u16, address: SocketAddr) -> Result<TcpStream, Failure> {
    let failed = |e: std::io::Error| format!("connect from port {port}: {e}");
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).map_err(failed)?;
    socket.set_linger(Some(Duration::ZERO)).map_err(failed)?;
    socket.bind(&SocketAddr::new(address.ip(), port).into()).map_err(failed)?;
    socket.connect(&address.into()).map_err(failed)?;
    Ok(socket.into())
}
