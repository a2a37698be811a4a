//! The columns of HAProxy's statistics, in its order and with its names: the one table from which CSV, JSON and
//! Prometheus are written.

use crate::value::Value;
use penstock_proxy::server::Check;
use penstock_proxy::snapshot::{
    Kind::{self, Backend, Frontend, Listener, Server},
    Row, ServerRow, Upstream,
};
use std::time::Duration;

/// One column.
pub struct Column {
    /// The column's name.
    pub name: &'static str,
    /// Letters for the origin (`K`ey, `M`etric, `C`onfiguration, `S`tatus), the nature (`N`ame, `G`auge, `M`aximum,
    /// `L`imit, `C`ounter, `R`ate, ag`E`, `A`verage, `D`uration, `O`utput) and the scope (`S`ervice or `P`rocess). `*`
    /// means a status for servers and a metric for backends.
    pub tags: [u8; 3],
    /// The column's value for a row; the flag is `stats show-legends`.
    pub value: fn(&Row, bool) -> Value,
}

/// All columns.
#[rustfmt::skip] // One line a column reads as the table that it is.
pub const COLUMNS: &[Column] = &[
    Column { name: "pxname", tags: *b"KNS", value: |row, _| row.proxy_name.as_str().into() },
    Column { name: "svname", tags: *b"KNS", value: |row, _| row.name.as_str().into() },
    Column { name: "qcur", tags: *b"MGP", value: |row, _| has_upstream(row, row.queue.now) },
    Column { name: "qmax", tags: *b"MMP", value: |row, _| has_upstream(row, row.queue.max) },
    Column { name: "scur", tags: *b"MGP", value: |row, _| row.sessions.now.into() },
    Column { name: "smax", tags: *b"MMP", value: |row, _| row.sessions.max.into() },
    Column { name: "slim", tags: *b"CLP", value: |row, _| limit(row) },
    Column { name: "stot", tags: *b"MCP", value: |row, _| row.totals.sessions.into() },
    Column { name: "bin", tags: *b"MCP", value: |row, _| row.totals.bytes_in.into() },
    Column { name: "bout", tags: *b"MCP", value: |row, _| row.totals.bytes_out.into() },
    Column { name: "dreq", tags: *b"MCP", value: |row, _| unless(row, &[Server], row.totals.denied_requests) },
    Column { name: "dresp", tags: *b"MCP", value: |row, _| row.totals.denied_responses.into() },
    Column { name: "ereq", tags: *b"MCP", value: |row, _| only(row, &[Frontend, Listener], row.totals.request_errors) },
    Column { name: "econ", tags: *b"MCP", value: |row, _| has_upstream(row, row.totals.connect_errors) },
    Column { name: "eresp", tags: *b"MCP", value: |row, _| has_upstream(row, row.totals.response_errors) },
    Column { name: "wretr", tags: *b"MCP", value: |row, _| has_upstream(row, row.totals.retries) },
    Column { name: "wredis", tags: *b"MCP", value: |row, _| has_upstream(row, row.totals.redispatches) },
    Column { name: "status", tags: *b"SGP", value: |row, _| row.status.as_str().into() },
    Column { name: "weight", tags: *b"MAP", value: |row, _| upstream(row, |up| up.weight) },
    Column { name: "act", tags: *b"*GP", value: |row, _| upstream(row, |up| up.active) },
    Column { name: "bck", tags: *b"*GP", value: |row, _| upstream(row, |up| up.backup) },
    Column { name: "chkfail", tags: *b"MCP", value: |row, _| check(row, |check| check.failed) },
    Column { name: "chkdown", tags: *b"MCP", value: |row, _| if row.kind == Backend { upstream(row, |up| up.down_transitions) } else { own_check(row).and(row.upstream.as_ref()).map(|up| up.down_transitions).into() } },
    Column { name: "lastchg", tags: *b"MEP", value: |row, _| upstream(row, |up| seconds(up.since)) },
    Column { name: "downtime", tags: *b"MCP", value: |row, _| if row.kind == Backend { upstream(row, |up| seconds(up.down_time)) } else { own_check(row).and(row.upstream.as_ref()).map(|up| seconds(up.down_time)).into() } },
    Column { name: "qlimit", tags: *b"CGS", value: |row, _| server(row, |server| server.queue_limit) },
    Column { name: "pid", tags: *b"KGP", value: |_, _| 1_u32.into() },
    Column { name: "iid", tags: *b"KGS", value: |row, _| row.iid.into() },
    Column { name: "sid", tags: *b"KGS", value: |row, _| row.sid.into() },
    Column { name: "throttle", tags: *b"MAP", value: |row, _| server(row, |server| server.throttle) },
    Column { name: "lbtot", tags: *b"MCP", value: |row, _| upstream(row, |up| up.lb_total) },
    Column { name: "tracked", tags: *b"CNS", value: |row, _| server(row, |server| server.tracked.as_deref()) },
    Column { name: "type", tags: *b"CGS", value: |row, _| kind(row).into() },
    Column { name: "rate", tags: *b"MRP", value: |row, _| unless(row, &[Listener], row.totals.session_rate.rate) },
    Column { name: "rate_lim", tags: *b"CLP", value: |row, _| only(row, &[Frontend], row.rate_limit) },
    Column { name: "rate_max", tags: *b"MMP", value: |row, _| unless(row, &[Listener], row.totals.session_rate.max) },
    Column { name: "check_status", tags: *b"MOP", value: |row, _| check_status(row) },
    Column { name: "check_code", tags: *b"MOP", value: |row, _| live_check(row, |check| check.code) },
    Column { name: "check_duration", tags: *b"MDP", value: |row, _| live_check(row, |check| check.duration.map(|took| took.as_millis() as u64)) },
    Column { name: "hrsp_1xx", tags: *b"MCP", value: |row, _| response(row, 0) },
    Column { name: "hrsp_2xx", tags: *b"MCP", value: |row, _| response(row, 1) },
    Column { name: "hrsp_3xx", tags: *b"MCP", value: |row, _| response(row, 2) },
    Column { name: "hrsp_4xx", tags: *b"MCP", value: |row, _| response(row, 3) },
    Column { name: "hrsp_5xx", tags: *b"MCP", value: |row, _| response(row, 4) },
    Column { name: "hrsp_other", tags: *b"MCP", value: |row, _| response(row, 5) },
    Column { name: "hanafail", tags: *b"MCP", value: |row, _| server(row, |server| server.observed.then_some(server.status.failed_observations)) },
    Column { name: "req_rate", tags: *b"MRP", value: |row, _| only(row, &[Frontend], row.totals.request_rate.rate) },
    Column { name: "req_rate_max", tags: *b"MMP", value: |row, _| only(row, &[Frontend], row.totals.request_rate.max) },
    Column { name: "req_tot", tags: *b"MCP", value: |row, _| requests(row) },
    Column { name: "cli_abrt", tags: *b"MCP", value: |row, _| has_upstream(row, row.totals.client_aborts) },
    Column { name: "srv_abrt", tags: *b"MCP", value: |row, _| has_upstream(row, row.totals.server_aborts) },
    Column { name: "comp_in", tags: *b"MCP", value: |row, _| only(row, &[Frontend, Backend], row.totals.compressed_in) },
    Column { name: "comp_out", tags: *b"MCP", value: |row, _| only(row, &[Frontend, Backend], row.totals.compressed_out) },
    Column { name: "comp_byp", tags: *b"MCP", value: |row, _| only(row, &[Frontend, Backend], row.totals.compression_bypassed) },
    Column { name: "comp_rsp", tags: *b"MCP", value: |row, _| only(row, &[Frontend, Backend], row.totals.compressed_responses) },
    Column { name: "lastsess", tags: *b"MEP", value: |row, _| last_session(row) },
    Column { name: "last_chk", tags: *b"MOP", value: |row, _| live_check(row, |check| (!check.status.is_empty()).then_some(check.info.as_str())) },
    Column { name: "last_agt", tags: *b"MOP", value: |row, _| agent(row, |agent| (!agent.status.is_empty()).then_some(agent.info.as_str())) },
    Column { name: "qtime", tags: *b"MAP", value: |row, _| has_upstream(row, row.totals.queue_time.mean() as u32) },
    Column { name: "ctime", tags: *b"MAP", value: |row, _| has_upstream(row, row.totals.connect_time.mean() as u32) },
    Column { name: "rtime", tags: *b"MAP", value: |row, _| has_upstream(row, row.totals.response_time.mean() as u32) },
    Column { name: "ttime", tags: *b"MAP", value: |row, _| has_upstream(row, row.totals.total_time.mean() as u32) },
    Column { name: "agent_status", tags: *b"MOP", value: |row, _| agent(row, result) },
    Column { name: "agent_code", tags: *b"MOP", value: |row, _| agent(row, |agent| agent.code) },
    Column { name: "agent_duration", tags: *b"MDP", value: |row, _| agent(row, |agent| agent.duration.map(|took| took.as_millis() as u64)) },
    Column { name: "check_desc", tags: *b"MOP", value: |row, _| live_check(row, |check| (!check.status.is_empty()).then_some(check.description)) },
    Column { name: "agent_desc", tags: *b"MOP", value: |row, _| agent(row, |agent| (!agent.status.is_empty()).then_some(agent.description)) },
    Column { name: "check_rise", tags: *b"CGS", value: |row, _| live_check(row, |check| check.rise) },
    Column { name: "check_fall", tags: *b"CGS", value: |row, _| live_check(row, |check| check.fall) },
    Column { name: "check_health", tags: *b"CGS", value: |row, _| live_check(row, |check| check.health) },
    Column { name: "agent_rise", tags: *b"CGS", value: |row, _| agent(row, |agent| agent.rise) },
    Column { name: "agent_fall", tags: *b"CGS", value: |row, _| agent(row, |agent| agent.fall) },
    Column { name: "agent_health", tags: *b"CGS", value: |row, _| agent(row, |agent| agent.health) },
    Column { name: "addr", tags: *b"CGS", value: |row, legends| row.address.as_deref().or(row.server.as_ref().and_then(|server| server.address.as_deref())).filter(|_| legends).into() },
    Column { name: "cookie", tags: *b"CNS", value: |row, legends| row.cookie.as_deref().filter(|_| legends).into() },
    Column { name: "mode", tags: *b"CGS", value: |row, _| mode(row).into() },
    Column { name: "algo", tags: *b"CGS", value: |row, legends| row.algorithm.filter(|_| legends).into() },
    Column { name: "conn_rate", tags: *b"MRP", value: |row, _| only(row, &[Frontend], row.totals.connection_rate.rate) },
    Column { name: "conn_rate_max", tags: *b"MMP", value: |row, _| only(row, &[Frontend], row.totals.connection_rate.max) },
    Column { name: "conn_tot", tags: *b"MCP", value: |row, _| only(row, &[Frontend], row.totals.connections) },
    Column { name: "intercepted", tags: *b"MCP", value: |row, _| if row.http { only(row, &[Frontend], row.totals.intercepted) } else { Value::Empty } },
    Column { name: "dcon", tags: *b"MCP", value: |row, _| only(row, &[Frontend, Listener], row.totals.denied_connections) },
    Column { name: "dses", tags: *b"MCP", value: |row, _| only(row, &[Frontend, Listener], row.totals.denied_sessions) },
    Column { name: "wrew", tags: *b"MCP", value: |row, _| row.totals.failed_rewrites.into() },
    Column { name: "connect", tags: *b"MCP", value: |row, _| has_upstream(row, row.totals.connects) },
    Column { name: "reuse", tags: *b"MCP", value: |row, _| has_upstream(row, row.totals.reuses) },
    Column { name: "cache_lookups", tags: *b"MCP", value: |row, _| if row.http { only(row, &[Frontend, Backend], row.totals.cache_lookups) } else { Value::Empty } },
    Column { name: "cache_hits", tags: *b"MCP", value: |row, _| if row.http { only(row, &[Frontend, Backend], row.totals.cache_hits) } else { Value::Empty } },
    Column { name: "srv_icur", tags: *b"MGP", value: |row, _| only(row, &[Server], row.totals.idle_connections as u32) },
    Column { name: "src_ilim", tags: *b"CLP", value: |row, _| server(row, |server| server.idle_limit) },
    Column { name: "qtime_max", tags: *b"MMP", value: |row, _| has_upstream(row, row.totals.queue_time.max as u32) },
    Column { name: "ctime_max", tags: *b"MMP", value: |row, _| has_upstream(row, row.totals.connect_time.max as u32) },
    Column { name: "rtime_max", tags: *b"MMP", value: |row, _| has_upstream(row, row.totals.response_time.max as u32) },
    Column { name: "ttime_max", tags: *b"MMP", value: |row, _| has_upstream(row, row.totals.total_time.max as u32) },
    Column { name: "eint", tags: *b"MCP", value: |row, _| row.totals.internal_errors.into() },
    Column { name: "idle_conn_cur", tags: *b"MGP", value: |row, _| {
        only(row, &[Server], row.totals.idle_connections.saturating_sub(row.totals.safe_idle_connections) as u32)
    } },
    Column { name: "safe_conn_cur", tags: *b"MGP", value: |row, _| only(row, &[Server], row.totals.safe_idle_connections as u32) },
    Column { name: "used_conn_cur", tags: *b"MGP", value: |row, _| only(row, &[Server], row.totals.used_connections as u32) },
    Column { name: "need_conn_est", tags: *b"MGP", value: |row, _| only(row, &[Server], row.totals.needed_connections as u32) },
    Column { name: "uweight", tags: *b"MAP", value: |row, _| upstream(row, |up| up.user_weight) },
    Column { name: "agg_server_status", tags: *b"MGP", value: |row, _| only(row, &[Backend], 0_u32) },
    Column { name: "agg_server_check_status", tags: *b"MGP", value: |row, _| only(row, &[Backend], 0_u32) },
    Column { name: "agg_check_status", tags: *b"MGP", value: |row, _| only(row, &[Backend], 0_u32) },
    Column { name: "-", tags: *b"---", value: |_, _| "-".into() },
    Column { name: "ssl_sess", tags: *b"MCP", value: |row, _| row.totals.ssl_sessions.into() },
    Column { name: "ssl_reused_sess", tags: *b"MCP", value: |row, _| row.totals.ssl_reused_sessions.into() },
    Column { name: "ssl_failed_handshake", tags: *b"MCP", value: |row, _| row.totals.ssl_failed_handshakes.into() },
    Column { name: "h2_headers_rcvd", tags: *b"MCP", value: |row, _| sides(row, row.totals.h2_headers_received) },
    Column { name: "h2_data_rcvd", tags: *b"MCP", value: |row, _| sides(row, row.totals.h2_data_received) },
    Column { name: "h2_settings_rcvd", tags: *b"MCP", value: |row, _| sides(row, row.totals.h2_settings_received) },
    Column { name: "h2_rst_stream_rcvd", tags: *b"MCP", value: |row, _| sides(row, row.totals.h2_resets_received) },
    Column { name: "h2_goaway_rcvd", tags: *b"MCP", value: |row, _| sides(row, row.totals.h2_goaways_received) },
    Column { name: "h2_detected_conn_protocol_errors", tags: *b"MCP", value: |row, _| sides(row, row.totals.h2_connection_errors) },
    Column { name: "h2_detected_strm_protocol_errors", tags: *b"MCP", value: |row, _| sides(row, row.totals.h2_stream_errors) },
    Column { name: "h2_rst_stream_resp", tags: *b"MCP", value: |row, _| sides(row, row.totals.h2_resets_sent) },
    Column { name: "h2_goaway_resp", tags: *b"MCP", value: |row, _| sides(row, row.totals.h2_goaways_sent) },
    Column { name: "h2_open_connections", tags: *b"MGP", value: |row, _| sides(row, row.totals.h2_open_connections) },
    Column { name: "h2_backend_open_streams", tags: *b"MGP", value: |row, _| sides(row, row.totals.h2_open_streams) },
    Column { name: "h2_total_connections", tags: *b"MCP", value: |row, _| sides(row, row.totals.h2_total_connections) },
    Column { name: "h2_backend_total_streams", tags: *b"MCP", value: |row, _| sides(row, row.totals.h2_total_streams) },
    Column { name: "h1_open_connections", tags: *b"MGP", value: |row, _| sides(row, row.totals.h1_open_connections) },
    Column { name: "h1_open_streams", tags: *b"MGP", value: |row, _| sides(row, row.totals.h1_open_streams) },
    Column { name: "h1_total_connections", tags: *b"MCP", value: |row, _| sides(row, row.totals.h1_total_connections) },
    Column { name: "h1_total_streams", tags: *b"MCP", value: |row, _| sides(row, row.totals.h1_total_streams) },
    Column { name: "h1_bytes_in", tags: *b"MCP", value: |row, _| sides(row, row.totals.h1_bytes_in) },
    Column { name: "h1_bytes_out", tags: *b"MCP", value: |row, _| sides(row, row.totals.h1_bytes_out) },
    Column { name: "h1_spliced_bytes_in", tags: *b"MCP", value: |row, _| sides(row, 0) },
    Column { name: "h1_spliced_bytes_out", tags: *b"MCP", value: |row, _| sides(row, 0) },
];

fn only(row: &Row, kinds: &[Kind], value: impl Into<Value>) -> Value {
    if kinds.contains(&row.kind) { value.into() } else { Value::Empty }
}

fn unless(row: &Row, kinds: &[Kind], value: impl Into<Value>) -> Value {
    if kinds.contains(&row.kind) { Value::Empty } else { value.into() }
}

/// A value that frontends and backends have.
fn sides(row: &Row, value: u64) -> Value {
    only(row, &[Frontend, Backend], value)
}

/// A value that servers and backends have.
fn has_upstream(row: &Row, value: impl Into<Value>) -> Value {
    only(row, &[Server, Backend], value)
}

fn upstream<V: Into<Value>>(row: &Row, value: impl Fn(&Upstream) -> V) -> Value {
    row.upstream.as_ref().map(value).into()
}

fn server<'a, V: Into<Value>>(row: &'a Row, value: impl Fn(&'a ServerRow) -> V) -> Value {
    row.server.as_ref().map(value).into()
}

fn own_check(row: &Row) -> Option<&Check> {
    row.server.as_ref()?.check()
}

fn check<'a, V: Into<Value>>(row: &'a Row, value: impl Fn(&'a Check) -> V) -> Value {
    own_check(row).map(value).into()
}

/// A value of a server's check, unless that is paused for maintenance.
fn live_check<'a, V: Into<Value>>(row: &'a Row, value: impl Fn(&'a Check) -> V) -> Value {
    let paused = row.server.as_ref().is_some_and(|server| server.status.admin.maint());
    if paused { Value::Empty } else { check(row, value) }
}

/// The check's result.
fn check_status(row: &Row) -> Value {
    let paused = row.server.as_ref().is_some_and(|server| server.status.admin.maint());
    own_check(row).filter(|_| !paused).map(result).into()
}

/// The result of a check or an agent; a star marks one in progress.
fn result(check: &Check) -> String {
    let word = if check.status.is_empty() { "INI" } else { check.status };
    if check.running { format!("* {word}") } else { word.to_string() }
}

/// A value of a server's agent, which is asked during maintenance too.
fn agent<'a, V: Into<Value>>(row: &'a Row, value: impl Fn(&'a Check) -> V) -> Value {
    row.server.as_ref().and_then(|server| server.agent()).map(value).into()
}

fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}

fn limit(row: &Row) -> Value {
    match row.kind {
        // A listener without a limit shows 0.
        Listener => row.sessions.limit.unwrap_or(0).into(),
        _ => row.sessions.limit.into(),
    }
}

fn kind(row: &Row) -> u32 {
    match row.kind {
        Frontend => 0,
        Backend => 1,
        Server => 2,
        Listener => 3,
    }
}

fn mode(row: &Row) -> &'static str {
    if row.http { "http" } else { "tcp" }
}

fn response(row: &Row, class: usize) -> Value {
    if row.http { unless(row, &[Listener], row.totals.responses[class]) } else { Value::Empty }
}

fn requests(row: &Row) -> Value {
    match row.kind {
        Frontend => row.totals.requests.into(),
        Backend | Server if row.http => row.totals.requests.into(),
        _ => Value::Empty,
    }
}

/// Seconds since the last session; -1 if there was none.
fn last_session(row: &Row) -> Value {
    match row.kind {
        Server | Backend => Value::S32(row.idle_seconds().map_or(-1, |s| i32::try_from(s).unwrap_or(i32::MAX))),
        _ => Value::Empty,
    }
}
