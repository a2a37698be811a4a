//! The tasks of a worker: every poll of one is a turn.

use super::{
    pulse::{Stage, Who},
    state::Worker,
    turn::{self, ClientTime, Place},
};
use penstock_rules::turn::{self as budget, cost};
use pin_project_lite::pin_project;
use std::{
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Instant,
};
use tokio::task::JoinHandle;

/// Starts a task of this worker.
pub(crate) fn spawn<F>(worker: &Rc<Worker>, who: Who, task: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    tokio::task::spawn_local(turns(worker, who, task))
}

/// Starts a task whose turns are charged to a share.
pub(crate) fn spawn_sharing<F>(worker: &Rc<Worker>, who: Who, share: Rc<ClientTime>, task: F)
where
    F: Future<Output = ()> + 'static,
{
    let mut turns = turns(worker, who, task);
    *turns.0.as_mut().project().share = Some(share);
    tokio::task::spawn_local(turns);
}

/// Wraps a future so that each poll is a turn.
pub(crate) fn turns<F: Future>(worker: &Rc<Worker>, who: Who, task: F) -> Turns<F> {
    let stage = Stage::Idle as u8;
    let place = Place::default();
    Turns(Box::pin(Turn { task, worker: worker.clone(), who: who.pack(), share: None, place, stage }))
}

/// A future whose polls are turns: see [`turns`]. All of it is in one box: inside the runtime's own allocation, which is aligned
/// to cache lines, it would cost each connection a hundred bytes more.
pub(crate) struct Turns<F>(Pin<Box<Turn<F>>>);

pin_project! {
    struct Turn<F> {
        #[pin]
        task: F,
        worker: Rc<Worker>,
        who: [u64; 4],
        share: Option<Rc<ClientTime>>,
        place: Place,
        stage: u8,
    }
}

impl<F: Future> Future for Turns<F> {
    type Output = F::Output;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut().0.as_mut().project();
        turn::round();
        let rounds = &this.worker.rounds;
        rounds.looked(turn::looks());
        let mut units = rounds.begin(*this.place);
        if let Some(share) = this.share {
            units = share.left(rounds.look.get(), units);
        }
        if units == 0 {
            rounds.put_behind(this.place);
            turn::go_behind(cx);
            return Poll::Pending;
        }
        // What a step costs is estimated, and for those who use up their turns measured as well.
        let begun = rounds.is_behind(*this.place).then(Instant::now);
        budget::begin(units);
        this.worker.clock.turn_begins();
        this.worker.pulse().begin_turn(this.who, *this.stage);
        let polled = this.task.poll(cx);
        *this.stage = this.worker.pulse().end_turn();
        if let Some(share) = this.share {
            share.spend(budget::spent_of(units));
        }
        let took = begun.map_or(0, |begun| u32::try_from(begun.elapsed().as_nanos() / cost::NS).unwrap_or(u32::MAX));
        let is_spent = budget::end();
        if is_spent {
            this.worker.pulse().turn_spent();
        }
        rounds.end(this.place, took, is_spent);
        polled
    }
}
