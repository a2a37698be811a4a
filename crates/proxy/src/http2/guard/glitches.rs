//! What a peer sends that is allowed and odd, and that HAProxy counts as glitches together with errors. Pure.
//!
//! Errors are counted where they are answered: see [`super::frames::Sent`].

use super::{
    super::strict::{CONTINUATION, END_HEADERS, HEADERS, INITIAL_WINDOW_SIZE, SETTINGS},
    frames::{KIND, Part, payload},
};

/// Looks for glitches in the parts of a byte stream.
#[derive(Debug)]
pub(super) struct Glitches {
    /// CONTINUATION frames of the header block that is arriving, and the size of all its frames.
    fragments: u32,
    block: usize,
    /// What is left of a SETTINGS frame, and the setting of which `have` bytes have arrived.
    settings: usize,
    setting: [u8; 6],
    have: usize,
    /// The initial window of the peer's streams.
    window: u32,
}

/// The initial window until SETTINGS say otherwise (RFC 9113 section 6.9.2).
const WINDOW: u32 = 65_535;

/// A block may have this many CONTINUATION frames of any size.
const FRAGMENTS: u32 = 4;

/// Each may carry as little as this many bytes on average: a block that needs more frames than its size explains is odd.
const FRAGMENT_BYTES: usize = 1024;

/// So many frames of an odd block are one glitch.
const FRAGMENTS_PER_GLITCH: u32 = 16;

impl Default for Glitches {
    fn default() -> Self {
        Glitches { fragments: 0, block: 0, settings: 0, setting: [0; 6], have: 0, window: WINDOW }
    }
}

impl Glitches {
    /// How many glitches this part completes.
    pub fn in_part(&mut self, part: Part<'_>) -> u32 {
        match part {
            Part::Header(header) => self.header(header),
            Part::Payload(bytes) if self.settings > 0 => self.settings(bytes),
            Part::Payload(_) => 0,
        }
    }
    fn header(&mut self, header: &[u8; 9]) -> u32 {
        (self.settings, self.have) = (0, 0);
        match header[KIND] {
            SETTINGS => self.settings = payload(header),
            HEADERS => (self.fragments, self.block) = (0, payload(header)),
            CONTINUATION => {
                self.fragments = self.fragments.saturating_add(1);
                self.block = self.block.saturating_add(payload(header));
                let odd = self.fragments > FRAGMENTS && self.fragments as usize > self.block / FRAGMENT_BYTES;
                if odd && header[4] & END_HEADERS != 0 {
                    return self.fragments.div_ceil(FRAGMENTS_PER_GLITCH);
                }
            }
            _ => {}
        }
        0
    }
    /// A window that becomes smaller takes back what streams may have sent already. As in HAProxy, the first SETTINGS count too.
    fn settings(&mut self, bytes: &[u8]) -> u32 {
        let mut glitches = 0;
        for &byte in bytes {
            self.setting[self.have] = byte;
            self.have = (self.have + 1) % self.setting.len();
            let [a, b, value @ ..] = self.setting;
            if self.have == 0 && u16::from_be_bytes([a, b]) == INITIAL_WINDOW_SIZE {
                let window = u32::from_be_bytes(value);
                glitches += u32::from(window < self.window);
                self.window = window;
            }
        }
        self.settings = self.settings.saturating_sub(bytes.len());
        glitches
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::frames::{Frames, Side},
        *,
    };

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let [_, length @ ..] = (payload.len() as u32).to_be_bytes();
        [&length[..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    /// The glitches in what a server sends, however it is cut.
    fn glitches(frames: &[Vec<u8>]) -> u32 {
        let mut all: Vec<u32> = [1, 2, 5, 9, 10, 64, 1 << 20]
            .iter()
            .map(|&size| {
                let (mut frames_of, mut glitches, mut found) = (Frames::from(Side::Server), Glitches::default(), 0);
                frames.concat().chunks_mut(size).for_each(|piece| {
                    frames_of.walk(piece, |part| {
                        found += glitches.in_part(part);
                        true
                    });
                });
                found
            })
            .collect();
        all.dedup();
        assert_eq!(all.len(), 1, "{all:?}");
        all[0]
    }

    fn window(size: u32) -> Vec<u8> {
        [&[0, 3, 0, 0, 0, 9, 0, 4], &size.to_be_bytes()[..]].concat()
    }

    #[test]
    fn windows_that_shrink_are_glitches() {
        let settings = |size| frame(SETTINGS, 0, &window(size));
        assert_eq!(glitches(&[settings(WINDOW), settings(WINDOW), settings(1 << 20)]), 0);
        assert_eq!(glitches(&[settings(10), settings(9), settings(20), settings(19)]), 3);
        let both = frame(SETTINGS, 0, &[window(8), window(7)].concat());
        assert_eq!(glitches(&[both]), 2, "each setting counts");
        let other = frame(SETTINGS, 0, &[0, 3, 0, 0, 0, 1]);
        assert_eq!(glitches(&[other.clone(), settings(WINDOW - 1), other]), 1);
    }

    #[test]
    fn blocks_in_many_small_fragments_are_glitches() {
        let block = |fragments: usize, size: usize| {
            let mut frames = vec![frame(HEADERS, 0, b"x")];
            frames.extend((1..fragments).map(|_| frame(CONTINUATION, 0, &vec![0; size])));
            frames.push(frame(CONTINUATION, END_HEADERS, &vec![0; size]));
            frames
        };
        assert_eq!(glitches(&block(4, 1)), 0);
        assert_eq!(glitches(&block(5, 1)), 1);
        assert_eq!(glitches(&block(16, 1)), 1);
        assert_eq!(glitches(&block(17, 1)), 2);
        assert_eq!(glitches(&block(5, 1300)), 0, "a long block needs them");
        assert_eq!(glitches(&[block(5, 1), block(4, 1), block(5, 1)].concat()), 2);
    }
}
