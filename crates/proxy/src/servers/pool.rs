//! Idle connections to servers, which each worker keeps for itself; [`Claim`] and [`Key`] decide which of them a
//! request may use.

use crate::{
    connection::stream::Stream,
    observe::{counters::Cells, http_counters::Tally},
    process::shared::Shared,
    server::{Server, ServerRef},
};
use foldhash::HashMap;
use penstock_backends::reuse::{Claim, Key, Offer, may_go_on};
use penstock_rules::ServerConnFacts;
use std::{
    cell::{Cell, RefCell},
    io::ErrorKind,
    sync::Arc,
};
use tokio::time::Instant;

/// A connection without an exchange.
struct Idle {
    connection: Returned,
    since: Instant,
}

/// A connection that has carried an exchange and can carry another.
pub(crate) struct Returned {
    pub stream: Stream,
    pub facts: ServerConnFacts,
    /// Counts it as open, if it speaks HTTP.
    pub tally: Option<Tally>,
    /// Exchanges it has carried.
    pub uses: u64,
}

impl Returned {
    /// Closes the connection.
    pub fn close(self) {
        self.stream.socket().hang_up_on_close();
    }
}

/// The idle connections of one worker to one server.
#[derive(Default)]
struct List {
    alike: HashMap<Key, Vec<Idle>>,
    /// Number of connections.
    len: usize,
    /// Number of those that have carried more than one exchange.
    safe: usize,
}

/// The idle connections of one worker.
pub(crate) struct Pool {
    /// By server.
    lists: RefCell<HashMap<ServerRef, List>>,
    shared: Arc<Shared>,
    worker: usize,
    /// Whether the worker is ending and keeps no more connections.
    closed: Cell<bool>,
}

impl Pool {
    /// The pool of one worker.
    pub fn new(shared: Arc<Shared>, worker: usize) -> Self {
        Pool { lists: RefCell::default(), shared, worker, closed: Cell::new(false) }
    }
    /// This worker's cells for a server.
    fn cells<'a>(&self, server: &'a Server) -> &'a Cells {
        &server.with.cells[self.worker]
    }
    /// Takes the most recently used connection that this request may use; drops those that the server has closed.
    pub fn take(&self, server: &Server, key: &Key, claim: &Claim) -> Option<Returned> {
        let mut lists = self.lists.borrow_mut();
        let list = lists.get_mut(&server.at).filter(|list| list.len > 0)?;
        let found = list.take(key, claim);
        list.count(self.cells(server));
        found
    }
    /// Takes a connection back after its exchange, if the server's limits allow keeping it.
    pub fn give(&self, server: &Server, key: Key, connection: Returned, now: Instant) {
        let settings = &server.config.settings;
        let mut lists = self.lists.borrow_mut();
        let list = lists.entry(server.at).or_default();
        let room = list.len < self.shared.share_of_idle(settings);
        if may_go_on(settings, connection.uses) && room && !self.closed.get() {
            list.len += 1;
            list.safe += usize::from(connection.uses > 1);
            list.count(self.cells(server));
            list.alike.entry(key).or_default().push(Idle { connection, since: now });
        } else {
            connection.close();
        }
    }
    /// Closes all connections, and keeps none from now on.
    pub fn close(&self) {
        self.closed.set(true);
        for (at, list) in self.lists.borrow_mut().drain() {
            list.close();
            if let Some(server) = self.shared.backends.server(at) {
                List::default().count(self.cells(&server));
            }
        }
    }
    /// Drops connections that servers have closed, connections that are no longer the server's (its name resolves
    /// to another address, it was removed, or TLS was switched on or off), and half of those not needed for `pool-purge-delay`.
    pub fn purge(&self) {
        let now = Instant::now();
        self.lists.borrow_mut().retain(|at, list| {
            let Some(server) = self.shared.backends.server(*at) else {
                std::mem::take(list).close();
                return false;
            };
            if list.len > 0 {
                self.purge_list(&server, list, now);
            }
            true
        });
    }
    fn purge_list(&self, server: &Server, list: &mut List, now: Instant) {
        let settings = &server.config.settings;
        let is_stale = |idle: &Idle| now - idle.since >= settings.pool_purge_delay;
        list.alike.retain(|key, alike| {
            let left = server.has_left(key);
            alike
                .extract_if(.., |idle| left || !is_quiet(&idle.connection.stream))
                .for_each(|idle| idle.connection.close());
            !alike.is_empty()
        });
        let stale = list.alike.values().flatten().filter(|idle| is_stale(idle)).count();
        let mut drop = stale.div_ceil(2);
        list.alike.values_mut().for_each(|alike| {
            let purged = alike.extract_if(.., |idle| {
                let purged = drop > 0 && is_stale(idle);
                drop -= usize::from(purged);
                purged
            });
            purged.for_each(|idle| idle.connection.close());
        });
        list.len = list.alike.values().map(Vec::len).sum();
        list.safe = list.alike.values().flatten().filter(|idle| idle.connection.uses > 1).count();
        let cells = self.cells(server);
        list.count(cells);
        if stale == 0 {
            return;
        }
        let (used, needed) = (cells.used_connections.read(), cells.needed_connections.read());
        cells.needed_connections.set(used.max((used + needed) / 2));
    }
}

impl List {
    /// Takes the most recently used connection that this request may use.
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
    /// Closes all connections.
    fn close(self) {
        self.alike.into_values().flatten().for_each(|idle| idle.connection.close());
    }
    /// Updates the counters of idle connections.
    fn count(&self, cells: &Cells) {
        cells.idle_connections.set(self.len as u64);
        cells.safe_idle_connections.set(self.safe as u64);
    }
}

/// Whether the server has sent nothing, not even an end of stream. Usually the reactor knows; only after a read that
/// took exactly what was there is the kernel asked.
pub(crate) fn is_quiet(stream: &Stream) -> bool {
    !stream.has_news() && matches!(stream.socket().try_peek(&mut [0]), Err(e) if e.kind() == ErrorKind::WouldBlock)
}
