//! Changes of a server's address at run time: by name resolution, or by an operator.

use super::{Admin, Backends, Endpoint, Host, Notice, ServerRef, ring_key};
use penstock_config::syslog;
use std::sync::Arc;
use std::time::Instant;

impl<E> Backends<E> {
    /// Sets a new address, or none. Existing connections stay.
    pub fn set_host(&self, at: ServerRef, host: Option<Host>) {
        let Some(server) = self.server(at) else { return };
        self.set_endpoint(at, Endpoint { host, port: server.endpoint.load().port });
    }

    /// Sets a new address and port, which may move the server on the ring of `hash-type consistent`.
    pub fn set_endpoint(&self, at: ServerRef, endpoint: Endpoint) {
        let Some((_, mut core)) = self.lock(at) else { return };
        let server = Arc::clone(core.server(at.server.index()));
        server.endpoint.store(Arc::new(endpoint));
        core.balancer.set_ring_key(at.server.index(), ring_key(&server));
    }

    /// Puts a server whose name no longer resolves in maintenance until it does, and takes its address away.
    pub fn set_unresolved(&self, at: ServerRef, reason: &'static str, now: Instant) {
        if self.status(at).is_some_and(|status| !status.admin.has(Admin::UNRESOLVED)) {
            self.set_admin_for(at, Admin::UNRESOLVED, true, reason, self.since(now));
        }
        self.set_host(at, None);
    }

    /// Ends the maintenance of a server whose name resolves again; does nothing if it was not in maintenance for that.
    pub fn set_resolved(&self, at: ServerRef, now: Instant) {
        if self.status(at).is_none_or(|status| !status.admin.has(Admin::UNRESOLVED)) {
            return;
        }
        self.set_admin_for(at, Admin::UNRESOLVED, false, "", self.since(now));
        let text = format!("Server {} administratively READY thanks to valid DNS answer.", self.name(at));
        self.announce(&Notice { proxy: at.proxy, severity: syslog::NOTICE, text, mailed: None });
    }
}
