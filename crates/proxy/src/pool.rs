//! Connections to servers between exchanges, kept by each worker for itself; which of them a request may use is what
//! `http-reuse` says.

use crate::{server::ServerRef, stream::Stream, worker::Worker};
use penstock_config::{Config, model::HttpReuse};
use penstock_rules::ServerConnFacts;
use std::{cell::RefCell, io::ErrorKind, rc::Rc, time::Duration};
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
    /// The name TLS was asked for.
    pub sni: Option<String>,
}

/// The idle connections of one worker.
pub(crate) struct Pool {
    /// Those of every server, one proxy's after the other's.
    lists: RefCell<Vec<Vec<Idle>>>,
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
        Pool { first: first.collect(), lists: RefCell::new((0..servers).map(|_| Vec::new()).collect()) }
    }
    fn place(&self, at: ServerRef) -> usize {
        self.first[at.proxy] + at.server
    }
    /// The connection used last that this request may have; those found closed by the server are dropped.
    pub fn take(&self, at: ServerRef, reuse: HttpReuse, first_request: bool, sni: Option<&str>) -> Option<Returned> {
        // One that has carried more than one exchange has proved that its server honours keep-alive.
        let proven_only = match (reuse, first_request) {
            (HttpReuse::Never, _) | (HttpReuse::Safe, true) => return None,
            (HttpReuse::Aggressive, true) => true,
            (HttpReuse::Safe | HttpReuse::Aggressive, false) | (HttpReuse::Always, _) => false,
        };
        let list = &mut self.lists.borrow_mut()[self.place(at)];
        loop {
            let usable =
                |idle: &Idle| (idle.connection.uses > 1 || !proven_only) && idle.connection.sni.as_deref() == sni;
            let found = list.swap_remove(list.iter().rposition(usable)?).connection;
            if is_quiet(&found.stream) {
                return Some(found);
            }
        }
    }
    /// Takes a connection back after its exchange, if the server's limits let it be kept.
    pub fn give(&self, worker: &Worker, at: ServerRef, connection: Returned) {
        let settings = &worker.shared.config.proxies[at.proxy].servers[at.server].settings;
        // The limit is the server's; each worker keeps its share.
        let kept =
            usize::try_from(settings.pool_max_conn).map_or(usize::MAX, |all| all.div_ceil(worker.shared.loads.len()));
        let reusable = settings.max_reuse < 0 || connection.uses as i64 <= settings.max_reuse;
        let list = &mut self.lists.borrow_mut()[self.place(at)];
        if reusable && list.len() < kept && !worker.draining.get() {
            list.push(Idle { connection, since: worker.clock.now() });
        }
    }
    /// Closes all of them.
    pub fn clear(&self) {
        self.lists.borrow_mut().iter_mut().for_each(Vec::clear);
    }
    /// Drops what servers have closed, what leads to where a server is no more (its name resolves to another address), and
    /// half of what nobody needed for `pool-purge-delay`.
    fn purge(&self, worker: &Worker) {
        let now = Instant::now();
        let proxies = worker.shared.config.proxies.iter().enumerate();
        let servers = proxies.flat_map(|(proxy, settings)| {
            settings.servers.iter().enumerate().map(move |(server, line)| (ServerRef { proxy, server }, &line.settings))
        });
        for (list, (at, settings)) in self.lists.borrow_mut().iter_mut().zip(servers) {
            let leads_on = |idle: &Idle| !worker.shared.backends.has_left(at, idle.connection.facts.dst);
            list.retain(|idle| is_quiet(&idle.connection.stream) && leads_on(idle));
            let stale = list.iter().filter(|idle| now - idle.since >= settings.pool_purge_delay).count();
            let low = settings.pool_low_conn as usize;
            let mut drop = stale.div_ceil(2).min(list.len().saturating_sub(low));
            list.retain(|idle| {
                let purged = drop > 0 && now - idle.since >= settings.pool_purge_delay;
                drop -= usize::from(purged);
                !purged
            });
        }
    }
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
