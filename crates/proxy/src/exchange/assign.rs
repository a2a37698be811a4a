//! A place on a server, and a connection to it.

use super::{Exchange, ms_between};
use crate::{
    conn::{Conn, in_time},
    connect::{self, Failure},
    http2::websocket,
    queue::Granted,
    server::{Assignment, Backend, Seen, Server, ServerRef, Slot, Want},
    stream::Stream,
    worker::Worker,
};
use penstock_config::model::Proxy;
use penstock_rules::ServerConnFacts;
use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::Instant;

/// Why a request got no server: its log's termination state, and the status of the answer.
pub(crate) struct Unserved(pub [u8; 2], pub u16);

/// A place on a server, perhaps after a wait in a queue. `gone` is ready once nobody waits for the answer any more.
pub(crate) async fn assign(
    conn: &mut Conn,
    x: &mut Exchange,
    pool: &Arc<Backend>,
    want: &Want,
    gone: &mut dyn FnMut(&mut Context<'_>) -> Poll<()>,
) -> Result<Slot, Unserved> {
    let worker = conn.worker.clone();
    let (proxy, clock) = (&worker.shared.config.proxies[pool.proxy], &worker.clock);
    let mut want = *want;
    // The time in queues is one, however many queues there were.
    let since = clock.now();
    let waited = |x: &mut Exchange| {
        let now = clock.now();
        x.log.Tw = ms_between(x.times.complete.unwrap_or(now), now);
        x.times.assigned = Some(now);
    };
    loop {
        match pool.assign(&want) {
            Assignment::Slot(slot) => {
                waited(x);
                return Ok(slot);
            }
            Assignment::Queued(mut ticket) => {
                match ticket.server() {
                    Some(_) => x.log.srv_queue = ticket.ahead() + 1,
                    None => x.log.backend_queue = ticket.ahead() + 1,
                }
                conn.deadline.set(since, proxy.timeouts.queue.or(proxy.timeouts.connect));
                let deadline = &mut conn.deadline;
                let granted = poll_fn(|cx| {
                    clock.tick();
                    if let Poll::Ready(granted) = Pin::new(&mut ticket).poll(cx) {
                        return Poll::Ready(Ok(granted));
                    }
                    if proxy.options.abortonclose && gone(cx).is_ready() {
                        return Poll::Ready(Err(Unserved(*b"CQ", 0)));
                    }
                    deadline.poll_expired(cx).map(|()| Err(Unserved(*b"sQ", 503)))
                })
                .await;
                match granted {
                    Ok(Granted::Slot(slot)) => {
                        waited(x);
                        return Ok(slot);
                    }
                    Ok(Granted::Again) => {}
                    Err(unserved) => {
                        waited(x);
                        return Err(unserved);
                    }
                }
            }
            Assignment::Full(_) if want.persistent.is_some() && proxy.options.redispatch.is_some() => {
                want.persistent = None;
            }
            Assignment::Full(_) => return Err(Unserved(*b"SQ", 503)),
            Assignment::NoServer => return Err(Unserved(*b"SC", 503)),
        }
    }
}

/// A new connection to a server, within `timeout connect`; counted, and in the log facts why there is none.
pub(crate) async fn connect(
    conn: &mut Conn,
    x: &mut Exchange,
    server: &Server,
    at: ServerRef,
    sni: Option<&str>,
) -> Option<Stream> {
    let worker = conn.worker.clone();
    let timeout = worker.shared.config.proxies[at.proxy].timeouts.connect;
    conn.deadline.set(worker.clock.tick(), timeout);
    let mut deadline = std::mem::take(&mut conn.deadline);
    let only_http1 = websocket::goes_over_http1(&x.request, &server.config.settings);
    let opened = in_time(&mut deadline, Box::pin(connect::open(conn, server, at, sni, only_http1))).await;
    conn.deadline = deadline;
    worker.clock.tick();
    worker.counters().server(at.proxy, at.server).connects.inc();
    let seen = if matches!(opened, Some(Ok(_))) { Seen::Connected } else { Seen::NotConnected };
    worker.shared.backends.observe(at, seen, worker.clock.now().into_std());
    x.log.termination = match opened {
        Some(Ok(stream)) => {
            connected(x, facts_of(&stream), worker.clock.now());
            return Some(stream);
        }
        Some(Err(Failure::Exhausted(_))) => *b"RC",
        Some(Err(_)) => *b"SC",
        None => *b"sC",
    };
    None
}

/// There is a connection to the server.
pub(super) fn connected(x: &mut Exchange, facts: ServerConnFacts, now: Instant) {
    x.log.termination = *b"--";
    x.log.Tc = x.times.assigned.map_or(0, |assigned| ms_between(assigned, now));
    x.times.connected = Some(now);
    x.log.server_address = facts.dst;
    x.server_conn = facts;
}

pub(super) fn facts_of(stream: &Stream) -> ServerConnFacts {
    let socket = stream.socket();
    ServerConnFacts {
        src: socket.local_addr().ok(),
        dst: socket.peer_addr().ok(),
        http_major: 1,
        tls: stream.tls().cloned(),
        ..ServerConnFacts::default()
    }
}

/// A request failed because no connection could be made; those that another attempt made good do not count.
pub(crate) fn count_connect_error(worker: &Worker, at: ServerRef) {
    worker.counters().server(at.proxy, at.server).connect_errors.inc();
    worker.counters().backend(at.proxy).connect_errors.inc();
}

/// Between two attempts at one server.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);

/// Whether the next attempt may go to another server (`option redispatch`).
pub(crate) fn may_redispatch(proxy: &Proxy, failures: u32) -> bool {
    match proxy.options.redispatch {
        None => false,
        Some(0) => failures == proxy.retries,
        Some(every @ 1..) => failures.is_multiple_of(every as u32),
        Some(last) => failures + last.unsigned_abs() == proxy.retries + 1,
    }
}
