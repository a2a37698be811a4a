//! Forwards the bytes of a connection of `mode tcp`, to a server and back.

use crate::{
    connection::{Conn, stream::Fill, timer::Deadline},
    exchange::{
        assign::{self, Reached},
        finish,
        forward::Flow,
        state::Exchange,
        throttle::Throttle,
        timeouts::{Patience, Side},
    },
    inspect::{passage, taps},
    observe::counters::InUse,
    route::persistence,
    rules::{
        context::{self, Readable},
        evaluate,
    },
    server::Slot,
    spoe,
    tap::Copying,
    tcp::raw::Raw,
    worker::{state::Worker, turn},
};
use penstock_capture::Speaker;
use penstock_config::model::{Proxy, ProxyId, SpoeEvent};
use penstock_rules::{Buffered, By, During, Termination, Verdict};
use std::{
    future::poll_fn,
    pin::pin,
    task::{Context, Poll, ready},
};

/// Connects to a server of the backend, and forwards bytes until both directions have ended.
pub(super) async fn to_backend(conn: &mut Conn<'_>, client: &mut Raw, x: &mut Exchange, backend: ProxyId) {
    let worker = conn.worker;
    let shared = worker.shared.clone();
    let Some(pool) = shared.backends.get(backend) else {
        x.log.termination = Termination(By::Server, During::Connect);
        return;
    };
    let proxy = &shared.config.proxies[backend];
    x.presence = Some(pool.enter());
    worker.counters().backend(backend).session(worker.now_ms());
    // Rules see what the client has sent so far.
    std::mem::swap(&mut x.body, &mut client.input);
    let bound = persistence::bind(conn, x, pool, Readable::Raw);
    persistence::follow_rdp_cookie(conn, x, pool);
    persistence::stick(conn, x, pool, Readable::Raw);
    let mut want = persistence::want(conn, x, pool, Readable::Raw);
    want.persistent = want.persistent.or_else(|| persistence::last_server(conn, pool, proxy));
    std::mem::swap(&mut x.body, &mut client.input);
    let gone = &mut |cx: &mut Context<'_>| assign::poll_broken(client.stream.poll_read_ready(cx));
    // What it takes to connect is on the heap, and gone once there is a connection.
    let reached = Box::pin(assign::reach(conn, x, pool, want, bound.forced, gone, async |conn, x, server, key| {
        let cells = conn.worker.cells(server);
        cells.session(conn.worker.now_ms());
        let _in_use = InUse::of(cells);
        if let Some(own) = key.and_then(|key| conn.own.take(key)) {
            let now = conn.worker.clock.now();
            assign::connected(x, own.facts, now);
            return Ok(own.stream);
        }
        assign::connect(conn, x, server, key).await
    }))
    .await;
    let Some(Reached { slot, got: stream }) = reached else { return };
    let _in_use = InUse::of(worker.cells(slot.server()));
    persistence::remember(conn, x, slot.server(), Readable::Raw);
    passage::report_connection(x, true);
    x.txn.response_begins();
    x.times.answered = x.times.connected;
    connected(conn, x).await;
    let mut server = Raw::new(stream, worker, false);
    transfer(conn, client, x, &mut server, proxy, &slot).await;
    x.log.srv_conn = slot.server().served().saturating_sub(1);
}

/// Tells the log and agents that the server is connected, unless that is done before a device.
pub(super) async fn connected(conn: &mut Conn<'_>, x: &mut Exchange) {
    if x.passage.back.is_some() {
        return;
    }
    finish::tcp_as_soon_as(conn, x);
    for event in [SpoeEvent::ServerSession, SpoeEvent::TcpResponse] {
        if spoe::is_asked(conn, x, event) {
            Box::pin(spoe::tcp(conn, x, event, Readable::Raw)).await;
        }
    }
}

/// Forwards bytes until both directions have ended. That of a side which says nothing for too long has: what the other says is still
/// forwarded, and taken.
pub(super) async fn transfer(
    conn: &mut Conn<'_>,
    client: &mut Raw,
    x: &mut Exchange,
    server: &mut Raw,
    proxy: &Proxy,
    slot: &Slot,
) {
    let worker = conn.worker;
    let fins = (conn.proxy().timeouts.client_fin, proxy.timeouts.server_fin);
    let mut patience = Patience::new(conn, x, proxy);
    if let Some(limit) = proxy.timeouts.tunnel {
        (patience.client, patience.server) = (Some(limit), Some(limit));
    }
    let (mut up, mut down) = (Flow::default().streaming(), Flow::default().streaming());
    let mut silent = None;
    up.throttle(Throttle::of(&x.txn, false, worker));
    taps::copy_connection(conn, x);
    up.copy(Copying::stream(&x.inspected.copied, Speaker::Client));
    down.copy(Copying::stream(&x.inspected.copied, Speaker::Server));
    let mut is_down_limited = false;
    let mut inspection = Inspection::new(worker, slot.backend().proxy);
    let mut shut_down = pin!(slot.server().shut_down());
    let ended = poll_fn(|cx| {
        loop {
            if Future::poll(shut_down.as_mut(), cx).is_ready() {
                return Poll::Ready(Some(Termination(slot.server().shut_reason().by(), During::Nothing)));
            }
            if !up.done
                && let Poll::Ready(Err(broken)) = up.poll(cx, client, server, &worker.buffers)
            {
                return Poll::Ready(Some(Termination(broken.by(true), During::Data)));
            }
            let passed = inspection.poll(cx, conn, x, server);
            match passed {
                Poll::Ready(Inspected::Refused) => return Poll::Ready(Some(Termination(By::Refusal, During::Data))),
                Poll::Ready(Inspected::Dropped) => {
                    client.stream.socket().vanish_on_close();
                    return Poll::Ready(Some(Termination(By::Refusal, During::Request)));
                }
                _ => {}
            }
            if matches!(passed, Poll::Ready(Inspected::Cut)) {
                (server.cut, up.done) = (true, true);
            }
            if passed.is_ready() && !std::mem::replace(&mut is_down_limited, true) {
                down.throttle(Throttle::of(&x.txn, true, worker));
            }
            if passed.is_ready()
                && !down.done
                && let Poll::Ready(Err(broken)) = down.poll(cx, server, client, &worker.buffers)
            {
                return Poll::Ready(Some(Termination(broken.by(false), During::Data)));
            }
            if up.done && down.done {
                return Poll::Ready(None);
            }
            // Kept up to date, as an operator may end the session at any moment.
            x.log.bytes_read = server.received();
            let now = worker.clock.tick();
            let by = ready!(patience.poll_streams(cx, &mut conn.deadline, now, [&mut up, &mut down], fins));
            passage::report_end(x, *silent.get_or_insert(by.termination()));
            match by.side {
                // It has bytes to take, and does not.
                _ if by.is_stuck => return Poll::Ready(Some(by.termination())),
                Side::Client => up.end(),
                Side::Server => down.end(),
            }
        }
    })
    .await;
    up.give_back(&worker.buffers);
    down.give_back(&worker.buffers);
    x.log.bytes_read = server.received();
    if let Some(termination) = silent.or(ended) {
        x.log.termination = termination;
        passage::report_end(x, termination);
        let backend = worker.counters().backend(slot.backend().proxy);
        for cells in [worker.cells(slot.server()), backend] {
            match termination.0 {
                By::Client | By::ClientTimeout => cells.client_aborts.inc(),
                By::Server | By::ServerTimeout => cells.server_aborts.inc(),
                _ => {}
            }
        }
    }
    if silent.is_some() {
        server.stream.socket().hang_up_on_close();
    }
    // Data that could not be delivered must not look complete to the receiver.
    match ended.map(|Termination(by, _)| by) {
        Some(By::Server | By::ClientTimeout) => client.stream.socket().reset_on_close(),
        Some(By::Client | By::ServerTimeout) => server.stream.socket().reset_on_close(),
        Some(By::Exhaustion) => {
            client.stream.socket().reset_on_close();
            server.stream.socket().reset_on_close();
        }
        _ => {}
    }
}

/// `tcp-response content`: the server's first bytes are held back until the rules have decided, for at most
/// `tcp-response inspect-delay`. Without a delay they decide before any arrive.
struct Inspection {
    backend: ProxyId,
    /// The next rule to run.
    from: usize,
    delay: Deadline,
    /// Whether the rules must decide with what has arrived.
    complete: bool,
    over: Option<Inspected>,
}

/// The decision of the rules.
#[derive(Clone, Copy)]
enum Inspected {
    Passed,
    /// The connection closes after the bytes that the server has already sent.
    Cut,
    Refused,
    /// The connection is dropped without the client noticing.
    Dropped,
}

impl Inspection {
    fn new(worker: &Worker, backend: ProxyId) -> Self {
        let delay = worker.shared.config.proxies[backend].tcp_response_inspect_delay;
        let mut deadline = Deadline::default();
        deadline.set(worker.clock.now(), delay);
        let over = worker.shared.program.of(backend).tcp_response.is_empty().then_some(Inspected::Passed);
        Inspection { backend, from: 0, delay: deadline, complete: delay.is_none(), over }
    }
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        conn: &mut Conn<'_>,
        x: &mut Exchange,
        server: &mut Raw,
    ) -> Poll<Inspected> {
        loop {
            if let Some(over) = self.over {
                return Poll::Ready(over);
            }
            let verdict = self.run(conn, x, server);
            self.over = match verdict {
                Verdict::Continue | Verdict::Accept | Verdict::SwitchToHttp(_) => Some(Inspected::Passed),
                Verdict::Close => Some(Inspected::Cut),
                Verdict::WaitMore { next } | Verdict::WaitBody { next, .. } if self.complete => {
                    self.from = next + 1;
                    None
                }
                Verdict::WaitMore { next } | Verdict::WaitBody { next, .. } => {
                    self.from = next;
                    match server.poll_more(cx) {
                        Poll::Ready(Ok(Fill::Bytes(_))) => self.complete = server.is_full(),
                        Poll::Ready(_) => self.complete = true,
                        Poll::Pending => {
                            ready!(self.delay.poll_expired(cx));
                            self.complete = true;
                        }
                    }
                    None
                }
                Verdict::ExpectProxy { next }
                | Verdict::WaitHandshake { next }
                | Verdict::CacheUse { next, .. }
                | Verdict::CacheStore { next, .. } => {
                    self.from = next;
                    None
                }
                Verdict::Rest { next } => {
                    self.from = next;
                    ready!(turn::poll_proceed(cx));
                    None
                }
                Verdict::SilentDrop => {
                    evaluate::count_silent_drop(conn, x);
                    Some(Inspected::Dropped)
                }
                Verdict::Reject
                | Verdict::Respond(..)
                | Verdict::Service(_)
                | Verdict::Failed
                | Verdict::Consult { .. }
                // Passwords are only checked in HTTP rules, and names are only looked up for requests.
                | Verdict::Resolve { .. }
                | Verdict::Verify { .. } => {
                    evaluate::count_denied_response(conn, x);
                    Some(Inspected::Refused)
                }
            };
        }
    }
    fn run(&self, conn: &mut Conn<'_>, x: &mut Exchange, server: &Raw) -> Verdict {
        let worker = conn.worker;
        let mut context = context::context(conn, x, Readable::Raw);
        context.output = Buffered { bytes: server.pending(), complete: self.complete, raw: true, announced: None };
        context.input.complete = self.complete;
        worker.shared.program.of(self.backend).tcp_response.run(&mut context, self.from)
    }
}
