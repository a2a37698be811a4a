//! The public operation with the exponent 65537, on eight keys at once: verification, and the check of our own results.

use super::key::{RsaPublicKey, RsaSize};
use super::mont::{Modulus, mont_mul, mont_sqr};
use super::pack::{pack, pack_moduli, subtract_once};
use crate::cpu::Task;
use crate::vector::{Digit, Lane8, Vector};
use crate::{LANES, LaneError, Lanes, limbs};
use zeroize::Zeroize;

/// Raises a value to 65537 and compares.
pub(crate) struct Check<V: Vector, const N: usize> {
    modulus: Modulus<V, N>,
    r2: [Digit<V>; N],
    wanted: [Digit<V>; N],
    /// What is raised.
    pub(crate) value: [Digit<V>; N],
    power: [Digit<V>; N],
    scratch: [Digit<V>; N],
}

impl<V: Lane8, const N: usize> Check<V, N> {
    /// Into Montgomery's form, sixteen squarings, the last product.
    pub(crate) const STEPS: usize = 18;

    pub(crate) fn new(keys: [&RsaPublicKey; 8], wanted: [Digit<V>; N]) -> Self {
        let zero = [Digit::whole(V::splat(0)); N];
        Check {
            modulus: pack_moduli(keys.map(|key| &key.n)),
            r2: pack(keys.map(|key| &key.r2[..])),
            wanted,
            value: zero,
            power: zero,
            scratch: zero,
        }
    }

    pub(crate) fn step(&mut self, columns: &mut [V], at: usize) {
        match at {
            0 => mont_mul(columns, &self.value, &self.r2, &self.modulus, &mut self.power),
            1..=16 => {
                mont_sqr(columns, &self.power, &self.modulus, &mut self.scratch);
                core::mem::swap(&mut self.power, &mut self.scratch);
            }
            _ => {
                // The value is not in Montgomery's form, so neither is the product: at most 2 n.
                mont_mul(columns, &self.power, &self.value, &self.modulus, &mut self.scratch);
                subtract_once(&mut self.scratch, &self.modulus.m);
                subtract_once(&mut self.scratch, &self.modulus.m);
            }
        }
    }

    /// The lanes whose power is what was wanted, after all steps.
    pub(crate) fn right(&self) -> u8 {
        let mut unlike = V::splat(0);
        for (power, wanted) in self.scratch.iter().zip(&self.wanted) {
            unlike = unlike.or(power.value().xor(wanted.value()));
        }
        V::mask_to_bits(unlike.eq(V::splat(0)))
    }
}

impl<V: Vector, const N: usize> Drop for Check<V, N> {
    fn drop(&mut self) {
        self.wanted.zeroize();
        self.value.zeroize();
        self.power.zeroize();
        self.scratch.zeroize();
    }
}

/// One verification: whether `signature^65537 mod n` is `encoded`.
#[derive(Clone, Copy)]
pub struct VerifyJob<'a> {
    /// The key; all keys of a call have one size.
    pub key: &'a RsaPublicKey,
    /// The signature, big-endian, as long as the modulus.
    pub signature: &'a [u8],
    /// The encoded message it should stand for, as long as the modulus.
    pub encoded: &'a [u8],
}

/// Verifies one to eight signatures against encoded messages (for PKCS#1 v1.5 the encoding is deterministic, so
/// verifying is comparing). Panics unless there are 1 to 8 jobs with keys of one size.
pub fn verify_raw(lanes: Lanes, jobs: &[VerifyJob<'_>]) -> Vec<Result<(), LaneError>> {
    assert!((1..=LANES).contains(&jobs.len()), "a call takes 1 to 8 jobs");
    let size = jobs[0].key.size();
    assert!(jobs.iter().all(|job| job.key.size() == size), "the keys of a call have one size");
    lanes.run(Verify { jobs, size })
}

struct Verify<'a> {
    jobs: &'a [VerifyJob<'a>],
    size: RsaSize,
}

impl Task for Verify<'_> {
    type Out = Vec<Result<(), LaneError>>;

    fn run<V: Lane8>(self) -> Self::Out {
        match self.size {
            RsaSize::Bits2048 => verify::<V, 40>(self.jobs),
            RsaSize::Bits3072 => verify::<V, 60>(self.jobs),
            RsaSize::Bits4096 => verify::<V, 80>(self.jobs),
        }
    }
}

fn verify<V: Lane8, const N: usize>(jobs: &[VerifyJob<'_>]) -> Vec<Result<(), LaneError>> {
    let job = |lane: usize| &jobs[if lane < jobs.len() { lane } else { 0 }];
    let mut bad = 0;
    let mut limbs_of = |lane: usize, bytes: &[u8]| {
        let mut limbs = vec![0; N];
        let fits = bytes.len() == job(lane).key.size().bytes() && limbs::from_be(bytes, &mut limbs);
        if !fits || limbs::less(&limbs, &job(lane).key.n.m) == 0 {
            limbs.fill(0);
            bad |= 1 << lane;
        }
        limbs
    };
    let signatures: [Vec<u64>; 8] = core::array::from_fn(|lane| limbs_of(lane, job(lane).signature));
    let encoded: [Vec<u64>; 8] = core::array::from_fn(|lane| limbs_of(lane, job(lane).encoded));
    let mut check = Check::<V, N>::new(
        core::array::from_fn(|lane| job(lane).key),
        pack(core::array::from_fn(|lane| &encoded[lane][..])),
    );
    check.value = pack(core::array::from_fn(|lane| &signatures[lane][..]));
    let mut columns = vec![V::splat(0); 2 * N];
    for step in 0..Check::<V, N>::STEPS {
        check.step(&mut columns, step);
    }
    let right = check.right() & !bad;
    (0..jobs.len()).map(|lane| if right >> lane & 1 == 1 { Ok(()) } else { Err(LaneError::Signature) }).collect()
}
