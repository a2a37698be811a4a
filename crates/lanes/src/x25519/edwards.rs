//! Multiples of the base point, on the birationally equivalent Edwards curve -x^2 + y^2 = 1 + d x^2 y^2.
//!
//! A scalar is written as 64 signed digits of base 16, from -8 to 8. Of a table of `(1..=8) 256^i B`, the odd digits'
//! entries are added, the sum is multiplied by 16, and the even digits' entries are added: 64 additions, 4 doublings.
//! A row of the table is eight entries of fifteen words: each word's eight versions lie side by side in one register,
//! from which every lane picks its own by a permutation, so no address depends on a digit. The addition (Hisil, Wong,
//! Carter, Dawson 2008, with `a = -1`) is complete on this curve: there are no exceptions. The table is computed when
//! first used, by these same kernels.
//!
//! Bounds: those of [`super::field`]. Tests: `points_stay_within_bounds`, and all of `x25519`.

use super::field::{Cols, Fe, columns, constant, freeze, invert, mul, mul_lifted, select, sqr, sqr_lifted, times};
use crate::vector::{Digit, Lane8, Vector, kernel, repeat};

/// One to eight times a point: `y + x`, `y - x` and `2 d x y`, five limbs each, with the eight versions side by side.
pub(crate) type Row = [[u64; 8]; 15];

/// `(1..=8) 256^i B` for i below 32.
pub(crate) type Table = [Row; 32];

/// `2 d`.
const D2: [u64; 5] = [0x69b9426b2f159, 0x9a8283b156ebd, 0xef3d13000e014, 0xfce7198e80f2e, 0x2406d9dc56df];
/// `y + x`, `y - x` and `x y` of the base point (RFC 8032, section 5.1).
const BASE: [[u64; 5]; 3] = [
    [0xc93c6f58c3b85, 0xc6fb8c0e192fb, 0x43d42c2cf932d, 0xba65270b48986, 0x7cf9d3a33d4],
    [0x3905d740913e, 0x5d140beb39d1, 0x88f8a09fd399f, 0x1267a5c184346, 0x44fd2f9298f8],
    [0xe8ab3a5b7dda3, 0x80775152f56dd, 0x4abe37d20f09f, 0x766566ea4e8e6, 0x67875f0fd78b],
];

/// A point in extended coordinates (X : Y : Z : T), in the form that the next operation needs: `Y + X`, `Y - X`, Z
/// (lifted) and T.
#[derive(Clone, Copy)]
pub(crate) struct Point<V> {
    sum: Fe<V>,
    difference: Fe<V>,
    z: Cols<V>,
    t: Fe<V>,
}

/// A point to be added: `Y + X`, `Y - X`, `2 d T`.
#[derive(Clone, Copy)]
pub(crate) struct Addend<V> {
    sum: Fe<V>,
    difference: Fe<V>,
    t2d: Fe<V>,
}

impl<V: Vector> Point<V> {
    fn neutral() -> Self {
        let one = constant([1, 0, 0, 0, 0]);
        Point { sum: one, difference: one, z: columns(&one).lifted(), t: constant([0; 5]) }
    }

    /// X = E F, Y = G H, Z = F G, T = E H.
    #[inline(always)]
    fn complete(e: Fe<V>, f: Fe<V>, g: Fe<V>, h: Fe<V>) -> Self {
        let x = mul(&e, &f);
        let y = mul_lifted(&g, &h);
        let sum = y.add(x).digits();
        let difference = y.sub(x).digits();
        V::fence();
        Point { sum, difference, z: mul_lifted(&f, &g), t: mul(&e, &h).digits() }
    }

    /// Adds an addend, or subtracts it where `negative`; `twice_z`, lifted, is twice the product of its Z and ours.
    #[inline(always)]
    fn add(&self, q: &Addend<V>, negative: V::Mask, twice_z: Cols<V>) -> Self {
        // Negating a point negates x and T: sum and difference change places, and so do F and G.
        let a = mul(&self.difference, &select::<V>(negative, &q.difference, &q.sum));
        let b = mul_lifted(&self.sum, &select::<V>(negative, &q.sum, &q.difference));
        let e = b.sub(a).digits();
        let h = b.add(a).digits();
        V::fence();
        let c = mul(&self.t, &q.t2d);
        let (less, more) = (twice_z.sub(c).digits(), twice_z.add(c).digits());
        let f = select::<V>(negative, &less, &more);
        let g = select::<V>(negative, &more, &less);
        V::fence();
        Self::complete(e, f, g, h)
    }

    /// From `S = Y + X` and `D = Y - X`: E = S^2 - D^2, H = S^2 + D^2, G = 2 S D, F = 4 Z^2 - G. These are twice those
    /// of the published doubling (with E = 2 X Y and so on), and with the signs of F and H changed, which changes those
    /// of X, Y, Z and T.
    #[inline(always)]
    fn double(&self) -> Self {
        let s = sqr_lifted(&self.sum);
        let d = sqr(&self.difference);
        let e = s.sub(d).digits();
        let h = s.add(d).digits();
        V::fence();
        let sd = mul(&self.sum, &self.difference);
        let g = sd.add(sd).digits();
        let z = sqr_lifted(&self.z.digits());
        let z = z.add(z);
        let f = z.add(z).sub(sd).sub(sd).digits();
        V::fence();
        Self::complete(e, f, g, h)
    }
}

/// For a scalar below 2^255, 64 digits of four bits, each of which, except the last, is 8 more than the signed digit:
/// adding 8 to each digit and propagating carries gives them.
pub(crate) fn signed_digits(scalar: &[u64; 4]) -> [u64; 4] {
    let mut sum = 0;
    core::array::from_fn(|i| {
        let eights = (u64::MAX / 15 * 8) >> if i < 3 { 0 } else { 4 };
        sum = (sum >> 64) + u128::from(scalar[i]) + u128::from(eights);
        sum as u64
    })
}

impl<V: Lane8> Addend<V> {
    /// A row's point times `digit - above`, which is from -8 to 8: the multiple by its magnitude, and the lanes to be
    /// negated.
    #[inline(always)]
    fn multiple(row: &Row, digit: V, above: u64) -> (Self, V::Mask) {
        let signed = digit.sub(V::splat(above));
        let negative = signed.negative();
        // Indices count from 1: -1 is ...1111, the low bits of whose complement are 0.
        let index = signed.sub(V::splat(1)).or_if(negative, V::splat(u64::MAX).sub(signed));
        let none = signed.eq(V::splat(0));
        let [one, zero] = [constant([1, 0, 0, 0, 0]), constant([0; 5])];
        let mut q = Addend { sum: one, difference: one, t2d: zero };
        repeat!(5, J => {
            q.sum[J] = Digit::whole(V::pick8(V::from_lanes(&row[J]), index)).or_if(none, q.sum[J]);
            q.difference[J] = Digit::whole(V::pick8(V::from_lanes(&row[5 + J]), index)).or_if(none, q.difference[J]);
            q.t2d[J] = Digit::whole(V::pick8(V::from_lanes(&row[10 + J]), index)).or_if(none, q.t2d[J]);
        });
        (q, negative)
    }
}

kernel! {
    /// Multiples of the base point by [`signed_digits`]: the u-coordinate on Montgomery's curve, (Z + Y) / (Z - Y), as
    /// a fraction.
    fn fixed_base as FixedBase<'a, V: Lane8>(
        table: &'a Table,
        scalars: &'a [V; 4],
        numerator: &'a mut Fe<V>,
        denominator: &'a mut Fe<V>,
    ) {
        let mut p = Point::<V>::neutral();
        for odd in [1, 0] {
            for (i, row) in table.iter().enumerate() {
                let at = 2 * i + odd;
                let digit = scalars[at / 16].shr_by(4 * (at as u32 % 16)).and(V::splat(15));
                let (q, negative) = Addend::multiple(row, digit, if at < 63 { 8 } else { 0 });
                p = p.add(&q, negative, p.z.add(p.z));
            }
            for _ in 0..4 * odd {
                p = p.double();
            }
        }
        let z = p.z.add(p.z);
        let y = columns(&p.sum).add(columns(&p.difference));
        *numerator = z.add(y).digits();
        *denominator = z.sub(y).digits();
    }
}

kernel! {
    /// Computes `table[row]` from 256^row B in every lane, and the point for the next row.
    fn extend_table as ExtendTable<'a, V: Lane8>(point: &'a mut Point<V>, multiples: &'a mut Point<V>) {
        let d2 = constant(D2);
        let q = Addend {
            sum: point.sum,
            difference: point.difference,
            t2d: mul(&point.t, &d2).digits(),
        };
        let z = point.z.digits();
        // Lane j gets j + 1 times the point, by doubling and adding.
        let mut p = Point::neutral();
        for bits in [0b1000_0000, 0b0111_1000, 0b0110_0110, 0b0101_0101] {
            p = p.double();
            let product = mul_lifted(&p.z.digits(), &z);
            let sum = p.add(&q, V::mask_from_bits(0), product.add(product));
            let here = V::mask_from_bits(bits);
            p.sum = select::<V>(here, &p.sum, &sum.sum);
            p.difference = select::<V>(here, &p.difference, &sum.difference);
            p.t = select::<V>(here, &p.t, &sum.t);
            for i in 0..5 {
                p.z.0[i] = p.z.0[i].or_if(here, sum.z.0[i]);
            }
        }
        *multiples = p;
        for _ in 0..8 {
            *point = point.double();
        }
    }
}

/// Computes the table, which takes about a quarter of a millisecond on AVX-512.
pub(crate) fn table<V: Lane8>() -> Box<Table> {
    let mut table: Box<Table> = vec![[[0; 8]; 15]; 32].try_into().expect("there are 32 rows");
    let [sum, difference, t] = BASE.map(constant);
    let mut point = Point::<V> { sum, difference, z: columns(&constant([1, 0, 0, 0, 0])).lifted(), t };
    for row in table.iter_mut() {
        let mut p = Point::neutral();
        extend_table(&mut point, &mut p);
        let inverse = invert(&p.z.digits());
        let mut t2d = constant([0; 5]);
        times(&p.t, &constant(D2), &mut t2d);
        for (part, coordinate) in [p.sum, p.difference, t2d].iter().enumerate() {
            let mut affine = constant([0; 5]);
            times(coordinate, &inverse, &mut affine);
            freeze(&mut affine);
            for (limb, digit) in affine.iter().enumerate() {
                row[5 * part + limb] = digit.value().to_lanes();
            }
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::field::tests::{assert_within_bounds, widest};
    use super::*;
    use crate::vector::Bound;

    #[test]
    fn points_stay_within_bounds() {
        let addend = Addend { sum: widest(), difference: widest(), t2d: widest() };
        let mut p = Point::<Bound>::neutral();
        for _ in 0..8 {
            p = p.double();
            p = p.add(&addend, (), p.z.add(p.z));
            for coordinate in [p.sum, p.difference, p.t] {
                assert_within_bounds(&coordinate);
            }
        }
        let y = columns(&p.sum).add(columns(&p.difference));
        assert_within_bounds(&p.z.add(p.z).sub(y).digits());
    }
}
