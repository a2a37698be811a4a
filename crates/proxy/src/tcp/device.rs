//! A connection of `mode tcp` that passes devices on its way to its server: it is sent to each, and comes back on a connection of the same addresses.

use super::{
    forward::{connected, transfer},
    raw::Raw,
};
use crate::{
    connection::Conn,
    exchange::{
        assign::{self, Reached},
        state::{Exchange, ms_between},
    },
    inspect::{
        ask::Failure,
        crossing::{Crossing, Expected, Out, Path, Report, Told},
        passage,
        verdict::{record, settings},
    },
    observe::counters::InUse,
    route::persistence,
    rules::context::Readable,
    server::Slot,
};
use penstock_config::model::{Fate, ProxyId};
use penstock_rules::{By, During, ServerConnFacts, Termination};
use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll},
};
use tokio::{sync::oneshot, time::Instant};

/// What verdicts are about.
const CONNECTION: &str = "connection";

/// Why a device did not pass a connection on.
struct Failed {
    why: Failure,
    /// Whether it was refused before anything of it had come through.
    is_whole: bool,
}

/// Whether the connection has a device to pass.
pub(super) fn is_due(conn: &Conn<'_>, x: &Exchange) -> bool {
    next(conn, x).is_some()
}

/// The next device that the connection has to pass: its step in the chain, and the service.
fn next(conn: &Conn<'_>, x: &Exchange) -> Option<(usize, ProxyId)> {
    let inspection = x.txn.inspection.as_deref()?;
    let due = inspection.due & inspection.within;
    let mut steps = conn.worker.shared.program.chains[inspection.chain].steps.iter().enumerate();
    steps.find(|(bit, step)| step.is_inline && due >> bit & 1 == 1).map(|(bit, step)| (bit, step.service))
}

/// Has the connection pass the devices that it has to; whether it goes on to its server from here, as no device has it.
pub(super) async fn pass(conn: &mut Conn<'_>, client: &mut Raw, x: &mut Exchange, backend: ProxyId) -> bool {
    while let Some((bit, service)) = next(conn, x) {
        let since = conn.worker.clock.tick();
        let before = (x.log.clone(), x.times);
        let within = x.txn.inspection.as_ref().map_or(0, |inspection| inspection.within);
        let Some(Failed { why, is_whole }) = through(conn, client, x, backend, bit, service, since).await else {
            return false;
        };
        (x.log, x.times) = before;
        (x.server, x.passage.out) = (None, None);
        if let Some(inspection) = &mut x.txn.inspection {
            inspection.within = within;
            inspection.due &= !(1 << bit);
        }
        let shared = &conn.worker.shared;
        let goes_on = is_whole && settings(shared, service).on_failure == Fate::Bypass;
        let word = if goes_on { "bypassed" } else { "denied" };
        let ms = ms_between(since, conn.worker.clock.tick()) as u64;
        record(shared, x, service, CONNECTION, &format!("{word}({})", why.word()), ms);
        if !goes_on {
            deny(conn, x);
            return false;
        }
    }
    true
}

/// Refuses a connection that is to go on as HTTP, of which the device would see the first request alone.
pub(super) fn refuse_http(conn: &Conn<'_>, x: &mut Exchange) {
    if let Some((_, service)) = next(conn, x) {
        let word = format!("denied({})", Failure::Unsuitable.word());
        record(&conn.worker.shared, x, service, CONNECTION, &word, 0);
    }
    deny(conn, x);
}

fn deny(conn: &Conn<'_>, x: &mut Exchange) {
    conn.listener_cells().iter().for_each(|cells| cells.denied_requests.inc());
    x.log.termination = Termination(By::Refusal, During::Request);
}

/// Sends the connection through one of the service's devices; why that failed, unless the connection is over.
async fn through(
    conn: &mut Conn<'_>,
    client: &mut Raw,
    x: &mut Exchange,
    backend: ProxyId,
    bit: usize,
    service: ProxyId,
    since: Instant,
) -> Option<Failed> {
    let worker = conn.worker;
    let shared = worker.shared.clone();
    let failed = |why| Some(Failed { why, is_whole: true });
    let Some(pool) = shared.backends.get(service) else { return failed(Failure::Unreachable) };
    let _presence = pool.enter();
    worker.counters().backend(service).session(worker.now_ms());
    std::mem::swap(&mut x.body, &mut client.input);
    let mut want = persistence::want(conn, x, pool, Readable::Raw);
    std::mem::swap(&mut x.body, &mut client.input);
    want.persistent = None;
    let gone = &mut |cx: &mut Context<'_>| assign::poll_broken(client.stream.poll_read_ready(cx));
    let reached = Box::pin(assign::reach(conn, x, pool, want, false, gone, async |conn, x, server, key| {
        conn.worker.cells(server).session(conn.worker.now_ms());
        assign::connect(conn, x, server, key).await
    }))
    .await;
    let Some(Reached { slot, got: stream }) = reached else {
        return match x.log.termination {
            // The client left the queue.
            Termination(By::Client, _) => None,
            Termination(_, During::Queue) => failed(Failure::Busy),
            _ => failed(Failure::Unreachable),
        };
    };
    let _in_use = InUse::of(worker.cells(slot.server()));
    let (answer, answered) = oneshot::channel();
    // The last connection tells the first how it has ended.
    let told = x.passage.back.as_ref().map_or_else(Told::default, |back| back.told.clone());
    let Some(expected) = expect(conn, x, backend, (bit, service), told.clone(), answer) else {
        return failed(Failure::Unreachable);
    };
    let mut device = Raw::new(stream, worker, false);
    let report = match arrive(conn, service, &mut device, &expected, answered).await {
        Ok(report) => report,
        Err(why) => return Some(Failed { why, is_whole: expected.recall() || why == Failure::Timeout }),
    };
    let is_connected = !report.made_here;
    record(&shared, x, service, CONNECTION, "passed", ms_between(since, worker.clock.tick()) as u64);
    go_on(x, &slot, since, expected, told, report);
    if !is_connected {
        x.times.connected = None;
        return None;
    }
    x.txn.response_begins();
    x.times.answered = x.times.connected;
    connected(conn, x).await;
    passage::report_connection(x, true);
    transfer(conn, client, x, &mut device, &shared.config.proxies[backend], &slot).await;
    passage::import_end(x);
    None
}

/// Expects the connection to come back from the device.
fn expect(
    conn: &Conn<'_>,
    x: &mut Exchange,
    backend: ProxyId,
    (bit, service): (usize, ProxyId),
    told: Told,
    answer: oneshot::Sender<Report>,
) -> Option<Expected> {
    let shared = &conn.worker.shared;
    let path = Path::new(x.server_conn.src, x.server_conn.dst)?;
    let crossing = Crossing {
        service,
        frontend: conn.frontend,
        bind: conn.bind,
        facts: conn.facts.clone(),
        session: conn.session.clone(),
        requests: conn.requests,
        backend,
        txn: x.txn.behind(bit),
        told,
        own_target: None,
        stream: Some(answer),
        _awaited: shared.limits.expect_return(service)?,
    };
    let expected = shared.crossings.expect_on(path, crossing)?;
    if let Some(inspection) = &mut x.txn.inspection {
        inspection.within &= (1 << bit) - 1;
    }
    Some(expected)
}

/// Waits until the connection has come back, within `timeout connect` of the service, and then until it has a server or is refused.
async fn arrive(
    conn: &mut Conn<'_>,
    service: ProxyId,
    device: &mut Raw,
    expected: &Expected,
    mut answered: oneshot::Receiver<Report>,
) -> Result<Report, Failure> {
    let worker = conn.worker;
    conn.deadline.set(worker.clock.tick(), worker.shared.config.proxies[service].timeouts.connect);
    let mut is_awaited = true;
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(report) = Pin::new(&mut answered).poll(cx) {
                return Poll::Ready(report.map_err(|_| Failure::Closed));
            }
            // The device has closed it, or says something itself.
            if device.stream.poll_read_ready(cx).is_ready() {
                // What a server says first comes after the report.
                return match answered.try_recv() {
                    Ok(report) => Poll::Ready(Ok(report)),
                    Err(_) => Poll::Ready(Err(Failure::Closed)),
                };
            }
            if !is_awaited || conn.deadline.poll_expired(cx).is_pending() {
                return Poll::Pending;
            }
            if expected.recall() {
                return Poll::Ready(Err(Failure::Timeout));
            }
            is_awaited = false;
        }
    })
    .await
}

/// Continues the exchange as one whose connection is at a device, with what is known of the server behind that.
fn go_on(x: &mut Exchange, slot: &Slot, since: Instant, expected: Expected, told: Told, report: Report) {
    let mut out = Out {
        service: slot.server().at.proxy,
        server: slot.server().clone(),
        since,
        expected: Some(expected),
        pending: None,
        is_by_path: true,
        is_back: Some(true),
        told,
        own_target: None,
        is_elsewhere: false,
        made_here: false,
        waited: None,
        server_answered: -1,
        server_conn: ServerConnFacts::default(),
    };
    passage::import(x, &mut out, Some(report));
    x.passage.out = Some(Box::new(out));
}
