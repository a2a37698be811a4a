//! What services have said, in the log, and whether a message goes on that one did not inspect.

use crate::{
    exchange::{live::Live, state::Exchange},
    process::shared::Shared,
};
use penstock_config::model::{Fate, ProxyId, Service};

/// A service's settings.
pub(crate) fn settings(shared: &Shared, service: ProxyId) -> &Service {
    shared.config.proxies[service].service.as_deref().expect("chains name services alone")
}

/// Records a verdict for the log.
pub(super) fn note(
    live: &mut Live<'_, '_>,
    service: ProxyId,
    of_response: bool,
    verdict: &str,
    ms: u64,
    threat: Option<Vec<u8>>,
) {
    let side = if of_response { "response" } else { "request" };
    record(&live.worker.shared, live.x, service, side, verdict, ms);
    if let Some(inspection) = &mut live.x.txn.inspection {
        inspection.threat = threat.or(inspection.threat.take());
    }
}

/// Records a verdict about a request, a response or a connection.
pub(crate) fn record(shared: &Shared, x: &mut Exchange, service: ProxyId, what: &str, verdict: &str, ms: u64) {
    if let Some(inspection) = &mut x.txn.inspection {
        inspection.note(&shared.config.proxies[service].name, what, verdict, ms);
    }
}

/// Records that a service did not inspect a message; whether it goes on all the same.
pub(super) fn bypasses(
    live: &mut Live<'_, '_>,
    service: ProxyId,
    of_response: bool,
    fate: Fate,
    why: &str,
    ms: u64,
) -> bool {
    let goes_on = fate == Fate::Bypass;
    let word = if goes_on { "bypassed" } else { "denied" };
    note(live, service, of_response, &format!("{word}({why})"), ms, None);
    goes_on
}
