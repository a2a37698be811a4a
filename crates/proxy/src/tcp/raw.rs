//! One end of a connection in `mode tcp`: a byte stream without a protocol, whose first bytes rules may see.

use crate::{
    connection::stream::{Fill, Stream},
    exchange::ends::{Body, Counts, End, Fault, Sink, Source},
    http1::body::give_if_empty,
    process::memory::NoMemory,
    worker::{
        buffer::{Buffer, Buffers},
        state::Worker,
    },
};
use penstock_http::Fields;
use std::{
    future::poll_fn,
    io,
    num::NonZeroUsize,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};
use tokio::io::AsyncWrite;

/// How much of a client's data is discarded before its connection is closed; a client that has sent more is reset.
const DISCARD_BYTES: usize = 64 * 1024;

/// One end of a connection as a stream of bytes.
pub(crate) struct Raw {
    pub stream: Stream,
    worker: Rc<Worker>,
    /// Bytes read while rules looked at them.
    pub input: Option<Buffer>,
    pub counts: Counts,
    /// Whether our half is closed.
    shut: bool,
    /// Whether bytes after those already read are ignored.
    pub cut: bool,
    /// Whether this is the client's end rather than the server's.
    is_client: bool,
}

impl Raw {
    pub fn new(stream: Stream, worker: &Rc<Worker>, is_client: bool) -> Self {
        Raw {
            stream,
            worker: worker.clone(),
            input: None,
            counts: Counts::default(),
            shut: false,
            cut: false,
            is_client,
        }
    }
    pub fn buffers(&self) -> &Buffers {
        &self.worker.buffers
    }
    /// Reads more for rules to look at.
    pub fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Fill>> {
        if self.input.is_none() {
            ready!(self.stream.poll_read_ready(cx))?;
        }
        let input = self.worker.buffers.hold(&mut self.input)?;
        let read = self.stream.poll_fill(cx, input, usize::MAX);
        give_if_empty(&mut self.input, &self.worker.buffers);
        read
    }
    /// Takes bytes that were read before, which are at most as many as a buffer has room for.
    ///
    /// # Errors
    ///
    /// If there is no memory for them.
    pub fn put_back(&mut self, bytes: &[u8]) -> Result<(), NoMemory> {
        if !bytes.is_empty() {
            let taken = self.worker.buffers.hold(&mut self.input)?.append(bytes);
            debug_assert_eq!(taken, bytes.len());
        }
        Ok(())
    }
    /// Discards what has arrived already, and counts it: if it stayed unread, closing would send a reset instead of an orderly end.
    pub async fn discard(&mut self) {
        let mut left = DISCARD_BYTES;
        poll_fn(|cx| {
            loop {
                let arrived = self.pending().len();
                self.counts.received += arrived as u64;
                left = left.saturating_sub(arrived);
                self.give_back();
                if left == 0 || !matches!(self.poll_more(cx), Poll::Ready(Ok(Fill::Bytes(_)))) {
                    return Poll::Ready(());
                }
            }
        })
        .await;
    }
    /// Returns the buffer of bytes that were read and will not be forwarded.
    pub fn give_back(&mut self) {
        if let Some(mut input) = self.input.take() {
            input.clear();
            self.worker.buffers.give(input);
        }
    }
    /// Whether nothing more can be read before some is forwarded.
    pub fn is_full(&self) -> bool {
        self.input.as_ref().is_some_and(Buffer::is_full)
    }
    /// Bytes that have arrived, whether or not they have been read.
    pub fn received(&self) -> u64 {
        self.counts.received + self.pending().len() as u64
    }
    /// Bytes read and not yet forwarded.
    pub fn pending(&self) -> &[u8] {
        self.input.as_ref().map_or(&[], Buffer::data)
    }
}

impl Source for Raw {
    fn poll_body(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<Result<Body, Fault>> {
        if self.cut && self.input.is_none() {
            return Poll::Ready(Ok(Body::End));
        }
        if let Some(input) = &mut self.input {
            let taken = buffer.append(input.data());
            input.consume(taken);
            give_if_empty(&mut self.input, &self.worker.buffers);
            self.counts.received += taken as u64;
            return Poll::Ready(Ok(NonZeroUsize::new(taken).map_or(Body::Full, Body::More)));
        }
        Poll::Ready(match ready!(self.stream.poll_fill(cx, buffer, usize::MAX)) {
            Ok(Fill::Bytes(read)) => {
                self.counts.received += read.get() as u64;
                Ok(Body::More(read))
            }
            Ok(Fill::Full) => Ok(Body::Full),
            Ok(Fill::End) => Ok(Body::End),
            // TLS clients often just close: what they sent counts as complete, since no protocol says otherwise.
            Err(e) if self.is_client && e.kind() == io::ErrorKind::UnexpectedEof => Ok(Body::End),
            Err(e) => Err(e.into()),
        })
    }
    fn trailers(&self) -> Option<&Fields> {
        None
    }
}

impl Sink for Raw {
    fn taken(&self) -> u64 {
        self.counts.sent.saturating_sub(self.stream.socket().untaken() as u64)
    }
    fn poll_send(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer, end: Option<End<'_>>) -> Poll<io::Result<()>> {
        let before = buffer.len();
        let result = self.stream.poll_drain(cx, buffer);
        self.counts.sent += (before - buffer.len()) as u64;
        ready!(result)?;
        ready!(self.stream.poll_flush_all(cx))?;
        if end.is_some() && !self.shut {
            // Everything has been sent: if the peer has reset the connection after its own last bytes, it misses
            // nothing.
            let _ = ready!(Pin::new(&mut self.stream).poll_shutdown(cx));
            self.shut = true;
        }
        Poll::Ready(Ok(()))
    }
}
