//! Entries of tables on the wire.

use crate::{
    Definition, Flaw, PeerKey, Shape,
    dictionary::{Received, Sent},
    message, shape_of, varint,
};
use std::sync::Arc;

/// One stored value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WireCell {
    /// A number.
    Number(u64),
    /// A rate.
    Rate {
        /// Milliseconds since its current period began.
        age: u64,
        /// Events of the current period.
        current: u64,
        /// Events of the one before.
        previous: u64,
    },
    /// A name, or none.
    Name(Option<Arc<str>>),
}

/// An entry, as it is sent or was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerUpdate {
    /// The entry's key, as tables store it: without a length, and binary keys in full.
    pub key: Vec<u8>,
    /// Milliseconds that it still lives, if the peer said so.
    pub expire: Option<u32>,
    /// The entry's data, column after column and element after element.
    pub cells: Vec<WireCell>,
}

/// Appends the message for an entry. `timed` is for a peer that is to learn how long the entry still lives.
pub(crate) fn write(
    definition: &Definition,
    id: u32,
    timed: bool,
    update: &PeerUpdate,
    names: &mut Sent,
    out: &mut Vec<u8>,
) {
    let mut content = Vec::with_capacity(32 + update.key.len() + 4 * update.cells.len());
    content.extend(id.to_be_bytes());
    let timed = update.expire.filter(|_| timed);
    if let Some(expire) = timed {
        content.extend(expire.to_be_bytes());
    }
    match definition.key {
        PeerKey::String => {
            varint::write(update.key.len() as u64, &mut content);
            content.extend_from_slice(&update.key);
        }
        _ => content.extend_from_slice(&update.key),
    }
    for cell in &update.cells {
        match cell {
            WireCell::Number(number) => varint::write(*number, &mut content),
            WireCell::Rate { age, current, previous } => {
                [age, current, previous].into_iter().for_each(|&number| varint::write(number, &mut content));
            }
            WireCell::Name(name) => names.write(name.as_ref(), &mut content),
        }
    }
    message::write(if timed.is_some() { message::UPDATE_TIMED } else { message::UPDATE }, &content, out);
}

/// Parses an update: its number, if it has one, and the entry.
pub(crate) fn read(
    definition: &Definition,
    numbered: bool,
    timed: bool,
    mut input: &[u8],
    names: &mut Received,
) -> Result<(Option<u32>, PeerUpdate), Flaw> {
    let input = &mut input;
    let id = numbered.then(|| varint::word(input)).transpose()?;
    let expire = timed.then(|| varint::word(input)).transpose()?;
    let key_len = match definition.key {
        // The final NUL of strings is counted in their table, and not sent.
        PeerKey::String => varint::take(input)?,
        _ => definition.key_len,
    };
    if key_len > definition.key_len {
        return Err(Flaw::Key);
    }
    let key = varint::bytes(input, key_len)?.to_vec();
    let mut cells = Vec::with_capacity(definition.columns.len());
    for column in &definition.columns {
        let Some((shape, _)) = shape_of(column.number) else { break };
        for _ in 0..column.count {
            cells.push(match shape {
                Shape::Number => WireCell::Number(varint::take(input)?),
                Shape::Rate => WireCell::Rate {
                    age: varint::take(input)?,
                    current: varint::take(input)?,
                    previous: varint::take(input)?,
                },
                Shape::Name => WireCell::Name(names.read(input)?),
            });
        }
    }
    Ok((id, PeerUpdate { key, expire, cells }))
}
