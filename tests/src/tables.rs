//! The two tables people and the suite both read: intended differences, and what does not pass yet.

use std::collections::BTreeMap;
use std::path::Path;

use crate::Failure;

/// Rows of a Markdown table whose first cell is a scenario's name in backticks: name to reason (the last cell).
pub fn read(path: &Path) -> Result<BTreeMap<String, String>, Failure> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    parse(&text).map_err(|e| format!("{}: {e}", path.display()))
}

/// Rewrites the table of known failures after a run of the tests named in `ran`: rows of tests that passed go, a test
/// that failed gets a row with the first line of what was wrong, unless it has one.
pub fn write_known_failures(path: &Path, failures: &[(String, Failure)], ran: &[&str]) -> Result<(), Failure> {
    let mut rows = read(path)?;
    let failed = |name: &str| failures.iter().any(|(n, _)| n == name);
    rows.retain(|name, _| failed(name) || !ran.contains(&name.as_str()));
    for (name, failure) in failures {
        let first = failure.lines().find(|l| l.starts_with(['+', '-'])).or(failure.lines().next()).unwrap_or_default();
        rows.entry(name.clone()).or_insert_with(|| format!("differs: {}", first.replace('|', "/")));
    }
    let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
    let head: String = text.lines().filter(|l| !l.starts_with("| `")).map(|l| format!("{l}\n")).collect();
    let rows: String = rows.iter().map(|(name, reason)| format!("| `{name}` | {reason} |\n")).collect();
    std::fs::write(path, head + &rows).map_err(|e| format!("{}: {e}", path.display()))
}

fn parse(text: &str) -> Result<BTreeMap<String, String>, Failure> {
    let mut rows = BTreeMap::new();
    for line in text.lines() {
        let Some(row) = line.strip_prefix("| `") else { continue };
        let (name, cells) = row.split_once('`').ok_or_else(|| format!("a row without its closing backtick: {line}"))?;
        let reason = cells.trim().trim_end_matches('|').rsplit('|').next().unwrap_or_default().trim();
        if reason.is_empty() {
            return Err(format!("`{name}` has no reason"));
        }
        if rows.insert(name.to_owned(), reason.to_owned()).is_some() {
            return Err(format!("`{name}` is listed twice"));
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_need_a_reason_and_a_unique_name() {
        let rows = parse("# T\n| scenario | why |\n|---|---|\n| `a/b` | x | because |\n").expect("well formed");
        assert_eq!(rows.get("a/b").map(String::as_str), Some("because"));
        assert!(parse("| `a` | |\n").is_err());
        assert!(parse("| `a` | x |\n| `a` | y |\n").is_err());
    }
}
