//! Tests of the store.

use super::*;
use penstock_http::{RequestHead, Version};

fn cache(total: usize) -> Arc<Cache> {
    Cache::new(
        "c",
        CacheLimits { total, object: total / 2, age_s: 60, vary: true, variants: 3, ranges: true, collapse_ms: 0 },
    )
}
fn query_of(key: &str, fields: &[(&str, &str)]) -> CacheQuery {
    let mut head = RequestHead::from_parts(b"GET", format!("/{key}").as_bytes(), Version::Http11).unwrap();
    head.fields.append(b"host", b"h").unwrap();
    for (name, value) in fields {
        head.fields.append(name.as_bytes(), value.as_bytes()).unwrap();
    }
    CacheQuery::of(&head, b"GET", false, true).unwrap()
}
fn query(key: &str) -> CacheQuery {
    query_of(key, &[])
}
/// A response that may be used for ten seconds.
fn response(vary: Option<&str>) -> ResponseHead {
    let mut head = ResponseHead::from_status(200);
    head.fields.append(b"cache-control", b"max-age=10").unwrap();
    if let Some(vary) = vary {
        head.fields.append(b"vary", vary.as_bytes()).unwrap();
    }
    head
}
fn begin(cache: &Arc<Cache>, key: &str, now: u64) -> Option<Storing> {
    cache.store(&query(key), &response(None), Framing::Chunked, now)
}
fn put(cache: &Arc<Cache>, key: &str, body: &[u8], now: u64) -> bool {
    let Some(mut storing) = begin(cache, key, now) else { return false };
    let room = storing.append(body);
    if room {
        storing.complete(None);
    }
    room
}
fn body(entry: &CacheEntry) -> Vec<u8> {
    entry.body.concat()
}
fn find(cache: &Cache, key: &str, now: u64) -> Option<Arc<CacheEntry>> {
    cache.find(&query(key), now)
}
/// Keys and entries of the index.
fn kept(cache: &Cache) -> (usize, usize) {
    let count = |of: fn(&Index) -> usize| cache.shards.iter().map(|shard| of(&shard.index.lock().unwrap())).sum();
    (count(|index| index.keys.len()), count(|index| index.order.len()))
}

#[test]
fn a_response_is_found_until_it_expires() {
    let cache = cache(1 << 20);
    assert!(put(&cache, "k", b"body", 100));
    assert_eq!(body(&find(&cache, "k", 109).unwrap()), b"body");
    assert_eq!(find(&cache, "k", 109).unwrap().age_s(109), 9);
    assert!(find(&cache, "other", 100).is_none());
    assert!(find(&cache, "k", 110).is_none());
    assert_eq!(cache.used(), 0, "what has expired takes nothing once it was looked for");
}

#[test]
fn half_a_response_is_never_served_and_leaves_nothing() {
    let cache = cache(1 << 20);
    let mut storing = begin(&cache, "k", 0).unwrap();
    assert!(storing.append(b"ha"));
    assert!(find(&cache, "k", 0).is_none());
    drop(storing);
    assert!(find(&cache, "k", 0).is_none());
    assert_eq!((cache.used(), kept(&cache)), (0, (0, 0)));
    let mut short = cache.store(&query("k"), &response(None), Framing::Length(5), 0).unwrap();
    assert!(short.append(b"half"));
    short.complete(None);
    assert!(find(&cache, "k", 0).is_none());
    assert_eq!(cache.used(), 0);
}

#[test]
fn one_of_two_that_store_the_same_does() {
    let cache = cache(1 << 20);
    let first = begin(&cache, "k", 0).unwrap();
    assert!(begin(&cache, "k", 0).is_none());
    first.complete(None);
    assert!(find(&cache, "k", 0).is_some());
    assert!(put(&cache, "k", b"new", 0), "a later response replaces it");
    assert_eq!(body(&find(&cache, "k", 0).unwrap()), b"new");
}

#[test]
fn an_unsafe_request_also_drops_what_is_being_stored() {
    let cache = cache(1 << 20);
    assert!(put(&cache, "k", b"old", 0));
    cache.invalidate(&query("k"));
    assert!(find(&cache, "k", 0).is_none());
    let mut storing = begin(&cache, "k", 0).unwrap();
    assert!(storing.append(b"stale"));
    cache.invalidate(&query("k"));
    storing.complete(None);
    assert!(find(&cache, "k", 0).is_none());
    assert_eq!((cache.used(), kept(&cache)), (0, (0, 0)));
}

#[test]
fn the_size_is_never_exceeded_and_the_least_recently_used_goes_first() {
    let cache = cache(64 << 10);
    for number in 0..100 {
        assert!(put(&cache, &format!("k{number}"), &[0; 4000], 0));
        assert!(cache.used() <= 64 << 10);
        assert!(find(&cache, "k0", 0).is_some(), "what is used stays");
    }
    assert!(find(&cache, "k1", 0).is_none());
    assert!(find(&cache, "k99", 0).is_some());
    let (keys, entries) = kept(&cache);
    assert_eq!(keys, entries);
}

#[test]
fn empty_responses_are_not_free() {
    let cache = cache(64 << 10);
    for number in 0..10_000 {
        put(&cache, &format!("k{number}"), b"", 0);
    }
    assert!((1..=(64 << 10) / OVERHEAD).contains(&kept(&cache).0));
}

#[test]
fn what_is_read_counts_until_its_last_reader_is_done() {
    let cache = cache(64 << 10);
    assert!(put(&cache, "k", &[1; 32_000], 0));
    let reader = find(&cache, "k", 0).unwrap();
    assert!(put(&cache, "l", &[2; 20_000], 0));
    assert!(!put(&cache, "m", &[3; 32_500], 0), "the room of a response that is read is not given away");
    cache.invalidate(&query("k"));
    assert!(cache.used() > 32_000);
    assert_eq!(body(&reader), [1; 32_000]);
    drop(reader);
    assert!(put(&cache, "m", &[3; 32_500], 0));
}

#[test]
fn a_response_that_is_too_large_is_not_kept() {
    let cache = cache(64 << 10);
    assert!(!put(&cache, "k", &[0; (32 << 10) + 1], 0));
    assert!(cache.store(&query("k"), &response(None), Framing::Length(40 << 10), 0).is_none());
    assert_eq!(cache.used(), 0);
}

#[test]
fn a_body_in_single_bytes_costs_little_more_than_its_length() {
    let cache = cache(1 << 20);
    let mut storing = begin(&cache, "k", 0).unwrap();
    for _ in 0..100_000 {
        assert!(storing.append(b"x"));
    }
    storing.complete(None);
    assert!(cache.used() < 110_000, "{}", cache.used());
    assert_eq!(find(&cache, "k", 0).unwrap().len(), 100_000);
}

#[test]
fn variants_are_bounded_and_go_together() {
    let cache = cache(1 << 20);
    let asked = |referer: &str| query_of("k", &[("referer", referer)]);
    let put = |referer: &str| {
        let storing = cache.store(&asked(referer), &response(Some("Referer")), Framing::Length(0), 0);
        storing.map(|storing| storing.complete(None)).is_some()
    };
    assert!(put("a") && put("b") && put("c"));
    assert!(!put("d"));
    assert!(put("a"), "one that is there is replaced");
    assert!(cache.find(&asked("b"), 0).is_some());
    assert!(cache.find(&asked("d"), 0).is_none());
    cache.invalidate(&query("k"));
    assert!(cache.find(&asked("b"), 0).is_none());
    assert_eq!(cache.used(), 0);
}

#[test]
fn a_server_that_varies_by_something_else_now_replaces_what_it_said_before() {
    let cache = cache(1 << 20);
    let store = |vary: Option<&str>| {
        let query = query_of("k", &[("referer", "a"), ("origin", "b")]);
        cache.store(&query, &response(vary), Framing::Length(0), 0).unwrap().complete(None);
    };
    store(Some("Referer"));
    store(Some("Origin"));
    assert!(cache.find(&query_of("k", &[("referer", "a")]), 0).is_none());
    store(None);
    assert!(find(&cache, "k", 0).is_some());
    assert_eq!(kept(&cache), (1, 1));
}

#[test]
fn what_clients_and_servers_forbid_is_not_stored() {
    let cache = cache(1 << 20);
    let store = |query: &CacheQuery, head: &ResponseHead| cache.store(query, head, Framing::Chunked, 0).is_some();
    assert!(store(&query("k"), &response(None)));
    assert!(!store(&query_of("k", &[("cache-control", "no-store")]), &response(None)));
    assert!(!store(&query_of("k", &[("authorization", "x")]), &response(None)));
    assert!(!store(&query("k"), &ResponseHead::from_status(200)));
    assert!(!store(&query("k"), &response(Some("Cookie"))));
}

#[test]
fn what_belongs_to_a_connection_is_not_kept() {
    let cache = cache(1 << 20);
    let mut head = response(None);
    for (name, value) in [("connection", "x-a"), ("keep-alive", "timeout=5"), ("age", "3"), ("x-b", "kept")] {
        head.fields.append(name.as_bytes(), value.as_bytes()).unwrap();
    }
    cache.store(&query("k"), &head, Framing::Length(0), 0).unwrap().complete(None);
    let entry = find(&cache, "k", 4).unwrap();
    let names: Vec<_> = entry.head.fields.iter().map(|field| field.name.to_vec()).collect();
    assert_eq!(names, [&b"cache-control"[..], b"x-b"]);
    assert_eq!(entry.age_s(4), 7);
}

#[test]
fn every_entry_is_shown() {
    let cache = cache(1 << 20);
    for number in 0..300 {
        assert!(put(&cache, &format!("k{number}"), b"body", 0));
    }
    let reader = find(&cache, "k7", 0).unwrap();
    let shown: Vec<EntryView> = cache.entries().collect();
    assert_eq!(shown.len(), 300);
    assert_eq!(shown.iter().map(|view| view.cost).sum::<u64>(), cache.used() as u64);
    assert_eq!(shown.iter().map(|view| view.readers).sum::<u64>(), 1);
    assert!(shown.iter().all(|view| (view.expires_s, view.variant) == (10, 0)));
    drop(reader);
}

#[test]
fn workers_that_store_and_read_at_once_never_see_a_mixture() {
    let cache = cache(256 << 10);
    std::thread::scope(|scope| {
        for worker in 0..4_u8 {
            let cache = &cache;
            scope.spawn(move || {
                for round in 0..2000_usize {
                    let key = format!("k{}", round % 7);
                    if let Some(mut storing) = begin(cache, &key, 0) {
                        let all = (0..8).all(|_| storing.append(&[worker; 700]));
                        if all && round % 5 > 0 {
                            storing.complete(None);
                        }
                    }
                    if let Some(entry) = find(cache, &key, 0) {
                        let body = body(&entry);
                        assert!(body.len() == 5600 && body.iter().all(|byte| *byte == body[0]));
                    }
                    if round % 11 == 0 {
                        cache.invalidate(&query(&key));
                    }
                    assert!(cache.used() <= 256 << 10);
                }
            });
        }
    });
    for key in 0..7 {
        cache.invalidate(&query(&format!("k{key}")));
    }
    assert_eq!(cache.used(), 0);
}

/// What a naive cache would do: everything is kept, by key and Referer.
#[derive(Default)]
struct Naive {
    whole: HashMap<(u64, u64), (Vec<u8>, u64)>,
    /// How often each key was invalidated.
    dropped: HashMap<u64, u64>,
}

#[test]
fn whatever_happens_a_cache_only_returns_what_was_stored_last() {
    for (seed, total) in (1..=20).flat_map(|seed| [(seed, 8 << 20), (seed, 24 << 10)]) {
        let cache = Cache::new(
            "c",
            CacheLimits { total, object: total / 3, age_s: 60, vary: true, variants: 8, ranges: true, collapse_ms: 0 },
        );
        let (mut rng, mut naive, mut now) = (fastrand::Rng::with_seed(seed), Naive::default(), 1000);
        // Responses that are being stored: key, Referer, body so far, moment, and how often the key was invalidated then.
        let mut storing: Vec<(Storing, u64, u64, Vec<u8>, u64, u64)> = Vec::new();
        let mut readers: Vec<(Arc<CacheEntry>, Vec<u8>)> = Vec::new();
        for round in 0..3000 {
            let (key, referer) = (rng.u64(..6), rng.u64(..3));
            let query = query_of(&format!("k{key}"), &[("referer", &referer.to_string())]);
            match rng.u64(..10) {
                0..3 => {
                    let begun = cache.store(&query, &response(Some("Referer")), Framing::Chunked, now);
                    let dropped = naive.dropped.get(&key).copied().unwrap_or(0);
                    storing.extend(begun.map(|begun| (begun, key, referer, Vec::new(), now, dropped)));
                }
                3..6 if !storing.is_empty() => {
                    let at = rng.usize(..storing.len());
                    let part = vec![round as u8; rng.u64(..2000) as usize];
                    storing[at].3.extend_from_slice(&part);
                    if !storing[at].0.append(&part) {
                        storing.swap_remove(at);
                    }
                }
                6 if !storing.is_empty() => {
                    let at = rng.usize(..storing.len());
                    let (begun, key, referer, body, moment, dropped) = storing.swap_remove(at);
                    if rng.u64(..4) > 0 {
                        begun.complete(None);
                        if dropped == naive.dropped.get(&key).copied().unwrap_or(0) {
                            naive.whole.insert((key, referer), (body, moment + 10));
                        }
                    }
                }
                7 => {
                    cache.invalidate(&query);
                    naive.whole.retain(|(other, _), _| *other != key);
                    *naive.dropped.entry(key).or_default() += 1;
                }
                8 => now += rng.u64(..3),
                _ => {
                    let found = cache.find(&query, now);
                    let expected = naive.whole.get(&(key, referer)).filter(|(_, until)| *until > now);
                    match (found, expected) {
                        (Some(found), Some((expected, _))) => {
                            assert_eq!(body(&found), *expected, "seed {seed}, round {round}");
                            readers.push((found, expected.clone()));
                        }
                        (Some(_), None) => panic!("seed {seed}, round {round}: it was dropped, or has expired"),
                        // The larger one has room for all of this.
                        (None, Some(_)) => assert!(total < 8 << 20, "seed {seed}, round {round}: it is lost"),
                        (None, None) => {}
                    }
                    if readers.len() > 3 {
                        let (entry, expected) = readers.swap_remove(rng.u64(..3) as usize);
                        assert_eq!(body(&entry), expected);
                    }
                }
            }
            assert!(cache.used() <= total, "seed {seed}, round {round}");
        }
        drop((storing, readers));
        (0..6).for_each(|key| cache.invalidate(&query(&format!("k{key}"))));
        assert_eq!((cache.used(), kept(&cache)), (0, (0, 0)), "seed {seed}");
    }
}
