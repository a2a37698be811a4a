//! Server connections that belong to one client's connection and may serve nobody else: those of `http-reuse never`, and
//! those that a client has authenticated (NTLM and Negotiate authenticate connections, not requests).

use super::pool::{Returned, is_quiet};
use crate::http2::mux::Mux;
use crate::server::ServerId;
use penstock_backends::reuse::{Key, Session};
use penstock_http::ResponseHead;
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

/// Those of one client. The exchanges on its connection share them, as many as run at a time.
#[derive(Default)]
pub(crate) struct Own {
    idle: RefCell<Vec<(Key, Returned)>>,
    muxes: RefCell<Vec<(Key, Rc<Mux>)>>,
    authenticates: Cell<bool>,
}

impl Own {
    /// The client as reserved connections know it.
    pub fn session(self: &Rc<Self>) -> Session {
        Rc::as_ptr(self).addr()
    }
    /// The client authenticates connections: what is opened for it is its own, and it stays where it is known.
    pub fn authenticates(&self) -> bool {
        self.authenticates.get()
    }
    /// Takes note of what a response asks of the client.
    pub fn heed(&self, response: &ResponseHead) {
        if authenticates_connection(response) {
            self.authenticates.set(true);
        }
    }
    /// The one used last that fits, if the server still keeps it.
    pub fn take(&self, key: &Key) -> Option<Returned> {
        let mut idle = self.idle.borrow_mut();
        loop {
            let found = idle.iter().rposition(|(fits, _)| fits == key)?;
            let (_, own) = idle.swap_remove(found);
            if is_quiet(&own.stream) {
                return Some(own);
            }
        }
    }
    /// Keeps one for the client's next request.
    pub fn give(&self, key: Key, connection: Returned) {
        self.idle.borrow_mut().push((key, connection));
    }
    /// One that speaks HTTP/2 and has room for another exchange.
    pub fn take_mux(&self, key: &Key, max_reuse: impl Fn(&Mux) -> bool) -> Option<Rc<Mux>> {
        let mut muxes = self.muxes.borrow_mut();
        if muxes.is_empty() {
            return None;
        }
        muxes.retain(|(_, mux)| mux.is_open());
        let found = muxes.iter().find(|(fits, mux)| fits == key && mux.has_room() && max_reuse(mux));
        found.map(|(_, mux)| mux.clone())
    }
    /// Keeps one that speaks HTTP/2.
    pub fn give_mux(&self, key: Key, mux: Rc<Mux>) {
        self.muxes.borrow_mut().push((key, mux));
    }
    /// The server of that backend that the client used last, where it has a connection of its own to it.
    pub fn last(&self, backend: usize) -> Option<ServerId> {
        let of = |key: &Key| (key.at.proxy == backend).then_some(key.at.server);
        let idle = self.idle.borrow().iter().rev().find_map(|(key, _)| of(key));
        idle.or_else(|| self.muxes.borrow().iter().rev().find_map(|(key, _)| of(key)))
    }
}

/// The response asks for an authentication that will hold for the connection.
fn authenticates_connection(response: &ResponseHead) -> bool {
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
