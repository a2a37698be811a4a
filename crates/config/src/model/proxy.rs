//! `frontend`, `backend` and `listen` (manual chapter 4).

use crate::{
    model::{
        BandwidthFilter, Bind, Compression, EmailAlert, LogTarget, Options, Server, ServerSettings, Service,
        SourceAddress, SpoeFilter,
    },
    span::{Line, Span, Spanned, Word},
};
use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

/// One of `frontend`, `backend`, `listen`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ProxyKind {
    Frontend,
    Backend,
    Listen,
}

impl ProxyKind {
    /// The word that starts such a section.
    pub fn name(self) -> &'static str {
        match self {
            ProxyKind::Frontend => "frontend",
            ProxyKind::Backend => "backend",
            ProxyKind::Listen => "listen",
        }
    }
    /// Whether a proxy of this kind accepts connections.
    pub fn has_frontend(self) -> bool {
        self != ProxyKind::Backend
    }
    /// Whether a proxy of this kind has servers.
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
    /// `timeout client-hs`; if `None`, `client` also limits the handshake.
    pub client_handshake: Option<Duration>,
}

/// A `frontend`, `backend` or `listen` section with its defaults applied.
#[derive(Clone, Debug)]
pub struct Proxy {
    /// The proxy's name.
    pub name: String,
    /// The proxy's kind, which is the keyword of its section.
    pub kind: ProxyKind,
    /// The section's header line.
    pub span: Span,
    /// `id`.
    pub id: Option<u32>,
    /// `guid`.
    pub guid: Option<Spanned<String>>,
    /// `description`.
    pub description: Option<String>,
    /// `mode`.
    pub mode: Mode,
    /// `disabled`.
    pub disabled: bool,
    /// `bind`.
    pub binds: Vec<Bind>,
    /// `server` and `server-template`, expanded, with `default-server` applied.
    pub servers: Vec<Arc<Server>>,
    /// `default-server` at the end of the section, which servers added at run time start from.
    pub default_server: Arc<ServerSettings>,
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
    /// `retries`; 3 by default.
    pub retries: u32,
    /// `retry-on`: its words; `None` means `conn-failure`.
    pub retry_on: Option<Vec<Word>>,
    /// `balance`; `None` means roundrobin.
    pub balance: Option<Balance>,
    /// `hash-type`.
    pub hash_type: HashType,
    /// `hash-balance-factor` in percent; 0 for off.
    pub hash_balance_factor: u32,
    /// `cookie`.
    pub cookie: Option<Cookie>,
    /// `dynamic-cookie-key`.
    pub dynamic_cookie_key: Option<String>,
    /// `persist rdp-cookie`: the expression of the cookie.
    pub persist_rdp_cookie: Option<Line>,
    /// `max-keep-alive-queue`; `None` for no limit.
    pub max_keep_alive_queue: Option<u32>,
    /// `option *`.
    pub options: Options,
    /// The kind of health check, besides connecting.
    pub check: CheckKind,
    /// `external-check command`: the program that `option external-check` runs.
    pub external_command: Option<String>,
    /// `external-check path`: the program's `PATH`.
    pub external_path: Option<String>,
    /// `http-check *`: the words after the keyword.
    pub http_check: Vec<Line>,
    /// `tcp-check *`: the words after the keyword.
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
    /// `tcp-request connection`: the words after `connection`.
    pub tcp_request_connection: Vec<Line>,
    /// `tcp-request client-hello`.
    pub tcp_request_client_hello: Vec<Line>,
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
    /// `stick-table`: the words after the keyword.
    pub stick_table: Option<Line>,
    /// `monitor-uri`.
    pub monitor_uri: Option<String>,
    /// `monitor fail`: the condition, beginning at `if`.
    pub monitor_fail: Vec<Line>,
    /// `errorfile CODE FILE`, also from `errorfiles` and `http-errors`. The parser reads the contents through its file
    /// hook.
    pub errorfiles: BTreeMap<u16, ErrorFile>,
    /// `errorloc`, `errorloc302`, `errorloc303`: the redirect's status and URL, by the status they replace.
    pub errorlocs: BTreeMap<u16, (u16, String)>,
    /// `http-error` by status: the words after the keyword.
    pub http_errors: BTreeMap<u16, Line>,
    /// The proxy's own `log` targets.
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
    /// `declare capture request|response len N`; `true` for a request.
    pub declare_captures: Vec<(bool, u32, Span)>,
    /// `stats *`.
    pub stats: Option<StatsPage>,
    /// `source`.
    pub source: Option<SourceAddress>,
    /// `http-send-name-header`.
    pub http_send_name_header: Option<String>,
    /// `load-server-state-from-file global|local|none`.
    pub load_server_state: Option<String>,
    /// `server-state-file-name`; `None` for the backend's own name.
    pub server_state_file_name: Option<String>,
    /// `filter bwlim-in` and `filter bwlim-out`.
    pub bandwidth_filters: Vec<BandwidthFilter>,
    /// `compression`; `None` without such a line.
    pub compression: Option<Compression>,
    /// `filter cache`: the caches that it names.
    pub cache_filters: Vec<Spanned<String>>,
    /// `filter spoe`.
    pub spoe_filters: Vec<SpoeFilter>,
    /// `email-alert`: who is told when a server's state changes.
    pub email_alert: Option<Box<EmailAlert>>,
    /// The settings that make a backend a `service`; `None` for an ordinary one.
    pub service: Option<Box<Service>>,
}

impl Proxy {
    /// Whether the log shows how the persistence cookie was used; not if it is only read.
    pub fn manages_cookie(&self) -> bool {
        let managed = |c: &Cookie| c.mode != CookieMode::Passive || c.indirect || c.nocache || c.preserve;
        self.cookie.as_ref().is_some_and(managed)
    }

    /// The name of a listener of this `bind` line: without one of its own, one made of its number where it has statistics of its own.
    pub fn listener_name(&self, bind: &Bind, id: u32) -> Option<String> {
        bind.name.clone().or_else(|| self.options.socket_stats.then(|| format!("sock-{id}")))
    }

    /// A proxy with default settings.
    pub fn new(name: String, kind: ProxyKind, span: Span) -> Self {
        Proxy {
            name,
            kind,
            span,
            id: None,
            guid: None,
            description: None,
            mode: Mode::Tcp,
            disabled: false,
            binds: Vec::new(),
            servers: Vec::new(),
            default_server: Arc::default(),
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
            persist_rdp_cookie: None,
            max_keep_alive_queue: None,
            options: Options::default(),
            check: CheckKind::Connect,
            external_command: None,
            external_path: None,
            http_check: Vec::new(),
            tcp_check: Vec::new(),
            http_reuse: HttpReuse::Safe,
            acls: Vec::new(),
            http_request: Vec::new(),
            http_response: Vec::new(),
            http_after_response: Vec::new(),
            tcp_request_connection: Vec::new(),
            tcp_request_client_hello: Vec::new(),
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
            http_errors: BTreeMap::new(),
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
            server_state_file_name: None,
            bandwidth_filters: Vec::new(),
            compression: None,
            cache_filters: Vec::new(),
            spoe_filters: Vec::new(),
            email_alert: None,
            service: None,
        }
    }
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

/// What a health check sends if `check` is on.
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
    /// `option mysql-check [user NAME [post-41|pre-41]]`.
    Mysql(Option<MysqlUser>),
    /// `option pgsql-check user NAME`.
    Pgsql(String),
    /// `option redis-check`.
    Redis,
    /// `option spop-check`.
    Spop,
    /// `option ldap-check`.
    Ldap,
    /// `option external-check`.
    External,
}

/// The user that `option mysql-check` logs in as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MysqlUser {
    /// The user's name; there is no password.
    pub name: String,
    /// Whether to log in like clients before MySQL 4.1.
    pub pre_41: bool,
}

/// `balance ALGORITHM ...`. What each algorithm does is in the crate `backends`, under its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balance {
    /// The algorithm's name, as shown in statistics.
    pub algorithm: &'static str,
    /// The part of a request that decides: equal keys lead to the same server.
    pub key: Option<BalanceKey>,
    /// How many servers `random(N)` compares.
    pub draws: u32,
}

/// The part of a request that `balance` looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum BalanceKey {
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
    /// The value of a sample expression: `hash EXPRESSION`, or `rdp-cookie(NAME)`, which is equivalent to one.
    Sample(Line),
}

impl Default for Balance {
    fn default() -> Self {
        Balance::plain("roundrobin")
    }
}

impl Balance {
    /// An algorithm that ignores requests' contents.
    pub const fn plain(algorithm: &'static str) -> Balance {
        Balance { algorithm, key: None, draws: 0 }
    }

    /// An algorithm that looks at `key`.
    pub const fn by(algorithm: &'static str, key: BalanceKey) -> Balance {
        Balance { algorithm, key: Some(key), draws: 0 }
    }
}

impl BalanceKey {
    /// Whether only HTTP requests have such a key.
    pub fn needs_http(&self) -> bool {
        matches!(self, BalanceKey::Uri { .. } | BalanceKey::UrlParam { .. } | BalanceKey::Hdr { .. })
    }
}

/// `hash-type METHOD FUNCTION MODIFIER`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HashType {
    /// `consistent` rather than `map-based`.
    pub consistent: bool,
    /// The hash function.
    pub function: HashFunction,
    /// Whether the modifier `avalanche` is set.
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

/// How the persistence cookie is added to the traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CookieMode {
    /// None of `rewrite`, `insert` and `prefix`: the cookie is only read.
    #[default]
    Passive,
    Rewrite,
    Insert,
    Prefix,
}

/// The contents of an `errorfile`: a complete HTTP response, empty for `/dev/null`.
#[derive(Clone, Debug, Default)]
pub struct ErrorFile {
    /// The path as written.
    pub path: PathBuf,
    /// What the file contained when the configuration was read.
    pub content: Vec<u8>,
    /// Where the directive that names the file is in the configuration.
    pub span: Span,
}

/// `capture ... len N`.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct Capture {
    pub name: String,
    pub len: u32,
    /// Where the `capture` line is in the configuration; captures are numbered in this order.
    pub span: Span,
}

/// `stats enable` and the other `stats` settings.
#[derive(Clone, Debug, Default)]
pub struct StatsPage {
    /// `stats uri`; `/haproxy?stats` by default.
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
    /// `stats admin`: the conditions, beginning at `if` or `unless`.
    pub admin: Vec<Line>,
    /// `stats http-request` rules.
    pub http_request: Vec<Line>,
    /// `stats scope`.
    pub scope: Vec<String>,
}
