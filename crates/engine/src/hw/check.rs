//! Checks of a device's answers. Signatures are always verified with the public key. Key exchanges are always checked for range
//! and curve, and now and then recomputed.

use super::Pending;
use crate::{Answer, Class, Curve, Op, Private, Scheme, Secret, native, sw::Prepared};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ParsedPublicKey};
use penstock_lanes::{
    LANES, Lanes,
    rsa::{RsaKey, VerifyJob, verify_raw},
};

/// From this many on, RSA signatures are checked together in lanes: a call costs as much as two checks by the library.
const TOGETHER: usize = 3;
/// The first key exchange of a class and then one in this many is recomputed, which costs as much as the exchange.
const EVERY: u32 = 64;

/// After a suspicious handshake failure, recheck this many exchanges of each class. A client can make its own handshake fail, but
/// gains no more than the cost of another handshake.
const SUSPECT: u32 = 4;

/// Chooses which key exchanges are recomputed.
#[derive(Default)]
pub(super) struct Samples {
    counts: [u32; Class::COUNT],
    /// Number of the next exchanges of each class to recompute.
    suspect: [u32; Class::COUNT],
}

impl Samples {
    /// Whether this exchange should be recomputed.
    pub fn next(&mut self, class: Class) -> bool {
        let (count, suspect) = (&mut self.counts[class as usize], &mut self.suspect[class as usize]);
        let again = count.is_multiple_of(EVERY) || *suspect > 0;
        (*count, *suspect) = (count.wrapping_add(1), suspect.saturating_sub(1));
        again
    }

    /// Begins anew for every class: the device has answered wrongly.
    pub fn restart(&mut self) {
        *self = Samples::default();
    }

    /// Notes that an exchange which was not recomputed may have been wrong.
    pub fn suspect(&mut self) {
        self.suspect = [SUSPECT; Class::COUNT];
    }
}

/// Whether an uncompressed point, as TLS sends it, lies on its curve.
pub(super) fn is_point(curve: Curve, point: &[u8]) -> bool {
    let algorithm = match curve {
        Curve::X25519 => return point.len() == curve.public_len(),
        Curve::P256 => &ECDSA_P256_SHA256_ASN1,
        Curve::P384 => &ECDSA_P384_SHA384_ASN1,
    };
    point.len() == curve.public_len() && ParsedPublicKey::new(algorithm, point).is_ok()
}

/// Whether an X25519 result is a number below 2^255 - 19.
pub(super) fn is_reduced(number: &[u8]) -> bool {
    const PRIME: [u8; 32] = {
        let mut prime = [0xFF; 32];
        (prime[0], prime[31]) = (0xED, 0x7F);
        prime
    };
    number.len() == PRIME.len() && number.iter().rev().lt(PRIME.iter().rev())
}

/// Recomputes a key pair and the secret shared with a peer; whether both are right.
pub(super) fn agrees(curve: Curve, scalar: &Secret, public: Option<&[u8]>, shared: Option<(&[u8], &Secret)>) -> bool {
    let private = || Private::Scalar(curve, Secret::from(scalar.expose().to_vec()));
    let public_fits = public.is_none_or(|public| native::public_key(&private()).is_some_and(|known| known == public));
    let shared_fits = shared.is_none_or(|(peer, secret)| {
        let again = native::compute(&Op::Derive { private: private(), peer: peer.to_vec() });
        matches!(again, Ok(Answer::Shared(known)) if known.expose() == secret.expose())
    });
    public_fits && shared_fits
}

/// An RSA signature to be checked.
pub(super) struct Signed {
    pub pending: Pending,
    pub signature: Vec<u8>,
}

/// Checks as many signatures as share a call; for each of those, from the first on, whether it is right.
pub(super) fn signatures(lanes: Lanes, signed: &[Signed]) -> Vec<bool> {
    let together: Vec<VerifyJob<'_>> =
        signed.iter().take(LANES).map_while(|signed| job(signed, &signed.pending)).collect();
    let size = together.first().map(|job| job.signature.len());
    let same = together.iter().take_while(|job| Some(job.signature.len()) == size).count();
    if lanes.is_accelerated() && same >= TOGETHER {
        return verify_raw(lanes, &together[..same]).into_iter().map(|result| result.is_ok()).collect();
    }
    signed.iter().take(1).map(|signed| alone(&signed.pending.op, &signed.signature)).collect()
}

fn job<'a>(signed: &'a Signed, pending: &'a Pending) -> Option<VerifyJob<'a>> {
    let key = lane_key(&pending.op)?;
    Some(VerifyJob { key: key.public(), encoded: &pending.encoded, signature: &signed.signature })
}

fn lane_key(op: &Op) -> Option<&RsaKey> {
    match op {
        Op::Sign { key, .. } => Prepared::of(key).rsa(),
        _ => None,
    }
}

fn alone(op: &Op, signature: &[u8]) -> bool {
    match op {
        Op::Sign { key, scheme, message } => key.verify(*scheme, message, signature),
        _ => false,
    }
}

/// Whether the scheme is one of RSA.
pub(super) fn is_rsa(scheme: Scheme) -> bool {
    use Scheme::*;
    matches!(scheme, RsaPkcs1Sha256 | RsaPkcs1Sha384 | RsaPkcs1Sha512 | RsaPssSha256 | RsaPssSha384 | RsaPssSha512)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_off_their_curve_and_numbers_out_of_range_are_seen() {
        for curve in [Curve::P256, Curve::P384] {
            let Ok(Answer::Pair { mut public, .. }) = native::compute(&Op::KeyGen { curve }) else { panic!() };
            assert!(is_point(curve, &public));
            *public.last_mut().unwrap() ^= 1;
            assert!(!is_point(curve, &public) && !is_point(curve, &public[1..]));
        }
        let mut number = [0xFF; 32];
        number[31] = 0x7F;
        for (first, below) in [(0xEC, true), (0xED, false), (0xFF, false)] {
            number[0] = first;
            assert_eq!(is_reduced(&number), below, "{first}");
        }
        assert!(!is_reduced(&[0xFF; 32]) && is_reduced(&[0; 32]) && !is_reduced(&[]));
    }

    #[test]
    fn the_first_of_a_class_and_then_one_of_many_is_computed_again() {
        let mut samples = Samples::default();
        let again = (0..130).filter(|_| samples.next(Class::P256Derive)).count();
        assert_eq!(again, 3);
        assert!(samples.next(Class::P384Derive), "each class for itself");
        samples.restart();
        assert!(samples.next(Class::P256Derive));
        samples.suspect();
        let again = (0..60).filter(|_| samples.next(Class::P256Derive)).count();
        assert_eq!(again as u32, SUSPECT);
    }
}
