//! The end of a connection: what was sent last is to arrive, and what a peer still sends must not make a reset of it.

use super::{
    Conn, in_time,
    stream::{Fill, Stream},
    timer::Deadline,
};
use std::{future::poll_fn, pin::Pin, task::Poll, time::Duration};
use tokio::{io::AsyncWrite, time::Instant};

/// Closes a stream whose last bytes have been handed over: TLS says so to the peer. `half`: the peer may still send; else the
/// stream is dropped next, which closes the socket.
pub(crate) async fn close(stream: &mut Stream, deadline: &mut Deadline, half: bool) {
    let closing = poll_fn(|cx| match half {
        true => Pin::new(&mut *stream).poll_shutdown(cx),
        false => stream.poll_goodbye(cx),
    });
    deadline.set(Instant::now(), Some(CLOSE_TIME));
    let _ = in_time(deadline, closing).await;
}

/// A peer that does not take our last bytes for so long is not waited for.
const CLOSE_TIME: Duration = Duration::from_secs(5);

/// How much, and for how long, is read and thrown away of a request that was answered before it ended: closing at once
/// would make the system send a reset, and the client might lose the answer.
pub(crate) const LINGER_BYTES: usize = 1 << 20;
pub(crate) const LINGER_TIME: Duration = Duration::from_secs(2);

/// Reads what still comes, and throws it away.
pub(crate) async fn linger(conn: &mut Conn, stream: &mut Stream) {
    conn.deadline.set(conn.worker.clock.now(), Some(LINGER_TIME));
    let mut buffer = conn.worker.buffers.take();
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
