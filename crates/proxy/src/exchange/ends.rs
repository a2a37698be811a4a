//! The two ends of an exchange, whatever protocol each speaks: forwarding knows nothing else of them.
//!
//! A body travels as payload in a [`Buffer`]; each end takes its own framing off and puts its own on. HTTP/1 ends are in
//! `http1/client_side.rs` and `http1/server_side.rs`, those of HTTP/2 in `http2`.

use crate::worker::buffer::Buffer;
use penstock_http::{Error, Fields, Framing, RequestHead, ResponseHead};
use std::{
    io,
    num::NonZeroUsize,
    task::{Context, Poll},
};

/// What a read of a body came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// So many bytes of payload were added to the buffer, and more may follow.
    More(NonZeroUsize),
    /// Nothing was added, since the buffer has no room: it has to be emptied before there is a point in asking again.
    Full,
    /// The body is complete with what the buffer holds.
    End,
}

impl Body {
    /// What a read came to that left `buffer` with more than the `had` bytes before it, or with no room.
    pub fn grown(buffer: &Buffer, had: usize) -> Body {
        NonZeroUsize::new(buffer.len() - had).map_or(Body::Full, Body::More)
    }
}

/// Why an end of an exchange is of no further use.
#[derive(Debug)]
#[allow(dead_code, reason = "the reasons inside are for whoever debugs")]
pub(crate) enum Fault {
    /// It closed before its message was complete.
    Closed,
    /// Its socket failed.
    Io(io::Error),
    /// What it sent is no valid message.
    Invalid(Error),
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

/// An end that sends us a body.
pub(crate) trait Source {
    /// Appends payload to `buffer`. Not called again after [`Body::End`].
    fn poll_body(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<Result<Body, Fault>>;
    /// The trailers of a body that has ended.
    fn trailers(&self) -> Option<&Fields>;
}

/// An end that we send a body to.
pub(crate) trait Sink {
    /// Up to what size a buffer of what goes there may grow.
    fn buffer_max(&self) -> usize {
        usize::MAX
    }
    /// Whether another buffer with the same bytes may be shown to it after it has been pending.
    fn may_refill(&self) -> bool {
        false
    }
    /// Sends what `buffer` holds, with the head if that is still due; with `end` also what ends the body. Ready once
    /// nothing is left to send. `buffer` is not touched by others until then.
    fn poll_send(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer, end: Option<End<'_>>) -> Poll<io::Result<()>>;
}

/// The end of a body that was received whole.
#[derive(Clone, Copy)]
pub(crate) struct End<'a> {
    /// Its trailers.
    pub trailers: Option<&'a Fields>,
}

/// A client's end of one exchange: its request has been read, its body follows, the response goes to it.
pub(crate) trait Client: Source + Sink {
    /// Says how the request's body is framed, once rules have let it pass.
    fn request_framing(&self) -> Framing;
    /// Takes `100 Continue` to send now if the client waits for it and nothing was sent yet; whether it does.
    fn allow_body(&mut self) -> bool;
    /// Takes an interim response (1xx) to send now.
    fn interim(&mut self, head: &ResponseHead);
    /// Takes the final response's head; framing fields of its own side are the client end's business. `last` is whether
    /// the connection must not carry another exchange.
    fn respond(&mut self, head: &mut ResponseHead, framing: Framing, last: bool);
    /// Lets go of what has come of a body that nobody will read: a request that is here whole leaves the connection free for
    /// the next, although it was answered without its body.
    fn skip_body(&mut self) {}
    /// Ready when the client has gone away (`abort` too: it has reset), though it owes us nothing now.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()>;
    /// Ready when the client has said that it will not read the response, as it can by resetting an HTTP/2 stream.
    fn poll_cancelled(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
    /// Ends the client's connection, or its stream, without an answer.
    fn close(&mut self);
    /// As [`Client::close`], and as far as the system lets us without the client learning of it.
    fn vanish(&mut self);
    /// The response cannot be completed: the client must see that whatever its framing.
    fn abort(&mut self);
    /// Bytes of the request received as the log counts them, and bytes sent to the client.
    fn counts(&self) -> Counts;
    /// The exchange goes on as two byte streams (101, CONNECT): from now on bodies are raw in both directions.
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
    /// Not a byte.
    #[default]
    Nothing,
    /// A part of the first head.
    Part,
    /// A head, which may be an interim one, or more.
    Head,
}

/// A server's end of one exchange, over a connection that is its alone for as long as it lasts.
pub(crate) trait Upstream: Source + Sink {
    /// Takes the request's head; framing fields of its own side are the server end's business.
    fn request(&mut self, head: &mut RequestHead, framing: Framing);
    /// Reads the next response head, interim or final, and says how its body is framed.
    fn poll_head(&mut self, cx: &mut Context<'_>, head: &mut ResponseHead) -> Poll<Result<Framing, Fault>>;
    /// How much of a response has arrived: it says whether the request may be sent elsewhere.
    fn answered(&self) -> Answered;
    /// What was read and is no message: for whoever wants to see why it is none.
    fn unread(&self) -> &[u8] {
        &[]
    }
    /// See [`Client::tunnel`].
    fn tunnel(&mut self);
    /// Bytes sent to the server, and bytes of the response received as the log counts them.
    fn counts(&self) -> Counts;
}
