//! Services in mode http: devices that forward requests to us again, and what becomes of requests if they do not.

use super::{
    CHUNKED, Front, Got, bytes,
    fake::{self, field, head, serve},
};
use crate::common::{Place, free_port, running::until};
use std::{
    io::{BufReader, Read, Write},
    net::{Ipv4Addr, TcpStream},
    sync::{Arc, Mutex},
    time::Duration,
};

/// What devices do that they should not, with what the log says of it.
const FAULTS: &[(&str, &str)] = &[
    ("never", "timeout"),
    ("vanish", "closed"),
    ("beginning", "closed"),
    ("garbage", "invalid"),
    ("smuggle", "invalid"),
    ("gateway", "invalid"),
    ("forged", "invalid"),
];

/// What they do once the request has come back.
const LATE_FAULTS: &[(&str, &str)] = &[("gone", "closed"), ("silent", "timeout"), ("lost", "invalid")];

/// The answers that devices got on the return listener and kept for themselves.
pub type Kept = Arc<Mutex<Vec<Vec<u8>>>>;

/// What devices do that are asked as proxies, as well.
const FAULTS_OF_PROXIES: &[(&str, &str)] = &[("unable", "invalid"), ("elsewhere", "not-returned")];

/// How devices are asked.
const KINDS: &[&str] = &["", "  device explicit-proxy\n"];

/// A device that forwards requests to that port, unless their path's second part says otherwise.
pub fn device(back: u16, kept: Kept) -> u16 {
    serve(move |stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut stream = stream;
        while let Some(lines) = head(&mut reader) {
            let target = lines[0].split(' ').nth(1).unwrap();
            let path =
                target.split_once("://").map_or(target, |(_, rest)| &rest[rest.find('/').unwrap_or(rest.len())..]);
            let what = path.split('/').nth(2).unwrap_or_default().to_owned();
            if what == "never" {
                std::thread::sleep(Duration::from_secs(3));
                return;
            }
            // What is closed with bytes in it that were not read is reset, and the answer lost.
            let mut body = Vec::new();
            if field(&lines, "transfer-encoding").is_some() {
                if fake::chunks(&mut reader, &mut body).is_none() {
                    return;
                }
            } else if let Some(length) = field(&lines, "content-length") {
                body.resize(length.parse().unwrap(), 0);
                if reader.read_exact(&mut body).is_err() {
                    return;
                }
            }
            let answer = match what.as_str() {
                "vanish" => return,
                "beginning" => return drop(stream.write_all(b"HTTP/1.1 200 O")),
                "garbage" => return drop(stream.write_all(b"\0\x7fgarbage\r\n\r\n")),
                "smuggle" => {
                    return drop(stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length : 11\r\n\r\nonly a part"));
                }
                "gateway" => b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 11\r\n\r\nonly a part".to_vec(),
                "unable" => b"HTTP/1.1 503 Unable\r\nContent-Length: 11\r\n\r\nonly a part".to_vec(),
                "elsewhere" => b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nonly a part".to_vec(),
                "tells" => {
                    let told = lines.join("\n");
                    format!("HTTP/1.1 403 Told\r\nContent-Length: {}\r\n\r\n{told}", told.len()).into_bytes()
                }
                "denies" => b"HTTP/1.1 403 Forbidden\r\nContent-Length: 7\r\n\r\nblocked".to_vec(),
                _ => {
                    let first = forward(back, &lines, &body, what == "forged");
                    match what.as_str() {
                        "gone" => return,
                        "silent" => {
                            std::thread::sleep(Duration::from_secs(3));
                            return;
                        }
                        "lost" => b"HTTP/1.1 504 Late\r\nContent-Length: 11\r\n\r\nonly a part".to_vec(),
                        "replay" => {
                            kept.lock().unwrap().push(forward(back, &lines, &body, false));
                            first
                        }
                        "swaps" => b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nleak".to_vec(),
                        "replaces" => b"HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\nleak".to_vec(),
                        _ => first,
                    }
                }
            };
            if stream.write_all(&answer).is_err() {
                return;
            }
        }
    })
}

/// Sends a request on; all of the answer.
fn forward(back: u16, lines: &[String], body: &[u8], is_forged: bool) -> Vec<u8> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, back)).unwrap();
    let mut text = format!("{}\r\n", lines[0]);
    for line in &lines[1..] {
        let name = line.split(':').next().unwrap().to_lowercase();
        match name.as_str() {
            "connection" | "transfer-encoding" | "content-length" => {}
            "penstock-return" if is_forged => text += &format!("penstock-return: {}\r\n", "0".repeat(32)),
            _ => text += &format!("{line}\r\n"),
        }
    }
    text += &format!("Content-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    stream.write_all(&[text.as_bytes(), body].concat()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer
}

/// A service in mode http, its devices at that port, and a chain of it alone.
pub fn section(name: &str, back: u16, at: u16, more: &str) -> String {
    format!(
        "service {name}\n  mode http\n  bind 127.0.0.1:{back}\n{more}  server d 127.0.0.1:{at}\n\
         service-chain {name}\n  inspect {name}\n"
    )
}

/// A service for each fate, each with a device and with these lines.
fn both(lines: &str) -> String {
    [("deny", ""), ("bypass", "  on-failure bypass\n  max-body 100k\n")]
        .map(|(name, more)| {
            let back = free_port();
            section(name, back, device(back, Kept::default()), &format!("{lines}{more}"))
        })
        .concat()
}

#[test]
fn what_a_failed_device_did_not_pass_on_is_denied_or_goes_on_whole() {
    KINDS.iter().for_each(|kind| fail(kind));
}

fn fail(kind: &str) {
    let lines = format!("  timeout server 700ms\n{kind}");
    let front = Front::start_with("inline-faults", 2, "", &both(&lines), &["deny", "bypass"], fake::origin());
    let of_kind = if kind.is_empty() { &[] } else { FAULTS_OF_PROXIES };
    for chain in ["deny", "bypass"] {
        for (fault, why) in FAULTS.iter().chain(LATE_FAULTS).chain(of_kind) {
            let is_late = LATE_FAULTS.iter().any(|(late, _)| late == fault) || *fault == "elsewhere";
            let is_denied = chain == "deny" || is_late;
            // Those that never answer are waited for each time.
            let sizes: &[usize] = if matches!(*fault, "never" | "silent") { &[40_000] } else { &[0, 1, 31, 90_000] };
            for (&size, http2) in sizes.iter().zip([false, true, false, true]) {
                let (body, path) = (bytes(size), format!("/{chain}/{fault}/"));
                let got = front.ask(http2, &path, Some(&body), if size == 31 { CHUNKED } else { &[] });
                match is_denied {
                    true => assert!(
                        got.status == 503 && !got.body.starts_with(b"only"),
                        "{path}, {size} bytes: {} {:?}",
                        got.status,
                        String::from_utf8_lossy(&got.body)
                    ),
                    false => assert!(got == Got { status: 200, body }, "{path}, {size} bytes: {}", got.status),
                }
                let line = front.logged("chain=");
                let fate = if is_denied { "denied" } else { "bypassed" };
                let to = if is_denied { "to=<NOSRV>" } else { "to=o" };
                assert!(line.contains(&format!("said={chain}.request={fate}({why}):")) && line.ends_with(to), "{line}");
            }
        }
        // Longer than what is kept: it passes, and is denied if some of it was sent.
        let body = bytes(300_000);
        let got = front.ask(false, &format!("/{chain}/"), Some(&body), &[]);
        assert!(got == Got { status: 200, body: body.clone() }, "{chain}: {}", got.status);
        assert_eq!(front.ask(true, &format!("/{chain}/vanish/"), Some(&body), &[]).status, 503);
        assert!(front.logged("=denied(closed)").contains(&format!("chain={chain} ")));
    }
}

#[test]
fn a_device_that_is_not_there_is_passed_by_or_not() {
    let (absent, back) = (free_port(), free_port());
    let sections = section("deny", back, absent, "") + &section("bypass", free_port(), absent, "  on-failure bypass\n");
    let front = Front::start_with("inline-absent", 2, "", &sections, &["deny", "bypass"], fake::origin());
    let body = bytes(2_000_000);
    for (chain, expected, said) in [("deny", 503, "denied(unreachable):"), ("bypass", 200, "bypassed(unreachable):")] {
        for http2 in [false, true] {
            let got = front.ask(http2, &format!("/{chain}/"), Some(&body), &[]);
            assert!(got.status == expected && (expected != 200 || got.body == body), "{chain}: {}", got.status);
            let line = front.logged("chain=");
            assert!(line.contains(&format!("said={chain}.request={said}")), "{line}");
        }
    }
}

#[test]
fn bodies_are_the_same_behind_a_device() {
    for kind in KINDS {
        let front = Front::start_with("inline-bodies", 2, "", &both(kind), &["deny", "bypass"], fake::origin());
        for chain in ["deny", "bypass"] {
            for (turn, size) in [0, 1, 16_383, 16_384, 16_385, 100_003, 1_000_000].into_iter().enumerate() {
                let (body, http2) = (bytes(size), turn % 2 == 1);
                for more in [&[][..], CHUNKED] {
                    let got = front.ask(http2, &format!("/{chain}/"), Some(&body), more);
                    assert!(got.status == 200 && got.body == body, "{chain}, {size} bytes: {}", got.status);
                    let line = front.logged("chain=");
                    assert!(line.contains(": 200 -- chain="), "{line}");
                    assert!(
                        line.contains(&format!("said={chain}.request=passed:")) && line.ends_with("to=o"),
                        "{line}"
                    );
                    assert_eq!(line.matches("request=").count(), 1, "one line and one verdict: {line}");
                }
                let got = front.ask(!http2, &format!("/{chain}/?bytes={size}"), None, &[]);
                assert!(got.status == 200 && got.body == body, "{chain}, {size} bytes downloaded: {}", got.status);
                front.logged("chain=");
            }
            for http2 in [false, true] {
                assert_eq!(front.ask(http2, &format!("/{chain}/?bytes=77"), None, &["-I"]).status, 200, "HEAD");
                assert!(front.logged("chain=").contains("=passed:"));
            }
        }
    }
}

#[test]
fn what_a_device_says_itself_is_what_the_client_gets() {
    for kind in KINDS {
        let front = Front::start_with("inline-denies", 2, "", &both(kind), &["deny", "bypass"], fake::origin());
        for chain in ["deny", "bypass"] {
            for http2 in [false, true] {
                let got = front.ask(http2, &format!("/{chain}/denies/"), None, &[]);
                assert_eq!(got, Got { status: 403, body: b"blocked".to_vec() });
                let line = front.logged("chain=");
                let said = format!("said={chain}.request=blocked:");
                assert!(line.contains("403 PR") && line.contains(&said) && line.ends_with("to=<NOSRV>"), "{line}");
                // One that has seen the response, and keeps it.
                let got = front.ask(http2, &format!("/{chain}/replaces/"), None, &[]);
                assert_eq!(got, Got { status: 403, body: b"leak".to_vec() });
                let line = front.logged("chain=");
                let said = format!(",{chain}.response=blocked:");
                assert!(line.contains("403 PH") && line.contains(&said) && line.ends_with("to=o"), "{line}");
                // Or only its body.
                let got = front.ask(http2, &format!("/{chain}/swaps/"), None, &[]);
                assert_eq!(got, Got { status: 200, body: b"leak".to_vec() });
                let line = front.logged("chain=");
                assert!(line.contains(&format!(",{chain}.response=modified:")) && line.ends_with("to=o"), "{line}");
            }
        }
    }
}

#[test]
fn a_request_comes_back_once_and_only_with_its_token() {
    let (kept, back) = (Kept::default(), free_port());
    let sections = section("waf", back, device(back, kept.clone()), "");
    let front = Front::start_with("inline-tokens", 2, "", &sections, &["waf"], fake::origin());
    assert_eq!(front.ask(false, "/waf/replay/", Some(b"once"), &[]), Got { status: 200, body: b"once".to_vec() });
    let second = kept.lock().unwrap().pop().unwrap();
    assert!(second.starts_with(b"HTTP/1.1 403 "), "{}", String::from_utf8_lossy(&second));
    assert!(front.logged("chain=").contains("said=waf.request=passed:"));
    // A client cannot choose it.
    let forged = format!("penstock-return: {}", "a".repeat(32));
    assert_eq!(front.ask(false, "/waf/", Some(b"it"), &["-H", &forged]).status, 200);
    assert!(front.logged("chain=").contains("said=waf.request=passed:"));
    // Whoever speaks to the address is refused, and that is logged.
    for fields in ["", "penstock-return: x\r\n", &format!("{forged}\r\n"), &format!("{forged}\r\n{forged}\r\n")] {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, back)).unwrap();
        write!(stream, "GET /past HTTP/1.1\r\nHost: a\r\n{fields}Connection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        let line = front.logged("/past");
        assert!(line.contains(" waf waf/<NOSRV> ") && line.contains(" 403 ") && line.contains(" PR--"), "{line}");
    }
}

#[test]
fn rules_see_the_client_and_run_once() {
    let back = free_port();
    let sections = section("waf", back, device(back, Kept::default()), "")
        + "@frontend\n  option forwardfor\n  http-request set-var(txn.at) src\n  http-request add-header x-seen \"%[src]:%[src_port]\"\n  \
           http-response add-header x-rules \"%[srv_name] %[var(txn.at)] %[res.hdr_cnt(x-rules)]\"\n  \
           http-after-response add-header x-after \"%[res.hdr_cnt(x-after)]\"\n";
    let front = Front::start_with("inline-rules", 2, "", &sections, &["waf"], fake::telling_origin());
    for http2 in [false, true] {
        let heads = front.place.0.join("heads");
        let got = front.ask(http2, "/waf/", None, &["-D", heads.to_str().unwrap()]);
        let (told, heads) =
            (String::from_utf8_lossy(&got.body).to_lowercase(), std::fs::read_to_string(&heads).unwrap());
        assert_eq!(told.matches("x-forwarded-for: 127.0.0.1").count(), 1, "{told}");
        assert_eq!(told.matches("x-seen: 127.0.0.1:").count(), 1, "{told}");
        assert!(!told.contains("penstock-return"), "{told}");
        let heads = heads.to_lowercase();
        assert_eq!(heads.matches("x-rules: o 127.0.0.1 0\r").count(), 1, "{heads}");
        assert_eq!(heads.matches("x-after: 0\r").count(), 1, "{heads}");
        assert!(!heads.contains("penstock-return"), "{heads}");
    }
}

#[test]
fn a_cookie_keeps_the_client_with_its_server_behind_a_device() {
    let (back, origin) = (free_port(), fake::telling_origin());
    let sections = section("waf", back, device(back, Kept::default()), "")
        + &format!(
            "backend sticky\n  cookie SRV insert indirect\n  server one 127.0.0.1:{origin} cookie c1\n  server two 127.0.0.1:{origin} cookie c2\n\
             @frontend\n  use_backend sticky if TRUE\n"
        );
    let front = Front::start_with("inline-cookie", 2, "", &sections, &["waf"], origin);
    let heads = front.place.0.join("heads");
    for (cookie, to) in [("c1", "one"), ("c2", "two"), ("c2", "two"), ("c1", "one")] {
        let field = format!("Cookie: SRV={cookie}");
        let got = front.ask(true, "/waf/", None, &["-H", &field, "-D", heads.to_str().unwrap()]);
        assert_eq!(got.status, 200);
        assert!(!String::from_utf8_lossy(&got.body).contains("SRV="), "'indirect': {got:?}");
        assert!(!std::fs::read_to_string(&heads).unwrap().contains("SRV="), "it has the cookie");
        let line = front.logged("chain=");
        assert!(line.ends_with(&format!("to={to}")), "{line}");
    }
    front.ask(false, "/waf/", None, &["-D", heads.to_str().unwrap()]);
    let (line, heads) = (front.logged("chain="), std::fs::read_to_string(&heads).unwrap());
    let set = if line.ends_with("to=one") { "SRV=c1" } else { "SRV=c2" };
    assert_eq!(heads.matches("SRV=").count(), 1, "{heads}");
    assert!(heads.contains(set), "{line} {heads}");
}

#[test]
fn an_error_page_from_behind_a_device_is_the_client_s() {
    let (back, absent) = (free_port(), free_port());
    let sections = section("waf", back, device(back, Kept::default()), "  on-failure bypass\n  timeout server 9s\n")
        + "@frontend\n  http-response set-status 299\n";
    let front = Front::start_with("inline-page", 2, "", &sections, &["waf"], absent);
    for http2 in [false, true] {
        let got = front.ask(http2, "/waf/", None, &[]);
        assert!(got.status == 503 && got.body.starts_with(b"<html>"), "{}", got.status);
        let line = front.logged("chain=");
        assert!(
            line.contains("503 SC") && line.contains("said=waf.request=passed:") && line.ends_with("to=o"),
            "{line}"
        );
    }
}

#[test]
fn services_before_and_behind_a_device_inspect_once_each() {
    let icap = fake::service(Arc::default());
    let (back, next) = (free_port(), free_port());
    let sections = super::section("early", "echo", &["reqmod", "respmod"], icap, "")
        + &super::section("late", "echo", &["reqmod", "respmod"], icap, "")
        + &section("waf", back, device(back, Kept::default()), "")
        + &section("second", next, device(next, Kept::default()), "  on-failure bypass\n")
        + "service-chain all\n  inspect early\n  inspect waf\n  inspect second\n  inspect late\n";
    let front = Front::start_with("inline-chain", 2, "", &sections, &["all"], fake::origin());
    for (size, http2) in [(0, false), (10, true), (200_000, false), (200_000, true)] {
        let body = bytes(size);
        let got = front.ask(http2, "/all/", Some(&body), &[]);
        assert!(got == Got { status: 200, body }, "{size} bytes: {}", got.status);
        let line = front.logged("chain=");
        let said = line.split("said=").nth(1).unwrap().split(' ').next().unwrap();
        let said: Vec<_> = said.split(',').map(|verdict| verdict.split(':').next().unwrap()).collect();
        let expected = [
            "early.request=modified",
            "waf.request=passed",
            "second.request=passed",
            "late.request=modified",
            "late.response=modified",
            "early.response=modified",
        ];
        assert_eq!(said, expected, "{line}");
    }
}

#[test]
fn a_kept_connection_carries_one_client_s_requests_after_another() {
    let back = free_port();
    let front = Front::start_with(
        "inline-kept",
        2,
        "",
        &section("waf", back, device(back, Kept::default()), ""),
        &["waf"],
        fake::origin(),
    );
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, front.http1)).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    for turn in 0..20 {
        // Some of them are refused in between, and the connection stays.
        let (path, status) = if turn % 5 == 4 { ("/waf/gone/", "503") } else { ("/waf/", "200") };
        let body = bytes(turn * 997);
        write!(stream, "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len()).unwrap();
        stream.write_all(&body).unwrap();
        let lines = head(&mut reader).unwrap();
        assert!(lines[0].contains(status), "{turn}: {}", lines[0]);
        let mut got = vec![0; field(&lines, "content-length").unwrap().parse().unwrap()];
        reader.read_exact(&mut got).unwrap();
        assert!(status != "200" || got == body, "{turn}");
    }
}

#[test]
fn requests_at_devices_are_counted_where_they_are() {
    let place = Place::new("inline-counted-socket");
    let socket = place.0.join("sock");
    let back = free_port();
    let sections = section("waf", back, device(back, Kept::default()), "");
    let global = format!("  stats socket {}\n", socket.display());
    let front = Front::start_with("inline-counted", 2, &global, &sections, &["waf"], fake::origin());
    for _ in 0..3 {
        assert_eq!(front.ask(true, "/waf/", Some(b"some"), &[]).status, 200);
    }
    assert_eq!(front.ask(true, "/waf/denies/", None, &[]).status, 403);
    let mut asked = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    asked.write_all(b"show stat\n").unwrap();
    let mut stat = String::new();
    asked.read_to_string(&mut stat).unwrap();
    let names: Vec<&str> = stat.lines().next().unwrap().trim_start_matches("# ").split(',').collect();
    let of = |row: &str, name: &str| {
        let line = stat.lines().find(|line| line.starts_with(row)).unwrap_or_else(|| panic!("{row}: {stat}"));
        let at = names.iter().position(|column| *column == name).unwrap();
        line.split(',').nth(at).unwrap().to_owned()
    };
    for (row, name, expected) in [
        ("web,FRONTEND,", "req_tot", "4"),
        ("web,FRONTEND,", "dreq", "1"),
        ("waf,FRONTEND,", "req_tot", "3"),
        ("waf,FRONTEND,", "dreq", "0"),
        ("waf,BACKEND,", "hrsp_2xx", "3"),
        ("waf,BACKEND,", "hrsp_4xx", "1"),
        ("waf,d,", "stot", "4"),
        ("origin,BACKEND,", "stot", "3"),
        ("origin,BACKEND,", "hrsp_2xx", "3"),
        ("origin,o,", "hrsp_2xx", "3"),
        ("origin,o,", "stot", "3"),
    ] {
        assert_eq!(of(row, name), expected, "{row}{name}");
    }
    until("nothing is at the device any more", || of("waf,d,", "scur") == "0");
}

#[test]
fn clients_that_fill_maxconn_do_not_keep_devices_from_coming_back() {
    let back = free_port();
    let sections = section("waf", back, device(back, Kept::default()), "  on-failure bypass\n");
    let sections = sections + "@frontend\n  timeout client 1m\n";
    let front = Front::start_with("inline-full", 2, "  maxconn 20\n", &sections, &["waf"], fake::origin());
    let ask = |client: &mut (TcpStream, BufReader<TcpStream>), path: &str| {
        write!(client.0, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        head(&mut client.1).map(|lines| lines[0].clone())
    };
    let clients = || {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, front.http1)).unwrap();
        (stream.try_clone().unwrap(), BufReader::new(stream))
    };
    let mut all: Vec<_> = std::iter::repeat_with(clients).take(20).collect();
    for client in &mut all {
        assert_eq!(ask(client, "/plain/").unwrap(), "HTTP/1.1 200 OK");
    }
    let mut one_more = clients();
    one_more.0.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert_eq!(ask(&mut one_more, "/plain/"), None, "there is no place");
    for turn in 0..1000 {
        let client = &mut all[turn % 20];
        assert_eq!(ask(client, "/waf/").unwrap(), "HTTP/1.1 200 OK");
        let line = front.logged("chain=waf");
        assert!(line.contains("said=waf.request=passed:"), "{turn}: {line}");
    }
}

#[test]
fn a_head_as_long_as_it_may_be_passes_a_device() {
    let back = free_port();
    let sections = section("waf", back, device(back, Kept::default()), "");
    let front = Front::start_with("inline-long", 2, "", &sections, &["waf"], fake::origin());
    // 'tune.bufsize' less 'tune.maxrewrite'.
    for (path, length, is_served) in
        [("/waf/", 15_360, true), ("/other/", 15_360, true), ("/waf/", 15_361, false), ("/other/", 15_361, false)]
    {
        let start = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX: ");
        let padding = "x".repeat(length - start.len() - 4);
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, front.http1)).unwrap();
        write!(stream, "{start}{padding}\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(answer.starts_with("HTTP/1.1 200 "), is_served, "{path}, {length}: {answer}");
    }
}
