//! What is measured: each operation on lanes, and the same one at a time in aws-lc.

#[path = "../../tests/common/mod.rs"]
pub mod common;

use crate::{
    crypto_mb::{self, Call, Nist},
    measure::thread_ns,
};
use aws_lc_rs::{
    agreement, digest, kem,
    rand::SystemRandom,
    rsa,
    signature::{self, KeyPair},
};
use common::TestKey;
use penstock_lanes::rsa::{HashFunction, RsaBatch, RsaJob, VerifyJob, encode_pkcs1, verify_raw};
use penstock_lanes::{LANES, Lanes, mlkem768, multiplications, p256, p384, x25519};
use std::{hint::black_box, rc::Rc};

/// One line of the table, for eight fills.
pub struct Operation {
    pub name: &'static str,
    /// Makes one call with the given number of jobs; returns the nanoseconds of this thread in it that are counted on another line.
    pub lanes: Box<dyn Fn(usize) -> u64>,
    /// One operation, natively.
    pub native: Box<dyn Fn()>,
    /// Eight operations in crypto_mb.
    pub crypto_mb: Option<Call>,
    /// Vector multiplications in a call with the given number of jobs.
    pub multiplications: Box<dyn Fn(usize) -> u64>,
}

/// All of them.
pub fn all(lanes: Lanes) -> Vec<Operation> {
    vec![
        rsa_sign(lanes, "rsa2048_sign", "rsa2048-1"),
        rsa_sign(lanes, "rsa3072_sign", "rsa3072-1"),
        rsa_sign(lanes, "rsa4096_sign", "rsa4096-1"),
        rsa_verify(lanes, "rsa2048_verify", "rsa2048-1"),
        rsa_verify(lanes, "rsa3072_verify", "rsa3072-1"),
        rsa_verify(lanes, "rsa4096_verify", "rsa4096-1"),
        x25519_derive(lanes),
        x25519_keygen(lanes),
        p256_curve::derive(lanes),
        p256_curve::keygen(lanes),
        p256_curve::sign(lanes),
        p384_curve::derive(lanes),
        p384_curve::keygen(lanes),
        p384_curve::sign(lanes),
        mlkem768_encaps(lanes),
    ]
}

/// A call of which all time counts.
fn whole(call: impl Fn(usize) + 'static) -> Box<dyn Fn(usize) -> u64> {
    Box::new(move |fill| {
        call(fill);
        0
    })
}

/// Runs `f` with the portable twin and counts its multiplications.
fn counted(f: impl Fn(Lanes)) -> u64 {
    let before = multiplications();
    f(Lanes::portable());
    multiplications() - before
}

/// Without the check of the results, which is `rsa_verify`. (aws-lc's check of its own is in its time.)
fn rsa_sign(lanes: Lanes, name: &'static str, key: &str) -> Operation {
    let key = TestKey::load(key);
    let pair = rsa::KeyPair::from_der(&key.der).unwrap();
    let prepared: &'static _ = Box::leak(Box::new(key.prepare()));
    let input: &'static [u8] = Box::leak(vec![0x5a; prepared.size().bytes()].into_boxed_slice());
    let sign = move |lanes: Lanes, fill: usize| {
        let jobs = [RsaJob { key: prepared, input }; LANES];
        let mut batch = RsaBatch::new(lanes, &jobs[..fill]);
        batch.advance(batch.steps_left() - RsaBatch::CHECK_STEPS);
        let (multiplied, began) = (multiplications(), thread_ns());
        batch.advance(usize::MAX);
        let check = (thread_ns() - began, multiplications() - multiplied);
        black_box(batch.finish());
        check
    };
    let random = SystemRandom::new();
    Operation {
        name,
        lanes: Box::new(move |fill| sign(lanes, fill).0),
        native: Box::new(move || {
            let mut out = [0; 512];
            let out = &mut out[..pair.public_modulus_len()];
            pair.sign(&signature::RSA_PKCS1_SHA256, &random, b"message", out).unwrap();
            black_box(out);
        }),
        crypto_mb: crypto_mb::rsa(&key),
        multiplications: Box::new(move |fill| {
            let before = multiplications();
            let (_, check) = sign(Lanes::portable(), fill);
            multiplications() - before - check
        }),
    }
}

fn rsa_verify(lanes: Lanes, name: &'static str, key: &str) -> Operation {
    let key = TestKey::load(key);
    let pair = rsa::KeyPair::from_der(&key.der).unwrap();
    let mut signature = vec![0; pair.public_modulus_len()];
    pair.sign(&signature::RSA_PKCS1_SHA256, &SystemRandom::new(), b"message", &mut signature).unwrap();
    let theirs = signature::ParsedPublicKey::new(&signature::RSA_PKCS1_2048_8192_SHA256, pair.public_key()).unwrap();
    let ours = key.prepare();
    let digest = digest::digest(&digest::SHA256, b"message");
    let encoded = encode_pkcs1(ours.size(), HashFunction::Sha256, digest.as_ref());
    let native_signature = signature.clone();
    let verify = Rc::new(move |lanes: Lanes, fill: usize| {
        let jobs = [VerifyJob { key: ours.public(), signature: &signature, encoded: &encoded }; LANES];
        let results = verify_raw(lanes, &jobs[..fill]);
        assert!(results.iter().all(Result::is_ok));
    });
    let counting = verify.clone();
    Operation {
        name,
        lanes: whole(move |fill| verify(lanes, fill)),
        native: Box::new(move || theirs.verify_sig(b"message", &native_signature).unwrap()),
        crypto_mb: None,
        multiplications: Box::new(move |fill| counted(|lanes| counting(lanes, fill))),
    }
}

fn native_agreement(algorithm: &'static agreement::Algorithm) -> Box<dyn Fn()> {
    let key = agreement::PrivateKey::generate(algorithm).unwrap();
    let peer = agreement::PrivateKey::generate(algorithm).unwrap().compute_public_key().unwrap();
    Box::new(move || {
        let peer = agreement::UnparsedPublicKey::new(algorithm, peer.as_ref());
        agreement::agree(&key, peer, (), |shared| Ok::<_, ()>(_ = black_box(shared[0]))).unwrap();
    })
}

/// A new key pair; with the public key, as a handshake sends it.
fn native_keygen(algorithm: &'static agreement::Algorithm) -> Box<dyn Fn()> {
    Box::new(move || {
        black_box(agreement::PrivateKey::generate(algorithm).unwrap().compute_public_key().unwrap());
    })
}

fn x25519_derive(lanes: Lanes) -> Operation {
    let scalars: [[u8; 32]; LANES] = core::array::from_fn(|i| [i as u8 + 1; 32]);
    let peers: [[u8; 32]; LANES] = core::array::from_fn(|i| [i as u8 + 101; 32]);
    let derive = move |lanes, fill: usize| {
        let jobs: [x25519::DeriveJob; LANES] =
            core::array::from_fn(|i| x25519::DeriveJob { scalar: &scalars[i], peer: &peers[i] });
        black_box(x25519::derive(lanes, &jobs[..fill]));
    };
    Operation {
        name: "x25519_derive",
        lanes: whole(move |fill| derive(lanes, fill)),
        native: native_agreement(&agreement::X25519),
        crypto_mb: crypto_mb::x25519_derive(),
        multiplications: Box::new(move |fill| counted(|lanes| derive(lanes, fill))),
    }
}

fn x25519_keygen(lanes: Lanes) -> Operation {
    let scalars: [[u8; 32]; LANES] = core::array::from_fn(|i| [i as u8 + 1; 32]);
    let keygen = move |lanes, fill: usize| {
        let jobs: [&[u8; 32]; LANES] = core::array::from_fn(|i| &scalars[i]);
        black_box(x25519::public_keys(lanes, &jobs[..fill]));
    };
    Operation {
        name: "x25519_keygen",
        lanes: whole(move |fill| keygen(lanes, fill)),
        native: native_keygen(&agreement::X25519),
        crypto_mb: crypto_mb::x25519_keygen(),
        multiplications: Box::new(move |fill| {
            keygen(Lanes::detect(), 1); // makes the table
            counted(|lanes| keygen(lanes, fill))
        }),
    }
}

/// From a key as it arrives; both sides are given or draw their randomness.
fn mlkem768_encaps(lanes: Lanes) -> Operation {
    let keys: [Vec<u8>; LANES] = core::array::from_fn(|_| {
        let private = kem::DecapsulationKey::generate(&kem::ML_KEM_768).unwrap();
        private.encapsulation_key().unwrap().key_bytes().unwrap().as_ref().to_vec()
    });
    let key = keys[0].clone();
    Operation {
        name: "mlkem768_encaps",
        lanes: whole(move |fill| {
            let jobs = keys.each_ref().map(|key| mlkem768::EncapsulateJob { key, random: &[0x5a; 32] });
            black_box(mlkem768::encapsulate(lanes, &jobs[..fill]));
        }),
        native: Box::new(move || {
            let key = kem::EncapsulationKey::new(&kem::ML_KEM_768, &key).unwrap();
            black_box(key.encapsulate().unwrap());
        }),
        crypto_mb: None,
        // Its work is hashing and 16-bit products: VPMADD52 only compresses the ciphertext.
        multiplications: Box::new(|_| 0),
    }
}

/// The three operations of a curve.
macro_rules! curve {
    ($module:ident, $curve:ident, $agreement:ident, $signing:ident, $nist:literal, [$derive:literal, $keygen:literal, $sign:literal]) => {
        mod $module {
            use super::*;

            const THEIRS: Nist = Nist { curve: $nist, bytes: $curve::BYTES };

            fn scalars() -> [[u8; $curve::BYTES]; LANES] {
                core::array::from_fn(|i| [i as u8 + 1; $curve::BYTES])
            }

            fn operation(
                lanes: Lanes,
                name: &'static str,
                call: impl Fn(Lanes, usize) + Clone + 'static,
                native: Box<dyn Fn()>,
                crypto_mb: Option<Call>,
            ) -> Operation {
                let counting = call.clone();
                Operation {
                    name,
                    lanes: whole(move |fill| call(lanes, fill)),
                    native,
                    crypto_mb,
                    multiplications: Box::new(move |fill| {
                        counting(Lanes::detect(), 1); // makes the table
                        counted(|lanes| counting(lanes, fill))
                    }),
                }
            }

            pub fn derive(lanes: Lanes) -> Operation {
                let scalars = scalars();
                let peer = $curve::public_keys(lanes, &[&scalars[3]])[0].expect("a scalar in range");
                let call = move |lanes, fill: usize| {
                    let jobs = scalars.each_ref().map(|scalar| $curve::DeriveJob { scalar, peer: &peer });
                    black_box($curve::derive(lanes, &jobs[..fill]));
                };
                let theirs = THEIRS.derive(&peer);
                operation(lanes, $derive, call, native_agreement(&agreement::$agreement), theirs)
            }

            pub fn keygen(lanes: Lanes) -> Operation {
                let scalars = scalars();
                let call = move |lanes, fill: usize| {
                    black_box($curve::public_keys(lanes, &scalars.each_ref()[..fill]));
                };
                operation(lanes, $keygen, call, native_keygen(&agreement::$agreement), THEIRS.keygen())
            }

            pub fn sign(lanes: Lanes) -> Operation {
                let scalars = scalars();
                let call = move |lanes, fill: usize| {
                    let jobs =
                        scalars.each_ref().map(|key| $curve::SignJob { key, digest: &key[..32], random: &key[..32] });
                    black_box($curve::sign(lanes, &jobs[..fill]));
                };
                let pair = signature::EcdsaKeyPair::generate(&signature::$signing).unwrap();
                let random = SystemRandom::new();
                let native = Box::new(move || {
                    black_box(pair.sign(&random, b"message").unwrap());
                });
                operation(lanes, $sign, call, native, THEIRS.sign())
            }
        }
    };
}

curve!(
    p256_curve,
    p256,
    ECDH_P256,
    ECDSA_P256_SHA256_FIXED_SIGNING,
    "nistp256",
    ["p256_derive", "p256_keygen", "p256_sign"]
);
curve!(
    p384_curve,
    p384,
    ECDH_P384,
    ECDSA_P384_SHA384_FIXED_SIGNING,
    "nistp384",
    ["p384_derive", "p384_keygen", "p384_sign"]
);
