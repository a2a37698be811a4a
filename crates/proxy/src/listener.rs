//! Listening sockets: opened from `bind` lines, one a worker with SO_REUSEPORT, or taken over from another process.

use penstock_config::{
    Config, Span,
    model::{Account, Bind, ListenAddress, Proxy},
};
use rustix::{
    fs::{Gid, Mode, Uid},
    net::sockopt,
};
use socket2::{Domain, SockAddr, Socket, Type};
use std::{
    io,
    net::{SocketAddr, ToSocketAddrs},
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

/// One listening socket of one worker.
#[derive(Debug)]
pub struct Listener {
    /// The frontend, by its place in [`Config::proxies`].
    pub proxy: usize,
    /// The `bind` line, by its place in the proxy.
    pub bind: usize,
    /// The address with a single port, which names the socket to an heir.
    pub address: ListenAddress,
    /// The worker it belongs to, from 0.
    pub worker: usize,
    /// The socket, listening.
    pub socket: OwnedFd,
}

/// The listening sockets of a process: may be handed to the next one, which looks its own addresses up among them.
#[derive(Debug, Default)]
pub struct Listeners {
    /// All of them.
    pub list: Vec<Listener>,
}

/// Why a `bind` line has no socket.
#[derive(Debug)]
pub struct ListenError {
    /// The frontend.
    pub proxy: String,
    /// The address in the file.
    pub span: Span,
    /// The address as text.
    pub address: String,
    /// What was being done: `create`, `bind`, `listen`, `resolve`, `adopt`.
    pub step: &'static str,
    /// What the system answered.
    pub source: io::Error,
}

impl std::fmt::Display for ListenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let reason = match self.source.raw_os_error() {
            Some(libc_errno) => rustix::io::Errno::from_raw_os_error(libc_errno).to_string(),
            None => self.source.to_string(),
        };
        write!(f, "Starting frontend {}: cannot {} socket ({}) [{}]", self.proxy, self.step, reason, self.address)
    }
}

impl std::error::Error for ListenError {}

impl Listeners {
    /// Opens a socket for each worker on every address of every enabled frontend. Sockets found in `inherited` are
    /// taken over instead; those that no line names any more are closed.
    ///
    /// # Errors
    /// One for each address that cannot be listened on; then no socket is kept.
    pub fn open(config: &Config, workers: usize, mut inherited: Listeners) -> Result<Self, Vec<ListenError>> {
        let mut opened = Listeners::default();
        let mut errors = Vec::new();
        for (proxy_index, proxy) in config.proxies.iter().enumerate() {
            if proxy.disabled || !proxy.kind.has_frontend() {
                continue;
            }
            for (bind_index, bind) in proxy.binds.iter().enumerate() {
                for written in &bind.addresses {
                    let fail = |(step, source)| ListenError {
                        proxy: proxy.name.clone(),
                        span: written.span,
                        address: describe(&written.value),
                        step,
                        source,
                    };
                    for address in single_ports(&written.value) {
                        match open_one(proxy, bind, &address, workers, &mut inherited) {
                            Ok(sockets) => {
                                opened.list.extend(sockets.into_iter().enumerate().map(|(worker, socket)| Listener {
                                    proxy: proxy_index,
                                    bind: bind_index,
                                    address: address.clone(),
                                    worker,
                                    socket,
                                }));
                            }
                            Err(e) => errors.push(fail(e)),
                        }
                    }
                }
            }
        }
        if errors.is_empty() { Ok(opened) } else { Err(errors) }
    }

    fn take(&mut self, address: &ListenAddress) -> Option<OwnedFd> {
        let at = self.list.iter().position(|l| l.address == *address)?;
        Some(self.list.swap_remove(at).socket)
    }
}

type Failed = (&'static str, io::Error);

/// The sockets of one address, one a worker.
fn open_one(
    proxy: &Proxy,
    bind: &Bind,
    address: &ListenAddress,
    workers: usize,
    inherited: &mut Listeners,
) -> Result<Vec<OwnedFd>, Failed> {
    let shared = |first: OwnedFd| {
        // Workers of a socket that cannot be opened twice accept from the same queue.
        let mut all = Vec::with_capacity(workers);
        for _ in 1..workers {
            all.push(first.try_clone().map_err(|e| ("adopt", e))?);
        }
        all.push(first);
        Ok(all)
    };
    match address {
        ListenAddress::Ip { ip, first, .. } => (0..workers)
            .map(|_| match inherited.take(address) {
                Some(socket) => Ok(socket),
                None => open_tcp(proxy, bind, SocketAddr::new(*ip, *first)),
            })
            .collect(),
        ListenAddress::Host { host, first, .. } => {
            let mut found = (host.as_str(), *first).to_socket_addrs().map_err(|e| ("resolve", e))?;
            let found = found.next().ok_or_else(|| ("resolve", io::Error::from(io::ErrorKind::NotFound)))?;
            (0..workers).map(|_| inherited.take(address).map_or_else(|| open_tcp(proxy, bind, found), Ok)).collect()
        }
        ListenAddress::Unix(path) => match inherited.take(address) {
            Some(socket) => shared(socket),
            None => shared(open_unix(proxy, bind, path)?),
        },
        ListenAddress::Abstract(name) => match inherited.take(address) {
            Some(socket) => shared(socket),
            None => shared(open_abstract(proxy, bind, name)?),
        },
        ListenAddress::Fd(number) => match inherited.take(address) {
            Some(socket) => shared(socket),
            None => shared(penstock_sys::adopt_listener(*number).map_err(|e| ("adopt", e))?),
        },
    }
}

/// A listening socket's queue when neither `backlog` nor `maxconn` says anything; the system caps it by somaxconn.
const BACKLOG: u32 = 4096;

fn backlog(proxy: &Proxy, bind: &Bind) -> i32 {
    let backlog = bind.backlog.or(proxy.backlog).or(proxy.maxconn).unwrap_or(BACKLOG);
    i32::try_from(backlog).unwrap_or(i32::MAX)
}

fn open_tcp(proxy: &Proxy, bind: &Bind, address: SocketAddr) -> Result<OwnedFd, Failed> {
    let create = |e| ("create", e);
    let socket =
        Socket::new(Domain::for_address(address), Type::STREAM.nonblocking().cloexec(), None).map_err(create)?;
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
    // Accepted sockets inherit these, which saves a system call on every connection.
    socket.set_tcp_nodelay(true).map_err(create)?;
    if proxy.options.clitcpka {
        socket.set_keepalive(true).map_err(create)?;
    }
    if let Some(mss) = bind.mss {
        socket.set_tcp_mss(mss).map_err(create)?;
    }
    if let Some(timeout) = bind.tcp_ut {
        socket.set_tcp_user_timeout(Some(timeout)).map_err(create)?;
    }
    if bind.defer_accept {
        penstock_sys::set_defer_accept(socket.as_fd(), 1).map_err(create)?;
    }
    if bind.tfo {
        penstock_sys::set_fast_open(socket.as_fd(), backlog(proxy, bind)).map_err(create)?;
    }
    socket.bind(&address.into()).map_err(|e| ("bind", e))?;
    socket.listen(backlog(proxy, bind)).map_err(|e| ("listen", e))?;
    Ok(socket.into())
}

/// Bound under a name of its own, given its rights, and only then moved to where clients look, so that a predecessor's
/// socket answers until this one can.
fn open_unix(proxy: &Proxy, bind: &Bind, path: &Path) -> Result<OwnedFd, Failed> {
    let create = |e| ("create", e);
    let bound = |e: io::Error| ("bind", e);
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = PathBuf::from(temporary);
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None).map_err(create)?;
    match std::fs::remove_file(&temporary) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(bound(e)),
        _ => {}
    }
    socket.bind(&SockAddr::unix(&temporary).map_err(bound)?).map_err(bound)?;
    let finish = || -> Result<(), Failed> {
        let owner = match &bind.user {
            Some(account) => Some(Uid::from_raw(user_id(account).map_err(bound)?)),
            None => None,
        };
        let group = match &bind.group {
            Some(account) => Some(Gid::from_raw(group_id(account).map_err(bound)?)),
            None => None,
        };
        if owner.is_some() || group.is_some() {
            rustix::fs::chown(&temporary, owner, group).map_err(|e| bound(e.into()))?;
        }
        if let Some(mode) = bind.mode {
            rustix::fs::chmod(&temporary, Mode::from_raw_mode(mode)).map_err(|e| bound(e.into()))?;
        }
        socket.listen(backlog(proxy, bind)).map_err(|e| ("listen", e))?;
        std::fs::rename(&temporary, path).map_err(bound)
    };
    finish().inspect_err(|_| drop(std::fs::remove_file(&temporary)))?;
    Ok(socket.into())
}

fn open_abstract(proxy: &Proxy, bind: &Bind, name: &str) -> Result<OwnedFd, Failed> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None).map_err(|e| ("create", e))?;
    let address = SockAddr::unix(format!("\0{name}")).map_err(|e| ("bind", e))?;
    socket.bind(&address).map_err(|e| ("bind", e))?;
    socket.listen(backlog(proxy, bind)).map_err(|e| ("listen", e))?;
    Ok(socket.into())
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

/// One address for each port of a range.
fn single_ports(address: &ListenAddress) -> Vec<ListenAddress> {
    match address {
        ListenAddress::Ip { ip, first, last } => {
            (*first..=*last).map(|port| ListenAddress::Ip { ip: *ip, first: port, last: port }).collect()
        }
        ListenAddress::Host { host, first, last } => {
            (*first..=*last).map(|port| ListenAddress::Host { host: host.clone(), first: port, last: port }).collect()
        }
        other => vec![other.clone()],
    }
}

/// As HAProxy writes an address in its messages.
pub(crate) fn describe(address: &ListenAddress) -> String {
    match address {
        ListenAddress::Ip { ip, first, last } if first == last => format!("{ip}:{first}"),
        ListenAddress::Ip { ip, first, last } => format!("{ip}:{first}-{last}"),
        ListenAddress::Host { host, first, last } if first == last => format!("{host}:{first}"),
        ListenAddress::Host { host, first, last } => format!("{host}:{first}-{last}"),
        ListenAddress::Unix(path) => path.display().to_string(),
        ListenAddress::Abstract(name) => format!("abns@{name}"),
        ListenAddress::Fd(number) => format!("fd@{number}"),
    }
}

/// Whether a listening socket is a unix socket.
pub(crate) fn is_unix(socket: &OwnedFd) -> bool {
    sockopt::socket_domain(socket.as_fd()).is_ok_and(|domain| domain == rustix::net::AddressFamily::UNIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_one_socket_a_port() {
        let range = ListenAddress::Ip { ip: "127.0.0.1".parse().unwrap(), first: 24000, last: 24002 };
        assert_eq!(single_ports(&range).len(), 3);
        assert_eq!(describe(&range), "127.0.0.1:24000-24002");
        assert_eq!(describe(&single_ports(&range)[2]), "127.0.0.1:24002");
    }
}
