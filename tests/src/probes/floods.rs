//! HTTP/2 floods are cut with GOAWAY within a thousand frames, and the proxy goes on serving others.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::{Probe, with_penstock};
use crate::Failure;
use crate::client;
use crate::message::{Inbox, Outcome};
use crate::scenario::Section;
use crate::wire::Wire;

const CONFIG: &str = "[config]\nfrontend f\n    bind {{bind h2}} proto h2\n    bind {{bind http}}\n    default_backend \
                      b\nbackend b\n    server s1 {{origin a}}\n";

/// HPACK: GET, http, `/`, and the authority `h`, from the static table.
const REQUEST: &[u8] = b"\x82\x86\x84\x41\x01h";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Frames that make work and bring no request to its end.
pub struct Flood {
    /// Its name, as `rapid-reset`.
    pub name: &'static str,
    /// What opens it, after the preface.
    open: fn(u32) -> Vec<u8>,
    /// What it repeats, given the number of the round.
    repeat: fn(u32) -> Vec<u8>,
    /// How many frames a repetition has.
    frames: u32,
}

/// Every flood.
pub const FLOODS: [Flood; 6] = [
    Flood {
        name: "rapid-reset",
        open: nothing,
        repeat: |n| {
            let stream = 2 * n + 1;
            let mut bytes = frame(HEADERS, END_STREAM | END_HEADERS, stream, REQUEST);
            bytes.extend(frame(RST_STREAM, 0, stream, &8u32.to_be_bytes()));
            bytes
        },
        frames: 2,
    },
    Flood {
        name: "continuation",
        open: |_| frame(HEADERS, END_STREAM, 1, REQUEST),
        repeat: |n| frame(CONTINUATION, 0, 1, format!("\0\x05x-{:03}\x01y", n % 1000).as_bytes()),
        frames: 1,
    },
    Flood {
        name: "empty-continuation",
        open: |_| frame(HEADERS, END_STREAM, 1, REQUEST),
        repeat: |_| frame(CONTINUATION, 0, 1, b""),
        frames: 1,
    },
    Flood { name: "settings", open: nothing, repeat: |_| frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]), frames: 1 },
    Flood { name: "ping", open: nothing, repeat: |_| frame(PING, 0, 0, b"pingpong"), frames: 1 },
    Flood {
        name: "empty-data",
        open: |_| frame(HEADERS, END_HEADERS, 1, b"\x83\x86\x84\x41\x01h"),
        repeat: |_| frame(DATA, 0, 1, b""),
        frames: 1,
    },
];

pub(super) fn probes() -> Vec<Probe> {
    FLOODS.iter().map(|flood| Probe::new(format!("floods/{}", flood.name), || is_cut(flood))).collect()
}

impl Flood {
    /// The preface, and what opens the flood.
    fn opening(&self) -> Vec<u8> {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend(frame(SETTINGS, 0, 0, b""));
        bytes.extend((self.open)(0));
        bytes
    }

    /// Sends up to so many frames over a new connection, some at a time, until it is cut; how many were sent. Between two
    /// sendings it listens for `patience`.
    pub fn send(&self, address: SocketAddr, most: u32, at_a_time: u32, patience: Duration) -> Result<u32, Failure> {
        let mut stream = TcpStream::connect(address).map_err(|e| e.to_string())?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        // A timeout of zero would be none.
        stream.set_read_timeout(Some(patience.max(Duration::from_micros(1)))).map_err(|e| e.to_string())?;
        stream.write_all(&self.opening()).map_err(|e| e.to_string())?;
        let (mut sent, mut round) = (0, 0);
        let mut heard = Vec::new();
        let mut buffer = [0; 65536];
        while sent < most {
            let mut bytes = Vec::new();
            for _ in 0..at_a_time {
                bytes.extend((self.repeat)(round));
                round += 1;
            }
            let written = stream.write_all(&bytes).is_ok();
            sent += at_a_time * self.frames;
            match stream.read(&mut buffer) {
                Ok(0) => return Ok(sent),
                Ok(n) => heard.extend_from_slice(&buffer[..n]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => return Ok(sent),
            }
            if !written || has_goaway(&heard) {
                return Ok(sent);
            }
        }
        Ok(sent)
    }
}

fn nothing(_: u32) -> Vec<u8> {
    Vec::new()
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

fn is_cut(flood: &Flood) -> Result<(), Failure> {
    /// The promise: cut within this many frames.
    const FRAMES: u32 = 1000;
    with_penstock(CONFIG, |run| {
        let plain = Section { kind: "tcp".into(), arguments: Vec::new(), text: String::new(), line: 0 };
        let mut wire = client::open(run.bind("h2")?, &plain)?;
        let mut bytes = flood.opening();
        for round in 0..FRAMES / flood.frames {
            bytes.extend((flood.repeat)(round));
        }
        // Refused in the middle of writing is as good as refused at its end.
        let _ = wire.write_all(&bytes);
        let goaway = ended(&mut wire)?;
        if !goaway {
            return Err(format!("{FRAMES} frames were taken without GOAWAY"));
        }
        // Another client is served as before.
        let mut inbox = Inbox::new(client::open(run.bind("http")?, &plain)?, None);
        inbox.wire.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").map_err(|e| e.to_string())?;
        match inbox.response("GET") {
            Outcome::Message(m) if m.status() == 200 => Ok(()),
            other => Err(format!("another client is not served: {other:?}")),
        }
    })
}

/// Reads frames until GOAWAY (true), or nothing comes any more (false). A reset may destroy a GOAWAY on its way, so that
/// an end by reset counts as well.
fn ended(wire: &mut Wire) -> Result<bool, Failure> {
    wire.set_read_timeout(Duration::from_millis(500)).map_err(|e| e.to_string())?;
    let end = Instant::now() + Duration::from_secs(5);
    let mut bytes = Vec::new();
    let mut buffer = [0; 65536];
    loop {
        match wire.read(&mut buffer) {
            Ok(0) => return Ok(has_goaway(&bytes)),
            Ok(n) => bytes.extend_from_slice(&buffer[..n]),
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => return Ok(true),
            Err(_) => return Ok(has_goaway(&bytes)),
        }
        if has_goaway(&bytes) || Instant::now() > end {
            return Ok(has_goaway(&bytes));
        }
    }
}

fn has_goaway(mut bytes: &[u8]) -> bool {
    while let [a, b, c, kind, ..] = *bytes {
        if kind == GOAWAY {
            return true;
        }
        let length = 9 + usize::from(a) * 65536 + usize::from(b) * 256 + usize::from(c);
        bytes = bytes.get(length..).unwrap_or_default();
    }
    false
}
