//! Conversions between bytes and polynomials (FIPS 203, section 4.2.1), and between the bytes of eight clients and
//! vectors.
//!
//! A word of eight byte strings is one vector. Constant time. Tests: `compression_is_exact`, and the vectors in
//! `tests/mlkem768.rs`.

use super::ntt::{Poly, Q, VECTORS};
use super::sample::to_bytes;
use crate::vector::{Digit, Kernel, Lane8, repeat};

/// The words of eight byte strings, of a length that is a multiple of 32.
pub(crate) fn words<V: Lane8>(strings: [&[u8]; 8], out: &mut [V]) {
    V::enter(Words(strings, out));
}

struct Words<'a, V>([&'a [u8]; 8], &'a mut [V]);

impl<V: Lane8> Kernel<V> for Words<'_, V> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        let Words(strings, out) = self;
        for (at, out) in out.chunks_mut(8).enumerate() {
            let mut square = [V::splat(0); 8];
            for client in 0..8 {
                let mut row = [0; 8];
                let (whole, _) = strings[client][64 * at..].as_chunks::<8>();
                for (word, bytes) in row.iter_mut().zip(whole) {
                    *word = u64::from_le_bytes(*bytes);
                }
                square[client] = V::from_lanes(&row);
            }
            V::transpose(&mut square);
            out.copy_from_slice(&square[..out.len()]);
        }
    }
}

/// The bytes of eight strings, from a number of words that is a multiple of 8.
pub(crate) fn bytes<V: Lane8, const LENGTH: usize>(words: &mut [V], out: &mut [[u8; LENGTH]; 8]) {
    V::enter(Bytes(words, out));
}

struct Bytes<'a, V, const LENGTH: usize>(&'a mut [V], &'a mut [[u8; LENGTH]; 8]);

impl<V: Lane8, const LENGTH: usize> Kernel<V> for Bytes<'_, V, LENGTH> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        let (squares, _) = self.0.as_chunks_mut::<8>();
        for (at, square) in squares.iter_mut().enumerate() {
            V::transpose(square);
            for (client, row) in square.iter().enumerate() {
                self.1[client][64 * at..][..64].copy_from_slice(&to_bytes(*row));
            }
        }
    }
}

/// Decodes twelve bits per coefficient, 48 words per polynomial. Returns the lanes, as bits, whose input has a
/// coefficient of q or above.
pub(crate) fn decode12<V: Lane8>(words: &[V], out: &mut Poly<V>) -> u8 {
    V::enter(Decode12(words, out))
}

struct Decode12<'a, V>(&'a [V], &'a mut Poly<V>);

impl<V: Lane8> Kernel<V> for Decode12<'_, V> {
    type Out = u8;

    #[inline(always)]
    fn run(self) -> u8 {
        let (threes, _) = self.0.as_chunks::<3>();
        let (fours, _) = self.1.as_chunks_mut::<4>();
        let mut too_large = V::splat(0);
        for (w, out) in threes.iter().zip(fours) {
            *out = [
                w[0].spread::<0, 12>(),
                w[0].shr::<48>().or(w[1].shl::<16>()).spread::<0, 12>(),
                w[1].shr::<32>().or(w[2].shl::<32>()).spread::<0, 12>(),
                w[2].spread::<16, 12>(),
            ];
            for v in out {
                too_large = too_large.or(V::slots([Q - 1; 4]).sub16(*v));
            }
        }
        let signs = too_large.and(V::splat(0x8000_8000_8000_8000));
        !V::mask_to_bits(signs.eq(V::splat(0)))
    }
}

/// Adds (q + 1) / 2 where the message has a one bit (FIPS 203, Decompress of one bit).
pub(crate) fn add_message<V: Lane8>(message: &[V; 4], out: &mut Poly<V>) {
    V::enter(AddMessage(message, out));
}

struct AddMessage<'a, V>(&'a [V; 4], &'a mut Poly<V>);

impl<V: Lane8> Kernel<V> for AddMessage<'_, V> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        let (sixteens, _) = self.1.as_chunks_mut::<16>();
        for (word, out) in self.0.iter().zip(sixteens) {
            repeat!(16, I => {
                let bits = word.spread::<{ 4 * I as u32 }, 1>();
                // Subtracts q, so that adding q once to negative values makes everything non-negative.
                out[I] = out[I].add16(bits.mul_low16(V::slots([(Q + 1) / 2 - Q; 4])));
            });
        }
    }
}

/// `round(2^D x / q) mod 2^D` (FIPS 203, Compress), for `x` below q. Twice the quotient is exactly
/// `floor(x ceil(2^(D+1) 2^52 / q) / 2^52)`, since x is small; adding one and halving rounds it.
#[inline(always)]
fn compressed<V: Lane8, const D: u32>(x: V) -> V {
    let scale = const { (1u64 << (D + 1 + 52)).div_ceil(Q as u64) };
    let twice = V::splat(1).madd_hi(Digit::whole(x), Digit::whole(V::splat(scale)));
    twice.shr::<1>().and(V::splat((1 << D) - 1))
}

/// Four coefficients in -2 q..q, compressed to D bits each, side by side.
#[inline(always)]
fn compressed4<V: Lane8, const D: u32>(v: V) -> V {
    let v = v.lift(Q).lift(Q);
    let mask = V::splat(0xffff);
    let a = compressed::<V, D>(v.and(mask));
    let b = compressed::<V, D>(v.shr::<16>().and(mask));
    let c = compressed::<V, D>(v.shr::<32>().and(mask));
    let d = compressed::<V, D>(v.shr::<48>());
    // These shifts depend on D: multiples of 4 and 10.
    if D == 4 {
        a.or(b.shl::<4>()).or(c.shl::<8>().or(d.shl::<12>()))
    } else {
        a.or(b.shl::<10>()).or(c.shl::<20>().or(d.shl::<30>()))
    }
}

/// The sum of two polynomials, compressed to ten bits a coefficient: 40 words.
pub(crate) fn compress10<V: Lane8>(a: &Poly<V>, b: &Poly<V>, out: &mut [V]) {
    V::enter(Compress10(a, b, out));
}

struct Compress10<'a, V>(&'a Poly<V>, &'a Poly<V>, &'a mut [V]);

impl<V: Lane8> Kernel<V> for Compress10<'_, V> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        let (fives, _) = self.2.as_chunks_mut::<5>();
        for (at, out) in fives.iter_mut().enumerate() {
            let mut p = [V::splat(0); 8];
            repeat!(8, I => p[I] = compressed4::<V, 10>(self.0[8 * at + I].add16(self.1[8 * at + I])));
            *out = [
                p[0].or(p[1].shl::<40>()),
                p[1].shr::<24>().or(p[2].shl::<16>()).or(p[3].shl::<56>()),
                p[3].shr::<8>().or(p[4].shl::<32>()),
                p[4].shr::<32>().or(p[5].shl::<8>()).or(p[6].shl::<48>()),
                p[6].shr::<16>().or(p[7].shl::<24>()),
            ];
        }
    }
}

/// The sum of two polynomials, compressed to four bits a coefficient: 16 words.
pub(crate) fn compress4<V: Lane8>(a: &Poly<V>, b: &Poly<V>, out: &mut [V]) {
    V::enter(Compress4(a, b, out));
}

struct Compress4<'a, V>(&'a Poly<V>, &'a Poly<V>, &'a mut [V]);

impl<V: Lane8> Kernel<V> for Compress4<'_, V> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        for (at, out) in self.2.iter_mut().enumerate().take(VECTORS / 4) {
            let mut p = [V::splat(0); 4];
            repeat!(4, I => p[I] = compressed4::<V, 4>(self.0[4 * at + I].add16(self.1[4 * at + I])));
            *out = p[0].or(p[1].shl::<16>()).or(p[2].shl::<32>().or(p[3].shl::<48>()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vector::Portable;
    use crate::vector::slots::Slots;

    /// Every coefficient, including its negative representatives.
    #[test]
    fn compression_is_exact() {
        // Under an interpreter, testing all of them would take minutes.
        for x in (-2 * i64::from(Q)..i64::from(Q)).step_by(if cfg!(miri) { 997 } else { 1 }) {
            let v = Portable::slots([x as i16, 0, x as i16, 1]);
            for (bits, got) in [(4, compressed4::<_, 4>(v)), (10, compressed4::<_, 10>(v))] {
                let q = i64::from(Q);
                let wanted = ((x.rem_euclid(q) << bits) + q / 2) / q % (1 << bits);
                let one = ((1 << bits) + q / 2) / q;
                let got = got.to_lanes()[5];
                assert_eq!(got, (wanted | wanted << (2 * bits) | one << (3 * bits)) as u64, "{x} to {bits} bits");
            }
        }
    }
}
