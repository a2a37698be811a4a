//! Montgomery's ladder (RFC 7748, section 5) on eight points by eight scalars.
//!
//! Departures from the RFC's pseudo-code: the conditional swap is reduced to choosing which point is doubled, because
//! swapping the two points only exchanges DA with CB, which does not change `DA + CB` and `(DA - CB)^2`. The sums A, B,
//! C, D and E are formed in columns, before the carries.

use super::field::{Cols, Fe, columns, constant, mul, mul_lifted, select, sqr, sqr_lifted};
use crate::vector::{Vector, kernel};

kernel! {
    /// Computes scalar times the point with u-coordinate `u` (without junk): `x / z` is the result's u-coordinate.
    /// `swaps` says where bits i and i + 1 of the scalars differ; scalars are clamped, so their lowest three bits and
    /// bit 255 are zero.
    fn ladder as Ladder<'a, V: Vector>(u: &'a Fe<V>, swaps: &'a [V::Mask; 255], x: &'a mut Fe<V>, z: &'a mut Fe<V>) {
        // The point to double, and that point plus the given one: infinity (1 : 0) and the point itself (u : 1).
        let mut double: [Cols<V>; 2] = [columns(&constant([1, 0, 0, 0, 0])).lifted(), columns(&constant([0; 5]))];
        let mut sum: [Cols<V>; 2] = [columns(u).lifted(), columns(&constant([1, 0, 0, 0, 0]))];
        for &swap in swaps.iter().rev() {
            let a = double[0].add(double[1]).digits();
            let b = double[0].sub(double[1]).digits();
            let c = sum[0].add(sum[1]).digits();
            let d = sum[0].sub(sum[1]).digits();
            let p = select::<V>(swap, &a, &c);
            let q = select::<V>(swap, &b, &d);
            let aa = sqr_lifted(&p);
            let bb = sqr(&q);
            V::fence();
            let da = mul_lifted(&d, &a);
            let cb = mul(&c, &b);
            let s = da.add(cb).digits();
            let t = da.sub(cb).digits();
            V::fence();
            let e = aa.sub(bb).digits();
            let w = aa.add_a24(&e).digits();
            let t2 = sqr(&t).digits();
            V::fence();
            double = [mul_lifted(&aa.digits(), &bb.digits()), mul(&e, &w)];
            V::fence();
            sum = [sqr_lifted(&s), mul(u, &t2)];
            V::fence();
        }
        *x = double[0].digits();
        *z = double[1].digits();
    }
}

#[cfg(test)]
mod tests {
    use super::super::field::tests::{assert_within_bounds, widest};
    use super::*;

    /// Runs the whole ladder on intervals, for every point and scalar.
    #[test]
    fn the_ladder_stays_within_bounds() {
        let (mut x, mut z) = (widest(), widest());
        ladder(&widest(), &[(); 255], &mut x, &mut z);
        assert_within_bounds(&x);
        assert_within_bounds(&z);
    }
}
