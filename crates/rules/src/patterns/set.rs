//! The patterns of one list, prepared for one comparison.

use super::{
    comparison::{Comparison, Method},
    entry::{Entry, Live},
    ints::IntSet,
    ips::{self, IpSet},
    parts::PartSet,
    regs::RegSet,
    sequence::Sequence,
    texts::TextSet,
};
use crate::{
    problem::Problem,
    regexes::Regex,
    value::{Type, Value},
};
use std::sync::Arc;

/// Patterns ready to be compared. A copy shares nearly everything with the original.
#[derive(Clone, Debug)]
pub(super) enum PatternSet {
    /// Numbers, and lengths of text.
    Int(IntSet),
    Ip(IpSet),
    Text(TextSet),
    Part(PartSet),
    Reg(RegSet),
}

impl PatternSet {
    /// An empty set. `None` for methods that compare with no patterns.
    pub(super) fn new(how: Comparison) -> Option<PatternSet> {
        Some(match how.method {
            Method::Found | Method::Bool => return None,
            Method::Int | Method::Len => PatternSet::Int(IntSet::new(how.dotted)),
            Method::Ip => PatternSet::Ip(IpSet::default()),
            Method::Sub => PatternSet::Part(PartSet::new(how.ignore_case)),
            Method::Reg => PatternSet::Reg(RegSet::new(how.ignore_case)),
            _ => PatternSet::Text(TextSet::new(how)),
        })
    }

    /// Adds all these to an empty set.
    ///
    /// # Errors
    ///
    /// The first that is invalid, and why; the set is of no use then.
    pub(super) fn fill(&mut self, entries: &Sequence<Arc<Entry>>) -> Result<(), (u64, Problem)> {
        let each = |add: &mut dyn FnMut(&Arc<Entry>) -> Result<(), Problem>| {
            let mut outcome = Ok(());
            entries.visit(0, &mut |id, entry| {
                outcome = add(entry).map_err(|problem| (id, problem));
                outcome.is_ok()
            });
            outcome
        };
        if let PatternSet::Ip(set) = self {
            let mut filling = ips::Filling::default();
            each(&mut |entry| filling.insert(entry))?;
            *set = filling.done();
        } else {
            each(&mut |entry| self.insert(entry))?;
            self.settle(entries);
        }
        Ok(())
    }

    /// Adds a pattern.
    ///
    /// # Errors
    ///
    /// If the pattern is invalid; the set is unchanged then.
    pub(super) fn insert(&mut self, entry: &Arc<Entry>) -> Result<(), Problem> {
        match self {
            PatternSet::Int(set) => set.insert(entry),
            PatternSet::Ip(set) => set.insert(entry),
            PatternSet::Text(set) => set.insert(entry),
            PatternSet::Part(set) => {
                set.insert(entry);
                Ok(())
            }
            PatternSet::Reg(set) => set.insert(entry),
        }
    }

    pub(super) fn remove(&mut self, entry: &Entry) {
        match self {
            PatternSet::Int(set) => set.remove(entry),
            PatternSet::Ip(set) => set.remove(entry),
            PatternSet::Text(set) => set.remove(entry),
            PatternSet::Part(set) => set.remove(entry),
            PatternSet::Reg(set) => set.remove(entry),
        }
    }

    /// Called when the value of an entry has changed.
    pub(super) fn update(&mut self, entry: &Arc<Entry>) {
        match self {
            PatternSet::Int(set) => set.update(entry),
            PatternSet::Ip(set) => set.update(entry),
            PatternSet::Text(set) => set.update(entry),
            // They store numbers.
            PatternSet::Part(_) | PatternSet::Reg(_) => {}
        }
    }

    /// Rebuilds the index to include recent additions, if that pays. The time is proportional to the whole set.
    pub(super) fn settle(&mut self, entries: &Sequence<Arc<Entry>>) {
        match self {
            PatternSet::Part(set) => set.settle(entries),
            PatternSet::Reg(set) => set.settle(entries),
            PatternSet::Int(_) | PatternSet::Ip(_) | PatternSet::Text(_) => {}
        }
    }

    /// Whether [`PatternSet::settle`] pays for a list of `live` entries.
    pub(super) fn is_overdue(&self, live: usize) -> bool {
        match self {
            PatternSet::Part(set) => set.is_overdue(live),
            PatternSet::Reg(set) => set.is_overdue(live),
            PatternSet::Int(_) | PatternSet::Ip(_) | PatternSet::Text(_) => false,
        }
    }

    /// The pattern that matches a sample: the most specific network or prefix, else the first.
    pub(super) fn find<'s>(&'s self, method: Method, value: &Value<'_>, live: Live<'_, 's>) -> Option<&'s Arc<Entry>> {
        match self {
            PatternSet::Int(set) if method == Method::Len => {
                with_text(value, |text| set.find(i64::try_from(text.len()).unwrap_or(i64::MAX), live))
            }
            PatternSet::Int(set) => set.find(value.to_int()?, live),
            PatternSet::Ip(set) => match value {
                Value::Ipv4(ip) => set.find_v4(*ip),
                Value::Ipv6(ip) => set.find_v6(*ip),
                other => match other.borrowed().cast(Type::Addr)? {
                    Value::Ipv4(ip) => set.find_v4(ip),
                    Value::Ipv6(ip) => set.find_v6(ip),
                    _ => None,
                },
            },
            // Numbers and addresses are compared by their binary form.
            PatternSet::Text(set) if method == Method::Bin => set.find(value.borrowed().cast(Type::Bin)?.bytes()?),
            PatternSet::Text(set) => with_text(value, |text| set.find(text)),
            PatternSet::Part(set) => with_text(value, |text| set.find(text, live)),
            PatternSet::Reg(set) => with_text(value, |text| set.first(text, live, |_, entry| entry)),
        }
    }

    /// Applies `f` to the first regular expression that matches, and to its entry.
    pub(super) fn first<'s, R>(
        &'s self,
        text: &[u8],
        live: Live<'_, 's>,
        f: impl FnOnce(&Regex, &'s Arc<Entry>) -> R,
    ) -> Option<R> {
        match self {
            PatternSet::Reg(set) => set.first(text, live, f),
            _ => None,
        }
    }
}

/// Passes the text form of a sample to `f`; it is only created for numbers and addresses.
fn with_text<T>(value: &Value<'_>, f: impl FnOnce(&[u8]) -> T) -> T {
    match value.bytes() {
        Some(text) => f(text),
        None => f(&value.to_text()),
    }
}
