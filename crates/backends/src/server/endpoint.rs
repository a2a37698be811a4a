//! The address of a server: the one in its line, or the one that its name currently resolves to.

use penstock_config::model::{self, ServerHost, ServerPort};
use std::{
    net::{IpAddr, SocketAddr},
    path::Path,
    sync::Arc,
};

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The host; `None` while its name is not resolved.
    pub host: Option<Host>,
    /// The port.
    pub port: ServerPort,
}

/// The address of a server's checks, as far as it differs from the server's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckPlace {
    /// `addr`.
    pub addr: Option<IpAddr>,
    /// `port`.
    pub port: Option<u16>,
    /// Whether `addr` is something other than an IP address.
    other: bool,
}

impl CheckPlace {
    pub(super) fn configured(server: &model::Server) -> CheckPlace {
        let check = &server.settings.check;
        let addr = match &check.addr {
            Some(ServerHost::Ip(ip)) => Some(*ip),
            _ => None,
        };
        CheckPlace { addr, port: check.port, other: check.addr.is_some() && addr.is_none() }
    }

    /// Whether checks go to a different address than traffic.
    pub fn is_elsewhere(&self) -> bool {
        self.addr.is_some() || self.port.is_some() || self.other
    }
}

/// How a server's agent is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentPlace {
    /// `agent-addr`; without one, the agent is at the server's address.
    pub addr: Option<IpAddr>,
    /// `agent-port`.
    pub port: u16,
    /// `agent-send`.
    pub send: String,
}

impl AgentPlace {
    pub(super) fn configured(server: &model::Server) -> AgentPlace {
        let Some(agent) = &server.settings.agent else { return AgentPlace::default() };
        let addr = match &agent.addr {
            Some(ServerHost::Ip(ip)) => Some(*ip),
            _ => None,
        };
        AgentPlace { addr, port: agent.port, send: agent.send.clone().unwrap_or_default() }
    }
}

/// A resolved host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// An IP address.
    Ip(IpAddr),
    /// A unix socket.
    Unix(Arc<Path>),
    /// A socket in the abstract namespace.
    Abstract(Arc<str>),
}

/// The address that a connection is made to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// An address and port.
    Ip(SocketAddr),
    /// A unix socket.
    Unix(Arc<Path>),
    /// A socket in the abstract namespace.
    Abstract(Arc<str>),
}

impl Endpoint {
    pub(super) fn configured(server: &model::Server) -> Endpoint {
        let host = match &server.host {
            ServerHost::Ip(ip) => Some(Host::Ip(*ip)),
            ServerHost::Name(_) => None,
            ServerHost::Unix(path) => Some(Host::Unix(path.as_path().into())),
            ServerHost::Abstract(name) => Some(Host::Abstract(name.as_str().into())),
        };
        Endpoint { host, port: server.port }
    }

    /// Whether a connection to `target` cannot belong to a server with this address. A server whose address is its
    /// client's may be anywhere, and one whose name does not resolve at present may still be where it was.
    pub fn excludes(&self, target: &Target) -> bool {
        match (&self.host, target) {
            (None, _) => false,
            (Some(Host::Ip(ip)), Target::Ip(address)) => {
                !ip.is_unspecified() && *ip != address.ip()
                    || matches!(self.port, ServerPort::Fixed(port) if port != address.port())
            }
            (Some(Host::Unix(path)), Target::Unix(to)) => path != to,
            (Some(Host::Abstract(name)), Target::Abstract(to)) => name != to,
            _ => true,
        }
    }

    /// Whether the address is that which the client has connected to.
    pub fn is_clients(&self) -> bool {
        matches!(&self.host, Some(Host::Ip(ip)) if ip.is_unspecified())
    }

    /// The target for a client that connected to `dst`, which replaces an unspecified address and is the base of a
    /// relative port.
    pub fn target(&self, dst: Option<SocketAddr>) -> Option<Target> {
        match self.host.as_ref()? {
            Host::Unix(path) => Some(Target::Unix(path.clone())),
            Host::Abstract(name) => Some(Target::Abstract(name.clone())),
            Host::Ip(ip) => {
                let ip = if ip.is_unspecified() { dst.map_or(*ip, |dst| dst.ip()) } else { *ip };
                let port = match self.port {
                    ServerPort::Fixed(port) => port,
                    ServerPort::Offset(offset) => {
                        u16::try_from(i32::from(dst.map_or(0, |dst| dst.port())) + offset).ok()?
                    }
                };
                Some(Target::Ip(SocketAddr::new(ip, port)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_moved_has_left_its_old_address() {
        let at = |ip: &str, port| Endpoint { host: Some(Host::Ip(ip.parse().expect("an address"))), port };
        let here = Target::Ip("192.0.2.1:80".parse().expect("an address"));
        assert!(!at("192.0.2.1", ServerPort::Fixed(80)).excludes(&here));
        assert!(at("192.0.2.2", ServerPort::Fixed(80)).excludes(&here));
        assert!(at("192.0.2.1", ServerPort::Fixed(81)).excludes(&here));
        // A port relative to the client's can be any port, and an address taken from the client any address.
        assert!(!at("192.0.2.1", ServerPort::Offset(1)).excludes(&here));
        assert!(!at("0.0.0.0", ServerPort::Fixed(80)).excludes(&here));
        assert!(!Endpoint { host: None, port: ServerPort::Fixed(80) }.excludes(&here));
        assert!(
            Endpoint { host: Some(Host::Unix(Path::new("/run/s").into())), port: ServerPort::Fixed(0) }.excludes(&here)
        );
    }
}
