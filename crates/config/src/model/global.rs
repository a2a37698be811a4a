//! `global` (manual chapter 3).

use crate::{
    model::{ListenAddress, LogTarget, TlsDefaults, Verify},
    span::{Line, Span, Spanned},
};
use std::{collections::BTreeMap, path::PathBuf, time::Duration};

/// `global`.
#[derive(Clone, Debug, Default)]
pub struct Global {
    /// `nbthread`; `None` for as many threads as the process may use CPUs.
    pub nbthread: Option<u32>,
    /// `cpu-map`, resolved: the CPUs of each thread, by its number from 1. A thread without an entry is not bound.
    pub cpu_map: BTreeMap<u32, Vec<u32>>,
    /// `http-err-codes`; `None` for 400 to 499.
    pub http_err_codes: Option<Statuses>,
    /// `http-fail-codes`; `None` for 500 to 599 without 501 and 505.
    pub http_fail_codes: Option<Statuses>,
    /// `maxconn` of the process.
    pub maxconn: Option<u32>,
    /// `maxconnrate`, 0 for none.
    pub maxconnrate: u32,
    /// `maxsessrate`, 0 for none.
    pub maxsessrate: u32,
    /// `maxsslrate`, 0 for none.
    pub maxsslrate: u32,
    /// `maxcomprate` in KiB per second, 0 for none.
    pub maxcomprate: u32,
    /// `maxcompcpuusage` in percent; `None` for no limit.
    pub maxcompcpuusage: Option<u32>,
    /// `maxzlibmem` in MiB, 0 for none.
    pub maxzlibmem: u32,
    /// `daemon`.
    pub daemon: bool,
    /// `zero-warning`: a configuration with warnings does not start.
    pub zero_warning: bool,
    /// `external-check`; true with `preserve-env`.
    pub external_check: Option<bool>,
    /// `insecure-fork-wanted`.
    pub may_start_programs: bool,
    /// `-d`: requests and responses are shown on standard output.
    pub debug: bool,
    /// `master-worker`.
    pub master_worker: bool,
    /// `master-worker no-exit-on-failure`: the master keeps running when no worker is left.
    pub no_exit_on_failure: bool,
    /// `mworker-max-reloads`: how many reloads a former worker survives.
    pub mworker_max_reloads: Option<u32>,
    /// `pidfile`.
    pub pidfile: Option<PathBuf>,
    /// `set-dumpable`.
    pub dumpable: bool,
    /// `user` or `uid`, resolved at start.
    pub user: Option<Spanned<Account>>,
    /// `group` or `gid`, resolved at start.
    pub group: Option<Spanned<Account>>,
    /// `user` or `uid` of `unix-bind`, which `bind` lines have copied.
    pub unix_bind_user: Option<Spanned<Account>>,
    /// `group` or `gid` of `unix-bind`.
    pub unix_bind_group: Option<Spanned<Account>>,
    /// `setcap`: the capabilities that are kept, by their names.
    pub capabilities: Vec<&'static str>,
    /// `chroot`.
    pub chroot: Option<Spanned<PathBuf>>,
    /// `log` targets that `log global` refers to.
    pub logs: Vec<LogTarget>,
    /// `log-tag`; the default, as in HAProxy, is the program's name.
    pub log_tag: Option<String>,
    /// `log-send-hostname`: `Some(None)` sends the host's own name.
    pub log_send_hostname: Option<Option<String>>,
    /// `h2-workaround-bogus-websocket-clients`.
    pub h2_no_websockets: bool,
    /// The directories that lines of `default-path origin` name.
    pub default_path_origins: Vec<Spanned<PathBuf>>,
    /// `node`.
    pub node: Option<String>,
    /// `description`.
    pub description: Option<String>,
    /// `stats socket`.
    pub stats_sockets: Vec<StatsSocket>,
    /// `stats timeout`.
    pub stats_timeout: Option<Duration>,
    /// `stats maxconn`.
    pub stats_maxconn: Option<u32>,
    /// `hard-stop-after`.
    pub hard_stop_after: Option<Duration>,
    /// `grace`.
    pub grace: Option<Duration>,
    /// `ulimit-n`.
    pub ulimit_n: Option<u64>,
    /// `fd-hard-limit`.
    pub fd_hard_limit: Option<u32>,
    /// `harden.reject-privileged-ports.tcp`.
    pub reject_privileged_ports: bool,
    /// `strict-limits` (default true).
    pub strict_limits: bool,
    /// `spread-checks`, percent.
    pub spread_checks: u32,
    /// `max-spread-checks`.
    pub max_spread_checks: Option<Duration>,
    /// `ssl-default-bind-ciphers`, `-ciphersuites`, `-curves`, `-options`.
    pub tls_bind: TlsDefaults,
    /// `ssl-default-server-ciphers`, `-ciphersuites`, `-curves`, `-options`.
    pub tls_server: TlsDefaults,
    /// `ssl-server-verify none` gives `Verify::None`; the default is `Required`.
    pub ssl_server_verify: Option<Verify>,
    /// `crt-base`: the directory that the files named in crt-list files are relative to.
    pub crt_base: Option<PathBuf>,
    /// `ca-base`: the directory that the CA files named in crt-list files are relative to.
    pub ca_base: Option<PathBuf>,
    /// `ssl-load-extra-files`, `None` for the default (all).
    pub ssl_load_extra_files: Option<Vec<String>>,
    /// `ssl-load-extra-del-ext`.
    pub ssl_load_extra_del_ext: bool,
    /// The settings called `tune.*` that have an effect here.
    pub tune: Tune,
    /// The crypto engine, from `tune.crypto.engine`, `ssl-engine`, `ssl-provider` and `ssl-mode-async`.
    pub crypto: CryptoSettings,
    /// `stats-file`: what counters begin with.
    pub stats_file: Option<Spanned<PathBuf>>,
    /// `runtime-changes-file`: where changes made at run time are kept for the next process.
    pub runtime_changes_file: Option<Spanned<PathBuf>>,
    /// `server-state-file`.
    pub server_state_file: Option<PathBuf>,
    /// `server-state-base`.
    pub server_state_base: Option<PathBuf>,
    /// `localpeer`.
    pub localpeer: Option<String>,
    /// `set-var` and `set-var-fmt` in `global`: process variables at start. The keyword is the first word of each line.
    pub set_vars: Vec<Line>,
    /// `expose-experimental-directives`.
    pub experimental: bool,
    /// `h1-case-adjust FROM TO` pairs.
    pub h1_case_adjust: Vec<(String, String)>,
    /// `h1-case-adjust-file`.
    pub h1_case_adjust_file: Option<Spanned<PathBuf>>,
}

impl Global {
    /// Whether a server's status counts as an error (`http_err_cnt` of stick tables).
    pub fn is_http_error(&self, status: u16) -> bool {
        self.http_err_codes.as_ref().map_or((400..500).contains(&status), |codes| codes.has(status))
    }
    /// Whether a server's status counts as a failure (`http_fail_cnt` of stick tables).
    pub fn is_http_failure(&self, status: u16) -> bool {
        let usual = || (500..600).contains(&status) && status != 501 && status != 505;
        self.http_fail_codes.as_ref().map_or_else(usual, |codes| codes.has(status))
    }
}

/// A set of the statuses from 100 to 599.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statuses([u64; 8]);

impl Statuses {
    /// The first and the last that there are.
    pub const BOUNDS: (u16, u16) = (100, 599);

    /// Those for which `member` holds.
    pub fn of(member: impl Fn(u16) -> bool) -> Statuses {
        let mut set = Statuses([0; 8]);
        (Self::BOUNDS.0..=Self::BOUNDS.1).filter(|status| member(*status)).for_each(|status| set.set(status, true));
        set
    }
    /// Whether it is one of them.
    pub fn has(&self, status: u16) -> bool {
        let at = usize::from(status.wrapping_sub(Self::BOUNDS.0));
        self.0.get(at / 64).is_some_and(|bits| bits >> (at % 64) & 1 == 1)
    }
    /// Adds or removes one.
    pub fn set(&mut self, status: u16, member: bool) {
        let at = usize::from(status.wrapping_sub(Self::BOUNDS.0));
        if let Some(bits) = self.0.get_mut(at / 64) {
            *bits = *bits & !(1 << (at % 64)) | u64::from(member) << (at % 64);
        }
    }
}

/// A user or group by name or number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Account {
    /// `user www-data`.
    Name(String),
    /// `uid 33`.
    Id(u32),
}

impl Default for Account {
    fn default() -> Self {
        Account::Id(0)
    }
}

/// `tune.*`; every field is what the manual's section 3.2 says, in bytes unless stated otherwise.
#[derive(Clone, Debug)]
pub struct Tune {
    /// `tune.bufsize`; default 16384.
    pub bufsize: usize,
    /// `tune.cli.max-payload-size`; default 131072.
    pub cli_max_payload_size: usize,
    /// `tune.comp.maxlevel`: 1 to 9; default 1.
    pub comp_maxlevel: u32,
    /// `tune.compression.engine`, if it was written.
    pub compression_engine: Option<Spanned<CompressionEngine>>,
    /// `tune.peers.max-updates-at-once`; default 200.
    pub peers_max_updates: u32,
    /// `tune.maxrewrite`; default 1024.
    pub maxrewrite: usize,
    /// `tune.http.maxhdr`; default 101.
    pub http_maxhdr: usize,
    /// `tune.http.logurilen`; default 1024.
    pub http_logurilen: usize,
    /// `tune.http.cookielen`; default 63.
    pub http_cookielen: usize,
    /// `tune.maxaccept`.
    pub maxaccept: Option<u32>,
    /// `tune.h2.initial-window-size` and `tune.h2.fe.*`: HTTP/2 towards clients.
    pub h2_fe: H2Tune,
    /// `tune.h2.fe.max-total-streams`: after how many streams a client's connection is closed; 0 for never.
    pub h2_fe_max_total_streams: u32,
    /// `tune.h2.initial-window-size` and `tune.h2.be.*`: HTTP/2 towards servers.
    pub h2_be: H2Tune,
    /// `tune.h2.header-table-size`; default 4096.
    pub h2_header_table_size: u32,
    /// `tune.ssl.cachesize`: sessions kept for `no-tls-tickets`; default 20000.
    pub ssl_cachesize: u32,
    /// `tune.ssl.ssl-ctx-cache-size`: certificates made for clients that are kept; default 1000.
    pub ssl_ctx_cache_size: u32,
    /// `tune.ssl.capture-buffer-size`; 0 captures nothing.
    pub ssl_capture: Option<u32>,
    /// `tune.ssl.lifetime`; default 300 s.
    pub ssl_lifetime: Duration,
    /// `tune.stick-counters`: how many entries a connection or a request may track; default 3.
    pub stick_counters: u32,
    /// `tune.idle-pool.shared`, accepted for its meaning of 0/1.
    pub idle_pool_shared: bool,
    /// `tune.listener.multi-queue`: a busy worker hands new connections to the least busy one.
    pub listener_multi_queue: bool,
    /// `tune.rcvbuf.client`.
    pub rcvbuf_client: Option<u32>,
    /// `tune.rcvbuf.server`.
    pub rcvbuf_server: Option<u32>,
    /// `tune.sndbuf.client`.
    pub sndbuf_client: Option<u32>,
    /// `tune.sndbuf.server`.
    pub sndbuf_server: Option<u32>,
}

impl Tune {
    /// How many bytes a message's head may have: what `tune.maxrewrite`, which is at most half of a buffer, leaves of one.
    pub fn head_bytes(&self) -> usize {
        self.bufsize - self.maxrewrite.min(self.bufsize / 2)
    }
}

impl Default for Tune {
    fn default() -> Self {
        Tune {
            bufsize: 16384,
            cli_max_payload_size: 128 << 10,
            comp_maxlevel: 1,
            compression_engine: None,
            peers_max_updates: 200,
            maxrewrite: 1024,
            http_maxhdr: 101,
            http_logurilen: 1024,
            http_cookielen: 63,
            maxaccept: None,
            h2_fe: H2Tune::default(),
            h2_fe_max_total_streams: 0,
            h2_be: H2Tune::default(),
            h2_header_table_size: 4096,
            ssl_cachesize: 20000,
            ssl_ctx_cache_size: 1000,
            ssl_capture: None,
            ssl_lifetime: Duration::from_secs(300),
            stick_counters: 3,
            idle_pool_shared: true,
            listener_multi_queue: true,
            rcvbuf_client: None,
            rcvbuf_server: None,
            sndbuf_client: None,
            sndbuf_server: None,
        }
    }
}

/// HTTP/2 limits of one side.
#[derive(Clone, Debug)]
pub struct H2Tune {
    /// The initial window in bytes; default 65536.
    pub initial_window_size: u32,
    /// The most concurrent streams; default 100.
    pub max_concurrent_streams: u32,
    /// The largest frame in bytes; default 16384.
    pub max_frame_size: u32,
    /// After how many glitches the peer is disconnected; 0 for never.
    pub glitches_threshold: u32,
}

impl Default for H2Tune {
    fn default() -> Self {
        H2Tune { initial_window_size: 65536, max_concurrent_streams: 100, max_frame_size: 16384, glitches_threshold: 0 }
    }
}

/// What compresses bodies: a word of `tune.compression.engine`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompressionEngine {
    /// The processor: the default.
    #[default]
    Software,
    /// A QuickAssist device, which must be there; the processor does what the device cannot.
    Hw,
    /// A QuickAssist device, if there is one, for the pieces that cost the processor clearly less that way.
    Auto,
}

impl CompressionEngine {
    /// The word.
    pub fn name(self) -> &'static str {
        match self {
            CompressionEngine::Software => "software",
            CompressionEngine::Hw => "hw",
            CompressionEngine::Auto => "auto",
        }
    }
}

/// The engine that computes handshakes, as written. Resolving it on this machine is left to the engine crate.
#[derive(Clone, Debug, Default)]
pub struct CryptoSettings {
    /// `tune.crypto.engine native|sw|hw|hw+sw|auto`.
    pub engine: Option<Spanned<String>>,
    /// `ssl-engine NAME`.
    pub ssl_engine: Option<Spanned<String>>,
    /// `algo` list of `ssl-engine`.
    pub ssl_engine_algo: Option<Spanned<String>>,
    /// `ssl-provider NAME`.
    pub ssl_provider: Option<Spanned<String>>,
    /// `ssl-mode-async`.
    pub ssl_mode_async: bool,
    /// `tune.crypto.batch-delay`.
    pub batch_delay: Option<Duration>,
    /// `tune.crypto.batch-close ready`.
    pub batch_eager: bool,
    /// `tune.crypto.max-wait`.
    pub max_wait: Option<Duration>,
}

/// `stats socket`.
#[derive(Clone, Debug)]
pub struct StatsSocket {
    /// The address on which the socket listens.
    pub address: ListenAddress,
    /// `mode`, octal.
    pub mode: Option<u32>,
    /// `user` or `uid`.
    pub user: Option<Account>,
    /// `group` or `gid`.
    pub group: Option<Account>,
    /// `level user|operator|admin`.
    pub level: StatsLevel,
    /// `severity-output none|number|string`.
    pub severity_output: SeverityOutput,
    /// `expose-fd listeners`.
    pub expose_fd_listeners: bool,
    /// Where the `stats socket` line is in the configuration.
    pub span: Span,
}

impl StatsSocket {
    /// Whether the socket hands over listening sockets, which only a unix socket can do.
    pub fn exposes_over_unix(&self) -> bool {
        self.expose_fd_listeners && matches!(self.address, ListenAddress::Unix(_) | ListenAddress::Abstract(_))
    }
}

/// Whether the output of a stats socket begins with its severity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum SeverityOutput {
    #[default]
    None,
    Number,
    Text,
}

/// What the client of a stats socket may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum StatsLevel {
    User,
    #[default]
    Operator,
    Admin,
}
