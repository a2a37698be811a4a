//! The field of 2^255 - 19, eight elements at once, five limbs of 52 bits.
//!
//! **Two forms.** [`Fe`] holds digits and can be multiplied. A product results in [`Cols`]: its upper columns are
//! folded, but the lower ones still contain carries. Sums and differences are computed in this form, so that an
//! addition never needs carries of its own: one ripple ([`Cols::digits`]) serves both the product and the sum.
//!
//! **Product.** 25 pairs, low halves in column i + j, high halves in column i + j + 1. Digits are below 2^52 and the
//! top ones below `2^47 + 2^12`, so columns are below `9 * 2^52 + 2^4` and column 9 below `2^42 + 2^9`. As 2^260 = 608,
//! columns 5 to 9 are folded with `608 c`: each as a digit, with its carry folded separately one column up, and nothing
//! of column 9 reaches past column 4. So the columns of a product are below `2^55.4`.
//!
//! **Differences** must not be negative. So a product from which another is subtracted is *lifted*: its columns start
//! with 512 p, limb by limb, which is above 2^55.9 in each and costs no time.
//!
//! **Digits** of columns: the bits of column 4 from 2^255 on, fewer than 2^17, are folded times 19, and one ripple goes
//! from column 0 to 4. Columns are below 2^64, so nothing wraps again, and the top digit is below `2^47 + 2^12`.
//!
//! [`Bound`](crate::vector::Bound) proves all of these bounds: `products_stay_within_bounds`, and the tests of the
//! whole ladder and of the Edwards formulas. Constant time.

use crate::inverse;
use crate::vector::{Digit, Kernel, Lane8, MASK52, Vector, kernel, repeat};
use zeroize::Zeroize;

/// An element as digits: below 2^52 each, the top one below `2^47 + 2^12`.
pub(crate) type Fe<V> = [Digit<V>; 5];

/// An element as columns, see the header.
#[derive(Clone, Copy)]
pub(crate) struct Cols<V>(pub(crate) [V; 5]);

/// p = 2^255 - 19.
pub(crate) const MODULUS: [u64; 5] = [MASK52 - 18, MASK52, MASK52, MASK52, TOP];
/// 2^260 modulo p.
const FOLD: u64 = 608;
const TOP: u64 = (1 << 47) - 1;

/// 512 p: above any product, column by column.
const LIFT: [u64; 5] = [MODULUS[0] << 9, MASK52 << 9, MASK52 << 9, MASK52 << 9, TOP << 9];

/// `a b`.
#[inline(always)]
pub(crate) fn mul<V: Vector>(a: &Fe<V>, b: &Fe<V>) -> Cols<V> {
    V::inline(Mul([0; 5], a, b))
}

/// `a b`, lifted.
#[inline(always)]
pub(crate) fn mul_lifted<V: Vector>(a: &Fe<V>, b: &Fe<V>) -> Cols<V> {
    V::inline(Mul(LIFT, a, b))
}

/// `a^2`.
#[inline(always)]
pub(crate) fn sqr<V: Vector>(a: &Fe<V>) -> Cols<V> {
    V::inline(Sqr([0; 5], a))
}

/// `a^2`, lifted.
#[inline(always)]
pub(crate) fn sqr_lifted<V: Vector>(a: &Fe<V>) -> Cols<V> {
    V::inline(Sqr(LIFT, a))
}

/// The initial values of the columns, and the factors.
struct Mul<'a, V>([u64; 5], &'a Fe<V>, &'a Fe<V>);

impl<V: Vector> Kernel<V> for Mul<'_, V> {
    type Out = Cols<V>;

    #[inline(always)]
    fn run(self) -> Cols<V> {
        let Mul(start, a, b) = self;
        let mut c: [V; 10] = started(start);
        repeat!(5, I => repeat!(5, J => {
            c[I + J] = c[I + J].madd_lo(a[I], b[J]);
            c[I + J + 1] = c[I + J + 1].madd_hi(a[I], b[J]);
        }));
        fold(c)
    }
}

struct Sqr<'a, V>([u64; 5], &'a Fe<V>);

impl<V: Vector> Kernel<V> for Sqr<'_, V> {
    type Out = Cols<V>;

    #[inline(always)]
    fn run(self) -> Cols<V> {
        let Sqr(start, a) = self;
        // Products of different digits are computed once, and doubled when the squares are added.
        let mut c: [V; 10] = started(start.map(|limb| limb / 2));
        repeat!(5, I => repeat!(5, J => if J > I {
            c[I + J] = c[I + J].madd_lo(a[I], a[J]);
            c[I + J + 1] = c[I + J + 1].madd_hi(a[I], a[J]);
        }));
        repeat!(5, I => {
            c[2 * I] = c[2 * I].add(c[2 * I]).madd_lo(a[I], a[I]);
            c[2 * I + 1] = c[2 * I + 1].add(c[2 * I + 1]).madd_hi(a[I], a[I]);
        });
        fold(c)
    }
}

#[inline(always)]
fn started<V: Vector>(start: [u64; 5]) -> [V; 10] {
    core::array::from_fn(|k| V::splat(if k < 5 { start[k] } else { 0 }))
}

#[inline(always)]
fn fold<V: Vector>(c: [V; 10]) -> Cols<V> {
    let k = Digit::whole(V::splat(FOLD));
    let mut low = [c[0], c[1], c[2], c[3], c[4]];
    repeat!(5, I => {
        let digit = if I < 4 { Digit::low(c[5 + I]) } else { Digit::whole(c[9]) };
        low[I] = low[I].madd_lo(digit, k);
        if I < 4 {
            let carry = Digit::whole(c[5 + I].shr::<52>());
            low[I + 1] = low[I + 1].madd_hi(digit, k).madd_lo(carry, k);
        }
    });
    Cols(low)
}

impl<V: Vector> Cols<V> {
    /// The digits of a sum of products.
    #[inline(always)]
    pub(crate) fn digits(self) -> Fe<V> {
        let mut c = self.0;
        c[0] = c[0].madd_lo(Digit::whole(c[4].shr::<47>()), Digit::whole(V::splat(19)));
        c[4] = c[4].and(V::splat(TOP));
        let mut out = [Digit::whole(V::splat(0)); 5];
        repeat!(5, I => {
            if I > 0 {
                c[I] = c[I].add(c[(I + 4) % 5].shr::<52>());
            }
            out[I] = if I < 4 { Digit::low(c[I]) } else { Digit::whole(c[I]) };
        });
        out
    }

    #[inline(always)]
    pub(crate) fn add(mut self, other: Cols<V>) -> Cols<V> {
        repeat!(5, I => self.0[I] = self.0[I].add(other.0[I]));
        self
    }

    /// `self - other`, for `self` lifted as many times as `other` has products.
    #[inline(always)]
    pub(crate) fn sub(mut self, other: Cols<V>) -> Cols<V> {
        repeat!(5, I => self.0[I] = self.0[I].sub(other.0[I]));
        self
    }

    /// Lifts a number that is not a product.
    #[inline(always)]
    pub(crate) fn lifted(self) -> Cols<V> {
        self.add(Cols(LIFT.map(V::splat)))
    }

    /// `self + 121665 e`: the curve's (A - 2) / 4.
    #[inline(always)]
    pub(crate) fn add_a24(mut self, e: &Fe<V>) -> Cols<V> {
        let a24 = Digit::whole(V::splat(121_665));
        repeat!(5, I => {
            self.0[I] = self.0[I].madd_lo(e[I], a24);
            if I < 4 {
                self.0[I + 1] = self.0[I + 1].madd_hi(e[I], a24);
            }
        });
        // hi(a24 e4) is below 2^12, at 2^260.
        let over = V::splat(0).madd_hi(e[4], a24);
        self.0[0] = self.0[0].madd_lo(Digit::whole(over), Digit::whole(V::splat(FOLD)));
        self
    }
}

/// Converts digits without junk to columns.
#[inline(always)]
pub(crate) fn columns<V: Vector>(a: &Fe<V>) -> Cols<V> {
    Cols([a[0].value(), a[1].value(), a[2].value(), a[3].value(), a[4].raw()])
}

/// Selects `no` or `yes` in each lane.
#[inline(always)]
pub(crate) fn select<V: Vector>(mask: V::Mask, no: &Fe<V>, yes: &Fe<V>) -> Fe<V> {
    let mut out = *no;
    repeat!(5, I => out[I] = no[I].or_if(mask, yes[I]));
    out
}

/// A small constant.
#[inline(always)]
pub(crate) fn constant<V: Vector>(limbs: [u64; 5]) -> Fe<V> {
    limbs.map(|limb| Digit::whole(V::splat(limb)))
}

kernel! {
    /// `a b`.
    fn times as Times<'a, V: Vector>(a: &'a Fe<V>, b: &'a Fe<V>, out: &'a mut Fe<V>) {
        *out = mul(a, b).digits();
    }
}

/// Products of lanes and back, as in `ec::field`.
#[inline(always)]
fn exchanged<V: Vector, const DISTANCE: usize>(a: &Fe<V>) -> Fe<V> {
    let mut out = *a;
    repeat!(5, I => out[I] = a[I].exchange::<DISTANCE>());
    out
}

kernel! {
    /// The products of two, four and eight neighbouring lanes, each in all of these lanes.
    fn products as Products<'a, V: Vector>(one: &'a Fe<V>, two: &'a mut Fe<V>, four: &'a mut Fe<V>, eight: &'a mut Fe<V>) {
        *two = mul(one, &exchanged::<V, 1>(one)).digits();
        *four = mul(two, &exchanged::<V, 2>(two)).digits();
        *eight = mul(four, &exchanged::<V, 4>(four)).digits();
    }
}

kernel! {
    /// From the inverse of the product of all lanes, each lane's own inverse, by multiplying by the other lanes.
    fn share as Share<'a, V: Vector>(inverse: &'a mut Fe<V>, one: &'a Fe<V>, two: &'a Fe<V>, four: &'a Fe<V>) {
        *inverse = mul(inverse, &exchanged::<V, 4>(four)).digits();
        *inverse = mul(inverse, &exchanged::<V, 2>(two)).digits();
        *inverse = mul(inverse, &exchanged::<V, 1>(one)).digits();
    }
}

/// The inverses of eight lanes, with one inversion of their product; zero for zero.
pub(crate) fn invert<V: Lane8>(a: &Fe<V>) -> Fe<V> {
    let mut frozen = *a;
    freeze(&mut frozen);
    let zero = frozen.iter().fold(V::splat(0), |any, digit| any.or(digit.value())).eq(V::splat(0));
    let mut one = frozen;
    one[0] = one[0].or_if(zero, Digit::whole(V::splat(1)));
    let [mut two, mut four, mut eight] = [one; 3];
    products(&one, &mut two, &mut four, &mut eight);
    freeze(&mut eight);
    let mut product = eight.map(|digit| digit.value().to_lanes()[0]);
    let mut plain = inverse::invert(&product, &MODULUS);
    let mut out = constant(plain);
    share(&mut out, &one, &two, &four);
    for digit in &mut out {
        *digit = digit.or_if(zero, Digit::whole(V::splat(0)));
    }
    for secret in [&mut frozen, &mut one, &mut two, &mut four, &mut eight] {
        secret.zeroize();
    }
    product.zeroize();
    plain.zeroize();
    out
}

kernel! {
    /// The unique representative below p, without junk.
    fn freeze as Freeze<'a, V: Vector>(a: &'a mut Fe<V>) {
        // Below 2^256: folds the bits from 2^255 on twice, then subtracts p if possible, by adding 19 and looking at
        // bit 255.
        let mut c = columns(a).0;
        for add in [0, 0, 19] {
            let mut t = c;
            t[0] = t[0].add(V::splat(add));
            repeat!(5, I => if I > 0 {
                t[I] = t[I].add(t[(I + 4) % 5].shr::<52>());
                t[(I + 4) % 5] = t[(I + 4) % 5].and(V::splat(MASK52));
            });
            let top = Digit::whole(t[4].shr::<47>());
            if add == 0 {
                c = t;
                c[4] = c[4].and(V::splat(TOP));
            }
            c[0] = c[0].madd_lo(top, Digit::whole(V::splat(19)));
        }
        repeat!(5, I => {
            if I > 0 {
                c[I] = c[I].add(c[(I + 4) % 5].shr::<52>());
            }
            a[I] = Digit::low(c[I].and(V::splat(if I < 4 { MASK52 } else { TOP })));
        });
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::vector::Bound;

    /// The widest digits within the header's bounds.
    pub(crate) fn widest() -> Fe<Bound> {
        [MASK52, MASK52, MASK52, MASK52, WIDEST_TOP].map(|high| Digit::whole(Bound::upto(high)))
    }

    const WIDEST_TOP: u64 = (1 << 47) + (1 << 12);

    pub(crate) fn assert_within_bounds(a: &Fe<Bound>) {
        assert!(a[4].raw().high() <= i128::from(WIDEST_TOP), "a top digit grows past the header's bound");
    }

    #[test]
    fn products_stay_within_bounds() {
        for product in [mul(&widest(), &widest()), sqr(&widest())] {
            for (column, lift) in product.0.iter().zip(LIFT) {
                assert!(column.low() >= 0 && column.high() <= i128::from(lift), "a product passes 512 p");
            }
        }
        let mut frozen = mul_lifted(&widest(), &widest()).digits();
        freeze(&mut frozen);
        let [mut two, mut four, mut eight] = [frozen; 3];
        products(&frozen, &mut two, &mut four, &mut eight);
        share(&mut eight, &frozen, &two, &four);
        assert_within_bounds(&eight);
    }
}
