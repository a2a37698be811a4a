//! Takes a [`Snapshot`] of the running process.

use super::{
    counter_file::Carried,
    counters::{Part, sum_cells},
    snapshot::{Kind, Level, Process, Row, ServerRow, Snapshot, Upstream},
    stats_file::OfProcess,
};
use crate::{
    process::{
        gates::{Listening, Rated},
        handle::{Handle, State},
        shared::{Limit, Shared},
    },
    server::{Backend, BackendView, Operational, Server, ServerView, Target},
};
use penstock_config::model::{Bind, ListenAddress, Mode, ProxyId};
use std::{
    sync::atomic::Ordering::Relaxed,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

impl Handle {
    /// The state of the whole process now.
    pub fn snapshot(&self) -> Snapshot {
        let shared = self.shared();
        let mut books = shared.carried.get().map(Carried::open);
        let mut rows = Vec::new();
        for id in shared.config.proxies.ids() {
            push_proxy(shared, id, &mut rows);
        }
        let is_running = self.state() == State::Running;
        for row in rows.iter_mut().filter(|row| matches!(row.kind, Kind::Frontend | Kind::Listener)) {
            row.status = match self.listening(row.proxy) {
                Listening::Open if is_running => continue,
                Listening::Paused if is_running => "PAUSED".into(),
                _ => "STOP".into(),
            };
        }
        let mut counted = OfProcess {
            connections: shared.limits.process.total.load(Relaxed),
            operators: shared.operators.load(Relaxed),
        };
        if let Some(books) = &mut books {
            books.complete(&mut rows, &mut counted);
        }
        let process = process(self, &rows, counted);
        let (engine, forgeries) = (shared.engines.sum(), shared.certificates.forgeries());
        let collapsing = shared.caches.iter().filter(|cache| cache.limits().collapse_ms > 0);
        let collapses = collapsing.map(|cache| (cache.name().to_string(), cache.collapses())).collect();
        Snapshot { process, rows, engine, forgeries, taps: shared.taps.view(), collapses }
    }
}

fn process(handle: &Handle, rows: &[Row], counted: OfProcess) -> Process {
    let shared = handle.shared();
    let global = &shared.config.global;
    let uptime = handle.started().elapsed();
    let frontend_rows = || rows.iter().filter(|row| row.kind == Kind::Frontend);
    let frontends = || frontend_rows().map(|row| &row.totals);
    let connections = &shared.limits.process;
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let uname = rustix::system::uname();
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    Process {
        pid: std::process::id(),
        node: global.node.clone().unwrap_or_else(|| uname.nodename().to_string_lossy().into_owned()),
        description: global.description.clone(),
        threads: shared.loads.len() as u32,
        started: since_1970.saturating_sub(uptime).as_secs(),
        uptime,
        clock: shared.backends.started().elapsed(),
        began: handle.started().saturating_duration_since(shared.backends.started()),
        stopping: handle.state() != State::Running,
        maxconn: connections.max.load(Relaxed),
        connections: (
            connections.current.load(Relaxed),
            connections.peak.load(Relaxed),
            counted.connections + counted.operators,
        ),
        requests: counted.operators + frontend_rows().map(requests).sum::<u64>(),
        bytes_out: frontends().map(|totals| totals.bytes_out).sum(),
        // The sum of the frontends' maxima is at least the maximum of their sum.
        connection_rate: frontends()
            .fold((0, 0), |sum, t| (sum.0 + t.connection_rate.rate, sum.1 + t.connection_rate.max)),
        session_rate: frontends().fold((0, 0), |sum, t| (sum.0 + t.session_rate.rate, sum.1 + t.session_rate.max)),
        tls: frontends().fold((0, 0, 0), |sum, t| {
            (sum.0 + t.ssl_sessions, sum.1 + t.ssl_reused_sessions, sum.2 + t.ssl_failed_handshakes)
        }),
        peers: shared.peers.counts(),
        listeners: shared.config.proxies.iter().map(|proxy| proxy.binds.len() as u32).sum(),
        dropped_logs: shared.logs.dropped(),
        received_logs: shared.logs.received(),
        failed_resolutions: shared.resolving.failed(),
        rate_limits: [Rated::Connections, Rated::Sessions, Rated::Tls].map(|rated| handle.rate(rated)),
        max_fds: files.current.unwrap_or(u64::MAX),
        configured_maxconn: global.maxconn.unwrap_or(u32::MAX),
        tls_now: tls_connections(shared),
        paces: shared.pace.look(shared),
        compression: shared.compressing.view(handle.started().elapsed().as_millis() as u64),
        memory_bytes: memory_bytes().unwrap_or(0),
        tasks: shared.loads.iter().map(|load| load.load(Relaxed)).sum(),
        working: shared.pulses.iter().map(|pulse| (pulse.steps() % 2) as u32).sum(),
    }
}

/// What a frontend adds to `CumReq`: the requests that could be read, or without HTTP its sessions.
fn requests(frontend: &Row) -> u64 {
    let totals = &frontend.totals;
    if frontend.http { totals.requests.saturating_sub(totals.request_errors) } else { totals.sessions }
}

fn tls_connections(shared: &Shared) -> u32 {
    let of_proxy = |(proxy, binds): (ProxyId, &Vec<Option<_>>)| -> u32 {
        let limits = &shared.limits.frontends[proxy].binds;
        limits.iter().zip(binds).filter(|(_, tls)| tls.is_some()).map(|(limit, _)| limit.current()).sum()
    };
    shared.acceptors.entries().map(of_proxy).sum()
}

/// The resident memory of the process.
fn memory_bytes() -> Option<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse::<u64>().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

fn push_proxy(shared: &Shared, id: ProxyId, rows: &mut Vec<Row>) {
    let proxy = &shared.config.proxies[id];
    if proxy.disabled {
        return;
    }
    let now = shared.backends.started().elapsed();
    let now_ms = now.as_millis() as u64;
    let sum = |part| shared.counters.sum(id, part, now_ms);
    let blank = |kind, name: &str, totals| Row {
        proxy: id,
        proxy_name: proxy.name.clone(),
        name: name.to_string(),
        guid: proxy.guid.as_ref().map(|guid| guid.value.clone()),
        iid: shared.proxies[id].id,
        http: proxy.mode == Mode::Http,
        now,
        totals,
        description: proxy.description.clone(),
        ..Row::of(kind)
    };
    if proxy.kind.has_frontend() {
        let limits = &shared.limits.frontends[id];
        let mut row = blank(Kind::Frontend, "FRONTEND", sum(Part::Frontend));
        let process = shared.limits.process.max.load(Relaxed);
        row.sessions = level(&limits.frontend, Some(process));
        row.rate_limit = proxy.rate_limit_sessions.unwrap_or(0);
        rows.push(row);
        for (bind, limit) in limits.binds.iter().enumerate().filter(|_| proxy.options.socket_stats) {
            let config = &proxy.binds[bind];
            let id = Bind::listener_id(&proxy.binds[..=bind], None);
            let name = proxy.listener_name(config, id).unwrap_or_default();
            let mut row = blank(Kind::Listener, &name, sum(Part::Listener(bind)));
            (row.index, row.sid) = (bind, id);
            row.guid = config.guid_prefix.as_ref().map(|prefix| format!("{}-0", prefix.value));
            row.sessions = level(limit, None);
            row.address = config.addresses.first().map(|address| listen_address(&address.value));
            rows.push(row);
        }
    }
    let Some(backend) = shared.backends.get(id) else { return };
    for server in backend.servers().iter() {
        let mut row = blank(Kind::Server, &server.name, sum_cells(&server.with.cells, now_ms));
        fill_server(shared, backend, server, now, &mut row);
        rows.push(row);
    }
    let mut totals = sum(Part::Backend);
    // A backend's connections are those of its servers, and its last session is the last one that reached a server.
    totals.last_session = None;
    for row in rows.iter().filter(|row| row.proxy == id && row.kind == Kind::Server) {
        totals.connects += row.totals.connects;
        totals.reuses += row.totals.reuses;
        totals.last_session = totals.last_session.max(row.totals.last_session);
    }
    let mut row = blank(Kind::Backend, "BACKEND", totals);
    fill_backend(backend, now, &mut row);
    row.cookie = proxy.cookie.as_ref().map(|cookie| cookie.name.clone());
    rows.push(row);
}

/// A counter with its limit, or with `above` if it has none.
fn level(limit: &Limit, above: Option<u32>) -> Level {
    let max = limit.max.load(Relaxed);
    Level {
        now: limit.current.load(Relaxed),
        max: limit.peak.load(Relaxed),
        limit: if max == u32::MAX { above } else { Some(max) },
    }
}

fn fill_server(shared: &Shared, backend: &Backend, server: &Server, now: Duration, row: &mut Row) {
    let at = server.at;
    let settings = &server.config.settings;
    let reference = shared.backends.reference(at);
    let tracked = shared.backends.tracked_by(at).map(|tracked| shared.backends.name(tracked));
    let reference = shared.backends.status(reference);
    // If it was removed meanwhile, the row stays as it was.
    let Some(ServerView { status, member, weight }) = backend.view_server(at.server) else { return };
    let reference = reference.unwrap_or_else(|| status.clone());
    (row.index, row.sid, row.at) = (at.server.index(), server.id, Some(at));
    row.guid = settings.guid.as_ref().map(|guid| guid.value.clone());
    row.status = status.words(&reference, tracked.as_deref());
    let limit = (member.maxconn > 0).then_some(member.maxconn);
    row.sessions = Level { now: member.served, max: server.served_max(), limit };
    row.queue = Level { now: member.queued, max: server.queued_max(), limit: None };
    let since = match status.last_change {
        Duration::ZERO => now + status.age_at_start,
        last => now.saturating_sub(last),
    };
    let down = status.state == Operational::Stopped;
    row.upstream = Some(Upstream {
        up: member.usable(),
        weight,
        user_weight: status.weight,
        active: u32::from(!settings.backup),
        backup: u32::from(settings.backup),
        since,
        down_time: status.down_time + if down { since } else { Duration::ZERO },
        down,
        down_transitions: status.down_transitions,
        lb_total: status.lb_total,
    });
    let endpoint = server.endpoint.load();
    let address = match endpoint.target(None) {
        Some(Target::Ip(address)) => Some(address.to_string()),
        Some(Target::Unix(_) | Target::Abstract(_)) => Some("unix".into()),
        None => None,
    };
    row.cookie.clone_from(&settings.cookie);
    row.server = Some(ServerRow {
        throttle: member.ramp.map(|ramp| (100 * ramp.elapsed / ramp.whole).max(1)),
        tracked,
        reference,
        status,
        address,
        queue_limit: (settings.maxqueue > 0).then_some(settings.maxqueue),
        observed: settings.observe.is_some(),
        backup: settings.backup,
        idle_limit: u32::try_from(settings.pool_max_conn).ok(),
    });
}

fn fill_backend(backend: &Backend, now: Duration, row: &mut Row) {
    let BackendView { totals, changes, lb_total, weight, user_weight, waiting, waiting_max } = backend.view();
    row.queue = Level { now: waiting, max: waiting_max, limit: None };
    let up = totals.active + totals.backup > 0 || backend.servers().is_empty();
    let since = now.saturating_sub(changes.last_change);
    row.status = if up { "UP" } else { "DOWN" }.into();
    row.sessions = Level { now: backend.sessions(), max: backend.sessions_max(), limit: Some(backend.fullconn()) };
    row.algorithm = Some(backend.algorithm());
    row.upstream = Some(Upstream {
        up,
        weight,
        user_weight,
        active: totals.active,
        backup: totals.backup,
        since,
        down_time: changes.down_time + if up { Duration::ZERO } else { since },
        down: !up,
        down_transitions: changes.down_transitions,
        lb_total,
    });
}

fn listen_address(address: &ListenAddress) -> String {
    use ListenAddress as A;
    match address {
        A::Ip { ip, first, .. } => std::net::SocketAddr::new(*ip, *first).to_string(),
        A::Host { host, first, .. } => format!("{host}:{first}"),
        A::Unix(_) | A::Abstract(_) => "unix".into(),
        A::Fd(fd) => format!("fd@{fd}"),
    }
}
