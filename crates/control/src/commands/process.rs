//! Commands about the process as a whole.

use crate::{Level, table::Entry};

/// A command about the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Process {
    /// Shows its version.
    Version {
        /// Whether the answer is JSON.
        json: bool,
    },
    /// Shows its environment, or one variable.
    Environment {
        /// The variable's name.
        name: Option<String>,
        /// Whether the answer is JSON.
        json: bool,
    },
    /// Shows the sockets that answer commands.
    Sockets {
        /// Whether the answer is JSON.
        json: bool,
    },
    /// Passes the listening sockets to the next process.
    GiveListeners,
}

pub(crate) const ENTRIES: &[Entry<Process>] = &[
    Entry::new("_getsocks", "", "give the listening sockets to another process", |_| Ok(Process::GiveListeners)),
    Entry::new("show cli sockets", "show cli sockets [json]", "dump list of cli sockets", |args| {
        Ok(Process::Sockets { json: args.take("json") })
    }),
    Entry::new("show env", "show env [var]", "dump environment variables known to the process", |args| {
        let json = args.take_anywhere("json");
        Ok(Process::Environment { name: args.word(), json })
    })
    .level(Level::Operator),
    Entry::new("show version", "show version", "show version of the current process", |args| {
        Ok(Process::Version { json: args.take("json") })
    }),
];
