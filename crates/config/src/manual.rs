//! The tables, for people and programs: every keyword with its place, class and meaning.

use crate::{
    bind, cache, chain, global,
    keyword::{Arity, Keyword, Places, Support, Table},
    log_forward, mailers, others, peers, proxy, ring, server, spoe,
};
use std::{fmt::Write, sync::OnceLock};

/// One keyword of one kind of section.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The section: `global`, `proxy` (for `defaults`, `frontend`, `listen` and `backend`), `bind`, `server`, `userlist`...
    pub section: &'static str,
    /// The keyword's name as the manual writes it.
    pub name: &'static str,
    /// For section `proxy`: the kinds of proxy section in which the keyword may stand.
    pub places: Places,
    /// How many words follow the keyword.
    pub arity: Arity,
    /// Whether `no` may stand before the keyword.
    pub negatable: bool,
    /// How far the keyword is supported.
    pub support: Support,
    /// What the keyword means, in a few words.
    pub doc: &'static str,
}

/// All keywords, section by section.
pub fn keywords() -> Vec<Entry> {
    entries().to_vec()
}

pub(crate) fn entries() -> &'static [Entry] {
    static ENTRIES: OnceLock<Vec<Entry>> = OnceLock::new();
    ENTRIES.get_or_init(collect)
}

fn collect() -> Vec<Entry> {
    let mut all = Vec::new();
    add(&mut all, &global::TABLE);
    add(&mut all, &proxy::TABLE);
    add(&mut all, &bind::TABLE);
    add(&mut all, &server::TABLE);
    add(&mut all, &chain::TABLE);
    add(&mut all, &spoe::AGENT);
    add(&mut all, &spoe::MESSAGE);
    add(&mut all, &spoe::GROUP);
    add(&mut all, &others::USERLIST);
    add(&mut all, &others::PROGRAM);
    add(&mut all, &others::RESOLVERS);
    add(&mut all, &peers::TABLE);
    add(&mut all, &mailers::TABLE);
    add(&mut all, &others::NAMESPACE_LIST);
    add(&mut all, &others::CRT_STORE);
    add(&mut all, &others::HTTP_ERRORS);
    add(&mut all, &cache::TABLE);
    add(&mut all, &ring::TABLE);
    add(&mut all, &log_forward::TABLE);
    for table in others::OTHERS {
        add(&mut all, table);
    }
    all
}

/// The compatibility matrix, `docs/keywords.md`. `proof` gives the link to the test of a section's keyword.
pub fn matrix(proof: impl Fn(&str, &str) -> String) -> String {
    let all = keywords();
    let count = |f: fn(&Support) -> bool| all.iter().filter(|k| f(&k.support)).count();
    let mut out = format!(
        "# Keywords\n\nEvery keyword of HAProxy's configuration that is known here: {} of them. {} are implemented, {} \
         are read without effect (a NOTICE says why), {} are refused (the message says what to write instead). This page \
         is made from the tables in `crates/config` and `tests/proofs.tsv`; a test compares it with them.\n\n\
         D defaults, N defaults with a name only, F frontend, L listen, B backend, S service.\n",
        all.len(),
        count(|s| matches!(s, Support::Implemented)),
        count(|s| matches!(s, Support::Accepted(_))),
        count(|s| matches!(s, Support::Refused { .. })),
    );
    let mut section = "";
    for entry in sorted(&all) {
        if entry.section != section {
            section = entry.section;
            let place = if section == "proxy" { " Where |" } else { "" };
            let line = if section == "proxy" { "---|" } else { "" };
            let title = match section {
                "proxy" => "defaults, frontend, listen, backend, service",
                other => other,
            };
            let _ = write!(
                out,
                "\n## {title}\n\n| Keyword |{place} Class | Meaning | Shown by |\n|---|{line}---|---|---|\n"
            );
        }
        let place = if section == "proxy" { format!(" {} |", letters(entry.places)) } else { String::new() };
        let no = if entry.negatable { "[no] " } else { "" };
        let (class, doc) = match entry.support {
            Support::Implemented => ("implemented", entry.doc.to_owned()),
            Support::Accepted(why) => ("no effect", format!("{}: {why}", entry.doc)),
            Support::Refused { why, instead } => ("refused", format!("{}: {why}; {instead}", entry.doc)),
        };
        let shown = match entry.support {
            Support::Implemented => proof(entry.section, entry.name),
            _ => String::new(),
        };
        let _ = writeln!(out, "| `{no}{}` |{place} {class} | {} | {shown} |", entry.name, doc.replace('|', "\\|"));
    }
    out
}

/// The entries by name within each section; the sections keep their order.
fn sorted(all: &[Entry]) -> Vec<Entry> {
    let mut sections: Vec<&str> = Vec::new();
    for entry in all {
        if !sections.contains(&entry.section) {
            sections.push(entry.section);
        }
    }
    let mut list = all.to_vec();
    list.sort_by_key(|e| (sections.iter().position(|s| *s == e.section), e.name));
    list
}

fn letters(places: Places) -> String {
    let letter = |place, letter| if places.has(place) { letter } else { '-' };
    let defaults = if places.has(Places::NAMED_DEFAULTS) { 'N' } else { letter(Places::DEFAULTS, 'D') };
    [defaults, letter(Places::FRONTEND, 'F'), letter(Places::LISTEN, 'L'), letter(Places::BACKEND, 'B')]
        .into_iter()
        .chain(places.has(Places::SERVICE).then_some('S'))
        .collect()
}

fn add<T>(all: &mut Vec<Entry>, table: &Table<T>) {
    all.extend(table.keywords().map(|k: &Keyword<T>| Entry {
        section: table.section,
        name: k.name,
        places: k.places,
        arity: k.arity,
        negatable: k.negatable,
        support: k.support,
        doc: k.doc,
    }));
}
