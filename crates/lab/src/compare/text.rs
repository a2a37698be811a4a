//! The comparison for a terminal.

use super::Comparison;
use penstock_figures::number::whole;
use std::fmt::Write;

/// The report.
#[must_use]
pub fn text(comparison: &Comparison) -> String {
    let Comparison { a, b, rows, cores, .. } = comparison;
    let mut out = format!("{}\n  A: {}\n  B: {}\n\n", a.study, a.source, b.source);
    let longest = |of: &dyn Fn(&super::Row) -> usize| rows.iter().map(of).max().unwrap_or(0);
    let (work, who) = (longest(&|row| row.case.chars().count()), longest(&|row| row.contestant.len()));
    let unit = a.measure.unit("units");
    // Writing to a String does not fail.
    let _ = writeln!(
        out,
        "  {:work$} {:>5} {:who$} {:>12} {:>12}  {:22} {:22} verdict",
        "work", "cores", "contestant", "A", "B", "B / A", "CPU time, B / A"
    );
    for row in rows {
        let ratio = |ratio: &Option<crate::statistics::Ratio>| ratio.map_or(String::new(), |ratio| ratio.text());
        let offered = row.offered.map_or(String::new(), |rate| format!(" at {}/s", whole(rate)));
        let _ = writeln!(
            out,
            "  {:work$} {:>5} {:who$} {:>12} {:>12}  {:22} {:22} {}{offered}",
            row.case,
            row.cores,
            row.contestant,
            figure(row.values.0),
            figure(row.values.1),
            ratio(&row.gain),
            ratio(&row.cpu),
            row.verdict
        );
    }
    let _ = writeln!(out, "  A and B in {unit}");
    if !cores.is_empty() {
        let _ = writeln!(out, "\nCores for {} units/s", whole(comparison.target_rate));
        for row in cores {
            let beyond = if row.beyond { "  (beyond what was measured)" } else { "" };
            let (in_a, in_b) = row.cores;
            let _ =
                writeln!(out, "  {:who$}  A {in_a:.2}  B {in_b:.2}  saved {:.2}{beyond}", row.contestant, in_a - in_b);
        }
    }
    for line in &comparison.unmatched {
        let _ = writeln!(out, "  {line}");
    }
    out.push_str("\nThe machines, where they differ\n");
    for (name, in_a, in_b) in comparison.facts().iter().filter(|(_, in_a, in_b)| in_a != in_b) {
        let _ = writeln!(out, "  {name}\n    A: {in_a}\n    B: {in_b}");
    }
    let doubts = comparison.doubts();
    if !doubts.is_empty() {
        out.push_str("\nWhat speaks against it\n");
        doubts.iter().for_each(|doubt| {
            let _ = writeln!(out, "  {doubt}");
        });
    }
    out
}

/// A rate or a time with three digits or more.
pub(super) fn figure(value: f64) -> String {
    if value >= 100.0 { whole(value) } else { format!("{value:.2}") }
}
