//! X25519 (RFC 7748): public keys and shared secrets, one to eight at a time.

mod edwards;
mod field;
mod ladder;

use crate::cpu::Task;
use crate::limbs::{five_from_le, five_to_le};
use crate::vector::{Digit, Lane8};
use crate::{LANES, LaneError, Lanes, Secret, declassify};
#[cfg(test)]
pub(crate) use field::MODULUS;
use field::{Fe, constant, freeze, invert, times};
use std::sync::OnceLock;
use zeroize::Zeroize;

/// One exchange: our scalar and the peer's public key.
#[derive(Clone, Copy)]
pub struct DeriveJob<'a> {
    /// Our private scalar; it is clamped here.
    pub scalar: &'a [u8; 32],
    /// The peer's public key. Its top bit is ignored, and it need not be reduced (RFC 7748, section 5).
    pub peer: &'a [u8; 32],
}

/// The shared secrets of one to eight exchanges, each by itself. A secret of zero (the peer's point has small order)
/// is refused, as RFC 8446 section 7.4.2 requires. Panics unless there are 1 to 8 jobs.
pub fn derive(lanes: Lanes, jobs: &[DeriveJob<'_>]) -> Vec<Result<Secret<32>, LaneError>> {
    assert!((1..=LANES).contains(&jobs.len()), "a call takes 1 to 8 jobs");
    lanes.run(Derive { jobs })
}

/// The public keys of one to eight private scalars (any 32 random bytes; they are clamped here). Panics unless there
/// are 1 to 8.
pub fn public_keys(lanes: Lanes, scalars: &[&[u8; 32]]) -> Vec<[u8; 32]> {
    assert!((1..=LANES).contains(&scalars.len()), "a call takes 1 to 8 scalars");
    lanes.run(PublicKeys { scalars })
}

struct Derive<'a> {
    jobs: &'a [DeriveJob<'a>],
}

impl Task for Derive<'_> {
    type Out = Vec<Result<Secret<32>, LaneError>>;

    fn run<V: Lane8>(self) -> Self::Out {
        let job = |lane: usize| &self.jobs[if lane < self.jobs.len() { lane } else { 0 }];
        let peers: [[u64; 5]; 8] = core::array::from_fn(|lane| {
            let mut limbs = five_from_le(job(lane).peer);
            limbs[4] &= (1 << 47) - 1;
            limbs
        });
        let u: Fe<V> = pack(&peers);
        let mut bits = bits::<V>(|lane| job(lane).scalar);
        let (mut x, mut z, mut out) = (constant([0; 5]), constant([0; 5]), constant([0; 5]));
        ladder::ladder(&u, &bits, &mut x, &mut z);
        let mut inverse = invert(&z);
        times(&x, &inverse, &mut out);
        let shared = unpack(&mut out);
        for secret in [&mut x, &mut z, &mut inverse, &mut out] {
            secret.zeroize();
        }
        bits.zeroize_masks();
        shared
            .into_iter()
            .take(self.jobs.len())
            .map(|shared| {
                let zero = declassify::public(shared.expose().iter().fold(0, |or, byte| or | byte)) == 0;
                if zero { Err(LaneError::SmallOrder) } else { Ok(shared) }
            })
            .collect()
    }
}

struct PublicKeys<'a> {
    scalars: &'a [&'a [u8; 32]],
}

static TABLE: OnceLock<Box<edwards::Table>> = OnceLock::new();

impl Task for PublicKeys<'_> {
    type Out = Vec<[u8; 32]>;

    fn run<V: Lane8>(self) -> Self::Out {
        let table = TABLE.get_or_init(edwards::table::<V>);
        let (mut magnitudes, mut negative) = ([[0u64; 8]; 64], [0u8; 64]);
        for lane in 0..LANES {
            let scalar = clamp(self.scalars[if lane < self.scalars.len() { lane } else { 0 }]);
            let mut carry = 0;
            for i in 0..64 {
                let nibble = u64::from(scalar.expose()[i / 2] >> (4 * (i % 2)) & 15) + carry;
                // 8 and above become negative and carry, but the last, which is at most 8.
                carry = if i < 63 { (nibble + 8) >> 4 } else { 0 };
                let digit = nibble.wrapping_sub(carry << 4);
                let sign = digit >> 63;
                magnitudes[i][lane] = (digit ^ sign.wrapping_neg()).wrapping_add(sign);
                negative[i] |= (sign as u8) << lane;
            }
        }
        let mut digits = magnitudes.each_ref().map(V::from_lanes);
        let signs = negative.map(V::mask_from_bits);
        let (mut y, mut z, mut out) = (constant([0; 5]), constant([0; 5]), constant([0; 5]));
        edwards::fixed_base(table, &digits, &signs, &mut y, &mut z);
        let mut inverse = invert(&z);
        times(&y, &inverse, &mut out);
        // Z reveals something of the scalar; the quotient is public.
        for secret in [&mut y, &mut z, &mut inverse] {
            secret.zeroize();
        }
        digits.zeroize();
        magnitudes.zeroize();
        negative.zeroize();
        unpack(&mut out).into_iter().take(self.scalars.len()).map(|key| *key.expose()).collect()
    }
}

/// RFC 7748, section 5.
fn clamp(scalar: &[u8; 32]) -> Secret<32> {
    let mut scalar = *scalar;
    scalar[0] &= 248;
    scalar[31] = scalar[31] & 127 | 64;
    let clamped = Secret::new(scalar);
    scalar.zeroize();
    clamped
}

/// Bit i of every lane's clamped scalar.
struct Bits<V: Lane8>([V::Mask; 256]);

fn bits<'a, V: Lane8>(scalar: impl Fn(usize) -> &'a [u8; 32]) -> Bits<V> {
    let mut rows = [0u8; 256];
    for lane in 0..LANES {
        let scalar = clamp(scalar(lane));
        for (i, row) in rows.iter_mut().enumerate() {
            *row |= (scalar.expose()[i / 8] >> (i % 8) & 1) << lane;
        }
    }
    let bits = Bits(rows.map(V::mask_from_bits));
    rows.zeroize();
    bits
}

impl<V: Lane8> core::ops::Deref for Bits<V> {
    type Target = [V::Mask; 256];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<V: Lane8> Bits<V> {
    fn zeroize_masks(&mut self) {
        self.0 = [V::mask_from_bits(0); 256];
        core::hint::black_box(&mut self.0);
    }
}

fn pack<V: Lane8>(numbers: &[[u64; 5]; 8]) -> Fe<V> {
    core::array::from_fn(|limb| Digit::whole(V::from_lanes(&core::array::from_fn(|lane| numbers[lane][limb]))))
}

/// The reduced bytes of each lane.
fn unpack<V: Lane8>(element: &mut Fe<V>) -> [Secret<32>; 8] {
    freeze(element);
    let mut rows = element.map(|digit| digit.value().to_lanes());
    let out = core::array::from_fn(|lane| Secret::new(five_to_le(&core::array::from_fn(|limb| rows[limb][lane]))));
    rows.zeroize();
    out
}
