//! DATA of a stream that the exchange has not read yet: bytes, not frames. h2 stores each frame separately, with some
//! 300 bytes of overhead however little it carries, so that a client with one-byte frames would cost hundreds of times
//! its windows. Pure.

use crate::worker::buffer::Buffer;
use bytes::{Buf, Bytes, BytesMut};
use std::collections::VecDeque;

/// Frames smaller than this are joined, which copies their contents once more; larger ones are stored as they are.
const SMALL: usize = 1024;

/// Data received on a stream and not read by the exchange yet.
#[derive(Debug, Default)]
pub(super) struct Inlet {
    first: Bytes,
    chunks: VecDeque<Bytes>,
    /// The last part of the data, to which small frames are appended.
    small: BytesMut,
}

impl Inlet {
    pub fn is_empty(&self) -> bool {
        self.first.is_empty() && self.chunks.is_empty() && self.small.is_empty()
    }
    /// Adds the payload of a frame.
    pub fn push(&mut self, data: Bytes) {
        if self.is_empty() {
            self.first = data;
        } else if data.len() < SMALL {
            self.small.extend_from_slice(&data);
        } else {
            if !self.small.is_empty() {
                self.chunks.push_back(self.small.split().freeze());
            }
            self.chunks.push_back(data);
        }
    }
    /// Moves as much as fits; returns how many bytes that was.
    pub fn move_to(&mut self, buffer: &mut Buffer) -> usize {
        let mut moved = 0;
        while !self.is_empty() {
            if self.first.is_empty() {
                self.first = self.chunks.pop_front().unwrap_or_else(|| std::mem::take(&mut self.small).freeze());
            }
            let taken = buffer.append(&self.first);
            self.first.advance(taken);
            moved += taken;
            if !self.first.is_empty() {
                break;
            }
            self.first = Bytes::new();
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::buffer::Buffers;

    #[test]
    fn bytes_stay_in_order_whatever_frames_they_come_in() {
        let (mut inlet, mut sent, mut got) = (Inlet::default(), Vec::new(), Vec::new());
        let buffers = Buffers::of(1000);
        let mut take = |inlet: &mut Inlet| {
            let mut buffer = buffers.take_anyway();
            let moved = inlet.move_to(&mut buffer);
            assert_eq!(moved, buffer.len());
            got.extend_from_slice(buffer.data());
            buffers.give(buffer);
            moved
        };
        for n in 0..400usize {
            let data: Vec<u8> = (0..[1, 7, 1500, 3, 1023, 1024][n % 6]).map(|at| (n * 31 + at) as u8).collect();
            sent.extend_from_slice(&data);
            inlet.push(data.into());
            if n % 5 == 0 {
                take(&mut inlet);
            }
        }
        while take(&mut inlet) > 0 {}
        assert!(inlet.is_empty());
        assert_eq!(got, sent);
    }

    #[test]
    fn small_frames_cost_what_they_carry() {
        let mut inlet = Inlet::default();
        for _ in 0..60_000 {
            inlet.push(Bytes::from_static(b"x"));
        }
        assert!(inlet.chunks.is_empty() && inlet.small.capacity() <= 2 * 60_000, "{}", inlet.small.capacity());
    }
}
