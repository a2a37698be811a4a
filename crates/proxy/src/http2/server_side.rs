//! The server's side of one HTTP/2 exchange: writes the request and reads the response.

use super::{
    convert::{read_response, write_request},
    mux::Mux,
    send::{fault, io_error, poll_send_body, poll_trailers},
    websocket,
};
use crate::{
    exchange::ends::{Answered, Body, Counts, End, Fault, Sink, Source, Upstream},
    http1::body::{VERSION, weight},
    worker::{buffer::Buffer, turn},
};
use bytes::{Buf, Bytes};
use h2::{
    Reason, RecvStream, SendStream,
    client::{ResponseFuture, SendRequest},
};
use http::Request;
use penstock_backends::reuse::Session;
use penstock_http::{Error, Fields, Framing, Known, Limits, RequestHead, ResponseHead, state_framing};
use penstock_rules::StreamFacts;
use std::{
    future::Future,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

/// One exchange on a server's connection.
pub(crate) struct Http2Server {
    mux: Rc<Mux>,
    send: SendRequest<Bytes>,
    outbound: Outbound,
    response: Option<ResponseFuture>,
    inbound: Option<RecvStream>,
    rest: Bytes,
    trailers: Option<Fields>,
    limits: Limits,
    head_request: bool,
    /// The tunnel that the client wants. Until it is opened or refused, the request is not ended, since that would end
    /// the tunnel.
    wanted: Option<Wanted>,
    answered: Answered,
    /// Whether the server has said that it did not take the request up.
    refused: bool,
    counts: Counts,
    stream: StreamFacts,
}

/// A tunnel that a request asks for.
enum Wanted {
    /// By CONNECT.
    Connect,
    /// A WebSocket, by the extended CONNECT of RFC 8441, for a client with this key.
    WebSocket(Vec<u8>),
}

enum Outbound {
    /// There is no request yet, or it cannot be sent for this reason.
    None(Option<Error>),
    /// The request's head, held until something follows, so that a request without a body takes one frame.
    Head(Request<()>),
    Body(SendStream<Bytes>),
    Ended,
}

impl Http2Server {
    pub fn new(mux: Rc<Mux>, session: Session, limits: Limits) -> Self {
        mux.enter(session);
        Http2Server {
            send: mux.send.clone(),
            mux,
            outbound: Outbound::None(None),
            response: None,
            inbound: None,
            rest: Bytes::new(),
            trailers: None,
            limits,
            head_request: false,
            wanted: None,
            answered: Answered::Nothing,
            refused: false,
            counts: Counts::default(),
            stream: StreamFacts::default(),
        }
    }
    fn begin(&mut self, inbound: RecvStream, head: &mut ResponseHead) -> Result<Framing, Error> {
        match self.wanted.take() {
            Some(Wanted::WebSocket(key)) if head.status() == 200 => {
                // For an HTTP/1.1 client this completes its upgrade; for an HTTP/2 client it is turned back into a 200.
                head.set_status(101);
                head.fields.set(b"connection", b"upgrade")?;
                head.fields.set(b"upgrade", b"websocket")?;
                head.fields.set(b"sec-websocket-accept", websocket::accept(&key).as_bytes())?;
                self.inbound = Some(inbound);
                return Ok(Framing::Tunnel);
            }
            Some(Wanted::Connect) if matches!(head.status(), 200..300) => {
                // RFC 9110 section 9.3.6: neither field has a meaning here.
                head.fields.remove(b"content-length");
                head.fields.remove(b"transfer-encoding");
                self.inbound = Some(inbound);
                return Ok(Framing::Tunnel);
            }
            _ => {}
        }
        let has_none = self.head_request || matches!(head.status(), 204 | 304);
        let bodiless = has_none || inbound.is_end_stream();
        let framing = match head.fields.known(Known::ContentLength) {
            // h2 enforces the length; its value is checked like any other.
            Some(_) => match penstock_http::response_framing(head, b"GET", false)? {
                _ if bodiless => Framing::None,
                framing => framing,
            },
            None if bodiless => {
                if !has_none {
                    head.fields.append(b"content-length", b"0")?;
                }
                Framing::None
            }
            None => {
                // For HTTP/1 clients only; HTTP/2 clients never see it.
                head.fields.append(b"transfer-encoding", b"chunked")?;
                Framing::Chunked
            }
        };
        // If a body follows a head that must not have one, it is not read: an HTTP/1 client would take it for the
        // response to its next request.
        self.inbound = (framing != Framing::None).then_some(inbound);
        Ok(framing)
    }
}

impl Drop for Http2Server {
    fn drop(&mut self) {
        self.mux.leave(self.answered == Answered::Head);
        if let Outbound::Body(stream) = &mut self.outbound {
            stream.send_reset(Reason::CANCEL);
        }
    }
}

impl Source for Http2Server {
    fn poll_body(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<Result<Body, Fault>> {
        let before = buffer.len();
        let Some(inbound) = &mut self.inbound else { return Poll::Ready(Ok(Body::End)) };
        loop {
            turn::round();
            let taken = buffer.append(&self.rest);
            self.rest.advance(taken);
            self.counts.received += taken as u64;
            if taken > 0 {
                inbound.flow_control().release_capacity(taken).map_err(fault)?;
            }
            if !self.rest.is_empty() {
                return Poll::Ready(Ok(Body::grown(buffer, before)));
            }
            if inbound.is_end_stream() {
                return Poll::Ready(Ok(Body::End));
            }
            match inbound.poll_data(cx) {
                Poll::Ready(Some(Ok(data))) => self.rest = data,
                Poll::Ready(Some(Err(e))) => {
                    note_reset(&mut self.stream, &e);
                    return Poll::Ready(Err(fault(e)));
                }
                Poll::Ready(None) => {
                    self.trailers = ready!(poll_trailers(inbound, &self.limits, cx))?;
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

impl Sink for Http2Server {
    fn may_refill(&self) -> bool {
        true
    }
    fn poll_send(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer, end: Option<End<'_>>) -> Poll<io::Result<()>> {
        if let Outbound::Head(_) = self.outbound {
            // Exchanges beyond the server's limit wait here for their turn.
            ready!(self.send.poll_ready(cx)).map_err(io_error)?;
            let Outbound::Head(request) = std::mem::replace(&mut self.outbound, Outbound::Ended) else {
                unreachable!("looked at a line before")
            };
            let whole = self.wanted.is_none() && buffer.is_empty() && end.is_some_and(|end| end.trailers.is_none());
            let (response, stream) = self.send.send_request(request, whole).map_err(io_error)?;
            self.stream.id = u32::from(response.stream_id()).into();
            self.response = Some(response);
            self.mux.signals.asked();
            if !whole {
                self.outbound = Outbound::Body(stream);
            }
        }
        match &mut self.outbound {
            Outbound::Body(_) if self.wanted.is_some() && buffer.is_empty() => Poll::Ready(Ok(())),
            Outbound::Body(stream) => {
                if ready!(poll_send_body(stream, cx, buffer, end, &mut self.counts.sent, &self.mux.signals))? {
                    self.outbound = Outbound::Ended;
                }
                Poll::Ready(Ok(()))
            }
            Outbound::Ended => {
                buffer.clear();
                Poll::Ready(Ok(()))
            }
            Outbound::None(_) | Outbound::Head(_) => Poll::Ready(Err(io::ErrorKind::InvalidInput.into())),
        }
    }
}

impl Upstream for Http2Server {
    fn request(&mut self, head: &mut RequestHead, framing: Framing) {
        state_framing(&mut head.fields, framing, false, true);
        self.head_request = head.method() == b"HEAD";
        if websocket::is_asked_for(head) {
            let key = head.fields.known(Known::SecWebsocketKey).unwrap_or_default().to_vec();
            self.wanted = Some(Wanted::WebSocket(key));
        } else if head.method() == b"CONNECT" {
            self.wanted = Some(Wanted::Connect);
        }
        self.counts.sent += head.fields.wire_len() as u64;
        self.outbound = match write_request(head, self.mux.scheme) {
            Ok(request) => Outbound::Head(request),
            Err(e) => Outbound::None(Some(e)),
        };
    }
    fn poll_head(&mut self, cx: &mut Context<'_>, head: &mut ResponseHead) -> Poll<Result<Framing, Fault>> {
        let Some(response) = &mut self.response else {
            return match self.outbound {
                Outbound::None(Some(_)) => Poll::Ready(Err(Fault::Unsayable)),
                _ => Poll::Pending,
            };
        };
        if let Poll::Ready(Some(interim)) = response.poll_informational(cx) {
            let interim = interim.inspect_err(|error| note_reset(&mut self.stream, error)).map_err(fault_of_head)?;
            self.answered = Answered::Head;
            read_response(&interim, head, &self.limits)?;
            if !head.is_interim() {
                // RFC 9113 section 8.6: HTTP/2 has no 101.
                return Poll::Ready(Err(Fault::Invalid(Error::Unexpected)));
            }
            self.counts.received += weight(VERSION + 3, &head.fields);
            return Poll::Ready(Ok(Framing::None));
        }
        let response = match ready!(Pin::new(response).poll(cx)) {
            Ok(response) => response,
            Err(error) => {
                // The server has taken the request up, unless it says that it has not (RFC 9113 section 8.7): to reset the stream,
                // or to answer so that it had to be reset, is an answer.
                note_reset(&mut self.stream, &error);
                self.refused = error.is_remote()
                    && (error.is_go_away() || error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM));
                if error.is_reset() && !self.refused {
                    self.answered = Answered::Part;
                }
                return Poll::Ready(Err(fault_of_head(error)));
            }
        };
        self.answered = Answered::Head;
        self.response = None;
        read_response(&response, head, &self.limits)?;
        self.counts.received += weight(VERSION + 3, &head.fields);
        Poll::Ready(self.begin(response.into_body(), head).map_err(Fault::Invalid))
    }
    fn answered(&self) -> Answered {
        self.answered
    }
    fn is_untouched(&self) -> bool {
        self.refused || matches!(self.outbound, Outbound::Head(_))
    }
    fn tunnel(&mut self) {
        // DATA frames carry both directions unchanged.
    }
    fn counts(&self) -> Counts {
        self.counts
    }
    fn stream(&self) -> Option<StreamFacts> {
        Some(self.stream)
    }
}

/// Records the code with which the server has reset the stream, if it is that.
fn note_reset(stream: &mut StreamFacts, error: &h2::Error) {
    if error.is_reset() && error.is_remote() {
        stream.reset = error.reason().map(u32::from);
    }
}

/// Translates h2's error for a head: h2 itself resets the stream of a malformed response (RFC 9113 section 8.1.1).
fn fault_of_head(error: h2::Error) -> Fault {
    if error.is_reset() && error.is_library() { Fault::Invalid(Error::Malformed) } else { fault(error) }
}
