//! HTTP/2 floods are cut with GOAWAY within a thousand frames or two, and the proxy goes on serving others.

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

/// The same, and nothing of it is to be remembered.
const PLAIN: &[u8] = b"\x82\x86\x84\x01\x01h";

/// How a client begins.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

/// Frames that make work and bring no request to its end.
#[derive(Clone, Copy)]
pub struct Flood {
    /// Its name, as `rapid-reset`.
    pub name: &'static str,
    /// What opens it, after the preface.
    open: fn(u32) -> Vec<u8>,
    /// What it repeats, given the number of the round.
    repeat: fn(u32) -> Vec<u8>,
    /// How many frames a repetition has.
    frames: u32,
    /// The promise: the peer is cut off within this many frames.
    within: u32,
}

/// For frames that nothing else bounds.
const WITHIN: u32 = 1000;

/// Streams that the proxy is made to reset itself are bounded in number, 1,024, and not in time.
const WITHIN_RESETS: u32 = 2200;

/// Every flood.
pub const FLOODS: [Flood; 12] = [
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
        within: WITHIN,
    },
    Flood {
        name: "continuation",
        open: |_| frame(HEADERS, END_STREAM, 1, REQUEST),
        repeat: |n| frame(CONTINUATION, 0, 1, format!("\0\x05x-{:03}\x01y", n % 1000).as_bytes()),
        frames: 1,
        within: WITHIN,
    },
    Flood {
        name: "empty-continuation",
        open: |_| frame(HEADERS, END_STREAM, 1, REQUEST),
        repeat: |_| frame(CONTINUATION, 0, 1, b""),
        frames: 1,
        within: WITHIN,
    },
    Flood {
        name: "settings",
        open: nothing,
        repeat: |_| frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]),
        frames: 1,
        within: WITHIN,
    },
    Flood { name: "ping", open: nothing, repeat: |_| frame(PING, 0, 0, b"pingpong"), frames: 1, within: WITHIN },
    Flood {
        name: "empty-data",
        open: |_| frame(HEADERS, END_HEADERS, 1, b"\x83\x86\x84\x41\x01h"),
        repeat: |_| frame(DATA, 0, 1, b""),
        frames: 1,
        within: WITHIN,
    },
    // CVE-2025-8671, "MadeYouReset": the server resets the streams itself, and goes on with their requests.
    Flood {
        name: "made-you-reset-by-windows",
        open: nothing,
        repeat: |n| [request(n, REQUEST), frame(WINDOW_UPDATE, 0, 2 * n + 1, &[0; 4])].concat(),
        frames: 2,
        within: WITHIN_RESETS,
    },
    Flood {
        name: "made-you-reset-by-data",
        open: nothing,
        repeat: |n| [request(n, REQUEST), frame(DATA, END_STREAM, 2 * n + 1, b"x")].concat(),
        frames: 2,
        within: WITHIN_RESETS,
    },
    Flood {
        name: "malformed-requests",
        open: nothing,
        repeat: |n| request(n, &[PLAIN, b"\0\x03Foo\x01x"].concat()),
        frames: 1,
        within: WITHIN_RESETS,
    },
    Flood {
        name: "push-promise",
        open: nothing,
        repeat: |n| frame(PUSH_PROMISE, END_HEADERS, 2 * n + 1, &[&[0, 0, 0, 2], REQUEST].concat()),
        frames: 1,
        within: WITHIN,
    },
    Flood {
        name: "window-overflow",
        open: nothing,
        repeat: |_| frame(WINDOW_UPDATE, 0, 0, &0x7fff_ffffu32.to_be_bytes()),
        frames: 1,
        within: WITHIN,
    },
    // A field of 4,000 bytes, put into the table once and referred to forty times by each request.
    Flood {
        name: "hpack-bomb",
        open: |_| {
            let field = [PLAIN, b"\x40\x01x\x7f\xa1\x1e", &[b'y'; 4000]].concat();
            frame(HEADERS, END_STREAM | END_HEADERS, 1, &field)
        },
        repeat: |n| request(n + 1, &[PLAIN, &[0xbe; 40]].concat()),
        frames: 1,
        within: WITHIN,
    },
];

fn request(n: u32, block: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, 2 * n + 1, block)
}

pub(super) fn probes() -> Vec<Probe> {
    let mut probes: Vec<Probe> =
        FLOODS.iter().map(|flood| Probe::new(format!("floods/{}", flood.name), || is_cut(flood))).collect();
    probes.push(Probe::new("floods/a-ping-with-each-message-is-none", messages_with_pings));
    probes
}

/// As grpc-go does: each message that comes is answered by a PING, which measures the bandwidth. Here the messages are sent.
fn messages_with_pings() -> Result<(), Failure> {
    const MESSAGES: usize = 3000;
    with_penstock(CONFIG, |run| {
        let plain = Section { kind: "tcp".into(), arguments: Vec::new(), text: String::new(), line: 0 };
        let mut wire = client::open(run.bind("h2")?, &plain)?;
        wire.set_read_timeout(Duration::from_secs(5)).map_err(|e| e.to_string())?;
        let mut heard = Vec::new();
        let mut bytes = Flood { open: nothing, ..FLOODS[0] }.opening();
        bytes.extend(frame(HEADERS, END_HEADERS, 1, b"\x83\x86\x84\x41\x01h"));
        for at in 0..MESSAGES {
            bytes.extend(frame(DATA, 0, 1, b"message"));
            bytes.extend(frame(PING, 0, 0, b"bandwide"));
            // One write a hundred messages, and all that is answered read: who never reads is stopped by his own window.
            if at % 100 == 99 {
                wire.write_all(&bytes).map_err(|e| format!("after {at} messages: {e}"))?;
                bytes.clear();
                while count(&heard, PING) <= at {
                    let mut buffer = [0; 65536];
                    match wire.read(&mut buffer) {
                        Ok(n @ 1..) => heard.extend_from_slice(&buffer[..n]),
                        other => return Err(format!("after {at} messages: {other:?}")),
                    }
                    if has_goaway(&heard) {
                        return Err(format!("GOAWAY after {at} messages"));
                    }
                }
            }
        }
        Ok(())
    })
}

impl Flood {
    /// The preface, and what opens the flood.
    fn opening(&self) -> Vec<u8> {
        let mut bytes = PREFACE.to_vec();
        bytes.extend(frame(SETTINGS, 0, 0, b""));
        bytes.extend((self.open)(0));
        bytes
    }

    /// Sends up to this many frames over a new connection, some at a time, until it is cut; returns how many were sent. Between two
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

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

fn is_cut(flood: &Flood) -> Result<(), Failure> {
    with_penstock(CONFIG, |run| {
        let plain = Section { kind: "tcp".into(), arguments: Vec::new(), text: String::new(), line: 0 };
        let mut wire = client::open(run.bind("h2")?, &plain)?;
        let mut bytes = flood.opening();
        for round in 0..flood.within / flood.frames {
            bytes.extend((flood.repeat)(round));
        }
        // Refused in the middle of writing is as good as refused at its end.
        let _ = wire.write_all(&bytes);
        let goaway = ended(&mut wire)?;
        if !goaway {
            return Err(format!("{} frames were taken without GOAWAY", flood.within));
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

fn has_goaway(bytes: &[u8]) -> bool {
    count(bytes, GOAWAY) > 0
}

/// How many frames of a kind there are.
fn count(mut bytes: &[u8], wanted: u8) -> usize {
    let mut found = 0;
    while let [a, b, c, kind, ..] = *bytes {
        found += usize::from(kind == wanted);
        let length = 9 + usize::from(a) * 65536 + usize::from(b) * 256 + usize::from(c);
        bytes = bytes.get(length..).unwrap_or_default();
    }
    found
}
