//! What the generator says, of servers whose behaviour is known.

mod support;

use penstock_lab::load::{Arrivals, Error, LoadPlan, LoadReport, Mode, Stop, run, run_with};
use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use support::{Behaviour, Server};

fn plan(server: &Server, mode: Mode) -> LoadPlan {
    let mut plan = LoadPlan::new(server.url().parse().unwrap());
    plan.address = Some(server.address);
    plan.mode = mode;
    plan.connections = 4;
    plan.timeout = Duration::from_secs(5);
    plan
}

fn doubts(report: &LoadReport) -> Vec<&str> {
    report.doubts.iter().map(|doubt| doubt.kind.as_str()).collect()
}

const AT_ONCE: Behaviour = Behaviour::Answer(Duration::ZERO);

#[test]
fn handshakes_are_full_ones_and_both_sides_count_the_same() {
    let server = Server::start(AT_ONCE);
    let report = run(&LoadPlan { count: Some(200), ..plan(&server, Mode::Handshake) }).unwrap();
    assert_eq!((report.totals.done, report.totals.full_handshakes, report.totals.resumed_handshakes), (200, 200, 0));
    assert_eq!(report.latency.handshake.count(), 200);
    // The run's first connection tries the server, and is not part of the result.
    assert_eq!(server.handshakes.load(Ordering::Relaxed), 201);
    assert_eq!(server.resumed.load(Ordering::Relaxed), 0);
    let [(agreed, 200)] = &report.negotiated[..] else { panic!("{:?}", report.negotiated) };
    assert_eq!((agreed.version.as_str(), agreed.group.as_str()), ("TLSv1.3", "x25519"));
    assert_eq!(agreed.signature.as_deref(), Some("ecdsa_secp256r1_sha256"));
    assert_eq!((report.failed(), report.totals.unclean_closes), (0, 0), "{:?}", report.errors);
}

#[test]
fn all_but_the_first_handshake_of_each_connection_resume_when_asked_to() {
    let server = Server::start(AT_ONCE);
    for versions in [vec![penstock_lab::load::TlsVersion::V12], vec![penstock_lab::load::TlsVersion::V13]] {
        let before = server.resumed.load(Ordering::Relaxed);
        let mut plan = LoadPlan { count: Some(100), resume: true, ..plan(&server, Mode::Handshake) };
        plan.tls.versions = versions;
        let report = run(&plan).unwrap();
        assert_eq!(report.totals.full_handshakes, 4, "{:?}", report.negotiated);
        assert_eq!(report.totals.resumed_handshakes, 96);
        assert_eq!(server.resumed.load(Ordering::Relaxed) - before, 96);
        assert!(!doubts(&report).contains(&"not-resumed"));
    }
}

#[test]
fn requests_and_their_handshakes_are_counted_by_mode() {
    let server = Server::start(AT_ONCE);
    for (mode, handshakes) in [(Mode::Request, 100), (Mode::KeepAlive, 4), (Mode::Download, 4)] {
        let report = run(&LoadPlan { count: Some(100), ..plan(&server, mode) }).unwrap();
        assert_eq!((report.totals.done, report.totals.responses, report.statuses["2xx"]), (100, 100, 100), "{mode:?}");
        assert_eq!(report.handshakes(), handshakes, "{mode:?}");
        assert_eq!(report.totals.body_bytes, 500, "{mode:?}");
        assert_eq!(report.failed(), 0, "{:?}", report.errors);
    }
}

#[test]
fn idle_connections_are_held_until_the_end() {
    let server = Server::start(AT_ONCE);
    let duration = Duration::from_millis(500);
    let report = run(&LoadPlan { connections: 50, duration, ..plan(&server, Mode::Idle) }).unwrap();
    assert_eq!((report.totals.done, report.held, report.failed()), (50, 50, 0), "{:?}", report.errors);
}

#[test]
fn the_servers_delay_is_what_is_measured() {
    let delay = Duration::from_millis(20);
    let server = Server::start(Behaviour::Answer(delay));
    let arrivals = Arrivals::Open(100.0);
    let report =
        run(&LoadPlan { arrivals, duration: Duration::from_secs(2), ..plan(&server, Mode::KeepAlive) }).unwrap();
    let (p1, p50) = (report.latency.first_byte.percentile_us(1.0), report.latency.total.percentile_us(50.0));
    assert!(p1 >= 20_000, "no answer can have come before its time: {p1}");
    assert!((20_000..30_000).contains(&p50), "{p50}");
    assert!((report.rate() - 100.0).abs() < 5.0, "{}", report.rate());
}

/// A closed loop sends nothing while the server stalls, and so hardly sees it. An open loop counts everything that fell due.
#[test]
fn a_stall_of_a_second_shows_in_the_percentiles_of_an_open_loop() {
    let stall = Behaviour::Stall { after: Duration::from_secs(1), long: Duration::from_secs(1) };
    let of = |arrivals| {
        let server = Server::start(stall);
        let duration = Duration::from_secs(4);
        run(&LoadPlan { arrivals, duration, ..plan(&server, Mode::KeepAlive) }).unwrap()
    };
    let open = of(Arrivals::Open(200.0));
    let total = &open.latency.total;
    assert_eq!(open.totals.done + open.totals.late + open.totals.never_begun, total.count());
    assert!(total.count().abs_diff(800) <= 8, "{}", total.count());
    // A quarter of all fell due within that second: evenly spread, from no wait to a second of it.
    assert!(total.percentile_us(50.0) < 100_000, "{}", total.percentile_us(50.0));
    assert!((400_000..800_000).contains(&total.percentile_us(87.5)), "{}", total.percentile_us(87.5));
    assert!((900_000..1_200_000).contains(&total.percentile_us(99.5)), "{}", total.percentile_us(99.5));
    let closed = of(Arrivals::Closed);
    assert!(closed.latency.total.percentile_us(99.0) < 500_000, "{}", closed.latency.total.percentile_us(99.0));
}

#[test]
fn units_that_never_begin_are_counted_with_their_wait() {
    // Two connections of a server that needs 50 ms carry 40 a second, not 200.
    let server = Server::start(Behaviour::Answer(Duration::from_millis(50)));
    let arrivals = Arrivals::Open(200.0);
    let duration = Duration::from_secs(1);
    let report = run(&LoadPlan { arrivals, duration, connections: 2, ..plan(&server, Mode::KeepAlive) }).unwrap();
    assert!(report.totals.done.abs_diff(40) < 10, "{}", report.totals.done);
    assert!(report.totals.never_begun > 140, "{}", report.totals.never_begun);
    assert!(doubts(&report).contains(&"behind"));
    assert!(report.latency.total.percentile_us(50.0) > 300_000);
}

#[test]
fn what_the_server_does_wrong_is_said_in_a_sentence() {
    for (behaviour, says) in [
        (Behaviour::Reset, "the server reset the connection during the handshake"),
        (Behaviour::Silent, "the server did not answer in time, during the handshake"),
        (Behaviour::Clear, "the server does not speak TLS: its first bytes are no TLS record"),
    ] {
        let server = Server::start(behaviour);
        let timeout = Duration::from_millis(300);
        match run(&LoadPlan { timeout, ..plan(&server, Mode::Handshake) }) {
            Err(Error::Unreachable { why, .. }) => assert_eq!(why, says),
            other => panic!("{behaviour:?}: {other:?}"),
        }
    }
    let mut gone = plan(&Server::start(AT_ONCE), Mode::Handshake);
    gone.address = Some("127.0.0.1:1".parse().unwrap());
    let why = run(&gone).unwrap_err().to_string();
    assert!(why.ends_with("the server refused the connection: nothing listens there"), "{why}");
}

#[test]
fn failures_under_load_are_counted_by_kind() {
    let server = Server::start(Behaviour::Hangup);
    let duration = Duration::from_millis(300);
    let report = run(&LoadPlan { duration, ..plan(&server, Mode::KeepAlive) }).unwrap();
    assert_eq!(report.totals.done, 0);
    let kinds: Vec<&str> = report.errors.keys().map(String::as_str).collect();
    assert_eq!(kinds, ["the server closed the connection before the end of a response"]);
    assert!(doubts(&report).contains(&"errors"));
}

#[test]
fn a_unit_that_takes_too_long_is_given_up() {
    let server = Server::start(Behaviour::Answer(Duration::from_secs(20)));
    let (timeout, duration) = (Duration::from_millis(200), Duration::from_millis(500));
    let began = Instant::now();
    let report = run(&LoadPlan { timeout, duration, ..plan(&server, Mode::KeepAlive) }).unwrap();
    assert_eq!(report.totals.done, 0);
    assert!(report.errors.contains_key("the server did not answer in time, before the end of a response"));
    assert!(began.elapsed() < Duration::from_secs(15), "it waited for the answer");
}

#[test]
fn what_was_measured_before_the_stop_is_kept_and_marked() {
    let server = Server::start(AT_ONCE);
    let stop = Stop::default();
    let began = Instant::now();
    let plan = LoadPlan { duration: Duration::from_secs(60), ..plan(&server, Mode::KeepAlive) };
    let mut seconds = 0;
    let report = run_with(&plan, &stop, &mut |_| {
        seconds += 1;
        stop.stop();
    });
    let report = report.unwrap();
    assert!(report.partial && report.totals.done > 0 && doubts(&report).contains(&"partial"));
    assert!(seconds >= 1 && report.seconds < 50.0 && began.elapsed() < Duration::from_secs(50));
}

#[test]
fn a_certificate_is_checked_when_asked_to() {
    let (config, pem) = support::config();
    let server = Server::with(AT_ONCE, config);
    let folder = tempfile::tempdir().unwrap();
    let roots = folder.path().join("roots.pem");
    std::fs::write(&roots, support::config().1).unwrap();
    let mut plan = LoadPlan { count: Some(5), ..plan(&server, Mode::Handshake) };
    plan.tls.verify = Some(roots.clone());
    let why = run(&plan).unwrap_err().to_string();
    assert!(why.contains("the server's certificate is not accepted"), "{why}");
    std::fs::write(&roots, pem).unwrap();
    assert_eq!(run(&plan).unwrap().totals.done, 5);
    plan.tls.server_name = Some("another.example".into());
    let why = run(&plan).unwrap_err().to_string();
    assert!(why.contains("the server's certificate is not accepted"), "{why}");
}

#[test]
fn a_report_is_the_same_after_json() {
    let server = Server::start(AT_ONCE);
    let report = run(&LoadPlan { count: Some(20), ..plan(&server, Mode::Request) }).unwrap();
    let text = penstock_lab::output::json(&report);
    let again: LoadReport = serde_json::from_str(&text).unwrap();
    assert!(again == report, "{text}");
}

/// The names in the CONNECTs, in order.
fn asked_for(heads: &[String]) -> Vec<String> {
    let name = |head: &String| {
        let target = head.strip_prefix("CONNECT ").and_then(|rest| rest.split_once(' ')).unwrap().0.to_owned();
        assert_eq!(*head, format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"));
        target
    };
    heads.iter().map(name).collect()
}

#[test]
fn each_connection_has_a_tunnel_of_its_own_through_the_proxy() {
    let server = Server::start(AT_ONCE);
    let (proxy, heads) = support::proxy(server.address);
    for (mode, connections, handshakes) in
        [(Mode::Handshake, 4, 40), (Mode::Request, 4, 40), (Mode::KeepAlive, 4, 4), (Mode::Idle, 40, 40)]
    {
        heads.lock().unwrap().clear();
        let (count, duration) = (Some(40), Duration::from_millis(1500));
        let mut plan = LoadPlan { count, duration, connections, ..plan(&server, mode) };
        (plan.address, plan.proxy) = (None, Some(proxy));
        plan.target.host = "host.invalid".into();
        let report = run(&plan).unwrap();
        assert_eq!((report.totals.done, report.failed()), (40, 0), "{mode:?}: {:?}", report.errors);
        assert_eq!((report.handshakes(), report.latency.tunnel.count()), (handshakes, handshakes), "{mode:?}");
        assert!(report.latency.tunnel.percentile_us(50.0) >= 1000, "the proxy takes a millisecond");
        // The run's first connection tries the server.
        let port = server.address.port();
        let all = vec![format!("host.invalid:{port}"); handshakes as usize + 1];
        assert_eq!(asked_for(&heads.lock().unwrap()), all, "{mode:?}");
    }
    assert!(server.names.lock().unwrap().iter().all(|name| name == "host.invalid"));
}

#[test]
fn clear_text_goes_through_a_tunnel_too() {
    let server = Server::start(Behaviour::Clear);
    let (proxy, heads) = support::proxy(server.address);
    let mut plan = LoadPlan { count: Some(10), ..plan(&server, Mode::Request) };
    plan.target = "http://[::1]/x".parse().unwrap();
    (plan.address, plan.proxy) = (None, Some(proxy));
    let report = run(&plan).unwrap();
    assert_eq!((report.totals.done, report.statuses["4xx"], report.failed()), (10, 10, 0), "{:?}", report.errors);
    assert_eq!(asked_for(&heads.lock().unwrap()), ["[::1]:80"; 11]);
}

#[test]
fn names_with_a_number_are_another_in_each_connection() {
    let server = Server::start(AT_ONCE);
    let (proxy, heads) = support::proxy(server.address);
    let base = LoadPlan { count: Some(40), threads: 2, ..plan(&server, Mode::Request) };
    let unique = |names: &[String]| names.iter().collect::<std::collections::BTreeSet<_>>().len();
    // Everywhere, through a proxy.
    let mut plan = LoadPlan { address: None, proxy: Some(proxy), ..base.clone() };
    plan.target = "https://a{n}.example:8443/".parse().unwrap();
    assert_eq!(run(&plan).unwrap().totals.done, 40);
    let (connects, names) = (asked_for(&heads.lock().unwrap()), server.names.lock().unwrap().clone());
    assert_eq!((connects.len(), unique(&connects), unique(&names)), (41, 41, 41));
    let without_port: Vec<String> = connects.iter().map(|name| name.trim_end_matches(":8443").into()).collect();
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    assert_eq!(sorted(without_port), sorted(names), "the number in both is the same");
    // In the handshake alone; kept connections keep their name.
    server.names.lock().unwrap().clear();
    let mut plan = LoadPlan { mode: Mode::KeepAlive, ..base.clone() };
    plan.tls.server_name = Some("{n}.example".into());
    assert_eq!(run(&plan).unwrap().totals.done, 40);
    let again = server.names.lock().unwrap().clone();
    assert_eq!((again.len(), unique(&again)), (5, 5));
    assert!(again.iter().all(|name| name.len() == 24 + ".example".len()), "{again:?}");
    // What cannot be is said before anything is connected to.
    for (plan, says) in [
        (LoadPlan { resume: true, ..plan.clone() }, "have no sessions to resume"),
        (LoadPlan { proxy: Some(proxy), ..base.clone() }, "either an address or a proxy"),
        (LoadPlan { address: None, target: "{n}.example".parse().unwrap(), ..base }, "are not resolved"),
    ] {
        let why = run(&plan).unwrap_err().to_string();
        assert!(why.contains(says), "{why}");
    }
}

#[test]
fn a_proxy_that_makes_no_tunnel_is_told_from_the_server() {
    let server = Server::start(AT_ONCE);
    type Deed = fn(std::net::TcpStream, String) -> std::io::Result<()>;
    let answers: [(Deed, &str); 6] = [
        (|mut s, _| s.write_all(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"), "its answer has the status 503"),
        (|mut s, _| s.write_all(b"HTTP/1.1 407 Who\r\n\r\n"), "its answer has the status 407"),
        (|mut s, _| s.write_all(b"220 mail.example\r\n"), "its answer is no valid HTTP/1.1: "),
        (|mut s, _| s.write_all(b"HTTP/1.1 200 OK\r\n\r\nhello"), "bytes came through it before any had been sent"),
        (|_, _| Ok(()), "the proxy closed the connection before the tunnel was made"),
        (
            |_, _| {
                std::thread::sleep(Duration::from_secs(5));
                Ok(())
            },
            "the proxy did not answer in time, before the tunnel was made",
        ),
    ];
    for (deed, says) in answers {
        let mut plan = LoadPlan { timeout: Duration::from_millis(300), ..plan(&server, Mode::Handshake) };
        (plan.address, plan.proxy) = (None, Some(support::proxy_that(deed)));
        let why = run(&plan).unwrap_err().to_string();
        assert!(why.contains(says), "{says}: {why}");
    }
    let mut plan = plan(&server, Mode::Handshake);
    (plan.address, plan.proxy) = (None, Some("127.0.0.1:1".parse().unwrap()));
    let why = run(&plan).unwrap_err().to_string();
    assert!(why.ends_with("the proxy made no tunnel: it refused the connection: nothing listens there"), "{why}");
    assert_eq!(server.handshakes.load(Ordering::Relaxed), 0);
}
