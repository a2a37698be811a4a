//! Patterns that may occur anywhere in a text.

use super::{
    entry::{Entry, Live, is_overdue},
    sequence::Sequence,
};
use aho_corasick::{AhoCorasick, MatchKind};
use std::sync::Arc;

/// Patterns of `sub`: most are in an automaton that finds all of them at once, and recent additions are tried one by
/// one.
#[derive(Clone, Debug)]
pub(super) struct PartSet {
    ignore_case: bool,
    base: Option<Arc<Base>>,
    recent: Sequence<Box<[u8]>>,
}

#[derive(Debug)]
struct Base {
    automaton: AhoCorasick,
    ids: Box<[u64]>,
}

impl PartSet {
    pub(super) fn new(ignore_case: bool) -> PartSet {
        PartSet { ignore_case, base: None, recent: Sequence::default() }
    }

    pub(super) fn insert(&mut self, entry: &Entry) {
        let mut text: Box<[u8]> = entry.key().into();
        if self.ignore_case {
            text.make_ascii_lowercase();
        }
        self.recent.put(entry.id(), text);
    }

    pub(super) fn remove(&mut self, entry: &Entry) {
        // If it is in the automaton, its number tells that it has been removed.
        self.recent.remove(entry.id());
    }

    /// Whether [`PartSet::settle`] pays for a list of `live` entries.
    pub(super) fn is_overdue(&self, live: usize) -> bool {
        is_overdue(self.base.as_ref().map_or(0, |base| base.ids.len()), self.recent.len(), live)
    }

    /// Rebuilds the automaton with all patterns, if enough are outside it.
    pub(super) fn settle(&mut self, entries: &Sequence<Arc<Entry>>) {
        if !self.is_overdue(entries.len()) {
            return;
        }
        let mut ids = Vec::with_capacity(entries.len());
        let mut texts = Vec::with_capacity(entries.len());
        entries.visit(0, &mut |id, entry| {
            ids.push(id);
            texts.push(entry.key());
            true
        });
        let automaton = AhoCorasick::builder()
            .ascii_case_insensitive(self.ignore_case)
            .match_kind(MatchKind::Standard)
            .build(texts);
        // If there is more text than an automaton can number, patterns are compared one by one.
        let Ok(automaton) = automaton else { return };
        self.base = Some(Arc::new(Base { automaton, ids: ids.into() }));
        self.recent = Sequence::default();
    }

    /// One of the patterns that the text contains.
    pub(super) fn find<'s>(&'s self, text: &[u8], live: Live<'_, 's>) -> Option<&'s Arc<Entry>> {
        let in_base = self.base.as_ref().and_then(|base| {
            let id = |found: aho_corasick::PatternID| base.ids[found.as_usize()];
            // Overlapping matches are needed, since a removed pattern must not hide one that starts inside it.
            live(id(base.automaton.find(text)?.pattern()))
                .or_else(|| base.automaton.find_overlapping_iter(text).find_map(|found| live(id(found.pattern()))))
        });
        if in_base.is_some() || self.recent.len() == 0 {
            return in_base;
        }
        let lowered;
        let text = if self.ignore_case {
            lowered = text.to_ascii_lowercase();
            &lowered
        } else {
            text
        };
        let mut found = None;
        self.recent.visit(0, &mut |id, part| {
            if memchr::memmem::find(text, part).is_some() {
                found = live(id);
            }
            found.is_none()
        });
        found
    }
}
