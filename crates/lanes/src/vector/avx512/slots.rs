//! Slots in a 512-bit register.

use super::Avx512;
use crate::vector::slots::{ACCEPTED, Shuffle, Slots};
use core::arch::x86_64::*;

/// Packs four slots into a word.
const fn word(slots: [i16; 4]) -> i64 {
    let (mut word, mut i) = (0, 4);
    while i > 0 {
        i -= 1;
        word = word << 16 | slots[i] as u16 as i64;
    }
    word
}

impl Slots for Avx512 {
    type Pairs = Avx512;

    ops! {
        fn slots(values: [i16; 4]) -> Self = Avx512(_mm512_set1_epi64(word(values)));
        fn add16(self: Self, other: Self) -> Self = Avx512(_mm512_add_epi16(self.0, other.0));
        fn sub16(self: Self, other: Self) -> Self = Avx512(_mm512_sub_epi16(self.0, other.0));
        fn mul_low16(self: Self, other: Self) -> Self = Avx512(_mm512_mullo_epi16(self.0, other.0));
        fn mul_high16(self: Self, other: Self) -> Self = Avx512(_mm512_mulhi_epi16(self.0, other.0));
        fn low_slots(self: Self) -> Self = Avx512(_mm512_shuffle_epi32::<0b10_10_00_00>(self.0));
        fn high_slots(self: Self) -> Self = Avx512(_mm512_shuffle_epi32::<0b11_11_01_01>(self.0));
        fn exchange16(self: Self) -> Self = Avx512(_mm512_rol_epi32::<16>(self.0));
        fn lift(self: Self, q: i16) -> Self = Avx512(_mm512_add_epi16(
            self.0,
            _mm512_and_si512(_mm512_srai_epi16::<15>(self.0), _mm512_set1_epi16(q))
        ));
        fn dot(sum: Self, a: Self, b: Self) -> Self =
            Avx512(_mm512_add_epi32(sum.0, _mm512_madd_epi16(a.0, b.0)));
        fn halves(even: Self, odd: Self) -> [Self; 2] = [
            Avx512(_mm512_mask_blend_epi16(0xaaaa_aaaa, even.0, _mm512_slli_epi32::<16>(odd.0))),
            Avx512(_mm512_mask_blend_epi16(0xaaaa_aaaa, _mm512_srli_epi32::<16>(even.0), odd.0)),
        ];
    }
}

/// For each byte of a spread lane, where the multishift instruction takes it from.
const fn spread_bytes(at: u32, width: u32) -> i64 {
    let (mut bytes, mut i) = (0u64, 8);
    while i > 0 {
        i -= 1;
        bytes = bytes << 8 | ((at + i / 2 * width + i % 2 * 8) % 64) as u64;
    }
    bytes as i64
}

/// The bytes of two numbers of 12 bits each, for 32 numbers: 0 1, 1 2, 3 4, 4 5, ...
const PAIRS_OF_BYTES: [u8; 64] = {
    let mut out = [0; 64];
    let mut i = 0;
    while i < 64 {
        out[i] = (i / 4 * 3 + i % 4 / 2 + i % 2) as u8;
        i += 1;
    }
    out
};

impl Shuffle for Avx512 {
    #[inline(always)]
    fn spread<const AT: u32, const WIDTH: u32>(self) -> Self {
        let from = const { spread_bytes(AT, WIDTH) };
        let mask = const { ((1i64 << WIDTH) - 1) * 0x0001_0001_0001_0001 };
        // SAFETY: an `Avx512` is only used under a token, so the processor has the instructions.
        unsafe {
            let bits = _mm512_multishift_epi64_epi8(_mm512_set1_epi64(from), self.0);
            Avx512(_mm512_and_si512(bits, _mm512_set1_epi64(mask)))
        }
    }

    #[inline(always)]
    fn transpose(rows: &mut [Self; 8]) {
        // SAFETY: an `Avx512` is only used under a token, so the processor has the instructions.
        unsafe {
            // First by pairs of words, then twice by halves. No closures, because they are compiled without the
            // instruction set.
            let [r0, r1, r2, r3, r4, r5, r6, r7] =
                [rows[0].0, rows[1].0, rows[2].0, rows[3].0, rows[4].0, rows[5].0, rows[6].0, rows[7].0];
            let even = [
                _mm512_unpacklo_epi64(r0, r1),
                _mm512_unpacklo_epi64(r2, r3),
                _mm512_unpacklo_epi64(r4, r5),
                _mm512_unpacklo_epi64(r6, r7),
            ];
            let odd = [
                _mm512_unpackhi_epi64(r0, r1),
                _mm512_unpackhi_epi64(r2, r3),
                _mm512_unpackhi_epi64(r4, r5),
                _mm512_unpackhi_epi64(r6, r7),
            ];
            for parity in 0..2 {
                let t = if parity == 0 { even } else { odd };
                let a = _mm512_shuffle_i64x2::<0x88>(t[0], t[1]);
                let b = _mm512_shuffle_i64x2::<0x88>(t[2], t[3]);
                let c = _mm512_shuffle_i64x2::<0xdd>(t[0], t[1]);
                let d = _mm512_shuffle_i64x2::<0xdd>(t[2], t[3]);
                rows[parity] = Avx512(_mm512_shuffle_i64x2::<0x88>(a, b));
                rows[parity + 4] = Avx512(_mm512_shuffle_i64x2::<0xdd>(a, b));
                rows[parity + 2] = Avx512(_mm512_shuffle_i64x2::<0x88>(c, d));
                rows[parity + 6] = Avx512(_mm512_shuffle_i64x2::<0xdd>(c, d));
            }
        }
    }

    #[inline(always)]
    fn accept_vartime(bytes: &[u8], q: u16, out: &mut [u16; ACCEPTED], mut count: usize) -> usize {
        for part in bytes.chunks(48) {
            if count >= 256 {
                break;
            }
            // SAFETY: the load is masked to the bytes of `part`; the store writes 32 numbers from `count`, which is
            // below 256, into room for 288. An `Avx512` is only used under a token, so the processor has the
            // instructions.
            unsafe {
                let loaded = _mm512_maskz_loadu_epi8((1 << part.len()) - 1, part.as_ptr().cast());
                let pairs = _mm512_permutexvar_epi8(_mm512_loadu_si512(PAIRS_OF_BYTES.as_ptr().cast()), loaded);
                let shifted = _mm512_srlv_epi16(pairs, _mm512_set1_epi32(4 << 16));
                let numbers = _mm512_and_si512(shifted, _mm512_set1_epi16(0x0fff));
                let there = ((1u64 << (part.len() / 3 * 2)) - 1) as __mmask32;
                let below = _mm512_mask_cmplt_epu16_mask(there, numbers, _mm512_set1_epi16(q as i16));
                let kept = _mm512_maskz_compress_epi16(below, numbers);
                _mm512_storeu_si512(out.as_mut_ptr().add(count).cast(), kept);
                count += below.count_ones() as usize;
            }
        }
        count.min(256)
    }
}
