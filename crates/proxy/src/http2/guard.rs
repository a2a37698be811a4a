//! A layer between the TLS stream and h2 that counts a peer's frames by type, and cuts the peer off if it only causes
//! work.
//!
//! h2 bounds resets of streams that were not accepted yet, the size of header blocks and the number of small DATA
//! frames, but not control frames. Every flood named in CVE-2019-9511 to 9518, CVE-2023-44487 (Rapid Reset) and the
//! CONTINUATION flood of 2024 consists of frames that cost the peer nothing and complete no request. Such frames
//! therefore spend a budget, which is refilled by what honest clients do alongside: finish streams, take bytes, and let
//! time pass.

use super::{
    heads::{Heads, Passed},
    outlet::Outlet,
    resets::Resets,
    strict::{END_STREAM, PADDED},
};
use crate::worker::turn::{self, cost};
use h2::Reason;
use penstock_http::hpack::Block;
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

/// The kinds of frames that are counted; for each, how many may come at once, and how many more per second.
///
/// What browsers, curl, nghttp2 and gRPC legitimately send: a PING per round trip while data flows (grpc-go measures
/// its bandwidth with one for each message it receives), SETTINGS once or twice, a PRIORITY for each of a few dozen
/// streams, resets of what scrolled out of view, WINDOW_UPDATEs for the bytes received. How data and finished streams
/// refill a budget, besides time, is in [`Budget::refill`] and [`Budget::finished`]. Every flood ends before 1,000
/// frames, most of them far earlier.
///
/// Heads are counted for servers only, because of unsolicited interim ones (1xx); each request allows several.
const BUDGETS: [(Kind, u32, u32); KINDS] = [
    (Kind::Head, 800, 50),
    (Kind::EmptyData, 100, 10),
    (Kind::Priority, 400, 40),
    (Kind::Reset, 200, 20),
    (Kind::Settings, 50, 1),
    (Kind::Ping, 200, 20),
    (Kind::GoAway, 10, 1),
    (Kind::WindowUpdate, 600, 60),
    (Kind::Continuation, 64, 16),
    (Kind::Unknown, 200, 10),
];

const KINDS: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Head,
    /// DATA that carries nothing and does not end its stream.
    EmptyData,
    Priority,
    Reset,
    Settings,
    Ping,
    GoAway,
    WindowUpdate,
    Continuation,
    Unknown,
}

/// Bytes of sent DATA that allow one more WINDOW_UPDATE.
const BYTES_PER_UPDATE: u64 = 32;

/// WINDOW_UPDATEs that each sent DATA frame allows, however small: one for its stream, one for the connection.
const UPDATES_PER_DATA: u32 = 2;

/// PINGs that each non-empty DATA frame, sent or received, allows.
///
/// A probe of bandwidth or liveness is sent when data arrives, at most one per frame, and two kinds may run at once
/// (grpc-go's flow control and its keepalive). Each DATA frame costs both sides more than the PINGs it allows.
const PINGS_PER_DATA: u32 = 2;

/// Heads that each request to a server allows: interim ones, the response's, its trailers.
const HEADS_PER_REQUEST: u32 = 16;

/// Limit of what may be saved beyond a burst, for frames that a long transfer has paid for and that come at its end.
const SAVED_MAX: u32 = 1 << 20;

/// The remaining budget of each kind. Pure: frames and times in, decisions out.
///
/// Time counts from the start of the connection, so that frames that come slowly never exhaust it, however long they go
/// on.
#[derive(Debug)]
struct Budget {
    left: [u32; KINDS],
    refilled: Instant,
    /// DATA sent and received that has not been credited to other kinds yet.
    sent: Moved,
    received: Moved,
}

/// DATA moved in one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moved {
    bytes: u64,
    frames: u32,
}

impl Moved {
    /// Adds one frame that carries `bytes`.
    pub fn frame(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        self.frames = self.frames.saturating_add(1);
    }
    fn add(&mut self, more: Moved) {
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.frames = self.frames.saturating_add(more.frames);
    }
}

impl Budget {
    fn new(now: Instant) -> Self {
        Budget {
            left: BUDGETS.map(|(_, burst, _)| burst),
            refilled: now,
            sent: Moved::default(),
            received: Moved::default(),
        }
    }
    /// Credits a request sent to the server, which may be answered or refused.
    fn asked(&mut self) {
        self.save(Kind::Head, HEADS_PER_REQUEST);
        self.save(Kind::Reset, 1);
    }
    /// Charges or credits a frame; returns whether the budget sufficed.
    fn takes(&mut self, side: Side, header: &[u8; 9], now: impl FnOnce() -> Instant) -> bool {
        if let Some(kind) = kind(side, header) {
            return self.spend(kind, now);
        }
        let bytes = payload(header);
        if header[KIND] == DATA && bytes > 0 {
            self.received.frame(bytes);
        }
        true
    }
    /// Charges one frame of this kind; returns whether the budget sufficed.
    fn spend(&mut self, kind: Kind, now: impl FnOnce() -> Instant) -> bool {
        if self.left[kind as usize] == 0 {
            // The clock is only read when a budget is used up.
            self.refill(now());
        }
        let left = &mut self.left[kind as usize];
        let enough = *left > 0;
        *left = left.saturating_sub(1);
        enough
    }
    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.refilled);
        // Every budget is full after a minute.
        let seconds = passed.as_secs().min(60) as u32;
        if seconds > 0 {
            // The rest of a second is carried over.
            self.refilled = now - Duration::from_nanos(u64::from(passed.subsec_nanos()));
            for (left, (_, burst, each)) in self.left.iter_mut().zip(BUDGETS) {
                *left = (*left).max((*left + each * seconds).min(burst));
            }
        }
        let Moved { bytes, frames } = std::mem::take(&mut self.sent);
        let of_bytes = u32::try_from(bytes / BYTES_PER_UPDATE).unwrap_or(u32::MAX);
        self.save(Kind::WindowUpdate, of_bytes.saturating_add(frames.saturating_mul(UPDATES_PER_DATA)));
        let frames = frames.saturating_add(std::mem::take(&mut self.received).frames);
        self.save(Kind::Ping, frames.saturating_mul(PINGS_PER_DATA));
    }
    /// Adds what data has paid for, even beyond the burst: the peer can only use it once it has received that data.
    fn save(&mut self, kind: Kind, count: u32) {
        let left = &mut self.left[kind as usize];
        *left = left.saturating_add(count).min(SAVED_MAX);
    }
    /// Credits a stream that ended with a complete response.
    fn finished(&mut self) {
        for kind in [Kind::Reset, Kind::Priority, Kind::Continuation, Kind::Ping] {
            let left = &mut self.left[kind as usize];
            *left = (*left).max((*left + 1).min(BUDGETS[kind as usize].1));
        }
    }
}

/// The peer whose frames are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

/// Follows the framing of a byte stream: finds each frame header and skips payloads.
#[derive(Debug)]
struct Frames {
    /// Bytes to skip: at first the connection preface, then payloads.
    skip: usize,
    header: [u8; 9],
    have: usize,
}

const PREFACE_BYTES: usize = 24;

impl Frames {
    fn from(side: Side) -> Self {
        // A server's preface is an ordinary frame (RFC 9113 section 3.4).
        let skip = if side == Side::Client { PREFACE_BYTES } else { 0 };
        Frames { skip, header: [0; 9], have: 0 }
    }
    /// Calls `frame` for each frame header in bytes that have arrived; returns false as soon as `frame` does.
    fn walk(&mut self, bytes: &mut [u8], mut frame: impl FnMut(&[u8; 9]) -> bool) -> bool {
        let mut at = 0;
        loop {
            let skipped = self.skip.min(bytes.len() - at);
            self.skip -= skipped;
            at += skipped;
            if at == bytes.len() {
                return true;
            }
            let wanted = (9 - self.have).min(bytes.len() - at);
            self.header[self.have..self.have + wanted].copy_from_slice(&bytes[at..at + wanted]);
            self.have += wanted;
            at += wanted;
            if self.have < 9 {
                return true;
            }
            self.have = 0;
            // If a header arrives in pieces, h2 may already have its type.
            if is_empty_data(&self.header)
                && let Some(kind) = at.checked_sub(9 - KIND)
            {
                bytes[kind] = IGNORED;
            }
            self.skip = payload(&self.header);
            if !frame(&self.header) {
                return false;
            }
        }
    }
}

/// The type of frames that carry a body.
const DATA: u8 = 0;

/// The offset of the type in a frame header.
const KIND: usize = 3;

/// An undefined type: receivers must ignore such frames (RFC 9113 section 4.1).
const IGNORED: u8 = 0xff;

/// Whether a frame is DATA that carries nothing and does not end its stream. h2 would end the connection at the 101st,
/// over however long a time; such frames are hidden from it, because the budget bounds them.
fn is_empty_data(header: &[u8; 9]) -> bool {
    header[KIND] == DATA && payload(header) == 0 && header[4] & (END_STREAM | PADDED) == 0
}

/// The payload length in a frame header.
fn payload(header: &[u8; 9]) -> usize {
    usize::from(header[0]) << 16 | usize::from(header[1]) << 8 | usize::from(header[2])
}

/// The budget that a frame is charged to, if any.
fn kind(side: Side, header: &[u8; 9]) -> Option<Kind> {
    match header[KIND] {
        DATA => is_empty_data(header).then_some(Kind::EmptyData),
        1 => (side == Side::Server).then_some(Kind::Head),
        2 => Some(Kind::Priority),
        3 => Some(Kind::Reset),
        4 => Some(Kind::Settings),
        6 => Some(Kind::Ping),
        7 => Some(Kind::GoAway),
        8 => Some(Kind::WindowUpdate),
        9 => Some(Kind::Continuation),
        _ => Some(Kind::Unknown),
    }
}

/// State shared by a connection's task and its guard.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    failure: Cell<Option<Reason>>,
    finished: Cell<u32>,
    asked: Cell<u32>,
    /// DATA that streams have sent and the guard has not accounted for yet.
    sent: Cell<Moved>,
    /// What streams have passed to h2.
    pub outlet: Outlet,
    /// How many streams have an exchange.
    pub open: Cell<usize>,
    /// Malformed requests that have not been logged.
    malformed: Cell<u32>,
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

/// Total size of such paths that may wait: enough for a hundred streams with long ones. Otherwise a peer whose streams
/// are all refused could make us keep any number.
const PATHS_MAX: usize = 256 * 1024;

impl Signals {
    /// The reason why the peer is to be disconnected, if it is.
    pub fn failure(&self) -> Option<Reason> {
        self.failure.get()
    }
    /// The peer floods us.
    fn flooded(&self) {
        self.failure.set(Some(Reason::ENHANCE_YOUR_CALM));
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
        turn::spend(cost::FIELD * block.fields + cost::KIB * u32::try_from(block.size >> 10).unwrap_or(u32::MAX / 8));
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
    resets: Resets,
    signals: Rc<Signals>,
}

impl<S> Guard<S> {
    /// Guards what a client sends, from its preface on; `begun` has been read already. `table_size` is the HPACK table size
    /// that our settings allow.
    pub fn of_client(inner: S, begun: Vec<u8>, table_size: u32) -> (Self, Rc<Signals>) {
        let heads = Heads::behind(PREFACE_BYTES, table_size as usize);
        Guard::new(inner, Side::Client, begun, Some(heads))
    }
    /// Guards what a server sends. A flood ends its connection with an error.
    pub fn of_server(inner: S) -> (Self, Rc<Signals>) {
        Guard::new(inner, Side::Server, Vec::new(), None)
    }
    fn new(inner: S, side: Side, begun: Vec<u8>, heads: Option<Heads>) -> (Self, Rc<Signals>) {
        let signals = Rc::new(Signals::default());
        let (frames, budget) = (Frames::from(side), Budget::new(Instant::now()));
        let resets = Resets::default();
        (
            Guard { inner, side, begun, frames, heads, ready: Vec::new(), budget, resets, signals: signals.clone() },
            signals,
        )
    }
    /// Accounts for the result of a write of these slices.
    fn written(&mut self, slices: &[io::IoSlice<'_>], result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &result {
            Poll::Ready(Ok(bytes)) => {
                self.signals.outlet.wrote(*bytes);
                if self.side == Side::Client {
                    let mut left = *bytes;
                    for slice in slices {
                        let sent = left.min(slice.len());
                        self.resets.sent(&slice[..sent]);
                        left -= sent;
                    }
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
        let (budget, side) = (&mut self.budget, self.side);
        budget.sent.add(self.signals.sent.take());
        let calm = self.frames.walk(&mut buf.filled_mut()[before..], |header| {
            turn::spend(cost::FRAME);
            budget.takes(side, header, Instant::now)
        });
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

impl<S: AsyncRead + Unpin> AsyncRead for Guard<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            turn::round();
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

impl<S: AsyncWrite + Unpin> AsyncWrite for Guard<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(data)])
    }
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
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
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    /// How many frames of a kind pass before the peer is cut off, if they are read in pieces that do not match the
    /// frame size.
    fn passed(side: Side, frame: &[u8], now: Instant) -> usize {
        let (mut frames, mut budget, mut count) = (Frames::from(side), Budget::new(now), 0);
        let preface = if side == Side::Client { PREFACE_BYTES } else { 0 };
        let mut stream = [&[0; PREFACE_BYTES][..preface], &frame.repeat(2000)].concat();
        for piece in stream.chunks_mut(7) {
            let calm = frames.walk(piece, |header| {
                count += 1;
                budget.takes(side, header, || now)
            });
            if !calm {
                return count;
            }
        }
        count
    }

    #[test]
    fn every_flood_ends_within_a_thousand_frames() {
        let now = Instant::now();
        for (name, frame) in [
            ("empty DATA", frame(0, 0, b"")),
            ("PRIORITY", frame(2, 0, &[0; 5])),
            ("RST_STREAM", frame(3, 0, &[0; 4])),
            ("SETTINGS", frame(4, 0, b"")),
            ("SETTINGS with 100 settings", frame(4, 0, &[0; 600])),
            ("SETTINGS ack", frame(4, 1, b"")),
            ("PING", frame(6, 0, &[0; 8])),
            ("PING ack", frame(6, 1, &[0; 8])),
            ("GOAWAY", frame(7, 0, &[0; 8])),
            ("WINDOW_UPDATE", frame(8, 0, &[0; 4])),
            ("CONTINUATION", frame(9, 0, b"x")),
            ("empty CONTINUATION", frame(9, 0, b"")),
            ("unknown", frame(99, 0, b"x")),
        ] {
            for side in [Side::Client, Side::Server] {
                let count = passed(side, &frame, now);
                assert!(count < 1000, "{name} of a {side:?}: {count}");
            }
        }
        assert!(passed(Side::Server, &frame(1, 4, b"\x08\x03103"), now) < 1000, "interim heads that nobody asked for");
    }

    #[test]
    fn empty_data_is_passed_over() {
        let empty = frame(0, 0, b"");
        let (last, full) = (frame(0, 1, b""), frame(0, 0, b"x"));
        let mut bytes = [&empty[..], &full, &empty, &last].concat();
        let mut kinds = Vec::new();
        Frames::from(Side::Server).walk(&mut bytes, |header| {
            kinds.push(header[KIND]);
            true
        });
        assert_eq!(kinds, [DATA; 4]);
        let passed: Vec<_> = [3, 12, 22, 31].map(|at| bytes[at]).into();
        assert_eq!(passed, [IGNORED, DATA, IGNORED, DATA]);
    }

    #[test]
    fn a_server_may_say_as_much_of_each_request_as_there_is_to_say() {
        let now = Instant::now();
        let mut budget = Budget::new(now);
        for _ in 0..10_000 {
            budget.asked();
            for _ in 0..HEADS_PER_REQUEST {
                assert!(budget.spend(Kind::Head, || now));
            }
            assert!(budget.spend(Kind::Reset, || now));
        }
    }

    #[test]
    fn what_brings_work_to_its_end_is_not_counted() {
        let now = Instant::now();
        assert_eq!(passed(Side::Client, &frame(1, 5, b"x"), now), 2000);
        assert_eq!(passed(Side::Client, &frame(0, 0, b"x"), now), 2000);
        assert_eq!(passed(Side::Client, &frame(0, 1, b""), now), 2000);
    }

    #[test]
    fn resets_among_finished_streams_are_honest() {
        let now = Instant::now();
        let mut budget = Budget::new(now);
        for _ in 0..10_000 {
            assert!(budget.spend(Kind::Reset, || now));
            budget.finished();
        }
    }

    #[test]
    fn a_client_that_takes_bytes_may_say_so_each_time() {
        let now = Instant::now();
        let mut budget = Budget::new(now);
        for _ in 0..100_000 {
            budget.sent.frame(1);
            assert!(budget.spend(Kind::WindowUpdate, || now));
            assert!(budget.spend(Kind::WindowUpdate, || now));
        }
    }

    #[test]
    fn a_client_that_probes_the_bandwidth_with_each_message_may() {
        let now = Instant::now();
        for received in [false, true] {
            let mut budget = Budget::new(now);
            for n in 0..20_000 {
                if received {
                    assert!(budget.takes(Side::Client, frame(0, 0, b"x")[..9].try_into().unwrap(), || now));
                } else {
                    budget.sent.frame(1);
                }
                assert!(budget.spend(Kind::Ping, || now), "{n} {received}");
            }
        }
        // Once no data moves any more, PINGs are no longer allowed.
        let mut budget = Budget::new(now);
        budget.sent.frame(1);
        assert_eq!((0..).take_while(|_| budget.spend(Kind::Ping, || now)).count(), 202);
    }

    #[test]
    fn a_window_that_opens_byte_by_byte_is_a_flood() {
        let (now, signals) = (Instant::now(), Signals::default());
        let mut budget = Budget::new(now);
        let dribble = |budget: &mut Budget, kept_back| {
            let mut updates = 0;
            while updates < 5000 && budget.spend(Kind::WindowUpdate, || now) {
                updates += 1;
                signals.data_sent(1, kept_back);
                budget.sent.add(signals.sent.take());
            }
            updates
        };
        assert!(dribble(&mut budget, 1000) < 1000, "there was more to send");
        signals.data_sent(1, 0);
        budget.sent.add(signals.sent.take());
        assert_eq!(dribble(&mut budget, 0), 5000, "messages of a byte");
    }

    #[test]
    fn what_comes_at_an_honest_pace_never_runs_out() {
        for (kind, _, each) in BUDGETS {
            let start = Instant::now();
            let mut budget = Budget::new(start);
            for n in 1..5000 {
                let now = start + Duration::from_millis(u64::from(1000 * n / each));
                assert!(budget.spend(kind, || now), "{kind:?} {n}");
            }
        }
    }

    #[test]
    fn time_fills_the_budget_up_to_its_burst() {
        let start = Instant::now();
        let mut budget = Budget::new(start);
        let spend = |budget: &mut Budget, now| (0..).take_while(|_| budget.spend(Kind::Ping, || now)).count();
        let burst = spend(&mut budget, start);
        assert_eq!(spend(&mut budget, start), 0);
        let later = spend(&mut budget, start + Duration::from_secs(3));
        assert!((50..=60).contains(&later), "{later}");
        let much_later = spend(&mut budget, start + Duration::from_secs(1000));
        assert!((burst - 2..=burst + 2).contains(&much_later), "{much_later}");
    }
}
