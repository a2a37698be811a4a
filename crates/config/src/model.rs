//! The typed configuration: what every other crate reads.
//!
//! `defaults` sections are already applied: a [`Proxy`] carries its final values, `None` where neither it nor its
//! defaults say anything. Rules, ACLs, samples and log formats stay words ([`Line`]), which `penstock-rules` compiles.
//! Section and directive names follow HAProxy's configuration manual.

use crate::span::{FileId, Line, Span, Spanned, Word};
use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, time::Duration};

/// A whole configuration, from all its files.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Name and text of each file read, by [`FileId`].
    pub files: Vec<Source>,
    /// The merged `global` sections.
    pub global: Global,
    /// `frontend`, `backend` and `listen`, in the order written.
    pub proxies: Vec<Proxy>,
    /// `userlist` sections.
    pub userlists: Vec<Userlist>,
    /// `resolvers` sections.
    pub resolvers: Vec<Resolvers>,
    /// `peers` sections.
    pub peers: Vec<Peers>,
    /// `crt-store` sections.
    pub crt_stores: Vec<CrtStore>,
    /// The environment as `setenv` and its relatives left it: what the `env` fetch reads.
    pub environment: BTreeMap<String, String>,
}

/// A file of the configuration as it was read.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// As given on the command line.
    pub name: String,
    /// Its text, which diagnostics quote.
    pub text: String,
}

impl Source {
    /// A file whose bytes need not be UTF-8: what is not becomes U+FFFD, which only comments may contain.
    pub fn new(name: impl Into<String>, bytes: &[u8]) -> Self {
        Source { name: name.into(), text: String::from_utf8_lossy(bytes).into_owned() }
    }
}

impl Config {
    /// The source a span points into.
    pub fn source(&self, file: FileId) -> Option<&Source> {
        self.files.get(file.0 as usize)
    }
    /// The proxy of that name that can take traffic from a frontend (`backend` or `listen`).
    pub fn backend(&self, name: &str) -> Option<&Proxy> {
        self.proxies.iter().find(|p| p.kind.has_backend() && p.name == name)
    }
}

/// `global`.
#[derive(Clone, Debug, Default)]
pub struct Global {
    /// `nbthread`; `None`: as many as the CPUs the process may run on.
    pub nbthread: Option<u32>,
    /// `cpu-map`, resolved: for thread number (from 1) its CPUs. Absent threads are not bound.
    pub cpu_map: BTreeMap<u32, Vec<u32>>,
    /// `maxconn` of the process.
    pub maxconn: Option<u32>,
    /// `daemon`.
    pub daemon: bool,
    /// `master-worker`.
    pub master_worker: bool,
    /// `pidfile`.
    pub pidfile: Option<PathBuf>,
    /// `user` or `uid`, resolved at start.
    pub user: Option<Spanned<Account>>,
    /// `group` or `gid`, resolved at start.
    pub group: Option<Spanned<Account>>,
    /// `chroot`.
    pub chroot: Option<Spanned<PathBuf>>,
    /// `log` targets that `log global` refers to.
    pub logs: Vec<LogTarget>,
    /// `log-tag`, by default `haproxy`'s rule: the program name.
    pub log_tag: Option<String>,
    /// `log-send-hostname`: `Some(None)` sends the host's own name.
    pub log_send_hostname: Option<Option<String>>,
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
    /// `crt-base`, which the files named in crt-list files are relative to.
    pub crt_base: Option<PathBuf>,
    /// `ca-base`, likewise.
    pub ca_base: Option<PathBuf>,
    /// `ssl-load-extra-files`, `None` for the default (all).
    pub ssl_load_extra_files: Option<Vec<String>>,
    /// `ssl-load-extra-del-ext`.
    pub ssl_load_extra_del_ext: bool,
    /// The settings called `tune.*` that have an effect here.
    pub tune: Tune,
    /// Which crypto engine, from `tune.crypto.engine`, `ssl-engine`, `ssl-provider` and `ssl-mode-async`.
    pub crypto: CryptoSettings,
    /// `server-state-file` and `server-state-base`.
    pub server_state_file: Option<PathBuf>,
    /// `server-state-base`.
    pub server_state_base: Option<PathBuf>,
    /// `localpeer`.
    pub localpeer: Option<String>,
    /// `set-var` and `set-var-fmt` in `global`: process variables at start (the words after the keyword; the keyword is
    /// the first word).
    pub set_vars: Vec<Line>,
    /// `expose-experimental-directives`.
    pub experimental: bool,
    /// `h1-case-adjust FROM TO` pairs.
    pub h1_case_adjust: Vec<(String, String)>,
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

/// `ssl-default-bind-*` or `ssl-default-server-*`.
#[derive(Clone, Debug, Default)]
pub struct TlsDefaults {
    /// TLS 1.2 cipher list in OpenSSL's syntax.
    pub ciphers: Option<Spanned<String>>,
    /// TLS 1.3 suites, colon separated.
    pub ciphersuites: Option<Spanned<String>>,
    /// Key exchange groups, colon separated.
    pub curves: Option<Spanned<String>>,
    /// From the options list.
    pub min_ver: Option<TlsVersion>,
    /// From the options list.
    pub max_ver: Option<TlsVersion>,
    /// `no-tls-tickets`.
    pub no_tls_tickets: bool,
    /// `prefer-client-ciphers`.
    pub prefer_client_ciphers: bool,
    /// `strict-sni`.
    pub strict_sni: bool,
}

/// A version of TLS that a configuration may name. What the TLS library cannot do is clamped with a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum TlsVersion {
    Ssl3,
    Tls10,
    Tls11,
    Tls12,
    Tls13,
}

/// `tune.*`; every field is what the manual's section 3.2 says, in bytes unless named otherwise.
#[derive(Clone, Debug)]
pub struct Tune {
    /// `tune.bufsize`, 16384.
    pub bufsize: usize,
    /// `tune.maxrewrite`, 1024.
    pub maxrewrite: usize,
    /// `tune.http.maxhdr`, 101.
    pub http_maxhdr: usize,
    /// `tune.http.logurilen`, 1024.
    pub http_logurilen: usize,
    /// `tune.http.cookielen`, 63.
    pub http_cookielen: usize,
    /// `tune.maxaccept`.
    pub maxaccept: Option<u32>,
    /// `tune.h2.initial-window-size`, `tune.h2.fe.*`, `tune.h2.be.*`.
    pub h2_fe: H2Tune,
    /// The same towards servers.
    pub h2_be: H2Tune,
    /// `tune.h2.header-table-size`, 4096.
    pub h2_header_table_size: u32,
    /// `tune.ssl.cachesize`, sessions kept for `no-tls-tickets`, 20000.
    pub ssl_cachesize: u32,
    /// `tune.ssl.lifetime`, 300 s.
    pub ssl_lifetime: Duration,
    /// `tune.idle-pool.shared`, accepted for its meaning of 0/1.
    pub idle_pool_shared: bool,
    /// `tune.pool-high-fd-ratio` and friends are without effect; `tune.idletimer` too.
    pub rcvbuf_client: Option<u32>,
    /// `tune.rcvbuf.server`.
    pub rcvbuf_server: Option<u32>,
    /// `tune.sndbuf.client`.
    pub sndbuf_client: Option<u32>,
    /// `tune.sndbuf.server`.
    pub sndbuf_server: Option<u32>,
}

impl Default for Tune {
    fn default() -> Self {
        Tune {
            bufsize: 16384,
            maxrewrite: 1024,
            http_maxhdr: 101,
            http_logurilen: 1024,
            http_cookielen: 63,
            maxaccept: None,
            h2_fe: H2Tune::default(),
            h2_be: H2Tune::default(),
            h2_header_table_size: 4096,
            ssl_cachesize: 20000,
            ssl_lifetime: Duration::from_secs(300),
            idle_pool_shared: true,
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
    /// Bytes, 65536.
    pub initial_window_size: u32,
    /// Streams, 100.
    pub max_concurrent_streams: u32,
    /// Bytes, 16384.
    pub max_frame_size: u32,
}

impl Default for H2Tune {
    fn default() -> Self {
        H2Tune { initial_window_size: 65536, max_concurrent_streams: 100, max_frame_size: 16384 }
    }
}

/// Which engine computes handshakes, as written; what it resolves to on this machine is the engine crate's business.
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
    /// `tune.crypto.max-wait`.
    pub max_wait: Option<Duration>,
}

/// `stats socket`.
#[derive(Clone, Debug)]
pub struct StatsSocket {
    /// Where it listens.
    pub address: ListenAddress,
    /// `mode`, octal.
    pub mode: Option<u32>,
    /// `user` or `uid`.
    pub user: Option<Account>,
    /// `group` or `gid`.
    pub group: Option<Account>,
    /// `level user|operator|admin`.
    pub level: StatsLevel,
    /// `expose-fd listeners`.
    pub expose_fd_listeners: bool,
    /// Where it was written.
    pub span: Span,
}

/// What a stats socket may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum StatsLevel {
    User,
    #[default]
    Operator,
    Admin,
}

/// An address to listen on or to log to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// `*:80`, `127.0.0.1:80`, `[::]:80`, `:::443`, with `first..=last` ports. Port 0 is refused.
    Ip {
        /// The address; `0.0.0.0` where none is given.
        ip: IpAddr,
        /// First port.
        first: u16,
        /// Last port, the same where no range is given.
        last: u16,
    },
    /// `host:80`: resolved at start.
    Host {
        /// The name.
        host: String,
        /// First port.
        first: u16,
        /// Last port.
        last: u16,
    },
    /// `unix@/path` or `/path`.
    Unix(PathBuf),
    /// `abns@name`.
    Abstract(String),
    /// `fd@3`: an inherited listening descriptor.
    Fd(i32),
}

/// `bind`.
#[derive(Clone, Debug)]
pub struct Bind {
    /// The addresses, comma separated in the file.
    pub addresses: Vec<Spanned<ListenAddress>>,
    /// `name`.
    pub name: Option<String>,
    /// `ssl` and everything that belongs to it; `None` for clear text.
    pub tls: Option<BindTls>,
    /// `accept-proxy`.
    pub accept_proxy: bool,
    /// `interface`.
    pub interface: Option<String>,
    /// `backlog`.
    pub backlog: Option<u32>,
    /// `maxconn`.
    pub maxconn: Option<u32>,
    /// `v6only`.
    pub v6only: bool,
    /// `v4v6`.
    pub v4v6: bool,
    /// `transparent`.
    pub transparent: bool,
    /// `defer-accept`.
    pub defer_accept: bool,
    /// `tfo`.
    pub tfo: bool,
    /// `tcp-ut`.
    pub tcp_ut: Option<Duration>,
    /// `mss`.
    pub mss: Option<u32>,
    /// `proto h2` on clear text: prior-knowledge HTTP/2.
    pub proto: Option<String>,
    /// `mode` of a unix socket, octal.
    pub mode: Option<u32>,
    /// `user` or `uid` of a unix socket.
    pub user: Option<Account>,
    /// `group` or `gid` of a unix socket.
    pub group: Option<Account>,
    /// `id`.
    pub id: Option<u32>,
    /// `nice`, `shards`, `thread`, `process` are accepted without effect.
    pub span: Span,
}

impl Bind {
    /// A socket with every setting at its default.
    pub fn new(addresses: Vec<Spanned<ListenAddress>>, span: Span) -> Self {
        Bind {
            addresses,
            name: None,
            tls: None,
            accept_proxy: false,
            interface: None,
            backlog: None,
            maxconn: None,
            v6only: false,
            v4v6: false,
            transparent: false,
            defer_accept: false,
            tfo: false,
            tcp_ut: None,
            mss: None,
            proto: None,
            mode: None,
            user: None,
            group: None,
            id: None,
            span,
        }
    }
}

/// The TLS half of `bind`, before crt-list lines refine it.
#[derive(Clone, Debug, Default)]
pub struct BindTls {
    /// `crt`: files or directories, `crt-base` applied.
    pub crt: Vec<Spanned<PathBuf>>,
    /// `crt-list` files, path as it will be opened.
    pub crt_list: Vec<Spanned<PathBuf>>,
    /// What a crt-list line may refine.
    pub conf: TlsConf,
    /// `strict-sni`.
    pub strict_sni: bool,
    /// `tls-ticket-keys`.
    pub tls_ticket_keys: Option<Spanned<PathBuf>>,
    /// `prefer-client-ciphers`.
    pub prefer_client_ciphers: bool,
    /// `crt-ignore-err` and `ca-ignore-err`: `all` or numbers.
    pub crt_ignore_err: Option<String>,
    /// See `crt_ignore_err`.
    pub ca_ignore_err: Option<String>,
}

/// The TLS settings that a `bind` line, a crt-list line or a `server` line may carry.
#[derive(Clone, Debug, Default)]
pub struct TlsConf {
    /// `verify none|optional|required`.
    pub verify: Option<Verify>,
    /// `ca-file`, `ca-base` applied; `@system-ca` stays as written.
    pub ca_file: Option<Spanned<PathBuf>>,
    /// `ca-verify-file`.
    pub ca_verify_file: Option<Spanned<PathBuf>>,
    /// `crl-file`.
    pub crl_file: Option<Spanned<PathBuf>>,
    /// `alpn`, or `npn` taken as such; `Some(empty)` for `no-alpn`.
    pub alpn: Option<Vec<String>>,
    /// `ciphers`.
    pub ciphers: Option<Spanned<String>>,
    /// `ciphersuites`.
    pub ciphersuites: Option<Spanned<String>>,
    /// `curves` (or `ecdhe`).
    pub curves: Option<Spanned<String>>,
    /// `ssl-min-ver` and the older `no-tlsv1x`, `force-tlsv1x`.
    pub min_ver: Option<TlsVersion>,
    /// `ssl-max-ver`.
    pub max_ver: Option<TlsVersion>,
    /// `no-tls-tickets`.
    pub no_tls_tickets: bool,
    /// `allow-0rtt`.
    pub allow_0rtt: bool,
}

/// `verify`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Verify {
    #[default]
    None,
    Optional,
    Required,
}

/// One of `frontend`, `backend`, `listen`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ProxyKind {
    Frontend,
    Backend,
    Listen,
}

impl ProxyKind {
    /// It accepts connections.
    pub fn has_frontend(self) -> bool {
        self != ProxyKind::Backend
    }
    /// It has servers.
    pub fn has_backend(self) -> bool {
        self != ProxyKind::Frontend
    }
}

/// `mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Mode {
    #[default]
    Tcp,
    Http,
}

/// `timeout *`, `None` for no limit.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct Timeouts {
    pub client: Option<Duration>,
    pub client_fin: Option<Duration>,
    pub server: Option<Duration>,
    pub server_fin: Option<Duration>,
    pub connect: Option<Duration>,
    pub queue: Option<Duration>,
    pub check: Option<Duration>,
    pub http_request: Option<Duration>,
    pub http_keep_alive: Option<Duration>,
    pub tunnel: Option<Duration>,
    pub tarpit: Option<Duration>,
    /// `timeout client-hs`; `None` leaves the handshake to `client`.
    pub client_handshake: Option<Duration>,
}

/// `frontend`, `backend` or `listen` with its defaults applied.
#[derive(Clone, Debug)]
pub struct Proxy {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: ProxyKind,
    /// The section's header line.
    pub span: Span,
    /// `id`.
    pub id: Option<u32>,
    /// `description`.
    pub description: Option<String>,
    /// `mode`.
    pub mode: Mode,
    /// `disabled`.
    pub disabled: bool,
    /// `bind`.
    pub binds: Vec<Bind>,
    /// `server` and `server-template`, expanded, with `default-server` applied.
    pub servers: Vec<Server>,
    /// `maxconn` of the frontend.
    pub maxconn: Option<u32>,
    /// `backlog`.
    pub backlog: Option<u32>,
    /// `fullconn`.
    pub fullconn: Option<u32>,
    /// `rate-limit sessions`.
    pub rate_limit_sessions: Option<u32>,
    /// `timeout *`.
    pub timeouts: Timeouts,
    /// `retries`, 3.
    pub retries: u32,
    /// `retry-on`, the words; `None` for `conn-failure`.
    pub retry_on: Option<Vec<Word>>,
    /// `balance`; `None` for roundrobin.
    pub balance: Option<Balance>,
    /// `hash-type`.
    pub hash_type: HashType,
    /// `hash-balance-factor`, percent, 0 for off.
    pub hash_balance_factor: u32,
    /// `cookie`.
    pub cookie: Option<Cookie>,
    /// `dynamic-cookie-key`.
    pub dynamic_cookie_key: Option<String>,
    /// `option *`.
    pub options: Options,
    /// How a server's health is asked, apart from plain connection.
    pub check: CheckKind,
    /// `http-check *`, the words after it.
    pub http_check: Vec<Line>,
    /// `tcp-check *`, the words after it.
    pub tcp_check: Vec<Line>,
    /// `http-reuse never|safe|aggressive|always`.
    pub http_reuse: HttpReuse,
    /// `acl NAME ...` in order.
    pub acls: Vec<Line>,
    /// `http-request`.
    pub http_request: Vec<Line>,
    /// `http-response`.
    pub http_response: Vec<Line>,
    /// `http-after-response`.
    pub http_after_response: Vec<Line>,
    /// `tcp-request connection`, the words after `connection`.
    pub tcp_request_connection: Vec<Line>,
    /// `tcp-request session`.
    pub tcp_request_session: Vec<Line>,
    /// `tcp-request content`.
    pub tcp_request_content: Vec<Line>,
    /// `tcp-request inspect-delay`.
    pub tcp_request_inspect_delay: Option<Duration>,
    /// `tcp-response content`.
    pub tcp_response_content: Vec<Line>,
    /// `tcp-response inspect-delay`.
    pub tcp_response_inspect_delay: Option<Duration>,
    /// `redirect`.
    pub redirects: Vec<Line>,
    /// `use_backend`.
    pub use_backend: Vec<Line>,
    /// `default_backend`.
    pub default_backend: Option<Word>,
    /// `use-server`.
    pub use_server: Vec<Line>,
    /// `force-persist`, `ignore-persist`: the keyword is the first word.
    pub persist_rules: Vec<Line>,
    /// `stick match|on|store-request|store-response`.
    pub stick: Vec<Line>,
    /// `stick-table`, the words after it.
    pub stick_table: Option<Line>,
    /// `monitor-uri`.
    pub monitor_uri: Option<String>,
    /// `monitor fail`: the condition, from `if`.
    pub monitor_fail: Vec<Line>,
    /// `errorfile CODE FILE`, contents read by the parser's file hook; also from `errorfiles` and `http-errors`.
    pub errorfiles: BTreeMap<u16, ErrorFile>,
    /// `errorloc`, `errorloc302`, `errorloc303`: code to (status, URL).
    pub errorlocs: BTreeMap<u16, (u16, String)>,
    /// `http-error`, the words after it.
    pub http_errors: Vec<Line>,
    /// `log` targets of its own.
    pub logs: Vec<LogTarget>,
    /// `log global`.
    pub log_global: bool,
    /// `log-format`.
    pub log_format: Option<Word>,
    /// `log-format-sd`.
    pub log_format_sd: Option<Word>,
    /// `error-log-format`.
    pub error_log_format: Option<Word>,
    /// `log-tag`.
    pub log_tag: Option<String>,
    /// `unique-id-format`.
    pub unique_id_format: Option<Word>,
    /// `unique-id-header`.
    pub unique_id_header: Option<String>,
    /// `capture request header NAME len N`.
    pub capture_request_headers: Vec<Capture>,
    /// `capture response header NAME len N`.
    pub capture_response_headers: Vec<Capture>,
    /// `capture cookie NAME len N`.
    pub capture_cookie: Option<Capture>,
    /// `declare capture request|response len N`: true for request.
    pub declare_captures: Vec<(bool, u32)>,
    /// `stats *`.
    pub stats: Option<StatsPage>,
    /// `source`.
    pub source: Option<SourceAddress>,
    /// `http-send-name-header`.
    pub http_send_name_header: Option<String>,
    /// `load-server-state-from-file global|local|none`.
    pub load_server_state: Option<String>,
    /// `compression algo`, `type`, `offload`... words with the keyword first: parsed now, applied by a later release.
    pub compression: Vec<Line>,
}

impl Proxy {
    /// A proxy of which nothing is said yet.
    pub fn new(name: String, kind: ProxyKind, span: Span) -> Self {
        Proxy {
            name,
            kind,
            span,
            id: None,
            description: None,
            mode: Mode::Tcp,
            disabled: false,
            binds: Vec::new(),
            servers: Vec::new(),
            maxconn: None,
            backlog: None,
            fullconn: None,
            rate_limit_sessions: None,
            timeouts: Timeouts::default(),
            retries: 3,
            retry_on: None,
            balance: None,
            hash_type: HashType::default(),
            hash_balance_factor: 0,
            cookie: None,
            dynamic_cookie_key: None,
            options: Options::default(),
            check: CheckKind::Connect,
            http_check: Vec::new(),
            tcp_check: Vec::new(),
            http_reuse: HttpReuse::Safe,
            acls: Vec::new(),
            http_request: Vec::new(),
            http_response: Vec::new(),
            http_after_response: Vec::new(),
            tcp_request_connection: Vec::new(),
            tcp_request_session: Vec::new(),
            tcp_request_content: Vec::new(),
            tcp_request_inspect_delay: None,
            tcp_response_content: Vec::new(),
            tcp_response_inspect_delay: None,
            redirects: Vec::new(),
            use_backend: Vec::new(),
            default_backend: None,
            use_server: Vec::new(),
            persist_rules: Vec::new(),
            stick: Vec::new(),
            stick_table: None,
            monitor_uri: None,
            monitor_fail: Vec::new(),
            errorfiles: BTreeMap::new(),
            errorlocs: BTreeMap::new(),
            http_errors: Vec::new(),
            logs: Vec::new(),
            log_global: false,
            log_format: None,
            log_format_sd: None,
            error_log_format: None,
            log_tag: None,
            unique_id_format: None,
            unique_id_header: None,
            capture_request_headers: Vec::new(),
            capture_response_headers: Vec::new(),
            capture_cookie: None,
            declare_captures: Vec::new(),
            stats: None,
            source: None,
            http_send_name_header: None,
            load_server_state: None,
            compression: Vec::new(),
        }
    }
}

/// `option *` of one proxy; absent ones are `false`.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct Options {
    pub abortonclose: bool,
    pub allbackups: bool,
    pub checkcache: bool,
    pub clitcpka: bool,
    pub contstats: bool,
    pub dontlog_normal: bool,
    pub dontlognull: bool,
    pub forwardfor: Option<ForwardFor>,
    pub forwarded: bool,
    pub originalto: Option<ForwardFor>,
    pub http_buffer_request: bool,
    pub http_ignore_probes: bool,
    pub http_no_delay: bool,
    pub http_pretend_keepalive: bool,
    pub http_use_proxy_header: bool,
    pub http_use_htx: bool,
    pub connection: ConnectionMode,
    pub idle_close_on_response: bool,
    pub independent_streams: bool,
    pub log_health_checks: bool,
    pub log_separate_errors: bool,
    pub logasap: bool,
    pub nolinger: bool,
    pub persist: bool,
    pub prefer_last_server: bool,
    /// `redispatch`: `Some(0)` is its default, only at the last retry; `Some(n)` every n retries, negative counts from the last.
    pub redispatch: Option<i32>,
    pub socket_stats: bool,
    pub splice_auto: bool,
    pub srvtcpka: bool,
    pub tcp_smart_accept: bool,
    pub tcp_smart_connect: bool,
    pub transparent: bool,
    /// `httplog` (`clf` true for `httplog clf`), `tcplog`, `httpslog`; the last one written wins.
    pub log: LogFormat,
    pub accept_invalid_http_request: bool,
    pub accept_invalid_http_response: bool,
    pub disable_h2_upgrade: bool,
    /// `h1-case-adjust-bogus-client`.
    pub h1_case_adjust_client: bool,
    /// `h1-case-adjust-bogus-server`.
    pub h1_case_adjust_server: bool,
    /// `http-restrict-req-hdr-names preserve|delete|reject`.
    pub restrict_header_names: Option<String>,
}

/// The predefined log format of a proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum LogFormat {
    #[default]
    Default,
    Tcp,
    Http,
    HttpClf,
    Https,
}

/// How connections are kept; the last option written wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ConnectionMode {
    #[default]
    KeepAlive,
    ServerClose,
    Close,
}

/// `option forwardfor [except NET] [header NAME] [if-none]`.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct ForwardFor {
    pub except: Option<(IpAddr, u8)>,
    pub header: Option<String>,
    pub if_none: bool,
}

/// `http-reuse`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum HttpReuse {
    Never,
    #[default]
    Safe,
    Aggressive,
    Always,
}

/// What a health check asks when `check` is on.
#[derive(Clone, Debug, Default)]
pub enum CheckKind {
    /// Connect only.
    #[default]
    Connect,
    /// `option httpchk [METHOD] URI [VERSION]`, refined by `http-check`.
    Http {
        /// `OPTIONS` by default.
        method: Option<String>,
        /// `/` by default.
        uri: Option<String>,
        /// `HTTP/1.0` by default.
        version: Option<String>,
    },
    /// `option tcp-check`, driven by the `tcp-check` lines.
    Tcp,
    /// `option ssl-hello-chk`.
    SslHello,
    /// `option smtpchk [HELLO DOMAIN]`.
    Smtp(Option<(String, String)>),
    /// `option mysql-check [user NAME]`.
    Mysql(Option<String>),
    /// `option pgsql-check user NAME`.
    Pgsql(String),
    /// `option redis-check`.
    Redis,
    /// `option ldap-check`.
    Ldap,
}

/// `balance`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Balance {
    RoundRobin,
    StaticRr,
    LeastConn,
    First,
    Source,
    /// `uri [whole] [path-only] [len N] [depth N]`.
    Uri {
        whole: bool,
        path_only: bool,
        len: Option<u32>,
        depth: Option<u32>,
    },
    /// `url_param NAME [check_post [N]]`.
    UrlParam {
        name: String,
        check_post: Option<u32>,
    },
    /// `hdr(NAME) [use_domain_only]`.
    Hdr {
        name: String,
        use_domain_only: bool,
    },
    /// `random(N)`, 2 by default.
    Random(u32),
    /// `rdp-cookie(NAME)`.
    RdpCookie(String),
    /// `hash EXPRESSION`.
    Hash(Line),
}

/// `hash-type METHOD FUNCTION MODIFIER`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HashType {
    /// `consistent` rather than `map-based`.
    pub consistent: bool,
    /// Which function.
    pub function: HashFunction,
    /// `avalanche`.
    pub avalanche: bool,
}

/// The functions of `hash-type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum HashFunction {
    #[default]
    Sdbm,
    Djb2,
    Wt6,
    Crc32,
    None,
}

/// `cookie NAME ...`.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct Cookie {
    pub name: String,
    pub mode: CookieMode,
    pub indirect: bool,
    pub nocache: bool,
    pub postonly: bool,
    pub preserve: bool,
    pub httponly: bool,
    pub secure: bool,
    pub domains: Vec<String>,
    pub maxidle: Option<Duration>,
    pub maxlife: Option<Duration>,
    pub dynamic: bool,
    pub attrs: Vec<String>,
}

/// How the persistence cookie gets into the traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CookieMode {
    /// None of the three: only read.
    #[default]
    Passive,
    Rewrite,
    Insert,
    Prefix,
}

/// The body of an `errorfile`: raw bytes of a whole HTTP response, empty for `/dev/null`.
#[derive(Clone, Debug, Default)]
pub struct ErrorFile {
    /// As written.
    pub path: PathBuf,
    /// What the file held when the configuration was read.
    pub content: Vec<u8>,
    /// Where it was written.
    pub span: Span,
}

/// `capture ... len N`.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct Capture {
    pub name: String,
    pub len: u32,
}

/// `stats enable` and what goes with it.
#[derive(Clone, Debug, Default)]
pub struct StatsPage {
    /// `stats uri`, `/haproxy?stats`.
    pub uri: String,
    /// `stats realm`.
    pub realm: Option<String>,
    /// `stats auth USER:PASSWORD`.
    pub auth: Vec<(String, String)>,
    /// `stats refresh`.
    pub refresh: Option<Duration>,
    /// `stats hide-version`.
    pub hide_version: bool,
    /// `stats show-legends`.
    pub show_legends: bool,
    /// `stats show-modules`.
    pub show_modules: bool,
    /// `stats show-node [NAME]`.
    pub show_node: Option<Option<String>>,
    /// `stats show-desc [TEXT]`.
    pub show_desc: Option<Option<String>>,
    /// `stats admin` conditions, from `if` or `unless`.
    pub admin: Vec<Line>,
    /// `stats http-request` rules.
    pub http_request: Vec<Line>,
    /// `stats scope`.
    pub scope: Vec<String>,
}

/// `source ADDR[:PORT] [interface IF]`.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct SourceAddress {
    pub ip: Option<IpAddr>,
    pub ports: Option<(u16, u16)>,
    pub interface: Option<String>,
    pub usesrc: Option<String>,
}

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerHost {
    /// An address; `0.0.0.0` means the address the client connected to.
    Ip(IpAddr),
    /// A name, resolved at start and by `resolvers`.
    Name(String),
    /// `unix@/path` or `/path`.
    Unix(PathBuf),
    /// `abns@name`.
    Abstract(String),
}

/// The port of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerPort {
    /// `:80`.
    Fixed(u16),
    /// `:+1000`, `:-10`, and `:+0` where no port is given: relative to the port the client connected to.
    Offset(i32),
}

/// `server`, or one instance of `server-template`.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its name.
    pub name: String,
    /// Where it was written.
    pub span: Span,
    /// Where it is.
    pub host: ServerHost,
    /// On which port.
    pub port: ServerPort,
    /// What `default-server` may set as well.
    pub settings: ServerSettings,
    /// One of a `server-template` whose name gives several addresses: its number.
    pub template: Option<u32>,
}

/// The options of `server` and `default-server`.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// `weight` 0..=256, 1.
    pub weight: u32,
    /// `backup`.
    pub backup: bool,
    /// `disabled`.
    pub disabled: bool,
    /// `maxconn`, 0 for none.
    pub maxconn: u32,
    /// `minconn`.
    pub minconn: u32,
    /// `maxqueue`, 0 for none.
    pub maxqueue: u32,
    /// `slowstart`.
    pub slowstart: Option<Duration>,
    /// `cookie`.
    pub cookie: Option<String>,
    /// `id`.
    pub id: Option<u32>,
    /// `redir`.
    pub redir: Option<String>,
    /// `source`.
    pub source: Option<SourceAddress>,
    /// `check` and what tunes it.
    pub check: ServerCheck,
    /// `agent-check`.
    pub agent_check: bool,
    /// What tunes it; `None` without `agent-check`.
    pub agent: Option<AgentCheck>,
    /// `track [BACKEND/]SERVER`.
    pub track: Option<Word>,
    /// `observe layer4|layer7`.
    pub observe: Option<String>,
    /// `error-limit`, 10.
    pub error_limit: u32,
    /// `on-error`.
    pub on_error: Option<String>,
    /// `on-marked-down shutdown-sessions`.
    pub on_marked_down_shutdown: bool,
    /// `on-marked-up shutdown-backup-sessions`.
    pub on_marked_up_shutdown_backup: bool,
    /// `ssl`.
    pub tls: Option<ServerTls>,
    /// TLS settings written without `ssl` (they serve `check-ssl`).
    pub tls_settings: ServerTls,
    /// `send-proxy` gives 1, `send-proxy-v2` and its relatives 2.
    pub send_proxy: Option<u8>,
    /// `proxy-v2-options`.
    pub proxy_v2_options: Vec<String>,
    /// `proto h1|h2`.
    pub proto: Option<String>,
    /// `resolvers`.
    pub resolvers: Option<Word>,
    /// `resolve-prefer ipv4|ipv6`: true for IPv4.
    pub resolve_prefer_ipv4: Option<bool>,
    /// `init-addr`, in order.
    pub init_addr: Vec<InitAddr>,
    /// `pool-max-conn`, -1 for no limit.
    pub pool_max_conn: i64,
    /// `pool-low-conn`.
    pub pool_low_conn: u32,
    /// `pool-purge-delay`, 5 s.
    pub pool_purge_delay: Duration,
    /// `max-reuse`, -1 for no limit.
    pub max_reuse: i64,
    /// `tcp-ut`.
    pub tcp_ut: Option<Duration>,
    /// `tfo`.
    pub tfo: bool,
    /// `non-stick`.
    pub non_stick: bool,
}

impl Default for ServerSettings {
    fn default() -> Self {
        ServerSettings {
            weight: 1,
            backup: false,
            disabled: false,
            maxconn: 0,
            minconn: 0,
            maxqueue: 0,
            slowstart: None,
            cookie: None,
            id: None,
            redir: None,
            source: None,
            check: ServerCheck::default(),
            agent_check: false,
            agent: None,
            track: None,
            observe: None,
            error_limit: 10,
            on_error: None,
            on_marked_down_shutdown: false,
            on_marked_up_shutdown_backup: false,
            tls: None,
            tls_settings: ServerTls::default(),
            send_proxy: None,
            proxy_v2_options: Vec::new(),
            proto: None,
            resolvers: None,
            resolve_prefer_ipv4: None,
            init_addr: Vec::new(),
            pool_max_conn: -1,
            pool_low_conn: 0,
            pool_purge_delay: Duration::from_secs(5),
            max_reuse: -1,
            tcp_ut: None,
            tfo: false,
            non_stick: false,
        }
    }
}

/// `check` of a server.
#[derive(Clone, Debug)]
pub struct ServerCheck {
    /// `check`.
    pub enabled: bool,
    /// `inter`, 2 s.
    pub inter: Duration,
    /// `fastinter`.
    pub fastinter: Option<Duration>,
    /// `downinter`.
    pub downinter: Option<Duration>,
    /// `rise`, 2.
    pub rise: u32,
    /// `fall`, 3.
    pub fall: u32,
    /// `port`.
    pub port: Option<u16>,
    /// `addr`.
    pub addr: Option<ServerHost>,
    /// `check-ssl`; `Some(false)` for `no-check-ssl`.
    pub ssl: Option<bool>,
    /// `check-sni`.
    pub sni: Option<String>,
    /// `check-alpn`.
    pub alpn: Option<Vec<String>>,
    /// `check-proto`.
    pub proto: Option<String>,
    /// `check-send-proxy`.
    pub send_proxy: bool,
}

impl Default for ServerCheck {
    fn default() -> Self {
        ServerCheck {
            enabled: false,
            inter: Duration::from_secs(2),
            fastinter: None,
            downinter: None,
            rise: 2,
            fall: 3,
            port: None,
            addr: None,
            ssl: None,
            sni: None,
            alpn: None,
            proto: None,
            send_proxy: false,
        }
    }
}

/// `agent-check`.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct AgentCheck {
    pub port: u16,
    pub inter: Option<Duration>,
    pub addr: Option<ServerHost>,
    pub send: Option<String>,
}

/// TLS towards a server.
#[derive(Clone, Debug, Default)]
pub struct ServerTls {
    /// `verify`, `ca-file`, `crl-file`, `alpn`, `ciphers`, versions.
    pub conf: TlsConf,
    /// `crt`: the client certificate.
    pub crt: Option<Spanned<PathBuf>>,
    /// `sni EXPRESSION`, the words of the sample expression.
    pub sni: Option<Line>,
    /// `verifyhost`.
    pub verifyhost: Option<String>,
    /// `no-ssl-reuse`.
    pub no_ssl_reuse: bool,
}

/// `init-addr`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum InitAddr {
    Last,
    Libc,
    None,
    Ip(IpAddr),
}

/// `log TARGET [len N] [format F] [sample R:S] FACILITY [LEVEL [MINLEVEL]]`.
#[derive(Clone, Debug)]
pub struct LogTarget {
    /// Where to.
    pub address: LogAddress,
    /// `len`, 1024.
    pub len: u32,
    /// `format`.
    pub format: LogTransport,
    /// `sample RANGES:SIZE`, as written.
    pub sample: Option<String>,
    /// Facility 0..=23.
    pub facility: u8,
    /// Highest severity number sent, 7 (debug) by default.
    pub level: u8,
    /// Lowest severity number used: more severe ones are written as this, 0 (emerg) by default.
    pub minlevel: u8,
    /// Where it was written.
    pub span: Span,
}

/// Where a log line goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogAddress {
    /// UDP syslog, port 514 by default.
    Udp(String, u16),
    /// A unix datagram socket.
    Unix(PathBuf),
    /// `fd@N`, `stdout` is 1, `stderr` is 2.
    Fd(i32),
    /// `ring@NAME`.
    Ring(String),
}

/// `format` of a log target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum LogTransport {
    Local,
    Rfc3164,
    Rfc5424,
    Priority,
    Short,
    Timed,
    Iso,
    Raw,
}

/// `userlist`.
#[derive(Clone, Debug, Default)]
pub struct Userlist {
    /// Its name.
    pub name: String,
    /// Its users.
    pub users: Vec<User>,
    /// Group name to its members' names.
    pub groups: BTreeMap<String, Vec<String>>,
}

/// `user NAME password|insecure-password PASSWORD groups A,B`.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct User {
    pub name: String,
    /// crypt(3) text, or clear text where `insecure`.
    pub password: String,
    pub insecure: bool,
    pub groups: Vec<String>,
    pub span: Span,
}

/// `resolvers`.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Resolvers {
    pub name: String,
    /// Name and address of each `nameserver`.
    pub nameservers: Vec<(String, std::net::SocketAddr)>,
    /// `parse-resolv-conf`.
    pub parse_resolv_conf: bool,
    pub resolve_retries: u32,
    pub timeout_resolve: Duration,
    pub timeout_retry: Duration,
    /// `hold STATE TIME`: valid, nx, refused, timeout, other, obsolete.
    pub hold: BTreeMap<String, Duration>,
    pub accepted_payload_size: u16,
    pub span: Span,
}

impl Resolvers {
    /// HAProxy's defaults (manual section 5.3.2).
    pub fn new(name: String, span: Span) -> Self {
        Resolvers {
            name,
            nameservers: Vec::new(),
            parse_resolv_conf: false,
            resolve_retries: 3,
            timeout_resolve: Duration::from_secs(1),
            timeout_retry: Duration::from_secs(1),
            hold: [("valid", 10), ("nx", 30), ("refused", 30), ("timeout", 30), ("other", 30), ("obsolete", 0)]
                .into_iter()
                .map(|(state, seconds)| (state.to_owned(), Duration::from_secs(seconds)))
                .collect(),
            accepted_payload_size: 512,
            span,
        }
    }
}

/// `peers`: parsed so that references to it resolve; the protocol comes with a later release.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct Peers {
    pub name: String,
    pub peers: Vec<(String, String)>,
    pub tables: Vec<Line>,
}

/// `crt-store`.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct CrtStore {
    pub name: String,
    pub crt_base: Option<PathBuf>,
    pub key_base: Option<PathBuf>,
    /// `load`, the words after it.
    pub loads: Vec<Line>,
}
