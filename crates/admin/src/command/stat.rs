//! `show stat`: rows of counters as CSV, as a line per value, or as JSON.

use super::{Answer, Executor};
use crate::{columns::COLUMNS, csv, json, metrics::METRICS, value::Value};
use penstock_control::{Format, Level, Rows};
use penstock_proxy::{
    server::Operational,
    snapshot::{Kind, Row},
};
use std::{fmt::Write as _, iter};

impl Executor {
    pub(super) fn stat(&self, format: Format, mut wanted: Rows, level: Level) -> Answer {
        let snapshot = self.handle.snapshot();
        // A number that no proxy has is not an error, but selects nothing.
        if let Some(word) = wanted.proxy.as_mut().filter(|word| word.parse::<i32>().is_err()) {
            match self.handle.proxy(word, |_| true) {
                Some(proxy) => *word = self.handle.shared().config.proxies[proxy].name.clone(),
                // Of no section: a `stats socket`.
                None if snapshot.rows.iter().any(|row| row.proxy_name == *word) => {}
                None => return Answer::error("No such proxy."),
            }
        }
        // Addresses are not shown to every client.
        let legends = level >= Level::Operator;
        let described = wanted.described;
        let mut rows = snapshot.rows;
        if wanted.up || wanted.no_maint {
            tell_left_out(&mut rows);
        }
        let rows = rows.into_iter().filter(move |row| shows(&wanted, row));
        match format {
            Format::Plain => {
                Answer::lines(iter::once(csv::header()).chain(rows.map(move |row| csv::line(&row, legends))))
            }
            Format::Typed => Answer::lines(rows.map(move |row| typed(&row, legends, described))),
            Format::Json => {
                let mut begun = false;
                let rows = rows.map(move |row| {
                    let mut out = String::new();
                    if std::mem::replace(&mut begun, true) {
                        out.push(',');
                    }
                    json::push_row(&mut out, &row, legends);
                    out
                });
                Answer::lines(iter::once("[".to_string()).chain(rows).chain(iter::once("]\n".to_string())))
            }
        }
    }
}

/// For lists without servers: adds to each backend's status how many of its servers are not down, as HAProxy does.
pub(crate) fn tell_left_out(rows: &mut [Row]) {
    for at in 0..rows.len() {
        if rows[at].kind != Kind::Backend {
            continue;
        }
        let servers = rows.iter().filter(|row| row.kind == Kind::Server && row.proxy == rows[at].proxy);
        let is_up = |row: &&Row| row.server.as_ref().is_some_and(|server| server.status.state != Operational::Stopped);
        let (up, all) = (servers.clone().filter(is_up).count(), servers.count());
        rows[at].status.push_str(&format!(" ({up}/{all})"));
    }
}

/// Whether a proxy has this name, or this number.
fn is_of(row: &Row, name: &str) -> bool {
    row.proxy_name == name || name.parse() == Ok(row.iid)
}

fn shows(wanted: &Rows, row: &Row) -> bool {
    let kind = match row.kind {
        Kind::Frontend => 1,
        Kind::Backend => 2,
        Kind::Server => 4,
        Kind::Listener => 8,
    };
    let down = |row: &Row| row.server.is_some() && row.upstream.as_ref().is_some_and(|upstream| !upstream.up);
    let maint = |row: &Row| row.server.as_ref().is_some_and(|server| server.status.admin.maint());
    wanted.proxy.as_ref().is_none_or(|name| is_of(row, name))
        && wanted.kinds & kind != 0
        && wanted.sid.is_none_or(|sid| row.sid == sid)
        && !(wanted.up && down(row))
        && !(wanted.no_maint && maint(row))
}

/// A line for each value: which row and column, its tags, its type and the value.
pub(crate) fn typed(row: &Row, legends: bool, described: bool) -> String {
    let kind = match row.kind {
        Kind::Frontend => 'F',
        Kind::Backend => 'B',
        Kind::Server => 'S',
        Kind::Listener => 'L',
    };
    let mut out = String::new();
    for (position, column) in COLUMNS.iter().filter(|column| column.name != "-").enumerate() {
        let value = (column.value)(row, legends);
        if value == Value::Empty {
            continue;
        }
        let tags = json::letters(column.tags, row.kind == Kind::Server);
        let (iid, sid, name) = (row.iid, row.sid, column.name);
        let _ = write!(out, "{kind}.{iid}.{sid}.{position}.{name}.1:{tags}:{}:{value}", value.kind());
        if described {
            let metric = METRICS.iter().find(|metric| metric.column == name);
            let _ = write!(out, ":\"{}\"", metric.map_or(name, |metric| metric.help));
        }
        out.push('\n');
    }
    out
}

/// The schema (json-schema.org, draft 4) of the JSON of `show info` and `show stat`.
pub(crate) const SCHEMA: &str = concat!(
    r##"{"$schema":"http://json-schema.org/draft-04/schema#","oneOf":["##,
    r##"{"title":"Info","type":"array","items":{"title":"InfoItem","type":"object","properties":{"##,
    r##""field":{"$ref":"#/definitions/field"},"processNum":{"$ref":"#/definitions/processNum"},"##,
    r##""tags":{"$ref":"#/definitions/tags"},"value":{"$ref":"#/definitions/typedValue"}},"##,
    r##""required":["field","processNum","tags","value"]}},"##,
    r##"{"title":"Stat","type":"array","items":{"type":"array","items":{"title":"StatItem","type":"object","properties":{"##,
    r##""objType":{"enum":["Frontend","Backend","Listener","Server"]},"##,
    r##""proxyId":{"type":"integer","minimum":0},"id":{"type":"integer","minimum":0},"##,
    r##""field":{"$ref":"#/definitions/field"},"processNum":{"$ref":"#/definitions/processNum"},"##,
    r##""tags":{"$ref":"#/definitions/tags"},"value":{"$ref":"#/definitions/typedValue"}},"##,
    r##""required":["objType","proxyId","id","field","processNum","tags","value"]}}}],"##,
    r##""definitions":{"field":{"type":"object","properties":{"pos":{"type":"integer","minimum":0},"name":{"type":"string"}},"##,
    r##""required":["pos","name"]},"processNum":{"type":"integer","minimum":1},"##,
    r##""tags":{"type":"object","properties":{"##,
    r##""origin":{"enum":["Metric","Status","Key","Config","Product","Unknown"]},"##,
    r##""nature":{"enum":["Gauge","Limit","Min","Max","Rate","Counter","Duration","Age","Time","Name","Output","Avg","Unknown"]},"##,
    r##""scope":{"enum":["Cluster","Process","Service","System","Unknown"]}},"required":["origin","nature","scope"]},"##,
    r##""typedValue":{"type":"object","properties":{"type":{"enum":["s32","s64","u32","u64","flt","str"]},"##,
    r##""value":{"type":["number","string"]}},"required":["type","value"]}}}"##,
    "\n",
);
