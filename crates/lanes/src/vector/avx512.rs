//! The lanes in a 512-bit register.

use super::{Digit, Kernel, Lane8, MASK52, Vector, ripple_lanes};
use core::arch::asm;
use core::arch::x86_64::*;
use zeroize::DefaultIsZeroes;

/// Eight lanes in one zmm register.
///
/// Soundness: its operations are safe functions over instructions that not every processor has. The type is private to
/// the crate, and outside tests only [`crate::Lanes::run`] names it, behind a token that exists only if `Lanes::detect`
/// found every feature that [`with_features`] enables.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Avx512(__m512i);

impl Default for Avx512 {
    #[inline(always)]
    fn default() -> Self {
        // SAFETY: all zero bits are a valid vector.
        unsafe { core::mem::zeroed() }
    }
}

impl DefaultIsZeroes for Avx512 {}

/// The one function through which every kernel is compiled for the instruction set. Kernels are `inline(always)`, so
/// that each becomes one function here, without calls.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512ifma,avx512dq,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,bmi2")]
fn with_features<K: Kernel<Avx512>>(kernel: K) -> K::Out {
    kernel.run()
}

/// Clears all vector registers, so that no secret remains in them after the operation.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512ifma,avx512dq,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,bmi2")]
pub(crate) fn clear_registers() {
    // SAFETY: writes registers only, all of them declared (vzeroall: 0 to 15).
    unsafe {
        asm!(
            "vzeroall",
            "vpxorq zmm16, zmm16, zmm16", "vpxorq zmm17, zmm17, zmm17", "vpxorq zmm18, zmm18, zmm18",
            "vpxorq zmm19, zmm19, zmm19", "vpxorq zmm20, zmm20, zmm20", "vpxorq zmm21, zmm21, zmm21",
            "vpxorq zmm22, zmm22, zmm22", "vpxorq zmm23, zmm23, zmm23", "vpxorq zmm24, zmm24, zmm24",
            "vpxorq zmm25, zmm25, zmm25", "vpxorq zmm26, zmm26, zmm26", "vpxorq zmm27, zmm27, zmm27",
            "vpxorq zmm28, zmm28, zmm28", "vpxorq zmm29, zmm29, zmm29", "vpxorq zmm30, zmm30, zmm30",
            "vpxorq zmm31, zmm31, zmm31",
            "kxorq k1, k1, k1", "kxorq k2, k2, k2", "kxorq k3, k3, k3", "kxorq k4, k4, k4",
            "kxorq k5, k5, k5", "kxorq k6, k6, k6", "kxorq k7, k7, k7",
            out("zmm0") _, out("zmm1") _, out("zmm2") _, out("zmm3") _, out("zmm4") _, out("zmm5") _, out("zmm6") _,
            out("zmm7") _, out("zmm8") _, out("zmm9") _, out("zmm10") _, out("zmm11") _, out("zmm12") _,
            out("zmm13") _, out("zmm14") _, out("zmm15") _, out("zmm16") _, out("zmm17") _, out("zmm18") _,
            out("zmm19") _, out("zmm20") _, out("zmm21") _, out("zmm22") _, out("zmm23") _, out("zmm24") _,
            out("zmm25") _, out("zmm26") _, out("zmm27") _, out("zmm28") _, out("zmm29") _, out("zmm30") _,
            out("zmm31") _, out("k1") _, out("k2") _, out("k3") _, out("k4") _, out("k5") _, out("k6") _, out("k7") _,
            options(nomem, nostack, preserves_flags)
        );
    }
}

/// Declares methods of one or two instructions each.
macro_rules! ops {
    ($($(#[$meta:meta])* fn $name:ident $(<const $k:ident : $kt:ty>)? ($($arg:ident : $ty:ty),*) -> $out:ty = $e:expr;)*) => {
        $(
            $(#[$meta])*
            #[inline(always)]
            fn $name $(<const $k: $kt>)? ($($arg: $ty),*) -> $out {
                // SAFETY: an `Avx512` is only used under a token (see the type), so the processor has the instruction.
                unsafe { $e }
            }
        )*
    };
}

mod slots;

impl Vector for Avx512 {
    type Mask = __mmask8;

    ops! {
        fn splat(x: u64) -> Self = Avx512(_mm512_set1_epi64(x as i64));
        fn add(self: Self, other: Self) -> Self = Avx512(_mm512_add_epi64(self.0, other.0));
        fn sub(self: Self, other: Self) -> Self = Avx512(_mm512_sub_epi64(self.0, other.0));
        fn and(self: Self, other: Self) -> Self = Avx512(_mm512_and_si512(self.0, other.0));
        fn shr<const K: u32>(self: Self) -> Self = Avx512(_mm512_srli_epi64::<K>(self.0));
        fn shl<const K: u32>(self: Self) -> Self = Avx512(_mm512_slli_epi64::<K>(self.0));
        fn sar<const K: u32>(self: Self) -> Self = Avx512(_mm512_srai_epi64::<K>(self.0));
        fn madd_lo(self: Self, a: Digit<Self>, b: Digit<Self>) -> Self =
            Avx512(_mm512_madd52lo_epu64(self.0, a.0.0, b.0.0));
        fn madd_hi(self: Self, a: Digit<Self>, b: Digit<Self>) -> Self =
            Avx512(_mm512_madd52hi_epu64(self.0, a.0.0, b.0.0));
        fn eq(self: Self, other: Self) -> __mmask8 = _mm512_cmpeq_epi64_mask(self.0, other.0);
        fn negative(self: Self) -> __mmask8 = _mm512_movepi64_mask(self.0);
        fn or_if(self: Self, mask: __mmask8, yes: Self) -> Self =
            Avx512(_mm512_mask_mov_epi64(self.0, mask, yes.0));
        fn exchange<const DISTANCE: usize>(self: Self) -> Self = Avx512(match DISTANCE {
            1 => _mm512_permutex_epi64::<0b10_11_00_01>(self.0),
            2 => _mm512_permutex_epi64::<0b01_00_11_10>(self.0),
            _ => _mm512_shuffle_i64x2::<0b01_00_11_10>(self.0, self.0),
        });
        fn first(self: Self) -> Self = Avx512(_mm512_broadcastq_epi64(_mm512_castsi512_si128(self.0)));
        fn add_first(self: Self, other: Self) -> Self =
            Avx512(_mm512_mask_add_epi64(self.0, 1, self.0, other.0));
        fn down(self: Self, above: Self) -> Self = Avx512(_mm512_alignr_epi64::<1>(above.0, self.0));
        fn up(self: Self, below: Self) -> Self = Avx512(_mm512_alignr_epi64::<7>(self.0, below.0));
    }

    #[inline(always)]
    fn word(digits: &[Digit<Self>], at: usize) -> Self {
        debug_assert!(at / 8 < digits.len());
        // SAFETY: within the slice, because every caller's index is a constant or runs over a constant range.
        Self::splat(unsafe { *digits.as_ptr().cast::<u64>().add(at) })
    }

    #[inline(always)]
    fn ripple<const Z: usize>(words: &[Self; Z]) -> [Digit<Self>; Z] {
        ripple_lanes(words)
    }

    #[inline(always)]
    fn mask_xor(a: __mmask8, b: __mmask8) -> __mmask8 {
        a ^ b
    }

    #[inline(always)]
    fn enter<K: Kernel<Self>>(kernel: K) -> K::Out {
        // SAFETY: as for every operation of this type, there is a token.
        unsafe { with_features(kernel) }
    }

    #[inline(always)]
    fn inline<K: Kernel<Self>>(kernel: K) -> K::Out {
        kernel.run()
    }

    #[inline(always)]
    fn fence() {
        // SAFETY: no instruction; what it declares (memory may have changed) is always allowed.
        unsafe { asm!("", options(nostack, preserves_flags)) }
    }

    /// The multiplier reads only 52 bits.
    #[inline(always)]
    fn truncate(self) -> Self {
        self
    }

    #[inline(always)]
    fn assert_digit(self) {
        let _ = MASK52;
    }
}

impl Lane8 for Avx512 {
    ops! {
        fn from_lanes(lanes: &[u64; 8]) -> Self = Avx512(_mm512_loadu_si512(lanes.as_ptr().cast()));
        fn xor(self: Self, other: Self) -> Self = Avx512(_mm512_xor_si512(self.0, other.0));
        fn or(self: Self, other: Self) -> Self = Avx512(_mm512_or_si512(self.0, other.0));
        fn choose(a: Self, b: Self, c: Self) -> Self = Avx512(_mm512_ternarylogic_epi64::<0xca>(a.0, b.0, c.0));
        fn chi(a: Self, b: Self, c: Self) -> Self = Avx512(_mm512_ternarylogic_epi64::<0xd2>(a.0, b.0, c.0));
        fn xor3(a: Self, b: Self, c: Self) -> Self = Avx512(_mm512_ternarylogic_epi64::<0x96>(a.0, b.0, c.0));
        fn majority(a: Self, b: Self, c: Self) -> Self = Avx512(_mm512_ternarylogic_epi64::<0xe8>(a.0, b.0, c.0));
        fn pick8(table: Self, index: Self) -> Self = Avx512(_mm512_permutexvar_epi64(index.0, table.0));
        fn pick16(low: Self, high: Self, index: Self) -> Self =
            Avx512(_mm512_permutex2var_epi64(low.0, index.0, high.0));
        fn shr_by(self: Self, bits: u32) -> Self = Avx512(_mm512_srl_epi64(self.0, _mm_cvtsi32_si128(bits as i32)));
        fn shl_by(self: Self, bits: u32) -> Self = Avx512(_mm512_sll_epi64(self.0, _mm_cvtsi32_si128(bits as i32)));
        fn rotl64<const K: i32>(self: Self) -> Self = Avx512(_mm512_rol_epi64::<K>(self.0));
        fn rotr32<const K: i32>(self: Self) -> Self = Avx512(_mm512_ror_epi32::<K>(self.0));
        fn shr32<const K: u32>(self: Self) -> Self = Avx512(_mm512_srli_epi32::<K>(self.0));
        fn add32(self: Self, other: Self) -> Self = Avx512(_mm512_add_epi32(self.0, other.0));
    }

    #[inline(always)]
    fn to_lanes(self) -> [u64; 8] {
        let mut lanes = [0; 8];
        // SAFETY: the array is as long as the register; the instruction is there (see the type).
        unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), self.0) };
        lanes
    }

    #[inline(always)]
    fn mask_to_bits(mask: __mmask8) -> u8 {
        mask
    }

    #[inline(always)]
    fn mask_from_bits(bits: u8) -> __mmask8 {
        bits
    }
}
