//! The inverse of one number modulo an odd number, in constant time: division steps (Bernstein, Yang, "Fast
//! constant-time gcd computation and modular inversion", 2019), in the variant that starts with delta = 1/2 (Wuille,
//! libsecp256k1).
//!
//! A chain of products (Fermat) would take longer: some 260 dependent products take the time of 700 independent ones.
//! So eight lanes multiply their values, invert the product here once, and each lane recovers its own inverse from the
//! products of the others (Montgomery's trick): see `ec::field::invert` and `x25519::field::invert`.
//!
//! **The step.** With f odd, `(delta, f, g)` becomes `(1 - delta, g, (g - f) / 2)` if delta > 0 and g is odd, else
//! `(1 + delta, f, (g + (g mod 2) f) / 2)`. Starting from (1/2, m, x), `(45907 bits + 26313) / 19929` steps make g zero
//! and f the greatest common divisor, up to sign. 60 steps depend only on the low 60 bits of f and g: they are done on
//! words and yield a matrix of four words, which is then applied to all of f and g, and to d and e, for which `d x = f`
//! and `e x = g` modulo m always hold (up to powers of two that are divided out on the way).
//!
//! **Twenty steps** treat row (u, v) of the matrix like f, and row (q, r) like g. So the three fit in one word, `f +
//! 2^21 u + 2^42 v`, and a step is one addition and one shift. The rows start as `(-2^20, 0)` and `(0, -2^20)`: every
//! halving is exact, and no entry ever reaches 2^20.
//!
//! **Bounds.** Rows of the 60 steps' matrix have `|u| + |v| <= 2^60`. Limbs hold 60 bits, the top one is signed; sums
//! of two or three products are below 2^123. d and e stay above -2 m and below m; m is below 2^(60 L - 2).
//!
//! **Time** depends only on the length; arithmetic wraps, since a check for overflow would branch on secrets. Tests:
//! `kernels_do_not_branch_on_secrets`, `inverses_are_right_for_every_residue_of_small_moduli`,
//! `inverses_of_edges_are_right`, and all tests of inversions in the fields.

use crate::vector::{MASK52, RADIX};
use core::num::Wrapping;
use zeroize::Zeroize;

type Word = Wrapping<i64>;
type Wide = Wrapping<i128>;

const BITS: usize = 60;
const MASK: Word = Wrapping((1 << BITS) - 1);
const ZERO: Word = Wrapping(0);
const ONE: Word = Wrapping(1);

/// `x^-1 mod m`, or zero for zero, for x below m, m odd; both in limbs of 52 bits. A modulus of 5 limbs has up to 256
/// bits, one of 8 up to 384.
pub(crate) fn invert<const N: usize>(x: &[u64; N], m: &[u64; N]) -> [u64; N] {
    match N {
        5 => invert_words::<N, 5>(x, m, 256),
        8 => invert_words::<N, 7>(x, m, 384),
        _ => unreachable!("the fields have 5 or 8 limbs"),
    }
}

fn invert_words<const N: usize, const L: usize>(x: &[u64; N], m: &[u64; N], bits: usize) -> [u64; N] {
    let words = |limbs: &[u64; N]| regroup::<N, L>(limbs, RADIX as usize, BITS).map(|limb| Wrapping(limb as i64));
    let m = words(m);
    // 1 / m mod 2^60, by Newton's iteration from 5 right bits.
    let mut inverse = (m[0] * Wrapping(3)) ^ Wrapping(2);
    for _ in 0..4 {
        inverse *= Wrapping(2) - m[0] * inverse;
    }
    let steps: usize = (45907 * bits + 26313) / 19929;
    let (mut f, mut g) = (m, words(x));
    let (mut d, mut e) = ([ZERO; L], [ZERO; L]);
    e[0] = ONE;
    let mut zeta = -ONE;
    for _ in 0..steps.div_ceil(BITS) {
        let matrix = divide(&mut zeta, f[0], g[0]);
        apply_modulo(&matrix, &mut d, &mut e, &m, inverse);
        apply(&matrix, &mut f, &mut g);
    }
    // f is 1 or -1 (or m, if x and therefore d are zero).
    add_if(sign(d[L - 1]), &mut d, &m);
    negate_if(sign(f[L - 1]), &mut d);
    add_if(sign(d[L - 1]), &mut d, &m);
    let out = regroup::<L, N>(&d.map(|limb| limb.0 as u64), BITS, RADIX as usize).map(|limb| limb & MASK52);
    for secret in [&mut d, &mut e, &mut f, &mut g] {
        secret.zeroize();
    }
    out
}

/// All ones for a negative number, else zero. The compiler does not learn that there are only two values, so it cannot
/// turn code that depends on it into a branch.
#[inline(always)]
fn sign(word: Word) -> Word {
    let mask = word.0 >> 63;
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let mut mask = mask;
        // SAFETY: the assembly contains no instruction; the register keeps its value.
        unsafe { core::arch::asm!("/* {0} */", inout(reg) mask, options(pure, nomem, nostack, preserves_flags)) };
        Wrapping(mask)
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    Wrapping(core::hint::black_box(mask))
}

/// The matrix (u, v; q, r) of 60 steps, times 2^60. `zeta` is `-(delta + 1/2)`.
fn divide(zeta: &mut Word, f: Word, g: Word) -> [Word; 4] {
    let first = divide_twenty(zeta, f, g);
    let (f, g) = divided(&first, f, g);
    let second = divide_twenty(zeta, f, g);
    let (f, g) = divided(&second, f, g);
    let third = divide_twenty(zeta, f, g);
    composed(&third, &composed(&second, &first))
}

/// The matrix of 20 steps, times 2^20.
#[inline(always)]
fn divide_twenty(zeta: &mut Word, f: Word, g: Word) -> [Word; 4] {
    let low = Wrapping((1 << 20) - 1);
    let mut f = (f & low) - (ONE << 41);
    let mut g = (g & low) - (ONE << 62);
    for _ in 0..20 {
        let positive = sign(*zeta);
        let odd = sign(g << 63);
        // Negates f where delta > 0.
        g += ((f ^ positive) - positive) & odd;
        let swap = positive & odd;
        *zeta = (*zeta ^ swap) - ONE;
        f += g & swap;
        g >>= 1;
    }
    let entries = |row: Word| {
        let row = row + (ONE << 20);
        [-((row >> 21) << 43 >> 43), -((row + (ONE << 41)) >> 42)]
    };
    let ([u, v], [q, r]) = (entries(f), entries(g));
    [u, v, q, r]
}

/// `matrix (f, g) / 2^20`, in the low bits that are determined.
#[inline(always)]
fn divided(&[u, v, q, r]: &[Word; 4], f: Word, g: Word) -> (Word, Word) {
    ((u * f + v * g) >> 20, (q * f + r * g) >> 20)
}

/// The product of two matrices: `b` is applied first, then `a`.
#[inline(always)]
fn composed(a: &[Word; 4], b: &[Word; 4]) -> [Word; 4] {
    [a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3], a[2] * b[0] + a[3] * b[2], a[2] * b[1] + a[3] * b[3]]
}

#[inline(always)]
fn product(a: Word, b: Word) -> Wide {
    Wrapping(i128::from(a.0)) * Wrapping(i128::from(b.0))
}

#[inline(always)]
fn low(sum: Wide) -> Word {
    Wrapping(sum.0 as i64)
}

/// `(f, g) = matrix (f, g) / 2^60`, which is exact.
#[inline(always)]
fn apply<const L: usize>(&[u, v, q, r]: &[Word; 4], f: &mut [Word; L], g: &mut [Word; L]) {
    let mut a = (product(u, f[0]) + product(v, g[0])) >> BITS;
    let mut b = (product(q, f[0]) + product(r, g[0])) >> BITS;
    for i in 1..L {
        a += product(u, f[i]) + product(v, g[i]);
        b += product(q, f[i]) + product(r, g[i]);
        (f[i - 1], g[i - 1]) = (low(a) & MASK, low(b) & MASK);
        (a, b) = (a >> BITS, b >> BITS);
    }
    (f[L - 1], g[L - 1]) = (low(a), low(b));
}

/// `(d, e) = matrix (d, e) / 2^60` modulo m: adds multiples of m to make the division exact, and one more where d or e
/// is negative, which preserves the range.
#[inline(always)]
fn apply_modulo<const L: usize>(
    &[u, v, q, r]: &[Word; 4],
    d: &mut [Word; L],
    e: &mut [Word; L],
    m: &[Word; L],
    inverse: Word,
) {
    let (sign_d, sign_e) = (sign(d[L - 1]), sign(e[L - 1]));
    let mut a = product(u, d[0]) + product(v, e[0]);
    let mut b = product(q, d[0]) + product(r, e[0]);
    let mut for_d = (u & sign_d) + (v & sign_e);
    let mut for_e = (q & sign_d) + (r & sign_e);
    for_d -= (inverse * low(a) + for_d) & MASK;
    for_e -= (inverse * low(b) + for_e) & MASK;
    a = (a + product(m[0], for_d)) >> BITS;
    b = (b + product(m[0], for_e)) >> BITS;
    for i in 1..L {
        a += product(u, d[i]) + product(v, e[i]) + product(m[i], for_d);
        b += product(q, d[i]) + product(r, e[i]) + product(m[i], for_e);
        (d[i - 1], e[i - 1]) = (low(a) & MASK, low(b) & MASK);
        (a, b) = (a >> BITS, b >> BITS);
    }
    (d[L - 1], e[L - 1]) = (low(a), low(b));
}

/// `a += m` where `mask` is all ones.
fn add_if<const L: usize>(mask: Word, a: &mut [Word; L], m: &[Word; L]) {
    for (a, m) in a.iter_mut().zip(m) {
        *a += m & mask;
    }
    carry(a);
}

fn negate_if<const L: usize>(mask: Word, a: &mut [Word; L]) {
    for a in a.iter_mut() {
        *a = (*a ^ mask) - mask;
    }
    carry(a);
}

fn carry<const L: usize>(a: &mut [Word; L]) {
    for i in 1..L {
        let over = a[i - 1] >> BITS;
        a[i] += over;
        a[i - 1] &= MASK;
    }
}

/// Converts between limbs of different widths.
fn regroup<const A: usize, const B: usize>(limbs: &[u64; A], from: usize, to: usize) -> [u64; B] {
    let mut limbs = limbs.iter();
    let (mut waiting, mut bits) = (0u128, 0);
    let mut out = [0; B];
    for out in &mut out {
        while bits < to {
            waiting |= u128::from(limbs.next().copied().unwrap_or(0)) << bits;
            bits += from;
        }
        *out = waiting as u64 & ((1 << to) - 1);
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

    /// Checks `x inverse = 1` modulo m, by doubling and adding.
    fn check<const N: usize>(x: [u64; N], m: &[u64; N]) {
        let inverse = invert(&x, m);
        assert_eq!(limbs::less(&inverse, m), 1);
        let mut sum = [0; N];
        for bit in (0..52 * N).rev() {
            limbs::shift_mod(&mut sum, m, 1);
            if x[bit / 52] >> (bit % 52) & 1 == 1 {
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
