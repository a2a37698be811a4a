//! Everything an operator can see, as plain data, taken at one moment.

use super::{
    counters::{Part, Totals, sum_cells},
    engine::Report,
    pace::Paces,
};
use crate::process::gates::Listening;
use crate::process::{
    handle::{Handle, State},
    shared::Shared,
};
use crate::server::{Backend, BackendView, Check, Operational, Server, ServerRef, ServerView, Status, Target};
use penstock_config::model::Mode;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The state of the whole process.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The process.
    pub process: Process,
    /// Each proxy: its frontend, its listeners where `option socket-stats` asks for them, its servers, its backend.
    pub rows: Vec<Row>,
    /// The crypto engine, over all workers.
    pub engine: Report,
}

/// The process.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// `node`, or the host's name.
    pub node: String,
    /// `description`.
    pub description: Option<String>,
    /// Workers.
    pub threads: u32,
    /// When it started, seconds since 1970.
    pub started: u64,
    /// How long it has run.
    pub uptime: Duration,
    /// It has stopped listening.
    pub stopping: bool,
    /// `maxconn`.
    pub maxconn: u32,
    /// Client connections now, the most there have been, all there have been.
    pub connections: (u32, u32, u64),
    /// Requests.
    pub requests: u64,
    /// Bytes to clients.
    pub bytes_out: u64,
    /// Connections a second now, and the most; the same of sessions.
    pub connection_rate: (u32, u32),
    /// See `connection_rate`.
    pub session_rate: (u32, u32),
    /// TLS handshakes: done, resumed, failed.
    pub tls: (u64, u64, u64),
    /// Listening sockets by configuration.
    pub listeners: u32,
    /// Log lines that found no place.
    pub dropped_logs: u64,
    /// The limit of open files.
    pub max_fds: u64,
    /// `maxconn` as the configuration has it.
    pub configured_maxconn: u32,
    /// TLS connections of clients now.
    pub tls_now: u32,
    /// What happened in the last second.
    pub paces: Paces,
    /// Memory of the process, in bytes; 0 where the system does not tell.
    pub memory_bytes: u64,
    /// Connections that workers have.
    pub tasks: u32,
    /// Workers that are at work right now.
    pub working: u32,
}

/// What a [`Row`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Frontend,
    Backend,
    Server,
    Listener,
}

/// A number that goes up and down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// Now.
    pub now: u32,
    /// The most it has been.
    pub max: u32,
    /// The most it may be; `None` for no limit.
    pub limit: Option<u32>,
}

/// A frontend, backend, server or listener.
#[derive(Clone, Debug)]
pub struct Row {
    /// What it is.
    pub kind: Kind,
    /// The proxy's place in the configuration.
    pub proxy: usize,
    /// The server's or listener's place in its proxy.
    pub index: usize,
    /// Of a server, what commands know it by.
    pub at: Option<ServerRef>,
    /// The proxy's name.
    pub proxy_name: String,
    /// `FRONTEND`, `BACKEND`, or the name of the server or listener.
    pub name: String,
    /// The proxy's `id`.
    pub iid: u32,
    /// The server's or listener's `id`, 0 for frontends and backends.
    pub sid: u32,
    /// `mode http`.
    pub http: bool,
    /// When the snapshot was taken, in seconds since start.
    pub now_seconds: u64,
    /// What was counted.
    pub totals: Totals,
    /// Sessions.
    pub sessions: Level,
    /// Requests in queue, of backends and servers.
    pub queue: Level,
    /// The state in HAProxy's words.
    pub status: String,
    /// `rate-limit sessions`.
    pub rate_limit: u32,
    /// Of servers and backends.
    pub upstream: Option<Upstream>,
    /// Of servers.
    pub server: Option<ServerRow>,
    /// A listener's address.
    pub address: Option<String>,
    /// How a backend balances.
    pub algorithm: Option<&'static str>,
    /// `description` of the proxy.
    pub description: Option<String>,
}

/// What servers and backends have in common.
#[derive(Clone, Debug, Default)]
pub struct Upstream {
    /// It takes requests.
    pub up: bool,
    /// Effective weight.
    pub weight: u32,
    /// Weight as set.
    pub user_weight: u32,
    /// Active servers: of a server 1 or 0.
    pub active: u32,
    /// Backup servers: of a server 1 or 0.
    pub backup: u32,
    /// How long it has been in its state.
    pub since: Duration,
    /// How long it was down.
    pub down_time: Duration,
    /// How often it went down.
    pub down_transitions: u64,
    /// Requests the algorithm gave it.
    pub lb_total: u64,
}

/// What only servers have.
#[derive(Clone, Debug)]
pub struct ServerRow {
    /// Its state.
    pub status: Status,
    /// The server that decides over its state: itself unless it tracks another.
    pub reference: Status,
    /// `backend/server` that it tracks.
    pub tracked: Option<String>,
    /// Percent of its slow start.
    pub throttle: Option<u32>,
    /// Its address.
    pub address: Option<String>,
    /// Its cookie.
    pub cookie: Option<String>,
    /// `maxqueue`.
    pub queue_limit: Option<u32>,
    /// Errors in traffic are observed.
    pub observed: bool,
    /// It is a backup.
    pub backup: bool,
    /// `pool-max-conn`.
    pub idle_limit: Option<u32>,
}

impl Row {
    /// Seconds since the last session, of those that count it.
    pub fn idle_seconds(&self) -> Option<u64> {
        self.totals.last_session.map(|last| self.now_seconds.saturating_sub(last))
    }
}

impl ServerRow {
    /// Its own check, if it has one.
    pub fn check(&self) -> Option<&Check> {
        self.status.check.as_ref()
    }
}

impl Handle {
    /// The state of the whole process now.
    pub fn snapshot(&self) -> Snapshot {
        let shared = self.shared();
        let mut rows = Vec::new();
        for index in 0..shared.config.proxies.len() {
            push_proxy(shared, index, &mut rows);
        }
        let is_running = self.state() == State::Running;
        for row in rows.iter_mut().filter(|row| matches!(row.kind, Kind::Frontend | Kind::Listener)) {
            row.status = match self.listening(row.proxy) {
                Listening::Open if is_running => continue,
                Listening::Paused if is_running => "PAUSED".into(),
                _ => "STOP".into(),
            };
        }
        let process = process(self, &rows);
        Snapshot { process, rows, engine: shared.engines.sum() }
    }
}

fn process(handle: &Handle, rows: &[Row]) -> Process {
    let shared = handle.shared();
    let global = &shared.config.global;
    let uptime = handle.started().elapsed();
    let frontends = || rows.iter().filter(|row| row.kind == Kind::Frontend).map(|row| &row.totals);
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
        stopping: handle.state() != State::Running,
        maxconn: connections.max.load(Relaxed),
        connections: (
            connections.current.load(Relaxed),
            connections.peak.load(Relaxed),
            connections.total.load(Relaxed),
        ),
        requests: frontends().map(|totals| totals.requests).sum(),
        bytes_out: frontends().map(|totals| totals.bytes_out).sum(),
        // The sum of the frontends' maxima is never less than the maximum of their sum.
        connection_rate: frontends()
            .fold((0, 0), |sum, t| (sum.0 + t.connection_rate.rate, sum.1 + t.connection_rate.max)),
        session_rate: frontends().fold((0, 0), |sum, t| (sum.0 + t.session_rate.rate, sum.1 + t.session_rate.max)),
        tls: frontends().fold((0, 0, 0), |sum, t| {
            (sum.0 + t.ssl_sessions, sum.1 + t.ssl_reused_sessions, sum.2 + t.ssl_failed_handshakes)
        }),
        listeners: shared.config.proxies.iter().map(|proxy| proxy.binds.len() as u32).sum(),
        dropped_logs: shared.logs.dropped(),
        max_fds: files.current.unwrap_or(u64::MAX),
        configured_maxconn: global.maxconn.unwrap_or(u32::MAX),
        tls_now: tls_connections(shared),
        paces: shared.pace.look(shared),
        memory_bytes: memory_bytes().unwrap_or(0),
        tasks: shared.loads.iter().map(|load| load.load(Relaxed)).sum(),
        working: shared.pulses.iter().map(|pulse| (pulse.steps() % 2) as u32).sum(),
    }
}

fn tls_connections(shared: &Shared) -> u32 {
    let of_proxy = |(proxy, binds): (usize, &Vec<Option<_>>)| -> u32 {
        let limits = &shared.limits.frontends[proxy].binds;
        limits.iter().zip(binds).filter(|(_, tls)| tls.is_some()).map(|(limit, _)| limit.current()).sum()
    };
    shared.acceptors.iter().enumerate().map(of_proxy).sum()
}

/// What is resident of the process.
fn memory_bytes() -> Option<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse::<u64>().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

fn push_proxy(shared: &Shared, index: usize, rows: &mut Vec<Row>) {
    let proxy = &shared.config.proxies[index];
    if proxy.disabled {
        return;
    }
    let now_ms = shared.backends.started().elapsed().as_millis() as u64;
    let sum = |part| shared.counters.sum(index, part, now_ms);
    let blank = |kind, name: &str, totals| Row {
        kind,
        proxy: index,
        index: 0,
        at: None,
        proxy_name: proxy.name.clone(),
        name: name.to_string(),
        iid: shared.proxies[index].id,
        sid: 0,
        http: proxy.mode == Mode::Http,
        now_seconds: now_ms / 1000,
        totals,
        sessions: Level::default(),
        queue: Level::default(),
        status: "OPEN".into(),
        rate_limit: 0,
        upstream: None,
        server: None,
        address: None,
        algorithm: None,
        description: proxy.description.clone(),
    };
    if proxy.kind.has_frontend() {
        let limits = &shared.limits.frontends[index];
        let mut row = blank(Kind::Frontend, "FRONTEND", sum(Part::Frontend));
        let process = shared.limits.process.max.load(Relaxed);
        row.sessions = level(&limits.frontend, Some(process));
        row.rate_limit = proxy.rate_limit_sessions.unwrap_or(0);
        rows.push(row);
        for (bind, limit) in limits.binds.iter().enumerate().filter(|_| proxy.options.socket_stats) {
            let config = &proxy.binds[bind];
            let name = config.name.clone().unwrap_or_else(|| format!("sock-{}", bind + 1));
            let mut row = blank(Kind::Listener, &name, sum(Part::Listener(bind)));
            (row.index, row.sid) = (bind, config.id.unwrap_or(bind as u32 + 1));
            row.sessions = level(limit, None);
            row.address = config.addresses.first().map(|address| listen_address(&address.value));
            rows.push(row);
        }
    }
    let Some(backend) = shared.backends.get(index) else { return };
    let now = shared.backends.started().elapsed();
    for server in backend.servers().iter() {
        let mut row = blank(Kind::Server, &server.name, sum_cells(&server.with.cells, now_ms));
        fill_server(shared, backend, server, now, &mut row);
        rows.push(row);
    }
    let mut totals = sum(Part::Backend);
    // A backend makes no connection but its servers' ones.
    for row in rows.iter().filter(|row| row.proxy == index && row.kind == Kind::Server) {
        totals.connects += row.totals.connects;
        totals.reuses += row.totals.reuses;
    }
    let mut row = blank(Kind::Backend, "BACKEND", totals);
    fill_backend(backend, now, &mut row);
    rows.push(row);
}

/// A count against its limit, at most `above` where it has none.
fn level(limit: &crate::process::shared::Limit, above: Option<u32>) -> Level {
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
    // It may have been removed since: then it is as it was.
    let Some(ServerView { status, member, weight }) = backend.view_server(at.server) else { return };
    let reference = reference.unwrap_or_else(|| status.clone());
    (row.index, row.sid, row.at) = (at.server.index(), server.id, Some(at));
    row.status = status.words(&reference, tracked.as_deref());
    let limit = (member.maxconn > 0).then_some(member.maxconn);
    row.sessions = Level { now: member.served, max: server.served_max(), limit };
    row.queue = Level { now: member.queued, max: server.queued_max(), limit: None };
    let since = now.saturating_sub(status.last_change);
    let down = status.state == Operational::Stopped;
    row.upstream = Some(Upstream {
        up: member.usable(),
        weight,
        user_weight: status.weight,
        active: u32::from(!settings.backup),
        backup: u32::from(settings.backup),
        since,
        down_time: status.down_time + if down { since } else { Duration::ZERO },
        down_transitions: status.down_transitions,
        lb_total: status.lb_total,
    });
    let endpoint = server.endpoint.load();
    let address = match endpoint.target(None) {
        Some(Target::Ip(address)) => Some(address.to_string()),
        Some(Target::Unix(_) | Target::Abstract(_)) => Some("unix".into()),
        None => None,
    };
    row.server = Some(ServerRow {
        throttle: member.ramp.map(|ramp| (100 * ramp.elapsed / ramp.whole).max(1)),
        tracked,
        reference,
        status,
        address,
        cookie: settings.cookie.clone(),
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
        down_transitions: changes.down_transitions,
        lb_total,
    });
}

fn listen_address(address: &penstock_config::model::ListenAddress) -> String {
    use penstock_config::model::ListenAddress as A;
    match address {
        A::Ip { ip, first, .. } => std::net::SocketAddr::new(*ip, *first).to_string(),
        A::Host { host, first, .. } => format!("{host}:{first}"),
        A::Unix(_) | A::Abstract(_) => "unix".into(),
        A::Fd(fd) => format!("fd@{fd}"),
    }
}
