//! Sends what is queued in the client's end of an exchange.

use crate::{connection::in_time, exchange::live::Live, worker::buffer::Buffer};
use std::future::poll_fn;

/// Sends what is queued in the client's end; returns false if the client did not take it in time.
pub(crate) async fn flush(live: &mut Live<'_>) -> bool {
    send(live, &mut Buffer::none()).await
}

/// Sends what is queued in the client's end, and then `bytes` of a body; returns false if the client did not take them
/// in time.
pub(super) async fn send(live: &mut Live<'_>, bytes: &mut Buffer) -> bool {
    live.conn.deadline.set(live.worker.clock.now(), live.conn.proxy().timeouts.client);
    // An error appears again, and is handled, when the response is sent.
    in_time(&mut live.conn.deadline, poll_fn(|cx| live.client.poll_send(cx, bytes, None))).await.is_some()
}
