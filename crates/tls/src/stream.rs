//! An open TLS connection. Idle, it owns no buffer: reading and writing borrow the worker's.

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

/// Most bytes of an unfinished record or post-handshake message that are kept.
const HELD_MAX: usize = 96 * 1024;
/// Slices of a vectored write that together stay below this become one record.
const COALESCE: usize = 16 * 1024;

/// A socket with TLS on it. Reads give plaintext, writes take it.
///
/// The end of the peer's data is an `Ok` of zero bytes only after its close_notify. A socket that ends without one gives
/// an error of kind `UnexpectedEof` whose source is [`Truncated`], so that the caller decides what that means.
pub struct TlsStream<S> {
    socket: S,
    session: Session,
    facts: Arc<TlsFacts>,
    /// Ciphertext whose record is not complete.
    held: Vec<u8>,
    /// Plaintext that did not fit the caller's buffer, and how far it has been read.
    plain: Vec<u8>,
    plain_read: usize,
    /// Ciphertext not yet sent: what the socket did not take, or what may go with the next write.
    unsent: Output,
    /// The socket refused part of `unsent`: it goes first, alone.
    backlogged: bool,
    /// Nothing but tickets is unsent, and they have not waited yet.
    tickets_may_wait: bool,
    read_end: End,
    sent_close: bool,
    /// Largest socket read tried: doubled while reads fill it, halved while they leave it empty.
    flow: usize,
    /// The worker has this connection.
    _presence: InProgress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    /// The peer said so.
    Closed,
    /// The socket ended without it.
    Truncated,
    Failed,
}

/// The peer's socket ended without a close_notify: what was read may not be all it sent.
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

    /// What the handshake came to.
    pub fn facts(&self) -> &Arc<TlsFacts> {
        &self.facts
    }

    /// The protocol agreed on by ALPN.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.facts.alpn.as_deref()
    }

    /// The socket below.
    pub fn get_ref(&self) -> &S {
        &self.socket
    }

    /// Whether the peer has sent its close_notify.
    pub fn has_ended(&self) -> bool {
        self.read_end == End::Closed
    }

    /// Whether reading gives something that no readiness of the socket will announce: plaintext that has been decrypted, or an end
    /// that came with what was read before it.
    pub fn is_ready(&self) -> bool {
        self.has_plaintext() || self.read_end != End::Open
    }

    fn has_plaintext(&self) -> bool {
        self.plain_read < self.plain.len()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream<S> {
    /// Decrypts into `buf`, through the worker's buffer.
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

    /// About to wait for the peer while something is to be sent. The first time it is session tickets, which do best in the
    /// same write as the first response: the task comes back once, after a poll of the driver, to see whether the request is
    /// there. After that nothing waits.
    ///
    /// A task that waits for the socket without reading from it calls this too: a client whose system holds back small writes
    /// until what it sent before is acknowledged (Nagle) sends its request only then.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn poll_idle(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.unsent.is_empty() {
            return Ok(());
        }
        if std::mem::take(&mut self.tickets_may_wait) {
            // Its first poll puts our waker behind the driver's next turn, and is pending by design.
            let _ = pin!(tokio::task::yield_now()).poll(cx);
        } else if let Poll::Ready(sent) = poll_drain(&mut self.socket, cx, &mut self.unsent) {
            return sent;
        }
        Ok(())
    }

    /// One socket read and one pass over it. Gives the number of plaintext bytes put into `buf`.
    fn poll_records(
        &mut self,
        cx: &mut Context<'_>,
        input: &mut Vec<u8>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<usize>> {
        let held = self.held.len();
        // Never far more than the caller can take: the rest would be copied aside. A record is always taken whole.
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
                // What came in order before the bad record is the caller's; the error waits for the next read.
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
            // Not an error, and nothing to loop for: the caller sees zero bytes.
            return Poll::Ready(Ok(0));
        }
        Poll::Ready(Ok(delivered))
    }

    /// Sends what there is to send and a close_notify; the socket stays as it is. Enough where the stream is dropped next, which
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

    /// Encrypts what `slices` hold, up to a turn's share, and writes it. Takes plaintext only when no earlier ciphertext is
    /// waiting, so at most one turn of it is ever kept.
    fn poll_encrypt(&mut self, cx: &mut Context<'_>, slices: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        if self.sent_close || self.read_end == End::Failed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        // Tickets and key updates that wait to be sent go out in the same write; a backlog of the socket goes first.
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

    /// Appends records that carry `slices` to `output`; gives the plaintext bytes taken.
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

    /// Sends close_notify and closes the writing half. Reading goes on: half-close is kept.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_close_notify(cx))?;
        Pin::new(&mut this.socket).poll_shutdown(cx)
    }
}
