//! Why a command on the store was refused.

use std::fmt;

/// A refused command. The text is HAProxy's if HAProxy has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError {
    /// The kind of refusal, for callers that act on it.
    pub refusal: Refusal,
    text: String,
}

/// The kinds of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing has this name.
    Unknown,
    /// The name is taken.
    Taken,
    /// The item is in use, so it cannot be deleted.
    InUse,
    /// The current transaction is about something else.
    OtherTransaction,
    /// There is no transaction.
    NoTransaction,
    /// The input is invalid.
    BadInput,
    /// A certificate or a key is missing.
    Incomplete,
    /// The key belongs to another certificate.
    Mismatch,
    /// A number is wrong or missing.
    BadIndex,
}

impl StoreError {
    pub(super) fn new(refusal: Refusal, text: impl Into<String>) -> StoreError {
        StoreError { refusal, text: text.into() }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for StoreError {}

pub(super) fn other_transaction(ongoing: &str, verb: &str, asked: &str) -> StoreError {
    let text = match verb {
        "abort" => format!(
            "The ongoing transaction is about '{ongoing}' but you are trying to abort a transaction for '{asked}'"
        ),
        _ => format!("The ongoing transaction is about '{ongoing}' but you are trying to set '{asked}'"),
    };
    StoreError::new(Refusal::OtherTransaction, text)
}
