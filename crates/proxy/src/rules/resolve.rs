//! `do-resolve`: looks up the name that a rule asks for.

use super::context::{Readable, context};
use crate::{connection::Conn, exchange::state::Exchange, servers::resolve};

/// Looks up the name that the last evaluation asked for, and sets its variable. If there is no address, the variable is not set.
pub(crate) async fn settle(conn: &mut Conn<'_>, x: &mut Exchange, stage: Readable) {
    let Some(lookup) = x.txn.lookup.take() else { return };
    let worker = conn.worker;
    let found = resolve::address(&worker.shared, lookup.section, &lookup.name, lookup.prefers_ipv4).await;
    if let Some(address) = found {
        lookup.found(address, &mut context(conn, x, stage));
    }
}
