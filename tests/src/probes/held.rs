//! What clients that wait make the process keep: resident memory for each, where that was once far more than it had to be. Figures
//! for these and other kinds, and HAProxy's, are in docs/limits.md.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::floods::{DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, frame};
use super::{Probe, with_penstock};
use crate::Failure;
use crate::run::Run;

/// Clients of one kind.
struct Kind {
    /// What they do, as `a-large-head-and-a-silent-server`.
    name: &'static str,
    /// The words after the address of the `bind` line that they connect to.
    bind: &'static str,
    /// A statement of the frontend.
    rule: &'static str,
    /// What a client sends, given its number.
    said: fn(usize) -> Vec<u8>,
    /// How many streams, or keys, a client brings.
    each: usize,
    /// The most that each of these may take; once it was half as much again, or more.
    kib_max: f64,
}

const KINDS: [Kind; 6] = [
    Kind {
        name: "a-large-head-and-a-silent-server",
        bind: "",
        rule: "",
        said: |_| large_request("/"),
        each: 1,
        kib_max: 13.0,
    },
    Kind {
        name: "a-large-head-in-a-tarpit",
        bind: "",
        rule: "http-request tarpit",
        said: |_| large_request("/"),
        each: 1,
        kib_max: 12.0,
    },
    Kind {
        name: "a-large-target-in-a-tarpit",
        bind: "",
        rule: "http-request tarpit",
        said: |_| format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "y".repeat(14_000)).into_bytes(),
        each: 1,
        kib_max: 12.0,
    },
    Kind {
        name: "keys-of-a-stick-table",
        bind: "",
        rule: "stick-table type string len 1024 size 100k store http_req_cnt\n    http-request track-sc0 hdr(key)\n    \
               http-request return status 200",
        said: |client| {
            let keyed = |n| format!("GET / HTTP/1.1\r\nHost: h\r\nKey: {:01000}\r\n\r\n", client * 20 + n);
            (0..20).map(keyed).collect::<String>().into_bytes()
        },
        each: 20,
        kib_max: 1.6,
    },
    Kind {
        name: "half-a-proxy-header",
        bind: "accept-proxy",
        rule: "",
        said: |_| b"PROXY TCP4 192.0.2.1 192.0".to_vec(),
        each: 1,
        kib_max: 4.0,
    },
    Kind {
        name: "streams-whose-bodies-are-waited-for",
        bind: "proto h2",
        rule: "http-request wait-for-body time 60s",
        said: |_| {
            let mut bytes = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
            for stream in (1..100).step_by(2) {
                bytes.extend(frame(HEADERS, END_HEADERS, stream, b"\x83\x86\x84\x41\x01h"));
                bytes.extend(frame(DATA, 0, stream, &[b'x'; 600]));
            }
            // One that is answered, so that all of them have been read.
            bytes.extend(frame(HEADERS, END_HEADERS | END_STREAM, 101, b"\x82\x86\x84\x41\x01h"));
            bytes
        },
        each: 50,
        kib_max: 9.0,
    },
];

/// How many clients there are, and then how many more: what the process keeps for few of them is not counted.
const CLIENTS: [usize; 2] = [40, 160];

pub fn probes() -> Vec<Probe> {
    let probe = |kind: &'static Kind| Probe::new(format!("memory/{}", kind.name), || is_within(kind));
    KINDS.iter().map(probe).collect()
}

/// A request whose head nearly fills a buffer.
fn large_request(target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: h\r\nLarge: {}\r\n\r\n", "y".repeat(14_000)).into_bytes()
}

fn is_within(kind: &Kind) -> Result<(), Failure> {
    // It takes connections and requests, and answers none.
    let silent = Socket::new(Domain::IPV4, Type::STREAM, None).map_err(|e| e.to_string())?;
    silent.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).map_err(|e| e.to_string())?;
    silent.listen(1024).map_err(|e| e.to_string())?;
    let server = silent.local_addr().ok().and_then(|address| address.as_socket()).ok_or("no address")?;
    let Kind { bind, rule, .. } = kind;
    let config = format!(
        "[config]\nlisten l\n    bind {{{{bind crowd}}}} {bind}\n    timeout client 60s\n    timeout server 60s\n    timeout \
         http-request 60s\n    timeout tarpit 60s\n    no log\n    {rule}\n    server s1 {server}\n"
    );
    with_penstock(&config, |run| {
        let address = run.bind("crowd")?;
        let (mut clients, mut sizes) = (Vec::new(), Vec::new());
        for more in CLIENTS {
            for _ in 0..more {
                let mut client = TcpStream::connect(address).map_err(|e| e.to_string())?;
                client.write_all(&(kind.said)(clients.len())).map_err(|e| e.to_string())?;
                clients.push(client);
                // One after the other: what many take at once for a moment is not what they hold.
                std::thread::sleep(Duration::from_millis(5));
            }
            sizes.push(settled(run)?);
        }
        let each = (sizes[1] - sizes[0]) / (CLIENTS[1] * kind.each) as f64;
        println!("    memory/{}: {each:.1} KiB each", kind.name);
        if each > kind.kib_max {
            Err(format!("{each:.1} KiB each, instead of at most {}", kind.kib_max))
        } else {
            Ok(())
        }
    })
}

/// The process's resident memory in KiB, once it has not changed for a while.
fn settled(run: &Run<'_>) -> Result<f64, Failure> {
    const PAUSE: Duration = Duration::from_millis(400);
    let end = Instant::now() + Duration::from_secs(10);
    let mut before = resident(run)?;
    loop {
        std::thread::sleep(PAUSE);
        let now = resident(run)?;
        if now == before || Instant::now() > end {
            return Ok(now);
        }
        before = now;
    }
}

fn resident(run: &Run<'_>) -> Result<f64, Failure> {
    let pid = run.process.as_ref().ok_or("it does not run")?.id();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).map_err(|e| e.to_string())?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    line.trim().trim_end_matches(" kB").parse().map_err(|_| format!("not a size: {line}"))
}
