//! `;json`: every value with its tags, in HAProxy's format.

use crate::columns::COLUMNS;
use crate::value::Value;
use penstock_proxy::snapshot::{Kind, Row};
use serde_json::{Value as Json, json};

/// One array per row, one object per value.
pub fn render<'a>(rows: impl Iterator<Item = &'a Row>, legends: bool) -> String {
    let rows: Vec<Json> = rows.map(|row| row_of(row, legends)).collect();
    Json::Array(rows).to_string()
}

/// One row: an object for each value.
pub fn row_of(row: &Row, legends: bool) -> Json {
    let mut fields = Vec::new();
    for (position, column) in COLUMNS.iter().filter(|column| column.name != "-").enumerate() {
        let value = (column.value)(row, legends);
        if value == Value::Empty {
            continue;
        }
        fields.push(json!({
            "objType": object(row.kind),
            "proxyId": row.iid,
            "id": row.sid,
            "field": { "pos": position, "name": column.name },
            "processNum": 1,
            "tags": tags(column.tags, row.kind == Kind::Server),
            "value": { "type": value.kind(), "value": value.json() },
        }));
    }
    Json::Array(fields)
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
