//! HAProxy's hash functions, bit for bit, since users expect the same key to map to the same server and number.

pub use xxhash_rust::xxh32::xxh32;

/// `sdbm`: h = c + h * 65599.
pub fn sdbm(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(0u32, |hash, &byte| u32::from(byte).wrapping_add(hash << 6).wrapping_add(hash << 16).wrapping_sub(hash))
}

/// `djb2`: h = h * 33 + c, from 5381.
pub fn djb2(bytes: &[u8]) -> u32 {
    bytes.iter().fold(5381u32, |hash, &byte| (hash << 5).wrapping_add(hash).wrapping_add(byte.into()))
}

/// `wt6`: two words, rotated by amounts that depend on the previous bytes.
pub fn wt6(bytes: &[u8]) -> u32 {
    let (mut h0, mut h1) = (0xa53c_965a_u32, 0x5ca6_953a_u32);
    let (mut step0, mut step1) = (6u32, 18u32);
    for &byte in bytes {
        h0 = !(h0 ^ u32::from(byte));
        h1 = !h1.wrapping_add(byte.into());
        (h0, h1) = (h1.rotate_left(step0), h0.rotate_left(step1));
        let t = (h0 >> 16 ^ h1) & 0xffff;
        step0 = t & 0x1f;
        step1 = t >> 11;
    }
    h0 ^ h1
}

/// `crc32`: the polynomial of Ethernet and zlib.
pub fn crc32(bytes: &[u8]) -> u32 {
    crc(bytes, &CRC32)
}

/// `crc32c`: Castagnoli's polynomial.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc(bytes, &CRC32C)
}

/// `avalanche`: spreads the entropy of a hash over all its bits (Bob Jenkins' six-shift integer hash, then a prime
/// close to three quarters of 2^32). Each step is reversible, so that distinct points of a ring never collide.
pub fn avalanche(a: u32) -> u32 {
    let a = a.wrapping_add(0x7ed5_5d16).wrapping_add(a << 12);
    let a = (a ^ 0xc761_c23c) ^ (a >> 19);
    let a = a.wrapping_add(0x1656_67b1).wrapping_add(a << 5);
    let a = a.wrapping_add(0xd3a2_646c) ^ (a << 9);
    let a = a.wrapping_add(0xfd70_46c5).wrapping_add(a << 3);
    let a = (a ^ 0xb55a_4f09) ^ (a >> 16);
    a.wrapping_mul(3_221_225_473)
}

fn crc(bytes: &[u8], table: &[u32; 256]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, &byte| table[((crc ^ u32::from(byte)) & 0xff) as usize] ^ (crc >> 8))
}

const CRC32: [u32; 256] = crc_table(0xedb8_8320);
const CRC32C: [u32; 256] = crc_table(0x82f6_3b78);

const fn crc_table(polynomial: u32) -> [u32; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let mut crc = at as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ polynomial } else { crc >> 1 };
            bit += 1;
        }
        table[at] = crc;
        at += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_values_of_the_crcs() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn published_values() {
        assert_eq!((djb2(b""), djb2(b"a")), (5381, 177_670));
        assert_eq!((sdbm(b"a"), sdbm(b"ab")), (97, 97 * 65599 + 98));
    }

    #[test]
    fn avalanche_has_no_collision_among_the_points_of_many_servers() {
        let mut seen: Vec<u32> = (4096..4096 * 20).map(avalanche).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 4096 * 19);
    }
}
