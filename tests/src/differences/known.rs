//! The differences that are meant, as `tests/DIFFERENCES.md` states them for generated cases.

use std::path::Path;

use regex::Regex;

use crate::Failure;

/// The heading above the table.
const HEADING: &str = "## What generated cases may meet";

/// The table.
#[derive(Default)]
pub struct Known(Vec<Row>);

struct Row {
    /// What the case must contain.
    case: Regex,
    /// The pattern for lines that only HAProxy has.
    theirs: Option<Regex>,
    /// What a line of ours alone must be.
    ours: Option<Regex>,
}

impl Known {
    /// Reads the table.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        Self::parse(&text).map_err(|e| format!("{}: {e}", path.display()))
    }

    fn parse(text: &str) -> Result<Self, Failure> {
        let mut rows = Vec::new();
        let lines = text.lines().skip_while(|l| *l != HEADING).skip(1).take_while(|l| !l.starts_with("## "));
        for line in lines.filter(|l| l.starts_with("| ")).skip(1) {
            // A bar in a cell is written `\|`, as Markdown has it.
            let cells: Vec<String> =
                line.replace("\\|", "\0").split('|').map(|c| c.replace('\0', "|").trim().to_owned()).collect();
            let [_, name, case, theirs, ours, why, _] = &cells[..] else {
                return Err(format!("a row needs five cells: {line}"));
            };
            if why.is_empty() {
                return Err(format!("{name} has no reason"));
            }
            let pattern = |cell: &str| -> Result<Option<Regex>, Failure> {
                let cell = cell.trim_matches('`');
                if cell.is_empty() {
                    return Ok(None);
                }
                Regex::new(&format!("(?m){cell}")).map(Some).map_err(|e| format!("{name}: {e}"))
            };
            let case = pattern(case)?.ok_or_else(|| format!("{name} would explain every case"))?;
            rows.push(Row { case, theirs: pattern(theirs)?, ours: pattern(ours)? });
        }
        Ok(Self(rows))
    }

    /// Whether every one of these lines is explained by a row that is about this case.
    pub fn explains(&self, case: &str, lines: &[String]) -> bool {
        let rows: Vec<&Row> = self.0.iter().filter(|row| row.case.is_match(case)).collect();
        let matches = |pattern: &Option<Regex>, line: &str| pattern.as_ref().is_some_and(|p| p.is_match(line));
        lines.iter().all(|line| match line.split_at(2) {
            ("- ", line) => rows.iter().any(|row| matches(&row.theirs, line)),
            (_, line) => rows.iter().any(|row| matches(&row.ours, line)),
        })
    }

    /// Whether it is explained that penstock refuses this line, saying this.
    pub fn refusal(&self, line: &str, says: &str) -> bool {
        self.0.iter().any(|row| row.case.is_match(line) && row.ours.as_ref().is_some_and(|p| p.is_match(says)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_explains_its_own_lines_in_its_own_cases_only() {
        let table = "# x\n| `a` | not ours |\n## What generated cases may meet\n\n| name | case | HAProxy | penstock | why |\n\
                     |---|---|---|---|---|\n| lf | `^a\\|b$` | `^< one` | | because |\n";
        let known = Known::parse(table).expect("well formed");
        let lines = |l: &[&str]| l.iter().map(|l| (*l).to_owned()).collect::<Vec<_>>();
        assert!(known.explains("x\nb\n", &lines(&["- < one"])));
        assert!(!known.explains("x\n", &lines(&["- < one"])));
        assert!(!known.explains("a", &lines(&["- < one", "+ < two"])));
        assert!(Known::parse(&table.replace("because", "")).is_err());
    }
}
