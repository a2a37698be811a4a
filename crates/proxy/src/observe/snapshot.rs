//! Everything an operator can see, as plain data captured at one moment.

use super::{counters::Totals, engine::Report};
use crate::server::{Check, ServerRef, Status};
use crate::tap::taps::TapView;
use penstock_cache::Collapses;
use penstock_config::model::ProxyId;
use penstock_tls::Forgeries;
use std::time::Duration;

/// The state of the whole process.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Figures of the process.
    pub process: Process,
    /// Every proxy: its frontend, its listeners with `option socket-stats`, its servers, its backend.
    pub rows: Vec<Row>,
    /// The crypto engine, summed over all workers.
    pub engine: Report,
    /// The certificates made for clients (`generate-certificates`).
    pub forgeries: Forgeries,
    /// The copies of the traffic (`mode tap`).
    pub taps: Vec<TapView>,
    /// The caches whose requests wait for each other (`collapse`), by name.
    pub collapses: Vec<(String, Collapses)>,
}

/// Figures of the process.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// The process id.
    pub pid: u32,
    /// `node`, or the host name.
    pub node: String,
    /// `description`.
    pub description: Option<String>,
    /// Number of workers.
    pub threads: u32,
    /// The time at which the process started, in seconds since 1970.
    pub started: u64,
    /// How long the process has run.
    pub uptime: Duration,
    /// The time of the snapshot, on the clock on which the ages in rows are measured.
    pub clock: Duration,
    /// The time at which the process began to run, on the same clock as `clock`.
    pub began: Duration,
    /// Whether the process has stopped listening.
    pub stopping: bool,
    /// `maxconn`.
    pub maxconn: u32,
    /// Client connections: current, highest and total number.
    pub connections: (u32, u32, u64),
    /// Number of requests.
    pub requests: u64,
    /// Bytes to clients.
    pub bytes_out: u64,
    /// Connections per second: current and highest rate.
    pub connection_rate: (u32, u32),
    /// Sessions per second: current and highest rate.
    pub session_rate: (u32, u32),
    /// TLS handshakes: done, resumed, failed.
    pub tls: (u64, u64, u64),
    /// Number of configured listening sockets.
    pub listeners: u32,
    /// Peers, and those with which there is a session.
    pub peers: (u32, u32),
    /// Log lines that were lost.
    pub dropped_logs: u64,
    /// Log lines that `log-forward` sections have received.
    pub received_logs: u64,
    /// Names that could not be resolved.
    pub failed_resolutions: u64,
    /// Limits of connections, sessions and TLS handshakes a second; 0 for none.
    pub rate_limits: [u32; 3],
    /// The limit of open files.
    pub max_fds: u64,
    /// `maxconn` as configured.
    pub configured_maxconn: u32,
    /// Current TLS connections of clients.
    pub tls_now: u32,
    /// Rates over the last second.
    pub paces: Paces,
    /// What compression takes.
    pub compression: CompressionLoad,
    /// Memory of the process in bytes; 0 if the system does not say.
    pub memory_bytes: u64,
    /// Connections on all workers.
    pub tasks: u32,
    /// How many workers are busy right now.
    pub working: u32,
}

/// What compression takes of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompressionLoad {
    /// Bytes per second that are compressed.
    pub taken: u64,
    /// Bytes per second that they become.
    pub made: u64,
    /// The limit of bytes per second; 0 for none.
    pub limit: u64,
    /// Memory of the encoders in bytes.
    pub memory: u64,
    /// The limit of that; 0 for none.
    pub memory_max: u64,
}

/// Rates over the interval between the last two calls that were about a second apart, and their maxima.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paces {
    /// TLS handshakes with clients per second: current and highest rate.
    pub tls: (u32, u32),
    /// Full handshakes with clients per second: current and highest rate.
    pub tls_full: (u32, u32),
    /// Full handshakes with servers per second: current and highest rate.
    pub tls_servers_full: (u32, u32),
    /// Bytes to clients per second.
    pub bytes_out: u64,
    /// Percentage of the workers' time that they spent waiting.
    pub idle_percent: u32,
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

/// A value that rises and falls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// The current value.
    pub now: u32,
    /// The highest value so far.
    pub max: u32,
    /// The limit; `None` if there is none.
    pub limit: Option<u32>,
}

/// A frontend, backend, server or listener.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which of these it is.
    pub kind: Kind,
    /// The proxy's place in the configuration.
    pub proxy: ProxyId,
    /// The server's or listener's place in its proxy.
    pub index: usize,
    /// For a server, its reference for commands.
    pub at: Option<ServerRef>,
    /// The proxy's name.
    pub proxy_name: String,
    /// `FRONTEND`, `BACKEND`, or the name of the server or listener.
    pub name: String,
    /// `guid`, or of a listener what `guid-prefix` makes of its place.
    pub guid: Option<String>,
    /// The proxy's `id`.
    pub iid: u32,
    /// The server's or listener's `id`, 0 for frontends and backends.
    pub sid: u32,
    /// Whether the proxy has `mode http`.
    pub http: bool,
    /// The time of this row, on the clock on which its ages are measured.
    pub now: Duration,
    /// The row's counters.
    pub totals: Totals,
    /// Number of sessions.
    pub sessions: Level,
    /// Requests in queue, for backends and servers.
    pub queue: Level,
    /// The state in HAProxy's wording.
    pub status: String,
    /// `rate-limit sessions`.
    pub rate_limit: u32,
    /// For servers and backends only.
    pub upstream: Option<Upstream>,
    /// For servers only.
    pub server: Option<ServerRow>,
    /// A listener's address.
    pub address: Option<String>,
    /// The balance algorithm of a backend.
    pub algorithm: Option<&'static str>,
    /// The name of a backend's persistence cookie, or the value that a server gets in it.
    pub cookie: Option<String>,
    /// `description` of the proxy.
    pub description: Option<String>,
}

/// What servers and backends have in common.
#[derive(Clone, Debug, Default)]
pub struct Upstream {
    /// Whether the server or backend can take requests.
    pub up: bool,
    /// Effective weight.
    pub weight: u32,
    /// Weight as configured or set by an operator.
    pub user_weight: u32,
    /// Number of active servers; for a server 1 or 0.
    pub active: u32,
    /// Number of backup servers; for a server 1 or 0.
    pub backup: u32,
    /// How long the server or backend has been in its state.
    pub since: Duration,
    /// Total time that the server or backend was down.
    pub down_time: Duration,
    /// Whether the server or backend is down, so that `down_time` grows.
    pub down: bool,
    /// How often the server or backend went down.
    pub down_transitions: u64,
    /// Requests that the balance algorithm assigned to the server or backend.
    pub lb_total: u64,
}

/// Fields that only servers have.
#[derive(Clone, Debug)]
pub struct ServerRow {
    /// The server's state.
    pub status: Status,
    /// The state of the server that determines its own: itself, unless it tracks another.
    pub reference: Status,
    /// The server that this one tracks, as `backend/server`.
    pub tracked: Option<String>,
    /// The percentage that the server's slow start has reached.
    pub throttle: Option<u32>,
    /// The server's address.
    pub address: Option<String>,
    /// `maxqueue`.
    pub queue_limit: Option<u32>,
    /// Whether errors in traffic are observed.
    pub observed: bool,
    /// Whether the server is a backup.
    pub backup: bool,
    /// `pool-max-conn`.
    pub idle_limit: Option<u32>,
}

impl Row {
    /// A row of this kind in which nothing is known yet.
    pub fn of(kind: Kind) -> Row {
        Row {
            kind,
            proxy: ProxyId(0),
            index: 0,
            at: None,
            proxy_name: String::new(),
            name: String::new(),
            guid: None,
            iid: 0,
            sid: 0,
            http: true,
            now: Duration::ZERO,
            totals: Totals::default(),
            sessions: Level::default(),
            queue: Level::default(),
            status: "OPEN".into(),
            rate_limit: 0,
            upstream: None,
            server: None,
            address: None,
            algorithm: None,
            cookie: None,
            description: None,
        }
    }
    /// Seconds since the last session, where that is counted.
    pub fn idle_seconds(&self) -> Option<u64> {
        self.totals.last_session.map(|last| self.now.as_secs().saturating_sub(last))
    }
}

impl ServerRow {
    /// The server's own check, if it has one that is not switched off.
    pub fn check(&self) -> Option<&Check> {
        self.status.live_check()
    }

    /// The server's agent, if it has one that is not switched off.
    pub fn agent(&self) -> Option<&Check> {
        self.status.live_agent()
    }
}
