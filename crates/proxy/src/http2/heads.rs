//! Parses header blocks before h2 does, and holds each until it is complete. An error for which h2 would end the
//! connection then ends only its stream, and the decoded size of a block is known before h2 decodes it. See
//! [`penstock_http::hpack`].

use penstock_http::hpack::{Block, Mirror};

/// Most bytes held of an incomplete block. h2 refuses a list of fields beyond four times its limit, which is some 18
/// KiB with the default settings.
const HELD_MAX: usize = 128 * 1024;

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;

/// The frame size that every peer must accept (RFC 9113 section 6.5.2).
const FRAME_MAX: usize = 16_384;

/// The parser of a client's header blocks.
#[derive(Debug, Default)]
pub(super) struct Heads {
    mirror: Mirror,
    /// The start of a block, or of a frame header.
    held: Vec<u8>,
    /// Bytes of a frame that pass unchanged.
    skip: usize,
    /// The latest stream's id.
    last: u32,
    /// Set when a block could not be decoded; h2 is about to find out too.
    lost: bool,
}

/// What to do with bytes that arrived.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Passed {
    /// Pass them on unchanged.
    Unchanged,
    /// Pass these on instead, which may be empty.
    Instead(Vec<u8>),
    /// Refuse the peer: more would have to be held than is reasonable.
    TooMuch,
}

impl Heads {
    /// A parser for a stream that starts with `preface` bytes to be skipped.
    pub fn behind(preface: usize) -> Self {
        Heads { skip: preface, ..Heads::default() }
    }
    /// Parses what has arrived; calls `said` with the stream id and content of each block.
    pub fn pass(&mut self, arrived: &[u8], mut said: impl FnMut(u32, Block)) -> Passed {
        if self.held.is_empty() {
            let (mut out, mut copied) = (Vec::new(), 0);
            let settled = self.scan(arrived, &mut copied, &mut out, &mut said);
            if copied == 0 && settled == arrived.len() {
                return Passed::Unchanged;
            }
            out.extend_from_slice(&arrived[copied..settled]);
            self.held.extend_from_slice(&arrived[settled..]);
            return self.passed(out);
        }
        let mut bytes = std::mem::take(&mut self.held);
        bytes.extend_from_slice(arrived);
        let (mut out, mut copied) = (Vec::new(), 0);
        let settled = self.scan(&bytes, &mut copied, &mut out, &mut said);
        out.extend_from_slice(&bytes[copied..settled]);
        bytes.drain(..settled);
        self.held = bytes;
        self.passed(out)
    }
    fn passed(&mut self, out: Vec<u8>) -> Passed {
        if self.held.is_empty() {
            self.held = Vec::new();
        }
        if self.held.len() > HELD_MAX { Passed::TooMuch } else { Passed::Instead(out) }
    }
    /// Goes through complete frames and returns their total size. The first `copied` bytes are in `out` already.
    fn scan(
        &mut self,
        bytes: &[u8],
        copied: &mut usize,
        out: &mut Vec<u8>,
        said: &mut impl FnMut(u32, Block),
    ) -> usize {
        let mut at = 0;
        loop {
            let skipped = self.skip.min(bytes.len() - at);
            (self.skip, at) = (self.skip - skipped, at + skipped);
            let Some(header) = Header::at(&bytes[at..]) else { return at };
            if header.kind != HEADERS || self.lost {
                self.skip = 9 + header.len;
                continue;
            }
            let Some((block, len)) = Joined::of(&bytes[at..]) else { return at };
            if let Some(block) = block
                && let Some(instead) = self.read(&header, &block, said)
            {
                out.extend_from_slice(&bytes[*copied..at]);
                write(&header, &instead, out);
                *copied = at + len;
            }
            at += len;
        }
    }
    /// Parses a block; returns the bytes that h2 is to get instead, if any.
    fn read(&mut self, header: &Header, joined: &Joined, said: &mut impl FnMut(u32, Block)) -> Option<Vec<u8>> {
        let mut instead = Vec::new();
        let trailers = header.stream <= self.last;
        let Ok(mut block) = self.mirror.read(&joined.block, trailers, &mut instead) else {
            self.lost = true;
            return None;
        };
        self.last = self.last.max(header.stream);
        if joined.depends_on == Some(header.stream) {
            // h2 would end the stream without decoding the block, and its decoding table would differ from then on.
            block.malformed = true;
            instead = if instead.is_empty() { joined.block.to_vec() } else { instead };
            instead.extend_from_slice(penstock_http::hpack::POISON);
        }
        said(header.stream, block);
        (!instead.is_empty()).then_some(instead)
    }
}

/// A frame's header.
#[derive(Debug)]
struct Header {
    len: usize,
    kind: u8,
    flags: u8,
    stream: u32,
}

impl Header {
    fn at(bytes: &[u8]) -> Option<Header> {
        let &[a, b, c, kind, flags, s, t, u, v, ..] = bytes else { return None };
        let len = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        Some(Header { len, kind, flags, stream: u32::from_be_bytes([s, t, u, v]) & !(1 << 31) })
    }
}

/// A block, joined from its frames.
struct Joined<'a> {
    block: std::borrow::Cow<'a, [u8]>,
    depends_on: Option<u32>,
}

impl<'a> Joined<'a> {
    /// The block whose first frame is at the start of `bytes`, and the total size of its frames. The block is `None` if
    /// h2 will end the connection because of its frames; the result is `None` while they are incomplete.
    fn of(bytes: &'a [u8]) -> Option<(Option<Joined<'a>>, usize)> {
        let mut header = Header::at(bytes)?;
        let stream = header.stream;
        let mut len = 9 + header.len;
        let payload = bytes.get(9..len)?;
        let Some((depends_on, fragment)) = fragment(payload, header.flags) else { return Some((None, len)) };
        let mut block = std::borrow::Cow::Borrowed(fragment);
        while header.flags & END_HEADERS == 0 {
            header = Header::at(&bytes[len..])?;
            if header.kind != CONTINUATION || header.stream != stream {
                return Some((None, len));
            }
            let payload = bytes.get(len + 9..len + 9 + header.len)?;
            block.to_mut().extend_from_slice(payload);
            len += 9 + header.len;
        }
        Some((Some(Joined { block, depends_on }), len))
    }
}

/// The part of the block that a HEADERS frame carries, and the stream it depends on (RFC 9113 section 6.2).
fn fragment(payload: &[u8], flags: u8) -> Option<(Option<u32>, &[u8])> {
    let (padding, payload) = match flags & PADDED {
        0 => (0, payload),
        _ => payload.split_first().map(|(&padding, rest)| (usize::from(padding), rest))?,
    };
    let payload = &payload[..payload.len().checked_sub(padding)?];
    if flags & PRIORITY == 0 {
        return Some((None, payload));
    }
    let (priority, payload) = payload.split_first_chunk::<5>()?;
    let [a, b, c, d, _] = *priority;
    Some((Some(u32::from_be_bytes([a, b, c, d]) & !(1 << 31)), payload))
}

/// Writes a block as frames.
fn write(header: &Header, block: &[u8], out: &mut Vec<u8>) {
    let mut chunks = block.chunks(FRAME_MAX).peekable();
    let (mut kind, mut flags) = (HEADERS, header.flags & END_STREAM);
    while let Some(chunk) = chunks.next() {
        if chunks.peek().is_none() {
            flags |= END_HEADERS;
        }
        out.extend_from_slice(&(chunk.len() as u32).to_be_bytes()[1..]);
        out.extend_from_slice(&[kind, flags]);
        out.extend_from_slice(&header.stream.to_be_bytes());
        out.extend_from_slice(chunk);
        (kind, flags) = (CONTINUATION, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    }

    const GOOD: &[u8] = b"\x82\x86\x84\x41\x01h";
    const BAD: &[u8] = b"\x82\x86\x84\x41\x01h\x00\x03Foo\x01x";
    const BAD_INSTEAD: &[u8] = b"\x82\x86\x84\x41\x01h\x00\x03xxx\x01x\0\x02te\x01x";
    const ALL: u8 = END_STREAM | END_HEADERS;

    /// What is passed on of bytes that arrive in pieces, and which streams were malformed.
    fn passed(bytes: &[u8], piece: usize) -> (Vec<u8>, Vec<u32>) {
        let (mut heads, mut out, mut malformed) = (Heads::behind(3), Vec::new(), Vec::new());
        for arrived in bytes.chunks(piece) {
            let said = |stream, block: Block| malformed.extend(block.malformed.then_some(stream));
            match heads.pass(arrived, said) {
                Passed::Unchanged => out.extend_from_slice(arrived),
                Passed::Instead(other) => out.extend(other),
                Passed::TooMuch => panic!("too much"),
            }
        }
        (out, malformed)
    }

    #[test]
    fn frames_pass_however_they_are_cut_and_bad_blocks_are_replaced() {
        let padded = [b"\x02", GOOD, b"\0\0"].concat();
        let prioritised = [b"\0\0\0\x03\x10", BAD].concat();
        let sent = [
            b"PRI".to_vec(),
            frame(4, 0, 0, &[0; 6]),
            frame(HEADERS, ALL, 1, GOOD),
            frame(HEADERS, END_HEADERS, 3, BAD),
            frame(0, 1, 3, b"data"),
            frame(HEADERS, ALL | PADDED, 5, &padded),
            frame(HEADERS, ALL | PRIORITY, 7, &prioritised),
            frame(HEADERS, END_STREAM, 9, &BAD[..7]),
            frame(CONTINUATION, 0, 9, b""),
            frame(CONTINUATION, END_HEADERS, 9, &BAD[7..]),
            frame(6, 0, 0, &[0; 8]),
        ];
        let mut wanted = sent.clone();
        wanted[3] = frame(HEADERS, END_HEADERS, 3, BAD_INSTEAD);
        wanted[6] = frame(HEADERS, ALL, 7, BAD_INSTEAD);
        wanted[7] = frame(HEADERS, ALL, 9, BAD_INSTEAD);
        (wanted[8], wanted[9]) = (Vec::new(), Vec::new());
        for piece in [1, 2, 3, 7, 8, 9, 10, 64, 4096] {
            assert_eq!(passed(&sent.concat(), piece), (wanted.concat(), vec![3, 7, 9]), "pieces of {piece}");
        }
    }

    #[test]
    fn what_h2_ends_the_connection_for_is_left_to_it() {
        for sent in [
            frame(HEADERS, END_STREAM, 1, GOOD).into_iter().chain(frame(6, 0, 0, &[0; 8])).collect::<Vec<_>>(),
            frame(HEADERS, ALL | PADDED, 1, b"\x09abc"),
            frame(HEADERS, ALL, 1, b"\x80"),
        ] {
            let sent = [b"PRI", &sent[..]].concat();
            assert_eq!(passed(&sent, 4096), (sent.clone(), Vec::new()));
            assert_eq!(passed(&sent, 1), (sent.clone(), Vec::new()));
        }
    }

    #[test]
    fn a_stream_that_depends_on_itself_is_malformed() {
        let sent = [b"PRI", &frame(HEADERS, ALL | PRIORITY, 1, &[b"\0\0\0\x01\x10", GOOD].concat())[..]].concat();
        let poisoned = [GOOD, penstock_http::hpack::POISON].concat();
        assert_eq!(passed(&sent, 4096), ([b"PRI", &frame(HEADERS, ALL, 1, &poisoned)[..]].concat(), vec![1]));
    }

    #[test]
    fn a_block_without_an_end_is_not_held_for_ever() {
        let mut heads = Heads::default();
        heads.pass(&frame(HEADERS, 0, 1, GOOD), |_, _| {});
        let more = frame(CONTINUATION, 0, 1, &[0; 16_000]);
        let held = (0..).take_while(|_| heads.pass(&more, |_, _| {}) != Passed::TooMuch).count();
        assert_eq!(held, HELD_MAX / more.len());
    }
}
