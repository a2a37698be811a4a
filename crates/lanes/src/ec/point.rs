//! Points of `y^2 = x^3 - 3 x + b` in Jacobian coordinates, and multiples of them by eight scalars.
//!
//! **Scalars** are odd (an even one is replaced by n minus it, and the sign turned) and written in digits of base 32
//! that are odd, from -31 to 31 (Joye, Tunstall 2009): `d_i = 2 v_i - 31` for the five bits v_i from bit `5 i + 1` on,
//! the last one `2 v + 1`. So no digit is zero, no sum starts from the neutral point, and the pattern never varies.
//!
//! **Exceptions.** The addition (as in Hankerson, Menezes, Vanstone, algorithm 3.22) is wrong only for P = +-Q. For a
//! running sum k' P, 0 < k' < n, and the next digit d, `32 k' = -d` mod n never holds, since the partial sums
//! `32 k' + d` stay in 1..n; and `32 k' = d` holds only for the scalars `n - 2 |d|`: sixteen of them. In that case
//! H = 0 and so Z = 0, from then on: the caller finds it in the result and answers `Exceptional`.
//!
//! **Bounds** in multiples of m (see [`super::field`]): coordinates below 2, z below 3 (P-384: 5); for P-256 every
//! operand of a product below 6. Where a difference is settled, the code says `settled`.

use super::curves::Curve;
use super::field::{Cols, Fe, Marker, Prime, columns, constant, invert, mul, select, sqr, times};
use crate::vector::{Digit, Kernel, Lane8, Vector, repeat};
use core::marker::PhantomData;

/// X / Z^2, Y / Z^3.
#[derive(Clone, Copy)]
pub(crate) struct Point<V, const N: usize> {
    pub(crate) x: Fe<V, N>,
    pub(crate) y: Fe<V, N>,
    pub(crate) z: Fe<V, N>,
}

impl<V: Vector, const N: usize> Point<V, N> {
    /// With z = 1.
    #[inline(always)]
    pub(crate) fn affine<P: Prime<N>>(x: Fe<V, N>, y: Fe<V, N>) -> Self {
        Point { x, y, z: constant(&P::ONE) }
    }

    #[inline(always)]
    pub(crate) fn double<P: Prime<N>>(&self) -> Self {
        let delta = sqr::<V, P, N>(&self.z);
        let less = columns(&self.x).sub::<P>(delta).settled::<P>();
        let more = columns(&self.x).add(delta).digits();
        V::fence();
        let alpha = mul::<V, P, N>(&less, &more);
        let alpha = alpha.twice().add(alpha).digits();
        let gamma = sqr::<V, P, N>(&self.y);
        let (gamma2, gamma4) = (gamma.twice().digits(), gamma.twice().twice().digits());
        V::fence();
        let beta4 = mul::<V, P, N>(&self.x, &gamma4);
        let x = sqr::<V, P, N>(&alpha).sub::<P>(beta4).sub::<P>(beta4).settled::<P>();
        let z = mul::<V, P, N>(&self.y, &self.z).twice().digits();
        V::fence();
        let d = beta4.sub::<P>(columns(&x)).settled::<P>();
        let y = mul::<V, P, N>(&alpha, &d).sub::<P>(mul::<V, P, N>(&gamma2, &gamma4)).settled::<P>();
        V::fence();
        Point { x, y, z }
    }

    /// The sum with another point; `MIXED` if its z is one.
    #[inline(always)]
    pub(crate) fn add<P: Prime<N>, const MIXED: bool>(&self, q: &Self) -> Self {
        let zz = sqr::<V, P, N>(&self.z).digits();
        let zzz = mul::<V, P, N>(&zz, &self.z).digits();
        let (u1, s1) = if MIXED {
            (columns(&self.x), columns(&self.y))
        } else {
            let qq = sqr::<V, P, N>(&q.z).digits();
            let qqq = mul::<V, P, N>(&qq, &q.z).digits();
            (mul::<V, P, N>(&self.x, &qq), mul::<V, P, N>(&self.y, &qqq))
        };
        V::fence();
        let h = mul::<V, P, N>(&q.x, &zz).sub::<P>(u1).settled::<P>();
        let r = mul::<V, P, N>(&q.y, &zzz).sub::<P>(s1).settled::<P>();
        let (u1, s1) = (u1.digits(), s1.digits());
        V::fence();
        let hh = sqr::<V, P, N>(&h).digits();
        let z = mul::<V, P, N>(&self.z, &h).digits();
        let z = if MIXED { z } else { mul::<V, P, N>(&z, &q.z).digits() };
        V::fence();
        let hhh = mul::<V, P, N>(&hh, &h);
        let v = mul::<V, P, N>(&u1, &hh);
        let x = sqr::<V, P, N>(&r).sub::<P>(hhh).sub::<P>(v).sub::<P>(v).settled::<P>();
        let d = v.sub::<P>(columns(&x)).settled::<P>();
        V::fence();
        let y = mul::<V, P, N>(&r, &d).sub::<P>(mul::<V, P, N>(&s1, &hhh.digits())).settled::<P>();
        V::fence();
        Point { x, y, z }
    }

    /// The negative, where the mask holds.
    #[inline(always)]
    fn negate_if<P: Prime<N>>(&mut self, mask: V::Mask) {
        let zero = Cols([V::splat(0); N]);
        let negative = zero.sub::<P>(columns(&self.y)).settled::<P>();
        self.y = select::<V, N>(mask, &self.y, &negative);
    }
}

/// Eight scalars in digits.
pub(crate) struct Digits<V: Lane8> {
    /// `(|d| - 1) / 2`, from 0 to 15.
    indices: Vec<V>,
    negative: Vec<V::Mask>,
}

impl<V: Lane8> Digits<V> {
    /// Of scalars from 1 to n - 1.
    pub(crate) fn new<C: Curve<N>, const N: usize>(scalars: &[[u64; N]; 8]) -> Self {
        let mut odd = [[0; N]; 8];
        let mut even = [0; 8];
        for lane in 0..8 {
            even[lane] = (scalars[lane][0] & 1).wrapping_sub(1);
            crate::limbs::sub(&C::Order::M, &scalars[lane], &mut odd[lane]);
            for (odd, limb) in odd[lane].iter_mut().zip(scalars[lane]) {
                *odd = limb ^ (even[lane] & (limb ^ *odd));
            }
        }
        let mut indices = Vec::with_capacity(C::DIGITS);
        let mut negative = Vec::with_capacity(C::DIGITS);
        for i in 0..C::DIGITS {
            let mut signs = 0;
            let index = core::array::from_fn(|lane| {
                let v = crate::limbs::window(&odd[lane], 5 * i + 1, 5);
                // 2 v - 31 is negative for v up to 15, and then (31 - 2 v - 1) / 2 = 15 - v; else v - 16.
                let below = if i + 1 < C::DIGITS { (v >> 4).wrapping_sub(1) } else { 0 };
                let top = if i + 1 < C::DIGITS { v.wrapping_sub(16) } else { v };
                signs |= ((below ^ even[lane]) as u8 & 1) << lane;
                (top ^ below) & 15
            });
            indices.push(V::from_lanes(&index));
            negative.push(V::mask_from_bits(signs));
        }
        zeroize::Zeroize::zeroize(&mut odd);
        Digits { indices, negative }
    }
}

impl<V: Lane8> Drop for Digits<V> {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.indices);
        self.negative.fill(V::mask_from_bits(0));
        core::hint::black_box(&mut self.negative);
    }
}

/// The entry that digit `i` names, with its sign. Every entry is read.
#[inline(always)]
fn scan<V: Lane8, C: Curve<N>, const N: usize>(table: &[Point<V, N>; 16], digits: &Digits<V>, i: usize) -> Point<V, N> {
    let mut p = table[0];
    let mut entry = V::splat(0);
    for q in table {
        let here = digits.indices[i].eq(entry);
        entry = entry.add(V::splat(1));
        p.x = select::<V, N>(here, &p.x, &q.x);
        p.y = select::<V, N>(here, &p.y, &q.y);
        p.z = select::<V, N>(here, &p.z, &q.z);
    }
    p.negate_if::<C::Field>(digits.negative[i]);
    p
}

/// The multiple of the generator that digit `i` names, with its sign: every entry is in the registers permuted.
#[inline(always)]
fn permute<V: Lane8, C: Curve<N>, const N: usize>(table: &[Row], digits: &Digits<V>, i: usize) -> Point<V, N> {
    let (row, index) = (&table[i], digits.indices[i]);
    let zero = constant(&[0; N]);
    let mut p = Point::affine::<C::Field>(zero, zero);
    repeat!(8, J => if J < N {
        p.x[J] = pick_word(&row[J], index);
        p.y[J] = pick_word(&row[(N + J) % 16], index);
    });
    p.negate_if::<C::Field>(digits.negative[i]);
    p
}

#[inline(always)]
fn pick_word<V: Lane8>(entries: &[u64; 16], index: V) -> Digit<V> {
    let (halves, _) = entries.as_chunks::<8>();
    Digit::whole(V::pick16(V::from_lanes(&halves[0]), V::from_lanes(&halves[1]), index))
}

/// Scalars times points that are on the curve and not neutral.
pub(crate) fn multiply<V: Lane8, C: Curve<N>, const N: usize>(digits: &Digits<V>, point: &Point<V, N>) -> Point<V, N> {
    V::enter(Multiply(digits, point, Marker::<C>(PhantomData)))
}

struct Multiply<'a, V: Lane8, C, const N: usize>(&'a Digits<V>, &'a Point<V, N>, Marker<C>);

impl<V: Lane8, C: Curve<N>, const N: usize> Kernel<V> for Multiply<'_, V, C, N> {
    type Out = Point<V, N>;

    #[inline(always)]
    fn run(self) -> Point<V, N> {
        let Multiply(digits, point, _) = self;
        let mut table = [*point; 16];
        let twice = point.double::<C::Field>();
        for i in 1..16 {
            table[i] = table[i - 1].add::<C::Field, false>(&twice);
        }
        let mut sum = scan::<V, C, N>(&table, digits, C::DIGITS - 1);
        for i in (0..C::DIGITS - 1).rev() {
            for _ in 0..5 {
                sum = sum.double::<C::Field>();
            }
            sum = sum.add::<C::Field, false>(&scan::<V, C, N>(&table, digits, i));
        }
        sum
    }
}

/// Of the odd multiples up to 31 of `32^row G`, each word's sixteen versions: x, then y.
pub(crate) type Row = [[u64; 16]; 16];

/// Scalars times the generator.
pub(crate) fn multiply_base<V: Lane8, C: Curve<N>, const N: usize>(digits: &Digits<V>, table: &[Row]) -> Point<V, N> {
    V::enter(MultiplyBase::<V, C, N>(digits, table, Marker::<C>(PhantomData)))
}

struct MultiplyBase<'a, V: Lane8, C, const N: usize>(&'a Digits<V>, &'a [Row], Marker<C>);

impl<V: Lane8, C: Curve<N>, const N: usize> Kernel<V> for MultiplyBase<'_, V, C, N> {
    type Out = Point<V, N>;

    #[inline(always)]
    fn run(self) -> Point<V, N> {
        let (digits, table) = (self.0, self.1);
        let mut sum = permute::<V, C, N>(table, digits, C::DIGITS - 1);
        for i in (0..C::DIGITS - 1).rev() {
            sum = sum.add::<C::Field, true>(&permute::<V, C, N>(table, digits, i));
        }
        sum
    }
}

/// Computes the generator's table: a few milliseconds on AVX-512.
pub(crate) fn base_table<V: Lane8, C: Curve<N>, const N: usize>() -> Vec<Row> {
    let r2 = constant(&C::Field::R2);
    let mut point = Point::<V, N>::affine::<C::Field>(
        times::<V, C::Field, N>(&constant(&C::X), &r2),
        times::<V, C::Field, N>(&constant(&C::Y), &r2),
    );
    let mut table = vec![[[0; 16]; 16]; C::DIGITS];
    for row in &mut table {
        let (multiples, next) = V::enter(BaseRow(&point, Marker::<C>(PhantomData)));
        point = next;
        // Every lane holds the same: entry j of half a row moves to lane j.
        for half in 0..2 {
            let gather = |coordinate: fn(&Point<V, N>) -> &Fe<V, N>| -> Fe<V, N> {
                core::array::from_fn(|limb| {
                    Digit::whole(V::from_lanes(&core::array::from_fn(|lane| {
                        coordinate(&multiples[8 * half + lane])[limb].value().to_lanes()[0]
                    })))
                })
            };
            let inverse = invert::<V, C::Field, N>(&gather(|p| &p.z));
            let square = times::<V, C::Field, N>(&inverse, &inverse);
            let cube = times::<V, C::Field, N>(&square, &inverse);
            let x = times::<V, C::Field, N>(&gather(|p| &p.x), &square);
            let y = times::<V, C::Field, N>(&gather(|p| &p.y), &cube);
            for limb in 0..N {
                row[limb][8 * half..8 * half + 8].copy_from_slice(&x[limb].value().to_lanes());
                row[N + limb][8 * half..8 * half + 8].copy_from_slice(&y[limb].value().to_lanes());
            }
        }
    }
    table
}

/// The odd multiples up to 31 of a point, and 32 times it.
struct BaseRow<'a, V: Lane8, C, const N: usize>(&'a Point<V, N>, Marker<C>);

impl<V: Lane8, C: Curve<N>, const N: usize> Kernel<V> for BaseRow<'_, V, C, N> {
    type Out = ([Point<V, N>; 16], Point<V, N>);

    #[inline(always)]
    fn run(self) -> Self::Out {
        let twice = self.0.double::<C::Field>();
        let mut multiples = [*self.0; 16];
        for i in 1..16 {
            multiples[i] = multiples[i - 1].add::<C::Field, false>(&twice);
        }
        let mut next = twice;
        for _ in 0..4 {
            next = next.double::<C::Field>();
        }
        (multiples, next)
    }
}

#[cfg(test)]
mod tests {
    use super::super::curves::{P256, P384};
    use super::*;
    use crate::vector::{Bound, MASK52};

    /// A doubling and both additions of the widest coordinates stay within them, whatever the input.
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
        // 2 m and 3 m, at 2^208.
        points_stay_within_bounds::<P256, 5>((2 << 48) + (1 << 24), 3 << 48);
    }

    #[test]
    fn points_of_p384_stay_within_bounds() {
        // 2 m and 5 m, at 2^364.
        points_stay_within_bounds::<P384, 8>((2 << 20) + (1 << 10), 5 << 20);
    }
}
