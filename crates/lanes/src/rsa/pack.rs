//! From eight numbers of one lane each to one number of eight lanes, and back.

use super::key::Prepared;
use super::mont::Modulus;
use crate::limbs;
use crate::vector::{Digit, Lane8, Vector, kernel};

/// Eight numbers, limb by limb, side by side.
pub(crate) fn pack<V: Lane8, const N: usize>(numbers: [&[u64]; 8]) -> [Digit<V>; N] {
    core::array::from_fn(|limb| Digit::whole(V::from_lanes(&core::array::from_fn(|lane| numbers[lane][limb]))))
}

/// Eight moduli side by side.
pub(crate) fn pack_moduli<V: Lane8, const N: usize>(moduli: [&Prepared; 8]) -> Modulus<V, N> {
    Modulus {
        m: pack(moduli.map(|m| &m.m[..])),
        fold: pack(moduli.map(|m| &m.fold[..])),
        k0: Digit::whole(V::from_lanes(&moduli.map(|m| m.k0))),
    }
}

/// The window of `width` bits at `at` of eight exponents.
pub(crate) fn pack_window<V: Lane8>(exponents: [&[u64]; 8], at: usize, width: u32) -> V {
    V::from_lanes(&exponents.map(|e| limbs::window(e, at, width)))
}

/// The limbs of one lane.
pub(crate) fn unpack<V: Lane8>(digits: &[Digit<V>], lane: usize, out: &mut [u64]) {
    for (digit, out) in digits.iter().zip(out) {
        *out = digit.value().to_lanes()[lane];
    }
}

kernel! {
    /// Subtracts the modulus where that does not go below zero. A value up to `2 m` is fully reduced after two.
    fn subtract_once as SubtractOnce<'a, V: Vector, const N: usize>(x: &'a mut [Digit<V>; N], m: &'a [Digit<V>; N]) {
        let mut borrow = V::splat(0);
        let mut reduced = [Digit::whole(V::splat(0)); N];
        for i in 0..N {
            let d = x[i].value().sub(m[i].raw()).add(borrow);
            reduced[i] = Digit::low(d);
            borrow = d.sar::<52>();
        }
        let below = borrow.negative();
        for i in 0..N {
            x[i] = reduced[i].or_if(below, x[i]);
        }
    }
}
