//! Pieces of a body that somebody else has compressed, a device for one: whether a piece is what it should be, and what makes it
//! possible to go on behind it.

use zlib_rs::{Inflate, InflateFlush, Status};

/// Decompresses pieces. It keeps its memory from one to the next.
pub struct Verifier {
    inflate: Inflate,
    scratch: Vec<u8>,
}

impl Default for Verifier {
    fn default() -> Self {
        Verifier { inflate: Inflate::new(false, WINDOW_BITS), scratch: Vec::new() }
    }
}

const WINDOW_BITS: u8 = 15;

/// An empty block with fixed codes, the last of its stream: it can be read only where a block may begin, at the beginning of a byte.
const LAST_BLOCK: &[u8] = &[0x03, 0x00];

/// What may be missing between the end of a piece and the beginning of a byte: nothing where it ends on a flush, else an empty stored
/// block (RFC 1951, 3.2.4), whose three bits may or may not have found room in the last byte.
const JOINTS: [&[u8]; 3] = [&[], &[0, 0, 0xFF, 0xFF], &[0, 0, 0, 0xFF, 0xFF]];

impl Verifier {
    /// Whether these blocks of Deflate become this input, and nothing else, without anything that came before them. If so, they end where
    /// another block may begin; an empty block is added where that is necessary.
    pub fn verify(&mut self, blocks: &mut Vec<u8>, input: &[u8]) -> bool {
        for joint in JOINTS {
            let (right, ends) = self.try_with(blocks, joint, input);
            if !right {
                return false;
            }
            if ends {
                blocks.extend_from_slice(joint);
                return true;
            }
        }
        false
    }

    /// Whether the blocks become the input, and whether a block may begin behind them and the joint.
    fn try_with(&mut self, blocks: &[u8], joint: &[u8], input: &[u8]) -> (bool, bool) {
        self.inflate.reset(false);
        self.scratch.resize(input.len() + 1, 0);
        if self.read(blocks) != Some(false) {
            return (false, false);
        }
        let known = self.inflate.total_out() as usize;
        if known != input.len() || self.scratch[..known] != *input {
            return (false, false);
        }
        let ends = (joint.is_empty() || self.read(joint) == Some(false)) && self.read(LAST_BLOCK) == Some(true);
        (true, ends && self.inflate.total_out() as usize == input.len())
    }

    /// Takes all of these bytes; returns whether they end the stream. `None` if they cannot be taken.
    fn read(&mut self, bytes: &[u8]) -> Option<bool> {
        let before = self.inflate.total_in();
        let room = &mut self.scratch[self.inflate.total_out() as usize..];
        let status = self.inflate.decompress(bytes, room, InflateFlush::SyncFlush).ok()?;
        (self.inflate.total_in() - before == bytes.len() as u64).then_some(status == Status::StreamEnd)
    }
}
