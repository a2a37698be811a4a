//! Exchanges with a cache. Each begins with a request that drops what an earlier one has left, so that all runs find the same.

use super::corpus::{CHUNKED, Client, Exchange, Server};

/// The frontends of these exchanges. The age is left out, since it depends on when it is looked at.
pub(super) const CONFIG: &str = "
cache c
    total-max-size 1
    collapse 5s
frontend cached
    bind 127.0.0.1:16
    http-request cache-use c
    http-response set-header cache-control max-age=50
    http-response cache-store c
    http-response set-header x-hit %[res.cache_hit]
    http-after-response del-header age
    default_backend one
frontend cached-waiting
    bind 127.0.0.1:17
    http-request cache-use c
    http-response set-header cache-control max-age=50
    http-response wait-for-body time 5s at-least 10
    http-response cache-store c
    http-response wait-for-body time 5s at-least 10
    http-response set-header x-hit %[res.cache_hit]
    http-after-response del-header age
    default_backend one
frontend coded-cached
    bind 127.0.0.1:18
    compression algo gzip
    http-request set-header accept-encoding gzip
    http-request cache-use c
    http-response set-header cache-control max-age=50
    http-response cache-store c
    http-response set-header x-hit %[res.cache_hit]
    http-after-response del-header age
    default_backend one
";

pub(super) fn corpus() -> Vec<Exchange> {
    const TWICE: &[u8] = b"DELETE /c HTTP/1.1\r\nHost: h\r\n\r\nGET /c HTTP/1.1\r\nHost: h\r\n\r\n\
        GET /c HTTP/1.1\r\nHost: h\r\n\r\n";
    const KNOWN: &[u8] = b"DELETE /k HTTP/1.1\r\nHost: h\r\n\r\nGET /k HTTP/1.1\r\nHost: h\r\n\r\n\
        GET /k HTTP/1.1\r\nHost: h\r\nIf-None-Match: \"x\"\r\n\r\nGET /k HTTP/1.1\r\nHost: h\r\n\r\n";
    const DELETED: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    const LONG: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 60\r\nETag: \"x\"\r\n\r\n\
        abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz01234567";
    const CLOSES: &[u8] = b"HTTP/1.1 200 OK\r\n\r\nuntil the connection ends<close>";
    const CUT: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nonly so much<close>";
    let exchange = |name, frontend, request, answers| Exchange {
        name,
        frontend,
        client: Client::Http1(request),
        server: Server::Http1(answers),
    };
    vec![
        exchange("cached, a length", "cached", TWICE, &[DELETED, LONG]),
        exchange("cached, chunks", "cached", TWICE, &[DELETED, CHUNKED]),
        exchange("cached, until close", "cached", TWICE, &[DELETED, CLOSES]),
        exchange("cached, cut", "cached", TWICE, &[DELETED, CUT]),
        exchange("cached, known", "cached", KNOWN, &[DELETED, LONG]),
        exchange("cached, waited for", "cached-waiting", TWICE, &[DELETED, CHUNKED]),
        exchange("coded and cached, a length", "coded-cached", TWICE, &[DELETED, LONG]),
        exchange("coded and cached, chunks", "coded-cached", TWICE, &[DELETED, CHUNKED]),
    ]
}
