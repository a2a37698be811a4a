//! What an origin answers: as the scenario tells it, or by the target, like a small httpbin.

use std::io::Write;
use std::time::Duration;

use crate::Failure;
use crate::message::{Inbox, Message};
use crate::scenario::Section;
use crate::wire::{Verb, unescape};

/// One answer.
#[derive(Clone, Debug)]
pub struct Answer {
    target: String,
    head: Vec<u8>,
    body: Vec<u8>,
    /// Waits before the first byte.
    delay: Duration,
    then: Vec<Verb>,
}

impl Answer {
    /// Reads an `[answer ORIGIN TARGET ...]` section. The arguments after the target say what follows the bytes:
    /// `then=close`, `then=reset`, `then="sleep 300"`, and `delay=MS` what precedes them.
    pub fn parse(section: &Section, text: &str) -> Result<Self, Failure> {
        let target = section.arguments.get(1).ok_or("an answer needs an origin and a target")?.clone();
        let bytes = raw_message(text)?;
        let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").map_or(bytes.len(), |p| p + 4);
        let mut then = Vec::new();
        for argument in &section.arguments {
            if let Some(verb) = argument.strip_prefix("then=") {
                then.push(Verb::parse(verb)?);
            }
        }
        let delay = Duration::from_millis(section.number("delay", 0)? as u64);
        Ok(Self { target, head: bytes[..end].to_vec(), body: bytes[end..].to_vec(), delay, then })
    }

    /// Whether a request for this target gets it.
    pub fn is_for(&self, target: &str) -> bool {
        self.target == "*" || self.target == target
    }

    /// What the connection does afterwards instead of going on.
    pub fn then(&self) -> &[Verb] {
        &self.then
    }

    /// Whether the connection serves another request afterwards.
    pub fn keep_open(&self, request: &Message) -> bool {
        let head = String::from_utf8_lossy(&self.head).to_ascii_lowercase();
        let framed = head.contains("content-length:") || head.contains("transfer-encoding:") || head.contains(" 304 ");
        let old = request.start.ends_with("HTTP/1.0") && !request.has_token("connection", "keep-alive");
        framed && !old && !request.has_token("connection", "close") && !head.contains("connection: close")
    }

    /// Sends it; false when the connection broke.
    pub fn give(&self, inbox: &mut Inbox, request: &Message) -> bool {
        std::thread::sleep(self.delay);
        let mut bytes = self.head.clone();
        if !request.start.starts_with("HEAD ") {
            bytes.extend_from_slice(&self.body);
        }
        inbox.wire.write_all(&bytes).and_then(|()| inbox.wire.flush()).is_ok()
    }
}

/// Text of a section as HTTP: lines end in CRLF, a head alone is completed by its empty line, a body's last line has
/// no end of its own. Escapes name the bytes that a text file cannot hold.
pub fn raw_message(text: &str) -> Result<Vec<u8>, Failure> {
    let (head, body) = match text.split_once("\n\n") {
        Some((head, body)) => (head, body),
        None => (text, ""),
    };
    let mut bytes = unescape(&head.replace('\n', "\r\n"))?;
    bytes.extend_from_slice(b"\r\n\r\n");
    bytes.extend(unescape(&body.replace('\n', "\r\n"))?);
    Ok(bytes)
}

/// The answer to a request that the scenario did not foresee, by its target:
/// `/bytes/N` a body of N bytes by length, `/chunked/N` in chunks, `/close/N` ended by the close, `/status/N`,
/// `/sleep/MS`, `/echo` the request's body, `/trailers`, `/cut/length|chunked|close` an end in mid-body by FIN,
/// `/reset/length|chunked|close` by RST, `/upgrade` a tunnel that echoes; else 200 with the request line as body.
pub fn default_answer(name: &str, request: &Message) -> Answer {
    let mut words = request.start.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split('?').next().unwrap_or_default();
    let mut steps = path.trim_start_matches('/').splitn(3, '/');
    let (first, second) = (steps.next().unwrap_or_default(), steps.next().unwrap_or_default());
    let number: usize = second.parse().unwrap_or(0);
    let close = request.has_token("connection", "close");
    let common = format!("X-Origin: {name}\r\n{}", if close { "Connection: close\r\n" } else { "" });
    let with = |status: &str, fields: &str, body: Vec<u8>, then: Vec<Verb>, delay: u64| Answer {
        target: String::new(),
        head: format!("HTTP/1.1 {status}\r\n{common}{fields}\r\n").into_bytes(),
        body,
        delay: Duration::from_millis(delay),
        then,
    };
    let sized = |status: &str, body: Vec<u8>, delay: u64| {
        with(status, &format!("Content-Length: {}\r\n", body.len()), body, Vec::new(), delay)
    };
    let chunked = |body: &[u8], end: &[u8]| -> Vec<u8> {
        let mut bytes = Vec::new();
        for chunk in body.chunks(8192) {
            bytes.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(end);
        bytes
    };
    const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";
    // The pause lets the part before it arrive: a RST discards what the receiver has not read yet.
    let ending = |verb: Verb| vec![Verb::Sleep(50), verb];
    let broken = |verb: Verb| match second {
        "length" => with("200 OK", "Content-Length: 100000\r\n", pattern(30_000), ending(verb), 0),
        "chunked" => with("200 OK", CHUNKED, chunked(&pattern(30_000), b""), ending(verb), 0),
        _ => with("200 OK", "Connection: close\r\n", pattern(30_000), ending(verb), 0),
    };
    match first {
        "bytes" => sized("200 OK", pattern(number), 0),
        "chunked" => with("200 OK", CHUNKED, chunked(&pattern(number), b"0\r\n\r\n"), Vec::new(), 0),
        "close" => with("200 OK", "", pattern(number), vec![Verb::Close], 0),
        "trailers" => {
            let end = b"0\r\nX-Checksum: 42\r\nX-Last: yes\r\n\r\n";
            with(
                "200 OK",
                "Trailer: X-Checksum, X-Last\r\nTransfer-Encoding: chunked\r\n",
                chunked(b"hello", end),
                Vec::new(),
                0,
            )
        }
        "status" => sized(&format!("{number} Told"), format!("{name} says {number}\n").into_bytes(), 0),
        "sleep" => sized("200 OK", format!("{name} slept\n").into_bytes(), number as u64),
        "echo" => sized("200 OK", request.body.clone(), 0),
        "cut" => broken(Verb::Close),
        "reset" => broken(Verb::Reset),
        "upgrade" if request.has_token("connection", "upgrade") => {
            let protocol = request.field("upgrade").unwrap_or("websocket");
            let mut fields = format!("Connection: Upgrade\r\nUpgrade: {protocol}\r\n");
            if request.field("sec-websocket-key") == Some("dGhlIHNhbXBsZSBub25jZQ==") {
                // The answer to the key of RFC 6455's own example; other keys go unanswered.
                fields.push_str("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n");
            }
            with("101 Switching Protocols", &fields, Vec::new(), vec![Verb::Echo], 0)
        }
        _ => sized("200 OK", format!("{name} {method} {target}\n").into_bytes(), 0),
    }
}

/// A body in which a lost, doubled or moved part shows.
pub fn pattern(length: usize) -> Vec<u8> {
    // It repeats after lcm(7 * 26, 1000 * 26) bytes.
    const PERIOD: usize = 182_000;
    let period: Vec<u8> = (0..PERIOD.min(length)).map(|i| b'a' + ((i / 7 + i / 1000) % 26) as u8).collect();
    let mut body = Vec::with_capacity(length);
    while body.len() < length {
        body.extend_from_slice(&period[..PERIOD.min(length - body.len())]);
    }
    body
}
