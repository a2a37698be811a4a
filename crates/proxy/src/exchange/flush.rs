//! What waits in the client's end of an exchange is sent.

use super::ends::Client;
use crate::{
    connection::{Conn, in_time},
    worker::buffer::Buffer,
};
use std::future::poll_fn;

/// Sends what waits in the client's end; false when the client did not take it in time.
pub(crate) async fn flush(conn: &mut Conn, client: &mut dyn Client) -> bool {
    send(conn, client, &mut Buffer::none()).await
}

/// Sends what waits in the client's end, and these bytes of a body behind it; false when the client did not take it in time.
pub(super) async fn send(conn: &mut Conn, client: &mut dyn Client, bytes: &mut Buffer) -> bool {
    conn.deadline.set(conn.worker.clock.now(), conn.proxy().timeouts.client);
    // A failure shows again, and is handled, when the response is sent.
    in_time(&mut conn.deadline, poll_fn(|cx| client.poll_send(cx, bytes, None))).await.is_some()
}
