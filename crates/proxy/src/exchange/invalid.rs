//! Keeps invalid messages for `show errors`.

use super::state::Exchange;
use crate::{connection::Conn, observe::captures::BadMessage};
use penstock_http::Error;

/// Keeps an invalid request: `bytes`, or the head in `x` if it has already been consumed, or its line if the head has been sent.
pub(crate) fn keep_request(conn: &Conn<'_>, x: &Exchange, bytes: &[u8], why: Error) {
    let mut bytes = bytes.to_vec();
    if bytes.is_empty() {
        match x.request.target() {
            [] => bytes.extend_from_slice(x.txn.received.whole()),
            _ => x.request.write_to(&mut bytes),
        }
    }
    conn.worker.shared.captures.keep_request(message(conn, x, bytes, why));
}

/// Keeps an invalid response.
pub(crate) fn keep_response(conn: &Conn<'_>, x: &Exchange, bytes: &[u8], why: Error) {
    conn.worker.shared.captures.keep_response(message(conn, x, bytes.to_vec(), why));
}

fn message(conn: &Conn<'_>, x: &Exchange, bytes: Vec<u8>, why: Error) -> BadMessage {
    BadMessage {
        number: conn.worker.shared.captures.next_number(),
        unix_us: conn.worker.clock.unix_us(),
        frontend: conn.frontend,
        backend: x.backend,
        server: x.server.as_ref().map(|server| (server.name.clone(), server.id)),
        source: conn.facts.source(),
        listener_id: conn.facts.listener_id,
        why: why.to_string(),
        bytes,
    }
}
