//! The sessions of a worker that an operator can list and end: requests in progress, and connections in `mode tcp`.
//!
//! A session is recorded when it begins, in a slot that a later session reuses, so that it allocates nothing. Other threads
//! send an errand to read the list, a few slots at a time.

use crate::server::ServerRef;
use penstock_config::model::ProxyId;
use slab::Slab;
use std::{
    cell::{Cell, RefCell},
    net::SocketAddr,
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio::time::Instant;

/// A session at the moment it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionView {
    /// Identifies it for as long as it lasts.
    pub id: u64,
    /// Identifies the session for as long as it lasts.
    pub serial: u32,
    /// The session's worker, counted from 0.
    pub worker: usize,
    /// Index of the session's frontend in the configuration.
    pub frontend: ProxyId,
    /// Index of the `bind` line in the frontend.
    pub bind: usize,
    /// The client's address; `None` on a unix socket.
    pub source: Option<SocketAddr>,
    /// The listener's id.
    pub listener_id: u32,
    /// The address that the client connected to.
    pub destination: Option<SocketAddr>,
    /// When the session's connection was accepted, in µs since 1970.
    pub accepted_unix_us: u64,
    /// Time since the session began.
    pub age: Duration,
    /// Index of the session's backend in the configuration, once one is chosen.
    pub backend: Option<ProxyId>,
    /// The session's server, once one is chosen.
    pub server: Option<ServerRef>,
    /// Attempts at a server so far.
    pub attempts: u32,
}

/// The record of a session.
struct Line {
    view: SessionView,
    began: Instant,
    waker: Option<Waker>,
    ended: bool,
}

/// The sessions of one worker.
#[derive(Default)]
pub(crate) struct Roster {
    lines: RefCell<Slab<Line>>,
    begun: Cell<u32>,
}

/// How many bits of a session's id hold its slot in the roster; further bits hold its worker.
const PLACE_BITS: u32 = 24;
const WORKER_BITS: u32 = 12;

/// The id of a session. Because the serial is part of it, sessions that use the same slot one after another have different ids.
fn id_of(serial: u32, worker: usize, place: usize) -> u64 {
    // Serials count from 1 here, since 0 is no session's id.
    let serial = u64::from(serial) % ((1 << (64 - PLACE_BITS - WORKER_BITS)) - 1) + 1;
    let worker = worker as u64 & ((1 << WORKER_BITS) - 1);
    let place = place as u64 & ((1 << PLACE_BITS) - 1);
    ((serial << WORKER_BITS | worker) << PLACE_BITS) | place
}

/// The worker of the session with this id, if that session exists.
pub(crate) fn worker_of(id: u64) -> usize {
    (id >> PLACE_BITS) as usize & ((1 << WORKER_BITS) - 1)
}

impl Roster {
    /// Records a session of worker `view.worker` that begins now, and gives it an id; returns its slot.
    pub fn begin(&self, mut view: SessionView, now: Instant) -> usize {
        let mut lines = self.lines.borrow_mut();
        let entry = lines.vacant_entry();
        let place = entry.key();
        view.serial = self.begun.replace(self.begun.get().wrapping_add(1));
        view.id = id_of(view.serial, view.worker, place);
        entry.insert(Line { view, began: now, waker: None, ended: false });
        place
    }

    /// Removes the session in this slot.
    pub fn remove(&self, place: usize) {
        self.lines.borrow_mut().remove(place);
    }

    /// Ready once an operator has ended the session in this slot.
    pub fn poll_ended(&self, place: usize, cx: &mut Context<'_>) -> Poll<()> {
        let mut lines = self.lines.borrow_mut();
        let line = &mut lines[place];
        if line.ended {
            return Poll::Ready(());
        }
        match &mut line.waker {
            Some(kept) => kept.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// The sessions in the next `most` slots, and the slot to continue from; `None` at the end.
    pub fn some(&self, from: usize, most: usize, now: Instant) -> (Vec<SessionView>, Option<usize>) {
        let lines = self.lines.borrow();
        let mut views = Vec::new();
        // Free slots count too, so that a list with many gaps does not make a long turn.
        let end = from.saturating_add(most);
        for place in from..end.min(lines.capacity()) {
            if let Some(line) = lines.get(place) {
                views.push(SessionView { age: now.saturating_duration_since(line.began), ..line.view.clone() });
            }
        }
        (views, (end < lines.capacity()).then_some(end))
    }

    /// The session with this id.
    pub fn find(&self, id: u64, now: Instant) -> Option<SessionView> {
        let lines = self.lines.borrow();
        let line = lines.get(id as usize & ((1 << PLACE_BITS) - 1)).filter(|line| line.view.id == id)?;
        Some(SessionView { age: now.saturating_duration_since(line.began), ..line.view.clone() })
    }

    /// How many sessions have begun so far.
    pub fn begun(&self) -> u32 {
        self.begun.get()
    }

    /// Changes the record of the session in this slot, if it has one.
    pub fn note(&self, place: Option<usize>, change: impl FnOnce(&mut SessionView)) {
        let mut lines = self.lines.borrow_mut();
        if let Some(line) = place.and_then(|place| lines.get_mut(place)) {
            change(&mut line.view);
        }
    }

    /// Has every session look at its deadlines again.
    pub fn wake(&self) {
        for (_, line) in self.lines.borrow().iter() {
            if let Some(waker) = &line.waker {
                waker.wake_by_ref();
            }
        }
    }

    /// Ends the session with this id; returns whether it exists.
    pub fn end(&self, id: u64) -> bool {
        let mut lines = self.lines.borrow_mut();
        let Some(line) = lines.get_mut(id as usize & ((1 << PLACE_BITS) - 1)).filter(|line| line.view.id == id) else {
            return false;
        };
        line.ended = true;
        if let Some(waker) = line.waker.take() {
            waker.wake();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_names_worker_and_place_and_is_not_given_twice_in_a_row() {
        let id = id_of(7, 3, 1 << 20);
        assert_eq!((worker_of(id), id as usize & ((1 << PLACE_BITS) - 1)), (3, 1 << 20));
        assert_ne!(id, id_of(8, 3, 1 << 20));
        assert_ne!(id_of(0, 0, 0), 0);
    }
}
