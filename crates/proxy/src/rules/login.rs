//! Passwords whose hashing is slow: when rules need the result and it is not known, they are evaluated again once it
//! is.

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

/// How long a password check goes on after the client has ended its half of the connection: the client may be waiting
/// for the response or may have left, which looks the same. With `option abortonclose` it counts as having left.
const AFTER_END: Duration = Duration::from_secs(3);

/// The result of a password check that the last evaluation asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// None was asked for.
    NoneAsked,
    /// The check is done, and its result known: the evaluation has to be repeated.
    Known,
    /// The password could not be checked: the request must neither pass nor be refused as if the password were wrong.
    Refused,
}

/// Checks a password beside the workers, if the last evaluation asked for that.
pub(crate) async fn settle(live: &mut Live<'_, '_>) -> Settled {
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
    match known {
        Some(known) => {
            live.x.txn.logins.learn(known);
            Settled::Known
        }
        None => Settled::Refused,
    }
}

/// Evaluates, repeatedly if passwords have to be checked; `None` if one could not be checked, which the client has been
/// told.
pub(crate) async fn known<T>(
    live: &mut Live<'_, '_>,
    mut evaluate: impl FnMut(&mut Conn<'_>, &mut Exchange) -> T,
) -> Option<T> {
    loop {
        // A request left over from an earlier evaluation is of no interest.
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

/// Responds to a request whose password could not be checked: it goes no further.
pub(crate) async fn refuse(live: &mut Live<'_, '_>) {
    live.x.log.termination = Termination(By::Exhaustion, During::Request);
    respond::error(live, 503).await;
}
