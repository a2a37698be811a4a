//! Fetches of internal states (section 7.3.2): constants, clocks, loads, variables.

use super::spec::{FetchSpec, one, refused, while_waiting};
use crate::{
    answer::Answer,
    context::{Context, Phase},
    facts::{BackendLoad, FrontendLoad, ServerLoad},
    keyword::{
        Arg,
        ArgKind::{self, Backend, Frontend, Server, Table},
        ArgSpec, Args, Places, arg, opt,
    },
    sample::{Fetched, Missing},
    value::{
        Type::{Any, Bin, Bool, Int, Ipv4, Ipv6, Method, Str},
        Value,
    },
};
use std::{borrow::Cow, io::Write as _};

const PER_TASK: &str = "workers here do not account CPU time to single streams; the worker metrics show it";
const BACKEND: &[ArgSpec] = &[opt("backend", Backend)];
const FRONTEND: &[ArgSpec] = &[opt("frontend", Frontend)];
const SERVER: &[ArgSpec] = &[arg("server", Server)];
/// As many as HAProxy takes.
const ACLS: &[ArgSpec] = &{
    let mut acls = [opt("acl", ArgKind::Acl); 12];
    acls[0] = arg("acl", ArgKind::Acl);
    acls
};
const ALWAYS: Places = Places::ALWAYS;
const SERVING: Places = Places::SERVING;

pub(super) const TABLE: &[FetchSpec] = &[
    one("always_false", &[], Bool, ALWAYS, "Never true.", |_, _| Ok(Value::Bool(false))),
    one("always_true", &[], Bool, ALWAYS, "Always true.", |_, _| Ok(Value::Bool(true))),
    one("act_conn", &[], Int, ALWAYS, "Connections of the process now.", |ctx, _| int(ctx.world.connections())),
    one("acl", ACLS, Bool, ALWAYS, "Whether all of these ACLs hold.", |ctx, args| {
        let mut all = Answer::Yes;
        for arg in args {
            let Arg::Acl { acl, negated } = arg else { continue };
            all = acl.decide(ctx).negated(*negated);
            if all != Answer::Yes {
                break;
            }
        }
        if all == Answer::NotYet { Err(Missing::NotYet) } else { Ok(Value::Bool(all == Answer::Yes)) }
    }),
    one("avg_queue", BACKEND, Int, SERVING, "Queued requests of a backend for each usable server.", |ctx, args| {
        let load = backend(ctx, args)?;
        let queued = i64::from(load.queue_total);
        match i64::from(load.usable_servers) {
            0 => int(queued * 2),
            servers => int((queued + servers - 1) / servers),
        }
    }),
    one("be_conn", BACKEND, Int, SERVING, "Connections of a backend now.", |ctx, args| int(backend(ctx, args)?.conn)),
    one("be_conn_free", BACKEND, Int, SERVING, "Connections a backend's servers may still take.", |ctx, args| {
        int(backend(ctx, args)?.conn_free)
    }),
    one("be_sess_rate", BACKEND, Int, SERVING, "New sessions of a backend in the last second.", |ctx, args| {
        int(backend(ctx, args)?.sess_rate)
    }),
    one("bin", &[arg("hex", ArgKind::Hex)], Bin, ALWAYS, "Bytes written in hexadecimal.", |_, args| {
        Ok(Value::bin(args.bytes(0).unwrap_or_default()))
    }),
    one("bool", &[arg("bool", ArgKind::Bool)], Bool, ALWAYS, "A constant boolean.", |_, args| {
        Ok(Value::Bool(args.int(0) == Some(1)))
    }),
    one("connslots", BACKEND, Int, SERVING, "Connection and queue slots a backend has left.", |ctx, args| {
        int(backend(ctx, args)?.conn_slots)
    }),
    refused("cpu_calls", Int, "Times the stream's task was called.", PER_TASK),
    refused("cpu_ns_avg", Int, "Mean CPU time of a call of the stream's task.", PER_TASK),
    refused("cpu_ns_tot", Int, "CPU time of the stream's task.", PER_TASK),
    one(
        "date",
        &[opt("offset", ArgKind::Int), opt("unit", ArgKind::OneOf(&["s", "ms", "us"]))],
        Int,
        ALWAYS,
        "Seconds since 1970 (or ms, µs), and an offset.",
        |ctx, args| {
            let us = ctx.now.unix_us;
            let now = match args.word(1) {
                Some(1) => us / 1_000,
                Some(2) => us,
                _ => us / 1_000_000,
            };
            int(now as i64 + args.int(0).unwrap_or(0))
        },
    )
    .changing(while_waiting),
    one("date_us", &[], Int, ALWAYS, "The µs of the current second.", |ctx, _| {
        int((ctx.now.unix_us % 1_000_000) as i64)
    })
    .changing(while_waiting),
    one("env", &[arg("name", ArgKind::Str)], Str, ALWAYS, "A variable of the environment at start.", |_, args| {
        args.bytes(0).map(Value::str).ok_or(Missing::Absent)
    }),
    one(
        "fe_conn",
        FRONTEND,
        Int,
        SERVING,
        "Connections of a frontend now.",
        |ctx, args| int(frontend(ctx, args)?.conn),
    ),
    one("fe_req_rate", FRONTEND, Int, SERVING, "Requests of a frontend in the last second.", |ctx, args| {
        int(frontend(ctx, args)?.req_rate)
    }),
    one("fe_sess_rate", FRONTEND, Int, SERVING, "New sessions of a frontend in the last second.", |ctx, args| {
        int(frontend(ctx, args)?.sess_rate)
    }),
    one("hostname", &[], Str, ALWAYS, "The machine's name.", |ctx, _| Ok(Value::str(ctx.world.hostname().as_bytes()))),
    one("int", &[arg("integer", ArgKind::Int)], Int, ALWAYS, "A constant integer.", |_, args| {
        int(args.int(0).unwrap_or(0))
    }),
    one("ipv4", &[arg("ipv4", ArgKind::Ipv4)], Ipv4, ALWAYS, "A constant IPv4 address.", |_, args| match args {
        [Arg::Ipv4(ip), ..] => Ok(Value::Ipv4(*ip)),
        _ => Err(Missing::Absent),
    }),
    one("ipv6", &[arg("ipv6", ArgKind::Ipv6)], Ipv6, ALWAYS, "A constant IPv6 address.", |_, args| match args {
        [Arg::Ipv6(ip), ..] => Ok(Value::Ipv6(*ip)),
        _ => Err(Missing::Absent),
    }),
    one("hello_rule_line", &[], Int, SERVING, "Line of the tcp-request client-hello rule that decided.", |ctx, _| {
        int(ctx.conn.hello_rule.ok_or(Missing::Absent)?.line)
    }),
    one("origin_error", &[], Str, SERVING, "What is wrong with the server that was intercepted.", |ctx, _| {
        let origin = ctx.conn.origin.as_ref().ok_or(Missing::Absent)?;
        origin.error.as_ref().map(|error| Value::str(error.as_bytes())).ok_or(Missing::Absent)
    }),
    one("inspection_chain", &[], Str, SERVING, "The service-chain that the message passes.", |ctx, _| {
        inspection(ctx).map(|inspection| Value::str(inspection.name.as_bytes()))
    }),
    one("inspection_threat", &[], Str, SERVING, "The threat that a service named.", |ctx, _| {
        inspection(ctx)?.threat.as_deref().map(Value::str).ok_or(Missing::Absent)
    }),
    one(
        "inspection_verdicts",
        &[],
        Str,
        SERVING,
        "What each service of the chain decided, and after how many ms.",
        |ctx, _| {
            let verdicts = inspection(ctx)?.verdicts.as_str();
            if verdicts.is_empty() { Err(Missing::Absent) } else { Ok(Value::str(verdicts.as_bytes())) }
        },
    ),
    refused("last_rule_file", Str, "File of the last rule that decided.", "the log's own fields name the rule"),
    one("last_rule_line", &[], Int, SERVING, "Line of the last rule that decided.", |ctx, _| {
        int(ctx.txn.last_rule.ok_or(Missing::Absent)?.line)
    }),
    refused("lat_ns_avg", Int, "Mean time the stream's task waited for the CPU.", PER_TASK),
    refused("lat_ns_tot", Int, "Time the stream's task waited for the CPU.", PER_TASK),
    one("meth", &[arg("method", ArgKind::Str)], Method, ALWAYS, "A constant HTTP method.", |_, args| {
        Ok(Value::Method(Cow::Borrowed(args.bytes(0).unwrap_or_default())))
    }),
    one("nbproc", &[], Int, ALWAYS, "Number of processes: always 1.", |_, _| int(1)),
    one("nbsrv", BACKEND, Int, SERVING, "Usable servers of a backend.", |ctx, args| {
        int(backend(ctx, args)?.usable_servers)
    }),
    one("pid", &[], Int, ALWAYS, "The process number.", |ctx, _| int(ctx.world.pid())),
    one("prio_class", &[], Int, SERVING, "The request's priority class in queues.", |ctx, _| {
        in_exchange(ctx)?;
        int(ctx.txn.priority_class)
    }),
    one("prio_offset", &[], Int, SERVING, "The request's priority offset in queues, ms.", |ctx, _| {
        in_exchange(ctx)?;
        int(ctx.txn.priority_offset_ms)
    }),
    one("proc", &[], Int, ALWAYS, "Number of this process: always 1.", |_, _| int(1)),
    one("queue", BACKEND, Int, SERVING, "Queued requests of a backend, its servers' queues included.", |ctx, args| {
        int(backend(ctx, args)?.queue_total)
    }),
    one("quic_enabled", &[], Bool, ALWAYS, "Whether QUIC is spoken: never.", |_, _| Ok(Value::Bool(false))),
    one(
        "rand",
        &[opt("range", ArgKind::Int)],
        Int,
        ALWAYS,
        "A random integer below 2^32, or below a range.",
        |ctx, args| {
            let random = ctx.world.random() as u32;
            match args.int(0).and_then(|range| u32::try_from(range).ok()) {
                Some(range) => int(((u64::from(random) * u64::from(range)) >> 32) as i64),
                None => int(random),
            }
        },
    )
    .changing(while_waiting),
    one("srv_conn", SERVER, Int, SERVING, "Connections of a server now.", |ctx, args| int(server(ctx, args)?.conn)),
    one("srv_conn_free", SERVER, Int, SERVING, "Connections a server may still take.", |ctx, args| {
        int(server(ctx, args)?.conn_free)
    }),
    one("srv_is_up", SERVER, Bool, SERVING, "Whether a server may take traffic.", |ctx, args| {
        Ok(Value::Bool(server(ctx, args)?.up))
    }),
    one("srv_iweight", SERVER, Int, SERVING, "A server's weight as configured.", |ctx, args| {
        int(server(ctx, args)?.initial_weight)
    }),
    one("srv_queue", SERVER, Int, SERVING, "Requests in a server's queue.", |ctx, args| int(server(ctx, args)?.queue)),
    one("srv_sess_rate", SERVER, Int, SERVING, "New sessions of a server in the last second.", |ctx, args| {
        int(server(ctx, args)?.sess_rate)
    }),
    one("srv_uweight", SERVER, Int, SERVING, "A server's weight as set now.", |ctx, args| {
        int(server(ctx, args)?.user_weight)
    }),
    one("srv_weight", SERVER, Int, SERVING, "A server's weight in effect, slow start included.", |ctx, args| {
        int(server(ctx, args)?.weight)
    }),
    one("stopping", &[], Bool, SERVING, "Whether the process drains.", |ctx, _| Ok(Value::Bool(ctx.world.stopping()))),
    one("str", &[arg("string", ArgKind::Str)], Str, ALWAYS, "A constant string.", |_, args| {
        Ok(Value::str(args.bytes(0).unwrap_or_default()))
    }),
    one("table_avl", &[arg("table", Table)], Int, SERVING, "Entries a stick table has left.", |_, args| {
        int(args.table(0).ok_or(Missing::Absent)?.available() as i64)
    }),
    one("table_cnt", &[arg("table", Table)], Int, SERVING, "Entries in a stick table.", |_, args| {
        int(args.table(0).ok_or(Missing::Absent)?.len() as i64)
    }),
    one("thread", &[], Int, ALWAYS, "Number of the worker, from 0.", |ctx, _| int(ctx.world.thread())),
    one("unique-id", &[], Str, ALWAYS, "The request's unique-id.", |ctx, _| {
        ctx.make_unique_id();
        Ok(Value::string(ctx.txn.unique_id.borrow().clone().ok_or(Missing::Absent)?))
    }),
    one("uptime", &[], Int, ALWAYS, "Seconds since the process started.", |ctx, _| int((ctx.now.mono / 1_000) as i64)),
    one(
        "uuid",
        &[opt("version", ArgKind::OneOf(&["4", "7"]))],
        Str,
        ALWAYS,
        "A UUID: random (version 4), or with the time in front (version 7).",
        |ctx, args| {
            let (high, low) = (ctx.world.random(), ctx.world.random());
            Ok(Value::string(match args.word(0) {
                Some(1) => uuid(7, ((ctx.now.unix_us / 1_000) << 16) | (high & 0xffff), low),
                _ => uuid(4, high, low),
            }))
        },
    )
    .changing(while_waiting),
    one(
        "var",
        &[arg("var", ArgKind::Var), opt("default", ArgKind::Str)],
        Any,
        ALWAYS,
        "The value of a variable, or a default.",
        |ctx, args| {
            let value = ctx.var(args.var(0).ok_or(Missing::Absent)?);
            value.or_else(|| args.bytes(1).map(Value::str)).ok_or(Missing::Absent)
        },
    ),
];

/// A number as a sample.
pub(super) fn int<'c>(n: impl Into<i64>) -> Fetched<'c> {
    Ok(Value::Int(n.into()))
}

/// Succeeds if there is a request: connection rules have none, nor has the log line of an invalid one.
pub(super) fn in_exchange(ctx: &Context<'_>) -> Result<(), Missing> {
    if ctx.phase == Phase::Before { Err(Missing::Absent) } else { Ok(()) }
}

/// The named backend, or the current one.
fn inspection<'c>(ctx: &'c Context<'_>) -> Result<&'c crate::inspection::Inspection, Missing> {
    ctx.txn.inspection.as_deref().ok_or(Missing::Absent)
}

fn backend(ctx: &Context<'_>, args: &[Arg]) -> Result<BackendLoad, Missing> {
    let id = args.proxy(0).or(ctx.backend.map(|(id, _)| id)).ok_or(Missing::Absent)?;
    Ok(ctx.world.backend(id))
}

fn frontend(ctx: &Context<'_>, args: &[Arg]) -> Result<FrontendLoad, Missing> {
    Ok(ctx.world.frontend(args.proxy(0).unwrap_or(ctx.frontend.0)))
}

fn server(ctx: &Context<'_>, args: &[Arg]) -> Result<ServerLoad, Missing> {
    match args.first() {
        Some(Arg::Server(id)) => Ok(ctx.world.server(*id)),
        _ => Err(Missing::Absent),
    }
}

/// A UUID (RFC 9562) of that version, with the other bits of its two halves.
fn uuid(version: u8, high: u64, low: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(36);
    let written = write!(
        out,
        "{:08x}-{:04x}-{version}{:03x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xfff,
        low >> 48 & 0x3fff | 0x8000,
        low & 0xffff_ffff_ffff
    );
    written.expect("writing into a vector does not fail");
    out
}
