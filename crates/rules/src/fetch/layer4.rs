//! Fetches of connections and sessions (section 7.3.3), except stick counters.

use super::{
    internal::{in_exchange, int},
    spec::{FetchSpec, one, refused},
};
use crate::{
    context::Context,
    facts::{MuxFacts, ProxyFacts, ServerConnFacts, TcpInfo},
    keyword::{ArgKind, ArgSpec, Args, Places, arg, opt},
    sample::{Fetched, Missing},
    value::{
        Type::{Addr, Bool, Int, Str},
        Value,
    },
};
use penstock_http::proxy_protocol;
use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
};

const CLIENT: Places = Places::FROM_CONNECTION;
const SERVER: Places = Places::FROM_SERVER;
/// Everywhere except in health checks: there is a frontend.
const FRONTEND: Places = Places(Places::SERVING.0 & !Places::CHECK.0);
/// Where there is a backend.
const BACKEND: Places =
    Places::BACKEND_REQUEST.or(Places::SERVER).or(Places::RESPONSE).or(Places::LOG).or(Places::CHECK);
const TLV: &[ArgSpec] = &[arg("type", ArgKind::Tlv)];
const UNIT: &[ArgSpec] = &[opt("unit", ArgKind::OneOf(&["ms", "us"]))];

pub(super) const TABLE: &[FetchSpec] = &[
    one("bc_dst", &[], Addr, SERVER, "The server's address.", |ctx, _| ip(server_conn(ctx)?.dst)),
    one("bc_dst_port", &[], Int, SERVER, "The server's port.", |ctx, _| port(server_conn(ctx)?.dst)),
    one("bc_err", &[], Int, SERVER, "Number of the error on the server's connection.", |ctx, _| {
        int(server_failure(ctx)?.0)
    }),
    one("bc_err_name", &[], Str, SERVER, "The error on the server's connection, in one word.", |ctx, _| {
        text(error_name(server_failure(ctx)?))
    }),
    one("bc_err_str", &[], Str, SERVER, "The error on the server's connection, in words.", |ctx, _| {
        words(server_failure(ctx)?)
    }),
    one("bc_glitches", &[], Int, SERVER, "Glitches of the server's HTTP/2 connection.", |ctx, _| {
        glitches(&server_conn(ctx)?.mux)
    }),
    one("bc_http_major", &[], Int, SERVER, "1 or 2 for the HTTP spoken with the server.", |ctx, _| {
        let spoken = server_conn(ctx)?.http_major;
        if backend(ctx)?.http { major(spoken) } else { Err(Missing::Absent) }
    }),
    one("bc_nb_streams", &[], Int, SERVER, "Streams that are open on the server's connection.", |ctx, _| {
        streams(&server_conn(ctx)?.mux)
    }),
    one(
        "bc_rtt",
        UNIT,
        Int,
        Places::SERVING,
        "Round-trip time to the server as the kernel measures it.",
        |ctx, args| to_server(ctx, |info| if args.word(0) == Some(1) { info.rtt_us } else { info.rtt_us / 1_000 }),
    ),
    one("bc_rttvar", UNIT, Int, Places::SERVING, "Variance of that time.", |ctx, args| {
        to_server(ctx, |info| if args.word(0) == Some(1) { info.rttvar_us } else { info.rttvar_us / 1_000 })
    }),
    one(
        "bc_setting_streams_limit",
        &[],
        Int,
        SERVER,
        "How many streams may be open on the server's connection.",
        |ctx, _| streams_limit(&server_conn(ctx)?.mux),
    ),
    one("bc_settings_streams_limit", &[], Int, SERVER, "The same: its name in HAProxy's manual.", |ctx, _| {
        streams_limit(&server_conn(ctx)?.mux)
    }),
    one("bc_src", &[], Addr, SERVER, "Our address towards the server.", |ctx, _| ip(server_conn(ctx)?.src)),
    one("bc_src_port", &[], Int, SERVER, "Our port towards the server.", |ctx, _| port(server_conn(ctx)?.src)),
    one("be_id", &[], Int, BACKEND, "Number of the backend.", |ctx, _| int(backend(ctx)?.id)),
    one("be_name", &[], Str, BACKEND, "Name of the backend.", |ctx, _| text(&backend(ctx)?.name)),
    one("be_server_timeout", &[], Int, BACKEND, "`timeout server` of the backend, ms.", |ctx, _| {
        int(backend(ctx)?.timeout_server_ms as i64)
    }),
    one("be_tunnel_timeout", &[], Int, BACKEND, "`timeout tunnel` of the backend, ms.", |ctx, _| {
        int(backend(ctx)?.timeout_tunnel_ms as i64)
    }),
    one("cur_client_timeout", &[], Int, FRONTEND, "The client timeout in effect, ms.", |ctx, _| {
        int(ctx.txn.timeout_client_ms.unwrap_or(ctx.frontend.1.timeout_client_ms) as i64)
    }),
    one("cur_server_timeout", &[], Int, BACKEND, "The server timeout in effect, ms.", |ctx, _| {
        in_exchange(ctx)?;
        int(ctx.txn.timeout_server_ms.unwrap_or(backend(ctx)?.timeout_server_ms) as i64)
    }),
    one("cur_tunnel_timeout", &[], Int, BACKEND, "The tunnel timeout in effect, ms.", |ctx, _| {
        in_exchange(ctx)?;
        int(ctx.txn.timeout_tunnel_ms.unwrap_or(backend(ctx)?.timeout_tunnel_ms) as i64)
    }),
    one("dst", &[], Addr, CLIENT, "The address the client connected to.", |ctx, _| ip(ctx.txn.destination(ctx.conn))),
    one("dst_conn", &[], Int, FRONTEND, "Connections on the listener.", |ctx, _| {
        int(ctx.world.listener(ctx.frontend.0, ctx.conn))
    }),
    one("dst_is_local", &[], Bool, CLIENT, "Whether the address connected to is this machine's.", |ctx, _| {
        local(ctx, ctx.txn.destination(ctx.conn))
    }),
    one("dst_port", &[], Int, CLIENT, "The port the client connected to.", |ctx, _| {
        port(ctx.txn.destination(ctx.conn))
    }),
    one(
        "fc_dst",
        &[],
        Addr,
        CLIENT,
        "The connection's destination: neither a PROXY header nor later rules change it.",
        |ctx, _| ip(ctx.conn.dst),
    ),
    one("fc_dst_is_local", &[], Bool, CLIENT, "Whether that is this machine's.", |ctx, _| local(ctx, ctx.conn.dst)),
    one("fc_dst_port", &[], Int, CLIENT, "Its port.", |ctx, _| port(ctx.conn.dst)),
    one("fc_err", &[], Int, CLIENT, "Number of the error on the client's connection.", |ctx, _| int(ctx.conn.error.0)),
    one("fc_err_name", &[], Str, CLIENT, "The error on the client's connection, in one word.", |ctx, _| {
        text(error_name(ctx.conn.error))
    }),
    one("fc_err_str", &[], Str, CLIENT, "The error on the client's connection, in words.", |ctx, _| {
        words(ctx.conn.error)
    }),
    one("fc_fackets", &[], Int, CLIENT, "Forward acknowledgements, as the kernel counts them.", |ctx, _| {
        tcp(ctx, |info| info.fackets)
    }),
    one("fc_glitches", &[], Int, CLIENT, "Glitches of the client's HTTP/2 connection.", |ctx, _| {
        glitches(&ctx.conn.mux)
    }),
    one("fc_http_major", &[], Int, CLIENT, "1 or 2 for the HTTP spoken with the client.", |ctx, _| {
        major(ctx.conn.http_major)
    }),
    one("fc_lost", &[], Int, CLIENT, "Segments lost, as the kernel counts them.", |ctx, _| tcp(ctx, |info| info.lost)),
    one("fc_nb_streams", &[], Int, CLIENT, "Streams that are open on the client's connection.", |ctx, _| {
        in_exchange(ctx)?;
        streams(&ctx.conn.mux)
    }),
    one("fc_pp_authority", &[], Str, CLIENT, "The authority in the PROXY header.", |ctx, _| {
        tlv(ctx, proxy_protocol::AUTHORITY)
    }),
    one(
        "fc_pp_tlv",
        TLV,
        Str,
        Places::FROM_SESSION.or(Places::HELLO),
        "The first field of a type in the PROXY header.",
        |ctx, args| tlv(ctx, args.int(0).and_then(|kind| u8::try_from(kind).ok()).ok_or(Missing::Absent)?),
    ),
    one("fc_pp_unique_id", &[], Str, CLIENT, "The unique-id in the PROXY header.", |ctx, _| {
        tlv(ctx, proxy_protocol::UNIQUE_ID)
    }),
    one("fc_rcvd_proxy", &[], Bool, CLIENT, "Whether the connection began with a PROXY header.", |ctx, _| {
        Ok(Value::Bool(ctx.conn.proxy_header.is_some()))
    }),
    one("fc_reordering", &[], Int, CLIENT, "Reordering, as the kernel measures it.", |ctx, _| {
        tcp(ctx, |info| info.reordering)
    }),
    one("fc_retrans", &[], Int, CLIENT, "Segments retransmitted.", |ctx, _| tcp(ctx, |info| info.retrans)),
    one("fc_rtt", UNIT, Int, CLIENT, "Round-trip time as the kernel measures it.", |ctx, args| {
        tcp(ctx, |info| if args.word(0) == Some(1) { info.rtt_us } else { info.rtt_us / 1_000 })
    }),
    one("fc_rttvar", UNIT, Int, CLIENT, "Variance of the round-trip time.", |ctx, args| {
        tcp(ctx, |info| if args.word(0) == Some(1) { info.rttvar_us } else { info.rttvar_us / 1_000 })
    }),
    one("fc_sacked", &[], Int, CLIENT, "Segments acknowledged selectively.", |ctx, _| tcp(ctx, |info| info.sacked)),
    one(
        "fc_settings_streams_limit",
        &[],
        Int,
        Places::FROM_SESSION,
        "How many streams may be open on the client's connection.",
        |ctx, _| {
            in_exchange(ctx)?;
            streams_limit(&ctx.conn.mux)
        },
    ),
    one(
        "fc_src",
        &[],
        Addr,
        CLIENT,
        "The connection's source: neither a PROXY header nor later rules change it.",
        |ctx, _| ip(ctx.conn.src),
    ),
    one("fc_src_is_local", &[], Bool, CLIENT, "Whether that is this machine's.", |ctx, _| local(ctx, ctx.conn.src)),
    one("fc_src_port", &[], Int, CLIENT, "Its port.", |ctx, _| port(ctx.conn.src)),
    one("fc_unacked", &[], Int, CLIENT, "Segments not acknowledged.", |ctx, _| tcp(ctx, |info| info.unacked)),
    refused("fcgi.docroot", Str, "Document root of a FastCGI application.", "FastCGI is not supported"),
    refused("fcgi.index", Str, "Index file of a FastCGI application.", "FastCGI is not supported"),
    one("fe_client_timeout", &[], Int, FRONTEND, "`timeout client` of the frontend, ms.", |ctx, _| {
        int(ctx.frontend.1.timeout_client_ms as i64)
    }),
    one("fe_defbe", &[], Str, FRONTEND, "The frontend's default backend.", |ctx, _| {
        text(ctx.frontend.1.default_backend.as_deref().ok_or(Missing::Absent)?)
    }),
    one("fe_id", &[], Int, FRONTEND, "Number of the frontend.", |ctx, _| int(ctx.frontend.1.id)),
    one("fe_name", &[], Str, FRONTEND, "Name of the frontend.", |ctx, _| text(&ctx.frontend.1.name)),
    one("so_id", &[], Int, FRONTEND, "Number of the listener.", |ctx, _| int(ctx.conn.listener_id)),
    one("so_name", &[], Str, FRONTEND, "Name of the listener.", |ctx, _| {
        text(ctx.conn.listener_name.as_deref().ok_or(Missing::Absent)?)
    }),
    one("src", &[], Addr, CLIENT, "The client's address.", |ctx, _| ip(ctx.txn.source(ctx.conn))),
    one("src_is_local", &[], Bool, CLIENT, "Whether the client's address is this machine's.", |ctx, _| {
        local(ctx, ctx.txn.source(ctx.conn))
    }),
    one("src_port", &[], Int, CLIENT, "The client's port.", |ctx, _| port(ctx.txn.source(ctx.conn))),
    one("srv_id", &[], Int, SERVER.or(Places::SERVER), "Number of the server.", |ctx, _| {
        int(ctx.server.ok_or(Missing::Absent)?.id)
    }),
    one("srv_name", &[], Str, SERVER.or(Places::SERVER), "Name of the server.", |ctx, _| {
        text(&ctx.server.ok_or(Missing::Absent)?.name)
    }),
];

fn ip<'c>(addr: Option<SocketAddr>) -> Fetched<'c> {
    addr.map(|addr| Value::ip(addr.ip())).ok_or(Missing::Absent)
}

/// As in HAProxy, port 0, which only a rule can have set, is none.
fn port<'c>(addr: Option<SocketAddr>) -> Fetched<'c> {
    int(addr.map(|addr| addr.port()).filter(|port| *port != 0).ok_or(Missing::Absent)?)
}

fn text(text: &str) -> Fetched<'_> {
    Ok(Value::str(text.as_bytes()))
}

fn local<'c>(ctx: &Context<'_>, addr: Option<SocketAddr>) -> Fetched<'c> {
    Ok(Value::Bool(ctx.world.is_local(addr.ok_or(Missing::Absent)?.ip().to_canonical())))
}

fn tcp<'c>(ctx: &Context<'_>, field: impl Fn(TcpInfo) -> u32) -> Fetched<'c> {
    in_exchange(ctx)?;
    int(field(ctx.world.tcp_info(ctx.conn.socket, ctx.conn.peer).ok_or(Missing::Absent)?))
}

fn to_server<'c>(ctx: &Context<'_>, field: impl Fn(TcpInfo) -> u32) -> Fetched<'c> {
    let conn = server_conn(ctx)?;
    int(field(ctx.world.tcp_info(conn.socket, conn.dst).ok_or(Missing::Absent)?))
}

fn tlv<'c>(ctx: &'c Context<'_>, kind: u8) -> Fetched<'c> {
    ctx.conn.proxy_header.as_deref().and_then(|tlvs| tlvs.first(kind)).map(Value::str).ok_or(Missing::Absent)
}

/// HAProxy's word for an error, by its number: only failed handshakes are kept as errors of connections here.
fn error_name(error: (u32, &'static str)) -> &'static str {
    match error.0 {
        0 => "",
        24 => "SSL_EMPTY",
        25 => "SSL_ABORT",
        30 => "SSL_CA_FAIL",
        31 => "SSL_CRT_FAIL",
        32 => "SSL_MISMATCH",
        33 => "SSL_MISMATCH_SNI",
        _ => "SSL_HANDSHAKE",
    }
}

/// A connection's error in words.
fn words<'c>(error: (u32, &'static str)) -> Fetched<'c> {
    text(if error == (0, "") { "Success" } else { error.1 })
}

/// The error on the server's connection: none at all if nobody has opened it, and it is not for TLS that it failed.
fn server_failure(ctx: &Context<'_>) -> Result<(u32, &'static str), Missing> {
    let conn = server_conn(ctx)?;
    if conn.opened || conn.error.0 != 0 { Ok(conn.error) } else { Err(Missing::Absent) }
}

fn server_conn<'c>(ctx: &'c Context<'_>) -> Result<&'c ServerConnFacts, Missing> {
    ctx.server_conn.ok_or(Missing::Absent)
}

/// As in HAProxy, only HTTP/2 counts glitches.
fn glitches<'c>(mux: &Option<Arc<MuxFacts>>) -> Fetched<'c> {
    int(mux.as_ref().ok_or(Missing::Absent)?.glitches.load(Relaxed))
}

/// A connection without HTTP/2 has one stream.
fn streams<'c>(mux: &Option<Arc<MuxFacts>>) -> Fetched<'c> {
    int(mux.as_ref().map_or(1, |mux| mux.streams.load(Relaxed)))
}

/// A connection without HTTP/2 may have one stream.
fn streams_limit<'c>(mux: &Option<Arc<MuxFacts>>) -> Fetched<'c> {
    int(mux.as_ref().map_or(1, |mux| mux.streams_limit.load(Relaxed)))
}

/// As in HAProxy, a connection on which no HTTP is spoken (0) has no version of it.
fn major<'c>(version: u8) -> Fetched<'c> {
    if version == 0 { Err(Missing::Absent) } else { int(version) }
}

/// The backend, or the frontend while none is chosen for the request.
fn backend<'c>(ctx: &'c Context<'_>) -> Result<&'c ProxyFacts, Missing> {
    in_exchange(ctx)?;
    Ok(ctx.backend.unwrap_or(ctx.frontend).1)
}
