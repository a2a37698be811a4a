//! X25519 (RFC 7748): public keys and shared secrets, one to eight at a time.

mod edwards;
mod field;
mod ladder;

use crate::cpu::Task;
use crate::limbs::{five_from_le, five_to_le, words_from_le};
use crate::vector::{Digit, Lane8, kernel};
use crate::{LANES, LaneError, Lanes, Secret, declassify};
#[cfg(test)]
pub(crate) use field::MODULUS;
use field::{Fe, constant, freeze, invert, times};
use std::sync::OnceLock;
use zeroize::{Zeroize, Zeroizing};

/// One exchange: our scalar and the peer's public key.
#[derive(Clone, Copy)]
pub struct DeriveJob<'a> {
    /// Our private scalar; it is clamped here.
    pub scalar: &'a [u8; 32],
    /// The peer's public key. Its top bit is ignored, and it need not be reduced (RFC 7748, section 5).
    pub peer: &'a [u8; 32],
}

/// The shared secrets of one to eight exchanges, with a result for each. A secret of zero (the peer's point has small
/// order) is refused, as RFC 8446 section 7.4.2 requires. Panics unless there are 1 to 8 jobs.
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
        let peers: [V; 5] = packed(|lane| {
            let mut limbs = five_from_le(job(lane).peer);
            limbs[4] &= (1 << 47) - 1;
            limbs
        });
        let u = peers.map(Digit::whole);
        let mut scalars: [V; 4] = packed(|lane| bits_that_change(&clamp(job(lane).scalar)));
        let mut swaps = [V::mask_from_bits(0); 255];
        bits(&scalars, &mut swaps);
        let (mut x, mut z, mut out) = (constant([0; 5]), constant([0; 5]), constant([0; 5]));
        ladder::ladder(&u, &swaps, &mut x, &mut z);
        let mut inverse = invert(&z);
        times(&x, &inverse, &mut out);
        let shared = unpack(&mut out);
        for secret in [&mut x, &mut z, &mut inverse, &mut out] {
            secret.zeroize();
        }
        scalars.zeroize();
        swaps = [V::mask_from_bits(0); 255];
        core::hint::black_box(&mut swaps);
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
        let scalar = |lane: usize| self.scalars[if lane < self.scalars.len() { lane } else { 0 }];
        let mut scalars: [V; 4] = packed(|lane| edwards::signed_digits(&clamp(scalar(lane))));
        let (mut y, mut z, mut out) = (constant([0; 5]), constant([0; 5]), constant([0; 5]));
        edwards::fixed_base(table, &scalars, &mut y, &mut z);
        let mut inverse = invert(&z);
        times(&y, &inverse, &mut out);
        // Z reveals information about the scalar; only the quotient is public.
        for secret in [&mut y, &mut z, &mut inverse] {
            secret.zeroize();
        }
        scalars.zeroize();
        unpack(&mut out).into_iter().take(self.scalars.len()).map(|key| *key.expose()).collect()
    }
}

/// Clamps a scalar (RFC 7748, section 5), and converts it to words of 64 bits.
fn clamp(scalar: &[u8; 32]) -> Zeroizing<[u64; 4]> {
    let mut words = Zeroizing::new(words_from_le(scalar));
    words[0] &= !7;
    words[3] = (words[3] & (u64::MAX >> 1)) | (1 << 62);
    words
}

/// Bit i of the result says whether bits i and i + 1 differ.
fn bits_that_change(&[a, b, c, d]: &[u64; 4]) -> [u64; 4] {
    [a ^ ((a >> 1) | (b << 63)), b ^ ((b >> 1) | (c << 63)), c ^ ((c >> 1) | (d << 63)), d ^ (d >> 1)]
}

/// Packs the words of each lane.
fn packed<V: Lane8, const WORDS: usize>(words: impl Fn(usize) -> [u64; WORDS]) -> [V; WORDS] {
    let mut rows = [[0; 8]; WORDS];
    for lane in 0..LANES {
        let mut words = words(lane);
        for (row, word) in rows.iter_mut().zip(&words) {
            row[lane] = *word;
        }
        words.zeroize();
    }
    let packed = rows.each_ref().map(V::from_lanes);
    rows.zeroize();
    packed
}

kernel! {
    /// The bits of four words, the lowest first.
    fn bits as Bits<'a, V: Lane8>(words: &'a [V; 4], bits: &'a mut [V::Mask; 255]) {
        for (i, bit) in bits.iter_mut().enumerate() {
            *bit = words[i / 64].shl_by(63 - i as u32 % 64).negative();
        }
    }
}

/// The reduced element of each lane, as bytes.
fn unpack<V: Lane8>(element: &mut Fe<V>) -> [Secret<32>; 8] {
    freeze(element);
    let mut rows = element.map(|digit| digit.value().to_lanes());
    let out = core::array::from_fn(|lane| Secret::new(five_to_le(&core::array::from_fn(|limb| rows[limb][lane]))));
    rows.zeroize();
    out
}
