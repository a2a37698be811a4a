//! The body of a message while services inspect it.

use super::replay::Replay;
use crate::{
    connection::in_time,
    exchange::{
        buffered_body::{self, Ahead},
        ends::{Body, Client, Fault},
        live::Live,
    },
    process::memory::Loan,
    worker::{
        buffer::{Buffer, Buffers},
        state::Worker,
        turn,
    },
};
use penstock_http::{Error, Framing};
use penstock_icap::Pieces;
use std::{
    future::poll_fn,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

/// A message's body: what was read of it, and where the rest comes from.
pub(super) struct Original<'a, 'b> {
    pub pieces: Pieces,
    pub complete: bool,
    pub framing: Framing,
    /// Whether a service has replaced it.
    pub replaced: bool,
    /// For a response: where it is read from.
    ahead: Option<&'a mut Ahead<'b>>,
    /// The memory that `pieces` and answers of services take.
    pub loan: Rc<Loan>,
}

/// Why no more of a body is read.
pub(super) enum Broken {
    /// The sender of the body has failed.
    Source(Fault),
    /// The sender of the body has not gone on in time.
    Late,
}

impl<'a, 'b> Original<'a, 'b> {
    /// The request's body, of which rules may have read a part.
    pub fn of_request(live: &mut Live<'_, '_>) -> Self {
        let framing = live.x.request_framing(live.client);
        if let Some(Replay { pieces, loan, complete, .. }) = live.x.inspected.request.take() {
            // Nothing else has it between two services, except what the last one has left unfinished.
            let pieces = Rc::try_unwrap(pieces).unwrap_or_else(|pieces| (*pieces).clone());
            return Original { pieces, complete, framing, replaced: false, ahead: None, loan };
        }
        let complete = std::mem::take(&mut live.x.body_complete) || framing == Framing::None;
        Self::begin(live.x.body.take(), complete, framing, None, live.worker)
    }
    /// The response's body.
    pub fn of_response(live: &mut Live<'_, '_>, ahead: &'a mut Ahead<'b>, framing: Framing) -> Self {
        let framing = if ahead.has_body { framing } else { Framing::None };
        let complete = std::mem::take(&mut live.x.response_complete) || framing == Framing::None;
        Self::begin(live.x.response_body.take(), complete, framing, Some(ahead), live.worker)
    }
    fn begin(
        read: Option<Buffer>,
        complete: bool,
        framing: Framing,
        ahead: Option<&'a mut Ahead<'b>>,
        worker: &Worker,
    ) -> Self {
        let mut pieces = Pieces::default();
        if let Some(buffer) = read {
            pieces.push(buffer.data());
            worker.buffers.give(buffer);
        }
        let loan = Rc::new(Loan::default());
        loan.count_in(&worker.shared.memory, false);
        Original { pieces, complete, framing, replaced: false, ahead, loan }
    }
    pub fn has_body(&self) -> bool {
        self.framing != Framing::None
    }
    /// Whether the body is announced to have, or has already, more than `most` bytes.
    pub fn is_longer_than(&self, most: u64) -> bool {
        self.pieces.len() > most || matches!(self.framing, Framing::Length(length) if length > most)
    }
    /// Reads more; ready once there is more, or it is known to be complete.
    pub fn poll_more(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut dyn Client,
        buffers: &Buffers,
    ) -> Poll<Result<(), Fault>> {
        let mut buffer = buffers.take()?;
        let polled = match &mut self.ahead {
            None => client.poll_body(cx, &mut buffer),
            Some(ahead) => ahead.upstream.poll_body(cx, &mut buffer),
        };
        let lent = self.loan.take(buffer.len());
        self.pieces.push(buffer.data());
        buffers.give(buffer);
        lent?;
        Poll::Ready(match polled {
            Poll::Ready(Ok(Body::End)) => {
                self.complete = true;
                Ok(())
            }
            Poll::Ready(Ok(Body::More(_))) => Ok(()),
            // The buffer was empty and has room; a source that says otherwise would be polled for ever.
            Poll::Ready(Ok(Body::Full)) => Err(Fault::Invalid(Error::TooLarge)),
            Poll::Ready(Err(fault)) => Err(fault),
            Poll::Pending => {
                // A server may want the rest of the request before it goes on with its response.
                if let Some(ahead) = self.ahead.as_mut().filter(|ahead| !ahead.request.done) {
                    // Which side failed is found when the rest is forwarded.
                    let _ = ahead.request.poll(cx, client, ahead.upstream, buffers);
                }
                return Poll::Pending;
            }
        })
    }
    /// Reads until there are `wanted` bytes, or all there are.
    ///
    /// # Errors
    /// If the sender breaks off.
    pub async fn gather(&mut self, live: &mut Live<'_, '_>, wanted: u64) -> Result<(), Broken> {
        if self.complete || self.pieces.len() >= wanted {
            return Ok(());
        }
        if self.ahead.is_none() {
            buffered_body::invite(live).await;
        }
        let worker = live.worker;
        let limit = self.patience(live);
        live.conn.deadline.set(worker.clock.tick(), limit);
        let client = &mut *live.client;
        let reading = poll_fn(|cx| {
            while !self.complete && self.pieces.len() < wanted {
                turn::round();
                ready!(self.poll_more(cx, client, &worker.buffers))?;
            }
            Poll::Ready(Ok(()))
        });
        let read = in_time(&mut live.conn.deadline, reading).await;
        match read {
            Some(result) => result.map_err(Broken::Source),
            None => Err(Broken::Late),
        }
    }
    /// How long the body's sender may be silent; `None` for no limit.
    pub fn patience(&self, live: &Live<'_, '_>) -> Option<Duration> {
        match self.ahead {
            None => live.conn.proxy().timeouts.client,
            Some(_) => live.proxy().timeouts.server,
        }
    }
    /// Puts what a service has sent in its place, followed by the original from `original_from` on; `false`, and nothing
    /// is changed, if that part is not there.
    pub fn replace(&mut self, body: Option<Pieces>, original_from: Option<u64>) -> bool {
        let mut body = body.unwrap_or_default();
        match original_from {
            None => self.complete = true,
            Some(from) if from <= self.pieces.len() => {
                let before = body.len();
                body.append(&self.pieces, from);
                if let (Framing::Length(length), false) = (self.framing, self.complete) {
                    self.framing = Framing::Length(length.saturating_sub(from) + before);
                }
            }
            Some(_) => return false,
        }
        if self.complete {
            self.framing = if body.is_empty() { Framing::None } else { Framing::Length(body.len()) };
        }
        (self.pieces, self.replaced) = (body, true);
        true
    }
    /// What goes on from here: a buffer that a flow can start with, or a replay; whether the buffer is all; and how the
    /// message is framed, if that has changed.
    pub fn into_parts(self, buffers: &Buffers) -> Parts {
        let framing = self.replaced.then_some(self.framing);
        if !self.replaced && self.pieces.len() <= buffers.size() as u64 {
            if !self.has_body() {
                return Parts { buffer: None, complete: false, replay: None, framing };
            }
            let mut buffer = buffers.take_anyway();
            buffer.append(&self.pieces.to_vec());
            return Parts { buffer: Some(buffer), complete: self.complete, replay: None, framing };
        }
        Parts { buffer: None, complete: false, replay: Some(self.into_replay()), framing }
    }
    /// What goes on from here, as a replay whatever its size.
    pub fn into_replay(self) -> Replay {
        Replay { pieces: Rc::new(self.pieces), loan: self.loan, complete: self.complete, at: 0 }
    }
}

/// See [`Original::into_parts`].
pub(super) struct Parts {
    pub buffer: Option<Buffer>,
    pub complete: bool,
    pub replay: Option<Replay>,
    pub framing: Option<Framing>,
}
