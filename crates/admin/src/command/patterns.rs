//! Commands that show and change maps and ACLs while rules read them.

use super::{Answer, Executor, Piece};
use penstock_control::{PatternAction, PatternKey, PatternKind, Patterns, PatternsOf, Severity};
use penstock_rules::{
    Type,
    patterns::{ChangeError, Entry, Match, Method, Reference, Summary, View, Which},
};
use serde_json::{Value as Json, json};
use std::{sync::Arc, time::Duration};

impl Executor {
    pub(super) fn patterns(&self, Patterns { kind, action }: Patterns) -> Answer {
        match action {
            PatternAction::List { json } => self.lists(kind, json),
            PatternAction::Show { of: PatternsOf { name, version }, json } => match self.list(kind, &name) {
                Ok(list) if json => objects(&list.view(version), list.is_map()),
                Ok(list) => show(&list.view(version), list.is_map()),
                Err(unknown) => unknown,
            },
            PatternAction::Get(name, sample) => match self.list(kind, &name) {
                Ok(list) => {
                    let found = list.matches(&sample);
                    Answer::data(found.iter().map(|found| line_of(found, kind)).collect::<Vec<_>>().concat())
                }
                Err(unknown) => unknown,
            },
            PatternAction::Add(PatternsOf { name, version }, entries) => match self.list(kind, &name) {
                Ok(list) if kind == PatternKind::Map || !list.is_map() => add(list, kind, version, entries),
                Err(unknown) if self.list(PatternKind::Map, &name).is_err() => unknown,
                _ => Answer::error(
                    "This ACL is shared with a map containing samples. You must use the command 'add map' to add values.",
                ),
            },
            PatternAction::Set(name, key, value) => match self.list(kind, &name) {
                Ok(list) => changed(
                    &list,
                    kind,
                    list.set(which(&key), &value),
                    match key {
                        PatternKey::Pattern(_) => "entry not found.",
                        PatternKey::Number(_) => "key or pattern not found.",
                    },
                ),
                Err(unknown) => unknown,
            },
            PatternAction::Delete(name, key) => match self.list(kind, &name) {
                Ok(list) => changed(&list, kind, list.remove(which(&key)), "Key not found."),
                Err(_) => unknown(PatternKind::Map),
            },
            PatternAction::Clear(PatternsOf { name, version }) => match self.list(kind, &name) {
                Ok(list) => beside(list, move |list| {
                    list.clear(version);
                    Ok(())
                }),
                Err(unknown) => unknown,
            },
            PatternAction::Prepare(name) => match self.list(kind, &name) {
                Ok(list) => Answer::info(format!("New version created: {}", list.prepare())),
                Err(unknown) => unknown,
            },
            PatternAction::Commit(version, name) => match self.list(kind, &name) {
                Ok(list) => beside(list, move |list| list.commit(version).map_err(|error| sentence(&error, kind, ""))),
                Err(unknown) => unknown,
            },
        }
    }

    /// `show map` and `show acl` without a name.
    fn lists(&self, kind: PatternKind, json: bool) -> Answer {
        let of_kind = self.handle.references().iter().filter(|list| is(list, kind));
        let summaries: Vec<Summary> = of_kind.map(|list| list.summary()).collect();
        if json {
            let object = |list: Summary| {
                let Summary { id, name, description, current, next, entries } = list;
                json!({
                    "id": id, "file": name, "description": description, "curr_ver": current, "next_ver": next, "entry_cnt": entries,
                })
            };
            return Answer::data(format!("{}\n", summaries.into_iter().map(object).collect::<Json>()));
        }
        let lines = summaries.into_iter().map(|list| {
            let Summary { id, name, description, current, next, entries } = list;
            format!("{id} ({name}) {description}. curr_ver={current} next_ver={next} entry_cnt={entries}\n")
        });
        Answer::lines(std::iter::once("# id (file) description\n".to_owned()).chain(lines))
    }

    /// The list with the client's name for it.
    fn list(&self, kind: PatternKind, name: &str) -> Result<Arc<Reference>, Answer> {
        list_named(self.handle.references(), kind, name).cloned().ok_or_else(|| unknown(kind))
    }
}

/// Finds a list of this kind by the client's name for it: `#` and its number, or its file.
pub fn list_named<'a>(lists: &'a [Arc<Reference>], kind: PatternKind, name: &str) -> Option<&'a Arc<Reference>> {
    let mut lists = lists.iter().filter(|list| is(list, kind));
    match name.strip_prefix('#') {
        Some(number) => number.parse::<u32>().ok().and_then(|id| lists.find(|list| list.id() == id)),
        None => lists.find(|list| list.name() == name && !name.is_empty()),
    }
}

fn is(list: &Reference, kind: PatternKind) -> bool {
    match kind {
        PatternKind::Map => list.is_map(),
        PatternKind::Acl => list.is_acl(),
    }
}

fn unknown(kind: PatternKind) -> Answer {
    Answer::error(match kind {
        PatternKind::Map => "Unknown map identifier. Please use #<id> or <file>.",
        PatternKind::Acl => "Unknown ACL identifier. Please use #<id> or <file>.",
    })
}

fn which(key: &PatternKey) -> Which<'_> {
    match key {
        PatternKey::Pattern(pattern) => Which::Key(pattern),
        PatternKey::Number(id) => Which::Id(*id),
    }
}

/// How many entries are written or added at a time.
const AT_ONCE: usize = 128;

/// The entries with their numbers, as of the time of the command.
fn show(view: &View, is_map: bool) -> Answer {
    let view = view.clone();
    let mut next = 0;
    Answer::pieces(std::iter::from_fn(move || {
        let some = view.from(next, AT_ONCE);
        next = some.last()?.id() + 1;
        let mut piece = Vec::new();
        for entry in some {
            piece.extend(format!("{:#x} ", entry.id()).bytes());
            piece.extend_from_slice(entry.key());
            if is_map {
                piece.push(b' ');
                piece.extend_from_slice(entry.value());
            }
            piece.push(b'\n');
        }
        Some(Piece::Data(piece))
    }))
}

/// Lists the entries as JSON objects.
fn objects(view: &View, is_map: bool) -> Answer {
    let view = view.clone();
    let (mut next, mut begun, mut ended) = (0, false, false);
    Answer::pieces(std::iter::from_fn(move || {
        let some = view.from(next, AT_ONCE);
        let Some(last) = some.last() else {
            let end = if begun { "]\n" } else { "[]\n" };
            return (!std::mem::replace(&mut ended, true)).then(|| Piece::Data(end.into()));
        };
        next = last.id() + 1;
        let mut piece = String::new();
        for entry in some {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let mut object = json!({ "id": format!("{:#x}", entry.id()), "key": text(entry.key()) });
            if is_map {
                object["value"] = json!(text(entry.value()));
            }
            piece.push(if std::mem::replace(&mut begun, true) { ',' } else { '[' });
            piece.push_str(&object.to_string());
        }
        Some(Piece::Data(piece.into_bytes()))
    }))
}

/// What a sample matched by one of the comparisons that rules use.
fn line_of(found: &Match, kind: PatternKind) -> Vec<u8> {
    let Match { how, output, entry } = found;
    let case = if how.ignore_case { "insensitive" } else { "sensitive" };
    let word = if kind == PatternKind::Map { "found" } else { "match" };
    let mut line = format!("type={}, case={case}, {word}=", how.name()).into_bytes();
    let Some(entry) = entry else {
        line.extend(b"no\n");
        return line;
    };
    // HAProxy says in which of its two data structures it found it.
    let tree = matches!(how.method, Method::Str | Method::Beg | Method::Ip) && !how.ignore_case;
    line.extend(format!("yes, idx={}, ", if tree { "tree" } else { "list" }).bytes());
    let mut quoted = |name: &str, text: &[u8]| {
        line.extend(name.bytes());
        line.extend(b"=\"");
        line.extend_from_slice(text);
        line.push(b'"');
    };
    match (kind, output) {
        (PatternKind::Acl, _) => quoted("pattern", entry.key()),
        (PatternKind::Map, None) => {
            quoted("key", entry.key());
            line.extend(b", value=none");
        }
        (PatternKind::Map, Some(output)) => {
            quoted("key", entry.key());
            quoted(", value", entry.value());
            quoted(", type", type_of(*output, entry).as_bytes());
        }
    }
    line.push(b'\n');
    line
}

/// HAProxy's name for the type of a value.
fn type_of(output: Type, entry: &Entry) -> &'static str {
    match output {
        Type::Int => "sint",
        Type::Addr if entry.value().contains(&b':') => "ipv6",
        Type::Addr => "ipv4",
        _ => "str",
    }
}

fn add(list: Arc<Reference>, kind: PatternKind, version: Option<u32>, entries: Vec<(Vec<u8>, Vec<u8>)>) -> Answer {
    let few = entries.len() <= AT_ONCE;
    let add = move |list: &Reference| list.add(version, entries.iter().map(|(key, value)| (&key[..], &value[..])));
    if few {
        let done = add(&list);
        return changed(&list, kind, done, "");
    }
    beside(list, move |list| add(list).map_err(|error| sentence(&error, kind, "")))
}

/// The answer to a change that was quick.
fn changed(list: &Arc<Reference>, kind: PatternKind, done: Result<(), ChangeError>, missing: &str) -> Answer {
    match done {
        Ok(()) if list.is_untidy() => beside(Arc::clone(list), |_| Ok(())),
        Ok(()) => Answer::nothing(),
        Err(error) => Answer::error(sentence(&error, kind, missing)),
    }
}

/// Does slow work on a thread of its own, and then frees what is no longer read.
fn beside(list: Arc<Reference>, work: impl FnOnce(&Reference) -> Result<(), String> + Send + 'static) -> Answer {
    /// A worker reads for microseconds. Whatever is still being read after this many turns is left for the next change.
    const TURNS: usize = 100;
    Answer::beside("patterns", move |pieces| {
        if let Err(sentence) = work(&list) {
            pieces.say(Severity::Error, sentence);
        }
        for _ in 0..TURNS {
            if !list.tidy() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    })
}

/// Why nothing was changed, in HAProxy's words.
fn sentence(error: &ChangeError, kind: PatternKind, missing: &str) -> String {
    let word = if kind == PatternKind::Map { "map" } else { "acl" };
    match error {
        ChangeError::Future => format!("Version number in the future, please use 'prepare {word}' before."),
        ChangeError::OutOfRange => "Version number out of range.".to_owned(),
        ChangeError::NotFound => missing.to_owned(),
        ChangeError::Value(value) => format!("unable to parse '{}'.", String::from_utf8_lossy(value)),
        ChangeError::Pattern { how, key, problem } => {
            let key = String::from_utf8_lossy(key);
            match how {
                Method::Ip => format!("'{key}' is not a valid IPv4 or IPv6 address."),
                Method::Int | Method::Len => format!("'{key}' is not a number."),
                Method::Bin => match key.chars().find(|digit| !digit.is_ascii_hexdigit()) {
                    Some(wrong) => format!("an hex digit is expected (found '{wrong}')."),
                    None => "an even number of hex digit is expected.".to_owned(),
                },
                Method::Reg => {
                    // The problem repeats the expression before it says what is wrong.
                    let why = problem.message.rsplit_once(": ").map_or(&*problem.message, |(_, why)| why);
                    format!("regex '{key}' is invalid ({why}).")
                }
                _ => problem.message.clone(),
            }
        }
    }
}
