//! Where an agent is.

use super::Error;
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

/// The port of agents, where none is given.
const PORT: u16 = 7313;

/// A host and its port, or the path of a unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `HOST[:PORT]`
    Tcp {
        /// A name or an address, without brackets.
        host: String,
        /// The port of the host.
        port: u16,
    },
    /// `unix:PATH`
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Address, Error> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Address::Unix(path.into()));
        }
        let bad = || Error::Setup(format!("'{text}' is no agent: expected HOST, HOST:PORT or unix:PATH"));
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or_else(bad)?)),
            None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        let port = port.map_or(Ok(PORT), |port| port.parse().map_err(|_| bad()))?;
        if host.is_empty() {
            return Err(bad());
        }
        Ok(Address::Tcp { host: host.to_owned(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Address {
    /// The addresses of a host.
    pub(super) fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
        let found = (host, port).to_socket_addrs().map_err(|e| format!("its name cannot be resolved: {e}"))?;
        let found: Vec<SocketAddr> = found.collect();
        if found.is_empty() { Err("its name has no address".into()) } else { Ok(found) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for (text, written) in
            [("a", "a:7313"), ("a:1", "a:1"), ("[::1]", "[::1]:7313"), ("[::1]:9", "[::1]:9"), ("unix:/x", "unix:/x")]
        {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), written);
        }
        for text in ["", ":1", "a:x", "[::1]x"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
