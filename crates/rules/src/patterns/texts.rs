//! Text compared whole, in part, at its ends or between delimiters.

use super::{Method, Pattern};
use crate::keyword::Problem;
use aho_corasick::{AhoCorasick, MatchKind};
use penstock_config::bytes_of;
use std::collections::HashMap;

/// Patterns compared with text.
#[derive(Clone, Debug)]
pub struct TextSet {
    how: How,
    binary: bool,
    exact: Group,
    folded: Group,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Whole,
    Part,
    Begin,
    End,
    /// Between delimiters: `/` and `?`, and for domains `.` and `:` too.
    Dir,
    Dom,
}

/// Up to this many patterns are compared one by one.
const FEW: usize = 8;

/// Patterns that are compared in one way: with their case, or without.
#[derive(Clone, Debug, Default)]
struct Group {
    list: Vec<(Box<[u8]>, u32)>,
    /// Lengths that occur, longest first, where the list is long.
    lengths: Vec<usize>,
    by_text: HashMap<Box<[u8]>, u32>,
    automaton: Option<AhoCorasick>,
}

impl TextSet {
    pub(super) fn new(method: Method, patterns: &[Pattern]) -> Result<TextSet, (usize, Problem)> {
        let how = match method {
            Method::Sub => How::Part,
            Method::Beg => How::Begin,
            Method::End => How::End,
            Method::Dir => How::Dir,
            Method::Dom => How::Dom,
            _ => How::Whole,
        };
        let mut set = TextSet { how, binary: method == Method::Bin, exact: Group::default(), folded: Group::default() };
        for (at, pattern) in patterns.iter().enumerate() {
            let text = match method {
                Method::Bin => parse_hex(&pattern.text).ok_or_else(|| {
                    let message = format!("`{}` is no even number of hexadecimal digits", pattern.text);
                    (at, Problem::new(0..pattern.text.len(), message))
                })?,
                Method::Dir | Method::Dom => {
                    let delimiter = |c: char| how.delimits(c as u8);
                    bytes_of(pattern.text.trim_matches(delimiter)).into_owned()
                }
                _ => bytes_of(&pattern.text).into_owned(),
            };
            let group = if pattern.ignore_case { &mut set.folded } else { &mut set.exact };
            let text = if pattern.ignore_case { text.to_ascii_lowercase() } else { text };
            group.list.push((text.into(), at as u32));
        }
        set.exact.index(how, false);
        set.folded.index(how, true);
        Ok(set)
    }

    /// Whether the patterns are bytes, written in hexadecimal.
    pub(super) fn is_binary(&self) -> bool {
        self.binary
    }

    /// The pattern that matches: the longest prefix, else the first written.
    pub fn find(&self, text: &[u8]) -> Option<u32> {
        let exact = self.exact.find(self.how, text, <[u8]>::eq);
        if self.folded.list.is_empty() {
            return exact;
        }
        let folded = if self.folded.by_text.is_empty() {
            self.folded.find(self.how, text, <[u8]>::eq_ignore_ascii_case)
        } else {
            // Hashing needs the text in lower case; only long lists come here.
            self.folded.find(self.how, &text.to_ascii_lowercase(), <[u8]>::eq)
        };
        match (exact, folded) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}

impl How {
    fn delimits(self, byte: u8) -> bool {
        matches!(byte, b'/' | b'?') || self == How::Dom && matches!(byte, b'.' | b':')
    }
}

impl Group {
    fn index(&mut self, how: How, ignore_case: bool) {
        if how == How::Part {
            if !self.list.is_empty() {
                self.automaton = AhoCorasick::builder()
                    .ascii_case_insensitive(ignore_case)
                    .match_kind(MatchKind::Standard)
                    .build(self.list.iter().map(|(text, _)| text))
                    .ok();
            }
            return;
        }
        if self.list.len() <= FEW {
            return;
        }
        for (text, at) in &self.list {
            self.by_text.entry(text.clone()).or_insert(*at);
        }
        self.lengths = self.list.iter().map(|(text, _)| text.len()).collect();
        self.lengths.sort_unstable_by(|a, b| b.cmp(a));
        self.lengths.dedup();
    }

    fn find(&self, how: How, text: &[u8], same: fn(&[u8], &[u8]) -> bool) -> Option<u32> {
        if let Some(automaton) = &self.automaton {
            let found = automaton.find(text)?;
            return Some(self.list[found.pattern().as_usize()].1);
        }
        if !self.by_text.is_empty() {
            return self.find_hashed(how, text);
        }
        let matches = |pattern: &[u8]| match how {
            How::Whole => same(pattern, text),
            How::Begin => text.len() >= pattern.len() && same(pattern, &text[..pattern.len()]),
            How::End => text.len() >= pattern.len() && same(pattern, &text[text.len() - pattern.len()..]),
            How::Dir | How::Dom => starts(how, text).any(|at| {
                let rest = &text[at..];
                rest.len() >= pattern.len()
                    && same(pattern, &rest[..pattern.len()])
                    && rest.get(pattern.len()).is_none_or(|&next| how.delimits(next))
            }),
            How::Part => false,
        };
        let found = self.list.iter().filter(|(pattern, _)| matches(pattern));
        match how {
            How::Begin => found.max_by_key(|(pattern, at)| (pattern.len(), std::cmp::Reverse(*at))).map(|(_, at)| *at),
            _ => found.map(|(_, at)| *at).next(),
        }
    }

    fn find_hashed(&self, how: How, text: &[u8]) -> Option<u32> {
        let fitting = || self.lengths.iter().copied().filter(|len| *len <= text.len());
        let get = |part: &[u8]| self.by_text.get(part).copied();
        match how {
            How::Whole => get(text),
            How::Begin => fitting().find_map(|len| get(&text[..len])),
            How::End => fitting().filter_map(|len| get(&text[text.len() - len..])).min(),
            How::Dir | How::Dom => starts(how, text)
                .flat_map(|at| self.lengths.iter().map(move |len| (at, at + len)))
                .filter(|&(_, end)| end <= text.len() && text.get(end).is_none_or(|&next| how.delimits(next)))
                .filter_map(|(at, end)| get(&text[at..end]))
                .min(),
            How::Part => None,
        }
    }
}

/// Where a delimited part may start.
fn starts(how: How, text: &[u8]) -> impl Iterator<Item = usize> + '_ {
    (0..text.len()).filter(move |&at| !how.delimits(text[at]) && (at == 0 || how.delimits(text[at - 1])))
}

/// Bytes from hexadecimal digits.
pub(crate) fn parse_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(method: Method, patterns: &[&str], ignore_case: bool, filler: usize) -> TextSet {
        let mut all: Vec<Pattern> =
            patterns.iter().map(|text| Pattern { text: (*text).to_owned(), ignore_case }).collect();
        all.extend((0..filler).map(|n| Pattern { text: format!("~filler{n}"), ignore_case }));
        TextSet::new(method, &all).unwrap()
    }

    #[test]
    fn each_method_agrees_between_short_and_long_lists() {
        for filler in [0, 30] {
            let find =
                |method, patterns: &[&str], text: &str| set(method, patterns, false, filler).find(text.as_bytes());
            assert_eq!(find(Method::Str, &["a", "ab"], "ab"), Some(1));
            assert_eq!(find(Method::Str, &["a"], "A"), None);
            assert_eq!(find(Method::Beg, &["/a", "/api"], "/api/x"), Some(1), "the longest prefix");
            assert_eq!(find(Method::End, &[".png", ".gif"], "/x.gif"), Some(1));
            assert_eq!(find(Method::Sub, &["xyz", "dm"], "/admin"), Some(1));
            assert_eq!(find(Method::Dir, &["img"], "/a/img/b"), Some(0));
            assert_eq!(find(Method::Dir, &["img"], "/a/imgs/b"), None);
            assert_eq!(find(Method::Dir, &["/a/b/"], "/x/a/b?q"), Some(0), "a pattern of several parts");
            assert_eq!(find(Method::Dom, &["example"], "www.example.com:80"), Some(0));
            assert_eq!(find(Method::Dom, &["example.com"], "www.example.com:80"), Some(0));
            assert_eq!(find(Method::Dom, &["ample"], "www.example.com"), None);
        }
    }

    #[test]
    fn blocks_are_written_in_hexadecimal() {
        assert_eq!(set(Method::Bin, &["00", "4142"], false, 0).find(b"AB"), Some(1));
        let odd = [Pattern { text: "414".into(), ignore_case: false }];
        assert!(TextSet::new(Method::Bin, &odd).is_err());
    }

    #[test]
    fn case_is_ignored_where_asked() {
        for filler in [0, 30] {
            let find = |method, pattern: &str, text: &str| set(method, &[pattern], true, filler).find(text.as_bytes());
            assert_eq!(find(Method::Str, "WWW.Example.com", "www.EXAMPLE.com"), Some(0));
            assert_eq!(find(Method::Sub, "ADMIN", "/the/admin"), Some(0));
            assert_eq!(find(Method::End, ".Png", "x.PNG"), Some(0));
            assert_eq!(find(Method::Dom, "Example", "www.eXample.com"), Some(0));
        }
    }
}
