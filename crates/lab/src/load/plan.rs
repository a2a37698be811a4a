//! What to send, to whom, how fast and for how long.

use super::{Error, fresh};
use crate::cost::Who;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

/// A load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadPlan {
    /// The server.
    pub target: Target,
    /// The address to connect to, instead of what the target's name resolves to.
    pub address: Option<SocketAddr>,
    /// The proxy that makes a tunnel to the target for each connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<SocketAddr>,
    /// What one unit of the load is.
    pub mode: Mode,
    /// Every handshake but the first of each connection's slot resumes the session before it.
    pub resume: bool,
    /// When units begin.
    pub arrivals: Arrivals,
    /// In an open loop: how long after the start the first unit is due. Of several machines each has its own, so that all their
    /// units together are due at even distances.
    pub phase: Duration,
    /// Connections open at once, over all threads.
    pub connections: usize,
    /// Concurrent requests on a kept HTTP/2 connection.
    pub streams: usize,
    /// Threads; each has its share of the connections and of the rate.
    pub threads: usize,
    /// Cores the threads are pinned to, in turn; none: the system chooses.
    pub cores: Vec<usize>,
    /// How long is measured.
    pub duration: Duration,
    /// How long the load runs before that.
    pub warm_up: Duration,
    /// Ends the measurement after this many units.
    pub count: Option<u64>,
    /// After this long a unit is given up, and counted as an error.
    pub timeout: Duration,
    /// TLS.
    pub tls: TlsPlan,
    /// The version of HTTP.
    pub http: Http,
    /// The request's method.
    pub method: String,
    /// Header fields beside `host`, in order.
    pub headers: Vec<(String, String)>,
    /// Addresses or interfaces the connections come from, in turn; none: the system chooses.
    pub sources: Vec<Source>,
    /// Processes on this machine whose CPU time is read: the server's.
    pub watch: Vec<Who>,
}

impl LoadPlan {
    /// Ten seconds of full handshakes on ten connections by one thread.
    #[must_use]
    pub fn new(target: Target) -> LoadPlan {
        LoadPlan {
            target,
            address: None,
            proxy: None,
            mode: Mode::Handshake,
            resume: false,
            arrivals: Arrivals::Closed,
            phase: Duration::ZERO,
            connections: 10,
            streams: 1,
            threads: 1,
            cores: Vec::new(),
            duration: Duration::from_secs(10),
            warm_up: Duration::ZERO,
            count: None,
            timeout: Duration::from_secs(10),
            tls: TlsPlan::default(),
            http: Http::One,
            method: "GET".into(),
            headers: Vec::new(),
            sources: Vec::new(),
            watch: Vec::new(),
        }
    }

    /// # Errors
    ///
    /// If settings contradict each other; the error says which.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let wrong = |why: &str| Err(Error::Plan(why.to_owned()));
        if self.connections == 0 || self.threads == 0 || self.streams == 0 {
            return wrong("there must be at least one connection, one thread and one stream");
        }
        if self.threads > self.connections {
            return wrong("there are more threads than connections: each thread needs one of its own");
        }
        if let Arrivals::Open(rate) = self.arrivals
            && !(rate.is_finite() && rate > 0.0)
        {
            return wrong("the rate must be above zero");
        }
        if self.duration.is_zero() {
            return wrong("the duration must be above zero");
        }
        if self.resume && self.target.scheme == Scheme::Http {
            return wrong("without TLS there are no sessions to resume");
        }
        if self.mode == Mode::Handshake && self.target.scheme == Scheme::Http {
            return wrong("without TLS there is no handshake to measure");
        }
        if self.address.is_some() && self.proxy.is_some() {
            return wrong("where to connect to is either an address or a proxy");
        }
        if self.resume && fresh::is_wanted(self) {
            return wrong("connections that each ask for another name have no sessions to resume");
        }
        if self.target.host.contains(fresh::MARK) && self.address.is_none() && self.proxy.is_none() {
            return wrong(
                "names that are new in each connection are not resolved: say where to connect to, or give a proxy",
            );
        }
        let token = |name: &str| penstock_http::is_token(name.as_bytes());
        let text = |value: &str| !value.bytes().any(|byte| byte < b' ' && byte != b'\t' || byte == 0x7f);
        if !token(&self.method) || !self.headers.iter().all(|(name, value)| token(name) && text(value)) {
            return wrong("the method or a header field has characters that HTTP does not allow");
        }
        Ok(())
    }
}

/// What is done over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// A handshake, closed cleanly without a request.
    Handshake,
    /// A handshake, one request, the end.
    Request,
    /// Requests on connections that are kept.
    KeepAlive,
    /// Requests on connections that are kept, counted in bytes of bodies.
    Download,
    /// Connections that have served one request and are held open.
    Idle,
}

impl Mode {
    /// All modes, with the words that name them on the command line and in reports.
    pub const ALL: [(Mode, &'static str); 5] = [
        (Mode::Handshake, "handshake"),
        (Mode::Request, "request"),
        (Mode::KeepAlive, "keep-alive"),
        (Mode::Download, "download"),
        (Mode::Idle, "idle"),
    ];

    /// The mode's name, as on the command line and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        Mode::ALL.iter().find(|(mode, _)| *mode == self).map_or("", |(_, name)| name)
    }

    /// The plural of what a unit of this load is called.
    #[must_use]
    pub fn units(self) -> &'static str {
        match self {
            Mode::Handshake => "handshakes",
            Mode::Request | Mode::KeepAlive => "requests",
            Mode::Download => "downloads",
            Mode::Idle => "connections",
        }
    }
}

/// When units begin.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// Closed loop: each connection begins its next unit when it has finished one.
    Closed,
    /// Open loop: this many units a second fall due at even distances, whether or not the server keeps up, and their time counts
    /// from then.
    Open(f64),
}

/// The version of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Http {
    /// HTTP/1.1
    #[serde(rename = "1.1")]
    One,
    /// HTTP/2
    #[serde(rename = "2")]
    Two,
}

/// `https` or `http`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// HTTP over TLS.
    Https,
    /// In clear.
    Http,
}

/// A URL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Target {
    /// The URL's scheme.
    pub scheme: Scheme,
    /// A name or an address, without brackets. `{n}` in it is a number that each connection has for itself.
    pub host: String,
    /// The URL's port.
    pub port: u16,
    /// The path from the URL's first slash on, with the query.
    pub path: String,
}

impl Target {
    /// `host`, or `host:port` where the scheme has another one: what the `host` field says.
    #[must_use]
    pub fn authority(&self) -> String {
        let host = self.bracketed_host();
        if self.port == default_port(self.scheme) { host } else { format!("{host}:{}", self.port) }
    }

    /// `host:port` in any case: what CONNECT asks for.
    pub(crate) fn host_and_port(&self) -> String {
        format!("{}:{}", self.bracketed_host(), self.port)
    }

    fn bracketed_host(&self) -> String {
        if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() }
    }
}

fn default_port(scheme: Scheme) -> u16 {
    match scheme {
        Scheme::Https => 443,
        Scheme::Http => 80,
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.scheme == Scheme::Https { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

impl From<Target> for String {
    fn from(target: Target) -> String {
        target.to_string()
    }
}

impl TryFrom<String> for Target {
    type Error = Error;

    fn try_from(url: String) -> Result<Target, Error> {
        url.parse()
    }
}

impl FromStr for Target {
    type Err = Error;

    /// `https://host:port/path`; without a scheme it is https.
    fn from_str(url: &str) -> Result<Target, Error> {
        let bad = |why: &str| Error::Plan(format!("'{url}' is not a URL: {why}"));
        let (scheme, rest) = match url.split_once("://") {
            None => (Scheme::Https, url),
            Some(("https", rest)) => (Scheme::Https, rest),
            Some(("http", rest)) => (Scheme::Http, rest),
            Some((other, _)) => return Err(bad(&format!("'{other}' is neither https nor http"))),
        };
        let (authority, path) = match rest.find(['/', '?']) {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        let path = if path.starts_with('?') { format!("/{path}") } else { path.to_owned() };
        let path = path.split('#').next().unwrap_or_default().to_owned();
        let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, port)) => (host, port.strip_prefix(':').or(port.is_empty().then_some(""))),
            None => authority.split_once(':').map_or((authority, Some("")), |(host, port)| (host, Some(port))),
        };
        let port = match port.ok_or_else(|| bad("after ']' there may only be a port"))? {
            "" => default_port(scheme),
            digits => digits.parse().map_err(|_| bad(&format!("'{digits}' is no port")))?,
        };
        if host.is_empty() || host.contains('@') {
            return Err(bad("it names no host"));
        }
        if path.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(bad("there is a space or a control character in its path"));
        }
        Ok(Target { scheme, host: host.to_owned(), port, path })
    }
}

/// What to ask for in the handshake. An empty list leaves the choice to the server, among all that rustls has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsPlan {
    /// Versions.
    pub versions: Vec<TlsVersion>,
    /// Cipher suites by their names in RFCs or OpenSSL's.
    pub suites: Vec<String>,
    /// Groups: `x25519`, `p256`, `p384`, `x25519mlkem768`; the first one's key share is sent.
    pub groups: Vec<String>,
    /// Signature algorithms: `rsa_pss_rsae_sha256`, `ecdsa_secp256r1_sha256`, ...
    pub signatures: Vec<String>,
    /// The name to ask for, instead of the target's; with `{n}` as there.
    pub server_name: Option<String>,
    /// Check every certificate against the roots in this PEM file and every signature. Otherwise only the signature of the
    /// run's first handshake is.
    pub verify: Option<std::path::PathBuf>,
    /// Check every signature, but no chain.
    pub check_signatures: bool,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TlsVersion {
    /// TLS 1.2
    #[serde(rename = "1.2")]
    V12,
    /// TLS 1.3
    #[serde(rename = "1.3")]
    V13,
}

/// The source of connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// This address.
    Address(IpAddr),
    /// This interface.
    Interface(String),
}

impl FromStr for Source {
    type Err = std::convert::Infallible;

    /// An address where it is one, otherwise the name of an interface.
    fn from_str(text: &str) -> Result<Source, Self::Err> {
        Ok(text.parse().map_or_else(|_| Source::Interface(text.to_owned()), Source::Address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_written() {
        for (text, scheme, host, port, path) in [
            ("localhost", Scheme::Https, "localhost", 443, "/"),
            ("https://a.example:8443/x?y=1#top", Scheme::Https, "a.example", 8443, "/x?y=1"),
            ("http://127.0.0.1?q", Scheme::Http, "127.0.0.1", 80, "/?q"),
            ("https://[::1]:99/", Scheme::Https, "::1", 99, "/"),
            ("https://[::1]", Scheme::Https, "::1", 443, "/"),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!(target, Target { scheme, host: host.into(), port, path: path.into() }, "{text}");
            assert_eq!(target.to_string().parse::<Target>().unwrap(), target, "{text}");
        }
    }

    #[test]
    fn what_is_no_url_is_said() {
        for (text, why) in [
            ("ftp://a/", "neither https nor http"),
            ("https:///x", "no host"),
            ("a:70000", "'70000' is no port"),
            ("[::1]x", "only be a port"),
            ("a/b c", "a space"),
        ] {
            let said = text.parse::<Target>().unwrap_err().to_string();
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
