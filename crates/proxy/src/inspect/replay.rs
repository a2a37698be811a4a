//! A body that was kept for services, on its way to a server or a client.

use crate::{
    exchange::ends::{Body, Fault, Source},
    process::memory::Loan,
    tap::Copied,
    worker::buffer::Buffer,
};
use penstock_http::{Fields, Framing};
use penstock_icap::Pieces;
use std::{
    num::NonZeroUsize,
    rc::Rc,
    task::{Context, Poll},
};

/// What services have left of the bodies of an exchange.
#[derive(Default)]
pub(crate) struct Inspected {
    /// The request's body, unless it fits in a buffer.
    pub request: Option<Replay>,
    /// How the request is framed, if a service has changed that.
    pub request_framing: Option<Framing>,
    /// The response's body, unless it fits in a buffer.
    pub response: Option<Replay>,
    /// The copy that is made of what passes.
    pub copied: Option<Rc<Copied>>,
}

impl Inspected {
    /// Whether the request's body is here completely, and can be sent as often as need be.
    pub fn has_whole_request(&self) -> bool {
        self.request.as_ref().is_some_and(|replay| replay.complete)
    }
}

/// A body, or the part of it before what its source still has.
#[derive(Clone)]
pub(crate) struct Replay {
    pub pieces: Rc<Pieces>,
    /// The memory that the pieces take, returned with the last of them.
    pub loan: Rc<Loan>,
    pub complete: bool,
    pub at: u64,
}

/// A source that begins with a [`Replay`].
pub(crate) struct Replayed<'a> {
    pub replay: &'a mut Replay,
    pub source: &'a mut dyn Source,
}

impl Source for Replayed<'_> {
    fn poll_body(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<Result<Body, Fault>> {
        let replay = &mut *self.replay;
        let taken = buffer.append(replay.pieces.read(replay.at));
        replay.at += taken as u64;
        let all = replay.at == replay.pieces.len();
        match NonZeroUsize::new(taken) {
            _ if all && replay.complete => Poll::Ready(Ok(Body::End)),
            Some(taken) => Poll::Ready(Ok(Body::More(taken))),
            None if all => self.source.poll_body(cx, buffer),
            None => Poll::Ready(Ok(Body::Full)),
        }
    }
    fn trailers(&self) -> Option<&Fields> {
        self.source.trailers()
    }
}
