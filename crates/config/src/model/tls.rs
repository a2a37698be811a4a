//! TLS settings of listeners, servers and the whole process.

use crate::span::{Line, Spanned};
use std::path::PathBuf;

/// `ssl-default-bind-*` or `ssl-default-server-*`.
#[derive(Clone, Debug, Default)]
pub struct TlsDefaults {
    /// TLS 1.2 cipher list in OpenSSL's syntax.
    pub ciphers: Option<Spanned<String>>,
    /// TLS 1.3 suites, separated by colons.
    pub ciphersuites: Option<Spanned<String>>,
    /// Key exchange groups, separated by colons.
    pub curves: Option<Spanned<String>>,
    /// The lowest version, `ssl-min-ver` in the list of options.
    pub min_ver: Option<TlsVersion>,
    /// The highest version, `ssl-max-ver` in the list of options.
    pub max_ver: Option<TlsVersion>,
    /// `no-tls-tickets`.
    pub no_tls_tickets: bool,
    /// `prefer-client-ciphers`.
    pub prefer_client_ciphers: bool,
    /// `strict-sni`.
    pub strict_sni: bool,
}

/// A TLS version that a configuration may name. Versions that the TLS library does not support are adjusted with a
/// notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum TlsVersion {
    Ssl3,
    Tls10,
    Tls11,
    Tls12,
    Tls13,
}

/// The TLS settings of `bind`, which crt-list lines may refine.
#[derive(Clone, Debug, Default)]
pub struct BindTls {
    /// `default-crt`: as `crt`, for clients that name no server, or one that no certificate has; without it the first `crt`.
    pub default_crt: Vec<Spanned<PathBuf>>,
    /// `crt`: files or directories, with `crt-base` applied.
    pub crt: Vec<Spanned<PathBuf>>,
    /// `crt-list` files, as paths to be opened.
    pub crt_list: Vec<Spanned<PathBuf>>,
    /// The settings that a crt-list line may refine.
    pub conf: TlsConf,
    /// `strict-sni`.
    pub strict_sni: bool,
    /// `tls-ticket-keys`.
    pub tls_ticket_keys: Option<Spanned<PathBuf>>,
    /// `prefer-client-ciphers`.
    pub prefer_client_ciphers: bool,
    /// `crt-ignore-err`: `all`, or error numbers.
    pub crt_ignore_err: Option<String>,
    /// `ca-ignore-err`: `all`, or error numbers.
    pub ca_ignore_err: Option<String>,
    /// `generate-certificates`.
    pub generate: Option<Generate>,
}

/// How certificates are made for clients: `generate-certificates` and what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generate {
    /// `ca-sign-file`: the authority's certificate and key, with `ca-base` applied.
    pub ca_sign_file: Spanned<PathBuf>,
    /// `ca-sign-pass`.
    pub ca_sign_pass: Option<String>,
    /// `ca-sign-use-chain`.
    pub ca_sign_use_chain: bool,
    /// `ca-sign-untrusted`: the authority for servers that do not validate.
    pub ca_sign_untrusted: Option<Spanned<PathBuf>>,
}

/// The TLS settings that a `bind` line, a crt-list line or a `server` line may have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsConf {
    /// `verify none|optional|required`.
    pub verify: Option<Verify>,
    /// `ca-file`, with `ca-base` applied; `@system-ca` stays as written.
    pub ca_file: Option<Spanned<PathBuf>>,
    /// `ca-verify-file`.
    pub ca_verify_file: Option<Spanned<PathBuf>>,
    /// `crl-file`.
    pub crl_file: Option<Spanned<PathBuf>>,
    /// `alpn`, or `npn`, which is treated alike; `Some(empty)` for `no-alpn`.
    pub alpn: Option<Vec<String>>,
    /// `ciphers`.
    pub ciphers: Option<Spanned<String>>,
    /// `ciphersuites`.
    pub ciphersuites: Option<Spanned<String>>,
    /// `curves`.
    pub curves: Option<Spanned<String>>,
    /// `ecdhe`, which is used if there are no `curves`, not even in `global`.
    pub ecdhe: Option<Spanned<String>>,
    /// `ssl-min-ver` and the older `no-tlsv1x` and `force-tlsv1x`.
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

/// TLS settings of connections to a server.
#[derive(Clone, Debug, Default)]
pub struct ServerTls {
    /// `verify`, `ca-file`, `crl-file`, `alpn`, `ciphers`, versions.
    pub conf: TlsConf,
    /// `crt`: the client certificate.
    pub crt: Option<Spanned<PathBuf>>,
    /// `sni EXPRESSION`: the words of the sample expression.
    pub sni: Option<Line>,
    /// `verifyhost`.
    pub verifyhost: Option<String>,
    /// `no-ssl-reuse`.
    pub no_ssl_reuse: bool,
}
