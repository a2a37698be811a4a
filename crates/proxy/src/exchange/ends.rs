//! The two ends of an exchange as forwarding sees them, whatever protocol each speaks.
//!
//! A body travels as payload in a [`Buffer`]; each end removes and adds its own framing. HTTP/1 ends are in
//! `http1/client_side.rs` and `http1/server_side.rs`, those of HTTP/2 in `http2`.

use crate::{process::memory::NoMemory, worker::buffer::Buffer};
use penstock_http::{Error, Fields, Framing, RequestHead, ResponseHead};
use penstock_rules::StreamFacts;
use std::{
    io,
    num::NonZeroUsize,
    task::{Context, Poll},
};

/// The result of reading a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// This many bytes of payload were added to the buffer, and more may follow.
    More(NonZeroUsize),
    /// Nothing was added, since the buffer has no room: it has to be emptied before the next read.
    Full,
    /// The body is complete with the contents of the buffer.
    End,
}

impl Body {
    /// The result of a read before which `buffer` held `had` bytes: it has more now, or no room.
    pub fn grown(buffer: &Buffer, had: usize) -> Body {
        NonZeroUsize::new(buffer.len() - had).map_or(Body::Full, Body::More)
    }
}

/// Why an end of an exchange cannot be used any more.
#[derive(Debug)]
#[allow(dead_code, reason = "the reasons inside are for whoever debugs")]
pub(crate) enum Fault {
    /// The peer closed its connection before its message was complete.
    Closed,
    /// The peer's socket failed.
    Io(io::Error),
    /// The peer sent something that is not a valid message.
    Invalid(Error),
    /// There is no memory for what the peer sends.
    Memory(NoMemory),
    /// The message cannot be said in the peer's version of HTTP, and the peer has seen nothing of it.
    Unsayable,
}

impl From<NoMemory> for Fault {
    fn from(missing: NoMemory) -> Self {
        Fault::Memory(missing)
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Fault::Io(error)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Fault::Invalid(error)
    }
}

/// An end from which a body is received.
pub(crate) trait Source {
    /// Appends payload to `buffer`. Not called again after [`Body::End`].
    fn poll_body(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<Result<Body, Fault>>;
    /// The trailers of a body that has ended.
    fn trailers(&self) -> Option<&Fields>;
}

/// An end to which a body is sent.
pub(crate) trait Sink {
    /// The largest size to which a buffer for this end may grow.
    fn buffer_max(&self) -> usize {
        usize::MAX
    }
    /// How many bytes the peer has received since it connected, as far as the system knows.
    fn taken(&self) -> u64 {
        u64::MAX
    }
    /// Whether a send that was pending with a buffer that is not empty may be continued with another that holds the same bytes.
    fn may_refill(&self) -> bool {
        false
    }
    /// Whether the buffer of a send that is pending holds the end of what was put in, without anything around it: then it may be
    /// given up, and the send continued with the same bytes from elsewhere.
    fn sends_plainly(&self) -> bool {
        false
    }
    /// Sends the contents of `buffer`, after the head if that is still due; with `end`, also the end of the body. Ready
    /// once nothing is left to send. Until then nothing else may touch `buffer`.
    fn poll_send(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer, end: Option<End<'_>>) -> Poll<io::Result<()>>;
}

/// The end of a body that was received completely.
#[derive(Clone, Copy)]
pub(crate) struct End<'a> {
    /// The body's trailers.
    pub trailers: Option<&'a Fields>,
}

/// A body that nobody wants and that is longer than this costs more to read than the new connection that reading it saves.
pub(crate) const SKIPPED_MAX: u64 = 256 * 1024;

/// The client's end of one exchange: its request has been read, its body follows, and the response is sent to it.
pub(crate) trait Client: Source + Sink {
    /// How the request's body is framed. Called once rules have let the request pass.
    fn request_framing(&self) -> Framing;
    /// Queues `100 Continue` if the client waits for it and nothing was sent yet; returns whether it does.
    fn allow_body(&mut self) -> bool;
    /// Queues an interim response (1xx).
    fn interim(&mut self, head: &ResponseHead);
    /// Queues the final response's head; the client's end sets the framing fields. With `last`, the connection must not
    /// carry another exchange.
    fn respond(&mut self, head: &mut ResponseHead, framing: Framing, last: bool);
    /// Whether the rest of the request's body, which is on its way, is short enough to be read after the response. Then that need not
    /// be the connection's last. Called before [`Client::respond`].
    fn reads_on(&mut self) -> bool {
        false
    }
    /// Discards the part that has arrived of a body that will not be read: once the whole request is here, the
    /// connection is free for the next one, although it was answered without its body.
    fn skip_body(&mut self) {}
    /// Ready when the client has gone away, although nothing is expected from it at present. Behind bytes that have been
    /// read, such as an unread body or the next request, its end is not looked for.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()>;
    /// Ready when the client has said that it will not read the response, for instance by resetting an HTTP/2 stream.
    fn poll_cancelled(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
    /// Ends the client's connection, or its stream, without a response.
    fn close(&mut self);
    /// Like [`Client::close`], but the client should not notice, as far as the system allows.
    fn vanish(&mut self);
    /// Marks the response as one that cannot be completed; the client must be able to notice that, whatever its
    /// framing.
    fn abort(&mut self);
    /// Bytes of the request received, as the log counts them, and bytes sent to the client.
    fn counts(&self) -> Counts;
    /// The code with which the client has reset its stream, if it has one and did so.
    fn reset(&mut self) -> Option<u32> {
        None
    }
    /// Continues as two raw byte streams, one in each direction (101, CONNECT).
    fn tunnel(&mut self);
}

/// Bytes on the wire of one exchange.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub received: u64,
    pub sent: u64,
}

/// How much of its response a server has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Answered {
    /// Nothing.
    #[default]
    Nothing,
    /// Part of the first head.
    Part,
    /// At least one head, which may be an interim one.
    Head,
}

/// The server's end of one exchange, over a connection that no other exchange uses meanwhile.
pub(crate) trait Upstream: Source + Sink {
    /// Queues the request's head; the server's end sets the framing fields.
    fn request(&mut self, head: &mut RequestHead, framing: Framing);
    /// Reads the next response head, interim or final, and returns how its body is framed.
    fn poll_head(&mut self, cx: &mut Context<'_>, head: &mut ResponseHead) -> Poll<Result<Framing, Fault>>;
    /// How much of a response has arrived, which decides whether the request may be sent elsewhere.
    fn answered(&self) -> Answered;
    /// Whether the server has certainly not begun to process the request: nothing of it was sent, or the server has said so. Then
    /// it may be sent again whatever its method (RFC 9110 section 9.2.2).
    fn is_untouched(&self) -> bool;
    /// The bytes that were read but are not a valid message, for diagnosis.
    fn unread(&self) -> &[u8] {
        &[]
    }
    /// See [`Client::tunnel`].
    fn tunnel(&mut self);
    /// Makes this the connection's last exchange, if it carries only one at a time.
    fn close_after(&mut self) {}
    /// Bytes sent to the server, and bytes of the response received, as the log counts them.
    fn counts(&self) -> Counts;
    /// The stream, if the connection carries several.
    fn stream(&self) -> Option<StreamFacts> {
        None
    }
}
