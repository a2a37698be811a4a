//! X25519: eight different exchanges at a time, against RFC 7748, aws-lc and Wycheproof.

use aws_lc_rs::agreement;
use penstock_lanes::x25519::{DeriveJob, derive, public_keys};
use penstock_lanes::{LaneError, Lanes};

fn tokens() -> Vec<Lanes> {
    let mut all = vec![Lanes::portable()];
    if Lanes::detect().is_accelerated() {
        all.push(Lanes::detect());
    }
    all
}

fn bytes(hex: &str) -> [u8; 32] {
    core::array::from_fn(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
}

fn one(lanes: Lanes, scalar: &[u8; 32], peer: &[u8; 32]) -> Result<[u8; 32], LaneError> {
    derive(lanes, &[DeriveJob { scalar, peer }]).remove(0).map(|shared| *shared.expose())
}

/// A reproducible stream of bytes (xorshift64*).
struct Stream(u64);

impl Stream {
    fn bytes(&mut self) -> [u8; 32] {
        core::array::from_fn(|_| {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8
        })
    }
}

#[test]
fn rfc_7748_vectors() {
    for lanes in tokens() {
        let scalar = bytes("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4");
        let peer = bytes("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c");
        let shared = bytes("c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552");
        assert_eq!(one(lanes, &scalar, &peer), Ok(shared));
        let scalar = bytes("4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d");
        let peer = bytes("e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493");
        let shared = bytes("95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957");
        assert_eq!(one(lanes, &scalar, &peer), Ok(shared));
        // Section 6.1.
        let alice = bytes("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a");
        let bob = bytes("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb");
        let publics = public_keys(lanes, &[&alice, &bob]);
        assert_eq!(publics[0], bytes("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"));
        assert_eq!(publics[1], bytes("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"));
        let shared = bytes("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742");
        assert_eq!(one(lanes, &alice, &publics[1]), Ok(shared));
        assert_eq!(one(lanes, &bob, &publics[0]), Ok(shared));
        let base = bytes("0900000000000000000000000000000000000000000000000000000000000000");
        let (mut k, mut u) = (base, base);
        for round in 1..=1000 {
            let next = one(lanes, &k, &u).unwrap();
            u = k;
            k = next;
            if round == 1 {
                assert_eq!(k, bytes("422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079"));
                if !lanes.is_accelerated() {
                    break;
                }
            }
        }
        if lanes.is_accelerated() {
            assert_eq!(k, bytes("684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51"));
        }
    }
}

#[test]
fn eight_different_keys_rotated_agree_with_aws_lc() {
    let mut stream = Stream(7);
    for lanes in tokens() {
        for fill in 1..=8 {
            if !lanes.is_accelerated() && fill != 1 && fill != 8 {
                continue;
            }
            for rotate in 0..fill {
                if !lanes.is_accelerated() && rotate > 1 {
                    break;
                }
                let scalars: Vec<[u8; 32]> = (0..fill).map(|_| stream.bytes()).collect();
                let peers: Vec<[u8; 32]> = (0..fill).map(|_| stream.bytes()).collect();
                let order: Vec<usize> = (0..fill).map(|i| (i + rotate) % fill).collect();
                let rotated: Vec<&[u8; 32]> = order.iter().map(|i| &scalars[*i]).collect();
                let publics = public_keys(lanes, &rotated);
                let jobs: Vec<DeriveJob> =
                    order.iter().map(|i| DeriveJob { scalar: &scalars[*i], peer: &peers[*i] }).collect();
                let shared = derive(lanes, &jobs);
                for (at, i) in order.iter().enumerate() {
                    let key = agreement::PrivateKey::from_private_key(&agreement::X25519, &scalars[*i]).unwrap();
                    assert_eq!(publics[at][..], *key.compute_public_key().unwrap().as_ref());
                    let peer = agreement::UnparsedPublicKey::new(&agreement::X25519, &peers[*i]);
                    let wanted = agreement::agree(&key, peer, (), |s| Ok::<_, ()>(s.to_vec())).unwrap();
                    assert_eq!(shared[at].as_ref().unwrap().expose()[..], wanted[..]);
                }
            }
        }
    }
}

#[test]
fn one_point_of_small_order_among_seven_good() {
    let mut stream = Stream(11);
    for lanes in tokens() {
        let scalars: [[u8; 32]; 8] = core::array::from_fn(|_| stream.bytes());
        let mut peers: [[u8; 32]; 8] = core::array::from_fn(|_| stream.bytes());
        let jobs = |peers: &[[u8; 32]; 8]| -> Vec<Result<[u8; 32], LaneError>> {
            let jobs: Vec<DeriveJob> =
                scalars.iter().zip(peers).map(|(scalar, peer)| DeriveJob { scalar, peer }).collect();
            derive(lanes, &jobs).into_iter().map(|r| r.map(|s| *s.expose())).collect()
        };
        let mut wanted = jobs(&peers);
        peers[3] = [0; 32];
        wanted[3] = Err(LaneError::SmallOrder);
        assert_eq!(jobs(&peers), wanted);
    }
}

#[test]
fn wycheproof_vectors() {
    let set = wycheproof::xdh::TestSet::load(wycheproof::xdh::TestName::X25519).unwrap();
    for lanes in tokens() {
        let mut tests: Vec<_> = set.test_groups.iter().flat_map(|group| &group.tests).collect();
        if !lanes.is_accelerated() {
            tests.truncate(96);
        }
        assert!(tests.len() > 90);
        for eight in tests.chunks(8) {
            let keys: Vec<([u8; 32], [u8; 32])> = eight
                .iter()
                .map(|t| (t.private_key[..].try_into().unwrap(), t.public_key[..].try_into().unwrap()))
                .collect();
            let jobs: Vec<DeriveJob> = keys.iter().map(|(scalar, peer)| DeriveJob { scalar, peer }).collect();
            for (test, got) in eight.iter().zip(derive(lanes, &jobs)) {
                let zero = test.shared_secret.iter().all(|b| *b == 0);
                match got {
                    Ok(shared) => assert_eq!(shared.expose()[..], test.shared_secret[..], "{}", test.tc_id),
                    Err(error) => assert!(zero && error == LaneError::SmallOrder, "{}", test.tc_id),
                }
            }
        }
    }
}
