//! HTTP/1 on both sides: a client's connection and its requests, a server's responses, and the bodies of both.

pub(crate) mod body;
pub(crate) mod client_side;
pub(crate) mod connection;
pub(crate) mod server_side;
