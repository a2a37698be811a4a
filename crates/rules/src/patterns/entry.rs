//! One line of a list or map.

use std::{fmt, sync::Arc};

/// A pattern, and the value it maps to.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// Numbers increase in the order of the entries, and are never reused.
    id: u64,
    /// The pattern as written, followed by the value.
    text: Box<[u8]>,
    key_len: usize,
}

impl Entry {
    /// Entry `id` of a list (with an empty value) or of a map.
    pub fn new(id: u64, key: &[u8], value: &[u8]) -> Arc<Entry> {
        let mut text = Vec::with_capacity(key.len() + value.len());
        text.extend_from_slice(key);
        text.extend_from_slice(value);
        Arc::new(Entry { id, text: text.into(), key_len: key.len() })
    }
    /// A copy of the entry with another value.
    pub(super) fn with_value(&self, value: &[u8]) -> Arc<Entry> {
        Entry::new(self.id, self.key(), value)
    }
    /// The entry's number, by which `del map NAME #ID` refers to it.
    pub fn id(&self) -> u64 {
        self.id
    }
    /// The pattern as written.
    pub fn key(&self) -> &[u8] {
        &self.text[..self.key_len]
    }
    /// The value it maps to; empty in a list.
    pub fn value(&self) -> &[u8] {
        &self.text[self.key_len..]
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = String::from_utf8_lossy;
        write!(f, "#{} {:?} {:?}", self.id, text(self.key()), text(self.value()))
    }
}

/// Returns the entry with a number unless it was removed, since sets that are slow to change keep such numbers for a
/// while.
pub(super) type Live<'f, 's> = &'f (dyn Fn(u64) -> Option<&'s Arc<Entry>> + 'f);

/// Whether rebuilding an index of `known` patterns pays, when `recent` ones are outside it and `live` are left of both.
pub(super) fn is_overdue(known: usize, recent: usize, live: usize) -> bool {
    recent > FEW && recent > known / 8 || known > FEW && live < known / 2
}

/// Lists up to this length are tried one by one.
pub(super) const FEW: usize = 16;
