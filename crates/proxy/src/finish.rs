//! The last stage of an exchange: times, counters, and the log line.

use crate::{
    conn::Conn,
    exchange::{Exchange, ms_between},
    log::severity,
    message::{Client, Counts},
    watchdog::Stage,
};
use penstock_config::model::Mode;
use tokio::time::Instant;

/// Counts and logs an exchange that has ended.
pub(crate) fn run(conn: &mut Conn, client: &dyn Client, x: &mut Exchange) {
    let now = conn.worker.clock.now();
    x.log.bytes_uploaded = client.counts().received;
    measure(conn, x, now);
    count(conn, x);
    write(conn, x);
}

/// Counts and logs a connection in `mode tcp`.
pub(crate) fn tcp(conn: &mut Conn, counts: Counts, x: &mut Exchange) {
    x.log.bytes_read = counts.sent;
    x.log.bytes_uploaded = counts.received;
    measure(conn, x, conn.worker.clock.now());
    count(conn, x);
    write(conn, x);
}

/// `option logasap` in `mode tcp`: the line is written once the server is connected.
pub(crate) fn tcp_as_soon_as(conn: &mut Conn, counts: Counts, x: &mut Exchange) {
    if conn.proxy().options.logasap {
        x.log.as_soon_as = true;
        x.log.bytes_read = counts.sent;
        measure(conn, x, conn.worker.clock.now());
        write_line(conn, x);
    }
}

/// As [`run`], for a connection that ended without a whole request: nothing is logged of one that never said anything
/// where `option dontlognull` is set.
pub(crate) fn log_unless_null(conn: &mut Conn, client: &dyn Client, x: &mut Exchange, partial: bool) {
    if partial || !conn.proxy().options.dontlognull {
        run(conn, client, x);
    }
}

/// `option logasap`: the line is written when the response's head is there, and totals get a `+`.
pub(crate) fn as_soon_as(conn: &mut Conn, client: &dyn Client, x: &mut Exchange) {
    if conn.proxy().options.logasap && !x.log.as_soon_as {
        x.log.as_soon_as = true;
        x.log.bytes_uploaded = client.counts().received;
        measure(conn, x, conn.worker.clock.now());
        write_line(conn, x);
    }
}

fn measure(conn: &Conn, x: &mut Exchange, now: Instant) {
    let since = |from: Option<Instant>| from.map_or(-1, |from| ms_between(from, now));
    x.log.Td = since(x.times.answered);
    x.log.Ta = since(x.times.first_byte);
    x.log.Tu = x.log.Ta;
    x.log.Tt = if conn.requests == 0 { ms_between(conn.accepted, now) } else { since(x.times.ready) };
    x.log.accept_unix_us = conn.facts.accepted_unix_us;
    let shared = &conn.worker.shared;
    x.log.actconn = shared.limits.process.current();
    x.log.feconn = shared.limits.frontends[conn.frontend].frontend.current();
    if let Some(backend) = x.backend.and_then(|index| shared.backends.get(index)) {
        x.log.beconn = backend.sessions();
        if let Some(server) = x.server {
            x.log.srv_conn = backend.servers[server].served();
        }
    }
}

fn count(conn: &Conn, x: &Exchange) {
    let counters = conn.worker.counters();
    let now_ms = conn.worker.now_ms();
    let status = x.txn.status.unwrap_or(0);
    let ms = |value: i64| u64::try_from(value).ok();
    let frontend = counters.frontend(conn.frontend);
    let http = conn.proxy().mode == Mode::Http;
    frontend.bytes_in.add(x.log.bytes_uploaded);
    frontend.bytes_out.add(x.log.bytes_read);
    if http {
        frontend.request(now_ms);
        frontend.response(status);
    }
    let Some(backend) = x.backend else { return };
    let total = ms(x.log.Ta).unwrap_or(0);
    let cells = counters.backend(backend);
    for cells in [Some(cells), x.server.map(|server| counters.server(backend, server))].into_iter().flatten() {
        cells.bytes_in.add(x.log.bytes_uploaded);
        cells.bytes_out.add(x.log.bytes_read);
        if x.server.is_some() {
            cells.times(ms(x.log.Tw), ms(x.log.Tc), ms(x.log.Tr), total);
        }
    }
    if http {
        cells.request(now_ms);
        cells.response(status);
    }
}

fn write(conn: &Conn, x: &mut Exchange) {
    let options = &conn.proxy().options;
    let failed = x.log.termination != *b"--" || x.txn.status.is_some_and(|status| status >= 500);
    if x.log.as_soon_as || (options.dontlog_normal && !failed && x.log.retries == 0) {
        return;
    }
    write_line(conn, x);
}

fn write_line(conn: &Conn, x: &mut Exchange) {
    if !conn.worker.logger.logs(conn.frontend) {
        return;
    }
    conn.worker.pulse().enter(Stage::Log);
    let mut line = conn.worker.buffers.take_head();
    render(conn, x, &mut line);
    conn.worker.logger.send(conn.frontend, severity::INFO, b"", &line);
    conn.worker.buffers.give_head(line);
}

fn render(_conn: &Conn, x: &Exchange, line: &mut Vec<u8>) {
    use std::io::Write;
    let _ = write!(line, "{} {}", x.txn.status.unwrap_or(0), String::from_utf8_lossy(&x.log.termination));
}

/// A connection that ended in its handshake.
pub(crate) fn log_handshake_failure(conn: &Conn, text: &str) {
    let cells = conn.worker.counters().frontend(conn.frontend);
    cells.ssl_failed_handshakes.inc();
    conn.worker.logger.send(conn.frontend, severity::INFO, b"", text.as_bytes());
}
