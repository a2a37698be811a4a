//! `;json`: every value with its tags, in HAProxy's format.

use crate::columns::{COLUMNS, Column};
use crate::value::Value;
use penstock_proxy::snapshot::{Kind, Row};
use serde_json::{Value as Json, json};
use std::{fmt::Write as _, sync::LazyLock};

/// All rows: an array of arrays of objects, one for each value.
pub fn render<'a>(rows: impl Iterator<Item = &'a Row>, legends: bool) -> String {
    let mut out = String::from("[");
    for (number, row) in rows.enumerate() {
        if number > 0 {
            out.push(',');
        }
        push_row(&mut out, row, legends);
    }
    out.push(']');
    out
}

/// The part of a value's object that is the same in all rows, for servers and for others: these are nine tenths of the text.
static FIXED: LazyLock<Vec<[String; 2]>> = LazyLock::new(|| {
    let columns = COLUMNS.iter().filter(|column| column.name != "-").enumerate();
    let fixed = |(position, column): (usize, &Column)| {
        [false, true].map(|of_server| {
            format!(
                "\"field\":{{\"pos\":{position},\"name\":\"{}\"}},\"processNum\":1,\"tags\":{},\"value\":",
                column.name,
                tags(column.tags, of_server)
            )
        })
    };
    columns.map(fixed).collect()
});

/// Writes one row: an object for each value. An answer has a hundred thousand of them, so that they are written without a tree.
pub fn push_row(out: &mut String, row: &Row, legends: bool) {
    let of_server = usize::from(row.kind == Kind::Server);
    let object = format!("{{\"objType\":\"{}\",\"proxyId\":{},\"id\":{},", object(row.kind), row.iid, row.sid);
    let columns = COLUMNS.iter().filter(|column| column.name != "-");
    let mut separator = '[';
    for (column, fixed) in columns.zip(&*FIXED) {
        let value = (column.value)(row, legends);
        if value == Value::Empty {
            continue;
        }
        out.push(std::mem::replace(&mut separator, ','));
        out.push_str(&object);
        out.push_str(&fixed[of_server]);
        // Writing to a String does not fail.
        let _ = match &value {
            Value::Text(_) => write!(out, "{{\"type\":\"str\",\"value\":{}}}}}", value.json()),
            number => write!(out, "{{\"type\":\"{}\",\"value\":{number}}}}}", number.kind()),
        };
    }
    out.push_str(if separator == '[' { "[]" } else { "]" });
}

/// The tags of a field as words; see [`crate::columns::Column::tags`].
pub fn tags([origin, nature, scope]: [u8; 3], of_server: bool) -> Json {
    json!({ "origin": origin_word(origin, of_server), "nature": nature_word(nature), "scope": scope_word(scope) })
}

/// The tags of a field as the letters of `typed`.
pub fn letters([origin, nature, scope]: [u8; 3], of_server: bool) -> String {
    let origin = match origin {
        b'*' if of_server => 'S',
        b'*' => 'M',
        other => char::from(other),
    };
    let nature = match nature {
        b'E' => 'A',
        b'A' => 'a',
        other => char::from(other),
    };
    format!("{origin}{nature}{}", char::from(scope))
}

fn object(kind: Kind) -> &'static str {
    match kind {
        Kind::Frontend => "Frontend",
        Kind::Backend => "Backend",
        Kind::Server => "Server",
        Kind::Listener => "Listener",
    }
}

fn origin_word(tag: u8, of_server: bool) -> &'static str {
    match tag {
        b'K' => "Key",
        b'C' => "Config",
        b'S' => "Status",
        b'P' => "Product",
        b'*' if of_server => "Status",
        _ => "Metric",
    }
}

fn nature_word(tag: u8) -> &'static str {
    match tag {
        b'N' => "Name",
        b'M' => "Max",
        b'L' => "Limit",
        b'C' => "Counter",
        b'R' => "Rate",
        b'E' => "Age",
        b'A' => "Avg",
        b'D' => "Duration",
        b'O' => "Output",
        _ => "Gauge",
    }
}

fn scope_word(tag: u8) -> &'static str {
    if tag == b'S' { "Service" } else { "Process" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_proxy::snapshot::Row;

    #[test]
    fn what_is_written_without_a_tree_is_json() {
        let row =
            Row { proxy_name: "a \"b\"\n\u{1b}\\".into(), name: "s".into(), iid: 7, sid: 3, ..Row::of(Kind::Server) };
        let written: Json = serde_json::from_str(&render([&row, &row].into_iter(), true)).expect("JSON");
        assert_eq!(written[0], written[1]);
        let first = &written[0][0];
        let tags = json!({ "origin": "Key", "nature": "Name", "scope": "Service" });
        let value = json!({ "type": "str", "value": row.proxy_name });
        let field = json!({ "pos": 0, "name": "pxname" });
        let wanted = json!({ "objType": "Server", "proxyId": 7, "id": 3, "field": field, "processNum": 1, "tags": tags,
            "value": value });
        assert_eq!(*first, wanted);
        assert_eq!(render(std::iter::empty(), true), "[]");
    }
}
