//! Whatever a client pipelines, its connection takes turns with the others.

mod common;

use common::{Client, Proxy, port};
use penstock_proxy::{Service, ServiceRequest, ServiceResponse, Services};
use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::{Arc, Mutex, mpsc},
};

/// More requests than this are never served in one turn: what one costs by `penstock_rules::turn::cost` is more than a
/// fiftieth of what a turn may cost.
const SERVED_IN_A_TURN: usize = 50;

#[test]
fn pipelined_requests_are_served_some_at_a_time() {
    const REQUESTS: usize = 3000;
    let port = port();
    let proxy = Proxy::start(&format!(
        "global\n nbthread 1\ndefaults\n mode http\n timeout client 9s\n timeout server 9s\n timeout connect 9s\n\
         frontend web\n bind 127.0.0.1:{port}\n http-request return status 200\n"
    ));
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.set_read_timeout(Some(common::PATIENCE)).unwrap();
    let mut writer = client.try_clone().unwrap();
    let writing = std::thread::spawn(move || writer.write_all(&b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".repeat(REQUESTS)));
    let one = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    let mut got = vec![0; REQUESTS * one.len()];
    client.read_exact(&mut got).unwrap();
    writing.join().unwrap().unwrap();
    assert!(got.chunks(one.len()).all(|response| response == one));
    let turns = proxy.handle.turns_spent();
    assert!(turns as usize >= REQUESTS / SERVED_IN_A_TURN, "{REQUESTS} requests in {turns} turns and the last one");
}

#[test]
fn a_client_that_asks_one_at_a_time_never_uses_a_turn_up() {
    let port = port();
    let proxy = Proxy::start(&format!(
        "global\n nbthread 1\ndefaults\n mode http\n timeout client 9s\n timeout server 9s\n timeout connect 9s\n\
         frontend web\n bind 127.0.0.1:{port}\n http-request return status 200\n"
    ));
    let mut client = common::Client::connect(port);
    for _ in 0..200 {
        let response = client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").response();
        assert!(response.starts_with("HTTP/1.1 200"));
    }
    assert_eq!(proxy.handle.turns_spent(), 0);
}

/// A hash that takes minutes.
const ENDLESS: &str = "$6$rounds=999999999$salt$\
    xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";

fn guarded(port: u16) -> Proxy {
    Proxy::start(&format!(
        "global\n nbthread 1\ndefaults\n mode http\n timeout client 60s\n timeout server 9s\n timeout connect 9s\n\
         userlist u\n user endless password {ENDLESS}\n\
         user tiger password $5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5\n\
         frontend web\n bind 127.0.0.1:{port}\n http-request return status 204 if {{ path /open }}\n\
         http-request auth unless {{ http_auth(u) }}\n http-request return status 200\n"
    ))
}

/// `endless:x`
const SLOW: &str = "GET / HTTP/1.1\r\nhost: x\r\nauthorization: Basic ZW5kbGVzczp4\r\n\r\n";

fn waits_until(condition: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !condition() {
        assert!(start.elapsed() < common::PATIENCE);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn a_password_that_takes_minutes_to_check_keeps_nobody_else_waiting() {
    let port = port();
    let proxy = guarded(port);
    let passwords = || proxy.handle.aside()[0].1;
    let mut slow = Client::connect(port);
    slow.send(SLOW);
    for _ in 0..20 {
        let response = Client::connect(port).send("GET /open HTTP/1.1\r\nhost: x\r\n\r\n").response();
        assert!(response.starts_with("HTTP/1.1 204"), "{response}");
    }
    assert_eq!(passwords().done, 0);
    // A client that leaves needs no answer; the next password is checked.
    drop(slow);
    waits_until(|| passwords().done == 1);
    for (login, status) in [("dGlnZXI6SGVsbG8gd29ybGQh", "200"), ("dGlnZXI6d3Jvbmc=", "401"), ("bm9ib2R5Ong=", "401")] {
        let request = format!("GET / HTTP/1.1\r\nhost: x\r\nauthorization: Basic {login}\r\n\r\n");
        let response = Client::connect(port).send(&request).response();
        assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "{response}");
    }
    // One that was right, and one that was wrong.
    waits_until(|| passwords().done == 3);
}

#[test]
fn who_cannot_have_a_password_checked_is_turned_away() {
    let port = port();
    let proxy = guarded(port);
    let waiting = || proxy.handle.aside()[0].1.waiting;
    let slow = || {
        let mut client = Client::connect(port);
        client.send(SLOW);
        client
    };
    let mut waits = Vec::new();
    // One is being checked, and one address has no more than 256 waiting.
    for count in 0..=256 {
        waits.push(slow());
        waits_until(|| waiting() == count);
    }
    let response = slow().response();
    assert!(response.starts_with("HTTP/1.1 503"), "{response}");
    assert_eq!(proxy.handle.aside()[0].1.refused, 1);
    drop(waits);
}

/// A page that takes as long as the test wants.
struct LongPage(Mutex<mpsc::Receiver<()>>);

impl Service for LongPage {
    fn log_name(&self) -> &'static str {
        "<PAGE>"
    }
    fn answer(&self, _: ServiceRequest<'_>) -> ServiceResponse {
        let _ = self.0.lock().unwrap().recv_timeout(common::PATIENCE);
        ServiceResponse { status: 200, fields: Vec::new(), body: b"page".to_vec(), stream: None }
    }
}

#[test]
fn pages_that_take_long_and_are_asked_for_at_once_keep_nobody_else_waiting() {
    const PAGES: usize = 20;
    let port = port();
    let (go_on, waits) = mpsc::channel();
    let services = Services { stats: Some(Arc::new(LongPage(Mutex::new(waits)))), named: Vec::new() };
    let _proxy = Proxy::start_with(
        &format!(
            "global\n nbthread 1\ndefaults\n mode http\n timeout client 60s\n timeout server 9s\n timeout connect 9s\n\
             frontend web\n bind 127.0.0.1:{port}\n stats enable\n stats uri /stats\n http-request return status 204 if {{ path / }}\n"
        ),
        services,
    );
    let mut reader = Client::connect(port);
    reader.send("GET /stats HTTP/1.1\r\nhost: x\r\n\r\n".repeat(PAGES));
    for _ in 0..20 {
        let response = Client::connect(port).send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").response();
        assert!(response.starts_with("HTTP/1.1 204"), "{response}");
    }
    for _ in 0..PAGES {
        go_on.send(()).unwrap();
        assert!(reader.response().ends_with("page"));
    }
}
