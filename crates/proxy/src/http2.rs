//! HTTP/2 on both sides, by the `h2` crate: a stream is one end of an exchange as `exchange::ends` has it, so that rules,
//! routing, forwarding and logs do not know which version they serve.

mod client_side;
mod connection;
mod convert;
mod guard;
mod heads;
mod inlet;
mod outlet;
mod server_side;
pub(crate) mod websocket;

use crate::connection::stream::Stream;
use penstock_config::model::ServerSettings;

pub(crate) use connection::{may_begin_so, run};
pub(crate) use server_side::{Http2Server, Mux, MuxInUse, MuxPool};

/// Whether a connection to a server that was just opened carries HTTP/2: said by `proto h2`, or agreed on by ALPN.
pub(crate) fn is_spoken_by(stream: &Stream, settings: &ServerSettings) -> bool {
    match stream.tls().and_then(|tls| tls.alpn.as_deref()) {
        Some(alpn) => alpn == b"h2",
        None => settings.proto.as_deref() == Some("h2"),
    }
}
