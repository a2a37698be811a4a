//! The tables against HAProxy's own manual, and `docs/keywords.md` against the tables.

#[path = "../../../tests/reference.rs"]
mod reference;

#[path = "../../../tests/proof.rs"]
mod proof;

use penstock_config::{
    Places, Support,
    manual::{self, Entry},
};
use std::{collections::BTreeSet, fs, path::Path, process::Command};

const MANUAL: &str = "/usr/share/doc/haproxy/configuration.txt.gz";

/// The manual's lines, or nothing where it is not installed, or is that of another branch.
fn lines() -> Option<Vec<String>> {
    reference::haproxy()?;
    let output = Command::new("zcat").arg(MANUAL).output().ok().filter(|o| o.status.success());
    if output.is_none() {
        eprintln!("SKIPPED: {MANUAL} is not here (apt-get install haproxy-doc): the tables are not compared with it");
    }
    Some(String::from_utf8_lossy(&output?.stdout).lines().map(str::to_owned).collect())
}

/// The lines from one chapter's heading to another's, past the table of contents.
fn chapter<'l>(lines: &'l [String], from: &str, to: &str) -> &'l [String] {
    let find = |heading: &str| {
        let heading = format!("{heading} ");
        lines.iter().rposition(|l| l.starts_with(&heading)).unwrap_or_else(|| panic!("no chapter {heading}"))
    };
    &lines[find(from)..find(to)]
}

/// Words at the beginning of a line that are followed by an argument's description: the manual's way to head an entry.
fn headings(lines: &[String]) -> BTreeSet<String> {
    let head = |(i, line): (usize, &String)| {
        let word = line.split([' ', '[']).next().filter(|w| !w.is_empty())?;
        let plain = word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-._".contains(c));
        // An entry stands after an empty line (or another heading), and its text is indented.
        let apart = i == 0 || lines[i - 1].is_empty() || !lines[i - 1].starts_with(' ');
        let text = lines[i + 1..].iter().find(|l| l.is_empty() || l.starts_with(' '));
        let prose = line.ends_with(['.', ',', ':', ')']) && !line.contains('<')
            || line.split(' ').count() > 9 && !line.contains('[');
        (plain && apart && !prose && text.is_some_and(|l| l.starts_with("  "))).then(|| word.to_owned())
    };
    lines.iter().enumerate().filter_map(head).collect()
}

fn section(name: &str) -> Vec<Entry> {
    manual::keywords().into_iter().filter(|k| k.section == name).collect()
}

/// Whether the table has the keyword, or a family that begins with it.
fn has(table: &[Entry], keyword: &str) -> bool {
    table.iter().any(|k| k.name == keyword || k.name.starts_with(&format!("{keyword} ")))
}

#[test]
fn every_global_keyword_of_the_manual_is_known() {
    let Some(lines) = lines() else { return };
    let table = section("global");
    let list: Vec<&str> = chapter(&lines, "3.", "3.1.")
        .iter()
        .filter_map(|l| l.strip_prefix("   - ").map(|k| k.split(' ').next().unwrap_or(k)))
        .collect();
    assert!(list.len() > 120, "the manual lists {} keywords", list.len());
    let missing: Vec<_> = list.into_iter().filter(|k| !has(&table, k)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_proxy_keyword_of_the_manual_is_known_and_allowed_where_it_says() {
    let Some(lines) = lines() else { return };
    let table = section("proxy");
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in chapter(&lines, "4.1.", "4.2.") {
        // keyword, then four columns of X or -, of which the first may be "X (!)".
        let marks: Vec<&str> = line.split_whitespace().filter(|w| matches!(*w, "X" | "-")).collect();
        let Some(at) = line.find("  ").filter(|_| marks.len() == 4 && !line.starts_with("--")) else { continue };
        let name = line[..at].trim();
        count += 1;
        let allowed: Vec<&Entry> =
            table.iter().filter(|k| k.name == name || k.name.starts_with(&format!("{name} "))).collect();
        let named = line.contains("(!)");
        let places = [
            if named { Places::NAMED_DEFAULTS } else { Places::DEFAULTS },
            Places::FRONTEND,
            Places::LISTEN,
            Places::BACKEND,
        ];
        if allowed.is_empty() {
            wrong.push(format!("{name}: unknown"));
        }
        for entry in allowed.iter().filter(|k| !matches!(k.support, Support::Refused { .. })) {
            for (mark, place) in marks.iter().zip(places) {
                if (*mark == "X") != entry.places.has(place) {
                    wrong.push(format!("{}: {place:?} should be {mark}", entry.name));
                }
            }
            if line.contains("(*)") && !entry.negatable {
                wrong.push(format!("{}: 'no' is allowed", entry.name));
            }
        }
    }
    assert!(count > 150, "the manual lists {count} keywords");
    let wrong: Vec<_> = wrong.into_iter().filter(|w| !DIFFERENT_PLACES.iter().any(|(k, _)| w.starts_with(k))).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Directives whose sections differ from HAProxy's matrix, because HAProxy itself departs from it or we read more.
const DIFFERENT_PLACES: &[(&str, &str)] =
    &[("option tcplog", "HAProxy warns that it is ignored in backends, and so do we")];

#[test]
fn every_setting_of_bind_and_server_lines_is_known() {
    let Some(lines) = lines() else { return };
    for (table, from, to, least) in [("bind", "5.1.", "5.2.", 65), ("server", "5.2.", "5.3.", 90)] {
        let known = section(table);
        let found = headings(chapter(&lines, from, to));
        assert!(found.len() >= least, "{table}: {found:?}");
        let missing: Vec<_> = found.iter().filter(|k| !has(&known, k)).collect();
        assert!(missing.is_empty(), "{table}: {missing:?}");
    }
}

#[test]
fn every_keyword_of_the_smaller_sections_is_known() {
    let Some(lines) = lines() else { return };
    for (name, from, to) in [
        ("userlist", "3.4.", "3.5."),
        ("peers", "3.5.", "3.6."),
        ("mailers", "3.6.", "3.7."),
        ("program", "3.7.", "3.8."),
        ("http-errors", "3.8.", "3.9."),
        ("ring", "3.9.", "3.10."),
        ("log-forward", "3.10.", "4."),
        ("resolvers", "5.3.2.", "6."),
        ("cache", "6.2.1.", "6.2.2."),
        ("fcgi-app", "10.1.1.", "10.1.2."),
    ] {
        let known = section(name);
        let found = headings(chapter(&lines, from, to));
        assert!(found.contains(name) || name == "log-forward", "{name}: {found:?}");
        let missing: Vec<_> =
            found.iter().filter(|k| ![name, "no", "log-forward"].contains(&k.as_str()) && !has(&known, k)).collect();
        assert!(missing.is_empty(), "{name}: {missing:?}");
    }
}

#[test]
fn every_keyword_that_haproxy_itself_lists_is_known() {
    let Some(haproxy) = reference::haproxy() else { return };
    let output = Command::new(haproxy).args(["-dKcfg", "-q", "-c", "-f", "/dev/null"]).output();
    let Ok(output) = output else {
        eprintln!("SKIPPED: no haproxy here (apt-get install haproxy): the tables are not compared with its own list");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (mut place, mut missing, mut count) = ("", Vec::new(), 0);
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if !line.starts_with('\t') {
            place = match line {
                "global" => "global",
                "listen" => "proxy",
                _ => "",
            };
            continue;
        }
        let (table, keyword) = match words.as_slice() {
            ["bind", "<addr>", "ssl", keyword, ..] | ["bind", "<addr>", keyword, ..] => ("bind", (*keyword).to_owned()),
            ["server", "<name>", "<addr>", keyword, ..] => ("server", (*keyword).to_owned()),
            ["option", name, ..] => ("proxy", format!("option {name}")),
            // The rules' actions are known to the crate that compiles them.
            ["tcp-request" | "tcp-response" | "http-request" | "http-response" | "http-after-response", _, ..] => {
                continue;
            }
            [keyword, ..] if !place.is_empty() => (place, (*keyword).to_owned()),
            _ => continue,
        };
        count += 1;
        if !has(&section(table), &keyword) {
            missing.push(format!("{table}: {keyword}"));
        }
    }
    assert!(count > 250, "HAProxy lists {count} keywords");
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn entries_are_well_formed_and_unique() {
    let mut seen = BTreeSet::new();
    for entry in manual::keywords() {
        assert!(seen.insert((entry.section, entry.name)), "{} {} twice", entry.section, entry.name);
        assert!(!entry.doc.is_empty() && !entry.doc.ends_with('.'), "{}", entry.name);
        assert!(entry.arity.min <= entry.arity.max, "{}", entry.name);
    }
}

/// `make generate` writes it anew.
#[test]
fn the_page_of_keywords_is_fresh() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/keywords.md");
    let links = proof::links();
    let link = |section: &str, name: &str| links.get(&(section.to_owned(), name.to_owned())).cloned();
    let fresh = manual::matrix(|section, name| link(section, name).unwrap_or_default());
    if std::env::var_os("UPDATE").is_some() {
        fs::create_dir_all(path.parent().expect("docs")).expect("docs");
        fs::write(&path, &fresh).expect("docs/keywords.md is written");
    }
    let page = fs::read_to_string(&path).unwrap_or_default();
    assert!(page == fresh, "docs/keywords.md is stale: run `make generate`");
}
