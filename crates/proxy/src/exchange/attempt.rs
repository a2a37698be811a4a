//! One attempt at one server: sends the request and receives the head of the response.

use super::{
    answer::{Answer, answer},
    assign::{connect, connected},
    ends::{Answered, Fault, Upstream},
    finish,
    flush::{Unsent, flush},
    forward::{Broken, Flow, Waits},
    headers, invalid, redirect,
    resend::{Ended, is_repeatable, keep_body, release_head},
    respond,
    throttle::Throttle,
    timeouts::{Awaited, Patience, Side},
};
use crate::{
    connection::{Conn, in_time, stream::Stream},
    exchange::live::Live,
    http1::server_side::Http1Server,
    http2::{
        mux::{self, Mux, MuxInUse},
        server_side::Http2Server,
        websocket,
    },
    inspect::{passage, taps},
    log::debug,
    observe::{
        counters::InUse,
        http_counters::{Protocol, Running, Side as Part, Tally},
    },
    process::memory::NoMemory,
    rules::context,
    server::{Seen, Server, Slot},
    servers::{key::key_of, pool::Returned},
    spoe,
    tap::Copying,
    worker::{
        pulse::{Stage, Who},
        state::Worker,
        task,
        turn::{self, cost},
    },
};
use penstock_backends::{
    retry::{Reason, may_repeat_body, retries_on, retries_on_status},
    reuse::{Claim, Key, may_go_on},
};
use penstock_capture::Speaker;
use penstock_config::model::{HttpReuse, Proxy};
use penstock_http::{Framing, Limits};
use penstock_rules::{By, During, ServerConnFacts, StreamFacts, Termination};
use std::{
    future::poll_fn,
    rc::Rc,
    task::{Context, Poll},
};

/// Makes one attempt at one server: a connection, the request, the response.
///
/// `repeated` says that attempts have failed before it, `again` that the request may be sent once more if the server has not touched it.
pub(crate) async fn attempt(
    live: &mut Live<'_, '_>,
    slot: &Slot,
    proxy: &Proxy,
    repeated: bool,
    again: bool,
) -> Result<(), Ended> {
    let worker = live.worker;
    let server = slot.server();
    if redirect::to_server(live, server).await {
        return Err(Ended::Over);
    }
    let cells = worker.cells(server);
    let first = live.conn.requests == 0 && !repeated;
    let limits = Limits { lenient: proxy.options.accept_invalid_http_response, ..live.conn.limits() };
    let limits = if live.x.passage.out.is_some() { live.conn.device_limits(limits) } else { limits };
    let only_http1 = websocket::goes_over_http1(&live.x.request, &server.config.settings);
    let Some(key) = key_of(live.conn, live.x, server, only_http1, context::Readable::Request) else {
        let reason = connect(live.conn, live.x, server, None).await.err().unwrap_or(Reason::Connect);
        return Err(Ended::Retry(reason));
    };
    let private = proxy.http_reuse == HttpReuse::Never || live.conn.own.authenticates();
    let claim = (!private).then(|| Claim::new(proxy, first, live.conn.own.session()));
    if !only_http1 && let Some(mux) = taken_mux(live.conn, &key, claim.as_ref(), server) {
        cells.reuses.inc();
        connected(live.x, mux.facts().clone(), worker.clock.now());
        return multiplexed(live, &mux, slot, &key, proxy, limits, again).await;
    }
    let in_use = InUse::of(cells);
    let backend = worker.counters().backend(server.at.proxy);
    let count = |protocol| worker.tally(server.at.proxy, Part::Backend, protocol);
    let (stream, tally, uses, private) = match taken(live, server, &key, claim.as_ref()) {
        Some(taken) => (taken.stream, taken.tally, taken.uses, taken.is_own || private),
        None => match connect(live.conn, live.x, server, Some(&key)).await {
            Ok(stream) => (stream, None, 0, private),
            Err(reason) => {
                // HAProxy counts what was tried, unless the handshake would have decided about the protocol.
                if !key.encrypted {
                    let protocol = mux::expected(&server.config.settings, only_http1);
                    drop((count(protocol), Running::new(backend, protocol)));
                }
                return Err(Ended::Retry(reason));
            }
        },
    };
    if !passage::depart(worker, live.x) {
        live.x.log.termination = Termination(By::Server, During::Connect);
        return Err(Ended::Retry(Reason::Connect));
    }
    if !only_http1 && mux::is_spoken_by(&stream, &server.config.settings) {
        let facts = live.x.server_conn.clone();
        let Some(mux) = Box::pin(multiplex(worker, server, stream, facts, &limits)).await else {
            live.x.log.termination = Termination(By::Server, During::Connect);
            return Err(Ended::Retry(Reason::Connect));
        };
        match private {
            _ if worker.draining.get() => {}
            true => live.conn.own.give_mux(key.clone(), mux.clone()),
            false => worker.muxes.share(key.clone(), mux.clone()),
        }
        drop(in_use);
        return multiplexed(live, &mux, slot, &key, proxy, limits, again).await;
    }
    let tally = tally.unwrap_or_else(|| count(Protocol::Http1));
    let _running = Running::new(backend, Protocol::Http1);
    let mut upstream = Http1Server::new(stream, tally, worker, limits, proxy);
    let may_keep = headers::to_server(live.conn, live.x, proxy, server) && !passage::is_alone(live.x);
    let framing = live.x.sent_framing(live.client);
    taps::copy_request(live, framing);
    upstream.request(&mut live.x.request, framing);
    live.x.txn.server_stream = StreamFacts { id: uses, reset: None };
    let result = forward(live, &mut upstream, server, proxy, again).await;
    match result {
        Ok(()) if may_keep => {
            if let Some((stream, tally)) = upstream.into_idle() {
                let idle = Returned { stream, facts: live.x.server_conn.clone(), tally: Some(tally), uses: uses + 1 };
                if private || live.conn.own.authenticates() {
                    live.conn.own.give(key, idle)
                } else {
                    worker.pool.give(server, key, idle, worker.clock.now())
                }
            }
        }
        _ => upstream.close(),
    }
    result
}

/// An idle connection that is used again.
struct Taken {
    stream: Stream,
    tally: Option<Tally>,
    uses: u64,
    /// Whether it is the client's own.
    is_own: bool,
}

/// An idle connection that this request may use: the client's own, or one of the pool.
fn taken(live: &mut Live<'_, '_>, server: &Server, key: &Key, claim: Option<&Claim>) -> Option<Taken> {
    let worker = live.worker;
    let own = live.conn.own.take(key);
    let is_own = own.is_some();
    let Returned { stream, facts, tally, uses } = own.or_else(|| worker.pool.take(server, key, claim?))?;
    if uses > 0 {
        worker.cells(server).reuses.inc();
    }
    connected(live.x, facts, worker.clock.now());
    Some(Taken { stream, tally, uses, is_own })
}

/// Begins HTTP/2 on a connection to a server; `None` if the server does not take the preface.
pub(crate) async fn multiplex(
    worker: &Rc<Worker>,
    server: &Server,
    stream: Stream,
    facts: ServerConnFacts,
    limits: &Limits,
) -> Option<Rc<Mux>> {
    let tune = &worker.shared.config.global.tune.h2_be;
    let (tally, peer) = (worker.tally(server.at.proxy, Part::Backend, Protocol::Http2), facts.dst);
    let (mux, driver) = Mux::open(stream, tally, facts, tune, limits).await.ok()?;
    task::spawn(worker, Who::Server { peer }, driver);
    Some(mux)
}

/// An existing HTTP/2 connection that this request may use: the client's own, or a shared one.
fn taken_mux(conn: &Conn<'_>, key: &Key, claim: Option<&Claim>, server: &Server) -> Option<Rc<Mux>> {
    let settings = &server.config.settings;
    let own = conn.own.take_mux(key, |mux| may_go_on(settings, mux.begun()));
    own.or_else(|| conn.worker.muxes.take(server, key, claim?))
}

/// Makes an attempt over a connection that other exchanges may share.
pub(super) async fn multiplexed(
    live: &mut Live<'_, '_>,
    mux: &Rc<Mux>,
    slot: &Slot,
    key: &Key,
    proxy: &Proxy,
    limits: Limits,
    again: bool,
) -> Result<(), Ended> {
    live.x.server_conn = mux.facts().clone();
    if websocket::is_asked_for(&live.x.request) {
        live.conn.deadline.set(live.worker.clock.now(), proxy.timeouts.connect);
        if in_time(&mut live.conn.deadline, mux.takes_websockets()).await != Some(true) {
            live.x.log.termination = Termination(By::Server, During::Headers);
            respond::error(live, 502).await;
            return Err(Ended::Over);
        }
    }
    let worker = live.worker;
    let _in_use = MuxInUse::of(worker.cells(slot.server()), mux);
    let _running = Running::new(worker.counters().backend(key.at.proxy), Protocol::Http2);
    let mut upstream = Http2Server::new(mux.clone(), live.conn.own.session(), limits);
    headers::to_server(live.conn, live.x, proxy, slot.server());
    let framing = live.x.sent_framing(live.client);
    taps::copy_request(live, framing);
    upstream.request(&mut live.x.request, framing);
    let authenticated = live.conn.own.authenticates();
    let result = forward(live, &mut upstream, slot.server(), proxy, again).await;
    drop(upstream);
    let worker = live.worker;
    if live.conn.own.authenticates() && !authenticated {
        // From here on the server associates the connection with this client.
        worker.muxes.withdraw(key.at, mux);
        live.conn.own.give_mux(key.clone(), mux.clone());
    }
    worker.muxes.settle(slot.server(), mux);
    result
}

/// The result of waiting for a response head.
pub(super) enum Head {
    Got(Framing),
    ServerFault(Fault),
    ClientFault(Fault),
    Timeout(Side),
    Gone,
    /// There is no memory for the head.
    Memory(NoMemory),
}

/// Sends the request to the server, and the response to the client.
pub(super) async fn forward(
    live: &mut Live<'_, '_>,
    upstream: &mut dyn Upstream,
    server: &Server,
    proxy: &Proxy,
    again: bool,
) -> Result<(), Ended> {
    let worker = live.worker;
    let buffers = &worker.buffers;
    worker.pulse().enter(Stage::Forward);
    if live.x.passage.back.is_none()
        && let Some(telling) = spoe::connected(live)
    {
        telling.await;
    }
    let mut patience = Patience::new(live.conn, live.x, proxy);
    let mut request = Flow::new();
    request.throttle(Throttle::of(&live.x.txn, false, worker));
    let is_inspected = taps::may_change(live.conn, live.x);
    if is_inspected {
        request.drop_trailers();
    }
    request.encode(live.x.compressed.request.take());
    if let Some(body) = live.x.body.take() {
        request.preload(Some(body), live.x.body_complete);
    } else if let Some(replay) = &live.x.inspected.request {
        request.replay(replay.clone());
    } else if live.x.request_framing(live.client) == Framing::None {
        request.preload(None, true);
    }
    request.copy(Copying::body(&live.x.inspected.copied, Speaker::Client));
    if live.x.request_framing(live.client) != Framing::None && may_repeat_body(proxy) && !live.x.txn.no_retry {
        request.keep(buffers.size());
    }
    let framing = loop {
        let head = poll_fn(|cx| {
            let polled = poll_head(cx, live, upstream, &mut request, &mut patience, proxy.options.abortonclose);
            if polled.is_pending() && request.has_sent_head() {
                release_head(live, &request, proxy, again);
            }
            polled
        })
        .await;
        let failed = match head {
            Head::Got(Framing::None) if live.x.response.is_interim() => {
                turn::spend(cost::HEAD);
                turn::proceed().await;
                headers::interim_to_client(live.x);
                if is_inspected {
                    // Services see only the response, so nothing that the server chose to say before it goes to the client.
                    live.x.response.fields.clear();
                }
                if !is_inspected || live.x.response.status() == 100 {
                    live.client.interim(&live.x.response);
                }
                // A server may send interim responses for ever.
                match flush(live).await {
                    Ok(()) => {
                        live.x.count_response(upstream);
                        patience.begin_anew();
                        continue;
                    }
                    Err(Unsent::Late) => Head::Timeout(Side::Client),
                    Err(Unsent::Closed) => Head::Gone,
                }
            }
            Head::Got(framing) => break framing,
            failed => failed,
        };
        live.x.note_stream(upstream);
        request.give_back(buffers);
        let ended = head_failed(live, upstream, server, failed, again, &request).await;
        if matches!(ended, Ended::Retry(_)) {
            keep_body(live.x, &mut request, buffers);
        }
        return Err(ended);
    };
    live.x.note_stream(upstream);
    let now = worker.clock.now();
    debug::response(live.conn, live.x);
    penstock_http::receive_hop_by_hop(&mut live.x.response.fields);
    live.x.times.answered = Some(now);
    let cells = worker.cells(server);
    cells.requests.inc();
    cells.response(live.x.response.status());
    live.x.txn.server_status = Some(live.x.response.status());
    live.conn.own.heed(&live.x.response);
    let goes_on = passage::answered(live);
    let seen = match live.x.response.status() {
        // What a device passes on is no fault of its own.
        // Nor is one to blame that has a response from elsewhere: clients can ask for that.
        _ if live.x.passage.out.is_some() => {
            if goes_on || live.x.passage.out.as_ref().is_some_and(|out| out.is_elsewhere) {
                Seen::Response
            } else {
                Seen::WrongStatus
            }
        }
        500 | 502..=504 | 506.. => Seen::WrongStatus,
        _ => Seen::Response,
    };
    worker.observe(server.at, seen);
    if !goes_on {
        cells.response_errors.inc();
        worker.counters().backend(server.at.proxy).response_errors.inc();
        request.give_back(buffers);
        return Err(Ended::Retry(Reason::Status));
    }
    finish::track_status(live.conn, live.x, live.x.response.status());
    if live.x.may_retry
        && is_repeatable(live.client, live.x, &request)
        && retries_on_status(proxy, live.x.response.status())
    {
        request.give_back(buffers);
        keep_body(live.x, &mut request, buffers);
        return Err(Ended::Retry(Reason::Status));
    }
    answer(live, &mut Answer { upstream, request, framing, server: Some(server), proxy, patience }).await
}

pub(super) fn poll_head(
    cx: &mut Context<'_>,
    live: &mut Live<'_, '_>,
    upstream: &mut dyn Upstream,
    request: &mut Flow,
    patience: &mut Patience,
    watch_client: bool,
) -> Poll<Head> {
    let mut moved = false;
    if !request.done {
        match request.poll(cx, live.client, upstream, &live.worker.buffers) {
            Poll::Ready(Err(Broken::Source(fault))) => return Poll::Ready(Head::ClientFault(fault)),
            Poll::Ready(Err(Broken::Memory(missing))) => return Poll::Ready(Head::Memory(missing)),
            // The server may have responded before it stopped reading.
            Poll::Ready(Err(Broken::Sink(e))) => {
                return match upstream.poll_head(cx, &mut live.x.response) {
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
    match upstream.poll_head(cx, &mut live.x.response) {
        Poll::Ready(Ok(framing)) => return Poll::Ready(Head::Got(framing)),
        Poll::Ready(Err(Fault::Memory(missing))) => return Poll::Ready(Head::Memory(missing)),
        Poll::Ready(Err(fault)) => return Poll::Ready(Head::ServerFault(fault)),
        Poll::Pending => {}
    }
    let gone = request.done && watch_client && live.client.poll_gone(cx).is_ready();
    if gone || live.client.poll_cancelled(cx).is_ready() {
        return Poll::Ready(Head::Gone);
    }
    // Once the server has the request, its timeout runs; until then, that of whichever side holds the request up.
    let on_client = !request.done && request.waits_for == Waits::Source;
    let awaited = Awaited { client: on_client, server: !on_client, is_unread: false };
    patience.poll(cx, &mut live.conn.deadline, live.worker.clock.now(), awaited, moved).map(Head::Timeout)
}

/// Handles a missing response head: responds with an error, unless another attempt may help.
pub(super) async fn head_failed(
    live: &mut Live<'_, '_>,
    upstream: &dyn Upstream,
    server: &Server,
    failed: Head,
    again: bool,
    request: &Flow,
) -> Ended {
    let worker = live.worker;
    let cells = worker.cells(server);
    let backend = worker.counters().backend(server.at.proxy);
    let repeatable = is_repeatable(live.client, live.x, request);
    let proxy = live.proxy();
    // What becomes of the request then is the service's to say.
    let is_at_device = live.x.passage.out.is_some();
    match failed {
        // The server is not to blame: otherwise a client could have it taken for down (`observe layer7`).
        Head::ServerFault(Fault::Unsayable) => {
            live.x.log.termination = Termination(By::Refusal, During::Request);
            respond::error(live, 400).await;
        }
        Head::ServerFault(fault) => {
            if again && repeatable && upstream.is_untouched() {
                return Ended::Retry(Reason::Stale);
            }
            if let Fault::Invalid(error) = fault {
                invalid::keep_response(live.conn, live.x, upstream.unread(), error);
            }
            let (reason, termination) = match fault {
                Fault::Invalid(_) => (Reason::Junk, Termination(By::Refusal, During::Headers)),
                Fault::Closed | Fault::Io(_) | Fault::Memory(_) | Fault::Unsayable => {
                    (Reason::Empty, Termination(By::Server, During::Headers))
                }
            };
            let retried = is_at_device
                || repeatable
                    && retries_on(proxy, reason)
                    && (reason != Reason::Empty || upstream.answered() < Answered::Head);
            let is_silent = live.conn.requests > 0 && live.conn.facts.http_major == 1 && live.x.passage.back.is_none();
            if reason == Reason::Empty && !retried && is_silent {
                respond::close_silently(live);
                return Ended::Over;
            }
            cells.response_errors.inc();
            backend.response_errors.inc();
            let seen = if reason == Reason::Junk { Seen::BadResponse } else { Seen::NoResponse };
            worker.observe(server.at, seen);
            live.x.log.termination = termination;
            if retried {
                return Ended::Retry(reason);
            }
            respond::error(live, 502).await;
        }
        Head::Timeout(Side::Server) => {
            cells.response_errors.inc();
            backend.response_errors.inc();
            // Nor is a device that waits for the server behind it.
            if !live.x.passage.out.as_mut().is_some_and(|out| out.waits_for_its_server()) {
                worker.observe(server.at, Seen::ResponseTimeout);
            }
            live.x.log.termination = Termination(By::ServerTimeout, During::Headers);
            if is_at_device || repeatable && retries_on(proxy, Reason::Timeout) {
                return Ended::Retry(Reason::Timeout);
            }
            respond::error(live, 504).await;
        }
        Head::Timeout(Side::Client) => {
            live.x.log.termination = Termination(By::ClientTimeout, During::Data);
            respond::error(live, 408).await;
        }
        Head::ClientFault(Fault::Invalid(error)) => {
            invalid::keep_request(live.conn, live.x, &[], error);
            live.x.log.termination = Termination(By::Refusal, During::Request);
            respond::error(live, 400).await;
        }
        Head::ClientFault(_) => {
            cells.client_aborts.inc();
            backend.client_aborts.inc();
            live.x.log.termination = Termination(By::Client, During::Data);
            live.x.aborted(400);
            live.client.abort();
        }
        Head::Gone => {
            cells.client_aborts.inc();
            backend.client_aborts.inc();
            // As in HAProxy, where the end of a stream counts as one of its data.
            let during = if live.conn.facts.http_major == 2 { During::Data } else { During::Headers };
            live.x.log.termination = Termination(By::Client, during);
            respond::error(live, 400).await;
        }
        Head::Memory(NoMemory) => {
            live.x.log.termination = Termination(By::Exhaustion, During::Headers);
            respond::error(live, 500).await;
        }
        Head::Got(_) => {}
    }
    Ended::Over
}
