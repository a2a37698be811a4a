//! Which test shows what a row of a table claims, for the pages that list them. Tests of other crates include this file
//! by its path.

use std::{collections::HashMap, path::Path};

/// The rows of `tests/proofs.tsv`: by table and name, a link as a page in `docs` writes it.
pub fn links() -> HashMap<(String, String), String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/proofs.tsv");
    let text = std::fs::read_to_string(path).expect("the table of proofs is there");
    let rows = text.lines().filter(|l| !l.starts_with('#')).filter_map(|line| {
        let mut cells = line.split('\t');
        let (table, row, test) = (cells.next()?, cells.next()?, cells.next()?);
        if test == "-" {
            let reason = cells.next().unwrap_or_default().trim_start_matches("- ");
            return Some(((table.to_owned(), row.to_owned()), format!("none: {reason}")));
        }
        let path = test.split("::").next().unwrap_or(test);
        let link = if path.starts_with("crates/") {
            // A test is found by its name; its file's is long.
            let name = test.split("::").nth(1).unwrap_or_else(|| path.rsplit('/').next().unwrap_or(path));
            format!("[{name}](../{path})")
        } else {
            format!("[{test}](../tests/scenarios/{test}.scn)")
        };
        Some(((table.to_owned(), row.to_owned()), link))
    });
    rows.collect()
}
