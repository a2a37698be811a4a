//! Lists and ends sessions for an operator. Each request to a worker is an errand with little to do: a list comes in pieces, and
//! the next piece is requested once the previous one has been taken.

use super::handle::Handle;
use crate::worker::{
    control::{Control, Errand},
    roster::{SessionView, worker_of},
};
use std::task::{Context, Poll, ready};
use tokio::sync::oneshot;

/// How many slots of its roster a worker reads in one errand; this takes some 10 µs.
const PLACES: usize = 64;

/// The sessions that existed when the list was made and still exist when their slot is read, worker by worker.
pub struct SessionList {
    handle: Handle,
    worker: usize,
    from: usize,
    /// How many sessions the worker had begun when the list was made; later ones are left out.
    before: Option<u32>,
    asked: Option<oneshot::Receiver<Page>>,
}

/// A worker's answer: sessions, the slot to continue from, and how many sessions it has begun so far.
type Page = (Vec<SessionView>, Option<usize>, u32);

impl SessionList {
    /// The next sessions; `None` at the end.
    pub fn poll_some(&mut self, cx: &mut Context<'_>) -> Poll<Option<Vec<SessionView>>> {
        loop {
            if self.worker >= self.handle.inner.workers.len() {
                return Poll::Ready(None);
            }
            let from = self.from;
            let asked = self.asked.get_or_insert_with(|| {
                self.handle.ask(self.worker, move |worker| {
                    let (views, next) = worker.roster.some(from, PLACES, worker.clock.now());
                    (views, next, worker.roster.begun())
                })
            });
            let answer = ready!(std::pin::Pin::new(asked).poll(cx));
            self.asked = None;
            // A worker that has ended has no sessions.
            let (mut views, next, begun) = answer.unwrap_or_default();
            let before = *self.before.get_or_insert(begun);
            views.retain(|view| before.wrapping_sub(view.serial) as i32 > 0);
            match next {
                Some(next) => self.from = next,
                None => (self.worker, self.from, self.before) = (self.worker + 1, 0, None),
            }
            if !views.is_empty() {
                return Poll::Ready(Some(views));
            }
        }
    }
}

impl Handle {
    /// Lists all sessions.
    pub fn sessions(&self) -> SessionList {
        SessionList { handle: self.clone(), worker: 0, from: 0, before: None, asked: None }
    }

    /// Looks up a session by its id.
    pub fn session(&self, id: u64) -> oneshot::Receiver<Option<SessionView>> {
        self.ask(worker_of(id), move |worker| worker.roster.find(id, worker.clock.now()))
    }

    /// Ends the session with this id. Answers whether it existed.
    pub fn end_session(&self, id: u64) -> oneshot::Receiver<bool> {
        self.ask(worker_of(id), move |worker| worker.roster.end(id))
    }

    /// Runs `question` on that worker and returns its result. It must be quick, since it blocks everything else on that worker.
    fn ask<T: Send + 'static>(
        &self,
        worker: usize,
        question: impl FnOnce(&crate::worker::state::Worker) -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (answer, answered) = oneshot::channel();
        let errand = Errand::new(move |worker| drop(answer.send(question(worker))));
        if let Some(worker) = self.inner.workers.get(worker) {
            // If that worker has ended, the receiver sees a closed channel.
            let _ = worker.send(Control::Errand(errand));
        }
        answered
    }
}
