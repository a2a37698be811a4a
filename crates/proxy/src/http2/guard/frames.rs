//! The frames of a byte stream, as far as they are counted: their headers.

use super::super::strict::{END_STREAM, PADDED};
use crate::observe::http_counters::Tally;
use h2::Reason;

/// The peer whose frames are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

/// Follows the framing of a byte stream: finds each frame header and skips payloads.
#[derive(Debug)]
pub(super) struct Frames {
    /// Bytes to skip: at first the connection preface, then payloads.
    skip: usize,
    header: [u8; 9],
    have: usize,
}

/// A part of a byte stream.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part<'a> {
    /// The header of a frame.
    Header(&'a [u8; 9]),
    /// Bytes of the preface, or of the payload of the frame whose header came last.
    Payload(&'a [u8]),
}

pub(super) const PREFACE_BYTES: usize = 24;

impl Frames {
    pub(super) fn from(side: Side) -> Self {
        // A server's preface is an ordinary frame (RFC 9113 section 3.4).
        let skip = if side == Side::Client { PREFACE_BYTES } else { 0 };
        Frames { skip, header: [0; 9], have: 0 }
    }
    /// Calls `seen` with each frame header in bytes that have arrived, and with each piece of what lies between; returns false
    /// as soon as `seen` does.
    pub(super) fn walk(&mut self, bytes: &mut [u8], mut seen: impl FnMut(Part<'_>) -> bool) -> bool {
        let mut at = 0;
        loop {
            let skipped = self.skip.min(bytes.len() - at);
            self.skip -= skipped;
            if skipped > 0 && !seen(Part::Payload(&bytes[at..at + skipped])) {
                return false;
            }
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
            if !seen(Part::Header(&self.header)) {
                return false;
            }
        }
    }
}

/// The type of frames that carry a body.
pub(super) const DATA: u8 = 0;

/// The offset of the type in a frame header.
pub(super) const KIND: usize = 3;

/// An undefined type: receivers must ignore such frames (RFC 9113 section 4.1).
pub(super) const IGNORED: u8 = 0xff;

/// Whether a frame is DATA that carries nothing and does not end its stream. h2 would end the connection at the 101st,
/// over however long a time; such frames are hidden from it, because the budget bounds them.
pub(super) fn is_empty_data(header: &[u8; 9]) -> bool {
    header[KIND] == DATA && payload(header) == 0 && header[4] & (END_STREAM | PADDED) == 0
}

/// The payload length in a frame header.
pub(super) fn payload(header: &[u8; 9]) -> usize {
    usize::from(header[0]) << 16 | usize::from(header[1]) << 8 | usize::from(header[2])
}

/// Follows the framing of what is written, in order to count the frames that end streams and connections.
#[derive(Debug, Default)]
pub(super) struct Sent {
    /// The frame's header, and the first eight bytes of its payload, where such frames have their code.
    start: [u8; 17],
    have: usize,
    /// Bytes of payload to skip. A client's preface is skipped as a frame: see [`Sent::walk`].
    skip: usize,
    begun: bool,
}

const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;

impl Sent {
    /// Counts what `bytes`, which have been written, complete; returns how many glitches that answers.
    pub(super) fn walk(&mut self, mut bytes: &[u8], tally: Option<&Tally>) -> u32 {
        let mut glitches = 0;
        self.frames(&mut bytes, |kind, code| {
            let is_error = is_protocol_error(code);
            glitches += u32::from(is_error || code == u32::from(Reason::REFUSED_STREAM));
            match (tally, kind) {
                (None, _) => {}
                (Some(tally), RST_STREAM) => tally.sent_reset(is_error),
                (Some(tally), _) => tally.sent_goaway(is_error),
            }
        });
        glitches
    }
    /// Calls `ends` with the type and code of each frame that ends something.
    fn frames(&mut self, bytes: &mut &[u8], mut ends: impl FnMut(u8, u32)) {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let skipped = self.skip.min(bytes.len());
                (self.skip, *bytes) = (self.skip - skipped, &bytes[skipped..]);
                continue;
            }
            if !std::mem::replace(&mut self.begun, true) && bytes[0] == b'P' {
                // We are the client, and begin with the preface.
                self.skip = PREFACE_BYTES;
                continue;
            }
            let wanted = 9 + self.code_end();
            let taken = (wanted - self.have).min(bytes.len());
            self.start[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
            (self.have, *bytes) = (self.have + taken, &bytes[taken..]);
            if self.have < 9 + self.code_end() {
                continue;
            }
            let (kind, code_end) = (self.start[KIND], self.code_end());
            let header = self.start.first_chunk().expect("the header is at the start");
            self.skip = payload(header).saturating_sub(code_end);
            if let Some(code) = self.start[9..9 + code_end].last_chunk() {
                ends(kind, u32::from_be_bytes(*code));
            }
            self.have = 0;
        }
    }
    /// The offset in the payload at which the error code ends; 0 while the header is incomplete, and for frames without a code.
    fn code_end(&self) -> usize {
        match self.start[KIND] {
            _ if self.have < 9 => 0,
            RST_STREAM => 4,
            GOAWAY => 8,
            _ => 0,
        }
    }
}

/// Whether a code says that the peer has broken the protocol, rather than that something is over or too much.
fn is_protocol_error(code: u32) -> bool {
    let codes = [
        Reason::PROTOCOL_ERROR,
        Reason::FLOW_CONTROL_ERROR,
        Reason::STREAM_CLOSED,
        Reason::FRAME_SIZE_ERROR,
        Reason::COMPRESSION_ERROR,
    ];
    codes.contains(&Reason::from(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_found_however_frames_are_written() {
        let frame = |kind: u8, payload: &[u8]| {
            let [_, length @ ..] = (payload.len() as u32).to_be_bytes();
            [&length[..], &[kind, 0, 0, 0, 0, 1], payload].concat()
        };
        let inside = frame(RST_STREAM, &[0, 0, 0, 2]);
        let frames = [
            frame(4, &[0; 12]),
            frame(0, &inside),
            frame(RST_STREAM, &[0, 0, 0, 8]),
            frame(4, &[]),
            frame(GOAWAY, &[0, 0, 0, 1, 0, 0, 0, 1, b'w', b'h', b'y']),
            frame(RST_STREAM, &[0, 0, 0, 5]),
        ];
        for preface in [&b""[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
            let bytes = [preface, &frames.concat()].concat();
            for size in 1..bytes.len() {
                let (mut sent, mut found) = (Sent::default(), Vec::new());
                bytes.chunks(size).for_each(|mut piece| sent.frames(&mut piece, |kind, code| found.push((kind, code))));
                assert_eq!(found, [(RST_STREAM, 8), (GOAWAY, 1), (RST_STREAM, 5)], "{size} at a time");
            }
        }
        assert!(is_protocol_error(1) && is_protocol_error(5) && !is_protocol_error(0) && !is_protocol_error(8));
    }
}
