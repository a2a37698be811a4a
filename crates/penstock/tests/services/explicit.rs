//! Devices that are proxies by themselves (`device explicit-proxy`), and Squid as one.

use super::{
    CHUNKED, Front, Got, bytes, fake,
    inline::{Kept, device, section},
    real::{Daemon, daemon},
};
use crate::common::{
    Place, free_port,
    running::until,
    study::{is_installed, skip},
};
use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    os::unix::fs::PermissionsExt,
    process::Command,
};

/// Sends a head on a connection of its own; the lines of the answer, body included.
fn say(port: u16, head: &str) -> String {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_proxy_is_asked_with_a_url_and_the_server_with_what_the_client_asked() {
    let (back, plain, tls) = (free_port(), free_port(), free_port());
    let at = device(back, Kept::default());
    let certificate = Place::new("explicit-forms-certificate");
    let sections = section("p", back, at, "  device explicit-proxy\n")
        + &section("h", plain, device(plain, Kept::default()), "  device explicit-proxy scheme http\n")
        + &format!(
            "@frontend\n  bind 127.0.0.1:{tls} ssl crt {} alpn h2,http/1.1\n  http-request service-chain p if METH_OPTIONS\n",
            certificate.certificate().display()
        );
    let front = Front::start_with("explicit-forms", 2, "", &sections, &["p", "h"], fake::telling_origin());
    let host = "Host: h.example:81\r\nProxy-Connection: keep-alive\r\nConnection: close\r\n\r\n";
    for (start, asked, served) in [
        ("GET /p/WHAT/?b=c HTTP/1.1", "GET http://h.example:81/p/WHAT/?b=c HTTP/1.1", "GET /p/WHAT/?b=c HTTP/1.1"),
        (
            "GET http://h.example:81/p/WHAT/ HTTP/1.1",
            "GET http://h.example:81/p/WHAT/ HTTP/1.1",
            "GET http://h.example:81/p/WHAT/ HTTP/1.1",
        ),
        (
            "GET https://h.example:81/h/WHAT/ HTTP/1.1",
            "GET http://h.example:81/h/WHAT/ HTTP/1.1",
            "GET https://h.example:81/h/WHAT/ HTTP/1.1",
        ),
    ] {
        for (what, expected) in [("tells", asked), ("other", served)] {
            let told = say(front.http1, &format!("{}\r\n{host}", start.replace("WHAT", what)));
            let told = told.split("\r\n\r\n").nth(1).unwrap().to_lowercase();
            assert!(told.starts_with(&expected.replace("WHAT", what).to_lowercase()), "{start}: {told}");
            assert!(told.contains("host: h.example:81") && !told.contains("proxy-connection"), "{told}");
            assert_eq!(told.contains("penstock-return: "), what == "tells", "{told}");
        }
    }
    let told = say(front.http1, &format!("OPTIONS * HTTP/1.1\r\n{host}"));
    assert!(told.contains("OPTIONS * HTTP/1.1") && told.contains("200 OK"), "{told}");
    // The scheme is that of the client's connection, over either version of HTTP, unless the service says another.
    for version in ["--http1.1", "--http2"] {
        for (chain, scheme) in [("p", "https"), ("h", "http")] {
            for (what, expected) in [
                ("tells", format!("GET {scheme}://127.0.0.1:{tls}/{chain}/tells/ HTTP/1.1\n")),
                ("other", format!("GET /{chain}/other/ HTTP/1.1\n")),
            ] {
                let url = format!("https://127.0.0.1:{tls}/{chain}/{what}/");
                let done = Command::new("curl").args(["-sk", version, &url]).output().unwrap();
                let told = String::from_utf8(done.stdout).unwrap();
                assert!(told.starts_with(&expected), "{version} {url}: {told}");
            }
        }
    }
}

#[test]
fn what_no_proxy_can_be_asked_does_not_pass_it() {
    let mut sections = String::new();
    for (chain, more) in [("deny", ""), ("bypass", "  on-failure bypass\n")] {
        let back = free_port();
        sections += &section(chain, back, device(back, Kept::default()), &format!("  device explicit-proxy\n{more}"));
    }
    let front = Front::start_with("explicit-unsuitable", 2, "", &sections, &["deny", "bypass"], fake::telling_origin());
    for (chain, status, said) in [("deny", " 503 ", "denied"), ("bypass", " 200 ", "bypassed")] {
        for start in [format!("GET /{chain}/ HTTP/1.0\r\n"), format!("GET ftp://h/{chain}/ HTTP/1.0\r\nHost: h\r\n")] {
            let answer = say(front.http1, &format!("{start}\r\n"));
            assert!(answer.lines().next().unwrap().contains(status), "{start}: {answer}");
            let line = front.logged("chain=");
            assert!(line.contains(&format!("said={chain}.request={said}(unsuitable):")), "{line}");
        }
    }
    // A client does not have the device say that it has failed.
    let fields =
        "Host: h\r\nCache-Control: no-cache\r\nCache-Control: max-age=1, Only-If-Cached\r\nConnection: close\r\n\r\n";
    let told = say(front.http1, &format!("GET /bypass/tells/ HTTP/1.1\r\n{fields}")).to_lowercase();
    assert!(told.contains("cache-control: no-cache") && !told.contains("only-if-cached"), "{told}");
}

/// Squid as a device, for as long as this lives.
struct Squid {
    port: u16,
    place: Place,
    _running: Daemon,
}

impl Squid {
    /// One with these lines, which sends requests on to `back` if they say so.
    fn start(name: &str, lines: &str) -> Squid {
        let place = Place::new(name);
        let (port, here) = (free_port(), place.0.display().to_string());
        // It writes there as the user that Debian's package makes.
        std::fs::set_permissions(&place.0, PermissionsExt::from_mode(0o777)).unwrap();
        let file = place.file(
            "squid.conf",
            &format!(
                "http_port 127.0.0.1:{port}\npid_filename none\ncache_log {here}/cache.log\naccess_log stdio:{here}/access.log\n\
                 logfile_rotate 0\ncoredump_dir {here}\nvisible_hostname device\ncache deny all\ncache_mem 8 MB\nmemory_pools off\n\
                 max_filedescriptors 1024\npinger_enable off\nshutdown_lifetime 0 seconds\nvia off\nforwarded_for transparent\n\
                 acl forbidden urlpath_regex /forbidden\nhttp_access deny forbidden\nhttp_access allow localhost\nhttp_access deny all\n{lines}"
            ),
        );
        let running = daemon(&place, "squid", &["-N", "-f", file.to_str().unwrap()]);
        until("Squid listens", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
        Squid { port, place, _running: running }
    }
    /// One that has us as its next proxy.
    fn before(name: &str, back: u16) -> Squid {
        let peer = format!("cache_peer 127.0.0.1 parent {back} 0 no-query no-digest no-netdb-exchange default\n");
        Squid::start(name, &(peer + "never_direct allow all\n"))
    }
    fn log(&self) -> String {
        std::fs::read_to_string(self.place.0.join("access.log")).unwrap_or_default()
    }
}

/// Waits until Squid has noticed that its next proxy is there.
fn settle(front: &Front) {
    until("Squid reaches its next proxy", || {
        let status = front.ask(false, "/waf/", None, &[]).status;
        front.logged("chain=");
        status == 200
    });
}

fn is_missing(what: &str) -> bool {
    if !is_installed("squid") {
        skip(&format!("{what}: squid is not installed (squid-openssl)"));
    }
    !is_installed("squid")
}

fn service(back: u16, at: u16, more: &str) -> String {
    section("waf", back, at, &format!("  device explicit-proxy\n{more}"))
}

#[test]
fn requests_pass_through_squid_unchanged() {
    if is_missing("requests through Squid") {
        return;
    }
    let (back, tls) = (free_port(), free_port());
    let squid = Squid::before("explicit-squid", back);
    let certificate = squid.place.certificate().display().to_string();
    let sections = service(back, squid.port, "")
        + &format!("@frontend\n  bind 127.0.0.1:{tls} ssl crt {certificate} alpn h2,http/1.1\n");
    let front = Front::start_with("explicit-squid-front", 2, "", &sections, &["waf"], fake::origin());
    settle(&front);
    for (turn, size) in [0, 1, 16_384, 100_003, 1_500_000, 0, 77, 4096].into_iter().enumerate() {
        let (body, http2) = (bytes(size), turn % 2 == 1);
        for more in [&[][..], CHUNKED] {
            let got = front.ask(http2, "/waf/", Some(&body), more);
            assert!(got == Got { status: 200, body: body.clone() }, "{size} bytes: {}", got.status);
            let line = front.logged("chain=");
            assert!(line.contains("said=waf.request=passed:") && line.ends_with("to=o"), "{line}");
        }
        let got = front.ask(!http2, &format!("/waf/?bytes={size}"), None, &[]);
        assert!(got == Got { status: 200, body }, "{size} bytes downloaded: {}", got.status);
        assert_eq!(front.ask(http2, &format!("/waf/?bytes={size}"), None, &["-I"]).status, 200);
    }
    // With 'Expect', the client sends its body once it is told to.
    let body = bytes(50_000);
    assert_eq!(front.ask(false, "/waf/", Some(&body), &["-H", "Expect: 100-continue"]), Got { status: 200, body });
    for http2 in [false, true] {
        let got = front.ask(http2, "/waf/forbidden", None, &[]);
        assert!(got.status == 403 && String::from_utf8_lossy(&got.body).contains("Access Denied"), "its own page");
        let line = front.logged("=blocked:");
        assert!(line.contains(" 403 PR") && line.ends_with("to=<NOSRV>"), "{line}");
    }
    // What was decrypted is asked for by its whole URL, and not by a tunnel.
    for version in ["--http1.1", "--http2"] {
        let url = format!("https://127.0.0.1:{tls}/waf/?bytes=9");
        let done = Command::new("curl").args(["-sk", version, &url]).output().unwrap();
        assert_eq!(done.stdout, bytes(9), "{version}");
        assert!(front.logged("chain=").contains("said=waf.request=passed:"));
    }
    // It does not log queries.
    let asked = format!(" GET https://127.0.0.1:{tls}/waf/? ");
    until("Squid has logged both", || squid.log().matches(&asked).count() == 2);
    assert!(!squid.log().contains("CONNECT"), "{}", squid.log());
}

#[test]
fn the_server_gets_what_the_client_asked_for_behind_squid() {
    if is_missing("fields behind Squid") {
        return;
    }
    let back = free_port();
    let squid = Squid::before("explicit-fields", back);
    let front = Front::start("explicit-fields-front", &service(back, squid.port, ""), &["waf"], fake::telling_origin());
    settle(&front);
    let fields = "Proxy-Connection: keep-alive\r\nX-Own: 1\r\nConnection: close\r\n\r\n";
    for (start, expected) in [
        ("GET /waf/a%20b?c=%2f HTTP/1.1", "GET /waf/a%20b?c=%2f HTTP/1.1"),
        ("GET http://h.example/waf/ HTTP/1.1", "GET http://h.example/waf/ HTTP/1.1"),
    ] {
        let told = say(front.http1, &format!("{start}\r\nHost: h.example\r\n{fields}"));
        let told = told.split("\r\n\r\n").nth(1).unwrap().to_lowercase();
        let mut lines: Vec<&str> = told.lines().collect();
        assert_eq!(lines.remove(0), expected.to_lowercase());
        lines.sort_unstable();
        // The last one is of Squid's own.
        assert_eq!(lines, ["cache-control: max-age=259200", "host: h.example", "x-own: 1"], "{told}");
    }
}

#[test]
fn a_proxy_that_goes_to_servers_itself_is_noticed() {
    if is_missing("Squid that goes to servers itself") {
        return;
    }
    let squid = Squid::start("explicit-direct", "always_direct allow all\n");
    for (name, more) in [("deny", ""), ("bypass", "  on-failure bypass\n")] {
        let origin = fake::origin();
        let sections = service(free_port(), squid.port, more);
        let front = Front::start(&format!("explicit-direct-{name}"), &sections, &["waf"], origin);
        for body in [None, Some(&b"some"[..])] {
            let host = format!("Host: 127.0.0.1:{origin}");
            assert_eq!(front.ask(false, "/waf/?bytes=9", body, &["-H", &host]).status, 503, "{name}");
            let line = front.logged("chain=");
            assert!(line.contains("503 PR") && line.contains("said=waf.request=denied(not-returned):"), "{line}");
        }
    }
    assert_eq!(squid.log().matches("/200").count(), 4, "it had a response each time: {}", squid.log());
}

#[test]
fn no_proxy_opens_a_tunnel_past_the_chain() {
    let back = free_port();
    let at = device(back, Kept::default());
    let front = Front::start("explicit-tunnel", &service(back, at, ""), &["waf"], fake::origin());
    let answer = say(back, "CONNECT h.example:443 HTTP/1.1\r\nHost: h.example:443\r\nConnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert!(front.logged("CONNECT").contains(" waf waf/<NOSRV> "));
}
