//! The table of an input's powers, and how it is read at secret indices, a different one in each lane: every power is
//! read, whatever the indices.
//!
//! A permutation returns eight words, each of them any one of sixteen. (In memory an index would be an address; in
//! registers there is none.) So the powers are transposed once, and sixteen of them that belong to one lane lie side by
//! side in two registers. A window needs only one word of them per lane; but all windows of an exponent are known from
//! the beginning, so one permutation serves eight windows of a lane. The results for eight lanes are then transposed.
//! That takes six micro-operations for a digit of a window, where selecting for each window separately takes sixteen.
//!
//! The table lies in the second-level cache. It is therefore not read all at once but alongside the squarings, for
//! later windows: one digit with every two squarings, for eight windows and, while that digit is at hand, for eight
//! more.

use crate::vector::{Digit, Lane8, Vector, kernel, repeat};
use zeroize::Zeroize;

/// Bits of an exponent that one window multiplies at once.
pub(crate) const WINDOW: u32 = 5;
/// The number of powers that a window selects from.
pub(crate) const POWERS: usize = 1 << WINDOW;
/// How many windows are looked up while the previous ones are computed.
pub(crate) const TOGETHER: usize = 16;

/// How many forms of a power a table has: with the second, [`half_form`](super::mont::half_form), a product takes half
/// a reduction.
const fn forms(limbs: usize) -> usize {
    if limbs == 20 { 2 } else { 1 }
}

/// 32 powers for each lane, and their second forms.
pub(crate) struct Table<V: Vector, const N: usize> {
    /// The powers, until they are transposed: first forms, then second. After that, those that were looked up: first
    /// forms for the current windows, second forms, and then the same for the next windows.
    numbers: Vec<[Digit<V>; N]>,
    /// By digit: the powers of each lane in turn, four times eight.
    turned: Vec<[V; POWERS]>,
    /// The indices in the next windows, eight by eight.
    indices: Box<[Indices<V>; 2]>,
}

/// The indices in eight windows of each lane.
#[derive(Clone, Copy, Default)]
pub(crate) struct Indices<V> {
    /// By lane: which of sixteen powers, in the low four bits.
    of_sixteen: [V; 8],
    /// All ones where the index is in the upper sixteen.
    upper: [V; 8],
}

impl<V: Lane8, const N: usize> Table<V, N> {
    const FORMS: usize = forms(N);

    pub(crate) fn new() -> Self {
        const { assert!((2 * N).is_multiple_of(WINDOW as usize) && 2 * Self::FORMS * N <= WINDOW as usize * TOGETHER) };
        Table {
            numbers: vec![[Digit::default(); N]; Self::FORMS * POWERS],
            turned: vec![[V::default(); POWERS]; Self::FORMS * N],
            indices: Box::default(),
        }
    }

    /// The powers from 0 on, and their second forms (empty if there is only one form), until they are transposed.
    pub(crate) fn powers_and_halves(&mut self) -> (&mut [[Digit<V>; N]], &mut [[Digit<V>; N]]) {
        self.numbers.split_at_mut(POWERS)
    }

    /// Transposes the powers, and looks up those for the first windows, before there are squarings to do it alongside.
    pub(crate) fn turn(&mut self, windows: &[V]) {
        self.aim(windows, 0);
        for (form, turned) in self.turned.as_chunks_mut().0.iter_mut().enumerate() {
            turn(&mut self.numbers, form, turned, &self.indices);
        }
        look_up(self.look_ahead(windows, 0));
    }

    /// What to look up alongside the squarings of window `at`, for later windows.
    pub(crate) fn look_ahead(&mut self, windows: &[V], at: usize) -> Option<Ahead<'_, V, N>> {
        let next = at / TOGETHER + 1;
        if next * TOGETHER >= windows.len() {
            return None;
        }
        if at.is_multiple_of(TOGETHER) {
            self.aim(windows, next);
        }
        let first = at % TOGETHER * WINDOW as usize;
        let (form, turn) = (first / (2 * N), first % (2 * N));
        (form < Self::FORMS).then(|| Ahead {
            turned: &self.turned.as_chunks().0[form],
            turn,
            indices: &self.indices,
            out: &mut self.numbers.as_chunks_mut().0[next % 2 * Self::FORMS + form],
        })
    }

    /// The power that window `at` selects, and its second form if there is one.
    pub(crate) fn chosen(&self, at: usize) -> (&[Digit<V>; N], Option<&[Digit<V>; N]>) {
        let chosen = &self.numbers[at / TOGETHER % 2 * Self::FORMS * TOGETHER..][..Self::FORMS * TOGETHER];
        (&chosen[at % TOGETHER], chosen.get(TOGETHER + at % TOGETHER))
    }

    /// Starts looking up further windows. If fewer are left, the others select the power 0.
    fn aim(&mut self, windows: &[V], group: usize) {
        let mut rows = [[V::default(); 8]; 2];
        for (row, window) in rows.as_flattened_mut().iter_mut().zip(&windows[group * TOGETHER..]) {
            *row = *window;
        }
        for (rows, indices) in rows.iter().zip(self.indices.iter_mut()) {
            aim(rows, indices);
        }
        rows.as_flattened_mut().zeroize();
    }
}

#[cfg(test)]
impl<const N: usize> Table<crate::vector::Portable, N> {
    pub(crate) fn is_zero(&self) -> bool {
        let digits = self.numbers.as_flattened().iter().map(|digit| digit.raw());
        let indices = self.indices.iter().flat_map(|indices| indices.of_sixteen.iter().chain(&indices.upper));
        let mut words = digits.chain(self.turned.as_flattened().iter().chain(indices).copied());
        words.all(|word| word.to_lanes() == [0; 8])
    }
}

impl<V: Vector, const N: usize> Zeroize for Table<V, N> {
    fn zeroize(&mut self) {
        self.numbers.as_flattened_mut().zeroize();
        self.turned.as_flattened_mut().zeroize();
        for indices in self.indices.iter_mut() {
            indices.of_sixteen.zeroize();
            indices.upper.zeroize();
        }
    }
}

kernel! {
    /// For each digit of a form, eight powers become eight lanes, and are looked up for the first windows. The results
    /// replace powers that have been transposed.
    fn turn as Turn<'a, V: Lane8, const N: usize>(
        numbers: &'a mut [[Digit<V>; N]],
        form: usize,
        turned: &'a mut [[V; POWERS]; N],
        indices: &'a [Indices<V>; 2],
    ) {
        for digit in 0..N {
            let powers = &numbers.as_chunks::<POWERS>().0[form];
            for eight in 0..POWERS / 8 {
                let mut rows = [V::splat(0); 8];
                repeat!(8, J => rows[J] = powers[8 * eight + J][digit].raw());
                V::transpose(&mut rows);
                repeat!(8, LANE => turned[digit][4 * LANE + eight] = rows[LANE]);
            }
            let out = numbers.as_chunks_mut::<8>().0;
            repeat!(2, EIGHT => look_up_digit(&turned[digit], digit, &indices[EIGHT], &mut out[2 * form + EIGHT]));
        }
    }
}

kernel! {
    /// Converts the order of indices from window by window to lane by lane.
    fn aim as Aim<'a, V: Lane8>(windows: &'a [V; 8], indices: &'a mut Indices<V>) {
        let mut rows = *windows;
        V::transpose(&mut rows);
        repeat!(8, LANE => indices.upper[LANE] = V::splat(0).sub(rows[LANE].shr::<4>()));
        indices.of_sixteen = rows;
    }
}

/// The look-ups to be done next.
pub(crate) struct Ahead<'a, V: Vector, const N: usize> {
    turned: &'a [[V; POWERS]; N],
    /// Twice the digit, plus one for the second eight windows.
    turn: usize,
    indices: &'a [Indices<V>; 2],
    out: &'a mut [[Digit<V>; N]; TOGETHER],
}

impl<V: Lane8, const N: usize> Ahead<'_, V, N> {
    /// Looks up one digit for eight windows.
    #[inline(always)]
    pub(crate) fn look_up(&mut self) {
        let (digit, eight) = (self.turn / 2, self.turn % 2);
        let out = &mut self.out.as_chunks_mut().0[eight];
        look_up_digit(&self.turned[digit], digit, &self.indices[eight], out);
        self.turn += 1;
    }
}

/// One digit of the powers that eight windows select, for each lane.
#[inline(always)]
fn look_up_digit<V: Lane8, const N: usize>(
    powers: &[V; POWERS],
    digit: usize,
    indices: &Indices<V>,
    out: &mut [[Digit<V>; N]; 8],
) {
    let mut rows = [V::splat(0); 8];
    repeat!(8, LANE => {
        let index = indices.of_sixteen[LANE];
        let lower = V::pick16(powers[4 * LANE], powers[4 * LANE + 1], index);
        let upper = V::pick16(powers[4 * LANE + 2], powers[4 * LANE + 3], index);
        rows[LANE] = V::choose(indices.upper[LANE], upper, lower);
    });
    V::transpose(&mut rows);
    repeat!(8, WINDOW => out[WINDOW][digit] = Digit::low(rows[WINDOW]));
}

kernel! {
    /// Does the look-ups of one window at once, where there are no squarings to do them alongside.
    fn look_up as LookUp<'a, V: Lane8, const N: usize>(ahead: Option<Ahead<'a, V, N>>) {
        if let Some(mut ahead) = ahead {
            for _ in 0..WINDOW {
                ahead.look_up();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vector::Portable;

    /// In the order of the squarings: in every window each lane gets the power that it selects.
    fn every_lane_gets_its_power<const N: usize>() {
        let power = |entry: usize, i: usize, lane: usize| (100_000 * lane + 100 * entry + i) as u64;
        let digit = |entry, i| Digit::whole(Portable::from_lanes(&core::array::from_fn(|lane| power(entry, i, lane))));
        let mut table = Table::<Portable, N>::new();
        let forms = Table::<Portable, N>::FORMS;
        let (first, second) = table.powers_and_halves();
        for (entry, power) in first.iter_mut().chain(second).enumerate() {
            *power = core::array::from_fn(|i| digit(entry, i));
        }
        // Not a multiple of sixteen, so that the last group is incomplete.
        let named = |window: usize, lane: usize| (window + 5 * lane + window / 32) % POWERS;
        let windows: Vec<Portable> = (0..75)
            .map(|window| Portable::from_lanes(&core::array::from_fn(|lane| named(window, lane) as u64)))
            .collect();
        table.turn(&windows);
        for at in 0..windows.len() {
            let (one, half) = table.chosen(at);
            assert_eq!(half.is_some(), forms == 2);
            for (form, chosen) in [Some(one), half].into_iter().flatten().enumerate() {
                for (i, digit) in chosen.iter().enumerate() {
                    let wanted = core::array::from_fn(|lane| power(form * POWERS + named(at, lane), i, lane));
                    assert_eq!(digit.value().to_lanes(), wanted, "digit {i} of window {at}");
                }
            }
            if at > 0 {
                look_up(table.look_ahead(&windows, at));
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
