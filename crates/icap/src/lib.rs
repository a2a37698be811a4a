//! ICAP messages (RFC 3507) from a client's side: heads, encapsulation, previews, bodies. Bytes in, bytes out.
//!
//! A [`Transaction`] is one request to a service: it says which bytes to send and when the service wants more of the body, takes
//! what the service sends, and ends with an [`ServiceDecision`]. The HTTP heads in an answer pass the strict parser of
//! `penstock_http`, and lose every field that would say how the message is framed: whoever sends it on frames it anew.

#![forbid(unsafe_code)]

mod chunks;
mod encapsulated;
mod error;
mod head;
mod options;
mod pieces;
mod request;
mod transaction;

pub use error::Error;
pub use head::{Head, threat};
pub use options::ServiceOptions;
pub use pieces::{PIECE, Pieces};
pub use request::{IcapMethod, IcapRequest, is_of_connection};
pub use transaction::{Modified, ServiceDecision, Start, Transaction};
