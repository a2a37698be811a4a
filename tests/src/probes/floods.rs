//! HTTP/2 floods are cut with GOAWAY within a thousand frames, and the proxy goes on serving others.

use std::io::{Read, Write};
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

/// What one flood repeats, given the number of the round.
type Flood = fn(u32) -> Vec<u8>;

pub fn probes() -> Vec<Probe> {
    // Each: what opens it, what it repeats, and how many frames a repetition has.
    let floods: [(&str, Flood, Flood, u32); 6] = [
        (
            "rapid-reset",
            nothing,
            |n| {
                let stream = 2 * n + 1;
                let mut bytes = frame(HEADERS, END_STREAM | END_HEADERS, stream, REQUEST);
                bytes.extend(frame(RST_STREAM, 0, stream, &8u32.to_be_bytes()));
                bytes
            },
            2,
        ),
        (
            "continuation",
            |_| frame(HEADERS, END_STREAM, 1, REQUEST),
            |n| frame(CONTINUATION, 0, 1, format!("\0\x05x-{n:03}\x01y").as_bytes()),
            1,
        ),
        ("empty-continuation", |_| frame(HEADERS, END_STREAM, 1, REQUEST), |_| frame(CONTINUATION, 0, 1, b""), 1),
        ("settings", nothing, |_| frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]), 1),
        ("ping", nothing, |_| frame(PING, 0, 0, b"pingpong"), 1),
        ("empty-data", |_| frame(HEADERS, END_HEADERS, 1, b"\x83\x86\x84\x41\x01h"), |_| frame(DATA, 0, 1, b""), 1),
    ];
    floods
        .into_iter()
        .map(|(name, open, repeat, frames)| Probe::new(format!("floods/{name}"), move || flood(open, repeat, frames)))
        .collect()
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

fn flood(open: Flood, repeat: Flood, frames_each: u32) -> Result<(), Failure> {
    /// The promise: cut within this many frames.
    const FRAMES: u32 = 1000;
    with_penstock(CONFIG, |run| {
        let plain = Section { kind: "tcp".into(), arguments: Vec::new(), text: String::new(), line: 0 };
        let mut wire = client::open(run.bind("h2")?, &plain)?;
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend(frame(SETTINGS, 0, 0, b""));
        bytes.extend(open(0));
        for round in 0..FRAMES / frames_each {
            bytes.extend(repeat(round));
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
