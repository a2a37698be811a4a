//! Numbers and ranges of numbers.

use super::{
    entry::{Entry, Live},
    sequence::Sequence,
    trie::{Trie, hash},
};
use crate::problem::Problem;
use std::sync::Arc;

/// Numbers, which are hashed, and ranges that include both ends, which are tried one after another.
#[derive(Clone, Debug, Default)]
pub(super) struct IntSet {
    dotted: bool,
    numbers: Trie<(i64, Arc<Entry>)>,
    ranges: Sequence<(i64, i64)>,
}

impl IntSet {
    /// An empty set; with `dotted`, `3.1` is 3 × 65536 + 1.
    pub(super) fn new(dotted: bool) -> IntSet {
        IntSet { dotted, ..IntSet::default() }
    }

    /// Adds `5`, `5:9`, `5:` or `:9`.
    ///
    /// # Errors
    ///
    /// If the pattern is none of these.
    pub(super) fn insert(&mut self, entry: &Arc<Entry>) -> Result<(), Problem> {
        let (low, high) = self.read(entry)?;
        if low == high {
            self.numbers.insert(hash_of(low), (low, Arc::clone(entry)));
        } else {
            self.ranges.put(entry.id(), (low, high));
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, entry: &Entry) {
        match self.read(entry) {
            Ok((low, high)) if low == high => {
                self.numbers.remove(hash_of(low), |(_, known)| known.id() == entry.id());
            }
            _ => {
                self.ranges.remove(entry.id());
            }
        }
    }

    pub(super) fn update(&mut self, entry: &Arc<Entry>) {
        if let Ok((low, high)) = self.read(entry)
            && low == high
        {
            self.numbers.update(hash_of(low), |(_, known)| {
                if known.id() == entry.id() {
                    *known = Arc::clone(entry);
                }
            });
        }
    }

    /// The first pattern that contains the number.
    pub(super) fn find<'s>(&'s self, n: i64, live: Live<'_, 's>) -> Option<&'s Arc<Entry>> {
        let number = match self.numbers.few() {
            Some(few) => few.iter().map(|(_, item)| item).find(|(known, _)| *known == n),
            None => self.numbers.with_hash(hash_of(n)).find(|(known, _)| *known == n),
        };
        let mut range = None;
        self.ranges.visit(0, &mut |id, (low, high)| {
            if (*low..=*high).contains(&n) {
                range = live(id);
            }
            range.is_none()
        });
        [number.map(|(_, entry)| entry), range].into_iter().flatten().min_by_key(|entry| entry.id())
    }

    fn read(&self, entry: &Entry) -> Result<(i64, i64), Problem> {
        let text = String::from_utf8_lossy(entry.key());
        let number = |part: &str| -> Option<i64> {
            match part.split_once('.') {
                Some((major, minor)) if self.dotted => {
                    Some((major.parse::<i64>().ok()? << 16) + minor.parse::<i64>().ok()?)
                }
                _ if self.dotted => Some(part.parse::<i64>().ok()? << 16),
                _ => part.parse().ok(),
            }
        };
        let range = match text.split_once(':') {
            None => number(&text).map(|n| (n, n)),
            Some((low, high)) => {
                let low = if low.is_empty() { Some(i64::MIN) } else { number(low) };
                let high = if high.is_empty() { Some(i64::MAX) } else { number(high) };
                low.zip(high)
            }
        };
        range
            .filter(|(low, high)| text != ":" && low <= high)
            .ok_or_else(|| Problem::new(0..text.len(), format!("'{text}' is neither a number nor a range such as 1:9")))
    }
}

fn hash_of(n: i64) -> u64 {
    hash(&n.to_be_bytes())
}
