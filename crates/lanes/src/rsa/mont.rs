//! Montgomery multiplication modulo the primes and moduli of RSA: eight moduli at once, N limbs of 52 bits each.
//!
//! Computes `a b / R mod m` with `R = 2^(52 N)`, for m odd and below `2^(52 N - 16)`. Not fully reduced: operands and
//! results are below `2^(52 N - 13)`, as their top limb shows.
//!
//! **Reduction.** The textbook row (Montgomery 1985) multiplies the lowest column c by `k0 = -m^-1 mod 2^52`, adds `(c
//! k0 mod 2^52) m`, and so has to wait for one multiplication to know the factor of the next. Here the row adds `c (k0
//! m)` instead: since `k0 m = f 2^52 - 1`, that means *dropping* the digit c and adding `c f` one column up. There is
//! no k0 in the loop, one carry less, and the chain from row to row is one multiplication instead of two. The price is
//! growth: `k0 m` may be 2^52 times m. So row i < N - 1 adds less than `2^52 2^(52 i) 2^52 m`, all of these rows
//! together less than `R m 2^0`, and the last row is the textbook's, adding less than `R m`. Hence
//!
//! ```text
//! result < a b / R + 2 m,        with a, b < 8 m and m < 2^-16 R:  result < 2 m + 2^-10 m.
//! ```
//!
//! Twenty and forty limbs are arranged differently: [`super::mont20`], and the products of [`super::mont40`].
//!
//! **Columns.** A column collects at most 2 N low or high halves from the product (a doubled one counts twice), 2 N
//! from the reduction, and a carry: below `4 N 2^52 + 2^12`, which for N = 80 is `2^60.4`. No carry is needed before
//! the end. [`Bound`](crate::vector::Bound) proves it: `no_column_overflows_in_primes`,
//! `no_column_overflows_in_moduli`.
//!
//! **Order.** A row adds its ten low halves first, then its ten high ones, so that the two that meet in a column are
//! ten multiplications apart, which is longer than one takes (adding them in pairs was 2 % slower). The columns that a
//! row shares with the next stay in registers through a whole pass, in the product and in the reduction: a store
//! alongside multiplications costs most of a cycle (storing and loading the window every ten rows was 3 % slower).
//!
//! **Time** depends only on N. Tests: those above, `products_agree_with_big_integers_in_every_size`, and all of
//! `tests/rsa.rs`.

use super::mont20::{half20, mul20, mul20_by_halves, reduce20, square20};
use super::mont40::{product40, square40};
use super::table::{Ahead, WINDOW};
use crate::vector::{self, Digit, Lane8, MASK52, Vector, kernel, repeat};
use zeroize::Zeroize;

/// Eight moduli.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Modulus<V, const N: usize> {
    /// The moduli themselves.
    pub(crate) m: [Digit<V>; N],
    /// `(k0 m + 1) / 2^52`.
    pub(crate) fold: [Digit<V>; N],
    /// `-m^-1 mod 2^52`.
    pub(crate) k0: Digit<V>,
}

impl<V: Vector, const N: usize> Zeroize for Modulus<V, N> {
    fn zeroize(&mut self) {
        self.m.zeroize();
        self.fold.zeroize();
        self.k0.zeroize();
    }
}

/// `modulus`, as one whose `N` is known to be twenty; panics if it is not.
#[inline(always)]
pub(crate) fn twenty<V: Vector, const N: usize>(modulus: &Modulus<V, N>) -> &Modulus<V, 20> {
    assert!(N == 20);
    // SAFETY: the same type, as just asserted.
    unsafe { &*core::ptr::from_ref(modulus).cast() }
}

/// Columns between a product and its reduction, reused from call to call: enough for the largest modulus, and
/// for the three products and two sums of [`super::mont40`].
pub(crate) type Columns<V> = [V; 160];

/// `L` adjacent elements of a slice. Lengths and positions are constants once a kernel is compiled, so nothing remains
/// of the check (`kernels_have_no_call_gather_division_or_undocumented_jump` would find its panic).
#[inline(always)]
pub(crate) fn part<T, const L: usize>(all: &[T], at: usize) -> &[T; L] {
    all[at..].first_chunk().expect("the part lies within the slice")
}

/// `L` adjacent elements of a slice, like [`part`], for writing.
#[inline(always)]
pub(crate) fn part_mut<T, const L: usize>(all: &mut [T], at: usize) -> &mut [T; L] {
    all[at..].first_chunk_mut().expect("the part lies within the slice")
}

/// Asserts that a number consists of blocks of ten limbs, and that a product fits into [`Columns`].
const fn sized<const N: usize>() {
    assert!(N.is_multiple_of(10) && 2 * N <= 160);
}

vector::part! {
    /// Adds to `columns` the product of ten digits `x` and ten digits `y`, the latter in registers (or nine, if there
    /// are 19 columns). `window` holds the columns shared with the previous rows; on return, those shared with the
    /// following rows. If `FRESH` is 1, nothing has been added yet to the columns that enter.
    fn ten_rows as TenRows<'a, V: Vector, const FRESH: usize, const LEN: usize>(
        columns: &'a mut [V; LEN],
        window: [V; 10],
        x: &'a [Digit<V>; 10],
        y: &'a [Digit<V>; 10],
    ) -> [V; 10] {
        let width = LEN - 10;
        let mut w = [V::splat(0); 20];
        repeat!(10, J => if J < width { w[J] = window[J] });
        repeat!(10, I => {
            if FRESH == 0 {
                w[I + width] = columns[I + width];
            }
            let x = x[I];
            repeat!(10, J => if J < width { w[I + J] = w[I + J].madd_lo(x, y[J]) });
            repeat!(10, J => if J < width { w[I + J + 1] = w[I + J + 1].madd_hi(x, y[J]) });
            columns[I] = w[I];
            V::fence();
        });
        let mut out = [V::splat(0); 10];
        repeat!(10, J => if J < width { out[J] = w[10 + J] });
        out
    }
}

/// `columns = x y`.
#[inline(always)]
fn product<V: Vector, const N: usize>(columns: &mut Columns<V>, x: &[Digit<V>; N], y: &[Digit<V>; N]) {
    for yb in (0..N).step_by(10) {
        let ys: [Digit<V>; 10] = *part(y, yb);
        let mut window = if yb == 0 { [V::splat(0); 10] } else { *part(columns, yb) };
        for xb in (0..N).step_by(10) {
            let (at, xs) = (part_mut(columns, xb + yb), part(x, xb));
            // The first pass enters all columns except the last ten of each later pass.
            window = if yb == 0 || xb + 10 == N {
                ten_rows::<V, 1, 20>(at, window, xs, &ys)
            } else {
                ten_rows::<V, 0, 20>(at, window, xs, &ys)
            };
        }
        *part_mut(columns, N + yb) = window;
    }
}

/// `columns = x^2`: products of different digits are computed once, and doubled when the squares are added.
#[inline(always)]
fn square<V: Vector, const N: usize>(columns: &mut Columns<V>, x: &[Digit<V>; N]) {
    for yb in (0..N).step_by(10) {
        let ys: [Digit<V>; 10] = *part(x, yb);
        let mut window = if yb == 0 { [V::splat(0); 10] } else { *part(columns, yb) };
        for xb in (0..yb).step_by(10) {
            let (at, xs) = (part_mut(columns, xb + yb), part(x, xb));
            window = if xb + 10 == yb {
                ten_rows::<V, 1, 20>(at, window, xs, &ys)
            } else {
                ten_rows::<V, 0, 20>(at, window, xs, &ys)
            };
        }
        triangle(part_mut(columns, 2 * yb), window, &ys);
    }
    for b in (0..N).step_by(10) {
        let xs: [Digit<V>; 10] = *part(x, b);
        let columns: &mut [V; 20] = part_mut(columns, 2 * b);
        repeat!(10, I => {
            columns[2 * I] = columns[2 * I].add(columns[2 * I]).madd_lo(xs[I], xs[I]);
            columns[2 * I + 1] = columns[2 * I + 1].add(columns[2 * I + 1]).madd_hi(xs[I], xs[I]);
            V::fence();
        });
    }
}

vector::part! {
    /// The products `x_i x_j`, i < j, of ten digits.
    fn triangle as Triangle<'a, V: Vector>(columns: &'a mut [V; 20], window: [V; 10], x: &'a [Digit<V>; 10]) {
        let mut w = [V::splat(0); 20];
        repeat!(10, J => w[J] = window[J]);
        repeat!(10, I => {
            repeat!(10, J => if J > I {
                w[I + J] = w[I + J].madd_lo(x[I], x[J]);
                w[I + J + 1] = w[I + J + 1].madd_hi(x[I], x[J]);
            });
        });
        repeat!(20, J => columns[J] = w[J]);
    }
}

vector::part! {
    /// Ten rows of the reduction (nine in the last block) with the ten lowest digits of `fold`. Returns the digits that
    /// they drop, and the columns shared with the following rows.
    fn fold_rows as FoldRows<'a, V: Vector, const ROWS: usize>(
        columns: &'a mut [V; 21],
        fold: &'a [Digit<V>; 10],
    ) -> ([Digit<V>; 10], [V; 10]) {
        // Loaded once: after each fence LLVM would load them again, all rows' at the start, and spill them.
        let fold = *fold;
        let mut u = [Digit::whole(V::splat(0)); 10];
        let mut w = [V::splat(0); 21];
        repeat!(10, J => w[J] = columns[J]);
        w[10] = columns[10];
        repeat!(10, I => if I < ROWS {
            u[I] = Digit::low(w[I]);
            w[I + 1] = w[I + 1].madd_lo(u[I], fold[0]).add(w[I].sar::<52>());
            w[I + 11] = columns[I + 11];
            repeat!(10, J => if J > 0 { w[I + 1 + J] = w[I + 1 + J].madd_lo(u[I], fold[J]) });
            repeat!(10, J => w[I + 2 + J] = w[I + 2 + J].madd_hi(u[I], fold[J]));
            V::fence();
        });
        columns[9] = w[9];
        columns[10] = w[10];
        let mut window = [V::splat(0); 10];
        repeat!(10, J => if J < ROWS { window[J] = w[11 + J] });
        (u, window)
    }
}

/// `result = columns / R mod m`.
#[inline(always)]
fn reduce<V: Vector, const N: usize>(columns: &mut Columns<V>, modulus: &Modulus<V, N>, result: &mut [Digit<V>; N]) {
    if N == 20 {
        reduce20(part(columns, 0), twenty(modulus), part_mut(result, 0));
        return;
    }
    for b in (0..N - 10).step_by(10) {
        let (u, mut window) = fold_rows::<V, 10>(part_mut(columns, b), part(&modulus.fold, 0));
        for at in (10..N).step_by(10) {
            let (columns, fold) = (part_mut(columns, b + 1 + at), part(&modulus.fold, at));
            window = ten_rows::<V, 0, 20>(columns, window, fold, &u);
        }
        *part_mut(columns, b + 1 + N) = window;
    }
    reduce_last_block(columns, modulus, result);
}

/// The last nine rows, the textbook's row, and the carries into digits: ten digits as soon as their columns are
/// complete, so that the remaining rows, and later work, do not wait for the chain of carries.
#[inline(always)]
fn reduce_last_block<V: Vector, const N: usize>(
    columns: &mut Columns<V>,
    modulus: &Modulus<V, N>,
    result: &mut [Digit<V>; N],
) {
    let b = N - 10;
    let (u, mut window) = fold_rows::<V, 9>(part_mut(columns, b), part(&modulus.fold, 0));
    let c = columns[N - 1];
    let last = Digit::low(V::splat(0).madd_lo(Digit::low(c), modulus.k0));
    // The column's low digit becomes zero: its carry is c / 2^52, rounded up.
    let mut carry = c.add(V::splat(MASK52)).sar::<52>();
    for at in (10..N).step_by(10) {
        let (entering, fold) = (part_mut(columns, b + 1 + at), part(&modulus.fold, at));
        window = ten_rows::<V, 0, 19>(entering, window, fold, &u);
        carry = ten_digits(columns, modulus, last, carry, result, at - 10);
    }
    repeat!(9, J => columns[2 * N - 9 + J] = window[J]);
    ten_digits(columns, modulus, last, carry, result, b);
}

/// The textbook's row at ten digits, with the carries between them. Returns the carry out of them.
#[inline(always)]
fn ten_digits<V: Vector, const N: usize>(
    columns: &Columns<V>,
    modulus: &Modulus<V, N>,
    last: Digit<V>,
    mut carry: V,
    result: &mut [Digit<V>; N],
    at: usize,
) -> V {
    let high: &[V; 10] = part(columns, N + at);
    let m: &[Digit<V>; 10] = part(&modulus.m, at);
    let above: Digit<V> = if at + 10 < N { modulus.m[at + 10] } else { Digit::whole(V::splat(0)) };
    let out: &mut [Digit<V>; 10] = part_mut(result, at);
    repeat!(10, J => {
        let next = if J < 9 { m[(J + 1) % 10] } else { above };
        let t = high[J].madd_hi(last, m[J]).madd_lo(last, next).add(carry);
        // The whole number is not negative, so the top digit is not either.
        let t = if J == 9 && at + 10 == N { t.not_negative() } else { t };
        out[J] = Digit::low(t);
        carry = t.sar::<52>();
    });
    carry
}

kernel! {
    /// `result = x y / R mod m`.
    fn mont_mul as MontMul<'a, V: Vector, const N: usize>(
        columns: &'a mut Columns<V>,
        x: &'a [Digit<V>; N],
        y: &'a [Digit<V>; N],
        modulus: &'a Modulus<V, N>,
        result: &'a mut [Digit<V>; N],
    ) {
        const { sized::<N>() };
        if N == 20 {
            mul20(part(x, 0), part(y, 0), twenty(modulus), part_mut(result, 0));
        } else {
            if N == 40 {
                product40(columns, part(x, 0), part(y, 0));
            } else {
                product(columns, x, y);
            }
            reduce(columns, modulus, result);
        }
    }
}

kernel! {
    /// `result = y / 2^520 mod m`, for twenty limbs: with it, a product by y takes half a reduction
    /// ([`mont_mul_by_halves`]).
    fn half_form as HalfForm<'a, V: Vector, const N: usize>(
        y: &'a [Digit<V>; N],
        modulus: &'a Modulus<V, N>,
        result: &'a mut [Digit<V>; N],
    ) {
        half20(part(y, 0), twenty(modulus), part_mut(result, 0));
    }
}

kernel! {
    /// `result = x y / R mod m`, for twenty limbs, from y and its [`half_form`].
    fn mont_mul_by_halves as MontMulByHalves<'a, V: Vector, const N: usize>(
        x: &'a [Digit<V>; N],
        y: &'a [Digit<V>; N],
        half: &'a [Digit<V>; N],
        modulus: &'a Modulus<V, N>,
        result: &'a mut [Digit<V>; N],
    ) {
        mul20_by_halves(part(x, 0), [part(y, 0), part(half, 0)], twenty(modulus), part_mut(result, 0));
    }
}

/// `columns = x^2`.
#[inline(always)]
fn square_columns<V: Vector, const N: usize>(columns: &mut Columns<V>, x: &[Digit<V>; N]) {
    const { sized::<N>() };
    if N == 20 {
        square20(part_mut(columns, 0), part(x, 0));
    } else if N == 40 {
        square40(columns, part(x, 0));
    } else {
        square(columns, x);
    }
}

kernel! {
    /// `result = x^2 / R mod m`.
    fn mont_sqr as MontSqr<'a, V: Vector, const N: usize>(
        columns: &'a mut Columns<V>,
        x: &'a [Digit<V>; N],
        modulus: &'a Modulus<V, N>,
        result: &'a mut [Digit<V>; N],
    ) {
        square_columns(columns, x);
        reduce(columns, modulus, result);
    }
}

kernel! {
    /// `x = x^2 / R mod m`, as many times as a window has bits; a digit is looked up alongside each.
    fn mont_sqrs as MontSqrs<'a, V: Lane8, const N: usize>(
        columns: &'a mut Columns<V>,
        x: &'a mut [Digit<V>; N],
        modulus: &'a Modulus<V, N>,
        ahead: Option<Ahead<'a, V, N>>,
    ) {
        let mut ahead = ahead;
        for _ in 0..WINDOW {
            square_columns(columns, x);
            if let Some(ahead) = &mut ahead {
                ahead.look_up();
            }
            reduce(columns, modulus, x);
        }
    }
}

kernel! {
    /// `result = columns / R mod m`, for a number twice as long as m.
    fn mont_reduce as MontReduce<'a, V: Vector, const N: usize>(
        columns: &'a mut Columns<V>,
        modulus: &'a Modulus<V, N>,
        result: &'a mut [Digit<V>; N],
    ) {
        const { sized::<N>() };
        reduce(columns, modulus, result);
    }
}

/// `columns = x y` as integers: for the last step of the Chinese remainder theorem.
#[inline(always)]
pub(crate) fn integer_product<V: Vector, const N: usize>(
    columns: &mut Columns<V>,
    x: &[Digit<V>; N],
    y: &[Digit<V>; N],
) {
    const { sized::<N>() };
    product(columns, x, y);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limbs;
    use crate::vector::{Bound, Portable};

    /// One run on intervals covers every modulus of the size and every operand within the header's bounds: no column
    /// overflows, no multiplicand is truncated, and the results are within the bounds again.
    fn no_column_overflows<const N: usize>(spare: u32) {
        // Every number below 2^(52 N - spare + more), limb by limb.
        let below = |more: u32| -> [Digit<Bound>; N] {
            core::array::from_fn(|i| {
                let bits = (52 * N as u32 - spare + more).saturating_sub(52 * i as u32).min(52);
                Digit::whole(Bound::upto((1u64 << bits) - 1))
            })
        };
        let modulus = Modulus { m: below(0), fold: below(0), k0: Digit::whole(Bound::upto(MASK52)) };
        let x = below(3);
        let within = |out: &[Digit<Bound>; N]| {
            for i in 0..N {
                let (got, limit) = (out[i].raw().high(), x[i].raw().high());
                assert!(got <= limit, "limb {i} of a result leaves the bounds: {got:#x} over {limit:#x}");
            }
        };
        let mut columns = [Bound::upto(0); 160];
        let mut out = x;
        mont_mul(&mut columns, &x, &x, &modulus, &mut out);
        within(&out);
        mont_sqr(&mut columns, &x, &modulus, &mut out);
        within(&out);
        if N == 20 {
            let mut half = x;
            half_form(&x, &modulus, &mut half);
            within(&half);
            mont_mul_by_halves(&x, &x, &half, &modulus, &mut out);
            within(&out);
        }
        // An input is below p q, so its upper half is below a prime.
        for (column, digit) in columns.iter_mut().zip(x.iter().chain(&modulus.m)) {
            *column = digit.raw();
        }
        mont_reduce(&mut columns, &modulus, &mut out);
        within(&out);
    }

    #[test]
    fn no_column_overflows_in_primes() {
        no_column_overflows::<20>(16);
        no_column_overflows::<30>(24);
        no_column_overflows::<40>(32);
    }

    #[test]
    fn no_column_overflows_in_moduli() {
        no_column_overflows::<40>(32);
        no_column_overflows::<60>(48);
        no_column_overflows::<80>(64);
    }

    /// `x y = result R` modulo m, by schoolbook arithmetic, for edge operands: zero, one, m - 1, and all ones.
    fn products_agree_with_big_integers<const N: usize>(bits: usize) {
        let mut m = vec![MASK52; N];
        m[N - 1] = (1 << (bits - 52 * (N - 1))) - 1;
        m[0] -= 172; // some odd number below 2^bits
        let k0 = limbs::neg_inverse(m[0]);
        let mut fold = vec![0; N];
        limbs::fold_into(&m, k0, &mut fold);
        let splat = |limbs: &[u64]| -> [Digit<Portable>; N] {
            core::array::from_fn(|i| Digit::whole(Portable::splat(limbs[i])))
        };
        let modulus = Modulus { m: splat(&m), fold: splat(&fold), k0: Digit::whole(Portable::splat(k0)) };
        let mut less_one = m.clone();
        less_one[0] -= 1;
        let small = |v: u64| (0..N).map(|i| if i == 0 { v } else { 0 }).collect::<Vec<_>>();
        let ripple: Vec<u64> = (0..N).map(|i| if i + 1 < N { MASK52 } else { 1 }).collect();
        let operands = [small(0), small(1), less_one, ripple];
        let mut columns = [Portable::splat(0); 160];
        for x in &operands {
            for y in &operands {
                let mut out = splat(x);
                mont_mul(&mut columns, &splat(x), &splat(y), &modulus, &mut out);
                let limbs = |digits: &[Digit<Portable>; N]| -> Vec<u64> {
                    digits.iter().map(|d| crate::vector::Lane8::to_lanes(d.value())[3]).collect()
                };
                let result = limbs(&out);
                if N == 20 {
                    let (mut half, mut by_halves) = (out, out);
                    half_form(&splat(y), &modulus, &mut half);
                    mont_mul_by_halves(&splat(x), &splat(y), &half, &modulus, &mut by_halves);
                    assert_eq!(reduce_fully(limbs(&by_halves), &m), reduce_fully(result.clone(), &m));
                }
                // result R mod m, and x y mod m by doubling and adding.
                let mut left = reduce_fully(result, &m);
                limbs::shift_mod(&mut left, &m, 52 * N);
                assert_eq!(left, product_mod(x, y, &m));
            }
            let mut squared = splat(x);
            let mut multiplied = squared;
            mont_sqr(&mut columns, &splat(x), &modulus, &mut squared);
            mont_mul(&mut columns, &splat(x), &splat(x), &modulus, &mut multiplied);
            for (s, m) in squared.iter().zip(&multiplied) {
                assert_eq!(crate::vector::Lane8::to_lanes(s.value()), crate::vector::Lane8::to_lanes(m.value()));
            }
        }
    }

    fn reduce_fully(mut x: Vec<u64>, m: &[u64]) -> Vec<u64> {
        let mut less = x.clone();
        while limbs::sub(&x, m, &mut less) == 0 {
            x.copy_from_slice(&less);
        }
        x
    }

    fn product_mod(x: &[u64], y: &[u64], m: &[u64]) -> Vec<u64> {
        let y = reduce_fully(y.to_vec(), m);
        let mut sum = vec![0; m.len()];
        for bit in (0..52 * m.len()).rev() {
            limbs::shift_mod(&mut sum, m, 1);
            if x[bit / 52] >> (bit % 52) & 1 == 1 {
                let mut carry = 0;
                for (s, y) in sum.iter_mut().zip(&y) {
                    let t = *s + y + carry;
                    *s = t & MASK52;
                    carry = t >> 52;
                }
                sum = reduce_fully(sum, m);
            }
        }
        sum
    }

    #[test]
    fn products_agree_with_big_integers_in_every_size() {
        products_agree_with_big_integers::<20>(1024);
        products_agree_with_big_integers::<30>(1536);
        products_agree_with_big_integers::<40>(2048);
    }
}
