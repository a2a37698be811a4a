//! HTTP/1 through a running data plane, over real sockets.

mod common;

use common::{Client, Origin, Proxy, port};
use std::{
    io::Write,
    time::{Duration, Instant},
};

fn config(port: u16, origin: &Origin, more: &str) -> String {
    format!(
        "global\n nbthread 1\ndefaults\n mode http\n timeout client 5s\n timeout server 5s\n timeout connect 5s\n\
         listen web\n bind 127.0.0.1:{port}\n server s1 127.0.0.1:{}\n{more}\n",
        origin.port
    )
}

fn start(origin: &Origin, more: &str) -> (Proxy, u16) {
    let port = port();
    (Proxy::start(&config(port, origin, more)), port)
}

#[test]
fn a_request_goes_to_the_server_and_its_response_comes_back() {
    let origin = Origin::fixed(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    let (_proxy, port) = start(&origin, "");
    let response = Client::connect(port).send("GET /a?b HTTP/1.1\r\nHost: x\r\n\r\n").response();
    assert_eq!(response, "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello");
    assert_eq!(origin.seen(), "GET /a?b HTTP/1.1\r\nhost: x\r\n\r\n");
}

#[test]
fn pipelined_requests_are_answered_in_order_over_one_server_connection() {
    let origin = Origin::start(|recorder, _| {
        while let Some(head) = recorder.head() {
            let path = head.split(' ').nth(1).unwrap().to_owned();
            write!(recorder.stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{path}", path.len()).unwrap();
        }
    });
    let (_proxy, port) = start(&origin, "");
    let mut client = Client::connect(port);
    client.send(
        "GET /1 HTTP/1.1\r\nhost: x\r\n\r\nGET /22 HTTP/1.1\r\nhost: x\r\n\r\nGET /3 HTTP/1.1\r\nhost: x\r\n\r\n",
    );
    for path in ["/1", "/22", "/3"] {
        assert!(client.response().ends_with(&format!("\r\n\r\n{path}")));
    }
    // `http-reuse safe`: the first request of a connection has its own, the later ones use it again.
    assert_eq!(origin.connections(), 1);
}

#[test]
fn a_body_of_known_length_and_a_chunked_one_reach_the_server() {
    let origin = Origin::start(|recorder, _| {
        recorder.head();
        recorder.bytes(5);
        recorder.stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
        let head = recorder.head().unwrap();
        assert!(head.contains("transfer-encoding: chunked"), "{head}");
        let mut body = Vec::new();
        while !body.ends_with(b"0\r\n\r\n") {
            body.extend(recorder.bytes(1).unwrap());
        }
        recorder.stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
    });
    let (_proxy, port) = start(&origin, "");
    let mut client = Client::connect(port);
    client.send("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhello");
    assert_eq!(client.response(), "HTTP/1.1 204 No Content\r\n\r\n");
    client.send("POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3;ext=1\r\nabc\r\n");
    client.send("2\r\nde\r\n0\r\n\r\n");
    assert!(client.response().ends_with("ok"));
    let seen = origin.seen();
    let body = seen.rsplit("\r\n\r\n").nth(1).unwrap();
    let data: String = body.split("\r\n").skip(1).step_by(2).collect();
    assert_eq!(data, "abcde", "{seen}");
    assert!(!seen.contains("ext="));
}

#[test]
fn a_response_without_length_is_chunked_for_a_1_1_client_and_ends_the_connection_of_a_1_0_one() {
    let origin = Origin::start(|recorder, _| {
        recorder.head();
        recorder.stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nsome bytes").unwrap();
    });
    let (_proxy, port) = start(&origin, "");
    let (text, end) = Client::connect(port).send("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").rest();
    assert!(text.contains("transfer-encoding: chunked") && text.ends_with("\r\n0\r\n\r\n"), "{text}");
    assert!(text.contains("connection: close") && end.is_ok());
    let (text, end) = Client::connect(port).send("GET / HTTP/1.0\r\n\r\n").rest();
    assert!(text.ends_with("\r\n\r\nsome bytes") && end.is_ok(), "{text}");
}

#[test]
fn a_large_body_comes_through_whole_both_ways() {
    const SIZE: usize = 5 << 20;
    let origin = Origin::start(|recorder, _| {
        recorder.head();
        let body = recorder.bytes(SIZE).unwrap();
        write!(recorder.stream, "HTTP/1.1 200 OK\r\ncontent-length: {SIZE}\r\n\r\n").unwrap();
        recorder.stream.write_all(&body).unwrap();
    });
    let (_proxy, port) = start(&origin, "");
    let mut client = Client::connect(port);
    let body: String = (0..SIZE).map(|i| char::from(b'a' + (i * 7 % 26) as u8)).collect();
    client.send(format!("PUT / HTTP/1.1\r\nhost: x\r\ncontent-length: {SIZE}\r\n\r\n")).send(&body);
    let response = client.response();
    assert!(response.ends_with(&body));
}

/// A server that resets in mid-body: whatever the framing, the client must not see a clean end.
#[test]
fn a_reset_in_mid_body_is_visible_in_every_framing() {
    for (framing, clean) in
        [("content-length: 1000", None), ("transfer-encoding: chunked", Some("0\r\n\r\n")), ("x-until: close", None)]
    {
        let origin = Origin::start(move |recorder, _| {
            recorder.head();
            let chunk = if framing.contains("chunked") { "5\r\nhello\r\n" } else { "hello" };
            write!(recorder.stream, "HTTP/1.1 200 OK\r\n{framing}\r\n\r\n{chunk}").unwrap();
            std::thread::sleep(std::time::Duration::from_millis(100));
            recorder.reset();
        });
        let (_proxy, port) = start(&origin, "");
        for version in ["1.1", "1.0"] {
            let mut client = Client::connect(port);
            let (text, end) = client.send(format!("GET / HTTP/{version}\r\nhost: x\r\n\r\n")).rest();
            assert!(text.contains("hello"), "{framing} {version}: {text}");
            let whole = match (framing, version) {
                ("content-length: 1000", _) => end.is_ok() && text.len() > 1000,
                (_, "1.1") => clean.unwrap_or("0\r\n\r\n").is_empty() || text.ends_with("0\r\n\r\n"),
                _ => end.is_ok(),
            };
            assert!(!whole, "{framing} to {version} looks complete: {text:?} {end:?}");
        }
    }
}

#[test]
fn an_idle_server_connection_that_died_is_not_an_error() {
    let origin = Origin::start(|recorder, number| {
        recorder.head();
        recorder.stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n").unwrap();
        write!(recorder.stream, "{number}").unwrap();
    });
    let (_proxy, port) = start(&origin, "");
    let mut client = Client::connect(port);
    for number in 0..3 {
        let response = client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").response();
        assert!(response.ends_with(&number.to_string()), "{response}");
    }
}

#[test]
fn a_server_that_refuses_is_503_and_one_that_says_nothing_is_502() {
    let closed = Origin::start(|recorder, _| drop(recorder.head()));
    let (_proxy, port) = start(&closed, "");
    let response = Client::connect(port).send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").response();
    assert!(response.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{response}");
    let nobody = Origin { port: common::port(), ..Origin::fixed(b"") };
    let (_proxy, port) = start(&nobody, " retries 0");
    let mut client = Client::connect(port);
    let response = client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").response();
    assert!(response.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{response}");
    assert!(response.contains("No server is available to handle this request."));
    // The client's connection goes on.
    assert!(client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").response().starts_with("HTTP/1.1 503"));
}

#[test]
fn a_malformed_request_gets_400_and_loses_only_its_own_connection() {
    let origin = Origin::fixed(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let (_proxy, port) = start(&origin, "");
    let mut good = Client::connect(port);
    good.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").response();
    let (text, end) = Client::connect(port).send("GET / HTTP/1.1\r\nhost : x\r\n\r\n").rest();
    assert!(text.starts_with("HTTP/1.1 400 Bad request\r\n") && text.contains("connection: close"), "{text}");
    assert!(end.is_ok());
    assert!(good.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").response().starts_with("HTTP/1.1 200"));
}

#[test]
fn websocket_becomes_a_tunnel() {
    let origin = Origin::start(|recorder, _| {
        let head = recorder.head().unwrap();
        assert!(head.contains("connection: upgrade\r\n") && head.contains("upgrade: websocket\r\n"), "{head}");
        recorder
            .stream
            .write_all(
                b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
                sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nhi",
            )
            .unwrap();
        let bytes = recorder.bytes(4).unwrap();
        recorder.stream.write_all(&bytes).unwrap();
    });
    let (_proxy, port) = start(&origin, "");
    let mut client = Client::connect(port);
    client.send("GET /ws HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
    let head = client.response();
    assert!(head.starts_with("HTTP/1.1 101 ") && head.contains("upgrade: websocket\r\n"), "{head}");
    client.send("ping");
    assert_eq!(client.rest().0, "hiping");
}

#[test]
fn a_100_continue_of_the_server_reaches_the_client() {
    let origin = Origin::start(|recorder, _| {
        assert!(recorder.head().unwrap().contains("expect: 100-continue"));
        recorder.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap();
        recorder.bytes(3);
        recorder.stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
    });
    let (_proxy, port) = start(&origin, "");
    let mut client = Client::connect(port);
    client.send("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\nexpect: 100-continue\r\n\r\n");
    assert_eq!(client.response(), "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("abc");
    assert!(client.response().starts_with("HTTP/1.1 200 OK"));
}

#[test]
fn the_rest_of_a_body_that_is_answered_early_is_waited_for_and_not_for_long() {
    let origin = Origin::start(|recorder, _| {
        while recorder.head().is_some() {
            recorder.stream.write_all(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n").unwrap();
            if recorder.bytes(8).is_none() {
                return;
            }
        }
    });
    let (_proxy, port) = start(&origin, "");
    let mut client = Client::connect(port);
    for _ in 0..2 {
        client.send("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 8\r\n\r\nhalf");
        let response = client.response();
        assert!(response.starts_with("HTTP/1.1 401 ") && !response.contains("connection:"), "{response}");
        client.send("rest");
    }
    assert_eq!(origin.connections(), 1);
    client.send("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 8\r\n\r\nhalf");
    client.response();
    // Nothing more: both connections end, though the client has not been told so before, and well before its timeout of 5 s.
    let begun = Instant::now();
    assert_eq!(client.rest().0, "");
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

#[test]
fn draining_finishes_the_exchange_and_closes_idle_connections() {
    let origin = Origin::start(|recorder, _| {
        while recorder.head().is_some() {
            std::thread::sleep(std::time::Duration::from_millis(300));
            recorder.stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
        }
    });
    let (proxy, port) = start(&origin, "");
    let mut idle = Client::connect(port);
    idle.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").response();
    let mut busy = Client::connect(port);
    busy.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n");
    std::thread::sleep(std::time::Duration::from_millis(100));
    proxy.handle.drain();
    assert_eq!(idle.rest().0, "");
    let (text, _) = busy.rest();
    assert!(text.ends_with("ok") && text.contains("connection: close"), "{text}");
    assert!(proxy.handle.wait_for(common::PATIENCE));
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
}

#[test]
fn a_client_that_leaves_ends_interim_responses_without_end() {
    let (told, ended) = std::sync::mpsc::channel();
    let origin = Origin::start(move |recorder, _| {
        recorder.head();
        let hint = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n".repeat(50);
        // Ends only because the other side has closed: it is read all the time otherwise.
        while recorder.stream.write_all(&hint).is_ok() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let _ = told.send(());
    });
    let (_proxy, port) = start(&origin, "");
    let mut client = Client::connect(port);
    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n");
    assert!(client.response().starts_with("HTTP/1.1 103"));
    drop(client);
    ended.recv_timeout(common::PATIENCE).expect("the server's connection is closed");
}
