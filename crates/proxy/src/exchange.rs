//! One request and its response, whatever protocols carry them: route, connect, forward, log. HTTP/1 connections and
//! HTTP/2 streams run the same code.

use crate::{
    buffer::{Buffer, Buffers},
    conn::{Conn, in_time},
    connect::{self, Failure},
    cookie, debug, finish,
    forward::{Broken, Flow, Waits},
    headers,
    http2::{self, Http2Server, Mux, websocket},
    judge,
    message::{Client, Fault, Sink, Source, Upstream},
    own,
    pool::Returned,
    queue::Granted,
    respond,
    route::{self, Route},
    server::{Assignment, Backend, Presence, Seen, Server, ServerRef, Slot, Want},
    stream::Stream,
    timer::Deadline,
    upstream::Http1Server,
    watchdog::Stage,
    worker::Worker,
};
use penstock_config::model::{HttpReuse, Proxy};
use penstock_http::{Framing, Limits, RequestHead, ResponseHead};
use penstock_rules::{LogFacts, ServerConnFacts, Txn};
use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::Instant;

/// Everything a request needs while there is one. Kept by the worker between requests, with its memory.
#[derive(Default)]
pub(crate) struct Exchange {
    pub request: RequestHead,
    pub response: ResponseHead,
    pub txn: Txn,
    pub log: LogFacts,
    pub times: Times,
    /// The backend's place in the configuration, once chosen.
    pub backend: Option<usize>,
    /// The server, once chosen.
    pub server: Option<usize>,
    pub server_conn: ServerConnFacts,
    /// What was read of the body ahead of forwarding, and whether that is all.
    pub body: Option<Buffer>,
    pub body_complete: bool,
    /// The length of the body, where its head told.
    pub announced: Option<u64>,
    /// The server that persistence names.
    pub persistent: Option<usize>,
    /// What the persistence cookie said.
    pub cookie: crate::cookie::Persistence,
    /// The response head has gone to the client.
    pub responded: bool,
    /// Another attempt at a server is left.
    pub may_retry: bool,
    pub presence: Option<Presence>,
}

/// Moments of an exchange; what did not happen is `None`.
#[derive(Clone, Copy, Default)]
pub(crate) struct Times {
    /// The connection was ready for this request.
    pub ready: Option<Instant>,
    pub first_byte: Option<Instant>,
    pub complete: Option<Instant>,
    pub assigned: Option<Instant>,
    pub connected: Option<Instant>,
    pub answered: Option<Instant>,
}

impl Exchange {
    /// One of the worker's.
    pub fn take(worker: &Worker) -> Box<Exchange> {
        worker.exchanges.borrow_mut().pop().unwrap_or_default()
    }
    /// Gives it back.
    pub fn give(mut self: Box<Self>, worker: &Worker) {
        self.request.clear();
        self.response.clear();
        self.txn.clear();
        self.log = LogFacts::default();
        self.times = Times::default();
        (self.backend, self.server, self.persistent, self.presence) = (None, None, None, None);
        self.server_conn = ServerConnFacts::default();
        if let Some(body) = self.body.take() {
            worker.buffers.give(body);
        }
        self.cookie = crate::cookie::Persistence::default();
        (self.body_complete, self.responded, self.announced) = (false, false, None);
        let mut kept = worker.exchanges.borrow_mut();
        if kept.len() < KEPT {
            kept.push(self);
        }
    }
    /// Its first byte is there.
    pub fn begin(&mut self, conn: &Conn, ready: Instant, first_byte: Instant) {
        self.times.ready = Some(ready);
        self.times.first_byte = Some(first_byte);
        self.log.Th = if conn.requests == 0 { conn.handshake_ms } else { 0 };
        self.log.Ti = ms_between(ready, first_byte);
    }
    /// Its head has been read.
    pub fn request_complete(&mut self, conn: &mut Conn) {
        let now = conn.worker.clock.now();
        self.times.complete = Some(now);
        self.log.TR = self.times.first_byte.map_or(-1, |first| ms_between(first, now));
        self.log.request_unix_us = conn.worker.clock.unix_us();
        conn.session.requests += 1;
        let tune = &conn.worker.shared.config.global.tune;
        self.txn.received.keep(&self.request, tune.http_logurilen);
    }
    /// It ended before there was a response; the log shows this status.
    pub fn aborted(&mut self, status: u16) {
        self.txn.status = Some(status);
    }
    /// The proxy whose settings hold now: the backend's, once there is one.
    pub fn proxy<'a>(&self, conn: &'a Conn) -> &'a Proxy {
        &conn.worker.shared.config.proxies[self.backend.unwrap_or(conn.frontend)]
    }
}

/// Exchanges kept for reuse by each worker.
const KEPT: usize = 256;

/// Milliseconds from one moment to a later one.
pub(crate) fn ms_between(from: Instant, to: Instant) -> i64 {
    to.saturating_duration_since(from).as_millis() as i64
}

/// How forwarding ended, when it did not end well.
enum Ended {
    /// Nothing was answered, nothing but the head was sent: it may be sent again.
    Retry(Reason),
    /// It is over: log it so.
    Over,
}

/// Why an attempt failed before a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// An idle connection turned out to be closed.
    Stale,
    /// `conn-failure`
    Connect,
    /// `empty-response`
    Empty,
    /// `junk-response`
    Junk,
    /// `response-timeout`
    Timeout,
    /// A status that `retry-on` names.
    Status,
}

/// Runs an exchange whose request head has been read.
pub(crate) async fn run(conn: &mut Conn, client: &mut dyn Client, x: &mut Exchange) {
    conn.worker.pulse().enter(Stage::Route);
    if let Some(fault) = conn.worker.planted.filter(|_| x.request.path() == b"/planted-fault") {
        fault.strike();
    }
    debug::request(conn, x);
    match route::request(conn, client, x).await {
        Route::Backend(backend) => to_backend(conn, client, x, backend).await,
        Route::Answered => {}
    }
    finish::run(conn, client, x);
}

/// Finds a server and forwards, as often as `retries` allows.
async fn to_backend(conn: &mut Conn, client: &mut dyn Client, x: &mut Exchange, backend: usize) {
    let worker = conn.worker.clone();
    let shared = worker.shared.clone();
    let Some(pool) = shared.backends.get(backend) else {
        return answer(conn, client, x, b"SC", 503).await;
    };
    let proxy = &shared.config.proxies[backend];
    x.presence = Some(pool.enter());
    let persistence = route::bind(conn, x, pool, judge::Stage::Request);
    cookie::from_client(x, proxy, pool, persistence, worker.clock.unix_s());
    route::stick(conn, x, pool, judge::Stage::Request);
    worker.counters().backend(backend).session(worker.now_ms());
    let mut want =
        Want { persistent: x.persistent, hash: route::hash(conn, x, pool, judge::Stage::Request), avoid: None };
    if want.persistent.is_none() && want.hash.is_none() {
        want.persistent = route::last_server(conn, pool, proxy);
    }
    let mut failures = 0;
    loop {
        let slot = match assign(conn, x, pool, &want, &mut |cx| client.poll_gone(cx)).await {
            Ok(slot) => slot,
            Err(Unserved(termination, 0)) => {
                x.log.termination = termination;
                return x.aborted(503);
            }
            Err(Unserved(termination, status)) => {
                worker.counters().backend(backend).connect_errors.inc();
                return answer(conn, client, x, &termination, status).await;
            }
        };
        let server = slot.server().index;
        x.server = Some(server);
        worker.counters().server(backend, server).session(worker.now_ms());
        let at = ServerRef { proxy: backend, server };
        x.may_retry = failures < proxy.retries;
        let attempt = {
            // Pinned, so that it stays where it is made: it is the largest future of all.
            let attempt = pin!(attempt(conn, client, x, &slot, at, proxy, failures > 0));
            unless_shut_down(&slot, attempt).await
        };
        let Some(attempt) = attempt else {
            return shut_down(conn, client, x, slot.server().shut_reason()).await;
        };
        // What goes on at the server apart from this exchange, before its place goes to who waits.
        x.log.srv_conn = slot.server().served().saturating_sub(1);
        let reason = match attempt {
            Ok(()) | Err(Ended::Over) => return,
            Err(Ended::Retry(Reason::Stale)) => {
                // Not the server's failure, and not counted as one: it closed a connection that nobody used.
                drop(slot);
                want.persistent = Some(server);
                continue;
            }
            Err(Ended::Retry(reason)) => reason,
        };
        drop(slot);
        if failures >= proxy.retries {
            if reason == Reason::Connect {
                count_connect_error(&worker, at);
            }
            return fail_server(conn, client, x, reason).await;
        }
        failures += 1;
        x.log.retries = failures;
        // A server that took the connection and failed the request is left at once; one that refused it may be busy.
        if reason != Reason::Connect || may_redispatch(proxy, failures) {
            // It counts as sent elsewhere, not as tried again.
            if pool.servers.len() > 1 {
                (want.persistent, want.avoid) = (None, Some(server));
                if std::mem::take(&mut x.cookie.direct) {
                    // The server that the cookie names did not answer.
                    x.log.cookie[0] = b'D';
                }
                x.log.redispatched = true;
                worker.counters().server(backend, server).redispatches.inc();
                worker.counters().backend(backend).redispatches.inc();
            }
        } else {
            want.persistent = Some(server);
            worker.counters().server(backend, server).retries.inc();
            worker.counters().backend(backend).retries.inc();
            if reason == Reason::Connect {
                // The same server again: give it a moment.
                tokio::time::sleep(proxy.timeouts.connect.unwrap_or(PAUSE).min(PAUSE)).await;
            }
        }
    }
}

/// The outcome of `attempt`, unless the server's sessions are ended first. Few servers may have that done to them, and
/// only their requests listen for it.
async fn unless_shut_down<T>(slot: &Slot, mut attempt: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    if !slot.server().may_shut_sessions {
        return Some(attempt.await);
    }
    let mut shut = pin!(slot.server().shut_down());
    poll_fn(|cx| match shut.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => attempt.as_mut().poll(cx).map(Some),
    })
    .await
}

/// The server's sessions are ended: it went down, or an operator wanted it so.
async fn shut_down(conn: &mut Conn, client: &mut dyn Client, x: &mut Exchange, why: u8) {
    if x.responded {
        x.log.termination = [why, b'D'];
        client.abort();
    } else {
        x.log.termination = [why, b'H'];
        respond::error(conn, client, x, 502).await;
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
    let proxy = &conn.worker.shared.clone().config.proxies[pool.proxy];
    let mut want = *want;
    // The time in queues is one, however many queues there were.
    let clock = &conn.worker.clone().clock;
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
fn connected(x: &mut Exchange, facts: ServerConnFacts, now: Instant) {
    x.log.termination = *b"--";
    x.log.Tc = x.times.assigned.map_or(0, |assigned| ms_between(assigned, now));
    x.times.connected = Some(now);
    x.log.server_address = facts.dst;
    x.server_conn = facts;
}

fn facts_of(stream: &Stream) -> ServerConnFacts {
    let socket = stream.socket();
    ServerConnFacts {
        src: socket.local_addr().ok(),
        dst: socket.peer_addr().ok(),
        http_major: 1,
        tls: stream.tls().cloned(),
        ..ServerConnFacts::default()
    }
}

/// One attempt at one server: a connection, the request, the response.
async fn attempt(
    conn: &mut Conn,
    client: &mut dyn Client,
    x: &mut Exchange,
    slot: &Slot,
    at: ServerRef,
    proxy: &Proxy,
    repeated: bool,
) -> Result<(), Ended> {
    let worker = conn.worker.clone();
    let cells = worker.counters().server(at.proxy, at.server);
    let server = slot.server();
    let first = conn.requests == 0 && !repeated;
    let sni = route::sni(conn, x, server, at, judge::Stage::Request);
    let private =
        server.config.settings.send_proxy.is_some() || proxy.http_reuse == HttpReuse::Never || conn.own.authenticates;
    let limits = Limits { lenient: proxy.options.accept_invalid_http_response, ..crate::serve::limits(conn) };
    let reuse = if private { HttpReuse::Never } else { proxy.http_reuse };
    let only_http1 = websocket::goes_over_http1(&x.request, &server.config.settings);
    if !only_http1 && let Some(mux) = worker.muxes.take(at, reuse, first, sni.as_deref()) {
        cells.reuses.inc();
        connected(x, mux.facts().clone(), worker.clock.now());
        return multiplexed(conn, client, x, &mux, slot, at, proxy, limits).await;
    }
    let own = conn.own.take(at, sni.as_deref());
    let private = private || own.is_some();
    let (stream, uses) = match own.or_else(|| worker.pool.take(at, reuse, first, sni.as_deref())) {
        Some(taken) => {
            cells.reuses.inc();
            connected(x, taken.facts, worker.clock.now());
            (taken.stream, taken.uses)
        }
        None => match connect(conn, x, server, at, sni.as_deref()).await {
            Some(stream) => (stream, 0),
            None => return Err(Ended::Retry(Reason::Connect)),
        },
    };
    if !only_http1 && http2::is_spoken_by(&stream, &server.config.settings) {
        let tune = &worker.shared.config.global.tune.h2_be;
        let Ok(mux) = Mux::open(stream, x.server_conn.clone(), sni, tune).await else {
            x.log.termination = *b"SC";
            return Err(Ended::Retry(Reason::Connect));
        };
        if !private && !worker.draining.get() {
            worker.muxes.share(at, mux.clone());
        }
        return multiplexed(conn, client, x, &mux, slot, at, proxy, limits).await;
    }
    let mut upstream = Http1Server::new(stream, worker.clone(), limits);
    let may_keep = headers::to_server(conn, x, proxy, server);
    upstream.request(&mut x.request, client.request_framing());
    let stale = uses > 0;
    let result = forward(conn, client, x, &mut upstream, at, proxy, stale).await;
    match result {
        Ok(()) if may_keep => {
            if let Some(stream) = upstream.into_idle() {
                let idle = Returned { stream, facts: x.server_conn.clone(), uses: uses + 1, sni };
                if private || conn.own.authenticates {
                    conn.own.give(at, idle)
                } else {
                    worker.pool.give(&worker, at, idle)
                }
            }
        }
        _ => upstream.give_back(),
    }
    result
}

/// An attempt over a connection that others may share.
#[allow(clippy::too_many_arguments, reason = "one attempt, which these are the parts of")]
async fn multiplexed(
    conn: &mut Conn,
    client: &mut dyn Client,
    x: &mut Exchange,
    mux: &Rc<Mux>,
    slot: &Slot,
    at: ServerRef,
    proxy: &Proxy,
    limits: Limits,
) -> Result<(), Ended> {
    x.server_conn.http_major = 2;
    if websocket::is_asked_for(&x.request) {
        conn.deadline.set(conn.worker.clock.now(), proxy.timeouts.connect);
        if in_time(&mut conn.deadline, mux.takes_websockets()).await != Some(true) {
            x.log.termination = *b"SH";
            respond::error(conn, client, x, 502).await;
            return Err(Ended::Over);
        }
    }
    let mut upstream = Http2Server::new(mux.clone(), limits);
    headers::to_server(conn, x, proxy, slot.server());
    upstream.request(&mut x.request, client.request_framing());
    forward(conn, client, x, &mut upstream, at, proxy, mux.uses() > 0).await
}

/// When each side's silence becomes a timeout. A side that nothing is expected of has no limit.
pub(crate) struct Patience {
    pub client: Option<Duration>,
    pub server: Option<Duration>,
    client_due: Option<Instant>,
    server_due: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

impl Patience {
    pub fn new(conn: &Conn, x: &Exchange, proxy: &Proxy) -> Self {
        let server = x.txn.timeout_server_ms.map(Duration::from_millis).or(proxy.timeouts.server);
        Patience { client: conn.proxy().timeouts.client, server, client_due: None, server_due: None }
    }
    /// Ready with the side that kept us waiting too long. `moved` restarts both.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        deadline: &mut Deadline,
        now: Instant,
        waits: (bool, bool),
        moved: bool,
    ) -> Poll<Side> {
        let (client, server) = waits;
        let stands = |waits: bool, due: Option<Instant>| waits == due.is_some();
        if moved || !stands(client, self.client_due) || !stands(server, self.server_due) {
            let due = |waits: bool, due: Option<Instant>, limit: Option<Duration>| match (waits, limit) {
                (true, Some(limit)) => {
                    if moved {
                        Some(now + limit)
                    } else {
                        due.or(Some(now + limit))
                    }
                }
                _ => None,
            };
            self.client_due = due(client, self.client_due, self.client);
            self.server_due = due(server, self.server_due, self.server);
            deadline.set_at(match (self.client_due, self.server_due) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            });
        }
        match deadline.poll_expired(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) if self.client_due.is_some() && self.client_due <= deadline.due() => {
                Poll::Ready(Side::Client)
            }
            Poll::Ready(()) => Poll::Ready(Side::Server),
        }
    }
}

/// What waiting for a response head came to.
enum Head {
    Got(Framing),
    ServerFault(Fault),
    ClientFault(Fault),
    Timeout(Side),
    Gone,
}

/// Sends the request, and the response back.
async fn forward(
    conn: &mut Conn,
    client: &mut dyn Client,
    x: &mut Exchange,
    upstream: &mut dyn Upstream,
    at: ServerRef,
    proxy: &Proxy,
    stale: bool,
) -> Result<(), Ended> {
    let worker = conn.worker.clone();
    let buffers = &worker.buffers;
    worker.pulse().enter(Stage::Forward);
    let mut patience = Patience::new(conn, x, proxy);
    let mut request = Flow::new();
    if let Some(body) = x.body.take() {
        request.preload(body, x.body_complete);
    }
    if client.request_framing() != Framing::None && may_repeat_body(proxy) && !x.txn.no_retry {
        request.keep(worker.shared.config.global.tune.bufsize);
    }
    let mut woken = false;
    let framing = loop {
        let head = poll_fn(|cx| {
            worker.clock.resume(&mut woken);
            poll_head(cx, conn, client, x, upstream, &mut request, &mut patience, proxy.options.abortonclose)
        })
        .await;
        match head {
            Head::Got(Framing::None) if x.response.is_interim() => {
                client.interim(&x.response);
                flush(conn, client).await;
            }
            Head::Got(framing) => break framing,
            failed => {
                request.give_back(buffers);
                let ended = head_failed(conn, client, x, upstream, at, failed, stale, &request).await;
                if matches!(ended, Ended::Retry(_)) {
                    keep_body(x, &mut request, buffers);
                }
                return Err(ended);
            }
        }
    };
    let now = worker.clock.now();
    debug::response(conn, x);
    x.times.answered = Some(now);
    let cells = worker.counters().server(at.proxy, at.server);
    cells.requests.inc();
    cells.response(x.response.status());
    conn.own.authenticates |= own::authenticates_connection(&x.response);
    let seen = if matches!(x.response.status(), 500 | 502..=504 | 506..) { Seen::WrongStatus } else { Seen::Response };
    worker.shared.backends.observe(at, seen, now.into_std());
    x.log.bytes_read = upstream.counts().received;
    if x.may_retry && is_repeatable(client, x, &request) && retries_on_status(proxy, x.response.status()) {
        request.give_back(buffers);
        keep_body(x, &mut request, buffers);
        return Err(Ended::Retry(Reason::Status));
    }
    x.txn.request_forwarded();
    if !route::response(conn, client, x).await {
        request.give_back(buffers);
        return Err(Ended::Over);
    }
    x.log.Tr = x.times.connected.map_or(-1, |connected| ms_between(connected, now));
    headers::to_client(x, proxy);
    if let Some(pool) = worker.shared.backends.get(at.proxy) {
        cookie::to_client(x, proxy, pool, worker.clock.unix_s());
    }
    let last = headers::closes(conn, x) || !request.done;
    client.respond(&mut x.response, framing, last && framing != Framing::Tunnel);
    x.responded = true;
    x.txn.status = Some(x.response.status());
    if framing == Framing::Tunnel {
        client.tunnel();
        upstream.tunnel();
        return tunnel(conn, client, x, upstream, proxy, request).await;
    }
    finish::as_soon_as(conn, client, x);
    let mut response = Flow::new();
    let mut woken = false;
    let result = poll_fn(|cx| {
        worker.clock.resume(&mut woken);
        let polled = poll_body(cx, conn, client, upstream, &mut request, &mut response, &mut patience);
        // Kept up to date, as the server's sessions may be ended at any moment.
        x.log.bytes_read = upstream.counts().received;
        polled
    })
    .await;
    request.give_back(buffers);
    response.give_back(buffers);
    finish_body(conn, client, x, at, result)
}

/// Sends what waits in the client's end.
pub(crate) async fn flush(conn: &mut Conn, client: &mut dyn Client) {
    conn.deadline.set(conn.worker.clock.now(), conn.proxy().timeouts.client);
    let mut nothing = Buffer::none();
    // A failure shows again, and is handled, when the response is sent.
    let _ = in_time(&mut conn.deadline, poll_fn(|cx| client.poll_send(cx, &mut nothing, None))).await;
}

#[allow(clippy::too_many_arguments, reason = "one poll of one exchange, which these are the parts of")]
fn poll_head(
    cx: &mut Context<'_>,
    conn: &mut Conn,
    client: &mut dyn Client,
    x: &mut Exchange,
    upstream: &mut dyn Upstream,
    request: &mut Flow,
    patience: &mut Patience,
    watch_client: bool,
) -> Poll<Head> {
    let mut moved = false;
    if !request.done {
        match request.poll(cx, client, upstream, &conn.worker.buffers) {
            Poll::Ready(Err(Broken::Source(fault))) => return Poll::Ready(Head::ClientFault(fault)),
            // It may have answered before it stopped reading.
            Poll::Ready(Err(Broken::Sink(e))) => {
                return match upstream.poll_head(cx, &mut x.response) {
                    Poll::Ready(Ok(framing)) => {
                        request.done = true;
                        Poll::Ready(Head::Got(framing))
                    }
                    _ => Poll::Ready(Head::ServerFault(Fault::Io(e))),
                };
            }
            Poll::Ready(Ok(())) | Poll::Pending => {}
        }
        moved = std::mem::take(&mut request.moved);
    }
    match upstream.poll_head(cx, &mut x.response) {
        Poll::Ready(Ok(framing)) => return Poll::Ready(Head::Got(framing)),
        Poll::Ready(Err(fault)) => return Poll::Ready(Head::ServerFault(fault)),
        Poll::Pending => {}
    }
    let gone = request.done && watch_client && client.poll_gone(cx).is_ready();
    if gone || client.poll_cancelled(cx).is_ready() {
        return Poll::Ready(Head::Gone);
    }
    // The server is waited for once it has the request; until then whoever holds the request up.
    let on_client = !request.done && request.waits_for == Waits::Source;
    patience.poll(cx, &mut conn.deadline, conn.worker.clock.now(), (on_client, !on_client), moved).map(Head::Timeout)
}

/// No response head came: says so to the client, unless another attempt may help.
#[allow(clippy::too_many_arguments, reason = "one failure of one exchange, which these are the parts of")]
async fn head_failed(
    conn: &mut Conn,
    client: &mut dyn Client,
    x: &mut Exchange,
    upstream: &dyn Upstream,
    at: ServerRef,
    failed: Head,
    stale: bool,
    request: &Flow,
) -> Ended {
    let worker = conn.worker.clone();
    let cells = worker.counters().server(at.proxy, at.server);
    let backend = worker.counters().backend(at.proxy);
    let repeatable = is_repeatable(client, x, request);
    let proxy = x.proxy(conn);
    match failed {
        Head::ServerFault(fault) => {
            let idempotent =
                matches!(x.request.method(), b"GET" | b"HEAD" | b"OPTIONS" | b"PUT" | b"DELETE" | b"TRACE");
            if stale && repeatable && idempotent && !upstream.answered() && !matches!(fault, Fault::Invalid(_)) {
                return Ended::Retry(Reason::Stale);
            }
            let (reason, termination) = match fault {
                Fault::Invalid(_) => (Reason::Junk, *b"PH"),
                Fault::Closed | Fault::Io(_) => (Reason::Empty, *b"SH"),
            };
            cells.response_errors.inc();
            backend.response_errors.inc();
            let seen = if reason == Reason::Junk { Seen::BadResponse } else { Seen::NoResponse };
            worker.shared.backends.observe(at, seen, worker.clock.now().into_std());
            x.log.termination = termination;
            if repeatable && retries_on(proxy, reason) && (reason != Reason::Empty || !upstream.answered()) {
                return Ended::Retry(reason);
            }
            respond::error(conn, client, x, 502).await;
        }
        Head::Timeout(Side::Server) => {
            cells.response_errors.inc();
            backend.response_errors.inc();
            worker.shared.backends.observe(at, Seen::ResponseTimeout, worker.clock.now().into_std());
            x.log.termination = *b"sH";
            if repeatable && retries_on(proxy, Reason::Timeout) {
                return Ended::Retry(Reason::Timeout);
            }
            respond::error(conn, client, x, 504).await;
        }
        Head::Timeout(Side::Client) => {
            x.log.termination = *b"cD";
            respond::error(conn, client, x, 408).await;
        }
        Head::ClientFault(Fault::Invalid(_)) => {
            x.log.termination = *b"PR";
            respond::error(conn, client, x, 400).await;
        }
        Head::ClientFault(_) => {
            cells.client_aborts.inc();
            backend.client_aborts.inc();
            x.log.termination = *b"CD";
            x.aborted(400);
            client.abort();
        }
        Head::Gone => {
            cells.client_aborts.inc();
            backend.client_aborts.inc();
            x.log.termination = *b"CH";
            respond::error(conn, client, x, 400).await;
        }
        Head::Got(_) => {}
    }
    Ended::Over
}

/// What was read from the client is gone once sent, unless it was kept; a request without a body can be sent as often as
/// needed.
fn is_repeatable(client: &dyn Client, x: &Exchange, request: &Flow) -> bool {
    !x.txn.no_retry && (client.request_framing() == Framing::None || request.keeps_all())
}

/// Has the next attempt begin with what this one has sent of the body.
fn keep_body(x: &mut Exchange, request: &mut Flow, buffers: &Buffers) {
    if let Some((body, complete)) = request.again(buffers) {
        (x.body, x.body_complete) = (Some(body), complete);
    }
}

/// `retry-on` names something that happens once a request has been sent.
fn may_repeat_body(proxy: &Proxy) -> bool {
    let only_connecting = |word: &str| matches!(word, "none" | "conn-failure" | "0rtt-rejected");
    proxy.retry_on.iter().flatten().any(|word| !only_connecting(&word.text))
}

/// `retry-on`.
fn retries_on(proxy: &Proxy, reason: Reason) -> bool {
    let Some(words) = &proxy.retry_on else { return reason == Reason::Connect };
    let word = match reason {
        Reason::Stale | Reason::Connect => "conn-failure",
        Reason::Empty => "empty-response",
        Reason::Junk => "junk-response",
        Reason::Timeout => "response-timeout",
        Reason::Status => return true,
    };
    words.iter().any(|w| w.text == word || w.text == "all-retryable-errors")
}

/// Whether `retry-on` names this status.
fn retries_on_status(proxy: &Proxy, status: u16) -> bool {
    let Some(words) = &proxy.retry_on else { return false };
    words.iter().any(|word| match word.text.as_str() {
        "all-retryable-errors" => matches!(status, 500 | 502 | 503 | 504),
        number => number.parse() == Ok(status),
    })
}

/// How the transfer of bodies ended.
enum Transfer {
    Done,
    ServerFault,
    ClientFault,
    ClientGone,
    Timeout(Side),
}

fn poll_body(
    cx: &mut Context<'_>,
    conn: &mut Conn,
    client: &mut dyn Client,
    upstream: &mut dyn Upstream,
    request: &mut Flow,
    response: &mut Flow,
    patience: &mut Patience,
) -> Poll<Transfer> {
    let buffers = &conn.worker.buffers;
    match response.poll(cx, upstream, client, buffers) {
        // A request that the server did not want to the end is of no more use to anybody.
        Poll::Ready(Ok(())) => return Poll::Ready(Transfer::Done),
        Poll::Ready(Err(Broken::Source(_))) => return Poll::Ready(Transfer::ServerFault),
        Poll::Ready(Err(Broken::Sink(_))) => return Poll::Ready(Transfer::ClientGone),
        Poll::Pending => {}
    }
    let mut moved = std::mem::take(&mut response.moved);
    if !request.done {
        match request.poll(cx, client, upstream, buffers) {
            Poll::Ready(Err(Broken::Source(_))) => return Poll::Ready(Transfer::ClientFault),
            // The response may say why it stopped reading: that goes on.
            Poll::Ready(Err(Broken::Sink(_))) => request.done = true,
            Poll::Ready(Ok(())) | Poll::Pending => {}
        }
        moved |= std::mem::take(&mut request.moved);
    }
    if client.poll_cancelled(cx).is_ready() {
        return Poll::Ready(Transfer::ClientGone);
    }
    let waits_client = response.waits_for == Waits::Sink || (!request.done && request.waits_for == Waits::Source);
    let waits_server = response.waits_for == Waits::Source || (!request.done && request.waits_for == Waits::Sink);
    patience
        .poll(cx, &mut conn.deadline, conn.worker.clock.now(), (waits_client, waits_server), moved)
        .map(Transfer::Timeout)
}

fn finish_body(
    conn: &Conn,
    client: &mut dyn Client,
    x: &mut Exchange,
    at: ServerRef,
    result: Transfer,
) -> Result<(), Ended> {
    let counters = conn.worker.counters();
    let (cells, backend) = (counters.server(at.proxy, at.server), counters.backend(at.proxy));
    let termination = match result {
        Transfer::Done => return Ok(()),
        Transfer::ServerFault => {
            cells.response_errors.inc();
            backend.response_errors.inc();
            cells.server_aborts.inc();
            backend.server_aborts.inc();
            b"SD"
        }
        Transfer::ClientFault | Transfer::ClientGone => {
            cells.client_aborts.inc();
            backend.client_aborts.inc();
            b"CD"
        }
        Transfer::Timeout(Side::Client) => {
            cells.client_aborts.inc();
            backend.client_aborts.inc();
            b"cD"
        }
        Transfer::Timeout(Side::Server) => {
            cells.server_aborts.inc();
            backend.server_aborts.inc();
            b"sD"
        }
    };
    x.log.termination = *termination;
    client.abort();
    Err(Ended::Over)
}

/// Two byte streams, each ended by itself, until both are or one has been silent for `timeout tunnel`.
async fn tunnel(
    conn: &mut Conn,
    client: &mut dyn Client,
    x: &mut Exchange,
    upstream: &mut dyn Upstream,
    proxy: &Proxy,
    mut up: Flow,
) -> Result<(), Ended> {
    finish::as_soon_as(conn, client, x);
    up.give_back(&conn.worker.buffers);
    let (mut up, mut down) = (Flow::new(), Flow::new());
    let limit = x.txn.timeout_tunnel_ms.map(Duration::from_millis).or(proxy.timeouts.tunnel);
    let mut patience = Patience::new(conn, x, proxy);
    if limit.is_some() {
        (patience.client, patience.server) = (limit, limit);
    }
    let ended = poll_fn(|cx| {
        conn.worker.clock.tick();
        let buffers = &conn.worker.buffers;
        for (flow, from_client) in [(&mut down, false), (&mut up, true)] {
            if flow.done {
                continue;
            }
            let (source, sink): (&mut dyn Source, &mut dyn Sink) =
                if from_client { (&mut *client, &mut *upstream) } else { (&mut *upstream, &mut *client) };
            if let Poll::Ready(Err(broken)) = flow.poll(cx, source, sink, buffers) {
                let by_client = from_client == matches!(broken, Broken::Source(_));
                return Poll::Ready(Some(if by_client { *b"CD" } else { *b"SD" }));
            }
        }
        if down.done || up.done {
            return Poll::Ready(None);
        }
        let moved = std::mem::take(&mut down.moved) | std::mem::take(&mut up.moved);
        match patience.poll(cx, &mut conn.deadline, conn.worker.clock.now(), (true, true), moved) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Side::Client) => Poll::Ready(Some(*b"cD")),
            Poll::Ready(Side::Server) => Poll::Ready(Some(*b"sD")),
        }
    })
    .await;
    up.give_back(&conn.worker.buffers);
    down.give_back(&conn.worker.buffers);
    x.log.bytes_read = upstream.counts().received;
    if let Some(termination) = ended {
        x.log.termination = termination;
    }
    Err(Ended::Over)
}

/// All attempts failed: the answer that says why the last one did.
async fn fail_server(conn: &mut Conn, client: &mut dyn Client, x: &mut Exchange, reason: Reason) {
    let status = match reason {
        Reason::Stale | Reason::Connect => 503,
        Reason::Empty | Reason::Junk => 502,
        Reason::Timeout => 504,
        Reason::Status => x.response.status(),
    };
    respond::error(conn, client, x, status).await;
}

/// Answers with an error page and logs why.
async fn answer(conn: &mut Conn, client: &mut dyn Client, x: &mut Exchange, termination: &[u8; 2], status: u16) {
    x.log.termination = *termination;
    respond::error(conn, client, x, status).await;
}

/// A worker's exchanges, kept between requests.
pub(crate) type Kept = std::cell::RefCell<Vec<Box<Exchange>>>;
