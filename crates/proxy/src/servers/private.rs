//! Server connections reserved for one client's connection: those of `http-reuse never`, and those that a client has
//! authenticated (NTLM and Negotiate authenticate connections, not requests).

use super::pool::{Returned, is_quiet};
use crate::http2::mux::Mux;
use crate::process::returning::Unknown;
use crate::server::ServerId;
use penstock_backends::reuse::{Key, Session};
use penstock_config::model::ProxyId;
use penstock_http::ResponseHead;
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

/// The reserved connections of one client, shared by the exchanges that run on its connection.
#[derive(Default)]
pub(crate) struct Own {
    // Few clients have any, and every idle client pays for what is not in a box.
    kept: RefCell<Option<Box<Connections>>>,
    authenticates: Cell<bool>,
}

#[derive(Default)]
struct Connections {
    idle: Vec<(Key, Returned)>,
    muxes: Vec<(Key, Rc<Mux>)>,
    /// On a connection of a device that has brought nothing back.
    unknown: Option<Unknown>,
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.idle.drain(..).for_each(|(_, idle)| idle.close());
    }
}

impl Own {
    /// The identity of this client for reserved connections.
    pub fn session(self: &Rc<Self>) -> Session {
        Rc::as_ptr(self).addr()
    }
    /// Whether the client authenticates connections: then those opened for it are its own, and it keeps to the server
    /// that knows it.
    pub fn authenticates(&self) -> bool {
        self.authenticates.get()
    }
    /// Takes note if a response asks the client to authenticate its connection.
    pub fn heed(&self, response: &ResponseHead) {
        if authenticates_connection(response) {
            self.authenticates.set(true);
        }
    }
    /// Takes the most recently used matching connection, if the server still keeps it open.
    pub fn take(&self, key: &Key) -> Option<Returned> {
        let mut kept = self.kept.borrow_mut();
        let idle = &mut kept.as_mut()?.idle;
        loop {
            let found = idle.iter().rposition(|(fits, _)| fits == key)?;
            let (_, mut own) = idle.swap_remove(found);
            // One that has carried nothing yet was opened ahead, and its session tickets are unread.
            if is_quiet(&own.stream) || own.uses == 0 && own.stream.is_still() {
                return Some(own);
            }
        }
    }
    /// Keeps a connection for the client's next request.
    pub fn give(&self, key: Key, connection: Returned) {
        self.kept.borrow_mut().get_or_insert_default().idle.push((key, connection));
    }
    /// A connection that speaks HTTP/2 and has room for another exchange.
    pub fn take_mux(&self, key: &Key, max_reuse: impl Fn(&Mux) -> bool) -> Option<Rc<Mux>> {
        let mut kept = self.kept.borrow_mut();
        let muxes = &mut kept.as_mut()?.muxes;
        muxes.retain(|(_, mux)| mux.is_open());
        let found = muxes.iter().find(|(fits, mux)| fits == key && mux.has_room() && max_reuse(mux));
        found.map(|(_, mux)| mux.clone())
    }
    /// Keeps a connection that speaks HTTP/2.
    pub fn give_mux(&self, key: Key, mux: Rc<Mux>) {
        self.kept.borrow_mut().get_or_insert_default().muxes.push((key, mux));
    }
    /// Counts the connection as one of a device that has brought nothing back.
    pub fn await_return(&self, unknown: Unknown) {
        self.kept.borrow_mut().get_or_insert_default().unknown = Some(unknown);
    }
    /// Stops that, as it has.
    pub fn note_return(&self) {
        if let Some(kept) = &mut *self.kept.borrow_mut() {
            kept.unknown = None;
        }
    }
    /// The server of that backend that the client used last, if it has a connection of its own to it.
    pub fn last(&self, backend: ProxyId) -> Option<ServerId> {
        let of = |key: &Key| (key.at.proxy == backend).then_some(key.at.server);
        let kept = self.kept.borrow();
        let kept = kept.as_ref()?;
        let idle = kept.idle.iter().rev().find_map(|(key, _)| of(key));
        idle.or_else(|| kept.muxes.iter().rev().find_map(|(key, _)| of(key)))
    }
}

/// Whether the response asks for an authentication that applies to the whole connection.
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
