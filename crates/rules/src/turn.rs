//! The budget of the current turn of a task, which requests, reads, writes, frames and rules all spend.
//!
//! A turn is one poll of a task by its worker. The code that polls tasks begins and ends turns; the code that works
//! spends; and code that is about to do more work checks whether anything is left, and if not waits behind the other
//! tasks. Outside a turn the budget is unlimited: tests, and threads that are not workers, spend nothing.
//!
//! The budget is a thread-local, since a task's turn runs on one thread, and so need not be passed through every
//! function between a socket and the converter of a sample.

use std::cell::Cell;

/// Costs, in units of about a tenth of a microsecond on a server of 2020. What matters is that none is far too low.
pub mod cost {
    /// How many nanoseconds a unit stands for.
    pub const NS: u128 = 100;
    /// A client's request: its head, its counters, its log line. Its fields are extra ([`FIELD`]).
    pub const REQUEST: u32 = 40;
    /// A stream that a client opens. Its exchange is a task with turns of its own, but is caused by the client.
    pub const STREAM: u32 = 100;
    /// A head that is forwarded on its own, such as an interim response (1xx): parsed, changed, encoded.
    pub const HEAD: u32 = 30;
    /// A field of a request, or in an HTTP/2 header block, however few bytes encode it.
    pub const FIELD: u32 = 1;
    /// A field that an HTTP/2 header block spells out: it is decoded twice, and may enter two tables (measured: 0.35 µs).
    pub const LITERAL: u32 = 4;
    /// A rule whose condition is evaluated.
    pub const RULE: u32 = 2;
    /// A system call that reads or writes.
    pub const CALL: u32 = 20;
    /// Each kibibyte that is read or written, copied, and possibly encrypted.
    pub const KIB: u32 = 4;
    /// An HTTP/2 frame.
    pub const FRAME: u32 = 5;
    /// A converter, and each [`CONVERTER_BYTES`] of what it converts.
    pub const CONVERTER: u32 = 1;
    /// A digest, the slowest of those that see each byte once, takes 1.5 ns for one.
    pub const CONVERTER_BYTES: usize = 64;
    /// How many parts of a list (cookies, parameters, a field's elements) one unit pays for when they are looked at.
    pub const PARTS: usize = 3;
    /// How many bytes of a list one unit pays for when its parts are counted.
    pub const COUNTED_BYTES: usize = 64;
    /// How many bytes of JSON one unit pays for when it is read.
    pub const JSON_BYTES: usize = 16;
    /// A regular expression that is tried, and each [`REGEX_BYTES`] of the text it is tried on.
    pub const REGEX: u32 = 1;
    /// See [`REGEX`].
    pub const REGEX_BYTES: usize = 64;
    /// How many bytes one unit pays for where all matches in a long text are found (measured: 12 ns a byte).
    pub const REGEX_LONG_BYTES: usize = 8;
    /// How many bytes times states one unit pays for, if an automaton is too large to be made deterministic.
    pub const REGEX_STATES: usize = 8;
    /// How many words one unit pays for where all states are gone through at a time.
    pub const REGEX_WORDS: usize = 100;
}

const ENDLESS: i64 = i64::MAX;

thread_local! {
    static LEFT: Cell<i64> = const { Cell::new(ENDLESS) };
}

/// Begins a turn with a budget of `units`.
pub fn begin(units: u32) {
    LEFT.set(i64::from(units));
}

/// Ends the turn; returns whether its budget was used up.
pub fn end() -> bool {
    LEFT.replace(ENDLESS) <= 0
}

/// How much has been spent of a turn that began with `units`.
pub fn spent_of(units: u32) -> u32 {
    u32::try_from(i64::from(units) - LEFT.get()).unwrap_or(0)
}

/// Spends some of the budget. Work that was begun is completed: a turn may overdraw its budget, which is then
/// forgotten.
pub fn spend(units: u32) {
    let left = LEFT.get();
    if left != ENDLESS {
        LEFT.set(left - i64::from(units));
    }
}

/// Spends what it costs to go through `length` bytes if one unit pays for `each`.
pub fn spend_on_bytes(length: usize, each: usize) {
    spend(u32::try_from(length / each).unwrap_or(u32::MAX));
}

/// Whether nothing is left, so that further work has to wait for the next turn.
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
