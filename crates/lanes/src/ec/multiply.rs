//! Multiples of any point, on which a key exchange spends most of its time.
//!
//! **Form.** A running sum is (X, W, Z) for the point (X / Z^2, W / 2 Z^3): W is twice the usual Y, which saves five
//! doublings of numbers per step. Its Z is relative to the Z that all sixteen entries of the table share, so the
//! entries are as good as affine ones (an addition takes 8 products and 3 squares, not 12 and 4). The doubling for a =
//! -3 needs the square of the whole Z: it is carried along, at one product per doubling except the last, and recomputed
//! after an addition.
//!
//! ```text
//! double:  alpha = 3 (X - D)(X + D),  G = W^2,  B = X G                         where D = (Z Zc)^2
//!          X' = alpha^2 - 2 B,  W' = 2 alpha (B - X') - G^2,  Z' = W Z,  D' = G D
//! add:     h = x Z^2 - X,  r = w Z^3 - W,  I = (2 h)^2,  J = h I,  V = X I       (x, w) from the table
//!          X' = r^2 - J - 2 V,  W' = 2 r (V - X') - 2 W J,  Z' = 2 h Z
//! ```
//!
//! **Table.** The doubling itself gives P and 2 P the same Z. Then each sum (2 i + 1) P = (2 i - 1) P + 2 P also
//! converts 2 P to its own Z (Meloni's co-Z addition, "New point addition formulae for ECC applications", 2007: 4
//! products and 2 squares), and the ratio of the two Z is stored. On the way back, each entry is converted to the last
//! one's Z.
//!
//! **Exceptions**: those of [`super::point`]. None of the table's sums is of a point and itself or its negative, since
//! the order is a large prime.
//!
//! **Bounds** in multiples of m (see [`super::field`]), for P-256; the constants are those of `SMALL`, 2. X lies
//! between 2 and 7.1 after a doubling and between 2 and 4 after an addition; W is below 3 and below 5 respectively. D
//! is below 1.5 and so never above X, so that `X - D` needs no constant. In a doubling only `alpha` is settled: it is
//! then below 1, so that alpha^2 is below 1.1, and B is below 2. The columns of a product start with the room for what
//! is subtracted from it. Every operand is below 15. Proof, also for P-384: `sums_of_p256_stay_within_bounds`,
//! `sums_of_p384_stay_within_bounds`. Tests: those of `tests/ec.rs`.

use super::curves::Curve;
use super::field::{
    Both, Cols, Fe, Marker, Prime, columns, constant, mul, mul_plus, mul_sub, mul_sub_sqr, select, sqr, sqr_plus,
};
use super::point::{Digits, ENTRIES, WIDTH};
use crate::vector::{Digit, Kernel, Lane8, Vector};
use core::marker::PhantomData;

/// An entry of the table, or any point whose Z is known from context.
#[derive(Clone, Copy)]
struct Entry<V, const N: usize> {
    x: Fe<V, N>,
    w: Fe<V, N>,
}

/// A running sum; `d` is the square of the whole Z, which additions do not update. X is never below `d`.
#[derive(Clone, Copy)]
struct Sum<V, const N: usize> {
    x: Both<V, N>,
    w: Fe<V, N>,
    z: Fe<V, N>,
    d: Both<V, N>,
}

#[inline(always)]
fn zero<V: Vector, const N: usize>() -> Fe<V, N> {
    [Digit::whole(V::splat(0)); N]
}

/// `K m - a`.
#[inline(always)]
fn minus<V: Vector, P: Prime<N>, const N: usize, const K: u64>(a: Cols<V, N>) -> Fe<V, N> {
    Cols([V::splat(0); N]).sub::<P, K>(a).digits()
}

impl<V: Vector, const N: usize> Sum<V, N> {
    /// Starts from a point whose Z is one, so that `d` is the square of the shared Z.
    #[inline(always)]
    fn new<P: Prime<N>>(point: &Entry<V, N>, d: &Fe<V, N>) -> Self {
        Sum {
            x: columns(&point.x).plus::<P>(P::SMALL).both(),
            w: point.w,
            z: constant(&P::ONE),
            d: Both { digits: *d, columns: columns(d) },
        }
    }

    /// Doubles the sum. With `BEFORE_ADD`, the new `d` is not computed, since an addition does not read it.
    #[inline(always)]
    fn double<P: Prime<N>, const BEFORE_ADD: bool>(&self) -> Self {
        // In this order, independent products are next to each other.
        let less = self.x.columns.less(self.d.columns).digits();
        let more = self.x.columns.add(self.d.columns).digits();
        let alpha = mul_plus::<V, P, N>(&less, &more, 1);
        let alpha = P::settle::<V, 0>(alpha.twice().add(alpha)).digits();
        let g = sqr::<V, P, N>(&self.w).digits();
        let z = mul::<V, P, N>(&self.w, &self.z).digits();
        let square = sqr_plus::<V, P, N>(&alpha, 11 * P::SMALL);
        let b = mul_plus::<V, P, N>(&self.x.digits, &g, 4 * P::SMALL);
        let d = if BEFORE_ADD { self.d } else { mul::<V, P, N>(&g, &self.d.digits).both() };
        // Three times SMALL remains of what was added to the square.
        let x = square.less(b.twice()).both();
        let twice = b.less(x.columns).twice().digits();
        let w = mul_sub_sqr::<V, P, N>(&alpha, &twice, &g).digits();
        V::fence();
        Sum { x, w, z, d }
    }

    /// Adds `q`; `shared` is the square of the table's Z.
    #[inline(always)]
    fn add<P: Prime<N>>(&self, q: &Entry<V, N>, shared: &Fe<V, N>) -> Self {
        let zz = sqr::<V, P, N>(&self.z).digits();
        V::fence();
        let zzz = mul::<V, P, N>(&zz, &self.z).digits();
        let h = mul_plus::<V, P, N>(&q.x, &zz, 4 * P::SMALL + 1).less(self.x.columns);
        let h = P::settle::<V, 1>(h);
        let (h, h2) = (h.digits(), h.twice().digits());
        V::fence();
        let r = mul_plus::<V, P, N>(&q.w, &zzz, 4).less(columns(&self.w)).digits();
        let i = sqr::<V, P, N>(&h2).digits();
        V::fence();
        let z = mul::<V, P, N>(&self.z, &h2).digits();
        let j = mul::<V, P, N>(&h, &i);
        let v = mul_plus::<V, P, N>(&self.x.digits, &i, 5);
        V::fence();
        let x = sqr_plus::<V, P, N>(&r, 3 * P::SMALL + 10).less(j.add(v.twice()));
        let x = P::settle::<V, 3>(x).both();
        let d = sqr::<V, P, N>(&z).digits();
        let twice = v.less(x.columns).twice().digits();
        let j2 = j.twice().digits();
        V::fence();
        let w = mul_sub::<V, P, N>(&r, &twice, &self.w, &j2).digits();
        let d = mul::<V, P, N>(&d, shared).both();
        V::fence();
        Sum { x, w, z, d }
    }
}

/// From two points with one Z: `q + p`, and `p` with the same new Z, which is the old one times `ratio`.
#[inline(always)]
fn add_and_follow<V: Vector, P: Prime<N>, const N: usize>(
    q: &Entry<V, N>,
    p: &mut Entry<V, N>,
    ratio: &mut Fe<V, N>,
) -> Entry<V, N> {
    *ratio = columns(&q.x).sub::<P, 4>(columns(&p.x)).twice().settled::<P>();
    let r = columns(&q.w).sub::<P, 4>(columns(&p.w)).digits();
    let c = sqr::<V, P, N>(ratio).digits();
    V::fence();
    let b = mul::<V, P, N>(&q.x, &c);
    let e = mul::<V, P, N>(&p.x, &c);
    let k = b.sub::<P, 4>(e).twice().digits();
    V::fence();
    let x = sqr::<V, P, N>(&r).sub::<P, 8>(b.add(e)).settled::<P>();
    let twice = e.sub::<P, 4>(columns(&x)).twice().digits();
    V::fence();
    let f = mul::<V, P, N>(&p.w, &k);
    let w = mul::<V, P, N>(&r, &twice).sub::<P, 8>(f).settled::<P>();
    V::fence();
    *p = Entry { x: e.digits(), w: f.digits() };
    Entry { x, w }
}

/// Fills the table with the odd multiples up to 31 of an affine point, all with one Z, which is returned.
#[inline(always)]
fn fill<V: Vector, P: Prime<N>, const N: usize>(
    x: &Fe<V, N>,
    y: &Fe<V, N>,
    table: &mut [Entry<V, N>; ENTRIES],
) -> Fe<V, N> {
    let w = columns(y).twice().digits();
    let twice = Sum::new::<P>(&Entry { x: *x, w }, &constant(&P::ONE)).double::<P, false>();
    let mut p = Entry { x: P::settle::<V, 1>(twice.x.columns).digits(), w: twice.w };
    // The point itself, with the Z of its double, which is w.
    let g = sqr::<V, P, N>(&w).digits();
    table[0] = Entry { x: mul::<V, P, N>(x, &g).digits(), w: sqr::<V, P, N>(&g).digits() };
    let mut ratios = [zero::<V, N>(); ENTRIES];
    for i in 1..ENTRIES {
        table[i] = add_and_follow::<V, P, N>(&{ table[i - 1] }, &mut p, &mut ratios[i]);
    }
    let mut l = ratios[ENTRIES - 1];
    for i in (0..ENTRIES - 1).rev() {
        let square = sqr::<V, P, N>(&l).digits();
        let cube = mul::<V, P, N>(&square, &l).digits();
        table[i].x = mul::<V, P, N>(&table[i].x, &square).digits();
        table[i].w = mul::<V, P, N>(&table[i].w, &cube).digits();
        l = mul::<V, P, N>(&l, if i > 0 { &ratios[i] } else { &w }).digits();
        V::fence();
    }
    l
}

/// The entry for digit `i`, with its sign. Every entry is read.
#[inline(always)]
fn scan<V: Lane8, P: Prime<N>, const N: usize>(
    table: &[Entry<V, N>; ENTRIES],
    digits: &Digits<V>,
    i: usize,
) -> Entry<V, N> {
    let mut q = table[0];
    let mut entry = V::splat(1);
    for other in &table[1..] {
        let here = digits.indices[i].eq(entry);
        entry = entry.add(V::splat(1));
        q.x = select::<V, N>(here, &q.x, &other.x);
        q.w = select::<V, N>(here, &q.w, &other.w);
    }
    q.w = select::<V, N>(digits.negative[i], &q.w, &minus::<V, P, N, 4>(columns(&q.w)));
    q
}

/// Multiplies affine points, which must be on the curve and not neutral, by scalars: returns X and Z of X / Z^2.
pub(crate) fn multiply<V: Lane8, C: Curve<N>, const N: usize>(
    digits: &Digits<V>,
    x: &Fe<V, N>,
    y: &Fe<V, N>,
) -> [Fe<V, N>; 2] {
    V::enter(Multiply(digits, x, y, Marker::<C>(PhantomData)))
}

struct Multiply<'a, V: Lane8, C, const N: usize>(&'a Digits<V>, &'a Fe<V, N>, &'a Fe<V, N>, Marker<C>);

impl<V: Lane8, C: Curve<N>, const N: usize> Kernel<V> for Multiply<'_, V, C, N> {
    type Out = [Fe<V, N>; 2];

    #[inline(always)]
    fn run(self) -> Self::Out {
        let Multiply(digits, x, y, _) = self;
        let mut table = [Entry { x: zero(), w: zero() }; ENTRIES];
        let z = fill::<V, C::Field, N>(x, y, &mut table);
        let shared = sqr::<V, C::Field, N>(&z).digits();
        let top = scan::<V, C::Field, N>(&table, digits, digits.indices.len() - 1);
        let mut sum = Sum::new::<C::Field>(&top, &shared);
        for i in (0..digits.indices.len() - 1).rev() {
            for _ in 1..WIDTH {
                sum = sum.double::<C::Field, false>();
            }
            sum = sum.double::<C::Field, true>();
            sum = sum.add::<C::Field>(&scan::<V, C::Field, N>(&table, digits, i), &shared);
        }
        // The lanes in which the last addition was of a point to itself.
        let last = scan::<V, C::Field, N>(&table, digits, 0);
        let twice = Sum::new::<C::Field>(&last, &shared).double::<C::Field, true>();
        let x = select::<V, N>(digits.meets_itself, &sum.x.digits, &twice.x.digits);
        let own = select::<V, N>(digits.meets_itself, &sum.z, &twice.z);
        [x, mul::<V, C::Field, N>(&own, &z).digits()]
    }
}

#[cfg(test)]
mod tests {
    use super::super::curves::{P256Field, P384Field};
    use super::*;
    use crate::vector::{Bound, MASK52};

    /// Numbers up to this many quarters of m; `one` is the top digit of m.
    fn below<const N: usize>(one: u64, quarters: u64) -> Fe<Bound, N> {
        let top = quarters * one / 4 + one / 64;
        core::array::from_fn(|i| Digit::whole(Bound::upto(if i + 1 < N { MASK52 } else { top })))
    }

    fn check<const N: usize>(a: &Fe<Bound, N>, one: u64, quarters: u64) {
        let (got, limit) = (a[N - 1].raw().high(), below::<N>(one, quarters)[N - 1].raw().high());
        assert!(got <= limit, "{got:#x} over {limit:#x}");
    }

    /// Columns with carries in all of them, so that only the top one bounds the number.
    fn columns_between<const N: usize>(one: u64, from: u64, to: u64) -> Cols<Bound, N> {
        let at = |quarters: u64| (quarters * one / 4) as i64;
        let (carries, slack) = (1 << 59, (one / 64) as i64);
        Cols(core::array::from_fn(|i| {
            if i + 1 < N { Bound::between(-carries, carries) } else { Bound::between(at(from) - slack, at(to) + slack) }
        }))
    }

    fn check_both<const N: usize>(a: &Both<Bound, N>, one: u64, from: u64, to: u64) {
        check(&a.digits, one, to);
        for (got, limit) in a.columns.0.iter().zip(columns_between::<N>(one, from, to).0) {
            assert!(limit.low() <= got.low() && got.high() <= limit.high(), "{got:x?} is not in {limit:x?}");
        }
    }

    /// In quarters of m: the widest coordinates after a doubling and after an addition.
    struct Limits {
        d: u64,
        doubled: [u64; 2],
        added: [u64; 2],
    }

    /// Doublings, additions and the table, given the widest coordinates that can occur, return none that are wider.
    fn sums_stay_within_bounds<P: Prime<N>, const N: usize>(one: u64, limits: &Limits) {
        let both = |[from, to]: [u64; 2]| Both { digits: below(one, to), columns: columns_between(one, from, to) };
        let d = both([0, limits.d]);
        let doubled = Sum { x: both(limits.doubled), w: below(one, 13), z: below(one, 12), d };
        let added = Sum { x: both(limits.added), w: below(one, 20), z: below(one, 12), d };
        let entry = Entry { x: below(one, 8), w: below(one, 16) };
        let shared = below(one, limits.d);
        let start = Sum::new::<P>(&entry, &shared);
        check_both(&start.x, one, limits.added[0], limits.added[1]);
        for sum in [start, doubled, added] {
            let out = sum.double::<P, false>();
            check_both(&out.x, one, limits.doubled[0], limits.doubled[1]);
            check_both(&out.d, one, 0, limits.d);
            check(&out.w, one, 13);
            check(&out.z, one, 12);
        }
        let out = doubled.add::<P>(&entry, &shared);
        check_both(&out.x, one, limits.added[0], limits.added[1]);
        check_both(&out.d, one, 0, limits.d);
        check(&out.w, one, 20);
        check(&out.z, one, 12);
        let mut table = [entry; ENTRIES];
        check(&fill::<Bound, P, N>(&below(one, 8), &below(one, 8), &mut table), one, 8);
        for entry in &table {
            check(&entry.x, one, 8);
            check(&entry.w, one, 8);
        }
    }

    #[test]
    fn sums_of_p256_stay_within_bounds() {
        let limits = Limits { d: 6, doubled: [8, 29], added: [8, 16] };
        sums_stay_within_bounds::<P256Field, 5>(1 << 48, &limits);
    }

    #[test]
    fn sums_of_p384_stay_within_bounds() {
        let limits = Limits { d: 9, doubled: [16, 57], added: [12, 24] };
        sums_stay_within_bounds::<P384Field, 8>(1 << 20, &limits);
    }
}
