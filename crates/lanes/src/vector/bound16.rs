//! Slots as intervals: running a kernel on this vector proves that no 16-bit slot and no pair overflows.

use super::slots::Slots;
use zeroize::DefaultIsZeroes;

/// An interval that contains every slot.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Bound16 {
    low: i32,
    high: i32,
}

/// An interval that contains every word.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct BoundPairs {
    low: i64,
    high: i64,
}

impl DefaultIsZeroes for Bound16 {}
impl DefaultIsZeroes for BoundPairs {}

impl Bound16 {
    pub(crate) fn between(low: i32, high: i32) -> Bound16 {
        assert!(i32::from(i16::MIN) <= low && high <= i32::from(i16::MAX), "a slot overflows: {low}..={high}");
        Bound16 { low, high }
    }

    pub(crate) fn low(self) -> i32 {
        self.low
    }

    pub(crate) fn high(self) -> i32 {
        self.high
    }

    fn products(self, other: Bound16) -> [i64; 2] {
        let corners = [self.low * other.low, self.low * other.high, self.high * other.low, self.high * other.high];
        [*corners.iter().min().unwrap(), *corners.iter().max().unwrap()].map(i64::from)
    }
}

impl Slots for Bound16 {
    type Pairs = BoundPairs;

    fn slots(values: [i16; 4]) -> Self {
        let values = values.map(i32::from);
        Bound16 { low: *values.iter().min().unwrap(), high: *values.iter().max().unwrap() }
    }
    fn add16(self, other: Self) -> Self {
        Bound16::between(self.low + other.low, self.high + other.high)
    }
    fn sub16(self, other: Self) -> Self {
        Bound16::between(self.low - other.high, self.high - other.low)
    }
    /// Truncates intentionally: any slot value is possible.
    fn mul_low16(self, other: Self) -> Self {
        match self.products(other) {
            [low, high] if low >= -0x8000 && high < 0x8000 => Bound16 { low: low as i32, high: high as i32 },
            _ => Bound16 { low: -0x8000, high: 0x7fff },
        }
    }
    fn mul_high16(self, other: Self) -> Self {
        let [low, high] = self.products(other);
        Bound16 { low: (low >> 16) as i32, high: (high >> 16) as i32 }
    }
    fn low_slots(self) -> Self {
        self
    }
    fn high_slots(self) -> Self {
        self
    }
    fn exchange16(self) -> Self {
        self
    }
    fn lift(self, q: i16) -> Self {
        if self.low >= 0 {
            return self;
        }
        // Negative values are lifted to below q; others stay.
        let q = i32::from(q);
        Bound16 { low: (self.low + q).min(0), high: self.high.max((q - 1).min(self.high + q)) }
    }
    fn dot(sum: BoundPairs, a: Self, b: Self) -> BoundPairs {
        let [low, high] = a.products(b);
        let sum = BoundPairs { low: sum.low + 2 * low, high: sum.high + 2 * high };
        assert!(i64::from(i32::MIN) <= sum.low && sum.high <= i64::from(i32::MAX), "a pair overflows: {sum:?}");
        sum
    }
    fn halves(even: BoundPairs, odd: BoundPairs) -> [Self; 2] {
        let (low, high) = (even.low.min(odd.low) >> 16, even.high.max(odd.high) >> 16);
        [Bound16 { low: -0x8000, high: 0x7fff }, Bound16::between(low as i32, high as i32)]
    }
}

#[test]
#[should_panic = "a slot overflows"]
fn bound_refuses_an_overflowing_slot() {
    let _ = Bound16::between(0, 0x7fff).add16(Bound16::between(0, 1));
}

#[test]
#[should_panic = "a pair overflows"]
fn bound_refuses_an_overflowing_pair() {
    let wide = Bound16::between(-0x8000, 0x7fff);
    let _ = Bound16::dot(BoundPairs::default(), wide, wide);
}
