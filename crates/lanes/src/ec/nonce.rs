//! Nonces for ECDSA: RFC 6979, section 3.2, with the additional data of section 3.6.
//!
//! A nonce depends on the key, the digest and fresh randomness from the caller. With a broken random generator it is
//! still the RFC's deterministic nonce; with a working one, signing a message again does not repeat the nonce, which
//! prevents attacks that compare faulty signatures.

use super::curves::Curve;
use super::field::Prime;
use crate::sha2::{self, Hash, Hmac};
use crate::vector::Lane8;
use crate::{declassify, limbs};
use zeroize::Zeroize;

/// The inputs of one nonce.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    /// The private scalar, with the length of the curve's scalars.
    pub(crate) key: &'a [u8],
    /// The digest as an integer below n, with the length of the curve's scalars.
    pub(crate) digest: &'a [u8],
    /// The additional data; empty for the RFC's deterministic nonces.
    pub(crate) added: &'a [u8],
}

/// Eight nonces from 1 to n - 1, and the lanes (with a probability of 2^-32 for P-256, below 2^-190 for P-384) whose
/// first candidate was out of range. Trying again would make the time depend on a secret of that lane; the caller fails
/// the lane instead and may call again with other randomness.
///
/// The digest is as long as the scalar on both curves, so the first value of the generator is the candidate.
pub(crate) fn nonces<V: Lane8, C: Curve<N>, H: Hash, const N: usize, const BYTES: usize>(
    sources: &[Source<'_>; 8],
) -> ([[u64; N]; 8], u8) {
    const { assert!(BYTES == H::DIGEST) };
    let mut parts = sources.map(|source| {
        // Allocated at its full length, because a vector that grows would leave copies behind.
        let mut part = Vec::with_capacity(1 + source.key.len() + source.digest.len() + source.added.len());
        part.push(0);
        part.extend([source.key, source.digest, source.added].into_iter().flatten());
        part
    });
    // V, a separator (zero so far), and the rest.
    let mut message = sha2::padded::<V, H>(&parts, H::BLOCK, H::DIGEST);
    parts.iter_mut().for_each(Zeroize::zeroize);
    let mut v = [V::splat((u64::MAX / 255) >> (64 - 8 * H::WORD)); 8];
    let mut k = [V::splat(0); 8];
    let mut hmac = Hmac::<V, H>::new(&k);
    for separator in [0, 1] {
        let first = &mut message[0];
        first[..H::DIGEST_WORDS].copy_from_slice(&v[..H::DIGEST_WORDS]);
        first[H::DIGEST_WORDS] = first[H::DIGEST_WORDS].or(V::splat(separator << (8 * (H::WORD - 1))));
        k = hmac.code(&message);
        hmac = Hmac::new(&k);
        v = hmac.code_of_digest(&v);
    }
    v = hmac.code_of_digest(&v);
    message.as_flattened_mut().zeroize();
    k.zeroize();
    let mut candidates = [[0; BYTES]; 8];
    sha2::to_bytes::<V, H, BYTES>(&v, &mut candidates);
    v.zeroize();
    let mut out_of_range = 0;
    let mut nonces = [[0; N]; 8];
    for (lane, (nonce, candidate)) in nonces.iter_mut().zip(&mut candidates).enumerate() {
        limbs::from_be(candidate, nonce);
        candidate.zeroize();
        let in_range = limbs::less(nonce, &C::Order::M) & u64::from(!limbs::is_zero(nonce));
        if declassify::public(in_range) == 0 {
            out_of_range |= 1 << lane;
            *nonce = super::small(1);
        }
    }
    (nonces, out_of_range)
}
