//! One line of a list or map.

use std::{fmt, sync::Arc};

/// A pattern, and what it maps to.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// Numbers grow in the order of the entries, and none is given twice.
    id: u64,
    /// The pattern as written, and behind it the value.
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
    /// The same pattern in the same place with another value.
    pub(super) fn with_value(&self, value: &[u8]) -> Arc<Entry> {
        Entry::new(self.id, self.key(), value)
    }
    /// Its number, which names it in `del map NAME #ID`.
    pub fn id(&self) -> u64 {
        self.id
    }
    /// The pattern as written.
    pub fn key(&self) -> &[u8] {
        &self.text[..self.key_len]
    }
    /// What it maps to; nothing in a list.
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
