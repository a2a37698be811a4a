//! A client's stream: one request and its response.

use super::{
    convert::write_response,
    guard::Signals,
    inlet::Inlet,
    send::{fault, io_error, poll_send_body, poll_trailers},
};
use crate::{
    exchange::ends::{Body, Client, Counts, End, Fault, Sink, Source},
    worker::{buffer::Buffer, turn},
};
use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream, server::SendResponse};
use http::Response;
use penstock_http::{Fields, Framing, Known, Limits, RequestHead, ResponseHead, expects_continue, state_framing};
use std::{
    io,
    rc::Rc,
    task::{Context, Poll, Waker, ready},
};

/// One stream of a client's connection.
pub(crate) struct Http2Client {
    inbound: RecvStream,
    /// DATA received and not read by the exchange yet.
    inlet: Inlet,
    trailers: Option<Fields>,
    framing: Framing,
    limits: Limits,
    respond: SendResponse<Bytes>,
    outbound: Outbound,
    signals: Rc<Signals>,
    expects_continue: bool,
    /// Whether DATA frames carry another protocol.
    tunnel: bool,
    counts: Counts,
    /// The code with which the client has reset the stream.
    reset: Option<u32>,
}

/// The state of the response.
enum Outbound {
    /// The response has not started.
    Waiting,
    /// The response's head, and its length. It is held until something follows, so that a response without a body takes one
    /// frame.
    Head(Response<()>, usize),
    Body(SendStream<Bytes>),
    /// The response has been sent completely.
    Ended,
    /// The stream was reset: the client knows that no more follows.
    Reset,
}

impl Http2Client {
    /// How the body of a request is framed, as far as its head says.
    ///
    /// # Errors
    ///
    /// If its `Content-Length` is invalid.
    pub fn framing(head: &mut RequestHead, inbound: &RecvStream) -> Result<Framing, penstock_http::Error> {
        Ok(match penstock_http::request_framing(head)? {
            _ if inbound.is_end_stream() => Framing::None,
            Framing::None if head.method() == b"CONNECT" || head.fields.has(Known::Upgrade) => Framing::None,
            Framing::None => Framing::Chunked,
            // h2 enforces the announced length (RFC 9113 section 8.1.1).
            framing => framing,
        })
    }
    pub fn new(
        head: &RequestHead,
        framing: Framing,
        inbound: RecvStream,
        respond: SendResponse<Bytes>,
        signals: Rc<Signals>,
        limits: Limits,
    ) -> Self {
        Http2Client {
            inbound,
            inlet: Inlet::default(),
            trailers: None,
            framing,
            limits,
            respond,
            outbound: Outbound::Waiting,
            signals,
            expects_continue: expects_continue(head),
            tunnel: false,
            counts: Counts { received: head.weight(), sent: 0 },
            reset: None,
        }
    }
    /// Whether the client got a complete response.
    pub fn is_answered(&self) -> bool {
        matches!(self.outbound, Outbound::Ended)
    }
    /// Whether the request has ended, or its response never will.
    pub fn has_ended(&self) -> bool {
        self.inbound.is_end_stream() || !self.is_answered()
    }
    /// Ends the stream with this reason, without a response.
    pub fn refuse(&mut self, reason: Reason) {
        self.respond.send_reset(reason);
        self.outbound = Outbound::Reset;
    }
    /// Reads and discards the rest of a request that was answered before it ended, up to `limit` bytes.
    ///
    /// Otherwise, ending the stream would send RST_STREAM with NO_ERROR right after the response. That is allowed (RFC
    /// 9113 section 8.1), but makes curl report an error instead of the response.
    pub fn poll_rest(&mut self, cx: &mut Context<'_>, limit: &mut usize) -> Poll<()> {
        while *limit > 0 && !self.has_ended() {
            let Some(Ok(data)) = ready!(self.inbound.poll_data(cx)) else { break };
            *limit = limit.saturating_sub(data.len());
            if self.inbound.flow_control().release_capacity(data.len()).is_err() {
                break;
            }
        }
        Poll::Ready(())
    }
    /// Takes received DATA out of h2, whose frames use more memory than they carry. The client's window is only
    /// reopened as the data is forwarded.
    fn absorb(&mut self, cx: &mut Context<'_>) {
        if self.framing == Framing::None && !self.tunnel {
            return;
        }
        while let Poll::Ready(Some(Ok(data))) = self.inbound.poll_data(cx) {
            turn::round();
            if self.signals.held.take(data.len()).is_err() {
                return self.refuse(Reason::ENHANCE_YOUR_CALM);
            }
            self.inlet.push(data);
        }
    }
    /// Ready when the stream was reset, whether by the client or here.
    fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let reset = match &mut self.outbound {
            Outbound::Waiting | Outbound::Head(..) => ready!(self.respond.poll_reset(cx)),
            Outbound::Body(stream) => ready!(stream.poll_reset(cx)),
            Outbound::Ended => return Poll::Pending,
            Outbound::Reset => return Poll::Ready(()),
        };
        self.reset = self.reset.or(reset.ok().map(u32::from));
        Poll::Ready(())
    }
    fn ended(&mut self) {
        self.outbound = Outbound::Ended;
        self.signals.stream_finished();
    }
}

impl Source for Http2Client {
    fn poll_body(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<Result<Body, Fault>> {
        if self.framing == Framing::None && !self.tunnel {
            // What follows a CONNECT belongs to the tunnel, if one is opened.
            return Poll::Ready(Ok(Body::End));
        }
        let before = buffer.len();
        loop {
            turn::round();
            let taken = self.inlet.move_to(buffer);
            self.counts.received += taken as u64;
            if taken > 0 {
                self.signals.held.give(taken);
                // Only now may the client send as much again: what is held here is bounded by the stream's window.
                self.inbound.flow_control().release_capacity(taken).map_err(broken)?;
                self.expects_continue = false;
            }
            if !self.inlet.is_empty() {
                return Poll::Ready(Ok(Body::grown(buffer, before)));
            }
            if self.inbound.is_end_stream() {
                return Poll::Ready(Ok(Body::End));
            }
            match self.inbound.poll_data(cx) {
                Poll::Ready(Some(Ok(data))) => {
                    self.signals.held.take(data.len())?;
                    self.inlet.push(data);
                }
                Poll::Ready(Some(Err(e))) => return Poll::Ready(Err(fault(e))),
                Poll::Ready(None) => {
                    self.trailers = ready!(poll_trailers(&mut self.inbound, &self.limits, cx))?;
                    return Poll::Ready(Ok(Body::End));
                }
                Poll::Pending if buffer.len() > before => return Poll::Ready(Ok(Body::grown(buffer, before))),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
    fn trailers(&self) -> Option<&Fields> {
        self.trailers.as_ref()
    }
}

impl Sink for Http2Client {
    fn buffer_max(&self) -> usize {
        HELD_MAX / self.signals.open().max(1)
    }
    fn may_refill(&self) -> bool {
        true
    }
    fn sends_plainly(&self) -> bool {
        true
    }
    fn poll_send(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer, end: Option<End<'_>>) -> Poll<io::Result<()>> {
        if let Outbound::Waiting | Outbound::Head(..) = self.outbound {
            // This also applies to interim responses, of which a server may send any number.
            ready!(self.signals.outlet.poll_room(cx))?;
        }
        if let Outbound::Head(..) = self.outbound {
            let Outbound::Head(response, len) = std::mem::replace(&mut self.outbound, Outbound::Reset) else {
                unreachable!("looked at a line before")
            };
            let whole = buffer.is_empty() && end.is_some_and(|end| end.trailers.is_none());
            let stream = self.respond.send_response(response, whole).map_err(io_error)?;
            self.signals.outlet.head(len);
            if whole {
                self.ended();
            } else {
                self.outbound = Outbound::Body(stream);
            }
        }
        let Outbound::Body(stream) = &mut self.outbound else {
            // Nothing more is sent of a response that is over.
            let gone = matches!(self.outbound, Outbound::Reset);
            buffer.clear();
            return Poll::Ready(if gone { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) });
        };
        if ready!(poll_send_body(stream, cx, buffer, end, &mut self.counts.sent, &self.signals))? {
            self.ended();
        }
        Poll::Ready(Ok(()))
    }
}

/// Total size of the grown buffers that the streams of one connection may hold, so that a client with many streams from
/// which it reads nothing costs no more than the initial buffers.
const HELD_MAX: usize = 256 * 1024;

impl Client for Http2Client {
    fn request_framing(&self) -> Framing {
        self.framing
    }
    fn allow_body(&mut self) -> bool {
        let expected = std::mem::take(&mut self.expects_continue);
        if expected {
            self.interim(&ResponseHead::from_status(100));
        }
        expected
    }
    fn interim(&mut self, head: &ResponseHead) {
        self.expects_continue = false;
        if let (Outbound::Waiting, Ok(response)) = (&self.outbound, write_response(head)) {
            self.signals.outlet.head(head.fields.wire_len());
            // If the stream is gone, whatever waits for it will notice.
            let _ = self.respond.send_informational(response);
        }
    }
    fn respond(&mut self, head: &mut ResponseHead, framing: Framing, _: bool) {
        self.expects_continue = false;
        state_framing(&mut head.fields, framing, false, false);
        self.counts.sent += head.fields.wire_len() as u64;
        match write_response(head) {
            Ok(response) => self.outbound = Outbound::Head(response, head.fields.wire_len()),
            Err(_) => self.refuse(Reason::INTERNAL_ERROR),
        }
    }
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.absorb(cx);
        self.poll_reset(cx)
    }
    fn poll_cancelled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_gone(cx)
    }
    fn close(&mut self) {
        self.refuse(Reason::CANCEL);
    }
    fn vanish(&mut self) {
        self.signals.vanish();
        // Wakes the connection's task, which has nothing more to send.
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
    fn reset(&mut self) -> Option<u32> {
        let _ = self.poll_reset(&mut Context::from_waker(Waker::noop()));
        self.reset
    }
    fn tunnel(&mut self) {
        self.tunnel = true;
    }
}

/// Translates an error of h2 that ends the client's connection.
fn broken(error: h2::Error) -> Fault {
    Fault::Io(io_error(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{http2::guard::Guard, worker::buffer::Buffers};
    use std::future::poll_fn;
    use tokio::{io::duplex, task::LocalSet};

    /// Runs `work` on a stream whose client has sent a request and reads nothing meanwhile; the connection's task runs
    /// alongside.
    fn with_unread_stream(work: impl AsyncFnOnce(&mut Http2Client)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            let (theirs, ours) = duplex(4096);
            let (guard, signals) = Guard::of_client(ours, Vec::new(), 4096);
            let mut windows = h2::client::Builder::new();
            windows.initial_window_size(1 << 30).initial_connection_window_size(1 << 30);
            let (client, server) = tokio::join!(windows.handshake::<_, Bytes>(theirs), h2::server::handshake(guard));
            let ((mut send, mut theirs), mut ours) = (client.unwrap(), server.unwrap());
            let asked = send.send_request(http::Request::get("http://h/").body(()).unwrap(), true).unwrap();
            let accepted = tokio::select! {
                accepted = ours.accept() => accepted,
                ended = &mut theirs => panic!("{ended:?}"),
            };
            let (request, respond) = accepted.unwrap().unwrap();
            let told = signals.clone();
            let running = tokio::task::spawn_local(poll_fn(move |cx| {
                let polled = ours.poll_closed(cx);
                told.outlet.turn_over();
                polled
            }));
            let head = RequestHead::new();
            let body = request.into_body();
            let mut stream = Http2Client::new(&head, Framing::None, body, respond, signals, Limits::default());
            work(&mut stream).await;
            drop((asked, send, theirs));
            running.abort();
        });
    }

    /// Lets the connection's task run.
    async fn turns() {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn a_client_that_reads_nothing_is_not_sent_interim_responses_without_end() {
        with_unread_stream(async |stream| {
            let mut hints = ResponseHead::from_status(103);
            hints.fields.append(b"link", b"</a.css>; rel=preload").unwrap();
            let (mut sent, mut nothing) = (0, Buffer::none());
            loop {
                stream.interim(&hints);
                turns().await;
                let polled = poll_fn(|cx| Poll::Ready(stream.poll_send(cx, &mut nothing, None))).await;
                if polled.is_pending() {
                    break;
                }
                assert!(matches!(polled, Poll::Ready(Ok(()))));
                sent += 1;
                assert!(sent < 2000, "as many as the server sends");
            }
        });
    }

    #[test]
    fn a_body_that_nobody_reads_stays_where_it_is() {
        with_unread_stream(async |stream| {
            let buffers = Buffers::of(16384);
            stream.respond(&mut ResponseHead::from_status(200), Framing::Chunked, false);
            let mut taken = 0;
            loop {
                let mut buffer = buffers.take_anyway();
                buffer.append(&[7; 16384]);
                turns().await;
                let polled = poll_fn(|cx| Poll::Ready(stream.poll_send(cx, &mut buffer, None))).await;
                if polled.is_pending() {
                    break;
                }
                assert!(matches!(polled, Poll::Ready(Ok(()))));
                taken += 16384;
                assert!(taken < 1 << 20, "a window of a gigabyte is filled");
            }
        });
    }
}
