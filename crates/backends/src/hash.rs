//! The hash functions of `hash-type`, bit for bit as users' mappings were made with them.

use penstock_config::model::{HashFunction, HashType};

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

/// What a `hash-type` line makes of a key.
pub trait HashValue {
    /// The function, then the modifier.
    fn hash(&self, key: &[u8]) -> u32;
    /// The modifier alone, for keys that are numbers already.
    fn finish(&self, raw: u32) -> u32;
}

/// `sdbm`: h = c + h * 65599.
pub fn sdbm(key: &[u8]) -> u32 {
    key.iter().fold(0, |h: u32, &c| h.wrapping_mul(65599).wrapping_add(u32::from(c)))
}

/// `djb2`: h = h * 33 + c, from 5381.
pub fn djb2(key: &[u8]) -> u32 {
    key.iter().fold(5381, |h: u32, &c| h.wrapping_mul(33).wrapping_add(u32::from(c)))
}

/// `wt6`: two words rotated by amounts that depend on what was read before.
pub fn wt6(key: &[u8]) -> u32 {
    let (mut h0, mut h1) = (0xa53c_965a_u32, 0x5ca6_953a_u32);
    let (mut step0, mut step1) = (6, 18);
    for &c in key {
        h0 = !(h0 ^ u32::from(c));
        h1 = !h1.wrapping_add(u32::from(c));
        (h0, h1) = (h1.rotate_left(step0), h0.rotate_left(step1));
        let t = ((h0 >> 16) ^ h1) & 0xffff;
        step0 = t & 0x1f;
        step1 = t >> 11;
    }
    h0 ^ h1
}

/// `crc32`: the reflected polynomial of Ethernet and gzip.
pub fn crc32(key: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut i = 0;
        while i < 256 {
            let (mut c, mut bit) = (i as u32, 0);
            while bit < 8 {
                c = if c & 1 == 1 { 0xedb8_8320 ^ (c >> 1) } else { c >> 1 };
                bit += 1;
            }
            table[i] = c;
            i += 1;
        }
        table
    };
    !key.iter().fold(!0, |h: u32, &c| TABLE[usize::from(h as u8 ^ c)] ^ (h >> 8))
}

/// `none`: the key is the hash, written in decimal; reading stops at the first byte that is no digit.
fn decimal(key: &[u8]) -> u32 {
    let digits = key.iter().take_while(|c| c.is_ascii_digit());
    digits.fold(0, |h: u32, &c| h.wrapping_mul(10).wrapping_add(u32::from(c - b'0')))
}

/// Bob Jenkins' six-shift integer hash, then a prime close to three quarters of 2^32. Each step can be undone, so
/// that distinct points of the ring never collide.
pub fn avalanche(a: u32) -> u32 {
    let a = a.wrapping_add(0x7ed5_5d16).wrapping_add(a << 12);
    let a = (a ^ 0xc761_c23c) ^ (a >> 19);
    let a = a.wrapping_add(0x1656_67b1).wrapping_add(a << 5);
    let a = a.wrapping_add(0xd3a2_646c) ^ (a << 9);
    let a = a.wrapping_add(0xfd70_46c5).wrapping_add(a << 3);
    let a = (a ^ 0xb55a_4f09) ^ (a >> 16);
    a.wrapping_mul(3_221_225_473)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_values() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(djb2(b""), 5381);
        assert_eq!(djb2(b"a"), 177_670);
        assert_eq!(sdbm(b"a"), 97);
        assert_eq!(sdbm(b"ab"), 97 * 65599 + 98);
        assert_eq!(decimal(b"4294967297x"), 1);
    }

    #[test]
    fn avalanche_has_no_collision_among_the_points_of_many_servers() {
        let mut seen: Vec<u32> = (4096..4096 * 20).map(avalanche).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 4096 * 19);
    }
}
