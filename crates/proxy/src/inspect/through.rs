//! Sends a request to a device, which forwards it to us again, and its response to the client.

use super::{
    ask::Failure,
    crossing::{Crossing, FIELD, Out, Told},
    explicit,
    original::{Broken, Original},
    place,
    request::{deny, end},
    verdict::{bypasses, settings},
};
use crate::{
    exchange::{
        assign::{Unserved, assign, count_attempt, count_connect_error},
        attempt::attempt,
        compress,
        live::Live,
        resend::Ended,
        retry::{shut_down, unless_shut_down},
        state::ms_between,
    },
    server::{Backend, Slot},
};
use penstock_backends::retry::{Attempts, Reason, retries_on};
use penstock_config::model::{Fate, ProxyId, ServiceMode};
use penstock_http::{Connection, Framing, Known, remove_hop_by_hop};
use penstock_rules::{By, During, ServerConnFacts, Termination};
use std::{sync::Arc, task::Context};
use tokio::time::Instant;

/// The end of an exchange's part at a device.
pub(super) enum Through {
    /// The device has failed, and the request goes on without it.
    Bypassed,
    /// The client has been answered, or has left.
    Over,
}

/// Why a device did not do its work, and whether the request is as it was.
struct Failed {
    why: Failure,
    /// Nothing of it was sent, or all of it is still here, and it has not come back.
    is_whole: bool,
}

/// Sends the request to the device at the step `bit` of its chain.
pub(super) async fn through(live: &mut Live<'_, '_>, bit: usize, at: ProxyId) -> Through {
    let worker = live.worker;
    let shared = worker.shared.clone();
    let service = settings(&shared, at);
    let since = worker.clock.tick();
    // What is sent to a device of packets, and does not come back, was dropped by it, and does not go on.
    if service.on_failure == Fate::Bypass
        && service.mode != Some(ServiceMode::Tcp)
        && let Err(broken) = keep(live, service.max_body).await
    {
        end(live, broken).await;
        return Through::Over;
    }
    let before = (live.x.request.clone(), live.x.log.clone(), live.x.times);
    let within = live.x.txn.inspection.as_ref().map_or(0, |inspection| inspection.within);
    let tried = match shared.backends.get(at) {
        Some(pool) => Box::pin(send(live, bit, pool, since)).await,
        None => Some(Failed { why: Failure::Unreachable, is_whole: true }),
    };
    let Some(Failed { why, is_whole }) = tried else { return Through::Over };
    live.x.passage.out = None;
    (live.x.request, live.x.log, live.x.times) = before;
    live.x.txn.server_status = None;
    live.x.compressed.response = None;
    live.x.txn.compression = None;
    if let Some(inspection) = &mut live.x.txn.inspection {
        inspection.within = within;
    }
    let ms = ms_between(since, worker.clock.tick()) as u64;
    let fate = if is_whole { service.on_failure } else { Fate::Deny };
    if bypasses(live, at, false, fate, why.word(), ms) {
        return Through::Bypassed;
    }
    deny(live, service.deny_status).await;
    Through::Over
}

/// Reads the request's body if it is not longer than that, so that the request can go on if the device fails.
async fn keep(live: &mut Live<'_, '_>, max_body: u64) -> Result<(), Broken> {
    if is_kept(live) {
        return Ok(());
    }
    let mut body = Original::of_request(live);
    if !body.is_longer_than(max_body) {
        body.gather(live, max_body.saturating_add(1)).await?;
    }
    match body.complete && body.pieces.len() <= max_body {
        true => live.x.inspected.request = Some(body.into_replay()),
        false => {
            let parts = body.into_parts(&live.worker.buffers);
            let x = &mut *live.x;
            (x.body, x.body_complete, x.inspected.request) = (parts.buffer, parts.complete, parts.replay);
        }
    }
    Ok(())
}

/// Whether the request can be sent any number of times.
fn is_kept(live: &Live<'_, '_>) -> bool {
    live.x.request_framing(live.client) == Framing::None || live.x.inspected.has_whole_request()
}

/// Sends the request to one of the devices, and the response to the client; why that failed, if it did.
async fn send(live: &mut Live<'_, '_>, bit: usize, pool: &Arc<Backend>, since: Instant) -> Option<Failed> {
    let worker = live.worker;
    let shared = &worker.shared;
    let proxy = &shared.config.proxies[pool.proxy];
    let _presence = pool.enter();
    worker.counters().backend(pool.proxy).session(worker.now_ms());
    if live.x.request.method() == b"CONNECT" {
        return Some(Failed { why: Failure::Unsuitable, is_whole: true });
    }
    let fields = &mut live.x.request.fields;
    if Connection::of(fields).upgrade {
        // What follows a change of protocol would pass by the device.
        remove_hop_by_hop(fields, false);
        fields.remove_known(Known::Upgrade);
    }
    if live.x.passage.back.is_none() {
        compress::choose_response(live);
    }
    let within = live.x.txn.inspection.as_ref().map_or(0, |inspection| inspection.within);
    let mut want = place::want(live, pool);
    let Ok(target) = explicit::target(live, settings(shared, pool.proxy).device) else {
        return Some(Failed { why: Failure::Unsuitable, is_whole: true });
    };
    let mut attempts = Attempts::new(&want, false);
    // What a device of packets was sent, and does not pass on, may be what it means to stop.
    let repeats = settings(shared, pool.proxy).mode != Some(ServiceMode::Tcp);
    let (mut again, mut is_sent) = (true, false);
    loop {
        let gone = &mut |cx: &mut Context<'_>| live.client.poll_gone(cx);
        let slot = match assign(live.conn, live.x, pool, &want, &mut attempts, gone).await {
            Ok(slot) => slot,
            Err(Unserved(termination, 0)) => {
                // The client left the queue.
                live.x.log.termination = termination;
                return None;
            }
            Err(Unserved(Termination(_, during), _)) => {
                worker.counters().backend(pool.proxy).connect_errors.inc();
                let why = if during == During::Queue { Failure::Busy } else { Failure::Unreachable };
                return Some(Failed { why, is_whole: !is_sent || repeats && is_kept(live) });
            }
        };
        let server = slot.server().clone();
        worker.roster.note(live.x.listed, |session| {
            session.server = Some(server.at);
            session.attempts += 1;
        });
        count_attempt(worker, live.x, &server, attempts.assigned(server.at.server));
        worker.cells(&server).session(worker.now_ms());
        live.x.may_retry = attempts.are_left(proxy);
        if !expect(live, bit, within, &slot, since, target.as_deref()) {
            return Some(Failed { why: Failure::Unreachable, is_whole: !is_sent || repeats && is_kept(live) });
        }
        let attempted = {
            // In a box, as in `retry`.
            let mut attempt = Box::pin(attempt(live, &slot, proxy, attempts.failures() > 0, again));
            unless_shut_down(&slot, attempt.as_mut()).await
        };
        let reason = match attempted {
            Some(Ok(()) | Err(Ended::Over)) => return None,
            None if live.x.responded => {
                shut_down(live, slot.server().shut_reason()).await;
                return None;
            }
            None => Reason::Empty,
            Some(Err(Ended::Retry(reason))) => reason,
        };
        drop(slot);
        let is_back = live.x.passage.out.as_mut().is_some_and(|out| out.has_come_back());
        if live.x.passage.out.as_ref().is_some_and(|out| out.is_elsewhere) {
            // A server has it, perhaps.
            return Some(Failed { why: Failure::NotReturned, is_whole: false });
        }
        let is_unreached = matches!(reason, Reason::Connect | Reason::WrongName);
        is_sent |= !is_unreached;
        if reason == Reason::Stale && !is_back {
            // As in `retry`: once, that counts as no failure of the device.
            again = false;
            want.persistent = Some(server.at.server);
            continue;
        }
        if is_back || !attempts.are_left(proxy) || !retries_on(proxy, reason) {
            if is_unreached {
                count_connect_error(worker, &server);
            }
            let why = match reason {
                Reason::Connect | Reason::WrongName => Failure::Unreachable,
                Reason::Empty | Reason::Stale => Failure::Closed,
                Reason::Timeout => Failure::Timeout,
                Reason::Junk | Reason::Status => Failure::Invalid,
            };
            return Some(Failed { why, is_whole: !is_back && (!is_sent || repeats && is_kept(live)) });
        }
        let pause = attempts.failed(proxy, pool.counts().0, &mut want);
        live.x.log.retries = attempts.failures();
        if let Some(pause) = pause.filter(|_| live.x.log.termination != Termination(By::ServerTimeout, During::Connect))
        {
            tokio::time::sleep(pause).await;
        }
    }
}

/// Expects the request to come back from the device, with a token that it gets for that, and the target that the device is to be asked with;
/// `false` if there is no randomness for a token.
fn expect(
    live: &mut Live<'_, '_>,
    bit: usize,
    within: u64,
    slot: &Slot,
    since: Instant,
    target: Option<&[u8]>,
) -> bool {
    let (conn, x) = (&mut *live.conn, &mut *live.x);
    let Some(backend) = x.backend else { return false };
    // A token that was sent to a connection which the device had closed is not used again.
    if let Some(own) = x.passage.out.take().and_then(|out| out.own_target) {
        x.request.restore_target(own);
    }
    if let Some(inspection) = &mut x.txn.inspection {
        inspection.within = within;
    }
    let told = Told::default();
    let service = slot.server().at.proxy;
    let limits = &conn.worker.shared.limits;
    let Some(awaited) = limits.expect_return(service) else { return false };
    let own_target = match target.map(|target| x.request.replace_target(target)).transpose() {
        Ok(own) => own,
        Err(_) => return false,
    };
    let crossing = Crossing {
        service,
        frontend: conn.frontend,
        bind: conn.bind,
        facts: conn.facts.clone(),
        session: conn.session.clone(),
        requests: conn.requests,
        backend,
        txn: x.txn.behind(bit),
        told: told.clone(),
        own_target: own_target.clone(),
        stream: None,
        _awaited: awaited,
    };
    if let Some(inspection) = &mut x.txn.inspection {
        inspection.within &= (1 << bit) - 1;
    }
    let is_by_path = settings(&live.worker.shared, service).mode == Some(ServiceMode::Tcp);
    let (expected, pending) = match is_by_path {
        true => (None, Some(Box::new(crossing))),
        false => {
            let Some(expected) = live.worker.shared.crossings.expect(crossing) else { return false };
            let _ = x.request.fields.set(FIELD, expected.token().as_bytes());
            (Some(expected), None)
        }
    };
    x.passage.out = Some(Box::new(Out {
        service,
        server: slot.server().clone(),
        since,
        expected,
        pending,
        is_by_path,
        is_back: None,
        told,
        own_target,
        is_elsewhere: false,
        made_here: false,
        waited: None,
        server_answered: -1,
        server_conn: ServerConnFacts::default(),
    }));
    true
}
