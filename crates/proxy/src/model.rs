//! Tests that run whole exchanges through the real code without sockets: under a virtual clock, with buffers of a few
//! bytes, every message cut at every byte, and every round of every loop counted.
//!
//! The result of an exchange (what the client gets, and what the servers are sent) must not depend on where its bytes
//! are cut or on the size of buffers, and must not take more rounds than its bytes explain. Buffers for bodies have 24
//! to 64 bytes; those for heads and trailer sections must hold one, and are as small as the test exchanges permit.

mod coded;
pub(crate) mod memory;

use crate::{
    accept::accepted::Accepted,
    connection::socket::Socket,
    handshake,
    process::{
        handle::Handle,
        service::{Service, ServiceRequest, ServiceResponse, Services},
        shared::{Limits, Shared},
    },
    worker::{buffer::Buffers, pulse::Who, state::Worker, task, turn::counted},
};
use bytes::Bytes;
use memory::{Memory, Meter, Shape};
use penstock_config::{
    Diagnostics, Env,
    model::{ProxyId, Source},
};
use penstock_http::{
    BodyReader, Fields, Framing, Parse, RequestHead, ResponseHead, Step, request_framing, response_framing,
};
use std::{
    cell::RefCell,
    net::SocketAddr,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    runtime::LocalOptions,
    time::Instant,
};

/// One configuration for all exchanges, each of which chooses its frontend.
const CONFIG: &str = "
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

/// A service that behaves like the stats page and the exporter: once it has the body, it answers with more than a
/// buffer holds.
struct Page;

impl Service for Page {
    fn log_name(&self) -> &'static str {
        "<PAGE>"
    }
    fn answer(&self, request: ServiceRequest<'_>) -> ServiceResponse {
        let body = [request.method, b" page ", &[b'p'; 150]].concat();
        ServiceResponse { status: 200, fields: vec![("Content-Type".into(), "text/plain".into())], body, stream: None }
    }
}

/// The parts of the proxy that all exchanges share.
struct Proxy {
    shared: Arc<Shared>,
    handle: Handle,
}

impl Proxy {
    fn new(text: &str) -> Proxy {
        let mut diagnostics = Diagnostics::default();
        let page = [&b"HTTP/1.1 503 Closed\r\nContent-Type: text/plain\r\n\r\n"[..], &[b'e'; 100]].concat();
        let files = |_: &std::path::Path| Ok::<_, std::io::Error>(page.clone());
        let source = Source { name: "model.cfg".into(), text: text.into() };
        let (config, found) = penstock_config::load([source], &Env { files: &files, ..Env::default() });
        assert!(!found.has_errors(), "{found:#?}");
        let page: Arc<dyn Service> = Arc::new(Page);
        let services = Services { stats: Some(page.clone()), named: vec![("prometheus-exporter", page)] };
        let shared = Shared::build(config, 1, &mut diagnostics);
        let shared = shared.unwrap_or_else(|| panic!("{diagnostics:#?}"));
        Proxy { handle: Handle::new(shared.clone(), services, Vec::new()), shared }
    }
    fn frontend(&self, name: &str) -> ProxyId {
        let proxies = &self.shared.config.proxies;
        proxies.position(|proxy| proxy.name == name).expect("a frontend of the configuration above")
    }
}

/// The behaviour of a client.
enum Client {
    /// Sends bytes, waits, and then closes its half.
    Http1(&'static [u8]),
    /// Sends a request with a body in pieces, and trailers.
    Http2(&'static str, &'static str, &'static [&'static [u8]], bool),
}

/// What servers respond, one request after another, whichever server receives it.
enum Server {
    Http1(&'static [&'static [u8]]),
    /// Echoes what follows the head until the client ends, and then sends a last message.
    Tunnel(&'static [u8]),
    /// Sends the body in pieces, with trailers.
    Http2(&'static [&'static [u8]], bool),
}

struct Exchange {
    name: &'static str,
    frontend: &'static str,
    client: Client,
    server: Server,
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
    5\r\nhello\r\n1c;x=y\r\nabcdefghijklmnopqrstuvwxyz01\r\n00000003\r\nend\r\n0\r\nX-Sum: 1\r\n\r\n";
const POST: &[u8] = b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 70\r\n\r\n\
    0123456789012345678901234567890123456789012345678901234567890123456789";
const UPLOAD: &[u8] = b"POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\
    13\r\n0123456789012345678\r\n5;extension\r\nhello\r\n0000000000000021\r\nabcdefghijklmnopqrstuvwxyz0123456\r\n0\r\nX-Trailer: one\r\n\r\n";
const SMALL: &[u8] =
    b"POST /s HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nabcdef\r\n3\r\nghi\r\n0\r\n\r\n";

fn corpus() -> Vec<Exchange> {
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

/// The result of an exchange, in a form that does not depend on how bytes were framed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    client: Vec<String>,
    servers: Vec<String>,
}

/// The parameters of one run.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// The sizes of a buffer for bodies and of one for heads.
    buffers: (usize, usize),
    /// How many bytes a connection takes before they are read.
    pipe: usize,
    /// Where the client's bytes are cut, and those of the first server connection.
    cuts: (Option<usize>, Option<usize>),
    /// How many rounds are allowed.
    rounds: u64,
    /// Whether the client's connection has a planted spin.
    spins: bool,
}

const LARGE: Run = Run { buffers: (16384, 16384), pipe: 1 << 20, cuts: (None, None), rounds: 100_000, spins: false };

/// How long a client or a server is inactive before it gives up: longer than any rule waits.
const PATIENCE: Duration = Duration::from_secs(60);

thread_local! {
    /// Panics of this thread, since tokio hides those of tasks.
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Runs an exchange; returns its outcome, how many bytes the client and the first server sent, and the rounds it took.
fn carry(proxy: &Proxy, exchange: &'static Exchange, run: Run) -> Result<(Outcome, [usize; 2], u64), String> {
    PANICS.take();
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build_local(LocalOptions::default());
    let runtime = runtime.expect("a runtime without a reactor");
    counted::allow(Some(run.rounds));
    let outcome = runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(100_000), carry_in_time(proxy, exchange, run)).await
    });
    let left = counted::left().unwrap_or(0);
    counted::allow(None);
    memory::set_network(None);
    drop(runtime);
    let panics = PANICS.take();
    if !panics.is_empty() {
        return Err(panics.join("; "));
    }
    let (outcome, moved) = outcome.map_err(|_| "it does not end".to_owned())?;
    Ok((outcome, moved, run.rounds - left))
}

async fn carry_in_time(proxy: &Proxy, exchange: &'static Exchange, run: Run) -> (Outcome, [usize; 2]) {
    let shared = &proxy.shared;
    let buffers = Buffers::with_input(run.buffers.0, run.buffers.1);
    let worker = Rc::new(Worker::new(0, proxy.handle.clone(), shared.clone(), buffers));
    let frontend = proxy.frontend(exchange.frontend);
    let (ours, theirs) = (address(1), address(9999));
    let shape = Shape { capacity: run.pipe, cut: run.cuts.0, spins: run.spins };
    let (socket, client, meter) = memory::pair(shape, ours, theirs);
    let servers: Rc<RefCell<Vec<String>>> = Rc::default();
    let meters: Rc<RefCell<Vec<Meter>>> = Rc::default();
    let (seen, opened, asked) = (servers.clone(), meters.clone(), Rc::<std::cell::Cell<usize>>::default());
    memory::set_network(Some(Box::new(move |to| {
        let cut = if opened.borrow().is_empty() { run.cuts.1 } else { None };
        // Both ends of h2 write their prefaces before they read the other's.
        let capacity = if matches!(exchange.server, Server::Http2(..)) { run.pipe.max(128) } else { run.pipe };
        let (socket, other, meter) = memory::pair(Shape { capacity, cut, spins: false }, theirs, to);
        opened.borrow_mut().push(meter);
        tokio::task::spawn_local(serve(other, &exchange.server, seen.clone(), asked.clone()));
        socket
    })));
    let place = Limits::enter(shared, frontend, 0, 0).expect("no limit is set");
    let accepted =
        Accepted { socket: Socket::Memory(socket), place, proxy: frontend, bind: 0, accepted: Instant::now() };
    let who = Who::Connection { proxy: frontend, bind: 0, peer: None };
    let served = task::spawn(&worker, who, handshake::run(worker.clone(), accepted));
    let got = match exchange.client {
        Client::Http1(request) => http1_client(client, request).await,
        Client::Http2(method, path, pieces, trailers) => http2_client(client, method, path, pieces, trailers).await,
    };
    // The hook records its panic.
    let _ = served.await;
    worker.pool.close();
    worker.muxes.clear();
    tokio::time::sleep(PATIENCE).await;
    let moved = [meter.moved()[0], meters.borrow().first().map_or(0, |meter| meter.moved()[0])];
    let servers = servers.take();
    (Outcome { client: got, servers }, moved)
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// Sends all of `request`, waits for the response, and ends its half.
async fn http1_client(memory: Memory, request: &[u8]) -> Vec<String> {
    let (mut reader, mut writer) = tokio::io::split(memory);
    let sending = async {
        // If the request is refused, not all of it may be read.
        let _ = writer.write_all(request).await;
        tokio::time::sleep(PATIENCE).await;
        let _ = writer.shutdown().await;
    };
    let mut got = Vec::new();
    let ((), read) = tokio::join!(sending, reader.read_to_end(&mut got));
    let mut told = describe_responses(&got, request);
    if read.is_err() {
        told.push("reset".into());
    }
    told
}

/// Describes each response in one line, and lists the bytes that follow them.
fn describe_responses(mut bytes: &[u8], requests: &[u8]) -> Vec<String> {
    let mut told = Vec::new();
    let method = requests.split(|&byte| byte == b' ').next().unwrap_or_default();
    while !bytes.is_empty() {
        let mut head = ResponseHead::default();
        let Ok(Parse::Complete { consumed }) = head.parse(bytes, &penstock_http::Limits::default()) else { break };
        bytes = &bytes[consumed..];
        let fields = describe_fields(&head.fields);
        let status = head.status();
        let Ok(framing) = response_framing(&mut head, method, true) else { break };
        let framing = if head.is_interim() { Framing::None } else { framing };
        if framing == Framing::Tunnel {
            told.push(format!("{status} {fields}"));
            break;
        }
        let (body, used) = describe_body(framing, &head.fields, bytes);
        bytes = &bytes[used..];
        told.push(format!("{status} {fields} {body}"));
    }
    if !bytes.is_empty() {
        told.push(format!("bytes {:?}", String::from_utf8_lossy(bytes)));
    }
    told
}

fn describe_fields(fields: &Fields) -> String {
    let mut list: Vec<String> = fields
        .iter()
        .map(|field| format!("{}: {}", String::from_utf8_lossy(field.name), String::from_utf8_lossy(field.value)))
        .collect();
    list.sort();
    format!("[{}]", list.join(", "))
}

/// A body's payload, its trailers and whether it is complete; and how many bytes it took.
fn describe_body(framing: Framing, head: &Fields, bytes: &[u8]) -> (String, usize) {
    let mut reader = BodyReader::new(framing, penstock_http::Limits::default());
    let (mut payload, mut used) = (Vec::new(), 0);
    let end = loop {
        match reader.step(&bytes[used..]) {
            Ok(Step::Data(n)) => {
                payload.extend_from_slice(&bytes[used..used + n]);
                used += n;
            }
            Ok(Step::Framing(n) | Step::Skip(n)) => used += n,
            Ok(Step::End) => break "whole",
            Ok(Step::NeedMore) => break if reader.finish().is_ok() { "until close" } else { "cut" },
            Err(_) => break "broken",
        }
    };
    let payload = coded::decoded(head.get(b"content-encoding"), payload);
    (format!("{:?} {} {end}", String::from_utf8_lossy(&payload), describe_fields(reader.trailers())), used)
}

async fn http2_client(
    memory: Memory,
    method: &str,
    path: &str,
    pieces: &'static [&'static [u8]],
    trailers: bool,
) -> Vec<String> {
    let mut told = Vec::new();
    let Ok((send, connection)) = h2::client::handshake(memory).await else { return vec!["no handshake".into()] };
    let driver = tokio::task::spawn_local(async move { drop(connection.await) });
    let mut send = send.ready().await.expect("the first request is let through");
    let request = http::Request::builder().method(method).uri(format!("http://h{path}")).body(()).expect("well formed");
    let (response, mut body) = send.send_request(request, pieces.is_empty()).expect("it is the first");
    for (at, piece) in pieces.iter().enumerate() {
        let last = at + 1 == pieces.len() && !trailers;
        // If the request is refused, not all of it may be read.
        let _ = body.send_data(Bytes::from_static(piece), last);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    if trailers {
        let _ = body.send_trailers(
            [(http::HeaderName::from_static("x-trailer"), "one".parse().expect("plain"))].into_iter().collect(),
        );
    }
    match response.await {
        Ok(response) => told
            .push(describe_http2(response.status().as_str(), response.headers().clone(), response.into_body()).await),
        Err(e) => told.push(format!("failed: {e}")),
    }
    drop((send, body));
    let _ = driver.await;
    told
}

async fn describe_http2(start: &str, fields: http::HeaderMap, mut body: h2::RecvStream) -> String {
    let list = |fields: &http::HeaderMap| {
        let mut list: Vec<String> = fields.iter().map(|(name, value)| format!("{name}: {value:?}")).collect();
        list.sort();
        list.join(", ")
    };
    let coding = fields.get("content-encoding").map(http::HeaderValue::as_bytes);
    let mut payload = Vec::new();
    while let Some(data) = body.data().await {
        match data {
            Ok(data) => {
                let _ = body.flow_control().release_capacity(data.len());
                payload.extend_from_slice(&data);
            }
            Err(e) => {
                let payload = coded::decoded(coding, payload);
                return format!("{start} [{}] {:?} failed: {e}", list(&fields), String::from_utf8_lossy(&payload));
            }
        }
    }
    let payload = coded::decoded(coding, payload);
    let trailers = match body.trailers().await {
        Ok(trailers) => list(&trailers.unwrap_or_default()),
        Err(e) => format!("failed: {e}"),
    };
    format!("{start} [{}] {:?} [{trailers}]", list(&fields), String::from_utf8_lossy(&payload))
}

/// Serves a server's connection.
async fn serve(
    memory: Memory,
    server: &'static Server,
    seen: Rc<RefCell<Vec<String>>>,
    asked: Rc<std::cell::Cell<usize>>,
) {
    match server {
        Server::Http2(pieces, trailers) => http2_server(memory, pieces, *trailers, seen).await,
        Server::Http1(answers) => {
            let mut next = move || {
                asked.set(asked.get() + 1);
                answers[(asked.get() - 1) % answers.len()]
            };
            http1_server(memory, &mut next, seen).await;
        }
        Server::Tunnel(answer) => tunnel_server(memory, answer, seen).await,
    }
}

/// Reads whole requests and responds to each; a response that ends in `<close>` is the last.
async fn http1_server(mut memory: Memory, next: &mut dyn FnMut() -> &'static [u8], seen: Rc<RefCell<Vec<String>>>) {
    let mut bytes = Vec::new();
    loop {
        let mut head = RequestHead::default();
        let parsed = head.parse(&bytes, &penstock_http::Limits::default());
        if let Ok(Parse::Complete { consumed }) = parsed {
            let framing = request_framing(&head).unwrap_or(Framing::None);
            let (body, used) = describe_body(framing, &head.fields, &bytes[consumed..]);
            if body.ends_with("whole") {
                bytes.drain(..consumed + used);
                seen.borrow_mut().push(format!("{} {body}", describe_request(&head)));
                let answer = next();
                let (answer, closes) = answer.strip_suffix(b"<close>").map_or((answer, false), |answer| (answer, true));
                if memory.write_all(answer).await.is_err() || closes {
                    return;
                }
                continue;
            }
        }
        if !matches!(memory.read_buf(&mut bytes).await, Ok(1..)) {
            // How much arrives of a request that is cancelled depends on timing.
            return;
        }
    }
}

fn describe_request(head: &RequestHead) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{} {} {}", text(head.method()), text(head.target()), describe_fields(&head.fields))
}

/// Responds to the head, echoes every byte that follows it, and at the end sends a last message.
async fn tunnel_server(mut memory: Memory, answer: &[u8], seen: Rc<RefCell<Vec<String>>>) {
    let mut bytes = Vec::new();
    let mut head = RequestHead::default();
    let used = loop {
        match head.parse(&bytes, &penstock_http::Limits::default()) {
            Ok(Parse::Complete { consumed }) => break consumed,
            _ if matches!(memory.read_buf(&mut bytes).await, Ok(1..)) => {}
            _ => return,
        }
    };
    let mut tunnelled = bytes.split_off(used);
    if memory.write_all(answer).await.is_err() {
        return;
    }
    let mut sent = 0;
    loop {
        if memory.write_all(&tunnelled[sent..]).await.is_err() {
            break;
        }
        sent = tunnelled.len();
        if !matches!(memory.read_buf(&mut tunnelled).await, Ok(1..)) {
            break;
        }
    }
    // The client has ended its half, but is still owed the rest.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let _ = memory.write_all(b" and goodbye, at some length").await;
    seen.borrow_mut().push(format!("{} {:?}", describe_request(&head), String::from_utf8_lossy(&tunnelled)));
}

async fn http2_server(
    memory: Memory,
    pieces: &'static [&'static [u8]],
    trailers: bool,
    seen: Rc<RefCell<Vec<String>>>,
) {
    let Ok(mut connection) = h2::server::handshake(memory).await else { return };
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let seen = seen.clone();
        tokio::task::spawn_local(async move {
            let (head, body) = request.into_parts();
            let told = describe_http2(&format!("{} {}", head.method, head.uri), head.headers, body).await;
            seen.borrow_mut().push(told);
            let Ok(mut stream) = respond.send_response(http::Response::new(()), false) else { return };
            for (at, piece) in pieces.iter().enumerate() {
                let _ = stream.send_data(Bytes::from_static(piece), at + 1 == pieces.len() && !trailers);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            if trailers {
                let sum = (http::HeaderName::from_static("x-sum"), "1".parse().expect("plain"));
                let _ = stream.send_trailers([sum].into_iter().collect());
            }
        });
    }
}

/// How many rounds an exchange may take: several for each byte, since a buffer may hold only one, and some to start
/// with.
fn allowed(exchange: &Exchange, moved: [usize; 2]) -> u64 {
    // A byte that comes alone is flushed alone, and becomes a dozen.
    let each = if exchange.frontend.starts_with("coded") { 12 * 12 } else { 12 };
    600 + each * (moved[0] + moved[1]) as u64
}

/// The part of an outcome that must not depend on sizes and cuts: a service that responds before all of a body was read
/// ends the connection, and how much was read for it depends on the buffer.
fn comparable(exchange: &Exchange, mut outcome: Outcome) -> Outcome {
    if exchange.frontend == "pages" {
        outcome.client = outcome.client.iter().map(|line| line.replace("connection: close, ", "")).collect();
    }
    outcome
}

/// Describes what went wrong with an exchange, if anything.
fn compare(proxy: &Proxy, exchange: &'static Exchange, run: Run, expected: &Outcome) -> Option<String> {
    let why = match carry(proxy, exchange, run) {
        Ok((outcome, ..)) => {
            let outcome = comparable(exchange, outcome);
            if outcome == *expected {
                return None;
            }
            format!("{outcome:#?}\nwhere with large buffers it was\n{expected:#?}")
        }
        Err(why) => why,
    };
    Some(format!("{} with {run:?}: {why}", exchange.name))
}

/// Sizes of buffers for bodies and heads, and how many bytes a connection takes at once.
const SIZES: [((usize, usize), usize); 5] =
    [((24, 256), 1 << 16), ((64, 200), 7), ((33, 256), 1), ((41, 333), 50), ((28, 1024), 300)];

/// Runs these exchanges; returns what went wrong.
fn carry_all(corpus: Vec<Exchange>, beat: &AtomicU64) -> Vec<String> {
    let proxy = Proxy::new(&[CONFIG, coded::CONFIG].concat());
    let mut wrong = Vec::new();
    for exchange in &*corpus.leak() {
        let (expected, moved, _) = match carry(&proxy, exchange, LARGE) {
            Ok(carried) => carried,
            Err(why) => {
                wrong.push(format!("{} with large buffers: {why}", exchange.name));
                continue;
            }
        };
        let expected = comparable(exchange, expected);
        let rounds = allowed(exchange, moved);
        let whole = SIZES.map(|(buffers, pipe)| Run { buffers, pipe, rounds, ..LARGE });
        let cut = |cuts: (Option<usize>, Option<usize>)| {
            let turn = cuts.0.or(cuts.1).unwrap_or(0);
            let (buffers, pipe) = SIZES[turn % SIZES.len()];
            Run { buffers, pipe, cuts, rounds, ..LARGE }
        };
        let client = (1..moved[0]).map(|at| cut((Some(at), None)));
        let server = (1..moved[1]).map(|at| cut((None, Some(at))));
        for run in whole.into_iter().chain(client).chain(server) {
            beat.fetch_add(1, Ordering::Relaxed);
            if let Some(why) = compare(&proxy, exchange, run, &expected) {
                wrong.push(why);
                break;
            }
        }
    }
    wrong
}

/// Runs `work` on a thread of its own and returns its result; fails if the thread spends too much CPU time on one
/// exchange, so that even a loop that is not counted is noticed.
fn watched<T: Send + 'static>(work: impl FnOnce(&AtomicU64) -> T + Send + 'static) -> T {
    /// A hundred times what the longest one takes in a debug build.
    const STUCK: Duration = Duration::from_secs(5);
    let beat = Arc::new(AtomicU64::new(0));
    let (tell, told) = mpsc::channel();
    let (tell_thread, thread) = mpsc::channel();
    let beating = beat.clone();
    std::thread::spawn(move || {
        let _ = tell_thread.send(penstock_sys::thread_id());
        let _ = tell.send(work(&beating));
    });
    let thread = thread.recv().expect("the thread has begun");
    let used = || penstock_sys::thread_cpu_time(thread).unwrap_or_default();
    let (mut seen, mut since) = (0, used());
    loop {
        match told.recv_timeout(Duration::from_millis(100)) {
            Ok(result) => return result,
            Err(mpsc::RecvTimeoutError::Disconnected) => panic!("the model itself failed"),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        let now = beat.load(Ordering::Relaxed);
        if now != seen {
            (seen, since) = (now, used());
        }
        assert!(used().saturating_sub(since) < STUCK, "exchange {seen} goes round without counting");
    }
}

/// Collects the panics of model threads; those of other threads are reported as usual.
fn keep_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let told = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| match counted::left() {
            Some(_) => PANICS.with_borrow_mut(|panics| panics.push(info.to_string())),
            None => told(info),
        }));
    });
}

#[test]
fn exchanges_come_out_the_same_however_small_buffers_are_and_wherever_bytes_are_cut() {
    keep_panics();
    let wrong = watched(|beat| carry_all(corpus(), beat));
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn compressed_bodies_come_out_the_same_however_small_buffers_are_and_wherever_bytes_are_cut() {
    keep_panics();
    let wrong = watched(|beat| carry_all(coded::corpus(), beat));
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn a_task_that_wakes_itself_without_progress_is_found() {
    keep_panics();
    let found = watched(|_| {
        let proxy = Proxy::new(&[CONFIG, coded::CONFIG].concat());
        let corpus: &'static [Exchange] = corpus().leak();
        let post = corpus.iter().find(|exchange| exchange.name == "post").expect("it is there");
        carry(&proxy, post, Run { spins: true, cuts: (Some(60), None), ..LARGE }).err()
    });
    assert!(found.as_ref().is_some_and(|why| why.contains("a spin")), "{found:?}");
}

#[test]
fn a_wait_that_takes_a_full_buffer_for_one_with_room_is_found() {
    keep_panics();
    let found = watched(|_| {
        let proxy = Proxy::new(&[CONFIG, coded::CONFIG].concat());
        let corpus: &'static [Exchange] = corpus().leak();
        let upload = corpus.iter().find(|exchange| exchange.name == "buffering/, chunks").expect("it is there");
        counted::plant(true);
        carry(&proxy, upload, Run { buffers: (24, 256), ..LARGE }).err()
    });
    assert!(found.as_ref().is_some_and(|why| why.contains("a spin")), "{found:?}");
}
