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

/// The entries that start with the given words; else those that are similar, whose first words fit, or that have a word which
/// starts with the first one given.
fn matching(entries: &[&'static About], words: &[String]) -> Vec<&'static About> {
    let words: Vec<String> = words.iter().map(|word| word.to_lowercase()).collect();
    let starts = |own: &str, given: &String| own.starts_with(given.as_str());
    let selected = |wanted: &dyn Fn(&About) -> bool| -> Vec<&'static About> {
        entries.iter().filter(|entry| wanted(entry)).copied().collect()
    };
    let begin = selected(&|entry| entry.words.split(' ').zip(&words).all(|(own, given)| starts(own, given)));
    if !begin.is_empty() {
        return begin;
    }
    let near = selected(&|entry| entry.length() <= words.len() && errors(entry, &words) <= TYPING_ERRORS);
    if !near.is_empty() {
        return near;
    }
    // Of `set ssl nothing`, the commands that begin with `set ssl`.
    let fitting = |entry: &About| entry.words.split(' ').zip(&words).take_while(|(own, given)| own == given).count();
    let most = entries.iter().map(|entry| fitting(entry)).max().unwrap_or(0);
    if most > 0 {
        return selected(&|entry| fitting(entry) == most);
    }
    let first = words.first().filter(|first| !first.is_empty());
    selected(&|entry| first.is_some_and(|first| entry.words.split(' ').any(|own| starts(own, first))))
}

/// How many characters of these words are not those of the entry; one that has little in common with its own word is worse than
/// any typing error.
fn errors(entry: &About, words: &[String]) -> usize {
    let of_word = |(own, given): (&str, &String)| match distance(own, given) {
        errors if errors * 2 > given.len() => TYPING_ERRORS + 1,
        errors => errors,
    };
    entry.words.split(' ').zip(words).map(of_word).sum()
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
        assert_eq!(listed("SHOW INFO")[0], "show info [desc|json|typed|float]*");
        let (ssl, all) = (listed("set ssl nothing"), listed(""));
        assert!(
            ssl.len() > last.len()
                && ssl.iter().all(|usage| usage.starts_with("set ssl ") || last.contains(&usage.as_str()))
        );
        assert!(listed("stat").iter().any(|usage| usage.starts_with("show stat")));
        assert!(listed("set foo").iter().all(|usage| usage != "user"));
        assert_eq!(listed("xyzzy").len(), all.len(), "nothing is near: all are shown");
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
