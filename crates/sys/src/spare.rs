//! Spare descriptors: an operator must be able to look at a process that has no other descriptors left.

use rustix::event::{EventfdFlags, eventfd};
use std::{
    os::fd::OwnedFd,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Descriptors that are given up one by one when the process has no others. They need no file, which might be out of
/// reach after a `chroot`.
#[derive(Debug, Default)]
pub struct Spares {
    kept: Mutex<Vec<OwnedFd>>,
    /// How many there are when all are kept.
    count: usize,
}

impl Spares {
    /// Will keep this many, once [`refill`](Spares::refill) is called.
    pub const fn new(count: usize) -> Spares {
        Spares { kept: Mutex::new(Vec::new()), count }
    }

    /// Gives one up, so that the next call that needs a descriptor gets it; returns whether there was one.
    pub fn spend(&self) -> bool {
        self.kept().pop().is_some()
    }

    /// Replaces those that were given up, as far as the process has descriptors.
    pub fn refill(&self) {
        let mut kept = self.kept();
        while kept.len() < self.count
            && let Ok(spare) = eventfd(0, EventfdFlags::CLOEXEC)
        {
            kept.push(spare);
        }
    }

    fn kept(&self) -> MutexGuard<'_, Vec<OwnedFd>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_are_kept_can_be_given_up_and_they_are_replaced() {
        let spares = Spares::new(2);
        for _ in 0..2 {
            spares.refill();
            assert!(spares.spend() && spares.spend() && !spares.spend());
        }
    }
}
