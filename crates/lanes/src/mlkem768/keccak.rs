//! Keccak-f[1600] on eight states at a time, and the hash functions of FIPS 202 that ML-KEM uses.
//!
//! A word of the eight states is one vector. The lengths of messages are public; time depends on nothing else. Tests:
//! `digests_are_the_published_ones`, and all vectors of ML-KEM.

use crate::vector::{Kernel, Lane8};
use zeroize::Zeroize;

/// Words per block, by function.
pub(crate) const SHAKE128_WORDS: usize = 21;
const SHAKE256_WORDS: usize = 17;
const SHA3_256_WORDS: usize = 17;
const SHA3_512_WORDS: usize = 9;

/// The first byte of the padding, for SHAKE and for SHA-3.
const SHAKE: u64 = 0x1f;
const SHA3: u64 = 0x06;
/// The last bit of a padded block.
const LAST: u64 = 1 << 63;

/// Eight states, zeroed when dropped.
pub(crate) struct Keccak<V: Lane8>([V; 25]);

impl<V: Lane8> Drop for Keccak<V> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl<V: Lane8> Keccak<V> {
    fn new() -> Self {
        Keccak([V::splat(0); 25])
    }

    /// The state of SHAKE128 after a message of four words and two bytes (the lowest of `tail`), and the first
    /// permutation.
    pub(crate) fn shake128(message: &[V; 4], tail: u64) -> Self {
        let mut state = Self::new();
        state.0[..4].copy_from_slice(message);
        state.0[4] = V::splat(tail | SHAKE << 16);
        state.0[SHAKE128_WORDS - 1] = V::splat(LAST);
        state.permute();
        state
    }

    /// The state of SHAKE256 after a message of four words and a byte, and the first permutation.
    pub(crate) fn shake256(message: &[V; 4], tail: u8) -> Self {
        let mut state = Self::new();
        state.0[..4].copy_from_slice(message);
        state.0[4] = V::splat(u64::from(tail) | SHAKE << 8);
        state.0[SHAKE256_WORDS - 1] = V::splat(LAST);
        state.permute();
        state
    }

    /// The words of the state; a block's worth of them may be read before the next permutation.
    pub(crate) fn words(&self) -> &[V; 25] {
        &self.0
    }

    pub(crate) fn permute(&mut self) {
        V::enter(KeccakF1600(&mut self.0));
    }

    /// Absorbs whole words, permuting after each full block, and then the padding.
    fn absorb_all(&mut self, words: &[V], rate: usize) {
        let blocks = words.chunks_exact(rate);
        let rest = blocks.remainder();
        for block in blocks {
            V::enter(Absorb(&mut self.0, block));
        }
        let mut last = [V::splat(0); SHA3_256_WORDS];
        last[..rest.len()].copy_from_slice(rest);
        last[rest.len()] = V::splat(SHA3);
        last[rate - 1] = last[rate - 1].or(V::splat(LAST));
        V::enter(Absorb(&mut self.0, &last[..rate]));
        last.zeroize();
    }
}

/// Adds a block to a state and permutes it.
struct Absorb<'a, V>(&'a mut [V; 25], &'a [V]);

impl<V: Lane8> Kernel<V> for Absorb<'_, V> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        for (state, word) in self.0.iter_mut().zip(self.1) {
            *state = state.xor(*word);
        }
        KeccakF1600(self.0).run();
    }
}

/// SHA3-256 of whole words.
pub(crate) fn sha3_256<V: Lane8>(words: &[V]) -> [V; 4] {
    let mut state = Keccak::new();
    state.absorb_all(words, SHA3_256_WORDS);
    core::array::from_fn(|i| state.0[i])
}

/// SHA3-512 of whole words.
pub(crate) fn sha3_512<V: Lane8>(words: &[V]) -> [V; 8] {
    let mut state = Keccak::new();
    state.absorb_all(words, SHA3_512_WORDS);
    core::array::from_fn(|i| state.0[i])
}

/// The permutation (FIPS 202, section 3.3). A round has 76 additions, 25 rotations and 25 and-nots; with three operands
/// per instruction, 90 vector instructions suffice: ten for the sums of columns, five for their rotation, and for each
/// word a three-way addition, its rotation, and one instruction for chi.
struct KeccakF1600<'a, V>(&'a mut [V; 25]);

impl<V: Lane8> Kernel<V> for KeccakF1600<'_, V> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        let mut a = *self.0;
        for constant in &ROUND_CONSTANTS {
            a = round(a, *constant);
        }
        *self.0 = a;
    }
}

/// Word x of row y is at 5 y + x.
#[inline(always)]
fn round<V: Lane8>(a: [V; 25], constant: u64) -> [V; 25] {
    // Theta: adds to each word the sum of the column before it and the rotated sum of the column after it.
    macro_rules! sum {
        ($x:literal) => {
            V::xor3(V::xor3(a[$x], a[$x + 5], a[$x + 10]), a[$x + 15], a[$x + 20])
        };
    }
    let c = [sum!(0), sum!(1), sum!(2), sum!(3), sum!(4)];
    let d = [c[0].rotl64::<1>(), c[1].rotl64::<1>(), c[2].rotl64::<1>(), c[3].rotl64::<1>(), c[4].rotl64::<1>()];
    // Rho and pi: word (x, y) is rotated and moves to (y, 2 x + 3 y).
    macro_rules! moved {
        ($x:literal, $y:literal, $rotation:literal) => {
            V::xor3(a[5 * $y + $x], c[($x + 4) % 5], d[($x + 1) % 5]).rotl64::<$rotation>()
        };
    }
    // Chi, on the rows that pi has filled.
    macro_rules! row {
        ($($x:literal $y:literal $rotation:literal),*) => {{
            let b = [$(moved!($x, $y, $rotation)),*];
            [
                V::chi(b[0], b[1], b[2]),
                V::chi(b[1], b[2], b[3]),
                V::chi(b[2], b[3], b[4]),
                V::chi(b[3], b[4], b[0]),
                V::chi(b[4], b[0], b[1]),
            ]
        }};
    }
    let r0 = row!(0 0 0, 1 1 44, 2 2 43, 3 3 21, 4 4 14);
    let r1 = row!(3 0 28, 4 1 20, 0 2 3, 1 3 45, 2 4 61);
    let r2 = row!(1 0 1, 2 1 6, 3 2 25, 4 3 8, 0 4 18);
    let r3 = row!(4 0 27, 0 1 36, 1 2 10, 2 3 15, 3 4 56);
    let r4 = row!(2 0 62, 3 1 55, 4 2 39, 0 3 41, 1 4 2);
    [
        r0[0].xor(V::splat(constant)),
        r0[1],
        r0[2],
        r0[3],
        r0[4],
        r1[0],
        r1[1],
        r1[2],
        r1[3],
        r1[4],
        r2[0],
        r2[1],
        r2[2],
        r2[3],
        r2[4],
        r3[0],
        r3[1],
        r3[2],
        r3[3],
        r3[4],
        r4[0],
        r4[1],
        r4[2],
        r4[3],
        r4[4],
    ]
}

/// Iota's constants, from the shift register of FIPS 202, section 3.2.5: bit 2^j - 1 of round i is rc(7 i + j).
const ROUND_CONSTANTS: [u64; 24] = {
    let mut out = [0; 24];
    let mut register = 1u32;
    let mut at = 0;
    while at < 24 * 7 {
        if register & 1 == 1 {
            out[at / 7] |= 1 << ((1 << (at % 7)) - 1);
        }
        // Multiplies by x modulo x^8 + x^6 + x^5 + x^4 + 1.
        register <<= 1;
        if register & 0x100 != 0 {
            register ^= 0x171;
        }
        at += 1;
    }
    out
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vector::Portable;

    #[test]
    fn digests_are_the_published_ones() {
        assert_eq!(ROUND_CONSTANTS[..3], [1, 0x8082, 0x8000_0000_0000_808a]);
        let hex = |words: &[Portable], lane: usize| {
            let bytes = words.iter().flat_map(|word| word.to_lanes()[lane].to_le_bytes());
            bytes.map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        // The digest of the empty message (FIPS 202's examples).
        assert_eq!(
            hex(&sha3_256::<Portable>(&[]), 3),
            "a7ffc6f8bf1ed76651c14756a061d662f580ff4de43b49fa82d80a4b80f8434a"
        );
        assert_eq!(
            hex(&sha3_512::<Portable>(&[]), 7),
            "a69f73cca23a9ac5c8b567dc185a756e97c982164fe25859e0d1dcc1475c80a6\
             15b2123af1f5f94c11e3e9402c3ac558f500199d95b6d3e301758586281dcd26"
        );
    }
}
