//! Closing a connection so that the last bytes arrive: whatever the peer still sends must not turn the close into a
//! reset.

use super::{
    Conn, in_time,
    stream::{Fill, Stream},
    timer::Deadline,
};
use std::{future::poll_fn, pin::Pin, task::Poll, time::Duration};
use tokio::{io::AsyncWrite, time::Instant};

/// Closes a stream whose last bytes have been handed over, with a closing message if it uses TLS. With `half` the peer
/// may still send; otherwise the caller drops the stream next, which closes the socket.
pub(crate) async fn close(stream: &mut Stream, deadline: &mut Deadline, half: bool) {
    let closing = poll_fn(|cx| match half {
        true => Pin::new(&mut *stream).poll_shutdown(cx),
        false => stream.poll_goodbye(cx),
    });
    deadline.set(Instant::now(), Some(CLOSE_TIME));
    let _ = in_time(deadline, closing).await;
}

/// How long to wait for a peer that does not take our last bytes.
const CLOSE_TIME: Duration = Duration::from_secs(5);

/// How much of a request that was answered before it ended is read and discarded: closing at once would make the system
/// send a reset, and the client might lose the response.
pub(crate) const LINGER_BYTES: usize = 1 << 20;
pub(crate) const LINGER_TIME: Duration = Duration::from_secs(2);

/// Reads what still arrives, and discards it.
pub(crate) async fn linger(conn: &mut Conn<'_>, stream: &mut Stream) {
    conn.deadline.set(conn.worker.clock.now(), Some(LINGER_TIME));
    let Ok(mut buffer) = conn.worker.buffers.take() else { return };
    let mut left = LINGER_BYTES;
    let deadline = &mut conn.deadline;
    poll_fn(|cx| {
        while left > 0 {
            buffer.clear();
            match stream.poll_fill(cx, &mut buffer, usize::MAX) {
                Poll::Ready(Ok(Fill::Bytes(n))) => left = left.saturating_sub(n.get()),
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return deadline.poll_expired(cx),
            }
        }
        Poll::Ready(())
    })
    .await;
    conn.worker.buffers.give(buffer);
}
