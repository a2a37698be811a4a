//! The sockets of one address of a `bind` line, in two steps: first they are bound, which is where most failures
//! happen, and then they listen.

use super::identity::{Identity, Inherited};
use crate::{connection::sockopt, process::namespaces::Namespaces};
use penstock_config::model::{Account, Bind, ListenAddress, Proxy};
use rustix::fs::{Gid, Mode, Uid};
use socket2::{Domain, SockAddr, SockRef, Socket, Type};
use std::{
    io::{self, BufRead},
    net::{SocketAddr, ToSocketAddrs},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::FileTypeExt,
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// The step that failed, and the system's error.
pub(super) type Failed = (&'static str, io::Error);

/// What an address stands for on this system.
enum Target {
    Tcp(SocketAddr),
    Udp(SocketAddr),
    Unix(PathBuf),
    Abstract(String),
    Fd(i32),
}

/// Where the address stands, and what it needs of the process.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub proxy: &'a Proxy,
    pub bind: &'a Bind,
    pub namespaces: &'a Namespaces,
}

impl Place<'_> {
    /// Calls `open` in the network namespace of the line.
    fn within<T>(&self, open: impl FnOnce() -> T) -> Result<T, Failed> {
        let name = self.bind.namespace.as_ref().map(|name| &*name.value);
        self.namespaces.within(name, open).map_err(|e| ("create", e))
    }
}

/// The sockets of one address.
pub(super) struct Bound<'a> {
    place: Place<'a>,
    target: Target,
    identity: Option<Identity>,
    /// Whether every worker accepts from each of them.
    is_shared: bool,
    /// Sockets that already listen.
    inherited: Vec<OwnedFd>,
    fresh: Vec<OwnedFd>,
}

/// How long another process may take to close a socket that a reload has told it to close.
const CLOSING: Duration = Duration::from_millis(500);

/// Fails if another process listens on the address and none of its sockets was inherited. The system would let both
/// share the address, and each would get some of the clients.
pub(super) fn refuse_stranger(
    place: Place<'_>,
    address: &ListenAddress,
    datagrams: bool,
    inherited: &Inherited,
) -> Result<(), Failed> {
    let target = Target::of(address, datagrams)?;
    let identity = target.identity(place).map_err(|e| ("create", e))?;
    if identity.is_some_and(|identity| inherited.concerns(&identity)) {
        return Ok(());
    }
    let begun = Instant::now();
    while place.within(|| target.is_taken())? {
        if inherited.is_empty() || begun.elapsed() > CLOSING {
            return Err(("bind", rustix::io::Errno::ADDRINUSE.into()));
        }
        std::thread::sleep(CLOSING / 20);
    }
    Ok(())
}

impl<'a> Bound<'a> {
    /// Takes over as many inherited sockets as are needed, and binds those that are missing.
    ///
    /// # Errors
    /// If an address cannot be bound, or a socket cannot be set up as the line says.
    pub fn new(
        place: Place<'a>,
        address: &ListenAddress,
        datagrams: bool,
        workers: usize,
        inherited: &mut Inherited,
    ) -> Result<Self, Failed> {
        let target = Target::of(address, datagrams)?;
        let identity = target.identity(place).map_err(|e| ("create", e))?;
        // The system does not allow a second socket for these.
        let is_shared = !matches!(target, Target::Tcp(_) | Target::Udp(_));
        let mut bound = Bound { place, target, identity, is_shared, inherited: Vec::new(), fresh: Vec::new() };
        for _ in 0..if is_shared { 1 } else { workers } {
            match bound.identity.as_ref().and_then(|identity| inherited.take(identity)) {
                Some(socket) => bound.inherited.push(socket),
                None => match place.within(|| bound.open()).flatten() {
                    Ok(socket) => bound.fresh.push(socket),
                    // The inherited socket was opened by another user, or by a program that does not share addresses:
                    // there can be no more of them.
                    Err((_, e)) if e.kind() == io::ErrorKind::AddrInUse && !bound.inherited.is_empty() => {
                        bound.is_shared = true;
                        break;
                    }
                    Err(e) => return Err(e),
                },
            }
        }
        Ok(bound)
    }

    /// Takes over the inherited sockets that no other line of the same address has claimed.
    pub fn take_rest(&mut self, inherited: &mut Inherited) {
        if let Some(identity) = &self.identity {
            self.inherited.extend(inherited.take_rest(identity));
        }
    }

    /// Makes the sockets listen as the line says. Returns them, and whether all workers share them.
    ///
    /// # Errors
    /// If the kernel refuses a setting, or to listen.
    pub fn listen(self) -> Result<(Vec<OwnedFd>, bool), Failed> {
        match &self.target {
            Target::Tcp(_) => {
                self.inherited.iter().try_for_each(|socket| self.settle(SockRef::from(socket), true))?;
                self.fresh.iter().try_for_each(|socket| self.settle(SockRef::from(socket), false))?;
            }
            Target::Unix(path) => {
                if !self.inherited.is_empty() {
                    self.give_rights(path)?;
                }
                self.inherited.iter().try_for_each(|socket| self.fill(SockRef::from(socket)))?;
                for socket in &self.fresh {
                    // Until the new socket is moved to the path that clients use, the predecessor's socket answers
                    // there.
                    let temporary = temporary(path);
                    let ready = self.give_rights(&temporary).and_then(|()| self.fill(SockRef::from(socket)));
                    let moved = ready.and_then(|()| std::fs::rename(&temporary, path).map_err(|e| ("bind", e)));
                    moved.inspect_err(|_| self.abandon())?;
                }
            }
            Target::Abstract(_) => {
                self.inherited.iter().chain(&self.fresh).try_for_each(|socket| self.fill(SockRef::from(socket)))?;
            }
            Target::Udp(_) | Target::Fd(_) => {}
        }
        let mut sockets = self.inherited;
        sockets.extend(self.fresh);
        Ok((sockets, self.is_shared))
    }

    /// Removes what [`Bound::new`] created in the file system.
    pub fn abandon(&self) {
        if let (Target::Unix(path), false) = (&self.target, self.fresh.is_empty()) {
            let _ = std::fs::remove_file(temporary(path));
        }
    }

    /// Opens a new socket and binds it.
    fn open(&self) -> Result<OwnedFd, Failed> {
        let unix = || Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None).map_err(|e| ("create", e));
        let bound = |e| ("bind", e);
        match &self.target {
            Target::Tcp(address) => self.open_net(*address, Type::STREAM),
            Target::Udp(address) => self.open_net(*address, Type::DGRAM),
            Target::Unix(path) => {
                let temporary = temporary(path);
                match std::fs::remove_file(&temporary) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(bound(e)),
                    _ => {}
                }
                let socket = unix()?;
                socket.bind(&SockAddr::unix(&temporary).map_err(bound)?).map_err(bound)?;
                Ok(socket.into())
            }
            Target::Abstract(name) => {
                let socket = unix()?;
                socket.bind(&SockAddr::unix(format!("\0{name}")).map_err(bound)?).map_err(bound)?;
                Ok(socket.into())
            }
            Target::Fd(number) => penstock_sys::adopt_listener(*number).map_err(|e| ("adopt", e)),
        }
    }

    fn open_net(&self, address: SocketAddr, kind: Type) -> Result<OwnedFd, Failed> {
        let create = |e| ("create", e);
        let bind = self.place.bind;
        let socket = Socket::new(Domain::for_address(address), kind.nonblocking().cloexec(), None).map_err(create)?;
        socket.set_reuse_address(true).map_err(create)?;
        socket.set_reuse_port(true).map_err(create)?;
        if address.is_ipv6() && (bind.v6only || bind.v4v6) {
            socket.set_only_v6(bind.v6only).map_err(create)?;
        }
        if let Some(interface) = &bind.interface {
            socket.bind_device(Some(interface.as_bytes())).map_err(create)?;
        }
        if bind.transparent {
            match address {
                SocketAddr::V4(_) => socket.set_ip_transparent_v4(true).map_err(create)?,
                SocketAddr::V6(_) => socket.set_ip_transparent_v6(true).map_err(create)?,
            }
        }
        socket.bind(&address.into()).map_err(|e| ("bind", e))?;
        Ok(socket.into())
    }

    /// Sets every option of a TCP socket that can be changed while it listens, and therefore by a reload. An inherited
    /// socket may have options that the line no longer asks for.
    fn settle(&self, socket: SockRef<'_>, is_inherited: bool) -> Result<(), Failed> {
        let create = |e| ("create", e);
        let Place { proxy, bind, .. } = self.place;
        // Accepted sockets inherit these options, which saves a system call per connection.
        socket.set_tcp_nodelay(true).map_err(create)?;
        if proxy.options.clitcpka {
            sockopt::keep_alive(&socket, proxy.options.clitcpka_probes, is_inherited).map_err(create)?;
        } else if is_inherited {
            socket.set_keepalive(false).map_err(create)?;
        }
        if bind.mss.is_some() || is_inherited {
            socket.set_tcp_mss(bind.mss.unwrap_or(0)).map_err(create)?;
        }
        if bind.tcp_ut.is_some() || is_inherited {
            socket.set_tcp_user_timeout(bind.tcp_ut).map_err(create)?;
        }
        if bind.defer_accept || is_inherited {
            penstock_sys::set_defer_accept(socket.as_fd(), bind.defer_accept.into()).map_err(create)?;
        }
        if bind.tfo || is_inherited {
            let queue = if bind.tfo { self.backlog() } else { 0 };
            penstock_sys::set_fast_open(socket.as_fd(), queue).map_err(create)?;
        }
        self.fill(socket)
    }

    /// Starts listening, so that the system fills its queue.
    fn fill(&self, socket: SockRef<'_>) -> Result<(), Failed> {
        socket.listen(self.backlog()).map_err(|e| ("listen", e))
    }

    fn backlog(&self) -> i32 {
        backlog(self.place.proxy, self.place.bind)
    }

    /// Applies `user`, `group` and `mode`.
    fn give_rights(&self, path: &Path) -> Result<(), Failed> {
        let bound = |e: io::Error| ("bind", e);
        let owner = self.place.bind.user.as_ref().map(user_id).transpose().map_err(bound)?.map(Uid::from_raw);
        let group = self.place.bind.group.as_ref().map(group_id).transpose().map_err(bound)?.map(Gid::from_raw);
        if owner.is_some() || group.is_some() {
            rustix::fs::chown(path, owner, group).map_err(|e| bound(e.into()))?;
        }
        if let Some(mode) = self.place.bind.mode {
            rustix::fs::chmod(path, Mode::from_raw_mode(mode)).map_err(|e| bound(e.into()))?;
        }
        Ok(())
    }
}

impl Target {
    /// Resolves the address; a host name stands for its first address.
    fn of(address: &ListenAddress, datagrams: bool) -> Result<Self, Failed> {
        let net = if datagrams { Target::Udp } else { Target::Tcp };
        Ok(match address {
            ListenAddress::Ip { ip, first, .. } => net(SocketAddr::new(*ip, *first)),
            ListenAddress::Host { host, first, .. } => {
                let mut found = (host.as_str(), *first).to_socket_addrs().map_err(|e| ("resolve", e))?;
                net(found.next().ok_or_else(|| ("resolve", io::Error::from(io::ErrorKind::NotFound)))?)
            }
            ListenAddress::Unix(path) => Target::Unix(path.clone()),
            ListenAddress::Abstract(name) => Target::Abstract(name.clone()),
            ListenAddress::Fd(number) => Target::Fd(*number),
        })
    }

    /// Whether another process listens there. Only asked for addresses that the system would let two processes share.
    fn is_taken(&self) -> bool {
        match self {
            // Two sockets share a port only if both have SO_REUSEPORT, which this one lacks.
            Target::Tcp(address) if address.port() != 0 => {
                let probe = Socket::new(Domain::for_address(*address), Type::STREAM.cloexec(), None);
                let bound = probe.and_then(|probe| {
                    probe.set_reuse_address(true)?;
                    if address.is_ipv6() {
                        probe.set_only_v6(true)?;
                    }
                    probe.bind(&(*address).into())
                });
                bound.is_err_and(|e| e.kind() == io::ErrorKind::AddrInUse) && somebody_listens(address.port())
            }
            Target::Udp(address) if address.port() != 0 => {
                let probe = Socket::new(Domain::for_address(*address), Type::DGRAM.cloexec(), None);
                probe
                    .and_then(|probe| probe.bind(&(*address).into()))
                    .is_err_and(|e| e.kind() == io::ErrorKind::AddrInUse)
            }
            // A socket file on which no process answers is stale.
            Target::Unix(path) => {
                let asked = Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)
                    .and_then(|socket| socket.connect(&SockAddr::unix(path)?));
                match asked {
                    Ok(()) => true,
                    // Something listens, but its queue is full.
                    Err(e) => e.kind() == io::ErrorKind::WouldBlock,
                }
            }
            Target::Tcp(_) | Target::Udp(_) | Target::Abstract(_) | Target::Fd(_) => false,
        }
    }

    /// The identity by which an inherited socket for this address is recognised; `None` if an inherited one cannot be
    /// used.
    fn identity(&self, place: Place<'_>) -> io::Result<Option<Identity>> {
        let Place { bind, namespaces, .. } = place;
        let namespace = namespaces.number_of(bind);
        if bind.namespace.is_some() && namespace.is_none() {
            return Ok(None);
        }
        Ok(match self {
            Target::Tcp(address) => Some(Identity::tcp(bind, *address, namespace)?),
            Target::Udp(address) => Some(Identity::Udp { address: *address, namespace }),
            // Without its file, no client would find it.
            Target::Unix(path) => {
                let is_there = std::fs::metadata(path).is_ok_and(|file| file.file_type().is_socket());
                is_there.then(|| Identity::Unix(path.clone()))
            }
            Target::Abstract(name) => Some(Identity::named(name, namespace)),
            // The parent process still has it.
            Target::Fd(_) => None,
        })
    }
}

/// Whether a socket of this network namespace listens on the port; a socket that is only bound reserves the port for
/// its process. This is read only if the port was found in use, since the system's table also lists all connections.
fn somebody_listens(port: u16) -> bool {
    let listens = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let own = fields.next().and_then(|address| u16::from_str_radix(address.rsplit(':').next()?, 16).ok());
        // TCP_LISTEN.
        own == Some(port) && fields.nth(1) == Some("0A")
    };
    ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"].iter().any(|table| {
        let Ok(table) = std::fs::File::open(table) else { return false };
        io::BufReader::new(table).lines().map_while(Result::ok).any(|line| listens(&line))
    })
}

fn temporary(path: &Path) -> PathBuf {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.tmp", std::process::id()));
    PathBuf::from(temporary)
}

/// The size of a listening socket's queue if neither `backlog` nor `maxconn` is set; the system caps it by somaxconn.
const BACKLOG: u32 = 4096;

/// How many connections may wait to be accepted.
pub(crate) fn backlog(proxy: &Proxy, bind: &Bind) -> i32 {
    let backlog = bind.backlog.or(proxy.backlog).or(proxy.maxconn).unwrap_or(BACKLOG);
    i32::try_from(backlog).unwrap_or(i32::MAX)
}

fn user_id(account: &Account) -> io::Result<u32> {
    match account {
        Account::Id(id) => Ok(*id),
        Account::Name(name) => penstock_sys::user(name)?.map(|u| u.uid).ok_or_else(|| unknown("user", name)),
    }
}

fn group_id(account: &Account) -> io::Result<u32> {
    match account {
        Account::Id(id) => Ok(*id),
        Account::Name(name) => penstock_sys::group(name)?.map(|g| g.gid).ok_or_else(|| unknown("group", name)),
    }
}

fn unknown(what: &str, name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("no {what} named '{name}'"))
}
