//! A body that is kept in memory.

/// The size of the pieces a body is kept in: it grows without being copied.
pub const PIECE: usize = 16 * 1024;

/// A body in pieces of [`PIECE`] bytes; only the last may be shorter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pieces {
    pieces: Vec<Vec<u8>>,
    len: u64,
}

impl Pieces {
    /// The number of bytes.
    pub fn len(&self) -> u64 {
        self.len
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Appends bytes.
    pub fn push(&mut self, mut bytes: &[u8]) {
        self.len += bytes.len() as u64;
        while !bytes.is_empty() {
            if self.pieces.last().is_none_or(|last| last.len() == PIECE) {
                self.pieces.push(Vec::new());
            }
            let last = self.pieces.last_mut().expect("one was just made");
            let (now, rest) = bytes.split_at(bytes.len().min(PIECE - last.len()));
            // Twice the size each time, as a vector grows by itself, but never more than a piece.
            if last.capacity() < last.len() + now.len() {
                let wanted = (last.len() + now.len()).next_power_of_two().min(PIECE);
                last.reserve_exact(wanted - last.len());
            }
            last.extend_from_slice(now);
            bytes = rest;
        }
    }
    /// The bytes from `at` on that are in one piece; none at the end.
    pub fn read(&self, at: u64) -> &[u8] {
        let piece = usize::try_from(at / PIECE as u64).unwrap_or(usize::MAX);
        let within = (at % PIECE as u64) as usize;
        self.pieces.get(piece).and_then(|piece| piece.get(within..)).unwrap_or_default()
    }
    /// Appends the bytes of `other` from `at` on.
    pub fn append(&mut self, other: &Pieces, mut at: u64) {
        while at < other.len {
            let bytes = other.read(at);
            self.push(bytes);
            at += bytes.len() as u64;
        }
    }
    /// All bytes, copied.
    pub fn to_vec(&self) -> Vec<u8> {
        self.pieces.concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_pushed_is_read_whatever_the_sizes() {
        let whole: Vec<u8> = (0..100_000u32).map(|n| (n * 7 % 251) as u8).collect();
        for step in [1, 1000, PIECE - 1, PIECE, PIECE + 1, 100_000] {
            let mut pieces = Pieces::default();
            whole.chunks(step).for_each(|bytes| pieces.push(bytes));
            assert_eq!(pieces.to_vec(), whole);
            assert_eq!(pieces.len(), whole.len() as u64);
            for at in [0, 1, PIECE - 1, PIECE, 99_999] {
                let mut rest = Pieces::default();
                rest.append(&pieces, at as u64);
                assert_eq!(rest.to_vec(), whole[at..]);
            }
            assert!(pieces.read(100_000).is_empty() && pieces.read(u64::MAX).is_empty());
            assert!(pieces.pieces.iter().all(|piece| piece.capacity() <= PIECE));
        }
    }
}
