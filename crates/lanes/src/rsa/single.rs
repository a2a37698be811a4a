//! A single job: the numbers modulo its two primes lie limb by limb *along* the vectors, not one in each lane.
//!
//! A job without company would leave six of eight lanes idle. Here the lanes hold eight limbs of one number, so that
//! one vector instruction multiplies eight limbs by one: the arrangement of Gueron and Krasnov (2012, 2016), for p and
//! q alternately, which do not depend on each other. It computes what [`super::mont`] computes, limb for limb, with
//! that module's constants, reduction and bounds.
//!
//! **A row** takes one limb of `b`. The lowest column is then complete; its digit is dropped, its carry goes one column
//! up, and all columns move down by one lane, so that the lowest is always the first. Low halves of products are added
//! before that move and high halves, which belong one limb higher, after it: each meets its column in place. The
//! products of `a` are added to separate columns, as only the reduction has to wait for the digit.
//!
//! **Squaring** multiplies each pair of blocks of eight limbs once. For its own block, a limb uses the digits of `a`;
//! for the blocks above, those of the number `2 a`. Below block k these are twice the digits of `a`, except for the bit
//! that the last of them carries out, which is multiplied in when block k's turn begins.
//!
//! **Carries** are propagated once, at the end. A column's upper bits go one lane up; after that a word is below
//! `2^52 + 2^12`, and the single bits that remain ripple through one addition of two masks, whose bits are lanes: a
//! lane that overflows generates a carry, a lane of ones passes one on.
//!
//! **Time** depends only on N; powers are selected by reading all of them.
//! Tests: `one_job_computes_what_eight_lanes_do`, `no_column_overflows`, and all of `tests/rsa.rs` with one job.

use super::mont::Modulus;
use crate::vector::{Digit, Lane8, MASK52, Vector, kernel, repeat};
use zeroize::Zeroize;

/// Two numbers of one key, modulo p and modulo q: limb `j` in word `j % 8` of vector `j / 8`.
pub(crate) type Pair<V, const Z: usize> = [[Digit<V>; Z]; 2];

/// Repeats an expression for each of `Z` vectors.
macro_rules! each {
    ($k:ident => $e:expr) => { repeat!(10, $k => if $k < Z { $e }) };
}

/// Two exponentiations in progress: `N` limbs in a modulus, in `Z` vectors.
pub(crate) struct Single<V: Vector, const N: usize, const Z: usize> {
    moduli: Moduli<V, Z>,
    powers: Vec<Pair<V, Z>>,
    twice: Twice<V, Z>,
    power: Box<Pair<V, Z>>,
    scratch: Box<Pair<V, Z>>,
}

/// The moduli p and q: see [`Modulus`].
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Moduli<V, const Z: usize> {
    m: Pair<V, Z>,
    fold: Pair<V, Z>,
    /// The constant of each modulus, in every lane.
    k0: [Digit<V>; 2],
}

/// What a squaring derives from its operand.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Twice<V, const Z: usize> {
    /// The digits of twice the number.
    digits: Pair<V, Z>,
    /// The bit that each limb of the number carries into the next when it is doubled.
    bits: Pair<V, Z>,
}

impl<V: Lane8, const N: usize, const Z: usize> Single<V, N, Z> {
    /// Allocates room for this many powers.
    pub(crate) fn new(powers: usize) -> Self {
        const { assert!(Z == N.div_ceil(8) && Z <= 10) };
        let zero = [[Digit::whole(V::default()); Z]; 2];
        Single {
            moduli: Moduli { m: zero, fold: zero, k0: [zero[0][0]; 2] },
            powers: vec![zero; powers],
            twice: Twice { digits: zero, bits: zero },
            power: Box::new(zero),
            scratch: Box::new(zero),
        }
    }

    /// Starts with the moduli and a power taken from lanes 0 (p) and 4 (q).
    pub(crate) fn enter(&mut self, modulus: &Modulus<V, N>, power: &[Digit<V>; N]) {
        gather(&modulus.m, &mut self.moduli.m);
        gather(&modulus.fold, &mut self.moduli.fold);
        broadcast(&modulus.k0, &mut self.moduli.k0);
        gather(power, &mut self.power);
    }

    /// Sets power 0, taken from lanes 0 and 4, and power 1.
    pub(crate) fn begin_powers(&mut self, one: &[Digit<V>; N]) {
        gather(one, &mut self.powers[0]);
        self.powers[1] = *self.power;
    }

    /// Computes the power `exponent` from the powers below it.
    pub(crate) fn add_power(&mut self, exponent: usize) {
        let (known, new) = self.powers.split_at_mut(exponent);
        if exponent.is_multiple_of(2) {
            square::<V, N, Z>(&known[exponent / 2], &self.moduli, &mut self.twice, &mut new[0]);
        } else {
            multiply::<V, N, Z>(&known[exponent - 1], &known[1], &self.moduli, &mut new[0]);
        }
    }

    /// Starts with the powers that lanes 0 and 4 of the first windows select.
    pub(crate) fn first_window(&mut self, windows: &V) {
        choose(&self.powers, windows, &mut self.power);
    }

    /// Squares `width` times, then multiplies by the power that the windows select.
    pub(crate) fn window(&mut self, windows: &V, width: u32) {
        for _ in 0..width {
            self.square();
        }
        choose(&self.powers, windows, &mut self.twice.digits);
        multiply::<V, N, Z>(&self.power, &self.twice.digits, &self.moduli, &mut self.scratch);
        core::mem::swap(&mut self.power, &mut self.scratch);
    }

    /// Squares both numbers.
    pub(crate) fn square(&mut self) {
        square::<V, N, Z>(&self.power, &self.moduli, &mut self.twice, &mut self.scratch);
        core::mem::swap(&mut self.power, &mut self.scratch);
    }

    /// Stores the current results of the exponentiations to lanes 0 and 4.
    pub(crate) fn leave(&self, power: &mut [Digit<V>; N]) {
        scatter(&self.power, power);
    }
}

impl<V: Vector, const N: usize, const Z: usize> Zeroize for Single<V, N, Z> {
    fn zeroize(&mut self) {
        let Moduli { m, fold, k0 } = &mut self.moduli;
        let Twice { digits, bits } = &mut self.twice;
        k0.zeroize();
        for pair in [m, fold, digits, bits, &mut *self.power, &mut *self.scratch].into_iter().chain(&mut self.powers) {
            pair.as_flattened_mut().zeroize();
        }
    }
}

#[cfg(test)]
impl<const N: usize, const Z: usize> Single<crate::vector::Portable, N, Z> {
    /// How many numbers are zero, among both moduli, their constants and all powers.
    pub(crate) fn zeros(&self) -> usize {
        let pairs = [self.moduli.m, self.moduli.fold, self.twice.digits, *self.power, *self.scratch];
        let pairs = pairs.iter().chain(&self.powers);
        let ks = self.moduli.k0.map(|k0| [k0; Z]);
        let is_zero =
            |number: &[Digit<crate::vector::Portable>; Z]| number.iter().all(|digit| digit.raw().to_lanes() == [0; 8]);
        pairs.chain([&ks]).filter(|pair| pair.iter().all(is_zero)).count()
    }
}

/// One half of a product in progress.
struct Rows<'a, V, const Z: usize> {
    a: &'a [Digit<V>; Z],
    b: Factor<'a, V, Z>,
    fold: &'a [Digit<V>; Z],
    columns: [V; Z],
    /// The digit dropped by the previous row, whose high halves have not been added yet.
    dropped: Digit<V>,
    /// The row's digit of `b`, for the row's own block.
    own: Digit<V>,
    /// The row's digit of `b`, for the blocks above.
    above: Digit<V>,
}

/// The second factor: its digits for their own block and for the blocks above, and the bits carried out of blocks.
#[derive(Clone, Copy)]
struct Factor<'a, V, const Z: usize> {
    own: &'a [Digit<V>; Z],
    above: &'a [Digit<V>; Z],
    bits: &'a [Digit<V>; Z],
}

impl<'a, V: Vector, const Z: usize> Rows<'a, V, Z> {
    /// Starts with the low halves of the first row.
    #[inline(always)]
    fn new(a: &'a [Digit<V>; Z], b: Factor<'a, V, Z>, fold: &'a [Digit<V>; Z]) -> Self {
        let zero = V::splat(0);
        let (own, above) = (Digit::low(V::word(b.own, 0)), Digit::low(V::word(b.above, 0)));
        let mut columns = [zero; Z];
        each!(K => columns[K] = zero.madd_lo(a[K], if K == 0 { own } else { above }));
        Rows { a, b, fold, columns, dropped: Digit::whole(zero), own, above }
    }

    /// Moves all columns down by one lane, and adds the first one's carry. Returns the digit dropped, in every lane.
    #[inline(always)]
    fn drop_lowest(&mut self) -> Digit<V> {
        let c = &mut self.columns;
        let digit = Digit::low(c[0].first());
        let carry = c[0].shr::<52>();
        each!(K => c[K] = c[K].down(if K + 1 < Z { c[(K + 1) % Z] } else { V::splat(0) }));
        c[0] = c[0].add_first(carry);
        digit
    }

    /// The high halves of row `row`, which is in block `L`, its reduction, and the low halves of the next row, in block
    /// `NEXT`. The products for the blocks below a row's own have been added already.
    #[inline(always)]
    fn row<const L: usize, const NEXT: usize>(&mut self, row: usize) {
        let (a, b) = (self.a, self.b);
        let dropped = self.drop_lowest();
        let mut beside = [V::splat(0); Z];
        each!(K => if K >= L { beside[K] = beside[K].madd_hi(a[K], if K == L { self.own } else { self.above }) });
        self.own = Digit::low(V::word(b.own, row + 1));
        self.above = Digit::low(V::word(b.above, row + 1));
        each!(K => if K >= NEXT { beside[K] = beside[K].madd_lo(a[K], if K == NEXT { self.own } else { self.above }) });
        if NEXT != L {
            beside[NEXT] = beside[NEXT].madd_lo(a[NEXT], Digit::whole(V::word(b.bits, row)));
        }
        let c = &mut self.columns;
        each!(K => if K >= L { c[K] = c[K].add(beside[K]) });
        each!(K => c[K] = c[K].madd_hi(self.fold[K], self.dropped));
        each!(K => c[K] = c[K].madd_lo(self.fold[K], dropped));
        self.dropped = dropped;
        // The next row loads its digits anew, each by one load into all lanes.
        V::fence();
    }

    /// The last row, in block `L`: the textbook's reduction (see [`super::mont`]), and the carries into digits.
    #[inline(always)]
    fn finish<const L: usize>(&mut self, m: &[Digit<V>; Z], k0: Digit<V>, out: &mut [Digit<V>; Z]) {
        let a = self.a;
        let u = Digit::low(V::splat(0).madd_lo(Digit::low(self.columns[0].first()), k0));
        each!(K => self.columns[K] = self.columns[K].madd_lo(m[K], u));
        self.drop_lowest();
        let c = &mut self.columns;
        each!(K => if K >= L { c[K] = c[K].madd_hi(a[K], if K == L { self.own } else { self.above }) });
        each!(K => c[K] = c[K].madd_hi(self.fold[K], self.dropped).madd_hi(m[K], u));
        let mut words = [V::splat(0); Z];
        each!(K => {
            let below = if K > 0 { c[(K + Z - 1) % Z].shr::<52>() } else { V::splat(0) };
            words[K] = c[K].and(V::splat(MASK52)).add(c[K].shr::<52>().up(below));
        });
        *out = V::ripple(&words);
    }
}

kernel! {
    /// `out = a b / R`, modulo p and modulo q.
    fn multiply as SingleMultiply<'a, V: Vector, const N: usize, const Z: usize>(
        a: &'a Pair<V, Z>,
        b: &'a Pair<V, Z>,
        moduli: &'a Moduli<V, Z>,
        out: &'a mut Pair<V, Z>,
    ) {
        let b = |half: usize| Factor { own: &b[half], above: &b[half], bits: &b[half] };
        let mut p = Rows::new(&a[0], b(0), &moduli.fold[0]);
        let mut q = Rows::new(&a[1], b(1), &moduli.fold[1]);
        for row in 0..N - 1 {
            p.row::<0, 0>(row);
            q.row::<0, 0>(row);
        }
        p.finish::<0>(&moduli.m[0], moduli.k0[0], &mut out[0]);
        q.finish::<0>(&moduli.m[1], moduli.k0[1], &mut out[1]);
    }
}

kernel! {
    /// `out = a^2 / R`, modulo p and modulo q.
    fn square as SingleSquare<'a, V: Vector, const N: usize, const Z: usize>(
        a: &'a Pair<V, Z>,
        moduli: &'a Moduli<V, Z>,
        twice: &'a mut Twice<V, Z>,
        out: &'a mut Pair<V, Z>,
    ) {
        repeat!(2, HALF => double(&a[HALF], &mut twice.digits[HALF], &mut twice.bits[HALF]));
        V::fence();
        let b = |half: usize| Factor { own: &a[half], above: &twice.digits[half], bits: &twice.bits[half] };
        let mut p = Rows::new(&a[0], b(0), &moduli.fold[0]);
        let mut q = Rows::new(&a[1], b(1), &moduli.fold[1]);
        repeat!(10, L => if L + 1 < Z {
            for row in 8 * L..8 * L + 7 {
                p.row::<L, L>(row);
                q.row::<L, L>(row);
            }
            p.row::<L, { L + 1 }>(8 * L + 7);
            q.row::<L, { L + 1 }>(8 * L + 7);
        } else if L + 1 == Z {
            for row in 8 * L..N - 1 {
                p.row::<L, L>(row);
                q.row::<L, L>(row);
            }
            p.finish::<L>(&moduli.m[0], moduli.k0[0], &mut out[0]);
            q.finish::<L>(&moduli.m[1], moduli.k0[1], &mut out[1]);
        });
    }
}

/// The digits of `2 a`, and the bit that each limb of `a` carries into the next.
#[inline(always)]
fn double<V: Vector, const Z: usize>(a: &[Digit<V>; Z], digits: &mut [Digit<V>; Z], bits: &mut [Digit<V>; Z]) {
    let mut below = V::splat(0);
    for k in 0..Z {
        // Junk above the digit is shifted out of `bit`, and stays above the digit in `digits`.
        let limbs = a[k].raw();
        let bit = limbs.shl::<12>().shr::<63>();
        bits[k] = Digit::whole(bit);
        digits[k] = Digit::low(limbs.add(limbs).add(bit.up(below)));
        below = bit;
    }
}

kernel! {
    /// Reads every power and keeps, for each half, the one that its window selects: that of p in lane 0, that of q in
    /// lane 4.
    fn choose as SingleChoose<'a, V: Lane8, const Z: usize>(
        powers: &'a [Pair<V, Z>],
        windows: &'a V,
        out: &'a mut Pair<V, Z>,
    ) {
        let windows = [Digit::whole(*windows)];
        let wanted = [V::word(&windows, 0), V::word(&windows, 4)];
        let mut chosen = [[Digit::whole(V::splat(0)); Z]; 2];
        for (number, power) in powers.iter().enumerate() {
            repeat!(2, HALF => {
                let here = wanted[HALF].eq(V::splat(number as u64));
                each!(K => chosen[HALF][K] = chosen[HALF][K].or_if(here, power[HALF][K]));
            });
        }
        *out = chosen;
    }
}

kernel! {
    /// Converts limbs in lanes 0 and 4 to limbs along vectors.
    fn gather as SingleGather<'a, V: Lane8, const N: usize, const Z: usize>(
        limbs: &'a [Digit<V>; N],
        out: &'a mut Pair<V, Z>,
    ) {
        let mut words = [[[0; 8]; Z]; 2];
        for i in 0..N {
            let lanes = limbs[i].value().to_lanes();
            words[0][i / 8][i % 8] = lanes[0];
            words[1][i / 8][i % 8] = lanes[4];
        }
        for (pair, words) in out.as_flattened_mut().iter_mut().zip(words.as_flattened()) {
            *pair = Digit::whole(V::from_lanes(words));
        }
    }
}

kernel! {
    /// Copies lane 0 and lane 4 to all lanes of a vector each.
    fn broadcast as SingleBroadcast<'a, V: Lane8>(digit: &'a Digit<V>, out: &'a mut [Digit<V>; 2]) {
        let digit = core::slice::from_ref(digit);
        *out = [Digit::whole(V::word(digit, 0)), Digit::whole(V::word(digit, 4))];
    }
}

kernel! {
    /// Converts limbs along vectors to limbs in lanes 0 and 4.
    fn scatter as SingleScatter<'a, V: Lane8, const N: usize, const Z: usize>(
        pair: &'a Pair<V, Z>,
        out: &'a mut [Digit<V>; N],
    ) {
        for i in 0..N {
            let mut lanes = [0; 8];
            for (half, words) in pair.iter().enumerate() {
                lanes[4 * half] = words[i / 8].value().to_lanes()[i % 8];
            }
            out[i] = Digit::whole(V::from_lanes(&lanes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limbs;
    use crate::rsa::mont::{mont_mul, mont_sqr};
    use crate::vector::{Bound, Portable};

    /// One run on intervals covers every modulus and operand. A vector has one interval for all its lanes, so the bound
    /// on the result is that of [`super::super::mont`], which computes the same number.
    fn columns_fit<const N: usize, const Z: usize>() {
        let full = [[Digit::whole(Bound::upto(MASK52)); Z]; 2];
        let moduli = Moduli { m: full, fold: full, k0: [full[0][0]; 2] };
        let mut out = full;
        multiply::<Bound, N, Z>(&full, &full, &moduli, &mut out);
        square::<Bound, N, Z>(&full, &moduli, &mut Twice { digits: full, bits: full }, &mut out);
    }

    #[test]
    fn no_column_overflows() {
        columns_fit::<20, 3>();
        columns_fit::<30, 4>();
        columns_fit::<40, 5>();
        columns_fit::<60, 8>();
        columns_fit::<80, 10>();
    }

    /// Edge operands, and numbers without a pattern, all below 2^(52 N - 14).
    fn operands<const N: usize>() -> Vec<[u64; N]> {
        let mut word = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = || {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            word >> 12
        };
        let mut all = vec![
            [0; N],
            core::array::from_fn(|i| u64::from(i == 0)),
            [MASK52; N],
            core::array::from_fn(|i| if i + 1 < N { MASK52 } else { 1 }),
            core::array::from_fn(|i| if i % 8 == 7 { MASK52 } else { 0 }),
            core::array::from_fn(|i| 1 << (51 * (i % 2))),
        ];
        all.extend((0..10).map(|_| core::array::from_fn(|_| next())));
        all.iter_mut().for_each(|number| number[N - 1] >>= 14);
        all
    }

    fn agrees<const N: usize, const Z: usize>() {
        let operands = operands::<N>();
        let side_by_side = |p: &[u64; N], q: &[u64; N]| -> [Digit<Portable>; N] {
            core::array::from_fn(|i| {
                Digit::whole(Portable::from_lanes(&core::array::from_fn(|lane| if lane < 4 { p[i] } else { q[i] })))
            })
        };
        let zero = [[Digit::whole(Portable::default()); Z]; 2];
        let along = |limbs: &[Digit<Portable>; N]| {
            let mut pair = zero;
            gather(limbs, &mut pair);
            pair
        };
        // Odd, and two bits shorter than the operands.
        let primes = [2, 9].map(|i| {
            let mut m = operands[i];
            m[0] |= 1;
            m[N - 1] >>= 2;
            m
        });
        let k0 = primes.map(|m| limbs::neg_inverse(m[0]));
        let folds = [0, 1].map(|half| {
            let mut fold = [0; N];
            limbs::fold_into(&primes[half], k0[half], &mut fold);
            fold
        });
        let modulus = Modulus {
            m: side_by_side(&primes[0], &primes[1]),
            fold: side_by_side(&folds[0], &folds[1]),
            k0: Digit::whole(Portable::from_lanes(&core::array::from_fn(|lane| k0[lane / 4]))),
        };
        let mut moduli = Moduli { m: along(&modulus.m), fold: along(&modulus.fold), k0: [zero[0][0]; 2] };
        broadcast(&modulus.k0, &mut moduli.k0);
        let mut columns = [Portable::default(); 160];
        let (mut wanted, mut got, mut twice) = (modulus.m, zero, Twice { digits: zero, bits: zero });
        let same = |wanted: &[Digit<Portable>; N], got: &Pair<Portable, Z>, what: &str| {
            let mut lanes = *wanted;
            scatter(got, &mut lanes);
            for i in 0..N {
                let (wanted, got) = (wanted[i].value().to_lanes(), lanes[i].value().to_lanes());
                assert_eq!([got[0], got[4]], [wanted[0], wanted[4]], "limb {i} of {what}");
            }
        };
        for (i, a) in operands.iter().enumerate() {
            for (j, b) in operands.iter().enumerate() {
                let (x, y) = (side_by_side(a, b), side_by_side(b, &operands[(i + 1) % operands.len()]));
                mont_mul(&mut columns, &x, &y, &modulus, &mut wanted);
                multiply::<_, N, Z>(&along(&x), &along(&y), &moduli, &mut got);
                same(&wanted, &got, &format!("{i} times {j}"));
            }
            let x = side_by_side(a, &operands[(i + 1) % operands.len()]);
            mont_sqr(&mut columns, &x, &modulus, &mut wanted);
            square::<_, N, Z>(&along(&x), &moduli, &mut twice, &mut got);
            same(&wanted, &got, &format!("{i} squared"));
        }
    }

    #[test]
    fn one_job_computes_what_eight_lanes_do() {
        agrees::<20, 3>();
        agrees::<30, 4>();
        agrees::<40, 5>();
        agrees::<60, 8>();
        agrees::<80, 10>();
    }
}
