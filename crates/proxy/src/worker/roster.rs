//! The sessions of a worker that an operator can list and end: requests in progress, and connections in `mode tcp`.
//!
//! A session is recorded when it begins, in a slot that a later session reuses, so that it allocates nothing. Other threads
//! send an errand to read the list, a few slots at a time.

use crate::server::ServerRef;
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
    /// Number of sessions that its worker had begun before it.
    pub serial: u32,
    /// Its worker, counted from 0.
    pub worker: usize,
    /// Index of its frontend in the configuration.
    pub frontend: usize,
    /// Index of the `bind` line in the frontend.
    pub bind: usize,
    /// The client's address; `None` on a unix socket.
    pub source: Option<SocketAddr>,
    /// The listener's id.
    pub listener_id: u32,
    /// The address that the client connected to.
    pub destination: Option<SocketAddr>,
    /// When its connection was accepted, in µs since 1970.
    pub accepted_unix_us: u64,
    /// How long it has lasted.
    pub age: Duration,
    /// Index of its backend in the configuration, once one is chosen.
    pub backend: Option<usize>,
    /// Its server, once one is chosen.
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

/// A worker's number and its session's place there are read from the session's number, which has room for so many bits of each.
const PLACE_BITS: u32 = 24;
const WORKER_BITS: u32 = 12;

/// The number of a session: what comes first makes it another than that of who had the place before.
fn id_of(serial: u32, worker: usize, place: usize) -> u64 {
    // From 1 on: 0 is no session's number.
    let serial = u64::from(serial) % ((1 << (64 - PLACE_BITS - WORKER_BITS)) - 1) + 1;
    let worker = worker as u64 & ((1 << WORKER_BITS) - 1);
    let place = place as u64 & ((1 << PLACE_BITS) - 1);
    ((serial << WORKER_BITS | worker) << PLACE_BITS) | place
}

/// The worker that has a session of this number, if there is one.
pub(crate) fn worker_of(id: u64) -> usize {
    (id >> PLACE_BITS) as usize & ((1 << WORKER_BITS) - 1)
}

impl Roster {
    /// Writes down a session of worker `view.worker` that begins now, and gives it its number; returns its place.
    pub fn begin(&self, mut view: SessionView, now: Instant) -> usize {
        let mut lines = self.lines.borrow_mut();
        let entry = lines.vacant_entry();
        let place = entry.key();
        view.serial = self.begun.replace(self.begun.get().wrapping_add(1));
        view.id = id_of(view.serial, view.worker, place);
        entry.insert(Line { view, began: now, waker: None, ended: false });
        place
    }

    /// Forgets the session at that place.
    pub fn remove(&self, place: usize) {
        self.lines.borrow_mut().remove(place);
    }

    /// Ready once an operator has ended the session at that place.
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

    /// At most `most` sessions from a place on, and the place to go on from; `None` at the end.
    pub fn some(&self, from: usize, most: usize, now: Instant) -> (Vec<SessionView>, Option<usize>) {
        let lines = self.lines.borrow();
        let mut views = Vec::new();
        // Places that are free are looked at too, so that a list with many holes is no long turn.
        let end = from.saturating_add(most);
        for place in from..end.min(lines.capacity()) {
            if let Some(line) = lines.get(place) {
                views.push(SessionView { age: now.saturating_duration_since(line.began), ..line.view.clone() });
            }
        }
        (views, (end < lines.capacity()).then_some(end))
    }

    /// The session of that number.
    pub fn find(&self, id: u64, now: Instant) -> Option<SessionView> {
        let lines = self.lines.borrow();
        let line = lines.get(id as usize & ((1 << PLACE_BITS) - 1)).filter(|line| line.view.id == id)?;
        Some(SessionView { age: now.saturating_duration_since(line.began), ..line.view.clone() })
    }

    /// How many sessions were begun so far.
    pub fn begun(&self) -> u32 {
        self.begun.get()
    }

    /// Notes what has become of the session at that place, if it is written down.
    pub fn note(&self, place: Option<usize>, change: impl FnOnce(&mut SessionView)) {
        let mut lines = self.lines.borrow_mut();
        if let Some(line) = place.and_then(|place| lines.get_mut(place)) {
            change(&mut line.view);
        }
    }

    /// Ends the session of that number; whether there is one.
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
