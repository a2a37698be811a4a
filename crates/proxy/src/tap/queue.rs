//! What waits to be written: bounded, and nobody waits for room. What does not fit is dropped and counted.

use penstock_capture::{CopiedSegment, Endpoints, SegmentEvent};
use std::{
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A step of a copied connection, and what was said in it.
pub(crate) struct Entry {
    /// The number of the reader that has the beginning of it.
    pub reader: u64,
    pub unix_us: u64,
    pub ends: Arc<Endpoints>,
    pub segment: CopiedSegment,
    pub data: Box<[u8]>,
}

impl Entry {
    /// The memory that it counts for.
    pub fn cost(&self) -> usize {
        cost(self.data.len())
    }
}

/// The memory that an entry with so much data counts for.
fn cost(data: usize) -> usize {
    size_of::<Entry>() + data
}

/// Counts of one tap.
#[derive(Default)]
pub(crate) struct TapCounts {
    /// Connections and exchanges whose copy has begun.
    pub begun: AtomicU64,
    /// Those that were not copied, since nobody reads or there was no room even for their beginning.
    pub missed: AtomicU64,
    /// Bytes of traffic that were written.
    pub written: AtomicU64,
    pub packets: AtomicU64,
    /// Bytes of traffic that were not written: the copy has a gap there.
    pub dropped: AtomicU64,
    /// How often an end was opened or found, and how often that or writing failed.
    pub opened: AtomicU64,
    pub failed: AtomicU64,
}

/// Entries from all workers for one writer.
pub(crate) struct Queue {
    /// The most memory that entries take.
    pub limit: usize,
    list: Mutex<List>,
    filled: Condvar,
    /// The memory of entries that are not written yet.
    used: AtomicUsize,
    /// The number of the present reader; 0 while there is none. What one reader has the beginning of is of no use to the next.
    reader: AtomicU64,
    pub counts: TapCounts,
}

#[derive(Default)]
struct List {
    entries: VecDeque<Entry>,
    last_us: u64,
    is_over: bool,
}

impl Queue {
    pub fn new(limit: usize) -> Self {
        Queue {
            limit,
            list: Mutex::default(),
            filled: Condvar::new(),
            used: AtomicUsize::new(0),
            reader: AtomicU64::new(0),
            counts: TapCounts::default(),
        }
    }
    /// The number of the present reader, if there is one.
    pub fn reader(&self) -> Option<u64> {
        Some(self.reader.load(Relaxed)).filter(|reader| *reader != 0)
    }
    /// Bytes of memory that wait to be written.
    pub fn used(&self) -> usize {
        self.used.load(Relaxed)
    }
    /// Adds a step of a connection that was begun for this reader; `false` if it was dropped. An end is always added, so that whoever
    /// has the beginning of a connection gets its end as well.
    pub fn add(&self, reader: u64, ends: &Arc<Endpoints>, segment: CopiedSegment, parts: &[&[u8]]) -> bool {
        if self.reader.load(Relaxed) != reader {
            return false;
        }
        let length = parts.iter().map(|part| part.len()).sum();
        let cost = cost(length);
        let before = self.used.fetch_add(cost, Relaxed);
        if before + cost > self.limit && segment.event != SegmentEvent::End {
            self.used.fetch_sub(cost, Relaxed);
            self.counts.dropped.fetch_add(length as u64, Relaxed);
            return false;
        }
        // Copied before the lock is taken, which other workers may wait for.
        let data = parts.concat().into();
        let mut list = self.lock();
        // The order of the list is the order in time.
        list.last_us = list.last_us.max(now_us());
        let unix_us = list.last_us;
        list.entries.push_back(Entry { reader, unix_us, ends: ends.clone(), segment, data });
        drop(list);
        self.filled.notify_one();
        true
    }
    /// Takes everything that waits; nothing if nothing comes in time.
    pub fn take(&self, patience: Duration) -> VecDeque<Entry> {
        let list = self.lock();
        let waits = |list: &mut List| list.entries.is_empty() && !list.is_over;
        let waited = self.filled.wait_timeout_while(list, patience, waits);
        let (mut list, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut list.entries)
    }
    /// Takes note that an entry has been written, or never will be.
    pub fn done(&self, entry: &Entry, written: bool) {
        self.used.fetch_sub(entry.cost(), Relaxed);
        let count = if written { &self.counts.written } else { &self.counts.dropped };
        count.fetch_add(entry.data.len() as u64, Relaxed);
    }
    /// Begins with a reader.
    pub fn begin(&self) {
        let number = self.counts.opened.fetch_add(1, Relaxed) + 1;
        self.reader.store(number, Relaxed);
    }
    /// Takes note that the reader is gone. What waits was meant for it.
    pub fn lose(&self) {
        self.reader.store(0, Relaxed);
        self.counts.failed.fetch_add(1, Relaxed);
        for entry in self.take(Duration::ZERO) {
            self.done(&entry, false);
        }
    }
    /// Nothing more will be added.
    pub fn end(&self) {
        self.lock().is_over = true;
        self.filled.notify_all();
    }
    pub fn is_over(&self) -> bool {
        self.lock().is_over
    }
    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_capture::{CopiedConversation, Speaker};

    #[test]
    fn what_does_not_fit_is_dropped_and_counted_but_an_end_is_kept() {
        let queue = Queue::new(2 * size_of::<Entry>() + 10);
        let ends = Arc::new(Endpoints::new("192.0.2.1:1".parse().unwrap(), "192.0.2.2:2".parse().unwrap()));
        let (mut talk, open) = CopiedConversation::open(1, 2);
        assert!(!queue.add(1, &ends, open, &[]), "nobody reads");
        queue.begin();
        let reader = queue.reader().unwrap();
        assert!(queue.add(reader, &ends, open, &[]));
        assert!(queue.add(reader, &ends, talk.data(Speaker::Client, 10), &[b"01234", b"56789"]));
        assert!(!queue.add(reader, &ends, talk.data(Speaker::Client, 3), &[b"abc"]));
        assert!(queue.add(reader, &ends, talk.end(Speaker::Client).unwrap(), &[]));
        assert_eq!(queue.counts.dropped.load(Relaxed), 3);
        let taken = queue.take(Duration::ZERO);
        assert_eq!(taken.len(), 3);
        assert_eq!(*taken[1].data, *b"0123456789");
        assert_eq!(taken[2].segment.sequence, 15, "the gap is counted");
        assert!(taken.iter().map(|entry| entry.unix_us).is_sorted());
        // What is taken counts until it is written.
        assert!(!queue.add(reader, &ends, talk.data(Speaker::Server, 1), &[b"x"]));
        taken.iter().for_each(|entry| queue.done(entry, true));
        assert_eq!((queue.used(), queue.counts.written.load(Relaxed)), (0, 10));
        queue.lose();
        queue.begin();
        assert!(
            !queue.add(reader, &ends, talk.data(Speaker::Server, 1), &[b"x"]),
            "the next reader has no beginning of it"
        );
    }
}
