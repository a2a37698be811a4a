//! Words of `compression` that HAProxy 2.6, or any, does not know, through a running data plane. What it knows is compared with it in
//! `tests/scenarios/compression`.

mod common;

use common::{Client, Origin, Proxy, port};
use flate2::read::{GzDecoder, ZlibDecoder};
use ruzstd::decoding::StreamingDecoder;
use std::io::{Read, Write};

const TEXT: &str = "a text that says the same again and again and again and again and again and again and again";

/// What came of an upload and its response: how each was coded.
#[derive(Debug, PartialEq, Eq)]
struct Coded {
    request: Option<String>,
    response: Option<String>,
}

fn coded(request: Option<&str>, response: Option<&str>) -> Coded {
    Coded { request: request.map(Into::into), response: response.map(Into::into) }
}

/// Uploads [`TEXT`] through a proxy with these lines; checks that both sides can read what they get, and says how it was coded.
fn upload(lines: &str) -> Coded {
    let origin = Origin::start(|recorder, _| {
        let head = recorder.head().unwrap();
        let body = match field(&head, "content-length") {
            Some(length) => recorder.bytes(length.parse().unwrap()).unwrap(),
            None => chunks(|n| recorder.bytes(n).unwrap()),
        };
        assert_eq!(decoded(&head, &body), TEXT);
        write!(
            recorder.stream,
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{TEXT}",
            TEXT.len()
        )
        .unwrap();
    });
    let port = port();
    let _proxy = Proxy::start(&format!(
        "global\n nbthread 1\ndefaults\n mode http\n timeout client 5s\n timeout server 5s\n timeout connect 5s\n\
         listen web\n bind 127.0.0.1:{port}\n server s1 127.0.0.1:{}\n{lines}\n",
        origin.port
    ));
    let mut client = Client::connect(port);
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip, deflate\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{TEXT}",
        TEXT.len()
    ));
    let (head, body) = received(&mut client);
    assert_eq!(decoded(&head, &body), TEXT);
    Coded { request: field(&origin.seen(), "content-encoding"), response: field(&head, "content-encoding") }
}

/// A response's head and its body, out of its chunks.
fn received(client: &mut Client) -> (String, Vec<u8>) {
    let mut read = |n| {
        let mut bytes = vec![0; n];
        client.0.read_exact(&mut bytes).unwrap();
        bytes
    };
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend(read(1));
    }
    let head = String::from_utf8(head).unwrap();
    let body = match field(&head, "content-length") {
        Some(length) => read(length.parse().unwrap()),
        None => chunks(read),
    };
    (head, body)
}

fn field(head: &str, name: &str) -> Option<String> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).map(str::to_owned)
}

fn chunks(mut read: impl FnMut(usize) -> Vec<u8>) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let mut size = String::new();
        while !size.ends_with("\r\n") {
            size.push(char::from(read(1)[0]));
        }
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        body.extend(read(size));
        read(2);
        if size == 0 {
            return body;
        }
    }
}

fn decoded(head: &str, body: &[u8]) -> String {
    let mut text = String::new();
    let read = match field(head, "content-encoding").as_deref() {
        Some("gzip") => GzDecoder::new(body).read_to_string(&mut text),
        Some("br") => brotli::Decompressor::new(body, 4096).read_to_string(&mut text),
        Some("zstd") => StreamingDecoder::new(body).unwrap().read_to_string(&mut text),
        Some("deflate") => ZlibDecoder::new(body).read_to_string(&mut text),
        _ => (&mut &*body).read_to_string(&mut text),
    };
    read.unwrap();
    text
}

#[test]
fn the_direction_says_what_is_compressed() {
    let both = " compression algo gzip\n compression algo-req deflate\n";
    assert_eq!(upload(both), coded(None, Some("gzip")));
    for (direction, expected) in [
        ("request", coded(Some("deflate"), None)),
        ("response", coded(None, Some("gzip"))),
        ("both", coded(Some("deflate"), Some("gzip"))),
    ] {
        assert_eq!(upload(&format!("{both} compression direction {direction}\n")), expected, "{direction}");
    }
}

#[test]
fn filters_of_one_direction_say_it_too() {
    let both = " compression algo gzip\n compression algo-req deflate\n";
    assert_eq!(upload(&format!("{both} filter comp-req\n")), coded(Some("deflate"), None));
    assert_eq!(upload(&format!("{both} compression direction request\n filter comp-res\n")), coded(None, Some("gzip")));
    assert_eq!(upload(&format!("{both} filter comp-res\n filter comp-req\n")), coded(Some("deflate"), Some("gzip")));
}

#[test]
fn each_direction_has_its_own_algorithm_types_and_least_size() {
    let both = " compression direction both\n";
    let with = |lines: &str| upload(&format!("{both}{lines}"));
    assert_eq!(with(" compression algo-res gzip\n"), coded(None, Some("gzip")));
    assert_eq!(with(" compression algo-req gzip\n"), coded(Some("gzip"), None));
    let algorithms = " compression algo-res deflate\n compression algo-req gzip\n";
    let with = |lines: &str| with(&format!("{algorithms}{lines}"));
    let (request, response) = (Some("gzip"), Some("deflate"));
    assert_eq!(with(" compression type-req text/\n"), coded(request, response));
    assert_eq!(with(" compression type-req image/\n"), coded(None, response));
    assert_eq!(with(" compression type-res image/\n"), coded(request, None));
    let (least, more) = (TEXT.len(), TEXT.len() + 1);
    assert_eq!(
        with(&format!(" compression minsize-req {least}\n compression minsize-res {least}\n")),
        coded(request, response)
    );
    assert_eq!(with(&format!(" compression minsize-req {more}\n")), coded(None, response));
    assert_eq!(with(&format!(" compression minsize-res {more}\n")), coded(request, None));
}

#[test]
fn without_memory_for_an_encoder_a_body_passes_as_it_is() {
    let origin = Origin::fixed(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let ports = [port(), port()];
    let server = format!(" compression algo gzip\n server s1 127.0.0.1:{}\n", origin.port);
    let _proxy = Proxy::start(&format!(
        "global\n nbthread 1\n maxzlibmem 1\ndefaults\n mode http\n timeout client 5s\n timeout server 5s\n timeout connect 5s\n\
         listen web\n bind 127.0.0.1:{}\n{server}listen slow\n bind 127.0.0.1:{}\n compression algo gzip\n server s1 127.0.0.1:{}\n",
        ports[0],
        ports[1],
        slow().port
    ));
    let ask = |port| {
        let mut client = Client::connect(port);
        client.send("GET / HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\n\r\n");
        client
    };
    let coded = |client: &mut Client| client.response().contains("content-encoding: gzip");
    // A mebibyte is enough for three encoders of 340 KiB; these three keep theirs, since their server does not go on.
    let mut three: Vec<Client> = (0..3).map(|_| ask(ports[1])).collect();
    assert!(three.iter_mut().all(coded));
    assert!(!coded(&mut ask(ports[0])));
    drop(three);
    assert!((0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        coded(&mut ask(ports[0]))
    }));
}

/// A server that has the text.
fn text_origin() -> Origin {
    let length = TEXT.len();
    Origin::fixed(format!("HTTP/1.1 200 OK\r\nETag: \"x\"\r\nContent-Length: {length}\r\n\r\n{TEXT}").leak().as_bytes())
}

/// Asks for the text; says how it was coded, and what the head says besides.
fn ask(port: u16, accepted: &str) -> (Option<String>, String) {
    let mut client = Client::connect(port);
    client.send(format!("GET / HTTP/1.1\r\nHost: h\r\nAccept-Encoding: {accepted}\r\n\r\n"));
    let (head, body) = received(&mut client);
    assert_eq!(decoded(&head, &body), TEXT);
    (field(&head, "content-encoding"), head)
}

#[test]
fn brotli_and_zstd_are_chosen_in_the_order_configured_and_marked_as_gzip_is() {
    let origin = text_origin();
    let port = port();
    let _proxy = Proxy::start(&format!(
        "defaults\n mode http\n timeout client 5s\n timeout server 5s\n timeout connect 5s\n\
         listen web\n bind 127.0.0.1:{port}\n server s1 127.0.0.1:{}\n compression algo zstd br gzip\n\
         http-response set-header by %[res.comp_algo]\n",
        origin.port
    ));
    for (accepted, expected) in [
        ("gzip, deflate, br, zstd", Some("zstd")),
        ("gzip, br", Some("br")),
        ("gzip, zstd;q=0.5", Some("gzip")),
        ("lzma", None),
    ] {
        let (coding, head) = ask(port, accepted);
        assert_eq!(coding.as_deref(), expected, "{accepted}");
        if expected.is_some() {
            assert_eq!(field(&head, "etag").as_deref(), Some("W/\"x\""));
            assert_eq!(field(&head, "vary").as_deref(), Some("Accept-Encoding"));
            assert_eq!(field(&head, "by").as_deref(), expected);
        }
    }
}

#[test]
fn requests_may_be_compressed_by_brotli_and_zstd_too() {
    for algorithm in ["br", "zstd"] {
        let lines = format!(" compression direction request\n compression algo-req {algorithm}\n");
        assert_eq!(upload(&lines), coded(Some(algorithm), None));
    }
}

/// Encoders of brotli and zstd stay with their messages: a worker has at most 64 of them, and others get gzip.
#[test]
fn clients_that_wait_for_zstd_do_not_take_all_memory() {
    let origin = text_origin();
    let ports = [port(), port()];
    let _proxy = Proxy::start(&format!(
        "global\n nbthread 1\ndefaults\n mode http\n timeout client 5s\n timeout server 5s\n timeout connect 5s\n\
         compression algo zstd gzip\n\
         listen web\n bind 127.0.0.1:{}\n server s1 127.0.0.1:{}\n\
         listen slow\n bind 127.0.0.1:{}\n server s1 127.0.0.1:{}\n",
        ports[0],
        origin.port,
        ports[1],
        slow().port
    ));
    let mut waiting: Vec<Client> = (0..64).map(|_| Client::connect(ports[1])).collect();
    for client in &mut waiting {
        client.send("GET / HTTP/1.1\r\nHost: h\r\nAccept-Encoding: zstd\r\n\r\n");
        assert!(client.response().contains("content-encoding: zstd"));
    }
    assert_eq!(ask(ports[0], "zstd, gzip").0.as_deref(), Some("gzip"));
    assert_eq!(ask(ports[0], "zstd").0, None);
    drop(waiting);
    assert!((0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        ask(ports[0], "zstd, gzip").0.as_deref() == Some("zstd")
    }));
}

/// A server that sends the start of a body and nothing more.
fn slow() -> Origin {
    Origin::start(|recorder, _| {
        recorder.head();
        recorder.stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nsome").unwrap();
        recorder.head();
    })
}

/// A client that leaves in the middle of its response must not spoil the next one's: encoders are used again.
#[test]
fn who_leaves_in_the_middle_spoils_no_others_response() {
    let mut state = 1u32;
    let mut letter = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b'a' + (state >> 24) as u8 % 26)
    };
    let text: String = (0..150_000).map(|_| letter()).collect();
    let body = text.clone();
    let origin = Origin::start(move |recorder, _| {
        while let Some(head) = recorder.head() {
            // More than sockets' buffers take: who leaves has not let the proxy end it.
            let times = if head.starts_with("GET /large") { 60 } else { 1 };
            let length = times * body.len();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n");
            if recorder.stream.write_all(head.as_bytes()).is_err()
                || (0..times).any(|_| recorder.stream.write_all(body.as_bytes()).is_err())
            {
                return;
            }
        }
    });
    for (level, algorithm) in [
        (1, "gzip"),
        (1, "deflate"),
        (2, "gzip"),
        (6, "gzip"),
        (9, "gzip"),
        (1, "br"),
        (1, "zstd"),
        (9, "br"),
        (9, "zstd"),
    ] {
        let port = port();
        let _proxy = Proxy::start(&format!(
            "global\n nbthread 1\n tune.comp.maxlevel {level}\ndefaults\n mode http\n timeout client 5s\n timeout server 5s\n\
             timeout connect 5s\nlisten web\n bind 127.0.0.1:{port}\n compression algo {algorithm}\n server s1 127.0.0.1:{}\n",
            origin.port
        ));
        let ask = |target| {
            let mut client = Client::connect(port);
            client.send(format!("GET {target} HTTP/1.1\r\nHost: h\r\nAccept-Encoding: {algorithm}\r\n\r\n"));
            client
        };
        for left_after in 0..10 {
            let mut leaving = ask("/large");
            leaving.0.read_exact(&mut vec![0; 1 + left_after * 400]).unwrap();
            drop(leaving);
            let mut client = ask("/");
            let (head, body) = received(&mut client);
            assert_eq!(field(&head, "content-encoding").as_deref(), Some(algorithm));
            assert!(decoded(&head, &body) == text, "level {level}, {algorithm}, after {left_after}");
        }
    }
}
