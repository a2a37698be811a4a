//! Our tables against HAProxy's own manual: every keyword it describes is in one of them, and our reference is fresh.

#[path = "../../../tests/reference.rs"]
mod reference;

#[path = "../../../tests/proof.rs"]
mod proof;

use penstock_rules::{ACTIONS, Kind, Places, Support, conv, criteria, fetch, log, manual};
use std::{collections::BTreeSet, path::Path, process::Command};

/// The lines of the configuration manual of HAProxy 3.0, which is unpacked with it.
fn haproxys_manual() -> Option<Vec<String>> {
    let program = reference::haproxy_30()?;
    let path = program.parent()?.join("../share/doc/haproxy/configuration.txt.gz");
    let output = Command::new("gzip").arg("-dc").arg(&path).output().expect("gzip runs");
    assert!(output.status.success(), "{}: {}", path.display(), String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

/// The lines from the heading that begins with `from`, underlined, to the one that begins with `to`.
fn section<'l>(lines: &'l [String], from: &str, to: &str) -> &'l [String] {
    let heading = |name: &str| {
        lines
            .windows(2)
            .position(|pair| pair[0].starts_with(name) && pair[1].starts_with("---"))
            .unwrap_or_else(|| panic!("the manual has a section {name}"))
    };
    &lines[heading(from) + 2..heading(to)]
}

/// Words at the beginning of a line that describe a keyword: `name`, `name(args)`, `name : type`.
fn keywords(lines: &[String]) -> BTreeSet<String> {
    let keyword = |line: &&String| {
        let rest = line.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || "._-+".contains(c));
        let name = &line[..line.len() - rest.len()];
        let described = rest.is_empty() || rest.starts_with('(') || rest.trim_start().starts_with(':');
        // Prose begins at the first column too; its words stand in sentences, or are these.
        let prose =
            ["converters", "support", "bitwise", "which", "performed", "set-cookie", "map_match", "map_match_output"]
                .contains(&name);
        (name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            && described
            && !prose
            && !rest.contains(". ")
            && name != "of")
            .then(|| name.to_owned())
    };
    lines.iter().filter_map(|line| keyword(&line)).collect()
}

#[test]
fn every_fetch_of_the_manual_is_known() {
    let Some(lines) = haproxys_manual() else { return };
    let described = keywords(section(&lines, "7.3.2. Fetching", "7.4. Pre-defined"));
    assert!(described.len() > 350, "only {} found: the manual is laid out in another way", described.len());
    let known: BTreeSet<String> = fetch::names().map(str::to_owned).chain(criteria()).collect();
    let missing: Vec<_> = described.iter().filter(|name| !known.contains(*name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_converter_of_the_manual_is_known() {
    let Some(lines) = haproxys_manual() else { return };
    let described = keywords(section(&lines, "7.3.1. Converters", "7.3.2. Fetching"));
    assert!(described.len() > 100, "only {} found: the manual is laid out in another way", described.len());
    let missing: Vec<_> = described.iter().filter(|name| conv::find(name).is_none()).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_alias_of_log_formats_is_known() {
    let Some(lines) = haproxys_manual() else { return };
    let rows = lines.iter().filter(|line| line.starts_with("  |"));
    let described: BTreeSet<&str> =
        rows.filter_map(|line| line.split('|').nth(2)?.trim().strip_prefix('%')).filter(|name| *name != "o").collect();
    assert!(described.len() > 55, "only {} found: the manual is laid out in another way", described.len());
    let missing: Vec<_> =
        described.iter().filter(|name| !log::ALIASES.iter().any(|alias| alias.name == **name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_action_of_the_manual_is_known_where_it_may_stand() {
    let Some(lines) = haproxys_manual() else { return };
    // The columns of the manual's table.
    const COLUMNS: [Kind; 7] = [
        Kind::TcpConnection,
        Kind::TcpSession,
        Kind::TcpContent,
        Kind::TcpResponse,
        Kind::HttpRequest,
        Kind::HttpResponse,
        Kind::HttpAfterResponse,
    ];
    let mut found = 0;
    for line in section(&lines, "4.3. Actions keywords matrix", "4.4. Alphabetically") {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some((name, marks)) = words.split_first().filter(|(_, rest)| rest.len() >= COLUMNS.len()) else { continue };
        let marks = &marks[marks.len() - COLUMNS.len()..];
        if !marks.iter().all(|mark| matches!(*mark, "X" | "-")) {
            continue;
        }
        // `track-sc0` and its like stand for one action.
        let name = if name.starts_with("track-sc") { "track-sc" } else { name };
        for (kind, _) in COLUMNS.iter().zip(marks).filter(|(_, mark)| **mark == "X") {
            found += 1;
            let known = ACTIONS.iter().any(|spec| spec.name == name && spec.allowed_in(*kind));
            assert!(known, "{} {name}: {line}", kind.name());
        }
    }
    assert!(found > 150, "only {found} found: the manual is laid out in another way");
}

#[test]
fn what_haproxy_lists_of_itself_is_known() {
    let Some(haproxy) = reference::haproxy_30() else { return };
    let Ok(output) = Command::new(haproxy).args(["-dKall", "-q", "-c", "-f", "/dev/null"]).output() else {
        eprintln!("SKIPPED: haproxy is not installed");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let mut missing = Vec::new();
    let mut found = 0;
    let mut converters = false;
    for line in text.lines() {
        converters = if line.starts_with("# List") { line.contains("converter") } else { converters };
        if let Some(rest) = line.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
            let name = rest.1.split(['(', ':']).next().unwrap_or_default();
            found += 1;
            if !fetch::names().any(|known| known == name) {
                missing.push(name.to_owned());
            }
        } else if converters && line.contains(" => ") {
            let name = line.split(['(', ':']).next().unwrap_or_default();
            found += 1;
            if conv::find(name).is_none() {
                missing.push(name.to_owned());
            }
        }
    }
    assert!(found > 450, "only {found} found: haproxy lists its keywords in another way");
    assert!(missing.is_empty(), "{missing:?}");
}

/// The columns of haproxy's list of fetches that are places of ours.
const PLACES: [(usize, Places); 8] = [
    (0, Places::CONNECTION),
    (1, Places::SESSION),
    (3, Places::REQUEST),
    (7, Places::REQUEST.or(Places::BACKEND_REQUEST)),
    (10, Places::SERVER),
    (16, Places::RESPONSE),
    (18, Places::LOG),
    (19, Places::CHECK),
];

#[test]
fn fetches_may_stand_where_haproxy_lets_them() {
    let Some(haproxy) = reference::haproxy_30() else { return };
    let output = Command::new(haproxy).args(["-dKsmp", "-q", "-c", "-f", "/dev/null"]).output().expect("haproxy runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut wrong = Vec::new();
    let mut found = 0;
    for line in text.lines() {
        let Some((marks, rest)) = line.strip_prefix('[').and_then(|rest| rest.split_once("] ")) else { continue };
        let marks: Vec<&str> = marks.split_whitespace().collect();
        let name = rest.split(['(', ':']).next().unwrap_or_default();
        // HAProxy takes these for facts about the client's connection, and finds none before there is a response.
        if name.starts_with("ssl_s_") {
            continue;
        }
        for (column, place) in PLACES {
            let Some(spec) = fetch::find(name, place).filter(|spec| matches!(spec.support, Support::Yes(_))) else {
                continue;
            };
            let ours = spec.places.meets(place);
            if ours != (marks[column] == "Y") {
                wrong.push(format!("{}{name} in {}", if ours { '+' } else { '-' }, place.describe()));
            }
            found += 1;
        }
    }
    assert!(found > 3000, "only {found} found: haproxy lists its fetches in another way");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_reference_is_fresh() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rules.md");
    let links = proof::links();
    let link = |table: &str, name: &str| links.get(&(table.to_owned(), name.to_owned())).cloned();
    let manual = || manual(|table, name| link(table, name).unwrap_or_default());
    if std::env::var_os("UPDATE").is_some() {
        std::fs::create_dir_all(path.parent().expect("docs")).expect("docs can be made");
        std::fs::write(&path, manual()).expect("docs can be written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == manual(), "docs/rules.md is stale: run `make generate`");
}
