//! A session's entry in the roster of its worker, for as long as the session lasts.

use super::{roster::SessionView, state::Worker};
use crate::connection::Conn;
use std::{
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    task::Poll,
    time::Duration,
};

/// A session's entry, removed when this is dropped.
pub(crate) struct Present {
    worker: Rc<Worker>,
    place: usize,
}

impl Present {
    /// Records a session of `conn` that begins now.
    pub fn begin(conn: &Conn<'_>) -> Present {
        let worker = conn.worker.clone();
        let facts = &conn.facts;
        let view = SessionView {
            // The roster sets these two.
            id: 0,
            serial: 0,
            worker: worker.id,
            frontend: conn.frontend,
            bind: conn.bind,
            source: facts.source(),
            listener_id: facts.listener_id,
            destination: facts.destination(),
            accepted_unix_us: facts.accepted_unix_us,
            age: Duration::ZERO,
            backend: None,
            server: None,
            attempts: 0,
        };
        let place = worker.roster.begin(view, worker.clock.now());
        Present { worker, place }
    }

    /// The session's slot in the roster, for [`Roster::note`].
    pub fn place(&self) -> usize {
        self.place
    }

    /// The result of `work`, or `None` if an operator ends the session first, in which case `work` is dropped.
    pub async fn unless_ended<T>(&self, mut work: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        poll_fn(|cx| match self.worker.roster.poll_ended(self.place, cx) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => work.as_mut().poll(cx).map(Some),
        })
        .await
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.worker.roster.remove(self.place);
    }
}
