//! Log lines and everything else made from a `log-format` string.

mod facts;

pub use facts::LogFacts;
