//! Big integers of one lane, as little-endian arrays of 52-bit limbs: for preparing keys and packing jobs.
//!
//! Nothing here is on a hot path. Lengths are public; values may be secret, so there is no branch on them.

use crate::vector::{MASK52, RADIX};

/// Writes a big-endian integer as limbs. False if it does not fit.
pub(crate) fn from_be(bytes: &[u8], limbs: &mut [u64]) -> bool {
    let mut excess = 0;
    for at in 0..limbs.len().max((8 * bytes.len()).div_ceil(RADIX as usize)) {
        let bit = RADIX as usize * at;
        // The limb lies in the eight bytes that end here.
        let below = &bytes[..bytes.len().saturating_sub(bit / 8)];
        let word = match below.last_chunk() {
            Some(word) => u64::from_be_bytes(*word),
            None => below.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)),
        };
        let limb = word >> (bit % 8) & MASK52;
        match limbs.get_mut(at) {
            Some(place) => *place = limb,
            None => excess |= limb,
        }
    }
    excess == 0
}

/// Writes limbs (each below 2^52) as a big-endian integer, cut to the length of `bytes`.
pub(crate) fn to_be(limbs: &[u64], bytes: &mut [u8]) {
    let mut limbs = limbs.iter();
    let (mut waiting, mut bits) = (0u128, 0);
    for chunk in bytes.rchunks_mut(8) {
        while bits < 64 {
            waiting |= u128::from(limbs.next().copied().unwrap_or(0)) << bits;
            bits += RADIX;
        }
        chunk.copy_from_slice(&(waiting as u64).to_be_bytes()[8 - chunk.len()..]);
        waiting >>= 64;
        bits -= 64;
    }
}

/// 256 bits, little-endian, as four words.
pub(crate) fn words_from_le(bytes: &[u8; 32]) -> [u64; 4] {
    core::array::from_fn(|i| u64::from_le_bytes(core::array::from_fn(|j| bytes[8 * i + j])))
}

/// 256 bits, little-endian, as five limbs.
pub(crate) fn five_from_le(bytes: &[u8; 32]) -> [u64; 5] {
    let w = words_from_le(bytes);
    [
        w[0] & MASK52,
        (w[0] >> 52 | w[1] << 12) & MASK52,
        (w[1] >> 40 | w[2] << 24) & MASK52,
        (w[2] >> 28 | w[3] << 36) & MASK52,
        w[3] >> 16,
    ]
}

/// Five limbs of a number below 2^256, little-endian.
pub(crate) fn five_to_le(l: &[u64; 5]) -> [u8; 32] {
    let words = [l[0] | l[1] << 52, l[1] >> 12 | l[2] << 40, l[2] >> 24 | l[3] << 28, l[3] >> 36 | l[4] << 16];
    core::array::from_fn(|i| words[i / 8].to_le_bytes()[i % 8])
}

/// `out = a - b`; returns 1 if the result was negative (and wrapped), else 0.
pub(crate) fn sub(a: &[u64], b: &[u64], out: &mut [u64]) -> u64 {
    let mut borrow = 0;
    for ((a, b), out) in a.iter().zip(b).zip(out) {
        let d = a.wrapping_sub(*b).wrapping_sub(borrow);
        *out = d & MASK52;
        borrow = d >> 63;
    }
    borrow
}

/// 1 if `a < b`, else 0.
pub(crate) fn less(a: &[u64], b: &[u64]) -> u64 {
    let mut borrow = 0;
    for (a, b) in a.iter().zip(b) {
        borrow = a.wrapping_sub(*b).wrapping_sub(borrow) >> 63;
    }
    borrow
}

/// Whether all limbs are zero; reads all of them.
pub(crate) fn is_zero(a: &[u64]) -> bool {
    a.iter().fold(0, |acc, limb| acc | limb) == 0
}

/// `x * 2^bits mod m` in place, for `x < m`.
pub(crate) fn shift_mod(x: &mut [u64], m: &[u64], bits: usize) {
    let mut reduced = zeroize::Zeroizing::new(vec![0; x.len()]);
    for _ in 0..bits {
        let mut carry = 0;
        for limb in x.iter_mut() {
            let d = *limb << 1 | carry;
            *limb = d & MASK52;
            carry = d >> RADIX;
        }
        // The value is already below m only if the subtraction borrowed and nothing was shifted out.
        let keep = (sub(x, m, &mut reduced) & (1 - carry)).wrapping_neg();
        for (limb, reduced) in x.iter_mut().zip(reduced.iter()) {
            *limb = (*limb & keep) | (reduced & !keep);
        }
    }
}

/// `out = a * b`, out as long as both together.
pub(crate) fn mul(a: &[u64], b: &[u64], out: &mut [u64]) {
    out.fill(0);
    for (i, a) in a.iter().enumerate() {
        let mut carry = 0;
        for (j, b) in b.iter().enumerate() {
            let t = u128::from(*a) * u128::from(*b) + u128::from(out[i + j]) + carry;
            out[i + j] = t as u64 & MASK52;
            carry = t >> RADIX;
        }
        out[i + b.len()] = carry as u64;
    }
}

/// `-m^-1 mod 2^52` for odd m, by Newton's iteration (starting from 5 correct bits, each step doubles their number).
pub(crate) const fn neg_inverse(m0: u64) -> u64 {
    let mut x = m0.wrapping_mul(3) ^ 2;
    let mut i = 0;
    while i < 4 {
        x = x.wrapping_mul(2u64.wrapping_sub(m0.wrapping_mul(x)));
        i += 1;
    }
    x.wrapping_neg() & MASK52
}

/// `(k0 m + 1) / 2^52`, exact by the choice of `k0 = -m^-1 mod 2^52`: what a Montgomery row adds for the limb it drops.
pub(crate) const fn fold_of<const N: usize>(m: &[u64; N], k0: u64) -> [u64; N] {
    let mut out = [0; N];
    fold_into(m, k0, &mut out);
    out
}

pub(crate) const fn fold_into(m: &[u64], k0: u64, out: &mut [u64]) {
    let mut carry: u128 = 1;
    let mut i = 0;
    while i < m.len() {
        let t = m[i] as u128 * k0 as u128 + carry;
        if i > 0 {
            out[i - 1] = t as u64 & MASK52;
        }
        carry = t >> RADIX;
        i += 1;
    }
    out[m.len() - 1] = carry as u64;
}

/// The number of bits of a public value.
pub(crate) fn bits_vartime(a: &[u64]) -> usize {
    (0..a.len())
        .rev()
        .find(|i| a[*i] != 0)
        .map_or(0, |i| (i + 1) * RADIX as usize - (a[i].leading_zeros() as usize - 12))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_limbs() {
        let bytes: Vec<u8> = (0..64).map(|i| i as u8 ^ 0xa5).collect();
        let mut limbs = [0; 10];
        assert!(from_be(&bytes, &mut limbs));
        let mut back = [0; 64];
        to_be(&limbs, &mut back);
        assert_eq!(&bytes[..], &back[..]);
        assert!(!from_be(&bytes, &mut [0; 9]), "512 bits do not fit 468");
        assert_eq!(bits_vartime(&limbs), 512);
    }

    #[test]
    fn the_folded_modulus_is_exact() {
        let m = [0xfffff00001fff & MASK52, 0x123456789abcd, 0x7];
        let k0 = neg_inverse(m[0]);
        assert_eq!(m[0].wrapping_mul(k0).wrapping_add(1) & MASK52, 0);
        let fold = fold_of(&m, k0);
        // fold * 2^52 - 1 = k0 * m
        let mut product = [0; 4];
        mul(&m, &[k0], &mut product);
        assert_eq!(product[0], MASK52);
        let mut plus_one = [0; 3];
        assert_eq!(sub(&fold, &[1, 0, 0], &mut plus_one), 0);
        assert_eq!(plus_one, product[1..]);
    }
}
