//! Where a server is: what its line says, or what its name resolves to now.

use penstock_config::model::{self, ServerHost, ServerPort};
use std::{
    net::{IpAddr, SocketAddr},
    path::Path,
    sync::Arc,
};

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The host, `None` while its name is not resolved.
    pub host: Option<Host>,
    /// The port.
    pub port: ServerPort,
}

/// Where the checks of a server go, as far as that is not where the server is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckPlace {
    /// `addr`.
    pub addr: Option<IpAddr>,
    /// `port`.
    pub port: Option<u16>,
    /// `addr` is something else than an IP address.
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

    /// Checks go to another place than traffic.
    pub fn is_elsewhere(&self) -> bool {
        self.addr.is_some() || self.port.is_some() || self.other
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

/// What a connection is made to.
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

    /// A server that is here does not lead there. One that is where its client is may be anywhere, and one whose name
    /// does not resolve just now may still be where it was.
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

    /// The target for a client that connected to `dst`: an unspecified address and a relative port come from there.
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
        // A port that follows the client's is any port, an address that does so any address.
        assert!(!at("192.0.2.1", ServerPort::Offset(1)).excludes(&here));
        assert!(!at("0.0.0.0", ServerPort::Fixed(80)).excludes(&here));
        assert!(!Endpoint { host: None, port: ServerPort::Fixed(80) }.excludes(&here));
        assert!(
            Endpoint { host: Some(Host::Unix(Path::new("/run/s").into())), port: ServerPort::Fixed(0) }.excludes(&here)
        );
    }
}
