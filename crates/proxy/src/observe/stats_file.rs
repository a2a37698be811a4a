//! Counters of earlier processes, as text: what `dump stats-file` writes and `stats-file` reads (management manual of HAProxy 3.0,
//! "Stats-file"), and what a worker leaves to the next one.
//!
//! ```text
//! #fe guid,stot,bin,...
//! site,1000,82000,...
//!
//! #be guid,stot,bin,...
//! ```
//!
//! Frontends and their sockets are in the first section, backends and their servers in the second. Unknown sections, unknown
//! columns and rows that match no name in the configuration are ignored, as in HAProxy.

use super::snapshot::{Kind, Row};
use std::{
    collections::HashMap,
    fmt::{self, Display, Write as _},
};

/// A counter that continues from process to process: its column, and where a row stores it.
struct Column {
    name: &'static str,
    read: fn(&Row) -> u64,
    /// Finds the counter in a row; `None` if the row has no such counter.
    place: fn(&mut Row) -> Option<&mut u64>,
}

macro_rules! totals {
    ($($name:literal: $field:ident $([$class:literal])?,)+) => {
        &[$(Column {
            name: $name,
            read: |row| row.totals.$field $([$class])?,
            place: |row| Some(&mut row.totals.$field $([$class])?),
        },)+]
    };
}

/// HAProxy's columns first, then columns that it ignores.
const COMMON: &[Column] = totals! {
    "stot": sessions,
    "bin": bytes_in,
    "bout": bytes_out,
    "dreq": denied_requests,
    "dresp": denied_responses,
    "ereq": request_errors,
    "econ": connect_errors,
    "eresp": response_errors,
    "wretr": retries,
    "wredis": redispatches,
    "hrsp_1xx": responses[0],
    "hrsp_2xx": responses[1],
    "hrsp_3xx": responses[2],
    "hrsp_4xx": responses[3],
    "hrsp_5xx": responses[4],
    "hrsp_other": responses[5],
    "conn_tot": connections,
    "intercepted": intercepted,
    "dcon": denied_connections,
    "dses": denied_sessions,
    "cli_abrt": client_aborts,
    "srv_abrt": server_aborts,
    "wrew": failed_rewrites,
    "connect": connects,
    "reuse": reuses,
    "eint": internal_errors,
    "h1sess": h1_total_connections,
    "h2sess": h2_total_connections,
    "h1req": h1_total_streams,
    "h2req": h2_total_streams,
    "req_tot": requests,
    "ssl_sess": ssl_sessions,
    "ssl_reused_sess": ssl_reused_sessions,
    "ssl_failed_handshake": ssl_failed_handshakes,
    "h2_headers_rcvd": h2_headers_received,
    "h2_data_rcvd": h2_data_received,
    "h2_settings_rcvd": h2_settings_received,
    "h2_rst_stream_rcvd": h2_resets_received,
    "h2_goaway_rcvd": h2_goaways_received,
    "h2_detected_conn_protocol_errors": h2_connection_errors,
    "h2_detected_strm_protocol_errors": h2_stream_errors,
    "h2_rst_stream_resp": h2_resets_sent,
    "h2_goaway_resp": h2_goaways_sent,
    "h1_bytes_in": h1_bytes_in,
    "h1_bytes_out": h1_bytes_out,
    "comp_in": compressed_in,
    "comp_out": compressed_out,
    "comp_byp": compression_bypassed,
    "comp_rsp": compressed_responses,
    "cache_lookups": cache_lookups,
    "cache_hits": cache_hits,
};

/// Counters that only backends and servers have.
const UPSTREAM: &[Column] = &[
    Column {
        name: "chkfail",
        read: |row| row.server.as_ref().and_then(|server| server.check()).map_or(0, |check| check.failed),
        place: |row| Some(&mut row.server.as_mut()?.status.check.as_mut()?.failed),
    },
    Column {
        name: "chkdown",
        read: |row| row.upstream.as_ref().map_or(0, |upstream| upstream.down_transitions),
        place: |row| Some(&mut row.upstream.as_mut()?.down_transitions),
    },
    Column {
        name: "lbtot",
        read: |row| row.upstream.as_ref().map_or(0, |upstream| upstream.lb_total),
        place: |row| Some(&mut row.upstream.as_mut()?.lb_total),
    },
];

/// Whether a counter, named as in `show stat`, continues in the next process.
pub fn carries(name: &str) -> bool {
    COMMON.iter().chain(UPSTREAM).any(|column| column.name == name)
}

/// The columns that add up to a frontend's requests in HAProxy's file, which has no `req_tot` for it.
const REQUESTS: [&str; 4] = ["h1req", "h2req", "h3req", "req_other"];

/// The heading of the process's own counters.
const PROCESS: &str = "#process name";

/// The two kinds of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Section {
    Front,
    Back,
}

impl Section {
    fn of(kind: Kind) -> Section {
        match kind {
            Kind::Frontend | Kind::Listener => Section::Front,
            Kind::Backend | Kind::Server => Section::Back,
        }
    }
    fn heading(self) -> &'static str {
        match self {
            Section::Front => "#fe guid",
            Section::Back => "#be guid",
        }
    }
    fn columns(self) -> impl Iterator<Item = &'static Column> {
        let more = if self == Section::Back { UPSTREAM } else { &[] };
        COMMON.iter().chain(more)
    }
}

/// Selects the rows to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Rows with a guid: for an operator's file, which remains valid when the configuration changes.
    Named,
    /// All rows, those without a guid by their proxy's name and their own, and what the process counts: for the next worker.
    All(OfProcess),
}

/// What is counted for the process rather than in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfProcess {
    /// Client connections.
    pub connections: u64,
    /// Connections to stats sockets.
    pub operators: u64,
}

/// Writes the counters of these rows as text.
pub fn write(rows: &[Row], which: Which) -> String {
    let mut text = String::new();
    for section in [Section::Front, Section::Back] {
        text.push_str(section.heading());
        for column in section.columns() {
            let _ = write!(text, ",{}", column.name);
        }
        text.push_str(",\n");
        for row in rows.iter().filter(|row| Section::of(row.kind) == section) {
            let Some(name) = row.guid.clone().or_else(|| (which != Which::Named).then(|| place(row))) else { continue };
            text.push_str(&name);
            for column in section.columns() {
                let _ = write!(text, ",{}", (column.read)(row));
            }
            text.push_str(",\n");
        }
        text.push('\n');
    }
    if let Which::All(OfProcess { connections, operators }) = which {
        let _ = write!(text, "{PROCESS},conn_tot,cli_tot,\nprocess,{connections},{operators},\n");
    }
    text
}

/// The name of a row without a guid. It contains a slash, which no guid does.
fn place(row: &Row) -> String {
    format!("{}/{}", row.proxy_name, row.name)
}

/// The counters of earlier processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// The values of a section's columns, in their order.
    rows: HashMap<(Section, String), Box<[u64]>>,
    process: OfProcess,
}

/// A line that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// The line's number, counted from 1.
    pub line: usize,
    what: String,
}

impl Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

/// How to read the lines below a heading.
enum Reading<'a> {
    /// There has been no heading.
    Nothing,
    /// An unknown section.
    Other,
    Rows(Section, Vec<&'a str>),
    Process,
}

impl<'a> Reading<'a> {
    fn begin(heading: &str, columns: impl Iterator<Item = &'a str>) -> Reading<'a> {
        match [Section::Front, Section::Back].into_iter().find(|section| section.heading() == heading) {
            Some(section) => Reading::Rows(section, columns.collect()),
            None if heading == PROCESS => Reading::Process,
            None => Reading::Other,
        }
    }
}

impl Past {
    /// Reads the counters in a text; also returns the lines that were skipped because they could not be read.
    pub fn read(text: &str) -> (Past, Vec<BadLine>) {
        let (mut past, mut bad) = (Past::default(), Vec::new());
        let mut reading = Reading::Nothing;
        for (line, number) in text.lines().zip(1..).filter(|(line, _)| !line.is_empty()) {
            let mut cells = line.strip_suffix(',').unwrap_or(line).split(',');
            let first = cells.next().unwrap_or_default();
            if first.starts_with('#') {
                reading = Reading::begin(first, cells);
                continue;
            }
            let added: Result<Vec<u64>, String> =
                cells.map(|cell| cell.parse().map_err(|_| format!("'{cell}' is not a count"))).collect();
            let added = added.and_then(|values| past.add_line(&reading, first, values));
            if let Err(what) = added {
                bad.push(BadLine { line: number, what });
            }
        }
        (past, bad)
    }

    fn add_line(&mut self, reading: &Reading<'_>, name: &str, values: Vec<u64>) -> Result<(), String> {
        match reading {
            Reading::Nothing => return Err("no heading stands before it".into()),
            Reading::Other => {}
            Reading::Process => {
                let count = |at: usize| values.get(at).copied().unwrap_or(0);
                self.process = OfProcess { connections: count(0), operators: count(1) };
            }
            Reading::Rows(_, columns) if values.len() > columns.len() => {
                return Err(format!("{} values for {} columns", values.len(), columns.len()));
            }
            Reading::Rows(section, columns) => {
                let value =
                    |name: &str| columns.iter().zip(&values).find(|(column, _)| **column == name).map(|(_, n)| *n);
                let requests = || REQUESTS.iter().filter_map(|name| value(name)).fold(0, u64::saturating_add);
                let values = section.columns().map(|column| match value(column.name) {
                    None if column.name == "req_tot" && *section == Section::Front => requests(),
                    value => value.unwrap_or(0),
                });
                self.rows.insert((*section, name.to_owned()), values.collect());
            }
        }
        Ok(())
    }

    /// Adds the earlier counters to the current ones.
    pub fn add_to(&self, rows: &mut [Row]) {
        if self.rows.is_empty() {
            return;
        }
        for row in rows {
            let section = Section::of(row.kind);
            let named = row.guid.as_ref().and_then(|guid| self.rows.get(&(section, guid.clone())));
            let Some(values) = named.or_else(|| self.rows.get(&(section, place(row)))) else { continue };
            for (column, value) in section.columns().zip(values) {
                if let Some(counted) = (column.place)(row) {
                    *counted = counted.saturating_add(*value);
                }
            }
        }
    }

    /// What earlier processes counted outside the rows.
    pub fn of_process(&self) -> OfProcess {
        self.process
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: Kind, name: &str, guid: Option<&str>) -> Row {
        Row {
            proxy_name: "p".into(),
            name: name.into(),
            guid: guid.map(str::to_owned),
            iid: 1,
            upstream: (kind == Kind::Backend).then(Default::default),
            ..Row::of(kind)
        }
    }

    fn rows() -> Vec<Row> {
        let mut front = row(Kind::Frontend, "FRONTEND", Some("site"));
        (front.totals.sessions, front.totals.requests, front.totals.responses[1]) = (3, 5, 4);
        let mut back = row(Kind::Backend, "BACKEND", None);
        back.totals.bytes_in = u64::MAX - 1;
        back.upstream.as_mut().unwrap().lb_total = 7;
        vec![front, back]
    }

    #[test]
    fn what_is_written_is_read_and_added() {
        let counted = OfProcess { connections: 11, operators: 3 };
        let (past, bad) = Past::read(&write(&rows(), Which::All(counted)));
        assert_eq!((bad, past.of_process()), (vec![], counted));
        let mut later = rows();
        past.add_to(&mut later);
        let [front, back] = &later[..] else { panic!() };
        assert_eq!((front.totals.sessions, front.totals.requests, front.totals.responses[1]), (6, 10, 8));
        // A count never wraps.
        assert_eq!((back.totals.bytes_in, back.upstream.as_ref().unwrap().lb_total), (u64::MAX, 14));
    }

    #[test]
    fn a_file_for_operators_has_what_has_a_guid() {
        let text = write(&rows(), Which::Named);
        assert!(text.contains("\nsite,3,") && !text.contains("p/BACKEND") && !text.contains("process"), "{text}");
        let (past, _) = Past::read(&text);
        // Under another name, and in another place.
        let mut rows = vec![row(Kind::Listener, "other", Some("site")), row(Kind::Backend, "BACKEND", Some("site"))];
        past.add_to(&mut rows);
        assert_eq!((rows[0].totals.sessions, rows[1].totals.sessions), (3, 0));
    }

    #[test]
    fn a_file_of_haproxy_is_read() {
        let text = "#fe guid,stot,bin,nowhere,h1req,h2req,\nsite,1000,82000,1,5,6,\n\n#new guid,x,\nsite,y,\n\n#be guid,stot,lbtot,\np-1,2,9,\n";
        let (past, bad) = Past::read(text);
        assert_eq!(bad.iter().map(ToString::to_string).collect::<Vec<_>>(), ["line 5: 'y' is not a count"]);
        let mut rows = vec![row(Kind::Frontend, "FRONTEND", Some("site")), row(Kind::Backend, "BACKEND", Some("p-1"))];
        past.add_to(&mut rows);
        assert_eq!((rows[0].totals.sessions, rows[0].totals.bytes_in, rows[0].totals.requests), (1000, 82000, 11));
        assert_eq!(rows[1].upstream.as_ref().unwrap().lb_total, 9);
    }

    #[test]
    fn lines_that_are_none_are_named_and_passed_over() {
        let text = "site,1\n#fe guid,stot,\nsite,-1,\nsite,1,2,\nsite,18446744073709551616,\n,4,\nsite,8\n";
        let (past, bad) = Past::read(text);
        let lines: Vec<usize> = bad.iter().map(|bad| bad.line).collect();
        assert_eq!(lines, [1, 3, 4, 5]);
        let mut rows = vec![row(Kind::Frontend, "FRONTEND", Some("site"))];
        past.add_to(&mut rows);
        assert_eq!(rows[0].totals.sessions, 8);
    }
}
