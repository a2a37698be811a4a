//! The words after a keyword, taken one at a time; errors are reported at the word they concern.

use crate::{
    diagnostic::{Diagnostic, Diagnostics},
    span::{Line, Span, Spanned, Word},
    surroundings::Surroundings,
    units::{self, BadTime},
};
use std::{fmt::Display, ops::RangeInclusive, path::PathBuf, str::FromStr, time::Duration};

/// An error that is already among the diagnostics.
#[derive(Debug)]
pub(crate) struct Reported;

/// The longest `guid`, in characters (configuration manual of HAProxy 3.0, 4.2).
const GUID_MAX: usize = 127;

/// What a keyword's parser returns.
pub(crate) type Parsed<T = ()> = Result<T, Reported>;

/// The words after one keyword.
pub(crate) struct Args<'a> {
    /// The keyword as written, for messages: `timeout client`.
    pub(crate) keyword: &'a str,
    pub(crate) keyword_span: Span,
    /// The keyword's last word as written, which may have a name in parentheses: `set-var(check.x)`.
    pub(crate) verb: &'a str,
    /// The whole line, the keyword included.
    pub(crate) span: Span,
    /// Whether the line is `no KEYWORD`.
    pub(crate) negated: bool,
    pub(crate) words: &'a [Word],
    pub(crate) around: &'a mut Surroundings,
    pub(crate) next: usize,
}

impl<'a> Args<'a> {
    pub(crate) fn diagnostics(&mut self) -> &mut Diagnostics {
        &mut self.around.diagnostics
    }

    /// True unless `no` stands before the keyword.
    pub(crate) fn on(&self) -> bool {
        !self.negated
    }

    pub(crate) fn peek(&self) -> Option<&'a Word> {
        self.words.get(self.next)
    }

    pub(crate) fn take(&mut self) -> Option<&'a Word> {
        let word = self.peek()?;
        self.next += 1;
        Some(word)
    }

    /// Takes the next word if it equals `text`; returns whether it did.
    pub(crate) fn take_if(&mut self, text: &str) -> bool {
        let found = self.peek().is_some_and(|w| w.text == text);
        self.next += usize::from(found);
        found
    }

    /// The next word, which must exist; `what` names it in the error.
    pub(crate) fn word(&mut self, what: &str) -> Parsed<&'a Word> {
        match self.take() {
            Some(word) if !word.text.is_empty() => Ok(word),
            other => {
                let span = other.map_or(self.end(), |w| w.span);
                let keyword = self.keyword;
                self.diagnostics().error(span, format!("'{keyword}' expects {what} here"));
                Err(Reported)
            }
        }
    }

    pub(crate) fn text(&mut self, what: &str) -> Parsed<String> {
        Ok(self.word(what)?.text.clone())
    }

    pub(crate) fn spanned(&mut self, what: &str) -> Parsed<Spanned<String>> {
        let word = self.word(what)?;
        Ok(Spanned { value: word.text.clone(), span: word.span })
    }

    /// A path as it will be opened, with `default-path` applied.
    pub(crate) fn path(&mut self, what: &str) -> Parsed<Spanned<PathBuf>> {
        let word = self.word(what)?;
        Ok(Spanned { value: self.around.default_path(&word.text), span: word.span })
    }

    /// A `guid`: letters, digits, dots, colons, dashes and underscores.
    pub(crate) fn guid(&mut self) -> Parsed<Spanned<String>> {
        let word = self.word("a unique name")?;
        let wrong = word.text.chars().find(|c| !c.is_ascii_alphanumeric() && !matches!(c, '.' | ':' | '-' | '_'));
        if let Some(wrong) = wrong {
            let hint = "use letters, digits, '.', ':', '-' and '_'";
            return self.wrong(word, format!("{wrong:?} cannot be in a guid"), hint);
        }
        if word.text.is_empty() || word.text.len() > GUID_MAX {
            return self.wrong(word, format!("a guid has 1 to {GUID_MAX} characters"), "shorten it");
        }
        Ok(Spanned { value: word.text.clone(), span: word.span })
    }

    pub(crate) fn number<N>(&mut self, what: &str, range: RangeInclusive<N>) -> Parsed<N>
    where
        N: FromStr + PartialOrd + Display + Copy,
    {
        let word = self.word(what)?;
        self.number_in(word, &word.text, what, range)
    }

    /// A number in `range`, read from `text`, a part of `word`.
    pub(crate) fn number_in<N>(&mut self, word: &Word, text: &str, what: &str, range: RangeInclusive<N>) -> Parsed<N>
    where
        N: FromStr + PartialOrd + Display + Copy,
    {
        let digits = text.strip_prefix('-').unwrap_or(text);
        let word = &Word { text: text.to_owned(), span: part(word, text) };
        let value = text.parse::<N>().ok().filter(|_| !text.starts_with('+'));
        match value {
            Some(value) if range.contains(&value) => Ok(value),
            _ if !digits.is_empty() && digits.bytes().all(|c| c.is_ascii_digit()) => self.wrong(
                word,
                format!("'{text}' is out of range for {what}"),
                format!("expected {} to {}", range.start(), range.end()),
            ),
            _ => self.wrong(word, format!("'{text}' is not {what}"), "expected a whole number"),
        }
    }

    pub(crate) fn time(&mut self, what: &str) -> Parsed<Duration> {
        self.time_in_unit(what, Duration::from_millis(1))
    }

    /// A time of at least a millisecond; `zero` says what is wrong with none.
    pub(crate) fn time_above_zero(&mut self, zero: &str) -> Parsed<Duration> {
        let word = self.peek();
        let time = self.time("a time")?;
        match word {
            Some(word) if time.is_zero() => self.wrong(word, zero, "expected at least 1ms"),
            _ => Ok(time),
        }
    }

    pub(crate) fn time_in_unit(&mut self, what: &str, unit: Duration) -> Parsed<Duration> {
        let word = self.word(what)?;
        let bad = match units::time(&word.text, unit) {
            Ok((length, rest)) => {
                if !rest.is_empty() {
                    let (message, hint) = units::unread(&word.text, rest);
                    self.diagnostics().warning(word.span, message).hint(hint);
                }
                return Ok(length);
            }
            Err(bad) => bad,
        };
        match bad {
            BadTime::Syntax => self.wrong(
                word,
                format!("'{}' is not {what}", word.text),
                "expected a number and a unit: us, ms, s, m, h or d",
            ),
            BadTime::Overflow => self.wrong(
                word,
                format!("'{}' is too long for {what}", word.text),
                match unit.as_secs() {
                    0 => "the longest is 2147483647ms, a little over 24 days",
                    _ => "the longest is 2147483647s, a little over 68 years",
                },
            ),
        }
    }

    pub(crate) fn size(&mut self, what: &str, range: RangeInclusive<u64>) -> Parsed<u64> {
        let word = self.word(what)?;
        match units::size(&word.text) {
            Some(size) if range.contains(&size) => Ok(size),
            Some(_) => self.wrong(
                word,
                format!("'{}' is out of range for {what}", word.text),
                format!("expected {} to {} bytes", range.start(), range.end()),
            ),
            None => self.wrong(
                word,
                format!("'{}' is not {what}", word.text),
                "expected a number of bytes, or one followed by k, m or g",
            ),
        }
    }

    /// The next word, which must be one of `choices`.
    pub(crate) fn choice<C: Copy>(&mut self, what: &str, choices: &[(&str, C)]) -> Parsed<C> {
        let word = self.word(what)?;
        self.choose(word, &word.text, what, choices)
    }

    /// One of `choices`, read from `text`, a part of `word`.
    pub(crate) fn choose<C: Copy>(&mut self, word: &Word, text: &str, what: &str, choices: &[(&str, C)]) -> Parsed<C> {
        if let Some((_, choice)) = choices.iter().find(|(name, _)| *name == text) {
            return Ok(*choice);
        }
        let names = choices.iter().map(|(name, _)| *name);
        let hint = expected(text, names);
        self.wrong(word, format!("'{text}' is not {what}"), hint)
    }

    /// All remaining words.
    pub(crate) fn rest(&mut self) -> Line {
        let words = self.words[self.next.min(self.words.len())..].to_vec();
        self.next = self.words.len();
        Line { words, span: self.span }
    }

    /// Reports an error at `word`.
    pub(crate) fn wrong<T>(&mut self, word: &Word, message: impl Into<String>, hint: impl Into<String>) -> Parsed<T> {
        self.diagnostics().error(word.span, message).hint(hint);
        Err(Reported)
    }

    /// Reports an error at the keyword itself.
    pub(crate) fn error(&mut self, message: impl Into<String>) -> &mut Diagnostic {
        let span = self.keyword_span;
        self.diagnostics().error(span, message)
    }

    /// Reports a line of which there is one `already`.
    pub(crate) fn only_once(&mut self, already: bool) -> Parsed {
        if !already {
            return Ok(());
        }
        let message = format!("'{}' is set already", self.keyword);
        self.error(message).hint("it may be written only once: keep the line you mean");
        Err(Reported)
    }

    /// Reports the first word that no part of the keyword's parser took, if there is one.
    pub(crate) fn unexpected(&mut self, known: &[&str]) -> Parsed {
        let Some(word) = self.peek() else { return Ok(()) };
        // As in HAProxy, an empty word ends the line.
        if self.words[self.next..].iter().all(|word| word.text.is_empty()) {
            self.next = self.words.len();
            return Ok(());
        }
        let message = format!("'{}' does not take '{}'", self.keyword, word.text);
        let hint = if known.is_empty() {
            "expected the end of the line".to_owned()
        } else {
            expected(&word.text, known.iter().copied())
        };
        self.wrong(word, message, hint)
    }

    /// The place just after the last word.
    pub(crate) fn end(&self) -> Span {
        let last = self.words.last().map_or(self.keyword_span, |w| w.span);
        Span { start: last.end, end: last.end + 1, ..last }
    }
}

/// The span of `text` within `word`, where it is a slice of its text.
fn part(word: &Word, text: &str) -> Span {
    let offset = (text.as_ptr() as usize).wrapping_sub(word.text.as_ptr() as usize);
    match offset.checked_add(text.len()) {
        Some(end) if end <= word.text.len() => word.part(offset..end),
        _ => word.span,
    }
}

/// "did you mean" where one name is near, else the list of names: no name counts as nearer than others that differ only in the last
/// digit, as versions do.
pub(crate) fn expected<'k>(text: &str, known: impl Iterator<Item = &'k str> + Clone) -> String {
    let stem = |name: &str| name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let same_but_number = |near: &str| stem(near) < near.len() && near[..stem(near)] == text[..stem(text)];
    match units::nearest(text, known.clone()).filter(|near| !same_but_number(near)) {
        Some(near) => format!("did you mean '{near}'?"),
        None => {
            let all: Vec<_> = known.collect();
            match all.as_slice() {
                [only] => format!("expected '{only}'"),
                many => format!("expected one of {}", many.join(", ")),
            }
        }
    }
}
