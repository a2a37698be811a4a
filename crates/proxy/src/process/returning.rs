//! Room for the way back: connections to the `bind` lines of services. They take no place of the process's `maxconn`, which clients could
//! use up, so that what is at a device could not return. Those that have brought nothing back yet are bounded by what is at devices.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::SeqCst},
};

/// So many connections more may have brought nothing back: some devices connect before they have something to send on.
const AHEAD: u32 = 32;

/// What returns to one service.
#[derive(Debug, Default)]
pub(crate) struct Returning {
    /// How much is at devices and has not come back.
    awaited: AtomicU32,
    /// How many connections have brought nothing back so far.
    unknown: AtomicU32,
}

impl Returning {
    /// Whether one more connection would be let in.
    pub fn has_place(&self) -> bool {
        self.unknown.load(SeqCst) < self.awaited.load(SeqCst).saturating_add(AHEAD)
    }
    /// Counts one more connection, unless that exceeds the bound; whether it did.
    pub fn enter(&self) -> bool {
        let most = self.awaited.load(SeqCst).saturating_add(AHEAD);
        self.unknown.fetch_update(SeqCst, SeqCst, |now| (now < most).then_some(now + 1)).is_ok()
    }
    /// Stops counting a connection.
    pub fn leave(&self) {
        self.unknown.fetch_sub(1, SeqCst);
    }
    /// Makes room for one more, until what this returns is dropped.
    pub fn expect(self: &Arc<Self>) -> Awaited {
        self.awaited.fetch_add(1, SeqCst);
        Awaited(self.clone())
    }
}

/// Something that is at a device.
#[derive(Debug)]
pub(crate) struct Awaited(Arc<Returning>);

impl Drop for Awaited {
    fn drop(&mut self) {
        self.0.awaited.fetch_sub(1, SeqCst);
    }
}

/// A connection that has brought nothing back so far.
#[derive(Debug)]
pub(crate) struct Unknown(pub Arc<Returning>);

impl Drop for Unknown {
    fn drop(&mut self) {
        self.0.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_at_a_device_finds_room_for_its_return() {
        let returning = Arc::new(Returning::default());
        let ahead: Vec<Unknown> =
            std::iter::from_fn(|| returning.enter().then(|| Unknown(returning.clone()))).collect();
        assert_eq!(ahead.len(), AHEAD as usize);
        assert!(!returning.has_place());
        let awaited = returning.expect();
        assert!(returning.has_place() && returning.enter(), "its own connection");
        assert!(!returning.has_place() && !returning.enter(), "and no other");
        drop(awaited);
        returning.leave();
        assert!(!returning.has_place());
        drop(ahead);
        assert!(returning.has_place());
    }
}
