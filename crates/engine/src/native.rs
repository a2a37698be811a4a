//! The engine `native`: aws-lc, one operation at a time, at once. Also what every other engine falls back to.

use crate::{Answer, Curve, Failure, KemPrivate, Op, Private, Secret};
use aws_lc_rs::{
    agreement::{self, PrivateKey, UnparsedPublicKey},
    kem,
};

/// Computes `op` at once, on this thread.
///
/// # Errors
/// The peer sent no valid key, or the library failed.
pub fn compute(op: &Op) -> Result<Answer, Failure> {
    match op {
        Op::Sign { key, scheme, message } => key.sign(*scheme, message).map(Answer::Signature).ok_or(Failure::Internal),
        Op::KeyGen { curve } => {
            let (public, private) = generate(*curve)?;
            Ok(Answer::Pair { public, private: Private::Native(*curve, private) })
        }
        Op::Derive { private, peer } => {
            let curve = private.curve();
            match private {
                Private::Native(_, key) => derive(curve, key, peer),
                Private::Scalar(_, scalar) => {
                    let key = PrivateKey::from_private_key(algorithm(curve), scalar.expose())
                        .map_err(|_| Failure::Internal)?;
                    derive(curve, &key, peer)
                }
            }
            .map(Answer::Shared)
        }
        Op::Agree { curve, peer } => {
            let (public, private) = generate(*curve)?;
            Ok(Answer::Agreed { public, secret: derive(*curve, &private, peer)? })
        }
        Op::KemKeyGen => {
            let private = kem::DecapsulationKey::generate(&kem::ML_KEM_768).map_err(|_| Failure::Internal)?;
            let public = private.encapsulation_key().and_then(|key| key.key_bytes()).map_err(|_| Failure::Internal)?;
            Ok(Answer::KemPair { public: public.as_ref().to_vec(), private: KemPrivate(private) })
        }
        Op::KemEncapsulate { peer } => {
            let peer = kem::EncapsulationKey::new(&kem::ML_KEM_768, peer).map_err(|_| Failure::PeerKey)?;
            let (ciphertext, secret) = peer.encapsulate().map_err(|_| Failure::PeerKey)?;
            Ok(Answer::Agreed { public: ciphertext.as_ref().to_vec(), secret: secret.as_ref().to_vec().into() })
        }
        Op::KemDecapsulate { private, ciphertext } => {
            let secret = private.0.decapsulate(ciphertext.as_slice().into()).map_err(|_| Failure::PeerKey)?;
            Ok(Answer::Shared(secret.as_ref().to_vec().into()))
        }
    }
}

fn algorithm(curve: Curve) -> &'static agreement::Algorithm {
    match curve {
        Curve::X25519 => &agreement::X25519,
        Curve::P256 => &agreement::ECDH_P256,
        Curve::P384 => &agreement::ECDH_P384,
    }
}

fn generate(curve: Curve) -> Result<(Vec<u8>, PrivateKey), Failure> {
    let private = PrivateKey::generate(algorithm(curve)).map_err(|_| Failure::Internal)?;
    let public = private.compute_public_key().map_err(|_| Failure::Internal)?;
    Ok((public.as_ref().to_vec(), private))
}

/// The public key of a private one.
pub(crate) fn public_key(private: &Private) -> Option<Vec<u8>> {
    let public = match private {
        Private::Native(_, key) => key.compute_public_key(),
        Private::Scalar(curve, scalar) => {
            PrivateKey::from_private_key(algorithm(*curve), scalar.expose()).ok()?.compute_public_key()
        }
    };
    Some(public.ok()?.as_ref().to_vec())
}

fn derive(curve: Curve, private: &PrivateKey, peer: &[u8]) -> Result<Secret, Failure> {
    // TLS allows the uncompressed form of a point only (RFC 8446, 4.2.8.2; RFC 8422, 5.4), which the length decides.
    if peer.len() != curve.public_len() {
        return Err(Failure::PeerKey);
    }
    let peer = UnparsedPublicKey::new(algorithm(curve), peer);
    agreement::agree(private, peer, Failure::PeerKey, |secret| Ok(Secret::from(secret.to_vec())))
}
