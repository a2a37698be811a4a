//! `mode tcp` and what comes before any protocol, over real sockets.

mod common;

use common::{Client, Origin, Proxy, port};
use std::io::{Read, Write};

fn start(origin: &Origin, bind: &str, server: &str, more: &str) -> (Proxy, u16) {
    let port = port();
    let proxy = Proxy::start(&format!(
        "global\n nbthread 1\ndefaults\n mode tcp\n timeout client 1s\n timeout server 5s\n timeout connect 5s\n\
         listen raw\n bind 127.0.0.1:{port} {bind}\n server s1 127.0.0.1:{} {server}\n{more}\n",
        origin.port
    ));
    (proxy, port)
}

fn echo_at_end() -> Origin {
    Origin::start(|recorder, _| {
        let mut all = Vec::new();
        recorder.stream.read_to_end(&mut all).unwrap();
        recorder.stream.write_all(&all).unwrap();
    })
}

#[test]
fn a_client_that_has_said_all_still_gets_its_answer() {
    let (_proxy, port) = start(&echo_at_end(), "", "", "");
    let mut client = Client::connect(port);
    client.send("hello").shut();
    let (text, end) = client.rest();
    assert_eq!((text.as_str(), end.is_ok()), ("hello", true));
}

#[test]
fn megabytes_pass_both_ways() {
    let (_proxy, port) = start(&echo_at_end(), "", "", "");
    let body: Vec<u8> = (0..8_000_000u32).map(|i| ((i * 31) >> 3) as u8).collect();
    let mut client = Client::connect(port);
    client.send(&body).shut();
    let mut back = Vec::new();
    client.0.read_to_end(&mut back).unwrap();
    assert!(back == body);
}

#[test]
fn a_silent_client_is_cut_after_its_timeout() {
    let (_proxy, port) = start(&echo_at_end(), "", "", "");
    let begin = std::time::Instant::now();
    let mut client = Client::connect(port);
    client.send("x");
    let _ = client.rest();
    let waited = begin.elapsed().as_millis();
    assert!((900..3000).contains(&waited), "{waited} ms");
}

#[test]
fn a_proxy_header_is_read_exactly_and_a_new_one_written() {
    let origin = Origin::start(|recorder, _| {
        let mut all = String::new();
        recorder.stream.read_to_string(&mut all).unwrap();
        recorder.stream.write_all(all.as_bytes()).unwrap();
    });
    let (_proxy, port) = start(&origin, "accept-proxy", "send-proxy", "");
    let mut client = Client::connect(port);
    client.send("PROXY TCP4 192.0.2.1 192.0.2.2 1234 80\r");
    std::thread::sleep(std::time::Duration::from_millis(50));
    client.send("\nthe rest").shut();
    assert_eq!(client.rest().0, "PROXY TCP4 192.0.2.1 192.0.2.2 1234 80\r\nthe rest");
}

#[test]
fn what_is_no_proxy_header_closes_the_connection() {
    let origin = echo_at_end();
    let (_proxy, port) = start(&origin, "accept-proxy", "", "");
    let (text, _) = Client::connect(port).send("GET / HTTP/1.1\r\n\r\n").rest();
    assert_eq!((text.as_str(), origin.connections()), ("", 0));
}

#[test]
fn a_full_frontend_leaves_the_next_client_in_the_systems_queue() {
    let origin = echo_at_end();
    let (_proxy, port) = start(&origin, "maxconn 1", "", "");
    let mut first = Client::connect(port);
    first.send("a");
    std::thread::sleep(std::time::Duration::from_millis(100));
    let mut second = Client::connect(port);
    second.send("b").shut();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(origin.connections(), 1);
    first.shut();
    assert_eq!(first.rest().0, "a");
    assert_eq!(second.rest().0, "b");
}
