//! Passwords that are hashed slowly: rules ask, find that the answer is not known, and are run again once it is.

use crate::exchange::live::Live;
use crate::{
    connection::{Conn, in_time},
    exchange::{respond, state::Exchange},
};
use penstock_rules::{By, During, Termination};
use std::{future::poll_fn, pin::pin, task::Poll};

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
    // Who has said all it has to say still waits for the answer, unless the configuration takes its end for an abort.
    let gone_by_end = live.conn.proxy().options.abortonclose;
    let unless_gone = poll_fn(|cx| match checked.as_mut().poll(cx) {
        Poll::Ready(known) => Poll::Ready(known.flatten()),
        Poll::Pending if gone_by_end => live.client.poll_gone(cx).map(|()| None),
        Poll::Pending => live.client.poll_cancelled(cx).map(|()| None),
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
