//! The stored responses of one cache, shared by all workers and bounded in bytes.

use crate::{
    collapse::{Collapsing, Fetches, wake},
    date,
    entry::{CacheEntry, Room},
    query::CacheQuery,
    rules::lifetime,
    storing::Storing,
    vary::{Asked, Variant},
};
use penstock_http::{Fields, Framing, Known, RequestHead, ResponseHead, remove_hop_by_hop};
use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher, RandomState},
    mem::size_of,
    ops::Bound,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

/// What bounds a cache.
#[derive(Clone, Copy, Debug)]
pub struct CacheLimits {
    /// All that the cache may hold, in bytes, with what entries cost besides their contents.
    pub total: usize,
    /// The largest response, head and body.
    pub object: usize,
    /// The longest life of a response in seconds.
    pub age_s: u64,
    /// Whether responses that vary by fields of the request are stored.
    pub vary: bool,
    /// Variants of one key.
    pub variants: usize,
    /// Whether ranges are answered with parts, and not with the whole.
    pub ranges: bool,
    /// The longest time, in milliseconds, that a request waits for the response to another one; 0 if none does.
    pub collapse_ms: u64,
}

/// One cache.
#[derive(Debug)]
pub struct Cache {
    name: Arc<str>,
    limits: CacheLimits,
    /// Bytes taken: by entries, also those that are out of the index and still read, and by responses being stored.
    used: Arc<AtomicUsize>,
    /// The number of the next use of an entry.
    next: AtomicU64,
    /// Requests that got the response to another one, which they have waited for.
    pub(crate) collapsed: AtomicU64,
    shards: [Shard; SHARDS],
    hasher: RandomState,
}

/// How many parts the index has, each with a lock of its own: as many workers seldom meet in one of them.
const SHARDS: usize = 32;

#[derive(Debug, Default)]
struct Shard {
    index: Mutex<Index>,
    /// The first number in [`Index::order`]; that of an empty one is the largest.
    oldest: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct Index {
    keys: HashMap<Arc<[u8]>, Slot>,
    /// The entries' keys from the one that was used least recently on.
    order: BTreeMap<u64, Arc<[u8]>>,
    /// What is being fetched while others wait for it.
    pub(crate) fetches: Fetches,
}

/// What there is of a key.
#[derive(Debug, Default)]
struct Slot {
    /// Whole responses, with the number of their last use.
    entries: Vec<(u64, Arc<CacheEntry>)>,
    /// Responses that are being stored, by number.
    storing: Vec<(u64, Variant)>,
}

/// Bytes that an entry costs besides its contents: its place in the maps, which may be half empty, a dozen allocations' own headers,
/// the lists of entries and of pieces. `tests/memory.rs` compares it with what the process takes.
const OVERHEAD: usize = size_of::<CacheEntry>() + 2 * size_of::<Slot>() + 320;
/// Bytes that a field costs besides its name and value.
const FIELD: usize = 32;
/// Entries that are looked at for room, twice as many as the smallest ones that a piece of a body needs: those that
/// are being read stand in the way, and no search takes long.
const LOOKS: usize = 64;

impl Cache {
    /// An empty cache.
    pub fn new(name: &str, limits: CacheLimits) -> Arc<Cache> {
        let shards = std::array::from_fn(|_| Shard { oldest: AtomicU64::new(u64::MAX), ..Shard::default() });
        let (used, next, hasher) = (Arc::default(), AtomicU64::new(0), RandomState::new());
        Arc::new(Cache { name: name.into(), limits, used, next, collapsed: AtomicU64::new(0), shards, hasher })
    }
    /// The cache's name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }
    /// The cache's limits.
    pub fn limits(&self) -> CacheLimits {
        self.limits
    }
    /// Bytes that are taken now.
    pub fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// What this cache needs of a request, whose method was `received` before rules changed it; `None` if nothing identifies what it
    /// asks for.
    pub fn query(&self, request: &RequestHead, received: &[u8], has_body: bool) -> Option<CacheQuery> {
        CacheQuery::of(request, received, has_body, self.limits.vary)
    }

    /// The response for a request, if one is stored that may answer it.
    pub fn find(&self, query: &CacheQuery, now_s: u64) -> Option<Arc<CacheEntry>> {
        if !query.may_answer() {
            return None;
        }
        let mut expired = Vec::new();
        let mut held = self.lock(&query.key);
        held.index.expire(&query.key, now_s, &mut expired);
        held.index.answer(query, self.number())
    }

    /// A request that was not answered from the cache and may wait for the response to another one; `may_fetch` says whether others may
    /// wait for its own.
    pub fn collapse(self: &Arc<Self>, may_fetch: bool) -> Collapsing {
        Collapsing::new(self.clone(), may_fetch)
    }

    /// What there is of requests that wait for the response to another one.
    pub fn collapses(&self) -> Collapses {
        let mut all = Collapses { collapsed: self.collapsed.load(Relaxed), ..Collapses::default() };
        for shard in self.shards.iter().filter(|_| self.limits.collapse_ms > 0) {
            let (fetching, waiting) = Held::of(shard).index.fetches.counts();
            (all.fetching, all.waiting) = (all.fetching + fetching as u64, all.waiting + waiting as u64);
        }
        all
    }

    /// Begins to store the response to a request; `None` if it must not be stored, there is no room, or the same one is being
    /// stored already.
    pub fn store(
        self: &Arc<Self>,
        query: &CacheQuery,
        response: &ResponseHead,
        framing: Framing,
        now_s: u64,
    ) -> Option<Storing> {
        let limits = self.limits;
        let announced = match framing {
            Framing::Length(length) => usize::try_from(length).ok()?,
            _ => 0,
        };
        if !query.may_store() || response.fields.text_len().saturating_add(announced) > limits.object {
            return None;
        }
        let life = lifetime(response, query.authorized, limits.age_s, now_s)?;
        let variant = Variant::of(response, query.asked.as_ref().filter(|_| limits.vary))?;
        let mut expired = Vec::new();
        let mut held = self.lock(&query.key);
        held.index.expire(&query.key, now_s, &mut expired);
        if !held.index.has_place(&query.key, &variant, limits.variants) {
            return None;
        }
        // Room may be found in any part of the index.
        drop(held);
        drop(expired);
        let head = stored_head(response);
        let cost = OVERHEAD + query.key.len() * 2 + variant.size() * 2 + cost_of(&head.fields);
        let mut room = Room::none(&self.used);
        if !self.take(&mut room, cost) {
            return None;
        }
        let number = self.number();
        let mut held = self.lock(&query.key);
        // Another worker may have begun meanwhile.
        if !held.index.has_place(&query.key, &variant, limits.variants) {
            return None;
        }
        let key: Arc<[u8]> = (*query.key).into();
        held.index.keys.entry(key.clone()).or_default().storing.push((number, variant.clone()));
        held.index.fetches.refused.clear(self.hash(&key));
        drop(held);
        Some(Storing {
            cache: self.clone(),
            key,
            number,
            fetch: None,
            left: limits.object - head.fields.text_len(),
            entry: Some(CacheEntry {
                last_modified_s: last_modified(&head).unwrap_or(now_s),
                head,
                framing,
                trailers: None,
                body: Vec::new(),
                length: 0,
                variant,
                age_s: life.age_s,
                stored_s: now_s,
                expires_s: now_s + life.left_s,
                room,
            }),
        })
    }

    /// Drops what is stored, and what is being stored, for the target of a request.
    pub fn invalidate(&self, query: &CacheQuery) {
        let mut held = self.lock(&query.key);
        let slot = held.index.keys.remove(&query.key[..]);
        for (number, _) in slot.iter().flat_map(|slot| &slot.entries) {
            held.index.order.remove(number);
        }
        let woken = held.index.fetches.forget(&query.key);
        drop(held);
        woken.into_iter().for_each(wake);
    }

    /// The stored responses, read little by little.
    pub fn entries(&self) -> CachedEntries<'_> {
        CachedEntries { cache: self, shard: 0, from: Bound::Unbounded, page: Vec::new().into_iter() }
    }

    /// Takes room for a response, evicting those that were used least recently as far as needed; returns whether there was some.
    pub(crate) fn take(&self, room: &mut Room, bytes: usize) -> bool {
        for _ in 0..LOOKS {
            if room.grow(bytes, self.limits.total) {
                return true;
            }
            if !self.evict() {
                return false;
            }
        }
        room.grow(bytes, self.limits.total)
    }

    /// Makes a response that is whole available, unless it was invalidated meanwhile.
    pub(crate) fn publish(&self, key: &Arc<[u8]>, number: u64, entry: Arc<CacheEntry>) {
        let mut replaced = Vec::new();
        let mut held = self.lock(key);
        let Index { keys, order, fetches } = &mut *held.index;
        let Some(slot) = keys.get_mut(key) else { return };
        let Some(at) = slot.storing.iter().position(|(other, _)| *other == number) else { return };
        slot.storing.swap_remove(at);
        if slot.storing.is_empty() {
            // Most keys have one response, and wait long for the next.
            slot.storing = Vec::new();
        }
        // A server that has changed its mind about what it varies by has replaced the others too.
        slot.entries.retain(|(other, stored)| {
            let stays = stored.variant != entry.variant && stored.variant.is_like(&entry.variant);
            if !stays {
                order.remove(other);
                replaced.push(stored.clone());
            }
            stays
        });
        slot.entries.reserve_exact(1);
        slot.entries.push((number, entry));
        order.insert(number, key.clone());
        let woken = fetches.stored(key);
        // What was replaced is freed after the lock.
        drop(held);
        woken.into_iter().for_each(wake);
    }

    /// Forgets that a response is being stored.
    pub(crate) fn forget(&self, key: &[u8], number: u64) {
        let mut held = self.lock(key);
        if let Some(slot) = held.index.keys.get_mut(key) {
            slot.storing.retain(|(other, _)| *other != number);
            held.index.tidy(key);
        }
        let ended = held.index.fetches.end(key, number);
        drop(held);
        ended.into_iter().for_each(|fetch| wake(fetch.waiting));
    }

    /// Drops the entry that was used least recently, unless someone reads it; returns whether there is any.
    fn evict(&self) -> bool {
        let oldest = self.shards.iter().min_by_key(|shard| shard.oldest.load(Relaxed));
        let Some(shard) = oldest.filter(|shard| shard.oldest.load(Relaxed) < u64::MAX) else { return false };
        let mut held = Held::of(shard);
        let Some((number, key)) = held.index.order.pop_first() else { return true };
        let Some(slot) = held.index.keys.get_mut(&key) else { return true };
        let Some(at) = slot.entries.iter().position(|(other, _)| *other == number) else { return true };
        if Arc::strong_count(&slot.entries[at].1) > 1 {
            // Its memory is free only once nobody reads it: it stays, and moves out of the way.
            let next = self.number();
            slot.entries[at].0 = next;
            held.index.order.insert(next, key);
            return true;
        }
        let _evicted = slot.entries.swap_remove(at);
        held.index.tidy(&key);
        drop(held);
        true
    }

    pub(crate) fn lock(&self, key: &[u8]) -> Held<'_> {
        Held::of(&self.shards[self.hash(key) as usize % SHARDS])
    }
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }
    /// A number that nothing else has.
    pub(crate) fn number(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }
    pub(crate) fn no_room(&self) -> Room {
        Room::none(&self.used)
    }
}

/// What there is of requests that wait for the response to another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collapses {
    /// Requests that have got it so far.
    pub collapsed: u64,
    /// Responses that are being fetched, whether someone waits for them or not.
    pub fetching: u64,
    /// Requests that wait.
    pub waiting: u64,
}

/// A part of the index that is locked.
pub(crate) struct Held<'a> {
    pub(crate) index: MutexGuard<'a, Index>,
    oldest: &'a AtomicU64,
}

impl<'a> Held<'a> {
    fn of(shard: &'a Shard) -> Self {
        // Nothing panics while it is held; and if something did, the index would still be one.
        Held { index: shard.index.lock().unwrap_or_else(PoisonError::into_inner), oldest: &shard.oldest }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let first = self.index.order.first_key_value().map_or(u64::MAX, |(number, _)| *number);
        self.oldest.store(first, Relaxed);
    }
}

impl Index {
    /// The entry that answers a request, used once more: `number` is that of this use.
    pub(crate) fn answer(&mut self, query: &CacheQuery, number: u64) -> Option<Arc<CacheEntry>> {
        let slot = self.keys.get_mut(&query.key[..])?;
        let (last, entry) = slot.entries.iter_mut().find(|(_, entry)| entry.variant.answers(query.asked.as_ref()))?;
        let (before, found) = (std::mem::replace(last, number), entry.clone());
        let key = self.order.remove(&before)?;
        self.order.insert(number, key);
        Some(found)
    }
    /// What is being fetched, and what the response for a key varies by that came last.
    pub(crate) fn collapsing(&mut self, key: &[u8]) -> (&mut Fetches, Option<&Variant>) {
        let variant = self.keys.get(key).and_then(|slot| {
            let stored = slot.entries.last().map(|(_, entry)| &entry.variant);
            slot.storing.last().map(|(_, variant)| variant).or(stored)
        });
        (&mut self.fetches, variant)
    }
    /// Has requests wait for a response that is being stored, though it is not that of a fetch: its request did not look whether others wait.
    pub(crate) fn adopt(&mut self, query: &CacheQuery, until_ms: u64) {
        let storing = self.keys.get(&query.key[..]).map_or(&[][..], |slot| &slot.storing);
        if let Some((number, variant)) = storing.iter().find(|(_, variant)| variant.answers(query.asked.as_ref())) {
            self.fetches.adopt(query, *number, variant, until_ms);
        }
    }
    /// Whether a response that answers a request which says `asked` is being stored.
    pub(crate) fn stores(&self, key: &[u8], asked: Option<&Asked>) -> bool {
        self.keys.get(key).is_some_and(|slot| slot.storing.iter().any(|(_, variant)| variant.answers(asked)))
    }
    /// Takes the entries of a key that have expired out, for the caller to free after the lock.
    pub(crate) fn expire(&mut self, key: &[u8], now_s: u64, into: &mut Vec<Arc<CacheEntry>>) {
        let Some(slot) = self.keys.get_mut(key) else { return };
        let order = &mut self.order;
        into.extend(slot.entries.extract_if(.., |(_, entry)| entry.expires_s <= now_s).map(|(number, entry)| {
            order.remove(&number);
            entry
        }));
        if !into.is_empty() {
            self.tidy(key);
        }
    }
    /// Whether a variant of a key may be stored now: it is not being stored already, and there are not too many others.
    fn has_place(&self, key: &[u8], variant: &Variant, most: usize) -> bool {
        let Some(slot) = self.keys.get(key) else { return true };
        if slot.storing.iter().any(|(_, other)| other == variant) {
            return false;
        }
        // Those that are unlike it or the same will be replaced.
        let stays = |other: &Variant| other != variant && other.is_like(variant);
        let stored = slot.entries.iter().filter(|(_, entry)| stays(&entry.variant)).count();
        stored + slot.storing.len() < most
    }
    /// Forgets a key of which there is nothing.
    fn tidy(&mut self, key: &[u8]) {
        if self.keys.get(key).is_some_and(|slot| slot.entries.is_empty() && slot.storing.is_empty()) {
            self.keys.remove(key);
        }
    }
}

/// The head as it is stored: without what concerns one connection, and without the age. Its fields are written anew, since those
/// that rules have changed still hold the text that they had.
fn stored_head(response: &ResponseHead) -> ResponseHead {
    let mut head = response.clone();
    remove_hop_by_hop(&mut head.fields, false);
    head.fields.remove(b"age");
    let mut fields = Fields::new();
    fields.reserve(head.fields.len(), head.fields.text_len());
    for field in head.fields.iter() {
        fields.append(field.name, field.value).expect("it was a field before");
    }
    head.fields = fields;
    head
}

pub(crate) fn cost_of(fields: &Fields) -> usize {
    fields.text_len() + fields.len() * FIELD
}

fn last_modified(head: &ResponseHead) -> Option<u64> {
    let field = head.fields.known(Known::LastModified).or(head.fields.known(Known::Date))?;
    date::parse(field)
}

/// FNV-1a: the number by which `show cache` names a key.
fn hash(key: &[u8]) -> u32 {
    key.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// A stored response as `show cache` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryView {
    /// A number for its key.
    pub hash: u32,
    /// A number for what it varies by; 0 if it does not.
    pub variant: u64,
    /// Bytes of the response, head and body.
    pub size: u64,
    /// Bytes that it takes.
    pub cost: u64,
    /// Exchanges that it is being sent in.
    pub readers: u64,
    /// The time at which the response expires, in seconds since 1970.
    pub expires_s: u64,
}

/// The entries of a cache, a page at a time, so that no lock is held for long. Those that are used meanwhile may come twice.
#[derive(Debug)]
pub struct CachedEntries<'a> {
    cache: &'a Cache,
    shard: usize,
    from: Bound<u64>,
    page: std::vec::IntoIter<EntryView>,
}

/// Entries of a page.
const PAGE: usize = 64;

impl Iterator for CachedEntries<'_> {
    type Item = EntryView;
    fn next(&mut self) -> Option<EntryView> {
        loop {
            if let Some(view) = self.page.next() {
                return Some(view);
            }
            let cache = self.cache;
            let held = Held::of(cache.shards.get(self.shard)?);
            let mut page = Vec::with_capacity(PAGE);
            let mut last = None;
            for (number, key) in held.index.order.range((self.from, Bound::Unbounded)).take(PAGE) {
                last = Some(*number);
                let entries = held.index.keys.get(key).map_or(&[][..], |slot| &slot.entries);
                let Some((_, entry)) = entries.iter().find(|(other, _)| other == number) else { continue };
                page.push(EntryView {
                    hash: hash(key),
                    variant: entry.variant.number(),
                    size: entry.length + entry.head.fields.text_len() as u64,
                    cost: entry.room.bytes as u64,
                    readers: Arc::strong_count(entry).saturating_sub(1) as u64,
                    expires_s: entry.expires_s,
                });
            }
            match last {
                Some(number) => self.from = Bound::Excluded(number),
                None => (self.shard, self.from) = (self.shard + 1, Bound::Unbounded),
            }
            self.page = page.into_iter();
        }
    }
}

#[cfg(test)]
mod tests;
