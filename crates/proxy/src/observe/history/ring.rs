//! A ring of numbers, two bytes each, indexed by time slot; the newest overwrite the oldest.

/// Marks a value that is unknown.
const NONE: u16 = u16::MAX;

/// Packs a value: hundredths of a unit, exact up to 20, beyond that with eleven bits of precision (half a thousandth).
fn pack(value: f64) -> u16 {
    let hundredths = (value * 100.0).round().max(0.0) as u64;
    let power = (u64::BITS - hundredths.leading_zeros()).saturating_sub(11);
    if power > 31 {
        return NONE - 1;
    }
    ((power << 11) as u16 | (hundredths >> power) as u16).min(NONE - 1)
}

fn unpack(packed: u16) -> Option<f64> {
    (packed != NONE).then(|| (u64::from(packed & 0x7ff) << (packed >> 11)) as f64 / 100.0)
}

/// A row of numbers for each slot.
pub(super) struct Ring {
    columns: usize,
    cells: Box<[u16]>,
    /// The newest slot that was written; `None` at first.
    newest: Option<u64>,
}

impl Ring {
    pub fn new(columns: usize, slots: usize) -> Ring {
        Ring { columns, cells: vec![NONE; columns * slots].into(), newest: None }
    }

    fn slots(&self) -> u64 {
        (self.cells.len() / self.columns) as u64
    }

    fn row(&mut self, slot: u64) -> &mut [u16] {
        let at = (slot % self.slots()) as usize * self.columns;
        &mut self.cells[at..at + self.columns]
    }

    /// Writes a slot; skipped slots before it become unknown. A slot that is already too old is ignored.
    pub fn put(&mut self, slot: u64, values: &[Option<f64>]) {
        let newest = self.newest.unwrap_or(slot);
        if slot + self.slots() <= newest {
            return;
        }
        let gap = slot.saturating_sub(newest).saturating_sub(1).min(self.slots());
        (slot - gap..slot).for_each(|between| self.row(between).fill(NONE));
        for (cell, value) in self.row(slot).iter_mut().zip(values) {
            *cell = value.map_or(NONE, pack);
        }
        self.newest = Some(newest.max(slot));
    }

    /// The value written there, if it is still known.
    pub fn read(&self, column: usize, slot: u64) -> Option<f64> {
        let newest = self.newest?;
        if slot > newest || slot + self.slots() <= newest {
            return None;
        }
        unpack(self.cells[(slot % self.slots()) as usize * self.columns + column])
    }

    pub fn memory(&self) -> usize {
        size_of_val(&self.cells[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits_over_the_whole_range() {
        for value in [0.0, 0.01, 0.25, 1.0, 20.47, 20.48, 99.9, 1234.5, 88_000.0, 6.7e7, 4.0e10] {
            let kept = unpack(pack(value)).unwrap();
            assert!((kept - value).abs() <= value / 1000.0, "{value}: {kept}");
        }
        assert!(unpack(pack(1e30)).unwrap() > 4e10 && unpack(pack(-1.0)) == Some(0.0));
        assert_eq!(unpack(NONE), None);
    }

    #[test]
    fn the_oldest_make_room_and_gaps_are_unknown() {
        let mut ring = Ring::new(2, 4);
        (10..=13).for_each(|slot| ring.put(slot, &[Some(slot as f64), None]));
        ring.put(15, &[Some(15.0), Some(1.0)]);
        let read: Vec<_> = (10..=16).map(|slot| ring.read(0, slot)).collect();
        assert_eq!(read, [None, None, Some(12.0), Some(13.0), None, Some(15.0), None]);
        assert_eq!((ring.read(1, 15), ring.read(1, 13)), (Some(1.0), None));
        ring.put(11, &[Some(7.0), Some(7.0)]);
        assert_eq!(ring.read(0, 15), Some(15.0), "a slot that is forgotten stays so");
        ring.put(1 << 40, &[Some(1.0), None]);
        assert_eq!(ring.read(0, 15), None);
    }
}
