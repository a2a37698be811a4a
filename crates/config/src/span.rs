//! Positions of words in the source, so that every message can underline them.

/// A file of the configuration, by its place in [`crate::Config::files`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// A range of bytes in one line of one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// The file.
    pub file: FileId,
    /// Line number, from 1.
    pub line: u32,
    /// Offset of the first byte in the line, from 0.
    pub start: u32,
    /// Offset after the last byte in the line.
    pub end: u32,
}

impl Span {
    /// From the start of `self` to the end of `other`, which comes later in the same line.
    #[must_use]
    pub fn to(self, other: Span) -> Span {
        Span { end: other.end.max(self.start), ..self }
    }
}

/// One word of a line, after quotes, escapes and environment variables have been resolved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Word {
    /// The resolved text.
    pub text: String,
    /// Where the word is in the configuration, quotes included.
    pub span: Span,
}

impl Word {
    /// The position of part of the text. Exact if the word contains no quotes, escapes or variables; otherwise that of
    /// the whole word.
    pub fn part(&self, range: std::ops::Range<usize>) -> Span {
        let plain = (self.span.end - self.span.start) as usize == self.text.len();
        if !plain || range.start > range.end || range.end > self.text.len() {
            return self.span;
        }
        let start = self.span.start;
        Span { start: start + range.start as u32, end: start + range.end as u32, ..self.span }
    }
}

impl std::ops::Deref for Word {
    type Target = str;
    fn deref(&self) -> &str {
        &self.text
    }
}

/// The words of a directive that other crates compile (rules, ACLs, log formats), without the keyword.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// The words after the keyword: for `http-request deny if X` they start with `deny`.
    pub words: Vec<Word>,
    /// The whole directive, including the keyword.
    pub span: Span,
}

impl Line {
    /// The word behind the first `keyword`.
    pub fn value_of(&self, keyword: &str) -> Option<&str> {
        let at = self.words.iter().position(|word| word.text == keyword)?;
        self.words.get(at + 1).map(|word| word.text.as_str())
    }
}

/// A value, and where it was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// Where the value is in the configuration.
    pub span: Span,
}
