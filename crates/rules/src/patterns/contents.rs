//! The contents of a reference at one time: its entries, and one set of them for each way in which rules compare.

use super::{
    comparison::{Comparison, Method},
    entry::Entry,
    sequence::Sequence,
    set::PatternSet,
    trie::{Trie, hash},
};
use crate::{problem::Problem, regexes::Regex, value::Value};
use std::sync::Arc;

/// Entries and sets. A copy shares nearly everything with the original.
#[derive(Clone, Debug, Default)]
pub(super) struct Contents {
    entries: Sequence<Arc<Entry>>,
    by_key: Trie<Arc<Entry>>,
    sets: Vec<(Comparison, Option<PatternSet>)>,
}

impl Contents {
    /// Contents with these entries, and no sets yet.
    pub(super) fn new(all: Vec<Arc<Entry>>) -> Contents {
        let mut entries = Sequence::default();
        all.iter().for_each(|entry| entries.put(entry.id(), Arc::clone(entry)));
        let by_key = Trie::of(all.into_iter().map(|entry| (hash(entry.key()), entry)).collect());
        Contents { entries, by_key, sets: Vec::new() }
    }

    /// Contents without entries, for the same comparisons.
    pub(super) fn emptied(&self) -> Contents {
        let sets = self.sets.iter().map(|(how, _)| (*how, set_of(*how))).collect();
        Contents { sets, ..Contents::default() }
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The comparisons, in the order of the sets.
    pub(super) fn comparisons(&self) -> impl Iterator<Item = Comparison> {
        self.sets.iter().map(|(how, _)| *how)
    }

    /// The first entry for which `f` returns something, by its number.
    pub(super) fn first_that<R>(&self, mut f: impl FnMut(&Arc<Entry>) -> Option<R>) -> Option<(u64, R)> {
        let mut found = None;
        self.entries.visit(0, &mut |id, entry| {
            found = f(entry).map(|made| (id, made));
            found.is_none()
        });
        found
    }

    /// Adds a set for another comparison; returns its place.
    ///
    /// # Errors
    ///
    /// The first entry that is invalid for this comparison, and why.
    pub(super) fn compare(&mut self, how: Comparison) -> Result<usize, (u64, Problem)> {
        let mut set = set_of(how);
        if let Some(set) = &mut set {
            set.fill(&self.entries)?;
        }
        self.sets.push((how, set));
        Ok(self.sets.len() - 1)
    }

    /// Adds an entry after the others.
    ///
    /// # Errors
    ///
    /// If the pattern is invalid for a set; the error says for which comparison. Nothing has changed then.
    pub(super) fn insert(&mut self, entry: &Arc<Entry>) -> Result<(), (Comparison, Problem)> {
        for at in 0..self.sets.len() {
            let (how, set) = &mut self.sets[at];
            if let Some(set) = set
                && let Err(problem) = set.insert(entry)
            {
                let how = *how;
                self.sets[..at].iter_mut().filter_map(|(_, set)| set.as_mut()).for_each(|set| set.remove(entry));
                return Err((how, problem));
            }
        }
        self.by_key.insert(hash(entry.key()), Arc::clone(entry));
        self.entries.put(entry.id(), Arc::clone(entry));
        Ok(())
    }

    /// Entries with this pattern, in order.
    pub(super) fn with_key(&self, key: &[u8]) -> Vec<Arc<Entry>> {
        self.by_key.with_hash(hash(key)).filter(|entry| entry.key() == key).cloned().collect()
    }

    /// The entry with this number.
    pub(super) fn entry(&self, id: u64) -> Option<&Arc<Entry>> {
        self.entries.get(id)
    }

    /// Removes an entry.
    pub(super) fn remove(&mut self, entry: &Entry) {
        if !self.entries.remove(entry.id()) {
            return;
        }
        self.by_key.remove(hash(entry.key()), |known| known.id() == entry.id());
        self.sets.iter_mut().filter_map(|(_, set)| set.as_mut()).for_each(|set| set.remove(entry));
    }

    /// Changes the value of an entry.
    pub(super) fn set_value(&mut self, entry: &Entry, value: &[u8]) {
        let changed = entry.with_value(value);
        self.by_key.update(hash(entry.key()), |known| {
            if known.id() == entry.id() {
                *known = Arc::clone(&changed);
            }
        });
        self.sets.iter_mut().filter_map(|(_, set)| set.as_mut()).for_each(|set| set.update(&changed));
        self.entries.put(changed.id(), changed);
    }

    /// Rebuilds indexes to include the latest additions. To be called where no worker waits: the time is proportional
    /// to the whole size.
    pub(super) fn settle(&mut self) {
        let entries = &self.entries;
        self.sets.iter_mut().filter_map(|(_, set)| set.as_mut()).for_each(|set| set.settle(entries));
    }

    /// Whether enough entries are compared one by one for [`Contents::settle`] to pay.
    pub(super) fn is_overdue(&self) -> bool {
        self.sets.iter().flat_map(|(_, set)| set).any(|set| set.is_overdue(self.len()))
    }

    /// At most `most` entries, from number `id` on.
    pub(super) fn from(&self, id: u64, most: usize) -> Vec<Arc<Entry>> {
        let mut found = Vec::with_capacity(most.min(self.len()));
        self.entries.visit(id, &mut |_, entry| {
            if found.len() < most {
                found.push(Arc::clone(entry));
            }
            found.len() < most
        });
        found
    }

    /// The entry that a sample matches in the set at place `at`.
    pub(super) fn find(&self, at: usize, value: &Value<'_>) -> Option<&Arc<Entry>> {
        let (how, set) = self.sets.get(at)?;
        match set {
            Some(set) => set.find(how.method, value, &|id| self.entries.get(id)),
            None if is_keyed(*how) => match value.bytes() {
                Some(text) => self.keyed(text),
                None => self.keyed(&value.to_text()),
            },
            None => None,
        }
    }

    /// Text ends at a NUL, as in HAProxy: otherwise `/admin%00.css` would evade a rule on `path,url_dec` that names
    /// `/admin`.
    fn keyed(&self, text: &[u8]) -> Option<&Arc<Entry>> {
        let text = &text[..memchr::memchr(0, text).unwrap_or(text.len())];
        match self.by_key.few() {
            Some(few) => few.iter().map(|(_, entry)| entry).find(|entry| entry.key() == text),
            None => self.by_key.with_hash(hash(text)).find(|entry| entry.key() == text),
        }
    }

    /// Applies `f` to the first regular expression that matches, and to its entry.
    pub(super) fn first<R>(&self, at: usize, text: &[u8], f: impl FnOnce(&Regex, &Entry) -> R) -> Option<R> {
        let (_, set) = self.sets.get(at)?;
        set.as_ref()?.first(text, &|id| self.entries.get(id), |regex, entry| f(regex, entry))
    }
}

/// Whether the entries by their keys can serve as the set.
fn is_keyed(how: Comparison) -> bool {
    how.method == Method::Str && !how.ignore_case
}

fn set_of(how: Comparison) -> Option<PatternSet> {
    if is_keyed(how) { None } else { PatternSet::new(how) }
}
