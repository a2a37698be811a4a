//! The list of facts about the process at the top of the page.

use super::cells::bytes;
use crate::html::{Count, Since};
use penstock_proxy::snapshot::{Process, Snapshot};
use std::fmt::Write as _;

/// A fact: its name, and a function that renders its value as markup.
pub type Fact = (&'static str, fn(&Snapshot) -> String);

/// All facts, in order.
pub const FACTS: &[Fact] = &[
    ("Uptime", |s| {
        let Process { clock, began, .. } = s.process;
        Since { now: clock, age: clock.saturating_sub(began) }.to_string()
    }),
    ("Workers", |s| of(s.process.threads.into(), format_args!("idle {} %", s.process.paces.idle_percent))),
    ("Connections", |s| {
        let (now, most, _) = s.process.connections;
        let limit = Count(s.process.maxconn.into());
        of(now.into(), format_args!("of {limit}, most {}", Count(most.into())))
    }),
    ("Connections ever", |s| {
        of(s.process.connections.2, format_args!("{}/s", Count(s.process.connection_rate.0.into())))
    }),
    ("Sessions a second", |s| {
        let (now, most) = s.process.session_rate;
        of(now.into(), format_args!("most {}", Count(most.into())))
    }),
    ("Requests", |s| Count(s.process.requests).to_string()),
    ("TLS handshakes", |s| {
        let (done, resumed, failed) = s.process.tls;
        of(done, format_args!("{} resumed, {} failed", Count(resumed), Count(failed)))
    }),
    ("Crypto engine", |s| {
        let report = &s.engine;
        let benched = if report.counters.is_benched { ", benched" } else { "" };
        format!("{} <small>{} waiting{benched}</small>", report.engine, Count(report.line.waiting))
    }),
    ("Sent to clients", |s| bytes(s.process.bytes_out)),
];

fn of(count: u64, rest: std::fmt::Arguments<'_>) -> String {
    format!("{} <small>{rest}</small>", Count(count))
}

/// Adds the list of facts.
pub fn render(out: &mut String, snapshot: &Snapshot) {
    out.push_str("<dl class=\"facts\">");
    for (name, value) in FACTS {
        let _ = write!(out, "<div><dt>{name}</dt><dd>{}</dd></div>", value(snapshot));
    }
    out.push_str("</dl>");
}
