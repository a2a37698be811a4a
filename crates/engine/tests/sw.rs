//! The engine `sw`: every class at every fill, checked by the native library; what it does to the turns it is given.

use penstock_engine::{
    Answer, Class, Classes, Curve, Failure, Forecast, Next, Op, Private, Queue, Scheme, Settings, SigningKey, Ticket,
    compute,
    sw::{Costs, Sw},
};
use penstock_lanes::Lanes;
use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

/// Costs by which lanes pay at any fill.
fn always() -> Costs {
    Class::ALL.into_iter().fold(Costs::assumed(), |costs, class| costs.with_break_even(class, 1))
}

fn queue(lanes: Lanes, costs: Costs) -> Queue {
    Queue::new(
        Box::new(Sw::new(lanes, costs, Classes::default())),
        Settings { deadline: Duration::from_secs(60), ..Settings::default() },
    )
}

fn lanes() -> [Lanes; 2] {
    [Lanes::detect(), Lanes::portable()]
}

fn keys() -> &'static [(Arc<SigningKey>, Class)] {
    static KEYS: OnceLock<Vec<(Arc<SigningKey>, Class)>> = OnceLock::new();
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
            (rsa(KeySize::Rsa2048), Class::Rsa2048),
            (rsa(KeySize::Rsa3072), Class::Rsa3072),
            (rsa(KeySize::Rsa4096), Class::Rsa4096),
            (ecdsa(&ECDSA_P256_SHA256_ASN1_SIGNING), Class::EcdsaP256),
            (ecdsa(&ECDSA_P384_SHA384_ASN1_SIGNING), Class::EcdsaP384),
        ];
        let key = |(der, class): (Vec<u8>, Class)| {
            let key = SigningKey::from_der(der).unwrap();
            penstock_engine::sw::prepare(&key);
            assert_eq!(key.class(), class);
            (Arc::new(key), class)
        };
        made.into_iter().map(key).collect()
    })
}

fn key(class: Class) -> Arc<SigningKey> {
    keys().iter().find(|(_, own)| *own == class).unwrap().0.clone()
}

fn sign(key: &Arc<SigningKey>, scheme: Scheme, message: &[u8]) -> Op {
    Op::Sign { key: key.clone(), scheme, message: message.to_vec() }
}

/// Turns until all is answered; how many it took.
fn settle(queue: &mut Queue) -> usize {
    for turns in 1..100_000 {
        if queue.turn(Instant::now(), false) == Next::Idle {
            return turns;
        }
    }
    panic!("it never ends");
}

fn pair(curve: Curve) -> (Vec<u8>, Private) {
    match compute(&Op::KeyGen { curve }) {
        Ok(Answer::Pair { public, private }) => (public, private),
        other => panic!("{other:?}"),
    }
}

fn shared(private: Private, peer: &[u8]) -> Vec<u8> {
    match compute(&Op::Derive { private, peer: peer.to_vec() }) {
        Ok(Answer::Shared(secret)) => secret.expose().to_vec(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn signatures_of_every_class_scheme_and_fill_verify() {
    for lanes in lanes() {
        let fills = if lanes.is_accelerated() { 1..=9 } else { 5..=5 };
        for (key, class) in keys() {
            for fill in fills.clone() {
                let mut queue = queue(lanes, always());
                let schemes = key.schemes().iter().cycle();
                let jobs: Vec<(Scheme, String)> =
                    schemes.take(fill).enumerate().map(|(i, scheme)| (*scheme, format!("message {i}"))).collect();
                let tickets: Vec<Ticket> = jobs
                    .iter()
                    .map(|(scheme, message)| queue.submit(sign(key, *scheme, message.as_bytes()), 0, Instant::now()))
                    .collect();
                settle(&mut queue);
                for ((scheme, message), ticket) in jobs.iter().zip(tickets) {
                    let Ok(Answer::Signature(signature)) = ticket.take() else { panic!("{class:?} {scheme:?}") };
                    assert!(key.verify(*scheme, message.as_bytes(), &signature), "{class:?} {scheme:?} of {fill}");
                }
            }
        }
    }
}

#[test]
fn keys_are_agreed_on_at_every_fill_and_no_pair_is_used_twice() {
    for lanes in lanes() {
        for curve in [Curve::X25519, Curve::P256, Curve::P384] {
            let mut seen = std::collections::HashSet::new();
            for fill in 1..=9 {
                let mut queue = queue(lanes, always());
                let peers: Vec<(Vec<u8>, Private)> = (0..fill).map(|_| pair(curve)).collect();
                let tickets: Vec<Ticket> = peers
                    .iter()
                    .map(|(public, _)| queue.submit(Op::Agree { curve, peer: public.clone() }, 0, Instant::now()))
                    .collect();
                settle(&mut queue);
                for ((_, private), ticket) in peers.into_iter().zip(tickets) {
                    let Ok(Answer::Agreed { public, secret }) = ticket.take() else { panic!("{curve:?}") };
                    assert_eq!(secret.expose(), shared(private, &public), "{curve:?} of {fill}");
                    assert!(seen.insert(public), "a key pair was used twice");
                }
            }
        }
    }
}

#[test]
fn a_pair_made_ahead_is_there_at_once_and_its_secret_is_derived_in_lanes() {
    for curve in [Curve::X25519, Curve::P256, Curve::P384] {
        let mut queue = queue(Lanes::detect(), always());
        let mut made = Vec::new();
        for _ in 0..20 {
            let ticket = queue.at_hand(&Op::KeyGen { curve }).expect("eight are made when none is left");
            let Ok(Answer::Pair { public, private }) = ticket.take() else { panic!("{curve:?}") };
            made.push((public, private, pair(curve)));
        }
        let mut waiting = Vec::new();
        for (public, private, (peer_public, peer_private)) in made {
            let derive = Op::Derive { private, peer: peer_public };
            assert!(queue.wants(&derive, false, true));
            waiting.push((queue.submit(derive, 0, Instant::now()), shared(peer_private, &public)));
        }
        settle(&mut queue);
        for (ticket, expected) in waiting {
            let Ok(Answer::Shared(secret)) = ticket.take() else { panic!("{curve:?}") };
            assert_eq!(secret.expose(), expected);
        }
    }
}

#[test]
fn ml_kem_is_encapsulated_at_every_fill_and_a_bad_key_fails_alone() {
    for lanes in lanes() {
        for fill in 1..=9 {
            let mut queue = queue(lanes, always());
            let made = || match compute(&Op::KemKeyGen) {
                Ok(Answer::KemPair { public, private }) => (public, private),
                other => panic!("{other:?}"),
            };
            let mut pairs: Vec<_> = (0..fill).map(|_| made()).collect();
            // Coefficients of 4095 are not reduced (FIPS 203, 7.2).
            pairs[fill / 2].0[..384].fill(0xFF);
            let encapsulate = |public: &Vec<u8>| Op::KemEncapsulate { peer: public.clone() };
            assert!(queue.wants(&encapsulate(&pairs[0].0), false, true));
            let tickets: Vec<Ticket> =
                pairs.iter().map(|(public, _)| queue.submit(encapsulate(public), 0, Instant::now())).collect();
            settle(&mut queue);
            for (at, ((_, private), ticket)) in pairs.into_iter().zip(tickets).enumerate() {
                match ticket.take() {
                    Ok(Answer::Agreed { public: ciphertext, secret }) if at != fill / 2 => {
                        let opened = compute(&Op::KemDecapsulate { private, ciphertext });
                        let Ok(Answer::Shared(ours)) = opened else { panic!("{opened:?}") };
                        assert_eq!(secret.expose(), ours.expose(), "{at} of {fill}");
                    }
                    Err(Failure::PeerKey) if at == fill / 2 => {}
                    other => panic!("{at} of {fill}: {other:?}"),
                }
            }
        }
    }
    let engine = Sw::new(Lanes::detect(), Costs::assumed(), Classes::default());
    assert!(!engine.serves(&Op::KemEncapsulate { peer: vec![0; 1183] }), "a key of another length is the library's");
}

#[test]
fn one_bad_peer_among_seven_good_fails_alone() {
    for curve in [Curve::X25519, Curve::P256, Curve::P384] {
        let mut queue = queue(Lanes::detect(), always());
        let mut tickets = Vec::new();
        for i in 0..8 {
            let mut peer = pair(curve).0;
            if i == 3 {
                peer[1..].fill(0);
                peer[0] = if curve == Curve::X25519 { 0 } else { 4 };
            }
            tickets.push(queue.submit(Op::Agree { curve, peer }, 0, Instant::now()));
        }
        settle(&mut queue);
        for (i, ticket) in tickets.iter().enumerate() {
            let result = ticket.take();
            assert_eq!(result.err(), (i == 3).then_some(Failure::PeerKey), "{curve:?} {i}");
        }
        assert!(queue.serves(Class::P256Agree), "a peer's fault benches nobody");
    }
}

#[test]
fn below_its_break_even_fill_a_class_is_computed_natively() {
    let costs = Costs::assumed().with_break_even(Class::EcdsaP256, 3);
    let key = key(Class::EcdsaP256);
    for (fill, few) in [(1, 1), (2, 2), (3, 0), (8, 0)] {
        let mut queue = queue(Lanes::detect(), costs);
        let op = || sign(&key, Scheme::EcdsaP256Sha256, b"x");
        let tickets: Vec<Ticket> = (0..fill).map(|_| queue.submit(op(), 0, Instant::now())).collect();
        settle(&mut queue);
        assert!(tickets.iter().all(|ticket| matches!(ticket.take(), Ok(Answer::Signature(_)))));
        assert_eq!(queue.counters().class(Class::EcdsaP256).few, few, "of {fill}");
    }
}

#[test]
fn rsa_is_cut_into_turns_and_short_work_passes_it() {
    let mut queue = queue(Lanes::detect(), Costs::assumed());
    let key = key(Class::Rsa4096);
    let now = Instant::now();
    let rsa: Vec<Ticket> = (0..8).map(|_| queue.submit(sign(&key, Scheme::RsaPssSha256, b"long"), 0, now)).collect();
    assert_eq!(queue.turn(now, false), Next::Soon);
    assert!(rsa.iter().all(|ticket| !ticket.is_ready()), "5.6 ms do not fit a turn of 0.3");
    let peers: Vec<Vec<u8>> = (0..8).map(|_| pair(Curve::X25519).0).collect();
    let exchange: Vec<Ticket> =
        peers.into_iter().map(|peer| queue.submit(Op::Agree { curve: Curve::X25519, peer }, 0, now)).collect();
    // Pairs are a call, and the exchange is one: where the machine is slow today, each has a turn.
    let short = (1..20).find(|_| {
        queue.turn(now, false);
        exchange.iter().all(Ticket::is_ready)
    });
    assert!(short.is_some_and(|turns| turns <= 4), "{short:?}");
    assert!(rsa.iter().all(|ticket| !ticket.is_ready()));
    let turns = settle(&mut queue);
    assert!((15..200).contains(&turns), "{turns} turns for 5.6 ms at 0.3 each");
    assert!(rsa.iter().all(|ticket| matches!(ticket.take(), Ok(Answer::Signature(_)))));
}

#[test]
fn while_a_batch_is_under_way_the_next_fills() {
    let mut queue = queue(Lanes::detect(), Costs::assumed());
    let key = key(Class::Rsa2048);
    let op = || sign(&key, Scheme::RsaPkcs1Sha256, b"x");
    let now = Instant::now();
    let mut tickets = vec![queue.submit(op(), 0, now)];
    queue.turn(now, false);
    tickets.extend((0..9).map(|_| queue.submit(op(), 0, now)));
    settle(&mut queue);
    assert!(tickets.iter().all(|ticket| ticket.is_ready()));
    let fill = queue.counters().class(Class::Rsa2048).fill;
    assert_eq!((fill[0], fill[7]), (2, 1), "one, then eight, then the one left: {fill:?}");
}

#[test]
fn an_operation_waits_alone_only_where_lanes_are_sooner_or_others_would_be_held_up() {
    let rsa = sign(&key(Class::Rsa2048), Scheme::RsaPssSha256, b"x");
    let agree = Op::Agree { curve: Curve::X25519, peer: pair(Curve::X25519).0 };
    let slower_alone = Costs::assumed().with_break_even(Class::Rsa2048, 2);
    for (costs, rsa_alone) in [(Costs::assumed(), true), (slower_alone, false)] {
        let mut queue = queue(Lanes::detect(), costs);
        // (alone among handshakes, other connections) -> does RSA wait, does X25519
        for ((alone, others), waits) in
            [((false, true), [true, true]), ((true, true), [true, false]), ((true, false), [rsa_alone, false])]
        {
            assert_eq!([&rsa, &agree].map(|op| queue.wants(op, alone, others)), waits, "{alone} {others}");
        }
    }
}

#[test]
fn a_key_is_prepared_beside_the_worker() {
    use aws_lc_rs::{
        encoding::AsDer,
        rsa::{KeyPair, KeySize},
    };
    let der = KeyPair::generate(KeySize::Rsa2048).unwrap().as_der().unwrap().as_ref().to_vec();
    let key = Arc::new(SigningKey::from_der(der).unwrap());
    let mut queue = queue(Lanes::detect(), Costs::assumed());
    let op = sign(&key, Scheme::RsaPssSha256, b"x");
    assert!(!queue.wants(&op, false, true), "the first use is native");
    let began = Instant::now();
    while !queue.wants(&op, false, true) {
        assert!(began.elapsed() < Duration::from_secs(10), "it is prepared soon");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn measuring_takes_less_than_50_ms() {
    let began = Instant::now();
    let costs = Costs::measure(Lanes::detect());
    let took = began.elapsed();
    // Its limit is CPU time: a machine busy with other tests may stretch it.
    assert!(took < Duration::from_millis(500), "{took:?}");
    assert!(Class::ALL.iter().all(|class| costs.of(*class).break_even() >= 1));
}

#[test]
fn lanes_and_counters_name_what_is_served() {
    let engine = Sw::new(Lanes::detect(), Costs::assumed(), Classes::default());
    assert_eq!(engine.lanes(Class::RsaOther), 0);
    assert_eq!((engine.lanes(Class::Rsa2048), engine.most(Class::Rsa2048)), (4, 8));
}
