//! The device's life and its requests, through the device double: every figure in here would be the double's.

use aws_lc_rs::{
    agreement::{self, PrivateKey, UnparsedPublicKey},
    digest,
    encoding::{AsBigEndian, AsDer},
    rsa::{KeyPair, KeySize},
    signature::{ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, UnparsedPublicKey as Verifier},
};
use penstock_qat::{Channel, Curve, Device, Options, Outcome, Refused, Request, RsaNumbers, Tag, Unavailable};
use penstock_qat_double::Double;
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

const SOON: Duration = Duration::from_secs(5);

fn open(double: &Double) -> Result<Arc<Device>, Unavailable> {
    Device::open(&Options { directory: Some(double.path().to_owned()), ..Options::default() })
}

fn opened(commands: &str) -> (Double, Arc<Device>) {
    let double = Double::new(commands);
    let device = open(&double).expect("the double is there");
    (double, device)
}

/// What becomes of everything that is under way.
fn settle(channel: &mut Channel) -> BTreeMap<Tag, Outcome> {
    let (mut outcomes, until) = (BTreeMap::new(), Instant::now() + SOON);
    while channel.depth() > 0 && Instant::now() < until {
        channel.poll(Instant::now(), |tag, outcome| drop(outcomes.insert(tag, outcome)));
    }
    assert_eq!(channel.depth(), 0, "every request ends");
    outcomes
}

#[track_caller]
fn answer(outcome: Option<Outcome>) -> [Vec<u8>; 2] {
    match outcome {
        Some(Outcome::Answered(answer)) => answer.map(|number| number.to_vec()),
        Some(Outcome::Failed(status)) => panic!("failed: {status}"),
        Some(Outcome::Late) => panic!("late"),
        None => panic!("never submitted"),
    }
}

fn submit(channel: &mut Channel, request: &Request<'_>, tag: Tag) {
    channel.submit(request, tag, Instant::now() + SOON).expect("there is room");
}

/// A small request.
const SCALAR: [u8; 32] = [0x42; 32];
fn small() -> Request<'static> {
    Request::X25519 { scalar: &SCALAR, point: None }
}

/// After the device has been let go of: everything was stopped, freed and wiped, and nothing was done out of order.
#[track_caller]
fn ended_well(double: &Double, unanswered: usize) {
    assert_eq!(double.violations(), [""; 0]);
    let log = double.log();
    assert!(log.contains(&format!("stop, {unanswered} unanswered")), "{log:?}");
    assert_eq!(double.pinned(), Some(0), "{log:?}");
}

#[test]
fn a_device_computes_what_the_library_does() {
    for double in [Double::new(""), Double::older(""), Double::new("").without("cpaCyEcGenericPointMultiply")] {
        let device = open(&double).expect("the double is there");
        let mut channel = device.channel(1, None);
        rsa(&mut channel);
        for (curve, verify, hash, agree) in [
            (Curve::P256, &ECDSA_P256_SHA256_FIXED, &digest::SHA256, &agreement::ECDH_P256),
            (Curve::P384, &ECDSA_P384_SHA384_FIXED, &digest::SHA384, &agreement::ECDH_P384),
        ] {
            let pair = PrivateKey::generate(agree).unwrap();
            let scalar: aws_lc_rs::encoding::EcPrivateKeyBin<'static> = pair.as_be_bytes().unwrap();
            let public = pair.compute_public_key().unwrap();
            let digest = digest::digest(hash, b"message");
            let nonce = vec![0x17; curve.bytes()];
            let key = scalar.as_ref();
            submit(&mut channel, &Request::Ecdsa { curve, key, nonce: &nonce, digest: digest.as_ref() }, 1);
            submit(&mut channel, &Request::Multiply { curve, scalar: key, point: None }, 2);
            let peer = PrivateKey::generate(agree).unwrap();
            let point = peer.compute_public_key().unwrap();
            submit(&mut channel, &Request::Multiply { curve, scalar: key, point: Some(&point.as_ref()[1..]) }, 3);
            let mut outcomes = settle(&mut channel);
            let signature = answer(outcomes.remove(&1)).concat();
            Verifier::new(verify, public.as_ref()).verify(b"message", &signature).expect("a signature");
            assert_eq!([vec![4], answer(outcomes.remove(&2)).concat()].concat(), public.as_ref());
            let shared = answer(outcomes.remove(&3))[0].clone();
            agreement::agree(&peer, UnparsedPublicKey::new(agree, public.as_ref()), (), |known| {
                assert_eq!(shared, known);
                Ok(())
            })
            .unwrap();
        }
        x25519(&mut channel);
        drop(channel);
        drop(device);
        ended_well(&double, 0);
    }
}

fn rsa(channel: &mut Channel) {
    for (size, len) in [(KeySize::Rsa2048, 256), (KeySize::Rsa3072, 384), (KeySize::Rsa4096, 512)] {
        let pair = KeyPair::generate(size).unwrap();
        let der: aws_lc_rs::encoding::Pkcs8V1Der<'static> = pair.as_der().unwrap();
        let numbers = integers(der.as_ref());
        let [p, q, dp, dq, qinv] = [4, 5, 6, 7, 8].map(|at| numbers[at].as_slice());
        let key = RsaNumbers::new(len, [p, q, dp, dq, qinv]).expect("a usual key");
        // PKCS#1 1.5 is deterministic: the same signature as the library's, byte for byte.
        let digest = digest::digest(&digest::SHA256, b"message");
        const INFO: [u8; 19] = [
            0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05, 0x00, 0x04,
            0x20,
        ];
        let pad = vec![0xFF; len - 3 - INFO.len() - 32];
        let input = [&[0, 1][..], &pad, &[0], &INFO, digest.as_ref()].concat();
        submit(channel, &Request::Rsa { key: &key, input: &input }, 7);
        let [signature, _] = answer(settle(channel).remove(&7));
        let mut known = vec![0; len];
        let random = aws_lc_rs::rand::SystemRandom::new();
        let pair = aws_lc_rs::rsa::KeyPair::from_pkcs8(der.as_ref()).unwrap();
        pair.sign(&aws_lc_rs::signature::RSA_PKCS1_SHA256, &random, b"message", &mut known).unwrap();
        assert_eq!(signature, known);
    }
}

/// The integers of the RSA key in a PKCS#8 structure, in order.
fn integers(pkcs8: &[u8]) -> Vec<Vec<u8>> {
    fn walk(mut der: &[u8], found: &mut Vec<Vec<u8>>) {
        while let [tag, first, rest @ ..] = der {
            let (len, rest) = match first {
                0..0x80 => (usize::from(*first), rest),
                _ => {
                    let (len, rest) = rest.split_at(usize::from(first & 0x7F));
                    (len.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
                }
            };
            let (content, rest) = rest.split_at(len);
            match tag {
                0x02 => found.push(content.to_vec()),
                0x30 => walk(content, found),
                0x04 => {
                    found.clear();
                    walk(content, found);
                }
                _ => {}
            }
            der = rest;
        }
    }
    let mut found = Vec::new();
    walk(pkcs8, &mut found);
    found
}

/// RFC 7748, 5.2, the first vector; its scalar's public key from the library.
fn x25519(channel: &mut Channel) {
    let hex =
        |text: &str| -> [u8; 32] { std::array::from_fn(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()) };
    let scalar = hex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4");
    let point = hex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c");
    submit(channel, &Request::X25519 { scalar: &scalar, point: None }, 1);
    submit(channel, &Request::X25519 { scalar: &scalar, point: Some(&point) }, 2);
    let mut outcomes = settle(channel);
    let private = PrivateKey::from_private_key(&agreement::X25519, &scalar).unwrap();
    assert_eq!(answer(outcomes.remove(&1))[0], private.compute_public_key().unwrap().as_ref());
    let product = hex("c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552");
    assert_eq!(answer(outcomes.remove(&2))[0], product);
}

#[test]
fn what_keeps_a_device_from_being_used_is_one_sentence() {
    let missing = |symbol: &str| Double::new("").without(symbol);
    for (double, why) in [
        (Double::new("available 0"), "libqat sees no QuickAssist device"),
        (Double::new("starts 0"), "libqat does not start (status -1: the double talks as much as libqat does)"),
        (Double::new("instances 0"), "the device has no instance left for this process"),
        (Double::new("rsa 0\necdsa 0\necdh 0\nx25519 0"), "none of the device's 2 instances does public-key work"),
        (Double::new("layout 1"), "libqat is of another version: its structures have another layout"),
        (missing("cpaCyRsaDecrypt"), "libqat.so.4 is of another version: it lacks cpaCyRsaDecrypt"),
        (missing("icp_sal_CyPollInstance"), "libqat.so.4 is of another version: it lacks icp_sal_CyPollInstance"),
        (
            Double::new("unpinnable 1"),
            "no memory can be pinned for the device: LimitMEMLOCK, or the user's right to /dev/vfio",
        ),
    ] {
        assert_eq!(open(&double).err().map(|why| why.to_string()).as_deref(), Some(why));
        assert_eq!(double.violations(), [""; 0]);
    }
    let empty = Options { directory: Some(std::env::temp_dir().join("nothing is here")), ..Options::default() };
    assert_eq!(Device::open(&empty).err(), Some(Unavailable::NoLibrary));
    let other = Double::new("");
    for name in ["libqat.so.4", "libusdm.so.0"] {
        std::fs::rename(other.path().join(name), other.path().join(name.replace(['0', '4'], "3"))).unwrap();
    }
    assert_eq!(open(&other).err(), Some(Unavailable::Generation("libqat.so.3".into())));
    let half = Double::new("");
    std::fs::remove_file(half.path().join("libusdm.so.0")).unwrap();
    assert_eq!(open(&half).err(), Some(Unavailable::Unloadable("libusdm.so.0", "it is not there".into())));
}

#[test]
fn a_probe_opens_nothing() {
    let double = Double::new("");
    let options = Options { directory: Some(double.path().to_owned()), ..Options::default() };
    assert_eq!(Device::probe(&options), Ok(()));
    assert_eq!(double.log(), [""; 0]);
}

#[test]
fn a_full_ring_refuses_and_takes_again_when_it_has_room() {
    let (double, device) = opened("instances 1\nring 8\nservice_us 1000000");
    let mut channel = device.channel(1, None);
    for tag in 0..8 {
        submit(&mut channel, &small(), tag);
    }
    assert_eq!(channel.submit(&small(), 8, Instant::now() + SOON), Err(Refused::Full));
    assert_eq!((channel.depth(), channel.times_full()), (8, 1));
    double.command("instances 1\nring 9");
    submit(&mut channel, &small(), 8);
    drop(channel);
    drop(device);
    // The double was still at work when its library was stopped.
    ended_well(&double, 9);
}

#[test]
fn an_answer_after_its_deadline_goes_nowhere() {
    let (double, device) = opened("late 1\nlate_ms 60");
    let mut channel = device.channel(1, None);
    channel.submit(&small(), 1, Instant::now() + Duration::from_millis(10)).unwrap();
    assert!(matches!(settle(&mut channel).remove(&1), Some(Outcome::Late)));
    // Its slot is the device's until then: others get others.
    for tag in 2..40 {
        submit(&mut channel, &small(), tag);
    }
    assert_eq!(settle(&mut channel).len(), 38);
    std::thread::sleep(Duration::from_millis(60));
    channel.poll(Instant::now(), |_, _| panic!("nobody waits for it"));
    drop(channel);
    drop(device);
    ended_well(&double, 0);
}

#[test]
fn what_is_never_answered_is_kept_until_the_library_has_stopped() {
    let (double, device) = opened("silent 3");
    let mut channel = device.channel(1, None);
    for tag in 0..4 {
        channel.submit(&small(), tag, Instant::now() + Duration::from_millis(5)).unwrap();
    }
    let outcomes = settle(&mut channel);
    assert_eq!(outcomes.values().filter(|outcome| matches!(outcome, Outcome::Late)).count(), 3);
    drop(channel);
    assert_eq!(double.pinned(), Some(3));
    drop(device);
    ended_well(&double, 3);
}

#[test]
fn lost_slots_are_replaced_up_to_a_bound() {
    let (double, device) = opened("ring 1000\nsilent 1000");
    let mut channel = device.channel(1, None);
    let mut taken = 0;
    for _ in 0..8 {
        while channel.submit(&small(), 0, Instant::now()).is_ok() {
            taken += 1;
        }
        channel.poll(Instant::now(), |_, _| {});
    }
    assert_eq!((taken, channel.room()), (256, 0));
    drop(channel);
    drop(device);
    ended_well(&double, 256);
}

#[test]
fn a_request_that_fails_says_so_and_leaves_nothing() {
    let (double, device) = opened("fail 1");
    let mut channel = device.channel(1, None);
    submit(&mut channel, &small(), 1);
    assert!(matches!(settle(&mut channel).remove(&1), Some(Outcome::Failed(-1))));
    submit(&mut channel, &small(), 2);
    answer(settle(&mut channel).remove(&2));
    // A point at infinity has no coordinates.
    let order = "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551";
    let order: Vec<u8> = (0..32).map(|i| u8::from_str_radix(&order[2 * i..2 * i + 2], 16).unwrap()).collect();
    submit(&mut channel, &Request::Multiply { curve: Curve::P256, scalar: &order, point: None }, 3);
    assert!(matches!(settle(&mut channel).remove(&3), Some(Outcome::Failed(-1))));
    drop((channel, device));
    ended_well(&double, 0);
}

#[test]
fn a_reset_is_noticed_lived_through_and_ended() {
    let (double, device) = opened("service_us 1000000");
    let mut channel = device.channel(1, None);
    submit(&mut channel, &small(), 1);
    let wait = |channel: &mut Channel, outcomes: &mut Vec<(Tag, bool)>, until: &dyn Fn(&Channel) -> bool| {
        let end = Instant::now() + SOON;
        while !until(channel) && Instant::now() < end {
            channel.poll(Instant::now(), |tag, o| outcomes.push((tag, matches!(o, Outcome::Failed(_)))));
        }
        assert!(until(channel));
    };
    let mut outcomes = Vec::new();
    double.command("restart 1");
    wait(&mut channel, &mut outcomes, &|channel| !channel.is_up());
    assert_eq!(channel.submit(&small(), 2, Instant::now() + SOON), Err(Refused::Down));
    assert_eq!((channel.room(), device.healthy()), (0, 0));
    double.command("restart 2");
    wait(&mut channel, &mut outcomes, &Channel::is_up);
    wait(&mut channel, &mut outcomes, &|channel| channel.depth() == 0);
    assert_eq!(outcomes, [(1, true)], "what was in the ring is answered with an error");
    submit(&mut channel, &small(), 3);
    answer(settle(&mut channel).remove(&3));
    assert_eq!(device.restarts(), 2, "of two instances");
    drop((channel, device));
    ended_well(&double, 0);
}

#[test]
fn a_lost_device_takes_nothing_and_ends() {
    let (double, device) = opened("service_us 4000000");
    let mut channel = device.channel(1, None);
    channel.submit(&small(), 1, Instant::now() + Duration::from_millis(200)).unwrap();
    double.command("dead 1");
    assert!(matches!(settle(&mut channel).remove(&1), Some(Outcome::Late)));
    assert_eq!(channel.submit(&small(), 2, Instant::now() + SOON), Err(Refused::Down));
    assert_eq!(device.healthy(), 0);
    let began = Instant::now();
    drop((channel, device));
    assert!(began.elapsed() < Duration::from_millis(3500), "nothing is waited for");
    ended_well(&double, 1);
}

#[test]
fn instances_are_shared_out_evenly_and_by_node() {
    let (_double, device) = opened("instances 4\nnodes 2");
    // Two workers on two nodes: two instances each, of their own node.
    let mut workers = Vec::new();
    let mut near = |node| -> Vec<bool> {
        let before = device.instances();
        workers.push(device.channel(2, Some(node)));
        let after = device.instances();
        let mine = after.into_iter().zip(before).filter(|(after, before)| after.workers > before.workers);
        mine.map(|(after, _)| after.node == Some(node)).collect()
    };
    assert_eq!((near(0), near(1)), (vec![true; 2], vec![true; 2]));

    // More workers than instances: they share, no instance more than its part.
    let (_other, device) = opened("instances 2");
    let channels: Vec<Channel> = (0..5).map(|_| device.channel(5, None)).collect();
    let mut workers: Vec<u32> = device.instances().iter().map(|instance| instance.workers).collect();
    workers.sort_unstable();
    assert_eq!(workers, [2, 3]);
    drop(channels);
    assert!(device.instances().iter().all(|instance| instance.workers == 0));
}

#[test]
fn workers_that_share_an_instance_get_their_own_answers() {
    let (double, device) = opened("instances 1\nservice_us 100");
    let worker = |seed: u8| {
        let device = device.clone();
        move || {
            let mut channel = device.channel(4, None);
            for round in 0..20 {
                let scalars: Vec<[u8; 32]> = (0..8).map(|i| [seed ^ round ^ (i << 5); 32]).collect();
                for (tag, scalar) in scalars.iter().enumerate() {
                    let request = Request::X25519 { scalar, point: None };
                    while channel.submit(&request, tag as Tag, Instant::now() + SOON).is_err() {
                        channel.poll(Instant::now(), |_, _| {});
                    }
                }
                let mut outcomes = settle(&mut channel);
                for (tag, scalar) in scalars.iter().enumerate() {
                    let private = PrivateKey::from_private_key(&agreement::X25519, scalar).unwrap();
                    let known = private.compute_public_key().unwrap();
                    assert_eq!(answer(outcomes.remove(&(tag as Tag)))[0], known.as_ref());
                }
            }
        }
    };
    let threads: Vec<_> = (0..4).map(|seed| std::thread::spawn(worker(seed * 17 + 1))).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    drop(device);
    ended_well(&double, 0);
}

#[test]
fn the_device_is_reported_as_it_is() {
    let (_double, device) = opened("instances 3\ncompression 2\nx25519 0");
    assert_eq!((device.instances().len(), device.compression_instances()), (3, 2));
    assert_eq!((device.library(), device.instances()[0].part.as_str()), ("libqat.so.4", "double"));
    let capabilities = device.capabilities();
    assert!(capabilities.rsa && capabilities.ecdsa && capabilities.ecdh && !capabilities.x25519);
    let mut channel = device.channel(1, None);
    assert_eq!(channel.submit(&small(), 1, Instant::now() + SOON), Err(Refused::Down), "none can be asked this");
}
