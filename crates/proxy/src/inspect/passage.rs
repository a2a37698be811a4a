//! The response at both ends of a device: the exchange behind it reports, and the one before it judges what the device makes of that.

use super::{
    crossing::{BodyFacts, FIELD, Out, Path, Report, lock},
    explicit::{self, Meaning},
    verdict,
};
use crate::{
    connection::Conn,
    exchange::state::ms_between,
    exchange::{live::Live, state::Exchange},
    rules::evaluate::count_denied_response,
    worker::state::Worker,
};
use penstock_rules::{By, During, LogFacts, Termination, table::Tracking};

/// Has the request expected at the other side of a device of packets, now that there is a connection to send it on; `false` if there is another one of
/// the same addresses.
pub(crate) fn depart(worker: &Worker, x: &mut Exchange) -> bool {
    let Some(out) = &mut x.passage.out else { return true };
    let Some(crossing) = out.pending.take() else { return true };
    let path = Path::new(x.server_conn.src, x.server_conn.dst);
    out.expected = path.and_then(|path| worker.shared.crossings.expect_on(path, *crossing));
    out.expected.is_some()
}

/// Whether the connection to the server carries this request alone.
pub(crate) fn is_alone(x: &Exchange) -> bool {
    x.passage.out.as_ref().is_some_and(|out| out.is_by_path)
}

/// Judges the head of a response, if a device sent it; whether it goes on to the client.
pub(crate) fn answered(live: &mut Live<'_, '_>) -> bool {
    let Some(mut out) = live.x.passage.out.take() else { return true };
    live.x.request.fields.remove(FIELD);
    let is_proxy = out.own_target.is_some();
    if let Some(own) = out.own_target.take() {
        live.x.request.restore_target(own);
    }
    let goes_on = judge(live, &mut out, is_proxy);
    live.x.passage.out = Some(out);
    goes_on
}

fn judge(live: &mut Live<'_, '_>, out: &mut Out, is_proxy: bool) -> bool {
    let is_back = out.has_come_back();
    let status = live.x.response.status();
    let report = lock(&out.told).take();
    let is_of_device = report.as_ref().is_none_or(|report| report.status != status);
    // The device has not reached us, or reached another process of ours, which does not know the request.
    let is_lost = !is_back && live.x.response.fields.get(FIELD).is_some();
    if is_of_device && (is_lost || matches!(status, 502 | 504)) {
        return false;
    }
    let meaning = if is_proxy && !is_back { explicit::meaning(status) } else { Meaning::Blocked };
    out.is_elsewhere = meaning == Meaning::Elsewhere;
    if meaning != Meaning::Blocked {
        return false;
    }
    let ms = ms_between(out.since, live.worker.clock.now()) as u64;
    let verdict = if is_back { "passed" } else { "blocked" };
    verdict::note(live, out.service, false, verdict, ms, None);
    let is_changed =
        report.as_ref().is_some_and(|report| report.body.are_of_another(&BodyFacts::of(&live.x.response.fields)));
    let was_error = report.as_ref().is_some_and(|report| report.status >= 400);
    import(live.x, out, report);
    if !is_back {
        live.conn.listener_cells().iter().for_each(|cells| cells.denied_requests.inc());
        live.x.log.termination = Termination(By::Refusal, During::Request);
    } else if is_of_device && status >= 400 && !was_error {
        verdict::note(live, out.service, true, "blocked", ms, None);
        count_denied_response(live.conn, live.x);
        live.x.log.termination = Termination(By::Refusal, During::Headers);
    } else if is_of_device || is_changed {
        verdict::note(live, out.service, true, "modified", ms, None);
    }
    true
}

/// Takes over what is known of the server. What took time at the device is kept for its counters.
pub(crate) fn import(x: &mut Exchange, out: &mut Out, report: Option<Report>) {
    out.waited = Some([x.log.Tw, x.log.Tc, -1]);
    let none = LogFacts::default();
    let from = report.as_ref().map_or(&none, |report| &report.log);
    let log = &mut x.log;
    (log.Tw, log.Tc, out.server_answered) = (from.Tw, from.Tc, from.Tr);
    (log.termination, log.cookie, log.server_address) = (from.termination, from.cookie, from.server_address);
    (log.retries, log.redispatched, log.srv_conn) = (from.retries, from.redispatched, from.srv_conn);
    (log.srv_queue, log.backend_queue) = (from.srv_queue, from.backend_queue);
    x.txn.server_status = None;
    let Some(report) = report else { return };
    (x.server, x.txn.server_status, out.server_conn) = (report.server, report.server_status, report.server_conn);
    out.made_here = report.made_here;
    if let Some(inspection) = &mut x.txn.inspection {
        inspection.join(&report.verdicts, report.threat);
    }
}

/// Puts the time that the server took to answer in place of that of the device, if there was one.
pub(crate) fn measure(x: &mut Exchange) {
    if let Some(out) = &mut x.passage.out
        && let Some([.., answered]) = &mut out.waited
    {
        *answered = std::mem::replace(&mut x.log.Tr, out.server_answered);
    }
}

/// Whether the response is an error page of ours, which has come through a device.
pub(crate) fn is_page(x: &Exchange) -> bool {
    x.passage.out.as_ref().is_some_and(|out| out.made_here)
}

/// Reports to the exchange before the device, if there is one, that the response is about to go there.
pub(crate) fn report(x: &Exchange, made_here: bool) {
    let Some(back) = &x.passage.back else { return };
    *lock(&back.told) = Some(made_of(x, made_here || is_page(x)));
}

/// Reports to the exchange before the device, if there is one, what has become of a connection in `mode tcp`. Only the first report counts.
pub(crate) fn report_connection(x: &mut Exchange, is_connected: bool) {
    if let Some(stream) = x.passage.back.as_mut().and_then(|back| back.stream.take()) {
        // Whoever has left does not need it.
        let _ = stream.send(made_of(x, !is_connected));
    }
}

/// Reports to the exchange before the device, if there is one, why a connection in `mode tcp` ends, before that shows on the connection.
pub(crate) fn report_end(x: &Exchange, termination: Termination) {
    let Some(back) = &x.passage.back else { return };
    let mut report = made_of(x, false);
    report.log.termination = termination;
    lock(&back.told).get_or_insert(report);
}

/// Takes over why the connection behind the device has ended, unless it was the client that ended it here.
pub(crate) fn import_end(x: &mut Exchange) {
    let Some(out) = &x.passage.out else { return };
    if !matches!(x.log.termination.0, By::Nobody | By::Server | By::ServerTimeout) {
        return;
    }
    if let Some(report) = lock(&out.told).take() {
        let Termination(by, during) = report.log.termination;
        // What is the client there is the device.
        let by = match by {
            By::Client => By::Server,
            By::ClientTimeout => By::ServerTimeout,
            by => by,
        };
        x.log.termination = Termination(by, during);
    }
}

fn made_of(x: &Exchange, made_here: bool) -> Report {
    let inspection = x.txn.inspection.as_ref();
    Report {
        status: x.response.status(),
        body: BodyFacts::of(&x.response.fields),
        made_here,
        log: x.log.clone(),
        server: x.server.clone(),
        server_conn: x.passage.out.as_ref().map_or(&x.server_conn, |out| &out.server_conn).clone(),
        server_status: x.txn.server_status,
        verdicts: inspection.map_or(String::new(), |inspection| inspection.verdicts.clone()),
        threat: inspection.and_then(|inspection| inspection.threat.clone()),
    }
}

/// Ends an exchange's part in the way through devices: what follows is counted on the connection that it really has.
pub(crate) fn settle(conn: &mut Conn<'_>, x: &mut Exchange) {
    if let Some(out) = x.passage.out.as_mut().filter(|out| out.waited.is_some()) {
        x.server_conn = std::mem::take(&mut out.server_conn);
    }
    if let Some(back) = x.passage.back.take() {
        let own = back.of_device;
        (conn.frontend, conn.bind, conn.requests, conn.own) = (own.frontend, own.bind, own.requests, own.own);
        (conn.facts, conn.session) = (own.facts, own.session);
        // The exchange before the device counts on what is tracked.
        x.txn.tracking = Tracking::default();
    }
}
