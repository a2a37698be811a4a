//! Obtains a place on a server, and a connection to it.

use super::state::{Exchange, ms_between};
use crate::{
    connection::{Conn, in_time, stream::Stream},
    rules::context::Readable,
    server::{Assignment, Backend, Seen, Server, ServerRef, Slot, Target, Want},
    servers::{
        connect::{self, Failure},
        key::key_of,
    },
    worker::state::Worker,
};
use penstock_backends::{
    queue::Granted,
    retry::{Attempt, Attempts, Reason},
    reuse::Key,
};
use penstock_rules::{By, During, ServerConnFacts, Termination};
use penstock_tls::HandshakeError;
use std::{
    future::{Future, poll_fn},
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::time::Instant;

/// A request that got no server: the termination state for the log, and the status of the response.
pub(crate) struct Unserved(pub Termination, pub u16);

/// Ready once a socket that waits to be readable is broken: its client waits for no response any more.
pub(crate) fn poll_broken(readable: Poll<io::Result<()>>) -> Poll<()> {
    match readable {
        Poll::Ready(Err(_)) => Poll::Ready(()),
        _ => Poll::Pending,
    }
}

/// Obtains a place on a server, waiting in a queue if necessary. `gone` is ready once no client waits for the response
/// any more.
pub(crate) async fn assign(
    conn: &mut Conn<'_>,
    x: &mut Exchange,
    pool: &Arc<Backend>,
    want: &Want,
    attempts: &mut Attempts,
    gone: &mut dyn FnMut(&mut Context<'_>) -> Poll<()>,
) -> Result<Slot, Unserved> {
    let worker = conn.worker;
    let (proxy, clock) = (&worker.shared.config.proxies[pool.proxy], &worker.clock);
    let mut want = *want;
    // The log shows one queue time, however many queues the request waited in. The attempts before this one are part of the time that it takes
    // to connect (manual, 8.4).
    let since = clock.now();
    // As in HAProxy, a redispatched request has waited for its server until then.
    let waited = |x: &mut Exchange, slot: Option<&Slot>| {
        let now = clock.now();
        let redispatched = slot.zip(x.server.as_ref()).is_some_and(|(slot, last)| slot.server().at != last.at);
        if let Some(assigned) = x.times.assigned.filter(|_| !redispatched) {
            x.log.Tw += ms_between(since, now);
            x.times.assigned = Some(assigned + (now - since));
        } else {
            x.log.Tw = ms_between(x.times.complete.unwrap_or(now), now);
            x.times.assigned = Some(now);
        }
    };
    loop {
        match pool.assign(&want) {
            Assignment::Slot(slot) => {
                waited(x, Some(&slot));
                return Ok(slot);
            }
            Assignment::Queued(mut ticket) => {
                let place = if ticket.is_for_one_server() { &mut x.log.srv_queue } else { &mut x.log.backend_queue };
                *place = ticket.ahead() + 1;
                conn.deadline.set(since, proxy.timeouts.queue.or(proxy.timeouts.connect));
                let deadline = &mut conn.deadline;
                let granted = poll_fn(|cx| {
                    if let Poll::Ready(granted) = Pin::new(&mut ticket).poll(cx) {
                        return Poll::Ready(Ok(granted));
                    }
                    if proxy.options.abortonclose && gone(cx).is_ready() {
                        return Poll::Ready(Err(Unserved(Termination(By::Client, During::Queue), 0)));
                    }
                    deadline
                        .poll_expired(cx)
                        .map(|()| Err(Unserved(Termination(By::ServerTimeout, During::Queue), 503)))
                })
                .await;
                match granted {
                    Ok(Granted::Slot(slot)) => {
                        waited(x, Some(&slot));
                        return Ok(slot);
                    }
                    Ok(Granted::Again) => {
                        attempts.turned_away(proxy, &mut want);
                    }
                    Err(unserved) => {
                        waited(x, None);
                        return Err(unserved);
                    }
                }
            }
            Assignment::Full if attempts.turned_away(proxy, &mut want) => {}
            Assignment::Full => return Err(Unserved(Termination(By::Server, During::Queue), 503)),
            Assignment::NoServer => return Err(Unserved(Termination(By::Server, During::Connect), 503)),
        }
    }
}

/// Opens a new connection to a server within the `timeout connect` of its section, and counts it and what came of it; `None`
/// once the time is over. There is no key while the server's name is not resolved.
pub(crate) async fn open(conn: &mut Conn<'_>, server: &Server, key: Option<&Key>) -> Option<Result<Stream, Failure>> {
    let worker = conn.worker;
    let opening = key.map(|key| Box::pin(connect::open(&worker.shared, server, key)));
    timed(conn, server, opening).await
}

/// Waits for what opens a connection, in the way of [`open`]; it is in a box, since it is large, and new connections are few.
pub(crate) async fn timed<T>(
    conn: &mut Conn<'_>,
    server: &Server,
    opening: Option<Pin<Box<impl Future<Output = Result<T, Failure>>>>>,
) -> Option<Result<T, Failure>> {
    let worker = conn.worker;
    let timeout = worker.shared.config.proxies[server.at.proxy].timeouts.connect;
    conn.deadline.set(worker.clock.tick(), timeout);
    let opened = match opening {
        Some(opening) => in_time(&mut conn.deadline, opening).await,
        None => Some(Err(Failure::NoAddress)),
    };
    worker.cells(server).connects.inc();
    match &opened {
        Some(Ok(_)) => worker.observe(server.at, Seen::Connected),
        // What is missing here says nothing of the server.
        Some(Err(Failure::NoAddress)) => {}
        Some(Err(Failure::Exhausted(e))) => worker.tell_exhaustion(|| {
            let backend = &worker.shared.config.proxies[server.at.proxy].name;
            format!("Connect() failed for backend {backend}: {e}")
        }),
        Some(Err(Failure::Refused(_) | Failure::Tls(_))) | None => worker.observe(server.at, Seen::NotConnected),
    }
    opened
}

/// A place on a server, and what `connect` has got there.
pub(crate) struct Reached<T> {
    pub slot: Slot,
    pub got: T,
}

/// Finds a server and has `connect` connect to it, as many times as `retries` allows, for what is no request. If none is reached,
/// the log facts say why.
pub(crate) async fn reach<T>(
    conn: &mut Conn<'_>,
    x: &mut Exchange,
    pool: &Arc<Backend>,
    mut want: Want,
    forced: bool,
    gone: &mut dyn FnMut(&mut Context<'_>) -> Poll<()>,
    mut connect: impl AsyncFnMut(&mut Conn<'_>, &mut Exchange, &Server, Option<&Key>) -> Result<T, Reason>,
) -> Option<Reached<T>> {
    let worker = conn.worker;
    let proxy = &worker.shared.config.proxies[pool.proxy];
    let mut attempts = Attempts::new(&want, forced);
    loop {
        let slot = match assign(conn, x, pool, &want, &mut attempts, gone).await {
            Ok(slot) => slot,
            Err(Unserved(termination, _)) => {
                worker.counters().backend(pool.proxy).connect_errors.inc();
                x.log.termination = termination;
                return None;
            }
        };
        let server = slot.server().clone();
        x.server = Some(server.clone());
        worker.roster.note(x.listed, |session| {
            session.server = Some(server.at);
            session.attempts += 1;
        });
        count_attempt(worker, x, &server, attempts.assigned(server.at.server));
        let key = key_of(conn, x, &server, false, Readable::Raw);
        let reason = match connect(conn, x, &server, key.as_ref()).await {
            Ok(got) => return Some(Reached { slot, got }),
            Err(reason) => reason,
        };
        drop(slot);
        if !attempts.are_left(proxy) || reason == Reason::WrongName {
            count_connect_error(worker, &server);
            return None;
        }
        let pause = attempts.failed(proxy, pool.counts().0, &mut want);
        x.log.retries = attempts.failures();
        if let Some(pause) = pause.filter(|_| x.log.termination != Termination(By::ServerTimeout, During::Connect)) {
            tokio::time::sleep(pause).await;
        }
    }
}

/// Opens a new connection for an exchange, and notes it there.
///
/// # Errors
///
/// `Reason::Connect` or `Reason::WrongName`; the log facts say more.
pub(crate) async fn connect(
    conn: &mut Conn<'_>,
    x: &mut Exchange,
    server: &Server,
    key: Option<&Key>,
) -> Result<Stream, Reason> {
    let worker = conn.worker;
    let opened = open(conn, server, key).await;
    let mut reason = Reason::Connect;
    if !matches!(opened, Some(Ok(_))) {
        x.server_conn = tried(server, key);
        x.log.server_address = x.server_conn.dst;
    }
    x.log.termination = match opened {
        Some(Ok(stream)) => {
            connected(x, facts_of(&stream), worker.clock.now());
            return Ok(stream);
        }
        Some(Err(Failure::Exhausted(_))) => Termination(By::Exhaustion, During::Connect),
        Some(Err(Failure::Tls(e))) => {
            (x.server_conn.error, x.server_conn.tls_error) = ((e.code(), e.message()), Some(e.library()));
            if matches!(e, HandshakeError::WrongName) {
                // HAProxy counts the attempts that it leaves out.
                (reason, x.log.retries) = (Reason::WrongName, worker.shared.config.proxies[server.at.proxy].retries);
            }
            Termination(By::Server, During::Connect)
        }
        Some(Err(_)) => Termination(By::Server, During::Connect),
        None => Termination(By::ServerTimeout, During::Connect),
    };
    Err(reason)
}

/// What rules can see of a connection that could not be opened.
fn tried(server: &Server, key: Option<&Key>) -> ServerConnFacts {
    let dst = key.and_then(|key| match key.target {
        Target::Ip(address) => Some(address),
        Target::Unix(_) | Target::Abstract(_) => None,
    });
    let http_major = if server.config.settings.proto.as_deref() == Some("h2") { 2 } else { 1 };
    ServerConnFacts { dst, http_major, ..ServerConnFacts::default() }
}

/// Records that there is a connection to the server.
pub(crate) fn connected(x: &mut Exchange, facts: ServerConnFacts, now: Instant) {
    x.log.termination = Termination::default();
    x.log.Tc = x.times.assigned.map_or(0, |assigned| ms_between(assigned, now));
    x.times.connected = Some(now);
    x.log.server_address = facts.dst;
    x.server_conn = facts;
}

/// What rules can see of a connection to a server.
pub(crate) fn facts_of(stream: &Stream) -> ServerConnFacts {
    let socket = stream.socket();
    ServerConnFacts {
        src: socket.local_addr().ok(),
        dst: socket.peer_addr().ok(),
        opened: true,
        http_major: 1,
        tls: stream.tls().cloned(),
        socket: socket.number(),
        ..ServerConnFacts::default()
    }
}

/// Counts a request that failed because no connection could be made; failures that a later attempt made good do not
/// count.
pub(crate) fn count_connect_error(worker: &Worker, server: &Server) {
    worker.cells(server).connect_errors.inc();
    worker.counters().backend(server.at.proxy).connect_errors.inc();
}

/// Counts an attempt on `server`, on which the request now has a place, as a retry or a redispatch if it was one.
pub(crate) fn count_attempt(worker: &Worker, x: &mut Exchange, server: &Server, attempt: Attempt) {
    let backend = worker.counters().backend(server.at.proxy);
    match attempt {
        Attempt::First => {}
        Attempt::Repeated => {
            worker.cells(server).retries.inc();
            backend.retries.inc();
        }
        Attempt::Moved(before) => {
            let before = ServerRef { server: before, ..server.at };
            if let Some(before) = worker.shared.backends.server(before) {
                worker.cells(&before).redispatches.inc();
            }
            backend.redispatches.inc();
            x.log.redispatched = true;
            if std::mem::take(&mut x.cookie.direct) && x.log.cookie[0] == b'V' {
                // The server that the cookie names did not respond.
                x.log.cookie[0] = b'D';
            }
        }
    }
}
