//! `;json`: every value with where it comes from, as HAProxy writes it.

use crate::columns::COLUMNS;
use crate::value::Value;
use penstock_proxy::snapshot::{Kind, Row};
use serde_json::{Value as Json, json};

/// One array a row, one object a value.
pub fn render<'a>(rows: impl Iterator<Item = &'a Row>, legends: bool) -> String {
    let rows: Vec<Json> = rows.map(|row| row_of(row, legends)).collect();
    Json::Array(rows).to_string()
}

fn row_of(row: &Row, legends: bool) -> Json {
    let mut fields = Vec::new();
    for (position, column) in COLUMNS.iter().filter(|column| column.name != "-").enumerate() {
        let value = (column.value)(row, legends);
        let number = match &value {
            Value::Empty => continue,
            Value::Text(text) => json!(text),
            Value::U32(n) => json!(n),
            Value::U64(n) => json!(n),
            Value::S32(n) => json!(n),
        };
        let [origin, nature, scope] = column.tags;
        fields.push(json!({
            "objType": object(row.kind),
            "proxyId": row.iid,
            "id": row.sid,
            "field": { "pos": position, "name": column.name },
            "processNum": 1,
            "tags": { "origin": origin_word(origin, row.kind), "nature": nature_word(nature), "scope": scope_word(scope) },
            "value": { "type": value.kind(), "value": number },
        }));
    }
    Json::Array(fields)
}

fn object(kind: Kind) -> &'static str {
    match kind {
        Kind::Frontend => "Frontend",
        Kind::Backend => "Backend",
        Kind::Server => "Server",
        Kind::Listener => "Listener",
    }
}

fn origin_word(tag: u8, kind: Kind) -> &'static str {
    match tag {
        b'K' => "Key",
        b'C' => "Config",
        b'S' => "Status",
        b'*' if kind == Kind::Server => "Status",
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
