//! Between the TLS stream and h2: counts what a peer sends by type of frame, and cuts it off when it only makes work.
//!
//! h2 bounds resets of streams that were not accepted yet, the size of a header block and small DATA frames, but no
//! control frames. Every flood named in CVE-2019-9511 to 9518, CVE-2023-44487 (Rapid Reset) and the CONTINUATION flood
//! of 2024 is made of frames that cost the peer nothing and bring no request to its end. So such frames spend a budget,
//! and what honest clients do alongside (finished streams, bytes taken, time) fills it again.

use std::{
    cell::Cell,
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

/// The kinds of frames that are counted, each with how many may come at once, and how many more a second.
///
/// Honest figures, from browsers, curl, nghttp2 and gRPC: a PING each round trip while data flows, SETTINGS once or
/// twice, a PRIORITY for each of a few dozen streams, resets of what scrolled away, WINDOW_UPDATEs with the bytes taken
/// (which [`Budget::wrote`] pays for). All floods end before 1,000 frames, most far earlier.
const BUDGETS: [(Kind, u32, u32); KINDS] = [
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

const KINDS: usize = 9;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
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

/// How many bytes we send for each WINDOW_UPDATE more that a client may.
const BYTES_PER_UPDATE: usize = 32;

/// What is left of each kind. Pure: frames and moments in, a verdict out.
#[derive(Debug)]
struct Budget {
    left: [u32; KINDS],
    refilled: Option<Instant>,
    /// Bytes written and not yet made into WINDOW_UPDATEs.
    written: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Budget { left: BUDGETS.map(|(_, burst, _)| burst), refilled: None, written: 0 }
    }
}

impl Budget {
    /// Takes one frame's price; whether there was enough.
    fn spend(&mut self, kind: Kind, now: impl FnOnce() -> Instant) -> bool {
        let left = &mut self.left[kind as usize];
        if *left > 0 {
            *left -= 1;
            return true;
        }
        // The clock is only read when a budget is used up.
        self.refill(now());
        let left = &mut self.left[kind as usize];
        *left = left.saturating_sub(1);
        *left > 0
    }
    fn refill(&mut self, now: Instant) {
        let since = *self.refilled.get_or_insert(now);
        let seconds = now.saturating_duration_since(since).min(Duration::from_secs(60)).as_secs() as u32;
        if seconds > 0 {
            self.refilled = Some(now);
            for (left, (_, burst, each)) in self.left.iter_mut().zip(BUDGETS) {
                *left = (*left + each * seconds).min(burst);
            }
        }
        let updates = (self.written / BYTES_PER_UPDATE).min(u32::MAX as usize) as u32;
        self.written %= BYTES_PER_UPDATE;
        let (_, burst, _) = BUDGETS[Kind::WindowUpdate as usize];
        let left = &mut self.left[Kind::WindowUpdate as usize];
        // Beyond the burst: a client may hand back all it took only when it has taken it.
        *left = left.saturating_add(updates).min(burst.max(1 << 20));
    }
    /// A stream came to its end with a whole response.
    fn finished(&mut self) {
        for kind in [Kind::Reset, Kind::Priority, Kind::Continuation] {
            let left = &mut self.left[kind as usize];
            *left = (*left + 1).min(BUDGETS[kind as usize].1);
        }
    }
    fn wrote(&mut self, bytes: usize) {
        self.written = self.written.saturating_add(bytes);
    }
}

/// Follows a stream of frames: where each header is, and nothing of what they carry.
#[derive(Debug)]
struct Frames {
    /// Bytes to pass over: the connection preface first, then payloads.
    skip: usize,
    header: [u8; 9],
    have: usize,
}

const PREFACE_BYTES: usize = 24;

impl Frames {
    fn new() -> Self {
        Frames { skip: PREFACE_BYTES, header: [0; 9], have: 0 }
    }
    /// Walks over bytes that have arrived; false as soon as `frame` is.
    fn walk(&mut self, mut bytes: &[u8], mut frame: impl FnMut(&[u8; 9]) -> bool) -> bool {
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            if bytes.is_empty() {
                return true;
            }
            let wanted = (9 - self.have).min(bytes.len());
            self.header[self.have..self.have + wanted].copy_from_slice(&bytes[..wanted]);
            self.have += wanted;
            bytes = &bytes[wanted..];
            if self.have < 9 {
                return true;
            }
            self.have = 0;
            self.skip =
                usize::from(self.header[0]) << 16 | usize::from(self.header[1]) << 8 | usize::from(self.header[2]);
            if !frame(&self.header) {
                return false;
            }
        }
    }
}

/// Which budget a frame is charged to, if any.
fn kind(header: &[u8; 9]) -> Option<Kind> {
    const END_STREAM: u8 = 1;
    let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
    match (header[3], header[4]) {
        (0, flags) => (length == 0 && flags & END_STREAM == 0).then_some(Kind::EmptyData),
        (1, _) => None,
        (2, _) => Some(Kind::Priority),
        (3, _) => Some(Kind::Reset),
        (4, _) => Some(Kind::Settings),
        (6, _) => Some(Kind::Ping),
        (7, _) => Some(Kind::GoAway),
        (8, _) => Some(Kind::WindowUpdate),
        (9, _) => Some(Kind::Continuation),
        _ => Some(Kind::Unknown),
    }
}

/// What the connection's task and its guard tell each other.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    flooded: Cell<bool>,
    finished: Cell<u32>,
}

impl Signals {
    /// The peer is to be sent away.
    pub fn is_flooded(&self) -> bool {
        self.flooded.get()
    }
    /// A stream came to its end with a whole response.
    pub fn stream_finished(&self) {
        self.finished.set(self.finished.get().saturating_add(1));
    }
}

/// A stream on which frames are counted before h2 sees them.
pub(crate) struct Guard<S> {
    inner: S,
    begun: Vec<u8>,
    frames: Frames,
    budget: Budget,
    signals: Rc<Signals>,
}

impl<S> Guard<S> {
    /// Guards what a client sends, from its preface on, of which `begun` has been read already.
    pub fn new(inner: S, begun: Vec<u8>) -> (Self, Rc<Signals>) {
        let signals = Rc::new(Signals::default());
        let guard = Guard { inner, begun, frames: Frames::new(), budget: Budget::default(), signals: signals.clone() };
        (guard, signals)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guard<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.signals.flooded.get() {
            // Nothing more is heard; the connection's task is about to say goodbye.
            return Poll::Pending;
        }
        let before = buf.filled().len();
        if this.begun.is_empty() {
            ready!(Pin::new(&mut this.inner).poll_read(cx, buf))?;
        } else {
            let fits = this.begun.len().min(buf.remaining());
            buf.put_slice(&this.begun[..fits]);
            this.begun.drain(..fits);
        }
        for _ in 0..this.signals.finished.take() {
            this.budget.finished();
        }
        let budget = &mut this.budget;
        let calm = this.frames.walk(&buf.filled()[before..], |header| match kind(header) {
            Some(kind) => budget.spend(kind, Instant::now),
            None => true,
        });
        if !calm {
            buf.set_filled(before);
            this.signals.flooded.set(true);
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guard<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.inner).poll_write(cx, data))?;
        this.budget.wrote(written);
        Poll::Ready(Ok(written))
    }
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.inner).poll_write_vectored(cx, slices))?;
        this.budget.wrote(written);
        Poll::Ready(Ok(written))
    }
    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
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

    /// How many frames of a kind pass before the cut, read in pieces of a size that no frame has.
    fn passed(frame: &[u8], now: Instant) -> usize {
        let (mut frames, mut budget, mut count) = (Frames::new(), Budget::default(), 0);
        let stream = [&[0; PREFACE_BYTES][..], &frame.repeat(2000)].concat();
        for piece in stream.chunks(7) {
            let calm = frames.walk(piece, |header| {
                count += 1;
                kind(header).is_none_or(|kind| budget.spend(kind, || now))
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
            let count = passed(&frame, now);
            assert!(count < 1000, "{name}: {count}");
        }
    }

    #[test]
    fn what_brings_work_to_its_end_is_not_counted() {
        let now = Instant::now();
        assert_eq!(passed(&frame(1, 5, b"x"), now), 2000);
        assert_eq!(passed(&frame(0, 0, b"x"), now), 2000);
        assert_eq!(passed(&frame(0, 1, b""), now), 2000);
    }

    #[test]
    fn resets_among_finished_streams_are_honest() {
        let (mut budget, now) = (Budget::default(), Instant::now());
        for _ in 0..10_000 {
            assert!(budget.spend(Kind::Reset, || now));
            budget.finished();
        }
    }

    #[test]
    fn a_client_that_takes_bytes_may_say_so_each_time() {
        let (mut budget, now) = (Budget::default(), Instant::now());
        for _ in 0..100_000 {
            budget.wrote(1024);
            assert!(budget.spend(Kind::WindowUpdate, || now));
            assert!(budget.spend(Kind::WindowUpdate, || now));
        }
    }

    #[test]
    fn time_fills_the_budget_up_to_its_burst() {
        let (mut budget, start) = (Budget::default(), Instant::now());
        let spend = |budget: &mut Budget, now| (0..).take_while(|_| budget.spend(Kind::Ping, || now)).count();
        let burst = spend(&mut budget, start);
        assert!(spend(&mut budget, start) <= 1);
        let later = spend(&mut budget, start + Duration::from_secs(3));
        assert!((50..=60).contains(&later), "{later}");
        let much_later = spend(&mut budget, start + Duration::from_secs(1000));
        assert!((burst - 2..=burst + 2).contains(&much_later), "{much_later}");
    }
}
