//! Requests for a response that another request is fetching already: they wait until it is stored, instead of asking the server as
//! well (`collapse` in a cache section).
//!
//! Nobody is told what has become of a fetch. Those who wait for it are woken, and look again: they find the response, wait for another fetch,
//! fetch it themselves, or ask the server for themselves. So no answer can be lost between two of them, whatever happens at the same time.

use crate::{
    entry::{CacheEntry, Room},
    query::CacheQuery,
    store::Cache,
    vary::{Asked, Variant},
};
use penstock_http::RequestHead;
use std::{
    collections::{BTreeMap, HashMap},
    mem::size_of,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Poll, Waker},
};

/// The time, as a cache needs it.
#[derive(Clone, Copy, Debug)]
pub struct CacheTime {
    /// Seconds since 1970.
    pub unix_s: u64,
    /// Milliseconds on a clock that is the same for all workers, and never set.
    pub ms: u64,
}

/// What a request does whose response was not stored when it came.
#[derive(Debug)]
pub enum Collapsed {
    /// It is answered with what was stored meanwhile.
    Stored(Arc<CacheEntry>),
    /// It asks the server, and others wait for the response while this exists.
    Fetch(Fetch),
    /// It asks the server, for itself.
    Alone,
}

/// Fetches that a request waits for, one after another, at most. Whose client left ends without a response, and so does one that no server
/// answers, for which nobody should wait again and again.
const JOINS: u8 = 3;
/// For how long nobody waits for a response to what had one that was not stored, unless one is stored before that.
const REFUSED_S: u64 = 30;
/// Bytes that a fetch costs besides its key and what it was asked for.
const OVERHEAD: usize = size_of::<Running>() + size_of::<Fetch>() + 160;

/// Whether others may wait for the response to this request. What it says must not make the server send less than the whole, or something that
/// is for this client alone: that would not be stored.
pub fn may_fetch(request: &RequestHead) -> bool {
    const NARROWING: [&[u8]; 8] = [
        b"authorization",
        b"if-match",
        b"if-modified-since",
        b"if-none-match",
        b"if-range",
        b"if-unmodified-since",
        b"range",
        b"upgrade",
    ];
    NARROWING.iter().all(|name| request.fields.get(name).is_none())
}

/// A request that waits for the response to another one, or may do so.
#[derive(Debug)]
pub struct Collapsing {
    cache: Arc<Cache>,
    may_fetch: bool,
    /// Where it waits.
    place: Option<Place>,
    /// How many fetches it has waited for.
    joined: u8,
    /// When it stops waiting.
    until_ms: Option<u64>,
}

/// A place among those who wait for a fetch.
#[derive(Debug)]
struct Place {
    key: Arc<[u8]>,
    fetch: u64,
    ticket: u64,
    /// When that fetch is waited for no longer.
    until_ms: u64,
}

impl Collapsing {
    pub(crate) fn new(cache: Arc<Cache>, may_fetch: bool) -> Collapsing {
        Collapsing { cache, may_fetch, place: None, joined: 0, until_ms: None }
    }
    /// What the request does; while it waits, `waker` is woken when there is news.
    pub fn poll(&mut self, query: &CacheQuery, now: CacheTime, waker: &Waker) -> Poll<Collapsed> {
        let cache = self.cache.clone();
        let limits = cache.limits();
        let until_ms = *self.until_ms.get_or_insert(now.ms.saturating_add(limits.collapse_ms));
        let mut expired = Vec::new();
        let mut held = cache.lock(&query.key);
        held.index.expire(&query.key, now.unix_s, &mut expired);
        let stored = if query.may_answer() { held.index.answer(query, cache.number()) } else { None };
        if let Some(entry) = stored {
            self.leave(&mut held.index.fetches);
            drop(held);
            if self.joined > 0 {
                cache.collapsed.fetch_add(1, Relaxed);
            }
            return Poll::Ready(Collapsed::Stored(entry));
        }
        if query.may_answer() {
            held.index.adopt(query, now.ms.saturating_add(limits.collapse_ms));
        }
        let hash = cache.hash(&query.key);
        let (fetches, varies) = held.index.collapsing(&query.key);
        let waits_for = self.place.as_ref().map(|place| place.fetch);
        let is_refused = fetches.refused.has(hash, now.unix_s);
        let is_full = fetches.count(&query.key) >= limits.variants;
        let found = fetches.find(query, waits_for, varies);
        let alone = match &found {
            // It goes on waiting.
            Some((_, fetch)) if waits_for == Some(fetch.number) => now.ms >= until_ms.min(fetch.until_ms),
            // The last response was not stored, and so it will be again.
            _ if is_refused => true,
            Some((_, fetch)) => !query.may_answer() || now.ms >= until_ms.min(fetch.until_ms) || self.joined >= JOINS,
            None => is_full || !(self.may_fetch && query.may_store()),
        };
        if alone {
            self.leave(fetches);
            return Poll::Ready(Collapsed::Alone);
        }
        if let Some((key, fetch)) = found {
            let until_ms = until_ms.min(fetch.until_ms);
            match &self.place {
                Some(place) if place.fetch == fetch.number => fetch.wait(place.ticket, waker),
                _ => {
                    let place = Place { key: key.clone(), fetch: fetch.number, ticket: cache.number(), until_ms };
                    fetch.wait(place.ticket, waker);
                    self.leave(fetches);
                    self.place = Some(place);
                    self.joined += 1;
                }
            }
            return Poll::Pending;
        }
        let key: Arc<[u8]> = (*query.key).into();
        let number = cache.number();
        let until_ms = now.ms.saturating_add(limits.collapse_ms);
        let asked = query.asked.clone();
        let cost = OVERHEAD + key.len() + asked.as_ref().map_or(0, Asked::size);
        fetches.begin(key.clone(), Running::new(number, asked, None, until_ms));
        self.leave(fetches);
        drop(held);
        let mut fetch = Fetch { room: cache.no_room(), cache, key, number, refused_s: None };
        // Room may be found in any part of the index. Whoever has begun to wait meanwhile looks again.
        if !fetch.cache.take(&mut fetch.room, cost) {
            return Poll::Ready(Collapsed::Alone);
        }
        Poll::Ready(Collapsed::Fetch(fetch))
    }
    /// When a request that waits has to be polled again although nobody has woken it.
    pub fn until_ms(&self) -> Option<u64> {
        self.place.as_ref().map(|place| place.until_ms)
    }

    fn leave(&mut self, fetches: &mut Fetches) {
        if let Some(place) = self.place.take() {
            fetches.leave(&place);
        }
    }
}

impl Drop for Collapsing {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.cache.lock(&place.key).index.fetches.leave(&place);
        }
    }
}

/// A request whose response others wait for. When this ends they look again, whether it was stored or not.
#[derive(Debug)]
pub struct Fetch {
    cache: Arc<Cache>,
    key: Arc<[u8]>,
    number: u64,
    /// When it turned out that the response is not stored.
    refused_s: Option<u64>,
    room: Room,
}

impl Fetch {
    /// The response is there, and is not stored: those who wait ask for themselves, and so does whoever comes soon.
    pub fn refuse(mut self, now_s: u64) {
        self.note_refused(now_s);
    }
    /// As [`Fetch::refuse`], once it ends.
    pub(crate) fn note_refused(&mut self, now_s: u64) {
        self.refused_s = Some(now_s);
    }
    /// Whether it is one for this key of this cache.
    pub(crate) fn is_for(&self, cache: &Arc<Cache>, key: &[u8]) -> bool {
        Arc::ptr_eq(&self.cache, cache) && *self.key == *key
    }
    /// What the response varies by is known: those whom it does not answer need not wait any longer.
    pub(crate) fn varies(&self, variant: &Variant) {
        let woken = {
            let mut held = self.cache.lock(&self.key);
            held.index.fetches.varies(&self.key, self.number, variant)
        };
        wake(woken);
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        let hash = self.cache.hash(&self.key);
        let woken = {
            let mut held = self.cache.lock(&self.key);
            let ended = held.index.fetches.end(&self.key, self.number);
            if let Some((fetch, now_s)) = ended.as_ref().zip(self.refused_s)
                // Unless another one is storing it.
                && !held.index.stores(&self.key, fetch.asked.as_ref())
            {
                held.index.fetches.refused.put(hash, now_s.saturating_add(REFUSED_S));
            }
            ended.map(|fetch| fetch.waiting).unwrap_or_default()
        };
        wake(woken);
    }
}

/// Wakes those who have waited, after the lock.
pub(crate) fn wake(woken: BTreeMap<u64, Waker>) {
    woken.into_values().for_each(Waker::wake);
}

/// A response that is being fetched.
#[derive(Debug)]
pub(crate) struct Running {
    number: u64,
    /// What its request says in the fields by which responses may vary.
    asked: Option<Asked>,
    /// What the response varies by, once that is known.
    variant: Option<Variant>,
    /// From then on it takes too long to be waited for.
    until_ms: u64,
    /// Those who wait, by ticket.
    pub(crate) waiting: BTreeMap<u64, Waker>,
}

impl Running {
    fn new(number: u64, asked: Option<Asked>, variant: Option<Variant>, until_ms: u64) -> Running {
        Running { number, asked, variant, until_ms, waiting: BTreeMap::new() }
    }
    /// Whether the response will, as far as one can know, answer a request that says `asked`. `varies` is what others for the same key vary by.
    fn serves(&self, asked: Option<&Asked>, varies: Option<&Variant>) -> bool {
        match &self.variant {
            Some(variant) => variant.answers(asked),
            None => varies.is_none_or(|variant| variant.is_same_for(self.asked.as_ref(), asked)),
        }
    }
    fn wait(&mut self, ticket: u64, waker: &Waker) {
        self.waiting.entry(ticket).or_insert_with(|| waker.clone()).clone_from(waker);
    }
}

/// What is being fetched of a part of a cache's keys.
#[derive(Debug, Default)]
pub(crate) struct Fetches {
    running: HashMap<Arc<[u8]>, Vec<Running>>,
    pub(crate) refused: Refused,
}

impl Fetches {
    /// A fetch that a request can wait for: the one that it waits for already, if that is still of use to it. `varies` is what the last response
    /// for the key varies by.
    fn find(
        &mut self,
        query: &CacheQuery,
        waits_for: Option<u64>,
        varies: Option<&Variant>,
    ) -> Option<(Arc<[u8]>, &mut Running)> {
        let key = self.running.get_key_value(&query.key[..])?.0.clone();
        let running = self.running.get_mut(&key)?;
        let asked = query.asked.as_ref();
        let known = running.iter().position(|fetch| Some(fetch.number) == waits_for && fetch.serves(asked, None));
        let at = known.or_else(|| running.iter().position(|fetch| fetch.serves(asked, varies)))?;
        Some((key, &mut running[at]))
    }
    fn count(&self, key: &[u8]) -> usize {
        self.running.get(key).map_or(0, Vec::len)
    }
    /// A response that is being stored, under this number, may be waited for, unless there is another fetch for such requests.
    pub(crate) fn adopt(&mut self, query: &CacheQuery, number: u64, variant: &Variant, until_ms: u64) {
        if self.find(query, None, Some(variant)).is_none() {
            let fetch = Running::new(number, query.asked.clone(), Some(variant.clone()), until_ms);
            self.begin((*query.key).into(), fetch);
        }
    }
    fn begin(&mut self, key: Arc<[u8]>, fetch: Running) {
        self.running.entry(key).or_default().push(fetch);
    }
    fn leave(&mut self, place: &Place) {
        let running = self.running.get_mut(&place.key);
        if let Some(fetch) = running.and_then(|all| all.iter_mut().find(|fetch| fetch.number == place.fetch)) {
            fetch.waiting.remove(&place.ticket);
        }
    }
    /// Notes what the response of a fetch varies by; returns whom to wake.
    fn varies(&mut self, key: &[u8], number: u64, variant: &Variant) -> BTreeMap<u64, Waker> {
        let running = self.running.get_mut(key);
        let Some(fetch) = running.and_then(|all| all.iter_mut().find(|fetch| fetch.number == number)) else {
            return BTreeMap::new();
        };
        fetch.variant = Some(variant.clone());
        if variant.varies() { std::mem::take(&mut fetch.waiting) } else { BTreeMap::new() }
    }
    /// Those who wait for a response for a key: one was stored, and may be theirs.
    pub(crate) fn stored(&mut self, key: &[u8]) -> Vec<BTreeMap<u64, Waker>> {
        self.running.get_mut(key).into_iter().flatten().map(|fetch| std::mem::take(&mut fetch.waiting)).collect()
    }
    /// Removes a fetch that has ended.
    pub(crate) fn end(&mut self, key: &[u8], number: u64) -> Option<Running> {
        let running = self.running.get_mut(key)?;
        let at = running.iter().position(|fetch| fetch.number == number)?;
        let fetch = running.swap_remove(at);
        if running.is_empty() {
            self.running.remove(key);
        }
        Some(fetch)
    }
    /// Forgets all fetches for a key, since what they get may be old; returns those who wait for them.
    pub(crate) fn forget(&mut self, key: &[u8]) -> Vec<BTreeMap<u64, Waker>> {
        self.running.remove(key).into_iter().flatten().map(|fetch| fetch.waiting).collect()
    }
    /// How many fetches there are, and how many requests wait for them.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let all = || self.running.values().flatten();
        (all().count(), all().map(|fetch| fetch.waiting.len()).sum())
    }
}

/// Keys whose responses were not stored, by hash, each in the one place it can have: one that gets its place from another is forgotten,
/// and two with the same hash are taken for one. Neither does more than to make requests wait or not.
#[derive(Debug, Default)]
pub(crate) struct Refused(Box<[(u64, u64)]>);

/// Places in each part of the index.
const REFUSED: usize = 256;

impl Refused {
    fn place(hash: u64) -> usize {
        // Other bits than those that have chosen the part.
        (hash >> 32) as usize % REFUSED
    }
    fn has(&self, hash: u64, now_s: u64) -> bool {
        self.0.get(Self::place(hash)).is_some_and(|&(other, until_s)| other == hash && now_s < until_s)
    }
    fn put(&mut self, hash: u64, until_s: u64) {
        if self.0.is_empty() {
            self.0 = vec![(0, 0); REFUSED].into();
        }
        self.0[Self::place(hash)] = (hash, until_s);
    }
    /// A response was stored after all.
    pub(crate) fn clear(&mut self, hash: u64) {
        if let Some(place) = self.0.get_mut(Self::place(hash)).filter(|(other, _)| *other == hash) {
            *place = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests;
