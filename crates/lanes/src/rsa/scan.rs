//! Reading a table of powers at secret indices, a different one in each lane: every power is read, whatever the indices.
//!
//! Power by power, a digit takes a blend for each. A permutation chooses one word of sixteen: so the powers are turned
//! round once, and sixteen of them that belong to one lane lie side by side in two registers; a digit takes a permutation
//! for each lane and each sixteen powers, half as many. (In memory an index would be an address; in registers there is none.)
//!
//! The tables of the larger sizes lie in the second-level cache, and to stream one from there takes longer than to choose
//! from it. So [`Scan`] goes through it *beside* the squarings of a window, whose operands lie in the first-level
//! cache: two lanes' sixteen powers in the shadow of ten rows of a reduction, in four streams, one word after the other.

use super::mont::{part, part_mut};
use crate::vector::{Digit, Lane8, Vector, kernel, repeat};
use zeroize::Zeroize;

/// Sixteen powers of one lane, digit by digit: the lower eight, the higher eight.
type Sixteen<V, const N: usize> = [[V; N]; 2];
/// Of lanes `2 k` and `2 k + 1`: what is read beside ten rows.
type Pair<V, const N: usize> = [Sixteen<V, N>; 2];

/// 16 or 32 powers, turned round: pair `4 h + k` holds powers `16 h` to `16 h + 15` of lanes `2 k` and `2 k + 1`.
pub(crate) struct Table<V, const N: usize>(Vec<Pair<V, N>>);

impl<V: Lane8, const N: usize> Table<V, N> {
    /// Room for so many powers.
    pub(crate) fn new(powers: usize) -> Self {
        assert!(powers.is_multiple_of(16));
        Table(vec![[[[V::default(); N]; 2]; 2]; powers / 4])
    }

    pub(crate) fn fill(&mut self, powers: &[[Digit<V>; N]]) {
        turn(powers, &mut self.0);
    }

    /// Chooses where there are no squarings to go beside.
    pub(crate) fn choose(&self, index: V, out: &mut [Digit<V>; N]) {
        start(index, out);
        choose(Scan { pairs: &self.0, first: 0, index, out });
    }

    /// What is read beside the `squaring`th of `squarings`; the first begins `out` anew. `None` where all has been read.
    pub(crate) fn share<'a>(
        &'a self,
        squaring: usize,
        squarings: usize,
        index: V,
        out: &'a mut [Digit<V>; N],
    ) -> Option<Scan<'a, V, N>> {
        if squaring == 0 {
            start(index, out);
        }
        let share = self.0.len().div_ceil(squarings);
        assert!(self.0.len().is_multiple_of(share) && share <= N / 10, "some pairs would find no rows");
        let first = share * squaring;
        let pairs = self.0.get(first..first + share)?;
        Some(Scan { pairs, first, index, out })
    }
}

#[cfg(test)]
impl<const N: usize> Table<crate::vector::Portable, N> {
    pub(crate) fn is_zero(&self) -> bool {
        self.0.as_flattened().as_flattened().as_flattened().iter().all(|word| word.to_lanes() == [0; 8])
    }
}

impl<V: Vector, const N: usize> Zeroize for Table<V, N> {
    fn zeroize(&mut self) {
        self.0.as_flattened_mut().as_flattened_mut().as_flattened_mut().zeroize();
    }
}

/// The part of a table that is read beside one squaring.
pub(crate) struct Scan<'a, V: Vector, const N: usize> {
    pairs: &'a [Pair<V, N>],
    /// The number of the first of them.
    first: usize,
    index: V,
    out: &'a mut [Digit<V>; N],
}

impl<V: Lane8, const N: usize> Scan<'_, V, N> {
    #[inline(always)]
    fn pair(&mut self, block: usize) -> Reading<'_, V, N> {
        let number = self.first + block;
        let sixteen = self.index.shr::<4>().eq(V::splat(number as u64 / 4));
        let lanes = V::mask_to_bits(sixteen) & 0b11 << (2 * (number % 4));
        let here = [V::mask_from_bits(lanes & 0b0101_0101), V::mask_from_bits(lanes & 0b1010_1010)];
        Reading { pair: &self.pairs[block], here, out: self.out }
    }
}

/// Where the reduction of a squaring finds what goes beside its rows.
pub(crate) trait Shadow<V: Vector, const N: usize> {
    /// What goes beside the `block`th ten rows.
    fn block(&mut self, block: usize) -> Option<impl Beside>;
    /// The same of the first, where every squaring has something.
    fn first(&mut self) -> impl Beside;
}

impl<V: Lane8, const N: usize> Shadow<V, N> for Scan<'_, V, N> {
    #[inline(always)]
    fn block(&mut self, block: usize) -> Option<impl Beside> {
        if block < self.pairs.len() { Some(self.pair(block)) } else { None }
    }

    #[inline(always)]
    fn first(&mut self) -> impl Beside {
        self.pair(0)
    }
}

/// No table to read.
pub(crate) struct Nothing;

impl<V: Vector, const N: usize> Shadow<V, N> for Nothing {
    #[inline(always)]
    fn block(&mut self, _: usize) -> Option<impl Beside> {
        None::<Nothing>
    }

    #[inline(always)]
    fn first(&mut self) -> impl Beside {
        Nothing
    }
}

/// What is done beside a row of ten digits of the modulus, from digit `block` on: the row's number is below ten.
pub(crate) trait Beside {
    fn row(&mut self, block: usize, i: usize);
}

impl Beside for Nothing {
    #[inline(always)]
    fn row(&mut self, _: usize, _: usize) {}
}

/// Two lanes' sixteen powers, and which of the two want one of them.
struct Reading<'a, V: Vector, const N: usize> {
    pair: &'a Pair<V, N>,
    here: [V::Mask; 2],
    out: &'a mut [Digit<V>; N],
}

impl<V: Lane8, const N: usize> Beside for Reading<'_, V, N> {
    #[inline(always)]
    fn row(&mut self, block: usize, i: usize) {
        let out: &mut [Digit<V>; 10] = part_mut(self.out, block);
        let mut digit = out[i].raw();
        repeat!(2, LANE => {
            let low: &[V; 10] = part(&self.pair[LANE][0], block);
            let high: &[V; 10] = part(&self.pair[LANE][1], block);
            digit = digit.pick16_if(self.here[LANE], low[i], high[i]);
        });
        out[i] = Digit::low(digit);
    }
}

kernel! {
    fn turn as Turn<'a, V: Lane8, const N: usize>(powers: &'a [[Digit<V>; N]], pairs: &'a mut [Pair<V, N>]) {
        for (eight, powers) in powers.chunks_exact(8).enumerate() {
            for i in 0..N {
                let mut rows = [V::splat(0); 8];
                repeat!(8, J => rows[J] = powers[J][i].raw());
                V::transpose(&mut rows);
                repeat!(8, LANE => pairs[4 * (eight / 2) + LANE / 2][LANE % 2][eight % 2][i] = rows[LANE]);
            }
        }
    }
}

kernel! {
    /// A lane not chosen yet holds its index.
    fn start as StartChoice<'a, V: Lane8, const N: usize>(index: V, out: &'a mut [Digit<V>; N]) {
        for digit in out {
            *digit = Digit::low(index);
        }
    }
}

kernel! {
    fn choose as Choose<'a, V: Lane8, const N: usize>(scan: Scan<'a, V, N>) {
        let mut scan = scan;
        for pair in 0..scan.pairs.len() {
            let mut reading = scan.pair(pair);
            for block in (0..N).step_by(10) {
                repeat!(10, I => reading.row(block, I));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vector::Portable;

    /// As the squarings of a window go through it: each lane keeps its own power.
    fn every_lane_gets_its_power<const N: usize>(powers: usize, squarings: usize) {
        let power = |entry: usize, i: usize, lane: usize| (10_000 * lane + 100 * entry + i) as u64;
        let digit = |entry, i| Digit::whole(Portable::from_lanes(&core::array::from_fn(|lane| power(entry, i, lane))));
        let all: Vec<[Digit<Portable>; N]> =
            (0..powers).map(|entry| core::array::from_fn(|i| digit(entry, i))).collect();
        let mut table = Table::new(powers);
        table.fill(&all);
        for turn in 0..powers {
            let wanted: [usize; 8] = core::array::from_fn(|lane| (turn + 5 * lane) % powers);
            let index = Portable::from_lanes(&wanted.map(|entry| entry as u64));
            let mut out = all[1];
            for squaring in 0..squarings {
                let Some(mut scan) = table.share(squaring, squarings, index, &mut out) else { continue };
                for block in 0..N / 10 {
                    let Some(mut beside) = Shadow::<Portable, N>::block(&mut scan, block) else { continue };
                    for digits in (0..N).step_by(10) {
                        (0..10).for_each(|i| beside.row(digits, i));
                    }
                }
            }
            let mut chosen = all[2];
            table.choose(index, &mut chosen);
            for i in 0..N {
                let expected = core::array::from_fn(|lane| power(wanted[lane], i, lane));
                assert_eq!(out[i].value().to_lanes(), expected);
                assert_eq!(chosen[i].value().to_lanes(), expected);
            }
        }
    }

    #[test]
    fn every_lane_gets_its_power_in_every_size() {
        every_lane_gets_its_power::<20>(16, 4);
        every_lane_gets_its_power::<30>(32, 5);
        every_lane_gets_its_power::<40>(32, 5);
    }
}
