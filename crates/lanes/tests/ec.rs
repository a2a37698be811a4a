//! P-256 and P-384: eight different jobs at a time, against RFC 6979, aws-lc and Wycheproof.

use aws_lc_rs::{agreement, signature};
use penstock_lanes::{LaneError, Lanes, p256, p384};

fn tokens() -> Vec<Lanes> {
    let mut all = vec![Lanes::portable()];
    if Lanes::detect().is_accelerated() {
        all.push(Lanes::detect());
    }
    all
}

fn bytes<const N: usize>(hex: &str) -> [u8; N] {
    assert_eq!(hex.len(), 2 * N);
    core::array::from_fn(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
}

fn digest(algorithm: &'static aws_lc_rs::digest::Algorithm, message: &[u8]) -> Vec<u8> {
    aws_lc_rs::digest::digest(algorithm, message).as_ref().to_vec()
}

/// A reproducible stream of scalars below either order (the top bit is zero), odd and even.
fn scalar<const N: usize>(seed: u64) -> [u8; N] {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    core::array::from_fn(|i| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        if i == 0 { (x >> 57) as u8 } else { (x >> 56) as u8 }
    })
}

macro_rules! curve_tests {
    ($curve:ident as $module:ident, $algorithm:ident, $verify:ident, $sha:ident, $order:literal, $name:ident, $messages:ident) => {
        mod $module {
            use super::*;

            const B: usize = $curve::BYTES;

            fn native_derive(secret: &[u8; B], peer: &[u8]) -> Option<Vec<u8>> {
                let key = agreement::PrivateKey::from_private_key(&agreement::$algorithm, secret).ok()?;
                let peer = agreement::UnparsedPublicKey::new(&agreement::$algorithm, peer);
                agreement::agree(&key, peer, (), |s| Ok::<_, ()>(s.to_vec())).ok()
            }

            fn native_public(secret: &[u8; B]) -> Vec<u8> {
                let key = agreement::PrivateKey::from_private_key(&agreement::$algorithm, secret).unwrap();
                key.compute_public_key().unwrap().as_ref().to_vec()
            }

            /// n minus a small number.
            fn below_order(less: u8) -> [u8; B] {
                let mut n: [u8; B] = bytes($order);
                assert!(n[B - 1] >= less);
                n[B - 1] -= less;
                n
            }

            #[test]
            fn exchanges_of_eight_different_keys_rotated_agree_with_aws_lc() {
                for lanes in tokens() {
                    for (fill, rotate) in [(1, 0), (2, 1), (5, 3), (8, 0), (8, 5)] {
                        if !lanes.is_accelerated() && (fill, rotate) != (8, 5) {
                            continue;
                        }
                        let secrets: Vec<[u8; B]> =
                            (0..fill).map(|i| scalar(100 * fill as u64 + (i as u64 + rotate) % 8)).collect();
                        let peers: Vec<Vec<u8>> = (0..fill).map(|i| native_public(&scalar(7777 + i as u64))).collect();
                        let publics = $curve::public_keys(lanes, &secrets.iter().collect::<Vec<_>>());
                        let jobs: Vec<_> = secrets
                            .iter()
                            .zip(&peers)
                            .map(|(scalar, peer)| $curve::DeriveJob { scalar, peer })
                            .collect();
                        let shared = $curve::derive(lanes, &jobs);
                        for i in 0..fill {
                            assert_eq!(publics[i].unwrap()[..], native_public(&secrets[i])[..]);
                            let wanted = native_derive(&secrets[i], &peers[i]).unwrap();
                            assert_eq!(shared[i].as_ref().unwrap().expose()[..], wanted[..]);
                        }
                    }
                }
            }

            /// Small scalars and scalars next to the order: among them the 32 of which the last addition is of a point to
            /// itself, alone and beside seven others.
            #[test]
            fn edge_scalars_are_right() {
                let peer = native_public(&scalar(5));
                for lanes in tokens() {
                    let step = if lanes.is_accelerated() { 1 } else { 8 };
                    let secrets: Vec<[u8; B]> = (1..=64u8)
                        .step_by(step)
                        .flat_map(|small| {
                            let mut low = [0; B];
                            low[B - 1] = 2 * small;
                            [low, below_order(small), scalar(u64::from(small)), scalar(u64::from(small) + 1000)]
                        })
                        .collect();
                    for eight in secrets.chunks(8) {
                        let jobs: Vec<_> =
                            eight.iter().map(|scalar| $curve::DeriveJob { scalar, peer: &peer }).collect();
                        let publics = $curve::public_keys(lanes, &eight.iter().collect::<Vec<_>>());
                        for ((secret, shared), public) in eight.iter().zip($curve::derive(lanes, &jobs)).zip(publics) {
                            assert_eq!(shared.unwrap().expose()[..], native_derive(secret, &peer).unwrap()[..]);
                            assert_eq!(public.unwrap()[..], native_public(secret)[..]);
                        }
                        // As keys, and as nonces: of which 1 / k and r must be right.
                        let digest = digest(&aws_lc_rs::digest::$sha, b"m");
                        let ahead = $curve::presign(lanes, &eight.iter().collect::<Vec<_>>());
                        let jobs =
                            ahead.into_iter().zip(eight).map(|(k, key)| (k.unwrap(), key, &digest[..])).collect();
                        for (key, signature) in eight.iter().zip($curve::sign_presigned(lanes, jobs)) {
                            let (r, s) = signature.unwrap();
                            signature::UnparsedPublicKey::new(&signature::$verify, native_public(key))
                                .verify(b"m", &[r, s].concat())
                                .unwrap();
                        }
                    }
                }
            }

            #[test]
            fn one_bad_lane_among_seven_good() {
                for lanes in tokens() {
                    let secrets: [[u8; B]; 8] = core::array::from_fn(|i| scalar(40 + i as u64));
                    let good = native_public(&scalar(9));
                    let mut off_curve = good.clone();
                    off_curve[2 * B] ^= 1;
                    let mut unreduced = good.clone();
                    unreduced[1..=B].fill(0xff);
                    let zero = [0; B];
                    let order = below_order(0);
                    let wanted: Vec<_> = secrets.iter().map(|s| native_derive(s, &good).unwrap()).collect();
                    for (bad, secret, peer, error) in [
                        (3, &secrets[3], &off_curve[..], LaneError::NotOnCurve),
                        (0, &secrets[0], &unreduced[..], LaneError::NotOnCurve),
                        (5, &secrets[5], &good[..B], LaneError::NotOnCurve),
                        (7, &zero, &good[..], LaneError::InputRange),
                        (6, &order, &good[..], LaneError::InputRange),
                    ] {
                        let jobs: Vec<_> = (0..8)
                            .map(|i| {
                                let (scalar, peer) = if i == bad { (secret, peer) } else { (&secrets[i], &good[..]) };
                                $curve::DeriveJob { scalar, peer }
                            })
                            .collect();
                        for (i, result) in $curve::derive(lanes, &jobs).into_iter().enumerate() {
                            if i == bad {
                                assert_eq!(result.err(), Some(error));
                            } else {
                                assert_eq!(result.unwrap().expose()[..], wanted[i][..]);
                            }
                        }
                        if !lanes.is_accelerated() {
                            break;
                        }
                    }
                }
            }

            #[test]
            fn signatures_verify_in_aws_lc() {
                for lanes in tokens() {
                    for fill in 1..=8 {
                        if !lanes.is_accelerated() && fill != 3 {
                            continue;
                        }
                        let keys: Vec<[u8; B]> = (0..fill).map(|i| scalar(900 + fill as u64 * 8 + i as u64)).collect();
                        let messages: Vec<Vec<u8>> = (0..fill).map(|i| vec![i as u8; 40 + i]).collect();
                        let digests: Vec<_> = messages.iter().map(|m| digest(&aws_lc_rs::digest::$sha, m)).collect();
                        let jobs: Vec<_> = (0..fill)
                            .map(|i| $curve::SignJob { key: &keys[i], digest: &digests[i], random: &keys[i][..16] })
                            .collect();
                        let randoms: Vec<[u8; B]> = (0..fill).map(|i| scalar(31 + i as u64)).collect();
                        let ahead = $curve::presign(lanes, &randoms.iter().collect::<Vec<_>>());
                        let ahead = ahead
                            .into_iter()
                            .enumerate()
                            .map(|(i, ahead)| (ahead.unwrap(), &keys[i], &digests[i][..]))
                            .collect();
                        for results in [$curve::sign(lanes, &jobs), $curve::sign_presigned(lanes, ahead)] {
                            assert_eq!(results.len(), fill);
                            for (i, result) in results.into_iter().enumerate() {
                                let (r, s) = result.unwrap();
                                let public = native_public(&keys[i]);
                                signature::UnparsedPublicKey::new(&signature::$verify, public)
                                    .verify(&messages[i], &[r, s].concat())
                                    .unwrap();
                            }
                        }
                    }
                }
            }

            /// Wycheproof's ECDSA vectors are for verifiers, and this crate only signs: it signs their messages, whose digests
            /// are edge cases, and aws-lc verifies.
            #[test]
            fn wycheproof_messages_are_signed() {
                let set = wycheproof::ecdsa::TestSet::load(wycheproof::ecdsa::TestName::$messages).unwrap();
                let mut messages: Vec<_> =
                    set.test_groups.iter().flat_map(|group| &group.tests).map(|test| &test.msg[..]).collect();
                messages.sort();
                messages.dedup();
                assert!(messages.len() > 50, "{}", messages.len());
                let keys: Vec<[u8; B]> = (0..8).map(|i| scalar(500 + i)).collect();
                let publics: Vec<_> = keys.iter().map(native_public).collect();
                for eight in messages.chunks(8) {
                    let digests: Vec<_> = eight.iter().map(|m| digest(&aws_lc_rs::digest::$sha, m)).collect();
                    let jobs: Vec<_> = digests
                        .iter()
                        .zip(&keys)
                        .map(|(digest, key)| $curve::SignJob { key, digest, random: &[] })
                        .collect();
                    for ((message, public), signature) in
                        eight.iter().zip(&publics).zip($curve::sign(Lanes::detect(), &jobs))
                    {
                        let (r, s) = signature.unwrap();
                        signature::UnparsedPublicKey::new(&signature::$verify, public)
                            .verify(message, &[r, s].concat())
                            .unwrap();
                    }
                }
            }

            #[test]
            fn wycheproof_exchanges() {
                let set = wycheproof::ecdh::TestSet::load(wycheproof::ecdh::TestName::$name).unwrap();
                let lanes = Lanes::detect();
                let mut run = 0;
                for test in set.test_groups.iter().flat_map(|group| &group.tests) {
                    let start = test.private_key.iter().position(|b| *b != 0).unwrap_or(test.private_key.len());
                    let short = &test.private_key[start..];
                    let mut secret = [0; B];
                    if short.len() > B {
                        continue;
                    }
                    secret[B - short.len()..].copy_from_slice(short);
                    let job = $curve::DeriveJob { scalar: &secret, peer: &test.public_key };
                    match $curve::derive(lanes, &[job]).remove(0) {
                        Ok(shared) => {
                            assert_ne!(test.result, wycheproof::TestResult::Invalid, "{}", test.tc_id);
                            assert_eq!(shared.expose()[..], test.shared_secret[..], "{}", test.tc_id);
                            run += 1;
                        }
                        // Compressed points are not taken.
                        Err(error) => assert!(
                            test.result != wycheproof::TestResult::Valid || test.public_key.first() != Some(&4),
                            "{}: {error}",
                            test.tc_id
                        ),
                    }
                }
                assert!(run > 150, "{run}");
            }
        }
    };
}

curve_tests!(
    p256 as on_p256,
    ECDH_P256,
    ECDSA_P256_SHA256_FIXED,
    SHA256,
    "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551",
    EcdhSecp256r1Ecpoint,
    EcdsaSecp256r1Sha256P1363
);
curve_tests!(
    p384 as on_p384,
    ECDH_P384,
    ECDSA_P384_SHA384_FIXED,
    SHA384,
    "ffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973",
    EcdhSecp384r1Ecpoint,
    EcdsaSecp384r1Sha384P1363
);

/// RFC 6979, appendices A.2.5 and A.2.6.
#[test]
fn rfc_6979_vectors() {
    for lanes in tokens() {
        let key = bytes("c9afa9d845ba75166b5c215767b1d6934e50c3db36e89b127b8a622b120f6721");
        let digest256 = digest(&aws_lc_rs::digest::SHA256, b"sample");
        let signed = p256::sign(lanes, &[p256::SignJob { key: &key, digest: &digest256, random: &[] }]);
        let r = bytes("efd48b2aacb6a8fd1140dd9cd45e81d69d2c877b56aaf991c34d0ea84eaf3716");
        let s = bytes("f7cb1c942d657c41d436c7a1b6e29f65f3e900dbb9aff4064dc4ab2f843acda8");
        assert_eq!(signed, [Ok((r, s))]);
        let digest256 = digest(&aws_lc_rs::digest::SHA256, b"test");
        let signed = p256::sign(lanes, &[p256::SignJob { key: &key, digest: &digest256, random: &[] }]);
        let r = bytes("f1abb023518351cd71d881567b1ea663ed3efcf6c5132b354f28d3b0b7d38367");
        let s = bytes("019f4113742a2b14bd25926b49c649155f267e60d3814b4c0cc84250e46f0083");
        assert_eq!(signed, [Ok((r, s))]);
        let key =
            bytes("6b9d3dad2e1b8c1c05b19875b6659f4de23c3b667bf297ba9aa47740787137d896d5724e4c70a825f872c9ea60d2edf5");
        let digest384 = digest(&aws_lc_rs::digest::SHA384, b"sample");
        let signed = p384::sign(lanes, &[p384::SignJob { key: &key, digest: &digest384, random: &[] }]);
        let r =
            bytes("94edbb92a5ecb8aad4736e56c691916b3f88140666ce9fa73d64c4ea95ad133c81a648152e44acf96e36dd1e80fabe46");
        let s =
            bytes("99ef4aeb15f178cea1fe40db2603138f130e740a19624526203b6351d0a3a94fa329c145786e679e7b82c71a38628ac8");
        assert_eq!(signed, [Ok((r, s))]);
        let digest384 = digest(&aws_lc_rs::digest::SHA384, b"test");
        let signed = p384::sign(lanes, &[p384::SignJob { key: &key, digest: &digest384, random: &[] }]);
        let r =
            bytes("8203b63d3c853e8d77227fb377bcf7b7b772e97892a80f36ab775d509d7a5feb0542a7f0812998da8f1dd3ca3cf023db");
        let s =
            bytes("ddd0760448d42d8a43af45af836fce4de8be06b485e9b61b827c2f13173923e06a739f040649a667bf3b828246baa5a5");
        assert_eq!(signed, [Ok((r, s))]);
    }
}
