//! What a table looks like on the wire.

use crate::{Flaw, MESSAGE_MAX, message, varint};

/// The protocol's types of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PeerKey {
    /// A 32-bit integer, in network order.
    Integer = 2,
    /// Four bytes.
    Ipv4 = 4,
    /// Sixteen bytes.
    Ipv6 = 5,
    /// A length and that many bytes.
    String = 6,
    /// As many bytes as the table's keys have.
    Binary = 7,
}

impl PeerKey {
    fn of(number: u64) -> Option<PeerKey> {
        [PeerKey::Integer, PeerKey::Ipv4, PeerKey::Ipv6, PeerKey::String, PeerKey::Binary]
            .into_iter()
            .find(|kind| *kind as u64 == number)
    }

    /// The length of keys of a type that has only one.
    fn fixed(self) -> Option<u64> {
        match self {
            PeerKey::Integer | PeerKey::Ipv4 => Some(4),
            PeerKey::Ipv6 => Some(16),
            PeerKey::String | PeerKey::Binary => None,
        }
    }
}

/// How a type of data is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A number.
    Number,
    /// A rate: the age of its current period, and the counts of this and the last one.
    Rate,
    /// A name, kept in the session's dictionary.
    Name,
}

/// How the data type with this number is written, and whether it is an array.
pub fn shape_of(number: u8) -> Option<(Shape, bool)> {
    Some(match number {
        0..=2 | 4 | 6 | 7 | 9 | 11 | 13 | 15 | 17 | 20 | 25 => (Shape::Number, false),
        3 | 5 | 8 | 10 | 12 | 14 | 16 | 18 | 21 | 26 => (Shape::Rate, false),
        19 => (Shape::Name, false),
        22 | 23 => (Shape::Number, true),
        24 => (Shape::Rate, true),
        _ => return None,
    })
}

/// One type of data of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireColumn {
    /// The protocol's number of the data type.
    pub number: u8,
    /// How many values there are; 1 unless the type is an array.
    pub count: u32,
    /// The period of a rate in milliseconds, 0 otherwise.
    pub period: u64,
}

/// Most elements of an array, as in HAProxy.
const ARRAY_MAX: u64 = 100;

/// A table as it is described to a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The sender's number of the table.
    pub id: u64,
    /// The table's name, the same for both peers.
    pub name: String,
    /// The type of its keys.
    pub key: PeerKey,
    /// The length of its keys; for strings one more than the longest may have.
    pub key_len: u64,
    /// How long entries live, in milliseconds; 0 for ever.
    pub expire: u64,
    /// What entries hold, in the order of their numbers.
    pub columns: Vec<WireColumn>,
}

/// Longest name of a table.
const NAME_MAX: u64 = 256;

impl Definition {
    /// Appends the message that defines the table.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let mut content = Vec::with_capacity(64);
        varint::write(self.id, &mut content);
        varint::write(self.name.len() as u64, &mut content);
        content.extend_from_slice(self.name.as_bytes());
        varint::write(self.key as u64, &mut content);
        varint::write(self.key_len, &mut content);
        varint::write(self.columns.iter().fold(0, |bits, column| bits | 1 << column.number), &mut content);
        varint::write(self.expire, &mut content);
        for column in &self.columns {
            let Some((shape, array)) = shape_of(column.number) else { continue };
            if array || shape == Shape::Rate {
                varint::write(column.number.into(), &mut content);
            }
            if array {
                varint::write(column.count.into(), &mut content);
            }
            if shape == Shape::Rate {
                varint::write(column.period, &mut content);
            }
        }
        message::write(message::DEFINE, &content, out);
    }

    /// Parses the content of a definition. Columns of unknown types, which come last in entries, are left out.
    pub(crate) fn read(mut input: &[u8]) -> Result<Definition, Flaw> {
        let input = &mut input;
        let id = varint::take(input)?;
        let name_len = varint::take(input)?;
        if !(1..=NAME_MAX).contains(&name_len) {
            return Err(Flaw::Definition);
        }
        let name = String::from_utf8(varint::bytes(input, name_len)?.to_vec()).map_err(|_| Flaw::Definition)?;
        let key = PeerKey::of(varint::take(input)?).ok_or(Flaw::Definition)?;
        let key_len = varint::take(input)?;
        let is_possible = match key.fixed() {
            Some(len) => key_len == len,
            None => (1..=MESSAGE_MAX as u64).contains(&key_len),
        };
        if !is_possible {
            return Err(Flaw::Definition);
        }
        let bits = varint::take(input)?;
        // The oldest versions end here, and have neither arrays nor periods to tell.
        let expire = if input.is_empty() { 0 } else { varint::take(input)? };
        let mut columns = Vec::new();
        for number in (0..64).filter(|number| bits >> number & 1 == 1) {
            let Some((shape, array)) = shape_of(number) else { break };
            let mut column = WireColumn { number, count: 1, period: 0 };
            let described = array || (shape == Shape::Rate && !input.is_empty());
            if described && varint::take(input)? != u64::from(number) {
                return Err(Flaw::Definition);
            }
            if array {
                let count = varint::take(input)?;
                column.count = u32::try_from(count).ok().filter(|_| count <= ARRAY_MAX).ok_or(Flaw::Definition)?;
            }
            if described && shape == Shape::Rate {
                column.period = varint::take(input)?;
            }
            columns.push(column);
        }
        Ok(Definition { id, name, key, key_len, expire, columns })
    }

    /// Whether entries of a table so defined by a peer can be entries of this one: the keys must be the same.
    pub fn accepts(&self, other: &Definition) -> bool {
        self.name == other.name && self.key == other.key && self.key_len == other.key_len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Message;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }

    /// Recorded from HAProxy 2.6.
    const RECORDED: [&str; 4] = [
        "0a820b0605745f737472062004000a",
        "0a82190305745f617272060bf0f1fe6ef8d51c160217031802f89d05",
        "0a82330204745f69700404fff0fe0ef0971c03f0e20305f0d30808f0c40d0af0e2030cf0e2030ef0e20310f0e20312f8a00415f0df04",
        "0a820e07036170700404f1f1fe00f0971c",
    ];

    #[test]
    fn recorded_definitions_are_read_and_written_as_they_were() {
        for recorded in RECORDED {
            let bytes = hex(recorded);
            let Ok(Some(Message::Define(content))) = Message::read(&mut &bytes[..]) else { panic!("{recorded}") };
            let definition = Definition::read(content).unwrap();
            let mut out = Vec::new();
            definition.write(&mut out);
            assert!(bytes.starts_with(&out), "{definition:?}");
        }
    }

    #[test]
    fn a_recorded_definition_says_what_was_configured() {
        let bytes = hex(RECORDED[1]);
        let definition = Definition::read(&bytes[3..]).unwrap();
        assert_eq!((definition.name.as_str(), definition.key, definition.key_len), ("t_arr", PeerKey::String, 11));
        let columns: Vec<_> = definition.columns.iter().map(|c| (c.number, c.count, c.period)).collect();
        assert_eq!(columns, [(22, 2, 0), (23, 3, 0), (24, 2, 13_000)]);
        assert_eq!(definition.expire, 61_000);
    }

    #[test]
    fn every_cut_and_every_lie_is_refused() {
        let whole = hex(RECORDED[1]);
        for cut in 3..whole.len() {
            let _ = Definition::read(&whole[3..cut]);
        }
        let with = |change: &dyn Fn(&mut Definition)| {
            let mut definition = Definition::read(&whole[3..]).unwrap();
            change(&mut definition);
            let mut out = Vec::new();
            definition.write(&mut out);
            let Ok(Some(Message::Define(content))) = Message::read(&mut &out[..]) else { panic!() };
            Definition::read(content)
        };
        assert!(with(&|_| {}).is_ok());
        assert_eq!(with(&|d| d.name.clear()), Err(Flaw::Definition));
        assert_eq!(with(&|d| d.name = "x".repeat(300)), Err(Flaw::Definition));
        assert_eq!(with(&|d| d.key_len = 1 << 40), Err(Flaw::Definition));
        assert_eq!(with(&|d| d.key = PeerKey::Ipv6), Err(Flaw::Definition), "of 11 bytes");
        assert_eq!(with(&|d| d.columns[0].count = 101), Err(Flaw::Definition));
    }
}
