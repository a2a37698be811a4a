//! Key exchange in lanes, and the key pairs made ahead for it.

use crate::{Answer, Curve, Failure, Secret};
use aws_lc_rs::rand;
use penstock_lanes::{self as lanes, LANES, LaneError, Lanes, p256, p384, x25519};
use zeroize::Zeroizing;

/// Key pairs made ahead, each used once: a call costs the same for eight as for one.
pub(super) struct Pairs {
    lanes: Lanes,
    kept: [Vec<(Vec<u8>, Secret)>; 3],
}

impl Pairs {
    pub fn new(lanes: Lanes) -> Pairs {
        Pairs { lanes, kept: Default::default() }
    }

    /// Takes a fresh pair: public key, private scalar.
    pub fn take(&mut self, curve: Curve) -> Option<(Vec<u8>, Secret)> {
        if self.left(curve) == 0 {
            self.make(curve);
        }
        self.kept[curve as usize].pop()
    }

    /// Number of pairs at hand.
    pub fn left(&self, curve: Curve) -> usize {
        self.kept[curve as usize].len()
    }

    /// Makes eight more pairs.
    pub fn make(&mut self, curve: Curve) {
        self.kept[curve as usize].append(&mut make(self.lanes, curve));
    }
}

/// Eight pairs, without those (one in 2^32 for P-256) whose random number is not a scalar of the curve.
fn make(lanes: Lanes, curve: Curve) -> Vec<(Vec<u8>, Secret)> {
    let mut random = Zeroizing::new(vec![0; LANES * curve.secret_len()]);
    if rand::fill(&mut random).is_err() {
        return Vec::new();
    }
    let secrets: Vec<Secret> = random.chunks(curve.secret_len()).map(|scalar| Secret::from(scalar.to_vec())).collect();
    let publics: Vec<Option<Vec<u8>>> = match curve {
        Curve::X25519 => {
            let scalars = sized::<32>(&secrets);
            x25519::public_keys(lanes, &scalars).into_iter().map(|key| Some(key.to_vec())).collect()
        }
        Curve::P256 => {
            let scalars = sized::<32>(&secrets);
            p256::public_keys(lanes, &scalars).into_iter().map(|key| key.ok().map(|key| key.to_vec())).collect()
        }
        Curve::P384 => {
            let scalars = sized::<48>(&secrets);
            p384::public_keys(lanes, &scalars).into_iter().map(|key| key.ok().map(|key| key.to_vec())).collect()
        }
    };
    publics.into_iter().zip(secrets).filter_map(|(public, secret)| Some((public?, secret))).collect()
}

fn sized<const N: usize>(secrets: &[Secret]) -> Vec<&[u8; N]> {
    secrets.iter().filter_map(|secret| secret.expose().try_into().ok()).collect()
}

/// The shared secrets of one to eight exchanges on one curve; private and public keys have that curve's lengths.
pub(super) fn derive(lanes: Lanes, curve: Curve, jobs: &[(&Secret, &[u8])]) -> Vec<Result<Answer, Failure>> {
    fn answers<const N: usize>(secrets: Vec<Result<lanes::Secret<N>, LaneError>>) -> Vec<Result<Answer, Failure>> {
        let answer = |secret: lanes::Secret<N>| Answer::Shared(Secret::from(secret.expose().to_vec()));
        secrets.into_iter().map(|secret| secret.map(answer).map_err(|_| Failure::Internal)).collect()
    }
    match curve {
        Curve::X25519 => {
            let jobs: Vec<_> = jobs
                .iter()
                .map(|(private, peer)| x25519::DeriveJob { scalar: exactly(private.expose()), peer: exactly(peer) })
                .collect();
            answers(x25519::derive(lanes, &jobs))
        }
        Curve::P256 => {
            let jobs: Vec<_> = jobs
                .iter()
                .map(|(private, peer)| p256::DeriveJob { scalar: exactly(private.expose()), peer })
                .collect();
            answers(p256::derive(lanes, &jobs))
        }
        Curve::P384 => {
            let jobs: Vec<_> = jobs
                .iter()
                .map(|(private, peer)| p384::DeriveJob { scalar: exactly(private.expose()), peer })
                .collect();
            answers(p384::derive(lanes, &jobs))
        }
    }
}

/// Bytes of a known length.
fn exactly<const N: usize>(bytes: &[u8]) -> &[u8; N] {
    bytes.try_into().expect("a number of the curve's length")
}
