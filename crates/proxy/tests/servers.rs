//! Which server gets a request, how often, and what the client gets when none answers.

mod common;

use common::{Client, Origin, Proxy, port};
use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

fn named(name: &'static str) -> Origin {
    Origin::start(move |recorder, _| {
        while recorder.head().is_some() {
            write!(recorder.stream, "HTTP/1.1 200 OK\r\netag: \"1\"\r\ncontent-length: {}\r\n\r\n{name}", name.len())
                .unwrap();
        }
    })
}

fn start(body: &str) -> (Proxy, u16) {
    let port = port();
    let proxy = Proxy::start(&format!(
        "global\n nbthread 1\ndefaults\n mode http\n timeout client 3s\n timeout server 1s\n timeout connect 1s\n\
         timeout queue 300ms\nlisten web\n bind 127.0.0.1:{port}\n{body}\n"
    ));
    (proxy, port)
}

fn get(client: &mut Client, more: &str) -> String {
    client.send(format!("GET / HTTP/1.1\r\nhost: x\r\n{more}\r\n")).response()
}

#[test]
fn a_cookie_is_inserted_brings_the_client_back_and_is_kept_from_the_server() {
    let (a, b) = (named("a"), named("b"));
    let (_proxy, port) = start(&format!(
        " cookie SRV insert indirect nocache\n server a 127.0.0.1:{} cookie ca\n server b 127.0.0.1:{} cookie cb\n",
        a.port, b.port
    ));
    let mut client = Client::connect(port);
    let first = get(&mut client, "");
    assert!(first.contains("set-cookie: SRV=ca; path=/\r\n") && first.contains("cache-control: private"), "{first}");
    for _ in 0..3 {
        let again = get(&mut client, "cookie: x=1; SRV=cb; y=2\r\n");
        assert!(again.ends_with("\r\n\r\nb") && !again.contains("set-cookie"), "{again}");
    }
    assert!(b.seen().contains("cookie: x=1; y=2\r\n") && !b.seen().contains("SRV"), "{}", b.seen());
    let unknown = get(&mut client, "cookie: SRV=gone\r\n");
    assert!(unknown.contains("set-cookie: SRV="), "{unknown}");
}

#[test]
fn a_refused_connection_is_tried_on_another_server_with_redispatch() {
    let good = named("good");
    let (_proxy, port) = start(&format!(
        " option redispatch 1\n retries 2\n server bad 127.0.0.1:{}\n server good 127.0.0.1:{}\n",
        common::port(),
        good.port
    ));
    for _ in 0..4 {
        let response = get(&mut Client::connect(port), "");
        assert!(response.ends_with("good"), "{response}");
    }
}

#[test]
fn a_server_at_its_limit_makes_the_next_request_wait_and_then_give_up() {
    let slow = Origin::start(|recorder, _| {
        while recorder.head().is_some() {
            std::thread::sleep(Duration::from_millis(600));
            recorder.stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
        }
    });
    let (_proxy, port) = start(&format!(" server s 127.0.0.1:{} maxconn 1\n", slow.port));
    let mut first = Client::connect(port);
    first.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n");
    std::thread::sleep(Duration::from_millis(100));
    let begin = Instant::now();
    let response = get(&mut Client::connect(port), "");
    assert!(response.starts_with("HTTP/1.1 503 "), "{response}");
    assert!(begin.elapsed() >= Duration::from_millis(280), "{:?}", begin.elapsed());
    assert!(first.response().ends_with("ok"));
}

#[test]
fn a_server_that_never_answers_is_504() {
    let mute = Origin::start(|recorder, _| while recorder.head().is_some() {});
    let (_proxy, port) = start(&format!(" server s 127.0.0.1:{}\n", mute.port));
    let mut client = Client::connect(port);
    let begin = Instant::now();
    let response = get(&mut client, "");
    assert!(response.starts_with("HTTP/1.1 504 Gateway Time-out\r\n"), "{response}");
    assert!((900..2500).contains(&begin.elapsed().as_millis()));
}

#[test]
fn junk_is_502_and_may_be_tried_elsewhere() {
    let junk = Origin::fixed(b"SSH-2.0-junk\r\n\r\n");
    let good = named("good");
    let (_proxy, port) = start(&format!(" server junk 127.0.0.1:{}\n", junk.port));
    assert!(get(&mut Client::connect(port), "").starts_with("HTTP/1.1 502 "));
    let (_proxy, port) = start(&format!(
        " retry-on junk-response\n option redispatch 1\n server junk 127.0.0.1:{}\n server good 127.0.0.1:{}\n",
        junk.port, good.port
    ));
    assert!(get(&mut Client::connect(port), "").ends_with("good"));
}

#[test]
fn slow_heads_and_bodies_end_with_their_own_timeouts() {
    let origin = Origin::start(|recorder, _| {
        while let Some(head) = recorder.head() {
            if head.starts_with("POST") {
                recorder.bytes(9);
            }
            let _ = recorder.stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx");
        }
    });
    let port = port();
    let _proxy = Proxy::start(&format!(
        "global\n nbthread 1\ndefaults\n mode http\n timeout client 1s\n timeout server 9s\n timeout connect 1s\n\
         timeout http-request 500ms\n timeout http-keep-alive 300ms\n\
         listen web\n bind 127.0.0.1:{port}\n server s 127.0.0.1:{}\n",
        origin.port
    ));
    let timed = |send: &[&str]| {
        let begin = Instant::now();
        let mut client = Client::connect(port);
        let mut text = String::new();
        for part in send {
            client.send(part);
            if part.ends_with("\r\n\r\n") && part.starts_with("GET") {
                text = client.response();
            }
        }
        (client.rest().0, begin.elapsed().as_millis(), text)
    };
    let (text, ms, _) = timed(&["GET / HTTP/1.1\r\nho"]);
    assert!(text.starts_with("HTTP/1.1 408 ") && (450..1500).contains(&ms), "{ms} ms: {text}");
    let (text, ms, _) = timed(&["GET / HTTP/1.1\r\nhost: x\r\n\r\n"]);
    assert!(text.is_empty() && (250..1300).contains(&ms), "idle: {ms} ms: {text}");
    let (text, ms, _) = timed(&["POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nabc"]);
    assert!((900..2500).contains(&ms), "body: {ms} ms: {text}");
}

#[test]
fn a_server_whose_checks_fail_every_other_time_costs_no_request() {
    let checks = Arc::new(AtomicUsize::new(0));
    let count = checks.clone();
    let flapping = Origin::start(move |recorder, _| {
        while let Some(head) = recorder.head() {
            let fails = head.starts_with("OPTIONS") && count.fetch_add(1, Ordering::SeqCst) % 2 == 1;
            let status = if fails { "503 No" } else { "200 OK" };
            let response = format!("HTTP/1.1 {status}\r\ncontent-length: 1\r\n\r\nb");
            if recorder.stream.write_all(response.as_bytes()).is_err() {
                return;
            }
        }
    });
    let steady = Origin::fixed(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na");
    let (_proxy, port) = start(&format!(
        " option httpchk\n http-reuse always\n default-server inter 20ms fall 1 rise 1\n server a 127.0.0.1:{}\n \
         server b 127.0.0.1:{} check\n",
        steady.port, flapping.port
    ));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let checks = checks.clone();
            std::thread::spawn(move || {
                let mut client = Client::connect(port);
                let mut served = [0; 2];
                while checks.load(Ordering::SeqCst) < 30 {
                    let response = get(&mut client, "");
                    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
                    served[usize::from(response.ends_with('b'))] += 1;
                }
                served
            })
        })
        .collect();
    let served = clients.into_iter().map(|client| client.join().unwrap());
    let served = served.fold([0, 0], |sum, served| [sum[0] + served[0], sum[1] + served[1]]);
    assert!(served[0] > served[1] && served[1] > 0, "a serves all the time, b half of it: {served:?}");
}
