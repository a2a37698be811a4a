//! Multiples of any point: what a key exchange spends its time on.
//!
//! **Form.** A running sum is (X, W, Z) for the point (X / Z^2, W / 2 Z^3): W is twice the usual Y, which saves five
//! doublings of numbers a step. Its Z counts from the Z that all sixteen entries of the table share, so the entries are
//! as good as affine ones (an addition takes 8 products and 3 squares, not 12 and 4). The doubling for a = -3 wants the
//! square of the whole Z: it is carried along, one product a doubling but the last, and made anew after an addition.
//!
//! ```text
//! double:  alpha = 3 (X - D)(X + D),  G = W^2,  B = X G                         where D = (Z Zc)^2
//!          X' = alpha^2 - 2 B,  W' = 2 alpha (B - X') - G^2,  Z' = W Z,  D' = G D
//! add:     h = x Z^2 - X,  r = w Z^3 - W,  I = (2 h)^2,  J = h I,  V = X I       (x, w) from the table
//!          X' = r^2 - J - 2 V,  W' = 2 r (V - X') - 2 W J,  Z' = 2 h Z
//! ```
//!
//! **Table.** P and 2 P are brought to one Z by the doubling itself; then each sum (2 i + 1) P = (2 i - 1) P + 2 P brings
//! 2 P along to its own Z (Meloni's co-Z addition, "New point addition formulae for ECC applications", 2007: 4 products
//! and 2 squares), and remembers the ratio of the two Z. Walking back, each entry is raised to the last one's Z.
//!
//! **Exceptions**: those of [`super::point`]. Of the table's sums none is of a point and itself or its negative, since
//! the order is a large prime.
//!
//! **Bounds** in multiples of m (see [`super::field`]): X and W below 2 (W below 4 straight from the table), Z below 3
//! (2 after a doubling), D and the entries below 2; every operand below 13 (ratios of Z are settled). Proof: `sums_of_p256_stay_within_bounds`,
//! `sums_of_p384_stay_within_bounds`. Tests: those of `tests/ec.rs`.

use super::curves::Curve;
use super::field::{Cols, Fe, Marker, Prime, columns, constant, mul, mul_add, select, sqr};
use super::point::{Digits, ENTRIES, WIDTH};
use crate::vector::{Digit, Kernel, Lane8, Vector};
use core::marker::PhantomData;

/// A table's entry, or any point whose Z is understood.
#[derive(Clone, Copy)]
struct Entry<V, const N: usize> {
    x: Fe<V, N>,
    w: Fe<V, N>,
}

/// A running sum; `d` is the square of the whole Z, and not kept up by additions.
#[derive(Clone, Copy)]
struct Sum<V, const N: usize> {
    x: Fe<V, N>,
    w: Fe<V, N>,
    z: Fe<V, N>,
    d: Fe<V, N>,
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
    /// `BEFORE_ADD`: without the new `d`, which an addition does not read.
    #[inline(always)]
    fn double<P: Prime<N>, const BEFORE_ADD: bool>(&self) -> Self {
        let d = columns(&self.d);
        let less = columns(&self.x).sub::<P, 4>(d).digits();
        let more = columns(&self.x).add(d).digits();
        let square = sqr::<V, P, N>(&self.w);
        let g = square.digits();
        let minus_g = minus::<V, P, N, 4>(square);
        V::fence();
        let alpha = mul::<V, P, N>(&less, &more);
        let b = mul::<V, P, N>(&self.x, &g);
        let alpha = alpha.twice().add(alpha).digits();
        V::fence();
        let x = sqr::<V, P, N>(&alpha).sub::<P, 8>(b.twice()).settled::<P>();
        let z = mul::<V, P, N>(&self.w, &self.z).digits();
        let twice = b.sub::<P, 4>(columns(&x)).twice().digits();
        V::fence();
        let d = if BEFORE_ADD { self.d } else { mul::<V, P, N>(&g, &self.d).digits() };
        let w = mul_add::<V, P, N>(&alpha, &twice, &g, &minus_g).settled::<P>();
        V::fence();
        Sum { x, w, z, d }
    }

    /// `shared` is the square of the table's Z.
    #[inline(always)]
    fn add<P: Prime<N>>(&self, q: &Entry<V, N>, shared: &Fe<V, N>) -> Self {
        let zz = sqr::<V, P, N>(&self.z).digits();
        V::fence();
        let zzz = mul::<V, P, N>(&zz, &self.z).digits();
        let h = mul::<V, P, N>(&q.x, &zz).sub::<P, 4>(columns(&self.x));
        let (h, h2) = (h.digits(), h.twice().digits());
        V::fence();
        let r = mul::<V, P, N>(&q.w, &zzz).sub::<P, 4>(columns(&self.w)).digits();
        let i = sqr::<V, P, N>(&h2).digits();
        V::fence();
        let z = mul::<V, P, N>(&self.z, &h2).digits();
        let j = mul::<V, P, N>(&h, &i);
        let v = mul::<V, P, N>(&self.x, &i);
        V::fence();
        let x = sqr::<V, P, N>(&r).sub::<P, 8>(j.add(v.twice())).settled::<P>();
        let d = sqr::<V, P, N>(&z).digits();
        let twice = v.sub::<P, 4>(columns(&x)).twice().digits();
        let j2 = j.twice().digits();
        let minus_w = minus::<V, P, N, 4>(columns(&self.w));
        V::fence();
        let w = mul_add::<V, P, N>(&r, &twice, &minus_w, &j2).settled::<P>();
        let d = mul::<V, P, N>(&d, shared).digits();
        V::fence();
        Sum { x, w, z, d }
    }
}

/// `q + p`, and `p` with the same new Z, from two points of one Z. The new Z is the old one times `ratio`.
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

/// The odd multiples up to 31 of an affine point, of one Z, which is the result.
#[inline(always)]
fn fill<V: Vector, P: Prime<N>, const N: usize>(
    x: &Fe<V, N>,
    y: &Fe<V, N>,
    table: &mut [Entry<V, N>; ENTRIES],
) -> Fe<V, N> {
    let one = constant(&P::ONE);
    let w = columns(y).twice().digits();
    let twice = Sum { x: *x, w, z: one, d: one }.double::<P, false>();
    let mut p = Entry { x: twice.x, w: twice.w };
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

/// The entry that digit `i` names, with its sign. Every entry is read.
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

/// Scalars times affine points that are on the curve and not neutral: X and Z of X / Z^2.
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
        let one = constant(&<C::Field as Prime<N>>::ONE);
        let top = scan::<V, C::Field, N>(&table, digits, digits.indices.len() - 1);
        let mut sum = Sum { x: top.x, w: top.w, z: one, d: shared };
        for i in (0..digits.indices.len() - 1).rev() {
            for _ in 1..WIDTH {
                sum = sum.double::<C::Field, false>();
            }
            sum = sum.double::<C::Field, true>();
            sum = sum.add::<C::Field>(&scan::<V, C::Field, N>(&table, digits, i), &shared);
        }
        // Where the last addition met its own operand.
        let last = scan::<V, C::Field, N>(&table, digits, 0);
        let twice = Sum { x: last.x, w: last.w, z: one, d: shared }.double::<C::Field, true>();
        let x = select::<V, N>(digits.meets_itself, &sum.x, &twice.x);
        let own = select::<V, N>(digits.meets_itself, &sum.z, &twice.z);
        [x, mul::<V, C::Field, N>(&own, &z).digits()]
    }
}

#[cfg(test)]
mod tests {
    use super::super::curves::{P256Field, P384Field};
    use super::*;
    use crate::vector::{Bound, MASK52};

    /// The widest coordinates that a doubling, an addition or the table can meet come back no wider.
    fn sums_stay_within_bounds<P: Prime<N>, const N: usize>(m: u64) {
        let below = |times: u64| -> Fe<Bound, N> {
            let top = times * m + m / 64;
            core::array::from_fn(|i| Digit::whole(Bound::upto(if i + 1 < N { MASK52 } else { top })))
        };
        let check = |a: &Fe<Bound, N>, times: u64| {
            let (got, limit) = (a[N - 1].raw().high(), below(times)[N - 1].raw().high());
            assert!(got <= limit, "{got:#x} over {limit:#x}");
        };
        let entry = Entry { x: below(2), w: below(4) };
        let shared = below(2);
        for w in [below(2), below(4)] {
            let out = Sum { x: below(2), w, z: below(3), d: below(2) }.double::<P, false>();
            [out.x, out.w, out.z, out.d].iter().for_each(|a| check(a, 2));
        }
        let out = Sum { x: below(2), w: below(2), z: below(2), d: below(2) }.add::<P>(&entry, &shared);
        [out.x, out.w, out.d].iter().for_each(|a| check(a, 2));
        check(&out.z, 3);
        let mut table = [entry; ENTRIES];
        check(&fill::<Bound, P, N>(&below(2), &below(2), &mut table), 2);
        for entry in &table {
            check(&entry.x, 2);
            check(&entry.w, 2);
        }
    }

    #[test]
    fn sums_of_p256_stay_within_bounds() {
        sums_stay_within_bounds::<P256Field, 5>(1 << 48);
    }

    #[test]
    fn sums_of_p384_stay_within_bounds() {
        sums_stay_within_bounds::<P384Field, 8>(1 << 20);
    }
}
