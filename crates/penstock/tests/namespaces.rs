//! Network namespaces that this test makes: `bind` and `server` lines enter them, PROXY headers name them, a reload keeps their
//! sockets, and capabilities outlive the change of user. The same is asked of HAProxy 3.0 where it is unpacked.

mod common;

use common::{
    Place, free_port,
    running::{Running, TERM, USR2, children, master, successes, until},
};
use std::{
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::Command,
};

/// Two namespaces, which go with it.
struct Namespaces([String; 2]);

impl Namespaces {
    /// `None` where they cannot be made.
    fn new(name: &str) -> Option<Namespaces> {
        let names = ["a", "b"].map(|which| format!("penstock-{name}-{}-{which}", std::process::id()));
        let namespaces = Namespaces(names);
        let made =
            namespaces.0.iter().all(|name| ip(&["netns", "add", name]) && ip(&["-n", name, "link", "set", "lo", "up"]));
        if !made {
            eprintln!("SKIP: network namespaces cannot be made here: nothing enters one");
        }
        made.then_some(namespaces)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.0 {
            ip(&["netns", "delete", name]);
        }
    }
}

fn ip(arguments: &[&str]) -> bool {
    Command::new("ip").args(arguments).output().is_ok_and(|output| output.status.success())
}

/// The programs that are asked.
fn programs() -> Vec<PathBuf> {
    let haproxy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/haproxy-3.0/haproxy");
    let haproxy = haproxy.exists().then_some(haproxy);
    if haproxy.is_none() {
        eprintln!("SKIP: HAProxy 3.0 is not unpacked: nothing is compared with it");
    }
    haproxy.into_iter().chain([env!("CARGO_BIN_EXE_penstock").into()]).collect()
}

/// The response to what is sent to a port, without waiting for more than it takes to close the connection; empty if nothing
/// listens.
fn answer(port: u16, sent: &[u8]) -> String {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return String::new() };
    stream.write_all(sent).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

/// A request behind a PROXY header that names a network namespace.
fn from(namespace: &str) -> Vec<u8> {
    let field = [&[0x30, 0, namespace.len() as u8], namespace.as_bytes()].concat();
    let addresses = [127, 0, 0, 1, 127, 0, 0, 1, 0x30, 0x39, 0, 80];
    let length = (addresses.len() + field.len()) as u16;
    [b"\r\n\r\n\0\r\nQUIT\n\x21\x11", &length.to_be_bytes()[..], &addresses, &field, GET].concat()
}

/// The last line of a response.
fn body(answer: &str) -> &str {
    answer.rsplit("\r\n").next().unwrap_or_default()
}

const DEFAULTS: &str = "defaults\n  mode http\n  timeout connect 2s\n  timeout client 5s\n  timeout server 5s\n";

#[test]
fn sockets_are_opened_in_the_namespaces_of_lines_and_of_proxy_headers() {
    let Some(namespaces) = Namespaces::new("lines") else { return };
    let [a, b] = &namespaces.0;
    for program in programs() {
        let place = Place::new("namespaces");
        let [inside, to_a, by_header, heard] = [(); 4].map(|()| free_port());
        let config = place.file(
            "ns.cfg",
            &format!(
                "global\n  nbthread 1\nnamespace_list\n  namespace {b}\n{DEFAULTS}\
                 frontend in-a\n  bind 127.0.0.1:{inside} namespace {a}\n  \
                 http-request return status 200 content-type text/plain string \"in a\"\n\
                 listen to-a\n  bind 127.0.0.1:{to_a}\n  server s 127.0.0.1:{inside} namespace {a}\n\
                 listen by-header\n  bind 127.0.0.1:{by_header} accept-proxy\n  retries 0\n  \
                 server s 127.0.0.1:{heard} namespace * send-proxy-v2\n\
                 frontend in-b\n  bind 127.0.0.1:{heard} namespace {b} accept-proxy\n  \
                 http-request return status 200 content-type text/plain lf-string \"in b, told %[fc_pp_tlv(0x30)]\"\n"
            ),
        );
        let running = Running(Command::new(&program).arg("-f").arg(&config).spawn().unwrap());
        until("it serves", || TcpStream::connect(("127.0.0.1", to_a)).is_ok());
        let told = program.display();
        assert_eq!(body(&answer(to_a, GET)), "in a", "{told}");
        assert_eq!(answer(inside, GET), "", "{told}: it listens in the other namespace only");
        assert_eq!(body(&answer(by_header, &from(b))), format!("in b, told {b}"), "{told}");
        for unknown in ["no-such-namespace", ""] {
            assert!(answer(by_header, &from(unknown)).starts_with("HTTP/1.1 503 "), "{told}: {unknown}");
        }
        running.signal(TERM);
        running.end();
    }
}

#[test]
fn a_namespace_that_is_not_there_is_an_error() {
    for program in programs() {
        let place = Place::new("no-namespace");
        for line in
            ["bind 127.0.0.1:1 namespace no-such-one", "bind 127.0.0.1:1\n  server s 127.0.0.1:1 namespace no-such-one"]
        {
            let config = place.file("none.cfg", &format!("{DEFAULTS}listen l\n  {line}\n"));
            let output = Command::new(&program).arg("-c").arg("-f").arg(&config).output().unwrap();
            assert_eq!(output.status.code(), Some(1), "{line}");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(said.contains("namespace 'no-such-one'"), "{said}");
        }
    }
}

/// The capabilities of a process that count, as the system shows them.
fn effective(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(line.trim(), 16).unwrap()
}

#[test]
fn capabilities_outlive_the_change_of_user() {
    let Some(namespaces) = Namespaces::new("rights") else { return };
    let [a, _] = &namespaces.0;
    for program in programs() {
        let place = Place::new("capabilities");
        let [inside, to_a] = [(); 2].map(|()| free_port());
        let config = |rights: &str| {
            format!(
                "global\n  nbthread 1\n  uid 65534\n  gid 65534\n{rights}{DEFAULTS}\
                 frontend in-a\n  bind 127.0.0.1:{inside} namespace {a}\n  \
                 http-request return status 200 content-type text/plain string \"in a\"\n\
                 listen to-a\n  bind 127.0.0.1:{to_a}\n  server s 127.0.0.1:{inside} namespace {a}\n"
            )
        };
        let told = program.display();
        let file = place.file("without.cfg", &config("  setcap cap_net_raw\n"));
        let refused = Command::new(&program).arg("-f").arg(&file).output().unwrap();
        assert_eq!(refused.status.code(), Some(1), "{told}: a user without the right cannot enter namespaces");
        let file = place.file("with.cfg", &config("  setcap cap_net_bind_service,cap_sys_admin\n"));
        let running = Running(Command::new(&program).arg("-f").arg(&file).spawn().unwrap());
        until("it serves", || TcpStream::connect(("127.0.0.1", to_a)).is_ok());
        assert_eq!(body(&answer(to_a, GET)), "in a", "{told}");
        assert_eq!(effective(running.id()), 1 << 10 | 1 << 21, "{told}");
        running.signal(TERM);
        running.end();
    }
}

#[test]
fn a_reload_takes_over_the_sockets_of_another_namespace() {
    let Some(namespaces) = Namespaces::new("reload") else { return };
    let [a, b] = &namespaces.0;
    let place = Place::new("namespaces-reload");
    let port = free_port();
    let config = place.file(
        "ns.cfg",
        &format!(
            "global\n  nbthread 1\n{DEFAULTS}frontend f\n  bind 127.0.0.1:{port}\n  bind 127.0.0.1:{port} namespace {a}\n  \
             bind 127.0.0.1:{port} namespace {b}\n  http-request return status 200 content-type text/plain string served\n"
        ),
    );
    let running = master(&place, &config);
    until("a worker serves", || successes(&place) == 1);
    let sockets = || {
        let worker = children(running.id())[0];
        let listening = |namespace: &str| {
            let table = Command::new("ip").args(["netns", "exec", namespace, "cat", "/proc/net/tcp"]).output().unwrap();
            let table = String::from_utf8(table.stdout).unwrap();
            let own = format!(":{port:04X}");
            let lines =
                table.lines().filter(|line| line.split_whitespace().nth(1).is_some_and(|at| at.ends_with(&own)));
            // The inode: it is another if the socket is another.
            lines.map(|line| line.split_whitespace().nth(9).unwrap().to_owned()).collect::<Vec<_>>()
        };
        (worker, [listening(a), listening(b)])
    };
    let (first, before) = sockets();
    assert!(before.iter().all(|list| list.len() == 1), "{before:?}");
    running.signal(USR2);
    until("another worker serves", || successes(&place) == 2);
    until("the first has ended", || !children(running.id()).contains(&first));
    assert_eq!(sockets().1, before, "the same sockets");
    assert_eq!(body(&answer(port, GET)), "served");
    running.signal(TERM);
    running.end();
}

fn inside(namespace: &str, command: &str) -> String {
    let done = Command::new("ip").args(["netns", "exec", namespace]).args(command.split(' ')).output().unwrap();
    String::from_utf8_lossy(&done.stdout).into_owned()
}

#[test]
fn redirected_clients_are_connected_to_what_they_meant_and_nobody_to_where_he_is() {
    let Some(namespaces) = Namespaces::new("redirected") else { return };
    let [client, router] = &namespaces.0;
    for line in [
        format!("-n {client} link add out type veth peer name in netns {router}"),
        format!("-n {client} addr add 192.0.2.2/24 dev out"),
        format!("-n {client} addr add 2001:db8:1::2/64 dev out nodad"),
        format!("-n {router} addr add 192.0.2.1/24 dev in"),
        format!("-n {router} addr add 2001:db8:1::1/64 dev in nodad"),
        format!("-n {router} addr add 198.51.100.7/32 dev lo"),
        format!("-n {router} addr add 2001:db8:7::7/128 dev lo"),
        format!("-n {client} link set out up"),
        format!("-n {router} link set in up"),
        format!("-n {client} route add default via 192.0.2.1"),
        format!("-n {client} -6 route add default via 2001:db8:1::1"),
    ] {
        assert!(ip(&line.split(' ').collect::<Vec<_>>()), "ip {line}");
    }
    for (filter, port, to) in
        [("iptables", 80, 8080), ("iptables", 81, 8081), ("ip6tables", 80, 8080), ("ip6tables", 81, 8081)]
    {
        let rule = format!("{filter} -w -t nat -A PREROUTING -i in -p tcp --dport {port} -j REDIRECT --to-ports {to}");
        let done = Command::new("ip").args(["netns", "exec", router]).args(rule.split(' ')).output().unwrap();
        if !done.status.success() {
            eprintln!("SKIP: connections cannot be redirected here: {}", String::from_utf8_lossy(&done.stderr));
            return;
        }
    }
    for program in programs() {
        let (place, outside) = (Place::new("redirected"), free_port());
        let config = place.file(
            "ns.cfg",
            &format!(
                "global\n  nbthread 1\n  maxconn 50\n{DEFAULTS}\
                 listen redirected\n  mode tcp\n  bind 0.0.0.0:8080 transparent namespace {router}\n  \
                 bind :::8080 v6only transparent namespace {router}\n  server s 0.0.0.0:0 namespace {router}\n\
                 frontend meant\n  bind 0.0.0.0:8081 namespace {router}\n  bind :::8081 v6only namespace {router}\n  \
                 http-request return status 200 content-type text/plain lf-string \"meant %[dst] %[dst_port]\"\n\
                 frontend origin\n  bind 198.51.100.7:80 namespace {router}\n  bind 2001:db8:7::7:80 namespace {router}\n  \
                 http-request return status 200 content-type text/plain lf-string \"origin %[src]\"\n\
                 frontend here\n  bind 127.0.0.1:{outside}\n  http-request return status 204\n"
            ),
        );
        let running = Running(Command::new(&program).arg("-f").arg(&config).spawn().unwrap());
        until("it serves", || TcpStream::connect(("127.0.0.1", outside)).is_ok());
        let told = program.display();
        let get = |url: &str| inside(client, &format!("curl -s --max-time 5 {url}"));
        assert_eq!(get("http://198.51.100.7/"), "origin 198.51.100.7", "{told}");
        assert_eq!(get("http://203.0.113.9:81/"), "meant 203.0.113.9 81", "{told}");
        // HAProxy asks for the destination of IPv4 alone, and connects to itself as many times as maxconn allows.
        if program == Path::new(env!("CARGO_BIN_EXE_penstock")) {
            assert_eq!(get("http://[2001:db8:7::7]/"), "origin 2001:db8:7::7");
            assert_eq!(get("http://[2001:db8:9::9]:81/"), "meant 2001:db8:9::9 81");
            for url in ["http://192.0.2.1:8080/", "http://[2001:db8:1::1]:8080/"] {
                let said = inside(client, &format!("curl -s --max-time 5 -w %{{errormsg}} {url}"));
                assert!(said.contains("Empty reply") || said.contains("reset"), "{said}");
            }
            assert!(inside(router, "ss -Htn sport = :8080").lines().count() < 5);
            assert_eq!(get("http://198.51.100.7/"), "origin 198.51.100.7");
        }
        running.signal(TERM);
        running.end();
    }
}
