//! The stick tables of a section, as its peers see them.

use penstock_peers::{Definition, PeerKey, PeerTables, PeerUpdate, WireCell, WireColumn};
use penstock_rules::table::{Entry, KeyType, Millis, SHOWN, StickTable, Stored};
use std::{sync::Arc, time::Instant};

/// The tables of a section.
pub(crate) struct Tables {
    pub tables: Vec<Arc<StickTable>>,
    definitions: Vec<Definition>,
    started: Instant,
}

impl Tables {
    /// These tables, by the names that peers know, with the clock of their entries.
    pub fn new(named: Vec<(String, Arc<StickTable>)>, started: Instant) -> Tables {
        let definitions = named.iter().zip(1..).map(|((name, table), id)| definition(id, name, table)).collect();
        Tables { tables: named.into_iter().map(|(_, table)| table).collect(), definitions, started }
    }

    /// The time by which entries expire.
    pub fn now(&self) -> Millis {
        self.started.elapsed().as_millis() as Millis
    }
}

/// Describes a table. The protocol numbers the types of data in the order in which HAProxy shows them.
fn definition(id: u64, name: &str, table: &StickTable) -> Definition {
    let (key, key_len) = match table.spec.key {
        KeyType::Integer => (PeerKey::Integer, 4),
        KeyType::Ip => (PeerKey::Ipv4, 4),
        KeyType::Ipv6 => (PeerKey::Ipv6, 16),
        // HAProxy's strings have a final NUL.
        KeyType::String(len) => (PeerKey::String, len as u64 + 1),
        KeyType::Binary(len) => (PeerKey::Binary, len as u64),
    };
    let columns = SHOWN.iter().zip(0..).filter_map(|(data, number)| {
        let (_, period, count) = table.spec.schema.stored().find(|(stored, ..)| stored == data)?;
        Some(WireColumn { number, count: count as u32, period })
    });
    let columns = columns.collect();
    Definition { id, name: name.to_owned(), key, key_len, expire: table.spec.expire.unwrap_or(0), columns }
}

impl PeerTables for Tables {
    type Entry = Arc<Entry>;

    fn definitions(&self) -> &[Definition] {
        &self.definitions
    }

    fn changes(&self, table: usize, after: u64, most: usize) -> (Vec<Arc<Entry>>, u64) {
        self.tables[table].changes(after, most)
    }

    fn newest(&self, table: usize) -> u64 {
        self.tables[table].newest_change().0
    }

    fn part(&self, table: usize, part: usize) -> Option<Vec<Arc<Entry>>> {
        self.tables[table].part_of(part, self.now())
    }

    fn entry(&self, table: usize, entry: &Arc<Entry>) -> Option<PeerUpdate> {
        let (table, now) = (&self.tables[table], self.now());
        if table.has_expired(entry, now) {
            return None;
        }
        let stored = SHOWN.iter().filter(|data| table.spec.schema.has(**data));
        let cells = stored.flat_map(|data| table.stored(entry, *data, now)).map(|stored| match stored {
            Stored::Number(number) => WireCell::Number(number),
            Stored::Rate([age, current, previous]) => WireCell::Rate { age, current, previous },
            Stored::Name(name) => WireCell::Name(name),
        });
        let left = table.spec.expire.map(|_| u32::try_from(table.expires_in(entry, now)).unwrap_or(u32::MAX));
        Some(PeerUpdate { key: entry.key().to_vec(), expire: left, cells: cells.collect() })
    }

    fn learn(&self, table: usize, definition: &Definition, update: PeerUpdate) {
        let (table, now) = (&self.tables[table], self.now());
        let mut key = &update.key[..];
        if let KeyType::String(most) = table.spec.key {
            // As keys are made of samples.
            key = memchr::memchr(0, key).map_or(key, |end| &key[..end]);
            key = &key[..key.len().min(most)];
        }
        // A full table of which nothing may be dropped learns nothing.
        let Some(entry) = table.learn(key, update.expire.map(Millis::from), now) else { return };
        let mut cells = update.cells.into_iter();
        for column in &definition.columns {
            let data = SHOWN.get(usize::from(column.number)).copied();
            for (index, cell) in cells.by_ref().take(column.count as usize).enumerate() {
                let Some(data) = data.filter(|data| table.spec.schema.has(*data)) else { continue };
                let stored = match cell {
                    WireCell::Number(number) => Stored::Number(number),
                    WireCell::Rate { age, current, previous } => Stored::Rate([age, current, previous]),
                    WireCell::Name(name) => Stored::Name(name),
                };
                table.learn_value(&entry, data, index, &stored, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_peers::{Shape, shape_of};
    use penstock_rules::table::{Data, DataKind};

    #[test]
    fn data_types_have_the_numbers_and_shapes_of_the_protocol() {
        for (data, number) in [
            (Data::ServerId, 0),
            (Data::ConnCur, 6),
            (Data::BytesOutRate, 16),
            (Data::Gpc1Rate, 18),
            (Data::ServerKey, 19),
            (Data::HttpFailRate, 21),
            (Data::GpcRate, 24),
            (Data::GlitchRate, 26),
        ] {
            assert_eq!(SHOWN[number], data);
        }
        for (data, number) in SHOWN.iter().zip(0..) {
            let expected = match data.kind() {
                _ if *data == Data::ServerKey => (Shape::Name, false),
                DataKind::Count => (Shape::Number, false),
                DataKind::Rate => (Shape::Rate, false),
                DataKind::Counts => (Shape::Number, true),
                DataKind::Rates => (Shape::Rate, true),
            };
            assert_eq!(shape_of(number), Some(expected), "{data:?}");
        }
    }
}
