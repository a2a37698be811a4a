//! What a fetch gives: a sample, or why there is none.

use crate::value::Value;

/// Why there is no sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// There is none, and more bytes will not change that.
    Absent,
    /// More bytes may produce one.
    NotYet,
}

/// A sample, or why there is none.
pub type Fetched<'c> = Result<Value<'c>, Missing>;

/// The position of an evaluation that goes through all values of a field.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    /// Whether all values are wanted one after another, rather than only the last.
    pub iterating: bool,
    /// How many values have been returned.
    pub given: usize,
    /// The position at which the next value may start; its meaning depends on the fetch.
    pub position: usize,
    /// Whether there may be another value.
    pub more: bool,
}
