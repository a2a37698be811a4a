//! The signature encodings of RFC 8017, by whole signatures: ours verified by aws-lc, theirs and Wycheproof's by ours.

mod common;

use aws_lc_rs::{digest, rand::SystemRandom, rsa, signature, signature::KeyPair};
use common::TestKey;
use penstock_lanes::rsa::{
    HashFunction, PublicJob, RsaBatch, RsaJob, RsaPublicKey, RsaSize, VerifyJob, encode_pkcs1, encode_pss, raise,
    verify_pss, verify_raw,
};
use penstock_lanes::{LaneError, Lanes};
use wycheproof::{TestResult, rsa_pkcs1_verify, rsa_pss_verify};

const HASHES: [HashFunction; 3] = [HashFunction::Sha256, HashFunction::Sha384, HashFunction::Sha512];

fn native_digest(hash: HashFunction) -> &'static digest::Algorithm {
    match hash {
        HashFunction::Sha256 => &digest::SHA256,
        HashFunction::Sha384 => &digest::SHA384,
        HashFunction::Sha512 => &digest::SHA512,
    }
}

fn hashed(hash: HashFunction, message: &[u8]) -> Vec<u8> {
    digest::digest(native_digest(hash), message).as_ref().to_vec()
}

type Verifier = &'static dyn signature::VerificationAlgorithm;

/// What aws-lc signs and verifies with: PKCS#1 v1.5, then PSS.
fn native(hash: HashFunction) -> [(&'static dyn signature::RsaEncoding, Verifier); 2] {
    use signature as s;
    match hash {
        HashFunction::Sha256 => {
            [(&s::RSA_PKCS1_SHA256, &s::RSA_PKCS1_2048_8192_SHA256), (&s::RSA_PSS_SHA256, &s::RSA_PSS_2048_8192_SHA256)]
        }
        HashFunction::Sha384 => {
            [(&s::RSA_PKCS1_SHA384, &s::RSA_PKCS1_2048_8192_SHA384), (&s::RSA_PSS_SHA384, &s::RSA_PSS_2048_8192_SHA384)]
        }
        HashFunction::Sha512 => {
            [(&s::RSA_PKCS1_SHA512, &s::RSA_PKCS1_2048_8192_SHA512), (&s::RSA_PSS_SHA512, &s::RSA_PSS_2048_8192_SHA512)]
        }
    }
}

fn our_hash(hash: wycheproof::HashFunction) -> Option<HashFunction> {
    match hash {
        wycheproof::HashFunction::Sha2_256 => Some(HashFunction::Sha256),
        wycheproof::HashFunction::Sha2_384 => Some(HashFunction::Sha384),
        wycheproof::HashFunction::Sha2_512 => Some(HashFunction::Sha512),
        _ => None,
    }
}

#[test]
fn signatures_in_every_encoding_verify_in_aws_lc() {
    let lanes = Lanes::detect();
    for name in ["rsa2048-1", "rsa3072-1", "rsa4096-1"] {
        let key = TestKey::load(name);
        let (prepared, pair) = (key.prepare(), rsa::KeyPair::from_der(&key.der).unwrap());
        let messages: Vec<Vec<u8>> = (0..3).map(|i| format!("message {i} for {name}").into_bytes()).collect();
        let mut encoded = Vec::new();
        for (hash, message) in HASHES.iter().zip(&messages) {
            let digest = hashed(*hash, message);
            let salt: Vec<u8> = (0..hash.bytes()).map(|i| (i as u8).wrapping_mul(7)).collect();
            encoded.push(encode_pkcs1(prepared.size(), *hash, &digest));
            encoded.push(encode_pss(lanes, prepared.size(), *hash, &digest, &salt));
        }
        let jobs: Vec<RsaJob> = encoded.iter().map(|input| RsaJob { key: &prepared, input }).collect();
        let signatures = RsaBatch::new(lanes, &jobs).finish();
        for (at, signature) in signatures.into_iter().enumerate() {
            let (hash, message, signature) = (HASHES[at / 2], &messages[at / 2], signature.unwrap());
            let (encoding, verifier) = native(hash)[at % 2];
            let public = signature::UnparsedPublicKey::new(verifier, pair.public_key().as_ref());
            public.verify(message, &signature).unwrap_or_else(|_| panic!("{name} {hash:?} {}", at % 2));
            if at % 2 == 0 {
                let mut theirs = vec![0; pair.public_modulus_len()];
                pair.sign(encoding, &SystemRandom::new(), message, &mut theirs).unwrap();
                assert_eq!(signature, theirs, "PKCS#1 v1.5 is deterministic");
            }
        }
    }
}

#[test]
fn pss_signatures_of_aws_lc_verify_here_and_altered_ones_do_not() {
    for lanes in [Lanes::detect(), Lanes::portable()] {
        let key = TestKey::load("rsa2048-2");
        let (prepared, pair) = (key.prepare(), rsa::KeyPair::from_der(&key.der).unwrap());
        for hash in HASHES {
            let digest = hashed(hash, b"a message");
            let mut theirs = vec![0; 256];
            pair.sign(native(hash)[1].0, &SystemRandom::new(), b"a message", &mut theirs).unwrap();
            let job = PublicJob { key: prepared.public(), input: &theirs };
            let encoded = raise(lanes, &[job]).remove(0).unwrap();
            assert!(verify_pss(lanes, hash, &encoded, &digest));
            assert!(!verify_pss(lanes, hash, &encoded, &hashed(hash, b"another")));
            // Every part counts: the first bit, the masked block, the binding digest, the trailer.
            for (byte, bit) in [(0, 0x80), (1, 1), (128, 0x10), (255 - hash.bytes(), 1), (254, 1), (255, 4)] {
                let mut altered = encoded.clone();
                altered[byte] ^= bit;
                assert!(!verify_pss(lanes, hash, &altered, &digest), "byte {byte}");
            }
            assert!(!verify_pss(lanes, hash, &encoded[..2 * hash.bytes() + 1], &digest), "too short");
        }
    }
}

#[test]
fn encodings_do_not_depend_on_the_vector() {
    for hash in HASHES {
        let (digest, salt) = (hashed(hash, b"x"), hashed(hash, b"y"));
        for size in [RsaSize::Bits2048, RsaSize::Bits3072, RsaSize::Bits4096] {
            let portable = encode_pss(Lanes::portable(), size, hash, &digest, &salt);
            assert_eq!(encode_pss(Lanes::detect(), size, hash, &digest, &salt), portable);
            assert!(verify_pss(Lanes::portable(), hash, &portable, &digest));
        }
    }
}

/// Raising answers for each lane by itself.
#[test]
fn one_input_out_of_range_among_seven_good() {
    let key = TestKey::load("rsa2048-1");
    let public = key.prepare();
    let small = [&[0u8; 255][..], &[1]].concat();
    let mut jobs = vec![PublicJob { key: public.public(), input: &small }; 8];
    jobs[4].input = key.part(0);
    jobs[6].input = &small[1..];
    for lanes in [Lanes::detect(), Lanes::portable()] {
        let mut wanted = vec![Ok(small.clone()); 8];
        wanted[4] = Err(LaneError::InputRange);
        wanted[6] = Err(LaneError::InputRange);
        assert_eq!(raise(lanes, &jobs), wanted);
    }
}

#[test]
fn wycheproof_pkcs1_signatures() {
    use rsa_pkcs1_verify::TestName::*;
    let (mut valid, mut invalid) = (0, 0);
    for name in [
        Rsa2048Sha256,
        Rsa2048Sha384,
        Rsa2048Sha512,
        Rsa3072Sha256,
        Rsa3072Sha384,
        Rsa3072Sha512,
        Rsa4096Sha256,
        Rsa4096Sha384,
        Rsa4096Sha512,
    ] {
        let set = rsa_pkcs1_verify::TestSet::load(name).unwrap();
        for group in &set.test_groups {
            let hash = our_hash(group.hash).unwrap();
            // Other exponents than 65537 are refused as keys.
            let Ok(key) = RsaPublicKey::new(&group.key.n, &group.key.e) else { continue };
            for eight in group.tests.chunks(8) {
                let encoded: Vec<Vec<u8>> =
                    eight.iter().map(|test| encode_pkcs1(key.size(), hash, &hashed(hash, &test.msg))).collect();
                let jobs: Vec<VerifyJob> = eight
                    .iter()
                    .zip(&encoded)
                    .map(|(test, encoded)| VerifyJob { key: &key, signature: &test.sig, encoded })
                    .collect();
                for (test, answer) in eight.iter().zip(verify_raw(Lanes::detect(), &jobs)) {
                    match test.result {
                        TestResult::Valid => valid += usize::from(answer.is_ok()),
                        // Acceptable ones leave a NULL out of the DigestInfo: not the unique encoding.
                        TestResult::Invalid | TestResult::Acceptable => invalid += usize::from(answer.is_err()),
                    }
                    assert_eq!(answer.is_ok(), test.result == TestResult::Valid, "{name:?} {}", test.tc_id);
                }
            }
        }
    }
    assert!(valid > 60 && invalid > 1800, "{valid} {invalid}");
}

/// MGF1 written a second time, over aws-lc's digests.
fn mgf1(hash: HashFunction, seed: &[u8], length: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for counter in 0u32.. {
        if out.len() >= length {
            break;
        }
        out.extend(hashed(hash, &[seed, &counter.to_be_bytes()].concat()));
    }
    out.truncate(length);
    out
}

#[test]
fn wycheproof_pss_signatures() {
    use rsa_pss_verify::TestName::*;
    let (mut valid, mut invalid) = (0, 0);
    for name in [
        RsaPss2048Sha256Mgf1SaltLen32,
        RsaPss2048Sha384Mgf1SaltLen48,
        RsaPss3072Sha256Mgf1SaltLen32,
        RsaPss4096Sha256Mgf1SaltLen32,
        RsaPss4096Sha384Mgf1SaltLen48,
        RsaPss4096Sha512Mgf1SaltLen64,
        RsaPssmisc,
    ] {
        let set = rsa_pss_verify::TestSet::load(name).unwrap();
        for group in &set.test_groups {
            let Some(hash) = our_hash(group.hash) else { continue };
            if group.salt_size != hash.bytes() || group.mgf_hash != Some(group.hash) {
                continue;
            }
            let Ok(key) = RsaPublicKey::new(&group.key.n, &group.key.e) else { continue };
            for eight in group.tests.chunks(8) {
                let jobs: Vec<PublicJob> = eight.iter().map(|test| PublicJob { key: &key, input: &test.sig }).collect();
                for (test, encoded) in eight.iter().zip(raise(Lanes::detect(), &jobs)) {
                    let digest = hashed(hash, &test.msg);
                    let right = encoded.as_ref().is_ok_and(|e| verify_pss(Lanes::detect(), hash, e, &digest));
                    assert_eq!(right, test.result != TestResult::Invalid, "{name:?} {}", test.tc_id);
                    if !right {
                        invalid += 1;
                        continue;
                    }
                    valid += 1;
                    // With the salt that the published signature hides, our encoding is that signature's.
                    let encoded = encoded.unwrap();
                    let (block, bound) = encoded.split_at(encoded.len() - hash.bytes() - 1);
                    let mask = mgf1(hash, &bound[..hash.bytes()], block.len());
                    let salt: Vec<u8> =
                        block.iter().zip(mask).map(|(b, m)| b ^ m).skip(block.len() - hash.bytes()).collect();
                    assert_eq!(encode_pss(Lanes::detect(), key.size(), hash, &digest, &salt), encoded);
                }
            }
        }
    }
    assert!(valid > 500 && invalid > 250, "{valid} {invalid}");
}
