//! RSA: eight different jobs at a time, against aws-lc and published vectors.

mod common;

use aws_lc_rs::{rand::SystemRandom, rsa, signature};
use common::TestKey;
use penstock_lanes::rsa::{KeyError, Progress, RsaBatch, RsaJob, RsaKey, RsaParts, VerifyJob, verify_raw};
use penstock_lanes::{LaneError, Lanes};

fn tokens() -> Vec<Lanes> {
    let mut all = vec![Lanes::portable()];
    if Lanes::detect().is_accelerated() {
        all.push(Lanes::detect());
    }
    all
}

/// A PKCS#1 v1.5 encoding of a SHA-256 digest, written here a second time.
fn pkcs1(length: usize, digest: &[u8]) -> Vec<u8> {
    let mut em = vec![0, 1];
    em.resize(length - 52, 0xff);
    em.extend([0, 0x30, 0x31, 0x30, 0x0d, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1, 5, 0, 4, 0x20]);
    em.extend(digest);
    em
}

fn native_signature(key: &TestKey, message: &[u8]) -> Vec<u8> {
    let pair = rsa::KeyPair::from_der(&key.der).unwrap();
    let mut out = vec![0; pair.public_modulus_len()];
    pair.sign(&signature::RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut out).unwrap();
    out
}

fn signatures_are_native_ones(names: &[&str]) {
    let keys: Vec<TestKey> = names.iter().map(|name| TestKey::load(name)).collect();
    let prepared: Vec<RsaKey> = keys.iter().map(TestKey::prepare).collect();
    let length = prepared[0].size().bytes();
    let messages: Vec<Vec<u8>> = (0..8).map(|i| format!("message {i} of {length}").into_bytes()).collect();
    let encoded: Vec<Vec<u8>> = messages
        .iter()
        .map(|m| pkcs1(length, aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, m).as_ref()))
        .collect();
    let wanted: Vec<Vec<u8>> = (0..8).map(|i| native_signature(&keys[i % keys.len()], &messages[i])).collect();
    for lanes in tokens() {
        for (fill, rotate) in [(1, 0), (2, 1), (3, 2), (4, 3), (5, 5), (7, 7), (8, 0), (8, 3)] {
            if !lanes.is_accelerated() && fill != 3 && fill != 8 {
                continue;
            }
            let order: Vec<usize> = (0..fill).map(|i| (i + rotate) % 8).collect();
            let jobs: Vec<RsaJob> =
                order.iter().map(|i| RsaJob { key: &prepared[i % keys.len()], input: &encoded[*i] }).collect();
            let results = RsaBatch::new(lanes, &jobs).finish();
            for (i, result) in order.iter().zip(results) {
                assert_eq!(result.as_ref(), Ok(&wanted[*i]), "fill {fill} rotated {rotate} job {i}");
            }
        }
        let mut jobs: Vec<VerifyJob> = (0..8)
            .map(|i| VerifyJob { key: prepared[i % keys.len()].public(), signature: &wanted[i], encoded: &encoded[i] })
            .collect();
        assert_eq!(verify_raw(lanes, &jobs), vec![Ok(()); 8]);
        jobs[5].signature = &wanted[4];
        let mut answers = vec![Ok(()); 8];
        answers[5] = Err(LaneError::Signature);
        assert_eq!(verify_raw(lanes, &jobs), answers, "one bad lane among seven good");
    }
}

#[test]
fn rsa2048_signatures_are_native_ones() {
    signatures_are_native_ones(&["rsa2048-1", "rsa2048-2", "rsa2048-3", "rsa2048-4"]);
}

#[test]
fn rsa3072_signatures_are_native_ones() {
    signatures_are_native_ones(&["rsa3072-1", "rsa3072-2"]);
}

#[test]
fn rsa4096_signatures_are_native_ones() {
    signatures_are_native_ones(&["rsa4096-1", "rsa4096-2"]);
}

fn raw(lanes: Lanes, key: &RsaKey, inputs: &[&[u8]]) -> Vec<Result<Vec<u8>, LaneError>> {
    let jobs: Vec<RsaJob> = inputs.iter().map(|input| RsaJob { key, input }).collect();
    RsaBatch::new(lanes, &jobs).finish()
}

#[test]
fn edge_inputs_and_one_bad_lane_among_seven_good() {
    let key = TestKey::load("rsa2048-1");
    let prepared = key.prepare();
    let n = key.part(0);
    let number = |value: u8| {
        let mut bytes = vec![0; 256];
        bytes[255] = value;
        bytes
    };
    let (zero, one) = (number(0), number(1));
    let mut less_one = n.to_vec();
    less_one[255] -= 1;
    for lanes in tokens() {
        let results = raw(lanes, &prepared, &[&zero, n, &one, &less_one, &one[1..], &zero, &one, &less_one]);
        let wanted = [
            Ok(zero.clone()),
            Err(LaneError::InputRange),
            Ok(one.clone()),
            Ok(less_one.clone()),
            Err(LaneError::InputRange),
            Ok(zero.clone()),
            Ok(one.clone()),
            Ok(less_one.clone()),
        ];
        assert_eq!(results, wanted);
    }
}

/// The attack of Boneh, DeMillo and Lipton: a signature wrong modulo one prime must not leave.
#[test]
fn a_faulty_half_never_leaves() {
    let key = TestKey::load("rsa2048-2");
    let mut dp = key.part(5).to_vec();
    *dp.last_mut().unwrap() ^= 4;
    let faulty = RsaKey::new(&RsaParts { dp: &dp, ..key.parts() }).unwrap();
    let (good, input) = (key.prepare(), [0x17; 256]);
    let jobs: Vec<RsaJob> =
        (0..8).map(|i| RsaJob { key: if i == 6 { &faulty } else { &good }, input: &input }).collect();
    let results = RsaBatch::new(Lanes::detect(), &jobs).finish();
    for (i, result) in results.iter().enumerate() {
        assert_eq!(result.is_ok(), i != 6);
    }
    assert_eq!(results[6], Err(LaneError::Fault));
}

#[test]
fn a_batch_left_and_resumed_is_the_same_batch() {
    let key = TestKey::load("rsa2048-3").prepare();
    let input = [0x42; 256];
    let jobs = [RsaJob { key: &key, input: &input }; 5];
    let mut batch = RsaBatch::new(Lanes::detect(), &jobs);
    let all = batch.steps_left();
    assert_eq!(batch.advance(1), Progress::Working { steps_left: all - 1 });
    let mut other = RsaBatch::new(Lanes::detect(), &jobs[..1]);
    while batch.advance(7) != Progress::Done {
        other.advance(3);
    }
    let (results, other) = (batch.finish(), other.finish());
    assert_eq!(results, vec![other[0].clone(); 5]);
}

#[test]
fn keys_that_cannot_be_right_are_refused() {
    let key = TestKey::load("rsa2048-1");
    let parts = key.parts();
    let refused = |parts: RsaParts| RsaKey::new(&parts).err().unwrap();
    let mut even = key.part(0).to_vec();
    even[255] &= 0xfe;
    assert_eq!(refused(RsaParts { n: &even, ..parts }), KeyError::Even);
    assert_eq!(refused(RsaParts { n: &key.part(0)[1..], ..parts }), KeyError::Size);
    assert_eq!(refused(RsaParts { q: parts.p, ..parts }), KeyError::EqualPrimes);
    assert_eq!(refused(RsaParts { q: TestKey::load("rsa2048-2").part(4), ..parts }), KeyError::Product);
    assert_eq!(refused(RsaParts { e: &[3], ..parts }), KeyError::Exponent);
    assert_eq!(refused(RsaParts { dp: parts.n, ..parts }), KeyError::Range);
    assert_eq!(refused(RsaParts { qinv: parts.p, ..parts }), KeyError::Range);
    // A prime must fit half of the modulus: unequal ones that do not are another library's.
    let longer = [&[1], parts.p].concat();
    assert_eq!(refused(RsaParts { p: &longer, ..parts }), KeyError::Range);
    let even = [&parts.p[..127], &[parts.p[127] & 0xfe]].concat();
    assert_eq!(refused(RsaParts { p: &even, ..parts }), KeyError::Even);
}

/// A key that is not of the batch's size fails its lane alone.
#[test]
fn a_key_of_another_size_among_seven_good() {
    let (key, other) = (TestKey::load("rsa2048-1").prepare(), TestKey::load("rsa3072-1").prepare());
    let (input, longer) = ([0x21; 256], [0x21; 384]);
    let mut jobs = [RsaJob { key: &key, input: &input }; 8];
    let good = RsaBatch::new(Lanes::detect(), &jobs[..1]).finish().remove(0).unwrap();
    jobs[2] = RsaJob { key: &other, input: &longer };
    jobs[5] = RsaJob { key: &other, input: &input };
    let mut wanted = vec![Ok(good.clone()); 8];
    wanted[2] = Err(LaneError::InputRange);
    wanted[5] = Err(LaneError::InputRange);
    assert_eq!(RsaBatch::new(Lanes::detect(), &jobs).finish(), wanted);
    let verify = |key| VerifyJob { key, signature: &good, encoded: &input };
    let answers = verify_raw(Lanes::detect(), &[verify(key.public()), verify(other.public())]);
    assert_eq!(answers, [Ok(()), Err(LaneError::Signature)]);
}
