//! WebSockets to servers: over HTTP/1.1 as an upgrade (RFC 6455), over HTTP/2 as an extended CONNECT (RFC 8441), and which
//! of the two a server gets.

use aws_lc_rs::digest;
use base64::Engine;
use h2::{Ping, PingPong};
use penstock_config::model::{ServerSettings, WebSockets};
use penstock_http::{Connection, Known, RequestHead};
use std::cell::{Cell, RefCell};
use tokio::sync::Notify;

/// The request is a handshake of RFC 6455.
pub(crate) fn is_asked_for(head: &RequestHead) -> bool {
    head.method() == b"GET"
        && head.fields.known(Known::Upgrade).is_some_and(|protocol| protocol.eq_ignore_ascii_case(b"websocket"))
        && Connection::of(&head.fields).upgrade
}

/// Whether it must not go over HTTP/2, whatever other requests do: `ws h1`, or a server that offers both by ALPN and is not
/// said to take extended CONNECT.
pub(crate) fn goes_over_http1(head: &RequestHead, settings: &ServerSettings) -> bool {
    let offers_http1 = || {
        let alpn = settings.tls.as_ref().and_then(|tls| tls.conf.alpn.as_ref());
        alpn.is_some_and(|protocols| protocols.iter().any(|protocol| protocol == HTTP1))
    };
    let over_http1 = match settings.ws {
        WebSockets::Http1 => true,
        WebSockets::Http2 => false,
        WebSockets::Auto => offers_http1(),
    };
    over_http1 && is_asked_for(head)
}

/// HTTP/1.1 as ALPN calls it.
const HTTP1: &str = "http/1.1";

/// What proves to a client that its WebSocket key was understood (RFC 6455 section 4.2.2).
pub(crate) fn accept(key: &[u8]) -> String {
    let proof = [key, b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"].concat();
    let digest = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &proof);
    base64::engine::general_purpose::STANDARD.encode(digest)
}

/// Tells when a server's first SETTINGS are known. They are the first it sends, so they come before its answer to a PING.
pub(super) struct Greeting {
    ping: RefCell<Option<PingPong>>,
    over: Cell<bool>,
    told: Notify,
}

impl Greeting {
    pub fn new(ping: Option<PingPong>) -> Greeting {
        Greeting { ping: RefCell::new(ping), over: Cell::new(false), told: Notify::new() }
    }
    /// Returns once the SETTINGS are there, or the connection has failed.
    pub async fn wait(&self) {
        if self.over.get() {
            return;
        }
        let Some(mut ping) = self.ping.borrow_mut().take() else {
            // Somebody has asked already.
            return self.told.notified().await;
        };
        let asker = Asker(self);
        // Either way there is nothing more to wait for.
        let _ = ping.ping(Ping::opaque()).await;
        drop(asker);
    }
}

/// Whoever asks may leave before the answer; those who wait for it are told even so.
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
