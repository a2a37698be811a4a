//! Polynomials from hashes: the uniform ones of the public matrix, and small secret ones (FIPS 203, section 4.2.2).
//!
//! Small ones are sampled in constant time. Uniform ones reject numbers, so their time depends on the seed, which is a
//! part of the public key. Tests: the vectors in `tests/mlkem768.rs`.

use super::keccak::{Keccak, SHAKE128_WORDS};
use super::ntt::{Poly, Q, VECTORS};
use crate::vector::slots::ACCEPTED;
use crate::vector::{Kernel, Lane8, repeat};
use zeroize::Zeroize;

/// Blocks squeezed before candidates are examined: they hold 336, which contain the 256 needed in 99.3 % of cases.
const BLOCKS: usize = 3;
/// Vectors of these blocks, rounded up to whole squares of eight.
const SQUEEZED: usize = 64;

/// Buffers for sampling one uniform polynomial for each of eight clients.
pub(crate) struct Sampler<V> {
    squeezed: [V; SQUEEZED],
    accepted: [[u16; ACCEPTED]; 8],
}

impl<V: Lane8> Sampler<V> {
    pub(crate) fn new() -> Self {
        Sampler { squeezed: [V::splat(0); SQUEEZED], accepted: [[0; ACCEPTED]; 8] }
    }

    /// Element (row, column) of the matrices of eight public seeds, transformed (FIPS 203, algorithm 7).
    pub(crate) fn uniform_vartime(&mut self, seeds: &[V; 4], row: u8, column: u8, out: &mut Poly<V>) {
        let mut state = Keccak::shake128(seeds, u64::from(column) | u64::from(row) << 8);
        for block in 0..BLOCKS {
            if block > 0 {
                state.permute();
            }
            self.squeezed[SHAKE128_WORDS * block..][..SHAKE128_WORDS].copy_from_slice(&state.words()[..SHAKE128_WORDS]);
        }
        let mut counts = [0; 8];
        V::enter(Accept { sampler: self, words: BLOCKS * SHAKE128_WORDS, counts: &mut counts });
        while counts.iter().any(|count| *count < 256) {
            state.permute();
            self.squeezed[..SHAKE128_WORDS].copy_from_slice(&state.words()[..SHAKE128_WORDS]);
            V::enter(Accept { sampler: self, words: SHAKE128_WORDS, counts: &mut counts });
        }
        V::enter(Gather { accepted: &self.accepted, out });
    }
}

/// Accepts the numbers below q from each client's bytes.
struct Accept<'a, V> {
    sampler: &'a mut Sampler<V>,
    words: usize,
    counts: &'a mut [usize; 8],
}

impl<V: Lane8> Kernel<V> for Accept<'_, V> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        let Sampler { squeezed, accepted } = self.sampler;
        let mut bytes = [[0; 8 * SQUEEZED]; 8];
        let (squares, _) = squeezed.as_chunks_mut::<8>();
        for (at, square) in squares.iter_mut().enumerate().take(self.words.div_ceil(8)) {
            V::transpose(square);
            for (client, row) in square.iter().enumerate() {
                bytes[client][64 * at..][..64].copy_from_slice(&to_bytes(*row));
            }
        }
        for client in 0..8 {
            let bytes = &bytes[client][..8 * self.words];
            self.counts[client] = V::accept_vartime(bytes, Q as u16, &mut accepted[client], self.counts[client]);
        }
    }
}

/// Packs eight clients' numbers, one per lane.
struct Gather<'a, V> {
    accepted: &'a [[u16; ACCEPTED]; 8],
    out: &'a mut Poly<V>,
}

impl<V: Lane8> Kernel<V> for Gather<'_, V> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        let (squares, _) = self.out.as_chunks_mut::<8>();
        for (at, square) in squares.iter_mut().enumerate() {
            for (client, row) in square.iter_mut().enumerate() {
                let (fours, _) = self.accepted[client][32 * at..][..32].as_chunks::<4>();
                let mut lanes = [0; 8];
                for (lane, [a, b, c, d]) in lanes.iter_mut().zip(fours) {
                    *lane = u64::from(*a) | u64::from(*b) << 16 | u64::from(*c) << 32 | u64::from(*d) << 48;
                }
                *row = V::from_lanes(&lanes);
            }
            V::transpose(square);
        }
    }
}

/// The lanes of a vector one after another, little-endian.
#[inline(always)]
pub(crate) fn to_bytes<V: Lane8>(v: V) -> [u8; 64] {
    let lanes = v.to_lanes();
    let mut bytes = [0; 64];
    let (words, _) = bytes.as_chunks_mut::<8>();
    for (bytes, lane) in words.iter_mut().zip(lanes) {
        *bytes = lane.to_le_bytes();
    }
    bytes
}

/// Samples a small polynomial: each coefficient is the difference of two sums of two bits (FIPS 203, algorithm 8, eta =
/// 2) of SHAKE256's output for the secret seeds and a number.
pub(crate) fn small<V: Lane8>(seeds: &[V; 4], number: u8, out: &mut Poly<V>) {
    let state = Keccak::shake256(seeds, number);
    V::enter(Binomial(state.words(), out));
}

struct Binomial<'a, V>(&'a [V; 25], &'a mut Poly<V>);

impl<V: Lane8> Kernel<V> for Binomial<'_, V> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        let Binomial(words, out) = self;
        for at in 0..VECTORS / 4 {
            let bits = words[at];
            // Sums of two neighbouring bits; then 4 plus the first of two sums minus the second, in four bits.
            let fives = V::splat(0x5555_5555_5555_5555);
            let threes = V::splat(0x3333_3333_3333_3333);
            let sums = bits.and(fives).add(bits.shr::<1>().and(fives));
            let differences = sums.and(threes).or(V::splat(0x4444_4444_4444_4444)).sub(sums.shr::<2>().and(threes));
            repeat!(4, I => out[4 * at + I] = differences.spread::<{ 16 * I as u32 }, 4>().sub16(V::slots([4; 4])));
        }
    }
}

impl<V: Lane8> Zeroize for Sampler<V> {
    fn zeroize(&mut self) {
        self.squeezed.zeroize();
    }
}
