//! `option *`.

use std::{net::IpAddr, time::Duration};

/// The `option` lines of one proxy; those that are absent are `false`.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct Options {
    pub abortonclose: bool,
    pub allbackups: bool,
    pub checkcache: bool,
    pub clitcpka: bool,
    pub clitcpka_probes: Probes,
    pub contstats: bool,
    pub dontlog_normal: bool,
    pub dontlognull: bool,
    pub forwardfor: Option<ForwardFor>,
    pub forwarded: Option<Forwarded>,
    pub originalto: Option<ForwardFor>,
    pub http_buffer_request: bool,
    pub http_ignore_probes: bool,
    pub http_no_delay: bool,
    pub http_pretend_keepalive: bool,
    pub http_use_proxy_header: bool,
    pub connection: ConnectionMode,
    pub idle_close_on_response: bool,
    pub independent_streams: bool,
    pub log_health_checks: bool,
    pub log_separate_errors: bool,
    pub logasap: bool,
    pub nolinger: bool,
    pub persist: bool,
    pub prefer_last_server: bool,
    /// `redispatch`: `n` means at every n-th retry, -1 (the default) at the last, -2 at the last but one, 0 at none in
    /// particular.
    pub redispatch: Option<i32>,
    pub socket_stats: bool,
    pub splice_auto: bool,
    pub srvtcpka: bool,
    pub srvtcpka_probes: Probes,
    pub tcp_smart_accept: bool,
    pub tcp_smart_connect: bool,
    pub transparent: bool,
    /// `httplog` (or `httplog clf`), `tcplog`, `httpslog`; the last one written applies.
    pub log: LogFormat,
    pub accept_invalid_http_request: bool,
    pub accept_invalid_http_response: bool,
    pub disable_h2_upgrade: bool,
    /// `h1-case-adjust-bogus-client`.
    pub h1_case_adjust_client: bool,
    /// `h1-case-adjust-bogus-server`.
    pub h1_case_adjust_server: bool,
    /// `http-restrict-req-hdr-names`.
    pub restricted_names: RestrictedNames,
}

/// When TCP keep-alive probes are sent (`clitcpka-*`, `srvtcpka-*`); what is absent is the system's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probes {
    /// Probes without an answer after which the peer counts as gone.
    pub count: Option<u32>,
    /// Inactivity before the first.
    pub idle: Option<Duration>,
    /// Time between them.
    pub interval: Option<Duration>,
}

/// What is done with names of request header fields that have other characters than letters, digits and hyphens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestrictedNames {
    /// `preserve`: they are forwarded.
    #[default]
    Preserve,
    /// `delete`: their fields are removed.
    Delete,
    /// `reject`: the request is refused.
    Reject,
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

/// How connections are kept open; the last option written applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ConnectionMode {
    #[default]
    KeepAlive,
    ServerClose,
    Close,
}

/// `option forwarded`: the parts of the Forwarded header; `proto` and `for` if none are named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forwarded {
    /// Whether the client used TLS.
    pub proto: bool,
    /// The request's host.
    pub host: bool,
    /// The address the client connected to.
    pub by: bool,
    /// Whether `by` includes the port.
    pub by_port: bool,
    /// `for`: the client's address.
    pub client: bool,
    /// `for_port`: whether the client's address includes the port.
    pub client_port: bool,
}

/// `option forwardfor [except NET] [header NAME] [if-none]`.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct ForwardFor {
    pub except: Option<(IpAddr, u8)>,
    pub header: Option<String>,
    pub if_none: bool,
}
