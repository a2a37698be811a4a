//! What an operator can change about frontends and the process as a whole.

use super::{
    gates::{Listening, Rated, Throttle},
    handle::Handle,
    shared::Shared,
};
use crate::{
    observe::counters::Part,
    server::{Backend, Notice, Server},
    worker::{
        control::{Control, Errand},
        pulse::Who,
        state::Worker,
        task, turn,
    },
};
use penstock_config::model::{Proxy, ProxyId};
use penstock_config::syslog;
use std::{
    rc::Rc,
    sync::{Arc, atomic::Ordering::Relaxed},
};

impl Handle {
    /// The frontend that a command means: see [`Handle::proxy`].
    pub fn frontend(&self, word: &str) -> Option<ProxyId> {
        self.proxy(word, |proxy| proxy.kind.has_frontend())
    }
    /// The backend that a command means: see [`Handle::proxy`].
    pub fn backend(&self, word: &str) -> Option<&Arc<Backend>> {
        self.shared().backends.get(self.proxy(word, |proxy| proxy.kind.has_backend())?)
    }
    /// The server that a command means, by the name or the number (`#2`) of its backend and its own.
    pub fn server(&self, backend: &str, server: &str) -> Option<Arc<Server>> {
        self.backend(backend)?.server_called(server)
    }
    /// The proxy that a command means, of those that fit: by `#` and its number, or by its name (management guide, "disable
    /// agent").
    pub fn proxy(&self, word: &str, fits: impl Fn(&Proxy) -> bool) -> Option<ProxyId> {
        let shared = self.shared();
        let fitting = || shared.config.proxies.entries().filter(|(_, proxy)| fits(proxy));
        let number = word.strip_prefix('#').and_then(|digits| digits.parse::<u32>().ok());
        let numbered = number.and_then(|number| fitting().find(|(id, _)| shared.proxy_number(*id) == number));
        numbered.or_else(|| fitting().find(|(_, proxy)| proxy.name == word)).map(|(id, _)| id)
    }
    /// Whether a frontend accepts connections.
    pub fn listening(&self, frontend: ProxyId) -> Listening {
        *self.shared().limits.frontends[frontend].door.0.borrow()
    }
    /// Makes a frontend accept connections, or stop. One that was shut stays shut.
    pub fn listen(&self, frontend: ProxyId, listening: Listening) {
        let door = &self.shared().limits.frontends[frontend].door.0;
        door.send_if_modified(|now| {
            let changes = *now != listening && *now != Listening::Shut;
            if changes {
                *now = listening;
            }
            changes
        });
        let proxy = &self.shared().config.proxies[frontend];
        let (name, kind) = (&proxy.name, if proxy.kind.has_backend() { "proxy" } else { "frontend" });
        match listening {
            Listening::Open => self.warn_of(frontend, format!("Resumed {kind} {name}.")),
            Listening::Paused => self.warn_of(frontend, format!("Paused {kind} {name}.")),
            Listening::Shut => self.announce_end(frontend),
        }
    }
    /// Tells of the end of all proxies that had not ended before: those that listen first, as they stop first.
    pub(super) fn announce_ends(&self) {
        let enabled = || self.shared().config.proxies.entries().filter(|(_, proxy)| !proxy.disabled);
        let (listen, do_not): (Vec<_>, Vec<_>) = enabled().partition(|(_, proxy)| !proxy.binds.is_empty());
        for (id, _) in listen.into_iter().filter(|(id, _)| self.listening(*id) != Listening::Shut).chain(do_not) {
            self.announce_end(id);
        }
    }
    /// Tells that a proxy has ended, and how many connections and requests it has served.
    fn announce_end(&self, proxy: ProxyId) {
        let shared = self.shared();
        let sum = |part| shared.counters.sum_of(proxy, part, |cells| [&cells.connections, &cells.sessions]);
        let ([connections, _], [_, sessions]) = (sum(Part::Frontend), sum(Part::Backend));
        let name = &shared.config.proxies[proxy].name;
        self.warn_of(proxy, format!("Proxy {name} stopped (cumulated conns: FE: {connections}, BE: {sessions})."));
    }
    fn warn_of(&self, proxy: ProxyId, text: String) {
        self.shared().backends.announce(&Notice { proxy, severity: syslog::WARNING, text, mailed: None });
    }
    /// Returns a receiver that ends once every worker has completed one pass of its loop; acceptors have then seen all
    /// earlier changes.
    pub fn settled(&self) -> tokio::sync::mpsc::Receiver<()> {
        let (done, waits) = tokio::sync::mpsc::channel(1);
        for worker in &self.inner.workers {
            let done = done.clone();
            let errand = Errand::new(move |worker| {
                // This runs after the acceptors, which have been woken already.
                let gone_round = async move {
                    tokio::task::yield_now().await;
                    drop(done);
                };
                task::spawn(worker, Who::Worker, gone_round);
            });
            let _ = worker.send(Control::Errand(errand));
        }
        waits
    }
    /// Sets the limit of connections of a frontend.
    pub fn set_frontend_maxconn(&self, frontend: ProxyId, maxconn: u32) {
        let limits = &self.shared().limits;
        limits.frontends[frontend].frontend.max.store(maxconn, Relaxed);
        limits.freed.notify_waiters();
    }
    /// Sets the limit of connections of the process; 0 restores the configured one. Returns false if `maxconn` exceeds
    /// that.
    pub fn set_maxconn(&self, maxconn: u32) -> bool {
        let shared = self.shared();
        let most = shared.config.global.maxconn.unwrap_or(u32::MAX);
        if maxconn > most {
            return false;
        }
        shared.limits.process.max.store(if maxconn == 0 { most } else { maxconn }, Relaxed);
        shared.limits.freed.notify_waiters();
        true
    }
    /// Sets a limit per second of the process; 0 for no limit.
    pub fn set_rate(&self, rated: Rated, limit: u32) {
        self.throttle(rated).set(limit);
    }
    /// A limit per second of the process; 0 for no limit.
    pub fn rate(&self, rated: Rated) -> u32 {
        self.throttle(rated).limit()
    }
    /// Sets the limit of bytes per second that are compressed; 0 for no limit.
    pub fn set_compression_limit(&self, bytes: u64) {
        self.shared().compressing.set_limit(bytes);
    }
    fn throttle(&self, rated: Rated) -> &Throttle {
        let throttles = &self.shared().limits.throttles;
        match rated {
            Rated::Connections => &throttles.connections,
            Rated::Sessions => &throttles.sessions,
            Rated::Tls => &throttles.tls,
        }
    }
    /// Resets the maxima of all counters, and with `all` the counters themselves. Each worker resets its own, in its
    /// own turn; the returned receiver ends once all have.
    pub fn clear_counters(&self, all: bool) -> tokio::sync::mpsc::Receiver<()> {
        let (done, waits) = tokio::sync::mpsc::channel(1);
        let shared = self.shared();
        shared.limits.clear(all);
        if all && let Some(carried) = shared.carried.get() {
            carried.open().forget();
        }
        shared.counters.clear_peaks();
        for backend in shared.backends.iter() {
            backend.clear_counters(all);
        }
        for worker in &self.inner.workers {
            let done = done.clone();
            // A worker that has ended counts nothing any more.
            let _ = worker.send(Control::Errand(Errand::new(move |worker| {
                let who = Who::Worker;
                task::spawn(worker, who, clear(worker.clone(), all, done));
            })));
        }
        waits
    }
}

async fn clear(worker: Rc<Worker>, all: bool, done: tokio::sync::mpsc::Sender<()>) {
    let shared: &Shared = &worker.shared;
    for (id, proxy) in shared.config.proxies.entries() {
        let binds = (0..proxy.binds.len()).map(Part::Listener);
        for part in [Part::Frontend, Part::Backend].into_iter().chain(binds) {
            worker.counters().part(id, part).clear(all);
            turn::spend(1);
            turn::proceed().await;
        }
        let servers = shared.backends.get(id).map(|backend| backend.servers().iter().cloned().collect::<Vec<_>>());
        for server in servers.into_iter().flatten() {
            server.with.cells[worker.id].clear(all);
            turn::spend(1);
            turn::proceed().await;
        }
    }
    drop(done);
}
