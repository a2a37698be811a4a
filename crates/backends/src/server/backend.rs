//! One backend: what its lock protects, and how a request gets its place.

use super::{Assignment, Changes, Presence, Server, ServerId, ServerRef, Slot, Slots, Status, Want, member, numbers};
use crate::balance::{self, Balancer, Demand, Load, Subject};
use crate::queue::Queues;
use arc_swap::{ArcSwap, Guard};
use penstock_config::Config;
use penstock_config::model::{Balance, BalanceKey, HashType, ProxyId, ProxyKind};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

/// A backend.
pub struct Backend<E = ()> {
    /// The backend's place in [`Config::proxies`].
    pub proxy: ProxyId,
    /// The backend's name.
    pub name: String,
    pub(super) balance: Balance,
    hash_type: HashType,
    fullconn: u32,
    pub(super) redispatch: bool,
    /// Whether the backend is a `listen` section, which logs call a proxy.
    pub(super) listens: bool,
    sessions: AtomicU32,
    sessions_max: AtomicU32,
    pub(super) active: AtomicU32,
    pub(super) backup: AtomicU32,
    core: Mutex<Core<E>>,
    /// A copy, for readers, of the field of the same name that the lock protects; updated under the lock.
    pub(super) servers: ArcSwap<Slots<Arc<Server<E>>>>,
}

/// What the lock of a backend protects. All tables are indexed by slot.
pub(crate) struct Core<E> {
    pub(crate) balancer: Balancer,
    pub(crate) queues: Queues<E>,
    pub(crate) status: Vec<Status>,
    pub(crate) servers: Slots<Arc<Server<E>>>,
    pub(crate) changes: Changes,
    pub(crate) lb_total: u64,
}

impl<E> Core<E> {
    /// The server in a slot that is in use, because something of it is counted, waited for or changed.
    pub(crate) fn server(&self, slot: usize) -> &Arc<Server<E>> {
        self.servers.at(slot).expect("a server is not removed while anything of it is under way")
    }
}

impl<E> Backend<E> {
    pub(super) fn new(
        config: &Config,
        proxy: ProxyId,
        fullconn: u32,
        operated: bool,
        with: &mut dyn FnMut(ServerRef, u32) -> E,
    ) -> Backend<E> {
        let section = &config.proxies[proxy];
        let spares_backups = section.servers.iter().any(|server| server.settings.on_marked_up_shutdown_backup);
        let ids = numbers(section.servers.iter().map(|server| server.settings.id), 1);
        let mut servers = Slots::default();
        for (server, id) in section.servers.iter().zip(ids) {
            let settings = &server.settings;
            let may_shut = operated || settings.on_marked_down_shutdown || settings.backup && spares_backups;
            let at = ServerRef { proxy, server: servers.next() };
            servers.insert(Arc::new(Server::new(at, id, server, may_shut, with(at, id))));
        }
        let balance = section.balance.clone().unwrap_or_default();
        let settings = balance::Settings {
            balance: balance.clone(),
            hash_type: section.hash_type,
            factor: section.hash_balance_factor,
            allbackups: section.options.allbackups,
            seed: 0x9e37_79b9_7f4a_7c15 ^ u64::from(std::process::id()) << 32 ^ u64::from(proxy.0),
        };
        let core = Core {
            balancer: Balancer::new(&settings, servers.iter().map(|server| member(server)).collect()),
            queues: Queues::new(servers.len()),
            status: servers.iter().map(|server| Status::new(&server.config.settings)).collect(),
            changes: Changes::default(),
            lb_total: 0,
            servers: servers.clone(),
        };
        Backend {
            proxy,
            name: section.name.clone(),
            balance,
            hash_type: section.hash_type,
            fullconn: section.fullconn.unwrap_or(fullconn).max(1),
            redispatch: section.options.redispatch.is_some() && !section.options.persist,
            listens: section.kind == ProxyKind::Listen,
            sessions: AtomicU32::new(0),
            sessions_max: AtomicU32::new(0),
            active: AtomicU32::new(0),
            backup: AtomicU32::new(0),
            core: Mutex::new(core),
            servers: ArcSwap::from_pointee(servers),
        }
    }

    pub(crate) fn core(&self) -> MutexGuard<'_, Core<E>> {
        self.core.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The current servers, in the order in which they were added.
    pub fn servers(&self) -> Guard<Arc<Slots<Arc<Server<E>>>>> {
        self.servers.load()
    }

    /// The server with that id, while it exists.
    pub fn get(&self, id: ServerId) -> Option<Arc<Server<E>>> {
        self.servers.load().get(id).cloned()
    }

    /// The server of that name.
    pub fn server(&self, name: &str) -> Option<Arc<Server<E>>> {
        self.servers.load().iter().find(|server| server.name == name).cloned()
    }

    /// The server that an operator's command means: by `#` and its number, or by its name.
    pub fn server_called(&self, word: &str) -> Option<Arc<Server<E>>> {
        let number = word.strip_prefix('#').and_then(|digits| digits.parse::<u32>().ok());
        let numbered = number.and_then(|number| self.servers.load().iter().find(|it| it.id == number).cloned());
        numbered.or_else(|| self.server(word))
    }

    /// The number of usable servers: active ones, or the backups that replace them.
    pub fn usable_servers(&self) -> u32 {
        match self.active.load(Relaxed) {
            0 => self.backup.load(Relaxed),
            active => active,
        }
    }

    /// How many active and how many backup servers are usable.
    pub fn counts(&self) -> (u32, u32) {
        (self.active.load(Relaxed), self.backup.load(Relaxed))
    }

    /// Whether weights can be changed and servers added at run time, which depends on the algorithm.
    pub fn has_dynamic_weights(&self) -> bool {
        self.core().balancer.is_dynamic()
    }

    /// Requests in this backend, queued or served.
    pub fn sessions(&self) -> u32 {
        self.sessions.load(Relaxed)
    }

    /// The most requests there have been at once.
    pub fn sessions_max(&self) -> u32 {
        self.sessions_max.load(Relaxed)
    }

    /// Resets the maxima, and with `all` the counters too.
    pub fn clear_counters(&self, all: bool) {
        let mut core = self.core();
        self.sessions_max.store(0, Relaxed);
        core.queues.clear_most();
        for server in core.servers.iter() {
            server.served_max.store(0, Relaxed);
            server.queued_max.store(0, Relaxed);
        }
        if all {
            core.lb_total = 0;
            core.changes.down_transitions = 0;
            for status in &mut core.status {
                status.lb_total = 0;
                status.down_transitions = 0;
                status.failed_observations = 0;
                for check in [&mut status.check, &mut status.agent].into_iter().flatten() {
                    check.failed = 0;
                }
            }
        }
    }

    /// `fullconn`, or a tenth of the `maxconn` of the frontends that lead here.
    pub fn fullconn(&self) -> u32 {
        self.fullconn
    }

    /// Counts a request that is routed here.
    pub fn enter(self: &Arc<Self>) -> Presence<E> {
        let now = self.sessions.fetch_add(1, Relaxed) + 1;
        if now > self.sessions_max.load(Relaxed) {
            self.sessions_max.fetch_max(now, Relaxed);
        }
        Presence(self.clone())
    }

    pub(super) fn leave(&self) {
        self.sessions.fetch_sub(1, Relaxed);
    }

    /// The word after `balance`.
    pub fn algorithm(&self) -> &'static str {
        self.balance.algorithm
    }

    /// What `balance` looks at, so that the caller knows which parts of a [`Subject`] to fill in; `None` if it does not
    /// look at requests.
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

    /// Whether a request for that server would be served at once, or wait with fewer than `most` others.
    pub fn queue_is_below(&self, id: ServerId, most: u32) -> bool {
        let load = self.load();
        let core = self.core();
        core.servers.get(id).is_some_and(|server| {
            let member = &core.balancer.members()[server.slot()];
            member.has_room(&load) || member.queued < most
        })
    }

    /// Assigns a place on a server or in a queue. A request with a persistent server may have to wait for that one; for
    /// others, the algorithm looks for a server with room, or they wait for the first that has some.
    pub fn assign(self: &Arc<Self>, want: &Want) -> Assignment<E> {
        let load = self.load();
        let mut core = self.core();
        let slot_of = |id: ServerId| core.servers.get(id).map(|server| server.slot());
        // A server that has been removed meanwhile no longer matters.
        let (persistent, avoid) = (want.persistent.and_then(slot_of), want.avoid.and_then(slot_of));
        let server = match persistent {
            Some(server) => server,
            None => {
                if core.balancer.totals().weight == 0 {
                    return Assignment::NoServer;
                }
                let waiting = core.queues.waiting_anywhere();
                let demand = Demand { hash: want.hash, avoid, load };
                match core.balancer.choose(&demand, waiting) {
                    Some(server) => {
                        if avoid != Some(server) {
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
                return Assignment::Full;
            }
            let ticket = core.queues.join(self, Some(server), want.priority);
            self.publish(&mut core, server);
            return Assignment::Queued(ticket);
        }
        core.balancer.take(server);
        let shared = self.publish(&mut core, server);
        drop(core);
        Assignment::Slot(Slot::counted(self.clone(), shared))
    }

    /// Copies what the lock protects to where it is read.
    pub(crate) fn publish(&self, core: &mut Core<E>, server: usize) -> Arc<Server<E>> {
        let queued = core.queues.waiting_for(server);
        core.balancer.set_queued(server, queued);
        let (member, shared) = (&core.balancer.members()[server], core.server(server));
        // Only the holder of the lock writes, so a load and a store suffice.
        let raise = |most: &AtomicU32, now: u32| {
            if now > most.load(Relaxed) {
                most.store(now, Relaxed);
            }
        };
        shared.served.store(member.served, Relaxed);
        raise(&shared.served_max, member.served);
        shared.queued.store(queued, Relaxed);
        raise(&shared.queued_max, queued);
        shared.clone()
    }

    pub(super) fn release(self: &Arc<Self>, server: usize) {
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
