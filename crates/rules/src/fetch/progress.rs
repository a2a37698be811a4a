//! Fetches of how an exchange goes: its dates, timers, bytes and states. HAProxy's manual has them among those of internal
//! states and of connections; they say what the aliases of log formats write.

use super::{
    internal::{in_exchange, int},
    spec::{FetchSpec, one},
};
use crate::{
    keyword::{Arg, ArgKind, ArgSpec, Args, Places, opt},
    sample::{Fetched, Missing},
    value::{
        Type::{Bool, Int, Str},
        Value,
    },
};

const CLIENT: Places = Places::FROM_CONNECTION;
const REQUEST: Places = Places::FROM_REQUEST;
const SERVER: Places = Places::FROM_SERVER;
const UNIT: &[ArgSpec] = &[opt("unit", ArgKind::OneOf(&["s", "ms", "us"]))];

pub(super) const TABLE: &[FetchSpec] = &[
    one("accept_date", UNIT, Int, CLIENT, "When the connection was accepted or ready for the request.", |ctx, args| {
        date(if ctx.log.accept_unix_us == 0 { ctx.conn.accepted_unix_us } else { ctx.log.accept_unix_us }, args)
    }),
    one("bc.timer.connect", &[], Int, SERVER, "Connecting to the server, ms: `%Tc`.", |ctx, _| int(ctx.log.Tc)),
    one("bc_be_queue", &[], Int, SERVER, "Requests before this one in the backend's queue: `%bq`.", |ctx, _| {
        int(ctx.log.backend_queue)
    }),
    one("bc_srv_queue", &[], Int, SERVER, "Requests before this one in the server's queue: `%sq`.", |ctx, _| {
        int(ctx.log.srv_queue)
    }),
    one("bytes_in", &[], Int, CLIENT, "Bytes received from the client: `%U`.", |ctx, _| {
        int(ctx.log.bytes_uploaded as i64)
    }),
    one("bytes_out", &[], Int, CLIENT, "Bytes sent to the client: `%B`.", |ctx, _| int(ctx.log.bytes_read as i64)),
    one("fc.timer.handshake", &[], Int, CLIENT, "Handshakes, ms: `%Th`.", |ctx, _| int(ctx.log.Th.max(0))),
    one("fc.timer.total", &[], Int, Places::LOG, "From accept to the end, ms: `%Tt`.", |ctx, _| int(ctx.log.Tt)),
    one("req.timer.hdr", &[], Int, Places::IN_REQUEST, "Receiving the request head, ms: `%TR`.", |ctx, _| {
        int(ctx.log.TR)
    }),
    one("req.timer.idle", &[], Int, Places::IN_REQUEST, "Idle before the request, ms: `%Ti`.", |ctx, _| {
        int(ctx.log.Ti)
    }),
    one("req.timer.queue", &[], Int, SERVER, "Waiting in queues, ms: `%Tw`.", |ctx, _| int(ctx.log.Tw)),
    one("req.timer.tq", &[], Int, Places::IN_REQUEST, "Th + Ti + TR, ms: `%Tq`.", |ctx, _| int(ctx.log.Tq())),
    one("request_date", UNIT, Int, REQUEST, "When the request began.", |ctx, args| {
        in_exchange(ctx)?;
        date(ctx.log.request_unix_us, args)
    }),
    one("res.timer.data", &[], Int, Places::LOG, "Transferring data, ms: `%Td`.", |ctx, _| int(ctx.log.Td)),
    one("res.timer.hdr", &[], Int, Places::IN_RESPONSE, "Waiting for the response head, ms: `%Tr`.", |ctx, _| {
        int(ctx.log.Tr)
    }),
    one("server_status", &[], Int, SERVER, "The response's status as the server sent it, 0 without one.", |ctx, _| {
        int(ctx.txn.server_status.unwrap_or(0))
    }),
    one("txn.conn_retries", &[], Int, SERVER, "Attempts repeated: `%rc`.", |ctx, _| int(ctx.log.retries)),
    one("txn.id32", &[], Int, CLIENT, "Number of the request in the process: `%rt`.", |ctx, _| {
        int(ctx.log.request_counter)
    }),
    one("txn.redispatched", &[], Bool, SERVER, "Whether another server was tried.", |ctx, _| {
        Ok(Value::Bool(ctx.log.redispatched))
    }),
    one("txn.sess_term_state", &[], Str, CLIENT, "How it ended, two characters: `%ts`.", |ctx, _| {
        Ok(Value::string(ctx.log.termination.letters()))
    }),
    one("txn.status", &[], Int, SERVER, "The status for the client: `%ST`.", |ctx, _| {
        int(ctx.txn.status.ok_or(Missing::Absent)?)
    }),
    one("txn.timer.total", &[], Int, Places::LOG, "From the request's first byte to the end, ms: `%Ta`.", |ctx, _| {
        int(ctx.log.Ta)
    }),
    one("txn.timer.user", &[], Int, Places::LOG, "Th + Ta, ms: `%Tu`.", |ctx, _| int(ctx.log.Tu)),
];

/// A date in the unit asked for.
fn date<'c>(unix_us: u64, args: &[Arg]) -> Fetched<'c> {
    int(match args.word(0) {
        Some(1) => unix_us / 1_000,
        Some(2) => unix_us,
        _ => unix_us / 1_000_000,
    } as i64)
}
