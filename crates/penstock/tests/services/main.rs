//! Services that inspect messages: what becomes of requests and responses if they work, and if they do not.

#[path = "../common/mod.rs"]
mod common;
mod explicit;
mod fake;
mod inline;
mod nginx;
mod packets;
mod real;

use common::{
    Place, bytes, free_port, run,
    running::{Running, until},
};
use std::{
    net::{Ipv4Addr, TcpStream, UdpSocket},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// A running penstock with services.
struct Front {
    http1: u16,
    http2: u16,
    log: UdpSocket,
    place: Place,
    _running: Running,
}

/// A response as curl got it.
#[derive(Debug, PartialEq, Eq)]
struct Got {
    status: u16,
    body: Vec<u8>,
}

impl Front {
    /// Starts with these sections, a frontend that chooses the chain of the path's first part, and this server behind. What
    /// follows `@frontend` in the sections is for the frontend.
    fn start(name: &str, sections: &str, chains: &[&str], origin: u16) -> Front {
        Front::start_with(name, 1, "", sections, chains, origin)
    }
    /// The same, with so many workers and with these lines in the global section.
    fn start_with(name: &str, workers: u32, global: &str, sections: &str, chains: &[&str], origin: u16) -> Front {
        let place = Place::new(name);
        let log = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        log.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let (http1, http2, to) = (free_port(), free_port(), log.local_addr().unwrap().port());
        let rules: String = chains
            .iter()
            .map(|chain| format!("  http-request service-chain {chain} if {{ path_beg /{chain}/ }}\n"))
            .collect();
        let (sections, more) = sections.split_once("@frontend\n").unwrap_or((sections, ""));
        let text = format!(
            "global\n  nbthread {workers}\n  log 127.0.0.1:{to} local0\n{global}defaults\n  mode http\n  timeout client 5s\n  timeout server 5s\n  \
             timeout connect 2s\n  log global\n  option dontlognull\n{sections}\nfrontend web\n  bind 127.0.0.1:{http1}\n  bind 127.0.0.1:{http2} proto h2\n{more}  \
             log-format \"%ST %ts chain=%[inspection_chain] said=%[inspection_verdicts] threat=%[inspection_threat] to=%s\"\n{rules}  \
             default_backend origin\nbackend origin\n  server o 127.0.0.1:{origin}\n"
        );
        let file = place.file("test.cfg", &text);
        let running = Running::start(&[&"-f", &file]);
        until("it listens", || TcpStream::connect((Ipv4Addr::LOCALHOST, http2)).is_ok());
        Front { http1, http2, log, place, _running: running }
    }
    /// Sends a request with curl.
    fn ask(&self, http2: bool, path: &str, body: Option<&[u8]>, more: &[&str]) -> Got {
        let into = self.place.0.join("got");
        let _ = std::fs::remove_file(&into);
        let mut command = Command::new("curl");
        command.args(["-s", "--max-time", "15", "-w", "%{http_code}", "-H", "Expect:", "-o"]).arg(&into).args(more);
        if http2 {
            command.arg("--http2-prior-knowledge");
        }
        if let Some(body) = body {
            let from = self.place.0.join("body");
            std::fs::write(&from, body).unwrap();
            command.arg("--data-binary").arg(format!("@{}", from.display()));
        }
        let port = if http2 { self.http2 } else { self.http1 };
        let done = command.arg(format!("http://127.0.0.1:{port}{path}")).output().expect("curl runs");
        let status = String::from_utf8(done.stdout).unwrap();
        Got { status: status.parse().unwrap(), body: std::fs::read(into).unwrap_or_default() }
    }
    /// The next log line that contains `word`.
    fn logged(&self, word: &str) -> String {
        let mut buffer = [0; 4096];
        loop {
            let length = self.log.recv(&mut buffer).unwrap_or_else(|e| panic!("no line with {word}: {e}"));
            let line = String::from_utf8_lossy(&buffer[..length]).trim_end().to_owned();
            if line.contains(word) {
                return line;
            }
        }
    }
}

const CHUNKED: &[&str] = &["-H", "Transfer-Encoding: chunked"];

/// What services do that they should not.
const FAULTS: &[&str] =
    &["never", "vanish", "garbage", "http", "refusing", "missing", "beginning", "half", "smuggle", "beyond"];

/// A section for a service, and a chain of it alone.
fn section(name: &str, path: &str, sides: &[&str], port: u16, more: &str) -> String {
    let sides: String = sides.iter().map(|side| format!("  {side} /{path}\n")).collect();
    format!(
        "service {name}\n  mode icap\n{sides}  timeout server 400ms\n{more}\n  server s 127.0.0.1:{port}\nservice-chain {name}\n  inspect {name}\n"
    )
}

#[test]
fn what_a_failed_service_did_not_inspect_is_denied_or_goes_on_whole() {
    let port = fake::service(Arc::default());
    let (mut sections, mut chains) = (String::new(), Vec::new());
    for fault in FAULTS {
        for side in ["reqmod", "respmod"] {
            for (fate, line) in [("deny", ""), ("bypass", "  on-failure bypass")] {
                let name = format!("{fault}-{side}-{fate}");
                sections += &section(&name, fault, &[side], port, line);
                chains.push(name);
            }
        }
    }
    let names: Vec<&str> = chains.iter().map(String::as_str).collect();
    let front = Front::start("services-faults", &sections, &names, fake::origin());
    for chain in names {
        // A service that never answers is waited for each time.
        let sizes: &[usize] = if chain.starts_with("never") { &[40_000] } else { &[1, 30, 31, 40_000] };
        for (&size, http2) in sizes.iter().zip([false, true, false, true]) {
            let body = bytes(size);
            let got = front.ask(http2, &format!("/{chain}/"), Some(&body), if size == 31 { CHUNKED } else { &[] });
            match chain.ends_with("deny") {
                true => assert!(
                    got.status == 503 && !got.body.starts_with(b"only"),
                    "{chain}, {size} bytes: {} {:?}",
                    got.status,
                    String::from_utf8_lossy(&got.body)
                ),
                false => assert!(got == Got { status: 200, body }, "{chain}, {size} bytes: {}", got.status),
            }
            let line = front.logged("chain=");
            let fate = if chain.ends_with("deny") { "=denied(" } else { "=bypassed(" };
            assert!(line.contains(&format!("chain={chain} said={chain}.")) && line.contains(fate), "{line}");
        }
    }
}

#[test]
fn bodies_are_the_same_behind_a_service_that_sends_them_back() {
    let port = fake::service(Arc::default());
    let mut sections = section("echo", "echo", &["reqmod", "respmod"], port, "");
    sections += &section("late", "late", &["reqmod", "respmod"], port, "");
    sections += &section("whole", "whole", &["reqmod", "respmod"], port, "");
    sections += "service-chain all\n  inspect late\n  inspect echo\n  inspect whole\n";
    let front = Front::start("services-echo", &sections, &["echo", "late", "whole", "all"], fake::origin());
    for chain in ["echo", "late", "whole", "all"] {
        for (turn, size) in [0, 1, 29, 30, 31, 16_383, 16_384, 16_385, 100_003, 1_000_000].into_iter().enumerate() {
            let (body, http2) = (bytes(size), turn % 2 == 1);
            for more in [&[][..], CHUNKED] {
                let got = front.ask(http2, &format!("/{chain}/"), Some(&body), more);
                assert!(got.status == 200 && got.body == body, "{chain}, {size} bytes: {}", got.status);
            }
            let got = front.ask(!http2, &format!("/{chain}/?bytes={size}"), None, &[]);
            assert!(got.status == 200 && got.body == body, "{chain}, {size} bytes downloaded: {}", got.status);
        }
        let got = front.ask(false, &format!("/{chain}/?bytes=77"), None, &["-I"]);
        assert_eq!(got.status, 200, "HEAD through {chain}");
    }
}

#[test]
fn a_service_may_answer_before_it_has_read_the_message() {
    let port = fake::service(Arc::default());
    let sections = section("early", "early", &["reqmod"], port, "") + &section("late", "early", &["respmod"], port, "");
    let front = Front::start("services-early", &sections, &["early", "late"], fake::origin());
    for chain in ["early", "late"] {
        for http2 in [false, true] {
            for size in [10, 500_000] {
                let got = front.ask(http2, &format!("/{chain}/"), Some(&bytes(size)), &[]);
                assert_eq!(got, Got { status: 403, body: b"blocked".to_vec() }, "{chain}, {size} bytes");
            }
        }
    }
}

#[test]
fn a_kept_connection_that_the_service_closes_costs_no_message() {
    let port = fake::service(Arc::default());
    let sections =
        section("once", "once", &["reqmod", "respmod"], port, "") + &section("drop", "drop", &["reqmod"], port, "");
    let front = Front::start("services-kept", &sections, &["once", "drop"], fake::origin());
    for chain in ["once", "drop"] {
        for size in [10, 30_000].repeat(10) {
            let body = bytes(size);
            let got = front.ask(size == 10, &format!("/{chain}/"), Some(&body), &[]);
            assert!(got.status == 200 && got.body == body, "{chain}: {}", got.status);
        }
    }
}

#[test]
fn what_fails_is_suspended_until_its_check_succeeds() {
    let ill = Arc::new(AtomicBool::new(true));
    let port = fake::service(ill.clone());
    let sections = format!(
        "service av\n  mode icap\n  reqmod /healing\n  server s 127.0.0.1:{port} check inter 1500ms\nservice-chain av\n  inspect av\n"
    );
    let front = Front::start("services-suspended", &sections, &["av"], fake::origin());
    for _ in 0..3 {
        assert_eq!(front.ask(false, "/av/", None, &[]).status, 503);
        assert!(front.logged("chain=av").contains("said=av.request=denied(invalid):"));
    }
    assert_eq!(front.ask(false, "/av/", None, &[]).status, 503);
    assert!(front.logged("chain=av").contains("said=av.request=denied(unreachable):"), "it is suspended");
    ill.store(false, Ordering::SeqCst);
    until("its check has succeeded", || front.ask(false, "/av/", None, &[]).status == 200);
    assert!(front.logged(" 200").contains("said=av.request=unmodified:"));
}

#[test]
fn a_body_longer_than_max_body_is_denied_or_goes_on_whole() {
    let port = fake::service(Arc::default());
    let mut sections = String::new();
    for path in ["echo", "whole"] {
        for fate in ["deny", "bypass"] {
            let name = format!("{path}-{fate}");
            let line = format!("  max-body 20000 {fate}\n  on-failure deny status 502");
            sections += &section(&name, path, &["reqmod", "respmod"], port, &line);
        }
    }
    let chains = ["echo-deny", "echo-bypass", "whole-deny", "whole-bypass"];
    let front = Front::start("services-max-body", &sections, &chains, fake::origin());
    for chain in chains {
        for (size, http2) in [(20_000, false), (20_001, true), (20_001, false), (300_000, true), (300_000, false)] {
            let body = bytes(size);
            let denied = size > 20_000 && chain.ends_with("deny");
            let expected = if denied { 502 } else { 200 };
            for more in [&[][..], CHUNKED] {
                let got = front.ask(http2, &format!("/{chain}/"), Some(&body), more);
                // A body without a known length is read in pieces, and may be longer by one when it is noticed.
                assert_eq!(got.status, expected, "{chain}, {size} bytes");
                assert!(denied || got.body == body, "{chain}, {size} bytes");
            }
            let got = front.ask(http2, &format!("/{chain}/?bytes={size}"), None, &[]);
            assert!(got.status == expected && (denied || got.body == body), "{chain}, {size} bytes downloaded");
        }
    }
}

#[test]
fn a_condition_decides_on_the_request_or_on_the_response() {
    let port = fake::service(Arc::default());
    let av = format!("service av\n  mode icap\n  reqmod /echo\n  respmod /echo\n  server s 127.0.0.1:{port}\n");
    let sections = av
        + "service-chain posts\n  inspect av if METH_POST\nservice-chain large\n  inspect av unless { res.hdr(content-length) -m int lt 100 }\n";
    let front = Front::start("services-conditions", &sections, &["posts", "large"], fake::origin());
    for (path, body, said) in [
        ("/posts/", Some(&b"x"[..]), "said=av.request=modified"),
        ("/posts/?bytes=9", None, "said=- "),
        ("/large/?bytes=99", None, "said=- "),
        ("/large/?bytes=100", None, "said=av.response=modified"),
        ("/other/", None, "chain=- said=- "),
    ] {
        assert_eq!(front.ask(false, path, body, &[]).status, 200, "{path}");
        let line = front.logged("chain=");
        assert!(line.contains(said), "{path}: {line}");
    }
}

#[test]
fn what_is_inspected_is_neither_stored_nor_taken_from_a_cache() {
    let port = fake::service(Arc::default());
    let sections = section("echo", "echo", &["respmod"], port, "")
        + "cache c\n  total-max-size 4\n  max-age 60\n@frontend\n  http-request cache-use c\n  http-response cache-store c\n";
    let front = Front::start("services-cache", &sections, &["echo"], fake::origin());
    for (path, second) in [("/plain/?bytes=50", "to=<CACHE>"), ("/echo/?bytes=50", "to=o")] {
        for to in ["to=o", second] {
            assert_eq!(front.ask(false, path, None, &[]), Got { status: 200, body: bytes(50) }, "{path}");
            let line = front.logged("chain=");
            assert!(
                line.ends_with(to) && line.contains("echo.response=") == path.starts_with("/echo"),
                "{path}: {line}"
            );
        }
    }
}

#[test]
fn a_stored_response_does_not_pass_by_the_services_of_a_backend() {
    let (port, origin) = (fake::service(Arc::default()), fake::origin());
    let sections = section("echo", "echo", &["respmod"], port, "")
        + &format!("backend inspected\n  http-request service-chain echo\n  server i 127.0.0.1:{origin}\n")
        + "cache c\n  total-max-size 4\n  max-age 60\n@frontend\n  http-request cache-use c\n  http-response cache-store c\n  \
           use_backend inspected if { req.hdr(x-inspect) 1 }\n";
    let front = Front::start("services-cache-backend", &sections, &[], origin);
    for (inspect, to) in [("0", "to=o"), ("0", "to=<CACHE>"), ("1", "to=i"), ("0", "to=<CACHE>")] {
        let got = front.ask(false, "/plain?bytes=50", None, &["-H", &format!("X-Inspect: {inspect}")]);
        assert_eq!(got, Got { status: 200, body: bytes(50) }, "{to}");
        let line = front.logged("chain=");
        assert!(line.ends_with(to) && line.contains("echo.response=") == (inspect == "1"), "{to}: {line}");
    }
}

#[test]
fn what_services_do_not_see_is_not_sent() {
    let port = fake::service(Arc::default());
    let sections = section("echo", "echo", &["respmod"], port, "") + &section("same", "whole", &["respmod"], port, "");
    let front = Front::start("services-unseen", &sections, &["echo", "same"], fake::chatty_origin());
    for (path, inspected) in [("/plain/", false), ("/echo/", true), ("/same/", true)] {
        let heads = front.place.0.join("heads");
        let got = front.ask(false, path, None, &["-D", heads.to_str().unwrap()]);
        assert_eq!(got, Got { status: 200, body: b"body".to_vec() }, "{path}");
        let heads = std::fs::read_to_string(&heads).unwrap().to_lowercase();
        assert_eq!(heads.contains("x-early: hint"), !inspected, "{path}: {heads}");
        assert_eq!(heads.contains("x-late: trailer"), !inspected, "{path}: {heads}");
    }
}

#[test]
fn what_cannot_work_is_refused_at_start() {
    let place = Place::new("services-refused");
    let good = "service av\n  mode icap\n  reqmod /av\n  server s 127.0.0.1:1344\n";
    for (text, line, message) in [
        ("service av\n  mode icap\n  reqmod /av\n", 1, "service 'av' has no server"),
        ("service av\n  mode icap\n  server s 127.0.0.1:1344\n", 1, "service 'av' has no 'reqmod' or 'respmod'"),
        ("service av\n  reqmod /av\n  server s 127.0.0.1:1344\n", 1, "service 'av' has no mode"),
        ("service av\n  mode spop\n", 2, "services in mode 'spop' are not supported"),
        ("service av\n  mode http\n  server s 127.0.0.1:1344\n", 1, "service 'av' has no 'bind'"),
        ("service av\n  mode http\n  bind 127.0.0.1:1\n", 1, "service 'av' has no server"),
        ("service av\n  mode http\n  reqmod /av\n", 3, "'reqmod' has no effect in a service in mode http"),
        ("service av\n  mode http\n  tap fifo /f\n", 3, "'tap' has no effect in a service in mode http"),
        ("service av\n  mode icap\n  device reverse-proxy\n", 3, "'device' has no effect in a service in mode icap"),
        ("service av\n  mode tcp\n  device explicit-proxy\n", 3, "'device' has no effect in a service in mode tcp"),
        ("service av\n  mode http\n  device tunnel\n", 3, "'tunnel' is not a kind of device"),
        ("service av\n  mode http\n  device explicit-proxy scheme ftp\n", 3, "'ftp' is not a scheme"),
        ("service av\n  mode http\n  device reverse-proxy scheme http\n", 3, "'scheme'"),
        ("service av\n  mode icap\n  reqmod /av\n  bind :1\n", 4, "'bind' has no effect in a service in mode icap"),
        (
            "service av\n  mode http\n  bind 127.0.0.1:1\n  server s 127.0.0.1:2\n  max-body 1m\n",
            5,
            "'max-body' has no effect in a service in mode http without 'on-failure bypass'",
        ),
        (
            "service av\n  mode http\n  bind 127.0.0.1:1\n  server s 127.0.0.1:2\n  on-failure bypass\n  max-body 1m deny\n",
            6,
            "'max-body' of a service in mode http does not decide about longer bodies",
        ),
        (
            "service av\n  mode http\n  bind 127.0.0.1:1\n  server s 127.0.0.1:2\nfrontend av\n  bind 127.0.0.1:3\n",
            1,
            "the name 'av' is already used by a frontend",
        ),
        (
            "service av\n  mode http\n  bind 127.0.0.1:1\n  server s 127.0.0.1:2\nservice-chain c\n  inspect av\n\
             frontend f\n  bind :3\n  tcp-request content service-chain c\n",
            9,
            "the service 'av' of this chain inspects messages of HTTP",
        ),
        ("service av\n  mode tcp\n  server s 192.0.2.1:1\n", 1, "service 'av' has no 'bind'"),
        ("service av\n  mode tcp\n  bind 127.0.0.1:1\n", 1, "service 'av' has no server"),
        ("service av\n  mode tcp\n  respmod /av\n", 3, "'respmod' has no effect in a service in mode tcp"),
        ("service av\n  mode tcp\n  tap fifo /f\n", 3, "'tap' has no effect in a service in mode tcp"),
        ("service av\n  mode tcp\n  max-body 1m\n", 3, "'max-body' has no effect in a service in mode tcp"),
        (
            "service av\n  mode tcp\n  bind 127.0.0.1:1\n  server s 127.0.0.1:1\n",
            4,
            "what is sent there arrives at the service's 'bind' line without passing a device",
        ),
        (
            "service av\n  mode tcp\n  bind 127.0.0.1:1 accept-proxy\n  server s 192.0.2.1:1\n",
            3,
            "'accept-proxy' cannot be on a 'bind' line of a service in mode tcp",
        ),
        (
            "service av\n  mode tcp\n  bind 127.0.0.1:1\n  server s 192.0.2.1:1 ssl verify none\n",
            4,
            "'ssl' cannot be on a 'server' line of a service in mode tcp",
        ),
        (
            "service av\n  mode tcp\n  bind 127.0.0.1:1\n  server s 192.0.2.1:1 send-proxy\n",
            4,
            "'send-proxy' cannot be on a 'server' line of a service in mode tcp",
        ),
        (
            "service av\n  mode tcp\n  bind 127.0.0.1:1\n  server s /run/s.sock\n",
            4,
            "a server of a service in mode tcp needs an IP address",
        ),
        ("backend b\n  server s 127.0.0.1:1 source 0.0.0.0 usesrc clientip\n", 2, "'usesrc' is refused"),
        ("defaults\n  source 0.0.0.0 usesrc clientip\n", 2, "'usesrc' is refused"),
        ("service av\n  mode tcp\n  source 0.0.0.0 usesrc client\n", 3, "'usesrc client' is refused"),
        (
            "service av\n  mode tcp\n  source 0.0.0.0 usesrc 192.0.2.1\n",
            3,
            "'usesrc' of a service is about its clients",
        ),
        ("service av\n  mode http\n  source 0.0.0.0 usesrc clientip\n", 3, "'usesrc clientip' has no effect but in a"),
        (
            "service av\n  mode icap\n  server s 127.0.0.1:1 source * usesrc clientip\n",
            3,
            "'usesrc clientip' has no effect but in a service in mode tcp",
        ),
        ("service av\n  mode icap\n  reqmod av\n", 3, "'av' is not the path of a service"),
        ("service av\n  mode icap\n  on-failure ignore\n", 3, "'ignore' is not what becomes of the message"),
        ("service av\n  mode icap\n  on-failure deny status 200\n", 3, "200"),
        ("service av\n  mode icap\n  on-failure bypass status 503\n", 3, "'status'"),
        ("service av\n  mode icap\n  max-body 0\n", 3, "out of range"),
        ("service av\n  mode icap\n  cookie SRV\n", 3, "'cookie' is not allowed in a 'service' section"),
        ("service av\n  mode icap\n  http-request deny\n", 3, "'http-request' is not allowed in a 'service' section"),
        ("backend b\n  reqmod /av\n", 2, "'reqmod' is not allowed in a 'backend' section"),
        ("backend b\n  mode icap\n", 2, "mode 'icap' is a mode of services"),
        ("service-chain c\n", 1, "the chain 'c' has no services"),
        ("service-chain c\n  inspect av\n", 2, "no service is called 'av'"),
        ("GOODbackend av\n", 5, "the name 'av' is already used by another section"),
        ("GOODservice-chain c\n  inspect av\n  inspect av\n", 7, "the chain 'c' has the service 'av' already"),
        ("GOODservice-chain c\n  inspect av when true\n", 6, "'when' is not expected here"),
        (
            "GOODservice-chain c\n  inspect av if { res.hdr(a) b }\n",
            6,
            "this condition looks at the response, but 'av' inspects requests",
        ),
        (
            "GOODservice-chain c\n  inspect av if { res.hdr(a) b } { path /a }\n",
            6,
            "neither on the request nor on the response",
        ),
        ("GOODservice-chain c\n  inspect av if unknown\n", 6, "unknown"),
        (
            "GOODfrontend f\n  mode http\n  bind :1\n  http-request service-chain c\n",
            8,
            "there is no service-chain 'c'",
        ),
        ("GOODfrontend f\n  bind :1\n  default_backend av\n", 7, "'av' is a service, not a backend"),
        ("GOODfrontend f\n  bind :1\n  use_backend av if TRUE\n", 7, "'av' is a service, not a backend"),
    ] {
        let file = place.file("bad.cfg", &text.replace("GOOD", good));
        let done = run(&[&"-c", &"-f", &file]);
        let said = String::from_utf8_lossy(&done.stderr).into_owned() + &String::from_utf8_lossy(&done.stdout);
        assert!(!done.status.success(), "{text} passes: {said}");
        assert!(said.contains(message) && said.contains(&format!("bad.cfg:{line}")), "{text}: {said}");
    }
}
