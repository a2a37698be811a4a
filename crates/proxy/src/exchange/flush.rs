//! What waits in the client's end of an exchange is sent.

use crate::{connection::in_time, exchange::live::Live, worker::buffer::Buffer};
use std::future::poll_fn;

/// Sends what waits in the client's end; false when the client did not take it in time.
pub(crate) async fn flush(live: &mut Live<'_>) -> bool {
    send(live, &mut Buffer::none()).await
}

/// Sends what waits in the client's end, and these bytes of a body behind it; false when the client did not take it in time.
pub(super) async fn send(live: &mut Live<'_>, bytes: &mut Buffer) -> bool {
    live.conn.deadline.set(live.worker.clock.now(), live.conn.proxy().timeouts.client);
    // A failure shows again, and is handled, when the response is sent.
    in_time(&mut live.conn.deadline, poll_fn(|cx| live.client.poll_send(cx, bytes, None))).await.is_some()
}
