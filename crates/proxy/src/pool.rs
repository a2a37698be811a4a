//! Connections to servers between exchanges, kept by each worker for itself; which of them a request may use is what
//! `http-reuse` says.

use crate::{server::ServerRef, stream::Stream, worker::Worker};
use penstock_config::model::HttpReuse;
use std::{
    cell::RefCell,
    collections::HashMap,
    io::ErrorKind,
    rc::Rc,
    task::{Context, Waker},
    time::Duration,
};
use tokio::time::Instant;

/// A connection without an exchange.
struct Idle {
    stream: Stream,
    since: Instant,
    /// It has carried more than one exchange: the server honours keep-alive.
    proven: bool,
    uses: u64,
    /// The name TLS was asked for.
    sni: Option<String>,
}

/// A connection taken out for an exchange.
pub(crate) struct Taken {
    pub stream: Stream,
    /// Exchanges it has carried.
    pub uses: u64,
}

/// The idle connections of one worker.
#[derive(Default)]
pub(crate) struct Pool {
    idle: RefCell<HashMap<ServerRef, Vec<Idle>>>,
}

impl Pool {
    /// The connection used last that this request may have; those found closed by the server are dropped.
    pub fn take(&self, at: ServerRef, reuse: HttpReuse, first_request: bool, sni: Option<&str>) -> Option<Taken> {
        let mut idle = self.idle.borrow_mut();
        let list = idle.get_mut(&at)?;
        let proven_only = match (reuse, first_request) {
            (HttpReuse::Never, _) | (HttpReuse::Safe, true) => return None,
            (HttpReuse::Aggressive, true) => true,
            (HttpReuse::Safe | HttpReuse::Aggressive, false) | (HttpReuse::Always, _) => false,
        };
        loop {
            let position = list.iter().rposition(|c| (c.proven || !proven_only) && c.sni.as_deref() == sni)?;
            let found = list.swap_remove(position);
            if is_quiet(&found.stream) {
                return Some(Taken { stream: found.stream, uses: found.uses });
            }
        }
    }
    /// Takes a connection back after its exchange, if the server's limits let it be kept.
    pub fn give(&self, worker: &Worker, at: ServerRef, stream: Stream, uses: u64, sni: Option<String>) {
        let settings = &worker.shared.config.proxies[at.proxy].servers[at.server].settings;
        // The limit is the server's; each worker keeps its share.
        let workers = worker.shared.loads.len() as i64;
        let kept = usize::try_from((settings.pool_max_conn + workers - 1) / workers).unwrap_or(usize::MAX);
        let reusable = settings.max_reuse < 0 || (uses as i64) <= settings.max_reuse;
        let mut idle = self.idle.borrow_mut();
        let list = idle.entry(at).or_default();
        if reusable && settings.pool_max_conn != 0 && list.len() < kept.max(1) && !worker.draining.get() {
            list.push(Idle { stream, since: Instant::now(), proven: uses > 1, uses, sni });
        }
    }
    /// Idle connections to a server.
    pub fn len(&self, at: ServerRef) -> usize {
        self.idle.borrow().get(&at).map_or(0, Vec::len)
    }
    /// Closes all of them.
    pub fn clear(&self) {
        self.idle.borrow_mut().clear();
    }
    /// Drops what servers have closed, and half of what nobody needed for `pool-purge-delay`.
    fn purge(&self, worker: &Worker) {
        let now = Instant::now();
        for (at, list) in self.idle.borrow_mut().iter_mut() {
            list.retain(|idle| is_quiet(&idle.stream));
            let settings = &worker.shared.config.proxies[at.proxy].servers[at.server].settings;
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
fn is_quiet(stream: &Stream) -> bool {
    stream.poll_read_ready(&mut Context::from_waker(Waker::noop())).is_pending()
        || matches!(stream.socket().try_peek(&mut [0]), Err(e) if e.kind() == ErrorKind::WouldBlock)
}

/// A worker's purge of its pool.
pub(crate) async fn run(worker: Rc<Worker>) {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        worker.pool.purge(&worker);
        worker.muxes.purge(&worker);
    }
}
