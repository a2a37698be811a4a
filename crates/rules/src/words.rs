//! The words of a line, taken one after another, and parsers for the numbers and times among them.

use penstock_config::{Line, Span, Word, units};
use std::time::Duration;

/// A line being parsed.
#[derive(Clone, Debug)]
pub struct Words<'a> {
    line: &'a Line,
    at: usize,
}

impl<'a> Words<'a> {
    /// A cursor over all words of a line.
    pub fn new(line: &'a Line) -> Self {
        Words { line, at: 0 }
    }
    /// The next word.
    #[allow(clippy::should_implement_trait, reason = "a cursor that is also looked ahead with, not an iterator")]
    pub fn next(&mut self) -> Option<&'a Word> {
        let word = self.line.words.get(self.at)?;
        self.at += 1;
        Some(word)
    }
    /// The next word, which is not taken.
    pub fn peek(&self) -> Option<&'a Word> {
        self.line.words.get(self.at)
    }
    /// Takes the next word if it equals `word`; returns whether it did.
    pub fn take(&mut self, word: &str) -> bool {
        let found = self.peek().is_some_and(|next| next.text == word);
        self.at += usize::from(found);
        found
    }
    /// Whether all words have been taken.
    pub fn is_empty(&self) -> bool {
        self.at >= self.line.words.len()
    }
    /// The words that have not been taken.
    pub fn rest(&self) -> &'a [Word] {
        self.line.words.get(self.at..).unwrap_or_default()
    }
    /// The directive's span.
    pub fn line_span(&self) -> Span {
        self.line.span
    }
    /// The span of the last word taken, or of the line.
    pub fn last_span(&self) -> Span {
        self.at.checked_sub(1).and_then(|at| self.line.words.get(at)).map_or(self.line.span, |word| word.span)
    }
}

/// Parses a time in the manual's units (section 2.5) to milliseconds, which is also the default unit. As in HAProxy,
/// anything after the unit is ignored: `30sec` is `30s`.
pub fn parse_time_ms(text: &str) -> Option<u64> {
    let (length, _) = units::time(text, Duration::from_millis(1)).ok()?;
    u64::try_from(length.as_millis()).ok()
}

/// Parses a size with `k`, `m`, `g` for powers of 1024.
pub fn parse_size(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let n: u64 = text[..digits].parse().ok()?;
    let shift = match &text[digits..] {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        _ => return None,
    };
    n.checked_mul(1 << shift)
}

/// Makes a line by splitting text at spaces, for tests and for directives that the program generates.
pub fn line_of(text: &str) -> Line {
    let mut words = Vec::new();
    let mut start = 0;
    for part in text.split(' ') {
        let end = start + part.len();
        if !part.is_empty() {
            let span = Span { start: start as u32, end: end as u32, line: 1, ..Span::default() };
            words.push(Word { text: part.to_owned(), span });
        }
        start = end + 1;
    }
    Line { words, span: Span { end: text.len() as u32, line: 1, ..Span::default() } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_are_the_manuals() {
        assert_eq!(parse_time_ms("500"), Some(500));
        assert_eq!(parse_time_ms("2m"), Some(120_000));
        assert_eq!(parse_time_ms("1500us"), Some(2));
        assert_eq!(parse_time_ms("5x"), None);
        assert_eq!(parse_time_ms(""), None);
        assert_eq!(parse_time_ms("5sec"), Some(5_000));
        assert_eq!(parse_size("1k"), Some(1024));
        assert_eq!(parse_size("1.5k"), None);
    }
}
