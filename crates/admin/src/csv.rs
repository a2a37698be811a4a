//! `;csv`: the header and fields of HAProxy 2.6, byte for byte.

use crate::{columns::COLUMNS, value::Value};
use penstock_proxy::snapshot::Row;
use std::fmt::Write as _;

/// All rows, after a line of names.
pub fn render<'a>(rows: impl Iterator<Item = &'a Row>, legends: bool) -> String {
    rows.fold(header(), |mut out, row| {
        push_line(&mut out, row, legends);
        out
    })
}

/// The line of names.
pub fn header() -> String {
    let mut out = String::from("# ");
    for column in COLUMNS {
        out.push_str(column.name);
        out.push(',');
    }
    out.push('\n');
    out
}

/// A row as a line of CSV.
pub fn line(row: &Row, legends: bool) -> String {
    let mut out = String::new();
    push_line(&mut out, row, legends);
    out
}

fn push_line(out: &mut String, row: &Row, legends: bool) {
    for column in COLUMNS {
        match (column.value)(row, legends) {
            Value::Text(text) => push_field(out, &text),
            // Writing to a String does not fail.
            number => drop(write!(out, "{number}")),
        }
        out.push(',');
    }
    out.push('\n');
}

/// Appends a field. One with a comma, a quote, a line break, or a space at an end is quoted, and quotes in it are
/// doubled.
fn push_field(out: &mut String, field: &str) {
    if !field.contains([',', '"', '\n', '\r']) {
        out.push_str(field);
        return;
    }
    out.push('"');
    for c in field.chars() {
        if c == '"' {
            out.push('"');
        }
        out.push(c);
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_the_one_that_parsers_know() {
        let header = render(std::iter::empty(), false);
        assert!(header.starts_with("# pxname,svname,qcur,qmax,scur,smax,slim,stot,bin,bout,dreq,dresp,ereq,econ,"));
        assert!(header.ends_with("h1_bytes_out,h1_spliced_bytes_in,h1_spliced_bytes_out,\n"));
        assert_eq!(header.matches(',').count(), 128);
    }

    #[test]
    fn what_would_break_a_line_is_quoted() {
        let mut out = String::new();
        push_field(&mut out, "say \"no\", or\nnothing");
        assert_eq!(out, "\"say \"\"no\"\", or\nnothing\"");
    }
}
