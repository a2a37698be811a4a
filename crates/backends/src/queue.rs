//! Queues of requests that wait for a place: one per server for those that persistence ties to it, and one per backend
//! for the others; ordered by priority, then by arrival. A place freed by one worker wakes a request on another.
//!
//! A place is counted for a waiting request before that is woken, so that no other can take it. Dropping a [`Queued`]
//! leaves the queue; a place that was already granted to it is freed and wakes the next request.

use crate::server::{Backend, Core, Slot};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::oneshot;

/// The end of waiting.
pub enum Granted<E = ()> {
    /// A place on a server.
    Slot(Slot<E>),
    /// The server went down: ask the backend again.
    Again,
}

/// A place in a queue, to be awaited for at most `timeout queue`.
pub struct Queued<E = ()> {
    backend: Arc<Backend<E>>,
    server: Option<usize>,
    turn: Position,
    ahead: u32,
    grant: oneshot::Receiver<Granted<E>>,
}

/// The order in a queue: the lowest value leaves first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Priority {
    /// `set-priority-class`.
    pub class: i32,
    /// When the request came, shifted by `set-priority-offset`, in milliseconds of the worker's clock.
    pub due_ms: i64,
}

/// A position in a queue: the priority, and a number in the order of arrival.
type Position = (Priority, u64);

type Queue<E> = BTreeMap<Position, oneshot::Sender<Granted<E>>>;

/// All queues of a backend, protected by its lock.
pub(crate) struct Queues<E> {
    next: u64,
    any: Queue<E>,
    servers: Vec<Queue<E>>,
    /// The most requests that have waited for any server.
    any_max: u32,
}

impl<E> Queues<E> {
    pub(crate) fn new(servers: usize) -> Queues<E> {
        Queues { next: 0, any: BTreeMap::new(), servers: (0..servers).map(|_| BTreeMap::new()).collect(), any_max: 0 }
    }

    /// Adds an empty queue for the server in that slot.
    pub(crate) fn insert(&mut self, slot: usize) {
        if slot >= self.servers.len() {
            self.servers.resize_with(slot + 1, BTreeMap::new);
        }
    }

    /// How many requests wait for any server.
    pub(crate) fn waiting_anywhere(&self) -> u32 {
        self.any.len() as u32
    }

    /// How many requests wait for that server.
    pub(crate) fn waiting_for(&self, server: usize) -> u32 {
        self.servers[server].len() as u32
    }

    /// The maximum of [`Self::waiting_anywhere`] so far.
    pub(crate) fn most_anywhere(&self) -> u32 {
        self.any_max
    }

    /// Forgets that maximum.
    pub(crate) fn clear_most(&mut self) {
        self.any_max = 0;
    }

    /// Joins a queue, after all requests of the same or a higher priority.
    pub(crate) fn join(&mut self, backend: &Arc<Backend<E>>, server: Option<usize>, priority: Priority) -> Queued<E> {
        let (sender, grant) = oneshot::channel();
        let turn = (priority, self.next);
        self.next += 1;
        let queue = self.of(server);
        let ahead = queue.len() as u32;
        queue.insert(turn, sender);
        self.any_max = self.any_max.max(self.any.len() as u32);
        Queued { backend: backend.clone(), server, turn, ahead, grant }
    }

    fn of(&mut self, server: Option<usize>) -> &mut Queue<E> {
        match server {
            Some(server) => &mut self.servers[server],
            None => &mut self.any,
        }
    }

    /// Takes out the first request that this server may serve.
    fn pop(&mut self, server: usize, any: bool) -> Option<oneshot::Sender<Granted<E>>> {
        let bound = self.servers[server].first_key_value().map(|(&turn, _)| turn);
        let free = self.any.first_key_value().map(|(&turn, _)| turn).filter(|_| any);
        let queue = match (bound, free) {
            (Some(bound), Some(free)) if free < bound => &mut self.any,
            (None, Some(_)) => &mut self.any,
            _ => &mut self.servers[server],
        };
        queue.pop_first().map(|(_, sender)| sender)
    }

    /// Takes out all requests that wait for that server, so that they ask again.
    pub(crate) fn evict(&mut self, server: usize) -> Vec<oneshot::Sender<Granted<E>>> {
        std::mem::take(&mut self.servers[server]).into_values().collect()
    }
}

impl<E> Queued<E> {
    /// Whether the request waits for a particular server, not for any.
    pub fn is_for_one_server(&self) -> bool {
        self.server.is_some()
    }

    /// How many requests were ahead of this one when it joined the queue.
    pub fn ahead(&self) -> u32 {
        self.ahead
    }
}

impl<E> Future for Queued<E> {
    type Output = Granted<E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Granted<E>> {
        // The sender is never dropped without sending; if it were, the backend would be gone, and asking again would be
        // right.
        Pin::new(&mut self.grant).poll(cx).map(|grant| grant.unwrap_or(Granted::Again))
    }
}

impl<E> Drop for Queued<E> {
    fn drop(&mut self) {
        let left = {
            let mut core = self.backend.core();
            let left = core.queues.of(self.server).remove(&self.turn);
            if let (Some(_), Some(server)) = (&left, self.server) {
                self.backend.publish(&mut core, server);
            }
            left
        };
        // Outside the lock: if a grant came too late, dropping it frees its place.
        drop(left);
    }
}

impl<E> Backend<E> {
    /// How many requests wait for any server.
    pub fn waiting_anywhere(&self) -> u32 {
        self.core().queues.waiting_anywhere()
    }

    /// Grants the free places of `server` to waiting requests; returns how many.
    pub(crate) fn dispatch(self: &Arc<Self>, server: usize) -> u32 {
        let mut woken = 0;
        loop {
            let load = self.load();
            let mut core = self.core();
            let Some(waiter) = self.next_waiter(&mut core, server, &load) else { return woken };
            core.balancer.take(server);
            let shared = self.publish(&mut core, server);
            drop(core);
            // If the request has just left, its slot comes back in the error and is freed by being dropped.
            woken += u32::from(waiter.send(Granted::Slot(Slot::counted(self.clone(), shared))).is_ok());
        }
    }

    fn next_waiter(
        &self,
        core: &mut Core<E>,
        server: usize,
        load: &crate::balance::Load,
    ) -> Option<oneshot::Sender<Granted<E>>> {
        let (member, totals) = (&core.balancer.members()[server], core.balancer.totals());
        if member.maxconn > 0 && member.served >= member.limit(load) {
            return None;
        }
        let stands_in = totals.active == 0 && totals.first_backup.is_none_or(|first| first == server);
        let any = member.usable() && (!member.backup || stands_in);
        core.queues.pop(server, any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{Assignment, Backends, Cause, Server, ServerId, ServerRef, Want};
    use penstock_config::model::ProxyId;
    use std::time::Instant;

    fn backends(lines: &str) -> Backends {
        let text = format!("backend b\n mode http\n {lines}\n");
        let sources = [penstock_config::model::Source { name: "test.cfg".into(), text }];
        let (config, diagnostics) = penstock_config::load(sources, &penstock_config::Env::default());
        assert!(!diagnostics.has_errors(), "{:?}", diagnostics.list);
        Backends::new(&config, 1000, Instant::now(), Box::new(|_| {}), &mut |_, _| ())
    }

    fn slot(backend: &Arc<Backend>, want: Want) -> Slot {
        match backend.assign(&want) {
            Assignment::Slot(slot) => slot,
            Assignment::Queued(_) => panic!("queued"),
            Assignment::Full => panic!("full"),
            Assignment::NoServer => panic!("no server"),
        }
    }

    fn ticket(backend: &Arc<Backend>, want: Want) -> Queued {
        match backend.assign(&want) {
            Assignment::Queued(ticket) => ticket,
            _ => panic!("not queued"),
        }
    }

    fn at(backend: &Arc<Backend>, server: usize) -> Arc<Server> {
        backend.get(ServerId::configured(server)).expect("it is configured")
    }

    fn to(server: usize) -> Want {
        Want { persistent: Some(ServerId::configured(server)), ..Want::default() }
    }

    async fn server_of(ticket: Queued) -> usize {
        match ticket.await {
            Granted::Slot(slot) => slot.server().slot(),
            Granted::Again => usize::MAX,
        }
    }

    #[tokio::test]
    async fn who_came_first_is_served_first_whichever_queue() {
        let all = backends("server a 127.0.0.1:1 maxconn 1\n server b 127.0.0.1:1 maxconn 1");
        let backend = all.get(ProxyId(0)).expect("it has servers");
        let (a, b) = (slot(backend, to(0)), slot(backend, to(1)));
        let mut any = ticket(backend, Want::default());
        let bound = ticket(backend, to(0));
        assert_eq!((any.is_for_one_server(), bound.is_for_one_server(), bound.ahead()), (false, true, 0));
        drop(a);
        let Granted::Slot(first) = (&mut any).await else { panic!("the server is up") };
        assert_eq!((first.server().slot(), at(backend, 0).queued()), (0, 1));
        drop(b);
        assert_eq!(at(backend, 1).served(), 0, "the one that waits wants the other server");
        drop(first);
        assert_eq!(server_of(bound).await, 0);
        assert_eq!((at(backend, 0).served(), at(backend, 0).queued_max()), (0, 1));
    }

    #[tokio::test]
    async fn a_waiter_that_leaves_takes_nothing_with_it() {
        let all = backends("server a 127.0.0.1:1 maxconn 1");
        let backend = all.get(ProxyId(0)).expect("it has servers");
        let held = slot(backend, Want::default());
        let (first, second, third) =
            (ticket(backend, Want::default()), ticket(backend, Want::default()), ticket(backend, Want::default()));
        // One leaves while waiting, the other when its place has already been granted.
        drop(second);
        drop(held);
        assert_eq!(at(backend, 0).served(), 1);
        drop(first);
        assert_eq!(at(backend, 0).served(), 1, "the place went to the next");
        assert_eq!(server_of(third).await, 0);
        assert_eq!(at(backend, 0).served(), 0);
        assert_eq!(backend.core().queues.waiting_anywhere(), 0);
    }

    #[tokio::test]
    async fn maxqueue_bounds_the_queue_of_a_server() {
        let all = backends("server a 127.0.0.1:1 maxconn 1 maxqueue 1\n server b 127.0.0.1:1");
        let backend = all.get(ProxyId(0)).expect("it has servers");
        let _held = slot(backend, to(0));
        let _waits = ticket(backend, to(0));
        assert!(matches!(backend.assign(&to(0)), Assignment::Full));
        assert_eq!(slot(backend, Want::default()).server().slot(), 1);
    }

    #[tokio::test]
    async fn a_server_that_goes_down_sends_its_queue_elsewhere_with_redispatch() {
        for (option, moved) in [("option redispatch", true), ("retries 3", false)] {
            let all = backends(&format!("{option}\n server a 127.0.0.1:1 maxconn 1\n server b 127.0.0.1:1"));
            let backend = all.get(ProxyId(0)).expect("it has servers");
            let _held = slot(backend, to(0));
            let waits = ticket(backend, to(0));
            all.set_stopped(
                ServerRef { proxy: ProxyId(0), server: ServerId::configured(0) },
                &Cause::default(),
                Instant::now(),
            );
            assert_eq!(at(backend, 0).queued(), u32::from(!moved), "{option}");
            if moved {
                assert_eq!(server_of(waits).await, usize::MAX);
                assert_eq!(slot(backend, Want::default()).server().slot(), 1);
            }
        }
    }

    #[tokio::test]
    async fn a_server_that_comes_up_takes_who_waits_for_any() {
        let all = backends("server a 127.0.0.1:1 maxconn 1\n server b 127.0.0.1:1 maxconn 2");
        let backend = all.get(ProxyId(0)).expect("it has servers");
        let b = ServerRef { proxy: ProxyId(0), server: ServerId::configured(1) };
        all.set_stopped(b, &Cause::default(), Instant::now());
        let _held = slot(backend, Want::default());
        let waits: Vec<Queued> = (0..3).map(|_| ticket(backend, Want::default())).collect();
        all.set_running(b, &Cause::default(), Instant::now());
        assert_eq!((at(backend, 1).served(), backend.core().queues.waiting_anywhere()), (2, 1));
        drop(waits);
        assert_eq!(at(backend, 1).served(), 0);
    }

    /// Sixteen threads take and release places as fast as they can: there are never more than the limit, and none is
    /// lost.
    #[test]
    fn places_are_neither_lost_nor_doubled_across_workers() {
        let all = backends("balance leastconn\n server a 127.0.0.1:1 maxconn 2\n server b 127.0.0.1:1 maxconn 3");
        let backend = all.get(ProxyId(0)).expect("it has servers");
        std::thread::scope(|scope| {
            for worker in 0..16 {
                scope.spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
                    runtime.block_on(async {
                        for turn in 0..200 {
                            let presence = backend.enter();
                            match backend.assign(&Want::default()) {
                                Assignment::Slot(slot) => {
                                    let now: u32 = backend.servers().iter().map(|server| server.served()).sum();
                                    assert!(now <= 5, "{now} places of 5");
                                    drop(slot);
                                }
                                // Some give up at once.
                                Assignment::Queued(ticket) if (worker + turn) % 5 == 0 => drop(ticket),
                                Assignment::Queued(ticket) => drop(ticket.await),
                                _ => panic!("both servers are up"),
                            }
                            drop(presence);
                        }
                    });
                });
            }
        });
        let core = backend.core();
        assert!(core.balancer.members().iter().all(|member| member.served == 0 && member.queued == 0));
        assert_eq!((core.queues.waiting_anywhere(), backend.sessions()), (0, 0));
    }
}
