//! Requests that wait for a place: one queue a server for those that persistence binds to it, one a backend for the
//! others, in the order they came. A place freed by one worker wakes a request of another.
//!
//! A place is counted for a waiter before it is told, so that nobody overtakes it; whoever drops a [`Ticket`] leaves
//! the queue, and a place that was on its way to it frees itself and wakes the next.

use crate::server::{Backend, Core, Slot};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::oneshot;

/// The end of waiting.
pub enum Granted {
    /// A place on a server.
    Slot(Slot),
    /// The server went down: ask the backend again.
    Again,
}

/// A place in a queue. Wait for it with the timeout `queue`.
pub struct Ticket {
    backend: Arc<Backend>,
    server: Option<usize>,
    number: u64,
    ahead: u32,
    grant: oneshot::Receiver<Granted>,
}

/// All queues of a backend, under its lock.
pub(crate) struct Queues {
    next: u64,
    any: BTreeMap<u64, oneshot::Sender<Granted>>,
    servers: Vec<BTreeMap<u64, oneshot::Sender<Granted>>>,
    /// The most that waited for no server in particular.
    any_max: u32,
}

impl Queues {
    pub(crate) fn new(servers: usize) -> Queues {
        Queues { next: 0, any: BTreeMap::new(), servers: (0..servers).map(|_| BTreeMap::new()).collect(), any_max: 0 }
    }

    /// Requests that wait for any server.
    pub(crate) fn waiting_anywhere(&self) -> u32 {
        self.any.len() as u32
    }

    /// Requests that wait for that server.
    pub(crate) fn waiting_for(&self, server: usize) -> u32 {
        self.servers[server].len() as u32
    }

    /// The most that [`Self::waiting_anywhere`] has been.
    pub(crate) fn most_anywhere(&self) -> u32 {
        self.any_max
    }

    /// A new place at the end.
    pub(crate) fn join(&mut self, backend: &Arc<Backend>, server: Option<usize>) -> Ticket {
        let (sender, grant) = oneshot::channel();
        let number = self.next;
        self.next += 1;
        let queue = self.of(server);
        let ahead = queue.len() as u32;
        queue.insert(number, sender);
        self.any_max = self.any_max.max(self.any.len() as u32);
        Ticket { backend: backend.clone(), server, number, ahead, grant }
    }

    fn of(&mut self, server: Option<usize>) -> &mut BTreeMap<u64, oneshot::Sender<Granted>> {
        match server {
            Some(server) => &mut self.servers[server],
            None => &mut self.any,
        }
    }

    /// The one that came first of those that this server may serve.
    fn pop(&mut self, server: usize, any: bool) -> Option<oneshot::Sender<Granted>> {
        let bound = self.servers[server].first_key_value().map(|(&number, _)| number);
        let free = self.any.first_key_value().map(|(&number, _)| number).filter(|_| any);
        let queue = match (bound, free) {
            (Some(bound), Some(free)) if free < bound => &mut self.any,
            (None, Some(_)) => &mut self.any,
            _ => &mut self.servers[server],
        };
        queue.pop_first().map(|(_, sender)| sender)
    }

    /// Everyone who waits for that server leaves its queue to ask again.
    pub(crate) fn evict(&mut self, server: usize) -> Vec<oneshot::Sender<Granted>> {
        std::mem::take(&mut self.servers[server]).into_values().collect()
    }
}

impl Ticket {
    /// The server it waits for, if only one will do.
    pub fn server(&self) -> Option<usize> {
        self.server
    }

    /// How many stood before it when it came.
    pub fn ahead(&self) -> u32 {
        self.ahead
    }
}

impl Future for Ticket {
    type Output = Granted;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Granted> {
        // A sender never goes without a word: an error would be a backend that vanished, and asking again is right.
        Pin::new(&mut self.grant).poll(cx).map(|grant| grant.unwrap_or(Granted::Again))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let left = {
            let mut core = self.backend.core();
            let left = core.queues.of(self.server).remove(&self.number);
            if let (Some(_), Some(server)) = (&left, self.server) {
                self.backend.publish(&mut core, server);
            }
            left
        };
        // Outside the lock: a grant that came too late gives its place back as it goes.
        drop(left);
    }
}

impl Backend {
    /// Requests that wait for any server.
    pub fn waiting_anywhere(&self) -> u32 {
        self.core().queues.waiting_anywhere()
    }

    /// Gives the free places of `server` to those who wait, and says to how many.
    pub(crate) fn dispatch(self: &Arc<Self>, server: usize) -> u32 {
        let mut woken = 0;
        loop {
            let load = self.load();
            let mut core = self.core();
            let Some(waiter) = self.next_waiter(&mut core, server, &load) else { return woken };
            core.balancer.take(server);
            self.publish(&mut core, server);
            drop(core);
            // If the waiter has just left, its slot comes back in the error and frees itself here.
            woken += u32::from(waiter.send(Granted::Slot(Slot::counted(self.clone(), server))).is_ok());
        }
    }

    fn next_waiter(
        &self,
        core: &mut Core,
        server: usize,
        load: &crate::balance::Load,
    ) -> Option<oneshot::Sender<Granted>> {
        let (member, totals) = (&core.balancer.members()[server], core.balancer.totals());
        if member.maxconn > 0 && member.served >= member.limit(load) {
            return None;
        }
        let stands_in = totals.active == 0 && totals.first_backup.is_none_or(|first| first == server);
        let any = member.usable() && (!member.backup || stands_in);
        core.queues.pop(server, any)
    }
}
