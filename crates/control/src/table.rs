//! The table of commands: an entry each, and how the words of a client lead to one.

use crate::{
    Args, Command, Level,
    commands::{self, Change, Servers},
};

/// A command.
pub struct Entry {
    /// The words it is known by.
    pub words: &'static str,
    /// The words and what may follow them, as `help` shows it. Empty for one that `help` does not show.
    pub usage: &'static str,
    /// One line that says what it does.
    pub help: &'static str,
    /// Who may give it.
    pub level: Level,
    /// Whether the session must have been told that its client knows what it does.
    pub mode: Mode,
    /// What it changes, for the audit log.
    pub changes: Option<&'static str>,
    /// How many of its arguments the audit log may tell; those behind them are secrets.
    pub told: usize,
    /// Reads what follows the words.
    pub parse: Parse,
}

/// How a command reads its arguments.
#[derive(Clone, Copy)]
pub enum Parse {
    /// All of them.
    Whole(fn(&mut Args) -> Result<Command, Refusal>),
    /// What to change of the server that the first one names, which comes first: it is missed before anything else is wrong.
    OfServer(fn(&mut Args) -> Result<Change, Refusal>),
}

/// Whether a command is there for everybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It is.
    Always,
    /// After `expert-mode on`.
    Expert,
    /// After `experimental-mode on`.
    Experimental,
}

/// Why a command is not carried out, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub String);

impl Refusal {
    /// With this sentence.
    pub fn new(sentence: impl Into<String>) -> Refusal {
        Refusal(sentence.into())
    }
}

impl Entry {
    /// One that everybody may give and that changes nothing.
    pub const fn new(
        words: &'static str,
        usage: &'static str,
        help: &'static str,
        parse: fn(&mut Args) -> Result<Command, Refusal>,
    ) -> Entry {
        Entry::parsed(words, usage, help, Parse::Whole(parse))
    }

    /// One that changes the server which its first argument names.
    pub const fn of_server(
        words: &'static str,
        usage: &'static str,
        help: &'static str,
        parse: fn(&mut Args) -> Result<Change, Refusal>,
    ) -> Entry {
        Entry::parsed(words, usage, help, Parse::OfServer(parse))
    }

    const fn parsed(words: &'static str, usage: &'static str, help: &'static str, parse: Parse) -> Entry {
        let (level, mode, changes, told) = (Level::User, Mode::Always, None, usize::MAX);
        Entry { words, usage, help, level, mode, changes, told, parse }
    }

    /// The command that its arguments make of it.
    ///
    /// # Errors
    /// A sentence.
    pub fn command(&self, args: &mut Args) -> Result<Command, Refusal> {
        match self.parse {
            Parse::Whole(parse) => parse(args),
            Parse::OfServer(parse) => {
                let server = args.word().unwrap_or_default();
                Ok(Command::Servers(Servers::Set(server, parse(args))))
            }
        }
    }

    /// For this level and those above it.
    pub const fn level(self, level: Level) -> Entry {
        Entry { level, ..self }
    }

    /// Only after `expert-mode on` or `experimental-mode on`.
    pub const fn mode(self, mode: Mode) -> Entry {
        Entry { mode, ..self }
    }

    /// It changes something: `what` is told by the audit log.
    pub const fn changes(self, what: &'static str) -> Entry {
        Entry { changes: Some(what), ..self }
    }

    /// What follows this many of its arguments is secret.
    pub const fn tells(self, arguments: usize) -> Entry {
        Entry { told: arguments, ..self }
    }

    /// How many words it is known by.
    pub fn length(&self) -> usize {
        self.words.split(' ').count()
    }

    /// Whether these words begin with its own.
    fn matches(&self, words: &[String]) -> bool {
        self.length() <= words.len() && self.words.split(' ').zip(words).all(|(own, given)| own == given)
    }
}

/// The commands that a kind of socket answers.
#[derive(Clone, Copy)]
pub struct Table {
    groups: &'static [&'static [Entry]],
}

/// Where the words of a client lead.
pub enum Found {
    /// To a command and its arguments.
    Entry(&'static Entry, Args),
    /// Nowhere.
    Nothing,
}

/// The commands of a worker's stats sockets.
pub const TABLE: Table = Table::new(commands::GROUPS);

impl Table {
    /// Of groups of commands.
    pub const fn new(groups: &'static [&'static [Entry]]) -> Table {
        Table { groups }
    }

    /// Every command.
    pub fn entries(&self) -> impl Iterator<Item = &'static Entry> + use<> {
        self.groups.iter().copied().flatten()
    }

    /// The command that these words name: of several, that with the most words.
    pub fn find(&self, mut words: Vec<String>, payload: Option<Vec<u8>>, mode: impl Fn(Mode) -> bool) -> Found {
        let named = self.entries().filter(|entry| entry.matches(&words) && mode(entry.mode));
        match named.max_by_key(|entry| entry.length()) {
            Some(entry) => Found::Entry(entry, Args::new(words.split_off(entry.length()), payload)),
            None => Found::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
            Found::Entry(entry, args) => Some((entry.words, args)),
            Found::Nothing => None,
        };
        assert!(found("show").is_none() && found("Show stat").is_none() && found("show statistics").is_none());
        let (name, mut args) = found("show stat typed up").unwrap();
        assert_eq!((name, args.rest()), ("show stat", vec!["typed".into(), "up".into()]));
    }
}
