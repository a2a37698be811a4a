//! Fetches of buffered bytes (section 7.3.5), which TCP rules look at before they decide.

use super::{
    internal::{in_exchange, int},
    spec::{FetchSpec, each, one, refused},
};
use crate::{
    client_hello::ClientHello,
    context::{Buffered, Context, Phase},
    keyword::{
        Arg,
        ArgKind::{Int as Number, Str as Text},
        ArgSpec, Args, Places, arg, opt,
    },
    sample::{Fetched, Missing},
    value::{
        Type::{Bin, Bool, Int, Str},
        Value,
    },
};
use penstock_http::{RequestHead, ResponseHead};
use std::borrow::Cow;

const REQUEST: Places = Places::IN_REQUEST;
/// The places of fetches of bytes, which may also be a ClientHello that has not been decrypted yet.
const BYTES: Places = Places::IN_REQUEST.or(Places::HELLO);
const SESSION: Places = Places::FROM_SESSION;
const SERVER: Places = Places::FROM_SERVER;
const RESPONSE: Places = Places::IN_RESPONSE;
const SPAN: &[ArgSpec] = &[arg("offset", Number), arg("length", Number)];
const LV: &[ArgSpec] = &[arg("offset1", Number), arg("length", Number), opt("offset2", Text)];
const NAME: &[ArgSpec] = &[opt("name", Text)];
const INTERNAL: &str = "it shows what HAProxy's own code has inside";
const DISTCC: &str = "the distcc protocol is not supported; use req.payload";

pub(super) const TABLE: &[FetchSpec] = &[
    one("bs.aborted", &[], Bool, SERVER, "Whether the server has reset the stream.", |ctx, _| {
        Ok(Value::Bool(ctx.txn.server_stream.reset.is_some()))
    }),
    refused("bs.debug_str", Str, "The state of the server's stream.", INTERNAL),
    one("bs.id", &[], Int, SERVER, "Number of the stream on the server's connection.", |ctx, _| {
        ctx.server_conn.ok_or(Missing::Absent)?;
        int(ctx.txn.server_stream.id as i64)
    }),
    one("bs.rst_code", &[], Int, SERVER, "Code with which the server has reset the HTTP/2 stream.", |ctx, _| {
        int(ctx.txn.server_stream.reset.ok_or(Missing::Absent)?)
    }),
    refused("distcc_body", Bin, "A body of a distcc message.", DISTCC),
    refused("distcc_param", Int, "A parameter of a distcc message.", DISTCC),
    one("fs.aborted", &[], Bool, SESSION, "Whether the client has reset the stream.", |ctx, _| {
        in_exchange(ctx)?;
        Ok(Value::Bool(ctx.txn.client_stream.reset.is_some()))
    }),
    refused("fs.debug_str", Str, "The state of the client's stream.", INTERNAL),
    one("fs.id", &[], Int, SESSION, "Number of the stream on the client's connection.", |ctx, _| {
        in_exchange(ctx)?;
        int(ctx.txn.client_stream.id as i64)
    }),
    one("fs.rst_code", &[], Int, SESSION, "Code with which the client has reset the HTTP/2 stream.", |ctx, _| {
        in_exchange(ctx)?;
        int(ctx.txn.client_stream.reset.ok_or(Missing::Absent)?)
    }),
    one("req.len", &[], Int, BYTES, "Bytes buffered from the client; in HTTP, head and body.", |ctx, _| {
        let head = ctx.request.as_deref().filter(|_| !ctx.input.raw).map_or(0, RequestHead::weight);
        int((head + ctx.input.bytes.len() as u64) as i64)
    })
    .changing(|ctx, _| !ctx.input.complete),
    one(
        "req.payload",
        SPAN,
        Bin,
        BYTES,
        "Bytes from the client, from an offset; length 0 is all that is there. Not in HTTP.",
        |ctx, args| payload(ctx.input.connection()?, args),
    )
    .changing(|ctx, args| args.int(1) == Some(0) && ctx.input.raw && !ctx.input.complete),
    one("req.payload_lv", LV, Bin, BYTES, "Bytes from the client whose length stands before them.", |ctx, args| {
        payload_lv(ctx.input.connection()?, args)
    }),
    one(
        "req.proto_http",
        &[],
        Bool,
        Places::FROM_REQUEST,
        "Whether what the client sent is HTTP; waits for a whole request head.",
        |ctx, _| proto_http(ctx),
    ),
    one("req.rdp_cookie", NAME, Str, REQUEST, "The cookie of an RDP connection request.", |ctx, args| {
        rdp_cookie(ctx.input.connection()?, args.bytes(0))
    }),
    one("req.rdp_cookie_cnt", NAME, Int, REQUEST, "1 when there is such an RDP cookie, else 0.", |ctx, args| {
        match rdp_cookie(ctx.input.connection()?, args.bytes(0)) {
            Ok(_) => int(1),
            Err(Missing::Absent) => int(0),
            Err(not_yet) => Err(not_yet),
        }
    }),
    each(
        "req.ssl_alpn",
        &[],
        Str,
        BYTES,
        "A protocol that a ClientHello offers by ALPN: each in ACLs, else the first.",
        |ctx, _, cursor| {
            let hello = hello(ctx)?;
            let mut offered = hello.alpn().skip(cursor.given);
            let protocol = offered.next().ok_or(Missing::Absent)?;
            cursor.given += 1;
            cursor.more = cursor.iterating && offered.next().is_some();
            Ok(Value::string(protocol))
        },
    ),
    one(
        "req.ssl_ec_ext",
        &[],
        Bool,
        BYTES,
        "True for a ClientHello that names elliptic curves, else nothing.",
        |ctx, _| {
            let hello = hello(ctx)?;
            let curves = hello.extension(crate::client_hello::extension::SUPPORTED_GROUPS);
            curves.map(|_| Value::Bool(true)).ok_or(Missing::Absent)
        },
    ),
    one("req.ssl_hello_type", &[], Int, BYTES, "1 for a ClientHello, else nothing.", |ctx, _| {
        hello(ctx).and_then(|_| int(1))
    }),
    one("req.ssl_sni", &[], Str, BYTES, "The server name a ClientHello asks for.", |ctx, _| match hello(ctx)?.sni() {
        Some(name) => Ok(Value::string(name)),
        None => Err(Missing::Absent),
    }),
    one(
        "req.ssl_st_ext",
        &[],
        Int,
        BYTES,
        "Session ticket of a ClientHello: 0 none, 1 announced, 2 sent.",
        |ctx, _| {
            let hello = hello(ctx)?;
            match hello.extension(crate::client_hello::extension::SESSION_TICKET) {
                None if hello.extensions().next().is_none() => Err(Missing::Absent),
                None => int(0),
                Some([]) => int(1),
                Some(_) => int(2),
            }
        },
    ),
    one("req.ssl_ver", &[], Int, BYTES, "Version in a ClientHello: major × 65536 + minor.", |ctx, _| {
        let version = hello(ctx)?.legacy_version;
        int(i64::from(version >> 8) << 16 | i64::from(version & 0xff))
    }),
    one("res.len", &[], Int, RESPONSE, "Bytes buffered from the server; in HTTP, head and body.", |ctx, _| {
        let head = ctx.response.as_deref().filter(|_| !ctx.output.raw).map_or(0, ResponseHead::weight);
        int((head + ctx.output.bytes.len() as u64) as i64)
    })
    .changing(|ctx, _| !ctx.output.complete),
    one("res.payload", SPAN, Bin, RESPONSE, "Bytes from the server, from an offset. Not in HTTP.", |ctx, args| {
        payload(ctx.output.connection()?, args)
    })
    .changing(|ctx, args| args.int(1) == Some(0) && ctx.output.raw && !ctx.output.complete),
    one("res.payload_lv", LV, Bin, RESPONSE, "Bytes from the server whose length stands before them.", |ctx, args| {
        payload_lv(ctx.output.connection()?, args)
    }),
    one("res.ssl_hello_type", &[], Int, RESPONSE, "2 for a ServerHello, else nothing.", |ctx, _| {
        match ctx.output.connection()?.bytes {
            [22, 3, _, _, _, 2, ..] => int(2),
            [22, 3, _, _, _, _, ..] => Err(Missing::Absent),
            [22, 3, ..] | [22] | [] => Err(ctx.output.later()),
            _ => Err(Missing::Absent),
        }
    }),
    one(
        "wait_end",
        &[],
        Bool,
        Places::SERVING,
        "True once the inspection delay is over or all bytes are there.",
        |ctx, _| {
            if ctx.input.complete || ctx.output.complete { Ok(Value::Bool(true)) } else { Err(Missing::NotYet) }
        },
    ),
];

impl Buffered<'_> {
    /// The bytes of a connection: of an HTTP message there are none to look at.
    fn connection(self) -> Result<Self, Missing> {
        if self.raw { Ok(self) } else { Err(Missing::Absent) }
    }

    /// Why something is not in the buffer: it may come later, or never.
    pub(crate) fn later(&self) -> Missing {
        if self.complete { Missing::Absent } else { Missing::NotYet }
    }
}

fn hello<'c>(ctx: &'c Context<'_>) -> Result<ClientHello<'c>, Missing> {
    match ClientHello::read(ctx.input.connection()?.bytes) {
        Ok(Some(hello)) => Ok(hello),
        Ok(None) => Err(ctx.input.later()),
        Err(_) => Err(Missing::Absent),
    }
}

fn payload<'c>(buffer: Buffered<'c>, args: &[Arg]) -> Fetched<'c> {
    let (Some(offset), Some(len)) = (args.int(0).and_then(unsigned), args.int(1).and_then(unsigned)) else {
        return Err(Missing::Absent);
    };
    let Some(rest) = buffer.bytes.get(offset..) else { return Err(buffer.later()) };
    if len == 0 {
        return Ok(Value::bin(rest));
    }
    rest.get(..len).map(Value::bin).ok_or(buffer.later())
}

/// A length of `length` bytes, big-endian, is at `offset1`; the block follows it, or is at `offset2`, which is relative
/// to the end of the length if it has a sign.
fn payload_lv<'c>(buffer: Buffered<'c>, args: &[Arg]) -> Fetched<'c> {
    let (Some(at), Some(width)) = (args.int(0).and_then(unsigned), args.int(1).and_then(unsigned)) else {
        return Err(Missing::Absent);
    };
    let Some(digits) = buffer.bytes.get(at..at.saturating_add(width)) else { return Err(buffer.later()) };
    let len = digits.iter().fold(0usize, |len, &byte| len.wrapping_shl(8) | usize::from(byte));
    let after = at + width;
    let start = match args.bytes(2) {
        None | Some([]) => Some(after),
        Some(text) => {
            let offset = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok());
            let relative = matches!(text, [b'+' | b'-', ..]);
            offset
                .and_then(|offset| if relative { after.checked_add_signed(offset as isize) } else { unsigned(offset) })
        }
    };
    let Some(start) = start else { return Err(Missing::Absent) };
    if len == 0 {
        return Err(Missing::Absent);
    }
    start.checked_add(len).and_then(|end| buffer.bytes.get(start..end)).map(Value::bin).ok_or(buffer.later())
}

fn unsigned(n: i64) -> Option<usize> {
    usize::try_from(n).ok()
}

/// MS-RDPBCGR, section 2.2.1.1: a TPKT header, an X.224 connection request, then `Cookie: name=value CRLF`.
fn rdp_cookie<'c>(buffer: Buffered<'c>, wanted: Option<&[u8]>) -> Fetched<'c> {
    const PREFIX: &[u8] = b"Cookie: ";
    let bytes = buffer.bytes;
    if bytes.first().is_some_and(|&version| version != 3) {
        return Err(Missing::Absent);
    }
    let Some(head) = bytes.get(..11) else { return Err(buffer.later()) };
    let total = usize::from(u16::from_be_bytes([head[2], head[3]]));
    if head[5] != 0xe0 || total < 11 {
        return Err(Missing::Absent);
    }
    // The line may be there before the rest of the packet is.
    let body = &bytes[11..total.min(bytes.len())];
    let missing = if bytes.len() < total { buffer.later() } else { Missing::Absent };
    let line = memchr::memchr(b'\r', body).map(|end| &body[..end]).ok_or(missing)?;
    let cookie = line.get(..PREFIX.len()).filter(|p| p.eq_ignore_ascii_case(PREFIX)).map(|p| &line[p.len()..]);
    let cookie = cookie.ok_or(Missing::Absent)?;
    let equals = memchr::memchr(b'=', cookie).ok_or(Missing::Absent)?;
    match wanted {
        Some(name) if !name.is_empty() && !cookie[..equals].eq_ignore_ascii_case(name) => Err(Missing::Absent),
        _ => Ok(Value::Str(Cow::Borrowed(&cookie[equals + 1..]))),
    }
}

/// In an HTTP proxy the request head has been read already; in a TCP proxy the bytes are parsed. If they are not a
/// request, there is no sample, as in HAProxy: converters then do not run.
fn proto_http<'c>(ctx: &Context<'_>) -> Fetched<'c> {
    if ctx.phase != Phase::During || ctx.response.is_some() {
        // None of the client's bytes are available.
        return Err(Missing::Absent);
    }
    if !ctx.input.raw {
        return Ok(Value::Bool(true));
    }
    let mut head = RequestHead::new();
    match head.peek(ctx.input.bytes, &penstock_http::Limits { lenient: true, ..penstock_http::Limits::default() }) {
        Ok(penstock_http::Parse::Complete { .. }) => Ok(Value::Bool(true)),
        Ok(penstock_http::Parse::Partial) => Err(ctx.input.later()),
        Err(_) => Err(Missing::Absent),
    }
}
