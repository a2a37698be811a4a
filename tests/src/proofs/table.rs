//! `tests/proofs.tsv`: which test shows what a row claims.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use regex::Regex;

use super::mutation::mutants;
use super::rows::{Kind, Row};
use crate::Failure;
use crate::scenario::Scenario;

/// What happens to a scenario from which the row's word is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// Its outcome is another one.
    Changes,
    /// Its configuration does not start.
    Refused,
    /// Its outcome is another one with this text in that one's place.
    Replaced(String, String),
    /// Nothing that a transcript could show, for this reason.
    Unseen(String),
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The name of a scenario, or the path of a file of a crate's tests, with `::` and the test's name where one is meant; `-` where
    /// no test shows the row, for the reason given.
    pub test: String,
    /// What taking the word away does.
    pub how: How,
}

impl Proof {
    /// Whether it is a scenario, not a test in a crate.
    pub fn is_scenario(&self) -> bool {
        self.test != "-" && !self.test.starts_with("crates/")
    }
}

/// By table and row.
pub type Proofs = BTreeMap<(String, String), Proof>;

const HEAD: &str = "\
# What shows that a row does what it claims: table, row, scenario or test, and what happens without the word. An empty
# last column: the transcript changes. `refused`: the configuration does not start. `A => B`: it changes with B for A.
# `- REASON`: a transcript cannot show it; with `-` for the test, no test does. `PENSTOCK_TESTS=mutate` tries each; `tests/README.md` says more.
";

/// Reads the table.
pub fn read(path: &Path) -> Result<Proofs, Failure> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    parse(&text)
}

fn parse(text: &str) -> Result<Proofs, Failure> {
    let mut proofs = Proofs::new();
    let lines = text.lines().filter(|l| !l.is_empty() && !l.starts_with('#'));
    for line in lines {
        let cells: Vec<&str> = line.split('\t').collect();
        let [table, row, test, rest @ ..] = &cells[..] else { return Err(format!("too few columns: {line}")) };
        let how = match rest {
            [] | [""] => How::Changes,
            ["refused"] => How::Refused,
            [reason] if reason.starts_with("- ") => How::Unseen(reason[2..].to_owned()),
            [swap] => match swap.split_once(" => ") {
                Some((from, to)) => How::Replaced(from.to_owned(), to.to_owned()),
                None => return Err(format!("the last column is none of those allowed: {line}")),
            },
            _ => return Err(format!("too many columns: {line}")),
        };
        let key = ((*table).to_owned(), (*row).to_owned());
        if proofs.last_key_value().is_some_and(|(last, _)| *last >= key) {
            return Err(format!("not in order, or twice: {line}"));
        }
        proofs.insert(key, Proof { test: (*test).to_owned(), how });
    }
    Ok(proofs)
}

/// Writes the table in order.
pub fn write(path: &Path, proofs: &Proofs) -> Result<(), Failure> {
    let mut text = HEAD.to_owned();
    for ((table, row), proof) in proofs {
        text += &format!("{table}\t{row}\t{}", proof.test);
        match &proof.how {
            How::Changes => {}
            How::Refused => text += "\trefused",
            How::Replaced(from, to) => text += &format!("\t{from} => {to}"),
            How::Unseen(reason) => text += &format!("\t- {reason}"),
        }
        text.push('\n');
    }
    std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

/// What is wrong with the table: rows without a proof, proofs without a row, tests that are not there or in which the
/// word does not occur. `root` is the project's folder.
pub fn check(root: &Path, rows: &[Row], proofs: &Proofs, scenarios: &[Scenario]) -> Vec<String> {
    let mut wrong = Vec::new();
    let known: BTreeSet<_> = rows.iter().map(|r| (r.table().to_owned(), r.name.to_owned())).collect();
    for key in proofs.keys().filter(|key| !known.contains(*key)) {
        wrong.push(format!("{} `{}`: no row that says implemented", key.0, key.1));
    }
    for row in rows {
        let name = format!("{} `{}`", row.table(), row.name);
        let Some(proof) = proofs.get(&(row.table().to_owned(), row.name.to_owned())) else {
            wrong.push(format!("{name}: nothing shows it"));
            continue;
        };
        if proof.test == "-" {
            if !matches!(proof.how, How::Unseen(_)) {
                wrong.push(format!("{name}: nothing shows it, and nothing says why"));
            }
            continue;
        }
        let found = match proof.is_scenario() {
            true if row.kind == Kind::Metric => is_measured(root, row, &proof.test),
            true => scenarios.iter().find(|s| s.name == proof.test).map(|s| occurs(row, s)),
            false => in_test(root, row, &proof.test),
        };
        match found {
            None => wrong.push(format!("{name}: there is no {}", proof.test)),
            Some(false) => wrong.push(format!("{name}: it does not occur in {}", proof.test)),
            Some(true) => {}
        }
    }
    wrong
}

/// Whether taking the row's word away changes the scenario's files at all.
pub fn occurs(row: &Row, scenario: &Scenario) -> bool {
    let files = scenario.sections.iter().filter(|s| matches!(s.kind.as_str(), "config" | "file"));
    files.flat_map(|s| mutants(row, &s.text).into_iter().map(move |m| m != s.text)).any(|changed| changed)
}

/// Whether a scenario's transcript, as HAProxy left it, shows the metric with a value other than zero. `None`: there is no
/// transcript.
pub fn is_measured(root: &Path, row: &Row, scenario: &str) -> Option<bool> {
    let transcript = std::fs::read_to_string(root.join(format!("tests/recorded/{scenario}.txt"))).ok()?;
    let name = format!(r"(?m)\bhaproxy_[a-z]+_{}(?:\{{[^}}]*\}})? -?[0-9.]*[1-9]", regex::escape(row.name));
    Some(Regex::new(&name).expect("an escaped name").is_match(&transcript))
}

/// Whether the word stands in a test's code. `None`: there is no such test.
pub fn in_test(root: &Path, row: &Row, test: &str) -> Option<bool> {
    let (path, function) = test.split_once("::").map_or((test, None), |(path, name)| (path, Some(name)));
    let text = std::fs::read_to_string(root.join(path)).ok()?;
    let body = match function {
        None => &text[..],
        Some(name) => {
            let from = text.find(&format!("fn {name}("))?;
            let len = text[from..].find("\n}\n").unwrap_or(text.len() - from);
            &text[from..from + len]
        }
    };
    let phrase = match row.kind {
        Kind::Action(rules) => format!("{rules} {}", row.name),
        _ => row.name.to_owned(),
    };
    let end = if row.name == "track-sc" { r"\d" } else { r"(?:[^\w.-]|$)" };
    let start = if row.kind == Kind::Alias { r"%(?:\{[^}]*\})?" } else { r"(?:^|[^\w.-]|\\[nt])" };
    let pattern = Regex::new(&format!("{start}{}{end}", regex::escape(&phrase))).expect("an escaped name");
    Some(body.lines().filter(|l| !l.trim_start().starts_with("//")).any(|l| pattern.is_match(l)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_ordered_and_says_what_happens() {
        let proofs =
            parse("# x\nbind\tcrt\ttls/a\trefused\nbind\tmss\ttls/b\t- why\nfetch\tsrc\ta/b\nfetch\turl\ta/b\tx => y");
        let hows: Vec<How> = proofs.expect("well formed").into_values().map(|p| p.how).collect();
        let replaced = How::Replaced("x".into(), "y".into());
        assert_eq!(hows, [How::Refused, How::Unseen("why".into()), How::Changes, replaced]);
        assert!(parse("bind\tcrt\ta\nbind\tcrt\tb").is_err());
        assert!(parse("bind\tcrt\ta\nbind\talpn\tb").is_err());
        assert!(parse("bind\tcrt\ta\tsomehow").is_err());
        assert!(parse("bind\tcrt").is_err());
    }

    #[test]
    fn what_is_missing_is_named() {
        let scenario =
            Scenario::parse("a/b", "# x\n[config]\nlisten l\n # maxconn 3\n mode tcp\n").expect("well formed");
        let row = |name| Row { kind: Kind::Line("proxy"), name };
        let proofs =
            parse("proxy\tacl\ta/c\nproxy\tgone\ta/b\nproxy\tmaxconn\ta/b\nproxy\tmode\ta/b").expect("well formed");
        let wrong = check(Path::new("."), &[row("acl"), row("log"), row("maxconn"), row("mode")], &proofs, &[scenario]);
        assert_eq!(
            wrong,
            [
                "proxy `gone`: no row that says implemented",
                "proxy `acl`: there is no a/c",
                "proxy `log`: nothing shows it",
                "proxy `maxconn`: it does not occur in a/b",
            ]
        );
    }
}
