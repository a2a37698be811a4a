//! Lanes as four signed 16-bit slots, which ML-KEM computes with: its coefficients have 12 bits.
//!
//! [`Slots`] is the arithmetic. As with [`super::Vector`], its control flow does not depend on data, and a run on
//! [`super::Bound16`], which stores for each word only the interval its slots may lie in, proves that no slot and no
//! pair overflows. [`Shuffle`] moves bits between lanes and slots.

use zeroize::DefaultIsZeroes;

/// Four signed 16-bit slots in each of eight lanes.
pub(crate) trait Slots: Copy + Default + DefaultIsZeroes {
    /// Two signed 32-bit words per lane.
    type Pairs: Copy + Default + DefaultIsZeroes;

    /// A vector with the same four public constants in every lane, the lowest slot first.
    fn slots(values: [i16; 4]) -> Self;
    fn add16(self, other: Self) -> Self;
    fn sub16(self, other: Self) -> Self;
    /// The low 16 bits of each product.
    fn mul_low16(self, other: Self) -> Self;
    /// The high 16 bits of each signed product.
    fn mul_high16(self, other: Self) -> Self;
    /// Slots 0, 1, 0, 1.
    fn low_slots(self) -> Self;
    /// Slots 2, 3, 2, 3.
    fn high_slots(self) -> Self;
    /// Slots 1, 0, 3, 2.
    fn exchange16(self) -> Self;
    /// Adds `q` to the slots that are negative.
    fn lift(self, q: i16) -> Self;
    /// `sum` plus the products of slots 0 and of slots 1 in the first word, and of slots 2 and of slots 3 in the
    /// second.
    fn dot(sum: Self::Pairs, a: Self, b: Self) -> Self::Pairs;
    /// The low halves, and the high halves, of words: those of `even` in slots 0 and 2, those of `odd` in slots 1 and
    /// 3.
    fn halves(even: Self::Pairs, odd: Self::Pairs) -> [Self; 2];
}

/// Moves bits between places; not implemented for intervals.
pub(crate) trait Shuffle: Slots {
    /// Slot s becomes the `WIDTH` bits of the lane from bit `AT + s * WIDTH` on.
    fn spread<const AT: u32, const WIDTH: u32>(self) -> Self;
    /// Lane i of row j becomes lane j of row i.
    fn transpose(rows: &mut [Self; 8]);
    /// Reads 12-bit numbers from `bytes` (little-endian, two in three bytes) and appends those below `q` to the `count`
    /// that `out` already holds, up to 256. Returns how many there are now; numbers past 256 do not count. Only for
    /// public bytes; at most 504 of them, in a multiple of 24.
    fn accept_vartime(bytes: &[u8], q: u16, out: &mut [u16; ACCEPTED], count: usize) -> usize;
}

/// Room for 256 numbers and one vector written after them.
pub(crate) const ACCEPTED: usize = 256 + 32;
