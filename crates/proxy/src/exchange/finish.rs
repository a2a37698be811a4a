//! The last stage of an exchange: times, counters, and the log line.

use super::state::{Exchange, ms_between};
use crate::{
    connection::Conn,
    exchange::live::Live,
    route::cookie,
    rules::context::{Readable, context},
    worker::pulse,
};
use penstock_config::{model::Mode, syslog};
use penstock_rules::{By, During, LogLevel, Phase, Termination, table::Tracking};
use std::sync::atomic::Ordering;
use tokio::time::Instant;

/// Counts and logs an exchange that has ended.
pub(crate) fn run(live: &mut Live<'_, '_>) {
    run_quietly(live);
    write(live.conn, live.x);
}

/// Like [`run`], without the log line.
fn run_quietly(live: &mut Live<'_, '_>) {
    // When its line is written, the exchange itself no longer counts as current.
    live.x.presence = None;
    if live.x.refused && live.x.switched.is_some() {
        // As in HAProxy it is the session of `mode tcp` that ends here, and it has no response.
        live.x.log.termination = Termination(By::Refusal, During::Request);
        live.x.txn.status = Some(0);
    }
    let now = live.worker.clock.now();
    live.x.log.bytes_uploaded = live.client.counts().received;
    live.x.txn.client_stream.reset = live.client.reset();
    measure(live.conn, live.x, now);
    count(live.conn, live.x);
}

/// Counts and logs an invalid HTTP/2 request, whose stream was reset without a response, as HAProxy does.
pub(crate) fn malformed(conn: &mut Conn<'_>) {
    without_request(conn, true);
}

/// Logs a connection of HTTP/2 that ends by an error while it has no stream that could tell of it.
pub(crate) fn broken(conn: &mut Conn<'_>) {
    without_request(conn, false);
}

fn without_request(conn: &mut Conn<'_>, counts: bool) {
    let mut x = conn.worker.take_exchange();
    let now = conn.worker.clock.now();
    conn.begin(&mut x, conn.ready(), conn.ready());
    x.log.termination = Termination(By::Refusal, During::Request);
    x.aborted(0);
    measure(conn, &mut x, now);
    if counts {
        count(conn, &x);
    }
    write(conn, &mut x);
    conn.worker.give_exchange(x);
}

/// Counts and logs a connection in `mode tcp`. With `option dontlognull`, one from whose client nothing came is not logged.
pub(crate) fn tcp(conn: &mut Conn<'_>, received: u64, x: &mut Exchange) {
    x.presence = None;
    x.log.bytes_uploaded = received;
    measure(conn, x, conn.worker.clock.now());
    count(conn, x);
    if received > 0 || !conn.proxy().options.dontlognull {
        write(conn, x);
    }
}

/// Counts what came back from a device in `mode tcp`. The exchange before the device logs it.
pub(crate) fn behind_device(conn: &mut Conn<'_>, received: u64, x: &mut Exchange) {
    x.presence = None;
    x.log.bytes_uploaded = received;
    // Its frontend, the service, is in mode http, and it was none.
    x.bypassed = true;
    measure(conn, x, conn.worker.clock.now());
    count(conn, x);
}

/// Writes the line of `option logasap` in `mode tcp`, once the server is connected.
pub(crate) fn tcp_as_soon_as(conn: &mut Conn<'_>, x: &mut Exchange) {
    if conn.proxy().options.logasap {
        x.log.as_soon_as = true;
        measure(conn, x, conn.worker.clock.now());
        write_line(conn, x);
    }
}

/// Like [`run`], for a connection that ended before a complete request. With `option dontlognull`, a client that never
/// sent anything is not logged.
pub(crate) fn log_unless_null(live: &mut Live<'_, '_>, partial: bool) {
    run_quietly(live);
    if partial || !live.conn.proxy().options.dontlognull {
        write(live.conn, live.x);
    }
}

/// Writes the line of `option logasap`, once the response's head is there; totals get a `+`.
pub(crate) fn as_soon_as(live: &mut Live<'_, '_>) {
    if live.conn.proxy().options.logasap && !live.x.log.as_soon_as {
        live.x.log.as_soon_as = true;
        measure(live.conn, live.x, live.worker.clock.now());
        write_line(live.conn, live.x);
    }
}

fn measure(conn: &Conn<'_>, x: &mut Exchange, now: Instant) {
    let since = |from: Option<Instant>| from.map_or(-1, |from| ms_between(from, now));
    x.log.Td = since(x.times.answered);
    x.log.Ta = since(x.times.first_byte);
    x.log.Tu = x.log.Ta + x.log.Th.max(0);
    x.log.Tt = if conn.requests == 0 { ms_between(conn.accepted, now) } else { since(x.times.ready) };
    let shared = &conn.worker.shared;
    x.log.actconn = shared.limits.process.current();
    x.log.feconn = shared.limits.frontends[conn.frontend].frontend.current();
    if let Some(backend) = x.backend.and_then(|index| shared.backends.get(index)) {
        x.log.beconn = backend.sessions();
        if let Some(server) = x.server.as_ref().filter(|_| x.log.as_soon_as) {
            x.log.srv_conn = server.served();
        }
    }
}

/// The entries that track the connection, and those that track the request.
fn tracked<'a>(conn: &'a Conn<'_>, x: &'a Exchange) -> [&'a Tracking; 2] {
    [&conn.session.tracking, &x.txn.tracking]
}

/// Counts a status in the tracked entries if `http-err-codes` has it as an error, or `http-fail-codes` as a failure.
pub(crate) fn track_status(conn: &Conn<'_>, x: &Exchange, status: u16) {
    // The exchange before the device counts what it makes of the response.
    if x.passage.back.is_some() {
        return;
    }
    let (now, global) = (conn.worker.now_ms(), &conn.worker.shared.config.global);
    for tracking in tracked(conn, x).into_iter().filter(|tracking| !tracking.is_empty()) {
        if global.is_http_error(status) {
            tracking.http_error(now);
        }
        if global.is_http_failure(status) {
            tracking.http_failure(now);
        }
    }
}

/// Counts a request that a rule denies as an error in the tracked entries, whatever status it is answered with.
pub(crate) fn track_denied(conn: &Conn<'_>, x: &Exchange) {
    for tracking in tracked(conn, x) {
        tracking.http_error(conn.worker.now_ms());
    }
}

/// Reads the persistence cookie of a request that is denied: as in HAProxy, the log shows its server and what it was worth.
pub(crate) fn look_at_cookie(conn: &Conn<'_>, x: &mut Exchange) {
    let worker = conn.worker;
    let Some(pool) = worker.shared.backends.get(x.backend.unwrap_or(conn.frontend)) else { return };
    cookie::from_denied(x, conn.proxy_of(x), pool, worker.clock.unix_s());
    x.server = x.server.take().or_else(|| pool.get(x.persistent?));
}

fn count(conn: &Conn<'_>, x: &Exchange) {
    let counters = conn.worker.counters();
    let now_ms = conn.worker.now_ms();
    let status = x.txn.status.unwrap_or(0);
    let ms = |value: i64| u64::try_from(value).ok();
    let frontend = counters.frontend(conn.frontend);
    let http = conn.proxy().mode == Mode::Http && !x.bypassed;
    // A server's status was counted when it arrived, and what a rule denied at once. A malformed request is an error, and one that
    // does not come in time is none.
    let malformed = http && x.refused && (400..500).contains(&status) && status != 408;
    // A server has failed if it was asked and did not answer, or not in HTTP.
    let unanswered = http
        && x.times.answered.is_none()
        && matches!(x.log.termination, Termination(By::Server | By::ServerTimeout | By::Refusal, During::Headers))
        && matches!(status, 502 | 504);
    for tracking in tracked(conn, x) {
        if malformed {
            tracking.http_error(now_ms);
        }
        if unanswered {
            tracking.http_failure(now_ms);
        }
        tracking.bytes(x.log.bytes_uploaded, x.log.bytes_read, now_ms);
    }
    for cells in conn.listener_cells() {
        cells.bytes_in.add(x.log.bytes_uploaded);
        cells.bytes_out.add(x.log.bytes_read);
        if http && x.txn.received.is_empty() {
            cells.request_errors.inc();
        }
    }
    if http {
        if x.times.complete.is_none() {
            frontend.request(now_ms);
            // A malformed request of HTTP/2, which gets no status, is not one of those who are tracked.
            if status != 0 {
                conn.session.tracking.http_request(now_ms);
            }
        }
        frontend.response(status);
    }
    let Some(backend) = x.counted_backend() else {
        // The bytes of what a `listen` section answers itself are counted on both of its sides.
        if http && x.times.complete.is_some() && conn.proxy().kind.has_backend() {
            let cells = counters.backend(conn.frontend);
            cells.bytes_in.add(x.log.bytes_uploaded);
            cells.bytes_out.add(x.log.bytes_read);
        }
        return;
    };
    let total = ms(x.log.Ta).unwrap_or(0);
    let cells = counters.backend(backend);
    // The log shows where a request went behind a device, and the counters what was here.
    let out = x.passage.out.as_ref();
    let server = out.map(|out| &out.server).or(x.server.as_ref());
    let [queued, connected, answered] = out.and_then(|out| out.waited).unwrap_or([x.log.Tw, x.log.Tc, x.log.Tr]);
    let queue_us = ms(queued).unwrap_or(0) * 1000;
    let response = x.times.connected.zip(x.times.answered).filter(|_| answered >= 0);
    let response_us = response.map(|(from, to)| to.saturating_duration_since(from).as_micros() as u64);
    if server.is_some() {
        frontend.latency(queue_us, response_us);
    }
    for cells in [Some(cells), server.map(|server| conn.worker.cells(server))].into_iter().flatten() {
        cells.bytes_in.add(x.log.bytes_uploaded);
        cells.bytes_out.add(x.log.bytes_read);
        if server.is_some() {
            cells.times(ms(queued), ms(connected), ms(answered), total);
            cells.latency(queue_us, response_us);
        }
    }
    if http {
        cells.request(now_ms);
        cells.response(status);
    }
}

fn write(conn: &mut Conn<'_>, x: &mut Exchange) {
    let options = &conn.proxy().options;
    if x.log.as_soon_as || (options.dontlog_normal && !x.log.is_error(x.txn.status)) {
        return;
    }
    write_line(conn, x);
}

fn write_line(conn: &mut Conn<'_>, x: &mut Exchange) {
    let worker = conn.worker;
    let frontend = conn.frontend;
    let severity = match x.txn.log_level {
        Some(LogLevel::Silent) => return,
        Some(LogLevel::Level(level)) => level,
        None if conn.proxy().options.log_separate_errors && x.log.is_error(x.txn.status) => syslog::ERROR,
        None => syslog::INFO,
    };
    if !worker.logger.logs(frontend) {
        return;
    }
    worker.pulse().enter(pulse::Stage::Log);
    if x.times.complete.is_none() {
        x.log.request_counter = worker.next_request();
    }
    x.log.log_counter = worker.shared.log_lines[frontend].fetch_add(1, Ordering::Relaxed);
    x.log.as_soon_as = conn.proxy().options.logasap;
    if x.refused {
        x.log.bytes_uploaded = 0;
    }
    match conn.proxy_of(x).manages_cookie() {
        false => x.log.cookie = *b"--",
        // It was not looked at.
        true if !x.refused && x.log.cookie == *b"--" => x.log.cookie = *b"NN",
        true => {}
    }
    let rules = worker.shared.program.of(frontend);
    let mut line = worker.buffers.take_head();
    let mut structured = Vec::new();
    let special = match (x.refused, x.bypassed) {
        (true, _) => rules.error_log_format.as_ref(),
        (false, true) => worker.shared.program.bypassed[frontend].as_ref(),
        (false, false) => None,
    };
    {
        let stage = match (x.txn.received.is_empty(), x.responded) {
            (true, _) => Readable::Raw,
            (false, false) => Readable::Request,
            (false, true) => Readable::Response,
        };
        let mut context = context(conn, x, stage);
        if context.phase == Phase::During {
            context.phase = Phase::After;
        }
        special.unwrap_or(&*rules.log_format).render(&context, &mut line);
        if let Some(format) = &rules.log_format_sd {
            format.render(&context, &mut structured);
        }
    }
    worker.logger.send(frontend, worker.clock.unix_us(), severity, &structured, &line);
    worker.buffers.give_head(line);
}

/// Logs a connection that ended in its handshake.
pub(crate) fn log_handshake_failure(conn: &mut Conn<'_>, text: &str) {
    let worker = conn.worker;
    let frontend = conn.frontend;
    if !worker.logger.logs(frontend) {
        return;
    }
    let mut x = worker.take_exchange();
    x.log.accept_unix_us = conn.facts.accepted_unix_us;
    x.log.request_unix_us = conn.facts.accepted_unix_us;
    let listener = conn.bind().name.clone().unwrap_or_else(|| conn.facts.listener_id.to_string());
    let separate = conn.proxy().options.log_separate_errors;
    let mut line = worker.buffers.take_head();
    {
        let context = context(conn, &mut x, Readable::Raw);
        match &worker.shared.program.of(frontend).error_log_format {
            Some(format) => format.render(&context, &mut line),
            None => {
                worker.shared.program.handshake_failure.render(&context, &mut line);
                line.extend_from_slice(format!("/{listener}: {text}").as_bytes());
            }
        }
    }
    let severity = if separate { syslog::ERROR } else { syslog::INFO };
    worker.logger.send(frontend, worker.clock.unix_us(), severity, b"", &line);
    worker.buffers.give_head(line);
    worker.give_exchange(x);
}
