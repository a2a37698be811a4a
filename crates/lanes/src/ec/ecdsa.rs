//! ECDSA signatures (FIPS 186-5, section 6.4), with the nonces of [`super::nonce`] or with presignatures.

use super::curves::Curve;
use super::field::{Fe, Marker, Prime, constant, invert, mul, reduced, times};
use super::nonce::{Source, nonces};
use super::point::{Digits, multiply_base};
use super::{Table, pack, scalar, small, unpack, zero_lanes};
use crate::cpu::Task;
use crate::sha2::Hash;
use crate::vector::{Kernel, Lane8};
use crate::{LANES, LaneError, limbs};
use core::marker::PhantomData;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// A signature to be made.
#[derive(Clone, Copy)]
pub struct SignJob<'a, const BYTES: usize> {
    /// The private scalar, big-endian, from 1 to n - 1.
    pub key: &'a [u8; BYTES],
    /// The digest of the message. If it is longer than a scalar, its leftmost bytes are used; if shorter, it is used as
    /// an integer.
    pub digest: &'a [u8],
    /// Fresh random bytes, mixed into the nonce (RFC 6979, section 3.6). Empty for the RFC's deterministic nonce.
    pub random: &'a [u8],
}

pub(crate) struct Sign<'a, C, H, const N: usize, const BYTES: usize> {
    pub(crate) jobs: &'a [SignJob<'a, BYTES>],
    pub(crate) curve: PhantomData<(C, H)>,
}

/// A nonce for a single signature, as r and k^-1. Not copied, zeroed when dropped; a process that forks must drop it
/// first.
pub struct Presignature<const BYTES: usize> {
    r: [u8; BYTES],
    inverse: [u8; BYTES],
}

impl<const BYTES: usize> Drop for Presignature<BYTES> {
    fn drop(&mut self) {
        self.r.zeroize();
        self.inverse.zeroize();
    }
}

impl<const BYTES: usize> ZeroizeOnDrop for Presignature<BYTES> {}

/// r and k^-1 in Montgomery's form, and the lanes in which they are unusable.
struct Prepared<V: Lane8, const N: usize> {
    r: Fe<V, N>,
    inverse: Fe<V, N>,
    bad: u8,
}

/// The part of a signature that does not depend on key or message.
fn prepare<V: Lane8, C: Curve<N> + Table, const N: usize>(k: &[[u64; N]; 8]) -> Prepared<V, N> {
    let digits = Digits::<V>::of_base::<C, N>(k);
    let mut product = multiply_base::<V, C, N>(&digits, C::table::<V>());
    let r2 = constant(&C::Order::R2);
    let mut form = times::<V, C::Order, N>(&pack(k), &r2);
    let (inverse, _) = invert::<V, C::Order, N>(&form);
    form.zeroize();
    let (mut z_inverse, exceptional) = invert::<V, C::Field, N>(&product.z);
    let square = times::<V, C::Field, N>(&z_inverse, &z_inverse);
    let x = reduced::<V, C::Field, N>(&times::<V, C::Field, N>(&product.x, &square));
    for secret in [&mut product.x, &mut product.y, &mut product.z, &mut z_inverse] {
        secret.zeroize();
    }
    // x is below p, so below 2 n; the conversion to Montgomery's form reduces it modulo n.
    let r = times::<V, C::Order, N>(&x, &r2);
    let zero = zero_lanes(&reduced::<V, C::Order, N>(&r));
    Prepared { r, inverse, bad: exceptional | zero }
}

/// `k^-1 (z + r d)`.
struct Signature<'a, V: Lane8, P, const N: usize>(&'a Prepared<V, N>, &'a Fe<V, N>, &'a Fe<V, N>, Marker<P>);

impl<V: Lane8, P: Prime<N>, const N: usize> Kernel<V> for Signature<'_, V, P, N> {
    type Out = Fe<V, N>;

    #[inline(always)]
    fn run(self) -> Fe<V, N> {
        let Signature(prepared, key, digest, _) = self;
        let z = mul::<V, P, N>(digest, &constant(&P::R2));
        let sum = mul::<V, P, N>(&prepared.r, key).add(z).digits();
        mul::<V, P, N>(&sum, &prepared.inverse).settled::<P>()
    }
}

/// Computes s = k^-1 (z + r d), and returns r and s as bytes. All inputs except the digest `z` are in Montgomery's
/// form.
fn complete<V: Lane8, C: Curve<N>, const N: usize, const BYTES: usize>(
    prepared: &Prepared<V, N>,
    key: &Fe<V, N>,
    digest: &Fe<V, N>,
) -> ([([u8; BYTES], [u8; BYTES]); 8], u8) {
    let s = V::enter(Signature(prepared, key, digest, Marker::<C::Order>(PhantomData)));
    let (r, s) = (reduced::<V, C::Order, N>(&prepared.r), reduced::<V, C::Order, N>(&s));
    let bad = prepared.bad | zero_lanes(&s);
    let (r, s) = (unpack(&r), unpack(&s));
    let bytes = |limbs: &[u64; N]| {
        let mut bytes = [0; BYTES];
        limbs::to_be(limbs, &mut bytes);
        bytes
    };
    (core::array::from_fn(|lane| (bytes(&r[lane]), bytes(&s[lane]))), bad)
}

/// The digest as an integer below n: its leftmost bytes, minus n if they are not below it.
fn digest_integer<C: Curve<N>, const N: usize>(digest: &[u8]) -> [u64; N] {
    let mut z = [0; N];
    limbs::from_be(&digest[..digest.len().min(C::BYTES)], &mut z);
    let mut reduced = [0; N];
    if limbs::sub(&z, &C::Order::M, &mut reduced) == 0 { reduced } else { z }
}

impl<C: Curve<N> + Table, H: Hash, const N: usize, const BYTES: usize> Task for Sign<'_, C, H, N, BYTES> {
    type Out = Vec<Result<([u8; BYTES], [u8; BYTES]), LaneError>>;

    fn run<V: Lane8>(self) -> Self::Out {
        let mut bad_key = 0u8;
        let mut keys = [small::<N>(1); LANES];
        let mut digests = [small::<N>(1); LANES];
        for (lane, job) in self.jobs.iter().enumerate() {
            digests[lane] = digest_integer::<C, N>(job.digest);
            match scalar::<C, N>(job.key) {
                Some(key) => keys[lane] = key,
                None => bad_key |= 1 << lane,
            }
        }
        let digest_bytes = digests.each_ref().map(|digest| {
            let mut bytes = [0; BYTES];
            limbs::to_be(digest, &mut bytes);
            bytes
        });
        // Lanes without a job repeat the first job.
        let sources = core::array::from_fn(|lane| {
            let job = self.jobs.get(lane).unwrap_or(&self.jobs[0]);
            Source { key: job.key, digest: &digest_bytes[lane], added: job.random }
        });
        let (mut k, out_of_range) = nonces::<V, C, H, N, BYTES>(&sources);
        let mut prepared = prepare::<V, C, N>(&k);
        k.zeroize();
        let mut key = times::<V, C::Order, N>(&pack(&keys), &constant(&C::Order::R2));
        keys.zeroize();
        let (signatures, bad) = complete::<V, C, N, BYTES>(&prepared, &key, &pack(&digests));
        prepared.inverse.zeroize();
        key.zeroize();
        answers(self.jobs.len(), bad_key, bad | out_of_range, signatures)
    }
}

fn answers<T>(jobs: usize, input: u8, exceptional: u8, results: [T; 8]) -> Vec<Result<T, LaneError>> {
    results
        .into_iter()
        .take(jobs)
        .enumerate()
        .map(|(lane, result)| match () {
            () if input >> lane & 1 == 1 => Err(LaneError::InputRange),
            () if exceptional >> lane & 1 == 1 => Err(LaneError::Exceptional),
            () => Ok(result),
        })
        .collect()
}

/// Presignatures from the caller's random scalars.
pub(crate) struct Presign<'a, C, const N: usize, const BYTES: usize> {
    pub(crate) randoms: &'a [&'a [u8; BYTES]],
    pub(crate) curve: PhantomData<C>,
}

impl<C: Curve<N> + Table, const N: usize, const BYTES: usize> Task for Presign<'_, C, N, BYTES> {
    type Out = Vec<Result<Presignature<BYTES>, LaneError>>;

    fn run<V: Lane8>(self) -> Self::Out {
        let mut input = 0u8;
        let mut k = [small::<N>(1); LANES];
        for (lane, random) in self.randoms.iter().enumerate() {
            match scalar::<C, N>(*random) {
                Some(scalar) => k[lane] = scalar,
                None => input |= 1 << lane,
            }
        }
        let mut prepared = prepare::<V, C, N>(&k);
        k.zeroize();
        let r = unpack(&reduced::<V, C::Order, N>(&prepared.r));
        let mut inverse = unpack(&reduced::<V, C::Order, N>(&prepared.inverse));
        let out = core::array::from_fn(|lane| {
            let mut out = Presignature { r: [0; BYTES], inverse: [0; BYTES] };
            limbs::to_be(&r[lane], &mut out.r);
            limbs::to_be(&inverse[lane], &mut out.inverse);
            out
        });
        inverse.zeroize();
        prepared.inverse.zeroize();
        answers(self.randoms.len(), input, prepared.bad, out)
    }
}

/// Completes signatures from presignatures, consuming them.
pub(crate) struct Finish<'a, C, const N: usize, const BYTES: usize> {
    pub(crate) jobs: Vec<(Presignature<BYTES>, &'a [u8; BYTES], &'a [u8])>,
    pub(crate) curve: PhantomData<C>,
}

impl<C: Curve<N>, const N: usize, const BYTES: usize> Task for Finish<'_, C, N, BYTES> {
    type Out = Vec<Result<([u8; BYTES], [u8; BYTES]), LaneError>>;

    fn run<V: Lane8>(self) -> Self::Out {
        let mut input = 0u8;
        let [mut keys, mut digests, mut r, mut inverse] = [[small::<N>(1); LANES]; 4];
        for (lane, (presignature, key, digest)) in self.jobs.iter().enumerate() {
            digests[lane] = digest_integer::<C, N>(digest);
            limbs::from_be(&presignature.r, &mut r[lane]);
            limbs::from_be(&presignature.inverse, &mut inverse[lane]);
            match scalar::<C, N>(*key) {
                Some(key) => keys[lane] = key,
                None => input |= 1 << lane,
            }
        }
        let r2 = constant(&C::Order::R2);
        let [mut key, r_form, mut inverse_form] =
            [&keys, &r, &inverse].map(|numbers| times::<V, C::Order, N>(&pack(numbers), &r2));
        let prepared = Prepared { r: r_form, inverse: inverse_form, bad: 0 };
        let (signatures, bad) = complete::<V, C, N, BYTES>(&prepared, &key, &pack(&digests));
        keys.zeroize();
        inverse.zeroize();
        key.zeroize();
        inverse_form.zeroize();
        answers(self.jobs.len(), input, bad, signatures)
    }
}
