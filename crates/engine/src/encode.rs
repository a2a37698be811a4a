//! From a message to what the private operation is applied to: its digest, padded (RFC 8017, 9.1 and 9.2).

use crate::Scheme;
use aws_lc_rs::{digest, rand};
use penstock_lanes::{
    Lanes,
    rsa::{HashFunction, RsaSize, encode_pkcs1, encode_pss},
};

/// The digest a scheme is made over.
pub(crate) fn hash(scheme: Scheme) -> Option<&'static digest::Algorithm> {
    use Scheme::*;
    Some(match scheme {
        RsaPkcs1Sha256 | RsaPssSha256 | EcdsaP256Sha256 => &digest::SHA256,
        RsaPkcs1Sha384 | RsaPssSha384 | EcdsaP384Sha384 => &digest::SHA384,
        RsaPkcs1Sha512 | RsaPssSha512 => &digest::SHA512,
        EcdsaP521Sha512 | Ed25519 => return None,
    })
}

/// The encoded message of an RSA scheme, as long as the modulus.
pub(crate) fn encode(lanes: Lanes, scheme: Scheme, message: &[u8], size: RsaSize) -> Option<Vec<u8>> {
    use Scheme::*;
    let digest = digest::digest(hash(scheme)?, message);
    let hash = match scheme {
        RsaPkcs1Sha256 | RsaPssSha256 => HashFunction::Sha256,
        RsaPkcs1Sha384 | RsaPssSha384 => HashFunction::Sha384,
        RsaPkcs1Sha512 | RsaPssSha512 => HashFunction::Sha512,
        _ => return None,
    };
    if matches!(scheme, RsaPkcs1Sha256 | RsaPkcs1Sha384 | RsaPkcs1Sha512) {
        return Some(encode_pkcs1(size, hash, digest.as_ref()));
    }
    let mut salt = [0; digest::MAX_OUTPUT_LEN];
    let salt = &mut salt[..hash.bytes()];
    rand::fill(salt).ok()?;
    Some(encode_pss(lanes, size, hash, digest.as_ref(), salt))
}

/// An ECDSA signature as TLS sends it: SEQUENCE of two INTEGERs (RFC 3279, 2.2.3).
pub(crate) fn ecdsa_der(r: &[u8], s: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(r.len() + s.len() + 6);
    for number in [r, s] {
        let number = &number[number.iter().take_while(|byte| **byte == 0).count()..];
        let positive = number.first().is_none_or(|byte| byte & 0x80 != 0);
        body.extend([0x02, (number.len() + usize::from(positive)) as u8]);
        body.extend(positive.then_some(0));
        body.extend_from_slice(number);
    }
    // Two numbers of at most 49 bytes: the length fits one byte.
    let mut der = vec![0x30, body.len() as u8];
    der.append(&mut body);
    der
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_a_signature_are_minimal_and_positive() {
        assert_eq!(ecdsa_der(&[0, 0, 0x80, 1], &[0, 0, 0, 7]), [0x30, 8, 2, 3, 0, 0x80, 1, 2, 1, 7]);
    }
}
