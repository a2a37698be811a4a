//! Servers: `server` (manual section 5.2).

use crate::{
    model::{LogProto, ServerTls},
    span::{Line, Span, Spanned, Word},
};
use std::{net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

/// `source ADDR[:PORT] [usesrc clientip] [interface IF]`.
#[derive(Clone, Debug, Default)]
pub struct SourceAddress {
    /// The address; `None` leaves it to the system.
    pub ip: Option<IpAddr>,
    /// A name that was written instead: `ip` is found at start.
    pub name: Option<String>,
    /// The first and the last port; on `server` lines they may differ.
    pub ports: Option<(u16, u16)>,
    /// The network interface.
    pub interface: Option<String>,
    /// `usesrc clientip`, of services in mode tcp: connections for a client come from its address.
    pub clientip: Option<Span>,
}

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerHost {
    /// An IP address; `0.0.0.0` means the address that the client connected to.
    Ip(IpAddr),
    /// A name, resolved at start and by `resolvers`.
    Name(String),
    /// `unix@/path` or `/path`.
    Unix(PathBuf),
    /// `abns@name`, with the zeros behind it, or `abnsz@name`; see [`shown_abstract`](super::shown_abstract).
    Abstract(String),
}

/// The port of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerPort {
    /// `:80`.
    Fixed(u16),
    /// `:+1000`, `:-10`; `:+0` if no port is given. Relative to the port that the client connected to.
    Offset(i32),
}

/// `hash-key`: what places a server on the ring of `hash-type consistent`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HashKey {
    /// `id`, as for a server whose address is not known.
    #[default]
    Id,
    /// `addr`.
    Address,
    /// `addr-port`.
    AddressAndPort,
}

/// `server`, or one instance of `server-template`.
#[derive(Clone, Debug)]
pub struct Server {
    /// The server's name.
    pub name: String,
    /// Where the server's line is in the configuration.
    pub span: Span,
    /// The server's address.
    pub host: ServerHost,
    /// The server's port.
    pub port: ServerPort,
    /// The settings that `default-server` can also set.
    pub settings: Arc<ServerSettings>,
    /// The number of this server within a `server-template` whose name resolves to several addresses.
    pub template: Option<u32>,
}

impl Server {
    /// The SRV record that its `resolvers` are asked for, which names its host and port: as in HAProxy, names with an underscore in
    /// front are such.
    pub fn srv_record(&self) -> Option<&str> {
        match &self.host {
            ServerHost::Name(name) if name.starts_with('_') && self.settings.resolvers.is_some() => Some(name),
            _ => None,
        }
    }

    /// The name of what `dispatch` declares, as logs have it.
    pub const DISPATCH: &str = "<NOSRV>";
}

/// The options of `server` and `default-server`.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// `weight` 0..=256; 1 by default.
    pub weight: u32,
    /// `backup`.
    pub backup: bool,
    /// `disabled`.
    pub disabled: bool,
    /// `maxconn`; 0 for no limit.
    pub maxconn: u32,
    /// `minconn`.
    pub minconn: u32,
    /// `maxqueue`; 0 for no limit.
    pub maxqueue: u32,
    /// `hash-key`.
    pub hash_key: HashKey,
    /// `log-proto`, which matters in a `ring`.
    pub log_proto: Option<LogProto>,
    /// `slowstart`.
    pub slowstart: Option<Duration>,
    /// `cookie`.
    pub cookie: Option<String>,
    /// `id`.
    pub id: Option<u32>,
    /// `guid`.
    pub guid: Option<Spanned<String>>,
    /// `redir`.
    pub redir: Option<String>,
    /// `source`.
    pub source: Option<SourceAddress>,
    /// `namespace`.
    pub namespace: Option<ServerNamespace>,
    /// `check` and its settings.
    pub check: ServerCheck,
    /// `agent-check`.
    pub agent_check: bool,
    /// The settings of the agent; `None` without `agent-check`.
    pub agent: Option<AgentCheck>,
    /// `track [BACKEND/]SERVER`.
    pub track: Option<Word>,
    /// `observe layer4|layer7`.
    pub observe: Option<String>,
    /// `error-limit`; 10 by default.
    pub error_limit: u32,
    /// `on-error`.
    pub on_error: Option<String>,
    /// `on-marked-down shutdown-sessions`.
    pub on_marked_down_shutdown: bool,
    /// `on-marked-up shutdown-backup-sessions`.
    pub on_marked_up_shutdown_backup: bool,
    /// `ssl`.
    pub tls: Option<ServerTls>,
    /// TLS settings written without `ssl`, which `check-ssl` uses.
    pub tls_settings: ServerTls,
    /// `no-ssl` after `ssl`, which usually is the default-server's: TLS is prepared, and used once an operator asks for it.
    pub tls_on_demand: bool,
    /// `no-ssl`.
    pub no_ssl: bool,
    /// `send-proxy`.
    pub send_proxy_v1: bool,
    /// `send-proxy-v2` and similar options.
    pub send_proxy_v2: bool,
    /// `proxy-v2-options`, and what `send-proxy-v2-ssl` and `send-proxy-v2-ssl-cn` add to them.
    pub proxy_v2_options: Vec<String>,
    /// `set-proxy-v2-tlv-fmt`: type and format of each.
    pub proxy_v2_tlvs: Vec<(u8, Word)>,
    /// `pool-conn-name`: an expression.
    pub pool_conn_name: Option<Line>,
    /// `proto h1|h2`.
    pub proto: Option<String>,
    /// `ws auto|h1|h2`.
    pub ws: WebSockets,
    /// `resolvers`.
    pub resolvers: Option<Word>,
    /// `resolve-prefer ipv4|ipv6`: true for IPv4.
    pub resolve_prefer_ipv4: Option<bool>,
    /// `resolve-net`: networks whose addresses come first.
    pub resolve_net: Vec<(IpAddr, u8)>,
    /// `resolve-opts allow-dup-ip`: it may have the same address as another server of that name.
    pub resolve_allow_dup_ip: bool,
    /// `resolve-opts ignore-weight`: it keeps its weight, whatever the SRV record says.
    pub resolve_ignore_weight: bool,
    /// `init-addr`, in order.
    pub init_addr: Vec<InitAddr>,
    /// `pool-max-conn`; -1 for no limit.
    pub pool_max_conn: i64,
    /// `pool-low-conn`.
    pub pool_low_conn: u32,
    /// `pool-purge-delay`; 5 s by default.
    pub pool_purge_delay: Duration,
    /// `max-reuse`; -1 for no limit.
    pub max_reuse: i64,
    /// `tcp-ut`.
    pub tcp_ut: Option<Duration>,
    /// `tfo`.
    pub tfo: bool,
    /// `non-stick`.
    pub non_stick: bool,
}

impl ServerSettings {
    /// The largest number of concurrent connections, 0 for no limit: `minconn` alone is one as well.
    pub fn conns_max(&self) -> u32 {
        self.maxconn.max(self.minconn)
    }
    /// The version of the PROXY header that a connection to the server begins with, if it has one. As in HAProxy, options
    /// of version 2 without `send-proxy-v2` ask for a header, and that is one of version 1.
    pub fn proxy_header_version(&self) -> Option<u8> {
        match self {
            ServerSettings { send_proxy_v2: true, .. } => Some(2),
            _ => (self.send_proxy_v1 || !self.proxy_v2_options.is_empty()).then_some(1),
        }
    }
}

/// The network namespace in which connections to a server are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerNamespace {
    /// That of this name.
    Named(Spanned<String>),
    /// `*`: that from which the client's connection came, by its PROXY header or its `bind` line.
    OfClient(Span),
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
            hash_key: HashKey::Id,
            log_proto: None,
            slowstart: None,
            cookie: None,
            id: None,
            guid: None,
            redir: None,
            source: None,
            namespace: None,
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
            tls_on_demand: false,
            no_ssl: false,
            send_proxy_v1: false,
            send_proxy_v2: false,
            proxy_v2_options: Vec::new(),
            proxy_v2_tlvs: Vec::new(),
            pool_conn_name: None,
            proto: None,
            ws: WebSockets::Auto,
            resolvers: None,
            resolve_prefer_ipv4: None,
            resolve_net: Vec::new(),
            resolve_allow_dup_ip: false,
            resolve_ignore_weight: false,
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

impl ServerSettings {
    /// The settings for TLS to the server, if it uses TLS or an operator may tell it to.
    pub fn prepared_tls(&self) -> Option<&ServerTls> {
        self.tls.as_ref().or(self.tls_on_demand.then_some(&self.tls_settings))
    }
}

/// `check` of a server.
#[derive(Clone, Debug)]
pub struct ServerCheck {
    /// `check`.
    pub enabled: bool,
    /// `inter`; 2 s by default.
    pub inter: Duration,
    /// `fastinter`.
    pub fastinter: Option<Duration>,
    /// `downinter`.
    pub downinter: Option<Duration>,
    /// `rise`; 2 by default.
    pub rise: u32,
    /// `fall`; 3 by default.
    pub fall: u32,
    /// `port`.
    pub port: Option<u16>,
    /// `addr`.
    pub addr: Option<ServerHost>,
    /// The port in `addr`; `port` takes precedence.
    pub addr_port: Option<u16>,
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
            addr_port: None,
            ssl: None,
            sni: None,
            alpn: None,
            proto: None,
            send_proxy: false,
        }
    }
}

/// The settings of an agent.
#[derive(Clone, Debug)]
pub struct AgentCheck {
    /// `agent-port`; 0 without it.
    pub port: u16,
    /// `agent-inter`; 2 s by default.
    pub inter: Duration,
    /// `agent-addr`: an IP address, or a name that is resolved at start.
    pub addr: Option<ServerHost>,
    /// `agent-send`.
    pub send: Option<String>,
}

impl Default for AgentCheck {
    fn default() -> Self {
        AgentCheck { port: 0, inter: Duration::from_secs(2), addr: None, send: None }
    }
}

/// `ws`: the protocol that WebSockets use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WebSockets {
    /// HTTP/1.1 if the server offers it by ALPN, else the protocol of other requests.
    #[default]
    Auto,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
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
