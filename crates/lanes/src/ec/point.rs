//! Points of `y^2 = x^3 - 3 x + b` in Jacobian coordinates, and multiples of them by eight scalars.
//!
//! **Scalars** are made odd (an even one is replaced by n minus it, and the sign changed) and written in base 32 with
//! odd digits from -31 to 31 (Joye, Tunstall 2009): `d_i = 2 v_i - 31` for the five bits v_i from bit `5 i + 1` on, and
//! `2 v + 1` for the last one. So no digit is zero, no sum starts from the neutral point, and the pattern of operations
//! never varies.
//!
//! **Exceptions.** The addition (as in Hankerson, Menezes, Vanstone, algorithm 3.22) is wrong only for P = +-Q. For a
//! running sum k' P, 0 < k' < n, and the next digit d, `32 k' = -d` mod n never holds, since the partial sums `32 k' +
//! d` stay in 1..n; and `32 k' = d` holds only in the last addition, for the scalars `n - 2 |d|` and, with the sign
//! changed, `2 |d|`. The recoding detects them, and for them the last addition is a doubling, which is computed in all
//! cases. (The same holds for multiples of the generator, whose digits may be wider and have no doublings between
//! them.)
//!
//! **Bounds** in multiples of m (see [`super::field`]): coordinates below 2, z below 3 (P-384: 5). For P-256 every
//! operand of a product is below 8, so that a product is below 5 and usually below 3. The new coordinates are settled;
//! other differences (`sub::<P, K>` adds K m) need not be.

use super::curves::Curve;
use super::field::{Cols, Fe, Marker, Prime, columns, constant, invert, mul, mul_add, select, sqr, times};
use super::pack;
use crate::vector::{Digit, Kernel, Lane8, MASK52, Vector, kernel, repeat};
use core::marker::PhantomData;
use zeroize::Zeroize;

/// Bits per digit when an arbitrary point is multiplied, which determines the size of the table of its multiples.
pub(crate) const WIDTH: usize = 5;
pub(crate) const ENTRIES: usize = entries(WIDTH);

/// The point (X / Z^2, Y / Z^3).
#[derive(Clone, Copy)]
pub(crate) struct Point<V, const N: usize> {
    pub(crate) x: Fe<V, N>,
    pub(crate) y: Fe<V, N>,
    pub(crate) z: Fe<V, N>,
}

impl<V: Vector, const N: usize> Point<V, N> {
    /// A point with z = 1.
    #[inline(always)]
    pub(crate) fn affine<P: Prime<N>>(x: Fe<V, N>, y: Fe<V, N>) -> Self {
        Point { x, y, z: constant(&P::ONE) }
    }

    /// Doubles the point, with a = -3: three products and five squares (Bernstein, Lange: dbl-2001-b), the last two
    /// sharing a reduction.
    #[inline(always)]
    pub(crate) fn double<P: Prime<N>>(&self) -> Self {
        let delta = sqr::<V, P, N>(&self.z);
        let gamma = sqr::<V, P, N>(&self.y).twice();
        let less = columns(&self.x).sub::<P, 4>(delta).digits();
        let more = columns(&self.x).add(delta).digits();
        let minus_gamma4 = Cols([V::splat(0); N]).sub::<P, 6>(gamma.twice()).digits();
        let gamma2 = gamma.digits();
        V::fence();
        let alpha = mul::<V, P, N>(&less, &more);
        let beta2 = mul::<V, P, N>(&self.x, &gamma2).twice();
        let alpha = alpha.twice().add(alpha).digits();
        V::fence();
        let x = sqr::<V, P, N>(&alpha).sub::<P, 12>(beta2.twice()).settled::<P>();
        let z = mul::<V, P, N>(&self.y, &self.z).twice().digits();
        let d = beta2.sub::<P, 4>(columns(&x)).digits();
        V::fence();
        let y = mul_add::<V, P, N>(&alpha, &d, &gamma2, &minus_gamma4).settled::<P>();
        V::fence();
        Point { x, y, z }
    }

    /// Adds another point; `MIXED` says that its z is one.
    #[inline(always)]
    pub(crate) fn add<P: Prime<N>, const MIXED: bool>(&self, q: &Self) -> Self {
        let zz = sqr::<V, P, N>(&self.z).digits();
        let qq = if MIXED { zz } else { sqr::<V, P, N>(&q.z).digits() };
        V::fence();
        let zzz = mul::<V, P, N>(&zz, &self.z).digits();
        let (u1, s1) = if MIXED {
            (columns(&self.x), columns(&self.y))
        } else {
            let qqq = mul::<V, P, N>(&qq, &q.z).digits();
            (mul::<V, P, N>(&self.x, &qq), mul::<V, P, N>(&self.y, &qqq))
        };
        V::fence();
        let h = mul::<V, P, N>(&q.x, &zz).sub::<P, 4>(u1).digits();
        let r = mul::<V, P, N>(&q.y, &zzz).sub::<P, 4>(s1).digits();
        let u1 = if MIXED { self.x } else { u1.digits() };
        let minus_s1 = Cols([V::splat(0); N]).sub::<P, 4>(s1).digits();
        V::fence();
        let hh = sqr::<V, P, N>(&h).digits();
        let z = mul::<V, P, N>(&self.z, &h).digits();
        let z = if MIXED { z } else { mul::<V, P, N>(&z, &q.z).digits() };
        V::fence();
        let hhh = mul::<V, P, N>(&hh, &h);
        let v = mul::<V, P, N>(&u1, &hh);
        let x = sqr::<V, P, N>(&r).sub::<P, 8>(hhh.add(v.twice())).settled::<P>();
        let d = v.sub::<P, 4>(columns(&x)).digits();
        let hhh = hhh.digits();
        V::fence();
        let y = mul_add::<V, P, N>(&r, &d, &minus_s1, &hhh).settled::<P>();
        V::fence();
        Point { x, y, z }
    }

    /// Replaces the sum by twice another point in the lanes of the mask, where the addition was of a point to itself.
    #[inline(always)]
    fn or_double<P: Prime<N>>(&mut self, mask: V::Mask, point: &Self) {
        let twice = point.double::<P>();
        self.x = select::<V, N>(mask, &self.x, &twice.x);
        self.y = select::<V, N>(mask, &self.y, &twice.y);
        self.z = select::<V, N>(mask, &self.z, &twice.z);
    }

    /// Negates the point in the lanes of the mask.
    #[inline(always)]
    fn negate_if<P: Prime<N>>(&mut self, mask: V::Mask) {
        let zero = Cols([V::splat(0); N]);
        let negative = zero.sub::<P, 4>(columns(&self.y)).settled::<P>();
        self.y = select::<V, N>(mask, &self.y, &negative);
    }
}

/// How many digits of `width` bits a scalar of `bits` bits has.
pub(crate) const fn digits(bits: usize, width: usize) -> usize {
    (bits - 1) / width + 1
}

/// The digits of eight scalars.
pub(crate) struct Digits<V: Lane8> {
    /// `(|d| - 1) / 2`.
    pub(crate) indices: Vec<V>,
    pub(crate) negative: Vec<V::Mask>,
    /// The lanes whose last addition is of a point to itself.
    pub(crate) meets_itself: V::Mask,
}

impl<V: Lane8> Digits<V> {
    /// The digits of scalars from 1 to n - 1, for [`super::multiply`].
    pub(crate) fn new<C: Curve<N>, const N: usize>(scalars: &[[u64; N]; 8]) -> Self {
        Self::of_width::<C, N>(scalars, WIDTH)
    }

    /// The digits of scalars from 1 to n - 1, for [`multiply_base`].
    pub(crate) fn of_base<C: Curve<N>, const N: usize>(scalars: &[[u64; N]; 8]) -> Self {
        Self::of_width::<C, N>(scalars, C::BASE_WIDTH)
    }

    fn of_width<C: Curve<N>, const N: usize>(scalars: &[[u64; N]; 8], width: usize) -> Self {
        let count = digits(8 * C::BYTES, width);
        let none = V::mask_from_bits(0);
        let mut out = Digits { indices: vec![V::splat(0); count], negative: vec![none; count], meets_itself: none };
        let mut odd = pack::<V, N>(scalars);
        out.meets_itself = recode::<V, N>(&mut odd, &C::Order::M, width, &mut out.indices, &mut out.negative);
        odd.zeroize();
        out
    }
}

kernel! {
    /// Computes the digits of `scalar`, which is made odd, and the lanes whose last addition is of a point to itself.
    fn recode as Recode<'a, V: Lane8, const N: usize>(
        scalar: &'a mut Fe<V, N>,
        order: &'a [u64; N],
        width: usize,
        indices: &'a mut [V],
        negative: &'a mut [V::Mask],
    ) -> V::Mask {
        let even = scalar[0].raw().and(V::splat(1)).eq(V::splat(0));
        let mut borrow = V::splat(0);
        for i in 0..N {
            let d = V::splat(order[i]).sub(scalar[i].raw()).add(borrow);
            borrow = d.sar::<52>();
            scalar[i] = scalar[i].or_if(even, Digit::whole(d.and(V::splat(MASK52))));
        }
        let half = 1 << (width - 1);
        let mut at = 1;
        for i in 0..indices.len() {
            // The digit's bits may continue in the next limb.
            let (limb, shift) = (at / 52, (at % 52) as u32);
            let mut v = if limb < N { scalar[limb].raw().shr_by(shift) } else { V::splat(0) };
            if limb + 1 < N {
                v = v.or(scalar[limb + 1].raw().shl_by(52 - shift));
            }
            v = v.and(V::splat(2 * half - 1));
            at += width;
            if i + 1 < indices.len() {
                // 2 v + 1 - 2 half is negative for v below half, and then (-d - 1) / 2 = half - 1 - v; else v - half.
                let below = v.and(V::splat(half)).eq(V::splat(0));
                let index = v.or_if(below, v.xor(V::splat(half - 1)));
                indices[i] = index.and(V::splat(half - 1));
                negative[i] = V::mask_xor(below, even);
            } else {
                indices[i] = v;
                negative[i] = even;
            }
        }
        // Above the last digit d, which is the lowest width + 1 bits less 2^width, all partial sums differ from what is
        // added: they are multiples of a power of two above it, and n is odd. The last one, scalar - d, equals d where
        // scalar = n + 2 d: where n - scalar + 2 (lowest bits) is 2^(width + 1).
        let mut carry = scalar[0].raw().and(V::splat(4 * half - 1)).shl::<1>();
        let mut unlike = V::splat(0);
        for i in 0..N {
            let d = V::splat(order[i]).sub(scalar[i].raw()).add(carry);
            carry = d.sar::<52>();
            unlike = unlike.or(d.and(V::splat(MASK52)).xor(V::splat(if i == 0 { 4 * half } else { 0 })));
        }
        unlike.or(carry).eq(V::splat(0))
    }
}

impl<V: Lane8> Drop for Digits<V> {
    fn drop(&mut self) {
        self.indices.zeroize();
        self.negative.fill(V::mask_from_bits(0));
        self.meets_itself = V::mask_from_bits(0);
        core::hint::black_box((&mut self.negative, &mut self.meets_itself));
    }
}

/// The multiple of the generator for digit `i`, with its sign: every entry is loaded into registers and permuted.
#[inline(always)]
fn permute<V: Lane8, C: Curve<N>, const N: usize>(table: &[Entries], digits: &Digits<V>, i: usize) -> Point<V, N> {
    let index = digits.indices[i];
    let blocks = entries(C::BASE_WIDTH) / 16;
    let row = &table[i * 2 * N * blocks..(i + 1) * 2 * N * blocks];
    let zero = constant(&[0; N]);
    let mut p = Point::affine::<C::Field>(zero, zero);
    let block = index.shr::<4>();
    for part in 0..blocks {
        let here = block.eq(V::splat(part as u64));
        repeat!(8, J => if J < N {
            p.x[J] = p.x[J].or_if(here, pick_word(&row[part * 2 * N + J], index));
            p.y[J] = p.y[J].or_if(here, pick_word(&row[part * 2 * N + N + J], index));
        });
    }
    p.negate_if::<C::Field>(digits.negative[i]);
    p
}

#[inline(always)]
fn pick_word<V: Lane8>(entries: &Entries, index: V) -> Digit<V> {
    let (halves, _) = entries.as_chunks::<8>();
    Digit::whole(V::pick16(V::from_lanes(&halves[0]), V::from_lanes(&halves[1]), index))
}

/// Entries of the generator's table that a digit chooses from.
const fn entries(width: usize) -> usize {
    1 << (width - 1)
}

/// One word of sixteen points. A row of the generator's table holds the odd multiples of `2^(width row) G`, sixteen
/// points at a time: the words of x, then those of y.
pub(crate) type Entries = [u64; 16];

/// Multiplies the generator by scalars.
pub(crate) fn multiply_base<V: Lane8, C: Curve<N>, const N: usize>(
    digits: &Digits<V>,
    table: &[Entries],
) -> Point<V, N> {
    V::enter(MultiplyBase::<V, C, N>(digits, table, Marker::<C>(PhantomData)))
}

struct MultiplyBase<'a, V: Lane8, C, const N: usize>(&'a Digits<V>, &'a [Entries], Marker<C>);

impl<V: Lane8, C: Curve<N>, const N: usize> Kernel<V> for MultiplyBase<'_, V, C, N> {
    type Out = Point<V, N>;

    #[inline(always)]
    fn run(self) -> Point<V, N> {
        let (digits, table) = (self.0, self.1);
        let mut last = permute::<V, C, N>(table, digits, digits.indices.len() - 1);
        let mut sum = last;
        for i in (0..digits.indices.len() - 1).rev() {
            last = permute::<V, C, N>(table, digits, i);
            sum = sum.add::<C::Field, true>(&last);
        }
        sum.or_double::<C::Field>(digits.meets_itself, &last);
        sum
    }
}

/// Computes the generator's table, which takes a few milliseconds on AVX-512.
pub(crate) fn base_table<V: Lane8, C: Curve<N>, const N: usize>() -> Vec<Entries> {
    let r2 = constant(&C::Field::R2);
    let mut point = Point::<V, N>::affine::<C::Field>(
        times::<V, C::Field, N>(&constant(&C::X), &r2),
        times::<V, C::Field, N>(&constant(&C::Y), &r2),
    );
    let blocks = entries(C::BASE_WIDTH) / 16;
    let rows = digits(8 * C::BYTES, C::BASE_WIDTH);
    let mut table = vec![[0; 16]; rows * blocks * 2 * N];
    let mut multiples = vec![point; entries(C::BASE_WIDTH)];
    for row in table.chunks_exact_mut(blocks * 2 * N) {
        point = V::enter(BaseRow(&point, C::BASE_WIDTH, &mut multiples, Marker::<C>(PhantomData)));
        // Every lane holds the same value: entry j of eight moves to lane j.
        for (eight, multiples) in multiples.chunks_exact(8).enumerate() {
            let gather = |coordinate: fn(&Point<V, N>) -> &Fe<V, N>| -> Fe<V, N> {
                core::array::from_fn(|limb| {
                    Digit::whole(V::from_lanes(&core::array::from_fn(|lane| {
                        coordinate(&multiples[lane])[limb].value().to_lanes()[0]
                    })))
                })
            };
            let (inverse, _) = invert::<V, C::Field, N>(&gather(|p| &p.z));
            let square = times::<V, C::Field, N>(&inverse, &inverse);
            let cube = times::<V, C::Field, N>(&square, &inverse);
            let x = times::<V, C::Field, N>(&gather(|p| &p.x), &square);
            let y = times::<V, C::Field, N>(&gather(|p| &p.y), &cube);
            let (words, at) = (&mut row[eight / 2 * 2 * N..], eight % 2 * 8);
            for limb in 0..N {
                words[limb][at..at + 8].copy_from_slice(&x[limb].value().to_lanes());
                words[N + limb][at..at + 8].copy_from_slice(&y[limb].value().to_lanes());
            }
        }
    }
    table
}

/// Computes the odd multiples of a point, and `2^width` times it.
struct BaseRow<'a, V: Lane8, C, const N: usize>(&'a Point<V, N>, usize, &'a mut [Point<V, N>], Marker<C>);

impl<V: Lane8, C: Curve<N>, const N: usize> Kernel<V> for BaseRow<'_, V, C, N> {
    type Out = Point<V, N>;

    #[inline(always)]
    fn run(self) -> Self::Out {
        let BaseRow(point, width, multiples, _) = self;
        let twice = point.double::<C::Field>();
        let mut multiple = *point;
        for out in multiples {
            *out = multiple;
            multiple = multiple.add::<C::Field, false>(&twice);
        }
        let mut next = twice;
        for _ in 1..width {
            next = next.double::<C::Field>();
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::super::curves::{P256, P384};
    use super::*;
    use crate::vector::Bound;

    /// A doubling and both additions, given the widest coordinates, return none that are wider.
    fn points_stay_within_bounds<C: Curve<N>, const N: usize>(top: u64, top_z: u64) {
        let element = |top: u64| -> Fe<Bound, N> {
            core::array::from_fn(|i| Digit::whole(Bound::upto(if i + 1 < N { MASK52 } else { top })))
        };
        let p = Point { x: element(top), y: element(top), z: element(top_z) };
        for q in [p.double::<C::Field>(), p.add::<C::Field, false>(&p), p.add::<C::Field, true>(&p)] {
            for (got, limit) in [(q.x, top), (q.y, top), (q.z, top_z)] {
                let got = got[N - 1].raw().high();
                assert!(got <= i128::from(limit), "{got:#x} over {limit:#x}");
            }
        }
        let mut q = p;
        q.negate_if::<C::Field>(());
        assert!(q.y[N - 1].raw().high() <= i128::from(top));
    }

    #[test]
    fn points_of_p256_stay_within_bounds() {
        // 2 m and 3 m, in units of 2^208.
        points_stay_within_bounds::<P256, 5>((2 << 48) + (1 << 24), 3 << 48);
    }

    #[test]
    fn points_of_p384_stay_within_bounds() {
        // 2 m and 5 m, in units of 2^364.
        points_stay_within_bounds::<P384, 8>((2 << 20) + (1 << 10), 5 << 20);
    }
}
