//! Corrects the RST_STREAM frames that h2 writes for streams that [`super::strict`] made it reset: h2 sends PROTOCOL_ERROR, and
//! the right code is put in its place. Pure.

use h2::Reason;

const RST_STREAM: u8 = 3;

/// How many resets may be pending. With more, the earliest keep h2's code.
const AWAITED_MAX: usize = 16;

/// Follows the frames that are written to the client.
#[derive(Debug, Default)]
pub(super) struct Resets {
    /// Streams whose RST_STREAM is still to come, and its code.
    awaited: Vec<(u32, Reason)>,
    header: [u8; 9],
    have: usize,
    /// Bytes of payload to skip.
    skip: usize,
}

impl Resets {
    /// Announces that h2 is about to reset a stream, and with which code it should.
    pub fn expect(&mut self, stream: u32, reason: Reason) {
        if self.awaited.len() == AWAITED_MAX {
            self.awaited.remove(0);
        }
        self.awaited.push((stream, reason));
    }
    /// Whether what is written must go through [`Resets::corrected`].
    pub fn are_awaited(&self) -> bool {
        !self.awaited.is_empty()
    }
    /// Returns the bytes with the right codes. Does not count them as written.
    pub fn corrected(&self, bytes: &[u8]) -> Vec<u8> {
        let mut corrected = bytes.to_vec();
        let mut ahead = Resets { awaited: self.awaited.clone(), ..*self };
        ahead.walk(bytes, |at, reason| {
            if u32::from(bytes[at]) == u32::from(Reason::PROTOCOL_ERROR) {
                corrected[at] = reason;
            }
        });
        corrected
    }
    /// Counts bytes of h2 as written.
    pub fn sent(&mut self, bytes: &[u8]) {
        self.walk(bytes, |_, _| {});
    }
    /// Walks over bytes; calls `reason_at` with the index of each code's last byte that is to change, and its new value.
    fn walk(&mut self, bytes: &[u8], mut reason_at: impl FnMut(usize, u8)) {
        let mut at = 0;
        while at < bytes.len() {
            if self.skip > 0 {
                let skipped = self.skip.min(bytes.len() - at);
                (self.skip, at) = (self.skip - skipped, at + skipped);
                if self.skip == 0
                    && let Some(reason) = self.payload_over()
                {
                    reason_at(at - 1, reason);
                }
                continue;
            }
            let wanted = (9 - self.have).min(bytes.len() - at);
            self.header[self.have..self.have + wanted].copy_from_slice(&bytes[at..at + wanted]);
            (self.have, at) = (self.have + wanted, at + wanted);
            if self.have == 9 {
                self.have = 0;
                let [a, b, c, ..] = self.header;
                self.skip = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
            }
        }
    }
    /// At the end of a frame: the last byte of the code that belongs there, if it is a pending reset. All codes are below 256.
    fn payload_over(&mut self) -> Option<u8> {
        let [_, _, _, kind, _, stream @ ..] = self.header;
        if kind != RST_STREAM || self.awaited.is_empty() {
            return None;
        }
        let stream = u32::from_be_bytes(stream);
        let at = self.awaited.iter().position(|(awaited, _)| *awaited == stream)?;
        let (_, reason) = self.awaited.remove(at);
        Some(u32::from(reason) as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, 0], &stream.to_be_bytes(), payload].concat()
    }
    fn reset(stream: u32, reason: Reason) -> Vec<u8> {
        frame(RST_STREAM, stream, &u32::from(reason).to_be_bytes())
    }

    #[test]
    fn an_awaited_reset_gets_its_reason_however_it_is_written() {
        let sent = [
            frame(4, 0, &[]),
            frame(0, 5, &reset(3, Reason::PROTOCOL_ERROR)),
            reset(1, Reason::PROTOCOL_ERROR),
            reset(3, Reason::PROTOCOL_ERROR),
            reset(7, Reason::CANCEL),
            reset(3, Reason::PROTOCOL_ERROR),
        ];
        let mut wanted = sent.clone();
        wanted[3] = reset(3, Reason::STREAM_CLOSED);
        let sent = sent.concat();
        for taken in 1..sent.len() {
            let mut resets = Resets::default();
            resets.expect(3, Reason::STREAM_CLOSED);
            resets.expect(7, Reason::STREAM_CLOSED);
            let (mut out, mut left) = (Vec::new(), &sent[..]);
            while !left.is_empty() {
                // What is offered is more than what is taken, and offered again.
                let offered = if resets.are_awaited() { resets.corrected(left) } else { left.to_vec() };
                let taken = taken.min(offered.len());
                out.extend_from_slice(&offered[..taken]);
                resets.sent(&left[..taken]);
                left = &left[taken..];
            }
            assert_eq!(out, wanted.concat(), "{taken} at a time");
            assert!(!resets.are_awaited());
        }
    }
}
