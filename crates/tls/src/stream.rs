//! An open TLS connection. It owns no buffer while idle: reading and writing borrow the worker's.

use crate::{
    buffers::{self, FLOW_MAX, READ_MIN},
    facts,
    handshake::{Flight, poll_drain},
    output::Output,
    session::{Pass, Session},
};
use penstock_engine::worker::InProgress;
use penstock_rules::TlsFacts;
use std::{
    fmt, io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Most bytes that are kept of an incomplete record or post-handshake message.
const HELD_MAX: usize = 96 * 1024;
/// Slices of a vectored write whose total is below this are joined into one record.
const COALESCE: usize = 16 * 1024;

/// A socket with TLS: reads return plaintext, and writes take it.
///
/// A read of zero bytes means that the peer has sent its close_notify. If the socket ends without one, the error has
/// kind `UnexpectedEof` and source [`Truncated`], so that the caller can decide what that means.
pub struct TlsStream<S> {
    socket: S,
    session: Session,
    facts: Arc<TlsFacts>,
    /// Ciphertext of an incomplete record.
    held: Vec<u8>,
    /// Plaintext that did not fit the caller's buffer, and how far it has been read.
    plain: Vec<u8>,
    plain_read: usize,
    /// Ciphertext that is not sent yet: the socket did not take it, or it may be sent with the next write.
    unsent: Output,
    /// Whether the socket refused part of `unsent`, which then has to be sent first, alone.
    backlogged: bool,
    /// Whether nothing but tickets is unsent, and they have not waited yet.
    tickets_may_wait: bool,
    read_end: End,
    sent_close: bool,
    /// The size of the next socket read: doubled when reads fill it, halved when they leave it empty.
    flow: usize,
    /// Counts this connection for the worker.
    _presence: InProgress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    /// The peer has sent its close_notify.
    Closed,
    /// The socket ended without one.
    Truncated,
    Failed,
}

/// The peer's socket ended without a close_notify: the data read may be incomplete.
#[derive(Clone, Copy, Debug)]
pub struct Truncated;

impl fmt::Display for Truncated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection ended without a TLS close_notify")
    }
}

impl std::error::Error for Truncated {}

impl<S> TlsStream<S> {
    pub(crate) fn new(socket: S, flight: Flight, mut presence: InProgress, peer_closed: bool) -> Self {
        presence.opened();
        let Flight { session, mut input, output, plain } = flight;
        input.shrink_to_fit();
        TlsStream {
            socket,
            facts: Arc::new(facts::facts(&session)),
            session,
            held: input,
            plain,
            plain_read: 0,
            unsent: output,
            backlogged: false,
            tickets_may_wait: true,
            read_end: if peer_closed { End::Closed } else { End::Open },
            sent_close: false,
            flow: READ_MIN,
            _presence: presence,
        }
    }

    pub(crate) fn facts_mut(&mut self) -> &mut TlsFacts {
        Arc::make_mut(&mut self.facts)
    }

    /// The results of the handshake.
    pub fn facts(&self) -> &Arc<TlsFacts> {
        &self.facts
    }

    /// The protocol agreed on by ALPN.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.facts.alpn.as_deref()
    }

    /// The underlying socket.
    pub fn get_ref(&self) -> &S {
        &self.socket
    }

    /// Whether the peer has sent its close_notify.
    pub fn has_ended(&self) -> bool {
        self.read_end == End::Closed
    }

    /// Whether a read would return something that no readiness of the socket will announce: plaintext that has been
    /// decrypted, or an end that arrived with earlier data.
    pub fn is_ready(&self) -> bool {
        self.has_plaintext() || self.read_end != End::Open
    }

    fn has_plaintext(&self) -> bool {
        self.plain_read < self.plain.len()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream<S> {
    /// Decrypts to `buf`, through the worker's buffer.
    fn poll_decrypt(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.has_plaintext() {
                self.take_plain(buf);
                return Poll::Ready(Ok(()));
            }
            match self.read_end {
                End::Open => {}
                End::Closed => return Poll::Ready(Ok(())),
                End::Truncated => return Poll::Ready(Err(truncated())),
                End::Failed => return Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
            }
            if buf.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            let polled = buffers::with(|worker| self.poll_records(cx, &mut worker.input, buf));
            if polled.is_pending() && !self.unsent.is_empty() {
                self.poll_idle(cx)?;
            }
            if ready!(polled)? > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Called before waiting for the peer while something is unsent. The first time it is session tickets, which are
    /// best sent in one write with the first response: the task yields once, until the driver has been polled, to see
    /// whether the request has arrived. After that nothing is held back.
    ///
    /// A task that waits for the socket without reading from it must call this too: if a client's system holds back
    /// small writes until earlier data is acknowledged (Nagle), its request only comes then.
    ///
    /// # Errors
    ///
    /// If the socket fails, with its error.
    pub fn poll_idle(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.unsent.is_empty() {
            return Ok(());
        }
        if std::mem::take(&mut self.tickets_may_wait) {
            // The first poll registers our waker for the time after the driver's next turn, and is pending by design.
            let _ = pin!(tokio::task::yield_now()).poll(cx);
        } else if let Poll::Ready(sent) = poll_drain(&mut self.socket, cx, &mut self.unsent) {
            return sent;
        }
        Ok(())
    }

    /// Reads from the socket once and processes the records. Returns the number of plaintext bytes put into `buf`.
    fn poll_records(
        &mut self,
        cx: &mut Context<'_>,
        input: &mut Vec<u8>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<usize>> {
        let held = self.held.len();
        // Not much more than the caller can take, since the rest would have to be copied. A record is always taken
        // whole.
        let room = self.flow.min(buf.remaining() + buf.remaining() / 64 + 256).max(READ_MIN);
        if input.len() < held + room {
            input.resize(held + room, 0);
        }
        input[..held].copy_from_slice(&self.held);
        let mut space = ReadBuf::new(&mut input[held..held + room]);
        ready!(Pin::new(&mut self.socket).poll_read(cx, &mut space))?;
        let read = space.filled().len();
        if read == 0 {
            self.read_end = End::Truncated;
            return Poll::Ready(Err(truncated()));
        }
        self.flow = match read {
            n if n == room => (self.flow * 2).min(FLOW_MAX),
            n if n < self.flow / 4 => (self.flow / 2).max(READ_MIN),
            _ => self.flow,
        };

        let before = buf.filled().len();
        let mut taken = 0;
        let (plain, unsent) = (&mut self.plain, &mut self.unsent);
        plain.clear();
        self.plain_read = 0;
        let data = &mut input[..held + read];
        let mut deliver = |bytes: &[u8]| {
            let fits = bytes.len().min(buf.remaining());
            buf.put_slice(&bytes[..fits]);
            plain.extend_from_slice(&bytes[fits..]);
        };
        let result = self.session.pass(data, &mut taken, &mut deliver, unsent);
        match result {
            Ok(Pass::Open | Pass::Handshaking) => {}
            Ok(Pass::PeerClosed) => self.read_end = End::Closed,
            Err(error) => {
                self.read_end = End::Failed;
                self.session.alert(&mut self.unsent);
                let _ = poll_drain(&mut self.socket, cx, &mut self.unsent);
                // What preceded the bad record belongs to the caller; the error is returned by the next read.
                return Poll::Ready(match buf.filled().len() - before {
                    0 => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
                    delivered => Ok(delivered),
                });
            }
        }
        let rest = &data[taken..];
        if rest.len() > HELD_MAX {
            self.read_end = End::Failed;
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "post-handshake message too long")));
        }
        if rest.is_empty() {
            self.held = Vec::new();
        } else {
            self.held.clear();
            self.held.extend_from_slice(rest);
        }
        let delivered = buf.filled().len() - before;
        if delivered == 0 && self.read_end == End::Closed {
            // Neither an error nor a reason to loop: the caller sees zero bytes.
            return Poll::Ready(Ok(0));
        }
        Poll::Ready(Ok(delivered))
    }

    /// Sends what is unsent and a close_notify; the socket stays open. Enough if the stream is dropped next, which
    /// closes the socket.
    pub fn poll_close_notify(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.sent_close {
            self.sent_close = true;
            if self.read_end != End::Failed {
                let _ = self.session.close_notify(&mut self.held, &mut self.unsent);
            }
        }
        poll_drain(&mut self.socket, cx, &mut self.unsent)
    }

    fn take_plain(&mut self, buf: &mut ReadBuf<'_>) {
        let rest = &self.plain[self.plain_read..];
        let fits = rest.len().min(buf.remaining());
        buf.put_slice(&rest[..fits]);
        self.plain_read += fits;
        if self.plain_read == self.plain.len() {
            self.plain = Vec::new();
            self.plain_read = 0;
        }
    }

    /// Encrypts `slices`, up to the limit per turn, and writes them. Takes plaintext only when no earlier ciphertext is
    /// waiting, so that at most one turn's amount is ever kept.
    fn poll_encrypt(&mut self, cx: &mut Context<'_>, slices: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        if self.sent_close || self.read_end == End::Failed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        // Tickets and key updates that are unsent go out in the same write; a backlog of the socket goes first.
        if self.backlogged || self.unsent.len() > COALESCE {
            ready!(poll_drain(&mut self.socket, cx, &mut self.unsent))?;
            self.backlogged = false;
        }
        buffers::with(|worker| {
            let output = &mut worker.output;
            output.clear();
            output.extend(self.unsent.as_slice());
            self.unsent.release();
            let accepted = self.encrypt(slices, &mut worker.joined, output)?;
            while !output.is_empty() {
                match Pin::new(&mut self.socket).poll_write(cx, output.as_slice()) {
                    Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    Poll::Ready(Ok(written)) => output.consume(written),
                    Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                    Poll::Pending => break,
                }
            }
            self.backlogged = !output.is_empty();
            if self.backlogged {
                self.unsent.extend(output.as_slice());
            }
            Poll::Ready(Ok(accepted))
        })
    }

    /// Appends records with the contents of `slices` to `output`; returns how much plaintext was taken.
    fn encrypt(&mut self, slices: &[io::IoSlice<'_>], joined: &mut Vec<u8>, output: &mut Output) -> io::Result<usize> {
        let total: usize = slices.iter().map(|s| s.len()).sum();
        let failed = |e| io::Error::new(io::ErrorKind::BrokenPipe, e);
        let mut accepted = 0;
        if slices.len() > 1 && total <= COALESCE {
            joined.clear();
            slices.iter().for_each(|s| joined.extend_from_slice(s));
            self.session.encrypt(&mut self.held, joined, output).map_err(failed)?;
            return Ok(total);
        }
        for slice in slices.iter().filter(|s| !s.is_empty()) {
            let share = &slice[..slice.len().min(FLOW_MAX - accepted)];
            self.session.encrypt(&mut self.held, share, output).map_err(failed)?;
            accepted += share.len();
            if accepted == FLOW_MAX {
                break;
            }
        }
        Ok(accepted)
    }
}

fn truncated() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, Truncated)
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_decrypt(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().poll_encrypt(cx, &[io::IoSlice::new(data)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_encrypt(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(poll_drain(&mut this.socket, cx, &mut this.unsent))?;
        Pin::new(&mut this.socket).poll_flush(cx)
    }

    /// Sends close_notify and closes the writing half. Reading continues, so half-close works.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_close_notify(cx))?;
        Pin::new(&mut this.socket).poll_shutdown(cx)
    }
}
