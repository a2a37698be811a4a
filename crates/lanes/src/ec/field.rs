//! Prime fields of the NIST curves in Montgomery's form, eight elements at once, N limbs of 52 bits, `R = 2^(52 N)`.
//!
//! As in `x25519`, a product results in columns ([`Cols`]), sums and differences are computed on these, and one ripple
//! converts the whole to digits ([`Fe`]). As in `rsa`, a row of the reduction drops the lowest digit c and adds `c
//! fold` one column up, with `fold = (k0 m + 1) / 2^52`. Since `k0 m` may be up to 2^52 times m, the last row must be
//! the textbook's. Where `k0 = 1` (the field of P-256) every row is the textbook's, `fold` has three digits, and a row
//! takes six multiplications.
//!
//! **Bounds**, in multiples of m: a product of operands below x and y is below `x y m / R + 2`, or `+ 1` for `k0 = 1`.
//! For P-256 and its order, `R / m = 16`: with both operands below 6 that is 4.25. [`Prime::settle`] brings columns
//! below `2^257`, and keeps them positive, by moving multiples of `2^256 - m`; the points' formulas say where. For
//! P-384, `R / m = 2^32` leaves room, but a difference must not become negative: it adds m as many times as the
//! subtrahend may contain, which costs nothing if a product's columns start with them ([`mul_plus`]). Columns may be
//! negative (for a difference of products): their low 52 bits are still the digit, and carries are signed. Proof:
//! `points_of_p256_stay_within_bounds`, `points_of_p384_stay_within_bounds`, `shared_inversions_stay_within_bounds`,
//! and those of `super::multiply`.

use crate::inverse;
use crate::limbs::{fold_of, neg_inverse};
use crate::vector::{Digit, Kernel, Lane8, MASK52, Vector, kernel, repeat};
use core::marker::PhantomData;
use zeroize::Zeroize;

/// An element as digits.
pub(crate) type Fe<V, const N: usize> = [Digit<V>; N];

/// An element as columns: a sum of products, with carries not yet propagated.
#[derive(Clone, Copy)]
pub(crate) struct Cols<V, const N: usize>(pub(crate) [V; N]);

/// An element in both forms, for use in products and in sums: converting digits to columns takes a mask per limb.
#[derive(Clone, Copy)]
pub(crate) struct Both<V, const N: usize> {
    pub(crate) digits: Fe<V, N>,
    pub(crate) columns: Cols<V, N>,
}

/// An odd modulus known at compile time.
pub(crate) trait Prime<const N: usize>: Copy + Send + Sync + 'static {
    const M: [u64; N];
    const K0: u64 = neg_inverse(Self::M[0]);
    const FOLD: [u64; N] = fold_of(&Self::M, Self::K0);
    /// `R mod m`: one in Montgomery's form.
    const ONE: [u64; N] = power_of_two(&Self::M, 52 * N);
    /// `R^2 mod m`: multiplying by it converts a number to Montgomery's form.
    const R2: [u64; N] = power_of_two(&Self::M, 104 * N);

    /// The bound on a product of small operands, in multiples of m (see the header), rounded up to an even number.
    const SMALL: u64 = 2;

    /// Brings columns back to `FROM` or `FROM + 1` times m, where the form has no room for more. From zero, the value
    /// must be m at least and no column negative.
    #[inline(always)]
    fn settle<V: Vector, const FROM: u64>(c: Cols<V, N>) -> Cols<V, N> {
        c
    }
}

/// `2^bits mod m`.
const fn power_of_two<const N: usize>(m: &[u64; N], bits: usize) -> [u64; N] {
    let mut one = [0; N];
    one[0] = 1;
    shifted(&one, bits, m)
}

/// `x 2^bits mod m`, of constants, x below m.
pub(crate) const fn shifted<const N: usize>(x: &[u64; N], bits: usize, m: &[u64; N]) -> [u64; N] {
    let mut x = *x;
    let mut bit = 0;
    while bit < bits {
        let (mut carry, mut borrow, mut reduced) = (0, 0, [0; N]);
        let mut i = 0;
        while i < N {
            let d = x[i] << 1 | carry;
            x[i] = d & MASK52;
            carry = d >> 52;
            let d = x[i].wrapping_sub(m[i]).wrapping_sub(borrow);
            reduced[i] = d & MASK52;
            borrow = d >> 63;
            i += 1;
        }
        if carry == 1 || borrow == 0 {
            x = reduced;
        }
        bit += 1;
    }
    x
}

#[inline(always)]
pub(crate) fn constant<V: Vector, const N: usize>(limbs: &[u64; N]) -> Fe<V, N> {
    let mut out = [Digit::whole(V::splat(0)); N];
    repeat!(8, I => if I < N { out[I] = Digit::whole(V::splat(limbs[I])) });
    out
}

/// Columns to add a product to, starting with `above` times R m, of which the reduction leaves `above` times m.
#[inline(always)]
fn start<V: Vector, P: Prime<N>, const N: usize>(above: u64) -> [V; 16] {
    let mut c = [V::splat(0); 16];
    repeat!(8, J => if J < N { c[N + J] = V::splat(above * P::M[J % N]) });
    c
}

/// Reduces columns, which may be negative. `ONE` says that they hold a single product, whose lowest column is a digit.
#[inline(always)]
fn reduce<V: Vector, P: Prime<N>, const ONE: bool, const N: usize>(mut c: [V; 16]) -> Cols<V, N> {
    let rows = if P::K0 == 1 { N } else { N - 1 };
    repeat!(8, I => if I < rows {
        let u = if ONE && I == 0 {
            Digit::whole(c[0])
        } else {
            c[I + 1] = c[I + 1].add(c[I].sar::<52>());
            Digit::low(c[I])
        };
        repeat!(8, J => if J < N && P::FOLD[J % N] != 0 {
            let fold = Digit::whole(V::splat(P::FOLD[J % N]));
            c[I + J + 1] = c[I + J + 1].madd_lo(u, fold);
            if I + J + 2 < 16 {
                c[(I + J + 2) % 16] = c[(I + J + 2) % 16].madd_hi(u, fold);
            }
        });
    });
    if P::K0 != 1 {
        let u = Digit::low(V::splat(0).madd_lo(Digit::low(c[N - 1]), Digit::whole(V::splat(P::K0))));
        // This digit becomes zero, so its carry is rounded up.
        c[N] = c[N].add(c[N - 1].add(V::splat(MASK52)).sar::<52>());
        repeat!(8, J => if J < N {
            let m = Digit::whole(V::splat(P::M[J % N]));
            if J > 0 {
                c[N - 1 + J] = c[N - 1 + J].madd_lo(u, m);
            }
            c[N + J] = c[N + J].madd_hi(u, m);
        });
    }
    let mut out = [V::splat(0); N];
    repeat!(8, J => if J < N { out[J] = c[N + J] });
    Cols(out)
}

/// `a b / R`.
#[inline(always)]
pub(crate) fn mul<V: Vector, P: Prime<N>, const N: usize>(a: &Fe<V, N>, b: &Fe<V, N>) -> Cols<V, N> {
    mul_plus::<V, P, N>(a, b, 0)
}

/// `a b / R + k m`: makes room for a later subtraction at no cost.
#[inline(always)]
pub(crate) fn mul_plus<V: Vector, P: Prime<N>, const N: usize>(a: &Fe<V, N>, b: &Fe<V, N>, k: u64) -> Cols<V, N> {
    V::inline(Mul(a, b, k, Marker::<P>(PhantomData)))
}

/// `(a b + c d) / R`: two products with one reduction.
#[inline(always)]
pub(crate) fn mul_add<V: Vector, P: Prime<N>, const N: usize>(
    a: &Fe<V, N>,
    b: &Fe<V, N>,
    c: &Fe<V, N>,
    d: &Fe<V, N>,
) -> Cols<V, N> {
    V::inline(MulAdd(a, b, c, d, Marker::<P>(PhantomData)))
}

/// `(a b - c d) / R + m`, for c d below R m.
#[inline(always)]
pub(crate) fn mul_sub<V: Vector, P: Prime<N>, const N: usize>(
    a: &Fe<V, N>,
    b: &Fe<V, N>,
    c: &Fe<V, N>,
    d: &Fe<V, N>,
) -> Cols<V, N> {
    V::inline(MulSub(a, b, Product::Of(c, d), Marker::<P>(PhantomData)))
}

/// `(a b - c^2) / R + m`, for c^2 below R m.
#[inline(always)]
pub(crate) fn mul_sub_sqr<V: Vector, P: Prime<N>, const N: usize>(
    a: &Fe<V, N>,
    b: &Fe<V, N>,
    c: &Fe<V, N>,
) -> Cols<V, N> {
    V::inline(MulSub(a, b, Product::Square(c), Marker::<P>(PhantomData)))
}

/// `a^2 / R`.
#[inline(always)]
pub(crate) fn sqr<V: Vector, P: Prime<N>, const N: usize>(a: &Fe<V, N>) -> Cols<V, N> {
    sqr_plus::<V, P, N>(a, 0)
}

/// `a^2 / R + k m`, for an even k.
#[inline(always)]
pub(crate) fn sqr_plus<V: Vector, P: Prime<N>, const N: usize>(a: &Fe<V, N>, k: u64) -> Cols<V, N> {
    V::inline(Sqr(a, k / 2, Marker::<P>(PhantomData)))
}

#[inline(always)]
fn accumulate<V: Vector, const N: usize>(c: &mut [V; 16], a: &Fe<V, N>, b: &Fe<V, N>) {
    repeat!(8, I => repeat!(8, J => if I < N && J < N {
        c[I + J] = c[I + J].madd_lo(a[I], b[J]);
        c[I + J + 1] = c[I + J + 1].madd_hi(a[I], b[J]);
    }));
}

/// Adds `a^2` to the columns `c`: products of different digits are computed once and doubled, together with `c`, when
/// the squares are added.
#[inline(always)]
fn square<V: Vector, const N: usize>(mut c: [V; 16], a: &Fe<V, N>) -> [V; 16] {
    repeat!(8, I => repeat!(8, J => if J > I && J < N {
        c[I + J] = c[I + J].madd_lo(a[I], a[J]);
        c[I + J + 1] = c[I + J + 1].madd_hi(a[I], a[J]);
    }));
    repeat!(8, I => if I < N {
        if I > 0 {
            c[2 * I] = c[2 * I].add(c[2 * I]);
        }
        c[2 * I] = c[2 * I].madd_lo(a[I], a[I]);
        c[2 * I + 1] = c[2 * I + 1].add(c[2 * I + 1]).madd_hi(a[I], a[I]);
    });
    c
}

struct Mul<'a, V: Vector, P, const N: usize>(&'a Fe<V, N>, &'a Fe<V, N>, u64, Marker<P>);

impl<V: Vector, P: Prime<N>, const N: usize> Kernel<V> for Mul<'_, V, P, N> {
    type Out = Cols<V, N>;

    #[inline(always)]
    fn run(self) -> Cols<V, N> {
        let mut c = start::<V, P, N>(self.2);
        accumulate(&mut c, self.0, self.1);
        reduce::<V, P, true, N>(c)
    }
}

struct MulAdd<'a, V: Vector, P, const N: usize>(&'a Fe<V, N>, &'a Fe<V, N>, &'a Fe<V, N>, &'a Fe<V, N>, Marker<P>);

impl<V: Vector, P: Prime<N>, const N: usize> Kernel<V> for MulAdd<'_, V, P, N> {
    type Out = Cols<V, N>;

    #[inline(always)]
    fn run(self) -> Cols<V, N> {
        let mut c = [V::splat(0); 16];
        accumulate(&mut c, self.0, self.1);
        accumulate(&mut c, self.2, self.3);
        reduce::<V, P, false, N>(c)
    }
}

/// The product that is subtracted from another one.
enum Product<'a, V: Vector, const N: usize> {
    Of(&'a Fe<V, N>, &'a Fe<V, N>),
    Square(&'a Fe<V, N>),
}

struct MulSub<'a, V: Vector, P, const N: usize>(&'a Fe<V, N>, &'a Fe<V, N>, Product<'a, V, N>, Marker<P>);

impl<V: Vector, P: Prime<N>, const N: usize> Kernel<V> for MulSub<'_, V, P, N> {
    type Out = Cols<V, N>;

    #[inline(always)]
    fn run(self) -> Cols<V, N> {
        let less = match self.2 {
            Product::Square(a) => square([V::splat(0); 16], a),
            Product::Of(a, b) => {
                let mut less = [V::splat(0); 16];
                accumulate(&mut less, a, b);
                less
            }
        };
        let mut c = start::<V, P, N>(1);
        repeat!(16, I => if I < 2 * N { c[I] = c[I].sub(less[I]) });
        accumulate(&mut c, self.0, self.1);
        reduce::<V, P, false, N>(c)
    }
}

struct Sqr<'a, V: Vector, P, const N: usize>(&'a Fe<V, N>, u64, Marker<P>);

impl<V: Vector, P: Prime<N>, const N: usize> Kernel<V> for Sqr<'_, V, P, N> {
    type Out = Cols<V, N>;

    #[inline(always)]
    fn run(self) -> Cols<V, N> {
        reduce::<V, P, true, N>(square(start::<V, P, N>(self.1), self.0))
    }
}

impl<V: Vector, const N: usize> Cols<V, N> {
    /// Digits of columns whose sum is not negative.
    #[inline(always)]
    pub(crate) fn digits(self) -> Fe<V, N> {
        let mut c = self.0;
        let mut out = [Digit::whole(V::splat(0)); N];
        repeat!(8, I => if I < N {
            if I > 0 {
                c[I] = c[I].add(c[I - 1].sar::<52>());
            }
            out[I] = if I < N - 1 { Digit::low(c[I]) } else { Digit::whole(c[I]) };
        });
        out
    }

    /// Applies [`Prime::settle`] from one, then converts to digits.
    #[inline(always)]
    pub(crate) fn settled<P: Prime<N>>(self) -> Fe<V, N> {
        P::settle::<V, 1>(self).digits()
    }

    /// Digits, and the same value as columns.
    #[inline(always)]
    pub(crate) fn both(self) -> Both<V, N> {
        Both { digits: self.digits(), columns: self }
    }

    #[inline(always)]
    pub(crate) fn add(mut self, other: Self) -> Self {
        repeat!(8, I => if I < N { self.0[I] = self.0[I].add(other.0[I]) });
        self
    }

    #[inline(always)]
    pub(crate) fn twice(self) -> Self {
        self.add(self)
    }

    /// `self - other`, for an `other` that is not larger.
    #[inline(always)]
    pub(crate) fn less(mut self, other: Self) -> Self {
        repeat!(8, I => if I < N { self.0[I] = self.0[I].sub(other.0[I]) });
        self
    }

    /// `self + k m`.
    #[inline(always)]
    pub(crate) fn plus<P: Prime<N>>(mut self, k: u64) -> Self {
        repeat!(8, I => if I < N { self.0[I] = self.0[I].add(V::splat(k * P::M[I % N])) });
        self
    }

    /// `self - other + K m`, for an `other` of at most `K m`.
    #[inline(always)]
    pub(crate) fn sub<P: Prime<N>, const K: u64>(mut self, other: Self) -> Self {
        repeat!(8, I => if I < N { self.0[I] = self.0[I].sub(other.0[I]).add(V::splat(K * P::M[I])) });
        self
    }
}

/// Converts digits to columns. (Kernels inline plain loops only: a closure would be compiled without their instruction
/// set.)
#[inline(always)]
pub(crate) fn columns<V: Vector, const N: usize>(a: &Fe<V, N>) -> Cols<V, N> {
    let mut out = [V::splat(0); N];
    repeat!(8, I => if I < N { out[I] = if I < N - 1 { a[I].value() } else { a[I].raw() } });
    Cols(out)
}

#[inline(always)]
pub(crate) fn select<V: Vector, const N: usize>(mask: V::Mask, no: &Fe<V, N>, yes: &Fe<V, N>) -> Fe<V, N> {
    let mut out = *no;
    repeat!(8, I => if I < N { out[I] = no[I].or_if(mask, yes[I]) });
    out
}

kernel! {
    /// Replaces an element by a constant in the lanes of the mask.
    fn replace as Replace<'a, V: Vector, const N: usize>(a: &'a mut Fe<V, N>, mask: V::Mask, constant: &'a [u64; N]) {
        for i in 0..N {
            a[i] = a[i].or_if(mask, Digit::whole(V::splat(constant[i])));
        }
    }
}

/// For field operations that are compiled as functions of their own, because they are rare. `P` only names the field.
pub(crate) struct Marker<P>(pub(crate) PhantomData<P>);

/// `a b / R`, settled.
pub(crate) fn times<V: Vector, P: Prime<N>, const N: usize>(a: &Fe<V, N>, b: &Fe<V, N>) -> Fe<V, N> {
    struct Times<'a, V: Vector, P, const N: usize>(&'a Fe<V, N>, &'a Fe<V, N>, Marker<P>);
    impl<V: Vector, P: Prime<N>, const N: usize> Kernel<V> for Times<'_, V, P, N> {
        type Out = Fe<V, N>;
        #[inline(always)]
        fn run(self) -> Fe<V, N> {
            mul::<V, P, N>(self.0, self.1).settled::<P>()
        }
    }
    V::enter(Times(a, b, Marker::<P>(PhantomData)))
}

/// The element with each lane replaced by the lane `DISTANCE` away.
#[inline(always)]
fn exchanged<V: Vector, const N: usize, const DISTANCE: usize>(a: &Fe<V, N>) -> Fe<V, N> {
    let mut out = *a;
    repeat!(8, I => if I < N { out[I] = a[I].exchange::<DISTANCE>() });
    out
}

/// The products of two, four and eight neighbouring lanes, each in all of these lanes.
struct Products<'a, V: Vector, P, const N: usize>(&'a Fe<V, N>, Marker<P>);

impl<V: Vector, P: Prime<N>, const N: usize> Kernel<V> for Products<'_, V, P, N> {
    type Out = [Fe<V, N>; 3];

    #[inline(always)]
    fn run(self) -> Self::Out {
        let two = mul::<V, P, N>(self.0, &exchanged::<V, N, 1>(self.0)).digits();
        let four = mul::<V, P, N>(&two, &exchanged::<V, N, 2>(&two)).digits();
        let eight = mul::<V, P, N>(&four, &exchanged::<V, N, 4>(&four)).digits();
        [two, four, eight]
    }
}

/// From the inverse of the product of all lanes (the first element), each lane's own inverse, by multiplying by the
/// other lanes.
struct OwnInverse<'a, V: Vector, P, const N: usize>([&'a Fe<V, N>; 4], Marker<P>);

impl<V: Vector, P: Prime<N>, const N: usize> Kernel<V> for OwnInverse<'_, V, P, N> {
    type Out = Fe<V, N>;

    #[inline(always)]
    fn run(self) -> Fe<V, N> {
        let [inverse, one, two, four] = self.0;
        let x = mul::<V, P, N>(inverse, &exchanged::<V, N, 4>(four)).digits();
        let x = mul::<V, P, N>(&x, &exchanged::<V, N, 2>(two)).digits();
        mul::<V, P, N>(&x, &exchanged::<V, N, 1>(one)).digits()
    }
}

/// The inverses of eight lanes, in Montgomery's form, with one inversion of their product. Also returns the lanes that
/// are zero, whose inverse is arbitrary.
pub(crate) fn invert<V: Lane8, P: Prime<N>, const N: usize>(a: &Fe<V, N>) -> (Fe<V, N>, u8) {
    let modulus = Marker::<P>(PhantomData);
    let zero = super::zero_lanes(&reduced::<V, P, N>(a));
    let mut one = *a;
    replace::<V, N>(&mut one, V::mask_from_bits(zero), &P::ONE);
    let [mut two, mut four, eight] = V::enter(Products(&one, modulus));
    let mut product = super::unpack(&reduced::<V, P, N>(&eight))[0];
    let mut plain = inverse::invert(&product, &P::M);
    let mut inverse = times::<V, P, N>(&constant(&plain), &constant(&P::R2));
    let out = V::enter(OwnInverse([&inverse, &one, &two, &four], Marker::<P>(PhantomData)));
    for secret in [&mut one, &mut two, &mut four, &mut inverse] {
        secret.zeroize();
    }
    product.zeroize();
    plain.zeroize();
    (out, zero)
}

/// Converts out of Montgomery's form, to the unique representative below m, without junk.
pub(crate) fn reduced<V: Vector, P: Prime<N>, const N: usize>(a: &Fe<V, N>) -> Fe<V, N> {
    V::enter(Reduced(a, Marker::<P>(PhantomData)))
}

struct Reduced<'a, V: Vector, P, const N: usize>(&'a Fe<V, N>, Marker<P>);

impl<V: Vector, P: Prime<N>, const N: usize> Kernel<V> for Reduced<'_, V, P, N> {
    type Out = Fe<V, N>;

    #[inline(always)]
    fn run(self) -> Fe<V, N> {
        let mut one = [0; N];
        one[0] = 1;
        // At most 2 m.
        let x = mul::<V, P, N>(self.0, &constant(&one)).digits();
        let x = subtract_modulus::<V, P, N>(&x);
        subtract_modulus::<V, P, N>(&x)
    }
}

/// Subtracts m in lanes where the result is not negative. No junk remains.
#[inline(always)]
fn subtract_modulus<V: Vector, P: Prime<N>, const N: usize>(x: &Fe<V, N>) -> Fe<V, N> {
    let mut borrow = V::splat(0);
    let mut less = *x;
    repeat!(8, I => if I < N {
        let d = x[I].value().sub(V::splat(P::M[I])).add(borrow);
        less[I] = Digit::whole(d.and(V::splat(MASK52)));
        borrow = d.sar::<52>();
    });
    let below = borrow.negative();
    let mut out = less;
    repeat!(8, I => if I < N { out[I] = less[I].or_if(below, Digit::whole(x[I].value())) });
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ec::curves::{P256Field, P256Order, P384Field, P384Order};
    use crate::vector::{Bound, Portable};

    #[test]
    fn shared_inversions_stay_within_bounds() {
        fn of<P: Prime<N>, const N: usize>(top: u64) {
            let a = core::array::from_fn(|i| Digit::whole(Bound::upto(if i + 1 < N { MASK52 } else { top })));
            let [two, four, eight] = Products(&a, Marker::<P>(PhantomData)).run();
            let inverse = times::<Bound, P, N>(&eight, &constant(&P::R2));
            let out = OwnInverse([&inverse, &a, &two, &four], Marker::<P>(PhantomData)).run();
            assert!(out[N - 1].raw().high() <= i128::from(top));
        }
        of::<P256Field, 5>(3 << 48);
        of::<P256Order, 5>(3 << 48);
        of::<P384Field, 8>(5 << 20);
        of::<P384Order, 8>(5 << 20);
    }

    #[test]
    fn inverses_are_inverse_and_zeros_harm_no_neighbour() {
        fn of<P: Prime<N>, const N: usize>() {
            // Lane 3 holds zero, lane 5 the modulus.
            let lanes = |i: usize| -> [u64; 8] {
                core::array::from_fn(|lane| match lane {
                    3 => 0,
                    5 => P::M[i],
                    _ => (0xabc0_1234_5678 >> i) * (lane as u64 + 1),
                })
            };
            let a: Fe<Portable, N> = core::array::from_fn(|i| Digit::whole(Portable::from_lanes(&lanes(i))));
            let (inverse, zero) = invert::<_, P, N>(&a);
            assert_eq!(zero, 1 << 3 | 1 << 5);
            let products = super::super::unpack(&reduced::<_, P, N>(&times::<_, P, N>(&inverse, &a)));
            for (lane, product) in products.iter().enumerate() {
                let one = u64::from(zero >> lane & 1 == 0);
                assert_eq!(*product, core::array::from_fn(|i| if i == 0 { one } else { 0 }));
            }
        }
        of::<P256Field, 5>();
        of::<P256Order, 5>();
        of::<P384Field, 8>();
        of::<P384Order, 8>();
    }
}
