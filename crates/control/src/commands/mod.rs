//! The commands by what they are about: each file has the entries of one subject, and the type that their words become.

mod process;
mod session;
mod statistics;

pub use process::Process;
pub use session::Own;
pub use statistics::{Format, InfoFormat, Rows, Statistics};

pub(crate) use session::SESSION;

use crate::table::Entry;

/// The entries of a worker's stats sockets.
pub(crate) const GROUPS: &[&[Entry]] = &[statistics::ENTRIES, process::ENTRIES, session::ENTRIES];

/// What a client wants, its words understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Something about its session, which does it itself.
    Own(Own),
    /// Something about the process as a whole.
    Process(Process),
    /// Counters.
    Statistics(Statistics),
}
