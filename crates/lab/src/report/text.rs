//! The same for a terminal: sentences, tables with a bar for the figure that counts, doubts, who ran where.

use super::{
    placement, story,
    view::{Table, sections},
};
use crate::study::Outcome;
use std::fmt::Write;

/// Characters of the longest bar.
const BAR: usize = 24;
/// Columns that only a page has room for.
const WIDE: [&str; 5] = ["lowest-highest", "of it kernel", "windows", "longest, ms", "cores"];

/// The report.
#[must_use]
pub fn text(outcome: &Outcome) -> String {
    let mut out = format!("{}: {}\n", outcome.study, outcome.doc);
    // Writing to a String does not fail.
    for why in &outcome.partial {
        let _ = writeln!(out, "PARTIAL: {why}");
    }
    out.push('\n');
    for finding in story::findings(outcome) {
        let _ = writeln!(out, "  {finding}");
    }
    for section in sections(outcome) {
        let _ = write!(out, "\n{}\n{}", section.heading, table(&section.table, outcome.steps().len() > 1));
    }
    for (name, stacks) in &outcome.stacks {
        let _ = writeln!(out, "\nWhere {name} spends its time: {}", stacks.at);
        for (share, function) in &stacks.hottest {
            let _ = writeln!(out, "  {:5.1} %  {function}", share * 100.0);
        }
    }
    if !outcome.doubts.is_empty() {
        out.push_str("\nWhat speaks against it\n");
        for doubt in &outcome.doubts {
            let _ = writeln!(out, "  {}: {}", doubt.kind, doubt.says);
        }
    }
    out.push_str("\nWho ran where\n");
    for line in placement::words(outcome) {
        let _ = writeln!(out, "  {line}");
    }
    for (name, why) in &outcome.left_out {
        let _ = writeln!(out, "  {name} was left out: {why}");
    }
    out
}

fn table(table: &Table, with_cores: bool) -> String {
    let kept: Vec<usize> = (0..table.head.len())
        .filter(|at| !WIDE.contains(&table.head[*at]) || (with_cores && table.head[*at] == "cores"))
        .collect();
    let length = |text: &str| text.chars().count();
    let width = |at: usize| {
        let rows = table.rows.iter().map(|row| length(&row[at]));
        rows.chain([length(table.head[at])]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = kept.iter().map(|at| width(*at)).collect();
    let most = table.bars.iter().copied().fold(0.0, f64::max);
    let mut out = String::new();
    let mut line = |cell: &dyn Fn(usize) -> String, bar: Option<f64>| {
        out.push(' ');
        for (at, width) in kept.iter().zip(&widths) {
            let text = cell(*at);
            let pad = " ".repeat(width - length(&text).min(*width));
            // Words stand left, figures right.
            let is_words = ["work", "contestant", "cores", "remarks"].contains(&table.head[*at]);
            let _ = if is_words { write!(out, " {text}{pad}") } else { write!(out, " {pad}{text}") };
        }
        if let Some(value) = bar.filter(|_| most > 0.0) {
            let _ = write!(out, " {}", "█".repeat((value / most * BAR as f64).round() as usize));
        }
        while out.ends_with(' ') {
            out.pop();
        }
        out.push('\n');
    };
    line(&|at| table.head[at].to_owned(), None);
    for (at, row) in table.rows.iter().enumerate() {
        line(&|column| row[column].clone(), table.bars.get(at).copied());
    }
    out
}
