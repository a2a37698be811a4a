//! The commands by subject: each file has the entries of one subject, and the type that their words are parsed to.

mod certificates;
mod frontends;
mod inside;
mod membership;
mod patterns;
mod process;
mod servers;
mod session;
mod sessions;
mod statistics;
mod tables;

pub use certificates::{Certificates, TlsFile, Verb};
pub use frontends::{FrontendChange, Frontends, Rate};
pub use inside::Inside;
pub use membership::Membership;
pub use patterns::{PatternAction, PatternKey, PatternKind, Patterns, PatternsOf};
pub use process::Process;
pub use servers::{Change, Health, Servers, address_of};
pub use session::Own;
pub use sessions::Sessions;
pub use statistics::{Format, InfoFormat, Rows, Statistics};
pub use tables::Tables;

pub(crate) use session::SESSION;

use crate::table::{self, Group};

/// The commands that a kind of socket answers.
pub type Table = table::Table<Command>;
/// The result of looking up a client's words.
pub type Found = table::Found<Command>;

/// The commands of a worker's stats sockets.
pub const TABLE: Table = Table::new(GROUPS);

/// The entries of a worker's stats sockets.
const GROUPS: &[&dyn Group<Command>] = &[
    &certificates::ENTRIES,
    &membership::ENTRIES,
    &statistics::ENTRIES,
    &servers::ENTRIES,
    &sessions::ENTRIES,
    &frontends::ENTRIES,
    &process::ENTRIES,
    &inside::ENTRIES,
    &patterns::ENTRIES,
    &tables::ENTRIES,
    &session::ENTRIES,
];

/// The words of the commands that every session has.
pub fn session_words() -> impl Iterator<Item = &'static str> {
    SESSION.iter().map(|entry| entry.about.words)
}

/// A parsed command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Certificates and the other files of TLS.
    Certificates(Certificates),
    /// Adding and removing servers.
    Membership(Membership),
    /// A command about its session, which the session handles itself.
    Own(Own),
    /// The process as a whole.
    Process(Process),
    /// The inside of the process, or a variable.
    Inside(Inside),
    /// Frontends or limits.
    Frontends(Frontends),
    /// Servers.
    Servers(Servers),
    /// Sessions.
    Sessions(Sessions),
    /// Counters.
    Statistics(Statistics),
    /// Maps and ACLs.
    Patterns(Patterns),
    /// Stick tables.
    Tables(Tables),
}

macro_rules! subjects {
    ($($subject:ident,)*) => {
        $(impl From<$subject> for Command {
            fn from(command: $subject) -> Command {
                Command::$subject(command)
            }
        })*
    };
}

subjects!(Certificates, Frontends, Inside, Membership, Own, Patterns, Process, Servers, Sessions, Statistics, Tables,);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Level, Mode};
    use std::collections::HashSet;

    #[test]
    fn entries_are_well_formed_and_unique() {
        let mut seen = HashSet::new();
        for entry in TABLE.entries() {
            assert!(seen.insert(entry.words), "{} twice", entry.words);
            assert!(entry.usage.is_empty() || entry.usage.starts_with(entry.words), "{}", entry.usage);
            assert!(!entry.help.is_empty() && !entry.help.ends_with('.'), "{}", entry.words);
            assert!(entry.words.split(' ').all(|word| !word.is_empty()), "{}", entry.words);
            assert!(entry.level > Level::User || entry.changes.is_none(), "a user changes something: {}", entry.words);
        }
    }

    #[test]
    fn the_longest_name_wins() {
        let words = |text: &str| text.split(' ').map(String::from).collect();
        let found = |text| match TABLE.find(words(text), None, |mode| mode == Mode::Always) {
            Found::Entry(found, args) => Some((found.about.words, args)),
            Found::Nothing => None,
        };
        assert!(found("show").is_none() && found("Show stat").is_none() && found("show statistics").is_none());
        let (name, mut args) = found("show stat typed up").unwrap();
        assert_eq!((name, args.rest()), ("show stat", vec!["typed".into(), "up".into()]));
    }
}
