//! An HTTP/1 connection: waits for a request without holding a buffer, has it exchanged, and repeats.

use super::client_side::{Http1Client, Received};
use crate::{
    connection::{Conn, IDLE_AFTER, close, in_time, stream::Stream},
    exchange::{self, ends::Client, finish, invalid, live::Live, respond, state::Exchange},
    handshake,
    http2::{
        self,
        connection::{PREFACE, PREFACE_HEAD},
    },
    observe::http_counters::{Protocol, Running},
    worker::{pulse::Stage, turn},
};
use penstock_http::Error;
use penstock_rules::{By, During, Termination};
use std::{future::poll_fn, task::Poll, time::Duration};
use tokio::time::Instant;

/// Serves requests until the connection ends, starting with the exchange that rules of `mode tcp` have begun, if any. Both boxes
/// would be stored twice as values.
pub(crate) async fn run(mut conn: Box<Conn<'_>>, mut client: Box<Http1Client>, mut begun: Option<Box<Exchange>>) {
    conn.facts.http_major = 1;
    let mut ready = conn.worker.clock.tick();
    loop {
        match wait(&mut conn, &mut client, ready, None).await {
            Waited::Input => {}
            // A client that never sent anything gets a response that says why its connection closes; a client between requests does not.
            Waited::Silence if conn.requests == 0 => {}
            Waited::Silence | Waited::Draining => break,
        }
        // The state that requests need is on the heap, and only while there are some.
        match Box::pin(requests(&mut conn, &mut client, ready, &mut begun)).await {
            Next::Idle { since } => ready = since,
            Next::End => break,
            Next::Tunnel => {
                // Before it there was no TLS.
                let (Stream::Clear(socket), begun) = client.into_parts() else { return };
                return Box::pin(handshake::inside(conn, socket, begun)).await;
            }
            Next::Http2 => {
                let (stream, begun) = client.into_parts();
                return Box::pin(http2::connection::run(conn, stream, begun)).await;
            }
        }
    }
    Box::pin(end(&mut conn, &mut client)).await;
}

/// Serves a request and those that follow without a pause.
async fn requests(
    conn: &mut Conn<'_>,
    client: &mut Http1Client,
    mut ready: Instant,
    begun: &mut Option<Box<Exchange>>,
) -> Next {
    loop {
        turn::proceed().await;
        match request(conn, client, ready, begun.take()).await {
            Next::Idle { since } => ready = since,
            other => return other,
        }
        if wait(conn, client, ready, Some(IDLE_AFTER)).await != Waited::Input {
            return Next::Idle { since: ready };
        }
    }
}

/// The result of waiting for a request.
#[derive(PartialEq, Eq)]
enum Waited {
    /// There is something to read, even if only an error.
    Input,
    /// Nothing arrived in time.
    Silence,
    /// Nothing arrived, and the worker is draining.
    Draining,
}

/// Waits for a request's first byte, at most for the timeouts counted from `ready`, or for `limit`.
async fn wait(conn: &mut Conn<'_>, client: &mut Http1Client, ready: Instant, limit: Option<Duration>) -> Waited {
    if client.has_input() {
        return Waited::Input;
    }
    // A client that has not sent a request yet is not idle; and a kept connection may be left open for a request that
    // the client is about to send.
    let stays = conn.requests == 0 || conn.proxy().options.idle_close_on_response;
    let patience = conn.patience();
    let due = limit.map_or(patience, |limit| Some(patience.map_or(limit, |patience| patience.min(limit))));
    conn.deadline.set(ready, due);
    let Conn { deadline, worker, .. } = conn;
    poll_fn(|cx| {
        if client.poll_ready(cx).is_ready() {
            return Poll::Ready(Waited::Input);
        }
        if !stays && worker.draining.get() {
            return Poll::Ready(Waited::Draining);
        }
        deadline.poll_expired(cx).map(|()| Waited::Silence)
    })
    .await
}

/// What happens after a request.
enum Next {
    /// Another request may come; the client has been idle since `since`.
    Idle {
        since: Instant,
    },
    End,
    /// What follows is a connection of its own, in TLS.
    Tunnel,
    /// There was no request: the client sent HTTP/2's preface.
    Http2,
}

/// Serves one request and its response.
async fn request(conn: &mut Conn<'_>, client: &mut Http1Client, ready: Instant, begun: Option<Box<Exchange>>) -> Next {
    conn.worker.pulse().enter(Stage::Parse);
    let mut x = begun.unwrap_or_else(|| conn.worker.take_exchange());
    let first_byte = conn.worker.clock.now();
    let timeouts = &conn.proxy().timeouts;
    // As in HAProxy, the time of a request begins with its first byte, that of a silence before it when it could have come.
    let since = if client.has_input() { first_byte } else { ready };
    // If nothing has come, the client has been silent for too long, and is told so now.
    let whole = if client.has_input() { timeouts.http_request.or(timeouts.client) } else { conn.patience() };
    let whole = whole.map(|limit| since + limit);
    // Beside the limit of the whole head, `timeout client` bounds each silence in it.
    let silence = timeouts.client.filter(|_| timeouts.http_request.is_some() && client.has_input());
    let due_from = |now| whole.into_iter().chain(silence.map(|limit| now + limit)).min();
    conn.deadline.set_at(due_from(first_byte));
    conn.begin(&mut x, ready, first_byte);
    let mut received = {
        let (deadline, head, clock) = (&mut conn.deadline, &mut x.request, &conn.worker.clock);
        let mut seen = client.partial().len();
        poll_fn(|cx| {
            if let Poll::Ready(received) = client.poll_request(cx, head) {
                return Poll::Ready(Some(received));
            }
            let arrived = client.partial().len();
            if arrived != seen {
                seen = arrived;
                deadline.set_at(due_from(clock.now()));
            }
            deadline.poll_expired(cx).map(|()| None)
        })
        .await
    };
    let nothing_came = match received {
        Some(Received::Closed { partial } | Received::Failed { partial }) => !partial,
        None => client.partial().is_empty(),
        Some(_) => false,
    };
    if nothing_came {
        // There was no request that anything could be counted from.
        conn.begin(&mut x, ready, ready);
    }
    let silent = x.switched.is_none() && (conn.proxy().options.http_ignore_probes || conn.requests > 0);
    let worker = conn.worker;
    let frontend = worker.counters().frontend(conn.frontend);
    // As in HAProxy, whatever has begun as a request of HTTP/1 counts as a stream.
    let mut begins_http2 = may_be_http2(conn, client, &x, &received);
    if begins_http2 {
        (begins_http2, received) = rest_of_preface(conn, client, received).await;
    }
    let begun = match received {
        Some(Received::Request | Received::Invalid(_)) => !begins_http2,
        Some(Received::Closed { partial } | Received::Failed { partial }) => partial,
        None => client.has_input(),
    };
    let _running = begun.then(|| Running::new(frontend, Protocol::Http1));
    let again = match received {
        Some(Received::Request) => {
            conn.request_complete(&mut x);
            exchange::run(&mut Live::new(conn, client, &mut x)).await;
            if x.tunnels {
                // Where rules have sent the tunnel is where the connection inside is going.
                conn.facts.session_dst = x.txn.dst.or(conn.facts.session_dst);
                conn.worker.give_exchange(x);
                return Next::Tunnel;
            }
            client.is_reusable()
        }
        Some(Received::Closed { partial: false } | Received::Failed { partial: false }) if silent => false,
        Some(Received::Closed { partial }) => {
            // The client may still read, and is told the outcome.
            x.log.termination = Termination(By::Client, During::Request);
            respond::refuse(&mut Live::new(conn, client, &mut x), 400).await;
            finish::log_unless_null(&mut Live::new(conn, client, &mut x), partial);
            false
        }
        Some(Received::Failed { partial }) => {
            x.log.termination = Termination(By::Client, During::Request);
            x.aborted(400);
            x.refused = true;
            finish::log_unless_null(&mut Live::new(conn, client, &mut x), partial);
            false
        }
        Some(Received::Invalid(Error::Http2Preface)) if begins_http2 => {
            conn.worker.give_exchange(x);
            return Next::Http2;
        }
        Some(Received::Invalid(Error::Http2Preface | Error::PrefaceMethod)) => {
            // To HAProxy's parser this is a valid request, whose response counts.
            x.log.termination = Termination(By::Refusal, During::Request);
            invalid::keep_request(conn, &x, client.partial(), Error::PrefaceMethod);
            client.close();
            respond::error(&mut Live::new(conn, client, &mut x), 400).await;
            finish::run(&mut Live::new(conn, client, &mut x));
            false
        }
        Some(Received::Invalid(error)) => {
            invalid::keep_request(conn, &x, client.partial(), error);
            x.log.termination = Termination(By::Refusal, During::Request);
            respond::refuse(&mut Live::new(conn, client, &mut x), error.status()).await;
            finish::run(&mut Live::new(conn, client, &mut x));
            false
        }
        None => {
            let partial = !client.partial().is_empty();
            if partial || !silent {
                x.log.termination = Termination(By::ClientTimeout, During::Request);
                respond::refuse(&mut Live::new(conn, client, &mut x), 408).await;
                finish::log_unless_null(&mut Live::new(conn, client, &mut x), partial);
            }
            false
        }
    };
    conn.requests += 1;
    conn.worker.give_exchange(x);
    // A worker that has started to drain after it promised to keep the connection looks for a request before closing.
    match again {
        true => Next::Idle { since: conn.worker.clock.now() },
        false => Next::End,
    }
}

/// Whether what was received is the beginning of HTTP/2, to which the client may switch.
fn may_be_http2(conn: &Conn<'_>, client: &Http1Client, x: &Exchange, received: &Option<Received>) -> bool {
    matches!(received, Some(Received::Invalid(Error::Http2Preface)))
        && !x.switched.is_some_and(|switched| switched.only_http1)
        && conn.requests == 0
        && conn.bind().proto.is_none()
        && http2::connection::may_begin_so(client.partial())
}

/// Waits for the rest of HTTP/2's preface, and says whether it has come. If it has not, what has is a request, or part of one.
async fn rest_of_preface(
    conn: &mut Conn<'_>,
    client: &mut Http1Client,
    received: Option<Received>,
) -> (bool, Option<Received>) {
    while client.partial().len() < PREFACE.len() {
        let more = in_time(&mut conn.deadline, poll_fn(|cx| client.poll_more(cx))).await;
        if more == Some(true) && http2::connection::may_begin_so(client.partial()) {
            continue;
        }
        let is_head = client.partial().len() >= PREFACE_HEAD.len();
        return match more {
            Some(false) if !is_head => (false, Some(Received::Closed { partial: true })),
            None if !is_head => (false, None),
            _ => (false, received),
        };
    }
    (true, received)
}

async fn end(conn: &mut Conn<'_>, client: &mut Http1Client) {
    client.give_back();
    if client.is_aborted() {
        return;
    }
    let owes_body = client.owes_body();
    // A client that has finished sending needs no more than our last bytes. Otherwise, bytes that it sent and we did
    // not read would turn the following close into a reset, so the end of our response has to be sent first.
    let half = owes_body || !client.stream.has_ended();
    close::close(&mut client.stream, &mut conn.deadline, half).await;
    if owes_body {
        close::linger(conn, &mut client.stream).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size<A, B, C, F: Future>(_: fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn an_idle_connection_is_small() {
        // A test's sockets are larger by those that are in memory.
        assert!(size(run) <= 192, "the task of a connection: {}", size(run));
        assert!(size_of::<Http1Client>() <= 336, "its client: {}", size_of::<Http1Client>());
        assert!(size_of::<Conn<'_>>() <= 544, "the connection itself: {}", size_of::<Conn<'_>>());
    }
}
