//! The public operation with the exponent 65537, on eight keys at once: verification, and the check of our own results.

use super::key::{RsaPublicKey, RsaSize};
use super::mont::{Columns, Modulus, mont_mul, mont_sqr};
use super::pack::{lane_to_be, pack_into, pack_modulus, same, subtract_once, unpack};
use super::single::Single;
use crate::cpu::Task;
use crate::vector::{Digit, Lane8, Vector};
use crate::{LANES, LaneError, Lanes, limbs};
use zeroize::Zeroize;

/// Conversion to Montgomery's form, sixteen squarings, and the last product.
pub(crate) const CHECK_STEPS: usize = 18;

/// Raises a value to 65537 and compares.
pub(crate) struct Check<V: Vector, const N: usize, const Z: usize> {
    modulus: Modulus<V, N>,
    r2: [Digit<V>; N],
    wanted: [Digit<V>; N],
    /// The value to be raised.
    pub(crate) value: [Digit<V>; N],
    power: [Digit<V>; N],
    scratch: [Digit<V>; N],
    /// Squares if there is only one job, whose number is in every lane.
    single: Single<V, N, Z>,
    alone: bool,
}

impl<V: Lane8, const N: usize, const Z: usize> Check<V, N, Z> {
    pub(crate) fn empty() -> Self {
        let zero = [Digit::whole(V::default()); N];
        let modulus = Modulus { m: zero, fold: zero, k0: zero[0] };
        let single = Single::new(0);
        Check { modulus, r2: zero, wanted: zero, value: zero, power: zero, scratch: zero, single, alone: false }
    }

    /// Starts with one to eight jobs; lanes without one repeat the first job.
    pub(crate) fn start(&mut self, jobs: usize, keys: [&RsaPublicKey; 8], wanted: [&[u64]; 8]) {
        self.alone = jobs == 1;
        pack_modulus(keys.map(|key| &key.n), &mut self.modulus);
        pack_into(keys.map(|key| &key.r2[..]), &mut self.r2);
        pack_into(wanted, &mut self.wanted);
    }

    /// Zeroes what is not public.
    pub(crate) fn clear(&mut self) {
        self.wanted.zeroize();
        self.value.zeroize();
        self.power.zeroize();
        self.scratch.zeroize();
        if self.alone {
            self.single.zeroize();
        }
    }

    pub(crate) fn step(&mut self, columns: &mut Columns<V>, at: usize) {
        match at {
            0 => {
                mont_mul(columns, &self.value, &self.r2, &self.modulus, &mut self.power);
                if self.alone {
                    self.single.enter(&self.modulus, &self.power);
                }
            }
            1..=16 if self.alone => {
                self.single.square();
                if at == 16 {
                    self.single.leave(&mut self.power);
                }
            }
            1..=16 => {
                mont_sqr(columns, &self.power, &self.modulus, &mut self.scratch);
                core::mem::swap(&mut self.power, &mut self.scratch);
            }
            _ => {
                // The value is not in Montgomery's form, so the product is not either; it is at most 2 n.
                mont_mul(columns, &self.power, &self.value, &self.modulus, &mut self.scratch);
                subtract_once(&mut self.scratch, &self.modulus.m);
                subtract_once(&mut self.scratch, &self.modulus.m);
            }
        }
    }

    /// Everything that [`Check::clear`] zeroes.
    #[cfg(test)]
    pub(crate) fn wanted_and_powers(&self) -> Vec<Digit<V>> {
        [&self.wanted, &self.value, &self.power, &self.scratch].into_iter().flatten().copied().collect()
    }

    /// The lanes whose power is as wanted, after all steps.
    pub(crate) fn right(&self) -> u8 {
        same(&self.scratch, &self.wanted)
    }
}

/// One verification: whether `signature^65537 mod n` is `encoded`.
#[derive(Clone, Copy)]
pub struct VerifyJob<'a> {
    /// The key; all keys of a call have one size.
    pub key: &'a RsaPublicKey,
    /// The signature, big-endian, as long as the modulus.
    pub signature: &'a [u8],
    /// The encoded message that the signature is checked against, as long as the modulus.
    pub encoded: &'a [u8],
}

/// Verifies one to eight signatures against encoded messages (the encoding of PKCS#1 v1.5 is deterministic, so
/// verifying is comparing). A key whose size differs from the first one's fails its lane alone. Panics unless there are
/// 1 to 8 jobs.
pub fn verify_raw(lanes: Lanes, jobs: &[VerifyJob<'_>]) -> Vec<Result<(), LaneError>> {
    let size = first_size(jobs.iter().map(|job| job.key));
    lanes.run(Verify { jobs, size })
}

/// One public operation: `input^65537 mod n`.
#[derive(Clone, Copy)]
pub struct PublicJob<'a> {
    /// The key; all keys of a call have one size.
    pub key: &'a RsaPublicKey,
    /// The input, big-endian, as long as the modulus and below it: a signature.
    pub input: &'a [u8],
}

/// The encoded messages of one to eight signatures, big-endian, as long as the modulus (for PSS, which
/// [`super::verify_pss`] then verifies). A key whose size differs from the first one's fails its lane alone. Panics
/// unless there are 1 to 8 jobs.
pub fn raise(lanes: Lanes, jobs: &[PublicJob<'_>]) -> Vec<Result<Vec<u8>, LaneError>> {
    let size = first_size(jobs.iter().map(|job| job.key));
    lanes.run(Raise { jobs, size })
}

fn first_size<'a>(mut keys: impl ExactSizeIterator<Item = &'a RsaPublicKey>) -> RsaSize {
    assert!((1..=LANES).contains(&keys.len()), "a call takes 1 to 8 jobs");
    keys.next().expect("there is a job").size()
}

struct Verify<'a> {
    jobs: &'a [VerifyJob<'a>],
    size: RsaSize,
}

impl Task for Verify<'_> {
    type Out = Vec<Result<(), LaneError>>;

    fn run<V: Lane8>(self) -> Self::Out {
        match self.size {
            RsaSize::Bits2048 => verify::<V, 40, 5>(self.jobs),
            RsaSize::Bits3072 => verify::<V, 60, 8>(self.jobs),
            RsaSize::Bits4096 => verify::<V, 80, 10>(self.jobs),
        }
    }
}

struct Raise<'a> {
    jobs: &'a [PublicJob<'a>],
    size: RsaSize,
}

impl Task for Raise<'_> {
    type Out = Vec<Result<Vec<u8>, LaneError>>;

    fn run<V: Lane8>(self) -> Self::Out {
        match self.size {
            RsaSize::Bits2048 => encoded::<V, 40, 5>(self.jobs),
            RsaSize::Bits3072 => encoded::<V, 60, 8>(self.jobs),
            RsaSize::Bits4096 => encoded::<V, 80, 10>(self.jobs),
        }
    }
}

/// Eight numbers, and the lanes whose number is not below the modulus or has the wrong length, or whose key has a
/// different size than the first; zero takes the place of these numbers. A lane without a job repeats the first.
fn numbers<const N: usize>(inputs: &[(&RsaPublicKey, &[u8])]) -> ([Vec<u64>; 8], u8) {
    let mut bad = 0;
    let limbs = core::array::from_fn(|lane| {
        let (key, bytes) = inputs[if lane < inputs.len() { lane } else { 0 }];
        let mut limbs = vec![0; N];
        let same_size = key.size() == inputs[0].0.size();
        let fits = same_size && bytes.len() == key.size().bytes() && limbs::from_be(bytes, &mut limbs);
        if !fits || limbs::less(&limbs, &key.n.m) == 0 {
            limbs.fill(0);
            bad |= 1 << lane;
        }
        limbs
    });
    (limbs, bad)
}

/// Does all steps, on the powers of the inputs.
fn run<V: Lane8, const N: usize, const Z: usize>(
    keys: &[&RsaPublicKey],
    bases: &[Vec<u64>; 8],
    wanted: &[Vec<u64>; 8],
) -> Check<V, N, Z> {
    let key = core::array::from_fn(|lane| match keys.get(lane) {
        Some(key) if key.size() == keys[0].size() => *key,
        _ => keys[0],
    });
    let mut check = Check::<V, N, Z>::empty();
    check.start(keys.len(), key, wanted.each_ref().map(|limbs| &limbs[..]));
    pack_into(bases.each_ref().map(|limbs| &limbs[..]), &mut check.value);
    let mut columns = [V::default(); 160];
    for step in 0..CHECK_STEPS {
        check.step(&mut columns, step);
    }
    check
}

fn verify<V: Lane8, const N: usize, const Z: usize>(jobs: &[VerifyJob<'_>]) -> Vec<Result<(), LaneError>> {
    let keys: Vec<_> = jobs.iter().map(|job| job.key).collect();
    let (signatures, bad) = numbers::<N>(&jobs.iter().map(|job| (job.key, job.signature)).collect::<Vec<_>>());
    let (encoded, also_bad) = numbers::<N>(&jobs.iter().map(|job| (job.key, job.encoded)).collect::<Vec<_>>());
    let right = run::<V, N, Z>(&keys, &signatures, &encoded).right() & !bad & !also_bad;
    (0..jobs.len()).map(|lane| if right >> lane & 1 == 1 { Ok(()) } else { Err(LaneError::Signature) }).collect()
}

fn encoded<V: Lane8, const N: usize, const Z: usize>(jobs: &[PublicJob<'_>]) -> Vec<Result<Vec<u8>, LaneError>> {
    let keys: Vec<_> = jobs.iter().map(|job| job.key).collect();
    let (inputs, bad) = numbers::<N>(&jobs.iter().map(|job| (job.key, job.input)).collect::<Vec<_>>());
    let check = run::<V, N, Z>(&keys, &inputs, &inputs);
    let mut limbs = [[0; 8]; N];
    unpack(&check.scratch, &mut limbs);
    (0..jobs.len())
        .map(|lane| {
            if bad >> lane & 1 == 1 {
                return Err(LaneError::InputRange);
            }
            let mut bytes = vec![0; jobs[lane].key.size().bytes()];
            lane_to_be(&limbs, lane, &mut bytes);
            Ok(bytes)
        })
        .collect()
}
