//! WebSockets to servers: over HTTP/1.1 as an upgrade (RFC 6455), over HTTP/2 as an extended CONNECT (RFC 8441), and
//! the choice between the two.

use aws_lc_rs::digest;
use base64::Engine;
use h2::{Ping, PingPong};
use penstock_config::model::{ServerSettings, WebSockets};
use penstock_http::{Connection, Known, RequestHead};
use std::cell::{Cell, RefCell};
use tokio::sync::Notify;

/// Whether the request is a handshake of RFC 6455.
pub(crate) fn is_asked_for(head: &RequestHead) -> bool {
    head.method() == b"GET"
        && head.fields.known(Known::Upgrade).is_some_and(|protocol| protocol.eq_ignore_ascii_case(b"websocket"))
        && Connection::of(&head.fields).upgrade
}

/// Whether a WebSocket must not use HTTP/2 even if other requests do: with `ws h1`, or if the server offers both
/// versions by ALPN and is not configured as accepting extended CONNECT.
pub(crate) fn goes_over_http1(head: &RequestHead, settings: &ServerSettings) -> bool {
    let offers_http1 = || {
        let alpn = settings.prepared_tls().and_then(|tls| tls.conf.alpn.as_ref());
        alpn.is_some_and(|protocols| protocols.iter().any(|protocol| protocol == HTTP1))
    };
    let over_http1 = match settings.ws {
        WebSockets::Http1 => true,
        WebSockets::Http2 => false,
        WebSockets::Auto => offers_http1(),
    };
    over_http1 && is_asked_for(head)
}

/// The ALPN name of HTTP/1.1.
const HTTP1: &str = "http/1.1";

/// The value that proves to a client that its WebSocket key was understood (RFC 6455 section 4.2.2).
pub(crate) fn accept(key: &[u8]) -> String {
    let proof = [key, b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"].concat();
    let digest = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &proof);
    base64::engine::general_purpose::STANDARD.encode(digest)
}

/// Tells when a server's first SETTINGS have arrived. They are the first thing it sends, so they come before its reply
/// to a PING.
pub(super) struct Greeting {
    ping: RefCell<Option<PingPong>>,
    over: Cell<bool>,
    told: Notify,
}

impl Greeting {
    pub fn new(ping: Option<PingPong>) -> Greeting {
        Greeting { ping: RefCell::new(ping), over: Cell::new(false), told: Notify::new() }
    }
    /// Returns once the SETTINGS have arrived, or the connection has failed.
    pub async fn wait(&self) {
        if self.over.get() {
            return;
        }
        let Some(mut ping) = self.ping.borrow_mut().take() else {
            // Another task has sent the PING already.
            return self.told.notified().await;
        };
        let asker = Asker(self);
        // Reply or error, there is nothing more to wait for.
        let _ = ping.ping(Ping::opaque()).await;
        drop(asker);
    }
}

/// Wakes the other waiting tasks even if the one that sent the PING is cancelled.
struct Asker<'a>(&'a Greeting);

impl Drop for Asker<'_> {
    fn drop(&mut self) {
        self.0.over.set(true);
        self.0.told.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proof_is_that_of_the_rfc() {
        assert_eq!(accept(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
