//! Regular expressions: linear in time, whatever the pattern and the input.

use crate::keyword::Problem;
use regex::bytes;
use std::sync::Arc;

/// A compiled regular expression on bytes.
///
/// HAProxy uses PCRE where it is built with it. Here the engine never backtracks, so that no request can make a match
/// slow. The syntax is the same but for what needs backtracking (back-references, look-around, atomic groups, possessive
/// repetition), which is refused by name; leftmost-first preference, greedy and lazy repetition are as in PCRE. `\d`,
/// `\w`, `\s` and `.` mean bytes of ASCII, as in PCRE without its UTF mode; `$` matches only at the very end, where PCRE
/// also matches before a final line feed.
#[derive(Clone, Debug)]
pub struct Regex(Arc<bytes::Regex>);

impl Regex {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// What is not supported or malformed, by name.
    pub fn new(pattern: &str, ignore_case: bool) -> Result<Regex, Problem> {
        bytes::RegexBuilder::new(&translate(pattern))
            .case_insensitive(ignore_case)
            .unicode(false)
            .size_limit(4 << 20)
            .build()
            .map(|regex| Regex(Arc::new(regex)))
            .map_err(|error| Problem {
                at: 0..pattern.len(),
                message: format!("the regular expression `{pattern}` {}", reason(pattern, &error)),
                hint: advice(pattern),
            })
    }
    /// Whether it matches anywhere.
    pub fn is_match(&self, text: &[u8]) -> bool {
        self.0.is_match(text)
    }
    /// Appends `text` with the first match, or all of them, replaced. `\0` to `\9` in the replacement are groups; returns
    /// whether anything matched.
    pub fn replace(&self, text: &[u8], by: &[u8], all: bool, out: &mut Vec<u8>) -> bool {
        let mut at = 0;
        let mut found = false;
        while at <= text.len() {
            let Some(groups) = self.0.captures_at(text, at) else { break };
            let whole = groups.get(0).expect("group 0 is the match itself");
            found = true;
            out.extend_from_slice(&text[at..whole.start()]);
            expand(by, &groups, out);
            if !all {
                at = whole.end();
                break;
            }
            // An empty match takes a byte along, or the search would stand still.
            at = if whole.is_empty() {
                out.extend_from_slice(text.get(whole.end()..=whole.end()).unwrap_or_default());
                whole.end() + 1
            } else {
                whole.end()
            };
        }
        out.extend_from_slice(text.get(at..).unwrap_or_default());
        found
    }
    /// Appends the replacement for the first match in `text`, without what stands around it.
    pub fn rewrite(&self, text: &[u8], by: &[u8], out: &mut Vec<u8>) -> bool {
        let Some(groups) = self.0.captures(text) else { return false };
        expand(by, &groups, out);
        true
    }
}

/// `\1` stands for a group, `\\` for a backslash, `\xHH` for a byte; a backslash before anything else is dropped.
fn expand(by: &[u8], groups: &bytes::Captures<'_>, out: &mut Vec<u8>) {
    let mut rest = by;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let Some((&next, tail)) = rest.split_first() else { return };
        rest = tail;
        match next {
            b'0'..=b'9' => {
                if let Some(group) = groups.get(usize::from(next - b'0')) {
                    out.extend_from_slice(group.as_bytes());
                }
            }
            b'x' => {
                let digit = |at: usize| rest.get(at).and_then(|&d| char::from(d).to_digit(16));
                if let (Some(high), Some(low)) = (digit(0), digit(1)) {
                    out.push((high * 16 + low) as u8);
                    rest = &rest[2..];
                } else {
                    out.push(b'x');
                }
            }
            other => out.push(other),
        }
    }
}

/// PCRE takes a backslash before any character that is not alphanumeric as that character; the crate does so only for
/// some. And PCRE takes a `{` that begins no repetition as itself.
fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut chars = pattern.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some((_, next)) if !next.is_ascii_alphanumeric() && next.is_ascii() => {
                    if regex_syntax_meta(next) {
                        out.push('\\');
                    }
                    out.push(next);
                }
                Some((_, 'h')) => out.push_str("[ \\t]"),
                Some((_, 'Z')) => out.push_str("\\z"),
                Some((_, next)) => out.extend(['\\', next]),
                None => out.push('\\'),
            },
            '{' if !begins_repetition(&pattern[at + 1..]) => out.push_str("\\{"),
            c => out.push(c),
        }
    }
    out
}

fn regex_syntax_meta(c: char) -> bool {
    r"\.+*?()|[]{}^$#&-~".contains(c)
}

fn begins_repetition(rest: &str) -> bool {
    let Some(end) = rest.find('}') else { return false };
    let inner = &rest[..end];
    !inner.is_empty()
        && inner.starts_with(|c: char| c.is_ascii_digit())
        && inner.bytes().all(|b| b.is_ascii_digit() || b == b',')
}

fn reason(pattern: &str, error: &regex::Error) -> String {
    for (syntax, name) in REFUSED {
        if pattern.contains(syntax) {
            return format!("uses {name}, which needs backtracking and is not supported");
        }
    }
    if back_reference(pattern) {
        return "uses a back-reference, which needs backtracking and is not supported".into();
    }
    match error {
        regex::Error::CompiledTooBig(_) => "is too large once compiled".into(),
        error => {
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default();
            format!("cannot be read: {}", last.trim_start_matches("error: "))
        }
    }
}

const REFUSED: &[(&str, &str)] = &[
    ("(?=", "look-ahead"),
    ("(?!", "negative look-ahead"),
    ("(?<=", "look-behind"),
    ("(?<!", "negative look-behind"),
    ("(?>", "an atomic group"),
    ("(?R", "recursion"),
    ("(?(", "a conditional group"),
    ("\\K", "\\K"),
    ("\\G", "\\G"),
];

fn back_reference(pattern: &str) -> bool {
    pattern.as_bytes().windows(2).any(|pair| pair[0] == b'\\' && pair[1].is_ascii_digit() && pair[1] != b'0')
}

fn advice(pattern: &str) -> Option<String> {
    (pattern.contains("(?!") || pattern.contains("(?<!"))
        .then(|| "write the exclusion as an ACL of its own, and negate it with `!`".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(pattern: &str, text: &str, by: &str, all: bool) -> String {
        let mut out = Vec::new();
        Regex::new(pattern, false).unwrap().replace(text.as_bytes(), by.as_bytes(), all, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_needs_backtracking_is_refused_by_name() {
        for (pattern, name) in [
            ("^(?!/api)", "negative look-ahead"),
            ("(a)\\1", "back-reference"),
            ("(?<=x)y", "look-behind"),
            ("(?>a+)b", "atomic"),
        ] {
            let message = Regex::new(pattern, false).unwrap_err().message;
            assert!(message.contains(name), "{message}");
        }
    }

    #[test]
    fn escapes_of_pcre_are_understood() {
        for (pattern, text) in
            [(r"^\/api\/v\d+\-x", "/api/v12-x"), (r"a\@b\:c\'", "a@b:c'"), ("^{a}$", "{a}"), ("^x{2,3}$", "xxx")]
        {
            assert!(Regex::new(pattern, false).unwrap().is_match(text.as_bytes()), "{pattern}");
        }
        assert!(Regex::new("^ABC", true).unwrap().is_match(b"abcd"));
    }

    #[test]
    fn replacements_take_groups() {
        assert_eq!(replaced("(.*):(.*)", "a:b", r"\2-\1", false), "b-a");
        assert_eq!(replaced("a", "banana", "o", true), "bonono");
        assert_eq!(replaced("a", "banana", "o", false), "bonana");
        assert_eq!(replaced("x*", "ab", "-", true), "-a-b-");
    }
}
