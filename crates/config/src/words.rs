//! Splits a line into words: quotes, escapes, environment variables (manual sections 2.2 and 2.3).
//!
//! The text of a word is what HAProxy's parser would pass to the keyword: a second level of quoting, such as
//! `str(\"a b\")`, is left for the parser of arguments in parentheses.

use crate::span::{FileId, Span, Word};
use std::borrow::Cow;

/// Looks up variables such as `"$NAME"`.
pub(crate) trait Variables {
    /// The value of an environment variable, or of one of the pseudo-variables `.FILE`, `.LINE` and `.SECTION`.
    fn variable(&self, name: &str) -> Option<String>;
}

/// Why a line could not be split, and at which bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadLine {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) message: String,
    pub(crate) hint: &'static str,
}

/// Splits `line` (without its line feed), appending to `words`.
pub(crate) fn split(
    line: &str,
    file: FileId,
    number: u32,
    variables: &dyn Variables,
    words: &mut Vec<Word>,
) -> Result<(), BadLine> {
    let span = |start: usize, end: usize| Span { file, line: number, start: start as u32, end: end as u32 };
    let mut splitter = Splitter { line, at: 0, text: Vec::new(), begin: None, quote: None };
    while let Some(c) = splitter.peek() {
        match c {
            b'\n' | b'\r' => break,
            b'#' if splitter.quote.is_none() => break,
            b'"' | b'\'' => splitter.quote_mark(c),
            b'\\' if !splitter.in_single() => splitter.escape()?,
            b'$' if splitter.in_double() => {
                let value = splitter.variable(variables)?;
                let mut pieces = value.split().into_iter();
                splitter.text.extend_from_slice(pieces.next().unwrap_or_default().as_bytes());
                for piece in pieces {
                    // `${NAME[*]}`: spaces in the variable separate words, all of which have this position.
                    let (text, start) = splitter.take_word()?;
                    words.push(Word { text, span: span(start, splitter.at) });
                    splitter.begin = Some(start);
                    splitter.text.extend_from_slice(piece.as_bytes());
                }
            }
            c if is_space(c) && splitter.quote.is_none() => {
                if splitter.begin.is_some() {
                    let (text, start) = splitter.take_word()?;
                    words.push(Word { text, span: span(start, splitter.at) });
                }
                splitter.at += 1;
            }
            c => splitter.plain(c),
        }
    }
    if let Some((start, _)) = splitter.quote {
        return Err(BadLine {
            start,
            end: line.trim_end_matches(['\r', '\n']).len(),
            message: "this quote is never closed".into(),
            hint: "close it on the same line, or write \\\" or \\' for the character itself",
        });
    }
    // A trailing empty word ("") vanishes, like in HAProxy, where an empty word marks the end of the words.
    if splitter.begin.is_some() && !splitter.text.is_empty() {
        let (text, start) = splitter.take_word()?;
        words.push(Word { text, span: span(start, splitter.at) });
    }
    Ok(())
}

/// Replaces `$NAME` and `${NAME}` by their values, or by nothing if they do not exist; used for variables in addresses
/// without quotes. If a brace is not closed, the text is unchanged.
pub(crate) fn expand<'t>(text: &'t str, variables: &dyn Variables) -> Cow<'t, str> {
    if !text.contains('$') {
        return Cow::Borrowed(text);
    }
    let (mut expanded, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        let braced = after.strip_prefix('{');
        let inner = braced.unwrap_or(after);
        let length = inner.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(inner.len());
        let (name, behind) = inner.split_at(length);
        if let Some(value) = variables.variable(name) {
            expanded.push_str(&value);
        }
        rest = match braced {
            Some(_) => match behind.strip_prefix('}') {
                Some(behind) => behind,
                None => return Cow::Borrowed(text),
            },
            None => behind,
        };
    }
    expanded.push_str(rest);
    Cow::Owned(expanded)
}

/// isspace(3) in the C locale, except line ends.
fn is_space(c: u8) -> bool {
    matches!(c, b' ' | b'\t' | 0x0b | 0x0c)
}

struct Splitter<'a> {
    line: &'a str,
    at: usize,
    /// The word so far, as bytes, since `\xc3\xa9` spells one character.
    text: Vec<u8>,
    /// The offset in the line at which the current word started; `None` between words.
    begin: Option<usize>,
    /// The offset in the line of the quote that is open, and its character.
    quote: Option<(usize, u8)>,
}

/// The value of a variable.
struct Value {
    text: String,
    separate: bool,
}

impl Value {
    /// Splits at spaces. Runs of them count as one, but a leading or trailing one still starts or ends a word.
    fn split(&self) -> Vec<&str> {
        if !self.separate {
            return vec![&self.text];
        }
        let pieces: Vec<&str> = self.text.split(|c: char| c.is_ascii_whitespace() || c == '\u{b}').collect();
        let last = pieces.len() - 1;
        let outer = |i: usize| i == 0 || i == last;
        pieces.into_iter().enumerate().filter(|(i, piece)| outer(*i) || !piece.is_empty()).map(|(_, p)| p).collect()
    }
}

impl Splitter<'_> {
    fn peek(&self) -> Option<u8> {
        self.line.as_bytes().get(self.at).copied()
    }

    fn byte(&self, ahead: usize) -> Option<u8> {
        self.line.as_bytes().get(self.at + ahead).copied()
    }

    fn in_single(&self) -> bool {
        matches!(self.quote, Some((_, b'\'')))
    }

    fn in_double(&self) -> bool {
        matches!(self.quote, Some((_, b'"')))
    }

    fn plain(&mut self, c: u8) {
        self.begin.get_or_insert(self.at);
        self.text.push(c);
        self.at += 1;
    }

    fn quote_mark(&mut self, c: u8) {
        match self.quote {
            Some((_, open)) if open == c => self.quote = None,
            Some(_) => return self.plain(c),
            None => self.quote = Some((self.at, c)),
        }
        self.begin.get_or_insert(self.at);
        self.at += 1;
    }

    /// Manual 2.2: only these combinations are escapes; any other backslash is kept, so that `\1` and `\.` in a regular
    /// expression need not be doubled.
    fn escape(&mut self) -> Result<(), BadLine> {
        let (byte, length) = match self.byte(1) {
            Some(c @ (b' ' | b'\\' | b'#' | b'\'' | b'"')) => (c, 2),
            // Outside double quotes a dollar sign has no meaning, so that the `\$` of a regular expression is kept.
            Some(b'$') if self.in_double() => (b'$', 2),
            Some(b't') => (b'\t', 2),
            Some(b'n') => (b'\n', 2),
            Some(b'r') => (b'\r', 2),
            Some(b'x') => (self.hex()?, 4),
            _ => (b'\\', 1),
        };
        self.begin.get_or_insert(self.at);
        self.text.push(byte);
        self.at += length;
        Ok(())
    }

    fn hex(&self) -> Result<u8, BadLine> {
        let digit = |ahead| self.byte(ahead).and_then(|c| (c as char).to_digit(16));
        match (digit(2), digit(3)) {
            (Some(0), Some(0)) => Err(self.bad(
                self.at,
                self.at + 4,
                "the NUL character cannot be part of a word",
                "HAProxy would cut the word short here; remove it",
            )),
            (Some(high), Some(low)) => Ok((high * 16 + low) as u8),
            _ => Err(self.bad(
                self.at,
                (self.at + 4).min(self.line.len()),
                "truncated or invalid hexadecimal sequence",
                "\\x is followed by two digits of 0-9 a-f; write \\\\x for a backslash and an x",
            )),
        }
    }

    fn bad(&self, start: usize, end: usize, message: &str, hint: &'static str) -> BadLine {
        BadLine { start, end, message: message.into(), hint }
    }

    /// Parses `$NAME`, `${NAME}`, `${NAME-default}`, `${NAME[*]}`.
    fn variable(&mut self, variables: &dyn Variables) -> Result<Value, BadLine> {
        let dollar = self.at;
        self.at += 1;
        let brace = self.peek() == Some(b'{');
        self.at += usize::from(brace);
        let start = self.at;
        if !matches!(self.peek(), Some(c) if c.is_ascii_alphabetic() || c == b'_' || c == b'.') {
            return Err(self.bad(
                dollar,
                (self.at + 1).min(self.line.len()),
                "forbidden first character in the name of an environment variable",
                "write \\$ for a dollar sign inside double quotes, or use single quotes",
            ));
        }
        self.at += 1;
        while matches!(self.peek(), Some(c) if c.is_ascii_alphanumeric() || c == b'_') {
            self.at += 1;
        }
        let name = &self.line[start..self.at];
        if name.starts_with('.') && !matches!(name, ".FILE" | ".LINE" | ".SECTION") {
            return Err(self.bad(
                start,
                self.at,
                "unknown pseudo-variable",
                "the ones that exist are .FILE, .LINE and .SECTION",
            ));
        }
        let mut value = variables.variable(name);
        let separate = brace && self.peek() == Some(b'[');
        if separate {
            if !self.line[self.at..].starts_with("[*]") {
                return Err(self.bad(
                    self.at,
                    self.at + 1,
                    "truncated or invalid word expansion",
                    "only [*] may stand here: \"${NAME[*]}\" makes a word of each value in the variable",
                ));
            }
            self.at += 3;
        }
        if brace {
            if self.peek() == Some(b'-') {
                let from = self.at + 1;
                let length = self.line[from..].find('}').ok_or_else(|| self.unmatched(dollar))?;
                value.get_or_insert_with(|| self.line[from..from + length].to_owned());
                self.at = from + length;
            }
            if self.peek() != Some(b'}') {
                return Err(self.unmatched(dollar));
            }
            self.at += 1;
        }
        Ok(Value { text: value.unwrap_or_default(), separate })
    }

    fn unmatched(&self, dollar: usize) -> BadLine {
        self.bad(
            dollar,
            (self.at + 1).min(self.line.len()).max(dollar + 1),
            "unmatched brace in the name of an environment variable",
            "write \"${NAME}\" or \"${NAME-default}\"",
        )
    }

    fn take_word(&mut self) -> Result<(String, usize), BadLine> {
        let start = self.begin.take().unwrap_or(self.at);
        Ok((crate::escaped::word_of(std::mem::take(&mut self.text)), start))
    }
}
