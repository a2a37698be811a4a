//! Passwords that are hashed slowly: rules ask, find that the answer is not known, and are run again once it is.

use crate::{
    connection::{Conn, in_time, timer::Deadline},
    exchange::{live::Live, respond, state::Exchange},
};
use penstock_rules::{By, During, Termination};
use std::{
    future::poll_fn,
    pin::pin,
    task::{Poll, ready},
    time::Duration,
};

/// How long a password is still checked for a client that has ended its half of the connection: it may wait for its answer, or
/// have left, which looks the same. With `option abortonclose` it has left.
const AFTER_END: Duration = Duration::from_secs(3);

/// What became of a password that the last evaluation asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// None was asked for.
    NoneAsked,
    /// It is known now whether it is right: what asked is to be evaluated again.
    Known,
    /// It could not be checked: whatever asked must not let the request pass, nor refuse it as if the password were wrong.
    Refused,
}

/// Has a password checked beside the workers, if the last evaluation asked for one.
pub(crate) async fn settle(live: &mut Live<'_>) -> Settled {
    let Some(claim) = live.x.txn.logins.take_claim() else { return Settled::NoneAsked };
    let worker = live.worker;
    let from = live.conn.facts.source().map(|address| address.ip());
    let checked = worker.shared.hashing.run(from, move |given_up| claim.check(given_up));
    live.conn.deadline.set(worker.clock.now(), live.conn.proxy().timeouts.client);
    let mut checked = pin!(checked);
    let grace = if live.conn.proxy().options.abortonclose { Duration::ZERO } else { AFTER_END };
    // Set once the client has ended its half.
    let mut patience: Option<Deadline> = None;
    let unless_gone = poll_fn(|cx| {
        if let Poll::Ready(known) = checked.as_mut().poll(cx) {
            return Poll::Ready(known.flatten());
        }
        if live.client.poll_cancelled(cx).is_ready() {
            return Poll::Ready(None);
        }
        let patience = match &mut patience {
            Some(patience) => patience,
            None => {
                ready!(live.client.poll_gone(cx));
                let mut begun = Deadline::default();
                begun.set(worker.clock.tick(), Some(grace));
                patience.insert(begun)
            }
        };
        patience.poll_expired(cx).map(|()| None)
    });
    let known = in_time(&mut live.conn.deadline, unless_gone).await.flatten();
    worker.clock.tick();
    match known {
        Some(known) => {
            live.x.txn.logins.learn(known);
            Settled::Known
        }
        None => Settled::Refused,
    }
}

/// Evaluates, as often as passwords have to be checked for it; `None` once the client has been told that one cannot be.
pub(crate) async fn known<T>(
    live: &mut Live<'_>,
    mut evaluate: impl FnMut(&mut Conn, &mut Exchange) -> T,
) -> Option<T> {
    loop {
        // What asked before and did not wait is of no interest here.
        live.x.txn.logins.take_claim();
        let outcome = evaluate(live.conn, live.x);
        match settle(live).await {
            Settled::NoneAsked => return Some(outcome),
            Settled::Known => {}
            Settled::Refused => {
                refuse(live).await;
                return None;
            }
        }
    }
}

/// A password could not be checked: the request goes no further.
pub(crate) async fn refuse(live: &mut Live<'_>) {
    live.x.log.termination = Termination(By::Exhaustion, During::Request);
    respond::error(live, 503).await;
}
