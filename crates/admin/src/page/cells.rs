//! The columns of a proxy's table: HAProxy's, in its order, each with its legend and a function that renders its cells.
//!
//! The table is never wider than a page of 1280 pixels: a limit shares a column with the maximum that it bounds, numbers have at most
//! five digits, and what may be longer may be broken.

use crate::html::{Age, Brief, Since, Text};
use penstock_proxy::counters::MeanTotal;
use penstock_proxy::server::Check;
use penstock_proxy::snapshot::{Kind, Row, ServerRow, Upstream};
use std::time::Duration;

/// A column.
pub struct Column {
    /// The column's heading.
    pub name: &'static str,
    /// An explanation of the column's values, shown on hover.
    pub legend: &'static str,
    /// Whether the column is text, which is aligned to the left.
    pub text: bool,
    /// Renders the cell of a row, as markup.
    pub cell: fn(&Row) -> String,
}

const fn number(name: &'static str, legend: &'static str, cell: fn(&Row) -> String) -> Column {
    Column { name, legend, text: false, cell }
}

const fn text(name: &'static str, legend: &'static str, cell: fn(&Row) -> String) -> Column {
    Column { name, legend, text: true, cell }
}

/// The groups of columns: the name of each, and its columns.
#[rustfmt::skip] // With one line per column, this reads as a table.
pub const GROUPS: &[(&str, &[Column])] = &[
    ("Queue", &[
        number("Now", "Requests waiting", |r| upstream(r, |_| count(r.queue.now))),
        number("Max/Limit", "Most that waited at once / maxqueue", |r| upstream(r, |_| count(r.queue.max)) + &limit(r.server.as_ref().and_then(|server| server.queue_limit))),
    ]),
    ("Sessions/s", &[
        number("Now", "Sessions a second", |r| if r.kind == Kind::Listener { String::new() } else { tip(count(r.totals.session_rate.rate), &rates(r)) }),
        number("Max/Limit", "Most in a second / rate-limit sessions", |r| if r.kind == Kind::Listener { String::new() } else { count(r.totals.session_rate.max) + &limit(Some(r.rate_limit).filter(|limit| *limit > 0)) }),
    ]),
    ("Sessions", &[
        number("Now", "Sessions or requests in progress", |r| tip(count(r.sessions.now), &connections(r))),
        number("Max/Limit", "Most at once / maxconn, or fullconn of a backend", |r| count(r.sessions.max) + &limit(r.sessions.limit)),
        number("Total", "All since the start", |r| tip(brief(r.totals.sessions), &totals(r))),
        number("LbTot", "Chosen by the balancing algorithm", |r| upstream(r, |up| brief(up.lb_total))),
        number("Last", "Time since the last one", |r| upstream(r, |_| last_session(r))),
    ]),
    ("Bytes", &[
        number("In", "From clients", |r| bytes(r.totals.bytes_in)),
        number("Out", "To clients", |r| bytes(r.totals.bytes_out)),
    ]),
    ("Denied", &[
        number("Req", "Requests denied by rules", |r| if r.kind == Kind::Server { String::new() } else { brief(r.totals.denied_requests) }),
        number("Resp", "Responses denied by rules", |r| brief(r.totals.denied_responses)),
    ]),
    ("Errors", &[
        number("Req", "Requests that could not be read", |r| if faces_clients(r) { brief(r.totals.request_errors) } else { String::new() }),
        number("Conn", "Connections to servers that failed", |r| upstream(r, |_| brief(r.totals.connect_errors))),
        number("Resp", "Responses that failed", |r| upstream(r, |_| tip(brief(r.totals.response_errors), &aborts(r)))),
    ]),
    ("Warnings", &[
        number("Retr", "Connections tried again", |r| upstream(r, |_| brief(r.totals.retries))),
        number("Redis", "Requests sent to another server", |r| upstream(r, |_| brief(r.totals.redispatches))),
    ]),
    ("Server", &[
        text("Status", "State and for how long", status),
        text("LastChk", "Last health check", last_check),
        number("Wght", "Effective weight / weight as configured", |r| upstream(r, |up| format!("{}/<wbr>{}", up.weight, up.user_weight))),
        number("Act/Bck", "Active / backup servers", |r| upstream(r, |up| servers(r, up))),
        number("Chk", "Failed health checks", |r| r.server.as_ref().and_then(ServerRow::check).map(|check| brief(check.failed)).unwrap_or_default()),
        number("Dwn", "Times it went down", |r| upstream(r, |up| if is_checked(r) { brief(up.down_transitions) } else { String::new() })),
        number("Dwntme", "Time spent down", |r| upstream(r, |up| if is_checked(r) { down_time(r, up) } else { String::new() })),
        number("Thrtle", "Slow start", |r| r.server.as_ref().and_then(|server| server.throttle).map(|percent| format!("{percent}\u{202f}%")).unwrap_or_default()),
    ]),
];

/// All columns in order; the flag tells whether the column begins a group.
pub fn columns() -> impl Iterator<Item = (&'static Column, bool)> {
    GROUPS.iter().flat_map(|(_, columns)| columns.iter().enumerate().map(|(at, column)| (column, at == 0)))
}

fn brief(n: u64) -> String {
    Brief::count(n).to_string()
}

fn count(n: u32) -> String {
    brief(n.into())
}

/// A limit, behind what it bounds. Between both, the cell may be broken.
fn limit(n: Option<u32>) -> String {
    n.map(|n| format!("/<wbr>{}", count(n))).unwrap_or_default()
}

fn upstream(row: &Row, cell: impl Fn(&Upstream) -> String) -> String {
    row.upstream.as_ref().map(cell).unwrap_or_default()
}

fn faces_clients(row: &Row) -> bool {
    matches!(row.kind, Kind::Frontend | Kind::Listener)
}

/// How many servers a backend has; of a server, of which kind it is.
fn servers(row: &Row, up: &Upstream) -> String {
    match row.kind {
        Kind::Server if up.backup > 0 => "Bck".into(),
        Kind::Server => "Act".into(),
        _ => format!("{}/<wbr>{}", up.active, up.backup),
    }
}

fn is_checked(row: &Row) -> bool {
    row.kind == Kind::Backend || row.server.as_ref().is_some_and(|server| server.check().is_some())
}

/// A cell that shows details on hover.
fn tip(cell: String, more: &str) -> String {
    if more.is_empty() { cell } else { format!("<abbr title=\"{}\">{cell}</abbr>", Text(more)) }
}

fn rates(row: &Row) -> String {
    let totals = &row.totals;
    if row.kind != Kind::Frontend {
        return String::new();
    }
    let of =
        |name: &str, rate: penstock_proxy::counters::RateTotal| format!("{name}: {}/s, most {}/s", rate.rate, rate.max);
    let connections = of("Connections", totals.connection_rate);
    if row.http { format!("{connections}\n{}", of("Requests", totals.request_rate)) } else { connections }
}

fn connections(row: &Row) -> String {
    let totals = &row.totals;
    match row.kind {
        Kind::Server => {
            let idle = totals.idle_connections;
            format!(
                "Connections in use: {}\nConnections idle: {idle}\nConnections estimated to be needed: {}",
                totals.used_connections, totals.needed_connections
            )
        }
        _ => String::new(),
    }
}

/// Numbers of responses by status class, and mean times, as on HAProxy's page.
fn totals(row: &Row) -> String {
    let totals = &row.totals;
    let mut lines = vec![format!("Sessions: {}", totals.sessions)];
    if row.kind == Kind::Listener {
        return String::new();
    }
    if row.kind == Kind::Frontend {
        lines.push(format!("Connections: {}", totals.connections));
    }
    if row.kind == Kind::Server {
        lines.push(format!("New connections: {}\nReused connections: {}", totals.connects, totals.reuses));
    }
    if row.http {
        lines.push(format!("Requests: {}", totals.requests));
        let names = ["1xx", "2xx", "3xx", "4xx", "5xx", "other"];
        lines.extend(names.iter().zip(totals.responses).map(|(name, count)| format!("  {name} responses: {count}")));
        if row.kind != Kind::Server {
            lines.push(format!("  looked up in a cache: {}", totals.cache_lookups));
            lines.push(format!("  answered from it: {}", totals.cache_hits));
        }
        lines.push(format!("Intercepted: {}", totals.intercepted));
    }
    if row.upstream.is_some() {
        lines.push("Mean of the last 512, and most:".into());
        let mut time =
            |name: &str, mean: &MeanTotal| lines.push(format!("  {name}: {} ms, {} ms", mean.mean(), mean.max));
        time("queue", &totals.queue_time);
        time("connect", &totals.connect_time);
        time("response", &totals.response_time);
        time("total", &totals.total_time);
    }
    lines.join("\n")
}

fn aborts(row: &Row) -> String {
    format!("Aborted by clients: {}\nAborted by servers: {}", row.totals.client_aborts, row.totals.server_aborts)
}

fn last_session(row: &Row) -> String {
    let at = row.totals.last_session.map(Duration::from_secs);
    at.map(|at| Since { now: row.now, age: row.now.saturating_sub(at) }.to_string()).unwrap_or_default()
}

fn down_time(row: &Row, up: &Upstream) -> String {
    match up.down {
        true => Since { now: row.now, age: up.down_time }.to_string(),
        false => Age(up.down_time.as_secs()).to_string(),
    }
}

fn status(row: &Row) -> String {
    let since = upstream(row, |up| format!(" {}", Since { now: row.now, age: up.since }));
    format!("<span class=\"state {}\">{}</span>{since}", state(&row.status), Text(&row.status))
}

fn last_check(row: &Row) -> String {
    let server = row.server.as_ref();
    let check = server.and_then(ServerRow::check).map(|check| result("", check));
    let agent = server.and_then(ServerRow::agent).map(|agent| result("agent ", agent));
    let cells: Vec<String> = [check, agent].into_iter().flatten().filter(|cell| !cell.is_empty()).collect();
    cells.join("<br>")
}

/// The last result of a check or an agent.
fn result(what: &str, check: &Check) -> String {
    if check.status.is_empty() {
        return String::new();
    }
    let code = check.code.filter(|&code| code > 0).map(|code| format!("/{code}")).unwrap_or_default();
    let took = check.duration.map(|took| format!(" in {}", milliseconds(took))).unwrap_or_default();
    let info = if check.info.is_empty() { String::new() } else { format!(": {}", check.info) };
    let star = if check.running { "* " } else { "" };
    let brief = Text(&format!("{what}{star}{}{code}{took}", check.status)).to_string();
    tip(brief, &format!("{}{info}", check.description))
}

fn milliseconds(took: Duration) -> String {
    format!("{} ms", took.as_millis())
}

/// The CSS class of a state, which determines its colour.
pub fn state(status: &str) -> &'static str {
    let partial = status.contains('/') && !status.starts_with("MAINT");
    match status.split(' ').next().unwrap_or_default() {
        "DOWN" if partial => "turning",
        "UP" if partial => "turning",
        "UP" | "OPEN" => "up",
        "DOWN" => "down",
        "MAINT" | "STOP" | "PAUSED" => "maint",
        "DRAIN" | "NOLB" => "drain",
        _ => "unchecked",
    }
}

/// A number of bytes, with a unit if it is large.
pub fn bytes(n: u64) -> String {
    Brief::bytes(n).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_have_their_colours() {
        for (status, class) in [
            ("UP", "up"),
            ("UP 1/3", "turning"),
            ("DOWN 1/2", "turning"),
            ("DOWN", "down"),
            ("OPEN", "up"),
            ("no check", "unchecked"),
            ("MAINT (via b/s)", "maint"),
            ("NOLB", "drain"),
            ("DRAIN (agent)", "drain"),
            ("PAUSED", "maint"),
        ] {
            assert_eq!(state(status), class, "{status}");
        }
    }
}
