//! Nonces for ECDSA: RFC 6979, section 3.2, with the additional data of section 3.6.
//!
//! A nonce depends on the key, the digest and the caller's fresh randomness: a broken generator leaves it the RFC's
//! deterministic one, and a repeated message does not repeat it, so that faults of the machine cannot be compared.

use super::curves::Curve;
use super::field::Prime;
use crate::limbs;
use crate::sha2::{Hash, Hmac};
use crate::vector::Lane8;
use zeroize::Zeroize;

/// Eight nonces from 1 to n - 1, and the lanes (with a probability of 2^-32 for P-256, below 2^-190 for P-384) whose
/// first candidate was out of range. Trying again would make the time depend on a secret of that lane; the caller fails
/// the lane instead and may call again with other randomness.
///
/// `keys` and `digests` are integers below n of the curve's length; `added` is empty for the RFC's own nonces.
pub(crate) fn nonces<V: Lane8, C: Curve<N>, H: Hash, const N: usize>(
    keys: &[Vec<u8>; 8],
    digests: &[Vec<u8>; 8],
    added: &[Vec<u8>; 8],
) -> ([[u64; N]; 8], u8) {
    let mut v: [Vec<u8>; 8] = core::array::from_fn(|_| vec![1; H::DIGEST]);
    let mut k: [Vec<u8>; 8] = core::array::from_fn(|_| vec![0; H::DIGEST]);
    for separator in [0, 1] {
        let mut message: [Vec<u8>; 8] = core::array::from_fn(|lane| {
            let mut message = Vec::with_capacity(v[lane].len() + 1 + 3 * C::BYTES);
            message.extend(&v[lane]);
            message.push(separator);
            message.extend(&keys[lane]);
            message.extend(&digests[lane]);
            message.extend(&added[lane]);
            message
        });
        let next = Hmac::<V, H>::new(&k).code(&message);
        message.iter_mut().for_each(Zeroize::zeroize);
        k.iter_mut().for_each(Zeroize::zeroize);
        k = next;
        v = Hmac::<V, H>::new(&k).code(&v);
    }
    v = Hmac::<V, H>::new(&k).code(&v);
    let mut out_of_range = 0;
    let out = core::array::from_fn(|lane| {
        let mut limbs = [0; N];
        limbs::from_be(&v[lane], &mut limbs);
        if limbs::less(&limbs, &C::Order::M) == 0 || limbs::is_zero(&limbs) {
            out_of_range |= 1 << lane;
            limbs = super::small(1);
        }
        limbs
    });
    v.iter_mut().chain(&mut k).for_each(Zeroize::zeroize);
    (out, out_of_range)
}
