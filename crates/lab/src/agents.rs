//! One load from several machines: an agent on each makes its share, and the controller starts them in step and merges
//! what they counted.
//!
//! In the order of a test: `address` (where an agent is), `channel` (bytes to it), `protocol` (what is said), `agent` (its
//! side), `control` (the other), `merge`. `certificates` makes what mutual TLS between them needs.

mod address;
mod agent;
mod certificates;
mod channel;
mod control;
mod merge;
mod protocol;

pub use address::Address;
pub use agent::{Agent, serve};
pub use certificates::write as write_certificates;
pub use channel::Identity;
pub use control::run;

use std::fmt;

/// Why agents could not be used at all; what happens to them during a test is in its report.
#[derive(Debug)]
pub enum Error {
    /// An address or a file that cannot be used.
    Setup(String),
    /// One agent cannot be used: its name, and the reason as a sentence.
    Agent(String, String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Setup(why) => f.write_str(why),
            Error::Agent(name, why) => write!(f, "agent {name}: {why}"),
        }
    }
}

impl std::error::Error for Error {}
