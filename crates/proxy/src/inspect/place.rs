//! A place on one of a service's servers, and a connection to it.

use super::ask::Failure;
use crate::{
    connection::{in_time, stream::Stream},
    exchange::{assign, live::Live},
    route::persistence,
    rules::context::Readable,
    server::{Assignment, Backend, Server, Slot, Want},
    servers::{key::key_of, pool::Returned},
};
use penstock_backends::{
    queue::Granted,
    reuse::{Claim, Key},
};
use std::sync::Arc;

/// A connection to a server of a service, and what it needs to be kept afterwards.
pub(super) struct Place {
    pub stream: Stream,
    pub server: Arc<Server>,
    pub key: Key,
    /// How many requests the connection has carried.
    pub uses: u64,
    _slot: Slot,
}

/// What is asked of the service's servers: the balance algorithm decides, and no persistence.
pub(super) fn want(live: &mut Live<'_, '_>, pool: &Backend) -> Want {
    let mut want = persistence::want(live.conn, live.x, pool, Readable::Request);
    want.persistent = None;
    want
}

/// Obtains a place and a connection. A `fresh` one has carried no request before.
pub(super) async fn obtain(
    live: &mut Live<'_, '_>,
    pool: &Arc<Backend>,
    want: &mut Want,
    fresh: bool,
) -> Result<Place, Failure> {
    let worker = live.worker;
    let slot = slot(live, pool, want).await?;
    let server = slot.server().clone();
    // If this fails, another server is tried.
    want.avoid = Some(server.at.server);
    let cells = worker.cells(&server);
    cells.session(worker.now_ms());
    let key = key_of(live.conn, live.x, &server, true, Readable::Request).ok_or(Failure::Unreachable)?;
    let proxy = &worker.shared.config.proxies[pool.proxy];
    let claim = Claim::new(proxy, false, live.conn.own.session());
    let kept = if fresh { None } else { worker.pool.take(&server, &key, &claim) };
    let (stream, uses) = match kept {
        Some(kept) => {
            cells.reuses.inc();
            (kept.stream, kept.uses)
        }
        None => match assign::open(live.conn, &server, Some(&key)).await {
            Some(Ok(stream)) => (stream, 0),
            _ => {
                assign::count_connect_error(worker, &server);
                return Err(Failure::Unreachable);
            }
        },
    };
    Ok(Place { stream, server, key, uses, _slot: slot })
}

async fn slot(live: &mut Live<'_, '_>, pool: &Arc<Backend>, want: &Want) -> Result<Slot, Failure> {
    let worker = live.worker;
    let timeouts = &worker.shared.config.proxies[pool.proxy].timeouts;
    let since = worker.clock.now();
    loop {
        match pool.assign(want) {
            Assignment::Slot(slot) => return Ok(slot),
            Assignment::Queued(mut ticket) => {
                live.conn.deadline.set(since, timeouts.queue.or(timeouts.connect));
                let granted = in_time(&mut live.conn.deadline, &mut ticket).await;
                match granted {
                    Some(Granted::Slot(slot)) => return Ok(slot),
                    Some(Granted::Again) => {}
                    None => return Err(Failure::Busy),
                }
            }
            Assignment::Full => return Err(Failure::Busy),
            Assignment::NoServer => return Err(Failure::Unreachable),
        }
    }
}

impl Place {
    /// Keeps the connection for another request.
    pub fn keep(self, live: &Live<'_, '_>) {
        let facts = assign::facts_of(&self.stream);
        let idle = Returned { stream: self.stream, facts, tally: None, uses: self.uses + 1 };
        live.worker.pool.give(&self.server, self.key, idle, live.worker.clock.now());
    }
}
