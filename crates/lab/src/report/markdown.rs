//! The result as a short page for a repository: what was found, the first figure and table, what speaks against it. The figure, the
//! whole report and the raw data lie beside it.

use super::{
    placement, story,
    view::{Section, Table, sections},
};
use crate::study::{Outcome, version};
use std::fmt::Write;

/// The page.
#[must_use]
pub fn markdown(outcome: &Outcome) -> String {
    let mut out =
        format!("# {}: {}\n\n`{}`, {}.\n", outcome.study, plain(&outcome.doc), outcome.command, outcome.began);
    // Writing to a String does not fail.
    for why in &outcome.partial {
        let _ = write!(out, "\n**Partial**: {}\n", plain(why));
    }
    out.push('\n');
    for finding in story::findings(outcome) {
        let _ = writeln!(out, "- {}", plain(&finding));
    }
    let sections = sections(outcome);
    if let Some(plot) = sections.first().and_then(|section| section.plots.first()) {
        let _ = write!(out, "\n![{}](figure.svg)\n", plain(&plot.heading));
    }
    out.push_str("\n[The report with every figure](report.html), [its data](result.json).\n");
    for (at, Section { heading, table, .. }) in sections.iter().enumerate() {
        let rows = rows(table);
        let _ = match at {
            0 => write!(out, "\n## {heading}\n\n{rows}"),
            _ => write!(out, "\n<details><summary>{heading}</summary>\n\n{rows}\n</details>\n"),
        };
    }
    if !outcome.doubts.is_empty() {
        out.push_str("\n## What speaks against it\n\n");
        for doubt in &outcome.doubts {
            let _ = writeln!(out, "- **{}**: {}", doubt.kind, plain(&doubt.says));
        }
    }
    out.push_str("\n## How\n\n");
    for line in outcome.notes.iter().map(|note| plain(note)).chain(placement::words(outcome)) {
        let _ = writeln!(out, "- {line}");
    }
    for contestant in &outcome.contestants {
        let _ = writeln!(out, "- {}: {} ({})", contestant.name, plain(&contestant.doc), plain(&version(contestant)));
    }
    for (name, why) in &outcome.left_out {
        let _ = writeln!(out, "- {name} was left out: {}", plain(why));
    }
    out
}

/// Words stand left, figures right.
fn rows(table: &Table) -> String {
    let is_words = |name: &&str| ["work", "contestant", "cores", "remarks"].contains(name);
    let line = |cells: &mut dyn Iterator<Item = String>| format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "));
    let mut out = line(&mut table.head.iter().map(|name| (*name).to_owned()));
    out += &line(&mut table.head.iter().map(|name| if is_words(name) { "---" } else { "---:" }.to_owned()));
    for row in &table.rows {
        out += &line(&mut row.iter().map(|cell| plain(cell)));
    }
    out
}

/// What markup would be made of.
fn plain(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('|', "\\|").replace('*', "\\*")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::example;

    #[test]
    fn what_was_found_stands_before_the_table_and_text_cannot_become_markup() {
        let mut outcome = example(&[("haproxy", 1, 1000.0), ("penstock-sw", 1, 3000.0)]);
        outcome.partial.push("a|b".into());
        let page = markdown(&outcome);
        assert!(page.starts_with("# handshake: one request on each new connection\n"), "{page}");
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} is not in\n{page}"));
        assert!(
            at("**Partial**: a\\|b") < at("- TLS 1.3 &lt;RSA-2048>") && at("does 3.00") < at("figure.svg"),
            "{page}"
        );
        let table: Vec<&str> = page.lines().filter(|line| line.starts_with("| ")).collect();
        assert_eq!(table.len(), 4, "{page}");
        let columns = |line: &str| line.matches(" | ").count();
        assert!(
            table.iter().all(|line| columns(line) == columns(table[0])) && table[1].starts_with("| --- |"),
            "{page}"
        );
    }
}
