//! The operations of a handshake, as the engine computes them one at a time and as the lanes do together.

use super::certificate::Identity;
use penstock_engine::{Class, Curve, Op, compute};
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
        Class::Rsa2048 | Class::Rsa3072 | Class::Rsa4096 => rsa(lanes, key.der().expose()),
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

fn rsa(lanes: Lanes, der: &[u8]) -> Option<Box<dyn Fn(usize)>> {
    let numbers = rsa_numbers(der)?;
    let [_, n, e, _, p, q, dp, dq, qinv] = numbers[..] else { return None };
    let key = RsaKey::new(&RsaParts { n, e, p, q, dp, dq, qinv }).ok()?;
    // Below the modulus, whose first bit is set.
    let input = vec![0x5a; key.size().bytes()];
    Some(Box::new(move |fill| {
        let job = RsaJob { key: &key, input: &input };
        black_box(RsaBatch::new(lanes, &[job; LANES][..fill]).finish());
    }))
}

/// The nine numbers of an RSA key: PKCS#1 (RFC 8017, A.1.2), or that within PKCS#8.
fn rsa_numbers(der: &[u8]) -> Option<Vec<&[u8]>> {
    const INTEGER: u8 = 2;
    const OCTETS: u8 = 4;
    const SEQUENCE: u8 = 0x30;
    let (SEQUENCE, mut rest, _) = value(der)? else { return None };
    let mut numbers = Vec::new();
    while !rest.is_empty() && numbers.len() < 9 {
        let (tag, content, after) = value(rest)?;
        rest = after;
        match tag {
            INTEGER => numbers.push(&content[content.iter().take_while(|byte| **byte == 0).count()..]),
            OCTETS => return rsa_numbers(content),
            _ => {}
        }
    }
    (numbers.len() == 9).then_some(numbers)
}

/// A tag, its content, and what follows.
fn value(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        short @ 0..=0x7f => (usize::from(short), rest),
        0x81 => (usize::from(*rest.first()?), rest.get(1..)?),
        0x82 => (usize::from(u16::from_be_bytes([*rest.first()?, *rest.get(1)?])), rest.get(2..)?),
        _ => return None,
    };
    Some((tag, rest.get(..length)?, rest.get(length..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_taken_apart_whatever_holds_it() {
        let identity = Identity::rsa2048().unwrap();
        let numbers = rsa_numbers(identity.key.secret_der()).unwrap();
        assert_eq!((numbers.len(), numbers[1].len(), numbers[2]), (9, 256, &[1, 0, 1][..]));
        for end in [0, 1, 2, 30, 200] {
            assert!(rsa_numbers(&identity.key.secret_der()[..end]).is_none(), "{end}");
        }
    }

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
