//! Commands about stick tables.

use crate::{Level, Refusal, table::Entry};

/// A command about stick tables. What may follow the table's name depends on what the table stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tables {
    /// Shows all tables, or one with the entries that the words select.
    Show {
        /// The table's name.
        name: Option<String>,
        /// What selects entries.
        words: Vec<String>,
        /// Whether the answer is JSON.
        json: bool,
    },
    /// Creates an entry, or changes what it stores.
    Set(String, Vec<String>),
    /// Removes the entries that the words select.
    Clear(String, Vec<String>),
}

pub(crate) const ENTRIES: &[Entry<Tables>] = &[
    Entry::new(
        "clear table",
        "clear table <table> [<filter>]*",
        "remove an entry from a table (filter: data/key/ptr)",
        |args| {
            const REQUIRED: &str =
                "Required arguments: <table> \"data.<store_data_type>\" <operator> <value> or <table> key <key> or <table> ptr <ptr>";
            let name = args.require(REQUIRED)?;
            Ok(Tables::Clear(name, args.rest()))
        },
    )
    .level(Level::Operator)
    .changes("the entries of a stick table"),
    Entry::new(
        "set table",
        "set table <table> [<filter>]* [data.* <v>]*",
        "update or create a table entry's data",
        |args| {
            let Some(name) = args.word() else {
                return Err(Refusal::new("Required arguments: <table> key <key> [data.<store_data_type> <value>]*"));
            };
            Ok(Tables::Set(name, args.rest()))
        },
    )
    .level(Level::Operator)
    .changes("an entry of a stick table"),
    Entry::new(
        "show table",
        "show table <table> [<filter>]*",
        "report table usage stats or dump this table's contents (filter: data/key/ptr)",
        |args| {
            let (name, words) = (args.word(), args.rest());
            Ok(shown(name, words))
        },
    ),
];

/// Takes a last word `json` where it cannot be a key, which follows `key`, or a value, which is the last of three words.
fn shown(name: Option<String>, mut words: Vec<String>) -> Tables {
    let complete = match words.first().map(String::as_str) {
        Some("key" | "ptr") => words.len() == 3,
        _ => words.len() % 3 == 1,
    };
    let json = complete && words.last().is_some_and(|word| word == "json");
    if json {
        words.pop();
    }
    match name {
        Some(name) if name == "json" && words.is_empty() && !json => Tables::Show { name: None, words, json: true },
        name => Tables::Show { name, words, json },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_no_key_and_no_value() {
        for (line, wanted) in [
            ("", "- 0 false"),
            ("json", "- 0 true"),
            ("t", "t 0 false"),
            ("t json", "t 0 true"),
            ("json json", "json 0 true"),
            ("t key json", "t 2 false"),
            ("t key json json", "t 2 true"),
            ("t data.gpc0 gt 1", "t 3 false"),
            ("t data.gpc0 gt 1 json", "t 3 true"),
            ("t data.gpc0 gt json", "t 3 false"),
        ] {
            let mut words = line.split_whitespace().map(String::from);
            let name = words.next();
            let Tables::Show { name, words, json } = shown(name, words.collect()) else { unreachable!("it shows") };
            let seen = format!("{} {} {json}", name.as_deref().unwrap_or("-"), words.len());
            assert_eq!(seen, wanted, "{line}");
        }
    }
}
