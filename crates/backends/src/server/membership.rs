//! Adding and removing servers at run time (`add server`, `del server`).

use super::{Backends, Server, ServerRef, Status, member};
use penstock_config::model::{self, ProxyId};
use std::sync::{Arc, PoisonError, atomic::Ordering::Relaxed};
use std::time::Instant;

/// Why a server could not be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddError {
    /// No such backend exists, or it is disabled.
    NoBackend,
    /// The algorithm's table is fixed by the configuration.
    Static,
    /// The name is taken by another server of the backend.
    NameTaken,
    /// The `id` is taken by the server of the backend with this name.
    IdTaken(u32, String),
    /// There is no server with the name that `track` gives.
    TrackedUnknown(String),
    /// The server that `track` names (with its backend) could itself be removed.
    TrackedDynamic(String),
    /// The server that `track` names (with its backend) has no checks.
    TrackedUnchecked(String),
}

/// Why a server could not be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoveError {
    /// There is no such server.
    NoServer,
    /// Other parts of the configuration refer to it.
    Pinned,
    /// The server is not in maintenance.
    NotInMaintenance,
    /// The server has requests, or requests wait for it.
    Busy,
}

impl<E> Backends<E> {
    /// Adds a server, last in order, and in maintenance if its settings say `disabled`; its health is not checked before [`Backends::set_checked`]
    /// enables that. Its `id` is the one given, or the first free one. `with` makes the caller's data for it.
    ///
    /// # Errors
    ///
    /// If the backend cannot take it; then nothing has changed.
    pub fn add(
        &self,
        proxy: ProxyId,
        mut config: model::Server,
        with: impl FnOnce(ServerRef, u32) -> E,
        now: Instant,
    ) -> Result<Arc<Server<E>>, AddError> {
        let _alone = self.membership.lock().unwrap_or_else(PoisonError::into_inner);
        let backend = self.get(proxy).ok_or(AddError::NoBackend)?;
        let servers = backend.servers.load_full();
        if !backend.core().balancer.is_dynamic() {
            return Err(AddError::Static);
        }
        if servers.iter().any(|server| server.name == config.name) {
            return Err(AddError::NameTaken);
        }
        let taken = |id: u32| servers.iter().find(|server| server.id == id);
        let id = match config.settings.id {
            Some(id) => match taken(id) {
                Some(server) => return Err(AddError::IdTaken(id, server.name.clone())),
                None => id,
            },
            None => (1..).find(|&id| taken(id).is_none()).unwrap_or_default(),
        };
        let tracked = match &config.settings.track {
            None => None,
            Some(track) => {
                let tracked = self.named(backend, &track.text);
                let tracked = tracked.ok_or_else(|| AddError::TrackedUnknown(track.text.clone()))?;
                if tracked.dynamic {
                    return Err(AddError::TrackedDynamic(self.name(tracked.at)));
                }
                let settings = &tracked.config.settings;
                if !settings.check.enabled && settings.track.is_none() {
                    return Err(AddError::TrackedUnchecked(self.name(tracked.at)));
                }
                Some(tracked)
            }
        };
        let mut status = Status::new(&config.settings);
        status.last_change = self.since(now);
        // To HAProxy it was put into maintenance, not written so.
        Arc::make_mut(&mut config.settings).disabled = false;
        let config = Arc::new(config);
        let at = ServerRef { proxy, server: servers.next() };
        let mut server = Server::new(at, id, &config, self.operated, with(at, id));
        server.dynamic = true;
        server.may_shut_sessions |= config.settings.on_marked_down_shutdown || config.settings.backup;
        server.checked.store(false, Relaxed);
        server.asked.store(false, Relaxed);
        let server = Arc::new(server);
        if let Some(check) = status.check.as_mut() {
            (check.health, check.enabled) = (0, false);
        }
        if let Some(agent) = status.agent.as_mut() {
            agent.enabled = false;
        }
        {
            let mut core = backend.core();
            let slot = at.server.index();
            core.servers.insert(server.clone());
            if slot == core.status.len() {
                core.status.push(status);
            } else {
                core.status[slot] = status;
            }
            core.queues.insert(slot);
            core.balancer.insert(slot, member(&server));
            backend.balance_again(&mut core, slot, None);
            backend.servers.store(Arc::new(core.servers.clone()));
        }
        if let Some(tracked) = tracked {
            tracked.pin();
            let mut trackers = (**self.trackers.load()).clone();
            trackers.push((tracked.at, at));
            self.trackers.store(Arc::new(trackers));
            if self.status(tracked.at).is_some_and(|status| status.admin.maint()) {
                self.set_admin(at, super::Admin::INHERITED_MAINT, true, self.since(now));
            }
        }
        Ok(server)
    }

    /// Why a server cannot be removed now; `None` if it can.
    pub fn is_kept(&self, at: ServerRef) -> Option<RemoveError> {
        let Some((_, core)) = self.lock(at) else { return Some(RemoveError::NoServer) };
        let slot = at.server.index();
        let member = &core.balancer.members()[slot];
        if core.server(slot).is_pinned() {
            Some(RemoveError::Pinned)
        } else if !core.status[slot].admin.maint() {
            Some(RemoveError::NotInMaintenance)
        } else if member.served > 0 || core.queues.waiting_for(slot) > 0 {
            Some(RemoveError::Busy)
        } else {
            None
        }
    }

    /// Removes a server that is in maintenance and has no requests. Its slot becomes free.
    ///
    /// # Errors
    ///
    /// If it cannot be removed; then nothing has changed.
    pub fn remove(&self, at: ServerRef) -> Result<Arc<Server<E>>, RemoveError> {
        let _alone = self.membership.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = self.is_kept(at) {
            return Err(error);
        }
        let server = {
            let (backend, mut core) = self.lock(at).ok_or(RemoveError::NoServer)?;
            let slot = at.server.index();
            // Persistence may have sent it a request meanwhile.
            if core.balancer.members()[slot].served > 0 || core.queues.waiting_for(slot) > 0 {
                return Err(RemoveError::Busy);
            }
            let server = core.servers.remove(at.server).ok_or(RemoveError::NoServer)?;
            core.balancer.remove(slot);
            backend.servers.store(Arc::new(core.servers.clone()));
            server
        };
        let mut trackers = (**self.trackers.load()).clone();
        trackers.retain(|(tracked, tracker)| *tracked != at && *tracker != at);
        self.trackers.store(Arc::new(trackers));
        server.removed.store(true, Relaxed);
        // Lets its checks notice that it was removed.
        server.hurry.notify_one();
        Ok(server)
    }

    /// Enables or disables the health checks of a server whose line has `check`.
    pub fn set_checked(&self, at: ServerRef, on: bool) {
        let Some((_, mut core)) = self.lock(at) else { return };
        if let Some(check) = core.status[at.server.index()].check.as_mut() {
            check.enabled = on;
        }
        let server = core.server(at.server.index());
        server.checked.store(on && server.config.settings.check.enabled, Relaxed);
        server.hurry.notify_one();
    }

    /// Enables or disables the questions to the agent of a server whose line has `agent-check`.
    pub fn set_asked(&self, at: ServerRef, on: bool) {
        let Some((_, mut core)) = self.lock(at) else { return };
        if let Some(agent) = core.status[at.server.index()].agent.as_mut() {
            agent.enabled = on;
        }
        let server = core.server(at.server.index());
        server.asked.store(on && server.config.settings.agent.is_some(), Relaxed);
    }
}
