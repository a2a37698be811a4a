//! Twenty limbs (the primes of a 2048-bit key): the same arithmetic as [`super::mont`], whose header states its bounds,
//! arranged so that one window of 21 columns stays in registers from the first row to the last.
//!
//! A row multiplies one digit by twenty: forty VPMADD52 for twenty loads, five low halves and then five high ones, so
//! that the two that meet in a column are not adjacent. The next row's digit is completed first, so that the chain of
//! digits runs ahead of most of the products.
//!
//! **Half a reduction** is enough for a product by a `y` for which `y / Y mod m` is known too, with `Y = 2^520` and `R
//! = Y^2` (as in Intel's crypto_mb):
//!
//! ```text
//! x y / R = (x_0 (y / Y) + x_1 y) / Y        with x = x_0 + x_1 Y:  800 products and ten rows.
//! ```
//!
//! Its bounds: `y / Y < 2^-506 y + 2 m`, and the product is below `y / Y + 2^-10 m + 2 m`, so below `5 m`.

use super::mont::Modulus;
use crate::vector::{Digit, MASK52, Vector, repeat};

/// The position of column `k` in a window of 21.
const fn at(k: usize) -> usize {
    k % 21
}

/// `columns = x^2`: products of different digits are computed once; a column is doubled, and the square added, when it
/// leaves the window.
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

/// One row of a product: adds a digit times `y` from column `i` on, to columns below `end`.
macro_rules! product_row {
    ($w:ident, $i:ident, $digit:expr, $y:ident, $end:literal) => {
        let digit = $digit;
        repeat!(4, FIVE => {
            repeat!(5, J => if $i + 5 * FIVE + J < $end {
                const K: usize = 5 * FIVE + J;
                $w[at($i + K)] = $w[at($i + K)].madd_lo(digit, $y[K]);
            });
            repeat!(5, J => if $i + 5 * FIVE + J + 1 < $end {
                const K: usize = 5 * FIVE + J;
                $w[at($i + K + 1)] = $w[at($i + K + 1)].madd_hi(digit, $y[K]);
            });
        });
    };
}

/// The contributions of the last two rows of a product, those of the digits `x`, to its last two columns.
#[inline(always)]
fn corner<V: Vector>([below, last]: [V; 2], x: [Digit<V>; 2], y: &[Digit<V>; 20]) -> [V; 2] {
    [below.madd_hi(x[0], y[19]).madd_lo(x[1], y[19]).madd_hi(x[1], y[18]), last.madd_hi(x[1], y[19])]
}

/// One row: drops column `i` and adds its digit times `fold` one column up. Column `i + 21` enters with its previous
/// contents.
macro_rules! fold_row {
    ($w:ident, $i:ident, $modulus:ident, $entering:expr) => {
        let u = Digit::low($w[at($i)]);
        let carry = $w[at($i)].shr::<52>();
        $w[at($i + 1)] = $w[at($i + 1)].madd_lo(u, $modulus.fold[0]).add(carry);
        repeat!(4, FIVE => {
            repeat!(5, J => if 5 * FIVE + J > 0 {
                const K: usize = 5 * FIVE + J;
                $w[at($i + 1 + K)] = $w[at($i + 1 + K)].madd_lo(u, $modulus.fold[K]);
            });
            repeat!(5, J => if 5 * FIVE + J < 19 {
                const K: usize = 5 * FIVE + J;
                $w[at($i + 2 + K)] = $w[at($i + 2 + K)].madd_hi(u, $modulus.fold[K]);
            });
        });
        // The place of the dropped digit in the window is free now.
        $w[at($i + 21)] = $entering.madd_hi(u, $modulus.fold[19]);
    };
}

/// The last three rows (`i`, the next, and the textbook's) and the carries into digits. These depend on one another,
/// two cycles per digit, so the three rows are interleaved, and a digit follows as soon as its column is complete. The
/// last two columns enter with their previous contents.
macro_rules! last_rows {
    ($w:ident, $i:literal, $modulus:ident, $entering:expr, $result:ident) => {
        let one = Digit::low($w[at($i)]);
        let mut carry = $w[at($i)].shr::<52>();
        let (mut two, mut last) = (one, one);
        let entering = $entering;
        repeat!(4, FIVE => {
            repeat!(5, J => {
                const K: usize = 5 * FIVE + J;
                $w[at($i + 1 + K)] = $w[at($i + 1 + K)].madd_lo(one, $modulus.fold[K]);
            });
            repeat!(5, J => {
                const K: usize = 5 * FIVE + J;
                let column = if K < 19 { $w[at($i + 2 + K)] } else { entering[0] };
                $w[at($i + 2 + K)] = column.madd_hi(one, $modulus.fold[K]);
            });
            if FIVE == 0 {
                let c = $w[at($i + 1)].add(carry);
                two = Digit::low(c);
                carry = c.shr::<52>();
            }
            repeat!(5, J => {
                const K: usize = 5 * FIVE + J;
                $w[at($i + 2 + K)] = $w[at($i + 2 + K)].madd_lo(two, $modulus.fold[K]);
            });
            if FIVE == 0 {
                let c = $w[at($i + 2)].add(carry);
                last = Digit::low(V::splat(0).madd_lo(Digit::low(c), $modulus.k0));
                carry = c.add(V::splat(MASK52)).shr::<52>();
            }
            repeat!(5, J => {
                const K: usize = 5 * FIVE + J;
                let column = if K < 19 { $w[at($i + 3 + K)] } else { entering[1] };
                $w[at($i + 3 + K)] = column.madd_hi(two, $modulus.fold[K]);
            });
            // All digits except the last two are complete but for the textbook's row.
            repeat!(5, J => if 5 * FIVE + J >= 2 {
                const K: usize = (5 * FIVE + J).saturating_sub(2);
                $w[at($i + 3 + K)] = $w[at($i + 3 + K)].madd_hi(last, $modulus.m[K]);
            });
            repeat!(5, J => if 5 * FIVE + J >= 2 {
                const K: usize = (5 * FIVE + J).saturating_sub(2);
                $w[at($i + 3 + K)] = $w[at($i + 3 + K)].madd_lo(last, $modulus.m[K + 1]);
            });
            repeat!(5, J => if 5 * FIVE + J >= 2 {
                const K: usize = (5 * FIVE + J).saturating_sub(2);
                let t = $w[at($i + 3 + K)].add(carry);
                $result[K] = Digit::low(t);
                carry = t.shr::<52>();
            });
            V::fence();
        });
        let t = $w[at($i + 21)].madd_hi(last, $modulus.m[18]).madd_lo(last, $modulus.m[19]).add(carry);
        $result[18] = Digit::low(t);
        // There is no carry out of the top digit.
        $result[19] = Digit::whole($w[at($i + 22)].madd_hi(last, $modulus.m[19]).add(t.shr::<52>()));
    };
}

/// `result = columns / R mod m`.
#[inline(always)]
pub(crate) fn reduce20<V: Vector>(columns: &[V; 40], modulus: &Modulus<V, 20>, result: &mut [Digit<V>; 20]) {
    let mut w = [V::splat(0); 21];
    repeat!(20, J => w[J] = columns[J]);
    w[20] = columns[20];
    repeat!(20, I => if I < 17 {
        fold_row!(w, I, modulus, columns[(I + 21) % 40]);
        V::fence();
    });
    last_rows!(w, 17, modulus, [columns[38], columns[39]], result);
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
        product_row!(w, I, x[I], y, 38);
        V::fence();
        if I < 17 {
            fold_row!(w, I, modulus, V::splat(0));
            V::fence();
        }
    });
    last_rows!(w, 17, modulus, corner([V::splat(0); 2], [x[18], x[19]], y), result);
}

/// `result = y / Y mod m`.
#[inline(always)]
pub(crate) fn half20<V: Vector>(y: &[Digit<V>; 20], modulus: &Modulus<V, 20>, result: &mut [Digit<V>; 20]) {
    let mut w = [V::splat(0); 21];
    repeat!(20, J => w[J] = y[J].value());
    repeat!(8, I => if I < 7 {
        fold_row!(w, I, modulus, V::splat(0));
        V::fence();
    });
    last_rows!(w, 7, modulus, [V::splat(0); 2], result);
}

/// `result = x y / R mod m`, from y and `y / Y`: two rows of products for each row of the reduction.
#[inline(always)]
pub(crate) fn mul20_by_halves<V: Vector>(
    x: &[Digit<V>; 20],
    [y, half]: [&[Digit<V>; 20]; 2],
    modulus: &Modulus<V, 20>,
    result: &mut [Digit<V>; 20],
) {
    let mut w = [V::splat(0); 21];
    repeat!(10, I => {
        product_row!(w, I, x[I], half, 28);
        V::fence();
        product_row!(w, I, x[10 + I], y, 28);
        V::fence();
        if I < 7 {
            fold_row!(w, I, modulus, V::splat(0));
            V::fence();
        }
    });
    let entering = corner(corner([V::splat(0); 2], [x[8], x[9]], half), [x[18], x[19]], y);
    last_rows!(w, 7, modulus, entering, result);
}
