//! Listening sockets: opened from `bind` lines, one per worker with SO_REUSEPORT, or taken over from another process.

mod bound;
mod identity;

pub(crate) use bound::backlog;
pub use identity::Inherited;

use crate::process::namespaces::Namespaces;
use bound::{Bound, Place};
use penstock_config::{
    Config, Span, Spanned,
    model::{Bind, ListenAddress, Proxy, ProxyId, ProxyKind},
};
use rustix::net::sockopt;
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

/// One listening socket.
#[derive(Debug)]
pub struct Listener {
    /// The frontend, by its place in [`Config::proxies`].
    pub proxy: ProxyId,
    /// The `bind` line, by its place in the frontend.
    pub bind: usize,
    /// The worker it belongs to, from 0; `None` for a socket that all workers share.
    pub worker: Option<usize>,
    /// The socket, listening.
    pub socket: OwnedFd,
}

/// The listening sockets of a process.
#[derive(Debug, Default)]
pub struct Listeners {
    /// The sockets of `bind` lines.
    pub list: Vec<Listener>,
    /// The sockets of `stats socket` lines: each line's place in the configuration, and its socket.
    pub stats: Vec<(usize, OwnedFd)>,
    /// The sockets of `peers` sections: the section's place in the configuration, its `bind` line, and the socket.
    pub peers: Vec<(usize, usize, OwnedFd)>,
    /// The sockets of `log-forward` sections.
    pub logs: Vec<LogSocket>,
    /// Whether another process has handed over its sockets: it will also hand over its stick tables.
    pub succeeds: bool,
}

/// A socket of a `log-forward` section.
#[derive(Debug)]
pub struct LogSocket {
    /// The section's place in the configuration.
    pub section: usize,
    /// Its `bind` line; `None` for datagrams.
    pub bind: Option<usize>,
    /// The socket.
    pub socket: OwnedFd,
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
    /// The step that failed: `create`, `bind`, `listen`, `resolve`, `adopt`.
    pub step: &'static str,
    /// The system's error.
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
    /// Opens a socket for each worker on every address of every enabled frontend, and one for each stats socket.
    /// Sockets found in `inherited` are taken over instead, with the connections in their queues; those that no line
    /// names are closed.
    ///
    /// If the former process had more workers, its extra sockets are kept too, because closing one would reset the
    /// connections in its queue. New sockets receive no connection before all of them are bound, so that a process that
    /// fails to start has accepted none.
    ///
    /// # Errors
    ///
    /// One error for each address that cannot be listened on; then no socket is kept.
    pub fn open(
        config: &Config,
        namespaces: &Namespaces,
        workers: usize,
        mut inherited: Inherited,
    ) -> Result<Self, Vec<ListenError>> {
        let stats = stats_sockets(config);
        let enabled = config.proxies.entries().filter(|(_, proxy)| !proxy.disabled && proxy.kind.has_frontend());
        let others = [peers_sockets(config), log_sockets(config)].concat();
        let of_others = others.iter().map(|(owner, proxy)| (*owner, proxy));
        let proxies = enabled.map(|(id, proxy)| (Owner::Proxy(id), proxy)).chain([(Owner::Stats, &stats)]);
        let proxies: Vec<_> = proxies.chain(of_others).collect();
        let succeeds = !inherited.is_empty() || inherited.takes_over();
        let mut all = Vec::new();
        // This comes before the first socket of our own.
        let mut errors = if inherited.takes_over() { Vec::new() } else { strangers(&proxies, namespaces, &inherited) };
        if !errors.is_empty() {
            return Err(errors);
        }
        for (owner, proxy) in proxies {
            for (bind_index, bind) in proxy.binds.iter().enumerate() {
                for written in &bind.addresses {
                    let fail = move |(step, source)| ListenError {
                        proxy: proxy.name.clone(),
                        span: written.span,
                        address: describe(&written.value),
                        step,
                        source,
                    };
                    for address in single_ports(&written.value) {
                        // One thread answers all commands, one speaks with all peers, and one receives all messages.
                        let workers = if matches!(owner, Owner::Proxy(_)) { workers } else { 1 };
                        let place = Place { proxy, bind, namespaces };
                        match Bound::new(place, &address, owner.datagrams(), workers, &mut inherited) {
                            Ok(bound) => all.push((owner, bind_index, bound, fail)),
                            Err(e) => errors.push(fail(e)),
                        }
                    }
                }
            }
        }
        if !errors.is_empty() {
            all.iter().for_each(|(_, _, bound, _)| bound.abandon());
            return Err(errors);
        }
        let mut listeners = Listeners { succeeds, ..Listeners::default() };
        for (owner, bind, mut bound, fail) in all {
            bound.take_rest(&mut inherited);
            match bound.listen() {
                Ok((sockets, is_shared)) => match owner {
                    Owner::Proxy(proxy) => {
                        listeners.list.extend(sockets.into_iter().enumerate().map(|(number, socket)| Listener {
                            proxy,
                            bind,
                            worker: (!is_shared).then_some(number % workers),
                            socket,
                        }))
                    }
                    Owner::Stats => listeners.stats.extend(sockets.into_iter().map(|socket| (bind, socket))),
                    Owner::Peers(section) => {
                        listeners.peers.extend(sockets.into_iter().map(|socket| (section, bind, socket)));
                    }
                    Owner::Logs { section, datagrams } => {
                        let bind = (!datagrams).then_some(bind);
                        let own = sockets.into_iter().map(|socket| LogSocket { section, bind, socket });
                        listeners.logs.extend(own);
                    }
                },
                Err(e) => errors.push(fail(e)),
            }
        }
        if errors.is_empty() { Ok(listeners) } else { Err(errors) }
    }

    /// Duplicates of the sockets, for another process to inherit.
    ///
    /// # Errors
    ///
    /// If there are not enough descriptors.
    pub fn copies(&self) -> io::Result<Vec<OwnedFd>> {
        let stats = self.stats.iter().map(|(_, socket)| socket);
        let peers = self.peers.iter().map(|(_, _, socket)| socket);
        let logs = self.logs.iter().map(|log| &log.socket);
        let all = self.list.iter().map(|listener| &listener.socket).chain(stats).chain(peers).chain(logs);
        all.map(OwnedFd::try_clone).collect()
    }
}

/// To whom a socket belongs.
#[derive(Clone, Copy)]
enum Owner {
    Proxy(ProxyId),
    Stats,
    Peers(usize),
    Logs { section: usize, datagrams: bool },
}

impl Owner {
    /// Whether datagrams are received, and no connections.
    fn datagrams(self) -> bool {
        matches!(self, Owner::Logs { datagrams: true, .. })
    }
}

/// The `bind` lines of each `peers` section as those of a proxy.
fn peers_sockets(config: &Config) -> Vec<(Owner, Proxy)> {
    let sections = config.peers.iter().enumerate().filter(|(_, section)| !section.disabled);
    let proxies = sections.map(|(at, section)| {
        let mut proxy = Proxy::new(section.name.clone(), ProxyKind::Frontend, section.span);
        proxy.binds.extend(section.binds.iter().cloned());
        (Owner::Peers(at), proxy)
    });
    proxies.collect()
}

/// The lines of each `log-forward` section as those of a proxy for connections, and of one for datagrams.
fn log_sockets(config: &Config) -> Vec<(Owner, Proxy)> {
    let sections = config.log_forwards.iter().enumerate();
    let proxies = sections.flat_map(|(section, lines)| {
        [(false, &lines.binds), (true, &lines.datagrams)].map(|(datagrams, binds)| {
            let mut proxy = Proxy::new(lines.name.clone(), ProxyKind::Frontend, lines.span);
            proxy.binds.clone_from(binds);
            proxy.backlog = lines.backlog;
            (Owner::Logs { section, datagrams }, proxy)
        })
    });
    proxies.collect()
}

/// The stats sockets as the `bind` lines of a proxy, as HAProxy treats them.
fn stats_sockets(config: &Config) -> Proxy {
    let mut proxy = Proxy::new("GLOBAL".into(), ProxyKind::Frontend, Span::default());
    for line in &config.global.stats_sockets {
        let address = Spanned { value: line.address.clone(), span: line.span };
        let bind = Bind::new(vec![address], line.span);
        let (mode, user, group) = (line.mode, line.user.clone(), line.group.clone());
        proxy.binds.push(Bind { mode, user, group, ..bind });
    }
    proxy
}

/// An error for each address on which another process listens, if no socket is inherited for it.
fn strangers(proxies: &[(Owner, &Proxy)], namespaces: &Namespaces, inherited: &Inherited) -> Vec<ListenError> {
    let mut errors = Vec::new();
    for (owner, proxy) in proxies {
        for bind in &proxy.binds {
            for written in &bind.addresses {
                for address in single_ports(&written.value) {
                    let place = Place { proxy, bind, namespaces };
                    if let Err((step, source)) = bound::refuse_stranger(place, &address, owner.datagrams(), inherited) {
                        let (proxy, span) = (proxy.name.clone(), written.span);
                        errors.push(ListenError { proxy, span, address: describe(&address), step, source });
                    }
                }
            }
        }
    }
    errors
}

/// Splits a port range into one address per port.
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

/// An address as HAProxy's messages show it.
pub(crate) fn describe(address: &ListenAddress) -> String {
    match address {
        ListenAddress::Ip { ip, first, last } if first == last => format!("{ip}:{first}"),
        ListenAddress::Ip { ip, first, last } => format!("{ip}:{first}-{last}"),
        ListenAddress::Host { host, first, last } if first == last => format!("{host}:{first}"),
        ListenAddress::Host { host, first, last } => format!("{host}:{first}-{last}"),
        ListenAddress::Unix(path) => path.display().to_string(),
        ListenAddress::Abstract(name) => penstock_config::model::shown_abstract(name),
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
