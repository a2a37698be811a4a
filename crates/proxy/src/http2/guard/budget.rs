//! What a peer may send that causes work and completes no request. Pure.

use super::frames::{DATA, KIND, Side, is_empty_data, payload};
use std::time::Duration;
use tokio::time::Instant;

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
pub(super) enum Kind {
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
pub(super) const BYTES_PER_UPDATE: u64 = 32;

/// WINDOW_UPDATEs that each sent DATA frame allows, however small: one for its stream, one for the connection.
pub(super) const UPDATES_PER_DATA: u32 = 2;

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
pub(super) struct Budget {
    left: [u32; KINDS],
    refilled: Instant,
    /// DATA sent and received that has not been credited to other kinds yet.
    pub(super) sent: Moved,
    received: Moved,
}

/// DATA moved in one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moved {
    bytes: u64,
    pub(super) frames: u32,
}

impl Moved {
    /// Adds one frame that carries `bytes`.
    pub fn frame(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        self.frames = self.frames.saturating_add(1);
    }
    pub(super) fn add(&mut self, more: Moved) {
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.frames = self.frames.saturating_add(more.frames);
    }
}

impl Budget {
    pub(super) fn new(now: Instant) -> Self {
        Budget {
            left: BUDGETS.map(|(_, burst, _)| burst),
            refilled: now,
            sent: Moved::default(),
            received: Moved::default(),
        }
    }
    /// Credits a request sent to the server, which may be answered or refused.
    pub(super) fn asked(&mut self) {
        self.save(Kind::Head, HEADS_PER_REQUEST);
        self.save(Kind::Reset, 1);
    }
    /// Charges or credits a frame; returns whether the budget sufficed.
    pub(super) fn takes(&mut self, side: Side, header: &[u8; 9], now: impl FnOnce() -> Instant) -> bool {
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
    pub(super) fn spend(&mut self, kind: Kind, now: impl FnOnce() -> Instant) -> bool {
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
    pub(super) fn finished(&mut self) {
        for kind in [Kind::Reset, Kind::Priority, Kind::Continuation, Kind::Ping] {
            let left = &mut self.left[kind as usize];
            *left = (*left).max((*left + 1).min(BUDGETS[kind as usize].1));
        }
    }
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

#[cfg(test)]
mod tests {
    use super::super::{
        Signals,
        frames::{Frames, IGNORED, PREFACE_BYTES, Part},
    };
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
            let calm = frames.walk(piece, |part| {
                let Part::Header(header) = part else { return true };
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
        Frames::from(Side::Server).walk(&mut bytes, |part| {
            if let Part::Header(header) = part {
                kinds.push(header[KIND]);
            }
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
