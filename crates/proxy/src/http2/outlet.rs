//! What the streams of one connection have handed to h2 and its peer has not taken yet: bounded for all of them together.
//!
//! h2 bounds what it keeps of a stream's DATA, and nothing of its heads. A peer that opens a hundred streams and reads none of
//! them would have us keep a hundred times that; one whose server sends interim responses (1xx) without end, anything.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    task::{Context, Poll, Waker},
};

/// So many bytes are under way at once: the streams wait beyond that. A turn of the connection writes as much, which is
/// sixteen of the usual frames.
const UNDER_WAY_MAX: usize = 256 * 1024;

/// What a head costs in memory besides its text while it waits: a map, a frame, a place in a queue.
const HEAD_COST: usize = 512;

/// The bytes under way, and the streams that wait for fewer.
#[derive(Debug, Default)]
pub(crate) struct Outlet {
    under_way: Cell<usize>,
    /// The peer's socket took no more at the last write.
    blocked: Cell<bool>,
    waiting: RefCell<VecDeque<Waker>>,
}

impl Outlet {
    /// Ready when another stream may hand something over.
    pub fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        if self.under_way.get() < UNDER_WAY_MAX {
            return Poll::Ready(());
        }
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push_back(cx.waker().clone());
        }
        Poll::Pending
    }
    /// DATA has been handed over.
    pub fn data(&self, bytes: usize) {
        self.under_way.set(self.under_way.get().saturating_add(bytes));
    }
    /// A head has been handed over that does not end its stream's turn.
    pub fn head(&self, bytes: usize) {
        self.data(bytes + HEAD_COST);
    }
    /// The socket has taken so many bytes. Frame headers are among them, so that this is never late.
    pub fn wrote(&self, bytes: usize) {
        self.blocked.set(false);
        self.under_way.set(self.under_way.get().saturating_sub(bytes));
    }
    /// The socket takes nothing more for now.
    pub fn blocked(&self) {
        self.blocked.set(true);
    }
    /// h2 has had its turn: unless the socket stopped it, everything is written that was handed over. Streams that
    /// wait for room are told to go on.
    pub fn turn_over(&self) {
        if !self.blocked.get() {
            self.under_way.set(0);
        }
        if self.under_way.get() < UNDER_WAY_MAX / 2 {
            for waker in self.waiting.take() {
                waker.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_wait_while_the_peer_takes_nothing_and_go_on_once_it_does() {
        let cx = Context::from_waker(Waker::noop());
        let outlet = Outlet::default();
        let mut streams = 0;
        while outlet.poll_room(&cx).is_ready() {
            outlet.data(16384);
            streams += 1;
        }
        assert_eq!(streams, 16);
        outlet.wrote(16384);
        outlet.blocked();
        outlet.turn_over();
        assert!(outlet.poll_room(&cx).is_ready());
        outlet.data(16384);
        assert!(outlet.poll_room(&cx).is_pending());
        outlet.wrote(3 * 65536);
        outlet.turn_over();
        assert!(outlet.poll_room(&cx).is_ready() && outlet.waiting.borrow().is_empty());
    }

    #[test]
    fn heads_count_for_what_they_cost() {
        let cx = Context::from_waker(Waker::noop());
        let outlet = Outlet::default();
        outlet.blocked();
        let heads = (0..).take_while(|_| outlet.poll_room(&cx).is_ready().then(|| outlet.head(20)).is_some()).count();
        assert_eq!(heads, UNDER_WAY_MAX.div_ceil(20 + HEAD_COST));
    }
}
