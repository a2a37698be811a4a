//! Which entries a connection or a request is counted on (`track-sc0` and its like).

use super::{Data, Entry, Millis, StickTable};
use std::sync::{Arc, atomic::Ordering::Relaxed};

/// A tracked entry. Creating it counts a connection, which dropping it ends.
#[derive(Debug)]
pub struct Tracked {
    table: Arc<StickTable>,
    entry: Arc<Entry>,
}

impl Tracked {
    /// Starts to track an entry.
    pub fn new(table: Arc<StickTable>, entry: Arc<Entry>, now: Millis) -> Self {
        entry.trackers.fetch_add(1, Relaxed);
        table.touch(&entry, now);
        table.add(&entry, Data::ConnCnt, 0, 1, now);
        table.add(&entry, Data::ConnCur, 0, 1, now);
        table.add(&entry, Data::ConnRate, 0, 1, now);
        Tracked { table, entry }
    }
    /// The table.
    pub fn table(&self) -> &StickTable {
        &self.table
    }
    /// The entry.
    pub fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }
    pub(crate) fn count(&self, data: Data, events: u64, now: Millis) {
        self.table.add(&self.entry, data, 0, events, now);
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.table.subtract(&self.entry, Data::ConnCur, 1);
        self.entry.trackers.fetch_sub(1, Relaxed);
    }
}

/// The tracked counters of a connection or of a request. The layer above reports events; each is counted in the entries
/// that store it.
///
/// A clone counts on the same entries: the streams of an HTTP/2 connection see what their connection tracks.
#[derive(Clone, Debug, Default)]
pub struct Tracking {
    /// The number of each counter in use, and its entry: few, however many `tune.stick-counters` allows.
    slots: Vec<(usize, Arc<Tracked>)>,
}

impl Tracking {
    /// The tracked entry with that number.
    pub fn slot(&self, counter: usize) -> Option<&Tracked> {
        self.slots.iter().find(|slot| slot.0 == counter).map(|slot| &*slot.1)
    }
    /// Whether nothing is tracked.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
    /// Starts to track in a free slot; a slot in use stays as it is, since the first rule wins.
    pub(crate) fn track(&mut self, counter: usize, tracked: Tracked) {
        if self.slot(counter).is_none() {
            self.slots.push((counter, Arc::new(tracked)));
        }
    }

    fn count(&self, count: Data, rate: Data, events: u64, now: Millis) {
        for (_, tracked) in &self.slots {
            tracked.table.touch(&tracked.entry, now);
            tracked.count(count, events, now);
            tracked.count(rate, events, now);
        }
    }
    /// Counts a session: a connection has passed its `connection` rules.
    pub fn session_started(&self, now: Millis) {
        self.count(Data::SessCnt, Data::SessRate, 1, now);
    }
    /// Counts a request.
    pub fn http_request(&self, now: Millis) {
        self.count(Data::HttpReqCnt, Data::HttpReqRate, 1, now);
    }
    /// Counts a request that was refused, or answered with 4xx.
    pub fn http_error(&self, now: Millis) {
        self.count(Data::HttpErrCnt, Data::HttpErrRate, 1, now);
    }
    /// Counts a request that was answered with 5xx other than 501 and 505.
    pub fn http_failure(&self, now: Millis) {
        self.count(Data::HttpFailCnt, Data::HttpFailRate, 1, now);
    }
    /// Counts glitches of the connection.
    pub fn glitches(&self, glitches: u64, now: Millis) {
        self.count(Data::GlitchCnt, Data::GlitchRate, glitches, now);
    }
    /// Counts bytes received from the client and sent to it.
    pub fn bytes(&self, received: u64, sent: u64, now: Millis) {
        if received > 0 {
            self.count(Data::BytesInCnt, Data::BytesInRate, received, now);
        }
        if sent > 0 {
            self.count(Data::BytesOutCnt, Data::BytesOutRate, sent, now);
        }
    }
    /// Called when the request or the connection is over: stops tracking.
    pub fn clear(&mut self) {
        *self = Tracking::default();
    }
}
