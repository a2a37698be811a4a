//! The lanes in plain Rust. Operations are not inlined, because the unrolled kernels would otherwise grow eightfold.

mod slots;

use super::{Digit, Kernel, Lane8, MASK52, RADIX, Vector, ripple_lanes};
use core::cell::Cell;
use zeroize::DefaultIsZeroes;

#[derive(Clone, Copy, Default)]
#[repr(align(64))]
pub(crate) struct Portable([u64; 8]);

impl DefaultIsZeroes for Portable {}

thread_local! {
    static MULTIPLICATIONS: Cell<u64> = const { Cell::new(0) };
}

/// How many VPMADD52 instructions this thread's portable operations have replaced. A kernel's count does not depend on
/// data, so one portable run tells the benchmark what a vector run executes.
pub fn multiplications() -> u64 {
    MULTIPLICATIONS.get()
}

fn count() {
    MULTIPLICATIONS.set(MULTIPLICATIONS.get() + 1);
}

#[inline(never)]
fn map2(a: Portable, b: Portable, f: impl Fn(u64, u64) -> u64) -> Portable {
    Portable(core::array::from_fn(|i| f(a.0[i], b.0[i])))
}

#[inline(never)]
fn map3(a: Portable, b: Portable, c: Portable, f: impl Fn(u64, u64, u64) -> u64) -> Portable {
    Portable(core::array::from_fn(|i| f(a.0[i], b.0[i], c.0[i])))
}

impl Vector for Portable {
    /// Each lane is all ones or all zeros.
    type Mask = Portable;

    fn splat(x: u64) -> Self {
        Portable([x; 8])
    }
    fn add(self, other: Self) -> Self {
        map2(self, other, u64::wrapping_add)
    }
    fn sub(self, other: Self) -> Self {
        map2(self, other, u64::wrapping_sub)
    }
    fn and(self, other: Self) -> Self {
        map2(self, other, |a, b| a & b)
    }
    fn shr<const K: u32>(self) -> Self {
        map2(self, self, |a, _| a >> K)
    }
    fn shl<const K: u32>(self) -> Self {
        map2(self, self, |a, _| a << K)
    }
    fn sar<const K: u32>(self) -> Self {
        map2(self, self, |a, _| ((a as i64) >> K) as u64)
    }
    fn madd_lo(self, a: Digit<Self>, b: Digit<Self>) -> Self {
        count();
        map3(self, a.0, b.0, |c, a, b| c.wrapping_add(a.wrapping_mul(b) & MASK52))
    }
    fn madd_hi(self, a: Digit<Self>, b: Digit<Self>) -> Self {
        count();
        map3(self, a.0, b.0, |c, a, b| c.wrapping_add(((u128::from(a) * u128::from(b)) >> RADIX) as u64))
    }
    fn eq(self, other: Self) -> Self {
        // If d is not zero, it or its negative has the top bit set.
        map2(self, other, |a, b| {
            let d = a ^ b;
            ((d | d.wrapping_neg()) >> 63).wrapping_sub(1)
        })
    }
    fn negative(self) -> Self {
        self.sar::<63>()
    }
    fn or_if(self, mask: Self, yes: Self) -> Self {
        map3(self, mask, yes, |no, m, yes| no ^ (m & (no ^ yes)))
    }
    fn mask_xor(a: Self, b: Self) -> Self {
        a.xor(b)
    }
    fn exchange<const DISTANCE: usize>(self) -> Self {
        Portable(core::array::from_fn(|i| self.0[i ^ DISTANCE]))
    }
    fn word(digits: &[Digit<Self>], at: usize) -> Self {
        Portable([digits[at / 8].0.0[at % 8]; 8])
    }
    fn first(self) -> Self {
        Portable([self.0[0]; 8])
    }
    fn add_first(self, other: Self) -> Self {
        Portable(core::array::from_fn(|i| if i == 0 { self.0[0].wrapping_add(other.0[0]) } else { self.0[i] }))
    }
    fn down(self, above: Self) -> Self {
        Portable(core::array::from_fn(|i| if i < 7 { self.0[i + 1] } else { above.0[0] }))
    }
    fn up(self, below: Self) -> Self {
        Portable(core::array::from_fn(|i| if i > 0 { self.0[i - 1] } else { below.0[7] }))
    }
    fn ripple<const Z: usize>(words: &[Self; Z]) -> [Digit<Self>; Z] {
        ripple_lanes(words)
    }
    #[inline(never)]
    fn enter<K: Kernel<Self>>(kernel: K) -> K::Out {
        kernel.run()
    }
    #[inline(never)]
    fn inline<K: Kernel<Self>>(kernel: K) -> K::Out {
        kernel.run()
    }
    fn fence() {}
    fn truncate(self) -> Self {
        self.and(Portable([MASK52; 8]))
    }
    fn assert_digit(self) {}
}

impl Lane8 for Portable {
    fn from_lanes(lanes: &[u64; 8]) -> Self {
        Portable(*lanes)
    }
    fn to_lanes(self) -> [u64; 8] {
        self.0
    }
    fn mask_to_bits(mask: Self) -> u8 {
        mask.0.iter().enumerate().fold(0, |bits, (i, m)| bits | ((*m as u8) & 1) << i)
    }
    fn mask_from_bits(bits: u8) -> Self {
        Portable(core::array::from_fn(|i| u64::from(bits >> i & 1).wrapping_neg()))
    }
    fn xor(self, other: Self) -> Self {
        map2(self, other, |a, b| a ^ b)
    }
    fn or(self, other: Self) -> Self {
        map2(self, other, |a, b| a | b)
    }
    fn choose(a: Self, b: Self, c: Self) -> Self {
        map3(a, b, c, |a, b, c| (a & b) | (!a & c))
    }
    fn chi(a: Self, b: Self, c: Self) -> Self {
        map3(a, b, c, |a, b, c| a ^ (!b & c))
    }
    fn xor3(a: Self, b: Self, c: Self) -> Self {
        map3(a, b, c, |a, b, c| a ^ b ^ c)
    }
    fn majority(a: Self, b: Self, c: Self) -> Self {
        map3(a, b, c, |a, b, c| (a & b) | (a & c) | (b & c))
    }
    fn pick8(table: Self, index: Self) -> Self {
        Self::pick16(table, Portable([0; 8]), index.and(Portable([7; 8])))
    }
    fn pick16(low: Self, high: Self, index: Self) -> Self {
        // Reads every entry: there is no such permutation outside registers, and an index must not become an address.
        let mut out = Portable([0; 8]);
        let index = index.and(Portable([15; 8]));
        for (entry, word) in low.0.iter().chain(&high.0).enumerate() {
            out = out.or_if(index.eq(Portable([entry as u64; 8])), Portable([*word; 8]));
        }
        out
    }
    fn shr_by(self, bits: u32) -> Self {
        map2(self, self, |a, _| a >> bits)
    }
    fn shl_by(self, bits: u32) -> Self {
        map2(self, self, |a, _| a << bits)
    }
    fn rotl64<const K: i32>(self) -> Self {
        map2(self, self, |a, _| a.rotate_left(K as u32))
    }
    fn rotr32<const K: i32>(self) -> Self {
        map2(self, self, |a, _| halves(a, |h| h.rotate_right(K as u32)))
    }
    fn shr32<const K: u32>(self) -> Self {
        map2(self, self, |a, _| halves(a, |h| h >> K))
    }
    fn add32(self, other: Self) -> Self {
        map2(self, other, |a, b| {
            let high = (a >> 32).wrapping_add(b >> 32) << 32;
            high | u64::from((a as u32).wrapping_add(b as u32))
        })
    }
}

fn halves(word: u64, f: impl Fn(u32) -> u32) -> u64 {
    u64::from(f((word >> 32) as u32)) << 32 | u64::from(f(word as u32))
}
