//! Tickets: what the submitter of an operation holds while the queue works.

use crate::{Answer, Failure};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    task::{Context, Poll, Waker},
};

#[derive(Default)]
pub(super) struct Slot {
    pub answer: RefCell<Option<Result<Answer, Failure>>>,
    pub waker: RefCell<Option<Waker>>,
    /// The ticket was dropped: the answer is no longer wanted.
    pub gone: Cell<bool>,
}

/// The claim to one answer. Dropping it abandons the operation.
pub struct Ticket(pub(super) Rc<Slot>);

impl Ticket {
    /// A ticket that is already answered.
    pub(super) fn answered(answer: Answer) -> Ticket {
        Ticket(Rc::new(Slot { answer: RefCell::new(Some(Ok(answer))), ..Slot::default() }))
    }

    /// Ready once the answer is there; otherwise registers the task to be woken.
    pub fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.0.answer.borrow().is_some() {
            return Poll::Ready(());
        }
        *self.0.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Whether the answer is there.
    pub fn is_ready(&self) -> bool {
        self.0.answer.borrow().is_some()
    }

    /// Takes the answer, once.
    ///
    /// # Errors
    /// The operation's own failure; [`Failure::Cancelled`] if there is no answer yet or it was taken before.
    pub fn take(&self) -> Result<Answer, Failure> {
        self.0.answer.borrow_mut().take().unwrap_or(Err(Failure::Cancelled))
    }

    /// A handle that can wait for the answer while this ticket takes it.
    pub fn watch(&self) -> Watch {
        Watch(self.0.clone())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.gone.set(true);
    }
}

/// Waits for a ticket's answer without owning it.
#[derive(Clone)]
pub struct Watch(Rc<Slot>);

impl Watch {
    /// Ready once the answer is there or was taken; otherwise registers the task to be woken.
    pub fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.0.gone.get() || self.0.answer.borrow().is_some() {
            return Poll::Ready(());
        }
        *self.0.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }
}
