//! What peers exchange: entries as they are sent, and as they are learned.

use super::{Data, DataKind, Entry, Millis, StickTable, rate};
use std::sync::{Arc, atomic::Ordering::Relaxed};

/// One stored value, as peers exchange it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// A number.
    Number(u64),
    /// A rate: milliseconds since its current period began, and the events of this and the last period.
    Rate([u64; 3]),
    /// The name or the address of a server.
    Name(Option<Arc<str>>),
}

impl StickTable {
    /// Whether the table is shared with peers.
    pub fn is_shared(&self) -> bool {
        self.journal.is_some()
    }

    /// Sets the function that is called when an entry has to be sent to peers. Only the first call has an effect.
    pub fn on_change(&self, wake: impl Fn() + Send + Sync + 'static) {
        if let Some(journal) = &self.journal {
            journal.wake_with(Box::new(wake));
        }
    }

    /// Entries that changed here after the change with this number, at most `most`, and the number of the last change
    /// that was looked at.
    pub fn changes(&self, after: u64, most: usize) -> (Vec<Arc<Entry>>, u64) {
        self.journal.as_ref().map_or((Vec::new(), after), |journal| journal.since(after, most))
    }

    /// The number of the newest change, and of the newest that some peer was told.
    pub fn newest_change(&self) -> (u64, u64) {
        self.journal.as_ref().map_or((0, 0), |journal| (journal.newest(), journal.told()))
    }

    /// The entries of one part of the table that have not expired; `None` behind the last part. Locks that part only, for as long
    /// as it takes to copy its pointers.
    pub fn part_of(&self, part: usize, now: Millis) -> Option<Vec<Arc<Entry>>> {
        if part >= self.parts() {
            return None;
        }
        let mut entries = self.part(part);
        entries.retain(|entry| !self.expired(entry, now));
        Some(entries)
    }

    /// Whether an entry has expired.
    pub fn has_expired(&self, entry: &Entry, now: Millis) -> bool {
        self.expired(entry, now)
    }

    /// What an entry holds of one data type, element by element.
    pub fn stored(&self, entry: &Entry, data: Data, now: Millis) -> Vec<Stored> {
        let Some(column) = self.spec.schema.column(data) else { return Vec::new() };
        let slots = entry.data();
        (0..column.len)
            .map(|index| match data.kind() {
                DataKind::Rate | DataKind::Rates => {
                    let at = column.at + index * rate::SLOTS;
                    Stored::Rate([now.wrapping_sub(slots[at]), slots[at + 1], slots[at + 2]])
                }
                _ if data == Data::ServerKey => Stored::Name(self.names.get(slots[column.at])),
                _ => Stored::Number(slots[column.at + index]),
            })
            .collect()
    }

    /// The entry for a key that a peer has sent, made if there is none; it lives for `left`, or as long as entries of this
    /// table do. This is not a change.
    pub fn learn(&self, key: &[u8], left: Option<Millis>, now: Millis) -> Option<Arc<Entry>> {
        let entry = self.obtain(key, now)?;
        if let (Some(expire), Some(left)) = (self.spec.expire, left) {
            entry.touched.store((now + left) as i64 - expire as i64, Relaxed);
        }
        Some(entry)
    }

    /// Overwrites an element of a data type with what a peer knows. Connections are counted by each for itself.
    pub fn learn_value(&self, entry: &Entry, data: Data, index: usize, value: &Stored, now: Millis) {
        let Some(column) = self.spec.schema.column(data).filter(|column| index < column.len) else { return };
        if data == Data::ConnCur {
            return;
        }
        let mut slots = entry.data();
        match (data.kind(), value) {
            (DataKind::Rate | DataKind::Rates, Stored::Rate([age, current, previous])) => {
                let at = column.at + index * rate::SLOTS;
                let narrow = |number: &u64| number & u64::from(u32::MAX);
                slots[at] = now.wrapping_sub(narrow(age));
                (slots[at + 1], slots[at + 2]) = (narrow(current), narrow(previous));
            }
            (_, Stored::Name(name)) if data == Data::ServerKey => {
                slots[column.at] = name.as_deref().map_or(0, |name| self.names.number(name));
            }
            (DataKind::Count | DataKind::Counts, Stored::Number(number)) if data != Data::ServerKey => {
                slots[column.at + index] = if data.is_narrow() { number & u64::from(u32::MAX) } else { *number };
            }
            _ => {}
        }
    }

    /// Remembers a server: its number, and the name or address by which others know it.
    pub fn set_server(&self, entry: &Arc<Entry>, id: u32, key: &str) {
        if let Some(column) = self.spec.schema.column(Data::ServerKey) {
            entry.data()[column.at] = self.names.number(key);
        }
        self.set(entry, Data::ServerId, 0, id.into());
    }

    /// The name or address of the server that an entry remembers.
    pub fn server_key(&self, entry: &Entry) -> Option<Arc<str>> {
        let column = self.spec.schema.column(Data::ServerKey)?;
        let number = entry.data()[column.at];
        self.names.get(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{KeyType, Schema, TableSpec};

    fn table() -> StickTable {
        let mut schema = Schema::default();
        for (data, period, len) in [
            (Data::Gpc0, 0, 1),
            (Data::ConnCur, 0, 1),
            (Data::BytesInCnt, 0, 1),
            (Data::HttpReqRate, 10_000, 1),
            (Data::GpcRate, 5_000, 2),
            (Data::ServerId, 0, 1),
            (Data::ServerKey, 0, 1),
        ] {
            schema.store(data, period, len);
        }
        let key = KeyType::Binary(4);
        StickTable::new("t", TableSpec { key, size: 9, expire: Some(60_000), schema, ..TableSpec::default() })
    }

    #[test]
    fn an_entry_arrives_as_it_was_sent() {
        let (here, there) = (table(), table());
        let entry = here.get_or_insert_key(b"key1", 70_000).unwrap();
        here.add(&entry, Data::Gpc0, 0, 7, 70_000);
        here.add(&entry, Data::ConnCur, 0, 3, 70_000);
        here.add(&entry, Data::BytesInCnt, 0, 1 << 40, 70_000);
        here.add(&entry, Data::HttpReqRate, 0, 20, 70_000);
        here.add(&entry, Data::GpcRate, 1, 9, 70_000);
        here.set_server(&entry, 3, "s3");
        // The other process started later: its clock shows less than the entry's age.
        let (now, learned_at) = (73_000, 500);
        let left = here.expires_in(&entry, now);
        let learned = there.learn(b"key1", Some(left), learned_at).unwrap();
        for (data, ..) in here.spec.schema.stored() {
            for (index, value) in here.stored(&entry, data, now).iter().enumerate() {
                there.learn_value(&learned, data, index, value, learned_at);
            }
        }
        assert_eq!(there.expires_in(&learned, learned_at), 57_000);
        for (data, _, len) in here.spec.schema.stored() {
            for index in 0..len {
                let [sent, known] = [(&here, &entry, now), (&there, &learned, learned_at)]
                    .map(|(table, entry, at)| table.value(entry, data, index, at + 9_000));
                assert_eq!(known, if data == Data::ConnCur { Some(0) } else { sent }, "{data:?}");
            }
        }
        assert_eq!(there.server_key(&learned).as_deref(), Some("s3"));
        assert!(there.lookup_key(b"key1", learned_at + 56_999).is_some());
        assert!(there.lookup_key(b"key1", learned_at + 57_000).is_none());
    }

    #[test]
    fn values_of_another_type_or_place_are_ignored() {
        let table = table();
        let entry = table.learn(b"key1", None, 0).unwrap();
        table.learn_value(&entry, Data::Gpc0, 1, &Stored::Number(1), 0);
        table.learn_value(&entry, Data::Gpc0, 0, &Stored::Rate([1, 1, 1]), 0);
        table.learn_value(&entry, Data::ServerKey, 0, &Stored::Number(1), 0);
        table.learn_value(&entry, Data::HttpReqRate, 0, &Stored::Rate([u64::MAX; 3]), 0);
        table.learn_value(&entry, Data::Gpc0, 0, &Stored::Number(u64::MAX), 0);
        assert_eq!(table.value(&entry, Data::Gpc0, 0, 0), Some(u32::MAX.into()));
        assert!(table.value(&entry, Data::HttpReqRate, 0, 100).is_some(), "no overflow");
        assert_eq!(table.server_key(&entry), None);
    }
}
