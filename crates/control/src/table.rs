//! Tables of commands: an entry each, and how the words of a client lead to one.

use crate::{Args, Level, Refusal};

/// A command.
pub struct Entry<C> {
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
    pub parse: fn(&mut Args) -> Result<C, Refusal>,
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

impl<C> Entry<C> {
    /// One that everybody may give and that changes nothing.
    pub const fn new(
        words: &'static str,
        usage: &'static str,
        help: &'static str,
        parse: fn(&mut Args) -> Result<C, Refusal>,
    ) -> Entry<C> {
        let (level, mode, changes, told) = (Level::User, Mode::Always, None, usize::MAX);
        Entry { words, usage, help, level, mode, changes, told, parse }
    }

    /// For this level and those above it.
    pub const fn level(self, level: Level) -> Entry<C> {
        Entry { level, ..self }
    }

    /// Only after `expert-mode on` or `experimental-mode on`.
    pub const fn mode(self, mode: Mode) -> Entry<C> {
        Entry { mode, ..self }
    }

    /// It changes something: `what` is told by the audit log.
    pub const fn changes(self, what: &'static str) -> Entry<C> {
        Entry { changes: Some(what), ..self }
    }

    /// What follows this many of its arguments is secret.
    pub const fn tells(self, arguments: usize) -> Entry<C> {
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
pub struct Table<C: 'static> {
    groups: &'static [&'static [Entry<C>]],
}

/// Where the words of a client lead.
pub enum Found<C: 'static> {
    /// To a command and its arguments.
    Entry(&'static Entry<C>, Args),
    /// Nowhere.
    Nothing,
}

impl<C> Clone for Table<C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Table<C> {}

impl<C> Table<C> {
    /// Of groups of commands.
    pub const fn new(groups: &'static [&'static [Entry<C>]]) -> Table<C> {
        Table { groups }
    }

    /// Every command.
    pub fn entries(&self) -> impl Iterator<Item = &'static Entry<C>> + use<C> {
        self.groups.iter().copied().flatten()
    }

    /// The command that these words name: of several, that with the most words.
    pub fn find(&self, mut words: Vec<String>, payload: Option<Vec<u8>>, mode: impl Fn(Mode) -> bool) -> Found<C> {
        let named = self.entries().filter(|entry| entry.matches(&words) && mode(entry.mode));
        match named.max_by_key(|entry| entry.length()) {
            Some(entry) => Found::Entry(entry, Args::new(words.split_off(entry.length()), payload)),
            None => Found::Nothing,
        }
    }
}
