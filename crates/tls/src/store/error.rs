//! Why a command on the store changed nothing.

use std::fmt;

/// A refused command. Its text is HAProxy's where HAProxy has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError {
    /// What kind of refusal, for callers that act on it.
    pub refusal: Refusal,
    text: String,
}

/// What kind of refusal it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing has this name.
    Unknown,
    /// Something has this name already.
    Taken,
    /// It is used, so it cannot be deleted.
    InUse,
    /// A transaction is under way that is about something else.
    OtherTransaction,
    /// No transaction is under way.
    NoTransaction,
    /// What was given cannot be read.
    BadInput,
    /// A certificate or a key is missing.
    Incomplete,
    /// The key is another certificate's.
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
