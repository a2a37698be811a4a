//! Eight 64-bit lanes, in three implementations: [`Avx512`] is fast, [`Portable`] runs anywhere, and [`Bound`] proves
//! that nothing overflows.
//!
//! Every kernel is written once, generic over [`Vector`]. Because no kernel's control flow depends on data, a run on
//! `Bound`, which stores for each word only the interval it may lie in, covers every possible input: it panics where an
//! accumulator could overflow 64 bits or a multiplicand could exceed the 52 bits that VPMADD52 reads.
//!
//! Two types keep the ranges apart. A bare `V` is a *column*: a sum of products, any 64-bit value. A [`Digit`] is a
//! *multiplicand*: its low 52 bits are the value, and whatever is above them is junk that the multiplier ignores (on
//! `Avx512`, carries are left there because masking them would cost a micro-operation each).

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(test)]
pub(crate) mod bound;
#[cfg(test)]
pub(crate) mod bound16;
pub(crate) mod portable;
pub(crate) mod slots;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
#[cfg(test)]
pub(crate) use bound::Bound;
#[cfg(test)]
pub(crate) use bound16::Bound16;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) use portable::Portable as Avx512;
pub(crate) use portable::Portable;

use zeroize::DefaultIsZeroes;

/// Bits of a digit.
pub(crate) const RADIX: u32 = 52;
/// The largest digit.
pub(crate) const MASK52: u64 = (1 << RADIX) - 1;

/// Eight lanes of 64 bits.
pub(crate) trait Vector: Copy + Default + DefaultIsZeroes + Send + Sync + 'static {
    /// One truth value per lane.
    type Mask: Copy;

    /// A vector with the public constant `x` in every lane.
    fn splat(x: u64) -> Self;
    fn add(self, other: Self) -> Self;
    /// The result may be negative: then it may only be added, subtracted, shifted by [`Vector::sar`] or read as a
    /// digit.
    fn sub(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    /// Logical shift right.
    fn shr<const K: u32>(self) -> Self;
    fn shl<const K: u32>(self) -> Self;
    /// Arithmetic shift right.
    fn sar<const K: u32>(self) -> Self;
    /// `self + (a * b mod 2^52)`.
    fn madd_lo(self, a: Digit<Self>, b: Digit<Self>) -> Self;
    /// `self + floor(a * b / 2^52)`.
    fn madd_hi(self, a: Digit<Self>, b: Digit<Self>) -> Self;
    fn eq(self, other: Self) -> Self::Mask;
    /// Lanes whose top bit is set.
    fn negative(self) -> Self::Mask;
    /// `yes` where the mask holds, else `self`.
    fn or_if(self, mask: Self::Mask, yes: Self) -> Self;
    fn mask_xor(a: Self::Mask, b: Self::Mask) -> Self::Mask;
    /// Gives each lane the value of the lane whose number differs in the bit `DISTANCE`: 1, 2 or 4.
    fn exchange<const DISTANCE: usize>(self) -> Self;
    /// Word `at % 8` of vector `at / 8`, in every lane. `at` is public and must be within the slice.
    fn word(digits: &[Digit<Self>], at: usize) -> Self;
    /// The first lane's value in every lane.
    fn first(self) -> Self;
    /// Adds in the first lane only.
    fn add_first(self, other: Self) -> Self;
    /// Each lane's value one lane lower; the last takes the first of `above`.
    fn down(self, above: Self) -> Self;
    /// Shifts each lane's value one lane up; the first lane gets the last one of `below`.
    fn up(self, below: Self) -> Self;
    /// The digits of a number whose limbs are these words of at most 53 bits, lowest lane first. There is no carry out
    /// of the last one.
    fn ripple<const Z: usize>(words: &[Self; Z]) -> [Digit<Self>; Z];
    /// Runs one hot function: the only place where the instruction set changes.
    fn enter<K: Kernel<Self>>(kernel: K) -> K::Out;
    /// Runs a part of a hot function, inlined, except where the vector type is slow anyway and inlining would only make
    /// the code long.
    fn inline<K: Kernel<Self>>(kernel: K) -> K::Out;
    /// Forbids moving loads and stores across this point, so that loads are not merged and then spilled.
    fn fence();

    /// Truncates for [`Digit::low`]; does nothing where the multiplier truncates by itself.
    fn truncate(self) -> Self;
    /// Panics if the value may exceed a digit (in implementations that can tell).
    fn assert_digit(self);
    /// Declares that a value is not negative, for a reason that intervals cannot represent.
    #[inline(always)]
    fn not_negative(self) -> Self {
        self
    }
}

/// A vector whose lanes can be filled from memory and read back: everything but [`Bound`].
pub(crate) trait Lane8: Vector + slots::Shuffle<Pairs = Self> {
    fn from_lanes(lanes: &[u64; 8]) -> Self;
    fn to_lanes(self) -> [u64; 8];
    fn mask_to_bits(mask: Self::Mask) -> u8;
    fn mask_from_bits(bits: u8) -> Self::Mask;
    fn xor(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    /// `a & b | !a & c`.
    fn choose(a: Self, b: Self, c: Self) -> Self;
    /// `a ^ !b & c`.
    fn chi(a: Self, b: Self, c: Self) -> Self;
    /// `a ^ b ^ c`.
    fn xor3(a: Self, b: Self, c: Self) -> Self;
    /// The majority of the three operands, bit by bit.
    fn majority(a: Self, b: Self, c: Self) -> Self;
    /// For each lane, the entry of eight, side by side in `table`, that its index selects (by its low three bits). Not
    /// a memory access: every entry is in the register.
    fn pick8(table: Self, index: Self) -> Self;
    /// For each lane, the entry of sixteen in two registers that its index selects (by its low four bits).
    fn pick16(low: Self, high: Self, index: Self) -> Self;
    /// Shifts right by a public number of bits, filling with zeros.
    fn shr_by(self, bits: u32) -> Self;
    fn shl_by(self, bits: u32) -> Self;
    fn rotl64<const K: i32>(self) -> Self;
    /// Rotates each 32-bit half.
    fn rotr32<const K: i32>(self) -> Self;
    /// Shifts each 32-bit half.
    fn shr32<const K: u32>(self) -> Self;
    /// Adds the 32-bit halves separately.
    fn add32(self, other: Self) -> Self;
}

/// Implements [`Vector::ripple`]: a lane over 52 bits generates a carry, a lane of ones passes one on, and one addition
/// of the two masks propagates all carries.
#[inline(always)]
fn ripple_lanes<V: Lane8, const Z: usize>(words: &[V; Z]) -> [Digit<V>; Z] {
    let (mut generate, mut pass) = (0u128, 0u128);
    repeat!(10, K => if K < Z {
        let fits = V::mask_to_bits(words[K].shr::<RADIX>().eq(V::splat(0)));
        generate |= u128::from(!fits) << (8 * K);
        pass |= u128::from(V::mask_to_bits(words[K].eq(V::splat(MASK52)))) << (8 * K);
    });
    let carried = ((generate << 1) + pass) ^ pass;
    let mut digits = [Digit::default(); Z];
    repeat!(10, K => if K < Z {
        let here = V::mask_from_bits((carried >> (8 * K)) as u8);
        digits[K] = Digit::low(words[K].or_if(here, words[K].add(V::splat(1))));
    });
    digits
}

/// A multiplicand, of which only the low 52 bits count.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub(crate) struct Digit<V>(V);

impl<V: Vector> DefaultIsZeroes for Digit<V> {}

impl<V: Vector> Digit<V> {
    /// The low 52 bits of a column whose carry has been taken elsewhere.
    #[inline(always)]
    pub(crate) fn low(v: V) -> Self {
        Digit(v.truncate())
    }

    /// A value that is known to fit into a digit.
    #[inline(always)]
    pub(crate) fn whole(v: V) -> Self {
        v.assert_digit();
        Digit(v)
    }

    /// The digit without any junk above it.
    #[inline(always)]
    pub(crate) fn value(self) -> V {
        self.0.and(V::splat(MASK52))
    }

    /// The register as it is: for a digit made by [`Digit::whole`], or where junk above the digit makes no difference.
    #[inline(always)]
    pub(crate) fn raw(self) -> V {
        self.0
    }

    /// `yes` where the mask holds, else `self`.
    #[inline(always)]
    pub(crate) fn or_if(self, mask: V::Mask, yes: Self) -> Self {
        Digit(self.0.or_if(mask, yes.0))
    }

    #[inline(always)]
    pub(crate) fn exchange<const DISTANCE: usize>(self) -> Self {
        Digit(self.0.exchange::<DISTANCE>())
    }
}

/// A hot function: everything it calls is inlined into it, and it is compiled for the vector's instruction set.
pub(crate) trait Kernel<V> {
    type Out;
    /// Must be `#[inline(always)]`.
    fn run(self) -> Self::Out;
}

/// Declares a hot function over any [`Vector`], entered through [`Vector::enter`]. The struct of the given name holds
/// the arguments and gives the machine code its symbol.
macro_rules! kernel {
    ($($declaration:tt)*) => { $crate::vector::hot!(enter, $($declaration)*); };
}
pub(crate) use kernel;

/// Declares a part of hot functions, like `kernel!` but through [`Vector::inline`].
macro_rules! part {
    ($($declaration:tt)*) => { $crate::vector::hot!(inline, $($declaration)*); };
}
pub(crate) use part;

macro_rules! hot {
    ($via:ident, $(#[$meta:meta])* fn $name:ident as $symbol:ident
        <$($life:lifetime,)* $v:ident : $bound:ident $(, const $c:ident : usize)*>
        ($($arg:ident : $ty:ty),* $(,)?) $(-> $out:ty)? $body:block) => {
        #[allow(non_camel_case_types)]
        struct $symbol<$($life,)* $v: $bound $(, const $c: usize)*> { $($arg: $ty),* }

        impl<$($life,)* $v: $bound $(, const $c: usize)*> crate::vector::Kernel<$v> for $symbol<$($life,)* $v $(, $c)*> {
            type Out = $crate::vector::hot!(@out $($out)?);
            #[inline(always)]
            fn run(self) -> Self::Out {
                let Self { $($arg),* } = self;
                $body
            }
        }

        $(#[$meta])*
        #[inline(always)]
        pub(crate) fn $name<$($life,)* $v: $bound $(, const $c: usize)*>($($arg: $ty),*) $(-> $out)? {
            $v::$via($symbol::<$($life,)* $v $(, $c)*> { $($arg),* })
        }
    };
    (@out) => { () };
    (@out $out:ty) => { $out };
}
pub(crate) use hot;

/// Repeats an expression with a constant counting from 0. LLVM promotes an array to registers only if all indices
/// become constants early; it may not unroll a loop in time.
macro_rules! repeat {
    (2, $i:ident => $e:expr) => { $crate::vector::repeat!(@ $i $e; 0 1) };
    (4, $i:ident => $e:expr) => { $crate::vector::repeat!(@ $i $e; 0 1 2 3) };
    (5, $i:ident => $e:expr) => { $crate::vector::repeat!(@ $i $e; 0 1 2 3 4) };
    (8, $i:ident => $e:expr) => { $crate::vector::repeat!(@ $i $e; 0 1 2 3 4 5 6 7) };
    (9, $i:ident => $e:expr) => { $crate::vector::repeat!(@ $i $e; 0 1 2 3 4 5 6 7 8) };
    (10, $i:ident => $e:expr) => { $crate::vector::repeat!(@ $i $e; 0 1 2 3 4 5 6 7 8 9) };
    (16, $i:ident => $e:expr) => { $crate::vector::repeat!(@ $i $e; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15) };
    (20, $i:ident => $e:expr) => { $crate::vector::repeat!(@ $i $e; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19) };
    (@ $i:ident $e:expr; $($k:literal)*) => {{ $({ const $i: usize = $k; $e })* }};
}
pub(crate) use repeat;
