//! A layer between the TLS stream and h2 that counts a peer's frames by type, and cuts the peer off if it only causes
//! work.
//!
//! h2 bounds resets of streams that were not accepted yet, the size of header blocks and the number of small DATA
//! frames, but not control frames. Every flood named in CVE-2019-9511 to 9518, CVE-2023-44487 (Rapid Reset) and the
//! CONTINUATION flood of 2024 consists of frames that cost the peer nothing and complete no request. Such frames
//! therefore spend a budget, which is refilled by what honest clients do alongside: finish streams, take bytes, and let
//! time pass.

mod budget;
mod frames;
mod glitches;

use super::{
    heads::{Heads, Passed},
    outlet::Outlet,
    resets::Resets,
};
use crate::{
    connection::stream::Vanish,
    observe::http_counters::Tally,
    process::memory::{Loan, Memory, of_stream},
    worker::turn::{self, cost},
};
use budget::{BYTES_PER_UPDATE, Budget, Moved, UPDATES_PER_DATA};
use frames::{Frames, KIND, PREFACE_BYTES, Part, Sent, Side};
use glitches::Glitches;
use h2::Reason;
use penstock_http::hpack::Block;
use penstock_rules::MuxFacts;
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    io,
    mem::MaybeUninit,
    pin::Pin,
    rc::Rc,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll, ready},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

/// State shared by a connection's task and its guard.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    failure: Cell<Option<Reason>>,
    finished: Cell<u32>,
    asked: Cell<u32>,
    /// Whether something was received since this was looked at.
    received: Cell<bool>,
    /// DATA that streams have sent and the guard has not accounted for yet.
    sent: Cell<Moved>,
    /// What streams have passed to h2.
    pub outlet: Outlet,
    /// DATA that streams have received and not forwarded.
    pub held: Loan,
    /// What streams take besides.
    pub streams: Loan,
    /// What rules can see of the connection.
    pub mux: Arc<MuxFacts>,
    /// How many glitches are too many; 0 for none.
    glitches_threshold: Cell<u32>,
    /// Glitches that stick tables have not been told of.
    glitches: Cell<u32>,
    /// Malformed requests that have not been logged.
    malformed: Cell<u32>,
    /// Since when our half of the connection is closed.
    parted: Cell<Option<Instant>>,
    /// Whether a rule drops the client silently, with all of its streams.
    vanished: Cell<bool>,
    paths: RefCell<Paths>,
}

/// The real paths of streams for which h2 has a substitute and which it has not delivered yet.
#[derive(Debug, Default)]
struct Paths {
    of: VecDeque<(u32, Box<[u8]>)>,
    bytes: usize,
}

impl Paths {
    fn drop_first(&mut self) -> Option<Box<[u8]>> {
        let (_, path) = self.of.pop_front()?;
        self.bytes -= path.len();
        Some(path)
    }
}

/// Maximum total size of the paths that h2 cannot represent and that wait for their streams: enough for a hundred long
/// ones. Otherwise a peer whose streams are all refused could make us keep any number.
const PATHS_MAX: usize = 256 * 1024;

impl Signals {
    /// Has what is kept for the peer count in `memory`.
    pub fn count_in(&self, memory: &Arc<Memory>) {
        self.outlet.loan.count_in(memory, false);
        self.held.count_in(memory, false);
        self.streams.count_in(memory, true);
    }
    /// The reason why the peer is to be disconnected, if it is.
    pub fn failure(&self) -> Option<Reason> {
        self.failure.get()
    }
    /// Since when our half of the connection is closed, and what still comes is discarded.
    pub fn parted(&self) -> Option<Instant> {
        self.parted.get()
    }
    /// Has the connection end without a byte more.
    pub fn vanish(&self) {
        self.vanished.set(true);
    }
    /// The peer floods us.
    /// Whether something was received since the last call.
    pub fn received(&self) -> bool {
        self.received.take()
    }
    fn flooded(&self) {
        self.glitched(1);
        self.failure.set(Some(Reason::ENHANCE_YOUR_CALM));
    }
    /// Counts glitches, and disconnects a peer that has too many.
    fn glitched(&self, glitches: u32) {
        if glitches == 0 {
            return;
        }
        self.glitches.set(self.glitches.get().saturating_add(glitches));
        let all = self.mux.glitches.load(Relaxed).saturating_add(glitches);
        self.mux.glitches.store(all, Relaxed);
        let threshold = self.glitches_threshold.get();
        if threshold > 0 && all >= threshold && self.failure.get().is_none() {
            self.failure.set(Some(Reason::ENHANCE_YOUR_CALM));
        }
    }
    /// How many glitches there were since the last call.
    pub fn glitches(&self) -> u32 {
        self.glitches.take()
    }
    /// How many streams have an exchange.
    pub fn open(&self) -> usize {
        self.mux.streams.load(Relaxed) as usize
    }
    /// Records how many streams have an exchange.
    pub fn set_open(&self, streams: usize) {
        self.mux.streams.store(u32::try_from(streams).unwrap_or(u32::MAX), Relaxed);
    }
    /// How many malformed requests there were since the last call.
    pub fn malformed(&self) -> u32 {
        self.malformed.take()
    }
    /// The path that this stream really asked for. Must be called in the order of stream ids.
    pub fn path_of(&self, stream: u32) -> Option<Box<[u8]>> {
        let mut paths = self.paths.borrow_mut();
        while paths.of.front().is_some_and(|(of, _)| *of < stream) {
            paths.drop_first();
        }
        let of_this = paths.of.front().is_some_and(|(of, _)| *of == stream);
        if of_this { paths.drop_first() } else { None }
    }
    /// Records the result of parsing a header block; returns whether there was room for it.
    fn heard(&self, stream: u32, block: Block) -> bool {
        if self.streams.take(of_stream(block.fields as usize)).is_err() {
            return false;
        }
        let fields = cost::FIELD * block.fields + cost::LITERAL * block.literals;
        turn::spend(fields + cost::KIB * u32::try_from(block.size >> 10).unwrap_or(u32::MAX / 8));
        self.malformed.set(self.malformed.get() + u32::from(block.malformed));
        let Some(path) = block.path.filter(|_| !block.malformed) else { return true };
        let mut paths = self.paths.borrow_mut();
        paths.bytes += path.len();
        paths.of.push_back((stream, path));
        paths.bytes <= PATHS_MAX
    }
    /// Records that a stream ended with a complete response.
    pub fn stream_finished(&self) {
        self.finished.set(self.finished.get().saturating_add(1));
    }
    /// Records that a request was sent to the server.
    pub fn asked(&self) {
        self.asked.set(self.asked.get().saturating_add(1));
    }
    /// Records that a stream has sent `bytes` of DATA while the peer's window holds back `kept_back` more.
    ///
    /// If the window made the frame small, only its bytes count as credit: otherwise a peer that opens its window byte
    /// by byte would pay for each WINDOW_UPDATE with the previous one (CVE-2019-9511, "Data Dribble").
    pub fn data_sent(&self, bytes: usize, kept_back: usize) {
        let mut sent = self.sent.get();
        sent.frame(bytes);
        sent.frames -= u32::from(kept_back > 0 && bytes < BYTES_PER_UPDATE as usize * UPDATES_PER_DATA as usize);
        self.sent.set(sent);
        self.outlet.data(bytes);
    }
}

/// A stream whose incoming frames are counted before h2 sees them.
pub(crate) struct Guard<S> {
    inner: S,
    side: Side,
    begun: Vec<u8>,
    frames: Frames,
    /// Only for a client's stream.
    heads: Option<Heads>,
    /// Bytes to be read before any others.
    ready: Vec<u8>,
    budget: Budget,
    glitches: Glitches,
    resets: Resets,
    /// Counts the connection and its frames.
    tally: Option<Tally>,
    sent: Sent,
    /// How much more is discarded of what comes behind our last bytes.
    discards: usize,
    signals: Rc<Signals>,
}

impl<S> Guard<S> {
    /// Guards what a client sends, from its preface on; `begun` has been read already. `table_size` is the HPACK table size
    /// that our settings allow.
    pub fn of_client(inner: S, begun: Vec<u8>, table_size: u32) -> (Self, Rc<Signals>) {
        let heads = Heads::behind(PREFACE_BYTES, table_size as usize).settings_first();
        Guard::new(inner, Side::Client, begun, Some(heads))
    }
    /// Guards what a server sends. A flood ends its connection with an error.
    pub fn of_server(inner: S) -> (Self, Rc<Signals>) {
        Guard::new(inner, Side::Server, Vec::new(), None)
    }
    fn new(inner: S, side: Side, begun: Vec<u8>, heads: Option<Heads>) -> (Self, Rc<Signals>) {
        let signals = Rc::new(Signals::default());
        let guard = Guard {
            inner,
            side,
            begun,
            frames: Frames::from(side),
            heads,
            ready: Vec::new(),
            budget: Budget::new(Instant::now()),
            glitches: Glitches::default(),
            resets: Resets::default(),
            tally: None,
            sent: Sent::default(),
            discards: 0,
            signals: signals.clone(),
        };
        (guard, signals)
    }
    /// Counts the connection and its frames in `tally`.
    pub fn counting(self, tally: Tally) -> Self {
        Guard { tally: Some(tally), ..self }
    }
    /// Disconnects a peer that has this many glitches, unless it is 0.
    pub fn tolerating(self, glitches: u32) -> Self {
        self.signals.glitches_threshold.set(glitches);
        self
    }
    /// Discards up to this many bytes that come behind our last ones, so that they do not turn the close into a reset, which may cost
    /// the client our GOAWAY.
    pub fn discarding(self, discards: usize) -> Self {
        Guard { discards, ..self }
    }
    /// Accounts for the result of a write of these slices.
    fn written(&mut self, slices: &[io::IoSlice<'_>], result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &result {
            Poll::Ready(Ok(bytes)) => {
                self.signals.outlet.wrote(*bytes);
                let mut left = *bytes;
                for slice in slices {
                    let sent = &slice[..left.min(slice.len())];
                    if self.side == Side::Client {
                        self.resets.sent(sent);
                    }
                    let glitches = self.sent.walk(sent, self.tally.as_ref());
                    self.signals.glitched(glitches);
                    left -= sent.len();
                }
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.signals.outlet.blocked(),
        }
        result
    }
    /// Stops reading. A client's task will send GOAWAY; exchanges with a server fail with this error.
    fn cut(&self) -> Poll<io::Result<()>> {
        match self.side {
            Side::Client => Poll::Pending,
            Side::Server => Poll::Ready(Err(io::Error::other("a flood of frames"))),
        }
    }
}

impl<S: Vanish> Guard<S> {
    /// Fails if the peer is being dropped silently.
    fn is_there(&self) -> io::Result<()> {
        if self.signals.vanished.get() {
            self.inner.vanish_on_close();
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> Guard<S> {
    /// Reads and counts frames; returns how many bytes came, or `None` if there were too many frames.
    fn poll_counted(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<Option<usize>>> {
        let before = buf.filled().len();
        if self.begun.is_empty() {
            ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        } else {
            take(&mut self.begun, buf);
        }
        for _ in 0..self.signals.finished.take() {
            self.budget.finished();
        }
        for _ in 0..self.signals.asked.take() {
            self.budget.asked();
        }
        let (budget, side, tally) = (&mut self.budget, self.side, self.tally.as_ref());
        budget.sent.add(self.signals.sent.take());
        let (glitches, mut found) = (&mut self.glitches, 0);
        let calm = self.frames.walk(&mut buf.filled_mut()[before..], |part| {
            found += glitches.in_part(part);
            let Part::Header(header) = part else { return true };
            turn::spend(cost::FRAME);
            if let Some(tally) = tally {
                tally.received_frame(header[KIND]);
            }
            budget.takes(side, header, Instant::now)
        });
        self.signals.glitched(found);
        self.signals.received.set(true);
        Poll::Ready(Ok(calm.then(|| buf.filled().len() - before)))
    }
}

/// Moves as much as fits.
fn take(from: &mut Vec<u8>, buf: &mut ReadBuf<'_>) {
    let fits = from.len().min(buf.remaining());
    buf.put_slice(&from[..fits]);
    from.drain(..fits);
    if from.is_empty() {
        *from = Vec::new();
    }
}

impl<S: AsyncRead + Vanish + Unpin> AsyncRead for Guard<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            turn::round();
            this.is_there()?;
            if this.signals.failure().is_some() {
                return this.cut();
            }
            if !this.ready.is_empty() {
                take(&mut this.ready, buf);
                return Poll::Ready(Ok(()));
            }
            if let Some(reason) = this.heads.as_ref().and_then(Heads::fatal) {
                this.signals.failure.set(Some(reason));
                continue;
            }
            let before = buf.filled().len();
            let counted = ready!(this.poll_counted(cx, buf))?;
            if counted == Some(0) {
                return Poll::Ready(Ok(()));
            }
            if this.signals.failure().is_some() {
                // What ends the connection is not served any more.
                buf.set_filled(before);
                continue;
            }
            let mut room = true;
            let (signals, resets) = (&this.signals, &mut this.resets);
            let passed = match (&mut this.heads, counted) {
                (_, None) => Passed::TooMuch,
                (None, _) => Passed::Unchanged,
                (Some(heads), _) => {
                    heads.pass(&buf.filled()[before..], resets, |stream, block| room &= signals.heard(stream, block))
                }
            };
            match passed {
                Passed::Unchanged if room => return Poll::Ready(Ok(())),
                Passed::Instead(other) if room => this.ready = other,
                _ => this.signals.flooded(),
            }
            buf.set_filled(before);
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Vanish + Unpin> AsyncWrite for Guard<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(data)])
    }
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.is_there()?;
        let written = if this.resets.are_awaited()
            && let Some(first) = slices.iter().find(|slice| !slice.is_empty())
        {
            let corrected = this.resets.corrected(first);
            Pin::new(&mut this.inner).poll_write(cx, &corrected)
        } else if let [one] = slices {
            Pin::new(&mut this.inner).poll_write(cx, one)
        } else {
            Pin::new(&mut this.inner).poll_write_vectored(cx, slices)
        };
        this.written(slices, written)
    }
    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.inner).poll_flush(cx);
        if flushed.is_pending() {
            this.signals.outlet.blocked();
        }
        flushed
    }
    /// Closes our half, and discards what still comes, until the peer closes too or its task has waited long enough.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.is_there()?;
        if this.signals.parted().is_none() {
            ready!(Pin::new(&mut this.inner).poll_shutdown(cx))?;
            this.signals.parted.set(Some(Instant::now()));
        }
        while this.discards > 0 {
            let mut discarded = [MaybeUninit::uninit(); 2048];
            let mut buf = ReadBuf::uninit(&mut discarded);
            ready!(Pin::new(&mut this.inner).poll_read(cx, &mut buf))?;
            if buf.filled().is_empty() {
                break;
            }
            this.discards = this.discards.saturating_sub(buf.filled().len());
        }
        Poll::Ready(Ok(()))
    }
}
