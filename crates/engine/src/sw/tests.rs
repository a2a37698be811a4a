//! The budget of a turn, on planned costs alone: the clock stands still.

use super::{turn::PLANNED, *};
use crate::native;

const US: fn(u64) -> Duration = Duration::from_micros;

fn engine() -> Sw {
    let mut engine = Sw::new(Lanes::detect(), Costs::assumed(), Classes::default());
    engine.clock = Duration::default;
    engine
}

fn key(class: Class) -> Arc<SigningKey> {
    use aws_lc_rs::{
        encoding::AsDer,
        rand::SystemRandom,
        rsa::{KeyPair, KeySize},
        signature::{ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair},
    };
    let rsa = |size| KeyPair::generate(size).unwrap().as_der().unwrap().as_ref().to_vec();
    let ecdsa = |algorithm| EcdsaKeyPair::generate_pkcs8(algorithm, &SystemRandom::new()).unwrap().as_ref().to_vec();
    let key = SigningKey::from_der(match class {
        Class::Rsa2048 => rsa(KeySize::Rsa2048),
        Class::Rsa3072 => rsa(KeySize::Rsa3072),
        Class::Rsa4096 => rsa(KeySize::Rsa4096),
        Class::EcdsaP384 => ecdsa(&ECDSA_P384_SHA384_ASN1_SIGNING),
        _ => ecdsa(&ECDSA_P256_SHA256_ASN1_SIGNING),
    });
    let key = Arc::new(key.unwrap());
    prepare(&key);
    key
}

/// An operation of each class that lanes serve and that is queued; key pairs are at hand.
fn one_of_each() -> Vec<Op> {
    let sign = |(class, scheme)| Op::Sign { key: key(class), scheme, message: b"message".to_vec() };
    let mut ops: Vec<Op> = [
        (Class::Rsa2048, Scheme::RsaPssSha256),
        (Class::Rsa3072, Scheme::RsaPssSha384),
        (Class::Rsa4096, Scheme::RsaPkcs1Sha256),
        (Class::EcdsaP256, Scheme::EcdsaP256Sha256),
        (Class::EcdsaP384, Scheme::EcdsaP384Sha384),
    ]
    .map(sign)
    .into();
    for curve in [Curve::X25519, Curve::P256, Curve::P384] {
        let Ok(Answer::Pair { public: peer, .. }) = native::compute(&Op::KeyGen { curve }) else { panic!("no pair") };
        let private = Private::Scalar(curve, Secret::from(vec![0x42; curve.secret_len()]));
        ops.extend([Op::Derive { private, peer: peer.clone() }, Op::Agree { curve, peer }]);
    }
    let Ok(Answer::KemPair { public: peer, .. }) = native::compute(&Op::KemKeyGen) else { panic!("no pair") };
    ops.push(Op::KemEncapsulate { peer });
    ops
}

/// Runs one turn of the engine as the queue does; returns the time it has spent.
fn turn(engine: &mut Sw, before: Duration, answers: &mut Answers) -> Duration {
    engine.turn(before, answers) - before
}

#[test]
fn no_turn_spends_more_than_its_budget_and_every_class_comes_to_its_end() {
    let ops: Vec<Rc<Op>> = one_of_each().into_iter().map(Rc::new).collect();
    let mut engine = engine();
    let mut owed = 0;
    let (mut serial, mut longest) = (0, Duration::ZERO);
    let mut answered = [0; Class::COUNT];
    let mut answers = Vec::new();
    let mut asked = std::collections::HashMap::new();
    // While a class is free it gets its next full batch: every one of them always waits.
    for _ in 0..400 {
        for op in &ops {
            let class = op.class();
            if !engine.is_busy(class) {
                let mut batch: Batch = Vec::new();
                for _ in 0..LANES {
                    serial += 1;
                    batch.push((OpId::sample(serial), op.clone()));
                    asked.insert(OpId::sample(serial), class);
                }
                owed += batch.len();
                engine.start(&mut batch, Instant::now());
                assert!(batch.is_empty());
            }
        }
        longest = longest.max(turn(&mut engine, Duration::ZERO, &mut answers));
        for (id, answer) in answers.drain(..) {
            assert!(answer.is_ok(), "{:?}: {answer:?}", asked[&id]);
            answered[asked[&id] as usize] += 1;
            owed -= 1;
        }
    }
    // A call that costs more than is planned is a turn by itself.
    let largest = Costs::assumed().of(Class::P384Derive).lanes;
    assert!(longest <= PLANNED.max(largest) && longest < TURN_BUDGET, "{longest:?}");
    // Four hundred turns are 76 ms, of which long work has half: of three sizes, each a sixth.
    for op in &ops {
        let (class, of) = (op.class(), answered[op.class() as usize]);
        assert!(of >= LANES, "{class:?} was answered {of} times");
    }
    while engine.next(Instant::now()) != Next::Idle {
        turn(&mut engine, Duration::ZERO, &mut answers);
        owed -= answers.drain(..).count();
    }
    assert_eq!(owed, 0);
}

#[test]
fn what_was_computed_natively_in_a_turn_is_not_computed_again_in_lanes() {
    let ops = one_of_each();
    let rsa = Rc::new(ops.into_iter().find(|op| op.class() == Class::Rsa2048).unwrap());
    let mut engine = engine();
    engine.start(&mut (0..8).map(|serial| (OpId::sample(serial), rsa.clone())).collect(), Instant::now());
    let mut answers = Vec::new();
    let spent = PLANNED - US(5);
    let first = turn(&mut engine, spent, &mut answers);
    assert!(first <= US(5), "{first:?} of the 5 that were left");
    // Where nothing at all was done, one piece is, however full the turn is already.
    let second = turn(&mut engine, spent, &mut answers);
    assert!(second > Duration::ZERO && second < US(100), "{second:?}");
}

#[test]
fn a_clock_that_runs_faster_than_planned_ends_the_turn() {
    thread_local! {
        static NOW: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }
    let ops = one_of_each();
    let mut engine = engine();
    // Whatever is done takes 100 µs.
    engine.clock = || Duration::from_micros(NOW.replace(NOW.get() + 100));
    for op in ops {
        engine.start(&mut vec![(OpId::sample(op.class() as u64), Rc::new(op))], Instant::now());
    }
    let pieces = |engine: &mut Sw| {
        let before = NOW.get();
        engine.run(Instant::now(), Duration::ZERO, &mut Vec::new());
        (NOW.get() - before) / 100 - 1
    };
    for _ in 0..20 {
        assert!((1..=3).contains(&pieces(&mut engine)));
    }
}

#[test]
fn what_would_hold_a_worker_up_for_long_is_computed_in_lanes_at_any_fill() {
    // Models lanes that are slower than the library with one operation.
    let slow = Class::ALL.into_iter().fold(Costs::assumed(), |costs, class| costs.with_break_even(class, 2));
    let engine = Sw::new(Lanes::detect(), slow, Classes::default());
    for class in [Class::Rsa2048, Class::Rsa3072, Class::Rsa4096] {
        assert_eq!(engine.break_even(class), 1);
        assert!(engine.worth_alone(class, true) && !engine.worth_alone(class, false), "{class:?}");
    }
    for class in [Class::EcdsaP256, Class::EcdsaP384, Class::X25519Agree] {
        assert!(engine.break_even(class) > 1 && !engine.worth_alone(class, true), "{class:?}");
    }
}

#[test]
fn what_lanes_do_sooner_than_the_library_is_theirs_at_any_fill() {
    let engine = engine();
    for class in [Class::Rsa2048, Class::Rsa3072, Class::Rsa4096] {
        assert_eq!(engine.break_even(class), 1);
        assert!(engine.worth_alone(class, true) && engine.worth_alone(class, false), "{class:?}");
    }
}
