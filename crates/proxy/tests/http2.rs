//! HTTP/2 clients of a running data plane, over real sockets.

mod common;

use base64::Engine;
use bytes::Bytes;
use common::{Client, Origin, PATIENCE, Proxy, Recorder, port};
use h2::{
    Reason, RecvStream,
    client::{self, SendRequest},
};
use http::{HeaderMap, Request, Response};
use std::{
    future::Future,
    io::{Read, Write},
    time::Duration,
};

fn start(origin: &Origin, more: &str) -> (Proxy, u16) {
    let port = port();
    let proxy = Proxy::start(&format!(
        "global\n nbthread 1\ndefaults\n mode http\n timeout client 5s\n timeout server 5s\n timeout connect 5s\n{more}\n\
         listen web\n bind 127.0.0.1:{port}\n server s1 127.0.0.1:{}\n",
        origin.port
    ));
    (proxy, port)
}

/// Runs a client on a runtime of its own; nothing here takes longer than `PATIENCE` unless it hangs.
fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, future).await.expect("it hangs") })
}

async fn connect(port: u16) -> SendRequest<Bytes> {
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let (send, connection) = client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    send.ready().await.unwrap()
}

fn get(path: &str) -> Request<()> {
    Request::get(format!("http://a.example{path}")).body(()).unwrap()
}

/// A response with its body and trailers, or why the stream ended before its end.
async fn whole(
    response: Response<RecvStream>,
) -> Result<(Response<()>, Vec<u8>, Option<HeaderMap>), (Vec<u8>, h2::Error)> {
    let (parts, mut stream) = response.into_parts();
    let mut body = Vec::new();
    while let Some(data) = stream.data().await {
        let data = match data {
            Ok(data) => data,
            Err(e) => return Err((body, e)),
        };
        stream.flow_control().release_capacity(data.len()).unwrap();
        body.extend_from_slice(&data);
    }
    let trailers = stream.trailers().await.map_err(|e| (body.clone(), e))?;
    Ok((Response::from_parts(parts, ()), body, trailers))
}

async fn exchange(send: &mut SendRequest<Bytes>, request: Request<()>) -> (Response<()>, Vec<u8>, Option<HeaderMap>) {
    let (response, _) = send.send_request(request, true).unwrap();
    whole(response.await.unwrap()).await.unwrap()
}

fn read_chunks(recorder: &mut Recorder) -> String {
    let mut seen = Vec::new();
    while !seen.ends_with(b"0\r\n\r\n") {
        seen.extend(recorder.bytes(1).unwrap());
    }
    String::from_utf8(seen).unwrap()
}

#[test]
fn a_stream_is_served_by_an_http_1_server() {
    let origin =
        Origin::fixed(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\nX-A: b\r\n\r\nhello");
    let (_proxy, port) = start(&origin, "");
    block_on(async {
        let (response, body, _) = exchange(&mut connect(port).await, get("/a?b")).await;
        assert_eq!((response.status().as_u16(), body.as_slice()), (200, &b"hello"[..]));
        assert_eq!(response.headers()["x-a"], "b");
        assert!(!response.headers().contains_key("connection"));
    });
    assert_eq!(origin.seen(), "GET /a?b HTTP/1.1\r\nhost: a.example\r\n\r\n");
}

#[test]
fn a_hundred_streams_share_a_connection_and_each_gets_its_own_response() {
    let origin = Origin::start(|recorder, _| {
        while let Some(head) = recorder.head() {
            let path = head.split(' ').nth(1).unwrap().to_owned();
            let body = path.repeat(1000);
            write!(recorder.stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
        }
    });
    let (_proxy, port) = start(&origin, "");
    block_on(async {
        let mut send = connect(port).await;
        let mut pending = Vec::new();
        for number in 0..100 {
            send = send.ready().await.unwrap();
            let (response, _) = send.send_request(get(&format!("/{number}")), true).unwrap();
            pending.push(tokio::spawn(async move { whole(response.await.unwrap()).await.unwrap().1 }));
        }
        for (number, body) in pending.into_iter().enumerate() {
            assert_eq!(String::from_utf8(body.await.unwrap()).unwrap(), format!("/{number}").repeat(1000));
        }
    });
}

#[test]
fn a_body_of_unknown_length_is_chunked_and_one_of_known_length_is_not() {
    let origin = Origin::start(|recorder, _| {
        let head = recorder.head().unwrap();
        assert!(head.contains("\r\ntransfer-encoding: chunked\r\n") && !head.contains("content-length"), "{head}");
        assert!(read_chunks(recorder).contains("hello"));
        recorder.stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
        let head = recorder.head().unwrap();
        assert!(head.contains("\r\ncontent-length: 5\r\n") && !head.contains("transfer-encoding"), "{head}");
        assert_eq!(recorder.bytes(5).unwrap(), b"hello");
        recorder.stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    });
    let (_proxy, port) = start(&origin, " http-reuse always");
    block_on(async {
        let mut send = connect(port).await;
        for length in [None, Some("5")] {
            let mut request = Request::post("http://a.example/").body(()).unwrap();
            if let Some(length) = length {
                request.headers_mut().insert("content-length", length.parse().unwrap());
            }
            let (response, mut body) = send.send_request(request, false).unwrap();
            body.send_data(Bytes::from_static(b"hello"), true).unwrap();
            let (response, body, _) = whole(response.await.unwrap()).await.unwrap();
            assert_eq!((response.status().as_u16(), body.len()), (204, 0));
        }
    });
}

#[test]
fn trailers_go_both_ways() {
    let origin = Origin::start(|recorder, _| {
        recorder.head().unwrap();
        let mut seen = Vec::new();
        while !seen.ends_with(b"\r\n\r\n") {
            seen.extend(recorder.bytes(1).unwrap());
        }
        assert!(seen.ends_with(b"0\r\nx-sum: 1\r\n\r\n"), "{:?}", String::from_utf8_lossy(&seen));
        let response = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-End: 2\r\n\r\n";
        recorder.stream.write_all(response).unwrap();
    });
    let (_proxy, port) = start(&origin, "");
    block_on(async {
        let request = Request::post("http://a.example/").body(()).unwrap();
        let (response, mut body) = connect(port).await.send_request(request, false).unwrap();
        body.send_data(Bytes::from_static(b"hello"), false).unwrap();
        body.send_trailers(HeaderMap::from_iter([("x-sum".parse().unwrap(), "1".parse().unwrap())])).unwrap();
        let (response, body, trailers) = whole(response.await.unwrap()).await.unwrap();
        assert_eq!((body.as_slice(), &trailers.unwrap()["x-end"]), (&b"ok"[..], &"2".parse().unwrap()));
        assert!(!response.headers().contains_key("transfer-encoding"));
    });
}

/// A body that no framing may show as complete: HAProxy 2.6 ends such a stream as if it were.
#[test]
fn a_server_that_fails_in_mid_body_is_seen_by_the_client_whatever_the_framing() {
    for (name, head, later, reset) in [
        ("length, end", &b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"[..], &b""[..], false),
        ("length, reset", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", b"", true),
        ("chunked, end", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", b"", false),
        ("chunked, reset", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", b"", true),
        // Together with the head it would be a 502.
        (
            "chunked, malformed",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
            b"zz\r\n",
            false,
        ),
        ("close, reset", b"HTTP/1.1 200 OK\r\n\r\nhello", b"", true),
    ] {
        let origin = Origin::start(move |recorder, _| {
            recorder.head().unwrap();
            recorder.stream.write_all(head).unwrap();
            std::thread::sleep(Duration::from_millis(100));
            recorder.stream.write_all(later).unwrap();
            if reset {
                recorder.reset();
            }
        });
        let (_proxy, port) = start(&origin, "");
        block_on(async {
            let mut send = connect(port).await;
            let (response, _) = send.send_request(get("/"), true).unwrap();
            let (body, error) = match response.await {
                Ok(response) => whole(response).await.expect_err(name),
                // What is wrong was there before the head had left.
                Err(error) => (b"hello".to_vec(), error),
            };
            assert_eq!(body, b"hello", "{name}");
            assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR), "{name}");
            // The connection is unharmed.
            send.ready().await.unwrap();
        });
    }
}

#[test]
fn a_body_that_the_end_of_the_connection_ends_is_whole() {
    let origin = Origin::start(|recorder, _| {
        recorder.head().unwrap();
        recorder.stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nhello").unwrap();
    });
    let (_proxy, port) = start(&origin, "");
    block_on(async {
        let (_, body, _) = exchange(&mut connect(port).await, get("/")).await;
        assert_eq!(body, b"hello");
    });
}

#[test]
fn responses_without_a_body_end_with_their_head() {
    let origin = Origin::start(|recorder, _| {
        while let Some(head) = recorder.head() {
            let response: &[u8] = match head.split(' ').nth(1).unwrap() {
                "/204" => b"HTTP/1.1 204 No Content\r\n\r\n",
                "/304" => b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
                _ => b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
            };
            recorder.stream.write_all(response).unwrap();
        }
    });
    let (_proxy, port) = start(&origin, "");
    block_on(async {
        let mut send = connect(port).await;
        for (request, status) in
            [(get("/204"), 204), (get("/304"), 304), (Request::head("http://a.example/").body(()).unwrap(), 200)]
        {
            let (response, _) = send.send_request(request, true).unwrap();
            let response = response.await.unwrap();
            assert!(response.body().is_end_stream());
            assert_eq!(response.status().as_u16(), status);
        }
    });
}

#[test]
fn a_large_body_goes_through_small_windows_both_ways() {
    let origin = Origin::start(|recorder, _| {
        recorder.head().unwrap();
        let body = recorder.bytes(3_000_000).unwrap();
        recorder.stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n").unwrap();
        recorder.stream.write_all(&body).unwrap();
    });
    let (_proxy, port) = start(&origin, "");
    let sent: Vec<u8> = (0..3_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    block_on(async {
        let mut request = Request::post("http://a.example/").body(()).unwrap();
        request.headers_mut().insert("content-length", "3000000".parse().unwrap());
        let (response, mut stream) = connect(port).await.send_request(request, false).unwrap();
        let data = Bytes::from(sent.clone());
        tokio::spawn(async move {
            let mut data = data;
            while !data.is_empty() {
                stream.reserve_capacity(data.len());
                let room = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await.unwrap().unwrap();
                let part = data.split_to(room.min(data.len()));
                stream.send_data(part, data.is_empty()).unwrap();
            }
        });
        let (_, body, _) = whole(response.await.unwrap()).await.unwrap();
        assert!(body == sent);
    });
}

#[test]
fn interim_responses_come_before_the_response() {
    let origin = Origin::start(|recorder, _| {
        recorder.head().unwrap();
        let early = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        recorder.stream.write_all(early).unwrap();
    });
    let (_proxy, port) = start(&origin, "");
    block_on(async {
        let (mut response, _) = connect(port).await.send_request(get("/"), true).unwrap();
        let early = std::future::poll_fn(|cx| response.poll_informational(cx)).await.unwrap().unwrap();
        assert_eq!((early.status().as_u16(), &early.headers()["link"]), (103, &"</a>".parse().unwrap()));
        assert_eq!(response.await.unwrap().status().as_u16(), 200);
    });
}

#[test]
fn a_client_that_resets_its_stream_ends_the_exchange_with_the_server() {
    let (ended, has_ended) = std::sync::mpsc::channel();
    let origin = Origin::start(move |recorder, _| {
        recorder.head().unwrap();
        recorder.stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello").unwrap();
        // Ends when we do.
        assert!(recorder.bytes(1).is_none());
        ended.send(()).unwrap();
    });
    let (_proxy, port) = start(&origin, "");
    block_on(async {
        let mut send = connect(port).await;
        let (response, mut stream) = send.send_request(get("/"), true).unwrap();
        response.await.unwrap();
        stream.send_reset(Reason::CANCEL);
        send.ready().await.unwrap();
    });
    has_ended.recv_timeout(PATIENCE).unwrap();
}

/// RFC 6455 section 4.2.2.
fn proof_of(key: &str) -> String {
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(digest)
}

#[test]
fn a_websocket_goes_over_a_stream() {
    let origin = Origin::start(|recorder, _| {
        let head = recorder.head().unwrap();
        assert!(head.starts_with("GET /chat HTTP/1.1\r\nhost: a.example\r\n"), "{head}");
        for line in ["\r\nconnection: upgrade\r\n", "\r\nupgrade: websocket\r\n", "\r\nsec-websocket-key: "] {
            assert!(head.contains(line), "{head}");
        }
        let key = head.split("\r\nsec-websocket-key: ").nth(1).unwrap().lines().next().unwrap();
        let response = format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: {}\r\n\r\n",
            proof_of(key)
        );
        recorder.stream.write_all(response.as_bytes()).unwrap();
        assert_eq!(recorder.bytes(4).unwrap(), b"ping");
        recorder.stream.write_all(b"pong").unwrap();
    });
    let (_proxy, port) = start(&origin, "");
    block_on(async {
        let mut request = Request::builder().method("CONNECT").uri("http://a.example/chat").body(()).unwrap();
        request.extensions_mut().insert(h2::ext::Protocol::from_static("websocket"));
        let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let (send, connection) = client::handshake::<_>(stream).await.unwrap();
        tokio::spawn(connection);
        let mut send = send.ready().await.unwrap();
        while !send.is_extended_connect_protocol_enabled() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let (response, mut stream) = send.send_request(request, false).unwrap();
        let mut response = response.await.unwrap();
        assert_eq!(response.status().as_u16(), 200);
        stream.send_data(Bytes::from_static(b"ping"), false).unwrap();
        assert_eq!(response.body_mut().data().await.unwrap().unwrap(), "pong");
    });
}

#[test]
fn a_half_closed_tunnel_still_gets_its_servers_data() {
    let origin = Origin::start(|recorder, _| {
        let head = recorder.head().unwrap();
        assert!(head.starts_with("CONNECT a.example:443 HTTP/1.1\r\n"), "{head}");
        recorder.stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        let mut said = Vec::new();
        recorder.stream.read_to_end(&mut said).unwrap();
        recorder.stream.write_all(&[b"late data after ", &said[..]].concat()).unwrap();
    });
    let (_proxy, port) = start(&origin, "");
    block_on(async {
        let request = Request::builder().method("CONNECT").uri("a.example:443").body(()).unwrap();
        let (response, mut stream) = connect(port).await.send_request(request, false).unwrap();
        let response = response.await.unwrap();
        assert_eq!(response.status().as_u16(), 200);
        stream.send_data(Bytes::from_static(b"ping"), true).unwrap();
        assert_eq!(whole(response).await.unwrap().1, b"late data after ping");
    });
}

#[test]
fn a_workaround_keeps_websockets_from_being_offered() {
    let origin = Origin::start(|recorder, _| {
        recorder.head().unwrap();
        recorder.stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    });
    for (more, is_offered) in [("", true), ("global\n h2-workaround-bogus-websocket-clients\n", false)] {
        let (_proxy, port) = start(&origin, more);
        block_on(async {
            let mut send = connect(port).await;
            // The response comes after the settings, which say it.
            assert_eq!(exchange(&mut send, get("/")).await.0.status().as_u16(), 204);
            assert_eq!(send.is_extended_connect_protocol_enabled(), is_offered);
        });
    }
}

#[test]
fn a_drain_says_goaway_and_finishes_what_is_open() {
    let origin = Origin::start(|recorder, _| {
        recorder.head().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        recorder.stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").unwrap();
    });
    let (proxy, port) = start(&origin, "");
    block_on(async {
        let mut send = connect(port).await;
        let (response, _) = send.send_request(get("/"), true).unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        proxy.handle.drain();
        let (_, body, _) = whole(response.await.unwrap()).await.unwrap();
        assert_eq!(body, b"hello");
        assert!(std::future::poll_fn(|cx| send.poll_ready(cx)).await.is_err());
    });
    assert!(proxy.handle.wait_for(PATIENCE));
}

#[test]
fn an_error_of_ours_is_a_response_on_its_stream() {
    let origin = Origin::start(|recorder, _| drop(recorder.head()));
    let (_proxy, port) = start(&origin, " retries 0");
    block_on(async {
        let mut send = connect(port).await;
        let (response, body, _) = exchange(&mut send, get("/")).await;
        assert_eq!(response.status().as_u16(), 502);
        assert!(body.starts_with(b"<html>"));
        send.ready().await.unwrap();
    });
}

/// Frames as they stand on the wire.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// `:method GET`, `:scheme http`, `:path /` from the static table, `:authority a` as a literal.
const HEAD: &[u8] = &[0x82, 0x86, 0x84, 0x41, 0x01, b'a'];

/// Sends frames until the proxy says GOAWAY; gives its code.
fn goaway_code(client: &mut Client) -> Option<u32> {
    use std::io::Read;
    loop {
        let mut header = [0; 9];
        client.0.read_exact(&mut header).ok()?;
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        let mut payload = vec![0; length as usize];
        client.0.read_exact(&mut payload).ok()?;
        if header[3] == 7 {
            return Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
        }
    }
}

#[test]
fn floods_are_cut_with_goaway_within_a_thousand_frames() {
    let origin = Origin::fixed(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    let (_proxy, port) = start(&origin, "");
    let rapid_reset = |n: u32| [frame(1, 5, 2 * n + 1, HEAD), frame(3, 0, 2 * n + 1, &[0, 0, 0, 8])].concat();
    type Flood<'a> = (&'a str, Vec<u8>, Box<dyn Fn(u32) -> Vec<u8>>);
    let floods: [Flood<'_>; 9] = [
        ("Rapid Reset", vec![], Box::new(move |n| if n < 500 { rapid_reset(n) } else { vec![] })),
        ("CONTINUATION", frame(1, 1, 1, HEAD), Box::new(|_| frame(9, 0, 1, b""))),
        ("CONTINUATION with fields", frame(1, 1, 1, HEAD), Box::new(|_| frame(9, 0, 1, &[0x40, 1, b'a', 1, b'b']))),
        ("SETTINGS", vec![], Box::new(|_| frame(4, 0, 0, b""))),
        ("PING", vec![], Box::new(|_| frame(6, 0, 0, &[0; 8]))),
        ("empty DATA", frame(1, 4, 1, HEAD), Box::new(|_| frame(0, 0, 1, b""))),
        ("PRIORITY", vec![], Box::new(|_| frame(2, 0, 1, &[0, 0, 0, 0, 1]))),
        ("WINDOW_UPDATE", vec![], Box::new(|_| frame(8, 0, 0, &[0, 0, 0, 1]))),
        ("unknown frames", vec![], Box::new(|_| frame(99, 0, 0, b"x"))),
    ];
    for (name, first, more) in floods {
        let mut client = Client::connect(port);
        client.send([PREFACE, &frame(4, 0, 0, b""), &first].concat());
        let flood: Vec<u8> = (0..1000).flat_map(more).collect();
        // It may be cut before all of it is taken.
        let _ = client.0.write_all(&flood);
        // ENHANCE_YOUR_CALM.
        assert_eq!(goaway_code(&mut client), Some(11), "{name}");
    }
    // Other clients are not affected.
    block_on(async {
        let (_, body, _) = exchange(&mut connect(port).await, get("/")).await;
        assert_eq!(body, b"hello");
    });
}

#[test]
fn an_idle_connection_is_told_goaway_and_closed() {
    let origin = Origin::fixed(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    let (_proxy, port) = start(&origin, " timeout http-keep-alive 100ms");
    let mut client = Client::connect(port);
    client.send([PREFACE, &frame(4, 0, 0, b""), &frame(1, 5, 1, HEAD)].concat());
    assert_eq!(goaway_code(&mut client), Some(0));
    let _ = client.rest();
}

#[test]
fn clients_of_both_versions_share_a_clear_port() {
    let origin = Origin::fixed(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    let (_proxy, port) = start(&origin, "");
    block_on(async {
        let (_, body, _) = exchange(&mut connect(port).await, get("/")).await;
        assert_eq!(body, b"hello");
    });
    let response = Client::connect(port).send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").response();
    assert!(response.ends_with("hello"), "{response}");
}
