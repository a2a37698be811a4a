//! Connections to servers between exchanges, kept by each worker for itself; which of them a request may use is what
//! [`Claim`] and [`Key`] say.

use crate::{
    connection::stream::Stream,
    reuse::{Claim, Key, Offer, may_go_on},
    server::ServerRef,
    worker::state::Worker,
};
use penstock_config::Config;
use penstock_rules::ServerConnFacts;
use std::{cell::RefCell, collections::HashMap, io::ErrorKind, rc::Rc, time::Duration};
use tokio::time::Instant;

/// A connection without an exchange.
struct Idle {
    connection: Returned,
    since: Instant,
}

/// A connection that has carried an exchange and may carry another.
pub(crate) struct Returned {
    pub stream: Stream,
    pub facts: ServerConnFacts,
    /// Exchanges it has carried.
    pub uses: u64,
}

/// The idle connections of one worker to one server.
#[derive(Default)]
struct List {
    alike: HashMap<Key, Vec<Idle>>,
    /// How many there are.
    len: usize,
    /// Those that have carried more than one exchange.
    safe: usize,
}

/// The idle connections of one worker.
pub(crate) struct Pool {
    /// Those of every server, one proxy's after the other's.
    lists: RefCell<Vec<List>>,
    /// Where each proxy's begin.
    first: Vec<usize>,
}

impl Pool {
    pub fn new(config: &Config) -> Self {
        let mut servers = 0;
        let first = config.proxies.iter().map(|proxy| {
            servers += proxy.servers.len();
            servers - proxy.servers.len()
        });
        Pool { first: first.collect(), lists: RefCell::new((0..servers).map(|_| List::default()).collect()) }
    }
    fn place(&self, at: ServerRef) -> usize {
        self.first[at.proxy] + at.server
    }
    /// The connection used last that this request may have; those found closed by the server are dropped.
    pub fn take(&self, worker: &Worker, key: &Key, claim: &Claim) -> Option<Returned> {
        let mut lists = self.lists.borrow_mut();
        let list = &mut lists[self.place(key.at)];
        if list.len == 0 {
            return None;
        }
        let found = list.take(key, claim);
        list.count(worker, key.at);
        found
    }
    /// Takes a connection back after its exchange, if the server's limits let it be kept.
    pub fn give(&self, worker: &Worker, key: Key, connection: Returned) {
        let settings = &worker.shared.config.proxies[key.at.proxy].servers[key.at.server].settings;
        let list = &mut self.lists.borrow_mut()[self.place(key.at)];
        let room = list.len < worker.share_of_idle(settings);
        if may_go_on(settings, connection.uses) && room && !worker.draining.get() {
            list.len += 1;
            list.safe += usize::from(connection.uses > 1);
            list.count(worker, key.at);
            list.alike.entry(key).or_default().push(Idle { connection, since: worker.clock.now() });
        }
    }
    /// Closes all of them.
    pub fn clear(&self, worker: &Worker) {
        for (list, at) in self.lists.borrow_mut().iter_mut().zip(servers(&worker.shared.config)) {
            *list = List::default();
            list.count(worker, at);
        }
    }
    /// Drops what servers have closed, what leads to where a server is no more (its name resolves to another address), and
    /// half of what nobody needed for `pool-purge-delay`.
    fn purge(&self, worker: &Worker) {
        let now = Instant::now();
        let config = &worker.shared.config;
        for (list, at) in self.lists.borrow_mut().iter_mut().zip(servers(config)).filter(|(list, _)| list.len > 0) {
            let settings = &config.proxies[at.proxy].servers[at.server].settings;
            let is_stale = |idle: &Idle| now - idle.since >= settings.pool_purge_delay;
            list.alike.retain(|key, alike| {
                if worker.shared.backends.has_left(key.at, &key.target) {
                    alike.clear();
                }
                alike.retain(|idle| is_quiet(&idle.connection.stream));
                !alike.is_empty()
            });
            let stale = list.alike.values().flatten().filter(|idle| is_stale(idle)).count();
            let mut drop = stale.div_ceil(2);
            list.alike.values_mut().for_each(|alike| {
                alike.retain(|idle| {
                    let purged = drop > 0 && is_stale(idle);
                    drop -= usize::from(purged);
                    !purged
                });
            });
            list.len = list.alike.values().map(Vec::len).sum();
            list.safe = list.alike.values().flatten().filter(|idle| idle.connection.uses > 1).count();
            list.count(worker, at);
            if stale == 0 {
                continue;
            }
            let cells = worker.counters().server(at.proxy, at.server);
            let (used, needed) = (cells.used_connections.read(), cells.needed_connections.read());
            cells.needed_connections.set(used.max((used + needed) / 2));
        }
    }
}

impl List {
    /// The connection used last that this request may have.
    fn take(&mut self, key: &Key, claim: &Claim) -> Option<Returned> {
        let alike = self.alike.get_mut(key)?;
        loop {
            let offer = |idle: &Idle| Offer { carried: idle.connection.uses, running: None, multiplexed: false };
            let found = alike.swap_remove(alike.iter().rposition(|idle| claim.may_have(&offer(idle)))?).connection;
            self.len -= 1;
            self.safe -= usize::from(found.uses > 1);
            if is_quiet(&found.stream) {
                return Some(found);
            }
        }
    }
    /// Shows in the counters how many there are.
    fn count(&self, worker: &Worker, at: ServerRef) {
        let cells = worker.counters().server(at.proxy, at.server);
        cells.idle_connections.set(self.len as u64);
        cells.safe_idle_connections.set(self.safe as u64);
    }
}

/// All servers, one proxy's after the other's.
fn servers(config: &Config) -> impl Iterator<Item = ServerRef> + '_ {
    let proxies = config.proxies.iter().enumerate();
    proxies.flat_map(|(proxy, conf)| (0..conf.servers.len()).map(move |server| ServerRef { proxy, server }))
}

/// The server has sent nothing, an end included. Mostly the reactor knows; only after a read that took exactly what was
/// there the kernel is asked.
pub(crate) fn is_quiet(stream: &Stream) -> bool {
    !stream.has_news() && matches!(stream.socket().try_peek(&mut [0]), Err(e) if e.kind() == ErrorKind::WouldBlock)
}

/// A worker's purge of its pool.
pub(crate) async fn run(worker: Rc<Worker>) {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        worker.pool.purge(&worker);
        worker.muxes.purge(&worker);
    }
}
