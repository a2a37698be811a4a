//! Request bodies that are wanted before the request is forwarded: by rules, by a service, by `http-buffer-request`.

use crate::{
    conn::Conn,
    exchange::{self, Exchange},
    message::{Body, Client, Fault},
};
use std::{future::poll_fn, task::Poll, time::Duration};

/// How waiting for a body ended.
#[derive(Debug)]
pub(crate) enum Waited {
    /// Enough is there, or all, or as much as the buffer takes.
    Enough,
    /// It took too long.
    Timeout,
    /// The client left or sent no valid body.
    Failed(Fault),
}

/// Room that framing towards the server needs around what was read ahead; see [`crate::message::Sink::room`].
const FRAMING: (usize, usize) = (16, 2);

/// Reads the request's body into [`Exchange::body`] until it is whole, has `at_least` bytes (0: all of it), or fills the
/// buffer.
pub(crate) async fn wait(
    conn: &mut Conn,
    client: &mut dyn Client,
    x: &mut Exchange,
    at_least: u64,
    limit: Option<Duration>,
) -> Waited {
    if x.body_complete {
        return Waited::Enough;
    }
    client.allow_body();
    exchange::flush(conn, client).await;
    conn.deadline.set(conn.worker.clock.now(), limit);
    let worker = conn.worker.clone();
    let body = x.body.get_or_insert_with(|| {
        let mut buffer = worker.buffers.take();
        buffer.reserve(FRAMING.0, FRAMING.1);
        buffer
    });
    let complete = &mut x.body_complete;
    let deadline = &mut conn.deadline;
    poll_fn(|cx| {
        while !*complete && !body.is_full() && (at_least == 0 || (body.len() as u64) < at_least) {
            match client.poll_body(cx, body) {
                Poll::Ready(Ok(Body::More)) => {}
                Poll::Ready(Ok(Body::End)) => *complete = true,
                Poll::Ready(Err(fault)) => return Poll::Ready(Waited::Failed(fault)),
                Poll::Pending => return deadline.poll_expired(cx).map(|()| Waited::Timeout),
            }
        }
        Poll::Ready(Waited::Enough)
    })
    .await
}
