//! Random numbers from a seed, for losses that a study makes and for noise in tests. Not suitable for secrets.

/// A stream of numbers that its seed determines (xorshift64).
pub(crate) struct Random(u64);

impl Random {
    /// The stream of a seed, which must not be zero.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number, from 0 to 1.
    pub fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}
