//! HAProxy's peers protocol: messages, sessions, resynchronisation. Pure: bytes and `now` in, bytes out.
//!
//! The specification is HAProxy's `doc/peers.txt`; what it leaves open (the two timed messages, where arrays are described)
//! was taken from bytes recorded between two real HAProxys, which are in this crate's tests.

#![forbid(unsafe_code)]

mod definition;
mod dictionary;
mod flaw;
mod hello;
mod message;
mod resync;
mod session;
mod update;
pub mod varint;

pub use definition::{Definition, PeerKey, Shape, WireColumn, shape_of};
pub use flaw::Flaw;
pub use hello::{Hello, HelloReader, HelloStatus, PeerVersion, read_status, write_status};
pub use message::{Control, MESSAGE_MAX, Message};
pub use resync::{Resync, ResyncState};
pub use session::{Acknowledged, PeerEvent, PeerSession, PeerTables, SessionKind, SharedView};
pub use update::{PeerUpdate, WireCell};
