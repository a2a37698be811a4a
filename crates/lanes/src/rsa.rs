//! RSA with 2048, 3072 and 4096 bits: the private operation by the Chinese remainder theorem, and verification.
//!
//! The two half-size exponentiations of a key, modulo p and modulo q, are independent and take two lanes of one pass.
//! Four signatures therefore fill a vector, and up to four jobs cost half as much as eight. A single job is arranged
//! differently, with eight limbs of a number in the eight lanes: it costs two thirds of a batch of two, and less than
//! aws-lc takes. A pass is a state machine that can be suspended and resumed after any step: [`RsaBatch::advance`].

mod batch;
mod encode;
mod key;
mod mont;
mod mont20;
mod mont40;
mod pack;
mod single;
mod table;
mod verify;

pub use batch::{Progress, RsaBatch, RsaJob};
pub use encode::{HashFunction, encode_pkcs1, encode_pss, verify_pss};
pub use key::{KeyError, RsaKey, RsaParts, RsaPublicKey, RsaSize};
pub use verify::{PublicJob, VerifyJob, raise, verify_raw};

/// A key of odd numbers that are not prime: kernels do not check that, and every result is a fault.
#[cfg(test)]
pub(crate) fn any_key(size: RsaSize) -> RsaKey {
    let half = size.bytes() / 2;
    let p = vec![0xff; half];
    let mut q = p.clone();
    q[half - 1] = 0xfd;
    let limbs = |bytes: &[u8]| {
        let mut limbs = vec![0; size.half_limbs()];
        crate::limbs::from_be(bytes, &mut limbs);
        limbs
    };
    let mut product = vec![0; 2 * size.half_limbs()];
    crate::limbs::mul(&limbs(&p), &limbs(&q), &mut product);
    let mut n = vec![0; size.bytes()];
    crate::limbs::to_be(&product, &mut n);
    let parts = RsaParts { n: &n, e: &[1, 0, 1], p: &p, q: &q, dp: &q[1..], dq: &p[1..], qinv: &q[1..] };
    RsaKey::new(&parts).expect("odd, unequal, and of the right length")
}
