//! The operations of a handshake, as the engine computes them one at a time and as the lanes do together.

use super::certificate::Identity;
use penstock_engine::{Class, Curve, Op, SigningKey, compute};
use penstock_lanes::{
    LANES, Lanes, p256, p384,
    rsa::{RsaBatch, RsaJob, RsaKey, RsaParts},
    x25519,
};
use std::hint::black_box;

/// An operation both ways.
pub(super) struct Pair {
    pub(super) name: String,
    /// One.
    pub(super) native: Box<dyn Fn()>,
    /// This many together; `None` where this processor, or this kind of key, cannot.
    pub(super) lanes: Option<Box<dyn Fn(usize)>>,
    /// Gain at full batches on a Sapphire Rapids (crates/lanes/README.md, 21 November 2026).
    pub(super) recorded: Option<f64>,
}

/// The signature of a full handshake.
pub(super) fn sign(identity: &Identity, lanes: Lanes) -> Result<Pair, String> {
    let key = identity.signing.clone();
    let class = key.class();
    let scheme = *key.schemes().first().ok_or("a key without a scheme")?;
    let op = Op::Sign { key: key.clone(), scheme, message: vec![0x20; 130] };
    compute(&op).map_err(|_| "the key does not sign")?;
    let recorded = match class {
        Class::Rsa2048 => Some(3.3),
        Class::Rsa3072 => Some(2.6),
        Class::Rsa4096 => Some(2.4),
        Class::EcdsaP256 => Some(2.4),
        _ => None,
    };
    let together: Option<Box<dyn Fn(usize)>> = match class {
        _ if !lanes.is_accelerated() => None,
        Class::Rsa2048 | Class::Rsa3072 | Class::Rsa4096 => rsa(lanes, &key),
        // Any scalar: the time does not depend on it.
        Class::EcdsaP256 => Some(Box::new(move |fill| {
            let job = p256::SignJob { key: &[7; 32], digest: &[9; 32], random: &[5; 32] };
            black_box(p256::sign(lanes, &[job; LANES][..fill]));
        })),
        Class::EcdsaP384 => Some(Box::new(move |fill| {
            let job = p384::SignJob { key: &[7; 48], digest: &[9; 48], random: &[5; 48] };
            black_box(p384::sign(lanes, &[job; LANES][..fill]));
        })),
        _ => None,
    };
    let native = move || {
        let _ = black_box(compute(&op));
    };
    Ok(Pair { name: format!("signature, {}", class.name()), native: Box::new(native), lanes: together, recorded })
}

/// The key exchange: a key pair, and the secret it shares with the client.
pub(super) fn agree(lanes: Lanes) -> Pair {
    // The base point is a valid peer (RFC 7748, section 6.1).
    let mut peer = [0; 32];
    peer[0] = 9;
    let op = Op::Agree { curve: Curve::X25519, peer: peer.to_vec() };
    let together = move |fill: usize| {
        let scalar = [7; 32];
        black_box(x25519::public_keys(lanes, &[&scalar; LANES][..fill]));
        let job = x25519::DeriveJob { scalar: &scalar, peer: &peer };
        black_box(x25519::derive(lanes, &[job; LANES][..fill]));
    };
    Pair {
        name: "key exchange, X25519".into(),
        native: Box::new(move || {
            let _ = black_box(compute(&op));
        }),
        lanes: lanes.is_accelerated().then(|| Box::new(together) as Box<dyn Fn(usize)>),
        // 4.5 of derivation and key pair together.
        recorded: Some(4.5),
    }
}

fn rsa(lanes: Lanes, key: &SigningKey) -> Option<Box<dyn Fn(usize)>> {
    let key = key
        .with_rsa_numbers(|[n, e, _d, p, q, dp, dq, qinv]| RsaKey::new(&RsaParts { n, e, p, q, dp, dq, qinv }).ok())?;
    // Below the modulus, whose first bit is set.
    let input = vec![0x5a; key.size().bytes()];
    Some(Box::new(move |fill| {
        let job = RsaJob { key: &key, input: &input };
        black_box(RsaBatch::new(lanes, &[job; LANES][..fill]).finish());
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_every_kind_of_key_run() {
        let lanes = Lanes::detect();
        for identity in [Identity::rsa2048().unwrap(), Identity::ecdsa().unwrap()] {
            let pair = sign(&identity, lanes).unwrap();
            (pair.native)();
            assert_eq!(pair.lanes.is_some(), lanes.is_accelerated());
            if let Some(together) = pair.lanes {
                (1..=LANES).for_each(together);
            }
        }
        let pair = agree(lanes);
        (pair.native)();
    }
}
