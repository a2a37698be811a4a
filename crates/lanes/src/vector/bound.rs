//! Lanes as intervals: running a kernel on this vector proves that nothing overflows.
//!
//! A value stands for every word from `low` to `high`. An operation returns the interval of all its possible results,
//! and panics if one of them would not fit the register, or would be truncated by the multiplier unintentionally.

use super::{Digit, Kernel, MASK52, RADIX, Vector};
use zeroize::DefaultIsZeroes;

#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    low: i128,
    high: i128,
}

impl DefaultIsZeroes for Bound {}

impl Bound {
    /// Every value from 0 to `high`.
    pub(crate) fn upto(high: u64) -> Bound {
        Bound { low: 0, high: i128::from(high) }
    }

    /// Every value between two bounds, of which the lower may be negative.
    pub(crate) fn between(low: i64, high: i64) -> Bound {
        Bound { low: i128::from(low), high: i128::from(high) }
    }

    pub(crate) fn low(self) -> i128 {
        self.low
    }

    pub(crate) fn high(self) -> i128 {
        self.high
    }

    fn checked(low: i128, high: i128) -> Bound {
        assert!(low <= high);
        if low < 0 {
            assert!(low >= -(1 << 63) && high < 1 << 63, "signed word overflows: {low}..={high}");
        } else {
            assert!(high < 1 << 64, "accumulator overflows: 2^{:.3}", (high as f64).log2());
        }
        Bound { low, high }
    }

    fn product(a: Digit<Bound>, b: Digit<Bound>) -> i128 {
        a.0.assert_digit();
        b.0.assert_digit();
        a.0.high * b.0.high
    }
}

impl Vector for Bound {
    type Mask = ();

    fn splat(x: u64) -> Self {
        Bound { low: i128::from(x), high: i128::from(x) }
    }
    fn add(self, other: Self) -> Self {
        Bound::checked(self.low + other.low, self.high + other.high)
    }
    fn sub(self, other: Self) -> Self {
        Bound::checked(self.low - other.high, self.high - other.low)
    }
    fn and(self, other: Self) -> Self {
        // If one side may be negative, its bits can be anything.
        match (self.low < 0, other.low < 0) {
            (false, false) => Bound { low: 0, high: self.high.min(other.high) },
            (true, false) => Bound { low: 0, high: other.high },
            (false, true) => Bound { low: 0, high: self.high },
            (true, true) => panic!("both operands of an and may be negative"),
        }
    }
    fn shr<const K: u32>(self) -> Self {
        assert!(self.low >= 0, "a logical shift of a value that may be negative");
        Bound { low: self.low >> K, high: self.high >> K }
    }
    fn shl<const K: u32>(self) -> Self {
        Bound::checked(self.low << K, self.high << K)
    }
    fn sar<const K: u32>(self) -> Self {
        assert!(self.high < 1 << 63, "an arithmetic shift of a value that may have its top bit set");
        Bound { low: self.low >> K, high: self.high >> K }
    }
    fn madd_lo(self, a: Digit<Self>, b: Digit<Self>) -> Self {
        let high = Bound::product(a, b).min(i128::from(MASK52));
        Bound::checked(self.low, self.high + high)
    }
    fn madd_hi(self, a: Digit<Self>, b: Digit<Self>) -> Self {
        let high = Bound::product(a, b) >> RADIX;
        Bound::checked(self.low, self.high + high)
    }
    fn eq(self, _: Self) {}
    fn negative(self) {}
    fn or_if(self, (): (), yes: Self) -> Self {
        Bound { low: self.low.min(yes.low), high: self.high.max(yes.high) }
    }
    fn mask_xor((): (), (): ()) {}
    fn exchange<const DISTANCE: usize>(self) -> Self {
        self
    }
    fn word(digits: &[Digit<Self>], at: usize) -> Self {
        digits[at / 8].0
    }
    fn first(self) -> Self {
        self
    }
    fn add_first(self, other: Self) -> Self {
        self.or_if((), self.add(other))
    }
    fn down(self, above: Self) -> Self {
        self.or_if((), above)
    }
    fn up(self, below: Self) -> Self {
        self.or_if((), below)
    }
    fn ripple<const Z: usize>(words: &[Self; Z]) -> [Digit<Self>; Z] {
        words.map(|word| {
            // Then a lane that overflows does not pass a carry on as well, and its carry is at most one.
            assert!(word.low >= 0 && word.high < 2 * i128::from(MASK52), "more than one is carried out of a lane");
            Digit(Bound::upto(MASK52))
        })
    }
    fn enter<K: Kernel<Self>>(kernel: K) -> K::Out {
        kernel.run()
    }
    fn inline<K: Kernel<Self>>(kernel: K) -> K::Out {
        kernel.run()
    }
    fn fence() {}
    fn truncate(self) -> Self {
        if self.low < 0 || self.high > i128::from(MASK52) { Bound::upto(MASK52) } else { self }
    }
    fn not_negative(self) -> Self {
        Bound { low: self.low.max(0), high: self.high }
    }
    fn assert_digit(self) {
        assert!(
            self.low >= 0 && self.high <= i128::from(MASK52),
            "the multiplier would truncate a multiplicand of {}..={:#x}",
            self.low,
            self.high
        );
    }
}

#[test]
#[should_panic = "accumulator overflows"]
fn bound_refuses_an_overflowing_accumulator() {
    let full = Bound::upto(u64::MAX);
    let _ = full.add(Bound::upto(1));
}

#[test]
#[should_panic = "the multiplier would truncate"]
fn bound_refuses_a_multiplicand_over_52_bits() {
    let wide = Digit::whole(Bound::upto(MASK52 + 1));
    let _ = Bound::default().madd_lo(wide, wide);
}
