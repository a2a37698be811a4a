//! Text compared as a whole, at its start or end, or between delimiters.

use super::{
    comparison::{Comparison, Method},
    entry::Entry,
    trie::{Trie, hash},
};
use crate::problem::Problem;
use std::{borrow::Cow, sync::Arc};

/// Patterns compared with text. They are hashed, and looked up by the lengths that occur among them.
#[derive(Clone, Debug)]
pub(super) struct TextSet {
    method: Method,
    ignore_case: bool,
    /// The lengths that occur, longest first, and how many patterns have each.
    lengths: Vec<(usize, usize)>,
    by_text: Trie<(Box<[u8]>, Arc<Entry>)>,
}

/// The methods that HAProxy 2.6 compares by number, which makes them different from the same letters in another case.
const NUMBERED: [&[u8]; 8] = [b"OPTIONS", b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"TRACE", b"CONNECT"];

impl TextSet {
    /// An empty set for `str`, `bin`, `beg`, `end`, `dir`, `dom` or methods.
    pub(super) fn new(how: Comparison) -> TextSet {
        let Comparison { method, ignore_case, .. } = how;
        TextSet { method, ignore_case, lengths: Vec::new(), by_text: Trie::default() }
    }

    /// Adds a pattern.
    ///
    /// # Errors
    ///
    /// If a pattern of `bin` is not an even number of hexadecimal digits.
    pub(super) fn insert(&mut self, entry: &Arc<Entry>) -> Result<(), Problem> {
        let text = self.compared(entry).ok_or_else(|| {
            let text = String::from_utf8_lossy(entry.key());
            Problem::new(0..text.len(), format!("'{text}' is not an even number of hexadecimal digits"))
        })?;
        match self.lengths.binary_search_by(|(known, _)| text.len().cmp(known)) {
            Ok(at) => self.lengths[at].1 += 1,
            Err(at) => self.lengths.insert(at, (text.len(), 1)),
        }
        self.by_text.insert(hash(&text), (text.into(), Arc::clone(entry)));
        Ok(())
    }

    pub(super) fn remove(&mut self, entry: &Entry) {
        let Some(text) = self.compared(entry) else { return };
        let removed = self.by_text.remove(hash(&text), |(_, known)| known.id() == entry.id());
        if let Ok(at) = self.lengths.binary_search_by(|(known, _)| text.len().cmp(known)) {
            self.lengths[at].1 -= removed;
            if self.lengths[at].1 == 0 {
                self.lengths.remove(at);
            }
        }
    }

    pub(super) fn update(&mut self, entry: &Arc<Entry>) {
        let Some(text) = self.compared(entry) else { return };
        self.by_text.update(hash(&text), |(_, known)| {
            if known.id() == entry.id() {
                *known = Arc::clone(entry);
            }
        });
    }

    /// The pattern that matches: the longest prefix, else the first written.
    pub(super) fn find(&self, text: &[u8]) -> Option<&Arc<Entry>> {
        let lowered;
        let text = if self.lowers(text) {
            lowered = text.to_ascii_lowercase();
            &lowered
        } else {
            text
        };
        let fitting = || self.lengths.iter().map(|(len, _)| *len).filter(|len| *len <= text.len());
        let first = |found: &mut dyn Iterator<Item = &'_ [u8]>| {
            found.filter_map(|part| self.get(part)).min_by_key(|entry| entry.id())
        };
        match self.method {
            Method::Beg => fitting().find_map(|len| self.get(&text[..len])),
            Method::End => first(&mut fitting().map(|len| &text[text.len() - len..])),
            Method::Dir | Method::Dom => first(&mut self.starts(text).flat_map(|at| {
                let rest = &text[at..];
                let ends = move |len: &usize| rest.get(*len).is_none_or(|&next| self.delimits(next));
                fitting().filter(move |len| *len <= rest.len()).filter(ends).map(move |len| &rest[..len])
            })),
            _ => self.get(text),
        }
    }

    fn get(&self, part: &[u8]) -> Option<&Arc<Entry>> {
        let found = match self.by_text.few() {
            Some(few) => few.iter().map(|(_, item)| item).find(|(known, _)| **known == *part),
            None => self.by_text.with_hash(hash(part)).find(|(known, _)| **known == *part),
        };
        found.map(|(_, entry)| entry)
    }

    /// The bytes that are compared for a pattern.
    fn compared<'e>(&self, entry: &'e Entry) -> Option<Cow<'e, [u8]>> {
        let mut text = Cow::Borrowed(entry.key());
        match self.method {
            Method::Bin => text = Cow::Owned(parse_hex(std::str::from_utf8(&text).ok()?)?),
            Method::Dir | Method::Dom => {
                let kept = |byte: &u8| !self.delimits(*byte);
                let key = entry.key();
                let begin = key.iter().position(kept).unwrap_or(key.len());
                let end = key.iter().rposition(kept).map_or(begin, |last| last + 1);
                text = Cow::Borrowed(&key[begin..end]);
            }
            _ => {}
        }
        if self.lowers(&text) {
            text.to_mut().make_ascii_lowercase();
        }
        Some(text)
    }

    /// Whether a sample or a pattern with this text is compared in lower case.
    fn lowers(&self, text: &[u8]) -> bool {
        let numbered = || self.method == Method::Meth && NUMBERED.contains(&text);
        self.ignore_case && text.iter().any(u8::is_ascii_uppercase) && !numbered()
    }

    /// Whether a byte is a delimiter: `/` and `?`, and for domains also `.` and `:`.
    fn delimits(&self, byte: u8) -> bool {
        matches!(byte, b'/' | b'?') || self.method == Method::Dom && matches!(byte, b'.' | b':')
    }

    /// The offsets at which a delimited part may start.
    fn starts<'t>(&'t self, text: &'t [u8]) -> impl Iterator<Item = usize> + 't {
        (0..text.len()).filter(move |&at| !self.delimits(text[at]) && (at == 0 || self.delimits(text[at - 1])))
    }
}

/// Decodes hexadecimal digits.
pub(crate) fn parse_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}
