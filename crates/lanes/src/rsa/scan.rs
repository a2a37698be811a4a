//! Reading a table at secret indices, a different one in each lane: every entry is read, whatever the indices, and blended
//! into what was read before.
//!
//! The tables of the larger sizes lie in the second-level cache, and to stream one from there takes three times as long
//! as to blend it. So [`Scan`] goes through it *beside* the squarings of a window, whose operands lie in the first-level
//! cache: four entries in the shadow of ten rows of a reduction. (Stores under a mask, instead of blends, were tried and
//! cost a third more: beside VPMADD52, which reads three registers, a store waits for a register to be read.)

use super::mont::{part, part_mut};
use crate::vector::{Digit, Vector, kernel, repeat};

/// Entries read beside ten rows.
const FOUR: usize = 4;

/// The part of a table that is read beside one squaring.
pub(crate) struct Scan<'a, V: Vector, const N: usize> {
    fours: &'a [[[Digit<V>; N]; FOUR]],
    /// The number of the first entry.
    first: usize,
    index: V,
    out: &'a mut [Digit<V>; N],
}

impl<'a, V: Vector, const N: usize> Scan<'a, V, N> {
    /// The share of the `squaring`th of `squarings`.
    pub(crate) fn share(
        squaring: usize,
        squarings: usize,
        table: &'a [[Digit<V>; N]],
        index: V,
        out: &'a mut [Digit<V>; N],
    ) -> Self {
        let (fours, rest) = table.as_chunks();
        assert!(rest.is_empty());
        let share = fours.len().div_ceil(squarings);
        assert!(share <= N / 10, "there are no rows left");
        let fours = fours.chunks(share).nth(squaring).unwrap_or(&[]);
        Scan { fours, first: squaring * share * FOUR, index, out }
    }
}

impl<V: Vector, const N: usize> Scan<'_, V, N> {
    #[inline(always)]
    fn entries(&mut self, block: usize) -> Four<'_, V, N> {
        let mut here = [self.index.eq(self.index); FOUR];
        repeat!(4, E => here[E] = self.index.eq(V::splat((self.first + FOUR * block + E) as u64)));
        Four { entries: &self.fours[block], here, out: self.out }
    }
}

/// Where the reduction of a squaring finds what goes beside its rows.
pub(crate) trait Shadow<V: Vector, const N: usize> {
    /// The entries beside the `block`th ten rows.
    fn four(&mut self, block: usize) -> Option<Four<'_, V, N>>;
    /// Those beside the first ten rows, where every squaring has some.
    fn first(&mut self) -> impl Beside;
}

impl<V: Vector, const N: usize> Shadow<V, N> for Scan<'_, V, N> {
    #[inline(always)]
    fn four(&mut self, block: usize) -> Option<Four<'_, V, N>> {
        if block >= self.fours.len() {
            return None;
        }
        Some(self.entries(block))
    }

    #[inline(always)]
    fn first(&mut self) -> impl Beside {
        self.entries(0)
    }
}

/// No table to read.
pub(crate) struct Nothing;

impl<V: Vector, const N: usize> Shadow<V, N> for Nothing {
    #[inline(always)]
    fn four(&mut self, _: usize) -> Option<Four<'_, V, N>> {
        None
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

/// Four entries, and the lanes that want each.
pub(crate) struct Four<'a, V: Vector, const N: usize> {
    entries: &'a [[Digit<V>; N]; FOUR],
    here: [V::Mask; FOUR],
    out: &'a mut [Digit<V>; N],
}

impl<V: Vector, const N: usize> Beside for Four<'_, V, N> {
    #[inline(always)]
    fn row(&mut self, block: usize, i: usize) {
        let out: &mut [Digit<V>; 10] = part_mut(self.out, block);
        let mut digit = out[i];
        repeat!(4, E => {
            let entry: &[Digit<V>; 10] = part(&self.entries[E], block);
            digit = digit.or_if(self.here[E], entry[i]);
        });
        out[i] = digit;
    }
}

kernel! {
    /// The entry of `table` that each lane's index names, where there are no squarings to go beside.
    fn select as Select<'a, V: Vector, const N: usize>(
        table: &'a [[Digit<V>; N]],
        index: V,
        out: &'a mut [Digit<V>; N],
    ) {
        let mut entry = V::splat(0);
        for powers in table {
            let here = index.eq(entry);
            entry = entry.add(V::splat(1));
            for i in 0..N {
                out[i] = out[i].or_if(here, powers[i]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vector::{Lane8, Portable};

    /// As the squarings of a window go through it: every entry once, each lane keeps its own.
    fn every_lane_gets_its_entry<const N: usize>(entries: usize, squarings: usize, first_only: bool) {
        let table: Vec<[Digit<Portable>; N]> = (0..entries)
            .map(|entry| core::array::from_fn(|i| Digit::whole(Portable::splat((1000 * entry + i) as u64))))
            .collect();
        for turn in 0..entries {
            let wanted: [u64; 8] = core::array::from_fn(|lane| ((turn + 5 * lane) % entries) as u64);
            let index = Portable::from_lanes(&wanted);
            let mut out = table[0];
            for squaring in 0..squarings {
                let mut scan = Scan::share(squaring, squarings, &table, index, &mut out);
                let rows = |beside: &mut dyn Beside| {
                    for block in (0..N).step_by(10) {
                        (0..10).for_each(|i| beside.row(block, i));
                    }
                };
                if first_only {
                    rows(&mut scan.first());
                }
                for block in 0..N / 10 {
                    if let (Some(mut four), false) = (scan.four(block), first_only) {
                        rows(&mut four);
                    }
                }
            }
            let mut selected = table[0];
            select(&table, index, &mut selected);
            for i in 0..N {
                let expected = wanted.map(|entry| 1000 * entry + i as u64);
                assert_eq!(out[i].value().to_lanes(), expected);
                assert_eq!(selected[i].value().to_lanes(), expected);
            }
        }
    }

    #[test]
    fn every_lane_gets_its_entry_in_every_size() {
        every_lane_gets_its_entry::<20>(16, 4, true);
        every_lane_gets_its_entry::<30>(32, 5, false);
        every_lane_gets_its_entry::<40>(32, 5, false);
    }
}
