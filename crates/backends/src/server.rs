//! Backends and their servers while they run: states, loads and queues, shared by all workers.
//!
//! What is configured never changes and is read without a lock. What a choice needs (counts, weights, queues) stands
//! behind one short lock a backend, held for a tree step and never across an await. What only readers want (is it up,
//! how many serve) is copied into atomics each time the lock changes it.

mod address;
mod change;
mod endpoint;
mod full;
mod observe;
mod status;
mod view;

pub use change::{Cause, Command};
pub use endpoint::{Endpoint, Host, Target};
pub use observe::Seen;
pub use status::{Admin, Agent, Check, Operational, Status};
pub use view::{BackendView, ServerView};

use crate::balance::{self, Balancer, Demand, Load, Member, Subject};
use crate::queue::{Priority, Queues, Ticket};
use arc_swap::ArcSwap;
use penstock_config::{
    Config,
    model::{self, Balance, BalanceKey, ServerHost},
};
use penstock_rules::By;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Something that happened to a server, as logs and the terminal tell it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The proxy whose log targets get it, by its place in [`Config::proxies`].
    pub proxy: usize,
    /// Syslog severity.
    pub severity: u8,
    /// One sentence.
    pub text: String,
}

/// Takes notices: the log.
pub type Announce = Box<dyn Fn(&Notice) + Send + Sync>;

/// A server by its backend's place in [`Config::proxies`] and its own place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerRef {
    /// The proxy.
    pub proxy: usize,
    /// The server in it.
    pub server: usize,
}

/// The backends of a configuration.
pub struct Backends {
    by_proxy: Vec<Option<Arc<Backend>>>,
    /// Who follows the state of a server.
    trackers: Vec<(ServerRef, ServerRef)>,
    started: Instant,
    announce: Announce,
}

/// A backend.
pub struct Backend {
    /// Its place in [`Config::proxies`].
    pub proxy: usize,
    /// Its name.
    pub name: String,
    /// Its servers in the order written.
    pub servers: Box<[Server]>,
    balance: Balance,
    hash_type: model::HashType,
    fullconn: u32,
    redispatch: bool,
    /// A `listen` section, which logs call a proxy.
    listens: bool,
    sessions: AtomicU32,
    sessions_max: AtomicU32,
    active: AtomicU32,
    backup: AtomicU32,
    core: Mutex<Core>,
}

/// What the lock of a backend protects.
pub(crate) struct Core {
    pub(crate) balancer: Balancer,
    pub(crate) queues: Queues,
    pub(crate) status: Vec<Status>,
    pub(crate) changes: Changes,
    pub(crate) lb_total: u64,
}

/// When and how often a backend went down; a server keeps the same in its [`Status`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Changes {
    /// Since start.
    pub last_change: Duration,
    /// Sum of the times without a server.
    pub down_time: Duration,
    /// How often.
    pub down_transitions: u64,
}

/// A server.
pub struct Server {
    /// Its place in its backend.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// `id`, or its number from 1.
    pub id: u32,
    /// Everything its line says.
    pub config: model::Server,
    /// Where it is now.
    pub endpoint: ArcSwap<Endpoint>,
    running: AtomicBool,
    usable: AtomicBool,
    served: AtomicU32,
    served_max: AtomicU32,
    queued: AtomicU32,
    queued_max: AtomicU32,
    shutdown: Notify,
    shut_reason: AtomicU8,
    /// Something in the configuration may end its sessions.
    pub may_shut_sessions: bool,
    /// Asks for a check soon.
    pub hurry: Notify,
}

/// Why the sessions of a server end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Shutdown {
    /// It went down, with `on-marked-down shutdown-sessions`.
    Down,
    /// It is a backup, and an active server came up with `on-marked-up shutdown-backup-sessions`.
    Up,
    /// An operator wanted it.
    Operator,
}

impl Shutdown {
    /// As logs have it.
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
    /// The server that persistence (a cookie, `use-server`) names.
    pub persistent: Option<usize>,
    /// From [`Backend::hash`].
    pub hash: Option<u32>,
    /// The server that just failed this request.
    pub avoid: Option<usize>,
    /// Whom it lets pass in a queue.
    pub priority: Priority,
}

/// What a request gets.
pub enum Assignment {
    /// A place on a server.
    Slot(Slot),
    /// A place in a queue: wait for it.
    Queued(Ticket),
    /// The only server in question has its queue full.
    Full(usize),
    /// No server is up.
    NoServer,
}

/// A request's place on a server; dropping it frees the place and wakes who waits.
pub struct Slot {
    backend: Arc<Backend>,
    server: usize,
}

/// A request's presence in a backend, from its routing to its end, queued or served.
pub struct Presence(Arc<Backend>);

impl Slot {
    /// A place already counted.
    pub(crate) fn counted(backend: Arc<Backend>, server: usize) -> Slot {
        Slot { backend, server }
    }

    /// The server.
    pub fn server(&self) -> &Server {
        &self.backend.servers[self.server]
    }

    /// The backend.
    pub fn backend(&self) -> &Arc<Backend> {
        &self.backend
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.backend.release(self.server);
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Relaxed);
    }
}

impl Server {
    fn new(index: usize, id: u32, config: &model::Server, may_shut_sessions: bool) -> Server {
        Server {
            index,
            name: config.name.clone(),
            id,
            config: config.clone(),
            endpoint: ArcSwap::from_pointee(Endpoint::configured(config)),
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

    /// It is not down: persistence may send to it, even while it drains.
    pub fn is_running(&self) -> bool {
        self.running.load(Relaxed)
    }

    /// It is up and has weight: it takes new clients.
    pub fn is_usable(&self) -> bool {
        self.usable.load(Relaxed)
    }

    /// Requests it serves now.
    pub fn served(&self) -> u32 {
        self.served.load(Relaxed)
    }

    /// Requests that wait for it.
    pub fn queued(&self) -> u32 {
        self.queued.load(Relaxed)
    }

    /// The most it has served at once.
    pub fn served_max(&self) -> u32 {
        self.served_max.load(Relaxed)
    }

    /// The most that have waited for it.
    pub fn queued_max(&self) -> u32 {
        self.queued_max.load(Relaxed)
    }

    /// Returns when its sessions must end. Create it before the session's first await.
    pub fn shut_down(&self) -> tokio::sync::futures::Notified<'_> {
        self.shutdown.notified()
    }

    /// Why its sessions were ended last.
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

impl Backend {
    fn new(config: &Config, proxy: usize, fullconn: u32, operated: bool) -> Backend {
        let section = &config.proxies[proxy];
        let spares_backups = section.servers.iter().any(|server| server.settings.on_marked_up_shutdown_backup);
        let ids = numbers(section.servers.iter().map(|server| server.settings.id), 1);
        let servers: Box<[Server]> = section
            .servers
            .iter()
            .zip(ids)
            .enumerate()
            .map(|(index, (server, id))| {
                let settings = &server.settings;
                let may_shut = operated || settings.on_marked_down_shutdown || settings.backup && spares_backups;
                Server::new(index, id, server, may_shut)
            })
            .collect();
        let balance = section.balance.clone().unwrap_or_default();
        let settings = balance::Settings {
            balance: balance.clone(),
            hash_type: section.hash_type,
            factor: section.hash_balance_factor,
            allbackups: section.options.allbackups,
            seed: 0x9e37_79b9_7f4a_7c15 ^ u64::from(std::process::id()) << 32 ^ proxy as u64,
        };
        let core = Core {
            balancer: Balancer::new(&settings, servers.iter().map(member).collect()),
            queues: Queues::new(servers.len()),
            status: servers.iter().map(|server| Status::new(&server.config.settings)).collect(),
            changes: Changes::default(),
            lb_total: 0,
        };
        Backend {
            proxy,
            name: section.name.clone(),
            balance,
            hash_type: section.hash_type,
            fullconn: section.fullconn.unwrap_or(fullconn).max(1),
            redispatch: section.options.redispatch.is_some() && !section.options.persist,
            listens: section.kind == model::ProxyKind::Listen,
            sessions: AtomicU32::new(0),
            sessions_max: AtomicU32::new(0),
            active: AtomicU32::new(0),
            backup: AtomicU32::new(0),
            core: Mutex::new(core),
            servers,
        }
    }

    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The server of that name.
    pub fn server(&self, name: &str) -> Option<&Server> {
        self.servers.iter().find(|server| server.name == name)
    }

    /// Usable servers: the active ones, or the backups that stand in for them.
    pub fn usable_servers(&self) -> u32 {
        match self.active.load(Relaxed) {
            0 => self.backup.load(Relaxed),
            active => active,
        }
    }

    /// Active and backup servers that are usable.
    pub fn counts(&self) -> (u32, u32) {
        (self.active.load(Relaxed), self.backup.load(Relaxed))
    }

    /// The weight of a server in effect, its slow start included, and the one that an operator sees.
    pub fn weights(&self, server: usize) -> (u32, u32) {
        let core = self.core();
        (core.balancer.weight_of(server), core.status[server].weight)
    }

    /// Requests in this backend, queued or served.
    pub fn sessions(&self) -> u32 {
        self.sessions.load(Relaxed)
    }

    /// The most there have been.
    pub fn sessions_max(&self) -> u32 {
        self.sessions_max.load(Relaxed)
    }

    /// `fullconn`, or a tenth of what the frontends that come here let in.
    pub fn fullconn(&self) -> u32 {
        self.fullconn
    }

    /// A request is routed here.
    pub fn enter(self: &Arc<Self>) -> Presence {
        let now = self.sessions.fetch_add(1, Relaxed) + 1;
        if now > self.sessions_max.load(Relaxed) {
            self.sessions_max.fetch_max(now, Relaxed);
        }
        Presence(self.clone())
    }

    /// The word after `balance`.
    pub fn algorithm(&self) -> &'static str {
        self.balance.algorithm
    }

    /// What `balance` looks at, which tells the caller what parts of a [`Subject`] to fill; `None` where it does not look at
    /// requests.
    pub fn key(&self) -> Option<&BalanceKey> {
        self.balance.key.as_ref()
    }

    /// The hash of a request, for [`Want::hash`].
    pub fn hash(&self, subject: &Subject<'_>) -> Option<u32> {
        balance::hash_of(self.balance.key.as_ref()?, &self.hash_type, subject)
    }

    pub(crate) fn load(&self) -> Load {
        Load { sessions: self.sessions(), fullconn: self.fullconn }
    }

    /// A place on a server or in a queue. A place on a persistent server may have to wait for that one; without one,
    /// the algorithm looks for a server with room, or the request waits for the first that has.
    pub fn assign(self: &Arc<Self>, want: &Want) -> Assignment {
        let load = self.load();
        let mut core = self.core();
        let server = match want.persistent {
            Some(server) => server,
            None => {
                if core.balancer.totals().weight == 0 {
                    return Assignment::NoServer;
                }
                let waiting = core.queues.waiting_anywhere();
                let demand = Demand { hash: want.hash, avoid: want.avoid, load };
                match core.balancer.choose(&demand, waiting) {
                    Some(server) => {
                        if want.avoid != Some(server) {
                            core.lb_total += 1;
                            core.status[server].lb_total += 1;
                        }
                        server
                    }
                    None => return Assignment::Queued(core.queues.join(self, None, want.priority)),
                }
            }
        };
        let member = &core.balancer.members()[server];
        if !member.has_room(&load) {
            if member.maxqueue > 0 && member.queued >= member.maxqueue {
                return Assignment::Full(server);
            }
            let ticket = core.queues.join(self, Some(server), want.priority);
            self.publish(&mut core, server);
            return Assignment::Queued(ticket);
        }
        core.balancer.take(server);
        self.publish(&mut core, server);
        drop(core);
        Assignment::Slot(Slot::counted(self.clone(), server))
    }

    /// Copies what the lock protects to where readers look.
    pub(crate) fn publish(&self, core: &mut Core, server: usize) {
        let queued = core.queues.waiting_for(server);
        core.balancer.set_queued(server, queued);
        let (member, shared) = (&core.balancer.members()[server], &self.servers[server]);
        // Only who holds the lock writes: a load and a store do.
        let raise = |most: &AtomicU32, now: u32| {
            if now > most.load(Relaxed) {
                most.store(now, Relaxed);
            }
        };
        shared.served.store(member.served, Relaxed);
        raise(&shared.served_max, member.served);
        shared.queued.store(queued, Relaxed);
        raise(&shared.queued_max, queued);
    }

    fn release(self: &Arc<Self>, server: usize) {
        let mut core = self.core();
        core.balancer.release(server);
        self.publish(&mut core, server);
        let waited_for = core.queues.waiting_for(server) + core.queues.waiting_anywhere() > 0;
        drop(core);
        if waited_for {
            self.dispatch(server);
        }
    }
}

impl Backends {
    /// The backends of `config`, whose times count from `started`; `maxconn` is what a frontend lets in that does not say.
    pub fn new(config: &Config, maxconn: u32, started: Instant, announce: Announce) -> Backends {
        // An operator may end sessions where a statistics page has actions, and whoever waits no longer for the last of them.
        let operated = config.global.hard_stop_after.is_some()
            || config.proxies.iter().any(|proxy| proxy.stats.as_ref().is_some_and(|page| !page.admin.is_empty()));
        let fullconn = full::automatic(config, maxconn);
        let by_proxy: Vec<Option<Arc<Backend>>> = config
            .proxies
            .iter()
            .enumerate()
            .map(|(index, proxy)| {
                let serves = proxy.kind.has_backend() && !proxy.disabled;
                serves.then(|| Arc::new(Backend::new(config, index, fullconn[index], operated)))
            })
            .collect();
        let mut backends = Backends { by_proxy, trackers: Vec::new(), started, announce };
        backends.link_trackers(config);
        backends.settle();
        backends
    }

    /// The backend at that place in [`Config::proxies`].
    pub fn get(&self, proxy: usize) -> Option<&Arc<Backend>> {
        self.by_proxy.get(proxy)?.as_ref()
    }

    /// Whether the server has moved away from where a connection leads.
    pub fn has_left(&self, at: ServerRef, target: &Target) -> bool {
        self.get(at.proxy).is_some_and(|backend| backend.servers[at.server].endpoint.load().excludes(target))
    }

    /// The backend of that name.
    pub fn by_name(&self, name: &str) -> Option<&Arc<Backend>> {
        self.iter().find(|backend| backend.name == name)
    }

    /// All of them in the order written.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Backend>> {
        self.by_proxy.iter().flatten()
    }

    /// When they were made: the zero of their times.
    pub fn started(&self) -> Instant {
        self.started
    }
}

/// A server's line as the algorithms read it.
fn member(server: &Server) -> Member {
    let settings = &server.config.settings;
    // Either limit alone stands for both; a minimum over the maximum is the maximum.
    let maxconn = settings.maxconn.max(settings.minconn);
    let minconn = if settings.minconn == 0 { maxconn } else { settings.minconn };
    let mut member = Member::new(server.id, settings.weight, settings.backup);
    (member.maxconn, member.minconn, member.maxqueue) = (maxconn, minconn, settings.maxqueue);
    member
}

/// The number of each of a list: its own `id`, else the next free one.
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
fn host_name(server: &Server) -> String {
    match &server.config.host {
        ServerHost::Ip(ip) => ip.to_string(),
        ServerHost::Name(name) | ServerHost::Abstract(name) => name.clone(),
        ServerHost::Unix(path) => path.display().to_string(),
    }
}
