//! HTTP/2 on both sides, using the `h2` crate: a stream is one end of an exchange in the sense of `exchange::ends`, so
//! that rules, routing, forwarding and logs do not know which version they serve.

pub(crate) mod client_side;
pub(crate) mod connection;
mod convert;
mod guard;
mod heads;
mod inlet;
pub(crate) mod mux;
pub(crate) mod outlet;
mod resets;
mod send;
pub(crate) mod server_side;
mod strict;
mod tuning;
pub(crate) mod websocket;
