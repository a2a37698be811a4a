//! Bounds what the streams of one connection have passed to h2 and its peer has not received yet, for all of them
//! together.
//!
//! h2 bounds the DATA it keeps of a stream, but not the heads. A peer that opens a hundred streams and reads none of
//! them would make us keep a hundred times that; with a server that sends interim responses (1xx) without end, any
//! amount.

use crate::process::memory::Loan;
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    io,
    task::{Context, Poll, Waker},
};

/// Most bytes in flight at once; beyond that the streams wait. One turn of the connection writes this much, sixteen
/// frames of the usual size.
const UNDER_WAY_MAX: usize = 256 * 1024;

/// Memory that a waiting head takes besides its text: a map, a frame, a place in a queue.
const HEAD_COST: usize = 512;

/// The bytes in flight, and the streams that wait for room.
#[derive(Debug, Default)]
pub(crate) struct Outlet {
    under_way: Cell<usize>,
    /// Whether the peer's socket was full at the last write.
    blocked: Cell<bool>,
    /// The memory of the DATA among it.
    pub loan: Loan,
    waiting: RefCell<VecDeque<Waker>>,
    /// Whether the connection has ended.
    closed: Cell<bool>,
}

impl Outlet {
    /// Ready when another stream may pass something on.
    ///
    /// # Errors
    /// The connection has ended; h2 would still take what is passed on.
    pub fn poll_room(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        if self.closed.get() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if self.under_way.get() < UNDER_WAY_MAX {
            return Poll::Ready(Ok(()));
        }
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push_back(cx.waker().clone());
        }
        Poll::Pending
    }
    /// Records that DATA has been passed on.
    pub fn data(&self, bytes: usize) {
        self.under_way.set(self.under_way.get().saturating_add(bytes));
    }
    /// Records that a head has been passed on that does not end its stream's turn.
    pub fn head(&self, bytes: usize) {
        self.data(bytes + HEAD_COST);
    }
    /// Records that the socket has taken bytes. They include frame headers, so that room is never reported too late.
    pub fn wrote(&self, bytes: usize) {
        self.blocked.set(false);
        self.under_way.set(self.under_way.get().saturating_sub(bytes));
        self.loan.give(bytes);
    }
    /// Records that the socket takes no more for now.
    pub fn blocked(&self) {
        self.blocked.set(true);
    }
    /// Records that the connection has ended, and wakes streams that wait for room, so that they notice.
    pub fn close(&self) {
        self.closed.set(true);
        for waker in self.waiting.take() {
            waker.wake();
        }
    }
    /// Called after h2 has run: unless the socket stopped it, everything passed on has been written. Wakes streams that
    /// wait for room.
    pub fn turn_over(&self) {
        if !self.blocked.get() {
            self.under_way.set(0);
            self.loan.give(usize::MAX);
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
    fn streams_of_a_connection_that_has_ended_do_not_wait() {
        let cx = Context::from_waker(Waker::noop());
        let outlet = Outlet::default();
        outlet.data(UNDER_WAY_MAX);
        outlet.blocked();
        assert!(outlet.poll_room(&cx).is_pending());
        outlet.close();
        assert!(matches!(outlet.poll_room(&cx), Poll::Ready(Err(_))) && outlet.waiting.borrow().is_empty());
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
