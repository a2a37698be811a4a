//! Sends a request to its backend: one attempt after another, as `retries`, `retry-on` and `option redispatch` allow.

use super::{
    assign::{Unserved, assign, count_attempt, count_connect_error},
    attempt::attempt,
    compress,
    resend::Ended,
    respond,
};
use crate::{
    exchange::live::Live,
    route::{self, cookie, persistence},
    rules::{
        context::{Judged, Readable},
        login,
    },
    server::{Shutdown, Slot},
};
use penstock_backends::retry::{Attempts, Reason, retries_on};
use penstock_config::model::ProxyId;
use penstock_rules::{By, During, Termination};
use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll},
};

/// Finds a server and forwards the request, as many times as `retries` allows.
pub(crate) async fn to_backend(live: &mut Live<'_, '_>, backend: ProxyId) {
    let worker = live.worker;
    let shared = &worker.shared;
    let Some(pool) = shared.backends.get(backend) else {
        return answer(live, Termination(By::Server, During::Connect), 503).await;
    };
    let proxy = &shared.config.proxies[backend];
    live.x.presence = Some(pool.enter());
    let bound = login::known(live, |conn, x| persistence::bind(conn, x, pool, Readable::Request));
    let Some(persistence) = bound.await else { return };
    cookie::from_client(live.x, proxy, pool, persistence, worker.clock.unix_s());
    persistence::stick(live.conn, live.x, pool, Readable::Request);
    worker.counters().backend(backend).session(worker.now_ms());
    if persistence::looks_at_body(live.x, pool) && Box::pin(route::whole_body(live, proxy)).await == Judged::Over {
        return;
    }
    let mut want = persistence::want(live.conn, live.x, pool, Readable::Request);
    if want.persistent.is_none() && want.hash.is_none() {
        want.persistent = persistence::last_server(live.conn, pool, proxy);
    }
    if live.x.passage.back.is_none() {
        compress::choose_response(live);
    }
    compress::encode_request(live);
    let mut attempts = Attempts::new(&want, persistence.forced);
    let mut again = true;
    loop {
        let gone = &mut |cx: &mut Context<'_>| live.client.poll_gone(cx);
        let slot = match assign(live.conn, live.x, pool, &want, &mut attempts, gone).await {
            Ok(slot) => slot,
            Err(Unserved(termination, 0)) => {
                // The client left the queue by itself, so no status is set.
                live.x.log.termination = termination;
                return;
            }
            Err(Unserved(termination, status)) => {
                worker.counters().backend(backend).connect_errors.inc();
                return answer(live, termination, status).await;
            }
        };
        let server = slot.server().clone();
        live.x.server = Some(server.clone());
        worker.roster.note(live.x.listed, |session| {
            session.server = Some(server.at);
            session.attempts += 1;
        });
        count_attempt(worker, live.x, &server, attempts.assigned(server.at.server));
        worker.cells(&server).session(worker.now_ms());
        live.x.may_retry = attempts.are_left(proxy);
        let attempt = {
            // In a box, since it is the largest future of all, and what waits before it, in a tarpit or a queue, should not pay for it.
            let mut attempt = Box::pin(attempt(live, &slot, proxy, attempts.failures() > 0, again));
            unless_shut_down(&slot, attempt.as_mut()).await
        };
        let Some(attempt) = attempt else {
            return shut_down(live, slot.server().shut_reason()).await;
        };
        // The requests that the server is still serving; read before this one's place passes to the next in the queue.
        live.x.log.srv_conn = slot.server().served().saturating_sub(1);
        let reason = match attempt {
            Ok(()) | Err(Ended::Over) => return,
            Err(Ended::Retry(Reason::Stale)) => {
                // The server has ended a connection before anything reached it; that does not count as its failure, once.
                again = false;
                drop(slot);
                want.persistent = Some(server.at.server);
                continue;
            }
            Err(Ended::Retry(reason)) => reason,
        };
        drop(slot);
        if !attempts.are_left(proxy) || !retries_on(proxy, reason) {
            if matches!(reason, Reason::Connect | Reason::WrongName) {
                count_connect_error(worker, &server);
            }
            return fail_server(live, reason).await;
        }
        let pause = attempts.failed(proxy, pool.counts().0, &mut want);
        live.x.log.retries = attempts.failures();
        // No pause is needed for a server that accepted the connection and failed the request, nor if connecting
        // already took long.
        if let Some(pause) = pause.filter(|_| {
            reason == Reason::Connect && live.x.log.termination != Termination(By::ServerTimeout, During::Connect)
        }) {
            tokio::time::sleep(pause).await;
        }
    }
}

/// The output of `attempt`, unless the server's sessions are ended first. Only requests to servers that are configured
/// for that listen for it.
pub(crate) async fn unless_shut_down<T>(slot: &Slot, mut attempt: Pin<&mut impl Future<Output = T>>) -> Option<T> {
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

/// Handles the end of all of a server's sessions, because it went down or an operator ended them.
pub(crate) async fn shut_down(live: &mut Live<'_, '_>, why: Shutdown) {
    let during = match (live.x.responded, &live.x.server, live.x.backend) {
        (true, ..) => During::Data,
        (false, Some(_), _) => During::Headers,
        (false, None, Some(_)) => During::Queue,
        (false, None, None) => During::Request,
    };
    live.x.log.termination = Termination(why.by(), during);
    if live.x.responded {
        live.client.abort();
    } else {
        respond::error(live, 502).await;
    }
}

/// Responds after all attempts have failed, according to how the last one did.
pub(super) async fn fail_server(live: &mut Live<'_, '_>, reason: Reason) {
    let status = reason.status().unwrap_or_else(|| live.x.response.status());
    respond::error(live, status).await;
}

/// Responds with an error page and logs why.
pub(super) async fn answer(live: &mut Live<'_, '_>, termination: Termination, status: u16) {
    live.x.log.termination = termination;
    respond::error(live, status).await;
}
