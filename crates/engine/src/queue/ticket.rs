//! What the one who asked holds while the queue works.

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
    /// The ticket was dropped: nobody waits.
    pub gone: Cell<bool>,
}

/// The claim to one answer. Dropping it abandons the operation, which harms nobody.
pub struct Ticket(pub(super) Rc<Slot>);

impl Ticket {
    /// The claim to what is there already.
    pub(super) fn answered(answer: Answer) -> Ticket {
        Ticket(Rc::new(Slot { answer: RefCell::new(Some(Ok(answer))), ..Slot::default() }))
    }

    /// Whether the answer is there; if not, the task is woken when it is.
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

    /// The answer, once.
    ///
    /// # Errors
    /// The operation's own failure, or [`Failure::Cancelled`] if it is not answered yet or was taken before.
    pub fn take(&self) -> Result<Answer, Failure> {
        self.0.answer.borrow_mut().take().unwrap_or(Err(Failure::Cancelled))
    }

    /// A second hold on the same claim, to wait by while another holder takes the answer.
    pub fn watch(&self) -> Watch {
        Watch(self.0.clone())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.gone.set(true);
    }
}

/// Sees when a ticket is answered, without owning its answer.
#[derive(Clone)]
pub struct Watch(Rc<Slot>);

impl Watch {
    /// Whether the answer is there (or was taken); if not, the task is woken when it is.
    pub fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.0.gone.get() || self.0.answer.borrow().is_some() {
            return Poll::Ready(());
        }
        *self.0.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }
}
