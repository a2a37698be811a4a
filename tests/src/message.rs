//! HTTP/1 messages as the tests see them: read without judging, so that what a proxy did wrong stays visible.

use std::io::Read;
use std::sync::{Arc, Mutex};

use crate::wire::{Ending, Wire, quote};

/// A message and how its body was delimited.
#[derive(Clone, Debug)]
pub struct Message {
    /// Request line or status line.
    pub start: String,
    /// The fields in order, names in lower case.
    pub fields: Vec<(String, String)>,
    /// The body without its framing.
    pub body: Vec<u8>,
    /// Trailer fields of a chunked body.
    pub trailers: Vec<(String, String)>,
    /// How the body ended when that was not by its own framing.
    pub cut: Option<Ending>,
}

/// What reading a message came to.
#[derive(Debug)]
pub enum Outcome {
    /// A head came, and its body as far as it goes.
    Message(Message),
    /// The connection ended, or went silent, before a whole head: what had come by then.
    Nothing(Vec<u8>, Ending),
}

impl Message {
    /// The first field of this name (in lower case).
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// Status code of a response.
    pub fn status(&self) -> u16 {
        self.start.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0)
    }

    /// Whether a list field (such as `Connection`) names this token.
    pub fn has_token(&self, field: &str, token: &str) -> bool {
        self.fields
            .iter()
            .filter(|(n, _)| n == field)
            .any(|(_, v)| v.split(',').any(|t| t.trim().eq_ignore_ascii_case(token)))
    }

    /// The lines of a transcript: fields sorted by name, since their order across names has no meaning.
    pub fn lines(&self, prefix: &str) -> Vec<String> {
        let mut lines = vec![format!("{prefix}{}", self.start)];
        let mut fields: Vec<_> = self.fields.iter().collect();
        fields.sort_by(|a, b| a.0.cmp(&b.0));
        lines.extend(fields.into_iter().map(|(n, v)| match n.as_str() {
            // Its options are tokens without regard to case (RFC 9110, 7.6.1).
            "connection" => format!("{prefix}{n}: {}", v.to_ascii_lowercase()),
            _ => format!("{prefix}{n}: {v}"),
        }));
        if !self.body.is_empty() {
            lines.push(format!("{prefix}body {}", quote(&self.body)));
        }
        lines.extend(self.trailers.iter().map(|(n, v)| format!("{prefix}trailer {n}: {v}")));
        if let Some(ending) = self.cut {
            lines.push(format!("{prefix}cut: {}", ending.word()));
        }
        lines
    }
}

/// The receiving side of a connection: bytes read ahead stay here for the next message.
pub struct Inbox {
    /// The connection.
    pub wire: Wire,
    ahead: Vec<u8>,
    tee: Option<Arc<Mutex<Vec<u8>>>>,
}

impl Inbox {
    /// Reads from `wire`, and appends every byte to `tee` as well.
    pub fn new(wire: Wire, tee: Option<Arc<Mutex<Vec<u8>>>>) -> Self {
        Self { wire, ahead: Vec::new(), tee }
    }

    fn more(&mut self) -> Result<(), Ending> {
        let mut buffer = [0; 16 * 1024];
        match self.wire.read(&mut buffer) {
            Ok(0) => Err(Ending::Closed),
            Ok(n) => {
                if let Some(tee) = &self.tee {
                    tee.lock().expect("no holder of this lock panics").extend_from_slice(&buffer[..n]);
                }
                self.ahead.extend_from_slice(&buffer[..n]);
                Ok(())
            }
            Err(e) => Err(Ending::of(&e)),
        }
    }

    /// What has been read but not yet consumed.
    pub fn take_ahead(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.ahead)
    }

    /// Waits for `count` bytes and consumes them; fewer when the connection ends first.
    pub fn take(&mut self, count: usize) -> (Vec<u8>, Option<Ending>) {
        let mut cut = None;
        while self.ahead.len() < count && cut.is_none() {
            cut = self.more().err();
        }
        let n = count.min(self.ahead.len());
        (self.ahead.drain(..n).collect(), cut)
    }

    /// Looks at the first bytes without consuming them.
    pub fn peek(&mut self, count: usize) -> &[u8] {
        while self.ahead.len() < count && self.more().is_ok() {}
        &self.ahead[..count.min(self.ahead.len())]
    }

    /// Consumes a line and its end.
    pub fn take_line(&mut self) -> Result<Vec<u8>, Ending> {
        loop {
            if let Some(end) = self.ahead.iter().position(|&b| b == b'\n') {
                let mut line: Vec<u8> = self.ahead.drain(..=end).collect();
                line.pop();
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                return Ok(line);
            }
            self.more()?;
        }
    }

    /// Reads to the end of the connection.
    pub fn take_all(&mut self) -> (Vec<u8>, Ending) {
        loop {
            if let Err(ending) = self.more() {
                return (self.take_ahead(), ending);
            }
        }
    }

    /// Reads a head: start line and fields.
    pub fn head(&mut self) -> Result<Message, Outcome> {
        let nothing = |inbox: &mut Self, ending| Outcome::Nothing(inbox.take_ahead(), ending);
        loop {
            if let Some(end) = head_end(&self.ahead) {
                let head: Vec<u8> = self.ahead.drain(..end).collect();
                return Ok(parse_head(&head));
            }
            if let Err(ending) = self.more() {
                return Err(nothing(self, ending));
            }
        }
    }

    /// Reads the body that follows `message`'s head. `until_close` says what a body without framing means.
    pub fn body(&mut self, message: &mut Message, until_close: bool) {
        if message.has_token("transfer-encoding", "chunked") {
            message.cut = self.chunked(message).err();
        } else if let Some(length) = message.field("content-length").and_then(|v| v.trim().parse().ok()) {
            (message.body, message.cut) = self.take(length);
        } else if until_close {
            let (body, ending) = self.take_all();
            message.body = body;
            message.cut = (ending != Ending::Closed).then_some(ending);
        }
    }

    fn chunked(&mut self, message: &mut Message) -> Result<(), Ending> {
        loop {
            let line = self.take_line()?;
            let size = String::from_utf8_lossy(&line);
            let size = size.split(';').next().unwrap_or_default().trim();
            let Ok(size) = usize::from_str_radix(size, 16) else { return Err(Ending::Broken) };
            if size == 0 {
                break;
            }
            let (chunk, cut) = self.take(size);
            message.body.extend_from_slice(&chunk);
            if let Some(ending) = cut {
                return Err(ending);
            }
            self.take_line()?;
        }
        loop {
            let line = self.take_line()?;
            if line.is_empty() {
                return Ok(());
            }
            message.trailers.push(parse_field(&line));
        }
    }

    /// Reads one response to a request of this method.
    pub fn response(&mut self, method: &str) -> Outcome {
        let mut message = match self.head() {
            Ok(message) => message,
            Err(nothing) => return nothing,
        };
        let status = message.status();
        if method != "HEAD" && status >= 200 && status != 204 && status != 304 {
            self.body(&mut message, true);
        }
        Outcome::Message(message)
    }
}

fn head_end(bytes: &[u8]) -> Option<usize> {
    let crlf = bytes.windows(4).position(|w| w == b"\r\n\r\n").map(|p| p + 4);
    let lf = bytes.windows(2).position(|w| w == b"\n\n").map(|p| p + 2);
    match (crlf, lf) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

fn parse_head(head: &[u8]) -> Message {
    let mut lines = head.split(|&b| b == b'\n').map(|l| l.strip_suffix(b"\r").unwrap_or(l));
    let start = lines.next().map(|l| String::from_utf8_lossy(l).into_owned()).unwrap_or_default();
    let fields = lines.filter(|l| !l.is_empty()).map(parse_field).collect();
    Message { start, fields, body: Vec::new(), trailers: Vec::new(), cut: None }
}

fn parse_field(line: &[u8]) -> (String, String) {
    let text = String::from_utf8_lossy(line);
    let (name, value) = text.split_once(':').unwrap_or((&text, ""));
    (name.to_ascii_lowercase(), value.trim().to_owned())
}
