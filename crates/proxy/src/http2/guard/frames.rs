//! The frames of a byte stream, as far as they are counted: their headers.

use super::super::strict::{END_STREAM, PADDED};

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

pub(super) const PREFACE_BYTES: usize = 24;

impl Frames {
    pub(super) fn from(side: Side) -> Self {
        // A server's preface is an ordinary frame (RFC 9113 section 3.4).
        let skip = if side == Side::Client { PREFACE_BYTES } else { 0 };
        Frames { skip, header: [0; 9], have: 0 }
    }
    /// Calls `frame` for each frame header in bytes that have arrived; returns false as soon as `frame` does.
    pub(super) fn walk(&mut self, bytes: &mut [u8], mut frame: impl FnMut(&[u8; 9]) -> bool) -> bool {
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
