//! Sends what is queued in the client's end of an exchange.

use super::timeouts::client_timeout;
use crate::{connection::taken_in_time, exchange::live::Live, worker::buffer::Buffer};
use std::future::poll_fn;

/// Why a client was not sent what was queued for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsent {
    /// The client did not take it within `timeout client`.
    Late,
    /// The client's connection, or stream, is closed. What is queued stays queued, so a caller that goes on must not queue more
    /// without end.
    Closed,
}

/// Sends what is queued in the client's end.
pub(crate) async fn flush(live: &mut Live<'_, '_>) -> Result<(), Unsent> {
    send(live, &mut Buffer::none()).await
}

/// Sends what is queued in the client's end, and then `bytes` of a body.
pub(super) async fn send(live: &mut Live<'_, '_>, bytes: &mut Buffer) -> Result<(), Unsent> {
    live.conn.deadline.set(live.worker.clock.now(), client_timeout(live.conn, live.x));
    let sending = poll_fn(|cx| live.client.poll_send(cx, bytes, None));
    match taken_in_time(live.worker, &mut live.conn.deadline, sending).await {
        Some(Ok(())) => Ok(()),
        Some(Err(_)) => Err(Unsent::Closed),
        None => Err(Unsent::Late),
    }
}
