//! RSA with 2048, 3072 and 4096 bits: the private operation by the Chinese remainder theorem, and verification.
//!
//! The two half exponentiations of one key, modulo p and modulo q, are independent: they take two lanes of one pass,
//! so four signatures fill a vector, and up to four live jobs cost half of what eight cost. A pass is a state machine
//! that can be left and resumed after any step: [`RsaBatch::advance`].

mod batch;
mod encode;
mod key;
mod mont;
mod mont20;
mod pack;
mod verify;

pub use batch::{Progress, RsaBatch, RsaJob};
pub use encode::{HashFunction, encode_pkcs1, encode_pss, verify_pss};
pub use key::{KeyError, RsaKey, RsaParts, RsaPublicKey, RsaSize};
pub use verify::{PublicJob, VerifyJob, raise, verify_raw};

/// The kernels of a window on secret numbers, for the constant-time test.
#[cfg(test)]
pub(crate) fn kernels_on(
    digits: &[crate::vector::Digit<crate::vector::Portable>; 20],
) -> [crate::vector::Digit<crate::vector::Portable>; 20] {
    use crate::vector::{Portable, Vector};
    let modulus = mont::Modulus { m: *digits, fold: *digits, k0: digits[0] };
    let mut columns = [Portable::splat(0); 160];
    let (mut x, mut y) = (*digits, *digits);
    mont::mont_mul(&mut columns, digits, digits, &modulus, &mut x);
    mont::mont_sqr(&mut columns, &x, &modulus, &mut y);
    let index = y[3].value().and(Portable::splat(15));
    batch::select(&[[y; 8], [x; 8]].concat(), index, &mut x);
    pack::subtract_once(&mut x, digits);
    x
}
