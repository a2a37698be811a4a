//! A client's stream: one request and its response.

use super::{
    convert::{read_trailers, write_fields, write_response},
    guard::Signals,
};
use crate::{
    buffer::Buffer,
    message::{Body, Client, Counts, End, Fault, Sink, Source},
};
use bytes::{Buf, Bytes};
use h2::{Reason, RecvStream, SendStream, server::SendResponse};
use http::Response;
use penstock_http::{Fields, Framing, Known, RequestHead, ResponseHead, expects_continue};
use std::{
    io,
    rc::Rc,
    task::{Context, Poll, ready},
};

/// One stream of a client's connection.
pub(crate) struct Http2Client {
    inbound: RecvStream,
    /// DATA that did not fit in the buffer.
    rest: Bytes,
    trailers: Option<Fields>,
    framing: Framing,
    respond: SendResponse<Bytes>,
    outbound: Outbound,
    signals: Rc<Signals>,
    expects_continue: bool,
    /// DATA frames carry the bytes of another protocol.
    tunnel: bool,
    counts: Counts,
}

/// How far the response is.
enum Outbound {
    /// There is none yet.
    Waiting,
    /// Its head waits for what follows it, so that a response without a body is one frame.
    Head(Response<()>),
    Body(SendStream<Bytes>),
    /// All of it was sent.
    Ended,
    /// The client was told that there will be no more.
    Reset,
}

impl Http2Client {
    /// How the body of a request is framed, as far as its head says.
    ///
    /// # Errors
    /// When its `Content-Length` is none.
    pub fn framing(head: &RequestHead, inbound: &RecvStream) -> Result<Framing, penstock_http::Error> {
        Ok(match penstock_http::request_framing(head)? {
            _ if inbound.is_end_stream() => Framing::None,
            Framing::None if head.method() == b"CONNECT" || head.fields.has(Known::Upgrade) => Framing::None,
            Framing::None => Framing::Chunked,
            // h2 holds the stream to it (RFC 9113 section 8.1.1).
            framing => framing,
        })
    }
    pub fn new(
        head: &RequestHead,
        framing: Framing,
        inbound: RecvStream,
        respond: SendResponse<Bytes>,
        signals: Rc<Signals>,
    ) -> Self {
        Http2Client {
            inbound,
            rest: Bytes::new(),
            trailers: None,
            framing,
            respond,
            outbound: Outbound::Waiting,
            signals,
            expects_continue: expects_continue(head),
            tunnel: false,
            counts: Counts { received: head.fields.wire_len() as u64, sent: 0 },
        }
    }
    /// Whether the client got a whole response.
    pub fn is_answered(&self) -> bool {
        matches!(self.outbound, Outbound::Ended)
    }
    /// Ends the stream with a reason of its own, when nothing was answered.
    pub fn refuse(&mut self, reason: Reason) {
        self.respond.send_reset(reason);
        self.outbound = Outbound::Reset;
    }
    fn ended(&mut self) {
        self.outbound = Outbound::Ended;
        self.signals.stream_finished();
    }
}

impl Source for Http2Client {
    fn poll_body(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<Result<Body, Fault>> {
        if self.framing == Framing::None && !self.tunnel {
            // What follows a CONNECT belongs to the tunnel, if there will be one.
            return Poll::Ready(Ok(Body::End));
        }
        let before = buffer.len();
        loop {
            let taken = buffer.append(&self.rest);
            self.rest.advance(taken);
            self.counts.received += taken as u64;
            if taken > 0 {
                // The client may send as much again only now: what waits here is bounded by the stream's window.
                self.inbound.flow_control().release_capacity(taken).map_err(broken)?;
                self.expects_continue = false;
            }
            if !self.rest.is_empty() {
                return Poll::Ready(Ok(Body::More));
            }
            if self.inbound.is_end_stream() {
                return Poll::Ready(Ok(Body::End));
            }
            match self.inbound.poll_data(cx) {
                Poll::Ready(Some(Ok(data))) => self.rest = data,
                Poll::Ready(Some(Err(e))) => return Poll::Ready(Err(fault(e))),
                Poll::Ready(None) => match ready!(self.inbound.poll_trailers(cx)) {
                    Ok(trailers) => {
                        self.trailers = trailers.as_ref().map(read_trailers);
                        return Poll::Ready(Ok(Body::End));
                    }
                    Err(e) => return Poll::Ready(Err(fault(e))),
                },
                Poll::Pending if buffer.len() > before => return Poll::Ready(Ok(Body::More)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
    fn trailers(&self) -> Option<&Fields> {
        self.trailers.as_ref()
    }
}

impl Sink for Http2Client {
    fn poll_send(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer, end: Option<End<'_>>) -> Poll<io::Result<()>> {
        if let Outbound::Head(_) = self.outbound {
            let Outbound::Head(response) = std::mem::replace(&mut self.outbound, Outbound::Reset) else {
                unreachable!("looked at a line before")
            };
            let whole = buffer.is_empty() && end.is_some_and(|end| end.trailers.is_none());
            let stream = self.respond.send_response(response, whole).map_err(io_error)?;
            if whole {
                self.ended();
            } else {
                self.outbound = Outbound::Body(stream);
            }
        }
        let Outbound::Body(stream) = &mut self.outbound else {
            // What would follow a response that is over is not sent.
            let gone = matches!(self.outbound, Outbound::Reset);
            buffer.clear();
            return Poll::Ready(if gone { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) });
        };
        if ready!(poll_send_body(stream, cx, buffer, end, &mut self.counts.sent))? {
            self.ended();
        }
        Poll::Ready(Ok(()))
    }
}

/// Sends payload as the peer's windows allow; ready once none is left, with whether the stream is ended by it.
pub(super) fn poll_send_body(
    stream: &mut SendStream<Bytes>,
    cx: &mut Context<'_>,
    buffer: &mut Buffer,
    end: Option<End<'_>>,
    sent: &mut u64,
) -> Poll<io::Result<bool>> {
    while !buffer.is_empty() {
        stream.reserve_capacity(buffer.len());
        let room = match stream.capacity() {
            0 => match ready!(stream.poll_capacity(cx)) {
                Some(Ok(room)) => room,
                Some(Err(e)) => return Poll::Ready(Err(io_error(e))),
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            },
            room => room,
        };
        let len = room.min(buffer.len());
        if len == 0 {
            continue;
        }
        let last = len == buffer.len() && end.is_some_and(|end| end.trailers.is_none());
        stream.send_data(Bytes::copy_from_slice(&buffer.data()[..len]), last).map_err(io_error)?;
        buffer.consume(len);
        *sent += len as u64;
        if last {
            return Poll::Ready(Ok(true));
        }
    }
    let Some(end) = end else { return Poll::Ready(Ok(false)) };
    match end.trailers.map(|fields| write_fields(fields, |_| false)) {
        Some(Ok(trailers)) if !trailers.is_empty() => stream.send_trailers(trailers).map_err(io_error)?,
        _ => stream.send_data(Bytes::new(), true).map_err(io_error)?,
    }
    Poll::Ready(Ok(true))
}

impl Client for Http2Client {
    fn request_framing(&self) -> Framing {
        self.framing
    }
    fn allow_body(&mut self) {
        if std::mem::take(&mut self.expects_continue) {
            self.interim(&ResponseHead::from_status(100));
        }
    }
    fn interim(&mut self, head: &ResponseHead) {
        self.expects_continue = false;
        if let (Outbound::Waiting, Ok(response)) = (&self.outbound, write_response(head)) {
            // A stream that is gone is noticed by who waits for it.
            let _ = self.respond.send_informational(response);
        }
    }
    fn respond(&mut self, head: &mut ResponseHead, _: Framing, _: bool) {
        self.expects_continue = false;
        self.counts.sent += head.fields.wire_len() as u64;
        match write_response(head) {
            Ok(response) => self.outbound = Outbound::Head(response),
            Err(_) => self.refuse(Reason::INTERNAL_ERROR),
        }
    }
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.outbound {
            Outbound::Waiting | Outbound::Head(_) => self.respond.poll_reset(cx).map(drop),
            Outbound::Body(stream) => stream.poll_reset(cx).map(drop),
            Outbound::Ended => Poll::Pending,
            Outbound::Reset => Poll::Ready(()),
        }
    }
    fn poll_cancelled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_gone(cx)
    }
    fn close(&mut self) {
        self.refuse(Reason::CANCEL);
    }
    fn vanish(&mut self) {
        self.refuse(Reason::CANCEL);
    }
    fn abort(&mut self) {
        if !self.is_answered() {
            self.refuse(Reason::INTERNAL_ERROR);
        }
    }
    fn counts(&self) -> Counts {
        self.counts
    }
    fn tunnel(&mut self) {
        self.tunnel = true;
    }
}

/// What h2 says of a stream, as an end of an exchange says it.
pub(super) fn fault(error: h2::Error) -> Fault {
    if error.is_io() { Fault::Io(io_error(error)) } else { Fault::Closed }
}

fn broken(error: h2::Error) -> Fault {
    Fault::Io(io_error(error))
}

pub(super) fn io_error(error: h2::Error) -> io::Error {
    match error.is_io() {
        true => error.into_io().unwrap_or_else(|| io::ErrorKind::BrokenPipe.into()),
        false => io::Error::new(io::ErrorKind::BrokenPipe, error),
    }
}
