//! Reading a table of powers at secret indices, a different one in each lane: every power is read, whatever the indices.
//!
//! Power by power, a digit takes a blend for each. A permutation chooses one word of sixteen: so the powers are turned
//! round once, and sixteen of them that belong to one lane lie side by side in two registers; a digit takes a permutation
//! for each lane and each sixteen powers, half as many. (In memory an index would be an address; in registers there is none.)
//!
//! The tables of the larger sizes lie in the second-level cache, and to stream one from there takes longer than to choose
//! from it. So [`Scan`] goes through it *beside* the squarings of a window, whose operands lie in the first-level
//! cache: twice sixteen powers in the shadow of ten rows of a reduction, in four streams, one word after the other. A lane's
//! digit is chosen from all its powers at once and stored alone: no store's mask, which is not known to take one time for
//! all, depends on an index.

use super::batch::window_bits;
use super::mont::{part, part_mut};
use crate::vector::{Digit, Lane8, Vector, kernel, repeat};
use zeroize::Zeroize;

/// How many forms of a power a table has: with the second, [`half_form`](super::mont::half_form), a product takes half a
/// reduction.
const fn forms(limbs: usize) -> usize {
    if limbs == 20 { 2 } else { 1 }
}

/// What is read beside ten rows: all 32 powers of a lane or, where there are 16, those of two lanes; eight in each part,
/// digit by digit.
type Pair<V, const N: usize> = [[Digit<V>; N]; 4];

/// 16 or 32 powers of each lane, then their second forms: at first power by power, once turned round lane by lane.
pub(crate) struct Table<V, const N: usize>(Vec<[Digit<V>; N]>);

impl<V: Lane8, const N: usize> Table<V, N> {
    pub(crate) const POWERS: usize = 1 << window_bits(N);
    pub(crate) const FORMS: usize = forms(N);
    /// How many sixteens of powers each lane has.
    const SIXTEENS: usize = Self::POWERS / 16;
    /// How many pairs a form has.
    const PAIRS: usize = Self::POWERS / 4;

    pub(crate) fn new() -> Self {
        Table(vec![[Digit::default(); N]; Self::FORMS * Self::POWERS])
    }

    /// The powers from 0 on, until they are turned.
    pub(crate) fn powers(&mut self) -> &mut [[Digit<V>; N]] {
        &mut self.0[..Self::POWERS]
    }

    /// The powers, and their second forms (none, where there is but one).
    pub(crate) fn powers_and_halves(&mut self) -> (&mut [[Digit<V>; N]], &mut [[Digit<V>; N]]) {
        self.0.split_at_mut(Self::POWERS)
    }

    /// Turns all powers round.
    pub(crate) fn turn(&mut self) {
        self.0.chunks_exact_mut(Self::POWERS).for_each(|form| turn(form));
    }

    fn pairs(&self) -> &[Pair<V, N>] {
        self.0.as_chunks().0
    }

    /// Chooses a power's first form, where there are no squarings to go beside.
    pub(crate) fn choose(&self, index: &V, out: &mut [Digit<V>; N]) {
        choose(Scan { pairs: &self.pairs()[..Self::PAIRS], first: 0, index, out: core::slice::from_mut(out) });
    }

    /// What is read beside the `squaring`th of a window's squarings: nothing, where all has been read. `out` has all forms.
    pub(crate) fn share<'a>(&'a self, squaring: usize, index: &'a V, out: &'a mut [[Digit<V>; N]]) -> Scan<'a, V, N> {
        let pairs = self.pairs();
        let share = pairs.len().div_ceil(window_bits(N) as usize);
        let blocks = if N == 20 { 2 } else { N / 10 - 1 };
        assert!(pairs.len().is_multiple_of(share) && share <= blocks, "some pairs would find no rows");
        let first = share * squaring;
        Scan { pairs: pairs.get(first..first + share).unwrap_or_default(), first, index, out }
    }
}

#[cfg(test)]
impl<const N: usize> Table<crate::vector::Portable, N> {
    pub(crate) fn is_zero(&self) -> bool {
        self.0.as_flattened().iter().all(|digit| digit.raw().to_lanes() == [0; 8])
    }
}

impl<V: Vector, const N: usize> Zeroize for Table<V, N> {
    fn zeroize(&mut self) {
        self.0.as_flattened_mut().zeroize();
    }
}

/// The part of a table that is read beside one squaring.
pub(crate) struct Scan<'a, V: Vector, const N: usize> {
    pairs: &'a [Pair<V, N>],
    /// The number of the first of them.
    first: usize,
    index: &'a V,
    out: &'a mut [[Digit<V>; N]],
}

impl<'a, V: Lane8, const N: usize> Scan<'a, V, N> {
    #[inline(always)]
    fn pair(&self, block: usize) -> Read<'a, V, N> {
        let number = (self.first + block) % Table::<V, N>::PAIRS;
        let each = Table::<V, N>::SIXTEENS;
        let sixteen = self.index.shr::<4>();
        let mut lanes = [0; 2];
        let mut here = [V::mask_from_bits(0); 2];
        repeat!(2, I => {
            lanes[I] = 1 << ((2 * number + I) / each);
            let wanted = sixteen.eq(V::splat(((2 * number + I) % each) as u64));
            here[I] = V::mask_from_bits(V::mask_to_bits(wanted) & lanes[I]);
        });
        let lanes = V::mask_from_bits(lanes[0] | lanes[1]);
        Read { pair: &self.pairs[block], here, lanes }
    }

    /// Pairs of the same form, of which the `block`th is the first.
    #[inline(always)]
    fn reading<const PAIRS: usize>(
        &mut self,
        block: usize,
        reads: [Read<'a, V, N>; PAIRS],
    ) -> Reading<'_, V, N, PAIRS> {
        let form = (self.first + block) / Table::<V, N>::PAIRS;
        Reading { reads, index: self.index, out: &mut self.out[form] }
    }
}

/// Where the reduction of a squaring finds what goes beside its rows.
pub(crate) trait Shadow<V: Vector, const N: usize> {
    /// What goes beside the `block`th ten rows. The last ten have nothing beside them.
    fn block(&mut self, block: usize) -> Option<impl Beside>;
    /// What goes beside twenty rows, where every squaring has that much.
    fn twenty(&mut self) -> impl Beside;
}

impl<V: Lane8, const N: usize> Shadow<V, N> for Scan<'_, V, N> {
    #[inline(always)]
    fn block(&mut self, block: usize) -> Option<impl Beside> {
        if block < self.pairs.len() { Some(self.reading(block, [self.pair(block)])) } else { None }
    }

    #[inline(always)]
    fn twenty(&mut self) -> impl Beside {
        // At once: with a check between their rows LLVM would spill what it loads.
        self.reading(0, [self.pair(0), self.pair(1)])
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
    fn twenty(&mut self) -> impl Beside {
        Nothing
    }
}

/// What is done beside a row of ten digits of the modulus, from digit `block` on: the row's number is below ten, or twenty.
pub(crate) trait Beside {
    fn row(&mut self, block: usize, i: usize);
}

impl Beside for Nothing {
    #[inline(always)]
    fn row(&mut self, _: usize, _: usize) {}
}

/// A pair, which lanes want a word of its one half and of its other, and whose it is.
struct Read<'a, V: Vector, const N: usize> {
    pair: &'a Pair<V, N>,
    here: [V::Mask; 2],
    lanes: V::Mask,
}

/// What is read beside ten rows, and each ten more.
struct Reading<'a, V: Vector, const N: usize, const PAIRS: usize> {
    reads: [Read<'a, V, N>; PAIRS],
    index: &'a V,
    out: &'a mut [Digit<V>; N],
}

impl<V: Lane8, const N: usize, const PAIRS: usize> Beside for Reading<'_, V, N, PAIRS> {
    #[inline(always)]
    fn row(&mut self, block: usize, i: usize) {
        let Read { pair, here, lanes } = &self.reads[i / 10];
        let out: &mut [Digit<V>; 10] = part_mut(self.out, block);
        // A lane for which nothing is chosen yet holds its index.
        let mut digit = *self.index;
        repeat!(2, I => {
            let low: &[Digit<V>; 10] = part(&pair[2 * I], block);
            let high: &[Digit<V>; 10] = part(&pair[2 * I + 1], block);
            digit = digit.pick16_if(here[I], low[i % 10].raw(), high[i % 10].raw());
        });
        out[i % 10].store_if(*lanes, Digit::low(digit));
    }
}

kernel! {
    /// In place, digit by digit: eight powers of a digit become eight lanes of it.
    fn turn as Turn<'a, V: Lane8, const N: usize>(powers: &'a mut [[Digit<V>; N]]) {
        assert!(powers.len() == Table::<V, N>::POWERS);
        let eights = Table::<V, N>::POWERS / 8;
        let mut turned = [V::splat(0); 32];
        for i in 0..N {
            for eight in 0..eights {
                let mut rows = [V::splat(0); 8];
                repeat!(8, J => rows[J] = powers[8 * eight + J][i].raw());
                V::transpose(&mut rows);
                repeat!(8, LANE => turned[eights * LANE + eight] = rows[LANE]);
            }
            for (power, digit) in powers.iter_mut().zip(&turned) {
                power[i] = Digit::low(*digit);
            }
        }
        turned.zeroize();
    }
}

kernel! {
    fn choose as Choose<'a, V: Lane8, const N: usize>(scan: Scan<'a, V, N>) {
        let mut scan = scan;
        for pair in 0..scan.pairs.len() {
            let mut reading = scan.reading(pair, [scan.pair(pair)]);
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
    fn every_lane_gets_its_power<const N: usize>() {
        let powers = 1 << window_bits(N);
        let power = |entry: usize, i: usize, lane: usize| (10_000 * lane + 100 * entry + i) as u64;
        let digit = |entry, i| Digit::whole(Portable::from_lanes(&core::array::from_fn(|lane| power(entry, i, lane))));
        let forms = Table::<Portable, N>::FORMS;
        let all: Vec<[Digit<Portable>; N]> =
            (0..forms * powers).map(|entry| core::array::from_fn(|i| digit(entry, i))).collect();
        let mut table = Table::new();
        let (first, second) = table.powers_and_halves();
        first.copy_from_slice(&all[..powers]);
        second.copy_from_slice(&all[powers..]);
        table.turn();
        for turn in 0..powers {
            let wanted: [usize; 8] = core::array::from_fn(|lane| (turn + 5 * lane) % powers);
            let index = Portable::from_lanes(&wanted.map(|entry| entry as u64));
            let mut out = vec![all[1]; forms];
            for squaring in 0..window_bits(N) as usize {
                let mut scan = table.share(squaring, &index, &mut out);
                if N == 20 {
                    let mut beside = Shadow::<Portable, N>::twenty(&mut scan);
                    (0..20).for_each(|i| [0, 10].iter().for_each(|digits| beside.row(*digits, i)));
                    continue;
                }
                for block in 0..N / 10 - 1 {
                    let Some(mut beside) = Shadow::<Portable, N>::block(&mut scan, block) else { continue };
                    for digits in (0..N).step_by(10) {
                        (0..10).for_each(|i| beside.row(digits, i));
                    }
                }
            }
            let mut chosen = all[2];
            table.choose(&index, &mut chosen);
            for i in 0..N {
                let expected = |form| core::array::from_fn(|lane| power(form * powers + wanted[lane], i, lane));
                for (form, out) in out.iter().enumerate() {
                    assert_eq!(out[i].value().to_lanes(), expected(form));
                }
                assert_eq!(chosen[i].value().to_lanes(), expected(0));
            }
        }
    }

    #[test]
    fn every_lane_gets_its_power_in_every_size() {
        every_lane_gets_its_power::<20>();
        every_lane_gets_its_power::<30>();
        every_lane_gets_its_power::<40>();
    }
}
