//! Why a conversation with a peer ends.

use std::fmt;

/// What a peer did wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// A number that takes more than 64 bits.
    Number,
    /// A message that ends before its fields do.
    Short,
    /// A message longer than [`crate::MESSAGE_MAX`].
    Long,
    /// A definition of a table that makes no sense: its name, the length of its keys, its columns.
    Definition,
    /// More definitions of tables than [`crate::session::DEFINITIONS_MAX`].
    Definitions,
    /// An update before any table was named, or a switch to a table that was never defined.
    NoTable,
    /// A key longer than the table's.
    Key,
    /// An entry of the dictionary outside its bounds.
    Dictionary,
    /// The peer reported an error of ours.
    Reported,
    /// An invalid line in the handshake.
    Hello,
}

impl Flaw {
    /// The message that tells the peer about it, before the connection is closed.
    pub fn farewell(self) -> &'static [u8] {
        match self {
            Flaw::Long => &[1, 1],
            Flaw::Reported | Flaw::Hello => &[],
            _ => &[1, 0],
        }
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Flaw::Number => "a number has more than 64 bits",
            Flaw::Short => "a message ends before its last field",
            Flaw::Long => "a message is too long",
            Flaw::Definition => "the definition of a table is wrong",
            Flaw::Definitions => "it defines too many tables",
            Flaw::NoTable => "an update belongs to no table",
            Flaw::Key => "a key is longer than its table allows",
            Flaw::Dictionary => "an entry of the dictionary is out of bounds",
            Flaw::Reported => "it reports an error",
            Flaw::Hello => "its handshake is wrong",
        })
    }
}

impl std::error::Error for Flaw {}
