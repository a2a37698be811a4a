//! The engines `hw` and `hw+sw` through the device double: every class, and whatever a device can do wrong. Any figure measured
//! here would be the double's.

use penstock_engine::{
    Answer, Both, Class, Classes, Curve, Engine, Failure, Forecast, Next, Op, Private, Queue, Scheme, Secret, Settings,
    SigningKey, Ticket, compute,
    hw::{DEADLINE, Hardware, Hw, Options, Unusable},
    sw::{Costs, Sw},
};
use penstock_lanes::Lanes;
use penstock_qat_double::Double;
use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

fn open(double: &Double, workers: usize) -> Result<Arc<Hardware>, Unusable> {
    Hardware::open(&Options { directory: Some(double.path().to_owned()), ..Options::default() }, workers)
}

fn hw(hardware: &Hardware) -> Hw {
    Hw::new(hardware, Classes::default(), Lanes::detect(), Costs::assumed())
}

fn alone(hardware: &Hardware) -> Queue {
    queue(Box::new(hw(hardware)))
}

fn queue(engine: Box<dyn Engine>) -> Queue {
    Queue::new(engine, Settings { deadline: DEADLINE, ..Settings::default() })
}

/// With lanes, or where the processor has none with the library.
fn both(hardware: &Hardware) -> Queue {
    both_at(hardware, Costs::assumed())
}

/// Like [`both`], but with all except the device so slow that the device is given whatever it can take, however fast this machine
/// is.
fn device_first(hardware: &Hardware) -> Queue {
    both_at(hardware, Costs::assumed().times(1000))
}

fn both_at(hardware: &Hardware, costs: Costs) -> Queue {
    let lanes = Lanes::detect();
    let sw = lanes.is_accelerated().then(|| Sw::new(lanes, costs, Classes::default()));
    let settings = Settings { deadline: Duration::from_secs(10), ..Settings::default() };
    Queue::new(Box::new(Both::new(hw(hardware), sw, costs)), settings)
}

fn keys() -> &'static [Arc<SigningKey>] {
    static KEYS: OnceLock<Vec<Arc<SigningKey>>> = OnceLock::new();
    KEYS.get_or_init(|| {
        use aws_lc_rs::{
            encoding::AsDer,
            rand::SystemRandom,
            rsa::{KeyPair, KeySize},
            signature::{ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair},
        };
        let rsa = |size| KeyPair::generate(size).unwrap().as_der().unwrap().as_ref().to_vec();
        let ecdsa =
            |algorithm| EcdsaKeyPair::generate_pkcs8(algorithm, &SystemRandom::new()).unwrap().as_ref().to_vec();
        let made = [
            rsa(KeySize::Rsa2048),
            rsa(KeySize::Rsa3072),
            rsa(KeySize::Rsa4096),
            ecdsa(&ECDSA_P256_SHA256_ASN1_SIGNING),
            ecdsa(&ECDSA_P384_SHA384_ASN1_SIGNING),
        ];
        made.into_iter()
            .map(|der| {
                let key = SigningKey::from_der(der).unwrap();
                penstock_engine::sw::prepare(&key);
                Arc::new(key)
            })
            .collect()
    })
}

/// The operations of one of each kind, and how each answer is known to be right.
struct Asked {
    ticket: Ticket,
    right: Box<dyn Fn(Answer) -> bool>,
}

fn shared(private: Private, peer: &[u8]) -> Vec<u8> {
    match compute(&Op::Derive { private, peer: peer.to_vec() }) {
        Ok(Answer::Shared(secret)) => secret.expose().to_vec(),
        other => panic!("{other:?}"),
    }
}

fn pair(curve: Curve) -> (Vec<u8>, Private) {
    match compute(&Op::KeyGen { curve }) {
        Ok(Answer::Pair { public, private }) => (public, private),
        other => panic!("{other:?}"),
    }
}

fn sign(queue: &mut Queue, key: &Arc<SigningKey>, scheme: Scheme) -> Asked {
    let op = Op::Sign { key: key.clone(), scheme, message: b"to be signed".to_vec() };
    let key = key.clone();
    let right = move |answer| match answer {
        Answer::Signature(signature) => key.verify(scheme, b"to be signed", &signature),
        _ => false,
    };
    Asked { ticket: queue.submit(op, 0, Instant::now()), right: Box::new(right) }
}

fn exchange(queue: &mut Queue, curve: Curve) -> [Asked; 3] {
    let mut ask =
        |op: Op, right: Box<dyn Fn(Answer) -> bool>| Asked { ticket: queue.submit(op, 0, Instant::now()), right };
    let agree = {
        let (peer, private) = pair(curve);
        let private = std::cell::RefCell::new(Some(private));
        let right = move |answer| match answer {
            Answer::Agreed { public, secret } => shared(private.take().unwrap(), &public) == secret.expose(),
            _ => false,
        };
        ask(Op::Agree { curve, peer }, Box::new(right))
    };
    let keygen = {
        let right = move |answer| match answer {
            Answer::Pair { public, private } => {
                let (peer, other) = pair(curve);
                shared(private, &peer) == shared(other, &public)
            }
            _ => false,
        };
        ask(Op::KeyGen { curve }, Box::new(right))
    };
    let derive = {
        let scalar = || Private::Scalar(curve, Secret::from(vec![0x35; curve.secret_len()]));
        let (peer, _) = pair(curve);
        let known = shared(scalar(), &peer);
        let right = move |answer| matches!(answer, Answer::Shared(secret) if secret.expose() == known);
        ask(Op::Derive { private: scalar(), peer }, Box::new(right))
    };
    [agree, keygen, derive]
}

/// One of everything.
fn everything(queue: &mut Queue) -> Vec<Asked> {
    let mut asked = Vec::new();
    for key in keys() {
        for scheme in key.schemes() {
            asked.push(sign(queue, key, *scheme));
        }
    }
    for curve in [Curve::X25519, Curve::P256, Curve::P384] {
        asked.extend(exchange(queue, curve));
    }
    asked
}

/// A signature by each key, unless none waits here at present.
fn sign_if_served(queue: &mut Queue) -> Vec<Asked> {
    let keys = if queue.serves(Class::Rsa2048) { keys() } else { &[] };
    keys.iter().map(|key| sign(queue, key, key.schemes()[0])).collect()
}

/// Turns until all is answered, within some seconds.
fn settle(queue: &mut Queue, asked: &[Asked]) {
    let until = Instant::now() + Duration::from_secs(20);
    while asked.iter().any(|asked| !asked.ticket.is_ready()) {
        assert!(Instant::now() < until, "something is never answered");
        if let Next::At(time) = queue.turn(Instant::now(), false) {
            std::thread::sleep(time.saturating_duration_since(Instant::now()).min(Duration::from_millis(1)));
        }
    }
}

#[track_caller]
fn all_right(queue: &mut Queue, asked: Vec<Asked>) {
    settle(queue, &asked);
    for asked in asked {
        assert!((asked.right)(asked.ticket.take().expect("an answer")));
    }
}

#[track_caller]
fn ended_well(double: &Double) {
    assert_eq!(double.violations(), [""; 0]);
    assert_eq!(double.pinned(), Some(0));
}

fn faults(queue: &Queue) -> (u64, u64, u64, u64) {
    let mut sum = penstock_engine::Counters::default();
    sum.add(queue.counters());
    let of = |value: fn(&penstock_engine::ClassCounters) -> u64| sum.classes.iter().map(value).sum();
    (of(|c| c.wrong), of(|c| c.late), of(|c| c.failed), of(|c| c.redone))
}

#[test]
fn everything_is_computed_rightly_by_the_device_and_by_both() {
    for (engine, by_device) in [(alone as fn(&Hardware) -> Queue, true), (both, false), (device_first, true)] {
        let double = Double::new("");
        let hardware = open(&double, 1).unwrap();
        let mut queue = engine(&hardware);
        for _ in 0..3 {
            let asked = everything(&mut queue);
            all_right(&mut queue, asked);
        }
        assert_eq!(faults(&queue), (0, 0, 0, 0));
        let report = queue.device().expect("it has a device");
        assert!(!by_device || report.counters.given[Class::Rsa4096 as usize] > 0, "the device was used");
        drop((queue, hardware));
        ended_well(&double);
    }
}

#[test]
fn wrong_answers_never_leave_and_bench_the_device() {
    for engine in [alone, device_first] {
        let double = Double::new("");
        let hardware = open(&double, 1).unwrap();
        let mut queue = engine(&hardware);
        double.command("wrong 1000000");
        let asked = everything(&mut queue);
        all_right(&mut queue, asked);
        let report = queue.device().unwrap();
        assert_eq!((report.counters.benched, report.counters.is_benched), (1, 1));
        // Lanes go on where there are any; a device alone leaves everything to the library.
        assert_eq!(queue.serves(Class::Rsa2048), queue.name() == "hw+sw" && Lanes::detect().is_accelerated());
        drop((queue, hardware));
        ended_well(&double);
    }
}

#[test]
fn a_benched_device_is_used_again_once_it_answers_rightly() {
    let double = Double::new("");
    let hardware = open(&double, 1).unwrap();
    let settings = Settings { deadline: DEADLINE, bench: Duration::from_millis(20), ..Settings::default() };
    let mut queue = Queue::new(Box::new(hw(&hardware)), settings);
    double.command("wrong 1");
    let asked = vec![sign(&mut queue, &keys()[0], Scheme::RsaPssSha256)];
    all_right(&mut queue, asked);
    assert!(!queue.serves(Class::Rsa2048));
    let until = Instant::now() + Duration::from_secs(5);
    while !queue.serves(Class::Rsa2048) && Instant::now() < until {
        queue.turn(Instant::now(), false);
    }
    let asked = everything(&mut queue);
    all_right(&mut queue, asked);
    assert_eq!((faults(&queue).0, queue.counters().benched), (1, 1));
    drop((queue, hardware));
    ended_well(&double);
}

#[test]
fn what_is_not_answered_is_redone_and_its_memory_kept() {
    for engine in [alone, device_first] {
        let double = Double::new("");
        let hardware = open(&double, 1).unwrap();
        let mut queue = engine(&hardware);
        double.command("silent 3");
        let asked = everything(&mut queue);
        let began = Instant::now();
        all_right(&mut queue, asked);
        assert!(began.elapsed() >= DEADLINE);
        drop((queue, hardware));
        ended_well(&double);
    }
}

#[test]
fn an_answer_after_its_deadline_changes_nothing() {
    let double = Double::new("");
    let hardware = open(&double, 1).unwrap();
    let mut queue = alone(&hardware);
    double.command("late 2\nlate_ms 130");
    let first =
        vec![sign(&mut queue, &keys()[0], Scheme::RsaPssSha256), sign(&mut queue, &keys()[3], Scheme::EcdsaP256Sha256)];
    all_right(&mut queue, first);
    assert_eq!(faults(&queue), (0, 2, 0, 2));
    // They arrive while others are under way.
    let until = Instant::now() + Duration::from_millis(80);
    while Instant::now() < until {
        let asked = everything(&mut queue);
        all_right(&mut queue, asked);
    }
    assert_eq!(faults(&queue), (0, 2, 0, 2));
    drop((queue, hardware));
    ended_well(&double);
}

#[test]
fn a_device_that_fails_everything_is_benched_after_a_few() {
    let double = Double::new("");
    let hardware = open(&double, 1).unwrap();
    let mut queue = alone(&hardware);
    double.command("fail 1000000");
    let asked = everything(&mut queue);
    all_right(&mut queue, asked);
    let (wrong, late, failed, redone) = faults(&queue);
    assert!(wrong == 0 && late == 0 && failed >= 4 && redone >= failed);
    assert!(!queue.serves(Class::EcdsaP256));
    drop((queue, hardware));
    ended_well(&double);
}

#[test]
fn a_full_ring_holds_operations_up_and_loses_none() {
    for engine in [alone, device_first] {
        let double = Double::new("");
        let hardware = open(&double, 1).unwrap();
        let mut queue = engine(&hardware);
        double.command("ring 3\nretry 50");
        let asked: Vec<Asked> = (0..5).flat_map(|_| everything(&mut queue)).collect();
        all_right(&mut queue, asked);
        // On a slow machine some may be late.
        let (wrong, _, failed, _) = faults(&queue);
        assert_eq!((wrong, failed), (0, 0));
        let report = queue.device().unwrap();
        assert!(report.counters.ring_full > 0, "{report:?}");
        drop((queue, hardware));
        ended_well(&double);
    }
}

#[test]
fn a_reset_is_lived_through() {
    for engine in [alone, device_first] {
        let double = Double::new("");
        let hardware = open(&double, 1).unwrap();
        let mut queue = engine(&hardware);
        double.command("restart 1");
        let asked = everything(&mut queue);
        all_right(&mut queue, asked);
        double.command("restart 2");
        let until = Instant::now() + Duration::from_secs(10);
        while hardware.device().restarts() < 2 && Instant::now() < until {
            // The device is asked for news in turns, which there are while there is work.
            let asked = sign_if_served(&mut queue);
            all_right(&mut queue, asked);
            queue.turn(Instant::now(), false);
        }
        assert_eq!(hardware.device().restarts(), 2, "of two instances");
        drop((queue, hardware));
        ended_well(&double);
    }
}

#[test]
fn a_device_that_is_lost_is_done_without() {
    for engine in [alone, both] {
        let double = Double::new("");
        let hardware = open(&double, 1).unwrap();
        let mut queue = engine(&hardware);
        let before = everything(&mut queue);
        queue.turn(Instant::now(), false);
        double.command("dead 1");
        all_right(&mut queue, before);
        let asked = sign_if_served(&mut queue);
        all_right(&mut queue, asked);
        drop((queue, hardware));
        ended_well(&double);
    }
}

#[test]
fn a_worker_that_stops_answers_what_its_device_has_not() {
    for engine in [alone, both] {
        let double = Double::new("service_us 3000");
        let hardware = open(&double, 1).unwrap();
        let mut queue = engine(&hardware);
        let asked = everything(&mut queue);
        queue.turn(Instant::now(), false);
        queue.drain(Instant::now());
        for asked in asked {
            assert!((asked.right)(asked.ticket.take().expect("an answer")));
        }
        drop((queue, hardware));
        ended_well(&double);
    }
}

#[test]
fn tickets_may_be_dropped_while_the_device_works() {
    let double = Double::new("service_us 200");
    let hardware = open(&double, 1).unwrap();
    let mut queue = alone(&hardware);
    for _ in 0..5 {
        drop(everything(&mut queue));
        queue.turn(Instant::now(), false);
        let kept = everything(&mut queue);
        all_right(&mut queue, kept);
    }
    drop((queue, hardware));
    ended_well(&double);
}

#[test]
fn more_workers_than_instances_share_them() {
    let double = Double::new("instances 2\nring 8");
    let hardware = open(&double, 5).unwrap();
    let worker = |engine: fn(&Hardware) -> Queue| {
        let hardware = hardware.clone();
        move || {
            let mut queue = engine(&hardware);
            for _ in 0..3 {
                let asked = everything(&mut queue);
                all_right(&mut queue, asked);
            }
            let (wrong, _, failed, _) = faults(&queue);
            (wrong, failed)
        }
    };
    keys();
    let threads: Vec<_> = [alone, alone, both, both, both].map(|engine| std::thread::spawn(worker(engine))).into();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), (0, 0));
    }
    drop(hardware);
    ended_well(&double);
}

#[test]
fn each_operation_goes_where_it_is_answered_first() {
    let rounds = |commands: &str, costs: Costs| {
        let double = Double::new(commands);
        let hardware = open(&double, 1).unwrap();
        let mut queue = both_at(&hardware, costs);
        let mut asked_all = 0;
        for _ in 0..12 {
            let asked: Vec<Asked> = (0..16).map(|_| sign(&mut queue, &keys()[0], Scheme::RsaPssSha256)).collect();
            asked_all += asked.len() as u64;
            all_right(&mut queue, asked);
        }
        assert_eq!(faults(&queue), (0, 0, 0, 0));
        let given = queue.device().unwrap().counters.given[Class::Rsa2048 as usize];
        drop((queue, hardware));
        ended_well(&double);
        given * 100 / asked_all
    };
    // In percent: a device that is quicker than lanes of 80 ms a call does most of it; one that needs 20 ms next to nothing
    // beside lanes of less than one.
    let slow_lanes = Costs::assumed().with_break_even(Class::Rsa2048, 200);
    let quick = rounds("engines 64", slow_lanes);
    let slow = rounds("service_us 20000\nengines 1", Costs::assumed());
    assert!(!Lanes::detect().is_accelerated() || (quick > 60 && slow < 20), "{quick} % and {slow} %");
}

#[test]
fn a_device_that_was_slow_is_tried_again() {
    if !Lanes::detect().is_accelerated() {
        return;
    }
    let double = Double::new("service_us 20000");
    let hardware = open(&double, 1).unwrap();
    let mut queue = both(&hardware);
    for _ in 0..24 {
        let asked: Vec<Asked> = (0..16)
            .map(|_| {
                let op = Op::Sign { key: keys()[3].clone(), scheme: Scheme::EcdsaP256Sha256, message: Vec::new() };
                assert!(queue.wants(&op, false, true));
                sign(&mut queue, &keys()[3], Scheme::EcdsaP256Sha256)
            })
            .collect();
        all_right(&mut queue, asked);
    }
    let given = queue.device().unwrap().counters.given[Class::EcdsaP256 as usize];
    assert!((1..=3).contains(&given), "{given} of 384");
}

#[test]
fn a_device_that_answers_wrongly_or_never_is_not_begun_with() {
    let wrong = open(&Double::new("wrong 1000000"), 1).err().map(|why| why.to_string());
    assert_eq!(wrong.as_deref(), Some("the device answers wrongly (rsa2048)"));
    let silent = open(&Double::new("silent 1000000"), 1).err().map(|why| why.to_string());
    assert_eq!(silent.as_deref(), Some("the device does not answer (rsa2048)"));
    let none = open(&Double::new("available 0"), 1).err().map(|why| why.to_string());
    assert_eq!(none.as_deref(), Some("libqat sees no QuickAssist device"));
    // Only RSA is wrong: the rest is used.
    let double = Double::new("wrong 1");
    let hardware = open(&double, 1).unwrap();
    assert!(!hardware.can(Class::Rsa4096) && hardware.can(Class::P256Agree) && hardware.can(Class::EcdsaP384));
    let queue = alone(&hardware);
    assert!(!queue.serves(Class::Rsa2048) && queue.serves(Class::EcdsaP256));
}

#[test]
fn a_wrong_secret_is_found_by_computing_some_again() {
    let double = Double::new("rsa 0\necdsa 0\necdh 0");
    let hardware = open(&double, 1).unwrap();
    let mut queue = alone(&hardware);
    double.command("wrong 1000000");
    let asked: Vec<Asked> = exchange(&mut queue, Curve::X25519).into();
    all_right(&mut queue, asked);
    assert!(!queue.serves(Class::X25519Agree) && faults(&queue).0 > 0);
}

#[test]
fn a_failed_handshake_has_the_next_exchanges_computed_again() {
    let double = Double::new("");
    let hardware = open(&double, 1).unwrap();
    let mut queue = alone(&hardware);
    let exchange = |queue: &mut Queue| {
        let asked = exchange(queue, Curve::X25519);
        settle(queue, &asked);
    };
    exchange(&mut queue);
    // The wrong answer goes unnoticed, and a handshake fails because of it.
    double.command("wrong 1");
    exchange(&mut queue);
    assert_eq!(queue.counters().benched, 0);
    queue.suspect();
    double.command("wrong 2");
    exchange(&mut queue);
    assert_eq!((queue.counters().benched, queue.device().unwrap().counters.suspected), (1, 1));
}

#[test]
fn a_bad_key_of_the_peer_is_the_peers_fault_and_never_the_devices() {
    let double = Double::new("");
    let hardware = open(&double, 1).unwrap();
    let mut queue = alone(&hardware);
    for _ in 0..8 {
        for op in [
            Op::Agree { curve: Curve::P256, peer: [&[4][..], &[7; 64]].concat() },
            Op::Agree { curve: Curve::P384, peer: [&[2][..], &[7; 96]].concat() },
            Op::Agree { curve: Curve::X25519, peer: vec![0; 32] },
        ] {
            let asked = Asked { ticket: queue.submit(op, 0, Instant::now()), right: Box::new(|_| false) };
            settle(&mut queue, std::slice::from_ref(&asked));
            assert_eq!(asked.ticket.take().err(), Some(Failure::PeerKey));
        }
    }
    assert!(queue.serves(Class::P256Agree), "nobody benches a device by sending nonsense");
    let given = queue.device().unwrap().counters.given;
    assert_eq!((given[Class::P256Agree as usize], given[Class::P384Agree as usize]), (0, 0));
}

#[test]
fn limits_of_algo_hold_for_the_device() {
    let double = Double::new("");
    let hardware = open(&double, 1).unwrap();
    let rsa = Classes::parse("RSA").unwrap();
    let engine = Hw::new(&hardware, rsa, Lanes::detect(), Costs::assumed());
    assert_eq!(
        (engine.lanes(Class::Rsa2048), engine.lanes(Class::P256Agree), engine.lanes(Class::EcdsaP256)),
        (1, 0, 0)
    );
}

#[test]
fn a_device_gets_unasked_what_costs_less_by_it() {
    let double = Double::new("");
    let hardware = open(&double, 1).unwrap();
    let costs = Costs::assumed();
    for lanes in [Lanes::portable(), Lanes::detect()] {
        assert!([Class::Rsa2048, Class::Rsa3072, Class::Rsa4096].iter().all(|rsa| hardware.pays(*rsa, &costs, lanes)));
        // Verifying what it signed costs more than signing.
        assert!(!hardware.pays(Class::EcdsaP256, &costs, lanes));
    }
    assert!(hardware.pays(Class::P256Derive, &costs, Lanes::portable()));
}
