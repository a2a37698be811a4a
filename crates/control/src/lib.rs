//! The runtime API without its sockets: the table of commands, and the conversation with one client.
//!
//! [`TABLE`] has an entry for each command of a worker's stats socket; parser, `help`, documentation and completion
//! come from it. A [`Session`] takes the bytes of a client and returns [`Request`]s; it takes answers and returns
//! bytes. It has no socket and no clock: the caller drives it.

#![forbid(unsafe_code)]

mod args;
mod commands;
mod help;
mod line;
mod manual;
mod payload;
mod session;
mod table;
mod words;

pub use args::{Args, Refusal};
pub use commands::*;
pub use manual::page;
pub use session::{Prompt, Request, Session, Settings, Step};
pub use table::Mode;
pub use words::{Level, Severity, SeverityOutput};
