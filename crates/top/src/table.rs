//! Tables that fit the terminal: a narrow one gets fewer columns, each with its whole heading.

use crate::{
    choices::Choices,
    rates::Rates,
    view::{Line, number},
};

/// A column of any table.
#[derive(Clone, Copy)]
pub(crate) struct Column {
    pub heading: &'static str,
    /// The column's width in characters, including the space before it.
    pub width: usize,
    /// If there is no room for all columns, those with the highest rank are left out first.
    pub rank: u8,
}

/// The indices of the columns that there is room for.
pub(crate) fn fitting(columns: &[Column], width: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..columns.len()).collect();
    order.sort_by_key(|at| columns[*at].rank);
    let mut left = width;
    let mut kept = Vec::new();
    for at in order {
        match left.checked_sub(columns[at].width) {
            Some(rest) => {
                left = rest;
                kept.push(at);
            }
            // No column of a higher rank fills the gap, so that a wider terminal never loses a column.
            None => break,
        }
    }
    kept.sort_unstable();
    kept
}

/// The kind of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Frontend,
    Backend,
    Server,
}

impl Kind {
    fn metric(self, name: &str) -> String {
        let kind = match self {
            Kind::Frontend => "frontend",
            Kind::Backend => "backend",
            Kind::Server => "server",
        };
        format!("haproxy_{kind}_{name}")
    }
}

type Cell = fn(&Rates<'_>, Kind, &[(&str, &str)]) -> Option<f64>;

const fn column(heading: &'static str, rank: u8) -> Column {
    Column { heading, width: 8, rank }
}

#[rustfmt::skip] // With one line per column, this reads as a table.
const CELLS: [(Column, Cell); 13] = [
    (column("queue", 3), |r, k, l| r.gauge(&k.metric("current_queue"), l)),
    (column("sess", 1), |r, k, l| r.gauge(&k.metric("current_sessions"), l)),
    (column("sess/s", 7), |r, k, l| known(r, k, "sessions_total", l)),
    (column("req/s", 0), |r, k, l| known(r, k, if k == Kind::Server { "loadbalanced_total" } else { "http_requests_total" }, l)),
    (column("resp ms", 4), |r, k, l| milliseconds(r, k, "response_time_average_seconds", l)),
    (column("wait ms", 11), |r, k, l| milliseconds(r, k, "queue_time_average_seconds", l)),
    (column("in B/s", 8), |r, k, l| known(r, k, "bytes_in_total", l)),
    (column("out B/s", 6), |r, k, l| known(r, k, "bytes_out_total", l)),
    (column("2xx/s", 9), |r, k, l| status(r, k, "2xx", l)),
    (column("3xx/s", 12), |r, k, l| status(r, k, "3xx", l)),
    (column("4xx/s", 10), |r, k, l| status(r, k, "4xx", l)),
    (column("5xx/s", 5), |r, k, l| status(r, k, "5xx", l)),
    (column("err/s", 2), |r, k, l| match k {
        Kind::Frontend => known(r, k, "request_errors_total", l),
        _ => Some(known(r, k, "connection_errors_total", l)? + known(r, k, "response_errors_total", l)?),
    }),
];

/// The number of columns that show numbers.
pub(crate) fn columns() -> usize {
    CELLS.len()
}

/// The heading of a column.
pub(crate) fn heading(column: usize) -> &'static str {
    CELLS[column].0.heading
}

/// The rate of a counter, if it exists.
fn known(rates: &Rates<'_>, kind: Kind, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let metric = kind.metric(name);
    rates.gauge(&metric, labels).map(|_| rates.rate(&metric, labels))
}

fn milliseconds(rates: &Rates<'_>, kind: Kind, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    rates.gauge(&kind.metric(name), labels).map(|seconds| seconds * 1000.0)
}

fn status(rates: &Rates<'_>, kind: Kind, class: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let labels: Vec<_> = labels.iter().copied().chain([("code", class)]).collect();
    known(rates, kind, "http_responses_total", &labels)
}

/// Width of name and state, before the columns of numbers.
const LEAD: usize = 31;
/// The widest that the column of names gets on a wide terminal.
const NAME_MAX: usize = 48;

struct Row {
    kind: Kind,
    proxy: String,
    name: String,
    state: String,
    values: Vec<Option<f64>>,
}

/// The table of proxies and servers, according to the user's choices.
pub(crate) fn proxies(rates: &Rates<'_>, choices: &Choices, width: usize) -> Vec<Line> {
    let all: Vec<Column> = CELLS.iter().map(|(column, _)| *column).collect();
    let shown = fitting(&all, width.saturating_sub(LEAD));
    let used: usize = shown.iter().map(|at| all[*at].width).sum();
    let name = (24 + width.saturating_sub(LEAD + used)).min(NAME_MAX);
    let text =
        |cell: &dyn Fn(usize) -> String| -> String { shown.iter().map(|at| format!("{:>8}", cell(*at))).collect() };
    let sorted = |at: usize| if choices.sort == Some(at) { format!("*{}", heading(at)) } else { heading(at).into() };
    let mut lines = vec![Line::head(format!("{:<name$} {:<6}{}", "PROXY / SERVER", "STATE", text(&sorted)))];
    for row in rows(rates, choices) {
        let label = label(&row, choices.sort.is_some());
        let cells = text(&|at| row.values[at].map_or_else(String::new, number));
        let line = format!("{label:<name$.name$} {:<6}{cells}", row.state);
        lines.push(if row.state == "DOWN" { Line::bad(line) } else { Line::plain(line) });
    }
    lines
}

/// The names of all proxies, in the order of the metrics.
fn names<'a>(rates: &Rates<'a>) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for metric in ["haproxy_frontend_sessions_total", "haproxy_backend_sessions_total"] {
        for series in rates.now.all(metric) {
            if !names.contains(&series.label("proxy")) {
                names.push(series.label("proxy"));
            }
        }
    }
    names
}

fn label(row: &Row, is_sorted: bool) -> String {
    match row.kind {
        Kind::Frontend => format!("> {}", row.proxy),
        Kind::Backend => format!("< {}", row.proxy),
        Kind::Server if is_sorted => format!("  {}/{}", row.proxy, row.name),
        Kind::Server => format!("  {}", row.name),
    }
}

fn rows(rates: &Rates<'_>, choices: &Choices) -> Vec<Row> {
    let mut rows = Vec::new();
    let names = names(rates);
    // After the last proxy, all are shown again.
    let one = (choices.proxy % (names.len() + 1)).checked_sub(1).map(|at| names[at]);
    let mut add = |kind: Kind, proxy: &str, name: &str| {
        let is_wanted = one.is_none_or(|one| one == proxy)
            && (choices.filter.is_empty() || proxy.contains(&choices.filter) || name.contains(&choices.filter));
        if !is_wanted {
            return;
        }
        let labels: Vec<(&str, &str)> =
            if kind == Kind::Server { vec![("proxy", proxy), ("server", name)] } else { vec![("proxy", proxy)] };
        let states = rates.now.all(&kind.metric("status"));
        let is_now = |series: &&crate::sample::Series| {
            series.value == 1.0 && labels.iter().all(|(name, value)| series.label(name) == *value)
        };
        let state = states.iter().find(is_now).map_or("", |series| series.label("state"));
        let values = CELLS.iter().map(|(_, cell)| cell(rates, kind, &labels)).collect();
        rows.push(Row { kind, proxy: proxy.into(), name: name.into(), state: state.into(), values });
    };
    for series in rates.now.all("haproxy_frontend_sessions_total") {
        add(Kind::Frontend, series.label("proxy"), "");
    }
    for series in rates.now.all("haproxy_backend_sessions_total") {
        let proxy = series.label("proxy");
        add(Kind::Backend, proxy, "");
        if !choices.no_servers {
            let servers = rates.now.all("haproxy_server_sessions_total").iter().filter(|s| s.label("proxy") == proxy);
            servers.for_each(|server| add(Kind::Server, proxy, server.label("server")));
        }
    }
    if let Some(column) = choices.sort {
        let value = |row: &Row| row.values[column].unwrap_or(-1.0);
        rows.sort_by(|one, other| value(other).total_cmp(&value(one)));
    }
    if choices.reversed && choices.sort.is_some() {
        rows.reverse();
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_goes_by_its_rank_and_never_in_part() {
        let columns =
            [("a", 10, 2), ("b", 5, 0), ("c", 5, 1)].map(|(heading, width, rank)| Column { heading, width, rank });
        assert_eq!(fitting(&columns, 20), [0, 1, 2]);
        assert_eq!(fitting(&columns, 19), [1, 2]);
        assert_eq!(fitting(&columns, 9), [1]);
        assert_eq!(fitting(&columns, 4), [0; 0]);
    }
}
