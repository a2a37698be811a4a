//! Polynomials modulo x^256 + 1 and q = 3329, of eight clients, and their number-theoretic transform (FIPS 203,
//! section 4.3).
//!
//! Coefficient 4 v + s of a client's polynomial is slot s of its lane in vector v. All but the last layer of the
//! transform then work between whole vectors, and a product of two transformed polynomials stays within a lane.
//!
//! Reduction is Montgomery's with R = 2^16, signed (Seiler, 2018): `mont(x, z) = x z / R` lies within
//! `|x z| / R + q / 2`. Coefficients are added without reducing as long as they fit 16 bits; how long that is, the run
//! of the same code on `Bound16` proves: `no_slot_overflows`.
//!
//! Time depends on nothing. Tests: `transforms_multiply_polynomials`, `no_slot_overflows`.

use crate::vector::slots::Slots;
use crate::vector::{Kernel, Lane8, repeat};

pub(crate) const Q: i16 = 3329;
/// Vectors of a polynomial.
pub(crate) const VECTORS: usize = 64;

pub(crate) type Poly<V> = [V; VECTORS];

/// A constant in Montgomery's form and times q^-1 modulo 2^16, four slots each.
#[derive(Clone, Copy)]
struct Factor {
    value: [i16; 4],
    by_inverse: [i16; 4],
}

/// The number in -q/2..q/2 that is congruent to x modulo q.
const fn centered(x: i64) -> i16 {
    let x = x.rem_euclid(Q as i64);
    (if x > Q as i64 / 2 { x - Q as i64 } else { x }) as i16
}

/// q^-1 modulo 2^16.
const Q_INVERSE: i16 = {
    let mut x = 1i16;
    let mut i = 0;
    while i < 4 {
        x = x.wrapping_mul(2i16.wrapping_sub(Q.wrapping_mul(x)));
        i += 1;
    }
    x
};

impl Factor {
    const fn new(values: [i64; 4]) -> Factor {
        let mut out = Factor { value: [0; 4], by_inverse: [0; 4] };
        let mut i = 0;
        while i < 4 {
            out.value[i] = centered(values[i] << 16);
            out.by_inverse[i] = out.value[i].wrapping_mul(Q_INVERSE);
            i += 1;
        }
        out
    }
}

/// 17^BitRev7(i) modulo q.
const fn zeta(i: usize) -> i64 {
    let exponent = (i as u8).reverse_bits() >> 1;
    let (mut power, mut k) = (1, 0);
    while k < exponent {
        power = power * 17 % Q as i64;
        k += 1;
    }
    power
}

macro_rules! factors {
    ($length:literal, |$i:ident| $values:expr) => {{
        let mut out = [Factor::new([0; 4]); $length];
        let mut $i = 0;
        while $i < $length {
            out[$i] = Factor::new($values);
            $i += 1;
        }
        out
    }};
}

/// Factors of butterflies between vectors.
static ZETAS: [Factor; 128] = factors!(128, |i| [zeta(i); 4]);
/// Factors of the last layer, within vector v: `(a, b) -> (a + z b, a - z b)`.
static LAST: [Factor; 64] = factors!(64, |v| [zeta(64 + v), zeta(64 + v), -zeta(64 + v), -zeta(64 + v)]);
/// Factors of the first inverse layer: `(a + b, z (b - a))`.
static FIRST_BACK: [Factor; 64] = factors!(64, |v| [1, 1, zeta(127 - v), zeta(127 - v)]);
/// Factors of products modulo x^2 -+ z: `(y0, z y1, y2, -z y3)`.
static GAMMAS: [Factor; 64] = factors!(64, |v| [1, zeta(64 + v), 1, -zeta(64 + v)]);
/// The factor that only reduces.
static ONE: Factor = Factor::new([1; 4]);
/// The factor after the inverse transform: 1/128, and the R that the reduction of products left out.
static SCALE: Factor = Factor::new([3303 << 16; 4]);

/// `x z / R`.
#[inline(always)]
fn mont<V: Slots>(x: V, z: &Factor) -> V {
    let quotient = x.mul_low16(V::slots(z.by_inverse));
    x.mul_high16(V::slots(z.value)).sub16(quotient.mul_high16(V::slots([Q; 4])))
}

/// `(a + z b, a - z b)`.
#[inline(always)]
fn butterfly<V: Slots>(f: &mut [V; 8], i: usize, j: usize, z: &Factor) {
    let t = mont(f[j], z);
    (f[i], f[j]) = (f[i].add16(t), f[i].sub16(t));
}

/// `(a + b, z (b - a))`.
#[inline(always)]
fn butterfly_back<V: Slots>(f: &mut [V; 8], i: usize, j: usize, z: &Factor) {
    let difference = f[j].sub16(f[i]);
    (f[i], f[j]) = (f[i].add16(f[j]), mont(difference, z));
}

/// Evaluates an expression eight times with a constant; a closure would be compiled without the instruction set.
macro_rules! eight {
    ($i:ident => $e:expr) => {{
        let mut out = [V::default(); 8];
        repeat!(8, $i => out[$i] = $e);
        out
    }};
}

/// The transform (FIPS 203, algorithm 9), three layers at a time over eight vectors. Input coefficients are up to 3 in
/// absolute value, output below 2^14.
#[inline(always)]
fn transform<V: Slots>(f: &mut Poly<V>) {
    for start in 0..8 {
        let mut g = eight!(I => f[start + 8 * I]);
        three_layers(&mut g, 1);
        repeat!(8, I => f[start + 8 * I] = g[I]);
    }
    for block in 0..8 {
        let mut g = eight!(I => f[8 * block + I]);
        three_layers(&mut g, 8 + block);
        repeat!(8, I => {
            let t = mont(g[I].high_slots(), &LAST[8 * block + I]);
            f[8 * block + I] = g[I].low_slots().add16(t);
        });
    }
}

#[inline(always)]
fn three_layers<V: Slots>(g: &mut [V; 8], z: usize) {
    repeat!(4, I => butterfly(g, I, I + 4, &ZETAS[z]));
    repeat!(4, I => butterfly(g, I + I / 2 * 2, I + I / 2 * 2 + 2, &ZETAS[2 * z + I / 2]));
    repeat!(4, I => butterfly(g, 2 * I, 2 * I + 1, &ZETAS[4 * z + I]));
}

/// The inverse transform (FIPS 203, algorithm 10), of products that lack a factor R. Input coefficients are up to 7000
/// in absolute value, output up to 2000.
#[inline(always)]
fn transform_back<V: Slots>(f: &mut Poly<V>) {
    for block in 0..8 {
        let mut g = eight!(I => {
            let v = f[8 * block + I];
            let signed = v.low_slots().mul_low16(V::slots([1, 1, -1, -1]));
            mont(v.high_slots().add16(signed), &FIRST_BACK[8 * block + I])
        });
        three_layers_back(&mut g, 15 - block);
        repeat!(8, I => f[8 * block + I] = g[I]);
    }
    for start in 0..8 {
        // Sums of eight values: they must be reduced before more is added.
        let mut g = eight!(I => mont(f[start + 8 * I], &ONE));
        three_layers_back(&mut g, 1);
        repeat!(8, I => f[start + 8 * I] = mont(g[I], &SCALE));
    }
}

#[inline(always)]
fn three_layers_back<V: Slots>(g: &mut [V; 8], z: usize) {
    // The zetas of a layer are used from the last to the first.
    repeat!(4, I => butterfly_back(g, 2 * I, 2 * I + 1, &ZETAS[4 * z + 3 - I]));
    repeat!(4, I => butterfly_back(g, I + I / 2 * 2, I + I / 2 * 2 + 2, &ZETAS[2 * z + 1 - I / 2]));
    repeat!(4, I => butterfly_back(g, I, I + 4, &ZETAS[z]));
}

/// A transformed polynomial, prepared as a factor: `(y0, z y1)` and `(y1, y0)` of each pair.
#[derive(Clone, Copy)]
pub(crate) struct Multiplier<V> {
    straight: Poly<V>,
    crossed: Poly<V>,
}

impl<V: Slots> Default for Multiplier<V> {
    fn default() -> Self {
        Multiplier { straight: [V::default(); VECTORS], crossed: [V::default(); VECTORS] }
    }
}

impl<V: Slots> zeroize::Zeroize for Multiplier<V> {
    fn zeroize(&mut self) {
        self.straight.zeroize();
        self.crossed.zeroize();
    }
}

#[inline(always)]
fn multiplier<V: Slots>(f: &Poly<V>, out: &mut Multiplier<V>) {
    for v in 0..VECTORS {
        out.straight[v] = mont(f[v], &GAMMAS[v]);
        out.crossed[v] = f[v].exchange16();
    }
}

/// The sum of three products of transformed polynomials, divided by R (FIPS 203, algorithms 11 and 12): pairs are
/// multiplied and added in 32 bits and reduced once.
#[inline(always)]
fn inner_product<V: Slots>(a: [&Poly<V>; 3], b: &[Multiplier<V>; 3], out: &mut Poly<V>) {
    for v in 0..VECTORS {
        let (mut even, mut odd) = (V::Pairs::default(), V::Pairs::default());
        for k in 0..3 {
            even = V::dot(even, a[k][v], b[k].straight[v]);
            odd = V::dot(odd, a[k][v], b[k].crossed[v]);
        }
        let [low, high] = V::halves(even, odd);
        let quotient = low.mul_low16(V::slots([Q_INVERSE; 4]));
        out[v] = high.sub16(quotient.mul_high16(V::slots([Q; 4])));
    }
}

/// Transforms a small polynomial and prepares it as a factor.
pub(crate) fn prepare<V: Lane8>(f: &mut Poly<V>, out: &mut Multiplier<V>) {
    V::enter(Prepare(f, out));
}

struct Prepare<'a, V>(&'a mut Poly<V>, &'a mut Multiplier<V>);

impl<V: Lane8> Kernel<V> for Prepare<'_, V> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        transform(self.0);
        multiplier(self.0, self.1);
    }
}

/// The sum of three products, transformed back: coefficients up to 2000 in absolute value.
pub(crate) fn multiply<V: Lane8>(a: [&Poly<V>; 3], b: &[Multiplier<V>; 3], out: &mut Poly<V>) {
    V::enter(InnerProduct(a, b, out));
}

struct InnerProduct<'a, V>([&'a Poly<V>; 3], &'a [Multiplier<V>; 3], &'a mut Poly<V>);

impl<V: Lane8> Kernel<V> for InnerProduct<'_, V> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        inner_product(self.0, self.1, self.2);
        transform_back(self.2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vector::{Bound16, Portable, Vector};

    #[test]
    fn no_slot_overflows() {
        let mut y = [Bound16::between(-2, 2); VECTORS];
        transform(&mut y);
        assert!(y.iter().all(|v| v.low() > -0x4000 && v.high() < 0x4000));
        let mut factor = Multiplier::default();
        multiplier(&y, &mut factor);
        // Uniform coefficients below q, or twelve bits of a key that will be refused.
        let a = [Bound16::between(0, 4095); VECTORS];
        let mut out = [Bound16::default(); VECTORS];
        inner_product([&a; 3], &[factor; 3], &mut out);
        assert!(out.iter().all(|v| v.low() >= -7000 && v.high() <= 7000), "{:?}", out[0]);
        transform_back(&mut out);
        assert!(out.iter().all(|v| v.low() >= -2000 && v.high() <= 2000), "{:?}", out[0]);
    }

    /// Compares with the definition: schoolbook products modulo x^256 + 1.
    #[test]
    fn transforms_multiply_polynomials() {
        let mut seed = 9u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        // Small polynomials y, and polynomials a whose transform is the other factor.
        let lanes = |numbers: &[[i64; 256]; 8]| -> Poly<Portable> {
            core::array::from_fn(|v| {
                Portable::from_lanes(&core::array::from_fn(|lane| {
                    (0..4).rev().fold(0, |word, s| word << 16 | u64::from(numbers[lane][4 * v + s] as u16))
                }))
            })
        };
        let a: [[[i64; 256]; 8]; 3] =
            core::array::from_fn(|_| core::array::from_fn(|_| core::array::from_fn(|_| next(5) as i64 - 2)));
        let y: [[[i64; 256]; 8]; 3] =
            core::array::from_fn(|_| core::array::from_fn(|_| core::array::from_fn(|_| next(5) as i64 - 2)));
        let mut multipliers = [Multiplier::default(); 3];
        let mut transformed = [[Portable::splat(0); VECTORS]; 3];
        for k in 0..3 {
            multiplier(
                &{
                    let mut f = lanes(&y[k]);
                    transform(&mut f);
                    f
                },
                &mut multipliers[k],
            );
            transformed[k] = lanes(&a[k]);
            transform(&mut transformed[k]);
            transformed[k] = transformed[k].map(|v| mont(v, &ONE));
        }
        let mut product = [Portable::splat(0); VECTORS];
        multiply(transformed.each_ref(), &multipliers, &mut product);
        for lane in 0..8 {
            let mut wanted = [0; 256];
            for k in 0..3 {
                for i in 0..256 {
                    for j in 0..256 {
                        let sign = if i + j < 256 { 1 } else { -1 };
                        wanted[(i + j) % 256] += sign * a[k][lane][i] * y[k][lane][j];
                    }
                }
            }
            for (i, wanted) in wanted.iter().enumerate() {
                let got = (product[i / 4].to_lanes()[lane] >> (16 * (i % 4))) as i16;
                assert_eq!(i64::from(got).rem_euclid(3329), wanted.rem_euclid(3329), "lane {lane} coefficient {i}");
            }
        }
    }
}
