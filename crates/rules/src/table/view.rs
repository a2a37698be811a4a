//! How operators see and change tables: keys as text, and entries by what they store.

use super::{Data, DataKind, Entry, KeyType, Millis, StickTable};
use crate::value::v6_to_v4;
use std::{
    cmp::Ordering,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

/// Stored data types in the order in which entries are shown, which is HAProxy's.
pub const SHOWN: &[Data] = &[
    Data::ServerId,
    Data::Gpt0,
    Data::Gpc0,
    Data::Gpc0Rate,
    Data::ConnCnt,
    Data::ConnRate,
    Data::ConnCur,
    Data::SessCnt,
    Data::SessRate,
    Data::HttpReqCnt,
    Data::HttpReqRate,
    Data::HttpErrCnt,
    Data::HttpErrRate,
    Data::BytesInCnt,
    Data::BytesInRate,
    Data::BytesOutCnt,
    Data::BytesOutRate,
    Data::Gpc1,
    Data::Gpc1Rate,
    Data::ServerKey,
    Data::HttpFailCnt,
    Data::HttpFailRate,
    Data::Gpt,
    Data::Gpc,
    Data::GpcRate,
    Data::GlitchCnt,
    Data::GlitchRate,
];

/// Why a text is not a valid key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// The text is not of the table's type.
    Invalid,
    /// Keys of the table's type cannot be written as text.
    Unwritable,
}

impl KeyType {
    /// Parses a key. An address may be of the other family, if the table's has one for it, as clients' addresses may be.
    ///
    /// # Errors
    ///
    /// If the text does not have this type, and always for `binary`.
    pub fn read(self, text: &[u8]) -> Result<Box<[u8]>, KeyError> {
        let known = std::str::from_utf8(text).map_err(|_| KeyError::Invalid);
        let read = match self {
            KeyType::Ip => match known?.parse::<IpAddr>().ok() {
                Some(IpAddr::V4(ip)) => Some(ip),
                Some(IpAddr::V6(ip)) => v6_to_v4(ip),
                None => None,
            }
            .map(|ip| ip.octets().into()),
            KeyType::Ipv6 => match known?.parse::<IpAddr>().ok() {
                Some(IpAddr::V4(ip)) => Some(ip.to_ipv6_mapped()),
                Some(IpAddr::V6(ip)) => Some(ip),
                None => None,
            }
            .map(|ip| ip.octets().into()),
            KeyType::Integer => known?.parse::<u32>().ok().map(|n| n.to_be_bytes().into()),
            KeyType::String(most) => Some(text[..text.len().min(most)].into()),
            KeyType::Binary(_) => return Err(KeyError::Unwritable),
        };
        read.ok_or(KeyError::Invalid)
    }

    /// Writes a key as the table stores it.
    pub fn write(self, key: &[u8], out: &mut Vec<u8>) {
        let text = match (self, key.len()) {
            (KeyType::Ip, 4) => <[u8; 4]>::try_from(key).map(|ip| Ipv4Addr::from(ip).to_string()),
            (KeyType::Ipv6, 16) => <[u8; 16]>::try_from(key).map(|ip| Ipv6Addr::from(ip).to_string()),
            (KeyType::Integer, 4) => <[u8; 4]>::try_from(key).map(|n| u32::from_be_bytes(n).to_string()),
            (KeyType::Binary(_), _) => {
                key.iter().for_each(|byte| out.extend(format!("{byte:02X}").bytes()));
                return;
            }
            // Clients make these, and must not make fields or lines of the output.
            _ => {
                key.iter().for_each(|&byte| escape(byte, out));
                return;
            }
        };
        out.extend_from_slice(text.unwrap_or_default().as_bytes());
    }
}

/// Writes bytes other than letters, digits and punctuation in hexadecimal, and what separates fields behind a backslash.
fn escape(byte: u8, out: &mut Vec<u8>) {
    match byte {
        b'\\' | b'=' | b' ' => out.extend([b'\\', byte]),
        b'\n' => out.extend(b"\\n"),
        b'\r' => out.extend(b"\\r"),
        b'\t' => out.extend(b"\\t"),
        0x1b => out.extend(b"\\e"),
        b'!'..=b'~' => out.push(byte),
        _ => out.extend(format!("\\x{byte:02X}").bytes()),
    }
}

/// How a stored number is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `eq`.
    Equal,
    /// `ne`.
    NotEqual,
    /// `le`.
    AtMost,
    /// `ge`.
    AtLeast,
    /// `lt`.
    Less,
    /// `gt`.
    Greater,
}

impl Operator {
    /// Finds an operator by the manual's word.
    pub fn parse(word: &str) -> Option<Operator> {
        Some(match word {
            "eq" => Operator::Equal,
            "ne" => Operator::NotEqual,
            "le" => Operator::AtMost,
            "ge" => Operator::AtLeast,
            "lt" => Operator::Less,
            "gt" => Operator::Greater,
            _ => return None,
        })
    }

    fn holds(self, order: Ordering) -> bool {
        match self {
            Operator::Equal => order.is_eq(),
            Operator::NotEqual => order.is_ne(),
            Operator::AtMost => order.is_le(),
            Operator::AtLeast => order.is_ge(),
            Operator::Less => order.is_lt(),
            Operator::Greater => order.is_gt(),
        }
    }
}

/// A condition on the data of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The data type; for an array, its first element is used.
    pub data: Data,
    /// How the data is compared with `value`.
    pub operator: Operator,
    /// The value that the data is compared with.
    pub value: i64,
}

/// The result of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// The entry was removed.
    Done,
    /// There is no such entry.
    Absent,
    /// A connection or a request tracks it.
    InUse,
}

/// A group of entries that are shown in order ends with the shard in which it has this many: half a megabyte of pointers.
const GROUP: usize = 1 << 16;

impl StickTable {
    /// Whether an entry meets all conditions.
    pub fn meets(&self, entry: &Entry, filters: &[Filter], now: Millis) -> bool {
        filters.iter().all(|filter| {
            let stored = self.value(entry, filter.data, 0, now);
            stored.is_some_and(|stored| filter.operator.holds(i128::from(stored).cmp(&i128::from(filter.value))))
        })
    }

    /// The entries that have not expired and are wanted, sorted by key; those of a larger table are sorted in groups, so that somebody
    /// who is slow to take them holds few. Locks one shard at a time, for as long as it takes to copy its pointers.
    pub fn shown(&self, now: Millis, wanted: impl Fn(&Entry) -> bool) -> impl Iterator<Item = Arc<Entry>> {
        let mut part = 0;
        let groups = std::iter::from_fn(move || {
            let mut group = Vec::new();
            while part < self.parts() && group.len() < GROUP {
                let entries = self.part(part).into_iter();
                group.extend(entries.filter(|entry| !self.expired(entry, now) && wanted(entry)));
                part += 1;
            }
            group.sort_unstable_by(|one: &Arc<Entry>, other| one.key().cmp(other.key()));
            group.shrink_to_fit();
            (!group.is_empty()).then_some(group)
        });
        groups.flatten()
    }

    /// Removes the entry for a key, unless it is tracked.
    pub fn remove(&self, key: &[u8]) -> Removal {
        self.remove_if(key, |_| true)
    }

    /// Removes the entries that meet all conditions and are not tracked.
    pub fn clear(&self, filters: &[Filter], now: Millis) {
        for part in 0..self.parts() {
            for entry in self.part(part) {
                // Locked for each entry that goes, so that workers can count in between; it may have changed until then.
                if self.meets(&entry, filters, now) {
                    self.remove_if(entry.key(), |known| self.meets(known, filters, now));
                }
            }
        }
    }

    /// Sets a stored number, or the first one of an array. A rate is set to this many events from now on. Returns
    /// whether the table stores it.
    pub fn store(&self, entry: &Arc<Entry>, data: Data, value: u64, now: Millis) -> bool {
        if !self.spec.schema.has(data) || self.set(entry, data, 0, 0).is_none() {
            return false;
        }
        match data.kind() {
            DataKind::Rate | DataKind::Rates => {
                self.add(entry, data, 0, value, now);
            }
            // These are 32-bit counters.
            DataKind::Count | DataKind::Counts => {
                let value = if data.is_narrow() { value & u64::from(u32::MAX) } else { value };
                self.set(entry, data, 0, value);
            }
        }
        true
    }
}

impl Data {
    /// Whether the data type is a 32-bit number.
    pub(super) fn is_narrow(self) -> bool {
        !matches!(self, Data::BytesInCnt | Data::BytesOutCnt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        table::{Schema, TableSpec},
        value::Value,
    };

    fn table(size: usize) -> StickTable {
        let mut schema = Schema::default();
        schema.store(Data::Gpc0, 0, 1);
        schema.store(Data::HttpReqRate, 10_000, 1);
        schema.store(Data::Gpt, 0, 3);
        StickTable::new("t", TableSpec { key: KeyType::Ip, size, expire: Some(5_000), schema, ..TableSpec::default() })
    }

    fn keys(table: &StickTable, now: Millis) -> Vec<String> {
        let text = |entry: &Arc<Entry>| {
            let mut out = Vec::new();
            table.spec.key.write(entry.key(), &mut out);
            String::from_utf8(out).unwrap()
        };
        table.shown(now, |_| true).map(|entry| text(&entry)).collect()
    }

    #[test]
    fn keys_are_read_and_written_by_their_type() {
        let round = |key: KeyType, text: &str| {
            let mut out = Vec::new();
            key.write(&key.read(text.as_bytes()).unwrap(), &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(round(KeyType::Ip, "10.0.0.9"), "10.0.0.9");
        assert_eq!(round(KeyType::Ipv6, "2001:DB8:0::1"), "2001:db8::1");
        assert_eq!(round(KeyType::Integer, "4294967295"), "4294967295");
        assert_eq!(round(KeyType::String(3), "abcdef"), "abc");
        assert_eq!(round(KeyType::Ip, "::ffff:10.0.0.9"), "10.0.0.9");
        assert_eq!(round(KeyType::Ip, "2002:a00:1::"), "10.0.0.1");
        assert_eq!(round(KeyType::Ipv6, "10.0.0.9"), "::ffff:10.0.0.9");
        for (key, wrong) in [(KeyType::Ip, "2001::1"), (KeyType::Ipv6, "1.2.3"), (KeyType::Integer, "-1")] {
            assert_eq!(key.read(wrong.as_bytes()), Err(KeyError::Invalid), "{wrong}");
        }
        assert_eq!(KeyType::Binary(4).read(b"abcd"), Err(KeyError::Unwritable));
        let mut out = Vec::new();
        KeyType::Binary(4).write(b"a\0\n=", &mut out);
        assert_eq!(out, b"61000A3D");
        out.clear();
        KeyType::String(20).write(b"a use=0\r\n\x1b\\\xc3", &mut out);
        assert_eq!(out, br"a\ use\=0\r\n\e\\\xC3");
    }

    #[test]
    fn conditions_compare_what_is_stored_now() {
        let table = table(10);
        let entry = table.get_or_insert(Value::Ipv4([10, 0, 0, 1].into()), 0).unwrap();
        assert!(table.store(&entry, Data::Gpc0, 7, 0) && table.store(&entry, Data::HttpReqRate, 12, 0));
        assert!(!table.store(&entry, Data::ConnCnt, 1, 0), "not stored in this table");
        assert!(table.store(&entry, Data::Gpt, u64::MAX, 0));
        assert_eq!(table.value(&entry, Data::Gpt, 0, 0), Some(u64::from(u32::MAX)));
        let meets = |data, word, value, now| {
            table.meets(&entry, &[Filter { data, operator: Operator::parse(word).unwrap(), value }], now)
        };
        for (word, with_6, with_7, with_8) in [
            ("eq", false, true, false),
            ("ne", true, false, true),
            ("le", false, true, true),
            ("ge", true, true, false),
            ("lt", false, false, true),
            ("gt", true, false, false),
        ] {
            let found = [6, 7, 8].map(|value| meets(Data::Gpc0, word, value, 0));
            assert_eq!(found, [with_6, with_7, with_8], "{word}");
        }
        assert!(meets(Data::Gpc0, "gt", -2, 0) && !meets(Data::ConnCnt, "ge", 0, 0));
        assert!(meets(Data::HttpReqRate, "eq", 12, 1) && meets(Data::HttpReqRate, "eq", 6, 15_000));
        assert!(table.meets(&entry, &[], 0));
    }

    #[test]
    fn what_is_tracked_stays() {
        let table = Arc::new(table(10));
        for n in 1..=4 {
            let entry = table.get_or_insert(Value::Ipv4([10, 0, 0, n].into()), 0).unwrap();
            table.store(&entry, Data::Gpc0, n.into(), 0);
        }
        let second = table.lookup(Value::Ipv4([10, 0, 0, 2].into()), 0).unwrap();
        let tracked = super::super::Tracked::new(Arc::clone(&table), second, 0);
        assert_eq!(table.remove(&[10, 0, 0, 2]), Removal::InUse);
        assert_eq!(table.remove(&[10, 0, 0, 4]), Removal::Done);
        assert_eq!(table.remove(&[10, 0, 0, 4]), Removal::Absent);
        table.clear(&[Filter { data: Data::Gpc0, operator: Operator::Less, value: 3 }], 0);
        assert_eq!(keys(&table, 0), ["10.0.0.2", "10.0.0.3"]);
        table.clear(&[], 0);
        assert_eq!(keys(&table, 0), ["10.0.0.2"]);
        drop(tracked);
        assert_eq!(keys(&table, 9_000), [""; 0], "it has expired");
        table.clear(&[], 0);
        assert!(table.is_empty());
    }

    #[test]
    fn a_table_is_shown_in_the_order_of_its_keys_and_a_large_one_in_groups() {
        let table = table(1 << 20);
        assert!(table.parts() >= 64, "no lock is held for long");
        let keys = |wanted: &dyn Fn(u32) -> bool| -> Vec<u32> {
            let key = |entry: &Entry| u32::from_be_bytes(entry.key().try_into().unwrap());
            table.shown(0, |entry| wanted(key(entry))).map(|entry| key(&entry)).collect()
        };
        assert!(keys(&|_| true).is_empty());
        for n in (0..50_000_u32).rev() {
            table.get_or_insert(Value::Ipv4(n.into()), 0).unwrap();
        }
        assert!(keys(&|_| true).into_iter().eq(0..50_000));
        for n in 50_000..190_000_u32 {
            table.get_or_insert(Value::Ipv4(n.into()), 0).unwrap();
        }
        let mut all = keys(&|_| true);
        assert_eq!(
            all.windows(2).filter(|two| two[0] > two[1]).count(),
            2,
            "three groups, two of 65,536 and a little more"
        );
        all.sort_unstable();
        assert!(all.into_iter().eq(0..190_000), "each once");
        assert!(keys(&|key| key % 4 == 0).into_iter().eq((0..190_000).step_by(4)), "what is not wanted fills no group");
        // Somebody who has taken one entry holds the pointers of one group.
        let mut shown = table.shown(0, |_| true);
        let first = shown.next().unwrap();
        let is_held = |entry: &Arc<Entry>| Arc::strong_count(entry) > 2;
        let held = table.shown(0, |_| true).filter(is_held).count();
        assert!((GROUP..GROUP + 8192).contains(&held), "{held}");
        drop((first, shown));
    }
}
