//! Responses before they go to their clients.

use super::{
    apply,
    ask::{Asked, ask},
    original::{Broken, Original},
    verdict::{bypasses, note, settings},
};
use crate::{
    exchange::{buffered_body::Ahead, compress, ends::Fault, live::Live, respond},
    rules::{
        context::{self, Readable},
        evaluate::count_denied_response,
    },
};
use penstock_config::model::{Fate, ProxyId, Service};
use penstock_http::Framing;
use penstock_icap::{IcapMethod, Modified};
use penstock_rules::{Answer, By, During, Termination};

/// Passes a response through its chain, if it has one; how its body is framed then, or `None` if it does not go on.
pub(crate) async fn response(live: &mut Live<'_, '_>, ahead: &mut Ahead<'_>, framing: Framing) -> Option<Framing> {
    // What follows a 101 is no message of HTTP.
    if live.x.txn.inspection.is_none() || framing == Framing::Tunnel {
        return Some(framing);
    }
    Box::pin(inspect(live, ahead, framing)).await
}

async fn inspect(live: &mut Live<'_, '_>, ahead: &mut Ahead<'_>, framing: Framing) -> Option<Framing> {
    let worker = live.worker;
    let shared = worker.shared.clone();
    let Some(inspection) = &live.x.txn.inspection else { return Some(framing) };
    let (steps, due, within) = (&shared.program.chains[inspection.chain].steps, inspection.due, inspection.within);
    let due = {
        let context = context::context(live.conn, live.x, Readable::Response);
        let holds = |bit: usize| match steps[bit].on_response {
            true => steps[bit].condition.holds(&context) == Answer::Yes,
            false => due >> bit & 1 == 1,
        };
        (0..steps.len()).filter(|bit| within >> bit & 1 == 1 && holds(*bit)).fold(0u64, |due, bit| due | 1 << bit)
    };
    let mut original = None;
    let mut ahead = Some(ahead);
    for (_, step) in steps.iter().enumerate().filter(|(bit, _)| due >> bit & 1 == 1) {
        let service = settings(&shared, step.service);
        if service.respmod.is_none() {
            continue;
        }
        if let Some(ahead) = ahead.take() {
            original = Some(Original::of_response(live, ahead, framing));
        }
        let body = original.as_mut().expect("it was made for the first service");
        let (asked, ms) = ask(live, step.service, IcapMethod::Respmod, body).await;
        if !pass(live, step.service, service, asked, ms, body).await {
            return None;
        }
    }
    let Some(original) = original else { return Some(framing) };
    let parts = original.into_parts(&worker.buffers);
    (live.x.response_body, live.x.response_complete, live.x.inspected.response) =
        (parts.buffer, parts.complete, parts.replay);
    let Some(framing) = parts.framing else { return Some(framing) };
    let status = live.x.response.status();
    apply::frame(&mut live.x.response.fields, framing, !matches!(status, 204 | 304));
    live.x.txn.status = Some(status);
    // Another body may have to be left as it is.
    compress::consider(live.conn, live.x, framing);
    Some(framing)
}

/// Acts on what a service has said; whether the response goes on.
async fn pass(
    live: &mut Live<'_, '_>,
    at: ProxyId,
    service: &Service,
    asked: Asked,
    ms: u64,
    body: &mut Original<'_, '_>,
) -> bool {
    match asked {
        Asked::Unmodified { threat } => {
            note(live, at, true, "unmodified", ms, threat);
            true
        }
        Asked::Modified { by, threat } => {
            let Modified { response, body: pieces, original_from, .. } = *by;
            if !body.replace(pieces, original_from) {
                return fail(live, at, service.deny_status, service.on_failure, "invalid", ms).await;
            }
            let blocked = threat.is_some();
            note(live, at, true, if blocked { "blocked" } else { "modified" }, ms, threat);
            apply::response(live.x, response.expect("a message that takes the place of a response is one"));
            if blocked {
                count_denied_response(live.conn, live.x);
            }
            true
        }
        Asked::TooLong => {
            fail(live, at, service.deny_status, service.too_long.unwrap_or(Fate::Deny), "max-body", ms).await
        }
        Asked::Failed(failure) => fail(live, at, service.deny_status, service.on_failure, failure.word(), ms).await,
        Asked::Broken(broken) => {
            let (termination, status) = match broken {
                Broken::Late => (Termination(By::ServerTimeout, During::Data), 504),
                Broken::Source(Fault::Memory(_)) => (Termination(By::Exhaustion, During::Headers), 500),
                Broken::Source(Fault::Invalid(_)) => (Termination(By::Refusal, During::Headers), 502),
                Broken::Source(_) => (Termination(By::Server, During::Data), 502),
            };
            live.x.log.termination = termination;
            respond::error(live, status).await;
            false
        }
        Asked::Gone => {
            live.x.log.termination = Termination(By::Client, During::Headers);
            live.client.abort();
            false
        }
    }
}

/// Acts on a response that a service did not inspect; whether it goes on.
async fn fail(live: &mut Live<'_, '_>, at: ProxyId, status: u16, fate: Fate, why: &str, ms: u64) -> bool {
    if bypasses(live, at, true, fate, why, ms) {
        return true;
    }
    live.x.log.termination = Termination(By::Refusal, During::Headers);
    count_denied_response(live.conn, live.x);
    respond::error(live, status).await;
    false
}
