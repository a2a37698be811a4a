//! `http-request use-service prometheus-exporter`: HAProxy's metric names, labels, types and parameters.

use crate::collapses;
use crate::columns::COLUMNS;
use crate::engine;
use crate::metrics::METRICS;
use crate::page::decode;
use crate::taps;
use penstock_proxy::{
    Forgeries,
    resolving::{COUNTS, Section},
    snapshot::{Kind, Process, Row, Snapshot},
};
use penstock_rules::table::StickTable;
use std::{
    collections::HashMap,
    fmt::{Display, Write as _},
    sync::Arc,
};

/// The selection of metrics for a scrape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    process: bool,
    frontends: bool,
    listeners: bool,
    backends: bool,
    servers: bool,
    sticktables: bool,
    resolvers: bool,
    /// `no-maint`: whether servers in maintenance are omitted.
    no_maint: bool,
}

impl Scope {
    /// Parses a query string. The first `scope` turns everything off, and each one turns a part on; `None` for a scope
    /// that does not exist.
    pub fn parse(query: &str) -> Option<Scope> {
        let every = |on| Scope {
            process: on,
            frontends: on,
            listeners: on,
            backends: on,
            servers: on,
            sticktables: on,
            resolvers: on,
            no_maint: false,
        };
        let (all, none) = (every(true), every(false));
        let (mut scope, mut narrowed) = (all, false);
        for (name, value) in pairs(query) {
            match name.as_str() {
                "scope" => {
                    if !std::mem::replace(&mut narrowed, true) {
                        scope = Scope { no_maint: scope.no_maint, ..none };
                    }
                    match value?.as_str() {
                        "" => scope = Scope { no_maint: scope.no_maint, ..none },
                        "*" => scope = Scope { no_maint: scope.no_maint, ..all },
                        "global" => scope.process = true,
                        "frontend" => scope.frontends = true,
                        "listener" => scope.listeners = true,
                        "backend" => scope.backends = true,
                        "server" => scope.servers = true,
                        "sticktable" => scope.sticktables = true,
                        "resolver" => scope.resolvers = true,
                        _ => return None,
                    }
                }
                "no-maint" => scope.no_maint = true,
                _ => {}
            }
        }
        Some(scope)
    }
}

/// The metrics that `metrics=` names, each with whether it is shown. If one was asked for, those that are not named are left out.
#[derive(Debug, Default)]
pub struct MetricNames {
    named: HashMap<String, bool>,
    only_named: bool,
}

impl MetricNames {
    /// Parses a query string: names behind commas, which a minus sign leaves out; the last word on a name counts. `None` for `metrics`
    /// without a value.
    pub fn parse(query: &str) -> Option<MetricNames> {
        let mut filter = MetricNames::default();
        for (_, value) in pairs(query).filter(|(name, _)| name == "metrics") {
            for word in value?.split(',').filter(|word| !word.is_empty()) {
                let (name, shown) = word.strip_prefix('-').map_or((word, true), |name| (name, false));
                filter.only_named |= shown;
                filter.named.insert(name.to_string(), shown);
            }
        }
        Some(filter)
    }

    fn shows(&self, name: &str) -> bool {
        self.named.get(name).copied().unwrap_or(!self.only_named)
    }

    /// The metrics of an exposition that are shown.
    fn apply(&self, text: String) -> String {
        if self.named.is_empty() {
            return text;
        }
        let mut shown = true;
        let lines = text.split_inclusive('\n').filter(|line| {
            if let Some(help) = line.strip_prefix("# HELP ") {
                shown = self.shows(help.split(' ').next().unwrap_or_default());
            }
            shown
        });
        lines.collect()
    }
}

/// The names and values of a query string.
fn pairs(query: &str) -> impl Iterator<Item = (String, Option<String>)> + '_ {
    query.split('#').next().unwrap_or_default().split('&').map(|pair| match pair.split_once('=') {
        Some((name, value)) => (decode(name), Some(decode(value))),
        None => (decode(pair), None),
    })
}

/// The exposition format, version 0.0.4.
pub fn render(
    snapshot: &Snapshot,
    tables: &[Arc<StickTable>],
    resolvers: &[Section],
    (scope, filter): (Scope, &MetricNames),
    version: &str,
) -> String {
    let mut out = String::with_capacity(16 * 1024);
    if scope.process {
        process(&mut out, &snapshot.process, version);
        engine::render(&mut out, &snapshot.engine);
        forgeries(&mut out, snapshot.forgeries);
        taps::render(&mut out, &snapshot.taps);
        collapses::render(&mut out, &snapshot.collapses);
    }
    for (kind, letter, wanted) in [
        (Kind::Frontend, 'F', scope.frontends),
        (Kind::Listener, 'L', scope.listeners),
        (Kind::Backend, 'B', scope.backends),
        (Kind::Server, 'S', scope.servers),
    ] {
        if !wanted {
            continue;
        }
        let in_maintenance = |row: &&Row| row.server.as_ref().is_some_and(|server| server.status.admin.maint());
        let rows: Vec<&Row> = snapshot
            .rows
            .iter()
            .filter(|row| row.kind == kind)
            .filter(|row| !(scope.no_maint && in_maintenance(row)))
            .collect();
        for metric in METRICS.iter().filter(|metric| metric.kinds.contains(letter)) {
            let name = format!("haproxy_{}_{}", prefix(kind), metric.name);
            let mut series = String::new();
            for row in &rows {
                match metric.name {
                    "status" => states(&mut series, &name, row),
                    "check_status" => check_results(&mut series, &name, row),
                    "agg_server_status" | "agg_server_check_status" => {
                        count_states(&mut series, &name, row, &snapshot.rows);
                    }
                    "agg_check_status" => count_results(&mut series, &name, row, &snapshot.rows),
                    "http_responses_total" => {
                        for (class, code) in ["1xx", "2xx", "3xx", "4xx", "5xx", "other"].iter().enumerate() {
                            if row.http {
                                let labels = format!("{},code=\"{code}\"", labels(row));
                                let _ = writeln!(series, "{name}{{{labels}}} {}", row.totals.responses[class]);
                            }
                        }
                    }
                    _ => plain(&mut series, &name, metric.column, row),
                }
            }
            if !series.is_empty() {
                head(&mut out, &name, metric.counter, metric.help);
                out.push_str(&series);
            }
        }
    }
    if scope.sticktables && !tables.is_empty() {
        of_tables(&mut out, tables, "size", "Entries that the stick table may have", |table| table.spec.size);
        of_tables(&mut out, tables, "used", "Entries of the stick table", |table| table.len());
    }
    if scope.resolvers {
        of_resolvers(&mut out, resolvers);
    }
    filter.apply(out)
}

/// What came of the queries to each name server.
fn of_resolvers(out: &mut String, sections: &[Section]) {
    for (at, word) in COUNTS.into_iter().enumerate() {
        let name = format!("haproxy_resolver_{}", if word == "snd_error" { "send_error" } else { word });
        let mut series = String::new();
        for section in sections {
            for server in &section.nameservers {
                let (of, to) = (escape(&section.name), escape(&server.name));
                let count = server.counts().nth(at).map_or(0, |(_, count)| count);
                // Writing to a String does not fail.
                let _ = writeln!(series, "{name}{{resolver=\"{of}\",nameserver=\"{to}\"}} {count}");
            }
        }
        if !series.is_empty() {
            head(out, &name, false, &format!("Count of queries and answers: {word} in 'show resolvers'"));
            out.push_str(&series);
        }
    }
}

/// A metric of all stick tables.
fn of_tables<N: Display>(
    out: &mut String,
    tables: &[Arc<StickTable>],
    metric: &str,
    help: &str,
    value: impl Fn(&StickTable) -> N,
) {
    let name = format!("haproxy_sticktable_{metric}");
    head(out, &name, false, help);
    for table in tables {
        let (of, kind) = (escape(&table.name), table.spec.key.name());
        // Writing to a String does not fail.
        let _ = writeln!(out, "{name}{{name=\"{of}\",type=\"{kind}\"}} {}", value(table));
    }
}

fn head(out: &mut String, name: &str, counter: bool, help: &str) {
    let kind = if counter { "counter" } else { "gauge" };
    let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

fn prefix(kind: Kind) -> &'static str {
    match kind {
        Kind::Frontend => "frontend",
        Kind::Listener => "listener",
        Kind::Backend => "backend",
        Kind::Server => "server",
    }
}

fn labels(row: &Row) -> String {
    let proxy = escape(&row.proxy_name);
    match row.kind {
        Kind::Server => format!("proxy=\"{proxy}\",server=\"{}\"", escape(&row.name)),
        Kind::Listener => format!("proxy=\"{proxy}\",listener=\"{}\"", escape(&row.name)),
        _ => format!("proxy=\"{proxy}\""),
    }
}

fn escape(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Columns that only HTTP proxies have.
const HTTP_ONLY: [&str; 10] = [
    "req_rate_max",
    "req_tot",
    "comp_in",
    "comp_out",
    "comp_byp",
    "comp_rsp",
    "intercepted",
    "cache_lookups",
    "cache_hits",
    "hrsp_1xx",
];

fn plain(out: &mut String, name: &str, column: &str, row: &Row) {
    let server_check = column.starts_with("check_");
    let checked = row.server.as_ref().is_some_and(|server| server.check().is_some());
    if HTTP_ONLY.contains(&column) && !row.http || server_check && !checked {
        return;
    }
    let Some(column) = COLUMNS.iter().find(|c| c.name == column) else { return };
    let value = (column.value)(row, false).number();
    let labels = labels(row);
    // Columns are in milliseconds, these metrics in seconds.
    let in_ms =
        name.ends_with("_seconds") && ["time", "time_max", "duration"].iter().any(|end| column.name.ends_with(end));
    let _ = match value {
        // A check without a code has the code 0.
        None if server_check => writeln!(out, "{name}{{{labels}}} 0"),
        None => writeln!(out, "{name}{{{labels}}} NaN"),
        Some(ms) if in_ms => writeln!(out, "{name}{{{labels}}} {:.6}", ms / 1000.0),
        Some(n) => writeln!(out, "{name}{{{labels}}} {n}"),
    };
}

const SERVER_STATES: [&str; 5] = ["DOWN", "UP", "MAINT", "DRAIN", "NOLB"];

/// The state of a server as one of [`SERVER_STATES`].
fn server_state(row: &Row) -> &'static str {
    let word = row.status.split(' ').next().unwrap_or_default();
    // A server without a check is up.
    SERVER_STATES.into_iter().find(|state| *state == word).unwrap_or("UP")
}

fn states(out: &mut String, name: &str, row: &Row) {
    let (known, now): (&[&str], &str) = match row.kind {
        Kind::Server => (&SERVER_STATES, server_state(row)),
        Kind::Listener => (&["WAITING", "OPEN", "FULL"], if row.status == "OPEN" { "OPEN" } else { "WAITING" }),
        Kind::Frontend => (&["DOWN", "UP"], if row.status == "OPEN" { "UP" } else { "DOWN" }),
        Kind::Backend => (&["DOWN", "UP"], row.status.as_str()),
    };
    let labels = labels(row);
    for state in known {
        let _ = writeln!(out, "{name}{{{labels},state=\"{state}\"}} {}", u8::from(*state == now));
    }
}

const CHECK_RESULTS: [&str; 16] = [
    "HANA", "SOCKERR", "L4OK", "L4TOUT", "L4CON", "L6OK", "L6TOUT", "L6RSP", "L7TOUT", "L7RSP", "L7OK", "L7OKC",
    "L7STS", "PROCERR", "PROCTOUT", "PROCOK",
];

fn check_result(row: &Row) -> Option<&'static str> {
    Some(row.server.as_ref()?.check()?.status)
}

fn check_results(out: &mut String, name: &str, row: &Row) {
    let Some(now) = check_result(row) else { return };
    let labels = labels(row);
    for result in CHECK_RESULTS {
        let _ = writeln!(out, "{name}{{{labels},state=\"{result}\"}} {}", u8::from(result == now));
    }
}

fn servers_of<'a>(row: &'a Row, rows: &'a [Row]) -> impl Iterator<Item = &'a Row> {
    rows.iter().filter(|other| other.kind == Kind::Server && other.proxy == row.proxy)
}

fn count_states(out: &mut String, name: &str, row: &Row, rows: &[Row]) {
    let labels = labels(row);
    for state in SERVER_STATES {
        let n = servers_of(row, rows).filter(|server| server_state(server) == state).count();
        let _ = writeln!(out, "{name}{{{labels},state=\"{state}\"}} {n}");
    }
}

fn count_results(out: &mut String, name: &str, row: &Row, rows: &[Row]) {
    let labels = labels(row);
    for result in CHECK_RESULTS {
        let n = servers_of(row, rows).filter(|server| check_result(server) == Some(result)).count();
        let _ = writeln!(out, "{name}{{{labels},state=\"{result}\"}} {n}");
    }
}

/// Certificates made for clients, which HAProxy does not count.
fn forgeries(out: &mut String, counts: Forgeries) {
    const NAME: &str = "penstock_generated_certificates_total";
    let _ = write!(out, "# HELP {NAME} Certificates asked for by 'generate-certificates'\n# TYPE {NAME} counter\n");
    for (result, count) in [("made", counts.made), ("kept", counts.kept), ("refused", counts.refused)] {
        let _ = writeln!(out, "{NAME}{{result=\"{result}\"}} {count}");
    }
}

/// Metrics of the whole process. For parts of HAProxy that do not exist here, the values are those of a process that
/// does not use them.
fn process(out: &mut String, process: &Process, version: &str) {
    let (current, _, total) = process.connections;
    let (done, resumed, _) = process.tls;
    let fresh = done.saturating_sub(resumed);
    // Like HAProxy without zlib, until something was compressed.
    let compresses = process.compression.memory + process.compression.memory_max > 0;
    let memory = |bytes: u64| if compresses { bytes.to_string() } else { "NaN".into() };
    let reuse = (100 * resumed).checked_div(done).unwrap_or(0);
    #[rustfmt::skip] // One line a metric reads as the table that it is.
    let table: &[(&str, bool, String, &str)] = &[
        ("nbthread", false, process.threads.to_string(), "Workers"),
        ("nbproc", false, "1".into(), "Processes, always 1"),
        ("relative_process_id", false, "1".into(), "Number of the process, always 1"),
        ("uptime_seconds", false, process.uptime.as_secs().to_string(), "Time since the start"),
        ("pool_failures_total", true, "0".into(), "Failed allocations: the process ends instead"),
        ("max_fds", false, process.max_fds.to_string(), "Files that may be open"),
        ("max_sockets", false, process.max_fds.to_string(), "Sockets that may be open"),
        ("max_connections", false, process.maxconn.to_string(), "Client connections allowed"),
        ("hard_max_connections", false, process.maxconn.to_string(), "Client connections allowed at start"),
        ("current_connections", false, current.to_string(), "Client connections now"),
        ("connections_total", true, total.to_string(), "Client connections"),
        ("requests_total", true, process.requests.to_string(), "Requests"),
        ("max_ssl_connections", false, "0".into(), "TLS connections allowed: no limit of their own"),
        ("current_ssl_connections", false, process.tls_now.to_string(), "TLS connections of clients now"),
        ("ssl_connections_total", true, done.to_string(), "TLS connections of clients"),
        ("max_pipes", false, "0".into(), "Pipes allowed: none are used"),
        ("pipes_used_total", true, "0".into(), "Pipes in use"),
        ("pipes_free_total", true, "0".into(), "Pipes kept"),
        ("current_connection_rate", false, process.connection_rate.0.to_string(), "Connections a second"),
        ("limit_connection_rate", false, process.rate_limits[0].to_string(), "Connections a second allowed"),
        ("max_connection_rate", false, process.connection_rate.1.to_string(), "Most connections a second"),
        ("current_session_rate", false, process.session_rate.0.to_string(), "Sessions a second"),
        ("limit_session_rate", false, process.rate_limits[1].to_string(), "Sessions a second allowed"),
        ("max_session_rate", false, process.session_rate.1.to_string(), "Most sessions a second"),
        ("current_ssl_rate", false, process.paces.tls.0.to_string(), "TLS handshakes with clients a second"),
        ("limit_ssl_rate", false, process.rate_limits[2].to_string(), "TLS sessions a second allowed"),
        ("max_ssl_rate", false, process.paces.tls.1.to_string(), "Most TLS handshakes with clients a second"),
        ("current_frontend_ssl_key_rate", false, process.paces.tls_full.0.to_string(), "Full TLS handshakes with clients a second"),
        ("max_frontend_ssl_key_rate", false, process.paces.tls_full.1.to_string(), "Most full TLS handshakes with clients a second"),
        ("frontend_ssl_reuse", false, reuse.to_string(), "TLS sessions resumed, percent"),
        ("current_backend_ssl_key_rate", false, process.paces.tls_servers_full.0.to_string(), "Full TLS handshakes with servers a second"),
        ("max_backend_ssl_key_rate", false, process.paces.tls_servers_full.1.to_string(), "Most full TLS handshakes with servers a second"),
        ("ssl_cache_lookups_total", true, done.to_string(), "TLS sessions looked up"),
        ("ssl_cache_misses_total", true, fresh.to_string(), "TLS sessions not found"),
        ("http_comp_bytes_in_total", true, process.compression.taken.to_string(), "Bytes a second that are compressed"),
        ("http_comp_bytes_out_total", true, process.compression.made.to_string(), "Bytes a second that they become"),
        ("limit_http_comp", false, process.compression.limit.to_string(), "Bytes a second that may be compressed"),
        ("current_zlib_memory", false, memory(process.compression.memory), "Bytes of memory that encoders take"),
        ("max_zlib_memory", false, memory(process.compression.memory_max), "Bytes of memory that encoders may take"),
        ("current_tasks", false, current.to_string(), "Tasks: one a connection"),
        ("current_run_queue", false, process.working.to_string(), "Workers at work now"),
        ("idle_time_percent", false, process.paces.idle_percent.to_string(), "Share of the workers' time spent waiting, percent"),
        ("stopping", false, u8::from(process.stopping).to_string(), "1 once it stops listening"),
        ("jobs", false, (current + process.listeners).to_string(), "Connections and listeners"),
        ("unstoppable_jobs", false, "0".into(), "Jobs that a stop does not wait for"),
        ("listeners", false, process.listeners.to_string(), "Listeners"),
        ("active_peers", false, process.peers.0.to_string(), "Peers"),
        ("connected_peers", false, process.peers.1.to_string(), "Peers with a session"),
        ("dropped_logs_total", true, process.dropped_logs.to_string(), "Log lines that could not be sent"),
        ("busy_polling_enabled", false, "0".into(), "1 under busy polling"),
        ("failed_resolutions", true, process.failed_resolutions.to_string(), "Names that failed to resolve"),
        ("bytes_out_total", true, process.bytes_out.to_string(), "Bytes to clients"),
        ("spliced_bytes_out_total", true, "0".into(), "Bytes moved by splicing"),
        ("bytes_out_rate", false, process.paces.bytes_out.to_string(), "Bytes a second to clients"),
        ("recv_logs_total", true, process.received_logs.to_string(), "Log lines received"),
        ("build_info", false, String::new(), "Version"),
        ("max_memory_bytes", false, "0".into(), "Memory allowed, 0 for no limit"),
        ("pool_allocated_bytes", false, "NaN".into(), "Memory of pools: not used"),
        ("pool_used_bytes", false, "NaN".into(), "Memory of pools in use: not used"),
        ("start_time_seconds", false, process.started.to_string(), "When it started, since 1970"),
    ];
    for (name, counter, value, help) in table {
        let name = format!("haproxy_process_{name}");
        head(out, &name, *counter, help);
        let _ = match value.as_str() {
            "" => writeln!(out, "{name}{{version=\"{}\"}} 1", escape(version)),
            value => writeln!(out, "{name} {value}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_continue_in_the_next_process() {
        let lost =
            METRICS.iter().filter(|metric| metric.counter && !penstock_proxy::stats_file::carries(metric.column));
        // The time spent down is part of a server's state.
        let lost: Vec<&str> = lost.map(|metric| metric.column).filter(|column| *column != "downtime").collect();
        assert!(lost.is_empty(), "give them a row in proxy's observe/stats_file.rs: {lost:?}");
    }

    #[test]
    fn every_metric_names_a_column() {
        for metric in METRICS {
            assert!(COLUMNS.iter().any(|column| column.name == metric.column), "{}", metric.name);
        }
    }

    #[test]
    fn scopes_add_up() {
        let scope = Scope::parse("scope=frontend&scope=server&no-maint").expect("known scopes");
        assert!(scope.frontends && scope.servers && scope.no_maint && !scope.backends && !scope.process);
        assert_eq!(Scope::parse("scope=elsewhere"), None);
        assert_eq!(Scope::parse("scope"), None);
        let tables = Scope::parse("scope=%73ticktable#scope=server").expect("a known scope");
        assert!(tables.sticktables && !tables.servers && !tables.process);
        assert!(Scope::parse("").is_some_and(|scope| scope.process && scope.listeners));
        assert!(Scope::parse("scope=").is_some_and(|scope| !scope.process && !scope.servers));
    }

    #[test]
    fn metrics_are_named_or_left_out() {
        let shown = |query: &str| {
            let filter = MetricNames::parse(query).expect("a value");
            let text = ["a", "b", "c"].map(|name| format!("# HELP {name} Text\n# TYPE {name} gauge\n{name} 1\n"));
            let left = filter.apply(text.concat());
            left.lines().filter_map(|line| line.strip_suffix(" 1")).collect::<String>()
        };
        for (query, expected) in [
            ("", "abc"),
            ("metrics=", "abc"),
            ("metrics=-", "abc"),
            ("metrics=,b,&scope=*&metrics=%63", "bc"),
            ("metrics=-b", "ac"),
            ("metrics=a,-b", "a"),
            ("metrics=b,-b", ""),
            ("metrics=-b,b", "b"),
            ("metrics=A", ""),
        ] {
            assert_eq!(shown(query), expected, "{query}");
        }
        assert!(MetricNames::parse("metrics").is_none());
    }
}
