//! Server connections that belong to one client's connection and may serve nobody else: those of `http-reuse never`,
//! those that began by saying who the client is (`send-proxy`), and those that a client has authenticated (NTLM and
//! Negotiate authenticate connections, not requests).

use crate::{
    pool::{Returned, is_quiet},
    server::ServerRef,
};
use penstock_http::ResponseHead;

/// The idle ones of one client.
#[derive(Default)]
pub(crate) struct Own {
    idle: Vec<(ServerRef, Returned)>,
    /// The client authenticates connections: what is opened for it is its own, and it stays where it is known.
    pub authenticates: bool,
}

impl Own {
    /// The one used last that goes to this server, if the server still keeps it.
    pub fn take(&mut self, at: ServerRef, sni: Option<&str>) -> Option<Returned> {
        loop {
            let found = self.idle.iter().rposition(|(to, own)| *to == at && own.sni.as_deref() == sni)?;
            let (_, own) = self.idle.swap_remove(found);
            if is_quiet(&own.stream) {
                return Some(own);
            }
        }
    }
    /// Keeps one for the client's next request.
    pub fn give(&mut self, at: ServerRef, connection: Returned) {
        self.idle.push((at, connection));
    }
    /// The server of that backend that the client used last, where it has a connection of its own to it.
    pub fn last(&self, backend: usize) -> Option<usize> {
        self.idle.iter().rev().find(|(at, _)| at.proxy == backend).map(|(at, _)| at.server)
    }
}

/// The response asks for an authentication that will hold for the connection.
pub(crate) fn authenticates_connection(response: &ResponseHead) -> bool {
    let field = match response.status() {
        401 => &b"www-authenticate"[..],
        407 => b"proxy-authenticate",
        _ => return false,
    };
    // `Negotiate`, and its early drafts.
    let schemes = [&b"ntlm"[..], b"nego"];
    response.fields.get_all(field).any(|value| {
        value.get(..4).is_some_and(|start| schemes.iter().any(|scheme| start.eq_ignore_ascii_case(scheme)))
    })
}
