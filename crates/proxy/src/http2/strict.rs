//! Checks a client's frames where h2 answers differently from RFC 9113: where h2 ends the connection for an error of one
//! stream, or sends PROTOCOL_ERROR for an error that has a code of its own. Pure.

use super::heads::Header;
use h2::Reason;
use std::collections::VecDeque;

const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
const ACK: u8 = 1;
pub(super) const PADDED: u8 = 8;
pub(super) const HAS_PRIORITY: u8 = 0x20;

pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;

/// No window is larger (RFC 9113 section 6.9.1).
const WINDOW_MAX: u32 = (1 << 31) - 1;

/// How many streams that the client has ended are remembered. It costs half a KiB, and is more than may be open at once with the
/// default limit of 100. Frames on older ones are left to h2, which ends the connection if it still knows the stream.
const ENDED_MAX: usize = 128;

/// The streams that a client has opened, as far as its frames show.
#[derive(Debug, Default)]
pub(super) struct Opened {
    /// The latest.
    pub last: u32,
    /// The ids between these two were skipped, so that they may not be used any more.
    left_out_behind: u32,
    left_out_before: u32,
    /// The latest streams that the client has ended.
    ended: VecDeque<End>,
    /// Whether the next frame must be the client's first settings.
    unsettled: bool,
}

/// How a client ended its half of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct End {
    stream: u32,
    by_reset: bool,
}

/// What to do with a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Leave the frame to h2.
    Pass,
    /// Wait: the frame's payload decides, and has not arrived yet.
    Unread,
    /// Make h2 reset the stream, and then give it the frame, which it ignores.
    Reset(Reason),
    /// Make h2 reset the stream, and drop the frame, for which it would end the connection.
    Instead,
    /// End the connection.
    Fatal(Reason),
}

impl Opened {
    /// Judges a frame by its header and by what has arrived of its payload.
    pub fn judge(&mut self, header: &Header, payload: &[u8]) -> Verdict {
        // RFC 9113 section 3.4: the preface ends with settings.
        if self.unsettled && (header.kind != SETTINGS || header.flags & ACK != 0) {
            return Verdict::Fatal(Reason::PROTOCOL_ERROR);
        }
        self.unsettled = false;
        let of_connection = header.stream == 0;
        let known = header.stream <= self.last;
        match header.kind {
            // Frames with the wrong kind of id, and those on a stream that is still idle, end the connection: h2 does so.
            DATA | HEADERS | PRIORITY | RST_STREAM if of_connection => Verdict::Pass,
            SETTINGS | PING | GOAWAY if !of_connection => Verdict::Pass,
            _ if is_cut_short(header) => Verdict::Fatal(Reason::FRAME_SIZE_ERROR),
            // RFC 9113 section 5.1.1: the ids of new streams increase.
            HEADERS if self.left_out_behind < header.stream && header.stream < self.left_out_before => {
                Verdict::Fatal(Reason::PROTOCOL_ERROR)
            }
            // A half-closed stream or a closed one, which cannot be told apart here. RFC 9113 section 5.1 has an error of the
            // stream for the first, which may be treated as one of the connection (5.4.1), and the other for the second.
            HEADERS if known && self.end_of(header.stream).is_some() => Verdict::Fatal(Reason::STREAM_CLOSED),
            // RFC 9113 section 5.1, "half-closed (remote)". h2 ignores whatever follows the first such frame.
            DATA if known && self.forget(header.stream) => Verdict::Reset(Reason::STREAM_CLOSED),
            DATA | RST_STREAM if known => {
                self.note(header);
                Verdict::Pass
            }
            SETTINGS => match payload.get(..header.len) {
                // h2 refuses a frame of this size by its header.
                None if header.len > super::heads::FRAME_MAX => Verdict::Pass,
                None => Verdict::Unread,
                Some(settings) if widens_too_far(settings) => Verdict::Fatal(Reason::FLOW_CONTROL_ERROR),
                Some(_) => Verdict::Pass,
            },
            WINDOW_UPDATE if !of_connection && known => match payload.first_chunk() {
                None => Verdict::Unread,
                Some(by) if u32::from_be_bytes(*by) & WINDOW_MAX == 0 => Verdict::Instead,
                Some(_) => Verdict::Pass,
            },
            _ => Verdict::Pass,
        }
    }

    /// A client of whom no frame has been seen.
    pub fn unsettled() -> Opened {
        Opened { unsettled: true, ..Opened::default() }
    }

    /// Records that a frame opens a stream, or ends its client's half.
    pub fn note(&mut self, header: &Header) {
        let stream = header.stream;
        if stream > self.last {
            if stream > self.last + 2 {
                (self.left_out_behind, self.left_out_before) = (self.last, stream);
            }
            self.last = stream;
        }
        let by_reset = header.kind == RST_STREAM;
        if !by_reset && header.flags & END_STREAM == 0 {
            return;
        }
        if self.ended.len() == ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(End { stream, by_reset });
    }

    /// The index of a stream's end.
    fn end_of(&self, stream: u32) -> Option<usize> {
        self.ended.iter().rposition(|end| end.stream == stream)
    }

    /// Whether the client has ended the stream by END_STREAM; if so, it is forgotten. Streams that it has reset are left to h2.
    fn forget(&mut self, stream: u32) -> bool {
        let at = self.end_of(stream).filter(|&at| !self.ended[at].by_reset);
        at.is_some_and(|at| self.ended.remove(at).is_some())
    }
}

/// Whether a frame's size is wrong for its type, or too small for its flags (RFC 9113 section 4.2).
fn is_cut_short(header: &Header) -> bool {
    let has = |flag: u8| usize::from(header.flags & flag != 0);
    match header.kind {
        DATA => header.len < has(PADDED),
        HEADERS => header.len < has(PADDED) + 5 * has(HAS_PRIORITY),
        PRIORITY => header.len != 5,
        RST_STREAM | WINDOW_UPDATE => header.len != 4,
        SETTINGS if header.flags & ACK != 0 => header.len != 0,
        SETTINGS => !header.len.is_multiple_of(6),
        PING => header.len != 8,
        GOAWAY => header.len < 8,
        _ => false,
    }
}

/// Whether a SETTINGS frame asks for an initial window beyond the maximum (RFC 9113 section 6.5.2).
fn widens_too_far(settings: &[u8]) -> bool {
    let (settings, _) = settings.as_chunks::<6>();
    settings.iter().any(|&[a, b, value @ ..]| {
        u16::from_be_bytes([a, b]) == INITIAL_WINDOW_SIZE && u32::from_be_bytes(value) > WINDOW_MAX
    })
}

/// A frame for which h2 resets a stream in any state, with PROTOCOL_ERROR: a PRIORITY that makes it depend on itself
/// (RFC 7540 section 5.3.1).
pub(super) fn ends(stream: u32) -> [u8; 14] {
    let mut frame = [0, 0, 5, PRIORITY, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    frame[5..9].copy_from_slice(&stream.to_be_bytes());
    frame[9..13].copy_from_slice(&stream.to_be_bytes());
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client whose latest stream is the fifth.
    fn opened() -> Opened {
        Opened { last: 5, ..Opened::default() }
    }

    fn judge(opened: &mut Opened, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Verdict {
        opened.judge(&Header { len: payload.len(), kind, flags, stream }, payload)
    }

    #[test]
    fn sizes_that_no_frame_of_the_kind_has_end_the_connection() {
        let size = Verdict::Fatal(Reason::FRAME_SIZE_ERROR);
        let opened = &mut opened();
        for (kind, flags, stream, len, verdict) in [
            (DATA, PADDED, 1, 0, &size),
            (DATA, PADDED, 1, 1, &Verdict::Pass),
            (HEADERS, PADDED, 7, 0, &size),
            (HEADERS, HAS_PRIORITY, 7, 4, &size),
            (HEADERS, PADDED | HAS_PRIORITY, 7, 5, &size),
            (HEADERS, PADDED | HAS_PRIORITY, 7, 6, &Verdict::Pass),
            (PRIORITY, 0, 1, 4, &size),
            (RST_STREAM, 0, 1, 3, &size),
            (SETTINGS, 0, 0, 3, &size),
            (SETTINGS, 0, 0, 12, &Verdict::Pass),
            (SETTINGS, ACK, 0, 6, &size),
            (SETTINGS, 0, 1, 3, &Verdict::Pass),
            (PING, 0, 0, 7, &size),
            (PING, 1, 0, 9, &size),
            (PING, 0, 0, 8, &Verdict::Pass),
            (PING, 0, 1, 7, &Verdict::Pass),
            (GOAWAY, 0, 0, 7, &size),
            (GOAWAY, 0, 0, 100, &Verdict::Pass),
            (WINDOW_UPDATE, 0, 0, 5, &size),
            (WINDOW_UPDATE, 0, 1, 3, &size),
        ] {
            assert_eq!(&judge(opened, kind, flags, stream, &vec![0; len]), verdict, "{kind} {flags} {stream} {len}");
        }
    }

    #[test]
    fn what_comes_behind_the_end_of_a_stream_ends_that_stream_once() {
        let opened = &mut opened();
        assert_eq!(judge(opened, DATA, 0, 1, b"x"), Verdict::Pass);
        assert_eq!(judge(opened, DATA, END_STREAM, 1, b"x"), Verdict::Pass);
        assert_eq!(judge(opened, DATA, 0, 3, b"x"), Verdict::Pass, "another stream");
        assert_eq!(judge(opened, DATA, END_STREAM, 1, b"x"), Verdict::Reset(Reason::STREAM_CLOSED));
        assert_eq!(judge(opened, DATA, 0, 1, b"x"), Verdict::Pass, "h2 ignores it now");
        opened.note(&Header { len: 9, kind: HEADERS, flags: END_STREAM, stream: 5 });
        let closed = Verdict::Fatal(Reason::STREAM_CLOSED);
        assert_eq!(judge(opened, HEADERS, END_STREAM, 5, b"x"), closed);
        assert_eq!(judge(opened, RST_STREAM, 0, 3, &[0; 4]), Verdict::Pass);
        assert_eq!(judge(opened, DATA, 0, 3, b"x"), Verdict::Pass, "h2 knows of the reset");
        assert_eq!(judge(opened, HEADERS, END_STREAM, 3, b"x"), closed);
        assert_eq!(judge(opened, DATA, END_STREAM, 7, b"x"), Verdict::Pass, "a stream that nobody has opened");
        for stream in 0..10_000 {
            opened.note(&Header { len: 9, kind: HEADERS, flags: END_STREAM, stream });
        }
        assert_eq!(opened.ended.len(), ENDED_MAX);
    }

    #[test]
    fn a_stream_that_was_left_out_is_not_opened_later() {
        let opened = &mut Opened::default();
        let head = |stream| Header { len: 9, kind: HEADERS, flags: END_HEADERS, stream };
        for stream in [1, 3, 9, 11] {
            assert_eq!(opened.judge(&head(stream), b""), Verdict::Pass);
            opened.note(&head(stream));
        }
        for stream in [5, 7] {
            assert_eq!(opened.judge(&head(stream), b""), Verdict::Fatal(Reason::PROTOCOL_ERROR));
        }
        for trailers in [1, 3, 9, 11] {
            assert_eq!(opened.judge(&head(trailers), b""), Verdict::Pass);
        }
    }

    #[test]
    fn windows_are_opened_by_something_and_not_too_far() {
        let opened = &mut opened();
        assert_eq!(judge(opened, WINDOW_UPDATE, 0, 1, &[0; 4]), Verdict::Instead);
        assert_eq!(judge(opened, WINDOW_UPDATE, 0, 1, &[0x80, 0, 0, 0]), Verdict::Instead, "the first bit is none");
        assert_eq!(judge(opened, WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]), Verdict::Pass);
        assert_eq!(judge(opened, WINDOW_UPDATE, 0, 0, &[0; 4]), Verdict::Pass, "h2 ends the connection");
        assert_eq!(judge(opened, WINDOW_UPDATE, 0, 7, &[0; 4]), Verdict::Pass, "h2 ends the connection");
        let header = Header { len: 4, kind: WINDOW_UPDATE, flags: 0, stream: 1 };
        assert_eq!(opened.judge(&header, &[0; 3]), Verdict::Unread);
        let settings = |value: u32| [&[0, 1, 0, 0, 0, 0, 0, 4], &value.to_be_bytes()[..]].concat();
        assert_eq!(judge(opened, SETTINGS, 0, 0, &settings(WINDOW_MAX)), Verdict::Pass);
        let too_far = Verdict::Fatal(Reason::FLOW_CONTROL_ERROR);
        assert_eq!(judge(opened, SETTINGS, 0, 0, &settings(WINDOW_MAX + 1)), too_far);
        let header = Header { len: 12, kind: SETTINGS, flags: 0, stream: 0 };
        assert_eq!(opened.judge(&header, &settings(1)[..11]), Verdict::Unread);
        assert_eq!(opened.judge(&Header { len: 6 << 20, ..header }, &[]), Verdict::Pass);
    }
}
