//! A connection with or without TLS, as both sides of an exchange use it.

use super::socket::Socket;
use crate::{
    observe::http_counters::Tally,
    worker::{
        buffer::Buffer,
        turn::{self, cost},
    },
};
use penstock_rules::TlsFacts;
use penstock_tls::TlsStream;
use std::{
    cell::Cell,
    io,
    num::NonZeroUsize,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The result of reading into a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    /// This many bytes were added.
    Bytes(NonZeroUsize),
    /// The stream has ended.
    End,
    /// Nothing was read, since the buffer has no room.
    Full,
}

/// A connected stream of plaintext, over TLS or directly over a socket.
pub(crate) enum Stream {
    Clear(Socket),
    Tls(Box<TlsStream<Socket>>),
}

/// A connection that can be closed without its peer's notice.
pub(crate) trait Vanish {
    /// See [`Socket::vanish_on_close`].
    fn vanish_on_close(&self);
}

impl Vanish for Stream {
    fn vanish_on_close(&self) {
        self.socket().vanish_on_close();
    }
}

#[cfg(test)]
impl Vanish for tokio::io::DuplexStream {
    fn vanish_on_close(&self) {}
}

impl Stream {
    /// The socket below.
    pub fn socket(&self) -> &Socket {
        match self {
            Stream::Clear(socket) => socket,
            Stream::Tls(tls) => tls.get_ref(),
        }
    }
    /// The results of the TLS handshake.
    pub fn tls(&self) -> Option<&Arc<TlsFacts>> {
        match self {
            Stream::Clear(_) => None,
            Stream::Tls(tls) => Some(tls.facts()),
        }
    }
    /// Ready when a read would return data, an error or the end of the stream. No buffer is needed while waiting.
    pub fn poll_read_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.has_news() {
            return Poll::Ready(Ok(()));
        }
        let ready = self.socket().poll_read_ready(cx);
        if let (Poll::Pending, Stream::Tls(tls)) = (&ready, self) {
            tls.poll_idle(cx)?;
        }
        ready
    }
    /// Whether a read would return something that has already left the socket.
    pub fn has_news(&self) -> bool {
        match self {
            Stream::Clear(_) => false,
            Stream::Tls(tls) => tls.is_ready(),
        }
    }
    /// Whether the peer has sent nothing for us to read: in TLS, at most messages of the protocol itself, which are taken note of. The
    /// next read has to be polled.
    pub fn is_still(&mut self) -> bool {
        let mut byte = [0];
        let mut room = ReadBuf::new(&mut byte);
        Pin::new(self).poll_read(&mut Context::from_waker(Waker::noop()), &mut room).is_pending()
    }
    /// Reads at most `limit` bytes after the contents of `buffer`.
    pub fn poll_fill(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer, limit: usize) -> Poll<io::Result<Fill>> {
        let mut room = buffer.read_buf(limit);
        if room.remaining() == 0 {
            return Poll::Ready(Ok(Fill::Full));
        }
        ready!(Pin::new(self).poll_read(cx, &mut room))?;
        let read = room.filled().len();
        buffer.filled(read);
        Poll::Ready(Ok(NonZeroUsize::new(read).map_or(Fill::End, Fill::Bytes)))
    }
    /// Writes `data[*sent..]` until all of it is taken.
    pub fn poll_write_all(&mut self, cx: &mut Context<'_>, data: &[u8], sent: &mut usize) -> Poll<io::Result<()>> {
        while *sent < data.len() {
            match ready!(Pin::new(&mut *self).poll_write(cx, &data[*sent..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                n => *sent += n,
            }
        }
        Poll::Ready(Ok(()))
    }
    /// Writes `buffer` until it is empty.
    pub fn poll_drain(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<io::Result<()>> {
        while !buffer.is_empty() {
            match ready!(Pin::new(&mut *self).poll_write(cx, buffer.data()))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                n => buffer.consume(n),
            }
        }
        Poll::Ready(Ok(()))
    }
    /// Tells the peer that nothing more comes, and closes our half; what the peer sends can still be read.
    pub fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self).poll_shutdown(cx)
    }
    /// Whether the peer has said that it sends nothing more, if the protocol has a message for that.
    pub fn has_ended(&self) -> bool {
        match self {
            Stream::Clear(_) => false,
            Stream::Tls(tls) => tls.has_ended(),
        }
    }
    /// Tells the peer that nothing more comes, if the protocol has a message for that.
    pub fn poll_goodbye(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Clear(_) => Poll::Ready(Ok(())),
            Stream::Tls(tls) => tls.poll_close_notify(cx),
        }
    }
    /// Passes to the kernel everything that a lower layer still holds.
    pub fn poll_flush_all(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Clear(_) => Poll::Ready(Ok(())),
            Stream::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(turn::poll_proceed(cx));
        let before = buf.filled().len();
        let polled = match self.get_mut() {
            Stream::Clear(socket) => Pin::new(socket).poll_read(cx, buf),
            Stream::Tls(tls) => Pin::new(tls).poll_read(cx, buf),
        };
        let read = buf.filled().len() - before;
        READ.set(READ.get() + read as u64);
        charge(read);
        polled
    }
}

thread_local! {
    /// Bytes that this worker has read from streams, and written to them, so far.
    static READ: Cell<u64> = const { Cell::new(0) };
    static WRITTEN: Cell<u64> = const { Cell::new(0) };
}

/// Does `work`, which uses no stream but the one counted by `tally`, and counts the bytes that it moved.
pub(crate) fn counted<T>(tally: &Tally, work: impl FnOnce() -> T) -> T {
    let (read, written) = (READ.get(), WRITTEN.get());
    let result = work();
    tally.moved(READ.get() - read, WRITTEN.get() - written);
    result
}

/// Charges the current turn for a call that moved `bytes`.
fn charge(bytes: usize) {
    turn::spend(cost::CALL + cost::KIB * (bytes / 1024) as u32);
}

fn charged(polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
    let written = match polled {
        Poll::Ready(Ok(written)) => written,
        _ => 0,
    };
    WRITTEN.set(WRITTEN.get() + written as u64);
    charge(written);
    polled
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(turn::poll_proceed(cx));
        charged(match self.get_mut() {
            Stream::Clear(socket) => Pin::new(socket).poll_write(cx, buf),
            Stream::Tls(tls) => Pin::new(tls).poll_write(cx, buf),
        })
    }
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(turn::poll_proceed(cx));
        charged(match self.get_mut() {
            Stream::Clear(socket) => Pin::new(socket).poll_write_vectored(cx, bufs),
            Stream::Tls(tls) => Pin::new(tls).poll_write_vectored(cx, bufs),
        })
    }
    fn is_write_vectored(&self) -> bool {
        true
    }
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_flush_all(cx)
    }
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Clear(socket) => Pin::new(socket).poll_shutdown(cx),
            Stream::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}
