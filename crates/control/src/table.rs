//! Tables of commands, and looking up a client's words in them.

use crate::{Args, Level, Refusal};

/// A command.
pub struct Entry<C> {
    /// The words that name it.
    pub words: &'static str,
    /// Its syntax, as `help` shows it. Empty if `help` does not show it.
    pub usage: &'static str,
    /// One line of description.
    pub help: &'static str,
    /// The level it requires.
    pub level: Level,
    /// The mode that the session must be in.
    pub mode: Mode,
    /// What it changes, for the audit log.
    pub changes: Option<&'static str>,
    /// How many of its arguments may be logged; those after them are secrets.
    pub told: usize,
    /// Parses what follows the words.
    pub parse: fn(&mut Args) -> Result<C, Refusal>,
}

/// The mode that a command requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// None.
    Always,
    /// After `expert-mode on`.
    Expert,
    /// After `experimental-mode on`.
    Experimental,
}

impl<C> Entry<C> {
    /// A command that every client may use and that changes nothing.
    pub const fn new(
        words: &'static str,
        usage: &'static str,
        help: &'static str,
        parse: fn(&mut Args) -> Result<C, Refusal>,
    ) -> Entry<C> {
        let (level, mode, changes, told) = (Level::User, Mode::Always, None, usize::MAX);
        Entry { words, usage, help, level, mode, changes, told, parse }
    }

    /// Requires this level or a higher one.
    pub const fn level(self, level: Level) -> Entry<C> {
        Entry { level, ..self }
    }

    /// Requires `expert-mode on` or `experimental-mode on`.
    pub const fn mode(self, mode: Mode) -> Entry<C> {
        Entry { mode, ..self }
    }

    /// Changes something, which `what` describes for the audit log.
    pub const fn changes(self, what: &'static str) -> Entry<C> {
        Entry { changes: Some(what), ..self }
    }

    /// Makes everything after this many arguments secret.
    pub const fn tells(self, arguments: usize) -> Entry<C> {
        Entry { told: arguments, ..self }
    }

    /// The number of words that name it.
    pub fn length(&self) -> usize {
        self.words.split(' ').count()
    }

    /// Whether `words` starts with those that name it.
    fn matches(&self, words: &[String]) -> bool {
        self.length() <= words.len() && self.words.split(' ').zip(words).all(|(own, given)| own == given)
    }
}

/// The commands that a kind of socket answers.
pub struct Table<C: 'static> {
    groups: &'static [&'static [Entry<C>]],
}

/// The result of looking up a client's words.
pub enum Found<C: 'static> {
    /// A command and its arguments.
    Entry(&'static Entry<C>, Args),
    /// There is no such command.
    Nothing,
}

impl<C> Clone for Table<C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Table<C> {}

impl<C> Table<C> {
    /// A table made of groups of commands.
    pub const fn new(groups: &'static [&'static [Entry<C>]]) -> Table<C> {
        Table { groups }
    }

    /// Every command.
    pub fn entries(&self) -> impl Iterator<Item = &'static Entry<C>> + use<C> {
        self.groups.iter().copied().flatten()
    }

    /// The command that these words name; if there are several, the one with the most words.
    pub fn find(&self, mut words: Vec<String>, payload: Option<Vec<u8>>, mode: impl Fn(Mode) -> bool) -> Found<C> {
        let named = self.entries().filter(|entry| entry.matches(&words) && mode(entry.mode));
        match named.max_by_key(|entry| entry.length()) {
            Some(entry) => Found::Entry(entry, Args::new(words.split_off(entry.length()), payload)),
            None => Found::Nothing,
        }
    }
}
