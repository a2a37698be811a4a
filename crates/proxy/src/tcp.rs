//! `mode tcp`: bytes both ways, each direction ended by itself.

use crate::{
    buffer::{Buffer, Buffers},
    conn::Conn,
    exchange::{self, Exchange, PAUSE, Unserved, may_redispatch},
    finish,
    forward::{Broken, Flow, Waits},
    http1::give_if_empty,
    judge::Stage,
    message::{Body, Counts, End, Fault, Sink, Source},
    patience::{Patience, Side},
    route,
    server::{ServerRef, Slot, Want},
    stream::Stream,
    worker::Worker,
};
use penstock_config::model::Proxy;
use penstock_http::Fields;
use std::{
    future::poll_fn,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};
use tokio::io::AsyncWrite;

/// One end of a connection as a stream of bytes.
pub(crate) struct Raw {
    pub stream: Stream,
    worker: Rc<Worker>,
    /// Read while rules looked at it.
    pub input: Option<Buffer>,
    counts: Counts,
    /// Our half is closed.
    shut: bool,
    /// It is the client's end, not the server's.
    is_client: bool,
}

impl Raw {
    fn new(stream: Stream, worker: Rc<Worker>, is_client: bool) -> Self {
        Raw { stream, worker, input: None, counts: Counts::default(), shut: false, is_client }
    }
    fn buffers(&self) -> &Buffers {
        &self.worker.buffers
    }
    /// Reads more for rules to look at; 0 is the end.
    pub fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.input.is_none() {
            ready!(self.stream.poll_read_ready(cx))?;
        }
        let input = self.input.get_or_insert_with(|| self.worker.buffers.take());
        let read = self.stream.poll_fill(cx, input, usize::MAX);
        give_if_empty(&mut self.input, &self.worker.buffers);
        read
    }
    /// Nothing more can be read before some is forwarded.
    pub fn is_full(&self) -> bool {
        self.input.as_ref().is_some_and(Buffer::is_full)
    }
    /// Bytes read and not yet forwarded.
    pub fn pending(&self) -> &[u8] {
        self.input.as_ref().map_or(&[], Buffer::data)
    }
}

impl Source for Raw {
    fn poll_body(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<Result<Body, Fault>> {
        if let Some(input) = &mut self.input {
            let taken = buffer.append(input.data());
            input.consume(taken);
            give_if_empty(&mut self.input, &self.worker.buffers);
            self.counts.received += taken as u64;
            return Poll::Ready(Ok(Body::More));
        }
        let read = match ready!(self.stream.poll_fill(cx, buffer, usize::MAX)) {
            Ok(read) => read,
            // Clients often just close: without a protocol to say so, what they sent counts as whole.
            Err(e) if self.is_client && e.kind() == io::ErrorKind::UnexpectedEof => 0,
            Err(e) => return Poll::Ready(Err(e.into())),
        };
        self.counts.received += read as u64;
        Poll::Ready(Ok(if read == 0 { Body::End } else { Body::More }))
    }
    fn trailers(&self) -> Option<&Fields> {
        None
    }
}

impl Sink for Raw {
    fn poll_send(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer, end: Option<End<'_>>) -> Poll<io::Result<()>> {
        let before = buffer.len();
        let result = self.stream.poll_drain(cx, buffer);
        self.counts.sent += (before - buffer.len()) as u64;
        ready!(result)?;
        ready!(self.stream.poll_flush_all(cx))?;
        if end.is_some() && !self.shut {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            self.shut = true;
        }
        Poll::Ready(Ok(()))
    }
}

/// Serves a connection to its end.
pub(crate) async fn run(mut conn: Conn, stream: Stream) {
    let worker = conn.worker.clone();
    let mut x = Exchange::take(&worker);
    let now = worker.clock.tick();
    x.begin(&conn, now, now);
    x.times.complete = Some(now);
    let mut client = Raw::new(stream, worker.clone(), true);
    if let Some(backend) = route::connection(&mut conn, &mut client, &mut x).await {
        to_backend(&mut conn, &mut client, &mut x, backend).await;
    }
    if let Some(input) = client.input.take() {
        client.buffers().give(input);
    }
    finish::tcp(&mut conn, client.counts, &mut x);
    x.give(&worker);
}

async fn to_backend(conn: &mut Conn, client: &mut Raw, x: &mut Exchange, backend: usize) {
    let worker = conn.worker.clone();
    let shared = worker.shared.clone();
    let Some(pool) = shared.backends.get(backend) else {
        x.log.termination = *b"SC";
        return;
    };
    let proxy = &shared.config.proxies[backend];
    x.presence = Some(pool.enter());
    worker.counters().backend(backend).session(worker.now_ms());
    // Rules see what the client has sent so far.
    std::mem::swap(&mut x.body, &mut client.input);
    route::bind(conn, x, pool, Stage::Raw);
    route::stick(conn, x, pool, Stage::Raw);
    let mut want = Want { persistent: x.persistent, hash: route::hash(conn, x, pool, Stage::Raw), avoid: None };
    std::mem::swap(&mut x.body, &mut client.input);
    let mut failures = 0;
    let (slot, stream) = loop {
        let gone = &mut |cx: &mut Context<'_>| match client.stream.poll_read_ready(cx) {
            Poll::Ready(Err(_)) => Poll::Ready(()),
            _ => Poll::Pending,
        };
        let slot = match exchange::assign(conn, x, pool, &want, gone).await {
            Ok(slot) => slot,
            Err(Unserved(termination, _)) => {
                worker.counters().backend(backend).connect_errors.inc();
                x.log.termination = termination;
                return;
            }
        };
        let at = ServerRef { proxy: backend, server: slot.server().index };
        x.server = Some(at.server);
        worker.counters().server(backend, at.server).session(worker.now_ms());
        let sni = route::sni(conn, x, slot.server(), at, Stage::Raw);
        if let Some(stream) = exchange::connect(conn, x, slot.server(), at, sni.as_deref()).await {
            break (slot, stream);
        }
        drop(slot);
        if failures >= proxy.retries {
            exchange::count_connect_error(&worker, at);
            return;
        }
        failures += 1;
        x.log.retries = failures;
        if !may_redispatch(proxy, failures) {
            worker.counters().server(backend, at.server).retries.inc();
            worker.counters().backend(backend).retries.inc();
            want.persistent = Some(at.server);
            tokio::time::sleep(proxy.timeouts.connect.unwrap_or(PAUSE).min(PAUSE)).await;
        } else if pool.servers.len() > 1 {
            (want.persistent, want.avoid) = (None, Some(at.server));
            x.log.redispatched = true;
            worker.counters().server(backend, at.server).redispatches.inc();
            worker.counters().backend(backend).redispatches.inc();
        }
    };
    route::remember(conn, x, ServerRef { proxy: backend, server: slot.server().index }, Stage::Raw);
    finish::tcp_as_soon_as(conn, client.counts, x);
    let mut server = Raw::new(stream, worker, false);
    transfer(conn, client, x, &mut server, proxy, &slot).await;
    x.log.srv_conn = slot.server().served().saturating_sub(1);
}

/// Moves bytes until both directions have ended, or one side is silent for too long.
async fn transfer(conn: &mut Conn, client: &mut Raw, x: &mut Exchange, server: &mut Raw, proxy: &Proxy, slot: &Slot) {
    let worker = conn.worker.clone();
    let timeouts = conn.proxy().timeouts.clone();
    let mut patience = Patience::new(conn, x, proxy);
    if let Some(limit) = proxy.timeouts.tunnel {
        (patience.client, patience.server) = (Some(limit), Some(limit));
    }
    let (mut up, mut down) = (Flow::default(), Flow::default());
    let mut shut_down = std::pin::pin!(slot.server().shut_down());
    let ended = poll_fn(|cx| {
        if Future::poll(shut_down.as_mut(), cx).is_ready() {
            return Poll::Ready(Some([slot.server().shut_reason(), b'D']));
        }
        if !up.done {
            if let Poll::Ready(Err(broken)) = up.poll(cx, client, server, &worker.buffers) {
                return Poll::Ready(Some(if matches!(broken, Broken::Source(_)) { *b"CD" } else { *b"SD" }));
            }
            if up.done {
                // The client has said all it will: it has less time to take the rest.
                patience.client = timeouts.client_fin.or(patience.client);
            }
        }
        if !down.done {
            if let Poll::Ready(Err(broken)) = down.poll(cx, server, client, &worker.buffers) {
                return Poll::Ready(Some(if matches!(broken, Broken::Source(_)) { *b"SD" } else { *b"CD" }));
            }
            if down.done {
                patience.server = proxy.timeouts.server_fin.or(patience.server);
            }
        }
        if up.done && down.done {
            return Poll::Ready(None);
        }
        let moved = std::mem::take(&mut up.moved) | std::mem::take(&mut down.moved);
        let waits = |flow: &Flow, end| !flow.done && flow.waits_for == end;
        let on_client = waits(&up, Waits::Source) || waits(&down, Waits::Sink) || up.done;
        let on_server = waits(&down, Waits::Source) || waits(&up, Waits::Sink) || down.done;
        match patience.poll(cx, &mut conn.deadline, worker.clock.tick(), (on_client, on_server), moved) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Side::Client) => Poll::Ready(Some(*b"cD")),
            Poll::Ready(Side::Server) => Poll::Ready(Some(*b"sD")),
        }
    })
    .await;
    up.give_back(&worker.buffers);
    down.give_back(&worker.buffers);
    if let Some(termination) = ended {
        x.log.termination = termination;
        let backend = slot.backend().proxy;
        let counters = worker.counters();
        for cells in [counters.server(backend, slot.server().index), counters.backend(backend)] {
            match termination[0] {
                b'C' | b'c' => cells.client_aborts.inc(),
                b'S' | b's' => cells.server_aborts.inc(),
                _ => {}
            }
        }
        // What could not be delivered must not look like a whole.
        match termination[0] {
            b'S' => client.stream.socket().reset_on_close(),
            b'C' => server.stream.socket().reset_on_close(),
            _ => {}
        }
    }
}
