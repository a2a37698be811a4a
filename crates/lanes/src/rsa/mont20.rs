//! Twenty limbs (the primes of a 2048-bit key): the same arithmetic as [`super::mont`], whose header holds its bounds,
//! arranged so that one window of 21 columns stays in registers from the first row to the last.
//!
//! A row multiplies one digit by twenty: forty VPMADD52 for twenty loads. The next row's digit is completed first, so
//! that the chain of digits runs ahead of the bulk of the products.

use super::mont::{Modulus, part_mut, twenty};
use super::scan::{Beside, Shadow};
use crate::vector::{Digit, MASK52, Vector, repeat};

/// Where column `k` stands in a window of 21.
const fn at(k: usize) -> usize {
    k % 21
}

/// `columns = x^2`: products of unlike digits once; a column is doubled, and the square added, when it leaves the
/// window.
#[inline(always)]
pub(crate) fn square20<V: Vector>(columns: &mut [V; 40], x: &[Digit<V>; 20]) {
    let mut w = [V::splat(0); 42];
    columns[0] = V::splat(0).madd_lo(x[0], x[0]);
    repeat!(20, I => {
        let xi = x[I];
        repeat!(2, TEN => {
            repeat!(10, J => if 10 * TEN + J > I {
                w[I + 10 * TEN + J] = w[I + 10 * TEN + J].madd_lo(xi, x[10 * TEN + J]);
            });
            repeat!(10, J => if 10 * TEN + J > I {
                w[I + 10 * TEN + J + 1] = w[I + 10 * TEN + J + 1].madd_hi(xi, x[10 * TEN + J]);
            });
        });
        columns[2 * I + 1] = w[2 * I + 1].add(w[2 * I + 1]).madd_hi(xi, xi);
        if I < 19 {
            let next = x[(I + 1) % 20];
            columns[(2 * I + 2) % 40] = w[2 * I + 2].add(w[2 * I + 2]).madd_lo(next, next);
        }
        V::fence();
    });
}

/// `columns = x y`: a column is stored when it leaves the window.
#[inline(always)]
pub(crate) fn product20<V: Vector>(columns: &mut [V; 40], x: &[Digit<V>; 20], y: &[Digit<V>; 20]) {
    let mut w = [V::splat(0); 41];
    repeat!(20, I => {
        let xi = x[I];
        repeat!(2, TEN => {
            repeat!(10, J => w[I + 10 * TEN + J] = w[I + 10 * TEN + J].madd_lo(xi, y[10 * TEN + J]));
            repeat!(10, J => w[I + 10 * TEN + J + 1] = w[I + 10 * TEN + J + 1].madd_hi(xi, y[10 * TEN + J]));
        });
        columns[I] = w[I];
        V::fence();
    });
    repeat!(20, J => columns[20 + J] = w[20 + J]);
}

/// One row: drops column `i`, adds its digit times `fold` one column up. Column `i + 21` enters with what it has.
macro_rules! fold_row {
    ($w:ident, $i:ident, $modulus:ident, $entering:expr) => {
        let u = Digit::low($w[at($i)]);
        let carry = $w[at($i)].shr::<52>();
        $w[at($i + 1)] = $w[at($i + 1)].madd_lo(u, $modulus.fold[0]).add(carry);
        repeat!(4, FIVE => {
            repeat!(5, J => if 5 * FIVE + J > 0 {
                $w[at($i + 1 + 5 * FIVE + J)] = $w[at($i + 1 + 5 * FIVE + J)].madd_lo(u, $modulus.fold[5 * FIVE + J]);
            });
            repeat!(5, J => if 5 * FIVE + J < 19 {
                $w[at($i + 2 + 5 * FIVE + J)] = $w[at($i + 2 + 5 * FIVE + J)].madd_hi(u, $modulus.fold[5 * FIVE + J]);
            });
        });
        // The digit's own place in the window is free now.
        $w[at($i + 21)] = $entering.madd_hi(u, $modulus.fold[19]);
    };
}

/// The textbook's last row, and the carries into digits.
macro_rules! last_row {
    ($w:ident, $modulus:ident, $result:ident) => {
        let c = $w[at(19)];
        let u = Digit::low(V::splat(0).madd_lo(Digit::low(c), $modulus.k0));
        let mut carry = c.add(V::splat(MASK52)).shr::<52>();
        repeat!(4, FIVE => {
            repeat!(5, J => $w[at(20 + 5 * FIVE + J)] = $w[at(20 + 5 * FIVE + J)].madd_hi(u, $modulus.m[5 * FIVE + J]));
            repeat!(5, J => if 5 * FIVE + J < 19 {
                $w[at(20 + 5 * FIVE + J)] = $w[at(20 + 5 * FIVE + J)].madd_lo(u, $modulus.m[(5 * FIVE + J + 1) % 20]);
            });
            repeat!(5, J => {
                let t = $w[at(20 + 5 * FIVE + J)].add(carry);
                $result[5 * FIVE + J] = if 5 * FIVE + J < 19 { Digit::low(t) } else { Digit::whole(t) };
                carry = t.shr::<52>();
            });
        });
        // Nothing is carried out of the top digit.
        let _ = carry;
    };
}

/// `result = columns / R mod m`, and a part of a table is scanned beside: twenty digits of two lanes in ten rows.
#[inline(always)]
pub(crate) fn reduce20<V: Vector, S: Shadow<V, N>, const N: usize>(
    columns: &[V; 40],
    modulus: &Modulus<V, N>,
    result: &mut [Digit<V>; N],
    mut shadow: S,
) {
    let modulus = twenty(modulus);
    let mut w = [V::splat(0); 21];
    repeat!(20, J => w[J] = columns[J]);
    w[20] = columns[20];
    let mut beside = shadow.first();
    repeat!(19, I => {
        fold_row!(w, I, modulus, columns[I + 21]);
        if I < 10 {
            beside.row(0, I % 10);
            beside.row(10, I % 10);
        }
        V::fence();
    });
    let result: &mut [Digit<V>; 20] = part_mut(result, 0);
    last_row!(w, modulus, result);
}

/// `result = x y / R mod m`: a row of the product, then a row of the reduction.
#[inline(always)]
pub(crate) fn mul20<V: Vector>(
    x: &[Digit<V>; 20],
    y: &[Digit<V>; 20],
    modulus: &Modulus<V, 20>,
    result: &mut [Digit<V>; 20],
) {
    let mut w = [V::splat(0); 21];
    repeat!(20, I => {
        let xi = x[I];
        repeat!(4, FIVE => {
            repeat!(5, J => w[at(I + 5 * FIVE + J)] = w[at(I + 5 * FIVE + J)].madd_lo(xi, y[5 * FIVE + J]));
            repeat!(5, J => w[at(I + 5 * FIVE + J + 1)] = w[at(I + 5 * FIVE + J + 1)].madd_hi(xi, y[5 * FIVE + J]));
        });
        V::fence();
        if I < 19 {
            fold_row!(w, I, modulus, V::splat(0));
            V::fence();
        }
    });
    last_row!(w, modulus, result);
}
