//! The order in which entries changed, so that peers can be told. An entry has one place in it, that of its last change:
//! the journal is never longer than the table.

use super::Entry;
use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

/// The changes of one table, numbered from 1.
#[derive(Default)]
pub(super) struct Journal {
    /// The newest change that some peer was told. An entry that changed later and changes again is told once.
    told: AtomicU64,
    places: Mutex<Places>,
    /// Called when something waits that did not before.
    waker: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("told", &self.told).field("places", &self.places).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Places {
    newest: u64,
    /// An entry that was dropped is not kept alive by its place.
    entries: BTreeMap<u64, Weak<Entry>>,
}

impl Journal {
    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that an entry has changed. The change must have been made before.
    pub fn changed(&self, entry: &Arc<Entry>) {
        // Whoever tells peers raises `told` first, and reads the entry then. So if the entry still waits to be told, the
        // change will be seen.
        let waits = || entry.place.load(SeqCst) > self.told.load(SeqCst);
        if waits() {
            return;
        }
        let mut places = self.places();
        if waits() {
            return;
        }
        let old = entry.place.load(SeqCst);
        places.entries.remove(&old);
        places.newest += 1;
        let newest = places.newest;
        places.entries.insert(newest, Arc::downgrade(entry));
        entry.place.store(newest, SeqCst);
        drop(places);
        if let Some(wake) = self.waker.get() {
            wake();
        }
    }

    /// Sets what is called when something waits that did not before; works once.
    pub fn wake_with(&self, wake: Box<dyn Fn() + Send + Sync>) {
        let _ = self.waker.set(wake);
    }

    /// Forgets an entry that is dropped from the table.
    pub fn dropped(&self, entry: &Entry) {
        let place = entry.place.load(SeqCst);
        if place > 0 {
            self.places().entries.remove(&place);
        }
    }

    /// The newest change.
    pub fn newest(&self) -> u64 {
        self.places().newest
    }

    /// The newest change that some peer was told.
    pub fn told(&self) -> u64 {
        self.told.load(SeqCst)
    }

    /// Entries that changed after the change `after`, at most `most`, and the last change looked at. From now on they
    /// count as told, up to there.
    pub fn since(&self, after: u64, most: usize) -> (Vec<Arc<Entry>>, u64) {
        let mut places = self.places();
        let mut found = Vec::new();
        let mut reached = after;
        let mut gone = Vec::new();
        for (&place, entry) in places.entries.range(after.saturating_add(1)..).take(most) {
            reached = place;
            match entry.upgrade() {
                Some(entry) => found.push(entry),
                None => gone.push(place),
            }
        }
        gone.iter().for_each(|place| drop(places.entries.remove(place)));
        if found.len() + gone.len() < most {
            reached = places.newest.max(after);
        }
        self.told.fetch_max(reached, SeqCst);
        (found, reached)
    }
}

#[cfg(test)]
mod tests {
    use crate::table::{Data, KeyType, Schema, StickTable, TableSpec};

    fn table() -> StickTable {
        let mut schema = Schema::default();
        schema.store(Data::Gpc0, 0, 1);
        let spec =
            TableSpec { key: KeyType::Integer, size: 8, schema, peers: Some("p".into()), ..TableSpec::default() };
        StickTable::new("t", spec)
    }

    fn keys(table: &StickTable, after: u64) -> (Vec<u8>, u64) {
        let (entries, reached) = table.changes(after, 100);
        (entries.iter().map(|entry| entry.key()[3]).collect(), reached)
    }

    #[test]
    fn an_entry_waits_once_however_often_it_changes() {
        let table = table();
        let entries: Vec<_> = (1..=3u32).map(|n| table.get_or_insert_key(&n.to_be_bytes(), 0).unwrap()).collect();
        for _ in 0..10 {
            table.add(&entries[0], Data::Gpc0, 0, 1, 0);
        }
        assert_eq!(keys(&table, 0), (vec![1, 2, 3], 3));
        table.add(&entries[0], Data::Gpc0, 0, 1, 0);
        assert_eq!(keys(&table, 3), (vec![1], 4), "changed after it was told");
        assert_eq!(keys(&table, 0), (vec![2, 3, 1], 4), "for a peer that was told nothing yet");
        assert_eq!(keys(&table, 4), (vec![], 4));
    }

    #[test]
    fn it_is_never_longer_than_the_table() {
        let table = table();
        for n in 0..1_000u32 {
            let entry = table.get_or_insert_key(&n.to_be_bytes(), n.into()).unwrap();
            table.add(&entry, Data::Gpc0, 0, 1, n.into());
            keys(&table, 0);
        }
        let length = table.journal.as_ref().unwrap().places().entries.len();
        assert!(length <= 8, "{length}");
        assert_eq!(keys(&table, 0), ((992..1_000u32).map(|n| n as u8).collect(), 1_000));
    }

    #[test]
    fn what_is_read_or_learned_is_no_change() {
        let table = table();
        table.learn(&[0, 0, 0, 9], Some(100), 0).unwrap();
        assert!(table.lookup_key(&[0, 0, 0, 9], 0).is_some());
        assert_eq!(keys(&table, 0), (vec![], 0));
        let unshared = StickTable::new("u", TableSpec { size: 8, ..TableSpec::default() });
        unshared.get_or_insert_key(&[1, 2, 3, 4], 0).unwrap();
        assert_eq!(unshared.changes(0, 10).1, 0);
    }
}
