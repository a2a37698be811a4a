//! Two exchanges share a connection only if HAProxy's rules permit it, in every situation.

use super::*;
use crate::server::ServerId;
use penstock_config::model::ProxyId;
use std::net::{IpAddr, SocketAddr};

const STRATEGIES: [HttpReuse; 4] = [HttpReuse::Never, HttpReuse::Safe, HttpReuse::Aggressive, HttpReuse::Always];

/// Calls `look` with every claim and offer that can make a difference.
fn each(mut look: impl FnMut(Claim, Offer)) {
    for strategy in STRATEGIES {
        for first in [false, true] {
            for carried in 0..4 {
                for multiplexed in [false, true] {
                    for running in [None, Some(1), Some(2)] {
                        if !multiplexed && (running.is_some() || carried == 0) {
                            continue;
                        }
                        look(Claim { strategy, first, session: 1 }, Offer { carried, running, multiplexed });
                    }
                }
            }
        }
    }
}

#[test]
fn http_reuse_decides_who_may_have_a_connection() {
    let mut seen = 0;
    each(|claim, offer| {
        seen += 1;
        let may = claim.may_have(&offer);
        // The manual's four paragraphs, one at a time.
        match claim.strategy {
            HttpReuse::Never => assert!(!may, "shared by {claim:?}: {offer:?}"),
            HttpReuse::Safe => {
                let reserved = offer.running.is_some_and(|holder| holder != claim.session);
                assert!(!(may && reserved), "{claim:?} took a connection reserved for another client: {offer:?}");
                assert!(!(may && claim.first && offer.running.is_none()), "a first request on {offer:?}");
                assert!(may || claim.first || reserved, "{claim:?} was refused {offer:?}");
            }
            HttpReuse::Aggressive => {
                let proven = offer.carried > 1 || offer.multiplexed && offer.carried > 0;
                assert!(!(may && claim.first && !proven), "{claim:?} on a connection that proved nothing: {offer:?}");
                assert!(may || !proven && (claim.first || offer.running.is_some()), "{claim:?} was refused {offer:?}");
            }
            HttpReuse::Always => assert!(may, "{claim:?} was refused {offer:?}"),
        }
    });
    assert_eq!(seen, STRATEGIES.len() * 2 * (3 + 4 * 3));
}

fn keys() -> Vec<Key> {
    let ports = [80, 81].map(|port| Target::Ip(SocketAddr::from(([127, 0, 0, 1], port))));
    let targets = ports.into_iter().chain([Target::Unix(std::path::Path::new("/run/s").into())]);
    let mut keys = Vec::new();
    for target in targets {
        for server in [0, 1] {
            for (sni, pool) in [(None, None), (Some("a"), None), (Some("b"), None), (None, Some("a")), (None, Some(""))]
            {
                for header in [None, Some(&b"PROXY TCP4 192.0.2.1"[..]), Some(b"PROXY TCP4 192.0.2.2")] {
                    // The last ones stand for another namespace, and for clients whose addresses it comes from.
                    for flags in 0..=50 {
                        let (only_http1, encrypted) = (flags & 1 != 0, flags & 2 != 0);
                        keys.push(Key {
                            at: ServerRef { proxy: ProxyId(0), server: ServerId::configured(server) },
                            target: target.clone(),
                            encrypted,
                            name: Name {
                                sni: sni.map(Into::into),
                                pool: pool.map(|pool: &str| pool.as_bytes().into()),
                            },
                            header: header.map(Into::into),
                            pinned: [None, Some([1; 32]), Some([2; 32])][(flags >> 2) % 3],
                            packets: [(None, None), (None, Some(8)), (Some(8), None), (Some(9), Some(8))]
                                .map(|(mark, tos)| PacketFields { mark, tos })[flags / 12 % 4],
                            source: (flags > 48).then(|| IpAddr::from([192, 0, 2, flags as u8])),
                            namespace: (flags == 48).then(|| "ns".into()),
                            only_http1,
                        });
                    }
                }
            }
        }
    }
    keys
}

#[test]
fn a_difference_in_any_one_property_is_a_difference() {
    let keys = keys();
    let mut by_key = std::collections::HashMap::new();
    for (index, key) in keys.iter().enumerate() {
        assert_eq!(by_key.insert(key.clone(), index), None, "two keys count as one: {key:?}");
    }
    for (index, key) in keys.iter().enumerate() {
        assert_eq!(by_key.get(&key.clone()), Some(&index));
    }
}

#[test]
fn a_name_of_the_pool_counts_in_place_of_sni() {
    let name =
        |sni: &str, pool: Option<&str>| Name { sni: Some(sni.into()), pool: pool.map(|pool| pool.as_bytes().into()) };
    assert_eq!(name("a", Some("x")), name("b", Some("x")));
    assert_ne!(name("a", Some("x")), name("a", Some("y")));
    assert_ne!(name("a", Some("a")), name("a", None));
    assert_ne!(name("a", None), name("b", None));
}

#[test]
fn a_request_that_would_be_repeated_anyway_is_not_spared() {
    let first = |lines: &str| {
        let text = format!("backend b\n mode http\n {lines}\n server s 127.0.0.1:1\n");
        let sources = [penstock_config::model::Source { name: "test.cfg".into(), text }];
        let (config, diagnostics) = penstock_config::load(sources, &penstock_config::Env::default());
        assert!(!diagnostics.has_errors(), "{:?}", diagnostics.list);
        Claim::new(&config.proxies[ProxyId(0)], true, 1).first
    };
    assert!(first(""));
    assert!(first("retry-on conn-failure empty-response"));
    assert!(!first("retry-on conn-failure empty-response response-timeout"));
    assert!(!first("retry-on all-retryable-errors"));
}

#[test]
fn max_reuse_counts_what_follows_the_first_exchange() {
    let settings = |max_reuse| ServerSettings { max_reuse, ..ServerSettings::default() };
    assert!(may_go_on(&settings(-1), 1_000_000));
    assert!(may_go_on(&settings(2), 2) && !may_go_on(&settings(2), 3));
    assert!(!may_go_on(&settings(0), 1));
}
