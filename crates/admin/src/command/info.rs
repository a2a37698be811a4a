//! `show info`: the fields of HAProxy 2.6 and 3.0, with their names, numbers and tags.

use super::{Answer, Executor, Facts};
use crate::{json, value::Value};
use penstock_config::SPEAKS_HAPROXY;
use penstock_control::{Format, InfoFormat};
use penstock_proxy::{
    Handle,
    snapshot::{Process, Snapshot},
};
use serde_json::json;
use std::fmt::Write as _;

/// One field.
struct Field {
    name: &'static str,
    /// See [`crate::columns::Column::tags`]; `P`roduct is an additional origin.
    tags: [u8; 3],
    doc: &'static str,
    value: fn(&View<'_>) -> Value,
}

/// The data that fields are read from.
struct View<'a> {
    process: &'a Process,
    snapshot: &'a Snapshot,
    facts: &'a Facts,
    handle: &'a Handle,
    float: bool,
}

impl View<'_> {
    fn seconds(&self, time: std::time::Duration) -> Value {
        if self.float { Value::F64(time.as_secs_f64()) } else { (time.as_secs() as u32).into() }
    }
    fn rate(&self, rate: u32) -> Value {
        if self.float { Value::F64(f64::from(rate)) } else { rate.into() }
    }
    /// Memory of compression: absent, as in HAProxy without zlib, until something was compressed.
    fn compression(&self, bytes: u64) -> Value {
        let compression = &self.process.compression;
        if compression.memory + compression.memory_max > 0 { bytes.into() } else { Value::Empty }
    }
}

impl Facts {
    /// The version that clients see: HAProxy's and ours. From 2.7 on, the clients of the Data Plane API expect a master's `reload`
    /// to answer when it is complete, which ours does.
    pub(super) fn spoken_version(&self) -> String {
        format!("{SPEAKS_HAPROXY}-penstock-{}", self.version)
    }
}

#[rustfmt::skip] // One line a field reads as the table that it is.
const FIELDS: &[Field] = &[
    Field { name: "Name", tags: *b"POS", doc: "Product name", value: |v| if v.facts.is_haproxy { "HAProxy" } else { "penstock" }.into() },
    Field { name: "Version", tags: *b"POS", doc: "Version of HAProxy whose API this is, and product version", value: |v| v.facts.spoken_version().as_str().into() },
    Field { name: "Release_date", tags: *b"POS", doc: "Date of the product", value: |v| v.facts.release_date.as_str().into() },
    Field { name: "Nbthread", tags: *b"CGS", doc: "Worker threads (nbthread)", value: |v| v.process.threads.into() },
    Field { name: "Nbproc", tags: *b"CGS", doc: "Worker processes, always 1", value: |_| 1_u32.into() },
    Field { name: "Process_num", tags: *b"KGP", doc: "Number of this worker process, always 1", value: |_| 1_u32.into() },
    Field { name: "Pid", tags: *b"SGP", doc: "Process id", value: |v| v.process.pid.into() },
    Field { name: "Uptime", tags: *b"MDP", doc: "Time since start, in days, hours, minutes, seconds", value: |v| uptime(v.process.uptime.as_secs()) },
    Field { name: "Uptime_sec", tags: *b"MDP", doc: "Time since start, in seconds", value: |v| v.seconds(v.process.uptime) },
    Field { name: "Memmax_MB", tags: *b"CLP", doc: "Limit of memory in MB, 0 for none (-m)", value: |_| 0_u32.into() },
    Field { name: "PoolAlloc_MB", tags: *b"MGP", doc: "Memory of the process in MB", value: |v| ((v.process.memory_bytes >> 20) as u32).into() },
    Field { name: "PoolUsed_MB", tags: *b"MGP", doc: "The same: there are no pools beside the allocator", value: |v| ((v.process.memory_bytes >> 20) as u32).into() },
    Field { name: "PoolFailed", tags: *b"MCP", doc: "Allocations that failed: the process would have ended", value: |_| 0_u32.into() },
    Field { name: "Ulimit-n", tags: *b"CLP", doc: "Limit of open files", value: |v| descriptors(v) },
    Field { name: "Maxsock", tags: *b"CLP", doc: "Limit of sockets", value: |v| descriptors(v) },
    Field { name: "Maxconn", tags: *b"CLP", doc: "Limit of connections (maxconn)", value: |v| v.process.maxconn.into() },
    Field { name: "Hard_maxconn", tags: *b"CLP", doc: "Limit of connections when the process started", value: |v| v.process.configured_maxconn.into() },
    Field { name: "CurrConns", tags: *b"MGP", doc: "Connections of clients now", value: |v| v.process.connections.0.into() },
    Field { name: "CumConns", tags: *b"MCP", doc: "Connections of clients since start", value: |v| (v.process.connections.2 as u32).into() },
    Field { name: "CumReq", tags: *b"MCP", doc: "Requests since start", value: |v| (v.process.requests as u32).into() },
    Field { name: "MaxSslConns", tags: *b"MMP", doc: "Limit of TLS connections, 0 for none", value: |_| 0_u32.into() },
    Field { name: "CurrSslConns", tags: *b"MGP", doc: "TLS connections of clients now", value: |v| v.process.tls_now.into() },
    Field { name: "CumSslConns", tags: *b"MCP", doc: "TLS handshakes with clients since start", value: |v| (v.process.tls.0 as u32).into() },
    Field { name: "Maxpipes", tags: *b"CLP", doc: "Limit of pipes; data is not spliced", value: |_| 0_u32.into() },
    Field { name: "PipesUsed", tags: *b"MGP", doc: "Pipes in use", value: |_| 0_u32.into() },
    Field { name: "PipesFree", tags: *b"MGP", doc: "Pipes free", value: |_| 0_u32.into() },
    Field { name: "ConnRate", tags: *b"MRP", doc: "Connections of clients in the last second", value: |v| v.rate(v.process.connection_rate.0) },
    Field { name: "ConnRateLimit", tags: *b"CLP", doc: "Limit of it for the process, 0 for none", value: |v| v.process.rate_limits[0].into() },
    Field { name: "MaxConnRate", tags: *b"MMP", doc: "Most of it since start", value: |v| v.process.connection_rate.1.into() },
    Field { name: "SessRate", tags: *b"MRP", doc: "Sessions in the last second", value: |v| v.rate(v.process.session_rate.0) },
    Field { name: "SessRateLimit", tags: *b"CLP", doc: "Limit of it for the process, 0 for none", value: |v| v.process.rate_limits[1].into() },
    Field { name: "MaxSessRate", tags: *b"MRP", doc: "Most of it since start", value: |v| v.process.session_rate.1.into() },
    Field { name: "SslRate", tags: *b"MRP", doc: "TLS handshakes with clients in the last second", value: |v| v.rate(v.process.paces.tls.0) },
    Field { name: "SslRateLimit", tags: *b"CLP", doc: "Limit of it for the process, 0 for none", value: |v| v.process.rate_limits[2].into() },
    Field { name: "MaxSslRate", tags: *b"MMP", doc: "Most of it since start", value: |v| v.process.paces.tls.1.into() },
    Field { name: "SslFrontendKeyRate", tags: *b"MGP", doc: "Full TLS handshakes with clients in the last second", value: |v| v.rate(v.process.paces.tls_full.0) },
    Field { name: "SslFrontendMaxKeyRate", tags: *b"MMP", doc: "Most of it since start", value: |v| v.process.paces.tls_full.1.into() },
    Field { name: "SslFrontendSessionReuse_pct", tags: *b"MGP", doc: "Share of TLS handshakes with clients that resumed a session", value: |v| v.rate(reuse_percent(v)) },
    Field { name: "SslBackendKeyRate", tags: *b"MRP", doc: "Full TLS handshakes with servers in the last second", value: |v| v.rate(v.process.paces.tls_servers_full.0) },
    Field { name: "SslBackendMaxKeyRate", tags: *b"MMP", doc: "Most of it since start", value: |v| v.process.paces.tls_servers_full.1.into() },
    Field { name: "SslCacheLookups", tags: *b"MCP", doc: "Sessions looked up in the cache", value: |v| (v.handle.certificates().session_lookups().0 as u32).into() },
    Field { name: "SslCacheMisses", tags: *b"MCP", doc: "Sessions not found there", value: |v| (v.handle.certificates().session_lookups().1 as u32).into() },
    Field { name: "CompressBpsIn", tags: *b"MRP", doc: "Bytes a second that are compressed", value: |v| v.rate(v.process.compression.taken as u32) },
    Field { name: "CompressBpsOut", tags: *b"MRP", doc: "Bytes a second that they become", value: |v| v.rate(v.process.compression.made as u32) },
    Field { name: "CompressBpsRateLim", tags: *b"CLP", doc: "Limit of compressed bytes a second, 0 for none", value: |v| (v.process.compression.limit as u32).into() },
    Field { name: "ZlibMemUsage", tags: *b"MGP", doc: "Bytes of memory that encoders take", value: |v| v.compression(v.process.compression.memory) },
    Field { name: "MaxZlibMemUsage", tags: *b"CLP", doc: "Limit of it, 0 for none", value: |v| v.compression(v.process.compression.memory_max) },
    Field { name: "Tasks", tags: *b"MGP", doc: "Connections that workers have", value: |v| v.process.tasks.into() },
    Field { name: "Run_queue", tags: *b"MGP", doc: "Workers at work now", value: |v| v.process.working.into() },
    Field { name: "Idle_pct", tags: *b"MAP", doc: "Share of the last second that workers waited", value: |v| v.process.paces.idle_percent.into() },
    Field { name: "node", tags: *b"COS", doc: "Name of this machine (node)", value: |v| v.process.node.as_str().into() },
    Field { name: "description", tags: *b"COS", doc: "What this process is for (description)", value: |v| v.process.description.as_deref().into() },
    Field { name: "Stopping", tags: *b"MGP", doc: "1 if the process finishes what it has", value: |v| u32::from(v.process.stopping).into() },
    Field { name: "Jobs", tags: *b"MGP", doc: "Connections and listeners now", value: |v| (v.process.connections.0 + v.facts.listeners).into() },
    Field { name: "Unstoppable Jobs", tags: *b"MGP", doc: "Those of them that end only with the process", value: |_| 0_u32.into() },
    Field { name: "Listeners", tags: *b"MGP", doc: "Listening sockets by configuration", value: |v| v.facts.listeners.into() },
    Field { name: "ActivePeers", tags: *b"MGP", doc: "Peers", value: |v| v.handle.peer_counts().0.into() },
    Field { name: "ConnectedPeers", tags: *b"MGP", doc: "Peers connected", value: |v| v.handle.peer_counts().1.into() },
    Field { name: "DroppedLogs", tags: *b"MGP", doc: "Log lines that found no place", value: |v| (v.process.dropped_logs as u32).into() },
    Field { name: "BusyPolling", tags: *b"MGP", doc: "1 if workers never sleep", value: |_| 0_u32.into() },
    Field { name: "FailedResolutions", tags: *b"MGP", doc: "Name lookups that failed", value: |v| (v.process.failed_resolutions as u32).into() },
    Field { name: "TotalBytesOut", tags: *b"MGP", doc: "Bytes to clients since start", value: |v| v.process.bytes_out.into() },
    Field { name: "TotalSplicdedBytesOut", tags: *b"MGP", doc: "Those of them that were spliced", value: |_| 0_u64.into() },
    Field { name: "BytesOutRate", tags: *b"MRP", doc: "Bytes to clients in the last second", value: |v| v.process.paces.bytes_out.into() },
    Field { name: "DebugCommandsIssued", tags: *b"MGP", doc: "Commands for debugging; there are none", value: |_| 0_u32.into() },
    Field { name: "CumRecvLogs", tags: *b"MCP", doc: "Log lines that log-forward sections have received", value: |v| (v.process.received_logs as u32).into() },
    Field { name: "Build info", tags: *b"POS", doc: "Product version", value: |v| v.facts.version.as_str().into() },
    Field { name: "Memmax_bytes", tags: *b"CLP", doc: "Limit of memory in bytes, 0 for none", value: |_| 0_u32.into() },
    Field { name: "PoolAlloc_bytes", tags: *b"MGP", doc: "Memory of the process", value: |v| v.process.memory_bytes.into() },
    Field { name: "PoolUsed_bytes", tags: *b"MGP", doc: "The same", value: |v| v.process.memory_bytes.into() },
    Field { name: "Start_time_sec", tags: *b"MDP", doc: "When the process started, in seconds since 1970", value: |v| if v.float { Value::F64(v.process.started as f64) } else { (v.process.started as u32).into() } },
    Field { name: "Tainted", tags: *b"SGP", doc: "Experimental commands that were used", value: |_| "0".into() },
    Field { name: "Engine", tags: *b"SOP", doc: "What computes handshakes (tune.crypto.engine)", value: |v| v.snapshot.engine.engine.into() },
];

impl Executor {
    pub(super) fn info(&self, wanted: InfoFormat) -> Answer {
        let snapshot = self.handle.snapshot();
        let view = View {
            process: &snapshot.process,
            snapshot: &snapshot,
            facts: &self.facts,
            handle: &self.handle,
            float: wanted.float,
        };
        let fields = FIELDS.iter().enumerate().map(|(number, field)| (number, field, (field.value)(&view)));
        let fields = fields.filter(|(_, _, value)| *value != Value::Empty);
        let mut out = String::new();
        match wanted.format {
            Format::Json => {
                let fields = fields.map(|(number, field, value)| {
                    json!({
                        "field": { "pos": number, "name": field.name },
                        "processNum": 1,
                        "tags": json::tags(field.tags, false),
                        "value": { "type": value.kind(), "value": value.json() },
                    })
                });
                out = serde_json::Value::Array(fields.collect()).to_string();
                out.push('\n');
            }
            Format::Typed => {
                for (number, field, value) in fields {
                    let tags = json::letters(field.tags, false);
                    let _ = write!(out, "{number}.{}.1:{tags}:{}:{value}", field.name, value.kind());
                    push_doc(&mut out, field, wanted.described);
                }
            }
            Format::Plain => {
                for (_, field, value) in fields {
                    let _ = write!(out, "{}: {value}", field.name);
                    push_doc(&mut out, field, wanted.described);
                }
            }
        }
        Answer::data(out)
    }
}

fn push_doc(out: &mut String, field: &Field, described: bool) {
    if described {
        let _ = write!(out, ":\"{}\"", field.doc);
    }
    out.push('\n');
}

fn uptime(seconds: u64) -> Value {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    Value::Text(format!("{days}d {hours}h{minutes:02}m{:02}s", seconds % 60))
}

fn descriptors(view: &View<'_>) -> Value {
    u32::try_from(view.process.max_fds).unwrap_or(u32::MAX).into()
}

fn reuse_percent(view: &View<'_>) -> u32 {
    let (done, resumed, _) = view.process.tls;
    (100 * resumed).checked_div(done).unwrap_or(0) as u32
}
