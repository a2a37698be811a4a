//! HTTP/1.1 from the client's side: a request is bytes made once, a response is read piece by piece and not kept.

use super::failure::{Failure, When};
use super::wire::{Flow, Wire};
use super::{LoadPlan, Mode};
use penstock_http::{
    BodyReader, Connection, Limits, Parse, Persistence, Progress, ResponseHead, Step, response_framing,
};
use std::time::{Duration, Instant};

/// Heads of up to 64 KiB: what is measured is not to fail by our limits.
const LIMITS: Limits = Limits { head_bytes: 64 * 1024, fields: 257, lenient: true };

/// The request, as it is sent every time.
pub(crate) fn request(plan: &LoadPlan) -> Vec<u8> {
    let mut text = format!("{} {} HTTP/1.1\r\n", plan.method, plan.target.path);
    let given = |name: &str| plan.headers.iter().any(|(one, _)| one.eq_ignore_ascii_case(name));
    if !given("host") {
        text.push_str(&format!("Host: {}\r\n", plan.target.authority()));
    }
    if plan.mode == Mode::Request && !given("connection") {
        text.push_str("Connection: close\r\n");
    }
    for (name, value) in &plan.headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    text.into_bytes()
}

/// What was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Response {
    pub status: u16,
    pub body_bytes: u64,
    pub first_byte: Duration,
    /// Another request may follow on the connection.
    pub keep: bool,
    /// The server has closed already.
    pub closed: bool,
}

/// Reads one response after another; keeps its memory.
#[derive(Default)]
pub(crate) struct Reader {
    head: ResponseHead,
    progress: Progress,
    /// A head that has not come whole, or a line of chunked coding.
    pending: Vec<u8>,
    body: Option<BodyReader>,
    keep: bool,
    done: bool,
}

impl Reader {
    /// Sends the request, with whatever of the handshake is still to be sent, and reads to the end of the response.
    pub(crate) async fn exchange(
        &mut self,
        wire: &mut Wire,
        request: &[u8],
        method: &[u8],
    ) -> Result<Response, Failure> {
        self.start();
        wire.queue(request)?;
        let began = Instant::now();
        wire.flush(When::Response).await?;
        let mut first_byte = None;
        loop {
            let mut bad = None;
            let mut feed = |bytes: &[u8]| {
                first_byte.get_or_insert_with(|| began.elapsed());
                if bad.is_none() {
                    bad = self.feed(bytes, method).err();
                }
            };
            let flow = wire.read(When::Response, &mut feed).await?;
            if let Some(why) = bad {
                return Err(Failure::Http1(why));
            }
            if flow != Flow::More && !self.done {
                self.end()?;
            }
            if self.done {
                let keep = self.keep && flow == Flow::More;
                let body_bytes = self.body.as_ref().map_or(0, BodyReader::payload_bytes);
                let first_byte = first_byte.unwrap_or_default();
                return Ok(Response {
                    status: self.head.status(),
                    body_bytes,
                    first_byte,
                    keep,
                    closed: flow != Flow::More,
                });
            }
        }
    }

    fn start(&mut self) {
        self.progress = Progress::default();
        self.pending.clear();
        self.body = None;
        self.done = false;
    }

    fn feed(&mut self, bytes: &[u8], method: &[u8]) -> Result<(), penstock_http::Error> {
        let mut joined = std::mem::take(&mut self.pending);
        let mut bytes = if joined.is_empty() {
            bytes
        } else {
            joined.extend_from_slice(bytes);
            &joined[..]
        };
        while !self.done {
            let Some(body) = &mut self.body else {
                match self.head.read(&mut self.progress, bytes, &LIMITS)? {
                    Parse::Partial => break,
                    Parse::Complete { consumed } => bytes = &bytes[consumed..],
                }
                if !self.head.is_interim() {
                    let connection = Connection::of(&self.head.fields).persistence(self.head.version());
                    let framing = response_framing(&mut self.head, method, false)?;
                    self.keep = connection == Persistence::KeepAlive;
                    self.body = Some(BodyReader::new(framing, LIMITS));
                }
                continue;
            };
            match body.step(bytes)? {
                Step::Data(n) | Step::Framing(n) | Step::Skip(n) => bytes = &bytes[n..],
                Step::NeedMore => break,
                Step::End => self.done = true,
            }
        }
        if !bytes.is_empty() {
            // Bytes behind the end of a response belong to nothing that was asked for.
            self.keep &= !self.done;
            self.pending = bytes.to_vec();
        }
        Ok(())
    }

    /// The connection has ended: so has a body without a length.
    fn end(&mut self) -> Result<(), Failure> {
        match self.body.as_mut().map(BodyReader::finish) {
            Some(Ok(())) => {
                self.done = true;
                Ok(())
            }
            _ => Err(Failure::Closed(When::Response)),
        }
    }
}
