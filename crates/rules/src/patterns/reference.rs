//! Lists and maps, as rules and operators name them.
//!
//! All rules that read one file share one reference, whatever comparisons they use. Workers read its contents without a
//! lock: they are never modified but replaced as a whole, so that a worker sees a change in every rule or in none. A
//! change copies only what it touches (see [`super::trie`]). Writers wait for each other, but never for a bulk load:
//! new versions are filled a few entries at a time.

use super::{
    comparison::{Comparison, Method},
    contents::Contents,
    entry::Entry,
};
use crate::{
    problem::Problem,
    value::{Type, Value},
};
use arc_swap::ArcSwap;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
};

/// A list or map, from a file or written in an `acl` line.
#[derive(Debug)]
pub struct Reference {
    /// The file's name as written; empty for patterns written in an `acl` line.
    name: String,
    /// The list's number, once all are assigned.
    id: AtomicU32,
    /// Whether the list was read with values, so that changing it means changing a map.
    is_map: bool,
    /// Whether some `acl` reads it.
    in_acl: AtomicBool,
    /// A description of its readers, for people.
    description: Mutex<String>,
    /// The contents that workers see.
    contents: ArcSwap<Contents>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The types of values that rules want, in the order of the sets; `None` for ACLs, which use no values.
    outputs: Vec<Option<Type>>,
    /// The version that workers see.
    current: u32,
    /// The last version that was announced.
    next: u32,
    /// Versions that are being filled.
    coming: BTreeMap<u32, Contents>,
    next_entry: u64,
    /// Contents that workers may still be reading, oldest first. Dropping the last reference to a million entries takes
    /// a while, and must not happen in a worker.
    retired: VecDeque<(Arc<Contents>, Change)>,
    /// Incremented with each change to a version that is being filled.
    revision: u64,
}

/// How much retired contents share with their successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// Retired contents share nearly everything with their successor.
    Few,
    /// Retired contents may share nothing with their successor.
    Whole,
}

/// A summary of a reference, for the list of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The list's number.
    pub id: u32,
    /// The file's name; empty for patterns written in an `acl` line.
    pub name: String,
    /// A description of its readers.
    pub description: String,
    /// The version that rules see.
    pub current: u32,
    /// The last version that was announced.
    pub next: u32,
    /// Entries of all versions, counted once for each comparison.
    pub entries: usize,
}

/// Why a change to a reference was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeError {
    /// The version has not been announced.
    Future,
    /// The version is not between the current one and the last announced.
    OutOfRange,
    /// No entry has this key or number.
    NotFound,
    /// The pattern is invalid for the comparison of some rule.
    Pattern {
        /// The comparison.
        how: Method,
        /// The pattern.
        key: Vec<u8>,
        /// The error.
        problem: Problem,
    },
    /// This value does not have the type that some rule wants.
    Value(Vec<u8>),
}

/// The entries that a change applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which<'a> {
    /// All entries with this pattern.
    Key(&'a [u8]),
    /// The entry with this number.
    Id(u64),
}

/// How one rule reads a reference.
#[derive(Clone, Debug)]
pub struct Reading {
    reference: Arc<Reference>,
    how: Comparison,
    /// The type of the values it wants; `None` in an ACL.
    output: Option<Type>,
    /// The index of its set.
    at: usize,
}

/// The result of matching a sample by one of the comparisons of a reference.
#[derive(Clone, Debug, PartialEq)]
pub struct Match {
    /// The comparison.
    pub how: Comparison,
    /// The type of value that the rule wants; `None` for an ACL.
    pub output: Option<Type>,
    /// The entry found.
    pub entry: Option<Arc<Entry>>,
}

/// The entries of one version at the time of the call.
#[derive(Clone, Debug)]
pub struct View(Arc<Contents>);

impl View {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// At most `most` entries, in order, from the first whose number is at least `id`.
    pub fn from(&self, id: u64, most: usize) -> Vec<Arc<Entry>> {
        self.0.from(id, most)
    }
}

impl Reference {
    /// A reference with these entries.
    pub fn new<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        name: &str,
        is_map: bool,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Arc<Reference> {
        let numbered = (1..).zip(entries);
        let entries: Vec<_> = numbered.map(|(id, (key, value))| Entry::new(id, key.as_ref(), value.as_ref())).collect();
        let next_entry = entries.len() as u64 + 1;
        let contents = Contents::new(entries);
        Arc::new(Reference {
            name: name.to_owned(),
            id: AtomicU32::new(u32::MAX),
            is_map,
            in_acl: AtomicBool::new(false),
            description: Mutex::default(),
            contents: ArcSwap::from_pointee(contents),
            state: Mutex::new(State { next_entry, ..State::default() }),
        })
    }

    /// Adds a reader with a comparison, sharing the set of an earlier reader if that has the same one.
    ///
    /// # Errors
    ///
    /// The index of the first entry that is invalid for this comparison, and why.
    pub fn reading(self: &Arc<Self>, how: Comparison, output: Option<Type>) -> Result<Reading, (usize, Problem)> {
        let mut state = self.state();
        let mut contents = Contents::clone(&self.contents.load());
        // Before any change, entries are numbered from 1.
        let place = |id: u64| usize::try_from(id - 1).unwrap_or(usize::MAX);
        if let Some(output) = output {
            let wrong = contents.first_that(|entry| typed(entry.value(), output).err());
            if let Some((id, problem)) = wrong {
                return Err((place(id), problem));
            }
        }
        let known = contents.comparisons().zip(&state.outputs).position(|known| known == (how, &output));
        let at = match known {
            Some(at) => at,
            None => {
                let at = contents.compare(how).map_err(|(id, problem)| (place(id), problem))?;
                state.outputs.push(output);
                self.contents.store(Arc::new(contents));
                at
            }
        };
        Ok(Reading { reference: Arc::clone(self), how, output, at })
    }

    /// The file's name; empty for patterns written in an `acl` line.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Whether the list has values.
    pub fn is_map(&self) -> bool {
        self.is_map
    }
    /// Whether an `acl` reads the list.
    pub fn is_acl(&self) -> bool {
        self.in_acl.load(Relaxed)
    }
    /// The list's number.
    pub fn id(&self) -> u32 {
        self.id.load(Relaxed)
    }
    pub(crate) fn number(&self, id: u32) {
        self.id.store(id, Relaxed);
    }
    /// Adds a reader to the description.
    pub(crate) fn describe(&self, reader: &str, acl: bool) {
        self.in_acl.fetch_or(acl, Relaxed);
        let mut text = self.description.lock().unwrap_or_else(PoisonError::into_inner);
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push_str(reader);
    }

    /// A summary of the reference.
    pub fn summary(&self) -> Summary {
        let description = self.description.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let state = self.state();
        let entries = self.contents.load().len() + state.coming.values().map(Contents::len).sum::<usize>();
        let State { current, next, .. } = *state;
        let entries = entries * state.outputs.len();
        Summary { id: self.id(), name: self.name.clone(), description, current, next, entries }
    }

    /// The entries of a version, by default the current one; empty if the version does not exist.
    pub fn view(&self, version: Option<u32>) -> View {
        let state = self.state();
        match version {
            Some(version) if version != state.current => {
                View(Arc::new(state.coming.get(&version).cloned().unwrap_or_default()))
            }
            _ => View(self.contents.load_full()),
        }
    }

    /// What a sample, given as text, matches by each comparison of the reference.
    pub fn matches(&self, text: &[u8]) -> Vec<Match> {
        let outputs = self.state().outputs.clone();
        let contents = self.contents.load();
        let sample = Value::str(text);
        let each = contents.comparisons().zip(outputs).enumerate();
        each.map(|(at, (how, output))| Match { how, output, entry: contents.find(at, &sample).cloned() }).collect()
    }

    /// Announces a new version to be filled, and returns its number.
    pub fn prepare(&self) -> u32 {
        let mut state = self.state();
        state.next = state.next.wrapping_add(1);
        state.next
    }

    /// Appends entries to a version, by default the current one. Other changes may come between two of them.
    ///
    /// # Errors
    ///
    /// If a pattern or a value is invalid, or the version does not exist. The entries before it have been added.
    pub fn add<'e>(
        &self,
        version: Option<u32>,
        entries: impl IntoIterator<Item = (&'e [u8], &'e [u8])>,
    ) -> Result<(), ChangeError> {
        // How many entries are added before other writers get their turn.
        const AT_ONCE: usize = 64;
        let mut entries = entries.into_iter().peekable();
        while entries.peek().is_some() {
            self.change(version, |contents, state| {
                entries.by_ref().take(AT_ONCE).try_for_each(|(key, value)| state.add(contents, key, value))
            })?;
        }
        Ok(())
    }

    /// Changes the value of entries of the current version.
    ///
    /// # Errors
    ///
    /// If there are none, or the value is invalid. Nothing has changed then.
    pub fn set(&self, which: Which<'_>, value: &[u8]) -> Result<(), ChangeError> {
        self.change(None, |contents, state| state.set(contents, which, value))
    }

    /// Changes the value of entries of the current version, or adds an entry if none has the pattern (`set-map`,
    /// `add-acl`).
    ///
    /// # Errors
    ///
    /// If the pattern or the value is invalid. Nothing has changed then.
    pub fn set_or_add(&self, key: &[u8], value: &[u8]) -> Result<(), ChangeError> {
        self.change(None, |contents, state| match state.set(contents, Which::Key(key), value) {
            Err(ChangeError::NotFound) => state.add(contents, key, value),
            done => done,
        })
    }

    /// Removes entries of the current version.
    ///
    /// # Errors
    ///
    /// If there are none.
    pub fn remove(&self, which: Which<'_>) -> Result<(), ChangeError> {
        self.change(None, |contents, _| {
            let found = found(contents, which)?;
            found.iter().for_each(|entry| contents.remove(entry));
            Ok(())
        })
    }

    /// Removes all entries of a version, by default the current one.
    pub fn clear(&self, version: Option<u32>) {
        let mut state = self.state();
        match version {
            Some(version) if version != state.current => {
                let old = state.coming.remove(&version);
                drop(state);
                drop(old);
            }
            _ => {
                let emptied = self.contents.load().emptied();
                state.publish(&self.contents, emptied, Change::Whole);
            }
        }
    }

    /// Makes every rule of every worker use a version from now on, atomically; older versions are dropped.
    ///
    /// # Errors
    ///
    /// If the version was not announced after the current one.
    pub fn commit(&self, version: u32) -> Result<(), ChangeError> {
        let mut state = self.state();
        let ahead = version.wrapping_sub(state.current);
        if ahead == 0 || ahead > state.next.wrapping_sub(state.current) {
            return Err(ChangeError::OutOfRange);
        }
        if let Some(unsettled) = state.coming.get(&version).filter(|contents| contents.is_overdue()) {
            // Workers that change the list meanwhile must not wait.
            let (mut settled, revision) = (unsettled.clone(), state.revision);
            drop(state);
            settled.settle();
            state = self.state();
            // If it was changed meanwhile, `tidy` will build the index.
            if state.revision == revision && state.coming.contains_key(&version) {
                state.coming.insert(version, settled);
            }
        }
        let ahead = version.wrapping_sub(state.current);
        if ahead == 0 || ahead > state.next.wrapping_sub(state.current) {
            return Err(ChangeError::OutOfRange);
        }
        let contents = state.coming.remove(&version).unwrap_or_else(|| self.contents.load().emptied());
        let past: Vec<u32> = state.coming.keys().copied().filter(|v| v.wrapping_sub(version) as i32 <= 0).collect();
        let past: Vec<Option<Contents>> = past.iter().map(|v| state.coming.remove(v)).collect();
        state.current = version;
        state.publish(&self.contents, contents, Change::Whole);
        drop(state);
        drop(past);
        Ok(())
    }

    /// Does deferred work: frees contents that are no longer read, and builds indexes of recent additions. The time is
    /// proportional to both, so it is not for workers. Returns whether any work is left.
    pub fn tidy(&self) -> bool {
        if self.contents.load().is_overdue() {
            let before = self.contents.load_full();
            let mut contents = Contents::clone(&before);
            contents.settle();
            let mut state = self.state();
            // If it was changed meanwhile, the next call does it.
            if Arc::ptr_eq(&before, &self.contents.load()) {
                state.publish(&self.contents, contents, Change::Whole);
            }
        }
        loop {
            let mut state = self.state();
            // In order, because the first holds what only it and its successor have in common.
            let free = state.retired.front().is_some_and(|(old, _)| Arc::strong_count(old) == 1);
            let Some(old) = free.then(|| state.retired.pop_front()).flatten() else {
                return !state.retired.is_empty();
            };
            drop(state);
            drop(old);
        }
    }

    /// Whether [`Reference::tidy`] has anything to do.
    pub fn is_untidy(&self) -> bool {
        self.contents.load().is_overdue() || !self.state().retired.is_empty()
    }

    /// Changes a version by making a copy that shares nearly everything with it.
    fn change(
        &self,
        version: Option<u32>,
        change: impl FnOnce(&mut Contents, &mut State) -> Result<(), ChangeError>,
    ) -> Result<(), ChangeError> {
        let mut state = self.state();
        let version = version.unwrap_or(state.current);
        if (version.wrapping_sub(state.next) as i32) > 0 {
            return Err(ChangeError::Future);
        }
        if (version.wrapping_sub(state.current) as i32) < 0 {
            return Err(ChangeError::OutOfRange);
        }
        if version == state.current {
            let mut contents = Contents::clone(&self.contents.load());
            let done = change(&mut contents, &mut state);
            // The entries before the invalid one have been added.
            state.publish(&self.contents, contents, Change::Few);
            return done;
        }
        let mut contents = state.coming.remove(&version).unwrap_or_else(|| self.contents.load().emptied());
        let done = change(&mut contents, &mut state);
        state.coming.insert(version, contents);
        state.revision += 1;
        done
    }

    /// Sets the version number, as after that many commits.
    #[cfg(test)]
    pub(super) fn start_at(&self, version: u32) {
        let mut state = self.state();
        (state.current, state.next) = (version, version);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Contents are changed in a copy that is not visible, so a panic leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Makes workers see other contents from now on.
    fn publish(&mut self, seen: &ArcSwap<Contents>, contents: Contents, change: Change) {
        // If `tidy` is never called, contents are freed all the same.
        const MOST: usize = 1024;
        self.retired.push_back((seen.swap(Arc::new(contents)), change));
        while let Some((old, change)) = self.retired.front() {
            let cheap = *change == Change::Few && Arc::strong_count(old) == 1;
            if !cheap && self.retired.len() <= MOST {
                break;
            }
            self.retired.pop_front();
        }
    }

    fn check(&self, value: &[u8]) -> Result<(), ChangeError> {
        let fits = self.outputs.iter().flatten().all(|&output| typed(value, output).is_ok());
        if fits { Ok(()) } else { Err(ChangeError::Value(value.to_vec())) }
    }

    fn add(&mut self, contents: &mut Contents, key: &[u8], value: &[u8]) -> Result<(), ChangeError> {
        self.check(value)?;
        contents.insert(&Entry::new(self.next_entry, key, value)).map_err(|(how, problem)| ChangeError::Pattern {
            how: how.method,
            key: key.to_vec(),
            problem,
        })?;
        self.next_entry += 1;
        Ok(())
    }

    fn set(&mut self, contents: &mut Contents, which: Which<'_>, value: &[u8]) -> Result<(), ChangeError> {
        let found = found(contents, which)?;
        self.check(value)?;
        found.iter().for_each(|entry| contents.set_value(entry, value));
        Ok(())
    }
}

fn found(contents: &Contents, which: Which<'_>) -> Result<Vec<Arc<Entry>>, ChangeError> {
    let found = match which {
        Which::Key(key) => contents.with_key(key),
        Which::Id(id) => contents.entry(id).cloned().into_iter().collect(),
    };
    if found.is_empty() { Err(ChangeError::NotFound) } else { Ok(found) }
}

impl Reading {
    /// The reference that is read.
    pub fn reference(&self) -> &Arc<Reference> {
        &self.reference
    }
    /// The type of the values it returns.
    pub fn output(&self) -> Type {
        self.output.unwrap_or(Type::Str)
    }

    /// Whether a sample matches a pattern.
    pub fn matches(&self, value: &Value<'_>) -> bool {
        match self.how.method {
            Method::Found => true,
            Method::Bool => value.to_int().is_some_and(|n| n != 0),
            _ => self.reference.contents.load().find(self.at, value).is_some(),
        }
    }

    /// The value of the matching pattern.
    pub fn lookup(&self, value: &Value<'_>) -> Option<Value<'static>> {
        let contents = self.reference.contents.load();
        typed(contents.find(self.at, value)?.value(), self.output()).ok()
    }

    /// The pattern that matches, as it is written.
    pub fn key_of(&self, value: &Value<'_>) -> Option<Value<'static>> {
        let contents = self.reference.contents.load();
        Some(Value::string(contents.find(self.at, value)?.key()))
    }

    /// The value of the first matching regular expression, with its groups filled in.
    pub fn rewrite(&self, text: &[u8]) -> Option<Vec<u8>> {
        let contents = self.reference.contents.load();
        contents.first(self.at, text, |regex, entry| {
            let mut out = Vec::new();
            regex.rewrite(text, entry.value(), &mut out);
            out
        })
    }
}

/// Converts a map's value to the type that the converter returns.
///
/// # Errors
///
/// If it is not a valid number or address.
pub(crate) fn typed(text: &[u8], output: Type) -> Result<Value<'static>, Problem> {
    let known = || std::str::from_utf8(text).ok();
    let value = match output {
        Type::Int => known().and_then(|text| text.parse().ok()).map(Value::Int),
        Type::Addr => known().and_then(|text| text.parse().ok()).map(Value::ip),
        _ => Some(Value::string(text)),
    };
    value.ok_or_else(|| {
        let text = String::from_utf8_lossy(text);
        Problem::new(0..text.len(), format!("'{text}' is not a value of type {output}"))
    })
}
