//! The queue under a virtual clock: what is promised of every engine, held by engines that do their worst.

use penstock_engine::{
    Answer, Class, Curve, Failure, Next, Op, Private, Queue, Scheme, Secret, Settings, SigningKey, Ticket, compute,
    doubles::{Double, Manner},
    policy::Limits,
};
use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

const MS: fn(u64) -> Duration = Duration::from_millis;

struct Clock(Instant);

impl Clock {
    fn new() -> Clock {
        Clock(Instant::now())
    }
    fn at(&self, time: Duration) -> Instant {
        self.0 + time
    }
}

fn queue(manner: Manner) -> Queue {
    Queue::new(Double::new(manner, 4), Settings { deadline: MS(50), bench: MS(1000), ..Settings::default() })
}

fn key() -> Arc<SigningKey> {
    static KEY: OnceLock<Arc<SigningKey>> = OnceLock::new();
    let made = || {
        use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
        let random = aws_lc_rs::rand::SystemRandom::new();
        let der = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        Arc::new(SigningKey::from_der(der.as_ref().to_vec()).unwrap())
    };
    KEY.get_or_init(made).clone()
}

fn sign() -> Op {
    Op::Sign { key: key(), scheme: Scheme::EcdsaP256Sha256, message: b"to be signed".to_vec() }
}

fn agree() -> Op {
    let Ok(Answer::Pair { public, .. }) = compute(&Op::KeyGen { curve: Curve::X25519 }) else { panic!() };
    Op::Agree { curve: Curve::X25519, peer: public }
}

#[track_caller]
fn signed(ticket: &Ticket) {
    let Ok(Answer::Signature(signature)) = ticket.take() else { panic!("no signature") };
    assert!(key().verify(Scheme::EcdsaP256Sha256, b"to be signed", &signature));
}

#[test]
fn a_batch_waits_while_the_worker_adds_to_it_and_closes_when_it_does_not() {
    let (mut queue, clock) = (queue(Manner::Prompt), Clock::new());
    let first = queue.submit(sign(), 0, clock.at(MS(0)));
    assert_eq!(queue.turn(clock.at(MS(0)), true), Next::Soon);
    let second = queue.submit(agree(), 0, clock.at(MS(0)));
    assert!(!first.is_ready());
    assert_eq!(queue.turn(clock.at(MS(0)), false), Next::Idle);
    signed(&first);
    assert!(matches!(second.take(), Ok(Answer::Agreed { .. })));
}

#[test]
fn a_full_class_or_an_old_operation_closes_it_in_spite_of_other_work() {
    let (mut queue, clock) = (queue(Manner::Prompt), Clock::new());
    let tickets: Vec<_> = (0..4).map(|_| queue.submit(sign(), 0, clock.at(MS(0)))).collect();
    queue.turn(clock.at(MS(0)), true);
    tickets.iter().for_each(signed);

    let lone = queue.submit(sign(), 0, clock.at(MS(10)));
    assert_eq!(queue.turn(clock.at(MS(10)), true), Next::Soon);
    queue.turn(clock.at(MS(10)) + Limits::default().age_max, true);
    signed(&lone);
}

#[test]
fn an_engine_that_is_replaced_leaves_nothing_unanswered() {
    let (mut queue, clock) = (queue(Manner::Never), Clock::new());
    let started: Vec<_> = (0..5).map(|_| queue.submit(sign(), 0, clock.at(MS(0)))).collect();
    queue.turn(clock.at(MS(0)), false);
    let waiting = queue.submit(sign(), 0, clock.at(MS(1)));
    let before = queue.submitted();
    queue.replace(Double::new(Manner::Prompt, 4), Settings::default());
    assert!(queue.submitted() > before, "the driver is told of it");
    while queue.turn(clock.at(MS(1)), false) == Next::Soon {}
    started.iter().chain([&waiting]).for_each(signed);
    assert_eq!(queue.counters().class(Class::EcdsaP256).redone, 0);
}

#[test]
fn an_engine_that_is_replaced_while_it_is_benched_leaves_the_bench() {
    let (mut queue, clock) = (queue(Manner::Wrong), Clock::new());
    let wrong = queue.submit(sign(), 0, clock.at(MS(0)));
    queue.turn(clock.at(MS(0)), false);
    signed(&wrong);
    // Its trial is under way, and belongs to no engine once this one goes.
    queue.replace(Double::new(Manner::Never, 4), Settings { deadline: MS(50), late_max: 1, ..Settings::default() });
    let late = queue.submit(sign(), 0, clock.at(MS(1)));
    queue.turn(clock.at(MS(1)), false);
    queue.turn(clock.at(MS(51)), false);
    signed(&late);
    queue.turn(clock.at(MS(1100)), false);
    assert!(queue.counters().is_benched);
    queue.replace(Double::new(Manner::Prompt, 4), Settings::default());
    assert!(!queue.counters().is_benched && queue.serves(Class::EcdsaP256));
    let right = queue.submit(sign(), 0, clock.at(MS(1101)));
    while queue.turn(clock.at(MS(1101)), false) == Next::Soon {}
    signed(&right);
    assert_eq!((queue.counters().class(Class::EcdsaP256).ops, queue.counters().benched), (3, 2));
}

#[test]
fn a_batch_delay_is_waited_for_and_no_longer() {
    let limits = Limits { delay: Duration::from_micros(300), ..Limits::default() };
    let settings = Settings { limits, ..Settings::default() };
    let (mut queue, clock) = (Queue::new(Double::new(Manner::Prompt, 4), settings), Clock::new());
    let ticket = queue.submit(sign(), 0, clock.at(MS(0)));
    let until = clock.at(Duration::from_micros(300));
    assert_eq!(queue.turn(clock.at(MS(0)), false), Next::At(until));
    assert!(!ticket.is_ready());
    queue.turn(until, false);
    signed(&ticket);
}

#[test]
fn what_is_never_answered_is_redone_at_its_deadline() {
    let (mut queue, clock) = (queue(Manner::Never), Clock::new());
    let ticket = queue.submit(sign(), 0, clock.at(MS(0)));
    assert_eq!(queue.turn(clock.at(MS(0)), false), Next::At(clock.at(MS(50))));
    queue.turn(clock.at(MS(49)), false);
    assert!(!ticket.is_ready());
    queue.turn(clock.at(MS(50)), false);
    signed(&ticket);
}

#[test]
fn an_answer_that_comes_after_its_redo_changes_nothing() {
    let (mut queue, clock) = (queue(Manner::Late(MS(60))), Clock::new());
    let ticket = queue.submit(sign(), 0, clock.at(MS(0)));
    queue.turn(clock.at(MS(0)), false);
    queue.turn(clock.at(MS(50)), false);
    signed(&ticket);
    // The engine's own answer arrives now, while its place in the table belongs to another.
    let next = queue.submit(agree(), 0, clock.at(MS(60)));
    queue.turn(clock.at(MS(61)), false);
    queue.turn(clock.at(MS(130)), false);
    assert!(matches!(next.take(), Ok(Answer::Agreed { .. })));
}

#[test]
fn a_dropped_ticket_is_forgotten_wherever_its_operation_is() {
    for manner in [Manner::Prompt, Manner::Late(MS(10)), Manner::Never, Manner::Wrong, Manner::Full] {
        let (mut queue, clock) = (queue(manner), Clock::new());
        drop(queue.submit(sign(), 0, clock.at(MS(0))));
        let kept = queue.submit(sign(), 0, clock.at(MS(0)));
        queue.turn(clock.at(MS(0)), false);
        drop(queue.submit(sign(), 0, clock.at(MS(0))));
        for ms in [0, 10, 20, 50, 60, 110] {
            queue.turn(clock.at(MS(ms)), false);
        }
        signed(&kept);
    }
}

#[test]
fn a_wrong_engine_is_benched_at_once_and_tried_again_at_growing_intervals() {
    let (mut queue, clock) = (queue(Manner::WrongAtFirst(3)), Clock::new());
    let ticket = queue.submit(sign(), 0, clock.at(MS(0)));
    queue.turn(clock.at(MS(0)), false);
    signed(&ticket);
    assert!(!queue.serves(Class::EcdsaP256));
    // Trials at 1 s, 2 s later, 4 s later; two of them are answered wrongly as well.
    for (ms, benched) in [(999, true), (1000, true), (2999, true), (3000, true), (6999, true), (7000, false)] {
        queue.turn(clock.at(MS(ms)), false);
        queue.turn(clock.at(MS(ms)), false);
        assert_eq!(!queue.serves(Class::EcdsaP256), benched, "at {ms} ms");
    }
}

#[test]
fn an_engine_that_went_silent_is_tried_without_anybody_waiting_for_it() {
    let (mut queue, clock) = (queue(Manner::Never), Clock::new());
    let tickets: Vec<_> = (0..4).map(|_| queue.submit(sign(), 0, clock.at(MS(0)))).collect();
    queue.turn(clock.at(MS(0)), false);
    queue.turn(clock.at(MS(50)), false);
    tickets.iter().for_each(signed);
    assert!(!queue.serves(Class::EcdsaP256), "four late ones in a row");
    let mut now = MS(50);
    for _ in 0..12 {
        let Next::At(next) = queue.turn(clock.at(now), false) else { panic!("a benched queue wakes itself") };
        assert!(next > clock.at(now), "it never spins");
        now = next - clock.0;
    }
    assert!(!queue.serves(Class::EcdsaP256));
}

#[test]
fn a_queue_that_stops_answers_what_it_owes() {
    let (mut queue, clock) = (queue(Manner::Never), Clock::new());
    let started = queue.submit(sign(), 0, clock.at(MS(0)));
    queue.turn(clock.at(MS(0)), false);
    let queued = queue.submit(sign(), 0, clock.at(MS(1)));
    queue.drain(clock.at(MS(1)));
    signed(&started);
    signed(&queued);
}

#[test]
fn a_bad_key_of_the_peer_is_the_peers_fault_on_every_engine() {
    // A point that is not on the curve, and X25519's zero.
    let bad = [
        Op::Agree { curve: Curve::P256, peer: [&[4][..], &[7; 64]].concat() },
        Op::Agree { curve: Curve::P256, peer: [&[2][..], &[7; 32]].concat() },
        Op::Agree { curve: Curve::X25519, peer: vec![0; 32] },
        Op::Agree { curve: Curve::X25519, peer: vec![9; 31] },
        Op::KemEncapsulate { peer: vec![0xFF; 1184] },
    ];
    for op in bad {
        assert_eq!(compute(&op).err(), Some(Failure::PeerKey));
        let (mut queue, clock) = (queue(Manner::Prompt), Clock::new());
        let ticket = queue.submit(op, 0, clock.at(MS(0)));
        queue.turn(clock.at(MS(0)), false);
        assert_eq!(ticket.take().err(), Some(Failure::PeerKey));
    }
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
}

/// RFC 7748, 5.2, and NIST's ECC CDH vectors for P-256, count 0.
#[test]
fn derivations_give_the_published_answers() {
    let vectors = [
        (
            Curve::X25519,
            "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
            "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
            "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
        ),
        (
            Curve::P256,
            "7d7dc5f71eb29ddaf80d6214632eeae03d9058af1fb6d22ed80badb62bc1a534",
            "04700c48f77f56584c5cc632ca65640db91b6bacce3a4df6b42ce7cc838833d287\
             db71e509e3fd9b060ddb20ba5c51dcc5948d46fbf640dfe0441782cab85fa4ac",
            "46fc62106420ff012e54a434fbdd2d25ccc5852060561e68040dd7778997bd7b",
        ),
    ];
    for (curve, scalar, peer, secret) in vectors {
        let private = Private::Scalar(curve, Secret::from(hex(scalar)));
        let Ok(Answer::Shared(derived)) = compute(&Op::Derive { private, peer: hex(peer) }) else {
            panic!("{curve:?}")
        };
        assert_eq!(derived.expose(), hex(secret), "{curve:?}");
    }
}
