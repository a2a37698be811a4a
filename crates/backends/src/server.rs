//! Backends and their servers while they run: states, loads and queues, shared by all workers.
//!
//! What is configured never changes and is read without a lock. What a choice needs (counts, weights, queues) stands
//! behind one short lock a backend, held for a tree step and never across an await. What only readers want (is it up,
//! how many serve) is copied into atomics each time the lock changes it.

mod address;
mod backend;
mod change;
mod endpoint;
mod full;
mod membership;
mod observe;
mod slots;
mod status;
mod view;

pub use backend::Backend;
pub(crate) use backend::Core;
pub use change::{Cause, Command};
pub use endpoint::{CheckPlace, Endpoint, Host, Target};
pub use membership::{AddError, RemoveError};
pub use observe::Seen;
pub use slots::{ServerId, Slots};
pub use status::{Admin, Agent, Check, Operational, Status};
pub use view::{BackendView, ServerView};

use crate::balance::Member;
use crate::queue::{Priority, Ticket};
use arc_swap::ArcSwap;
use penstock_config::{
    Config,
    model::{self, ServerHost, StatsLevel},
};
use penstock_rules::By;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
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

/// A server by its backend's place in [`Config::proxies`] and its own identifier there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerRef {
    /// The proxy.
    pub proxy: usize,
    /// The server in it.
    pub server: ServerId,
}

/// The backends of a configuration. `E` is what the caller keeps with each server.
pub struct Backends<E = ()> {
    by_proxy: Vec<Option<Arc<Backend<E>>>>,
    /// Who follows the state of a server: the one that is followed, and who does.
    trackers: ArcSwap<Vec<(ServerRef, ServerRef)>>,
    /// Held while servers are added or removed.
    membership: Mutex<()>,
    /// An operator may end the sessions of any server.
    operated: bool,
    started: Instant,
    announce: Announce,
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
pub struct Server<E = ()> {
    /// Its backend and its identifier there.
    pub at: ServerRef,
    /// Its name.
    pub name: String,
    /// `id`, or the first number from 1 that was free.
    pub id: u32,
    /// Everything its line says.
    pub config: model::Server,
    /// It was added while the process ran.
    pub dynamic: bool,
    /// Where it is now.
    pub endpoint: ArcSwap<Endpoint>,
    /// Where its checks go, if not there.
    pub check_place: ArcSwap<CheckPlace>,
    /// What the caller keeps with it.
    pub with: E,
    /// Other parts of the configuration name it: it cannot be removed.
    pinned: AtomicBool,
    removed: AtomicBool,
    /// Its health is checked, if its line says `check`.
    checked: AtomicBool,
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
    pub persistent: Option<ServerId>,
    /// From [`Backend::hash`].
    pub hash: Option<u32>,
    /// The server that just failed this request.
    pub avoid: Option<ServerId>,
    /// Whom it lets pass in a queue.
    pub priority: Priority,
}

/// What a request gets.
pub enum Assignment<E = ()> {
    /// A place on a server.
    Slot(Slot<E>),
    /// A place in a queue: wait for it.
    Queued(Ticket<E>),
    /// The only server in question has its queue full.
    Full,
    /// No server is up.
    NoServer,
}

/// A request's place on a server; dropping it frees the place and wakes who waits. A server that has requests is not
/// removed, so that it is there as long as the place is.
pub struct Slot<E = ()> {
    backend: Arc<Backend<E>>,
    server: Arc<Server<E>>,
}

/// A request's presence in a backend, from its routing to its end, queued or served.
pub struct Presence<E = ()>(Arc<Backend<E>>);

impl<E> Slot<E> {
    /// A place already counted.
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
    fn new(at: ServerRef, id: u32, config: &model::Server, may_shut_sessions: bool, with: E) -> Server<E> {
        Server {
            at,
            name: config.name.clone(),
            id,
            config: config.clone(),
            dynamic: false,
            endpoint: ArcSwap::from_pointee(Endpoint::configured(config)),
            check_place: ArcSwap::from_pointee(CheckPlace::configured(config)),
            with,
            pinned: AtomicBool::new(false),
            removed: AtomicBool::new(false),
            checked: AtomicBool::new(config.settings.check.enabled),
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

    /// Its place in the tables of its backend.
    pub(crate) fn slot(&self) -> usize {
        self.at.server.index()
    }

    /// It has been removed: what is kept of it may go.
    pub fn is_removed(&self) -> bool {
        self.removed.load(Relaxed)
    }

    /// Other parts of the configuration name it: it cannot be removed.
    pub fn is_pinned(&self) -> bool {
        self.pinned.load(Relaxed)
    }

    /// From now on it cannot be removed.
    pub fn pin(&self) {
        self.pinned.store(true, Relaxed);
    }

    /// Its health is to be checked.
    pub fn is_checked(&self) -> bool {
        self.checked.load(Relaxed)
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

impl<E> Backends<E> {
    /// The backends of `config`, whose times count from `started`; `maxconn` is what a frontend lets in that does not say.
    /// `with` gives what the caller keeps with the server at that place of that proxy.
    pub fn new(
        config: &Config,
        maxconn: u32,
        started: Instant,
        announce: Announce,
        with: &mut dyn FnMut(ServerRef, u32) -> E,
    ) -> Backends<E> {
        // An operator may end sessions by command, and where whoever waits no longer for the last of them is told to.
        let operated = config.global.stats_sockets.iter().any(|socket| socket.level == StatsLevel::Admin)
            || config.global.hard_stop_after.is_some()
            || config.proxies.iter().any(|proxy| proxy.stats.as_ref().is_some_and(|page| !page.admin.is_empty()));
        let fullconn = full::automatic(config, maxconn);
        let by_proxy = config.proxies.iter().enumerate().map(|(index, proxy)| {
            let serves = proxy.kind.has_backend() && !proxy.disabled;
            serves.then(|| Arc::new(Backend::new(config, index, fullconn[index], operated, with)))
        });
        let by_proxy = by_proxy.collect();
        let backends = Backends {
            by_proxy,
            trackers: ArcSwap::default(),
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
    pub fn get(&self, proxy: usize) -> Option<&Arc<Backend<E>>> {
        self.by_proxy.get(proxy)?.as_ref()
    }

    /// The server of that identifier, while it is there.
    pub fn server(&self, at: ServerRef) -> Option<Arc<Server<E>>> {
        self.get(at.proxy)?.get(at.server)
    }

    /// Whether the server has gone, or has moved away from where a connection leads.
    pub fn has_left(&self, at: ServerRef, target: &Target) -> bool {
        self.server(at).is_none_or(|server| server.endpoint.load().excludes(target))
    }

    /// The backend of that name.
    pub fn by_name(&self, name: &str) -> Option<&Arc<Backend<E>>> {
        self.iter().find(|backend| backend.name == name)
    }

    /// All of them in the order written.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Backend<E>>> {
        self.by_proxy.iter().flatten()
    }

    /// When they were made: the zero of their times.
    pub fn started(&self) -> Instant {
        self.started
    }
}

/// A server's line as the algorithms read it.
fn member<E>(server: &Server<E>) -> Member {
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
fn host_name<E>(server: &Server<E>) -> String {
    match &server.config.host {
        ServerHost::Ip(ip) => ip.to_string(),
        ServerHost::Name(name) | ServerHost::Abstract(name) => name.clone(),
        ServerHost::Unix(path) => path.display().to_string(),
    }
}
