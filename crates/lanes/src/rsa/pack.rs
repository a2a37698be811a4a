//! Converts eight numbers of one lane each to one number of eight lanes, and back.

use super::key::Prepared;
use super::mont::Modulus;
use crate::limbs;
use crate::vector::{Digit, Lane8, RADIX, Vector, kernel, repeat};

/// Packs eight numbers, limb by limb, one per lane.
pub(crate) fn pack_into<V: Lane8, const N: usize>(numbers: [&[u64]; 8], out: &mut [Digit<V>; N]) {
    pack(numbers.map(|number| number.first_chunk().expect("a number of N limbs")), out);
}

kernel! {
    fn pack as Pack<'a, V: Lane8, const N: usize>(numbers: [&'a [u64; N]; 8], out: &'a mut [Digit<V>; N]) {
        // Eight limbs at a time; the last group overlaps the one before it if N is not a multiple of eight.
        for at in (0..N).step_by(8).map(|at| at.min(N - 8)) {
            let mut rows = [V::splat(0); 8];
            repeat!(8, LANE => rows[LANE] = V::from_lanes(numbers[LANE][at..].first_chunk().expect("eight limbs")));
            V::transpose(&mut rows);
            repeat!(8, LIMB => out[at + LIMB] = Digit::whole(rows[LIMB]));
        }
    }
}

/// Packs eight moduli, one per lane.
pub(crate) fn pack_modulus<V: Lane8, const N: usize>(moduli: [&Prepared; 8], out: &mut Modulus<V, N>) {
    pack_into(moduli.map(|m| &m.m[..]), &mut out.m);
    pack_into(moduli.map(|m| &m.fold[..]), &mut out.fold);
    out.k0 = Digit::whole(V::from_lanes(&moduli.map(|m| m.k0)));
}

kernel! {
    /// The windows of `width` bits of eight exponents, highest first. The number of windows is public.
    fn pack_windows as PackWindows<'a, V: Lane8, const N: usize>(
        exponents: &'a [Digit<V>; N],
        width: u32,
        windows: &'a mut [V],
    ) {
        let (mut limb, mut shift) = (0, 0);
        for window in windows.iter_mut().rev() {
            let mut bits = exponents[limb].raw().shr_by(shift);
            if limb + 1 < N {
                bits = bits.or(exponents[limb + 1].raw().shl_by(RADIX - shift));
            }
            *window = bits.and(V::splat((1 << width) - 1));
            shift += width;
            if shift >= RADIX {
                (limb, shift) = (limb + 1, shift - RADIX);
            }
        }
    }
}

kernel! {
    /// Unpacks the limbs of all lanes, without junk.
    fn unpack as Unpack<'a, V: Lane8, const N: usize>(digits: &'a [Digit<V>; N], out: &'a mut [[u64; 8]; N]) {
        for limb in 0..N {
            out[limb] = digits[limb].value().to_lanes();
        }
    }
}

/// One lane's number, big-endian.
pub(crate) fn lane_to_be<const N: usize>(limbs: &[[u64; 8]; N], lane: usize, bytes: &mut [u8]) {
    limbs::to_be(&limbs.map(|lanes| lanes[lane]), bytes);
}

kernel! {
    /// The lanes in which two numbers are equal.
    fn same as Same<'a, V: Lane8, const N: usize>(a: &'a [Digit<V>; N], b: &'a [Digit<V>; N]) -> u8 {
        let mut unlike = V::splat(0);
        for i in 0..N {
            unlike = unlike.or(a[i].value().xor(b[i].value()));
        }
        V::mask_to_bits(unlike.eq(V::splat(0)))
    }
}

kernel! {
    /// Subtracts the modulus in lanes where the result is not negative. A value up to `2 m` is fully reduced after two
    /// calls.
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
