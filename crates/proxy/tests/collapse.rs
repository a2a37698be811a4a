//! Requests that wait for one response (`collapse` in a cache section), in a running data plane with two workers.

mod common;

use common::{Client, Logs, Origin, PATIENCE, Proxy, port};
use std::{
    io::{Read, Write},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

/// An origin that holds its answers back until it is told to give them.
struct Slow {
    origin: Origin,
    asked: Arc<AtomicUsize>,
    /// How many of its answers it may give.
    open: Arc<AtomicUsize>,
}

impl Slow {
    /// `answer` makes the answer to a request from its head and its number; the connection is closed after an answer that is not whole.
    fn start(answer: impl Fn(&str, usize) -> (String, bool) + Send + Sync + 'static) -> Slow {
        let (asked, open) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counted, may) = (asked.clone(), open.clone());
        let origin = Origin::start(move |recorder, _| {
            while let Some(head) = recorder.head() {
                let number = counted.fetch_add(1, SeqCst);
                let (answer, stays) = answer(&head, number);
                until("the origin may answer", || may.load(SeqCst) > number);
                // A client may have left meanwhile.
                if recorder.stream.write_all(answer.as_bytes()).is_err() || !stays {
                    return;
                }
            }
        });
        Slow { origin, asked, open }
    }
    fn asked(&self) -> usize {
        self.asked.load(SeqCst)
    }
    fn open(&self) {
        self.open.store(usize::MAX, SeqCst);
    }
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn storable(number: usize) -> (String, bool) {
    let body = "abcdefghij".repeat(500);
    (
        format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=50\r\nX-Number: {number}\r\nContent-Length: 5000\r\n\r\n{body}"
        ),
        true,
    )
}

/// A proxy before this origin, with these lines more in its cache and its `listen` section.
fn start(slow: &Slow, cache: &str, listen: &str) -> (Proxy, u16) {
    let port = port();
    let proxy = Proxy::start(&format!(
        "global\n nbthread 2\ndefaults\n mode http\n timeout client 30s\n timeout server 9s\n timeout connect 5s\n\
         cache c\n total-max-size 4\n process-vary on\n{cache}\nlisten web\n bind 127.0.0.1:{port}\n{listen}\n\
         http-request cache-use c\n http-response cache-store c\n http-after-response set-header x-hit %[res.cache_hit]\n\
         server s 127.0.0.1:{}\n",
        slow.origin.port
    ));
    (proxy, port)
}

fn ask(port: u16, method: &str, fields: &str) -> Client {
    let mut client = Client::connect(port);
    client.send(format!("{method} / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}\r\n"));
    client
}

/// The whole answer: the client closes.
fn answer(mut client: Client) -> String {
    let mut answer = Vec::new();
    // One that is cut off ends all the same.
    let _ = client.0.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

fn waiting(proxy: &Proxy) -> u64 {
    proxy.handle.snapshot().collapses[0].1.waiting
}

/// The first request, which has reached the origin, and then those who wait for its response.
fn crowd(proxy: &Proxy, port: u16, slow: &Slow, count: usize) -> (Client, Vec<Client>) {
    let first = ask(port, "GET", "");
    until("the first asks", || slow.asked() == 1);
    let others = (0..count).map(|_| ask(port, "GET", "")).collect();
    until("the others wait", || waiting(proxy) == count as u64);
    (first, others)
}

fn all_are_of(number: usize, others: Vec<Client>) {
    for other in others {
        let answer = answer(other);
        assert!(answer.contains(&format!("x-number: {number}\r\n")) && answer.contains("x-hit: 1\r\n"), "{answer}");
        assert!(answer.ends_with("fghij") && answer.len() > 5000, "{answer}");
    }
}

#[test]
fn a_hundred_requests_for_one_object_ask_the_server_once() {
    let slow = Slow::start(|_, number| storable(number));
    let logs = Logs::start();
    let log = format!("log 127.0.0.1:{} local0\n option httplog", logs.port());
    let (proxy, port) = start(&slow, " collapse 9s\n answer-ranges on", &log);
    let (first, others) = crowd(&proxy, port, &slow, 99);
    let heads: Vec<Client> = (0..10).map(|_| ask(port, "HEAD", "")).collect();
    let parts: Vec<Client> = (0..10).map(|_| ask(port, "GET", "Range: bytes=10-12\r\n")).collect();
    until("they wait too", || waiting(&proxy) == 119);
    std::thread::sleep(Duration::from_millis(50));
    slow.open();
    let first = answer(first);
    assert!(first.contains("x-hit: 0\r\n") && first.ends_with("fghij"), "{first}");
    all_are_of(0, others);
    for head in heads {
        let head = answer(head);
        assert!(head.contains("content-length: 5000\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    }
    for part in parts {
        let part = answer(part);
        assert!(part.starts_with("HTTP/1.1 206 ") && part.ends_with("\r\n\r\nabc"), "{part}");
    }
    assert_eq!(slow.asked(), 1);
    let snapshot = proxy.handle.snapshot();
    let (name, collapses) = &snapshot.collapses[0];
    assert_eq!((name.as_str(), collapses.collapsed, collapses.fetching, collapses.waiting), ("c", 119, 0, 0));
    let sum = |value: fn(&penstock_proxy::snapshot::Row) -> u64| snapshot.rows.iter().map(value).sum::<u64>();
    assert_eq!(sum(|row| row.totals.cache_hits), 119);
    assert_eq!(sum(|row| row.totals.cache_lookups), 120);
    let lines: Vec<String> = (0..120).map(|_| logs.line()).collect();
    let collapsed: Vec<&String> = lines.iter().filter(|line| line.contains(" web/<CACHE> ")).collect();
    assert_eq!(collapsed.len(), 119);
    // The time that it has waited is in the log as that in a queue is.
    let timers = |line: &str| line.split("/<CACHE> ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    for line in collapsed {
        let timers = timers(line);
        let parts: Vec<i64> = timers.split('/').map(|part| part.parse().unwrap()).collect();
        assert!(parts[1] >= 40 && parts[4] >= parts[1], "{line}");
        assert_eq!(parts[2..4], [0, 0], "{line}");
    }
}

#[test]
fn streams_of_http_2_wait_for_each_other_and_for_clients_of_http_1() {
    let slow = Slow::start(|_, number| storable(number));
    let (proxy, port) = start(&slow, " collapse 9s", "");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut pending = Vec::new();
        for _ in 0..2 {
            let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let (send, connection) = h2::client::handshake(stream).await.unwrap();
            tokio::spawn(connection);
            let mut send = send.ready().await.unwrap();
            for _ in 0..40 {
                send = send.ready().await.unwrap();
                let request = http::Request::get("http://h/").body(()).unwrap();
                let (response, _) = send.send_request(request, true).unwrap();
                pending.push(tokio::spawn(async move {
                    let (head, mut body) = response.await.unwrap().into_parts();
                    let mut length = 0;
                    while let Some(data) = body.data().await {
                        let data = data.unwrap();
                        body.flow_control().release_capacity(data.len()).unwrap();
                        length += data.len();
                    }
                    assert_eq!(length, 5000);
                    head.headers["x-hit"].to_str().unwrap().parse::<u64>().unwrap()
                }));
            }
        }
        let end = Instant::now() + PATIENCE;
        while waiting(&proxy) < 79 {
            assert!(Instant::now() < end, "they do not wait");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let others: Vec<Client> = (0..10).map(|_| ask(port, "GET", "")).collect();
        until("those of HTTP/1 wait too", || waiting(&proxy) == 89);
        slow.open();
        let mut hits = 0;
        for one in pending {
            hits += tokio::time::timeout(PATIENCE, one).await.expect("it hangs").unwrap();
        }
        assert_eq!(hits, 79);
        all_are_of(0, others);
    });
    assert_eq!(slow.asked(), 1);
}

#[test]
fn what_is_not_stored_is_asked_for_by_all_at_once_and_by_those_who_come_later_too() {
    for answer_of in [
        "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 2\r\n\r\nno",
        "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno",
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=9\r\nVary: Cookie\r\nContent-Length: 2\r\n\r\nno",
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=9\r\nContent-Length: 2\r\nX-Denied: 1\r\n\r\nno",
    ] {
        let slow = Slow::start(move |_, _| (answer_of.to_owned(), true));
        let (proxy, port) = start(&slow, " collapse 9s", "http-response deny if { res.hdr(x-denied) -m found }");
        let (first, others) = crowd(&proxy, port, &slow, 20);
        slow.open.store(1, SeqCst);
        assert!(answer(first).contains("x-hit: 0\r\n"));
        // The origin answers none of them before it has all of their requests: they do not come one after the other.
        until("all of them ask", || slow.asked() == 21);
        let later = ask(port, "GET", "");
        until("and so does one more", || slow.asked() == 22);
        slow.open();
        for other in others.into_iter().chain([later]) {
            assert!(answer(other).contains("x-hit: 0\r\n"), "{answer_of}");
        }
        assert_eq!((slow.asked(), waiting(&proxy)), (22, 0));
    }
}

#[test]
fn another_one_fetches_what_the_first_did_not_get() {
    for (lines, broken) in [
        ("", "HTTP/1.1 200 OK\r\nCache-Control: max-age=50\r\nContent-Length: 5000\r\n\r\nonly so much"),
        ("retries 0", ""),
    ] {
        let slow =
            Slow::start(move |_, number| if number == 0 { (broken.to_owned(), false) } else { storable(number) });
        let (proxy, port) = start(&slow, " collapse 9s", lines);
        let (first, others) = crowd(&proxy, port, &slow, 20);
        slow.open();
        let first = answer(first);
        assert!(
            if lines.is_empty() { first.ends_with("only so much") } else { first.starts_with("HTTP/1.1 502") },
            "{first}"
        );
        let (own, others): (Vec<String>, Vec<String>) =
            others.into_iter().map(answer).partition(|answer| answer.contains("x-hit: 0\r\n"));
        assert_eq!((own.len(), others.len(), slow.asked()), (1, 19, 2));
        for answer in others.iter().chain(&own) {
            assert!(answer.contains("x-number: 1\r\n") && answer.ends_with("fghij"), "{answer}");
        }
    }
}

#[test]
fn another_one_fetches_if_the_first_client_leaves() {
    let slow = Slow::start(|_, number| storable(number));
    let (proxy, port) = start(&slow, " collapse 9s", "option abortonclose");
    let (first, mut others) = crowd(&proxy, port, &slow, 20);
    // Those who leave while they wait are not waited for.
    drop(others.drain(..10));
    until("they have left", || waiting(&proxy) == 10);
    drop(first);
    until("another one asks", || slow.asked() == 2);
    until("the others wait for it", || waiting(&proxy) == 9);
    slow.open();
    let own = others.into_iter().map(answer).filter(|answer| {
        assert!(answer.contains("x-number: 1\r\n") && answer.ends_with("fghij"), "{answer}");
        answer.contains("x-hit: 0\r\n")
    });
    assert_eq!((own.count(), slow.asked()), (1, 2));
}

#[test]
fn nobody_waits_longer_than_the_section_says() {
    let slow = Slow::start(|_, number| storable(number));
    let (proxy, port) = start(&slow, " collapse 300ms", "");
    let begun = Instant::now();
    let first = ask(port, "GET", "");
    until("the first asks", || slow.asked() == 1);
    let others: Vec<Client> = (0..20).map(|_| ask(port, "GET", "")).collect();
    until("the others ask", || slow.asked() == 21);
    assert!(begun.elapsed() >= Duration::from_millis(300));
    // What takes as long as this is not waited for any more.
    let late = ask(port, "GET", "");
    until("one who comes now asks", || slow.asked() == 22);
    assert_eq!(waiting(&proxy), 0);
    slow.open();
    for client in [first, late].into_iter().chain(others) {
        assert!(answer(client).ends_with("fghij"));
    }
}

#[test]
fn a_response_that_varies_is_fetched_once_for_each_kind_of_request() {
    let slow = Slow::start(|head, number| {
        let coding = if head.contains("accept-encoding: gzip") { "gzip" } else { "br" };
        let (whole, stays) = storable(number);
        let more = format!("200 OK\r\nVary: Accept-Encoding\r\nContent-Encoding: {coding}\r\n");
        (whole.replacen("200 OK\r\n", &more, 1), stays)
    });
    let (proxy, port) = start(&slow, " collapse 9s", "");
    let first = ask(port, "GET", "Accept-Encoding: gzip\r\n");
    until("the first asks", || slow.asked() == 1);
    let fields =
        |number: usize| if number.is_multiple_of(2) { "Accept-Encoding: gzip\r\n" } else { "Accept-Encoding: br\r\n" };
    let others: Vec<Client> = (0..40).map(|number| ask(port, "GET", fields(number))).collect();
    until("the others wait", || waiting(&proxy) == 40);
    slow.open();
    assert!(answer(first).contains("content-encoding: gzip\r\n"));
    for (number, other) in others.into_iter().enumerate() {
        let coding = if number % 2 == 0 { "gzip" } else { "br" };
        assert!(answer(other).contains(&format!("content-encoding: {coding}\r\n")));
    }
    assert_eq!(slow.asked(), 2);
}

#[test]
fn who_must_not_be_answered_from_a_cache_does_not_wait() {
    let slow = Slow::start(|_, number| storable(number));
    let (proxy, port) = start(&slow, " collapse 9s", "");
    let (first, others) = crowd(&proxy, port, &slow, 5);
    let mut alone = Vec::new();
    for field in ["Authorization: Basic eDp5\r\n", "Cache-Control: no-cache\r\n", "Cache-Control: max-age=0\r\n"] {
        alone.push(ask(port, "GET", field));
        until("it asks by itself", || slow.asked() == 1 + alone.len());
    }
    assert_eq!(waiting(&proxy), 5);
    slow.open();
    for client in [first].into_iter().chain(alone) {
        assert!(answer(client).contains("x-hit: 0\r\n"));
    }
    for other in others {
        assert!(answer(other).contains("x-hit: 1\r\n"));
    }
}

#[test]
fn without_the_word_everyone_asks_at_once() {
    for word in ["", " collapse off"] {
        let slow = Slow::start(|_, number| storable(number));
        let (proxy, port) = start(&slow, word, "");
        let clients: Vec<Client> = (0..20).map(|_| ask(port, "GET", "")).collect();
        until("all of them ask", || slow.asked() == 20);
        slow.open();
        for client in clients {
            assert!(answer(client).contains("x-hit: 0\r\n"));
        }
        assert!(proxy.handle.snapshot().collapses.is_empty());
    }
}
