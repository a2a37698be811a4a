//! The inverse of one number by an odd modulus, in constant time: division steps (Bernstein, Yang, "Fast constant-time
//! gcd computation and modular inversion", 2019), in the variant that starts with delta = 1/2, 62 steps at a time as
//! Wuille arranged them for libsecp256k1.
//!
//! A chain of products (Fermat) would be longer: some 260 products one after the other take the time of 700 that do
//! not wait. So eight lanes multiply what they want inverted, invert the product here, once, and each takes its own
//! out again by the products of the others (Montgomery's trick): see `ec::field::invert` and `x25519::field::invert`.
//!
//! **The step.** With f odd, `(delta, f, g)` becomes `(1 - delta, g, (g - f) / 2)` if delta > 0 and g is odd, else
//! `(1 + delta, f, (g + (g mod 2) f) / 2)`. From (1/2, m, x) on, `(45907 bits + 26313) / 19929` steps make g zero and f
//! the greatest common divisor, with a sign. 62 steps depend on the low 62 bits of f and g alone: they are done on words
//! and yield a matrix of four words, which is then applied to all of f and g, and to d and e, for which `d x = f` and
//! `e x = g` modulo m all along (times powers of two that are divided out on the way).
//!
//! **Bounds.** Matrix rows have `|u| + |v| <= 2^62`. Limbs hold 62 bits, the top one is signed; sums of two or three
//! products are below 2^127. d and e stay above -2 m and below m; m is below 2^(62 L - 2).
//!
//! **Time** depends on the length alone. Tests: `inverses_are_right_for_every_residue_of_small_moduli`,
//! `inverses_of_edges_are_right`, and whatever tests an inversion in the fields.

use crate::vector::{MASK52, RADIX};
use zeroize::Zeroize;

const BITS: u32 = 62;
const MASK: i64 = (1 << BITS) - 1;

/// `x^-1 mod m`, or zero for zero, for x below m, m odd; both in limbs of 52 bits. A modulus of 5 limbs has up to 256
/// bits, one of 8 up to 384.
pub(crate) fn invert<const N: usize>(x: &[u64; N], m: &[u64; N]) -> [u64; N] {
    match N {
        5 => invert_words::<N, 5>(x, m, 256),
        8 => invert_words::<N, 7>(x, m, 384),
        _ => unreachable!("the fields have 5 or 8 limbs"),
    }
}

fn invert_words<const N: usize, const L: usize>(x: &[u64; N], m: &[u64; N], bits: u32) -> [u64; N] {
    let m: [i64; L] = regroup(&m.map(|limb| limb as i64), RADIX, BITS);
    // 1 / m mod 2^62, by Newton's iteration from 5 right bits.
    let mut inverse = m[0].wrapping_mul(3) ^ 2;
    for _ in 0..4 {
        inverse = inverse.wrapping_mul(2i64.wrapping_sub(m[0].wrapping_mul(inverse)));
    }
    let steps = (45907 * bits + 26313) / 19929;
    let mut f = m;
    let mut g: [i64; L] = regroup(&x.map(|limb| limb as i64), RADIX, BITS);
    let (mut d, mut e) = ([0; L], [0; L]);
    e[0] = 1;
    let mut zeta = -1;
    for _ in 0..steps.div_ceil(BITS) {
        let matrix = divide(&mut zeta, f[0], g[0]);
        apply_modulo(&matrix, &mut d, &mut e, &m, inverse);
        apply(&matrix, &mut f, &mut g);
    }
    // f is 1 or -1 (or m, where x and so d are zero).
    add_if(d[L - 1] >> 63, &mut d, &m);
    negate_if(f[L - 1] >> 63, &mut d);
    add_if(d[L - 1] >> 63, &mut d, &m);
    let out = regroup::<L, N>(&d, BITS, RADIX).map(|limb| limb as u64 & MASK52);
    for secret in [&mut d, &mut e, &mut f, &mut g] {
        secret.zeroize();
    }
    out
}

/// The matrix (u, v; q, r) of 62 steps, times 2^62. `zeta` is `-(delta + 1/2)`.
#[inline(always)]
fn divide(zeta: &mut i64, f: i64, g: i64) -> [i64; 4] {
    let (mut f, mut g) = (f as u64, g as u64);
    let [mut u, mut v, mut q, mut r] = [1u64, 0, 0, 1];
    for _ in 0..BITS {
        let positive = (*zeta >> 63) as u64;
        let odd = (g & 1).wrapping_neg();
        // Minus f, u, v where delta > 0.
        let x = (f ^ positive).wrapping_sub(positive);
        let y = (u ^ positive).wrapping_sub(positive);
        let z = (v ^ positive).wrapping_sub(positive);
        g = g.wrapping_add(x & odd);
        q = q.wrapping_add(y & odd);
        r = r.wrapping_add(z & odd);
        let swap = positive & odd;
        *zeta = (*zeta ^ swap as i64) - 1;
        f = f.wrapping_add(g & swap);
        u = u.wrapping_add(q & swap) << 1;
        v = v.wrapping_add(r & swap) << 1;
        g >>= 1;
    }
    [u, v, q, r].map(|word| word as i64)
}

fn product(a: i64, b: i64) -> i128 {
    i128::from(a) * i128::from(b)
}

/// `(f, g) = matrix (f, g) / 2^62`, which is exact.
#[inline(always)]
fn apply<const L: usize>(&[u, v, q, r]: &[i64; 4], f: &mut [i64; L], g: &mut [i64; L]) {
    let mut a = (product(u, f[0]) + product(v, g[0])) >> BITS;
    let mut b = (product(q, f[0]) + product(r, g[0])) >> BITS;
    for i in 1..L {
        a += product(u, f[i]) + product(v, g[i]);
        b += product(q, f[i]) + product(r, g[i]);
        (f[i - 1], g[i - 1]) = (a as i64 & MASK, b as i64 & MASK);
        (a, b) = (a >> BITS, b >> BITS);
    }
    (f[L - 1], g[L - 1]) = (a as i64, b as i64);
}

/// `(d, e) = matrix (d, e) / 2^62` modulo m: multiples of m are added that make the division exact, and one more where
/// d or e is negative, so that the range stays.
#[inline(always)]
fn apply_modulo<const L: usize>(
    &[u, v, q, r]: &[i64; 4],
    d: &mut [i64; L],
    e: &mut [i64; L],
    m: &[i64; L],
    inverse: i64,
) {
    let (sign_d, sign_e) = (d[L - 1] >> 63, e[L - 1] >> 63);
    let mut a = product(u, d[0]) + product(v, e[0]);
    let mut b = product(q, d[0]) + product(r, e[0]);
    let mut times = (u & sign_d) + (v & sign_e);
    let mut times_e = (q & sign_d) + (r & sign_e);
    times -= (inverse.wrapping_mul(a as i64).wrapping_add(times)) & MASK;
    times_e -= (inverse.wrapping_mul(b as i64).wrapping_add(times_e)) & MASK;
    a = (a + product(m[0], times)) >> BITS;
    b = (b + product(m[0], times_e)) >> BITS;
    for i in 1..L {
        a += product(u, d[i]) + product(v, e[i]) + product(m[i], times);
        b += product(q, d[i]) + product(r, e[i]) + product(m[i], times_e);
        (d[i - 1], e[i - 1]) = (a as i64 & MASK, b as i64 & MASK);
        (a, b) = (a >> BITS, b >> BITS);
    }
    (d[L - 1], e[L - 1]) = (a as i64, b as i64);
}

/// `a += m` where `mask` is all ones.
fn add_if<const L: usize>(mask: i64, a: &mut [i64; L], m: &[i64; L]) {
    for (a, m) in a.iter_mut().zip(m) {
        *a += m & mask;
    }
    carry(a);
}

fn negate_if<const L: usize>(mask: i64, a: &mut [i64; L]) {
    for a in a.iter_mut() {
        *a = (*a ^ mask) - mask;
    }
    carry(a);
}

fn carry<const L: usize>(a: &mut [i64; L]) {
    for i in 1..L {
        a[i] += a[i - 1] >> BITS;
        a[i - 1] &= MASK;
    }
}

/// A number that is not negative, from limbs of one width to limbs of another.
fn regroup<const A: usize, const B: usize>(limbs: &[i64; A], from: u32, to: u32) -> [i64; B] {
    let mut limbs = limbs.iter();
    let (mut waiting, mut bits) = (0u128, 0);
    let mut out = [0; B];
    for out in &mut out {
        while bits < to {
            waiting |= u128::from(limbs.next().copied().unwrap_or(0) as u64) << bits;
            bits += from;
        }
        *out = (waiting & ((1 << to) - 1)) as i64;
        waiting >>= to;
        bits -= to;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limbs;

    #[test]
    fn inverses_are_right_for_every_residue_of_small_moduli() {
        for m in [3u64, 5, 7, 11, 13, 101, 251] {
            for x in 0..m {
                let [inverse, rest @ ..] = invert(&[x, 0, 0, 0, 0], &[m, 0, 0, 0, 0]);
                assert_eq!(rest, [0; 4]);
                assert!(inverse < m);
                assert_eq!(x * inverse % m, u64::from(x != 0), "{x} modulo {m}");
            }
        }
    }

    /// `x inverse = 1` modulo m, by doubling and adding.
    fn check<const N: usize>(x: [u64; N], m: &[u64; N]) {
        let inverse = invert(&x, m);
        assert_eq!(limbs::less(&inverse, m), 1);
        let mut sum = [0; N];
        for bit in (0..52 * N).rev() {
            limbs::shift_mod(&mut sum, m, 1);
            if limbs::window(&x, bit, 1) == 1 {
                let mut carry = 0;
                for (s, y) in sum.iter_mut().zip(&inverse) {
                    let t = *s + y + carry;
                    *s = t & MASK52;
                    carry = t >> RADIX;
                }
                let mut less = sum;
                if limbs::sub(&sum, m, &mut less) == 0 {
                    sum = less;
                }
            }
        }
        let one = core::array::from_fn(|i| u64::from(i == 0));
        assert_eq!(sum, one);
    }

    fn edges<const N: usize>(m: &[u64; N]) {
        let small = |value: u64| core::array::from_fn::<u64, N, _>(|i| if i == 0 { value } else { 0 });
        assert_eq!(invert(&[0; N], m), [0; N]);
        let mut less_one = *m;
        less_one[0] -= 1;
        let ones = core::array::from_fn(|i| if i + 1 < N { MASK52 } else { 1 });
        for x in [small(1), small(2), small(MASK52), less_one, ones] {
            check(x, m);
        }
        let mut state = 1u64;
        for _ in 0..200 {
            check(
                core::array::from_fn(|i| {
                    state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                    if i + 1 < N { state >> 12 } else { (state >> 12) % m[N - 1] }
                }),
                m,
            );
        }
    }

    #[test]
    fn inverses_of_edges_are_right() {
        use crate::ec::curves::{P256Field, P256Order, P384Field, P384Order};
        use crate::ec::field::Prime;
        edges(&<P256Field as Prime<5>>::M);
        edges(&<P256Order as Prime<5>>::M);
        edges(&<P384Field as Prime<8>>::M);
        edges(&<P384Order as Prime<8>>::M);
        edges(&crate::x25519::MODULUS);
    }
}
