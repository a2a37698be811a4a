//! Clients that would make a process take more memory than it may are refused: it stays, says so, and serves others again.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::floods::{DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, frame};
use super::limits::get;
use super::{Probe, with_penstock};
use crate::Failure;
use crate::run::Run;

/// Clients of one kind, which stay and read nothing.
struct Crowd {
    /// What they do, as `pipelining`.
    name: &'static str,
    /// The words after the address of the `bind` line that they connect to.
    bind: &'static str,
    /// A statement of the frontend.
    rule: &'static str,
    /// What each sends.
    said: fn() -> Vec<u8>,
    clients: usize,
}

const CROWDS: [Crowd; 6] = [
    Crowd { name: "pipelining", bind: "", rule: "", said: || BIG.repeat(40), clients: 800 },
    Crowd {
        name: "half-a-head",
        bind: "",
        rule: "",
        said: || [b"GET / HTTP/1.1\r\nHost: h\r\nX: ".as_slice(), &[b'x'; 8000]].concat(),
        clients: 800,
    },
    Crowd {
        name: "slow-uploads-that-are-buffered",
        bind: "",
        rule: "option http-buffer-request",
        said: || [b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9000\r\n\r\n".as_slice(), &[b'x'; 8000]].concat(),
        clients: 800,
    },
    Crowd {
        name: "idle-handshakes",
        bind: "ssl crt {{cert ecdsa}}",
        rule: "",
        said: || b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        clients: 800,
    },
    Crowd {
        name: "streams-that-nobody-reads",
        bind: "proto h2",
        rule: "",
        said: || {
            // No stream has a window.
            let mut bytes = [PREFACE, &frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])].concat();
            (0..100).for_each(|n| bytes.extend(frame(HEADERS, END_STREAM | END_HEADERS, 2 * n + 1, BIG_BLOCK)));
            bytes
        },
        clients: 60,
    },
    Crowd {
        name: "streams-that-upload-slowly",
        bind: "proto h2",
        rule: "option http-buffer-request",
        said: || {
            let mut bytes = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
            for stream in (1..200).step_by(2) {
                bytes.extend(frame(HEADERS, END_HEADERS, stream, b"\x83\x86\x84\x41\x01h"));
                bytes.extend(frame(DATA, 0, stream, &[b'x'; 600]));
            }
            bytes
        },
        clients: 60,
    },
];

/// A request for more than a buffer, over HTTP/1 and HTTP/2.
const BIG: &[u8] = b"GET /bytes/100000 HTTP/1.1\r\nHost: h\r\n\r\n";
const BIG_BLOCK: &[u8] = b"\x82\x86\x04\x0d/bytes/100000\x41\x01h";

/// How much each process may take: starting takes less than half of it.
const LIMIT_MIB: usize = 24;

pub fn probes() -> Vec<Probe> {
    let mut probes: Vec<Probe> =
        CROWDS.iter().map(|crowd| Probe::new(format!("memory/{}", crowd.name), || is_survived(crowd))).collect();
    probes.push(Probe::new("memory/a-limit-that-is-set-later", limit_that_is_set_later));
    probes
}

fn is_survived(crowd: &Crowd) -> Result<(), Failure> {
    // No line for each request: thousands in a moment overflow the receiver's socket, and what the process says is lost.
    let Crowd { bind, rule, .. } = crowd;
    let config = format!(
        "[config args=\"-m {LIMIT_MIB}\"]\nlisten l\n    bind {{{{bind crowd}}}} {bind}\n    bind {{{{bind \
         http}}}}\n    timeout client 60s\n    timeout http-request 60s\n    no log\n    {rule}\n    server s1 {{{{origin a}}}}\n"
    );
    with_penstock(&config, |run| endure(run, crowd))
}

/// A running process may be given a limit at any time.
fn limit_that_is_set_later() -> Result<(), Failure> {
    with_penstock(
        "[config]\nlisten l\n    bind {{bind crowd}}\n    bind {{bind http}}\n    server s1 {{origin a}}\n",
        |run| {
            let pid = run.process.as_ref().ok_or("it does not run")?.id().to_string();
            let limit = format!("--data={}", LIMIT_MIB << 20);
            let set = Command::new("prlimit").args(["--pid", &pid, &limit]).status();
            if !set.is_ok_and(|status| status.success()) {
                return Err("prlimit cannot lower the limit".to_owned());
            }
            // It looks for one once a second.
            std::thread::sleep(Duration::from_millis(1500));
            endure(run, &CROWDS[1])
        },
    )
}

/// Opens the crowd: the log tells that memory is short; once the crowd has left, others are served.
fn endure(run: &mut Run<'_>, crowd: &Crowd) -> Result<(), Failure> {
    let (address, said) = (run.bind("crowd")?, (crowd.said)());
    let mut clients = Vec::new();
    for _ in 0..crowd.clients {
        // Some are refused, at any moment.
        clients.extend(join(address, &said));
    }
    let told = |words: &str, log: &[String]| log.iter().filter(|line| line.contains(words)).count();
    let begun = Instant::now();
    while told("memory is short", &run.syslog.settled()) == 0 {
        lives(run)?;
        if begun.elapsed() > Duration::from_secs(30) {
            return Err("memory was never short, so that nothing was shown".to_owned());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(clients);
    lives(run)?;
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        match get(run, "http", "/") {
            Ok(200) if told("memory suffices again", &run.syslog.settled()) > 0 => break,
            other if Instant::now() > end => return Err(format!("long after the clients left: {other:?}")),
            _ => std::thread::sleep(Duration::from_millis(100)),
        }
    }
    match told("memory is short", &run.syslog.settled()) as u64 {
        lines if lines > begun.elapsed().as_secs() + 10 => {
            Err(format!("the log says {lines} times that memory is short"))
        }
        _ => Ok(()),
    }
}

/// An error if the process has ended.
fn lives(run: &mut Run<'_>) -> Result<(), Failure> {
    match run.process.as_mut().and_then(|process| process.wait_end(Duration::ZERO)) {
        Some(status) => Err(format!("it ended: {status}")),
        None => Ok(()),
    }
}

/// A client with a small window of its own, which reads nothing; `None` if it is refused.
fn join(address: SocketAddr, said: &[u8]) -> Option<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).ok()?;
    socket.set_recv_buffer_size(4096).ok()?;
    socket.connect_timeout(&address.into(), Duration::from_secs(5)).ok()?;
    let mut stream: TcpStream = socket.into();
    stream.set_write_timeout(Some(Duration::from_secs(1))).ok()?;
    stream.write_all(said).ok()?;
    Some(stream)
}
