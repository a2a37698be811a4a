//! `help`, and the answer to unknown commands.

use crate::{
    commands::{SESSION, Table},
    table::{About, Mode},
};

/// How many misspelled characters a suggestion may differ by.
const TYPING_ERRORS: usize = 2;

/// The line before every list of commands.
const VALID: &str = "The following commands are valid at this level:\n";
const NEAR: &str = "Unknown command, but maybe one of the following ones is a better match:\n";
const UNKNOWN: &str = "Unknown command. Please enter one of the following commands only:\n";

/// The commands that start with `words` or are similar to them; all if there are none.
pub(crate) fn help(table: &Table, words: &[String], mode: impl Fn(Mode) -> bool) -> String {
    let entries = shown(table, mode);
    let matching = if words.is_empty() { Vec::new() } else { matching(&entries, words) };
    page(VALID, if matching.is_empty() { &entries } else { &matching })
}

/// The answer to `words` that are not a command.
pub(crate) fn unknown(table: &Table, words: &[String], mode: impl Fn(Mode) -> bool) -> String {
    let entries = shown(table, mode);
    let matching = if words.is_empty() { Vec::new() } else { matching(&entries, words) };
    if matching.is_empty() { page(UNKNOWN, &entries) } else { page(NEAR, &matching) }
}

fn shown(table: &Table, mode: impl Fn(Mode) -> bool) -> Vec<&'static About> {
    let mut entries: Vec<_> = table.entries().filter(|entry| !entry.usage.is_empty() && mode(entry.mode)).collect();
    entries.sort_by_key(|entry| entry.usage);
    entries
}

fn page(heading: &str, entries: &[&About]) -> String {
    let mut page = String::from(heading);
    for entry in entries.iter().copied().chain(SESSION.iter().map(|entry| &entry.about)) {
        page.push_str(&format!("  {:<40}: {}\n", entry.usage, entry.help));
    }
    page
}

/// The entries that start with the given words, else those that are similar.
fn matching(entries: &[&'static About], words: &[String]) -> Vec<&'static About> {
    let begun = |entry: &&&About| {
        let mut own = entry.words.split(' ');
        words.iter().take(entry.length()).all(|word| own.next().is_some_and(|own| own.starts_with(word.as_str())))
    };
    let found: Vec<_> = entries.iter().filter(begun).copied().collect();
    if !found.is_empty() {
        return found;
    }
    let errors =
        |entry: &About| -> usize { entry.words.split(' ').zip(words).map(|(own, given)| distance(own, given)).sum() };
    let near = entries.iter().filter(|entry| entry.length() <= words.len() && errors(entry) <= TYPING_ERRORS);
    near.copied().collect()
}

/// How many characters have to be changed, added or removed to turn one word into the other; counting stops a little
/// above [`TYPING_ERRORS`].
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().take(64).collect());
    if one.len().abs_diff(other.len()) > TYPING_ERRORS {
        return TYPING_ERRORS + 1;
    }
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in other.iter().enumerate() {
            let changed = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TABLE;

    fn listed(words: &str) -> Vec<String> {
        let words: Vec<String> = words.split_whitespace().map(String::from).collect();
        let page = unknown(&TABLE, &words, |mode| mode == Mode::Always);
        page.lines().skip(1).map(|line| line[2..].split_at(40).0.trim_end().to_string()).collect()
    }

    #[test]
    fn what_begins_so_is_shown_and_else_what_is_near() {
        let last = ["help [<command>]", "prompt [help | n | i | p | timed]*", "quit"];
        assert!(listed("show").iter().all(|usage| usage.starts_with("show ") || last.contains(&usage.as_str())));
        assert_eq!(listed("show ver")[0], "show version");
        assert_eq!(listed("shwo version")[0], "show version");
        assert_eq!(listed("SHOW").len(), listed("").len(), "nothing is near: all are shown");
    }

    #[test]
    fn distances() {
        for (one, other, wanted) in
            [("show", "show", 0), ("show", "shwo", 2), ("stat", "stats", 1), ("info", "inf", 1), ("a", "abcd", 3)]
        {
            assert_eq!(distance(one, other), wanted, "{one} {other}");
        }
    }
}
