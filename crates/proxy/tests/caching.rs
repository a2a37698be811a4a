//! Caches in a running data plane: what several workers share, and what a client that does not read costs.

mod common;

use common::{Client, Origin, Proxy, port};
use std::{
    io::{Read, Write},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

const CONFIG: &str = "defaults\n mode http\n timeout client 30s\n timeout server 5s\n timeout connect 5s\n\
     cache c\n total-max-size 16\n max-object-size 8000000\nlisten web\n http-request cache-use c\n http-response cache-store c\n";

/// An origin that answers with a body of this length, and counts what it was asked.
fn origin(length: usize) -> (Origin, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let origin = Origin::start(move |recorder, _| {
        while recorder.head().is_some() {
            let number = counted.fetch_add(1, Ordering::SeqCst);
            let head = format!(
                "HTTP/1.1 200 OK\r\nCache-Control: max-age=50\r\nContent-Length: {length}\r\nX-Number: {number}\r\n\r\n"
            );
            recorder.stream.write_all(head.as_bytes()).unwrap();
            recorder.stream.write_all(&vec![b'a' + number as u8 % 26; length]).unwrap();
        }
    });
    (origin, asked)
}

fn get(port: u16, method: &str) -> String {
    let mut client = Client::connect(port);
    client.send(format!("{method} / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
    let mut answer = Vec::new();
    client.0.read_to_end(&mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

#[test]
fn workers_share_what_is_stored_and_what_is_dropped() {
    let (origin, asked) = origin(100);
    let port = port();
    let proxy = Proxy::start(&format!(
        "global\n nbthread 4\n{CONFIG} bind 127.0.0.1:{port}\n server s 127.0.0.1:{}\n",
        origin.port
    ));
    for round in 0..5 {
        assert!(get(port, "GET").contains(&format!("x-number: {}\r\n", 2 * round)));
        for _ in 0..40 {
            let answer = get(port, "GET");
            assert!(
                answer.contains("\r\nage: ") && answer.contains(&format!("x-number: {}\r\n", 2 * round)),
                "{answer}"
            );
        }
        assert!(get(port, "DELETE").contains(&format!("x-number: {}\r\n", 2 * round + 1)));
    }
    assert_eq!(asked.load(Ordering::SeqCst), 10);
    drop(proxy);
}

#[test]
fn clients_that_do_not_read_share_the_body_that_they_do_not_read() {
    const LENGTH: usize = 6_000_000;
    let (origin, asked) = origin(LENGTH);
    let port = port();
    let proxy = Proxy::start(&format!(
        "global\n nbthread 2\n{CONFIG} bind 127.0.0.1:{port}\n server s 127.0.0.1:{}\n",
        origin.port
    ));
    assert!(get(port, "GET").ends_with(&"a".repeat(1000)));
    let before = memory();
    let clients: Vec<Client> = (0..100)
        .map(|_| {
            let mut client = Client::connect(port);
            client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
            client
        })
        .collect();
    let sent = || proxy.handle.snapshot().rows.iter().map(|row| row.totals.cache_hits).sum::<u64>();
    let until = Instant::now() + common::PATIENCE;
    while sent() < 100 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_millis(500));
    let grown = memory().saturating_sub(before);
    // A buffer each, of 256 KiB at most, and the connection itself: not the body.
    assert!(grown < 100 * LENGTH / 15, "{grown} bytes for 100 clients");
    // Those who come back to it get all of it.
    let mut last = clients.into_iter().next_back().unwrap();
    let mut bytes = vec![0; LENGTH];
    last.0.read_exact(&mut bytes).unwrap();
    assert!(bytes.ends_with(b"aaaa"));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

/// What a client gets for a range: the status, `Content-Range`, and the body.
fn range(port: u16, method: &str, fields: &str) -> (u16, Option<String>, Vec<u8>) {
    let mut client = Client::connect(port);
    client.send(format!("{method} / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}\r\n"));
    let mut answer = Vec::new();
    client.0.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
    let body = answer.split_off(end);
    if method == "GET" && head[9..12] != *"304" {
        assert_eq!(field("content-length: "), Some(body.len().to_string()), "{head}");
    }
    assert!(!head.starts_with("HTTP/1.1 416") || (field("etag: "), field("cache-control: ")) == (None, None), "{head}");
    (head[9..12].parse().unwrap(), field("content-range: "), body)
}

#[test]
fn ranges_are_answered_with_parts_only_where_the_cache_says_so() {
    const LENGTH: usize = 1_000_000;
    let body: Vec<u8> = (0..LENGTH as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for (word, on) in [("", false), (" answer-ranges off\n", false), (" answer-ranges on\n", true)] {
        let asked = Arc::new(AtomicUsize::new(0));
        let (counted, sent) = (asked.clone(), body.clone());
        let origin = Origin::start(move |recorder, _| {
            while recorder.head().is_some() {
                counted.fetch_add(1, Ordering::SeqCst);
                let head = format!(
                    "HTTP/1.1 200 OK\r\nCache-Control: max-age=50\r\nETag: \"x\"\r\nContent-Length: {LENGTH}\r\n\r\n"
                );
                recorder.stream.write_all(head.as_bytes()).unwrap();
                recorder.stream.write_all(&sent).unwrap();
            }
        });
        let port = port();
        let config = CONFIG.replace("listen web", &format!("{word}listen web"));
        let proxy = Proxy::start(&format!(
            "global\n nbthread 2\n{config} bind 127.0.0.1:{port}\n server s 127.0.0.1:{}\n",
            origin.port
        ));
        let whole = (200, None, body.clone());
        assert_eq!(range(port, "GET", ""), whole);
        for (fields, from, to) in [
            ("Range: bytes=0-0\r\n", 0, 1),
            ("Range: bytes=4095-16385\r\n", 4095, 16_386),
            ("Range: bytes=123456-654321\r\n", 123_456, 654_322),
            ("Range: bytes=999999-\r\n", LENGTH - 1, LENGTH),
            ("Range: bytes=-70000\r\n", LENGTH - 70_000, LENGTH),
            ("Range: bytes=0-99999999\r\nIf-Range: \"x\"\r\n", 0, LENGTH),
        ] {
            let part = (206, Some(format!("bytes {from}-{}/{LENGTH}", to - 1)), body[from..to].to_vec());
            assert!(range(port, "GET", fields) == if on { part } else { whole.clone() }, "{word}{fields}");
        }
        let missing = (416, Some(format!("bytes */{LENGTH}")), Vec::new());
        assert!(range(port, "GET", "Range: bytes=1000000-\r\n") == if on { missing } else { whole.clone() }, "{word}");
        for fields in ["Range: bytes=0-1,5-6\r\n", "Range: bytes=0-1\r\nIf-Range: \"y\"\r\n"] {
            assert!(range(port, "GET", fields) == whole, "{word}{fields}");
        }
        assert_eq!(range(port, "HEAD", "Range: bytes=0-1\r\n"), (200, None, Vec::new()));
        assert_eq!(range(port, "GET", "Range: bytes=0-1\r\nIf-None-Match: \"x\"\r\n").0, 304);
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        drop(proxy);
    }
}

/// The memory of this process in bytes.
fn memory() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}
