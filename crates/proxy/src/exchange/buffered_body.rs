//! Reads bodies ahead of forwarding: for rules, for a service, for `http-buffer-request`.

use super::{
    ends::{Body, Fault, Upstream},
    flush,
    forward::Flow,
    state::Exchange,
    timeouts::{client_timeout, server_timeout},
};
use crate::{
    connection::Conn,
    exchange::live::Live,
    http1::body::{VERSION, weight},
    worker::{
        buffer::{Buffer, Buffers},
        turn,
    },
};
use penstock_http::{Fields, Framing, Known};
use std::{future::poll_fn, task::Poll, time::Duration};

/// The result of waiting for a body.
#[derive(Debug)]
pub(crate) enum Waited {
    /// The body is complete, long enough, or fills the buffer.
    Enough,
    /// The time limit was reached.
    Timeout,
    /// The client left, or sent an invalid body.
    Failed(Fault),
}

/// Reads the request's body into [`Exchange::body`] until it is complete, has `at_least` bytes (0: all of it), or fills
/// the buffer. Without a limit, the client may still not be silent for longer than its timeout.
pub(crate) async fn wait(live: &mut Live<'_, '_>, at_least: u64, limit: Option<Duration>) -> Waited {
    if live.x.body_complete {
        return Waited::Enough;
    }
    invite(live).await;
    let silence = client_timeout(live.conn, live.x);
    let (clock, buffers) = (&live.worker.clock, &live.worker.buffers);
    live.conn.deadline.set(clock.now(), limit.or(silence));
    let (slot, complete) = (&mut live.x.body, &mut live.x.body_complete);
    let deadline = &mut live.conn.deadline;
    poll_fn(|cx| {
        let body = match buffers.hold_whole(slot) {
            Ok(body) => body,
            Err(missing) => return Poll::Ready(Waited::Failed(missing.into())),
        };
        while !*complete && (at_least == 0 || (body.len() as u64) < at_least) {
            turn::round();
            match live.client.poll_body(cx, body) {
                #[cfg(test)]
                Poll::Ready(Ok(Body::Full)) if turn::counted::planted() => {}
                Poll::Ready(Ok(Body::More(_))) if limit.is_none() => deadline.set(clock.now(), silence),
                Poll::Ready(Ok(Body::More(_))) => {}
                Poll::Ready(Ok(Body::Full)) => break,
                Poll::Ready(Ok(Body::End)) => *complete = true,
                Poll::Ready(Err(fault)) => return Poll::Ready(Waited::Failed(fault)),
                Poll::Pending => return paused(deadline.poll_expired(cx), body, buffers),
            }
        }
        Poll::Ready(Waited::Enough)
    })
    .await
}

/// Whether the time is over; if it is not, the wait may be long, so the buffer is made as small as possible.
fn paused(expired: Poll<()>, body: &mut Buffer, buffers: &Buffers) -> Poll<Waited> {
    if expired.is_pending() {
        buffers.shrink(body);
    }
    expired.map(|()| Waited::Timeout)
}

/// Sends `100 Continue` to a client that waits for it.
pub(crate) async fn invite(live: &mut Live<'_, '_>) {
    if live.client.allow_body() {
        // The client gets its `100 Continue` here, and not a second time from the server.
        live.x.request.fields.remove_known(Known::Expect);
        live.x.continued += weight(VERSION + "100Continue".len(), &Fields::new());
        live.x.log.bytes_read = live.x.continued;
        // An error appears again when the response is sent.
        let _ = flush::flush(live).await;
    }
}

/// Moves the part of the request's body that came with its head into [`Exchange::body`]; neither waits nor sends `100
/// Continue`.
pub(crate) async fn look(live: &mut Live<'_, '_>) {
    if live.x.body_complete || live.client.request_framing() == Framing::None {
        return;
    }
    // Without memory, forwarding it fails as well.
    let Ok(body) = live.worker.buffers.hold(&mut live.x.body) else { return };
    let complete = &mut live.x.body_complete;
    poll_fn(|cx| {
        while let Poll::Ready(Ok(read @ (Body::More(_) | Body::End))) = live.client.poll_body(cx, body) {
            turn::round();
            if read == Body::End {
                *complete = true;
                break;
            }
        }
        // Any error is found again when the body is forwarded.
        Poll::Ready(())
    })
    .await;
}

/// The source of a response's body while rules look at its head, and the request that may still be on its way.
pub(crate) struct Ahead<'a> {
    pub upstream: &'a mut dyn Upstream,
    pub request: &'a mut Flow,
    /// How the server framed the response's body.
    pub framing: Framing,
    /// Whether the response has a body.
    pub has_body: bool,
}

/// Moves the part of the response's body that has arrived into [`Exchange::response_body`], without waiting.
pub(crate) async fn look_ahead(conn: &Conn<'_>, x: &mut Exchange, ahead: &mut Ahead<'_>) {
    if !ahead.has_body {
        return;
    }
    let Ok(body) = conn.worker.buffers.hold(&mut x.response_body) else { return };
    let complete = &mut x.response_complete;
    poll_fn(|cx| {
        while let Poll::Ready(Ok(read @ (Body::More(_) | Body::End))) = ahead.upstream.poll_body(cx, body) {
            turn::round();
            if read == Body::End {
                *complete = true;
                break;
            }
        }
        // Any error is found again when the body is forwarded.
        Poll::Ready(())
    })
    .await;
}

/// Reads the response's body into [`Exchange::response_body`] until it is complete, has `at_least` bytes (0: all of
/// it), fills the buffer, or breaks off; an error is found again when the body is forwarded. Without a limit, the server may still not be
/// silent for longer than its timeout.
pub(crate) async fn wait_ahead(
    live: &mut Live<'_, '_>,
    ahead: &mut Ahead<'_>,
    at_least: u64,
    limit: Option<Duration>,
) -> Waited {
    if !ahead.has_body || live.x.response_complete {
        return Waited::Enough;
    }
    let silence = server_timeout(live.x, live.proxy());
    live.conn.deadline.set(live.worker.clock.now(), limit.or(silence));
    let (deadline, clock, buffers) = (&mut live.conn.deadline, &live.worker.clock, &live.worker.buffers);
    let (slot, complete) = (&mut live.x.response_body, &mut live.x.response_complete);
    poll_fn(|cx| {
        let Ok(body) = buffers.hold_whole(slot) else { return Poll::Ready(Waited::Enough) };
        while !*complete && (at_least == 0 || (body.len() as u64) < at_least) {
            turn::round();
            match ahead.upstream.poll_body(cx, body) {
                Poll::Ready(Ok(Body::More(_))) if limit.is_none() => deadline.set(clock.now(), silence),
                Poll::Ready(Ok(Body::More(_))) => {}
                Poll::Ready(Ok(Body::End)) => *complete = true,
                Poll::Ready(Err(fault @ Fault::Invalid(_))) => return Poll::Ready(Waited::Failed(fault)),
                Poll::Ready(Ok(Body::Full) | Err(_)) => break,
                Poll::Pending => {
                    if !ahead.request.done
                        && matches!(ahead.request.poll(cx, live.client, ahead.upstream, buffers), Poll::Ready(Err(_)))
                    {
                        // Which side failed is found when the rest is forwarded.
                        break;
                    }
                    return paused(deadline.poll_expired(cx), body, buffers);
                }
            }
        }
        Poll::Ready(Waited::Enough)
    })
    .await
}
