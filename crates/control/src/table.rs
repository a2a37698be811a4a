//! Tables of commands, and looking up a client's words in them.

use crate::{Args, Level, Refusal};

/// What is known of a command before it is parsed.
pub struct About {
    /// The words that name the command.
    pub words: &'static str,
    /// The command's syntax, as `help` shows it. Empty if `help` does not show it.
    pub usage: &'static str,
    /// One line of description.
    pub help: &'static str,
    /// The level that the command requires.
    pub level: Level,
    /// The mode that the session must be in.
    pub mode: Mode,
    /// What the command changes, for the audit log; `None` if nothing.
    pub changes: Option<&'static str>,
    /// How many of the command's arguments may be logged; those after them are secrets.
    pub told: usize,
    /// The argument after which everything is secret.
    pub secret_after: Option<&'static str>,
}

/// A command of a subject, whose commands are `S`.
pub struct Entry<S> {
    /// What is known of the command.
    pub about: About,
    /// Parses what follows the words.
    ///
    /// # Errors
    /// If the words are not what the command takes: the sentence for the client.
    parse: fn(&mut Args) -> Result<S, Refusal>,
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

impl<S> Entry<S> {
    /// A command that every client may use and that changes nothing.
    pub const fn new(
        words: &'static str,
        usage: &'static str,
        help: &'static str,
        parse: fn(&mut Args) -> Result<S, Refusal>,
    ) -> Entry<S> {
        let (level, mode, changes) = (Level::User, Mode::Always, None);
        let (told, secret_after) = (usize::MAX, None);
        Entry { about: About { words, usage, help, level, mode, changes, told, secret_after }, parse }
    }

    /// Requires this level or a higher one.
    pub const fn level(self, level: Level) -> Entry<S> {
        Entry { about: About { level, ..self.about }, ..self }
    }

    /// Requires `expert-mode on` or `experimental-mode on`.
    pub const fn mode(self, mode: Mode) -> Entry<S> {
        Entry { about: About { mode, ..self.about }, ..self }
    }

    /// Changes something, which `what` describes for the audit log.
    pub const fn changes(self, what: &'static str) -> Entry<S> {
        Entry { about: About { changes: Some(what), ..self.about }, ..self }
    }

    /// Makes everything after this many arguments secret.
    pub const fn tells(self, arguments: usize) -> Entry<S> {
        Entry { about: About { told: arguments, ..self.about }, ..self }
    }

    /// Makes everything after this argument secret.
    pub const fn secret_after(self, word: &'static str) -> Entry<S> {
        Entry { about: About { secret_after: Some(word), ..self.about }, ..self }
    }
}

impl About {
    /// The number of words that name it.
    pub fn length(&self) -> usize {
        self.words.split(' ').count()
    }

    /// The words of a command, without those that must not be logged.
    pub fn told(&self, words: &[String]) -> String {
        let secret = words.iter().position(|word| Some(word.as_str()) == self.secret_after);
        let open = self.length().saturating_add(self.told);
        let open = secret.map_or(open, |at| open.min(at + 1)).min(words.len());
        let mut told = words[..open].join(" ");
        if words.len() > open {
            told.push_str(" ***");
        }
        told
    }

    /// Whether `words` starts with those that name it.
    fn matches(&self, words: &[String]) -> bool {
        self.length() <= words.len() && self.words.split(' ').zip(words).all(|(own, given)| own == given)
    }
}

/// The commands of one subject, in a table whose commands are `C`.
pub trait Group<C>: Sync {
    /// The command at this place.
    fn about(&self, place: usize) -> Option<&'static About>;
    /// Parses the arguments of the command at this place.
    fn parse(&self, place: usize, args: &mut Args) -> Result<C, Refusal>;
}

impl<S, C: From<S>> Group<C> for &'static [Entry<S>] {
    fn about(&self, place: usize) -> Option<&'static About> {
        Some(&self.get(place)?.about)
    }
    fn parse(&self, place: usize, args: &mut Args) -> Result<C, Refusal> {
        (self[place].parse)(args).map(C::from)
    }
}

/// The commands that a kind of socket answers.
pub struct Table<C: 'static> {
    groups: &'static [&'static dyn Group<C>],
}

/// A command of a table.
pub struct Named<C: 'static> {
    /// What is known of the command.
    pub about: &'static About,
    group: &'static dyn Group<C>,
    place: usize,
}

impl<C> Named<C> {
    /// Parses what follows the words.
    pub fn parse(&self, args: &mut Args) -> Result<C, Refusal> {
        self.group.parse(self.place, args)
    }
}

/// The result of looking up a client's words.
pub enum Found<C: 'static> {
    /// A command and its arguments.
    Entry(Named<C>, Args),
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
    pub const fn new(groups: &'static [&'static dyn Group<C>]) -> Table<C> {
        Table { groups }
    }

    /// Every command.
    pub fn entries(&self) -> impl Iterator<Item = &'static About> + use<C> {
        self.commands().map(|command| command.about)
    }

    fn commands(&self) -> impl Iterator<Item = Named<C>> + use<C> {
        self.groups.iter().flat_map(|&group| {
            (0..).map_while(move |place| group.about(place).map(|about| Named { about, group, place }))
        })
    }

    /// The command that these words name; if there are several, the one with the most words.
    pub fn find(&self, mut words: Vec<String>, payload: Option<Vec<u8>>, mode: impl Fn(Mode) -> bool) -> Found<C> {
        let named = self.commands().filter(|command| command.about.matches(&words) && mode(command.about.mode));
        match named.max_by_key(|command| command.about.length()) {
            Some(command) => {
                let args = Args::new(words.split_off(command.about.length()), payload);
                Found::Entry(command, args)
            }
            None => Found::Nothing,
        }
    }
}
