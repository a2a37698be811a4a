//! The hash functions of `hash-type`, bit for bit as in HAProxy, so that users' mappings are preserved.

use penstock_config::model::{HashFunction, HashType};
pub use penstock_rules::hash::{avalanche, crc32, djb2, sdbm, wt6, xxh32};

impl HashValue for HashType {
    fn hash(&self, key: &[u8]) -> u32 {
        let raw = match self.function {
            HashFunction::Sdbm => sdbm(key),
            HashFunction::Djb2 => djb2(key),
            HashFunction::Wt6 => wt6(key),
            HashFunction::Crc32 => crc32(key),
            HashFunction::None => decimal(key),
        };
        self.finish(raw)
    }

    fn finish(&self, raw: u32) -> u32 {
        if self.avalanche { avalanche(raw) } else { raw }
    }
}

/// Applies a `hash-type` line to a key.
pub trait HashValue {
    /// Applies the function, then the modifier.
    fn hash(&self, key: &[u8]) -> u32;
    /// Applies only the modifier, for keys that are numbers already.
    fn finish(&self, raw: u32) -> u32;
}

/// `none`: the key is the hash, written in decimal; parsing stops at the first byte that is not a digit.
fn decimal(key: &[u8]) -> u32 {
    let digits = key.iter().take_while(|c| c.is_ascii_digit());
    digits.fold(0, |h: u32, &c| h.wrapping_mul(10).wrapping_add(u32::from(c - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_the_hash_is_read_to_its_last_digit() {
        assert_eq!(decimal(b"4294967297x"), 1);
        assert_eq!(decimal(b"x"), 0);
    }
}
