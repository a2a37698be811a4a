//! Fetches of stick counters: `sc_*`, `sc0_*` to `sc2_*` and `src_*`, and the `table_*` converters' lookups.

use super::spec::{FetchRun, FetchSpec};
use crate::{
    context::Context,
    keyword::{Arg, ArgKind, ArgSpec, Args, Places, Support, arg, opt},
    sample::{Fetched, Missing},
    table::{Data, Entry, StickTable},
    value::{
        Type::{self, Bool, Int},
        Value,
    },
};
use std::sync::{Arc, LazyLock};

/// A fetch that reads or changes a counter.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    /// The operation on the entry.
    op: Op,
    /// Which entry the fetch concerns.
    source: Source,
    /// Whether the fetch's first argument is an index into an array.
    indexed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The tracked entry whose number is given as an argument.
    Tracked,
    /// The tracked entry with this number.
    Slot(usize),
    /// The entry of the client's address.
    Client,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    /// Reads a stored number, or a current rate.
    Read(Data),
    /// Reads a stored number of bytes, in KiB.
    Kbytes(Data),
    /// Increments a number and its rate, and returns the number.
    Increment(Data, Data),
    /// Sets a number to zero and returns the previous value.
    Clear(Data),
    /// Whether an entry is tracked.
    Tracked,
    /// How many connections and requests track the entry.
    Trackers,
    /// Counts a connection, creating the entry if need be, and returns the number.
    CountConnection,
}

/// Suffix, whether the first argument is an index, the operation, and the line of documentation.
const METRICS: &[(&str, bool, Op, &str)] = &[
    ("bytes_in_rate", false, Op::Read(Data::BytesInRate), "Bytes received over the period"),
    ("bytes_out_rate", false, Op::Read(Data::BytesOutRate), "Bytes sent over the period"),
    ("clr_gpc", true, Op::Clear(Data::Gpc), "Clears a general purpose counter; its value before"),
    ("clr_gpc0", false, Op::Clear(Data::Gpc0), "Clears the first general purpose counter; its value before"),
    ("clr_gpc1", false, Op::Clear(Data::Gpc1), "Clears the second general purpose counter; its value before"),
    ("conn_cnt", false, Op::Read(Data::ConnCnt), "Connections counted"),
    ("conn_cur", false, Op::Read(Data::ConnCur), "Connections now"),
    ("conn_rate", false, Op::Read(Data::ConnRate), "Connections over the period"),
    ("get_gpc", true, Op::Read(Data::Gpc), "A general purpose counter"),
    ("get_gpc0", false, Op::Read(Data::Gpc0), "The first general purpose counter"),
    ("get_gpc1", false, Op::Read(Data::Gpc1), "The second general purpose counter"),
    ("get_gpt", true, Op::Read(Data::Gpt), "A general purpose tag"),
    ("get_gpt0", false, Op::Read(Data::Gpt0), "The first general purpose tag"),
    ("glitch_cnt", false, Op::Read(Data::GlitchCnt), "Glitches of connections"),
    ("glitch_rate", false, Op::Read(Data::GlitchRate), "Glitches of connections over the period"),
    ("gpc_rate", true, Op::Read(Data::GpcRate), "Increments of a general purpose counter over the period"),
    ("gpc0_rate", false, Op::Read(Data::Gpc0Rate), "Increments of the first general purpose counter over the period"),
    ("gpc1_rate", false, Op::Read(Data::Gpc1Rate), "Increments of the second general purpose counter over the period"),
    ("http_err_cnt", false, Op::Read(Data::HttpErrCnt), "Requests refused or answered with 4xx"),
    ("http_err_rate", false, Op::Read(Data::HttpErrRate), "Requests refused or answered with 4xx over the period"),
    ("http_fail_cnt", false, Op::Read(Data::HttpFailCnt), "Requests answered with 5xx"),
    ("http_fail_rate", false, Op::Read(Data::HttpFailRate), "Requests answered with 5xx over the period"),
    ("http_req_cnt", false, Op::Read(Data::HttpReqCnt), "Requests counted"),
    ("http_req_rate", false, Op::Read(Data::HttpReqRate), "Requests over the period"),
    ("inc_gpc", true, Op::Increment(Data::Gpc, Data::GpcRate), "Counts on a general purpose counter; its value after"),
    (
        "inc_gpc0",
        false,
        Op::Increment(Data::Gpc0, Data::Gpc0Rate),
        "Counts on the first general purpose counter; its value after",
    ),
    (
        "inc_gpc1",
        false,
        Op::Increment(Data::Gpc1, Data::Gpc1Rate),
        "Counts on the second general purpose counter; its value after",
    ),
    ("kbytes_in", false, Op::Kbytes(Data::BytesInCnt), "KiB received"),
    ("kbytes_out", false, Op::Kbytes(Data::BytesOutCnt), "KiB sent"),
    ("sess_cnt", false, Op::Read(Data::SessCnt), "Sessions counted"),
    ("sess_rate", false, Op::Read(Data::SessRate), "Sessions over the period"),
    ("tracked", false, Op::Tracked, "Whether something is tracked"),
    ("trackers", false, Op::Trackers, "Connections and requests that track the entry"),
    ("updt_conn_cnt", false, Op::CountConnection, "Counts a connection without tracking; the number after"),
];

const COUNTER: ArgSpec = arg("counter", ArgKind::Int);
const INDEX: ArgSpec = arg("index", ArgKind::Int);
const TABLE: ArgSpec = arg("table", ArgKind::Table);
const ANOTHER: ArgSpec = opt("table", ArgKind::Table);

/// All names in full: each suffix after `sc_`, `sc0_` to `sc2_` and `src_`. Arrays only have `sc_` and `src_`, and one
/// further name that is in HAProxy's table though not in its manual.
pub(super) fn table() -> &'static [FetchSpec] {
    static ROWS: LazyLock<Vec<FetchSpec>> = LazyLock::new(|| {
        let mut rows = Vec::new();
        for &(suffix, indexed, op, doc) in METRICS {
            let client_only = op == Op::CountConnection;
            let tracked_only = matches!(op, Op::Tracked | Op::Trackers);
            let sources: [(&str, Source, &str, &'static [ArgSpec]); 5] = [
                (
                    "sc_",
                    Source::Tracked,
                    "the tracked entry of a number",
                    if indexed { &[INDEX, COUNTER, ANOTHER] } else { &[COUNTER, ANOTHER] },
                ),
                (
                    "sc0_",
                    Source::Slot(0),
                    "the entry tracked as 0",
                    if indexed { &[INDEX, ANOTHER] } else { &[ANOTHER] },
                ),
                (
                    "sc1_",
                    Source::Slot(1),
                    "the entry tracked as 1",
                    if indexed { &[INDEX, ANOTHER] } else { &[ANOTHER] },
                ),
                (
                    "sc2_",
                    Source::Slot(2),
                    "the entry tracked as 2",
                    if indexed { &[INDEX, ANOTHER] } else { &[ANOTHER] },
                ),
                ("src_", Source::Client, "the client's address", if indexed { &[INDEX, TABLE] } else { &[TABLE] }),
            ];
            for (prefix, source, whose, args) in sources {
                let client = source == Source::Client;
                let unnamed = indexed && matches!(source, Source::Slot(_)) && (prefix, suffix) != ("sc1_", "clr_gpc");
                if client && tracked_only || !client && client_only || unnamed {
                    continue;
                }
                rows.push(FetchSpec {
                    name: format!("{prefix}{suffix}").leak(),
                    args,
                    output: if op == Op::Tracked { Bool } else { Int },
                    places: Places::SERVING,
                    doc: format!("{doc}: of {whose}.").leak(),
                    changes: super::spec::never,
                    support: Support::Yes(FetchRun::Counter(Counter { op, source, indexed })),
                });
            }
        }
        rows
    });
    &ROWS
}

impl Counter {
    /// Runs the fetch.
    pub(crate) fn fetch<'c>(&self, ctx: &'c Context<'_>, args: &'c [Arg]) -> Fetched<'c> {
        let (index, args) =
            if self.indexed { (args.int(0).unwrap_or(0), args.get(1..).unwrap_or_default()) } else { (0, args) };
        let index = element(index);
        let now = ctx.now.mono;
        let number = |n: Option<u64>| n.map(|n| Value::Int(n as i64)).ok_or(Missing::Absent);
        if self.source == Source::Client {
            let table = args.table(0).ok_or(Missing::Absent)?;
            let src = Value::ip(ctx.txn.source(ctx.conn).ok_or(Missing::Absent)?.ip());
            let makes = matches!(self.op, Op::CountConnection | Op::Increment(..) | Op::Clear(..));
            let entry = if makes { table.get_or_insert(src, now) } else { table.lookup(src, now) };
            return number(entry.map_or(Some(0), |entry| self.op.on(table, &entry, index, now)));
        }
        let (slot, args) = match self.source {
            Source::Slot(slot) => (slot, args),
            _ => (
                args.int(0).and_then(|n| usize::try_from(n).ok()).ok_or(Missing::Absent)?,
                args.get(1..).unwrap_or_default(),
            ),
        };
        let tracked = ctx.txn.tracking.slot(slot).or_else(|| ctx.session.tracking.slot(slot));
        if self.op == Op::Tracked {
            return Ok(Value::Bool(tracked.is_some()));
        }
        let tracked = tracked.ok_or(Missing::Absent)?;
        match args.table(0) {
            // The same key in another table.
            Some(table) if !std::ptr::eq(&**table, tracked.table()) => {
                let entry = table.lookup_key(tracked.entry().key(), now);
                number(entry.map_or(Some(0), |entry| self.op.on(table, &entry, index, now)))
            }
            _ => number(self.op.on(tracked.table(), tracked.entry(), index, now)),
        }
    }
}

/// The index of an array's element. A negative number counts as beyond the last.
fn element(index: i64) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}

impl Op {
    fn on(self, table: &StickTable, entry: &Arc<Entry>, index: usize, now: u64) -> Option<u64> {
        match self {
            Op::Read(data) => table.value(entry, data, index, now),
            Op::Kbytes(data) => table.value(entry, data, index, now).map(|bytes| bytes >> 10),
            Op::Increment(data, rate) => {
                // If a table stores only the rate, the rate is returned; if it stores neither, 0, as in HAProxy.
                let rate = table.add(entry, rate, index, 1, now);
                table.add(entry, data, index, 1, now).or(rate).or(Some(0))
            }
            Op::Clear(data) => table.set(entry, data, index, 0),
            Op::Trackers => Some(entry.trackers().into()),
            Op::Tracked => Some(1),
            Op::CountConnection => {
                table.add(entry, Data::ConnRate, 0, 1, now);
                table.add(entry, Data::ConnCnt, 0, 1, now)
            }
        }
    }
}

/// A `table_*` converter: reads what a table stores for the sample.
#[derive(Clone, Copy, Debug)]
pub struct Lookup {
    op: LookupOp,
    indexed: bool,
}

#[derive(Clone, Copy, Debug)]
enum LookupOp {
    Value(Op),
    Expire,
    Idle,
    Server,
}

/// Name of the converter, its arguments and what it does.
pub(crate) fn lookups() -> impl Iterator<Item = (&'static str, &'static [ArgSpec], Type, &'static str, Lookup)> {
    const DEFAULT: ArgSpec = opt("default", ArgKind::Int);
    let metrics = METRICS.iter().filter(|(suffix, ..)| !suffix.starts_with("inc_") && !suffix.starts_with("clr_"));
    let metrics = metrics.filter(|(suffix, ..)| !matches!(*suffix, "tracked" | "updt_conn_cnt"));
    metrics
        .map(|&(suffix, indexed, op, doc)| {
            let suffix = suffix.strip_prefix("get_").unwrap_or(suffix);
            let args: &'static [ArgSpec] = if indexed { &[INDEX, TABLE] } else { &[TABLE] };
            let name: &'static str = format!("table_{suffix}").leak();
            let doc: &'static str = format!("{doc}: of the sample in a table.").leak();
            (name, args, Int, doc, Lookup { op: LookupOp::Value(op), indexed })
        })
        .chain([
            (
                "table_expire",
                &[TABLE, DEFAULT][..],
                Int,
                "ms until the sample's entry expires.",
                Lookup { op: LookupOp::Expire, indexed: false },
            ),
            (
                "table_idle",
                &[TABLE, DEFAULT],
                Int,
                "ms since the sample's entry was used.",
                Lookup { op: LookupOp::Idle, indexed: false },
            ),
            (
                "table_server_id",
                &[TABLE],
                Int,
                "Number of the server the sample sticks to.",
                Lookup { op: LookupOp::Server, indexed: false },
            ),
        ])
}

impl Lookup {
    /// Runs the converter.
    pub(crate) fn convert<'c>(&self, ctx: &'c Context<'_>, value: Value<'c>, args: &'c [Arg]) -> Option<Value<'c>> {
        let at = usize::from(self.indexed);
        let index = if self.indexed { element(args.int(0)?) } else { 0 };
        let table: &Arc<StickTable> = args.table(at)?;
        let now = ctx.now.mono;
        let Some(entry) = table.find(value, now)? else {
            return match self.op {
                LookupOp::Expire | LookupOp::Idle => args.int(at + 1).map(Value::Int),
                LookupOp::Server | LookupOp::Value(_) => Some(Value::Int(0)),
            };
        };
        let number = match self.op {
            // Like HAProxy, this counts the lookup as well.
            LookupOp::Value(Op::Trackers) => u64::from(entry.trackers()) + 1,
            LookupOp::Value(op) => op.on(table, &entry, index, now)?,
            LookupOp::Expire => table.expires_in(&entry, now),
            LookupOp::Idle => table.idle(&entry, now),
            LookupOp::Server => table.value(&entry, Data::ServerId, 0, now)?,
        };
        Some(Value::Int(number as i64))
    }
}
