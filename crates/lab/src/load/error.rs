//! What keeps a load from being carried out at all.

use std::fmt;

/// A reason, with what a person can do about it.
#[derive(Debug)]
pub enum Error {
    /// The plan contradicts itself or asks for what does not exist.
    Plan(String),
    /// The first connection, which every run makes before it begins, failed.
    Unreachable {
        /// The URL.
        target: String,
        /// A sentence.
        why: String,
    },
    /// This machine does not give what the plan needs.
    Local(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Plan(why) | Error::Local(why) => f.write_str(why),
            Error::Unreachable { target, why } => write!(f, "{target}: {why}"),
        }
    }
}

impl std::error::Error for Error {}
