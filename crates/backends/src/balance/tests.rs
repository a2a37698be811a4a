use super::*;
use penstock_config::model::HashFunction;
use std::collections::BTreeSet;

fn balancer(balance: Balance, consistent: bool, factor: u32, members: Vec<Member>) -> Balancer {
    let hash_type = HashType { consistent, function: HashFunction::Sdbm, avalanche: consistent };
    Balancer::new(&Settings { balance, hash_type, factor, allbackups: false, seed: 7 }, members)
}

fn by_source() -> Balance {
    Balance::by("source", BalanceKey::Source)
}

fn even(n: u32) -> Vec<Member> {
    (1..=n).map(|id| Member::new(id, 1, false)).collect()
}

#[test]
fn every_word_of_balance_has_its_algorithm() {
    let known: BTreeSet<&str> = ALGORITHMS.iter().copied().flatten().map(|row| row.name).collect();
    let accepted: BTreeSet<&str> = penstock_config::balance_algorithms().collect();
    let missing: Vec<_> = accepted.difference(&known).collect();
    assert!(missing.is_empty(), "{missing:?}: no row in a file that `algorithms!` names");
    let unreachable: Vec<_> = known.difference(&accepted).collect();
    assert!(unreachable.is_empty(), "{unreachable:?}: no row in `ALGORITHMS` of the configuration");
}

#[test]
fn a_hot_key_spills_to_other_servers_under_hash_balance_factor() {
    let mut balancer = balancer(by_source(), true, 150, even(4));
    let demand = Demand { hash: Some(12345), ..Demand::default() };
    let mut counts = [0_u32; 4];
    for served in 0..400_u32 {
        let server = balancer.choose(&demand, 0).expect("a server is up");
        balancer.take(server);
        counts[server] += 1;
        // 150 % of a quarter of all requests, rounded up.
        assert!(counts[server] <= (served + 1) * 150 / 400 + 1, "{counts:?}");
    }
    assert!(counts.iter().filter(|&&n| n > 0).count() >= 3, "{counts:?}");
}

#[test]
fn without_the_factor_a_hot_key_stays() {
    let mut balancer = balancer(by_source(), true, 0, even(4));
    let demand = Demand { hash: Some(12345), ..Demand::default() };
    let first = balancer.choose(&demand, 0).expect("a server is up");
    for _ in 0..100 {
        balancer.take(first);
        assert_eq!(balancer.choose(&demand, 0), Some(first));
    }
}

#[test]
fn random_draws_follow_weight_and_load() {
    let mut members = even(3);
    members[2].weight = 6;
    let mut balancer = balancer(Balance { draws: 2, ..Balance::plain("random") }, false, 0, members);
    let mut counts = [0_u32; 3];
    for _ in 0..800 {
        let server = balancer.choose(&Demand::default(), 0).expect("a server is up");
        balancer.take(server);
        counts[server] += 1;
    }
    // Two draws keep the distribution of 800 by weights 1, 1, 6 accurate to a few.
    assert!((90..=110).contains(&counts[0]) && (590..=610).contains(&counts[2]), "{counts:?}");
}

#[test]
fn a_full_server_is_passed_over_and_takes_its_place_again() {
    let mut members = even(3);
    (members[1].maxconn, members[1].minconn) = (1, 1);
    for balance in [Balance::plain("roundrobin"), Balance::plain("static-rr")] {
        let mut balancer = balancer(balance, false, 0, members.clone());
        let load = Load { sessions: 1, fullconn: 1 };
        let next = |balancer: &mut Balancer| {
            let server = balancer.choose(&Demand { load, ..Demand::default() }, 0).expect("a server has room");
            balancer.take(server);
            server
        };
        let first: Vec<usize> = (0..7).map(|_| next(&mut balancer)).collect();
        assert_eq!(first.iter().filter(|&&s| s == 1).count(), 1, "{first:?}");
        balancer.release(1);
        let then: Vec<usize> = (0..3).map(|_| next(&mut balancer)).collect();
        assert_eq!(then.iter().filter(|&&s| s == 1).count(), 1, "{then:?}");
    }
}

#[test]
fn first_fills_servers_in_the_order_of_their_ids() {
    let mut members = even(3);
    members[0].id = 9;
    for member in &mut members {
        (member.maxconn, member.minconn) = (2, 2);
    }
    let mut balancer = balancer(Balance::plain("first"), false, 0, members);
    let demand = Demand { load: Load { sessions: 9, fullconn: 1 }, ..Demand::default() };
    let mut taken = Vec::new();
    while let Some(server) = balancer.choose(&demand, 0) {
        balancer.take(server);
        taken.push(server);
    }
    assert_eq!(taken, [1, 1, 2, 2, 0, 0]);
}

#[test]
fn the_server_that_failed_is_avoided_if_there_is_another() {
    for balance in [
        Balance::plain("roundrobin"),
        Balance::plain("static-rr"),
        Balance::plain("leastconn"),
        Balance::plain("first"),
    ] {
        let mut balancer = balancer(balance, false, 0, even(2));
        for avoid in [0, 1, 1, 0] {
            let demand = Demand { avoid: Some(avoid), ..Demand::default() };
            assert_eq!(balancer.choose(&demand, 0), Some(1 - avoid));
        }
        balancer.update(0, false, 1, None);
        assert_eq!(balancer.choose(&Demand { avoid: Some(1), ..Demand::default() }, 0), Some(1));
    }
}

#[test]
fn a_limit_lies_between_minconn_and_maxconn_by_how_full_the_backend_is() {
    let mut member = Member::new(1, 1, false);
    (member.minconn, member.maxconn) = (10, 100);
    let limit = |sessions| member.limit(&Load { sessions, fullconn: 1000 });
    assert_eq!([limit(1), limit(100), limit(505), limit(1000), limit(5000)], [10, 10, 50, 100, 100]);
    let ramp = Some(Ramp { elapsed: 3, whole: 10 });
    let starting = Member { ramp, ..member.clone() };
    assert_eq!(starting.limit(&Load { sessions: 1000, fullconn: 1000 }), 30);
}

#[test]
fn a_slow_start_grows_in_sixteenths_of_the_weight() {
    let mut balancer = balancer(Balance::plain("roundrobin"), false, 0, even(2));
    let mut share = |elapsed| {
        balancer.update(0, true, 1, Some(Ramp { elapsed, whole: 4 }));
        let chosen = (0..17 * 4).filter(|_| balancer.choose(&Demand::default(), 0) == Some(0)).count();
        (balancer.members()[0].eweight, chosen)
    };
    assert_eq!(share(0).0, 1);
    assert_eq!(share(1).0, 5);
    assert_eq!(share(2).0, 9);
    let (eweight, chosen) = share(4);
    assert!(eweight == 17 || eweight == 16, "{eweight}");
    assert!((33..=36).contains(&chosen), "{chosen}");
}

#[test]
fn weights_are_shown_as_they_were_written() {
    let mut members = even(2);
    (members[0].weight, members[1].weight) = (10, 30);
    for (balance, consistent) in
        [(Balance::plain("static-rr"), false), (Balance::plain("roundrobin"), false), (by_source(), true)]
    {
        let balancer = balancer(balance, consistent, 0, members.clone());
        assert_eq!((balancer.weight_of(0), balancer.weight_of(1)), (10, 30));
        assert_eq!(balancer.displayed_weight(balancer.totals().weight), 40);
    }
}

/// Whatever changes, the choice is always a usable server, and every usable server of positive weight gets its share in
/// the long run.
#[test]
fn no_algorithm_ever_chooses_a_server_that_is_down() {
    let mut rng = fastrand::Rng::with_seed(99);
    for balance in [
        Balance::plain("roundrobin"),
        Balance::plain("static-rr"),
        Balance::plain("leastconn"),
        Balance::plain("first"),
        Balance { draws: 2, ..Balance::plain("random") },
    ] {
        let mut balancer = balancer(balance.clone(), false, 0, even(5));
        for step in 0..2000 {
            let n = rng.u32(..);
            let server = (n >> 8) as usize % 5;
            if n.is_multiple_of(7) {
                balancer.update(server, n & 64 == 0, (n >> 16) % 5, None);
            }
            match balancer.choose(&Demand::default(), 0) {
                Some(chosen) => assert!(balancer.members()[chosen].usable(), "{balance:?} at {step}"),
                None => assert!(balancer.members().iter().all(|m| !m.usable()), "{balance:?} at {step}"),
            }
        }
    }
}

/// No choice depends on whether an added server gets the slot of a removed one or a new one.
#[test]
fn a_server_in_a_used_slot_is_as_one_in_a_new_slot() {
    let consistent = |balance| (balance, true);
    let ways = [
        (Balance::default(), false),
        (Balance::plain("leastconn"), false),
        (Balance::plain("first"), false),
        (Balance { draws: 2, ..Balance::plain("random") }, false),
        consistent(by_source()),
    ];
    for (balance, consistent) in ways {
        let play = |reuse: bool| {
            let mut balancer = balancer(balance.clone(), consistent, 0, even(3));
            let ids = |balancer: &mut Balancer, n: u32| -> Vec<u32> {
                let chosen = (0..n).map(|n| {
                    let demand = Demand { hash: Some(crate::hash::avalanche(n)), ..Demand::default() };
                    let server = balancer.choose(&demand, 0).expect("a server is up");
                    balancer.take(server);
                    balancer.members()[server].id
                });
                chosen.collect()
            };
            let mut seen = ids(&mut balancer, 7);
            while balancer.members()[1].served > 0 {
                balancer.release(1);
            }
            balancer.update(1, false, 1, None);
            let slot = if reuse {
                balancer.remove(1);
                1
            } else {
                3
            };
            balancer.insert(slot, Member::new(9, 2, false));
            seen.extend(ids(&mut balancer, 6));
            balancer.update(slot, true, 2, None);
            seen.extend(ids(&mut balancer, 30));
            seen
        };
        let (used, new) = (play(true), play(false));
        assert_eq!(used, new, "{balance:?}");
        assert!(!used[..13].contains(&9), "{balance:?}: it was not ready yet");
        assert!(used.contains(&9) || balance.algorithm == "first", "{balance:?}");
    }
}
