//! The tables, for people and programs: every keyword with its place, class and meaning.

use crate::{
    bind, global,
    keyword::{Arity, Keyword, Places, Support, Table},
    others, proxy, server,
};

/// One keyword of one kind of section.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// `global`, `proxy` (for `defaults`, `frontend`, `listen` and `backend`), `bind`, `server`, `userlist`...
    pub section: &'static str,
    /// As the manual writes it.
    pub name: &'static str,
    /// For `proxy`: in which of its sections.
    pub places: Places,
    /// How many words follow.
    pub arity: Arity,
    /// Whether `no` may stand before it.
    pub negatable: bool,
    /// Its class.
    pub support: Support,
    /// What it means, in a few words.
    pub doc: &'static str,
}

/// All of them, section by section.
pub fn keywords() -> Vec<Entry> {
    let mut all = Vec::new();
    add(&mut all, &global::TABLE);
    add(&mut all, &proxy::TABLE);
    add(&mut all, &bind::TABLE);
    add(&mut all, &server::TABLE);
    add(&mut all, &others::USERLIST);
    add(&mut all, &others::RESOLVERS);
    add(&mut all, &others::PEERS);
    add(&mut all, &others::CRT_STORE);
    add(&mut all, &others::HTTP_ERRORS);
    for table in others::OTHERS {
        add(&mut all, table);
    }
    all
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
