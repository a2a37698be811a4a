//! Health checks: one task for each server, which starts checks on time. What a check sends and how it judges the
//! answer is in `penstock_backends::check`; only this file has sockets and clocks. All tasks run on the first worker.

mod agent;
mod external;
pub(crate) mod plans;

use super::{connect::open_socket, mail::Mailing};
use crate::{
    connection::{socket::Socket, stream::Stream},
    exchange::assign::facts_of,
    observe::http_counters::{Protocol, Running, Side},
    process::{namespaces, shared::Shared},
    server::{Host, Server},
    worker::{pulse::Who, state::Worker, task, turn},
};
use penstock_backends::check::{
    Outcome,
    run::{About, ConnectError, Next, Run},
    schedule::{first, interval, spread},
    script::{Connect, Kind},
};
use penstock_config::model::{CheckKind, ServerHost, ServerPort};
use penstock_http::proxy_protocol;
use penstock_rules::{Now, PacketFields};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};

/// Starts checking all servers, on this worker.
pub(crate) fn start(worker: &Rc<Worker>) {
    let shared = &worker.shared;
    let mut checked = Vec::new();
    for backend in shared.backends.iter() {
        let watched = |server: &&Arc<Server>| has_checks(worker, server) || server.config.settings.agent.is_some();
        checked.extend(backend.servers().iter().filter(watched).cloned());
    }
    let count = checked.len();
    for (index, server) in checked.into_iter().enumerate() {
        let settings = &server.config.settings;
        let delay = |inter| first(inter, index, count, shared.config.global.max_spread_checks);
        if let Some(settings) = &settings.agent {
            agent::start(worker, &server, delay(settings.inter));
        }
        if has_checks(worker, &server) {
            let delay = delay(settings.check.inter);
            spawn(worker, server, delay);
        }
    }
}

/// Starts checking a server that was added, if it has checks.
pub(crate) fn start_for(worker: &Rc<Worker>, server: Arc<Server>) {
    agent::start(worker, &server, Duration::ZERO);
    if has_checks(worker, &server) {
        spawn(worker, server, Duration::ZERO);
    }
}

fn has_checks(worker: &Worker, server: &Server) -> bool {
    server.config.settings.check.enabled && worker.shared.backends.tracked_by(server.at).is_none()
}

fn spawn(worker: &Rc<Worker>, server: Arc<Server>, delay: Duration) {
    let who = Who::Check { proxy: server.at.proxy, server: server.at.server.index() };
    task::spawn(worker, who, watch(worker.clone(), server, delay));
}

/// Checks one server for as long as the worker runs and the server exists.
async fn watch(worker: Rc<Worker>, server: Arc<Server>, delay: Duration) {
    let shared = worker.shared.clone();
    let global = &shared.config.global;
    let at = server.at;
    let Some(script) = shared.program.checks[at.proxy].clone() else { return };
    let check = &server.config.settings.check;
    let mut pace = Pace::of(&server);
    tokio::time::sleep(delay).await;
    while !server.is_removed() {
        if server.is_checked() && shared.backends.status(at).is_some_and(|status| !status.admin.maint()) {
            shared.backends.check_begins(at);
            let started = Instant::now();
            let about = About {
                backend: (at.proxy, &shared.proxies[at.proxy]),
                server: &server.with.facts,
                world: &*worker,
                now: Now { mono: worker.now_ms(), unix_us: worker.clock.unix_us() },
                standing: shared.backends.standing(at, global.node.as_deref()),
            };
            let outcome = match shared.config.proxies[at.proxy].check {
                CheckKind::External => external::run(&worker, &server).await,
                _ => probe(&worker, &server, Run::new(script.clone(), about), script.kind == Kind::Http).await,
            };
            let (took, now) = (started.elapsed(), std::time::Instant::now());
            let told = shared.config.proxies[at.proxy].options.log_health_checks;
            shared.backends.checked(at, &outcome, took, told, now);
        }
        let Some(health) = shared.backends.status(at).and_then(|status| status.check) else { return };
        let wait = pace.next(interval(check, &health), global.spread_checks);
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            // Errors seen in traffic make the next check come sooner. A server that was removed is dropped.
            () = server.hurry.notified() => {
                if !server.is_removed() {
                    tokio::time::sleep(check.fastinter.unwrap_or(check.inter).min(wait)).await;
                }
            }
        }
    }
}

/// The random share of `spread-checks`, a sequence of its own for each server.
struct Pace(u64);

impl Pace {
    fn of(server: &Server) -> Pace {
        let number = u64::from(server.id) << 16 | u64::from(server.at.proxy.0);
        Pace(0x2545_f491_4f6c_dd1d ^ (number + 1) << 20)
    }

    /// The time to the next check, for this interval and percentage.
    fn next(&mut self, interval: Duration, percent: u32) -> Duration {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let share = (self.0 >> 40) as f64 / f64::from(1 << 24);
        spread(interval, percent, share)
    }
}

/// Runs one check, from the first connection to the outcome. Checks by HTTP count as connections of the backend, as in HAProxy.
async fn probe(worker: &Worker, server: &Server, mut run: Run<'_>, http: bool) -> Outcome {
    let proxy = &worker.shared.config.proxies[server.at.proxy];
    let settings = &server.config.settings.check;
    let started = Instant::now();
    // The manual's rule: with `timeout check`, connecting may take the shorter of `inter` and `timeout connect`, and
    // each answer may take `timeout check`; without it, everything together may take `inter`.
    let (connect_limit, answer_limit) = match proxy.timeouts.check {
        Some(check) => (proxy.timeouts.connect.map_or(settings.inter, |limit| limit.min(settings.inter)), Some(check)),
        None => (settings.inter, None),
    };
    let mut stream: Option<Open> = None;
    let mut counted = None;
    let mut deadline = started + settings.inter;
    let mut buffer = vec![0; 16 * 1024];
    loop {
        match run.step() {
            Next::Done(outcome) => return outcome,
            Next::Connect(connect) => {
                drop(stream.take());
                counted = http.then(|| {
                    let backend = worker.counters().backend(server.at.proxy);
                    let tally = worker.tally(server.at.proxy, Side::Backend, Protocol::Http1);
                    (tally, Running::new(backend, Protocol::Http1))
                });
                let limit = if answer_limit.is_some() { Instant::now() + connect_limit } else { deadline };
                match dial(worker, server, &connect, limit).await {
                    Ok(open) => {
                        run.connected(facts_of(&open));
                        stream = Some(Open { stream: open, linger: connect.linger });
                    }
                    Err(error) => return run.connect_failed(error),
                }
                if let Some(limit) = answer_limit {
                    deadline = Instant::now() + limit;
                }
            }
            Next::Send(bytes) => {
                let Some(Open { stream: open, .. }) = &mut stream else { return run.broken("not connected") };
                match timeout_at(deadline, open.write_all(&bytes)).await {
                    Err(_) => return run.timed_out(),
                    Ok(Err(error)) => return run.broken(&words(&error)),
                    Ok(Ok(())) => counted.iter().for_each(|(tally, _)| tally.moved(0, bytes.len() as u64)),
                }
                let _ = timeout_at(deadline, open.flush()).await;
            }
            Next::Receive => {
                let Some(Open { stream: open, .. }) = &mut stream else { return run.broken("not connected") };
                match timeout_at(deadline, open.read(&mut buffer)).await {
                    Err(_) => return run.timed_out(),
                    Ok(Err(error)) => return run.broken(&words(&error)),
                    Ok(Ok(0)) => run.ended(),
                    Ok(Ok(n)) => {
                        counted.iter().for_each(|(tally, _)| tally.moved(n as u64, 0));
                        run.received(&buffer[..n]);
                    }
                }
            }
        }
    }
}

/// Opens a connection as the step and the server's line say.
async fn dial(worker: &Worker, server: &Server, connect: &Connect, limit: Instant) -> Result<Stream, ConnectError> {
    let shared = &worker.shared;
    let settings = &server.config.settings;
    let target = check_endpoint(server, connect);
    let target =
        target.target(None).ok_or_else(|| ConnectError::Refused("No port available for the TCP connection".into()))?;
    let namespace = namespaces::of_server(settings, None);
    let open = timeout_at(limit, open_socket(shared, server, &target, namespace, None, PacketFields::default())).await;
    let mut socket = open.map_err(|_| ConnectError::Timeout)?.map_err(|error| ConnectError::Refused(words(&error)))?;
    // A check of another port or address does not use the settings for traffic, nor does that of a server which was added at run
    // time (management manual, `add server`): only those of `check-*` apply.
    let elsewhere = server.check_place.load().is_elsewhere() || !connect.as_server || server.dynamic;
    if connect.send_proxy
        || settings.check.send_proxy && connect.as_server
        || !elsewhere && settings.proxy_header_version().is_some()
    {
        let header = proxy_header(&socket, settings.proxy_header_version().unwrap_or(1));
        let sent = timeout_at(limit, socket.write_all(&header)).await;
        sent.map_err(|_| ConnectError::Timeout)?.map_err(|error| ConnectError::Refused(words(&error)))?;
    }
    let asked = connect.ssl || settings.check.ssl == Some(true) && connect.as_server;
    let inherited = !elsewhere && settings.tls.is_some() && settings.check.ssl != Some(false);
    if !asked && !inherited {
        return Ok(Stream::Clear(socket));
    }
    let connector = server.with.connector.as_ref().or(server.with.check_connector.as_ref());
    let connector = connector.ok_or_else(|| ConnectError::Tls("no TLS settings".into()))?;
    let sni = connect.sni.as_deref().or(settings.check.sni.as_deref());
    let connector = connector.offering(&protocols(shared, server, connect));
    match timeout_at(limit, connector.connect(socket, sni)).await {
        Err(_) => Err(ConnectError::TlsTimeout),
        Ok(Err(_)) => Err(ConnectError::Tls("SSL handshake failure".into())),
        Ok(Ok(tls)) => Ok(Stream::Tls(Box::new(tls))),
    }
}

/// The protocols a check offers by ALPN: those of the step, else of `check-alpn`, else of the server's line. An HTTP
/// check speaks HTTP/1, and offers nothing that it could not speak.
fn protocols<'a>(shared: &Shared, server: &'a Server, connect: &'a Connect) -> Vec<&'a [u8]> {
    let settings = &server.config.settings;
    let of_line = settings.tls.as_ref().unwrap_or(&settings.tls_settings).conf.alpn.as_ref();
    let of_check = settings.check.alpn.as_ref().filter(|_| connect.as_server);
    let http = shared.program.checks[server.at.proxy].as_ref().is_some_and(|script| script.kind == Kind::Http);
    let offered = connect.alpn.as_ref().or(of_check).or(of_line).into_iter().flatten();
    offered.filter(|name| !(http && *name == "h2")).map(String::as_bytes).collect()
}

/// The target of a check: the step's address and port, else those of `check`, else the server's.
fn check_endpoint(server: &Server, connect: &Connect) -> crate::server::Endpoint {
    let place = server.check_place.load();
    let mut endpoint = crate::server::Endpoint::clone(&server.endpoint.load());
    match (connect.addr.or(place.addr), &server.config.settings.check.addr) {
        (Some(ip), _) => endpoint.host = Some(Host::Ip(ip)),
        (None, Some(ServerHost::Unix(path))) => endpoint.host = Some(Host::Unix(path.as_path().into())),
        (None, Some(ServerHost::Abstract(name))) => endpoint.host = Some(Host::Abstract(name.as_str().into())),
        // A name has been resolved by now.
        (None, Some(ServerHost::Ip(_) | ServerHost::Name(_)) | None) => {}
    }
    // A step with an address and no port still uses the port for checks.
    if let Some(port) = connect.port.or(place.port).or(server.config.settings.check.addr_port) {
        endpoint.port = ServerPort::Fixed(port);
    }
    endpoint
}

/// A PROXY header on our own behalf.
fn proxy_header(socket: &Socket, version: u8) -> Vec<u8> {
    let mut header = Vec::new();
    if version == 2 {
        // A version 2 check is LOCAL: the receiver uses the connection's own addresses.
        header.extend_from_slice(&proxy_protocol::V2_SIGNATURE);
        header.extend_from_slice(&[0x20, 0x00, 0x00, 0x00]);
        return header;
    }
    let ends: Option<(SocketAddr, SocketAddr)> = socket.local_addr().ok().zip(socket.peer_addr().ok());
    proxy_protocol::write_v1(ends, &mut header);
    header
}

/// The system's error message without Rust's addition.
pub(super) fn words(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(at) => text[..at].to_string(),
        None => text,
    }
}

/// A check's connection.
struct Open {
    stream: Stream,
    /// Whether the connection is closed in an orderly way. Otherwise it is reset, which avoids a socket in TIME_WAIT for each
    /// check.
    linger: bool,
}

impl Drop for Open {
    fn drop(&mut self) {
        if !self.linger {
            self.stream.socket().reset_on_close();
        }
    }
}

/// Reports what happens to servers: in the logs of their backends, by mail and on the terminal.
pub(crate) async fn tell(worker: Rc<Worker>) {
    let Some(mut notices) = worker.shared.take_notices() else { return };
    let mailing = Mailing::start(&worker);
    while let Some(notice) = notices.recv().await {
        let now = worker.clock.unix_us();
        worker.logger.send(notice.proxy, now, notice.severity, b"", notice.text.as_bytes());
        mailing.tell(&notice);
        let (level, text) = match notice.text.strip_suffix(" has no server available!") {
            Some(subject) => {
                let (kind, name) = subject.split_once(' ').unwrap_or(("", subject));
                ("[ALERT]   ", format!("{kind} '{name}' has no server available!"))
            }
            None => ("[WARNING] ", notice.text),
        };
        // If standard error is closed, there is no reader.
        let _ = writeln!(io::stderr(), "{level} ({}) : {text}", std::process::id());
    }
}

/// Interval between the steps of a slow start, and between samples of rates.
const TICK: Duration = Duration::from_millis(250);

/// What it costs to drop some entries of a stick table, as a turn counts.
const EXPIRED_COST: u32 = 200;

/// Advances slow starts and samples rates over all workers, for as long as the worker runs.
pub(crate) async fn tick(worker: Rc<Worker>) {
    let mut ticks = tokio::time::interval(TICK);
    loop {
        ticks.tick().await;
        let shared = &worker.shared;
        shared.backends.tick(std::time::Instant::now());
        for table in shared.program.tables.values() {
            for part in 0..table.parts() {
                while table.expire(part, worker.now_ms()) {
                    turn::spend(EXPIRED_COST);
                    turn::proceed().await;
                }
            }
        }
        if shared.loads.len() > 1 {
            shared.counters.sample(worker.now_ms());
        }
    }
}
