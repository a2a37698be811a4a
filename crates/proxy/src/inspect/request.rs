//! Requests before they go to their servers.

use super::{
    apply,
    ask::{Asked, ask},
    original::{Broken, Original},
    through::{Through, through},
    verdict::{bypasses, note, settings},
};
use crate::{
    exchange::{ends::Fault, live::Live, respond},
    rules::{
        context::{self, Judged, Readable},
        login,
    },
};
use penstock_config::model::{Fate, ProxyId, Service};
use penstock_http::{Framing, Version};
use penstock_icap::{IcapMethod, Modified, Pieces};
use penstock_rules::{Answer, By, During, Termination};

/// Passes a request through its chain, if it has one; whether it goes on.
pub(crate) async fn request(live: &mut Live<'_, '_>) -> Judged {
    if live.x.txn.inspection.is_none() {
        return Judged::GoOn;
    }
    Box::pin(inspect(live)).await
}

async fn inspect(live: &mut Live<'_, '_>) -> Judged {
    let shared = live.worker.shared.clone();
    let Some(chain) = live.x.txn.inspection.as_ref().map(|inspection| inspection.chain) else { return Judged::GoOn };
    let steps = &shared.program.chains[chain].steps;
    // Behind a device, it is known who is next.
    if live.x.passage.back.is_none() {
        let due = login::known(live, |conn, x| {
            let context = context::context(conn, x, Readable::Request);
            let holds = |bit: usize| !steps[bit].on_response && steps[bit].condition.holds(&context) == Answer::Yes;
            (0..steps.len()).filter(|bit| holds(*bit)).fold(0u64, |due, bit| due | 1 << bit)
        });
        let Some(due) = due.await else { return Judged::Over };
        if let Some(inspection) = &mut live.x.txn.inspection {
            inspection.due = due;
        }
    }
    let due = live.x.txn.inspection.as_ref().map_or(0, |inspection| inspection.due & inspection.within);
    let mut original = None;
    for (bit, step) in steps.iter().enumerate().filter(|(bit, _)| due >> bit & 1 == 1) {
        let service = settings(&shared, step.service);
        debug_assert!(bit < 64, "a chain is no longer");
        if step.is_inline {
            put_back(live, original.take());
            match through(live, bit, step.service).await {
                Through::Bypassed => continue,
                Through::Over => return Judged::Over,
            }
        }
        if service.reqmod.is_none() {
            continue;
        }
        let body = original.get_or_insert_with(|| Original::of_request(live));
        let (asked, ms) = ask(live, step.service, IcapMethod::Reqmod, body).await;
        if let Some(said) = pass(live, step.service, service, asked, ms, body).await {
            return said;
        }
    }
    put_back(live, original);
    Judged::GoOn
}

/// Makes the body that services have left that of the request.
fn put_back(live: &mut Live<'_, '_>, original: Option<Original<'_, '_>>) {
    let Some(original) = original else { return };
    let parts = original.into_parts(&live.worker.buffers);
    let x = &mut *live.x;
    (x.body, x.body_complete, x.inspected.request) = (parts.buffer, parts.complete, parts.replay);
    if let Some(framing) = parts.framing {
        let needs_length = !matches!(x.request.method(), b"GET" | b"HEAD" | b"DELETE" | b"OPTIONS" | b"CONNECT");
        apply::frame(&mut x.request.fields, framing, needs_length);
        x.inspected.request_framing = Some(framing);
    }
}

/// Acts on what a service has said; `None` if the request goes on.
async fn pass(
    live: &mut Live<'_, '_>,
    at: ProxyId,
    service: &Service,
    asked: Asked,
    ms: u64,
    body: &mut Original<'_, '_>,
) -> Option<Judged> {
    match asked {
        Asked::Unmodified { threat } => {
            note(live, at, false, "unmodified", ms, threat);
            None
        }
        Asked::Modified { by, threat } => {
            let Modified { request, response, body: pieces, original_from } = *by;
            if let Some(head) = response {
                note(live, at, false, "blocked", ms, threat);
                live.x.response = head;
                return Some(block(live, pieces).await);
            }
            let head = request.expect("a message that takes the place of a request has one of the heads");
            let before = live.x.request.clone();
            if apply::request(live.x, &head).is_ok() && body.replace(pieces, original_from) {
                note(live, at, false, "modified", ms, threat);
                return None;
            }
            live.x.request = before;
            fail(live, at, service.deny_status, service.on_failure, "invalid", ms).await
        }
        Asked::TooLong => {
            fail(live, at, service.deny_status, service.too_long.unwrap_or(Fate::Deny), "max-body", ms).await
        }
        Asked::Failed(failure) => fail(live, at, service.deny_status, service.on_failure, failure.word(), ms).await,
        Asked::Broken(broken) => {
            end(live, broken).await;
            Some(Judged::Over)
        }
        Asked::Gone => {
            live.x.log.termination = Termination(By::Client, During::Request);
            live.client.abort();
            Some(Judged::Over)
        }
    }
}

/// Acts on a message that a service did not inspect.
async fn fail(live: &mut Live<'_, '_>, at: ProxyId, status: u16, fate: Fate, why: &str, ms: u64) -> Option<Judged> {
    if bypasses(live, at, false, fate, why, ms) {
        return None;
    }
    deny(live, status).await;
    Some(Judged::Over)
}

/// Answers a request that was not inspected and does not go on.
pub(super) async fn deny(live: &mut Live<'_, '_>, status: u16) {
    live.x.log.termination = Termination(By::Refusal, During::Request);
    live.conn.listener_cells().iter().for_each(|cells| cells.denied_requests.inc());
    respond::error(live, status).await;
}

/// Sends the response that a service made instead of passing the request on.
async fn block(live: &mut Live<'_, '_>, body: Option<Pieces>) -> Judged {
    let body = body.map_or(Vec::new(), |pieces| pieces.to_vec());
    // Some services answer in HTTP/1.0; it is our response to the client.
    live.x.response.set_version(Version::Http11);
    apply::frame(&mut live.x.response.fields, Framing::Length(body.len() as u64), true);
    live.conn.listener_cells().iter().for_each(|cells| cells.denied_requests.inc());
    live.x.log.termination = Termination(By::Refusal, During::Request);
    let status = live.x.response.status();
    respond::send(live, &body, false, status).await;
    Judged::Over
}

/// Ends an exchange whose client did not send its request's body.
pub(super) async fn end(live: &mut Live<'_, '_>, broken: Broken) {
    let (termination, status) = match broken {
        Broken::Late => (Termination(By::ClientTimeout, During::Data), 408),
        Broken::Source(Fault::Memory(_)) => (Termination(By::Exhaustion, During::Request), 500),
        Broken::Source(Fault::Invalid(_)) => (Termination(By::Refusal, During::Request), 400),
        Broken::Source(_) => {
            live.x.log.termination = Termination(By::Client, During::Data);
            live.x.aborted(400);
            return live.client.abort();
        }
    };
    live.x.log.termination = termination;
    respond::error(live, status).await;
}
