//! The field of 2^255 - 19, eight elements at once, five limbs of 52 bits.
//!
//! **Two forms.** [`Fe`] holds digits and can be multiplied. A product comes out as [`Cols`]: folded, but with carries
//! still standing in the columns. Sums and differences are taken there, so that an addition never carries by itself:
//! one ripple ([`Cols::digits`]) serves the product and the sum.
//!
//! **Product.** 25 pairs, low halves in column i + j, high halves in column i + j + 1. Digits are below 2^52 and the
//! top ones below 2^51 (a sum or difference of at most three products plus its bias, see [`Cols::sub`]), so columns
//! 0 to 8 are below `10 * 2^52 + 2^4`. Columns 5 to 9 are rippled into digits; column 9 then is below 2^51, and as
//! 2^260 = 608 they are folded with `608 c`, of which only `hi(608 c9) < 2^9` reaches past column 4 and is folded
//! again, times 608 (below 2^19, so it ends there). Last, the bits of column 4 from 2^255 on are folded times 19.
//! So of a `Cols`, columns 0 to 3 are below `2^56.2` and column 4 is below 2^47.
//!
//! **Digits** of such columns ripple once from column 0 to 4: nothing wraps again, and the top digit is below
//! `2^47 + 2^5`. The difference adds `2 p`, that is -38 at the bottom and 2^48 at the top; carries are signed.
//!
//! [`Bound`](crate::vector::Bound) proves every one of these: `no_column_overflows`. Time depends on nothing.

use crate::inverse;
use crate::vector::{Digit, Kernel, Lane8, MASK52, Vector, kernel, repeat};
use zeroize::Zeroize;

/// An element as digits: below 2^52 each, the top one below 2^51.
pub(crate) type Fe<V> = [Digit<V>; 5];

/// An element as columns, see the header.
#[derive(Clone, Copy)]
pub(crate) struct Cols<V>(pub(crate) [V; 5]);

/// p = 2^255 - 19.
pub(crate) const MODULUS: [u64; 5] = [MASK52 - 18, MASK52, MASK52, MASK52, TOP];
/// 2^260 modulo p.
const FOLD: u64 = 608;
const TOP: u64 = (1 << 47) - 1;

/// `a b`.
#[inline(always)]
pub(crate) fn mul<V: Vector>(a: &Fe<V>, b: &Fe<V>) -> Cols<V> {
    V::inline(Mul(a, b))
}

/// `a^2`.
#[inline(always)]
pub(crate) fn sqr<V: Vector>(a: &Fe<V>) -> Cols<V> {
    V::inline(Sqr(a))
}

struct Mul<'a, V>(&'a Fe<V>, &'a Fe<V>);

impl<V: Vector> Kernel<V> for Mul<'_, V> {
    type Out = Cols<V>;

    #[inline(always)]
    fn run(self) -> Cols<V> {
        product(self.0, self.1)
    }
}

struct Sqr<'a, V>(&'a Fe<V>);

impl<V: Vector> Kernel<V> for Sqr<'_, V> {
    type Out = Cols<V>;

    #[inline(always)]
    fn run(self) -> Cols<V> {
        square(self.0)
    }
}

#[inline(always)]
fn product<V: Vector>(a: &Fe<V>, b: &Fe<V>) -> Cols<V> {
    let mut c = [V::splat(0); 10];
    repeat!(5, I => repeat!(5, J => {
        c[I + J] = c[I + J].madd_lo(a[I], b[J]);
        c[I + J + 1] = c[I + J + 1].madd_hi(a[I], b[J]);
    }));
    fold(c)
}

#[inline(always)]
fn square<V: Vector>(a: &Fe<V>) -> Cols<V> {
    let mut c = [V::splat(0); 10];
    repeat!(5, I => repeat!(5, J => if J > I {
        c[I + J] = c[I + J].madd_lo(a[I], a[J]);
        c[I + J + 1] = c[I + J + 1].madd_hi(a[I], a[J]);
    }));
    repeat!(5, I => {
        if I > 0 {
            c[2 * I] = c[2 * I].add(c[2 * I]);
        }
        c[2 * I] = c[2 * I].madd_lo(a[I], a[I]);
        c[2 * I + 1] = c[2 * I + 1].add(c[2 * I + 1]).madd_hi(a[I], a[I]);
    });
    fold(c)
}

#[inline(always)]
fn fold<V: Vector>(mut c: [V; 10]) -> Cols<V> {
    let k = Digit::whole(V::splat(FOLD));
    let mut high = [Digit::whole(V::splat(0)); 5];
    repeat!(5, I => {
        if I > 0 {
            c[5 + I] = c[5 + I].add(c[4 + I].shr::<52>());
        }
        high[I] = if I < 4 { Digit::low(c[5 + I]) } else { Digit::whole(c[9]) };
    });
    let over = Digit::whole(V::splat(0).madd_hi(high[4], k));
    repeat!(5, I => {
        c[I] = c[I].madd_lo(high[I], k);
        if I < 4 {
            c[I + 1] = c[I + 1].madd_hi(high[I], k);
        }
    });
    c[0] = c[0].madd_lo(over, k);
    let top = Digit::whole(c[4].shr::<47>());
    c[0] = c[0].madd_lo(top, Digit::whole(V::splat(19)));
    Cols([c[0], c[1], c[2], c[3], c[4].and(V::splat(TOP))])
}

impl<V: Vector> Cols<V> {
    /// Digits, of a sum of products.
    #[inline(always)]
    pub(crate) fn digits(self) -> Fe<V> {
        let mut c = self.0;
        let mut out = [Digit::whole(V::splat(0)); 5];
        repeat!(5, I => {
            if I > 0 {
                // Arithmetic, for the sake of differences.
                c[I] = c[I].add(c[(I + 4) % 5].sar::<52>());
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

    /// `self - other + 2 p`, for an `other` that is one product.
    #[inline(always)]
    pub(crate) fn sub(mut self, other: Cols<V>) -> Cols<V> {
        repeat!(5, I => self.0[I] = self.0[I].sub(other.0[I]));
        self.0[0] = self.0[0].sub(V::splat(38));
        self.0[4] = self.0[4].add(V::splat(1 << 48));
        self
    }

    /// `self - other + 8 p`, for an `other` that is a sum of up to six products.
    #[inline(always)]
    pub(crate) fn sub_wide(mut self, other: Cols<V>) -> Cols<V> {
        repeat!(5, I => self.0[I] = self.0[I].sub(other.0[I]));
        self.0[0] = self.0[0].sub(V::splat(4 * 38));
        self.0[4] = self.0[4].add(V::splat(4 << 48));
        self
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
        // hi(a24 e4) is below 2^15, at 2^260.
        let over = V::splat(0).madd_hi(e[4], a24);
        self.0[0] = self.0[0].madd_lo(Digit::whole(over), Digit::whole(V::splat(FOLD)));
        let top = Digit::whole(self.0[4].shr::<47>());
        self.0[0] = self.0[0].madd_lo(top, Digit::whole(V::splat(19)));
        self.0[4] = self.0[4].and(V::splat(TOP));
        self
    }
}

/// Digits that carry no junk, as columns.
#[inline(always)]
pub(crate) fn columns<V: Vector>(a: &Fe<V>) -> Cols<V> {
    Cols([a[0].value(), a[1].value(), a[2].value(), a[3].value(), a[4].raw()])
}

/// `no` or `yes`, by lane.
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
    /// The products of two, four and eight neighbouring lanes, in each of them.
    fn products as Products<'a, V: Vector>(one: &'a Fe<V>, two: &'a mut Fe<V>, four: &'a mut Fe<V>, eight: &'a mut Fe<V>) {
        *two = mul(one, &exchanged::<V, 1>(one)).digits();
        *four = mul(two, &exchanged::<V, 2>(two)).digits();
        *eight = mul(four, &exchanged::<V, 4>(four)).digits();
    }
}

kernel! {
    /// From the inverse of the product of all lanes each lane's own, by multiplying the other lanes in.
    fn share as Share<'a, V: Vector>(inverse: &'a mut Fe<V>, one: &'a Fe<V>, two: &'a Fe<V>, four: &'a Fe<V>) {
        *inverse = mul(inverse, &exchanged::<V, 4>(four)).digits();
        *inverse = mul(inverse, &exchanged::<V, 2>(two)).digits();
        *inverse = mul(inverse, &exchanged::<V, 1>(one)).digits();
    }
}

/// The inverses of eight lanes by one inversion of their product; zero for zero.
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
    /// The one representative below p, without junk.
    fn freeze as Freeze<'a, V: Vector>(a: &'a mut Fe<V>) {
        // Below 2^256: fold twice the bits from 2^255 on, then subtract p if it goes, by adding 19 and looking at 2^255.
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
mod tests {
    use super::*;
    use crate::vector::Bound;

    /// The header's bounds: the widest digits that sums and differences make.
    fn widest() -> Fe<Bound> {
        [MASK52, MASK52, MASK52, MASK52, 1 << 51].map(|high| Digit::whole(Bound::upto(high)))
    }

    #[test]
    fn no_column_overflows() {
        for product in [mul(&widest(), &widest()), sqr(&widest())] {
            assert!(product.0[4].high() <= i128::from(TOP));
            for sum in [
                product.digits(),
                product.add(product).digits(),
                product.sub(product).digits(),
                product.add(product).sub(product).digits(),
                product.add_a24(&widest()).digits(),
            ] {
                assert!(sum[4].raw().high() <= 1 << 51, "a top digit grows past the header's bound");
                let mut frozen = sum;
                freeze(&mut frozen);
                let [mut two, mut four, mut eight] = [frozen; 3];
                products(&frozen, &mut two, &mut four, &mut eight);
                share(&mut eight, &frozen, &two, &four);
                assert!(eight[4].raw().high() <= 1 << 51);
            }
        }
    }
}
