//! Slots in plain Rust.

use super::{Portable, map2, map3};
use crate::vector::slots::{ACCEPTED, Shuffle, Slots};

fn slot(word: u64, i: usize) -> i16 {
    (word >> (16 * i)) as i16
}

fn word(slots: [i16; 4]) -> u64 {
    slots.iter().rev().fold(0, |word, slot| word << 16 | u64::from(*slot as u16))
}

fn each(a: u64, b: u64, f: impl Fn(i16, i16) -> i16) -> u64 {
    word(core::array::from_fn(|i| f(slot(a, i), slot(b, i))))
}

impl Slots for Portable {
    type Pairs = Portable;

    fn slots(values: [i16; 4]) -> Self {
        Portable([word(values); 8])
    }
    fn add16(self, other: Self) -> Self {
        map2(self, other, |a, b| each(a, b, i16::wrapping_add))
    }
    fn sub16(self, other: Self) -> Self {
        map2(self, other, |a, b| each(a, b, i16::wrapping_sub))
    }
    fn mul_low16(self, other: Self) -> Self {
        map2(self, other, |a, b| each(a, b, i16::wrapping_mul))
    }
    fn mul_high16(self, other: Self) -> Self {
        map2(self, other, |a, b| each(a, b, |a, b| ((i32::from(a) * i32::from(b)) >> 16) as i16))
    }
    fn low_slots(self) -> Self {
        map2(self, self, |a, _| a & 0xffff_ffff | a << 32)
    }
    fn high_slots(self) -> Self {
        map2(self, self, |a, _| a >> 32 | a & 0xffff_ffff_0000_0000)
    }
    fn exchange16(self) -> Self {
        map2(self, self, |a, _| a >> 16 & 0x0000_ffff_0000_ffff | (a & 0x0000_ffff_0000_ffff) << 16)
    }
    fn lift(self, q: i16) -> Self {
        map2(self, self, |a, _| each(a, a, |a, _| a.wrapping_add((a >> 15) & q)))
    }
    fn dot(sum: Self, a: Self, b: Self) -> Self {
        map3(sum, a, b, |sum, a, b| {
            let product = |i| i32::from(slot(a, i)) * i32::from(slot(b, i));
            let low = (sum as i32).wrapping_add(product(0)).wrapping_add(product(1));
            let high = ((sum >> 32) as i32).wrapping_add(product(2)).wrapping_add(product(3));
            u64::from(high as u32) << 32 | u64::from(low as u32)
        })
    }
    fn halves(even: Self, odd: Self) -> [Self; 2] {
        let low = map2(even, odd, |e, o| e & 0x0000_ffff_0000_ffff | (o & 0x0000_ffff_0000_ffff) << 16);
        let high = map2(even, odd, |e, o| e >> 16 & 0x0000_ffff_0000_ffff | o & 0xffff_0000_ffff_0000);
        [low, high]
    }
}

impl Shuffle for Portable {
    fn spread<const AT: u32, const WIDTH: u32>(self) -> Self {
        map2(self, self, |a, _| (0..4).fold(0, |out, s| out | (a >> (AT + s * WIDTH) & ((1 << WIDTH) - 1)) << (16 * s)))
    }
    fn transpose(rows: &mut [Self; 8]) {
        *rows = core::array::from_fn(|i| Portable(core::array::from_fn(|j| rows[j].0[i])));
    }
    fn accept_vartime(bytes: &[u8], q: u16, out: &mut [u16; ACCEPTED], mut count: usize) -> usize {
        for three in bytes.chunks_exact(3) {
            let [a, b, c] = [three[0], three[1], three[2]].map(u16::from);
            for number in [a | (b & 15) << 8, b >> 4 | c << 4] {
                if number < q && count < 256 {
                    out[count] = number;
                    count += 1;
                }
            }
        }
        count
    }
}
