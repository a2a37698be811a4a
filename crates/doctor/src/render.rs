//! Findings for a terminal and for scripts.

use crate::{Change, Finding, Level};
use serde_json::{Value, json};
use std::fmt::Write;

const BOLD: &str = "\x1b[1m";
const SOFT: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

fn paint(level: Level) -> (&'static str, &'static str) {
    match level {
        Level::Critical => ("\x1b[1;31m", "✗"),
        Level::Warning => ("\x1b[1;33m", "!"),
        Level::Notice => ("\x1b[36m", "·"),
        Level::Good => ("\x1b[32m", "✓"),
    }
}

/// The number of pieces of evidence shown of each finding.
const EVIDENCE: usize = 6;
/// The number of steps of a fix that are shown; `--fix` shows all.
const STEPS: usize = 3;

/// A page; what is good in one line each. Where `fixes`, with every step of every fix, and why what is good is.
pub fn text(findings: &[Finding], fixes: bool, colour: bool) -> String {
    let ink = |code: &'static str| if colour { code } else { "" };
    let mut out = String::new();
    // Writing to a String does not fail.
    for finding in findings.iter().filter(|f| f.level > Level::Good) {
        let (code, mark) = paint(finding.level);
        let _ = writeln!(
            out,
            "{}{mark} {:<9}{} {}{}{}  {}[{}]{}",
            ink(code),
            finding.level.name(),
            ink(PLAIN),
            ink(BOLD),
            finding.finding,
            ink(PLAIN),
            ink(SOFT),
            finding.id,
            ink(PLAIN)
        );
        for seen in finding.evidence.iter().take(EVIDENCE) {
            let _ = writeln!(out, "    {}seen{}   {}", ink(SOFT), ink(PLAIN), indented(seen));
        }
        if finding.evidence.len() > EVIDENCE {
            let _ = writeln!(out, "           and {} more", finding.evidence.len() - EVIDENCE);
        }
        if !finding.consequence.is_empty() {
            let _ = writeln!(out, "    {}means{}  {}", ink(SOFT), ink(PLAIN), indented(&finding.consequence));
        }
        let steps = if fixes { finding.fix.len() } else { STEPS };
        for change in finding.fix.iter().take(steps) {
            let _ = writeln!(out, "    {}fix{}    {}", ink(SOFT), ink(PLAIN), indented(&change.to_string()));
        }
        if finding.fix.len() > steps {
            let _ = writeln!(out, "           and {} more: --fix shows them", finding.fix.len() - steps);
        }
        out.push('\n');
    }
    for finding in findings.iter().filter(|f| f.level == Level::Good) {
        let (code, mark) = paint(Level::Good);
        let _ = writeln!(out, "{}{mark}{} {}", ink(code), ink(PLAIN), finding.finding);
        for seen in finding.evidence.iter().filter(|_| fixes) {
            let _ = writeln!(out, "    {}seen{}   {}", ink(SOFT), ink(PLAIN), indented(seen));
        }
    }
    let count = |level| findings.iter().filter(|f| f.level == level).count();
    let _ = writeln!(
        out,
        "\n{} critical, {}, {}, {} good",
        count(Level::Critical),
        crate::finding::count(count(Level::Warning), "warning"),
        crate::finding::count(count(Level::Notice), "notice"),
        count(Level::Good)
    );
    out
}

fn indented(text: &str) -> String {
    text.replace('\n', "\n           ")
}

/// The findings as JSON, for scripts.
pub fn json(findings: &[Finding]) -> Value {
    let change = |change: &Change| match change {
        Change::Sysctl { name, value } => json!({ "sysctl": name, "value": value }),
        Change::Value { path, value, udev } => json!({ "path": path, "value": value, "udev": udev }),
        Change::Service { unit, setting } => json!({ "unit": unit, "setting": setting }),
        Change::File { path, text } => json!({ "file": path, "text": text }),
        Change::ByHand(text) => json!({ "by_hand": text }),
    };
    let finding = |f: &Finding| {
        json!({
            "id": f.id, "area": f.area.name(), "level": f.level.name(), "worth": f.worth, "finding": f.finding,
            "evidence": f.evidence, "consequence": f.consequence, "fix": f.fix.iter().map(change).collect::<Vec<_>>(),
        })
    };
    json!({ "findings": findings.iter().map(finding).collect::<Vec<_>>() })
}
