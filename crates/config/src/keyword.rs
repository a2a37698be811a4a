//! What a keyword table is made of. One entry holds a keyword's name, where it is allowed, how many words it takes, what it means,
//! how far it is supported, and its parser; the reader, the hints and `docs/keywords.md` all use it.

use crate::{
    args::{Args, Parsed},
    span::Word,
};
use std::{collections::HashMap, sync::OnceLock};

/// How far a keyword of HAProxy works here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// The keyword does what HAProxy's manual says.
    Implemented,
    /// The keyword is read and checked, but has no effect; a NOTICE gives this reason.
    Accepted(&'static str),
    /// The keyword is refused: a configuration that has it does not start.
    Refused {
        /// Why the keyword is refused.
        why: &'static str,
        /// What to write instead.
        instead: &'static str,
    },
}

/// The kinds of proxy section in which a keyword may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places(u8);

impl Places {
    /// `defaults`, named or not.
    pub const DEFAULTS: Places = Places(1);
    /// `defaults` with a name only: rules are not inherited from anonymous ones.
    pub const NAMED_DEFAULTS: Places = Places(2);
    /// `frontend`.
    pub const FRONTEND: Places = Places(4);
    /// `listen`.
    pub const LISTEN: Places = Places(8);
    /// `backend`.
    pub const BACKEND: Places = Places(16);
    /// `service`.
    pub const SERVICE: Places = Places(32);

    /// Whether these places include all of `other`.
    pub const fn has(self, other: Places) -> bool {
        self.0 & other.0 == other.0
    }
    /// The places in either set.
    pub const fn or(self, other: Places) -> Places {
        Places(self.0 | other.0)
    }
}

/// `frontend` and `listen`, and the defaults.
pub(crate) const FRONT: Places = Places(1 | 4 | 8);
/// `listen` and `backend`, and the defaults.
pub(crate) const BACK: Places = Places(1 | 8 | 16);
/// All sections.
pub(crate) const ALL: Places = Places(1 | 4 | 8 | 16);
/// All sections but the defaults.
pub(crate) const ANY: Places = Places(4 | 8 | 16);
/// `frontend` and `listen` only.
pub(crate) const FRONT_ONLY: Places = Places(4 | 8);
/// `listen` and `backend` only.
pub(crate) const BACK_ONLY: Places = Places(8 | 16);
/// Sections in which rules may stand: all of them, except `defaults` without a name.
pub(crate) const RULES: Places = Places(2 | 4 | 8 | 16);
/// Sections in which the rules of a frontend may stand: `frontend`, `listen` and named `defaults`.
pub(crate) const FRONT_RULES: Places = Places(2 | 4 | 8);
/// Sections in which the rules of a backend may stand: `listen`, `backend` and named `defaults`.
pub(crate) const BACK_RULES: Places = Places(2 | 8 | 16);

/// How many words follow a keyword.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arity {
    /// The fewest words.
    pub min: u8,
    /// The most words.
    pub max: u8,
}

/// Any number of words.
const MANY: u8 = u8::MAX;

/// No words.
pub(crate) const NONE: Arity = exactly(0);
/// One word.
pub(crate) const ONE: Arity = exactly(1);
/// One or more.
pub(crate) const SOME: Arity = Arity { min: 1, max: MANY };
/// Anything.
pub(crate) const ANYTHING: Arity = Arity { min: 0, max: MANY };

pub(crate) const fn exactly(n: u8) -> Arity {
    Arity { min: n, max: n }
}
pub(crate) const fn between(min: u8, max: u8) -> Arity {
    Arity { min, max }
}
pub(crate) const fn at_least(min: u8) -> Arity {
    Arity { min, max: MANY }
}

/// One keyword that acts on a `T`.
pub(crate) struct Keyword<T: 'static> {
    /// The name as the manual writes it: `option httplog`.
    pub(crate) name: &'static str,
    pub(crate) places: Places,
    pub(crate) arity: Arity,
    pub(crate) support: Support,
    pub(crate) doc: &'static str,
    /// Whether `no KEYWORD` exists.
    pub(crate) negatable: bool,
    /// Whether a value in parentheses follows the name without a space.
    pub(crate) valued: bool,
    /// Whether surplus words, which HAProxy ignores silently, are only a warning.
    pub(crate) spare: bool,
    pub(crate) parse: fn(&mut T, &mut Args<'_>) -> Parsed,
}

impl<T> Keyword<T> {
    /// A keyword that is implemented.
    pub(crate) const fn new(
        name: &'static str,
        arity: Arity,
        doc: &'static str,
        parse: fn(&mut T, &mut Args<'_>) -> Parsed,
    ) -> Self {
        let support = Support::Implemented;
        Keyword { name, places: ALL, arity, support, doc, negatable: false, valued: false, spare: false, parse }
    }
    /// A keyword without effect here, for the reason `why`.
    pub(crate) const fn accepted(name: &'static str, arity: Arity, doc: &'static str, why: &'static str) -> Self {
        let keyword = Self::new(name, arity, doc, |_, _| Ok(()));
        Keyword { support: Support::Accepted(why), ..keyword }
    }
    /// A keyword that prevents the start, for the reason given.
    pub(crate) const fn refused(
        name: &'static str,
        doc: &'static str,
        why: &'static str,
        instead: &'static str,
    ) -> Self {
        let keyword = Self::new(name, ANYTHING, doc, |_, _| Ok(()));
        Keyword { support: Support::Refused { why, instead }, ..keyword }
    }
    /// Sets where the keyword may stand.
    pub(crate) const fn at(self, places: Places) -> Self {
        Keyword { places, ..self }
    }
    /// Declares that `no KEYWORD` exists.
    pub(crate) const fn no(self) -> Self {
        Keyword { negatable: true, ..self }
    }
    /// Declares that a value in parentheses follows the name without a space.
    pub(crate) const fn valued(self) -> Self {
        Keyword { valued: true, ..self }
    }
    /// Makes surplus words only a warning.
    pub(crate) const fn spare(self) -> Self {
        Keyword { spare: true, ..self }
    }
    /// Makes a parsed keyword one without effect, for the reason `why`.
    pub(crate) const fn notice(self, why: &'static str) -> Self {
        Keyword { support: Support::Accepted(why), ..self }
    }
}

/// The keywords of one kind of section or line.
pub(crate) struct Table<T: 'static> {
    /// The kind of section or line: `global`, `proxy`, `bind`...
    pub(crate) section: &'static str,
    parts: &'static [&'static [Keyword<T>]],
    /// The keywords by their first word, longest names first.
    index: OnceLock<HashMap<&'static str, Vec<&'static Keyword<T>>>>,
}

impl<T> Table<T> {
    pub(crate) const fn new(section: &'static str, parts: &'static [&'static [Keyword<T>]]) -> Self {
        Table { section, parts, index: OnceLock::new() }
    }

    pub(crate) fn keywords(&self) -> impl Iterator<Item = &'static Keyword<T>> {
        self.parts.iter().flat_map(|part| part.iter())
    }

    /// The keyword that `words` begin with, and the number of words in its name.
    pub(crate) fn find(&self, words: &[Word]) -> Option<(&'static Keyword<T>, usize)> {
        let index = self.index.get_or_init(|| {
            let mut index: HashMap<_, Vec<&'static Keyword<T>>> = HashMap::new();
            for keyword in self.keywords() {
                index.entry(keyword.name.split(' ').next().unwrap_or_default()).or_default().push(keyword);
            }
            for keywords in index.values_mut() {
                keywords.sort_by_key(|k| std::cmp::Reverse(k.name.len()));
            }
            index
        });
        let first = words.first()?.text.as_str();
        let by_name = index.get(first).or_else(|| index.get(first.split('(').next()?));
        by_name?.iter().find_map(|keyword| {
            let mut count = 0;
            let matches = keyword.name.split(' ').all(|part| {
                count += 1;
                // A variable's name follows the last word without a space: `http-check set-var(check.x)`.
                let named = |text: &str| (count > 1 || keyword.valued) && text.split('(').next() == Some(part);
                words.get(count - 1).is_some_and(|w| w.text == part || named(&w.text))
            });
            matches.then_some((*keyword, count))
        })
    }

    /// What continues the word `first` to a keyword, as `client` does `timeout`, and whether that keyword is refused.
    pub(crate) fn family(&self, first: &str) -> Vec<(&'static str, bool)> {
        let continued =
            |k: &Keyword<T>| k.name.split_once(' ').filter(|(head, _)| *head == first).map(|(_, tail)| tail);
        self.keywords().filter_map(|k| Some((continued(k)?, matches!(k.support, Support::Refused { .. })))).collect()
    }
}
