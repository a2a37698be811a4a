//! Pattern lists and maps read from files.

use super::{Method, Pattern, PatternSet};
use crate::{
    keyword::Problem,
    value::{Type, Value},
};
use std::sync::{PoisonError, RwLock};

/// One line of a map.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The pattern.
    pub pattern: Pattern,
    /// What it maps to.
    pub value: Value<'static>,
}

/// A list or map that rules refer to by its name, and that actions may change while the process runs.
#[derive(Debug)]
pub struct PatternFile {
    /// The file's name as written, by which it is known.
    pub name: String,
    /// How its patterns are compared.
    pub method: Method,
    /// The type of the values of a map.
    pub output: Type,
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    entries: Vec<Entry>,
    set: PatternSet,
}

impl PatternFile {
    /// Compiles a list or map.
    ///
    /// # Errors
    /// The place of the first pattern that cannot be read, and why.
    pub fn new(name: &str, method: Method, output: Type, entries: Vec<Entry>) -> Result<Self, (usize, Problem)> {
        let set = compile(method, &entries)?;
        Ok(PatternFile { name: name.to_owned(), method, output, state: RwLock::new(State { entries, set }) })
    }

    /// Whether a pattern matches.
    pub fn matches(&self, value: &Value<'_>) -> bool {
        self.state.read().unwrap_or_else(PoisonError::into_inner).set.find(value).is_some()
    }

    /// What the matching pattern maps to.
    pub fn lookup(&self, value: &Value<'_>) -> Option<Value<'static>> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let at = state.set.find(value)?;
        state.entries.get(at as usize).map(|entry| entry.value.clone())
    }

    /// What the first matching regular expression maps to, with its groups filled in.
    pub fn rewrite(&self, text: &[u8]) -> Option<Vec<u8>> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let PatternSet::Reg(list) = &state.set else { return None };
        list.first(text, |regex, at| {
            let mut out = Vec::new();
            regex.rewrite(text, state.entries.get(at as usize)?.value.bytes()?, &mut out);
            Some(out)
        })?
    }

    /// Patterns in it.
    pub fn len(&self) -> usize {
        self.state.read().unwrap_or_else(PoisonError::into_inner).entries.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a pattern, or gives the one that is there another value. Rebuilds the set, so it is for changes now and
    /// then, not for every request.
    ///
    /// # Errors
    /// When the pattern or the value cannot be read; nothing is changed then.
    pub fn set(&self, pattern: &str, value: &str) -> Result<(), Problem> {
        let value = typed(value, self.output)?;
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = state.entries.iter_mut().find(|entry| entry.pattern.text == pattern) {
            entry.value = value;
            return Ok(());
        }
        let mut entries = state.entries.clone();
        entries.push(Entry { pattern: Pattern { text: pattern.to_owned(), ignore_case: false }, value });
        let set = compile(self.method, &entries).map_err(|(_, problem)| problem)?;
        *state = State { entries, set };
        Ok(())
    }

    /// Removes a pattern; whether it was there.
    pub fn remove(&self, pattern: &str) -> bool {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let entries: Vec<Entry> = state.entries.iter().filter(|entry| entry.pattern.text != pattern).cloned().collect();
        if entries.len() == state.entries.len() {
            return false;
        }
        if let Ok(set) = compile(self.method, &entries) {
            *state = State { entries, set };
        }
        true
    }
}

fn compile(method: Method, entries: &[Entry]) -> Result<PatternSet, (usize, Problem)> {
    let patterns: Vec<Pattern> = entries.iter().map(|entry| entry.pattern.clone()).collect();
    PatternSet::new(method, &patterns, false)
}

/// A value of a map as its converter's type wants it.
pub(crate) fn typed(text: &str, output: Type) -> Result<Value<'static>, Problem> {
    let value = match output {
        Type::Int => text.parse().ok().map(Value::Int),
        Type::Addr => text.parse().ok().map(Value::ip),
        _ => Some(Value::string(penstock_config::bytes_of(text))),
    };
    value.ok_or_else(|| Problem::new(0..text.len(), format!("`{text}` is no value of type {output}")))
}

/// Lines that hold a pattern, with their numbers: spaces before it go, empty lines and those that begin with `#` too.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.starts_with('#'))
        .map(|(at, line)| (at + 1, line.trim_start_matches([' ', '\t']).trim_end_matches('\r')))
        .filter(|(_, line)| !line.is_empty())
}

/// The patterns of a list, with their line numbers.
pub fn parse_list(text: &str) -> Vec<(usize, String)> {
    lines(text).map(|(at, line)| (at, line.to_owned())).collect()
}

/// The patterns of a map with their values and line numbers: a space or tab ends the pattern.
pub fn parse_map(text: &str) -> Vec<(usize, String, String)> {
    lines(text)
        .map(|(at, line)| {
            let (key, value) = line.split_once([' ', '\t']).unwrap_or((line, ""));
            (at, key.to_owned(), value.trim_matches([' ', '\t']).to_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_read_as_the_manual_says() {
        let map = parse_map("# comment\n\n  a.example  bk1 \n#b x\n #c\tbk2\nplain\r\n");
        let expected = [(3, "a.example", "bk1"), (5, "#c", "bk2"), (6, "plain", "")];
        assert_eq!(map, expected.map(|(at, key, value)| (at, key.to_owned(), value.to_owned())));
    }

    #[test]
    fn a_map_changes_while_it_is_used() {
        let entry = |text: &str, value: &str| Entry {
            pattern: Pattern { text: text.into(), ignore_case: false },
            value: Value::string(value),
        };
        let file = PatternFile::new("m", Method::Str, Type::Str, vec![entry("a", "1")]).unwrap();
        file.set("b", "2").unwrap();
        file.set("a", "9").unwrap();
        assert_eq!(file.lookup(&Value::str(b"a")), Some(Value::string("9")));
        assert_eq!(file.lookup(&Value::str(b"b")), Some(Value::string("2")));
        assert!(file.remove("a") && !file.remove("a"));
        assert_eq!(file.lookup(&Value::str(b"a")), None);
    }
}
