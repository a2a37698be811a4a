//! Looks at a client's frames before h2 does. Header blocks are parsed, each held until it is complete: an error for which
//! h2 would end the connection then ends only its stream, and the decoded size of a block is known before h2 decodes it.
//! See [`penstock_http::hpack`]; other frames are judged by [`super::strict`].

use super::{
    resets::Resets,
    strict::{self, CONTINUATION, END_HEADERS, END_STREAM, HAS_PRIORITY, HEADERS, Opened, PADDED, Verdict},
};
use h2::Reason;
use penstock_http::hpack::{Block, Mirror};

/// Most bytes held of an incomplete block. h2 refuses a list of fields beyond four times its limit, which is some 18
/// KiB with the default settings.
const HELD_MAX: usize = 128 * 1024;

/// The frame size that every peer must accept (RFC 9113 section 6.5.2).
pub(super) const FRAME_MAX: usize = 16_384;

/// The parser of a client's header blocks.
#[derive(Debug, Default)]
pub(super) struct Heads {
    mirror: Mirror,
    /// The start of a block, or of a frame header.
    held: Vec<u8>,
    /// Bytes of a frame that pass unchanged.
    skip: usize,
    opened: Opened,
    /// Why the connection is to end, once h2 has read what came before.
    fatal: Option<Reason>,
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
    /// A parser for a stream that starts with `preface` bytes to be skipped, with an HPACK table of at most `table_size`.
    pub fn behind(preface: usize, table_size: usize) -> Self {
        Heads { skip: preface, mirror: Mirror::with_limit(table_size), ..Heads::default() }
    }
    /// Has the first frame be the client's settings.
    pub fn settings_first(self) -> Self {
        Heads { opened: Opened::unsettled(), ..self }
    }
    /// Why the connection is to end, if it is.
    pub fn fatal(&self) -> Option<Reason> {
        self.fatal
    }
    /// Parses what has arrived; calls `said` with the stream id and content of each block, and announces to `resets` each
    /// stream that h2 is about to reset.
    pub fn pass(&mut self, arrived: &[u8], resets: &mut Resets, mut said: impl FnMut(u32, Block)) -> Passed {
        if self.held.is_empty() {
            let (mut out, mut copied) = (Vec::new(), 0);
            let settled = self.scan(arrived, &mut copied, &mut out, resets, &mut said);
            if copied == 0 && out.is_empty() && settled == arrived.len() {
                return Passed::Unchanged;
            }
            out.extend_from_slice(&arrived[copied..settled]);
            self.held.extend_from_slice(&arrived[settled..]);
            return self.passed(out);
        }
        let mut bytes = std::mem::take(&mut self.held);
        bytes.extend_from_slice(arrived);
        let (mut out, mut copied) = (Vec::new(), 0);
        let settled = self.scan(&bytes, &mut copied, &mut out, resets, &mut said);
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
        resets: &mut Resets,
        said: &mut impl FnMut(u32, Block),
    ) -> usize {
        let mut at = 0;
        loop {
            let skipped = self.skip.min(bytes.len() - at);
            (self.skip, at) = (self.skip - skipped, at + skipped);
            let Some(header) = Header::at(&bytes[at..]) else { return at };
            let joined = if header.kind == HEADERS {
                let Some(joined) = Joined::of(&bytes[at..]) else { return at };
                Some(joined)
            } else {
                None
            };
            match self.opened.judge(&header, &bytes[at + 9..]) {
                Verdict::Pass => {}
                Verdict::Unread => return at,
                Verdict::Reset(reason) => {
                    out.extend_from_slice(&bytes[*copied..at]);
                    out.extend_from_slice(&strict::ends(header.stream));
                    *copied = at;
                    resets.expect(header.stream, reason);
                }
                Verdict::Instead => {
                    out.extend_from_slice(&bytes[*copied..at]);
                    out.extend_from_slice(&strict::ends(header.stream));
                    at += 9 + header.len;
                    *copied = at;
                    continue;
                }
                Verdict::Fatal(reason) => return self.fail(reason, &bytes[*copied..at], copied, out, bytes.len()),
            }
            let Some((block, len)) = joined else {
                self.skip = 9 + header.len;
                continue;
            };
            if let Some(block) = block {
                match self.read(&header, &block, said) {
                    Ok(None) => {}
                    Ok(Some(instead)) => {
                        out.extend_from_slice(&bytes[*copied..at]);
                        write(&header, &instead, out);
                        *copied = at + len;
                    }
                    Err(reason) => return self.fail(reason, &bytes[*copied..at], copied, out, bytes.len()),
                }
            }
            at += len;
        }
    }
    /// Ends the connection: h2 gets what came before, and nothing of the rest.
    fn fail(&mut self, reason: Reason, before: &[u8], copied: &mut usize, out: &mut Vec<u8>, all: usize) -> usize {
        self.fatal = Some(reason);
        out.extend_from_slice(before);
        *copied = all;
        all
    }
    /// Parses a block; returns what h2 is to read instead, if anything.
    ///
    /// # Errors
    /// If the block cannot be decoded: nothing after it can be either (RFC 9113 section 4.3).
    fn read(
        &mut self,
        header: &Header,
        joined: &Joined,
        said: &mut impl FnMut(u32, Block),
    ) -> Result<Option<Vec<u8>>, Reason> {
        let mut instead = Vec::new();
        let trailers = header.stream <= self.opened.last;
        let read = self.mirror.read(&joined.block, trailers, &mut instead);
        let mut block = read.map_err(|_| Reason::COMPRESSION_ERROR)?;
        self.opened.note(header);
        if joined.depends_on == Some(header.stream) {
            // h2 would end the stream without decoding the block, and its decoding table would differ from then on.
            block.malformed = true;
            instead = if instead.is_empty() { joined.block.to_vec() } else { instead };
            instead.extend_from_slice(penstock_http::hpack::POISON);
        }
        said(header.stream, block);
        Ok((!instead.is_empty()).then_some(instead))
    }
}

/// A frame's header.
#[derive(Debug)]
pub(super) struct Header {
    pub len: usize,
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
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
    if flags & HAS_PRIORITY == 0 {
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
        let (mut heads, mut out, mut malformed) = (Heads::behind(3, 4096), Vec::new(), Vec::new());
        for arrived in bytes.chunks(piece) {
            let said = |stream, block: Block| malformed.extend(block.malformed.then_some(stream));
            match heads.pass(arrived, &mut Resets::default(), said) {
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
            frame(HEADERS, ALL | HAS_PRIORITY, 7, &prioritised),
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
        ] {
            let sent = [b"PRI", &sent[..]].concat();
            assert_eq!(passed(&sent, 4096), (sent.clone(), Vec::new()));
            assert_eq!(passed(&sent, 1), (sent.clone(), Vec::new()));
        }
    }

    #[test]
    fn what_ends_the_connection_is_the_last_that_h2_does_not_get() {
        let good = frame(HEADERS, ALL, 1, GOOD);
        for (bad, reason) in [
            (frame(HEADERS, ALL, 3, b"\x80"), Reason::COMPRESSION_ERROR),
            (frame(6, 0, 0, &[0; 7]), Reason::FRAME_SIZE_ERROR),
            (frame(4, 0, 0, b"\0\x04\xff\0\0\0"), Reason::FLOW_CONTROL_ERROR),
        ] {
            let sent = [b"PRI", &good[..], &bad, &frame(6, 0, 0, &[0; 8])].concat();
            for piece in [1, 7, 4096] {
                let (mut heads, mut out) = (Heads::behind(3, 4096), Vec::new());
                for arrived in sent.chunks(piece) {
                    match heads.pass(arrived, &mut Resets::default(), |_, _| {}) {
                        Passed::Unchanged => out.extend_from_slice(arrived),
                        Passed::Instead(other) => out.extend(other),
                        Passed::TooMuch => panic!("too much"),
                    }
                    if heads.fatal().is_some() {
                        break;
                    }
                }
                assert_eq!(out, [b"PRI", &good[..]].concat(), "{reason:?}, pieces of {piece}");
                assert_eq!(heads.fatal(), Some(reason), "pieces of {piece}");
            }
        }
    }

    #[test]
    fn h2_is_made_to_end_a_stream_in_front_of_what_it_must_not_get_on_it() {
        let data = frame(0, 0, 1, b"data");
        let opened = [b"PRI", &frame(HEADERS, ALL, 1, GOOD)[..], &frame(HEADERS, END_HEADERS, 3, GOOD)].concat();
        let sent = [&opened[..], &data, &data, &frame(8, 0, 3, &[0; 4]), &frame(6, 0, 0, &[0; 8])].concat();
        let wanted = [&opened[..], &strict::ends(1), &data, &data, &strict::ends(3), &frame(6, 0, 0, &[0; 8])].concat();
        for piece in [1, 2, 3, 13, 14, opened.len(), 4096] {
            assert_eq!(passed(&sent, piece), (wanted.clone(), Vec::new()), "pieces of {piece}");
        }
    }

    #[test]
    fn a_stream_that_depends_on_itself_is_malformed() {
        let sent = [b"PRI", &frame(HEADERS, ALL | HAS_PRIORITY, 1, &[b"\0\0\0\x01\x10", GOOD].concat())[..]].concat();
        let poisoned = [GOOD, penstock_http::hpack::POISON].concat();
        assert_eq!(passed(&sent, 4096), ([b"PRI", &frame(HEADERS, ALL, 1, &poisoned)[..]].concat(), vec![1]));
    }

    #[test]
    fn a_block_without_an_end_is_not_held_for_ever() {
        let mut heads = Heads::default();
        heads.pass(&frame(HEADERS, 0, 1, GOOD), &mut Resets::default(), |_, _| {});
        let more = frame(CONTINUATION, 0, 1, &[0; 16_000]);
        let held =
            (0..).take_while(|_| heads.pass(&more, &mut Resets::default(), |_, _| {}) != Passed::TooMuch).count();
        assert_eq!(held, HELD_MAX / more.len());
    }
}
