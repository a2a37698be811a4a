//! Ciphertext to be sent.

/// A buffer that is filled at its end and emptied at its front. Its space is zeroed only when it grows, since every
/// write goes through the worker's one.
#[derive(Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Output {
    /// The bytes to be sent.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub fn len(&self) -> usize {
        self.end - self.start
    }

    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Space for at least `room` bytes, whose contents are unspecified; call [`Output::fill`] with how many were used.
    pub fn space(&mut self, room: usize) -> &mut [u8] {
        if self.bytes.len() < self.end + room {
            self.bytes.resize(self.end + room, 0);
        }
        &mut self.bytes[self.end..self.end + room]
    }

    pub fn fill(&mut self, count: usize) {
        self.end += count;
        debug_assert!(self.end <= self.bytes.len());
    }

    /// Drops the first `count` bytes, which have been sent.
    pub fn consume(&mut self, count: usize) {
        self.start += count;
        debug_assert!(self.start <= self.end);
        if self.start == self.end {
            self.clear();
        }
    }

    /// Empties it, and keeps the allocation.
    pub fn clear(&mut self) {
        self.start = 0;
        self.end = 0;
    }

    /// Empties it, and frees the allocation.
    pub fn release(&mut self) {
        *self = Output::default();
    }

    pub fn extend(&mut self, bytes: &[u8]) {
        self.space(bytes.len()).copy_from_slice(bytes);
        self.fill(bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out_in_order() {
        let mut output = Output::default();
        output.extend(b"one");
        output.space(10)[..3].copy_from_slice(b"two");
        output.fill(3);
        output.consume(2);
        assert_eq!((output.as_slice(), output.len()), (&b"etwo"[..], 4));
        output.consume(4);
        assert!(output.is_empty());
        output.extend(b"x");
        assert_eq!(output.as_slice(), b"x");
    }
}
