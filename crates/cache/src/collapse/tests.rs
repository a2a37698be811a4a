//! Tests of requests that wait for each other, under a virtual clock.

use super::*;
use crate::{CacheLimits, Collapses, Storing};
use penstock_http::{Framing, ResponseHead, Version};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    task::Wake,
};

const LIMIT_MS: u64 = 1000;

fn cache(total: usize) -> Arc<Cache> {
    let limits = CacheLimits {
        total,
        object: total / 4,
        age_s: 60,
        vary: true,
        variants: 8,
        ranges: true,
        collapse_ms: LIMIT_MS,
    };
    Cache::new("c", limits)
}
fn request(key: &str, fields: &[(&str, &str)]) -> RequestHead {
    let mut head = RequestHead::from_parts(b"GET", format!("/{key}").as_bytes(), Version::Http11).unwrap();
    head.fields.append(b"host", b"h").unwrap();
    for (name, value) in fields {
        head.fields.append(name.as_bytes(), value.as_bytes()).unwrap();
    }
    head
}
fn response(vary: &str) -> ResponseHead {
    let mut head = ResponseHead::from_status(200);
    head.fields.append(b"cache-control", b"max-age=10").unwrap();
    if !vary.is_empty() {
        head.fields.append(b"vary", vary.as_bytes()).unwrap();
    }
    head
}
fn at(ms: u64) -> CacheTime {
    CacheTime { unix_s: 1000 + ms / 1000, ms }
}

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Flag>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A request, and whether it was woken since it was polled.
struct Client {
    query: CacheQuery,
    collapsing: Collapsing,
    woken: Arc<Flag>,
    since_ms: u64,
}

impl Client {
    fn new(cache: &Arc<Cache>, key: &str, fields: &[(&str, &str)], since_ms: u64) -> Client {
        let head = request(key, fields);
        let query = cache.query(&head, b"GET", false).unwrap();
        Client { query, collapsing: cache.collapse(may_fetch(&head)), woken: Arc::default(), since_ms }
    }
    fn poll(&mut self, ms: u64) -> Poll<Collapsed> {
        self.woken.0.store(false, Ordering::Relaxed);
        self.collapsing.poll(&self.query, at(ms), &self.woken.clone().into())
    }
    fn is_woken(&self) -> bool {
        self.woken.0.load(Ordering::Relaxed)
    }
    fn is_due(&self, ms: u64) -> bool {
        self.collapsing.until_ms().is_some_and(|until| ms >= until)
    }
}

/// The first of the clients fetches, the others wait.
fn crowd(cache: &Arc<Cache>, count: usize, ms: u64) -> (Fetch, Vec<Client>) {
    let mut first = Client::new(cache, "k", &[], ms);
    let Poll::Ready(Collapsed::Fetch(fetch)) = first.poll(ms) else { panic!("the first fetches") };
    let mut others: Vec<Client> = (1..count).map(|_| Client::new(cache, "k", &[], ms)).collect();
    for other in &mut others {
        assert!(other.poll(ms).is_pending());
    }
    assert_eq!(cache.collapses(), Collapses { collapsed: 0, fetching: 1, waiting: count as u64 - 1 });
    (fetch, others)
}
fn begin(cache: &Arc<Cache>, key: &str, fields: &[(&str, &str)], vary: &str, ms: u64) -> Option<Storing> {
    let query = cache.query(&request(key, fields), b"GET", false).unwrap();
    cache.store(&query, &response(vary), Framing::Chunked, at(ms).unix_s)
}
fn nothing_is_left(cache: &Cache) {
    assert_eq!((cache.collapses().fetching, cache.collapses().waiting), (0, 0));
}

#[test]
fn those_who_wait_get_what_the_first_has_stored() {
    let cache = cache(1 << 20);
    let (fetch, mut others) = crowd(&cache, 100, 0);
    let mut storing = begin(&cache, "k", &[], "", 10).unwrap();
    storing.carry(fetch);
    assert!(storing.append(b"body"));
    assert!(others.iter_mut().all(|other| !other.is_woken() && other.poll(20).is_pending()));
    storing.complete(None);
    for mut other in others {
        assert!(other.is_woken());
        let Poll::Ready(Collapsed::Stored(entry)) = other.poll(30) else { panic!("it is stored") };
        assert_eq!(entry.len(), 4);
    }
    assert_eq!(cache.collapses(), Collapses { collapsed: 99, fetching: 0, waiting: 0 });
    // Whoever comes later has not waited.
    assert!(matches!(Client::new(&cache, "k", &[], 40).poll(40), Poll::Ready(Collapsed::Stored(_))));
    assert_eq!(cache.collapses().collapsed, 99);
}

#[test]
fn what_is_not_stored_is_waited_for_by_nobody_for_a_while() {
    let cache = cache(1 << 20);
    let (fetch, others) = crowd(&cache, 100, 0);
    fetch.refuse(at(10).unix_s);
    for mut other in others {
        assert!(other.is_woken());
        assert!(matches!(other.poll(10), Poll::Ready(Collapsed::Alone)));
    }
    let soon = REFUSED_S * 1000 - 1;
    assert!(matches!(Client::new(&cache, "k", &[], soon).poll(soon), Poll::Ready(Collapsed::Alone)));
    assert!(matches!(Client::new(&cache, "other", &[], soon).poll(soon), Poll::Ready(Collapsed::Fetch(_))));
    let later = soon + 1000;
    let Poll::Ready(Collapsed::Fetch(fetch)) = Client::new(&cache, "k", &[], later).poll(later) else { panic!() };
    fetch.refuse(at(later).unix_s);
    // One that is stored after all ends it before its time.
    begin(&cache, "k", &[], "", later).unwrap().complete(None);
    cache.invalidate(&cache.query(&request("k", &[]), b"GET", false).unwrap());
    assert!(matches!(Client::new(&cache, "k", &[], later).poll(later), Poll::Ready(Collapsed::Fetch(_))));
    nothing_is_left(&cache);
}

#[test]
fn one_of_those_who_wait_fetches_if_the_first_has_left_but_not_again_and_again() {
    let cache = cache(1 << 20);
    let (mut fetch, mut others) = crowd(&cache, 100, 0);
    for left in (98..=99).rev() {
        drop(fetch);
        assert_eq!(others.len(), left);
        assert!(others.iter().all(Client::is_woken));
        let mut first = others.remove(0);
        let Poll::Ready(Collapsed::Fetch(next)) = first.poll(10) else { panic!("the next fetches") };
        fetch = next;
        assert!(others.iter_mut().all(|other| other.poll(10).is_pending()));
    }
    drop(fetch);
    let outcomes: Vec<Collapsed> = others.iter_mut().map(|other| ready(other.poll(20))).collect();
    // They have waited often enough. The first of them may be waited for, by whoever comes.
    assert!(matches!(outcomes[0], Collapsed::Fetch(_)));
    assert!(outcomes[1..].iter().all(|outcome| matches!(outcome, Collapsed::Alone)));
    drop((outcomes, others));
    nothing_is_left(&cache);
}

fn ready(poll: Poll<Collapsed>) -> Collapsed {
    match poll {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => panic!("it waits"),
    }
}

#[test]
fn nobody_waits_longer_than_allowed() {
    let cache = cache(1 << 20);
    let (fetch, mut others) = crowd(&cache, 3, 0);
    assert!(others.iter().all(|other| other.collapsing.until_ms() == Some(LIMIT_MS)));
    assert!(others[0].poll(LIMIT_MS - 1).is_pending());
    assert!(matches!(others[0].poll(LIMIT_MS), Poll::Ready(Collapsed::Alone)));
    // What takes so long is not waited for by those who come late either.
    assert!(matches!(Client::new(&cache, "k", &[], LIMIT_MS).poll(LIMIT_MS), Poll::Ready(Collapsed::Alone)));
    // A second fetch does not give more time.
    assert!(others[1].poll(900).is_pending());
    drop(fetch);
    let Poll::Ready(Collapsed::Fetch(_next)) = Client::new(&cache, "k", &[], 900).poll(900) else { panic!() };
    assert!(others[1].is_woken() && others[1].poll(900).is_pending());
    assert_eq!(others[1].collapsing.until_ms(), Some(LIMIT_MS));
    assert!(matches!(others[1].poll(LIMIT_MS), Poll::Ready(Collapsed::Alone)));
}

#[test]
fn a_response_that_varies_is_waited_for_by_those_whom_it_answers() {
    let cache = cache(1 << 20);
    let gzip = [("accept-encoding", "gzip")];
    let br = [("accept-encoding", "br")];
    let mut first = Client::new(&cache, "k", &gzip, 0);
    let fetch = ready(first.poll(0));
    let mut same = Client::new(&cache, "k", &gzip, 0);
    let mut others = [Client::new(&cache, "k", &br, 0), Client::new(&cache, "k", &br, 0)];
    assert!(same.poll(0).is_pending() && others.iter_mut().all(|other| other.poll(0).is_pending()));
    let mut head = response("Accept-Encoding");
    head.fields.append(b"content-encoding", b"gzip").unwrap();
    let mut storing = cache.store(&first.query, &head, Framing::Chunked, 1000).unwrap();
    let Collapsed::Fetch(fetch) = fetch else { panic!() };
    storing.carry(fetch);
    // The head says that it varies: those who cannot take it have one fetch for them, and need not wait for the body.
    assert!(same.is_woken() && same.poll(1).is_pending());
    assert!(others.iter().all(Client::is_woken));
    let [Poll::Ready(Collapsed::Fetch(_second)), Poll::Pending] = others.each_mut().map(|other| other.poll(1)) else {
        panic!("one of them fetches");
    };
    // Now that it is known what it varies by, those who ask for a third do not wait for the second.
    let mut third = Client::new(&cache, "k", &[("accept-encoding", "zstd")], 1);
    assert!(matches!(third.poll(1), Poll::Ready(Collapsed::Fetch(_))));
    storing.complete(None);
    assert!(same.is_woken() && matches!(same.poll(2), Poll::Ready(Collapsed::Stored(_))));
    assert!(others[1].poll(2).is_pending());
}

#[test]
fn who_cannot_be_waited_for_waits_all_the_same() {
    for field in [("range", "bytes=0-1"), ("if-none-match", "\"x\""), ("upgrade", "websocket")] {
        let cache = cache(1 << 20);
        assert!(matches!(Client::new(&cache, "k", &[field], 0).poll(0), Poll::Ready(Collapsed::Alone)));
        let (fetch, _others) = crowd(&cache, 2, 0);
        let mut narrow = Client::new(&cache, "k", &[field], 0);
        assert!(narrow.poll(0).is_pending(), "{field:?}");
        drop(fetch);
        assert!(matches!(narrow.poll(0), Poll::Ready(Collapsed::Alone)));
    }
    // Nor does one wait that must not be answered from a cache; its response may be waited for.
    let cache = cache(1 << 20);
    for field in [("cache-control", "no-cache"), ("pragma", "no-cache")] {
        let fetch = ready(Client::new(&cache, "k", &[field], 0).poll(0));
        assert!(matches!(fetch, Collapsed::Fetch(_)));
        assert!(matches!(Client::new(&cache, "k", &[field], 0).poll(0), Poll::Ready(Collapsed::Alone)));
        assert!(Client::new(&cache, "k", &[], 0).poll(0).is_pending());
    }
    assert!(matches!(Client::new(&cache, "k", &[("authorization", "x")], 0).poll(0), Poll::Ready(Collapsed::Alone)));
    nothing_is_left(&cache);
}

#[test]
fn what_turns_out_too_large_is_refused_and_what_is_cut_off_is_fetched_again() {
    let cache = cache(64 << 10);
    let (fetch, mut others) = crowd(&cache, 2, 0);
    let mut storing = begin(&cache, "k", &[], "", 0).unwrap();
    storing.carry(fetch);
    drop(storing);
    let Collapsed::Fetch(fetch) = ready(others[0].poll(0)) else { panic!("the body ended too early") };
    let mut waits = Client::new(&cache, "k", &[], 0);
    assert!(waits.poll(0).is_pending());
    let mut storing = begin(&cache, "k", &[], "", 0).unwrap();
    storing.carry(fetch);
    assert!(!storing.append(&[0; 17 << 10]));
    drop(storing);
    assert!(waits.is_woken() && matches!(waits.poll(0), Poll::Ready(Collapsed::Alone)));
    assert_eq!(cache.used(), 0);
}

#[test]
fn whoever_comes_after_a_change_does_not_wait_for_what_was_asked_before_it() {
    let cache = cache(1 << 20);
    let (fetch, mut others) = crowd(&cache, 2, 0);
    cache.invalidate(&others[0].query);
    let after = Client::new(&cache, "k", &[], 0).poll(0);
    let Poll::Ready(Collapsed::Fetch(_)) = after else { panic!("it waits for what may be old") };
    assert!(others[0].is_woken() && others[0].poll(0).is_pending());
    drop(fetch);
    assert!(!others[0].is_woken(), "it waits for the second");
    drop(after);
    assert!(others[0].is_woken());
}

#[test]
fn what_another_one_stores_is_waited_for_too() {
    let cache = cache(1 << 20);
    let (fetch, mut others) = crowd(&cache, 2, 0);
    // A client that must have the server's answer gets it first.
    let storing = begin(&cache, "k", &[], "", 0).unwrap();
    assert!(begin(&cache, "k", &[], "", 0).is_none());
    fetch.refuse(at(0).unix_s);
    assert!(others[0].is_woken() && others[0].poll(0).is_pending());
    let mut late = Client::new(&cache, "k", &[], 0);
    assert!(late.poll(0).is_pending());
    assert_eq!(cache.collapses(), Collapses { collapsed: 0, fetching: 1, waiting: 2 });
    storing.complete(None);
    for client in [&mut others[0], &mut late] {
        assert!(client.is_woken() && matches!(client.poll(0), Poll::Ready(Collapsed::Stored(_))));
    }
    nothing_is_left(&cache);
}

#[test]
fn without_room_nobody_waits() {
    let cache = cache(4 << 10);
    let mut held = Vec::new();
    let alone = loop {
        match Client::new(&cache, &format!("k{}", held.len()), &[], 0).poll(0) {
            Poll::Ready(Collapsed::Fetch(fetch)) => held.push(fetch),
            Poll::Ready(Collapsed::Alone) => break held.len(),
            _ => panic!(),
        }
    };
    assert!((1..=(4 << 10) / OVERHEAD).contains(&alone), "{alone} fetches");
    assert!(cache.used() <= 4 << 10);
    drop(held);
    assert_eq!(cache.used(), 0);
    nothing_is_left(&cache);
}

/// A request that has asked the server.
enum Asking {
    Fetch(Fetch),
    Storing(Box<Storing>),
}

/// Requests come, servers answer in every way, clients leave, targets change and time passes, at random. After each of these nobody waits without
/// a reason: for each that waits there is a fetch, its time has not come, and looking again would not help.
#[test]
fn whatever_happens_nobody_waits_for_nothing() {
    const FIELDS: [&[(&str, &str)]; 7] = [
        &[],
        &[],
        &[("referer", "a")],
        &[("referer", "b"), ("accept-encoding", "gzip")],
        &[("accept-encoding", "gzip")],
        &[("cache-control", "no-cache")],
        &[("range", "bytes=0-1")],
    ];
    let (mut collapsed, mut alone) = (0, 0);
    for seed in 1..=150 {
        let cache = cache(if seed % 5 == 0 { 4 << 10 } else { 1 << 20 });
        let (mut rng, mut ms) = (fastrand::Rng::with_seed(seed), 0);
        let mut waiting: Vec<Client> = Vec::new();
        let mut asking: Vec<(CacheQuery, Asking)> = Vec::new();
        for _ in 0..400 {
            match rng.u32(..20) {
                0..10 => {
                    let key = ["a", "b"][rng.usize(..2)];
                    let client = Client::new(&cache, key, FIELDS[rng.usize(..FIELDS.len())], ms);
                    // As if it had been woken.
                    client.woken.0.store(true, Ordering::Relaxed);
                    waiting.push(client);
                }
                10 if !waiting.is_empty() => drop(waiting.swap_remove(rng.usize(..waiting.len()))),
                11..16 if !asking.is_empty() => {
                    let (query, what) = asking.swap_remove(rng.usize(..asking.len()));
                    match what {
                        Asking::Fetch(fetch) if rng.u32(..6) == 0 => fetch.refuse(at(ms).unix_s),
                        Asking::Fetch(fetch) if rng.u32(..5) == 0 => drop(fetch),
                        Asking::Fetch(fetch) => {
                            let vary = ["", "Referer", "Accept-Encoding", "Referer, Accept-Encoding"][rng.usize(..4)];
                            match cache.store(&query, &response(vary), Framing::Chunked, at(ms).unix_s) {
                                Some(mut storing) => {
                                    storing.carry(fetch);
                                    asking.push((query, Asking::Storing(Box::new(storing))));
                                }
                                None => fetch.refuse(at(ms).unix_s),
                            }
                        }
                        Asking::Storing(mut storing) => match rng.u32(..5) {
                            0 => drop(storing),
                            1 => assert!(!storing.append(&vec![0; 1 << 20])),
                            _ => {
                                if storing.append(&[1; 100]) {
                                    storing.complete(None);
                                }
                            }
                        },
                    }
                }
                16 => cache.invalidate(&cache.query(&request("a", &[]), b"GET", false).unwrap()),
                17 => ms += rng.u64(..LIMIT_MS / 2),
                18 if rng.u32(..10) == 0 => ms += rng.u64(..20 * LIMIT_MS),
                _ => {}
            }
            while let Some(next) = waiting.iter().position(|client| client.is_woken() || client.is_due(ms)) {
                let client = &mut waiting[next];
                let Poll::Ready(outcome) = client.poll(ms) else {
                    assert!(!client.is_due(ms), "seed {seed}: it waits for longer than it said");
                    continue;
                };
                let client = waiting.swap_remove(next);
                match outcome {
                    Collapsed::Stored(entry) => {
                        assert!(entry.variant.answers(client.query.asked.as_ref()), "seed {seed}");
                        collapsed += 1;
                    }
                    Collapsed::Fetch(fetch) => asking.push((client.query.clone(), Asking::Fetch(fetch))),
                    Collapsed::Alone => {
                        alone += 1;
                        let storing = cache.store(&client.query, &response(""), Framing::Chunked, at(ms).unix_s);
                        match (storing, rng.bool()) {
                            (Some(storing), true) => storing.complete(None),
                            (Some(storing), false) => {
                                asking.push((client.query.clone(), Asking::Storing(Box::new(storing))))
                            }
                            (None, _) => {}
                        }
                    }
                }
            }
            for client in &mut waiting {
                assert!(ms < client.since_ms + LIMIT_MS, "seed {seed}");
                assert!(asking.iter().any(|(query, _)| query.key == client.query.key), "seed {seed}: nobody fetches");
                assert!(client.poll(ms).is_pending(), "seed {seed}: it was not woken");
            }
            assert_eq!(cache.collapses().waiting, waiting.len() as u64, "seed {seed}");
        }
        drop((waiting, asking));
        nothing_is_left(&cache);
        for key in ["a", "b"] {
            cache.invalidate(&cache.query(&request(key, &[]), b"GET", false).unwrap());
        }
        assert_eq!(cache.used(), 0, "seed {seed}");
    }
    assert!(collapsed > 1000 && alone > 1000, "{collapsed} {alone}");
}
