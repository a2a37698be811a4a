//! Commands about stick tables.

use crate::{Level, Refusal, table::Entry};

/// A command about stick tables. What may follow the table's name depends on what the table stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tables {
    /// Shows all tables, or one with the entries that the words select.
    Show(Option<String>, Vec<String>),
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
                "Required arguments: <table> \"data.<store_data_type>\" <operator> <value> or <table> key <key>";
            let name = args.require(REQUIRED)?;
            Ok(Tables::Clear(name, args.rest()))
        },
    )
    .level(Level::Operator)
    .changes("the entries of a stick table"),
    Entry::new(
        "set table",
        "set table <table> key <k> [data.* <v>]*",
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
        |args| Ok(Tables::Show(args.word(), args.rest())),
    ),
];
