//! A client that speaks HTTP/1: reads its requests, one after the other, and writes the responses.

use super::body::{Inbound, Outbound, VERSION, give_if_empty, weight};
use crate::{
    connection::Conn,
    connection::stream::{Fill, Stream, counted},
    exchange::ends::{Body, Client, Counts, End, Fault, SKIPPED_MAX, Sink, Source},
    observe::http_counters::{Protocol, Side, Tally},
    worker::{buffer::Buffer, state::Worker, turn},
};
use penstock_http::{
    Connection, Fields, Framing, Known, Limits, Parse, Persistence, Progress, RequestHead, ResponseHead, Version,
    expects_continue, request_framing, set_connection, state_framing,
};
use std::{
    io,
    rc::Rc,
    task::{Context, Poll, ready},
};

/// A client's connection, between and during its exchanges. It holds no buffer while idle.
pub(crate) struct Http1Client {
    pub stream: Stream,
    tally: Tally,
    worker: Rc<Worker>,
    /// Bytes read and not used yet: part of a head, the start of a body, or the next request.
    input: Option<Buffer>,
    /// How far the head in `input` has been parsed.
    progress: Progress,
    /// Set when nothing more can be read.
    ended: Option<Ended>,
    framing: Framing,
    inbound: Inbound,
    outbound: Outbound,
    /// How many bytes were sent for earlier requests.
    sent_before: u64,
    limits: Limits,
    request_version: Version,
    /// Whether the client allows another request on this connection.
    persistent: bool,
    /// Whether the client waits for `100 Continue`.
    expects_continue: bool,
    /// Whether the rest of the body is read after the response.
    reads_on: bool,
    after: After,
    /// Whether the end of the response is the end of the connection.
    ends_with_close: bool,
    /// Whether the connection carries another protocol now.
    tunnel: bool,
    received: u64,
}

/// What follows the response.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum After {
    /// Perhaps another request.
    Request,
    /// The end of the connection: the response says that it is the last, or ends with the connection.
    Close,
    /// An end that the client must notice: its response was cut short.
    Abort,
}

/// Why reading ended.
#[derive(Clone, Copy)]
enum Ended {
    Closed,
    Failed,
}

/// The result of waiting for a request.
#[derive(Debug)]
pub(crate) enum Received {
    /// The request's head is complete, and its body may follow.
    Request,
    /// The client closed; `partial` if part of a request had arrived.
    Closed { partial: bool },
    /// The client's socket failed; `partial` as for `Closed`.
    Failed { partial: bool },
    /// The client sent something that is not a valid request.
    Invalid(penstock_http::Error),
}

impl Http1Client {
    /// The client of a connection, of which `input` has been read already.
    pub fn new(stream: Stream, conn: &Conn<'_>, input: Option<Buffer>) -> Self {
        let (worker, limits) = (conn.worker, conn.limits());
        let case = conn.proxy().options.h1_case_adjust_client.then(|| worker.shared.letter_case.clone());
        let tally = worker.tally(conn.frontend, Side::Frontend, Protocol::Http1);
        Http1Client {
            stream,
            tally,
            worker: worker.clone(),
            input,
            progress: Progress::default(),
            ended: None,
            framing: Framing::None,
            inbound: Inbound::Ended,
            outbound: Outbound::new(case),
            sent_before: 0,
            limits,
            request_version: Version::Http11,
            persistent: true,
            expects_continue: false,
            reads_on: false,
            after: After::Request,
            ends_with_close: false,
            tunnel: false,
            received: 0,
        }
    }
    /// Ready once the next request's first bytes, or the end, have been read; no buffer is held until then.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.input.is_some() || self.ended.is_some() {
            return Poll::Ready(());
        }
        // An error will be found again by reading.
        let _ = ready!(self.stream.poll_read_ready(cx));
        self.poll_fill(cx).map(drop)
    }
    /// Reads once, after what `input` holds; remembers how reading ended, if it did.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Fill> {
        let Ok(input) = self.worker.buffers.hold_input(&mut self.input) else {
            self.ended = Some(Ended::Failed);
            return Poll::Ready(Fill::End);
        };
        let read = counted(&self.tally, || self.stream.poll_fill(cx, input, usize::MAX));
        give_if_empty(&mut self.input, &self.worker.buffers);
        self.ended = match ready!(read) {
            Ok(fill @ (Fill::Bytes(_) | Fill::Full)) => return Poll::Ready(fill),
            Ok(Fill::End) => Some(Ended::Closed),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Some(Ended::Closed),
            Err(_) => Some(Ended::Failed),
        };
        Poll::Ready(Fill::End)
    }
    /// Reads more behind what has been read; false once nothing more will come, or nothing more has room.
    pub fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if self.ended.is_some() {
            return Poll::Ready(false);
        }
        self.poll_fill(cx).map(|read| matches!(read, Fill::Bytes(_)))
    }
    /// Whether bytes of the next request have been read already.
    pub fn has_input(&self) -> bool {
        self.input.is_some()
    }
    /// Reads a request's head into `head`.
    pub fn poll_request(&mut self, cx: &mut Context<'_>, head: &mut RequestHead) -> Poll<Received> {
        loop {
            turn::round();
            if let Some(input) = &mut self.input {
                match head.read(&mut self.progress, input.data(), &self.limits) {
                    Ok(Parse::Complete { consumed }) => {
                        input.consume(consumed);
                        self.received = weight(head.method().len() + head.target().len() + VERSION, &head.fields);
                        give_if_empty(&mut self.input, &self.worker.buffers);
                        return Poll::Ready(match self.begin(head) {
                            Ok(()) => Received::Request,
                            Err(e) => Received::Invalid(e),
                        });
                    }
                    Ok(Parse::Partial) => input.compact(),
                    Err(e) => return Poll::Ready(Received::Invalid(e)),
                }
            }
            let partial = self.input.is_some();
            match self.ended {
                Some(Ended::Closed) => return Poll::Ready(Received::Closed { partial }),
                Some(Ended::Failed) => return Poll::Ready(Received::Failed { partial }),
                None => {}
            }
            if ready!(self.poll_fill(cx)) == Fill::Full {
                // The head is longer than a buffer.
                return Poll::Ready(Received::Invalid(penstock_http::Error::TooLarge));
            }
        }
    }
    /// Prepares for the exchange that the head opens.
    fn begin(&mut self, head: &mut RequestHead) -> Result<(), penstock_http::Error> {
        self.framing = request_framing(head)?;
        self.inbound = Inbound::new(self.framing, self.limits);
        self.inbound.check(self.input.as_ref())?;
        let connection = Connection::of(&head.fields);
        self.request_version = head.version();
        self.persistent = connection.persistence(head.version()) == Persistence::KeepAlive;
        self.expects_continue = self.framing != Framing::None && expects_continue(head);
        (self.after, self.ends_with_close, self.reads_on) = (After::Request, false, false);
        self.sent_before += std::mem::take(&mut self.outbound.sent);
        Ok(())
    }
    /// The bytes of an incomplete or invalid request, for the error snapshot and the log.
    pub fn partial(&self) -> &[u8] {
        self.input.as_ref().map_or(&[], Buffer::data)
    }
    /// The connection and the bytes read from it, for the reader of another protocol.
    pub fn into_parts(mut self) -> (Stream, Vec<u8>) {
        let begun = self.partial().to_vec();
        self.give_back();
        (self.stream, begun)
    }
    /// Returns the buffer to the worker; no request follows.
    pub fn give_back(&mut self) {
        if let Some(input) = self.input.take() {
            self.worker.buffers.give(input);
        }
    }
    /// Whether the next request can be read: both messages of the last exchange are complete.
    pub fn is_reusable(&self) -> bool {
        self.persistent && self.after == After::Request && self.inbound.is_ended() && self.outbound.is_idle()
    }
}

impl Http1Client {
    /// Whether the connection has been given up.
    pub fn is_aborted(&self) -> bool {
        self.after == After::Abort
    }
    /// Whether the client may still be sending a body that will not be read.
    pub fn owes_body(&self) -> bool {
        !self.inbound.is_ended()
    }
}

impl Source for Http1Client {
    fn poll_body(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<Result<Body, Fault>> {
        let before = buffer.len();
        let result = counted(&self.tally, || {
            self.inbound.poll_body(cx, &mut self.stream, &mut self.input, &self.worker.buffers, buffer)
        });
        self.received += (buffer.len() - before) as u64;
        if matches!(result, Poll::Ready(Ok(Body::End))) {
            self.received += self.inbound.end_weight();
        }
        if matches!(result, Poll::Ready(Ok(_))) {
            // Sending it has become pointless.
            self.expects_continue = false;
        }
        result
    }
    fn trailers(&self) -> Option<&Fields> {
        self.inbound.trailers()
    }
}

impl Sink for Http1Client {
    fn taken(&self) -> u64 {
        (self.sent_before + self.outbound.sent).saturating_sub(self.stream.socket().untaken() as u64)
    }
    fn sends_plainly(&self) -> bool {
        self.outbound.is_plain()
    }
    fn poll_send(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer, end: Option<End<'_>>) -> Poll<io::Result<()>> {
        let sent =
            counted(&self.tally, || self.outbound.poll_send(cx, &mut self.stream, &self.worker.buffers, buffer, end));
        if let (Poll::Pending, Some(input)) = (&sent, &mut self.input) {
            // The next requests wait until the client has taken this response, which may be long.
            self.worker.buffers.shrink(input);
        }
        ready!(sent)?;
        if self.tunnel && end.is_some() {
            return self.stream.poll_end(cx);
        }
        Poll::Ready(Ok(()))
    }
}

impl Client for Http1Client {
    fn request_framing(&self) -> Framing {
        self.framing
    }
    fn allow_body(&mut self) -> bool {
        let expected = std::mem::take(&mut self.expects_continue);
        if expected {
            self.outbound.start(&self.worker.buffers, false, |out| {
                out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
            });
        }
        expected
    }
    fn interim(&mut self, head: &ResponseHead) {
        // RFC 9110 section 15.2: an HTTP/1.0 client does not understand interim responses.
        if self.request_version != Version::Http10 {
            self.expects_continue = false;
            self.outbound.start(&self.worker.buffers, false, |out| head.write_to(out));
        }
    }
    fn respond(&mut self, head: &mut ResponseHead, framing: Framing, last: bool) {
        self.expects_continue = false;
        // Neither an HTTP/1.0 client nor the reader of such a response understands chunks, so the end of the connection
        // ends the body.
        let reads_chunks = self.request_version != Version::Http10 && head.version() != Version::Http10;
        let framing = state_framing(&mut head.fields, framing, reads_chunks, false);
        let chunked = framing == Framing::Chunked;
        self.ends_with_close = matches!(framing, Framing::UntilClose | Framing::Tunnel);
        // The rest of a body that will not be read comes before the next request.
        let unread = !self.inbound.is_ended() && !self.reads_on;
        if last || self.ends_with_close || !self.persistent || unread {
            self.after = self.after.max(After::Close);
        }
        if framing != Framing::Tunnel {
            let persistence = if self.after == After::Request { Persistence::KeepAlive } else { Persistence::Close };
            let version = head.version();
            set_connection(&mut head.fields, version, self.request_version, persistence, false);
            if head.status() == 426 && head.fields.has(Known::Upgrade) {
                let close = head.fields.known(Known::Connection).map(<[u8]>::to_vec);
                set(
                    head,
                    "connection",
                    &close.map_or(b"upgrade".to_vec(), |close| [&close, &b", upgrade"[..]].concat()),
                );
            }
        }
        self.outbound.start(&self.worker.buffers, chunked, |out| head.write_to(out));
    }
    fn reads_on(&mut self) -> bool {
        // A client that waits for `100 Continue` may send the body or not (RFC 9110 section 10.1.1).
        let is_short = matches!(self.framing, Framing::Length(length) if length <= SKIPPED_MAX);
        self.reads_on = is_short && self.persistent && !self.expects_continue;
        self.reads_on
    }
    fn skip_body(&mut self) {
        self.received += self.inbound.skip(&mut self.input, &self.worker.buffers);
    }
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Bytes are the next request, which has to wait; in that case the end is not looked for.
        while self.input.is_none() {
            if self.ended.is_some() {
                return Poll::Ready(());
            }
            ready!(self.poll_ready(cx));
        }
        Poll::Pending
    }
    fn close(&mut self) {
        self.after = self.after.max(After::Close);
    }
    fn vanish(&mut self) {
        self.after = After::Abort;
        self.stream.socket().vanish_on_close();
    }
    fn abort(&mut self) {
        self.after = After::Abort;
        if self.ends_with_close {
            // The message has neither a length nor a last chunk that could be missed: only a reset shows the error.
            self.stream.socket().reset_on_close();
        }
    }
    fn counts(&self) -> Counts {
        Counts { received: self.received, sent: self.outbound.sent }
    }
    fn tunnel(&mut self) {
        self.inbound = Inbound::UntilClose;
        self.after = self.after.max(After::Close);
        (self.ends_with_close, self.tunnel) = (true, true);
    }
}

fn set(head: &mut ResponseHead, name: &str, value: &[u8]) {
    head.fields.set(name.as_bytes(), value).expect("a name and a value of ours are well formed");
}
