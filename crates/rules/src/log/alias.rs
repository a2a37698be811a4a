//! The aliases of log formats (`%ci`, `%ST`, ...): section 8.2.6 of the manual.

use super::flags::{Flags, plain_but, write_escaped};
use crate::{
    context::{Context, Phase},
    fetch::path_of,
    time::{write_clf, write_offset},
    value::write_int,
};
use std::net::SocketAddr;

/// A row of the table of aliases.
#[derive(Clone, Copy, Debug)]
pub struct AliasSpec {
    /// The alias's name, without the percent sign.
    pub name: &'static str,
    /// Whether the alias is only valid in HTTP.
    pub http: bool,
    /// What the alias writes, in one line of documentation.
    pub doc: &'static str,
    /// Writes it.
    pub(super) write: fn(&Context<'_>, Flags, &mut Vec<u8>),
}

const fn row(name: &'static str, doc: &'static str, write: fn(&Context<'_>, Flags, &mut Vec<u8>)) -> AliasSpec {
    AliasSpec { name, http: false, doc, write }
}

const fn http(name: &'static str, doc: &'static str, write: fn(&Context<'_>, Flags, &mut Vec<u8>)) -> AliasSpec {
    AliasSpec { name, http: true, doc, write }
}

/// All aliases. `%o` is not one of them: it sets flags for those that follow.
pub const ALIASES: &[AliasSpec] = &[
    row("B", "Bytes sent to the client.", |c, _, out| total(is_early(c), c.log.bytes_read as i64, out)),
    http("CC", "The request cookie captured.", |c, f, out| f.text(c.txn.request_cookie.as_deref(), out)),
    http("CS", "The response cookie captured.", |c, f, out| f.text(c.txn.response_cookie.as_deref(), out)),
    row("H", "The machine's name.", |c, f, out| f.text(Some(c.world.hostname().as_bytes()), out)),
    http("HM", "The method as received.", |c, f, out| uri(c, f, out, |line| line.method())),
    http("HP", "The target as received, without the query.", |c, f, out| {
        uri(c, f, out, |line| before_query(line.target()))
    }),
    http("HPO", "The path as received, without the query.", |c, f, out| {
        uri(c, f, out, |line| before_query(path_of(line.target()).unwrap_or_default()));
    }),
    http("HQ", "The query as received, with its `?`.", |c, f, out| {
        uri(c, f, out, |line| &line.target()[before_query(line.target()).len()..]);
    }),
    http("HU", "The target as received.", |c, f, out| uri(c, f, out, |line| line.target())),
    http("HV", "The version as received.", |c, f, out| uri(c, f, out, |line| line.version())),
    row("ID", "The unique-id.", |c, f, out| {
        c.make_unique_id();
        f.text(c.txn.unique_id.borrow().as_deref(), out);
    }),
    row("ST", "The status, -1 where there was none.", |c, _, out| write_int(out, c.txn.status.map_or(-1, i64::from))),
    row("T", "The accept date, UTC.", |c, _, out| date(c.log.accept_unix_us, 0, out)),
    http("Ta", "From the request's first byte to the end, ms.", |c, _, out| total(is_early(c), c.log.Ta, out)),
    row("Tc", "Connecting to the server, ms.", |c, _, out| write_int(out, c.log.Tc)),
    row("Td", "Transferring data, ms.", |c, _, out| write_int(out, c.log.Td)),
    row("Tl", "The accept date, local time.", |c, _, out| {
        date(c.log.accept_unix_us, offset(c, c.log.accept_unix_us), out);
    }),
    row("Th", "Handshakes, ms.", |c, _, out| write_int(out, c.log.Th)),
    http("Ti", "Idle before the request, ms.", |c, _, out| write_int(out, c.log.Ti)),
    http("Tq", "Th + Ti + TR, ms.", |c, _, out| write_int(out, c.log.Tq())),
    http("TR", "Receiving the request head, ms.", |c, _, out| write_int(out, c.log.TR)),
    http("Tr", "Waiting for the response head, ms.", |c, _, out| write_int(out, c.log.Tr)),
    row("Ts", "The accept date in seconds since 1970.", |c, f, out| f.number(c.log.accept_unix_us / 1_000_000, out)),
    row("Tt", "From accept to the end, ms.", |c, _, out| total(is_early(c), c.log.Tt, out)),
    row("Tu", "Th + Ta, ms.", |c, _, out| total(is_early(c), c.log.Tu, out)),
    row("Tw", "Waiting in queues, ms.", |c, _, out| write_int(out, c.log.Tw)),
    row("U", "Bytes received from the client.", |c, _, out| write_int(out, c.log.bytes_uploaded as i64)),
    row("ac", "Connections of the process.", |c, _, out| write_int(out, c.log.actconn.into())),
    row("b", "The backend.", |c, f, out| f.text(Some(c.backend.unwrap_or(c.frontend).1.name.as_bytes()), out)),
    row("bc", "Connections of the backend.", |c, _, out| write_int(out, c.log.beconn.into())),
    row("bi", "Our address towards the server.", |c, f, out| f.ip(c.server_conn.and_then(|conn| conn.src), None, out)),
    row("bp", "Our port towards the server.", |c, f, out| f.port(c.server_conn.and_then(|conn| conn.src), None, out)),
    row("bq", "Requests before this one in the backend's queue.", |c, _, out| {
        write_int(out, c.log.backend_queue.into())
    }),
    row("ci", "The client's address.", |c, f, out| f.ip(c.client(), Some("unix"), out)),
    row("cp", "The client's port.", |c, f, out| f.port(c.client(), Some(c.conn.listener_id), out)),
    row("f", "The frontend.", |c, f, out| f.text(Some(c.frontend.1.name.as_bytes()), out)),
    row("fc", "Connections of the frontend.", |c, _, out| write_int(out, c.log.feconn.into())),
    row("fi", "The address the client connected to.", |c, f, out| f.ip(c.destination(), Some("unix"), out)),
    row("fp", "The port the client connected to.", |c, f, out| f.port(c.destination(), Some(c.conn.listener_id), out)),
    row("ft", "The frontend, with `~` behind it for TLS.", |c, f, out| {
        f.quoted(out, |out| {
            out.extend_from_slice(c.frontend.1.name.as_bytes());
            if c.conn.tls.is_some() {
                out.push(b'~');
            }
        });
    }),
    row("hr", "Request headers captured, in braces.", |c, f, out| braces(&c.txn.request_captures, f, out)),
    row("hrl", "Request headers captured, one after the other.", |c, f, out| list(&c.txn.request_captures, f, out)),
    row("hs", "Response headers captured, in braces.", |c, f, out| braces(&c.txn.response_captures, f, out)),
    row("hsl", "Response headers captured, one after the other.", |c, f, out| list(&c.txn.response_captures, f, out)),
    row("lc", "Log lines of the frontend.", |c, f, out| f.number(c.log.log_counter.into(), out)),
    row("ms", "Milliseconds of the accept date, three digits.", |c, f, out| {
        let ms = c.log.accept_unix_us / 1_000 % 1_000;
        if f.hexadecimal {
            out.extend_from_slice(format!("{ms:02X}").as_bytes());
        } else {
            milliseconds(c.log.accept_unix_us, out);
        }
    }),
    row("pid", "The process number.", |c, f, out| f.number(c.world.pid().into(), out)),
    http("r", "The request line as received.", |c, f, out| {
        f.quoted(out, |out| {
            let line = &c.txn.received;
            if line.is_empty() {
                out.extend_from_slice(b"<BADREQ>");
                return;
            }
            write_escaped(line.whole(), &IN_QUOTES, f, out);
        });
    }),
    row("rc", "Attempts repeated, with `+` when another server was tried.", |c, _, out| {
        total(c.log.redispatched, c.log.retries.into(), out);
    }),
    row("rt", "Number of the request in the process.", |c, f, out| f.number(c.log.request_counter.into(), out)),
    row("s", "The server.", |c, f, out| {
        f.text(Some(c.server.map_or(c.log.no_server.as_bytes(), |server| server.name.as_bytes())), out);
    }),
    row("sc", "Connections of the server.", |c, _, out| write_int(out, c.log.srv_conn.into())),
    row("si", "The server's address.", |c, f, out| f.ip(c.log.server_address, None, out)),
    row("sp", "The server's port.", |c, f, out| f.port(c.log.server_address, None, out)),
    row("sq", "Requests before this one in the server's queue.", |c, _, out| write_int(out, c.log.srv_queue.into())),
    row("sslc", "The cipher.", |c, f, out| f.text(c.conn.tls.as_deref().map(|tls| tls.cipher.as_bytes()), out)),
    row("sslv", "The version of TLS.", |c, f, out| {
        f.text(c.conn.tls.as_deref().map(|tls| tls.version.as_bytes()), out)
    }),
    row("sslen", "The engine that computed the handshake: native, sw, hw or hw+sw.", |c, f, out| {
        f.text(c.conn.tls.as_deref().map(|tls| tls.engine.as_bytes()), out)
    }),
    row("sslew", "How long the handshake waited for it, in microseconds.", |c, _, out| {
        write_int(out, c.conn.tls.as_deref().map_or(0, |tls| i64::from(tls.engine_wait_us)));
    }),
    row("t", "The accept date, local time, with ms.", |c, _, out| date_ms(c, c.log.accept_unix_us, out)),
    http("tr", "When the request began, local time, with ms.", |c, _, out| date_ms(c, c.log.request_unix_us, out)),
    http("trg", "When the request began, UTC.", |c, _, out| date(c.log.request_unix_us, 0, out)),
    http("trl", "When the request began, local time.", |c, _, out| {
        date(c.log.request_unix_us, offset(c, c.log.request_unix_us), out);
    }),
    row("ts", "How it ended, two characters.", |c, _, out| out.extend_from_slice(&c.log.termination.letters())),
    http("tsc", "How it ended, and what became of the persistence cookie.", |c, _, out| {
        out.extend_from_slice(&c.log.termination.letters());
        // A rule may ask before the request has been looked at.
        let is_expected = c.phase == Phase::During && c.log.cookie == *b"--";
        let managed = c.backend.unwrap_or(c.frontend).1.manages_cookie;
        out.extend_from_slice(if is_expected && managed { b"NN" } else { &c.log.cookie });
    }),
];

/// The bytes that are written as they are in a request line between quotes.
static IN_QUOTES: [bool; 256] = plain_but(b"\"#");
/// The bytes that are written as they are in a capture between braces.
static IN_BRACES: [bool; 256] = plain_but(b"\"#{|}");

/// Whether totals may still grow. As in HAProxy, what rules write of a frontend with `option logasap` says so too.
fn is_early(ctx: &Context<'_>) -> bool {
    ctx.log.as_soon_as || ctx.frontend.1.logasap
}

/// Writes a number, with a plus sign if it is not final or not exact.
fn total(plus: bool, n: i64, out: &mut Vec<u8>) {
    if plus {
        out.push(b'+');
    }
    write_int(out, n);
}

fn before_query(target: &[u8]) -> &[u8] {
    memchr::memchr(b'?', target).map_or(target, |at| &target[..at])
}

fn uri<'c>(ctx: &'c Context<'_>, flags: Flags, out: &mut Vec<u8>, part: impl Fn(&'c crate::RequestLine) -> &'c [u8]) {
    flags.quoted(out, |out| {
        // Nor can a line be read that is cut within its method.
        if !ctx.txn.received.whole().contains(&b' ') {
            out.extend_from_slice(b"<BADREQ>");
        } else {
            write_escaped(part(&ctx.txn.received), &IN_QUOTES, flags, out);
        }
    });
}

fn offset(ctx: &Context<'_>, unix_us: u64) -> i32 {
    ctx.world.utc_offset_s((unix_us / 1_000_000) as i64)
}

/// Writes `06/Feb/2009:12:14:14 +0100`.
fn date(unix_us: u64, offset_s: i32, out: &mut Vec<u8>) {
    write_clf((unix_us / 1_000_000) as i64 + i64::from(offset_s), out);
    out.push(b' ');
    write_offset(out, offset_s);
}

/// Writes `06/Feb/2009:12:14:14.655`.
fn date_ms(ctx: &Context<'_>, unix_us: u64, out: &mut Vec<u8>) {
    write_clf((unix_us / 1_000_000) as i64 + i64::from(offset(ctx, unix_us)), out);
    out.push(b'.');
    milliseconds(unix_us, out);
}

fn milliseconds(unix_us: u64, out: &mut Vec<u8>) {
    let ms = (unix_us / 1_000 % 1_000) as u16;
    out.extend([ms / 100, ms / 10 % 10, ms % 10].map(|digit| b'0' + digit as u8));
}

/// Writes `{a|b|}`, or nothing if nothing is captured.
fn braces(captures: &[Option<Vec<u8>>], flags: Flags, out: &mut Vec<u8>) {
    if captures.is_empty() {
        return;
    }
    flags.quoted(out, |out| {
        out.push(b'{');
        for (at, capture) in captures.iter().enumerate() {
            if at > 0 {
                out.push(b'|');
            }
            write_escaped(capture.as_deref().unwrap_or_default(), &IN_BRACES, flags, out);
        }
        out.push(b'}');
    });
}

/// Writes `"a" "b" ""` with quotes, `a b -` without.
fn list(captures: &[Option<Vec<u8>>], flags: Flags, out: &mut Vec<u8>) {
    for (at, capture) in captures.iter().enumerate() {
        if at > 0 {
            out.push(b' ');
        }
        match capture {
            None if flags.quote => out.extend_from_slice(b"\"\""),
            capture => flags.quoted(out, |out| write_capture(capture.as_deref(), flags, out)),
        }
    }
}

/// Writes one of `%hrl` or `%hsl`.
pub(super) fn write_capture(capture: Option<&[u8]>, flags: Flags, out: &mut Vec<u8>) {
    match capture {
        Some(capture) => write_escaped(capture, &IN_BRACES, flags, out),
        None => out.push(b'-'),
    }
}

/// The captures of an alias that is a list of them.
pub(super) fn captures_of<'c>(name: &str, ctx: &'c Context<'_>) -> Option<&'c [Option<Vec<u8>>]> {
    match name {
        "hrl" => Some(&ctx.txn.request_captures),
        "hsl" => Some(&ctx.txn.response_captures),
        _ => None,
    }
}

impl Context<'_> {
    /// The client's address as shown in logs.
    fn client(&self) -> Option<SocketAddr> {
        self.txn.source(self.conn)
    }
    /// The address that the client connected to.
    fn destination(&self) -> Option<SocketAddr> {
        self.txn.destination(self.conn)
    }
}
