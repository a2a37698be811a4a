//! HTTP/1 messages: bytes in, bytes out; framing, limits, smuggling rules. Pure.
//!
//! A connection reads bytes into its buffer and asks a [`RequestHead`] (or [`ResponseHead`]) to parse them. The head copies itself
//! out in canonical form (names in lower case, one space after the colon, CRLF), so that what is forwarded was written by us and
//! never is the peer's own bytes. [`request_framing`] and [`response_framing`] then say how long the body is, or why that cannot be
//! known, and a [`BodyReader`] walks it.

#![forbid(unsafe_code)]

mod authority;
mod body;
mod bytes;
mod connection;
mod error;
mod fields;
mod framing;
mod head;
pub mod hpack;
mod letter_case;
mod limits;
pub mod proxy_protocol;
mod request;
mod response;
mod target;
pub mod trailers;
pub mod websocket;

pub use authority::{Authority, split_authority};
pub use body::{BodyReader, Step, chunk_head, write_last_chunk};
pub use bytes::{is_token, list, push_decimal};
pub use connection::{
    Connection, Persistence, expects_continue, may_upgrade_to, receive_hop_by_hop, remove_hop_by_hop, set_connection,
};
pub use error::Error;
pub use fields::{Field, Fields, Known};
pub use framing::{Framing, request_framing, response_framing, state_framing};
pub use head::{Parse, Progress, Version};
pub use letter_case::LetterCase;
pub use limits::Limits;
pub use request::{OwnTarget, RequestHead};
pub use response::ResponseHead;
pub use target::TargetForm;
