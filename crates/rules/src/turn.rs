//! What the present turn of a task may still cost: one budget, which requests, reads, writes, frames and rules all spend.
//!
//! A turn is one poll of a task by its worker. Whoever polls tasks begins and ends turns; whoever works in one spends; and
//! whoever is about to do more work looks whether anything is left, and if not goes to the end of the line. Outside of a
//! turn there is no end to it: tests, and threads that are no workers, spend nothing.
//!
//! It is kept by thread, as a task's turn is on one thread, and so does not have to be handed through every function
//! between a socket and the converter of a sample.

use std::cell::Cell;

/// Costs, in units of about a tenth of a microsecond on a server of 2020: what matters is that none is far too low.
pub mod cost {
    /// A request of a client: its head, its counters, its log line.
    pub const REQUEST: u32 = 40;
    /// A stream that a client opens: its exchange is a task with turns of its own, and still the client's doing.
    pub const STREAM: u32 = 100;
    /// A head that is forwarded by itself, as interim responses (1xx) are: read, changed, encoded.
    pub const HEAD: u32 = 30;
    /// A field of a header block of HTTP/2, however few bytes name it.
    pub const FIELD: u32 = 1;
    /// A rule whose condition is looked at.
    pub const RULE: u32 = 2;
    /// A system call that reads or writes.
    pub const CALL: u32 = 20;
    /// Each kibibyte that is read or written, and copied, and perhaps encrypted.
    pub const KIB: u32 = 4;
    /// A frame of HTTP/2.
    pub const FRAME: u32 = 5;
    /// A regular expression that is tried, and each [`REGEX_BYTES`] of what it is tried on.
    pub const REGEX: u32 = 1;
    /// See [`REGEX`].
    pub const REGEX_BYTES: usize = 256;
    /// As many bytes times states as a unit pays for where an automaton is too large to be made deterministic.
    pub const REGEX_STATES: usize = 8;
}

const ENDLESS: i64 = i64::MAX;

thread_local! {
    static LEFT: Cell<i64> = const { Cell::new(ENDLESS) };
}

/// Begins a turn that may cost so many units.
pub fn begin(units: u32) {
    LEFT.set(i64::from(units));
}

/// Ends the turn; whether all it might cost was spent.
pub fn end() -> bool {
    LEFT.replace(ENDLESS) <= 0
}

/// What has been spent of a turn that began with so many units.
pub fn spent_of(units: u32) -> u32 {
    u32::try_from(i64::from(units) - LEFT.get()).unwrap_or(0)
}

/// Spends some of the turn. What is begun is done: a turn may end with a debt, which is forgotten.
pub fn spend(units: u32) {
    let left = LEFT.get();
    if left != ENDLESS {
        LEFT.set(left - i64::from(units));
    }
}

/// Whether nothing is left: what has not been begun waits for the next turn.
pub fn is_spent() -> bool {
    LEFT.get() <= 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_ends_when_its_units_are_spent_and_outside_of_turns_nothing_is() {
        spend(u32::MAX);
        assert!(!is_spent());
        begin(10);
        spend(9);
        assert!(!is_spent());
        spend(5);
        assert!(is_spent() && end());
        assert!(!is_spent() && !end());
    }
}
