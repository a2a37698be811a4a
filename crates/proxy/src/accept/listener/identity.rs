//! The identity of a listening socket, whichever process opened it, read from the socket itself.

use penstock_config::model::Bind;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::{
    collections::HashMap,
    ffi::OsStr,
    io,
    net::SocketAddr,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

/// Two sockets with the same identity receive the same clients' connections.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Identity {
    Tcp {
        address: SocketAddr,
        interface: Option<Vec<u8>>,
        only_v6: bool,
        transparent: bool,
        namespace: Option<u64>,
    },
    /// A socket that receives datagrams from anybody.
    Udp {
        address: SocketAddr,
        namespace: Option<u64>,
    },
    Unix(PathBuf),
    Abstract {
        name: Vec<u8>,
        namespace: Option<u64>,
    },
}

impl Identity {
    /// That of a name in the abstract namespace, whether or not zeros follow it.
    pub fn named(name: impl AsRef<[u8]>, namespace: Option<u64>) -> Self {
        Identity::Abstract { name: without_padding(name.as_ref()).to_owned(), namespace }
    }

    /// The identity of the TCP socket that a `bind` line asks for on an address, in the network namespace with this number.
    ///
    /// # Errors
    /// If the kernel's default for `bindv6only` cannot be read.
    pub fn tcp(bind: &Bind, address: SocketAddr, namespace: Option<u64>) -> io::Result<Self> {
        let only_v6 = match address {
            SocketAddr::V4(_) => false,
            SocketAddr::V6(_) if bind.v6only || bind.v4v6 => bind.v6only,
            // The system's default (net.ipv6.bindv6only).
            SocketAddr::V6(_) => Socket::new(Domain::IPV6, Type::STREAM, None)?.only_v6()?,
        };
        let interface = bind.interface.as_ref().map(|name| name.as_bytes().to_vec());
        Ok(Identity::Tcp { address, interface, only_v6, transparent: bind.transparent, namespace })
    }

    /// The identity of a socket; `None` if no `bind` line can ask for such a socket.
    ///
    /// # Errors
    ///
    /// If the descriptor is not a socket.
    fn of(socket: &OwnedFd) -> io::Result<Option<Self>> {
        let namespace = penstock_sys::namespace_of(socket.as_fd());
        let socket = SockRef::from(socket);
        let own = socket.local_addr()?;
        if socket.r#type()? == Type::DGRAM && matches!(socket.domain()?, Domain::IPV4 | Domain::IPV6) {
            let is_connected = socket.peer_addr().is_ok();
            return Ok(own.as_socket().filter(|_| !is_connected).map(|address| Identity::Udp { address, namespace }));
        }
        if socket.r#type()? != Type::STREAM || !socket.is_listener()? {
            return Ok(None);
        }
        Ok(match socket.domain()? {
            Domain::UNIX => match own.as_pathname() {
                Some(path) => Some(Identity::Unix(without_suffix(path).to_owned())),
                None => {
                    let name = own.as_abstract_namespace();
                    name.map(|name| Identity::named(name, namespace))
                }
            },
            Domain::IPV4 | Domain::IPV6 if socket.protocol()? == Some(Protocol::TCP) => {
                let Some(address) = own.as_socket() else { return Ok(None) };
                let (only_v6, transparent) = match address {
                    SocketAddr::V4(_) => (false, socket.ip_transparent_v4()?),
                    SocketAddr::V6(_) => (socket.only_v6()?, socket.ip_transparent_v6()?),
                };
                // Without the scope id of a link-local address, for which the interface stands.
                let address = SocketAddr::new(address.ip(), address.port());
                Some(Identity::Tcp { address, interface: socket.device()?, only_v6, transparent, namespace })
            }
            _ => None,
        })
    }
}

/// A unix socket is bound under a temporary name, `PATH.PID.tmp`, and then moved to its path; the kernel keeps
/// reporting the temporary name.
fn without_suffix(path: &Path) -> &Path {
    let stem = || {
        let name = path.as_os_str().as_bytes().strip_suffix(b".tmp")?;
        let dot = name.iter().rposition(|&c| c == b'.')?;
        let is_pid = dot + 1 < name.len() && name[dot + 1..].iter().all(u8::is_ascii_digit);
        is_pid.then(|| Path::new(OsStr::from_bytes(&name[..dot])))
    };
    stem().unwrap_or(path)
}

/// HAProxy pads the name of an abstract socket with zeros.
fn without_padding(name: &[u8]) -> &[u8] {
    let end = name.iter().rposition(|&c| c != 0).map_or(0, |last| last + 1);
    &name[..end]
}

/// Listening sockets of another process.
#[derive(Debug, Default)]
pub struct Inherited {
    sockets: HashMap<Identity, Vec<OwnedFd>>,
    /// Whether the processes that listen on the same addresses have been told to end, or will be.
    takes_over: bool,
}

impl Inherited {
    /// Identifies each socket; those that no `bind` line can ask for are closed.
    ///
    /// # Errors
    ///
    /// If a descriptor is not a socket.
    pub fn new(descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        let mut inherited = Inherited::default();
        for descriptor in descriptors {
            if let Some(identity) = Identity::of(&descriptor)? {
                inherited.sockets.entry(identity).or_default().push(descriptor);
            }
        }
        Ok(inherited)
    }

    /// Sets whether this process was told to replace another one, and so may share the addresses on which that one
    /// listens.
    pub fn taking_over(self, takes_over: bool) -> Self {
        Inherited { takes_over, ..self }
    }

    pub(super) fn takes_over(&self) -> bool {
        self.takes_over
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// Whether a socket has this identity, or one that may keep it from being bound.
    pub(super) fn concerns(&self, identity: &Identity) -> bool {
        let port = |identity: &Identity| match identity {
            Identity::Tcp { address, .. } => Some(address.port()),
            Identity::Udp { .. } | Identity::Unix(_) | Identity::Abstract { .. } => None,
        };
        let is_near = |own: &Identity| own == identity || port(own).is_some_and(|own| port(identity) == Some(own));
        self.sockets.keys().any(is_near)
    }

    /// Takes a socket of that identity.
    pub(super) fn take(&mut self, identity: &Identity) -> Option<OwnedFd> {
        self.sockets.get_mut(identity)?.pop()
    }

    /// Takes all remaining sockets of that identity.
    pub(super) fn take_rest(&mut self, identity: &Identity) -> Vec<OwnedFd> {
        self.sockets.remove(identity).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_config::Span;

    #[test]
    fn a_unix_socket_is_known_by_its_path_and_not_by_the_name_it_was_bound_under() {
        for (bound, path) in [
            ("/run/a.sock.123.tmp", "/run/a.sock"),
            ("/run/a.1.tmp.22.tmp", "/run/a.1.tmp"),
            ("/run/a.sock", "/run/a.sock"),
            ("/run/a..tmp", "/run/a..tmp"),
            ("/run/a.1x.tmp", "/run/a.1x.tmp"),
            ("/run/.tmp", "/run/.tmp"),
        ] {
            assert_eq!(without_suffix(Path::new(bound)), Path::new(path));
        }
        assert_eq!(without_padding(b"name\0\0"), b"name");
    }

    #[test]
    fn only_a_socket_that_hears_strangers_has_an_identity() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connected = std::net::TcpStream::connect(address).unwrap();
        let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let namespace = penstock_sys::namespace_of(listener.as_fd());
        let wanted = Identity::tcp(&Bind::new(Vec::new(), Span::default()), address, namespace).unwrap();
        assert_eq!(Identity::of(&listener.into()).unwrap(), Some(wanted));
        assert_eq!(Identity::of(&connected.into()).unwrap(), None);
        let heard = Identity::Udp { address: datagrams.local_addr().unwrap(), namespace };
        let answering = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        answering.connect(datagrams.local_addr().unwrap()).unwrap();
        assert_eq!(Identity::of(&datagrams.into()).unwrap(), Some(heard));
        assert_eq!(Identity::of(&answering.into()).unwrap(), None);
        assert!(Identity::of(&file.into()).is_err());
    }

    #[test]
    fn what_a_bind_line_says_of_its_socket_tells_it_from_others() {
        let identity = |change: fn(&mut Bind), address: &str| {
            let mut bind = Bind::new(Vec::new(), Span::default());
            change(&mut bind);
            Identity::tcp(&bind, address.parse().unwrap(), None).unwrap()
        };
        let plain = identity(|_| {}, "[::]:80");
        assert_eq!(plain, identity(|bind| bind.mss = Some(1400), "[::]:80"));
        assert_ne!(plain, identity(|_| {}, "[::]:81"));
        assert_ne!(plain, identity(|bind| bind.interface = Some("lo".into()), "[::]:80"));
        assert_ne!(plain, identity(|bind| bind.transparent = true, "[::]:80"));
        assert_ne!(identity(|bind| bind.v4v6 = true, "[::]:80"), identity(|bind| bind.v6only = true, "[::]:80"));
        assert_eq!(identity(|bind| bind.v4v6 = true, "0.0.0.0:80"), identity(|bind| bind.v6only = true, "0.0.0.0:80"));
    }
}
