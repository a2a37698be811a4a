//! Exchanges with compressed bodies. Compressed bytes depend on where a body paused, and so are compared decoded.

use super::corpus::{CHUNKED, Client, Exchange, POST, Server, UPLOAD};
use flate2::write::{GzDecoder, ZlibDecoder};
use std::io::Write;

/// The frontends of these exchanges, whose names begin alike.
pub(super) const CONFIG: &str = "
frontend coded
    bind 127.0.0.1:11
    compression algo gzip
    compression algo-req deflate
    compression direction both
    http-request set-header accept-encoding gzip
    default_backend one
frontend coded-waiting
    bind 127.0.0.1:12
    compression algo gzip
    http-request set-header accept-encoding gzip
    http-response wait-for-body time 5s at-least 10
    default_backend one
frontend coded-repeating
    bind 127.0.0.1:13
    compression algo-req deflate
    compression direction request
    default_backend many
frontend coded-prior
    bind 127.0.0.1:14 proto h2
    compression algo gzip
    compression algo-req deflate
    compression direction both
    http-request set-header accept-encoding gzip
    default_backend one
frontend coded-both
    bind 127.0.0.1:15 proto h2
    compression algo deflate
    compression algo-req gzip
    compression direction both
    http-request set-header accept-encoding deflate
    default_backend two
";

pub(super) fn corpus() -> Vec<Exchange> {
    const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    const LONG: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 60\r\nETag: \"x\"\r\n\r\n\
        abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz01234567";
    const CLOSES: &[u8] = b"HTTP/1.1 200 OK\r\n\r\nuntil the connection ends<close>";
    const CUT: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nonly so much<close>";
    const EMPTY: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    const UNUSABLE: &[u8] = b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n";
    const PIECES: &[&[u8]] = &[b"0123456789012345678901234567890123456789", b"short", b"abcdefghijklmnopqrstuvwxyz"];
    let http1 = |name, frontend, request, answers| Exchange {
        name,
        frontend,
        client: Client::Http1(request),
        server: Server::Http1(answers),
    };
    let http2 = |name, frontend, server| Exchange {
        name,
        frontend,
        client: Client::Http2("POST", "/h2", PIECES, true),
        server,
    };
    vec![
        http1("coded, a length", "coded", GET, &[LONG]),
        http1("coded, chunks", "coded", GET, &[CHUNKED]),
        http1("coded, until close", "coded", GET, &[CLOSES]),
        http1("coded, cut", "coded", GET, &[CUT]),
        http1("coded, empty", "coded", GET, &[EMPTY]),
        http1(
            "coded, pipelined",
            "coded",
            b"GET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n",
            &[LONG, CHUNKED],
        ),
        http1("coded, post", "coded", POST, &[LONG]),
        http1("coded, upload", "coded", UPLOAD, &[CHUNKED]),
        http1(
            "coded, bad upload",
            "coded",
            b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\nzz\r\n",
            &[LONG],
        ),
        http1("coded, waited for", "coded-waiting", GET, &[CHUNKED]),
        http1(
            "coded, repeated",
            "coded-repeating",
            b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\naa",
            &[UNUSABLE, LONG],
        ),
        http2("coded, http/2 to http/1", "coded-prior", Server::Http1(&[CHUNKED])),
        http2("coded, http/2 to http/2", "coded-both", Server::Http2(PIECES, true)),
    ]
}

/// A body as its reader sees it: decoded as far as it goes.
pub(super) fn decoded(coding: Option<&[u8]>, payload: Vec<u8>) -> Vec<u8> {
    let mut out = Vec::new();
    let (written, ended) = match coding {
        Some(b"gzip") => {
            let mut decoder = GzDecoder::new(&mut out);
            (decoder.write_all(&payload), decoder.try_finish())
        }
        Some(b"deflate") => {
            let mut decoder = ZlibDecoder::new(&mut out);
            (decoder.write_all(&payload), decoder.try_finish())
        }
        _ => return payload,
    };
    if written.and(ended).is_err() {
        out.extend_from_slice(b" (cut)");
    }
    out
}
