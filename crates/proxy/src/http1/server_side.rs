//! A server that speaks HTTP/1: writes requests to it, and reads its responses.

use super::body::{Inbound, Outbound, VERSION, give_if_empty, weight};
use crate::{
    connection::stream::{Fill, Stream, counted},
    exchange::ends::{Answered, Body, Counts, End, Fault, Sink, Source, Upstream},
    http2::websocket,
    observe::http_counters::Tally,
    worker::{buffer::Buffer, state::Worker, turn},
};
use penstock_config::model::Proxy;
use penstock_http::{
    Connection, Error, Fields, Framing, Known, Limits, Parse, Persistence, Progress, RequestHead, ResponseHead,
    Version, response_framing, state_framing,
};
use std::{
    io,
    rc::Rc,
    task::{Context, Poll, ready},
};

/// A connection to a server, carrying an exchange.
pub(crate) struct Http1Server {
    pub stream: Stream,
    tally: Tally,
    worker: Rc<Worker>,
    input: Option<Buffer>,
    /// How far the head in `input` has been parsed.
    progress: Progress,
    inbound: Inbound,
    outbound: Outbound,
    limits: Limits,
    method: Method,
    /// Whether the request asked for another protocol.
    upgrade: bool,
    /// The accept value expected from the server for a WebSocket key that was generated here rather than by the client.
    proof: Option<String>,
    answered: Answered,
    /// Whether the server allows another exchange on this connection.
    persistent: bool,
    /// Whether the whole request has been sent.
    requested: bool,
    /// Whether the connection carries another protocol now.
    tunnel: bool,
    received: u64,
}

/// The request methods on which a response's framing depends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Method {
    Head,
    Connect,
    Other,
}

impl Http1Server {
    /// A connection to a server of `proxy`.
    pub fn new(stream: Stream, tally: Tally, worker: &Rc<Worker>, limits: Limits, proxy: &Proxy) -> Self {
        let case = proxy.options.h1_case_adjust_server.then(|| worker.shared.letter_case.clone());
        Http1Server {
            stream,
            tally,
            worker: worker.clone(),
            input: None,
            progress: Progress::default(),
            inbound: Inbound::Ended,
            outbound: Outbound::new(case),
            limits,
            method: Method::Other,
            upgrade: false,
            proof: None,
            answered: Answered::Nothing,
            persistent: true,
            requested: false,
            tunnel: false,
            received: 0,
        }
    }
    /// The connection, if it can carry another exchange: both messages are complete, and the server sent nothing more.
    pub fn into_idle(mut self) -> Option<(Stream, Tally)> {
        let reusable = self.persistent
            && self.requested
            && self.answered == Answered::Head
            && self.inbound.is_ended()
            && self.outbound.is_idle()
            && self.input.is_none();
        self.give_back();
        if !reusable {
            self.stream.socket().hang_up_on_close();
        }
        reusable.then_some((self.stream, self.tally))
    }
    /// Closes the connection.
    pub fn close(mut self) {
        self.give_back();
        self.stream.socket().hang_up_on_close();
    }
    /// Returns the buffer to the worker.
    fn give_back(&mut self) {
        if let Some(input) = self.input.take() {
            self.worker.buffers.give(input);
        }
    }
}

impl Source for Http1Server {
    fn poll_body(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<Result<Body, Fault>> {
        let before = buffer.len();
        let result = counted(&self.tally, || {
            self.inbound.poll_body(cx, &mut self.stream, &mut self.input, &self.worker.buffers, buffer)
        });
        self.received += (buffer.len() - before) as u64;
        if matches!(result, Poll::Ready(Ok(Body::End))) {
            self.received += self.inbound.end_weight();
        }
        result
    }
    fn trailers(&self) -> Option<&Fields> {
        self.inbound.trailers()
    }
}

impl Sink for Http1Server {
    fn taken(&self) -> u64 {
        self.outbound.sent.saturating_sub(self.stream.socket().untaken() as u64)
    }
    fn poll_send(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer, end: Option<End<'_>>) -> Poll<io::Result<()>> {
        ready!(counted(&self.tally, || {
            self.outbound.poll_send(cx, &mut self.stream, &self.worker.buffers, buffer, end)
        }))?;
        self.requested |= end.is_some();
        if self.tunnel && end.is_some() {
            return self.stream.poll_end(cx);
        }
        Poll::Ready(Ok(()))
    }
}

impl Upstream for Http1Server {
    fn request(&mut self, head: &mut RequestHead, framing: Framing) {
        self.method = match head.method() {
            b"HEAD" => Method::Head,
            b"CONNECT" => Method::Connect,
            _ => Method::Other,
        };
        let reads_chunks = head.version() != Version::Http10;
        let framing = state_framing(&mut head.fields, framing, reads_chunks, true);
        let chunked = framing == Framing::Chunked;
        if !matches!(framing, Framing::None | Framing::Length(0)) {
            // The other protocol would start after a body that the server may not have read (RFC 9110 section 7.8);
            // like HAProxy, we drop the upgrade from such a request.
            head.fields.remove_known(Known::Upgrade);
        }
        let connection = Connection::of(&head.fields);
        (self.persistent, self.upgrade) = (!connection.close, connection.upgrade && head.fields.has(Known::Upgrade));
        if self.upgrade && head.version() == Version::Http2 && websocket::is_asked_for(head) {
            // The client speaks RFC 8441 and never sees this value.
            self.proof = head.fields.known(Known::SecWebsocketKey).map(websocket::accept);
        }
        self.outbound.start(&self.worker.buffers, chunked, |out| head.write_to(out));
    }
    fn poll_head(&mut self, cx: &mut Context<'_>, head: &mut ResponseHead) -> Poll<Result<Framing, Fault>> {
        loop {
            turn::round();
            if let Some(input) = &mut self.input {
                match head.read(&mut self.progress, input.data(), &self.limits)? {
                    Parse::Complete { consumed } => {
                        input.consume(consumed);
                        self.answered = Answered::Head;
                        // A transfer coding overrides a length, which is then not logged.
                        if head.fields.has(Known::TransferEncoding) {
                            head.fields.remove_known(Known::ContentLength);
                        }
                        self.received += weight(VERSION + 3 + head.reason().len(), &head.fields);
                        give_if_empty(&mut self.input, &self.worker.buffers);
                        return Poll::Ready(self.begin(head).map_err(Fault::Invalid));
                    }
                    Parse::Partial => input.compact(),
                }
            } else {
                // No buffer is held while the server is thinking.
                ready!(self.stream.poll_read_ready(cx))?;
            }
            let input = self.worker.buffers.hold_input(&mut self.input)?;
            let read = counted(&self.tally, || self.stream.poll_fill(cx, input, usize::MAX));
            if !matches!(read, Poll::Ready(Ok(Fill::Bytes(_)))) {
                give_if_empty(&mut self.input, &self.worker.buffers);
            }
            match ready!(read)? {
                Fill::Bytes(_) => self.answered = self.answered.max(Answered::Part),
                Fill::End => return Poll::Ready(Err(Fault::Closed)),
                // The head is longer than a buffer.
                Fill::Full => return Poll::Ready(Err(Fault::Invalid(Error::TooLarge))),
            }
        }
    }
    fn answered(&self) -> Answered {
        self.answered
    }
    fn unread(&self) -> &[u8] {
        self.input.as_ref().map_or(&[], Buffer::data)
    }
    fn close_after(&mut self) {
        self.persistent = false;
    }
    fn tunnel(&mut self) {
        self.inbound = Inbound::UntilClose;
        self.outbound.tunnel();
        (self.persistent, self.tunnel) = (false, true);
    }
    fn is_untouched(&self) -> bool {
        self.outbound.sent == 0
    }
    fn counts(&self) -> Counts {
        Counts { received: self.received, sent: self.outbound.sent }
    }
}

impl Http1Server {
    fn begin(&mut self, head: &mut ResponseHead) -> Result<Framing, Error> {
        if head.is_interim() {
            return Ok(Framing::None);
        }
        let method: &[u8] = match self.method {
            Method::Head => b"HEAD",
            Method::Connect => b"CONNECT",
            Method::Other => b"",
        };
        let framing = response_framing(head, method, self.upgrade)?;
        let persistence = Connection::of(&head.fields).persistence(head.version());
        self.persistent &= persistence == Persistence::KeepAlive && framing != Framing::UntilClose;
        if head.version() == Version::Http10 && head.fields.has(Known::TransferEncoding) {
            return Err(Error::CodingVersion);
        }
        let answer = head.fields.known(Known::SecWebsocketAccept);
        if framing == Framing::Tunnel && self.proof.as_ref().is_some_and(|proof| answer != Some(proof.as_bytes())) {
            return Err(Error::WebSocketProof);
        }
        self.inbound = Inbound::new(framing, self.limits);
        self.inbound.check(self.input.as_ref())?;
        Ok(framing)
    }
}
