//! HTTP/2 on both sides, by the `h2` crate: a stream is one end of an exchange as `message.rs` has it, so that rules,
//! routing, forwarding and logs do not know which version they serve.

mod client;
mod connection;
mod convert;
mod guard;

pub(crate) use connection::run;
