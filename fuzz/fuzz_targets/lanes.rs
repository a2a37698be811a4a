//! Eight-lane arithmetic three ways: the portable kernels, the AVX-512 ones and aws-lc must agree on every operand.
#![no_main]

use aws_lc_rs::{agreement, kem, rsa, signature, signature::KeyPair};
use libfuzzer_sys::fuzz_target;
use penstock_lanes::rsa::{PublicJob, RsaPublicKey, raise};
use penstock_lanes::{Lanes, mlkem768, p256, p384, x25519};
use std::sync::LazyLock;

fuzz_target!(|data: &[u8]| {
    let Some((operation, data)) = data.split_first() else { return };
    match operation % 8 {
        0 => x25519_exchange(data),
        1 => p256_exchange(data),
        2 => p384_exchange(data),
        3 => p256_signature(data),
        4 => p384_signature(data),
        5 => encapsulation(data),
        6 => malformed_encapsulation_key(data),
        _ => rsa_public(data),
    }
});

fn tokens() -> [Lanes; 2] {
    [Lanes::portable(), Lanes::detect()]
}

/// Operands from the input, round and round: one to eight of them, so that lanes differ and mutations meet.
fn operands<const N: usize>(data: &[u8]) -> Vec<[u8; N]> {
    if data.is_empty() {
        return vec![[0; N]];
    }
    let count = (data.len() / N).clamp(1, 8);
    (0..count).map(|i| core::array::from_fn(|j| data[(N * i + j) % data.len()])).collect()
}

fn native_agreement(algorithm: &'static agreement::Algorithm, secret: &[u8], peer: &[u8]) -> Option<Vec<u8>> {
    let key = agreement::PrivateKey::from_private_key(algorithm, secret).ok()?;
    let peer = agreement::UnparsedPublicKey::new(algorithm, peer);
    agreement::agree(&key, peer, (), |shared| Ok::<_, ()>(shared.to_vec())).ok()
}

fn native_public(algorithm: &'static agreement::Algorithm, secret: &[u8]) -> Option<Vec<u8>> {
    let key = agreement::PrivateKey::from_private_key(algorithm, secret).ok()?;
    Some(key.compute_public_key().ok()?.as_ref().to_vec())
}

fn x25519_exchange(data: &[u8]) {
    let secrets = operands::<32>(data);
    let peers: Vec<[u8; 32]> = secrets.iter().rev().copied().collect();
    for lanes in tokens() {
        let jobs: Vec<_> =
            secrets.iter().zip(&peers).map(|(scalar, peer)| x25519::DeriveJob { scalar, peer }).collect();
        let publics = x25519::public_keys(lanes, &secrets.iter().collect::<Vec<_>>());
        for ((job, shared), public) in jobs.iter().zip(x25519::derive(lanes, &jobs)).zip(publics) {
            let wanted = native_agreement(&agreement::X25519, job.scalar, job.peer);
            assert_eq!(shared.ok().map(|s| s.expose().to_vec()), wanted);
            assert_eq!(Some(public.to_vec()), native_public(&agreement::X25519, job.scalar));
        }
    }
}

/// Exchanges and signatures of a curve: the input is scalars; the peers are points of the scalars, or the input itself.
macro_rules! curve {
    ($exchange:ident, $signature:ident, $curve:ident, $agreement:ident, $verify:ident, $sha:ident) => {
        fn $exchange(data: &[u8]) {
            let secrets = operands::<{ $curve::BYTES }>(data);
            let points: Vec<Vec<u8>> = secrets
                .iter()
                .rev()
                .map(|secret| native_public(&agreement::$agreement, secret))
                .map(|public| {
                    public.unwrap_or_else(|| [&[4], &operands::<{ 2 * $curve::BYTES }>(data)[0][..]].concat())
                })
                .collect();
            for lanes in tokens() {
                let jobs: Vec<_> =
                    secrets.iter().zip(&points).map(|(scalar, peer)| $curve::DeriveJob { scalar, peer }).collect();
                let publics = $curve::public_keys(lanes, &secrets.iter().collect::<Vec<_>>());
                for ((job, shared), public) in jobs.iter().zip($curve::derive(lanes, &jobs)).zip(publics) {
                    let wanted = native_agreement(&agreement::$agreement, job.scalar, job.peer);
                    assert_eq!(shared.ok().map(|s| s.expose().to_vec()), wanted);
                    let wanted = native_public(&agreement::$agreement, job.scalar);
                    assert_eq!(public.ok().map(|public| public.to_vec()), wanted);
                }
            }
        }

        fn $signature(data: &[u8]) {
            let keys = operands::<{ $curve::BYTES }>(data);
            let digest = operands::<{ $curve::BYTES }>(&data[data.len() / 2..])[0];
            let jobs: Vec<_> =
                keys.iter().map(|key| $curve::SignJob { key, digest: &digest, random: &digest[..16] }).collect();
            let [portable, vector] = tokens().map(|lanes| $curve::sign(lanes, &jobs));
            assert_eq!(portable, vector);
            for (key, signed) in keys.iter().zip(vector) {
                let public = native_public(&agreement::$agreement, key);
                let (Ok((r, s)), Some(public)) = (signed, &public) else {
                    assert_eq!(signed.is_ok(), public.is_some());
                    continue;
                };
                let digest = aws_lc_rs::digest::Digest::import_less_safe(&digest, &aws_lc_rs::digest::$sha);
                let public = signature::ParsedPublicKey::new(&signature::$verify, public).unwrap();
                public.verify_digest_sig(&digest.unwrap(), &[r, s].concat()).unwrap();
            }
        }
    };
}

curve!(p256_exchange, p256_signature, p256, ECDH_P256, ECDSA_P256_SHA256_FIXED, SHA256);
curve!(p384_exchange, p384_signature, p384, ECDH_P384, ECDSA_P384_SHA384_FIXED, SHA384);

static KEM_KEYS: LazyLock<Vec<(kem::DecapsulationKey, Vec<u8>)>> = LazyLock::new(|| {
    let key = || kem::DecapsulationKey::generate(&kem::ML_KEM_768).unwrap();
    let public = |key: &kem::DecapsulationKey| key.encapsulation_key().unwrap().key_bytes().unwrap().as_ref().to_vec();
    (0..8)
        .map(|_| key())
        .map(|key| {
            let public = public(&key);
            (key, public)
        })
        .collect()
});

fn encapsulation(data: &[u8]) {
    let randoms = operands::<32>(data);
    let jobs: Vec<_> =
        randoms.iter().zip(&*KEM_KEYS).map(|(random, (_, key))| mlkem768::EncapsulateJob { key, random }).collect();
    for lanes in tokens() {
        for (answer, (private, _)) in mlkem768::encapsulate(lanes, &jobs).into_iter().zip(&*KEM_KEYS) {
            let answer = answer.unwrap();
            let wanted = private.decapsulate(answer.ciphertext[..].into()).unwrap();
            assert_eq!(wanted.as_ref(), answer.secret.expose());
        }
    }
}

fn malformed_encapsulation_key(data: &[u8]) {
    let mut key = KEM_KEYS[0].1.clone();
    for (at, byte) in data.iter().enumerate() {
        let place = (at * 97) % key.len();
        key[place] ^= byte;
    }
    let [portable, vector] = tokens().map(|lanes| {
        let answer =
            mlkem768::encapsulate(lanes, &[mlkem768::EncapsulateJob { key: &key, random: &[7; 32] }]).remove(0);
        answer.map(|answer| (answer.ciphertext, *answer.secret.expose()))
    });
    assert_eq!(portable, vector);
    // aws-lc looks at the coefficients when it encapsulates.
    let native = kem::EncapsulationKey::new(&kem::ML_KEM_768, &key).and_then(|key| Ok(key.encapsulate()));
    assert_eq!(vector.is_ok(), native.is_ok_and(|answer| answer.is_ok()));
}

static RSA: LazyLock<(rsa::KeyPair, RsaPublicKey)> = LazyLock::new(|| {
    let pair = rsa::KeyPair::generate(rsa::KeySize::Rsa2048).unwrap();
    let n = pair.public_key().modulus().big_endian_without_leading_zero().to_vec();
    (pair, RsaPublicKey::new(&n, &[1, 0, 1]).unwrap())
});

/// A signature of aws-lc opens to its encoding; any other number to one on which both vectors agree.
fn rsa_public(data: &[u8]) {
    let (pair, key) = &*RSA;
    let mut signed = vec![0; 256];
    pair.sign(&signature::RSA_PKCS1_SHA256, &aws_lc_rs::rand::SystemRandom::new(), data, &mut signed).unwrap();
    let mut inputs: Vec<Vec<u8>> = operands::<256>(data).iter().take(7).map(|input| input.to_vec()).collect();
    inputs.push(signed);
    let jobs: Vec<_> = inputs.iter().map(|input| PublicJob { key, input }).collect();
    let [portable, vector] = tokens().map(|lanes| raise(lanes, &jobs));
    assert_eq!(portable, vector);
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, data);
    let hash = penstock_lanes::rsa::HashFunction::Sha256;
    let wanted = penstock_lanes::rsa::encode_pkcs1(key.size(), hash, digest.as_ref());
    assert_eq!(vector.last(), Some(&Ok(wanted)));
}
