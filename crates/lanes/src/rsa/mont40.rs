//! Forty limbs (the primes of a 4096-bit key, the modulus of a 2048-bit one): products of [`super::mont`] computed from
//! products of halves (Karatsuba 1962). With `Y = 2^1040`, where the number is split,
//!
//! ```text
//! (a + b Y) (c + d Y) = a c + ((a + b) (c + d) - a c - b d) Y + b d Y^2:
//! ```
//!
//! three products of twenty limbs instead of four, each in one window of columns as in [`super::mont20`]. The sum of
//! two halves is twenty limbs and one more bit, `s + e Y`; the products of e are added separately.
//!
//! **Columns** in the middle may be negative (but not their total, which is `a d + b c`), so the reduction shifts
//! arithmetically. None exceeds the columns of two products and of the reduction, `164 2^52`: the proofs of
//! [`super::mont`] include this code.

use super::mont::{Columns, part, part_mut};
use super::mont20::{product20, square20};
use crate::vector::{self, Digit, Vector, repeat};

/// `columns = x y`.
#[inline(always)]
pub(crate) fn product40<V: Vector>(columns: &mut Columns<V>, x: &[Digit<V>; 40], y: &[Digit<V>; 40]) {
    let (columns, sums) = columns.split_at_mut(120);
    let (of_x, of_y) = digits(sums).split_at_mut(20);
    let (of_x, of_y) = (part_mut(of_x, 0), part_mut(of_y, 0));
    let over = [halves_sum(x, of_x), halves_sum(y, of_y)];
    for (at, x, y) in [(0, part(x, 0), part(y, 0)), (40, part(x, 20), part(y, 20)), (80, &*of_x, &*of_y)] {
        product20(part_mut(columns, at), x, y);
    }
    combine(part_mut(columns, 0), of_x, of_y, over);
}

/// `columns = x^2`.
#[inline(always)]
pub(crate) fn square40<V: Vector>(columns: &mut Columns<V>, x: &[Digit<V>; 40]) {
    let (columns, sums) = columns.split_at_mut(120);
    let sum = part_mut(digits(sums), 0);
    let over = halves_sum(x, sum);
    for (at, x) in [(0, part(x, 0)), (40, part(x, 20)), (80, &*sum)] {
        square20(part_mut(columns, at), x);
    }
    combine(part_mut(columns, 0), sum, sum, [over; 2]);
}

/// The end of the columns, which holds sums of halves until their product is computed.
#[inline(always)]
fn digits<V: Vector>(columns: &mut [V]) -> &mut [Digit<V>] {
    // SAFETY: a digit is a transparent vector. Everything that is read was written as a digit.
    unsafe { &mut *(core::ptr::from_mut(columns) as *mut [Digit<V>]) }
}

vector::part! {
    /// Computes the sum of a number's halves, and returns the bit above it.
    fn halves_sum as HalvesSum<'a, V: Vector>(x: &'a [Digit<V>; 40], sum: &'a mut [Digit<V>; 20]) -> Digit<V> {
        let one = Digit::whole(V::splat(1));
        let mut carry = V::splat(0);
        repeat!(20, I => {
            // Multiplying by one gives the digit without any junk above it.
            let t = V::splat(0).madd_lo(x[I], one).madd_lo(x[20 + I], one).add(carry);
            sum[I] = Digit::low(t);
            carry = t.shr::<52>();
        });
        Digit::whole(carry)
    }
}

vector::part! {
    /// From the columns of the products of the lower halves, of the upper halves and of the sums, in this order,
    /// computes those of the whole product, which are the first 80. `over` are the bits above the two sums.
    fn combine as Combine<'a, V: Vector>(
        columns: &'a mut [V; 120],
        x: &'a [Digit<V>; 20],
        y: &'a [Digit<V>; 20],
        over: [Digit<V>; 2],
    ) {
        repeat!(20, I => {
            let t = columns[20 + I].sub(columns[40 + I]);
            let low = columns[80 + I].sub(columns[I]).add(t);
            let high = columns[100 + I].sub(columns[60 + I]).sub(t);
            columns[20 + I] = low;
            columns[40 + I] = high.madd_lo(y[I], over[0]).madd_lo(x[I], over[1]);
            V::fence();
        });
        columns[60] = columns[60].madd_lo(over[0], over[1]);
    }
}
