//! The commands by what they are about: each file has the entries of one subject, and the type that their words become.

mod certificates;
mod frontends;
mod membership;
mod patterns;
mod process;
mod servers;
mod session;
mod statistics;
mod tables;

pub use certificates::{Certificates, TlsFile, Verb};
pub use frontends::{FrontendChange, Frontends, Rate};
pub use membership::Membership;
pub use patterns::{PatternAction, PatternKey, PatternKind, Patterns, PatternsOf};
pub use process::Process;
pub use servers::{Change, Health, Servers, address_of, weight_of};
pub use session::Own;
pub use statistics::{Format, InfoFormat, Rows, Statistics};
pub use tables::Tables;

pub(crate) use session::SESSION;

use crate::table::Entry;

/// The entries of a worker's stats sockets.
pub(crate) const GROUPS: &[&[Entry]] = &[
    certificates::ENTRIES,
    membership::ENTRIES,
    statistics::ENTRIES,
    servers::ENTRIES,
    frontends::ENTRIES,
    process::ENTRIES,
    patterns::ENTRIES,
    tables::ENTRIES,
    session::ENTRIES,
];

/// What a client wants, its words understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Certificates and all else of TLS.
    Certificates(Certificates),
    /// Servers added and removed.
    Membership(Membership),
    /// Something about its session, which does it itself.
    Own(Own),
    /// Something about the process as a whole.
    Process(Process),
    /// Something about frontends or limits.
    Frontends(Frontends),
    /// Something about servers.
    Servers(Servers),
    /// Counters.
    Statistics(Statistics),
    /// Maps and ACLs.
    Patterns(Patterns),
    /// Stick tables.
    Tables(Tables),
}
