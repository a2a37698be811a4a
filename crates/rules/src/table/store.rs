//! The table itself: maps keys to entries, in shards that workers lock one at a time.

use super::{Data, Millis, Removal, TableSpec, journal::Journal, key::KeyBuffer, names::Names, rate, schema::Column};
use crate::value::Value;
use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

/// What is stored for one key.
#[derive(Debug)]
pub struct Entry {
    /// Also the table's key for the entry, so that it is stored once.
    key: Arc<[u8]>,
    data: Mutex<Box<[u64]>>,
    /// How many requests and connections track the entry; while there are any, it is not purged.
    pub(super) trackers: AtomicU32,
    /// When the entry was last used. What a peer has sent may have been used before this process started.
    pub(super) touched: AtomicI64,
    /// The entry's place in the journal, 0 for none.
    pub(super) place: AtomicU64,
}

impl Entry {
    pub(super) fn data(&self) -> MutexGuard<'_, Box<[u64]>> {
        // A panic while counting leaves wrong numbers at worst, not a broken structure.
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// The key as the table stores it.
    pub fn key(&self) -> &[u8] {
        &self.key
    }
    /// How many requests and connections track the entry.
    pub fn trackers(&self) -> u32 {
        self.trackers.load(Relaxed)
    }
}

#[derive(Debug, Default)]
struct Shard {
    entries: HashMap<Arc<[u8]>, Arc<Entry>>,
    /// Keys in the order of the last use recorded here. An entry used since then is moved to the end when its turn
    /// comes, so that a use costs only a store.
    order: VecDeque<(i64, Arc<[u8]>)>,
}

/// A stick table, shared by all workers.
#[derive(Debug)]
pub struct StickTable {
    /// The proxy or `peers` section that declares it, which is its name.
    pub name: String,
    /// The table's configuration.
    pub spec: TableSpec,
    /// What peers are to be told, if the table is shared.
    pub(super) journal: Option<Journal>,
    pub(super) names: Names,
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
    /// The number of entries in all shards together, at most `size`.
    held: AtomicUsize,
}

/// Below this size a table is one shard, so that the least recently used entry of all makes room for a new one; above, it is spread
/// over several, and the one of the new key's shard does.
const SPREAD_FROM: usize = 4096;
/// In this many shards an entry is looked for that may make room for a new one.
const SHARDS_TRIED: usize = 4;
/// The size of a shard. It is locked while an operator lists its entries, which for this many takes a fraction of a
/// millisecond.
const SHARD: usize = 8192;

impl StickTable {
    /// An empty table.
    pub fn new(name: &str, spec: TableSpec) -> Self {
        let shards = if spec.size < SPREAD_FROM { 1 } else { (spec.size / SHARD).clamp(16, 1024) };
        StickTable {
            name: name.to_owned(),
            journal: spec.peers.is_some().then(Journal::default),
            names: Names::default(),
            spec,
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            held: AtomicUsize::new(0),
        }
    }

    /// The index of a key's shard.
    fn shard_of(&self, key: &[u8]) -> usize {
        if self.shards.len() == 1 { 0 } else { self.hasher.hash_one(key) as usize % self.shards.len() }
    }

    fn lock(&self, at: usize) -> MutexGuard<'_, Shard> {
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Shard> {
        self.lock(self.shard_of(key))
    }

    pub(super) fn expired(&self, entry: &Entry, now: Millis) -> bool {
        self.spec.expire.is_some_and(|expire| now as i64 - entry.touched.load(Relaxed) >= expire as i64)
            && entry.trackers() == 0
    }

    /// The entry for a key, if there is one that has not expired. Does not count as a use.
    pub fn lookup(&self, key: Value<'_>, now: Millis) -> Option<Arc<Entry>> {
        self.find(key, now).flatten()
    }

    /// The entry for a key in the form the table stores, if there is one that has not expired.
    pub fn lookup_key(&self, key: &[u8], now: Millis) -> Option<Arc<Entry>> {
        let entry = self.shard(key).entries.get(key).cloned()?;
        (!self.expired(&entry, now)).then_some(entry)
    }

    /// The entry for a key, if there is one; the outer `None` if the sample cannot be a key of this table.
    pub(crate) fn find(&self, key: Value<'_>, now: Millis) -> Option<Option<Arc<Entry>>> {
        let mut room = KeyBuffer::new();
        self.spec.key.key(key, &mut room)?;
        Some(self.lookup_key(room.bytes(), now))
    }

    /// The entry for a key, created if there is none. `None` if the sample cannot be a key of this table, or if the
    /// table is full and nothing may be dropped.
    pub fn get_or_insert(&self, key: Value<'_>, now: Millis) -> Option<Arc<Entry>> {
        let mut room = KeyBuffer::new();
        self.spec.key.key(key, &mut room)?;
        self.get_or_insert_key(room.bytes(), now)
    }

    /// The entry for a key in the form the table stores, created if there is none.
    pub fn get_or_insert_key(&self, key: &[u8], now: Millis) -> Option<Arc<Entry>> {
        self.obtain(key, now).inspect(|entry| self.changed(entry))
    }

    /// As [`StickTable::get_or_insert_key`], without telling peers.
    pub(super) fn obtain(&self, key: &[u8], now: Millis) -> Option<Arc<Entry>> {
        let own = self.shard_of(key);
        self.obtain_in(own, key, now).or_else(|| {
            // Everything in the key's own shard is in use.
            (own + 1..own + SHARDS_TRIED.min(self.shards.len())).find_map(|at| {
                self.purge(&mut self.lock(at % self.shards.len()), now, !self.spec.nopurge);
                self.obtain_in(own, key, now)
            })
        })
    }

    /// The entry for a key of the shard at `own`. `None` if the table is full, and nothing of that shard may be dropped.
    fn obtain_in(&self, own: usize, key: &[u8], now: Millis) -> Option<Arc<Entry>> {
        let mut shard = self.lock(own);
        if let Some(entry) = shard.entries.get(key) {
            if !self.expired(entry, now) {
                entry.touched.store(now as i64, Relaxed);
                return Some(Arc::clone(entry));
            }
            self.drop_entry(&mut shard, key);
        }
        if !self.claim() {
            self.purge(&mut shard, now, !self.spec.nopurge);
            if !self.claim() {
                return None;
            }
        }
        let key: Arc<[u8]> = key.into();
        let entry = Arc::new(Entry {
            key: Arc::clone(&key),
            data: Mutex::new(vec![0; self.spec.schema.slots()].into()),
            trackers: AtomicU32::new(0),
            touched: AtomicI64::new(now as i64),
            place: AtomicU64::new(0),
        });
        shard.order.push_back((now as i64, Arc::clone(&key)));
        shard.entries.insert(key, Arc::clone(&entry));
        Some(entry)
    }

    /// Counts an entry that is about to be inserted; `false` if the table is full.
    fn claim(&self) -> bool {
        self.held.fetch_update(Relaxed, Relaxed, |held| (held < self.spec.size.max(1)).then_some(held + 1)).is_ok()
    }

    fn drop_entry(&self, shard: &mut Shard, key: &[u8]) {
        let Some(entry) = shard.entries.remove(key) else { return };
        self.held.fetch_sub(1, Relaxed);
        if let Some(journal) = &self.journal {
            journal.dropped(&entry);
        }
    }

    /// Peers are to be told of an entry.
    fn changed(&self, entry: &Arc<Entry>) {
        if let Some(journal) = &self.journal {
            journal.changed(entry);
        }
    }

    /// Drops what has expired, and with `force` also the least recently used entry. The work per call is bounded; returns whether it
    /// ended for that, and something was dropped.
    fn purge(&self, shard: &mut Shard, now: Millis, mut force: bool) -> bool {
        const TURNS: usize = 64;
        let mut dropped = false;
        for _ in 0..TURNS {
            let Some((seen, key)) = shard.order.pop_front() else { return false };
            let Some(entry) = shard.entries.get(&key) else { continue };
            let touched = entry.touched.load(Relaxed);
            let tracked = entry.trackers() > 0;
            if touched > seen || tracked {
                shard.order.push_back((touched.max(seen), key));
            } else if self.expired(entry, now) || force {
                self.drop_entry(shard, &key);
                (force, dropped) = (false, true);
            } else {
                // The oldest one is still fresh, and so are all after it.
                shard.order.push_front((seen, key));
                return false;
            }
        }
        dropped
    }

    /// Drops some entries of a part that have expired; returns whether there may be more. Called from time to time, so that an idle table
    /// frees its memory.
    pub fn expire(&self, part: usize, now: Millis) -> bool {
        let mut shard = self.lock(part);
        let has_more = self.purge(&mut shard, now, false);
        // Keys of entries that were replaced are dropped from the queue here.
        if shard.order.len() > 2 * shard.entries.len() + 64 {
            let Shard { entries, order } = &mut *shard;
            order.retain(|(_, key)| entries.contains_key(key));
        }
        has_more
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.held.load(Relaxed)
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many more entries fit.
    pub fn available(&self) -> usize {
        self.spec.size.saturating_sub(self.len())
    }

    /// The number of parts, each with a lock of its own.
    pub fn parts(&self) -> usize {
        self.shards.len()
    }

    /// The entries of one shard.
    pub(super) fn part(&self, at: usize) -> Vec<Arc<Entry>> {
        self.lock(at).entries.values().cloned().collect()
    }

    /// Drops the entry for a key, if it is not tracked and `gone` holds for it.
    pub(super) fn remove_if(&self, key: &[u8], gone: impl Fn(&Entry) -> bool) -> Removal {
        let mut shard = self.shard(key);
        match shard.entries.get(key) {
            None => Removal::Absent,
            Some(entry) if entry.trackers() > 0 => Removal::InUse,
            Some(entry) if gone(entry) => {
                self.drop_entry(&mut shard, key);
                Removal::Done
            }
            Some(_) => Removal::Absent,
        }
    }

    /// Records that an entry is in use.
    pub fn touch(&self, entry: &Arc<Entry>, now: Millis) {
        entry.touched.fetch_max(now as i64, Relaxed);
        self.changed(entry);
    }

    /// Milliseconds since it was last used.
    pub fn idle(&self, entry: &Entry, now: Millis) -> Millis {
        (now as i64 - entry.touched.load(Relaxed)).max(0) as Millis
    }

    /// Milliseconds until it expires; 0 for a table without `expire`.
    pub fn expires_in(&self, entry: &Entry, now: Millis) -> Millis {
        let left = |expire| entry.touched.load(Relaxed) + expire as i64 - now as i64;
        self.spec.expire.map_or(0, |expire| left(expire).max(0) as Millis)
    }

    /// The position of element `index` of a data type.
    fn slots(&self, data: Data, index: usize) -> Option<(Column, std::ops::Range<usize>)> {
        // A table that stores arrays also answers for the two older names, from the first elements.
        let schema = &self.spec.schema;
        let (data, index) = match data {
            Data::Gpc0 if !schema.has(data) => (Data::Gpc, 0),
            Data::Gpc1 if !schema.has(data) => (Data::Gpc, 1),
            Data::Gpc0Rate if !schema.has(data) => (Data::GpcRate, 0),
            Data::Gpc1Rate if !schema.has(data) => (Data::GpcRate, 1),
            Data::Gpt0 if !schema.has(data) => (Data::Gpt, 0),
            _ => (data, index),
        };
        let column = schema.column(data)?;
        let each = if data.is_rate() { rate::SLOTS } else { 1 };
        // A name is not a number.
        (index < column.len && data != Data::ServerKey)
            .then(|| (column, column.at + index * each..column.at + (index + 1) * each))
    }

    /// The period of a rate; 0 if it is not stored.
    pub(super) fn period(&self, data: Data) -> Millis {
        self.spec.schema.column(data).map_or(0, |column| column.period)
    }

    /// A stored number, or a current rate; `None` if the table does not store it.
    pub fn value(&self, entry: &Entry, data: Data, index: usize, now: Millis) -> Option<u64> {
        let (column, slots) = self.slots(data, index)?;
        let state = &entry.data()[slots];
        Some(if data.is_rate() { rate::read(state, now, column.period) } else { state[0] })
    }

    /// Counts events; does nothing if the table does not store the data type. Returns the number afterwards.
    pub fn add(&self, entry: &Arc<Entry>, data: Data, index: usize, events: u64, now: Millis) -> Option<u64> {
        let (column, slots) = self.slots(data, index)?;
        let after = {
            let state = &mut entry.data()[slots];
            if data.is_rate() {
                rate::add(state, now, column.period, events)
            } else {
                state[0] = state[0].saturating_add(events);
                state[0]
            }
        };
        self.changed(entry);
        Some(after)
    }

    /// Undoes [`Self::add`] (for `conn_cur`).
    pub(super) fn subtract(&self, entry: &Arc<Entry>, data: Data, events: u64) {
        if let Some((_, slots)) = self.slots(data, 0) {
            {
                let state = &mut entry.data()[slots];
                state[0] = state[0].saturating_sub(events);
            }
            self.changed(entry);
        }
    }

    /// Sets a number, or resets a rate; returns the previous value.
    pub fn set(&self, entry: &Arc<Entry>, data: Data, index: usize, value: u64) -> Option<u64> {
        let (_, slots) = self.slots(data, index)?;
        let before = {
            let state = &mut entry.data()[slots];
            let before = state[0];
            state.fill(0);
            state[0] = value;
            before
        };
        self.changed(entry);
        Some(before)
    }
}

impl Data {
    fn is_rate(self) -> bool {
        matches!(self.kind(), super::DataKind::Rate | super::DataKind::Rates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{KeyType, Schema};
    use std::net::Ipv4Addr;

    fn table(size: usize, expire: Option<Millis>, nopurge: bool) -> StickTable {
        let mut schema = Schema::default();
        schema.store(Data::ConnCnt, 0, 1);
        schema.store(Data::HttpReqRate, 10_000, 1);
        StickTable::new("t", TableSpec { key: KeyType::Ip, size, expire, nopurge, schema, ..TableSpec::default() })
    }

    fn ip(n: u32) -> Value<'static> {
        Value::Ipv4(Ipv4Addr::from(n))
    }

    #[test]
    fn counts_and_rates_belong_to_their_key() {
        let table = table(10, None, false);
        let one = table.get_or_insert(ip(1), 5).unwrap();
        assert_eq!(table.add(&one, Data::ConnCnt, 0, 1, 5), Some(1));
        assert_eq!(table.add(&one, Data::HttpReqRate, 0, 7, 5), Some(7));
        assert_eq!(table.add(&one, Data::SessCnt, 0, 1, 5), None, "not stored");
        let two = table.get_or_insert(ip(2), 5).unwrap();
        assert_eq!(table.value(&two, Data::ConnCnt, 0, 5), Some(0));
        assert_eq!(table.value(&table.lookup(ip(1), 6).unwrap(), Data::ConnCnt, 0, 6), Some(1));
    }

    #[test]
    fn a_full_table_forgets_the_least_recently_used() {
        let table = table(3, None, false);
        for n in 1..=3 {
            table.get_or_insert(ip(n), u64::from(n)).unwrap();
        }
        table.get_or_insert(ip(1), 10).unwrap();
        table.get_or_insert(ip(4), 11).unwrap();
        assert!(table.lookup(ip(2), 11).is_none(), "2 was used least recently");
        assert!(table.lookup(ip(1), 11).is_some() && table.lookup(ip(3), 11).is_some());
        assert_eq!(table.len(), 3);
    }

    #[test]
    fn nopurge_refuses_new_keys_until_old_ones_expire() {
        let table = table(1, Some(1_000), true);
        table.get_or_insert(ip(1), 0).unwrap();
        assert!(table.get_or_insert(ip(2), 999).is_none());
        assert!(table.get_or_insert(ip(2), 1_000).is_some());
        assert!(table.lookup(ip(1), 1_000).is_none());
    }

    #[test]
    fn all_that_has_expired_goes_a_few_at_a_time() {
        let table = table(1_000, Some(1_000), false);
        let used = table.get_or_insert(ip(0), 0).unwrap();
        used.trackers.store(1, Relaxed);
        (1..1_000).for_each(|n| drop(table.get_or_insert(ip(n), 0)));
        let passes: usize =
            (0..table.parts()).map(|part| (0..).take_while(|_| table.expire(part, 1_000)).count()).sum();
        assert_eq!(table.len(), 1);
        assert!(passes <= 1_000 / 64 + 1, "{passes}");
    }

    #[test]
    fn an_entry_in_use_is_never_dropped() {
        let table = table(1, Some(1_000), false);
        let entry = table.get_or_insert(ip(1), 0).unwrap();
        entry.trackers.store(1, Relaxed);
        assert!(table.get_or_insert(ip(2), 9_000).is_none());
        assert!(!table.expire(0, 9_000));
        assert!(table.lookup(ip(1), 9_000).is_some());
        entry.trackers.store(0, Relaxed);
        assert!(!table.expire(0, 9_000));
        assert!(table.is_empty());
    }

    #[test]
    fn memory_stays_bounded_under_a_flood_of_keys() {
        let table = table(SPREAD_FROM, Some(60_000), false);
        for n in 0..200_000u32 {
            table.get_or_insert(ip(n), u64::from(n / 100)).unwrap();
        }
        assert!(table.len() <= SPREAD_FROM);
        let queued: usize = table.shards.iter().map(|s| s.lock().unwrap().order.len()).sum();
        assert!(queued <= 2 * SPREAD_FROM, "{queued}");
    }

    #[test]
    fn a_table_of_several_shards_holds_as_many_entries_as_its_size() {
        let full = table(SPREAD_FROM, Some(60_000), true);
        let entries: Vec<_> = (0..SPREAD_FROM as u32).map(|n| full.get_or_insert(ip(n), 0)).collect();
        assert!(entries.iter().all(Option::is_some) && full.parts() > 1);
        assert!(full.get_or_insert(ip(1 << 20), 0).is_none(), "it is full, and nothing may be dropped");
        assert_eq!((full.len(), full.available()), (SPREAD_FROM, 0));
        // One that is not in use is found in another shard.
        let table = table(SPREAD_FROM, None, false);
        for n in 0..SPREAD_FROM as u32 {
            let entry = table.get_or_insert(ip(n), 0).unwrap();
            if n.is_multiple_of(2) {
                entry.trackers.fetch_add(1, Relaxed);
            }
        }
        for n in 0..1000 {
            assert!(table.get_or_insert(ip((1 << 20) + n), 1).is_some());
        }
        assert_eq!(table.len(), SPREAD_FROM);
        assert_eq!((0..table.parts()).map(|at| table.part(at).len()).sum::<usize>(), SPREAD_FROM);
    }

    #[test]
    fn keys_are_made_as_haproxy_makes_them() {
        let spec = |key| TableSpec { key, size: 9, ..TableSpec::default() };
        let strings = StickTable::new("s", spec(KeyType::String(4)));
        let entry = strings.get_or_insert(Value::str(b"abcdefgh"), 0).unwrap();
        assert_eq!(entry.key(), b"abcd");
        let blocks = StickTable::new("b", spec(KeyType::Binary(4)));
        assert_eq!(blocks.get_or_insert(Value::bin(b"ab"), 0).unwrap().key(), b"ab\0\0");
        let numbers = StickTable::new("i", spec(KeyType::Integer));
        assert_eq!(numbers.get_or_insert(Value::str(b"258"), 0).unwrap().key(), [0, 0, 1, 2]);
        let v6 = StickTable::new("6", spec(KeyType::Ipv6));
        assert_eq!(v6.get_or_insert(ip(1), 0).unwrap().key()[10..], [255, 255, 0, 0, 0, 1]);
        let v4 = StickTable::new("4", spec(KeyType::Ip));
        assert!(v4.get_or_insert(Value::Ipv6("2001:db8::1".parse().unwrap()), 0).is_none());
        let long = StickTable::new("l", spec(KeyType::Binary(100)));
        assert_eq!(long.get_or_insert(Value::bin(b"ab"), 0).unwrap().key().len(), 100);
    }
}
