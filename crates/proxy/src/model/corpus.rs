//! The exchanges that are run: their configuration, what clients send and what servers answer.

/// One configuration for all exchanges, each of which chooses its frontend.
pub(super) const CONFIG: &str = "
defaults
    mode http
    timeout connect 100s
    timeout client 1000s
    timeout server 1000s
    timeout http-request 900s
    timeout tunnel 2000s
    retries 2
    errorfile 503 /page
frontend plain
    bind 127.0.0.1:1
    monitor-uri /monitor
    http-request return status 200 content-type text/plain string returned if { path /return }
    http-request redirect location /elsewhere if { path /redirect }
    http-request deny if { path /deny }
    use_backend nobody if { path /nobody }
    default_backend one
frontend buffering
    bind 127.0.0.1:2
    option http-buffer-request
    default_backend one
frontend waiting
    bind 127.0.0.1:3
    http-request wait-for-body time 5s at-least 10
    default_backend one
frontend waitend
    bind 127.0.0.1:4
    tcp-request inspect-delay 3s
    tcp-request content accept if WAIT_END
    default_backend one
frontend payload
    bind 127.0.0.1:5
    tcp-request inspect-delay 3s
    tcp-request content accept if { req.payload(0,4000) -m found }
    default_backend one
frontend pages
    bind 127.0.0.1:6
    stats enable
    stats uri /stats
    http-request use-service prometheus-exporter if { path /metrics }
    default_backend one
frontend repeating
    bind 127.0.0.1:7
    default_backend many
frontend prior
    bind 127.0.0.1:8 proto h2
    default_backend one
frontend onward
    bind 127.0.0.1:9
    default_backend two
frontend both
    bind 127.0.0.1:10 proto h2
    default_backend two
backend one
    server s 127.0.0.1:100
backend two
    server s 127.0.0.1:200 proto h2
backend many
    retry-on all-retryable-errors
    option redispatch 1
    server a 127.0.0.1:101
    server b 127.0.0.1:102
backend nobody
    server s 127.0.0.1:100 disabled
";

/// The behaviour of a client.
pub(super) enum Client {
    /// Sends bytes, waits, and then closes its half.
    Http1(&'static [u8]),
    /// Sends a request with a body in pieces, and trailers.
    Http2(&'static str, &'static str, &'static [&'static [u8]], bool),
}

/// What servers respond, one request after another, whichever server receives it.
pub(super) enum Server {
    Http1(&'static [&'static [u8]]),
    /// Echoes what follows the head until the client ends, and then sends a last message.
    Tunnel(&'static [u8]),
    /// Sends the body in pieces, with trailers.
    Http2(&'static [&'static [u8]], bool),
}

pub(super) struct Exchange {
    pub(super) name: &'static str,
    pub(super) frontend: &'static str,
    pub(super) client: Client,
    pub(super) server: Server,
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
pub(super) const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
    5\r\nhello\r\n1c;x=y\r\nabcdefghijklmnopqrstuvwxyz01\r\n00000003\r\nend\r\n0\r\nX-Sum: 1\r\n\r\n";
pub(super) const POST: &[u8] = b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 70\r\n\r\n\
    0123456789012345678901234567890123456789012345678901234567890123456789";
pub(super) const UPLOAD: &[u8] = b"POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\
    13\r\n0123456789012345678\r\n5;extension\r\nhello\r\n0000000000000021\r\nabcdefghijklmnopqrstuvwxyz0123456\r\n0\r\nX-Trailer: one\r\n\r\n";
const SMALL: &[u8] =
    b"POST /s HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nabcdef\r\n3\r\nghi\r\n0\r\n\r\n";

pub(super) fn corpus() -> Vec<Exchange> {
    let http1 = |name, frontend, request, answers| Exchange {
        name,
        frontend,
        client: Client::Http1(request),
        server: Server::Http1(answers),
    };
    const LONG: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 60\r\n\r\n\
        abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz01234567";
    const CLOSES: &[u8] = b"HTTP/1.1 200 OK\r\n\r\nuntil the connection ends, which is a while from here<close>";
    let mut all = vec![
        http1("get", "plain", b"GET /a?b HTTP/1.1\r\nHost: h\r\n\r\n", &[LONG]),
        http1(
            "head",
            "plain",
            b"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n",
            &[b"HTTP/1.1 200 OK\r\nContent-Length: 60\r\n\r\n"],
        ),
        http1("http/1.0", "plain", b"GET / HTTP/1.0\r\n\r\n", &[CHUNKED]),
        http1("chunked answer", "plain", b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", &[CHUNKED]),
        http1("answer until close", "plain", b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", &[CLOSES]),
        http1(
            "cut answer",
            "plain",
            b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
            &[b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nonly so much<close>"],
        ),
        http1(
            "interim",
            "plain",
            b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
            &[b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"],
        ),
        http1("post", "plain", POST, &[OK]),
        http1("upload", "plain", UPLOAD, &[CHUNKED]),
        http1("bad chunk", "plain", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", &[OK]),
        http1(
            "pipelined",
            "plain",
            b"GET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n",
            &[OK, LONG],
        ),
        http1("monitor", "plain", b"GET /monitor HTTP/1.1\r\nHost: h\r\n\r\n", &[]),
        http1("return", "plain", b"GET /return HTTP/1.1\r\nHost: h\r\n\r\n", &[]),
        http1("redirect", "plain", b"GET /redirect HTTP/1.1\r\nHost: h\r\n\r\n", &[]),
        http1("deny", "plain", b"GET /deny HTTP/1.1\r\nHost: h\r\n\r\n", &[]),
        http1("errorfile", "plain", b"GET /nobody HTTP/1.1\r\nHost: h\r\n\r\n", &[]),
        http1("stats", "pages", b"GET /stats HTTP/1.1\r\nHost: h\r\n\r\n", &[]),
        http1("exporter", "pages", b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n", &[]),
        http1("retry a status", "repeating", SMALL, &[b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", OK]),
        http1("retry an empty answer", "repeating", SMALL, &[b"<close>", OK]),
        http1("retry junk", "repeating", SMALL, &[b"junk\r\n\r\n<close>", OK]),
        http1("to http/2", "onward", UPLOAD, &[]),
    ];
    for (frontend, target) in [
        ("buffering", "/"),
        ("waiting", "/"),
        ("waitend", "/"),
        ("payload", "/"),
        ("pages", "/stats"),
        ("pages", "/metrics"),
    ] {
        for (name, request) in [("a length", POST), ("chunks", UPLOAD), ("few chunks", SMALL)] {
            let request = String::from_utf8(request.to_vec()).expect("text");
            let (method, rest) = request.split_once(' ').expect("a request line");
            let (_, rest) = rest.split_once(' ').expect("a target");
            let request = format!("{method} {target} {rest}").into_bytes();
            let name = format!("{frontend}{target}, {name}");
            all.push(http1(&*name.leak(), frontend, &*request.leak(), &[OK]));
        }
    }
    let tunnel = |name, request: &'static [u8], answer| Exchange {
        name,
        frontend: "plain",
        client: Client::Http1(request),
        server: Server::Tunnel(answer),
    };
    all.push(tunnel(
        "upgrade",
        b"GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nbytes of another protocol, as they come",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    ));
    all.push(tunnel(
        "connect",
        b"CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\nbytes of another protocol, as they come",
        b"HTTP/1.1 200 OK\r\n\r\n",
    ));
    const PIECES: &[&[u8]] = &[b"0123456789012345678901234567890123456789", b"short", b"abcdefghijklmnopqrstuvwxyz"];
    for (name, frontend, to_http2) in [("h2 to h1", "prior", false), ("h2 to h2", "both", true)] {
        for (kind, method, pieces, trailers) in
            [("get", "GET", &PIECES[..0], false), ("post", "POST", PIECES, false), ("trailers", "POST", PIECES, true)]
        {
            let server = if to_http2 { Server::Http2(PIECES, trailers) } else { Server::Http1(&[CHUNKED]) };
            let client = Client::Http2(method, "/h2", pieces, trailers);
            all.push(Exchange { name: &*format!("{name}, {kind}").leak(), frontend, client, server });
        }
    }
    for exchange in &mut all {
        if exchange.name == "to http/2" {
            exchange.server = Server::Http2(PIECES, true);
        }
    }
    all
}
