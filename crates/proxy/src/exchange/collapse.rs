//! Requests for the same wait for one response (`collapse` of a cache). What waits for what is decided in `penstock_cache`.

use super::state::ms_between;
use crate::{exchange::live::Live, worker::turn};
use penstock_cache::{CacheTime, Collapsed, may_fetch};
use penstock_rules::{By, During, Termination};
use std::{
    future::poll_fn,
    task::{Poll, ready},
    time::Duration,
};

/// Who answers a request that has a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnsweredBy {
    /// A server of the backend.
    Server,
    /// A cache: the response to another request was stored.
    Cache,
    /// The client has left.
    Nobody,
}

/// Waits for the response to another request for the same, if a cache that was asked has it do so.
pub(super) async fn wait(live: &mut Live<'_, '_>) -> AnsweredBy {
    let caching = live.x.caching.as_ref().filter(|caching| caching.cache.limits().collapse_ms > 0);
    // What services inspect is not stored, nor anything while memory is short.
    if caching.is_none() || live.x.txn.inspection.is_some() || live.worker.shared.memory.is_short() {
        return AnsweredBy::Server;
    }
    // In a box, so that others do not pay for it.
    Box::pin(wait_for_others(live)).await
}

async fn wait_for_others(live: &mut Live<'_, '_>) -> AnsweredBy {
    let Some(mut caching) = live.x.caching.take() else { return AnsweredBy::Server };
    let worker = live.worker;
    let mut collapsing = caching.cache.collapse(may_fetch(&live.x.request));
    let leaves = live.proxy().options.abortonclose;
    let since = worker.clock.now();
    let outcome = poll_fn(|cx| {
        loop {
            turn::round();
            let now = CacheTime { unix_s: worker.clock.unix_s(), ms: worker.clock.ms() };
            if let Poll::Ready(outcome) = collapsing.poll(&caching.query, now, cx.waker()) {
                return Poll::Ready(Some(outcome));
            }
            if live.client.poll_cancelled(cx).is_ready() || (leaves && live.client.poll_gone(cx).is_ready()) {
                return Poll::Ready(None);
            }
            // Milliseconds are cut off: one more, and it is over when the time has come.
            let left_ms = collapsing.until_ms().map_or(0, |until| until.saturating_sub(now.ms)).saturating_add(1);
            live.conn.deadline.set(worker.clock.now(), Some(Duration::from_millis(left_ms)));
            ready!(live.conn.deadline.poll_expired(cx));
            worker.clock.tick();
        }
    })
    .await;
    drop(collapsing);
    let answered_by = match outcome {
        Some(Collapsed::Stored(entry)) => {
            caching.keep_answer(live.conn, entry);
            // In the log, it is as if it had waited in a queue.
            live.x.log.Tw = ms_between(since, worker.clock.now());
            AnsweredBy::Cache
        }
        Some(Collapsed::Fetch(fetch)) => {
            caching.fetch = Some(fetch);
            AnsweredBy::Server
        }
        Some(Collapsed::Alone) => AnsweredBy::Server,
        None => {
            live.x.log.Tw = ms_between(since, worker.clock.now());
            live.x.log.termination = Termination(By::Client, During::Queue);
            AnsweredBy::Nobody
        }
    };
    live.x.caching = Some(caching);
    answered_by
}
