//! A request and its backend: one attempt after the other, as `retries`, `retry-on` and `option redispatch` allow.

use super::{
    assign::{Unserved, assign, count_attempt, count_connect_error},
    attempt::attempt,
    ends::Client,
    repeat::Ended,
    respond,
    state::Exchange,
};
use crate::server::{Shutdown, Slot};
use crate::{
    connection::Conn,
    route::{cookie, persistence},
    rules::{context::Stage, login},
};
use penstock_backends::retry::{Attempts, Reason, retries_on};
use penstock_rules::{By, During, Termination};
use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::Poll,
};

/// Finds a server and forwards, as often as `retries` allows.
pub(super) async fn to_backend(conn: &mut Conn, client: &mut dyn Client, x: &mut Exchange, backend: usize) {
    let worker = conn.worker.clone();
    let shared = &worker.shared;
    let Some(pool) = shared.backends.get(backend) else {
        return answer(conn, client, x, Termination(By::Server, During::Connect), 503).await;
    };
    let proxy = &shared.config.proxies[backend];
    x.presence = Some(pool.enter());
    let bound = login::known(conn, client, x, |conn, x| persistence::bind(conn, x, pool, Stage::Request));
    let Some(persistence) = bound.await else { return };
    cookie::from_client(x, proxy, pool, persistence, worker.clock.unix_s());
    persistence::stick(conn, x, pool, Stage::Request);
    worker.counters().backend(backend).session(worker.now_ms());
    let mut want = persistence::want(conn, x, pool, Stage::Request);
    if want.persistent.is_none() && want.hash.is_none() {
        want.persistent = persistence::last_server(conn, pool, proxy);
    }
    let mut attempts = Attempts::new(&want, persistence.forced);
    loop {
        let slot = match assign(conn, x, pool, &want, &mut |cx| client.poll_gone(cx)).await {
            Ok(slot) => slot,
            Err(Unserved(termination, 0)) => {
                // It left the queue by itself: no status is its own.
                x.log.termination = termination;
                return;
            }
            Err(Unserved(termination, status)) => {
                worker.counters().backend(backend).connect_errors.inc();
                return answer(conn, client, x, termination, status).await;
            }
        };
        let server = slot.server().clone();
        x.server = Some(server.clone());
        count_attempt(&worker, x, &server, attempts.assigned(server.at.server));
        worker.cells(&server).session(worker.now_ms());
        x.may_retry = attempts.are_left(proxy);
        let attempt = {
            // Pinned, so that it stays where it is made: it is the largest future of all.
            let attempt = pin!(attempt(conn, client, x, &slot, proxy, attempts.failures() > 0));
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
                want.persistent = Some(server.at.server);
                continue;
            }
            Err(Ended::Retry(reason)) => reason,
        };
        drop(slot);
        if !attempts.are_left(proxy) || !retries_on(proxy, reason) {
            if reason == Reason::Connect {
                count_connect_error(&worker, &server);
            }
            return fail_server(conn, client, x, reason).await;
        }
        let pause = attempts.failed(proxy, pool.counts().0, &mut want);
        x.log.retries = attempts.failures();
        // A server that took the connection and failed the request need not be spared, and time has passed already where
        // connecting took too long.
        if let Some(pause) = pause.filter(|_| {
            reason == Reason::Connect && x.log.termination != Termination(By::ServerTimeout, During::Connect)
        }) {
            tokio::time::sleep(pause).await;
        }
    }
}

/// The outcome of `attempt`, unless the server's sessions are ended first. Few servers may have that done to them, and
/// only their requests listen for it.
pub(super) async fn unless_shut_down<T>(slot: &Slot, mut attempt: Pin<&mut impl Future<Output = T>>) -> Option<T> {
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
pub(super) async fn shut_down(conn: &mut Conn, client: &mut dyn Client, x: &mut Exchange, why: Shutdown) {
    let during = if x.responded { During::Data } else { During::Headers };
    x.log.termination = Termination(why.by(), during);
    if x.responded {
        client.abort();
    } else {
        respond::error(conn, client, x, 502).await;
    }
}

/// All attempts failed: the answer that says why the last one did.
pub(super) async fn fail_server(conn: &mut Conn, client: &mut dyn Client, x: &mut Exchange, reason: Reason) {
    let status = reason.status().unwrap_or_else(|| x.response.status());
    respond::error(conn, client, x, status).await;
}

/// Answers with an error page and logs why.
pub(super) async fn answer(
    conn: &mut Conn,
    client: &mut dyn Client,
    x: &mut Exchange,
    termination: Termination,
    status: u16,
) {
    x.log.termination = termination;
    respond::error(conn, client, x, status).await;
}
