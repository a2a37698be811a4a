//! Converts between a digest and the integer that [`super::RsaBatch`] raises: the signature encodings of RFC 8017.
//!
//! Both encodings are computed outside the kernels and from public data: digest and salt are part of what the signature
//! reveals. Their time still depends on lengths only.

use super::RsaSize;
use crate::cpu::Task;
use crate::sha2::{self, Sha256, Sha384, Sha512};
use crate::vector::Lane8;
use crate::{LANES, Lanes};
use subtle::ConstantTimeEq;

/// The hash functions used in signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HashFunction {
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl HashFunction {
    /// Bytes of a digest, and of the salt of PSS.
    pub const fn bytes(self) -> usize {
        match self {
            HashFunction::Sha256 => 32,
            HashFunction::Sha384 => 48,
            HashFunction::Sha512 => 64,
        }
    }

    /// A DigestInfo in DER up to the digest itself (RFC 8017, section 9.2, note 1). Hash functions differ in the last
    /// byte of the object identifier and in two lengths.
    const fn digest_info(self) -> [u8; 19] {
        let (id, length) = match self {
            HashFunction::Sha256 => (1, 32),
            HashFunction::Sha384 => (2, 48),
            HashFunction::Sha512 => (3, 64),
        };
        [0x30, 17 + length, 0x30, 13, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, id, 5, 0, 4, length]
    }
}

/// EMSA-PKCS1-v1_5 (RFC 8017, section 9.2) of a digest: `0 1 ff..ff 0 DigestInfo`, as long as the modulus.
///
/// The encoding of a digest is unique: to verify is to encode and to compare ([`super::verify_raw`]). Panics unless the
/// digest has the hash function's length.
pub fn encode_pkcs1(size: RsaSize, hash: HashFunction, digest: &[u8]) -> Vec<u8> {
    assert_eq!(digest.len(), hash.bytes(), "a digest has its hash function's length");
    let info = hash.digest_info();
    let mut encoded = vec![0xff; size.bytes()];
    let separator = size.bytes() - digest.len() - info.len() - 1;
    encoded[..2].copy_from_slice(&[0, 1]);
    encoded[separator] = 0;
    encoded[separator + 1..][..info.len()].copy_from_slice(&info);
    encoded[size.bytes() - digest.len()..].copy_from_slice(digest);
    encoded
}

/// EMSA-PSS (RFC 8017, section 9.1.1) of a digest, with MGF1 over the same hash function and a salt as long as a
/// digest, as TLS 1.3 requires (RFC 8446, section 4.2.3). The result is as long as the modulus and below it.
///
/// The salt must be fresh random bytes. Panics unless digest and salt have the hash function's length.
pub fn encode_pss(lanes: Lanes, size: RsaSize, hash: HashFunction, digest: &[u8], salt: &[u8]) -> Vec<u8> {
    assert_eq!(digest.len(), hash.bytes(), "a digest has its hash function's length");
    assert_eq!(salt.len(), hash.bytes(), "the salt is as long as a digest");
    let bound = bind(lanes, hash, digest, salt);
    // The data block: zeros, 1, the salt; then the digest that binds it, and 0xbc.
    let block = size.bytes() - hash.bytes() - 1;
    let mut encoded = vec![0; size.bytes()];
    encoded[block - salt.len() - 1] = 1;
    encoded[block - salt.len()..block].copy_from_slice(salt);
    mask(lanes, hash, &bound, &mut encoded[..block]);
    encoded[block..][..bound.len()].copy_from_slice(&bound);
    encoded[size.bytes() - 1] = 0xbc;
    encoded
}

/// EMSA-PSS-VERIFY (RFC 8017, section 9.1.2): whether an encoded message, as [`super::raise`] computes it from a
/// signature, is an encoding of this digest with a salt of the same length. Panics unless the digest has the hash
/// function's length.
pub fn verify_pss(lanes: Lanes, hash: HashFunction, encoded: &[u8], digest: &[u8]) -> bool {
    assert_eq!(digest.len(), hash.bytes(), "a digest has its hash function's length");
    // Two bytes, for the first one of the padding and for the trailer, and the top bit, which must be zero.
    if encoded.len() < 2 * hash.bytes() + 2 || encoded[0] & 0x80 != 0 || encoded.last() != Some(&0xbc) {
        return false;
    }
    let (block, rest) = encoded.split_at(encoded.len() - hash.bytes() - 1);
    let bound = &rest[..hash.bytes()];
    let mut block = block.to_vec();
    mask(lanes, hash, bound, &mut block);
    let (padding, salt) = block.split_at(block.len() - hash.bytes());
    let (one, zeros) = padding.split_last().expect("the length was checked above");
    let wanted = bind(lanes, hash, digest, salt);
    *one == 1 && zeros.iter().all(|byte| *byte == 0) && bool::from(wanted.ct_eq(bound))
}

/// The hash of eight zero bytes, the digest and the salt.
fn bind(lanes: Lanes, hash: HashFunction, digest: &[u8], salt: &[u8]) -> Vec<u8> {
    let message = [&[0; 8], digest, salt].concat();
    let messages = core::array::from_fn(|_| message.clone());
    let [bound, ..] = lanes.run(Digests { hash, messages: &messages });
    bound
}

/// XORs the output of MGF1 (RFC 8017, appendix B.2.1) for the seed into the block, and clears the first bit, because an
/// encoding has one bit less than the modulus. The counters of MGF1 make eight messages of one length, which take the
/// eight lanes.
fn mask(lanes: Lanes, hash: HashFunction, seed: &[u8], block: &mut [u8]) {
    for (call, part) in block.chunks_mut(LANES * hash.bytes()).enumerate() {
        let messages = core::array::from_fn(|lane| {
            let counter = (LANES * call + lane) as u32;
            [seed, &counter.to_be_bytes()].concat()
        });
        let digests = lanes.run(Digests { hash, messages: &messages });
        for (byte, mask) in part.iter_mut().zip(digests.iter().flatten()) {
            *byte ^= mask;
        }
    }
    block[0] &= 0x7f;
}

struct Digests<'a> {
    hash: HashFunction,
    messages: &'a [Vec<u8>; LANES],
}

impl Task for Digests<'_> {
    type Out = [Vec<u8>; LANES];

    fn run<V: Lane8>(self) -> Self::Out {
        match self.hash {
            HashFunction::Sha256 => sha2::digests::<V, Sha256>(self.messages),
            HashFunction::Sha384 => sha2::digests::<V, Sha384>(self.messages),
            HashFunction::Sha512 => sha2::digests::<V, Sha512>(self.messages),
        }
    }
}
