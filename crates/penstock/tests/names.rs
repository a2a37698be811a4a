//! A public type's name has one home, or a line in docs/glossary.md that says what it means in each.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The types that other crates can name: by name, the crates and public modules in which they stand.
fn homes() -> BTreeMap<String, BTreeSet<String>> {
    let mut homes = BTreeMap::new();
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        let path = entry.unwrap().path();
        let source = path.join("src");
        if source.join("lib.rs").exists() {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            walk(&source.join("lib.rs"), &source, &name, &mut homes);
        }
    }
    homes
}

/// Notes the types that a module declares or re-exports, and goes on to its public modules, whose files stand in `folder`.
fn walk(file: &Path, folder: &Path, home: &str, homes: &mut BTreeMap<String, BTreeSet<String>>) {
    let text = std::fs::read_to_string(file).unwrap();
    for name in declared(&text).chain(exported(&text)) {
        homes.entry(name).or_default().insert(home.to_owned());
    }
    for line in text.lines() {
        let Some(module) = line.strip_prefix("pub mod ").and_then(|rest| rest.strip_suffix(';')) else { continue };
        let inner = folder.join(module);
        let found = [folder.join(format!("{module}.rs")), inner.join("mod.rs")].into_iter().find(|path| path.exists());
        walk(&found.expect("a module has a file"), &inner, &format!("{home}::{module}"), homes);
    }
}

/// The types declared public at the top of a file.
fn declared(text: &str) -> impl Iterator<Item = String> {
    text.lines().filter_map(|line| {
        let rest = line.strip_prefix("pub ")?;
        let rest = ["struct ", "enum ", "trait ", "type ", "union "].iter().find_map(|kind| rest.strip_prefix(kind))?;
        Some(rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?.to_owned())
    })
}

/// The types that `pub use` brings from a module of the same crate: in lower case stand modules and functions, and other crates'
/// types have their home there.
fn exported(text: &str) -> impl Iterator<Item = String> {
    let uses = text.split("\npub use ").skip(1).filter_map(|rest| Some(rest.split_once(';')?.0));
    let own =
        uses.filter(|path| !["penstock_", "rustls", "std::", "tokio"].iter().any(|other| path.starts_with(other)));
    own.flat_map(|path| path.split(|c: char| !c.is_alphanumeric() && c != '_'))
        .filter(|word| word.starts_with(|c: char| c.is_ascii_uppercase()) && word.contains(|c: char| c.is_lowercase()))
        .map(str::to_owned)
}

/// The glossary's table of names with several homes: name to homes.
fn allowed() -> BTreeMap<String, BTreeSet<String>> {
    let text = std::fs::read_to_string(root().join("docs/glossary.md")).unwrap();
    let rows = text.lines().skip_while(|line| !line.starts_with("| type |")).skip(2).take_while(|l| l.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let homes = cells[2].split(", ").map(|home| home.trim_matches('`').to_owned());
        (cells[0].trim_matches('`').to_owned(), homes.collect())
    })
    .collect()
}

#[test]
fn a_public_type_with_two_homes_is_explained_in_the_glossary() {
    let mut shared = homes();
    // A crate's own re-export at its top is the same home.
    for homes in shared.values_mut() {
        let all = homes.clone();
        homes.retain(|home| !all.iter().any(|other| home.starts_with(&format!("{other}::"))));
    }
    shared.retain(|_, homes| homes.len() > 1);
    let allowed = allowed();
    let new: Vec<_> = shared.iter().filter(|(name, homes)| allowed.get(*name) != Some(homes)).collect();
    assert!(new.is_empty(), "choose another name, or explain it in docs/glossary.md: {new:#?}");
    let gone: Vec<_> = allowed.keys().filter(|name| !shared.contains_key(*name)).collect();
    assert!(gone.is_empty(), "docs/glossary.md explains names that have one home: {gone:?}");
}

#[test]
fn declarations_and_exports_are_read() {
    let text = "\npub struct One<T>(T);\npub(crate) struct Hidden;\npub use inner::{Three, four,\n    deep::Five};\npub use penstock_rules::Six;\npub type Two = u8;\n";
    assert_eq!(declared(text).collect::<Vec<_>>(), ["One", "Two"]);
    assert_eq!(exported(text).collect::<Vec<_>>(), ["Three", "Five"]);
}
