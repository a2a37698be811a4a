//! Connections to servers between exchanges, kept by each worker for itself; which of them a request may use is what
//! [`Claim`] and [`Key`] say.

use crate::{connection::stream::Stream, observe::counters::Cells, process::shared::Shared};
use penstock_backends::{
    reuse::{Claim, Key, Offer, may_go_on},
    server::ServerRef,
};
use penstock_config::Config;
use penstock_rules::ServerConnFacts;
use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    io::ErrorKind,
    sync::Arc,
};
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
    shared: Arc<Shared>,
    worker: usize,
    /// The worker ends: none is kept from now on.
    closed: Cell<bool>,
}

impl Pool {
    /// The pool of that worker.
    pub fn new(shared: Arc<Shared>, worker: usize) -> Self {
        let mut servers = 0;
        let first = shared.config.proxies.iter().map(|proxy| {
            servers += proxy.servers.len();
            servers - proxy.servers.len()
        });
        let first = first.collect();
        let lists = RefCell::new((0..servers).map(|_| List::default()).collect());
        Pool { first, lists, shared, worker, closed: Cell::new(false) }
    }
    /// What this worker counts for a server.
    fn cells(&self, at: ServerRef) -> &Cells {
        self.shared.counters.worker(self.worker).server(at.proxy, at.server)
    }
    fn place(&self, at: ServerRef) -> usize {
        self.first[at.proxy] + at.server
    }
    /// The connection used last that this request may have; those found closed by the server are dropped.
    pub fn take(&self, key: &Key, claim: &Claim) -> Option<Returned> {
        let mut lists = self.lists.borrow_mut();
        let list = &mut lists[self.place(key.at)];
        if list.len == 0 {
            return None;
        }
        let found = list.take(key, claim);
        list.count(self.cells(key.at));
        found
    }
    /// Takes a connection back after its exchange, if the server's limits let it be kept.
    pub fn give(&self, key: Key, connection: Returned, now: Instant) {
        let settings = &self.shared.config.proxies[key.at.proxy].servers[key.at.server].settings;
        let list = &mut self.lists.borrow_mut()[self.place(key.at)];
        let room = list.len < self.shared.share_of_idle(settings);
        if may_go_on(settings, connection.uses) && room && !self.closed.get() {
            list.len += 1;
            list.safe += usize::from(connection.uses > 1);
            list.count(self.cells(key.at));
            list.alike.entry(key).or_default().push(Idle { connection, since: now });
        }
    }
    /// Closes all of them, and keeps none from now on.
    pub fn close(&self) {
        self.closed.set(true);
        for (list, at) in self.lists.borrow_mut().iter_mut().zip(servers(&self.shared.config)) {
            *list = List::default();
            list.count(self.cells(at));
        }
    }
    /// Drops what servers have closed, what leads to where a server is no more (its name resolves to another address), and
    /// half of what nobody needed for `pool-purge-delay`.
    pub fn purge(&self) {
        let now = Instant::now();
        let config = &self.shared.config;
        for (list, at) in self.lists.borrow_mut().iter_mut().zip(servers(config)).filter(|(list, _)| list.len > 0) {
            let settings = &config.proxies[at.proxy].servers[at.server].settings;
            let is_stale = |idle: &Idle| now - idle.since >= settings.pool_purge_delay;
            list.alike.retain(|key, alike| {
                if self.shared.backends.has_left(key.at, &key.target) {
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
            list.count(self.cells(at));
            if stale == 0 {
                continue;
            }
            let cells = self.cells(at);
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
    fn count(&self, cells: &Cells) {
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
