//! Montgomery's ladder (RFC 7748, section 5) on eight points by eight scalars.
//!
//! Departures from the RFC's pseudo-code: the conditional swap is reduced to a choice of what is doubled, since
//! swapping the two points only exchanges DA with CB, which leaves `DA + CB` and `(DA - CB)^2` as they were. And the
//! sums A, B, C, D and E are formed in columns, before the carries.

use super::field::{Cols, Fe, columns, constant, mul, select, sqr};
use crate::vector::{Vector, kernel};

kernel! {
    /// `x / z` is the u-coordinate of scalar times the point with u-coordinate `u`, which carries no junk. `bits` are
    /// those of clamped scalars, the lowest first: the top one, 255, and the lowest three are zero.
    fn ladder as Ladder<'a, V: Vector>(u: &'a Fe<V>, bits: &'a [V::Mask; 256], x: &'a mut Fe<V>, z: &'a mut Fe<V>) {
        // The point to double and, one point more, the sum: infinity (1 : 0) and the point itself (u : 1).
        let mut double: [Cols<V>; 2] = [columns(&constant([1, 0, 0, 0, 0])), columns(&constant([0; 5]))];
        let mut sum: [Cols<V>; 2] = [columns(u), columns(&constant([1, 0, 0, 0, 0]))];
        for i in (0..255).rev() {
            let a = double[0].add(double[1]).digits();
            let b = double[0].sub(double[1]).digits();
            let c = sum[0].add(sum[1]).digits();
            let d = sum[0].sub(sum[1]).digits();
            let swap = V::mask_xor(bits[i], bits[i + 1]);
            let p = select::<V>(swap, &a, &c);
            let q = select::<V>(swap, &b, &d);
            let aa = sqr(&p);
            let bb = sqr(&q);
            V::fence();
            let da = mul(&d, &a);
            let cb = mul(&c, &b);
            let s = da.add(cb).digits();
            let t = da.sub(cb).digits();
            V::fence();
            let e = aa.sub(bb).digits();
            let w = aa.add_a24(&e).digits();
            let t2 = sqr(&t).digits();
            V::fence();
            double = [mul(&aa.digits(), &bb.digits()), mul(&e, &w)];
            V::fence();
            sum = [sqr(&s), mul(u, &t2)];
            V::fence();
        }
        *x = double[0].digits();
        *z = double[1].digits();
    }
}
