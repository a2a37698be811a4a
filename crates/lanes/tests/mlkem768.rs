//! ML-KEM-768: eight different clients at a time, against aws-lc and Wycheproof's vectors.

use aws_lc_rs::kem;
use penstock_lanes::mlkem768::{BYTES, CIPHERTEXT, EncapsulateJob, Encapsulated, KEY, encapsulate};
use penstock_lanes::{LaneError, Lanes};
use wycheproof::{TestResult, mlkem};

fn tokens() -> Vec<Lanes> {
    let mut all = vec![Lanes::portable()];
    if Lanes::detect().is_accelerated() {
        all.push(Lanes::detect());
    }
    all
}

fn native_keys(count: usize) -> (Vec<kem::DecapsulationKey>, Vec<Vec<u8>>) {
    let private: Vec<_> = (0..count).map(|_| kem::DecapsulationKey::generate(&kem::ML_KEM_768).unwrap()).collect();
    let public =
        private.iter().map(|key| key.encapsulation_key().unwrap().key_bytes().unwrap().as_ref().to_vec()).collect();
    (private, public)
}

fn decapsulated(key: &kem::DecapsulationKey, ciphertext: &[u8]) -> Vec<u8> {
    key.decapsulate(ciphertext.into()).unwrap().as_ref().to_vec()
}

fn randoms() -> [[u8; BYTES]; 8] {
    core::array::from_fn(|i| core::array::from_fn(|j| (17 * i + 31 * j + 1) as u8))
}

#[test]
fn eight_different_clients_rotated_decapsulate_the_same_secret() {
    let (private, public) = native_keys(8);
    let randoms = randoms();
    for lanes in tokens() {
        for fill in 1..=8 {
            if !lanes.is_accelerated() && fill != 3 {
                continue;
            }
            for rotate in [0, 3] {
                let order: Vec<usize> = (0..fill).map(|i| (i + rotate) % 8).collect();
                let jobs: Vec<_> =
                    order.iter().map(|i| EncapsulateJob { key: &public[*i], random: &randoms[*i] }).collect();
                let answers = encapsulate(lanes, &jobs);
                assert_eq!(answers.len(), fill);
                for (i, answer) in order.iter().zip(answers) {
                    let Encapsulated { ciphertext, secret } = answer.unwrap();
                    assert_eq!(decapsulated(&private[*i], &ciphertext), secret.expose(), "client {i} of {fill}");
                }
            }
        }
    }
}

/// Many keys: the fourth block of a sampler, which one in 140 needs, is among them.
#[test]
fn two_hundred_fresh_keys() {
    let lanes = Lanes::detect();
    for _ in 0..25 {
        let (private, public) = native_keys(8);
        let randoms = randoms();
        let jobs: Vec<_> = (0..8).map(|i| EncapsulateJob { key: &public[i], random: &randoms[i] }).collect();
        for (private, answer) in private.iter().zip(encapsulate(lanes, &jobs)) {
            let Encapsulated { ciphertext, secret } = answer.unwrap();
            assert_eq!(decapsulated(private, &ciphertext), secret.expose());
        }
    }
}

#[test]
fn both_vectors_answer_alike() {
    let (_, public) = native_keys(8);
    let randoms = randoms();
    let jobs: Vec<_> = (0..8).map(|i| EncapsulateJob { key: &public[i], random: &randoms[i] }).collect();
    let all = |lanes| -> Vec<_> {
        encapsulate(lanes, &jobs).into_iter().map(|e| e.map(|e| (e.ciphertext, *e.secret.expose()))).collect()
    };
    assert_eq!(all(Lanes::portable()), all(Lanes::detect()));
}

/// The modulus check of FIPS 203, section 7.2, at the first and the last coefficient, and keys of other lengths.
#[test]
fn malformed_keys_among_good_ones() {
    let (_, public) = native_keys(8);
    let randoms = randoms();
    for lanes in tokens() {
        let all = |keys: &[Vec<u8>]| -> Vec<_> {
            let jobs: Vec<_> = (0..8).map(|i| EncapsulateJob { key: &keys[i], random: &randoms[i] }).collect();
            encapsulate(lanes, &jobs).into_iter().map(|e| e.map(|e| (e.ciphertext, *e.secret.expose()))).collect()
        };
        let mut wanted = all(&public);
        let mut keys = public.clone();
        // 3329 itself, and 4095.
        let high = public[1][1] & 0xf0;
        keys[1][..2].copy_from_slice(&[0x01, 0x0d | high]);
        keys[3][1150] |= 0xf0;
        keys[3][1151] = 0xff;
        keys[4].pop();
        keys[6].push(0);
        for bad in [1, 3, 4, 6] {
            wanted[bad] = Err(LaneError::EncapsulationKey);
        }
        assert_eq!(all(&keys), wanted);
        // 3328 is the largest coefficient.
        keys[1][..2].copy_from_slice(&[0x00, 0x0d | high]);
        assert!(all(&keys)[1].is_ok());
    }
}

#[test]
fn wycheproof_vectors() {
    let (mut valid, mut invalid) = (0, 0);
    for name in [mlkem::TestName::MlKem768, mlkem::TestName::MlKem768Encaps] {
        let set = mlkem::TestSet::load(name).unwrap();
        for group in &set.test_groups {
            let tests: Vec<_> = group.tests.iter().filter(|t| t.encaps_key.is_some() && t.msg.is_some()).collect();
            for lanes in tokens() {
                for eight in tests.chunks(8) {
                    let randoms: Vec<[u8; BYTES]> =
                        eight.iter().map(|t| t.msg.as_ref().unwrap()[..].try_into().unwrap()).collect();
                    let jobs: Vec<_> = eight
                        .iter()
                        .zip(&randoms)
                        .map(|(t, random)| EncapsulateJob { key: t.encaps_key.as_ref().unwrap(), random })
                        .collect();
                    for (test, answer) in eight.iter().zip(encapsulate(lanes, &jobs)) {
                        match answer {
                            Ok(Encapsulated { ciphertext, secret }) => {
                                assert_ne!(test.result, TestResult::Invalid, "{}", test.tc_id);
                                assert_eq!(ciphertext[..], test.ct.as_ref().unwrap()[..], "{}", test.tc_id);
                                assert_eq!(secret.expose()[..], test.shared_secret.as_ref().unwrap()[..]);
                                valid += 1;
                            }
                            Err(error) => {
                                assert_eq!(test.result, TestResult::Invalid, "{}", test.tc_id);
                                assert_eq!(error, LaneError::EncapsulationKey);
                                invalid += 1;
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(valid > 25 && invalid > 100, "{valid} {invalid}");
}

#[test]
fn sizes_are_those_of_the_standard() {
    assert_eq!((KEY, CIPHERTEXT), (1184, 1088));
}
