//! Lists and maps by the names that rules and operators have for them.
//!
//! All rules that read one file share one reference, whatever way each compares. Workers read its contents without a lock:
//! they are never changed, but replaced as a whole, so that a worker sees all of a change in every rule or nothing of it. A
//! change copies what it touches (see [`super::trie`]), and whoever changes waits for the others who do, never for a load: new
//! versions are filled in turns of a few entries.

use super::{Comparison, Method, contents::Contents, entry::Entry};
use crate::{
    keyword::Problem,
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
    /// Its number, once all are known.
    id: AtomicU32,
    /// Read with values, so that changing it is changing a map.
    is_map: bool,
    /// Some `acl` reads it.
    in_acl: AtomicBool,
    /// Who reads it, for people.
    description: Mutex<String>,
    /// What workers see.
    contents: ArcSwap<Contents>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Types of values that rules want, in the order of the sets; `None` for ACLs, which want none.
    outputs: Vec<Option<Type>>,
    /// The version workers see.
    current: u32,
    /// The last version that was announced.
    next: u32,
    /// Versions that are being filled.
    coming: BTreeMap<u32, Contents>,
    next_entry: u64,
    /// Contents that workers may still be reading, oldest first. The last who lets go of a million entries takes a while to
    /// free them, and that shall not be a worker.
    retired: VecDeque<(Arc<Contents>, Change)>,
    /// Grows with each change of a version that is being filled.
    revision: u64,
}

/// How contents were left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// The next share nearly all of them.
    Few,
    /// The next may share nothing with them.
    Whole,
}

/// What is known of a reference, for a list of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Its number.
    pub id: u32,
    /// The file's name; empty for patterns written in an `acl` line.
    pub name: String,
    /// Who reads it.
    pub description: String,
    /// The version that rules see.
    pub current: u32,
    /// The last version that was announced.
    pub next: u32,
    /// Entries of all versions, once for each way they are compared.
    pub entries: usize,
}

/// Why a reference was not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeError {
    /// The version has not been announced.
    Future,
    /// The version is not between the current one and the last announced.
    OutOfRange,
    /// No entry has the key or the number.
    NotFound,
    /// The pattern is none for the way some rule compares.
    Pattern {
        /// The way.
        how: Method,
        /// The pattern.
        key: Vec<u8>,
        /// What is wrong.
        problem: Problem,
    },
    /// This value is none of the type some rule wants.
    Value(Vec<u8>),
}

/// Which entries a change is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which<'a> {
    /// All with this pattern.
    Key(&'a [u8]),
    /// The one with this number.
    Id(u64),
}

/// How one rule reads a reference.
#[derive(Clone, Debug)]
pub struct Reading {
    reference: Arc<Reference>,
    how: Comparison,
    /// The type of the values it wants, `None` in an ACL.
    output: Option<Type>,
    /// Place of its set.
    at: usize,
}

/// What a sample matches in one of the ways a reference is read.
#[derive(Clone, Debug, PartialEq)]
pub struct Match {
    /// How it is compared.
    pub how: Comparison,
    /// The type of value that the rule wants; an ACL wants none.
    pub output: Option<Type>,
    /// What it found.
    pub entry: Option<Arc<Entry>>,
}

/// The entries of one version as they were when asked for.
#[derive(Clone, Debug)]
pub struct View(Arc<Contents>);

impl View {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Whether there is none.
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

    /// Has it read in one more way, or in one that others share.
    ///
    /// # Errors
    /// The place of the first entry that cannot be read this way, from 0, and why.
    pub fn reading(self: &Arc<Self>, how: Comparison, output: Option<Type>) -> Result<Reading, (usize, Problem)> {
        let mut state = self.state();
        let mut contents = Contents::clone(&self.contents.load());
        // Before anything changes them, entries are numbered from 1.
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
    /// Whether it has values.
    pub fn is_map(&self) -> bool {
        self.is_map
    }
    /// Whether an `acl` reads it.
    pub fn is_acl(&self) -> bool {
        self.in_acl.load(Relaxed)
    }
    /// Its number.
    pub fn id(&self) -> u32 {
        self.id.load(Relaxed)
    }
    pub(crate) fn number(&self, id: u32) {
        self.id.store(id, Relaxed);
    }
    /// Notes one more reader.
    pub(crate) fn describe(&self, reader: &str, acl: bool) {
        self.in_acl.fetch_or(acl, Relaxed);
        let mut text = self.description.lock().unwrap_or_else(PoisonError::into_inner);
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push_str(reader);
    }

    /// What is known of it.
    pub fn summary(&self) -> Summary {
        let description = self.description.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let state = self.state();
        let entries = self.contents.load().len() + state.coming.values().map(Contents::len).sum::<usize>();
        let State { current, next, .. } = *state;
        let entries = entries * state.outputs.len();
        Summary { id: self.id(), name: self.name.clone(), description, current, next, entries }
    }

    /// The entries of a version, of the current one without. One that does not exist has none.
    pub fn view(&self, version: Option<u32>) -> View {
        let state = self.state();
        match version {
            Some(version) if version != state.current => {
                View(Arc::new(state.coming.get(&version).cloned().unwrap_or_default()))
            }
            _ => View(self.contents.load_full()),
        }
    }

    /// What a sample, as text, matches in each way the reference is read.
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

    /// Adds entries at the end of a version, of the current one without. Other changes may come between two of them.
    ///
    /// # Errors
    /// When a pattern or a value cannot be read, or there is no such version. What stands before it has been added.
    pub fn add<'e>(
        &self,
        version: Option<u32>,
        entries: impl IntoIterator<Item = (&'e [u8], &'e [u8])>,
    ) -> Result<(), ChangeError> {
        // How many are added before others get their turn.
        const AT_ONCE: usize = 64;
        let mut entries = entries.into_iter().peekable();
        while entries.peek().is_some() {
            self.change(version, |contents, state| {
                entries.by_ref().take(AT_ONCE).try_for_each(|(key, value)| state.add(contents, key, value))
            })?;
        }
        Ok(())
    }

    /// Gives entries of the current version another value.
    ///
    /// # Errors
    /// When there are none, or the value cannot be read. Nothing has changed then.
    pub fn set(&self, which: Which<'_>, value: &[u8]) -> Result<(), ChangeError> {
        self.change(None, |contents, state| state.set(contents, which, value))
    }

    /// Gives entries of the current version another value, or adds one where no entry has the pattern (`set-map`, `add-acl`).
    ///
    /// # Errors
    /// When the pattern or the value cannot be read. Nothing has changed then.
    pub fn set_or_add(&self, key: &[u8], value: &[u8]) -> Result<(), ChangeError> {
        self.change(None, |contents, state| match state.set(contents, Which::Key(key), value) {
            Err(ChangeError::NotFound) => state.add(contents, key, value),
            done => done,
        })
    }

    /// Removes entries of the current version.
    ///
    /// # Errors
    /// When there are none.
    pub fn remove(&self, which: Which<'_>) -> Result<(), ChangeError> {
        self.change(None, |contents, _| {
            let found = found(contents, which)?;
            found.iter().for_each(|entry| contents.remove(entry));
            Ok(())
        })
    }

    /// Removes all entries of a version, of the current one without.
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

    /// Has every rule of every worker see a version from now on, in one step; older ones are forgotten.
    ///
    /// # Errors
    /// When the version is not one that was announced after the current one.
    pub fn commit(&self, version: u32) -> Result<(), ChangeError> {
        let mut state = self.state();
        let ahead = version.wrapping_sub(state.current);
        if ahead == 0 || ahead > state.next.wrapping_sub(state.current) {
            return Err(ChangeError::OutOfRange);
        }
        if let Some(unsettled) = state.coming.get(&version).filter(|contents| contents.is_overdue()) {
            // Workers that change the list meanwhile shall not wait.
            let (mut settled, revision) = (unsettled.clone(), state.revision);
            drop(state);
            settled.settle();
            state = self.state();
            // If somebody went on filling it, `tidy` makes the index.
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

    /// Does what changes left to be done later: frees contents that nobody reads any more, and makes indexes of what was
    /// added. Takes time in proportion to both, so it is not for workers. Whether anything is left.
    pub fn tidy(&self) -> bool {
        if self.contents.load().is_overdue() {
            let before = self.contents.load_full();
            let mut contents = Contents::clone(&before);
            contents.settle();
            let mut state = self.state();
            // If somebody has changed it meanwhile, the next time does.
            if Arc::ptr_eq(&before, &self.contents.load()) {
                state.publish(&self.contents, contents, Change::Whole);
            }
        }
        loop {
            let mut state = self.state();
            // In order: the first holds what only it and the next have in common.
            let free = state.retired.front().is_some_and(|(old, _)| Arc::strong_count(old) == 1);
            let Some(old) = free.then(|| state.retired.pop_front()).flatten() else {
                return !state.retired.is_empty();
            };
            drop(state);
            drop(old);
        }
    }

    /// Whether [`Reference::tidy`] has something to do.
    pub fn is_untidy(&self) -> bool {
        self.contents.load().is_overdue() || !self.state().retired.is_empty()
    }

    /// Changes a version by a copy that shares nearly everything with it.
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
            // What stands before the one that is wrong has been added.
            state.publish(&self.contents, contents, Change::Few);
            return done;
        }
        let mut contents = state.coming.remove(&version).unwrap_or_else(|| self.contents.load().emptied());
        let done = change(&mut contents, &mut state);
        state.coming.insert(version, contents);
        state.revision += 1;
        done
    }

    /// As if so many versions had been committed.
    #[cfg(test)]
    pub(super) fn start_at(&self, version: u32) {
        let mut state = self.state();
        (state.current, state.next) = (version, version);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Contents are changed beside those that are seen, so a panic leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Has workers see other contents from now on.
    fn publish(&mut self, seen: &ArcSwap<Contents>, contents: Contents, change: Change) {
        // A process in which nobody calls `tidy` frees them all the same.
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
    /// What is read.
    pub fn reference(&self) -> &Arc<Reference> {
        &self.reference
    }
    /// The type of the values it gives.
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

    /// What the matching pattern maps to.
    pub fn lookup(&self, value: &Value<'_>) -> Option<Value<'static>> {
        let contents = self.reference.contents.load();
        typed(contents.find(self.at, value)?.value(), self.output()).ok()
    }

    /// What the first matching regular expression maps to, with its groups filled in.
    pub fn rewrite(&self, text: &[u8]) -> Option<Vec<u8>> {
        let contents = self.reference.contents.load();
        contents.first(self.at, text, |regex, entry| {
            let mut out = Vec::new();
            regex.rewrite(text, entry.value(), &mut out);
            out
        })
    }
}

/// A value of a map as its converter's type wants it.
///
/// # Errors
/// When it is no number or no address where one is wanted.
pub(crate) fn typed(text: &[u8], output: Type) -> Result<Value<'static>, Problem> {
    let known = || std::str::from_utf8(text).ok();
    let value = match output {
        Type::Int => known().and_then(|text| text.parse().ok()).map(Value::Int),
        Type::Addr => known().and_then(|text| text.parse().ok()).map(Value::ip),
        _ => Some(Value::string(text)),
    };
    value.ok_or_else(|| {
        let text = String::from_utf8_lossy(text);
        Problem::new(0..text.len(), format!("`{text}` is no value of type {output}"))
    })
}
