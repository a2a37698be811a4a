//! `server ... redir PREFIX`: clients ask that server themselves.

use super::{live::Live, respond};
use crate::server::Server;
use penstock_http::Version;
use penstock_rules::{By, During, Termination};

/// Redirects a GET or HEAD to the prefix of its server; returns whether it did.
pub(super) async fn to_server(live: &mut Live<'_, '_>, server: &Server) -> bool {
    let Some(prefix) = &server.config.settings.redir else { return false };
    if !matches!(live.x.request.method(), b"GET" | b"HEAD") {
        return false;
    }
    // A prefix of `/` alone adds nothing (manual, `redir`).
    let prefix = if prefix == "/" { "" } else { prefix };
    let location = [prefix.as_bytes(), live.x.request.path_and_query()].concat();
    live.x.response.start(302, Version::Http11);
    respond::fields(&mut live.x.response, &[("cache-control", "no-cache"), ("content-length", "0")]);
    if live.x.response.fields.append(b"location", &location).is_err() {
        // The path of a request is no valid value only where an option lets it be so.
        live.x.log.termination = Termination(By::Refusal, During::Connect);
        respond::error(live, 500).await;
        return true;
    }
    live.x.log.termination = Termination(By::Ourselves, During::Connect);
    respond::send(live, b"", false, 302).await;
    true
}
