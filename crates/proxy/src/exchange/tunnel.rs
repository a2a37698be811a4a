//! Connections that are intercepted: the tunnel in which one begins, and requests whose server has been found wanting.

use super::{flush, live::Live, respond, state::Exchange};
use crate::connection::Conn;
use penstock_http::{Framing, Version};
use penstock_rules::{By, During, Termination};

/// Answers a CONNECT whose tunnel ends here: what follows is another connection, which begins with TLS.
pub(super) async fn open(live: &mut Live<'_, '_>) {
    live.x.log.termination = Termination(By::Ourselves, During::Request);
    if live.conn.facts.http_major != 1 {
        // A stream of HTTP/2 is no connection.
        return respond::error(live, 501).await;
    }
    live.x.response.start(200, Version::Http11);
    live.x.txn.status = Some(200);
    live.client.respond(&mut live.x.response, Framing::Tunnel, false);
    live.x.responded = true;
    match flush::flush(live).await {
        Ok(()) => live.x.tunnels = true,
        Err(_) => live.client.abort(),
    }
}

/// Why a request has no server: the one that its connection was intercepted for was not reached, or does not validate and the client
/// has not been shown so by its certificate.
pub(super) fn missing<'c>(conn: &'c Conn<'_>, x: &Exchange) -> Option<&'c str> {
    let origin = conn.facts.origin.as_ref().filter(|origin| Some(origin.backend) == x.backend)?;
    origin.error.as_deref().filter(|_| origin.pinned.is_none())
}

/// Answers a request that has no server; the page says why.
pub(super) async fn refuse(live: &mut Live<'_, '_>) {
    live.x.log.termination = Termination(By::Server, During::Connect);
    respond::error(live, 503).await;
}
