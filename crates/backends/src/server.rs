//! Backends and their servers at run time: states, loads and queues, shared by all workers.
//!
//! Configured settings never change and are read without a lock. What a choice needs (counts, weights, queues) is
//! behind one short lock per backend, held for a tree operation and never across an await. What is only read (whether a
//! server is up, how many requests it serves) is copied to atomics whenever the lock changes it.

mod address;
mod agent;
mod backend;
mod change;
mod endpoint;
mod full;
mod membership;
mod observe;
mod saved;
mod slots;
mod status;
mod view;
mod written;

pub use agent::FIXED_WEIGHTS;
pub use backend::Backend;
pub(crate) use backend::Core;
pub use change::{Cause, Command};
pub use endpoint::{AgentPlace, CheckPlace, Endpoint, Host, Target};
pub use membership::{AddError, RemoveError};
pub use observe::Seen;
pub use saved::{SavedError, SavedServer, UnusableServer, read_saved};
pub use slots::Slots;
pub use status::{Admin, Agent, Check, Operational, Status};
pub use view::{BackendView, ServerView};
pub use written::{maxconn_of, weight_of};

use crate::balance::{Member, ring_key_of_id};
use crate::hash::{avalanche, xxh32};
use crate::queue::{Priority, Queued};
use crate::reuse::Key;
use arc_swap::{ArcSwap, ArcSwapOption};
use penstock_config::{
    Config,
    model::{self, HashKey, PerProxy, ProxyId, ServerHost, ServerPort, StatsLevel},
};
use penstock_rules::By;
pub use penstock_rules::{ServerId, ServerRef};
use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// An event of a server, for logs and the terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The proxy to whose log targets it goes.
    pub proxy: ProxyId,
    /// Syslog severity.
    pub severity: u8,
    /// One sentence.
    pub text: String,
    /// Syslog severity as an email alert; `None` if no mail tells of it.
    pub mailed: Option<u8>,
}

/// A receiver of notices: the log.
pub type Announce = Box<dyn Fn(&Notice) + Send + Sync>;

/// The backends of a configuration. `E` is the type of the caller's data for each server.
pub struct Backends<E = ()> {
    by_proxy: PerProxy<Option<Arc<Backend<E>>>>,
    /// Pairs of servers: one that is tracked, and one that tracks it.
    trackers: ArcSwap<Vec<(ServerRef, ServerRef)>>,
    /// The servers whose slow start may still go on.
    starting: Mutex<HashSet<ServerRef>>,
    /// Locked while servers are added or removed.
    membership: Mutex<()>,
    /// Whether an operator may end the sessions of any server.
    operated: bool,
    started: Instant,
    announce: Announce,
}

/// When and how often a backend went down; a server stores the same in its [`Status`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Changes {
    /// Time of the last change, since start.
    pub last_change: Duration,
    /// Total time without a server.
    pub down_time: Duration,
    /// How many times the backend went down.
    pub down_transitions: u64,
}

/// A server.
pub struct Server<E = ()> {
    /// The server's backend, and its id there.
    pub at: ServerRef,
    /// The server's name.
    pub name: String,
    /// `id`, or the lowest free number from 1.
    pub id: u32,
    /// The settings of its line.
    pub config: Arc<model::Server>,
    /// Whether the server was added at run time.
    pub dynamic: bool,
    /// The server's current address.
    pub endpoint: ArcSwap<Endpoint>,
    /// The address of its checks, if different.
    pub check_place: ArcSwap<CheckPlace>,
    /// The address of the server's agent, and what is sent to it.
    pub agent_place: ArcSwap<AgentPlace>,
    /// The caller's data.
    pub with: E,
    /// Whether other parts of the configuration refer to it, so that it cannot be removed.
    pinned: AtomicBool,
    removed: AtomicBool,
    /// Whether the server's health is checked, provided its line has `check`.
    checked: AtomicBool,
    /// Whether the server's agent is asked, provided its line has `agent-check`.
    asked: AtomicBool,
    /// Whether new connections to the server use TLS, provided that TLS is prepared.
    encrypted: AtomicBool,
    /// Whether an operator has decided if TLS is used.
    encryption_decided: AtomicBool,
    /// The name that is resolved for it, if it has one.
    fqdn: ArcSwapOption<String>,
    running: AtomicBool,
    usable: AtomicBool,
    served: AtomicU32,
    served_max: AtomicU32,
    queued: AtomicU32,
    queued_max: AtomicU32,
    shutdown: Notify,
    shut_reason: AtomicU8,
    /// Whether something in the configuration may end its sessions.
    pub may_shut_sessions: bool,
    /// Notified when the next check should come soon.
    pub hurry: Notify,
}

/// Why the sessions of a server are ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Shutdown {
    /// The server went down, with `on-marked-down shutdown-sessions`.
    Down,
    /// The server is a backup, and an active server came up with `on-marked-up shutdown-backup-sessions`.
    Up,
    /// By an operator.
    Operator,
}

impl Shutdown {
    /// The code shown in logs.
    pub fn by(self) -> By {
        match self {
            Shutdown::Down => By::ServerDown,
            Shutdown::Up => By::ServerUp,
            Shutdown::Operator => By::Operator,
        }
    }
}

/// What a request asks of its backend.
#[derive(Clone, Copy, Debug, Default)]
pub struct Want {
    /// The server that persistence (a cookie, `use-server`) selects.
    pub persistent: Option<ServerId>,
    /// From [`Backend::hash`].
    pub hash: Option<u32>,
    /// The server that just failed this request.
    pub avoid: Option<ServerId>,
    /// The request's priority in queues.
    pub priority: Priority,
}

/// The answer to a request.
pub enum Assignment<E = ()> {
    /// A place on a server.
    Slot(Slot<E>),
    /// A place in a queue: wait for it.
    Queued(Queued<E>),
    /// The queue of the only possible server is full.
    Full,
    /// No server is up.
    NoServer,
}

/// A request's place on a server. Dropping it frees the place and wakes a waiting request. A server that has requests
/// is not removed, so it exists as long as the place does.
pub struct Slot<E = ()> {
    backend: Arc<Backend<E>>,
    server: Arc<Server<E>>,
}

/// A request's presence in a backend, from routing to its end, whether queued or served.
pub struct Presence<E = ()>(Arc<Backend<E>>);

impl<E> Slot<E> {
    /// A place that has been counted already.
    pub(crate) fn counted(backend: Arc<Backend<E>>, server: Arc<Server<E>>) -> Slot<E> {
        Slot { backend, server }
    }

    /// The server.
    pub fn server(&self) -> &Arc<Server<E>> {
        &self.server
    }

    /// The backend.
    pub fn backend(&self) -> &Arc<Backend<E>> {
        &self.backend
    }
}

impl<E> Drop for Slot<E> {
    fn drop(&mut self) {
        self.backend.release(self.server.slot());
    }
}

impl<E> Drop for Presence<E> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl<E> Server<E> {
    fn new(at: ServerRef, id: u32, config: &Arc<model::Server>, may_shut_sessions: bool, with: E) -> Server<E> {
        Server {
            at,
            name: config.name.clone(),
            id,
            config: Arc::clone(config),
            dynamic: false,
            endpoint: ArcSwap::from_pointee(Endpoint::configured(config)),
            check_place: ArcSwap::from_pointee(CheckPlace::configured(config)),
            agent_place: ArcSwap::from_pointee(AgentPlace::configured(config)),
            with,
            pinned: AtomicBool::new(false),
            removed: AtomicBool::new(false),
            checked: AtomicBool::new(config.settings.check.enabled),
            asked: AtomicBool::new(config.settings.agent.is_some()),
            encrypted: AtomicBool::new(config.settings.tls.is_some()),
            encryption_decided: AtomicBool::new(false),
            fqdn: ArcSwapOption::new(match &config.host {
                ServerHost::Name(name) if config.srv_record().is_none() => Some(Arc::new(name.clone())),
                _ => None,
            }),
            running: AtomicBool::new(true),
            usable: AtomicBool::new(true),
            served: AtomicU32::new(0),
            served_max: AtomicU32::new(0),
            queued: AtomicU32::new(0),
            queued_max: AtomicU32::new(0),
            shutdown: Notify::new(),
            shut_reason: AtomicU8::new(Shutdown::Down as u8),
            may_shut_sessions,
            hurry: Notify::new(),
        }
    }

    /// The server's index in the tables of its backend.
    pub(crate) fn slot(&self) -> usize {
        self.at.server.index()
    }

    /// Whether the server has been removed, so that what is stored for it can be dropped.
    pub fn is_removed(&self) -> bool {
        self.removed.load(Relaxed)
    }

    /// Whether other parts of the configuration refer to it, so that it cannot be removed.
    pub fn is_pinned(&self) -> bool {
        self.pinned.load(Relaxed)
    }

    /// Makes it impossible to remove from now on.
    pub fn pin(&self) {
        self.pinned.store(true, Relaxed);
    }

    /// Whether the server's health is to be checked.
    pub fn is_checked(&self) -> bool {
        self.checked.load(Relaxed)
    }

    /// Whether the server's agent is to be asked.
    pub fn is_asked(&self) -> bool {
        self.asked.load(Relaxed)
    }

    /// Whether new connections to the server use TLS.
    pub fn is_encrypted(&self) -> bool {
        self.encrypted.load(Relaxed)
    }

    /// Uses TLS for new connections, or clear text.
    pub fn set_encrypted(&self, on: bool) {
        self.encrypted.store(on, Relaxed);
        self.encryption_decided.store(true, Relaxed);
    }

    /// Whether an operator has decided about TLS.
    pub fn is_encryption_decided(&self) -> bool {
        self.encryption_decided.load(Relaxed)
    }

    /// The name that is resolved for it, if it has one. One with an SRV record has the name that this gives it.
    pub fn fqdn(&self) -> Option<Arc<String>> {
        self.fqdn.load_full()
    }

    /// Gives it another name to resolve, or none; it keeps its address until that is resolved.
    pub fn set_fqdn(&self, name: Option<&str>) {
        self.fqdn.store(name.map(|name| Arc::new(name.to_owned())));
    }

    /// Whether the server is not down: persistence may send requests to it, even while it drains.
    pub fn is_running(&self) -> bool {
        self.running.load(Relaxed)
    }

    /// Whether the server is up and has weight, so that it takes new clients.
    pub fn is_usable(&self) -> bool {
        self.usable.load(Relaxed)
    }

    /// Whether the server's address or its use of TLS has changed from that of a connection.
    pub fn has_left(&self, key: &Key) -> bool {
        self.endpoint.load().excludes(&key.target) || self.is_encrypted() != key.encrypted
    }

    /// How many requests the server is serving.
    pub fn served(&self) -> u32 {
        self.served.load(Relaxed)
    }

    /// How many requests wait for the server.
    pub fn queued(&self) -> u32 {
        self.queued.load(Relaxed)
    }

    /// The most requests it has served at once.
    pub fn served_max(&self) -> u32 {
        self.served_max.load(Relaxed)
    }

    /// The most requests that have waited for it.
    pub fn queued_max(&self) -> u32 {
        self.queued_max.load(Relaxed)
    }

    /// Completes when the server's sessions have to end. To be created before the session's first await.
    pub fn shut_down(&self) -> tokio::sync::futures::Notified<'_> {
        self.shutdown.notified()
    }

    /// Why the server's sessions were last ended.
    pub fn shut_reason(&self) -> Shutdown {
        let all = [Shutdown::Down, Shutdown::Up, Shutdown::Operator];
        let stored = self.shut_reason.load(Relaxed);
        all.into_iter().find(|why| *why as u8 == stored).unwrap_or(Shutdown::Down)
    }

    /// Ends its sessions.
    pub fn shut_sessions(&self, why: Shutdown) {
        self.shut_reason.store(why as u8, Relaxed);
        self.shutdown.notify_waiters();
    }
}

impl<E> Backends<E> {
    /// Creates the backends of `config`. Their times count from `started`; `maxconn` applies to frontends that have
    /// none. `with` returns the caller's data for the server at that place of that proxy.
    pub fn new(
        config: &Config,
        maxconn: u32,
        started: Instant,
        announce: Announce,
        with: &mut dyn FnMut(ServerRef, u32) -> E,
    ) -> Backends<E> {
        // An operator may end sessions by command, and they also end when a wait for the last of them is given up.
        let operated = config.global.stats_sockets.iter().any(|socket| socket.level == StatsLevel::Admin)
            || config.global.hard_stop_after.is_some()
            || config.proxies.iter().any(|proxy| proxy.stats.as_ref().is_some_and(|page| !page.admin.is_empty()));
        let fullconn = full::automatic(config, maxconn);
        let by_proxy = config.proxies.entries().map(|(id, proxy)| {
            let serves = proxy.kind.has_backend() && !proxy.disabled;
            serves.then(|| Arc::new(Backend::new(config, id, fullconn[id], operated, with)))
        });
        let by_proxy = by_proxy.collect();
        let backends = Backends {
            by_proxy,
            trackers: ArcSwap::default(),
            starting: Mutex::default(),
            membership: Mutex::new(()),
            operated,
            started,
            announce,
        };
        backends.link_trackers(config);
        backends.settle();
        backends
    }

    /// The backend at that place in [`Config::proxies`].
    pub fn get(&self, proxy: ProxyId) -> Option<&Arc<Backend<E>>> {
        self.by_proxy.get(proxy)?.as_ref()
    }

    /// The server with that id, while it exists.
    pub fn server(&self, at: ServerRef) -> Option<Arc<Server<E>>> {
        self.get(at.proxy)?.get(at.server)
    }

    /// Whether the server was removed, or its address or its use of TLS has changed from that of a connection.
    pub fn has_left(&self, key: &Key) -> bool {
        self.server(key.at).is_none_or(|server| server.has_left(key))
    }

    /// The backend of that name.
    pub fn by_name(&self, name: &str) -> Option<&Arc<Backend<E>>> {
        self.iter().find(|backend| backend.name == name)
    }

    /// All backends in the order written.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Backend<E>>> {
        self.by_proxy.iter().flatten()
    }

    /// The time at which the backends were created, from which their times are counted.
    pub fn started(&self) -> Instant {
        self.started
    }
}

/// A server's settings in the form that the algorithms use.
fn member<E>(server: &Server<E>) -> Member {
    let settings = &server.config.settings;
    // If only one limit is set, it is used for both; a minimum above the maximum counts as the maximum.
    let maxconn = settings.conns_max();
    let minconn = if settings.minconn == 0 { maxconn } else { settings.minconn };
    let mut member = Member::new(server.id, settings.weight, settings.backup);
    (member.maxconn, member.minconn, member.maxqueue) = (maxconn, minconn, settings.maxqueue);
    member.ring_key = ring_key(server);
    member
}

/// What places a server on the ring, by its `hash-key`. As in HAProxy an IPv4 address is a number whose first byte is the lowest.
fn ring_key<E>(server: &Server<E>) -> u32 {
    let endpoint = server.endpoint.load();
    let (hash_key, Some(Host::Ip(ip))) = (server.config.settings.hash_key, &endpoint.host) else {
        return ring_key_of_id(server.id);
    };
    let seed = match (hash_key, endpoint.port) {
        (HashKey::Id, _) => return ring_key_of_id(server.id),
        (HashKey::Address, _) => 0,
        (HashKey::AddressAndPort, ServerPort::Fixed(port)) => avalanche(port.into()),
        (HashKey::AddressAndPort, ServerPort::Offset(offset)) => avalanche(offset.cast_unsigned()),
    };
    match ip {
        IpAddr::V4(ip) => avalanche(seed.wrapping_add(u32::from_le_bytes(ip.octets()))),
        IpAddr::V6(ip) => xxh32(&ip.octets(), seed),
    }
}

/// The numbers of a list: each entry's own `id`, else the next free one.
pub fn numbers(ids: impl Iterator<Item = Option<u32>> + Clone, first: u32) -> Vec<u32> {
    let taken: HashSet<u32> = ids.clone().flatten().collect();
    let mut next = first;
    let number = |id: Option<u32>| {
        while id.is_none() && taken.contains(&next) {
            next += 1;
        }
        let number = id.unwrap_or(next);
        next += 1;
        number
    };
    ids.map(number).collect()
}

/// The name that is resolved, or the address.
fn host_name<E>(server: &Server<E>) -> String {
    if let Some(name) = server.fqdn() {
        return String::clone(&name);
    }
    match &server.config.host {
        ServerHost::Ip(ip) => ip.to_string(),
        ServerHost::Name(name) => name.clone(),
        ServerHost::Abstract(name) => model::shown_abstract(name),
        ServerHost::Unix(path) => path.display().to_string(),
    }
}
