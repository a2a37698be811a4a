//! The handshake of a WebSocket (RFC 6455), as far as a proxy can tell that both sides mean one.

use crate::bytes::list;
use crate::connection::Connection;
use crate::error::Error;
use crate::fields::{Fields, Known};

/// Sixteen bytes in base64.
const KEY_LEN: usize = 24;

/// Refuses a request for a WebSocket without a key (RFC 6455 section 4.1): a server that overlooks this would be
/// confused.
///
/// # Errors
/// If the key is missing or not 24 bytes long. Its content is not checked, as in HAProxy.
pub fn check_request(fields: &Fields) -> Result<(), Error> {
    let is_key = |value: &[u8]| value.len() == KEY_LEN;
    match is_handshake(fields) && !fields.all_known(Known::SecWebsocketKey).any(is_key) {
        true => Err(Error::WebSocketKey),
        false => Ok(()),
    }
}

/// Refuses a 101 to a WebSocket that proves nothing (RFC 6455 section 4.2.2): a server that can be made to say 101 would
/// open a tunnel past the rules.
pub(crate) fn check_response(fields: &Fields) -> Result<(), Error> {
    match is_handshake(fields) && !fields.has(Known::SecWebsocketAccept) {
        true => Err(Error::WebSocketProof),
        false => Ok(()),
    }
}

fn is_handshake(fields: &Fields) -> bool {
    let websocket = |value: &[u8]| list(value).any(|protocol| protocol.eq_ignore_ascii_case(b"websocket"));
    fields.has(Known::Upgrade) && fields.all_known(Known::Upgrade).any(websocket) && Connection::of(fields).upgrade
}
