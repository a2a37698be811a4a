//! Services in mode tcp: a device that forwards packets between two network namespaces, and drops some.

use super::{
    CHUNKED, Front, Got, bytes,
    fake::{field, head, serve},
};
use crate::common::{
    Place, free_port,
    running::{Running, until},
};
use std::{
    io::{BufReader, Read, Write},
    net::{Ipv4Addr, TcpStream},
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

/// What the device drops.
const PATTERN: &[u8] = b"EICAR-LIKE-PATTERN";

/// The namespace in which connections to the device begin, that of the device, and the one in which they end. They go with it.
struct Device([String; 3]);

/// The address of the service's listeners, in the last namespace.
const BEHIND: &str = "192.0.2.130";

impl Device {
    /// `None` where namespaces cannot be made.
    fn new() -> Option<Device> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let device =
            Device(["a", "d", "b"].map(|which| format!("penstock-packets-{}-{number}-{which}", std::process::id())));
        let [a, d, b] = &device.0;
        let lines = [
            format!("netns add {a}"),
            format!("netns add {d}"),
            format!("netns add {b}"),
            format!("-n {a} link add out type veth peer name left netns {d}"),
            format!("-n {d} link add right type veth peer name in netns {b}"),
            format!("-n {a} addr add 192.0.2.2/25 dev out"),
            format!("-n {d} addr add 192.0.2.1/25 dev left"),
            format!("-n {d} addr add 192.0.2.129/25 dev right"),
            format!("-n {b} addr add {BEHIND}/25 dev in"),
            format!("-n {a} link set out up"),
            format!("-n {d} link set left up"),
            format!("-n {d} link set right up"),
            format!("-n {b} link set in up"),
            format!("-n {a} route add default via 192.0.2.1"),
            format!("-n {b} route add default via 192.0.2.129"),
        ];
        let made = lines.iter().all(|line| ran("ip", &line.split(' ').collect::<Vec<_>>()));
        if !made {
            eprintln!("SKIP: network namespaces cannot be made here: no packet passes a device");
            return None;
        }
        device.forward(true);
        let pattern = String::from_utf8_lossy(PATTERN);
        let drops = ["-A", "FORWARD", "-m", "string", "--algo", "bm", "--string", &pattern, "-j", "DROP"];
        if !device.filters(&drops) {
            eprintln!("SKIP: packets cannot be dropped by what is in them here (iptables -m string)");
            return None;
        }
        Some(device)
    }
    /// Whether it forwards anything.
    fn forward(&self, does: bool) {
        let text = format!("echo {} >/proc/sys/net/ipv4/ip_forward", u8::from(does));
        assert!(ran("ip", &["netns", "exec", &self.0[1], "sh", "-c", &text]));
    }
    /// Has packets of these clients, and to an address that nobody has, find their way through the device and back.
    fn route(&self, clients: &str, address: &str) {
        let [a, d, b] = &self.0;
        for line in [
            format!("-n {a} link set lo up"),
            format!("-n {a} rule add iif out lookup 100"),
            format!("-n {a} route add local {clients} dev lo table 100"),
            format!("-n {d} route add {clients} via 192.0.2.2"),
            format!("-n {d} route add {address} via {BEHIND}"),
            format!("-n {b} link set lo up"),
            format!("-n {b} rule add iif in lookup 100"),
            format!("-n {b} route add local {address} dev lo table 100"),
        ] {
            assert!(ran("ip", &line.split(' ').collect::<Vec<_>>()), "ip {line}");
        }
    }
    fn filters(&self, words: &[&str]) -> bool {
        ran("ip", &[&["netns", "exec", &self.0[1], "iptables"], words].concat())
    }
    /// How many bytes it has forwarded.
    fn forwarded(&self) -> u64 {
        let done = Command::new("ip").args(["netns", "exec", &self.0[1], "cat", "/proc/net/dev"]).output();
        let said = String::from_utf8(done.unwrap().stdout).unwrap();
        let line = said.lines().find_map(|line| line.trim().strip_prefix("left:")).unwrap();
        // Eight columns are about what was received, and then as many about what was sent. Bytes are the first.
        let column = |at: usize| line.split_whitespace().nth(at).unwrap().parse::<u64>().unwrap();
        column(0) + column(8)
    }
    /// A service whose packets pass it, and a chain of that alone.
    fn section(&self, name: &str, port: u16, more: &str) -> String {
        let [a, _, b] = &self.0;
        format!(
            "service {name}\n  mode tcp\n  bind {BEHIND}:{port} namespace {b}\n  timeout connect 1s\n{more}  \
             server d {BEHIND}:{port} namespace {a}\nservice-chain {name}\n  inspect {name}\n"
        )
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        for name in &self.0 {
            ran("ip", &["netns", "delete", name]);
        }
    }
}

fn ran(program: &str, words: &[&str]) -> bool {
    let output = Command::new(program).args(words).output();
    if let Ok(output) = &output
        && !output.status.success()
    {
        eprintln!("{program} {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim_end());
    }
    output.is_ok_and(|output| output.status.success())
}

/// The bodies that the server has got.
type Seen = Arc<Mutex<Vec<Vec<u8>>>>;

/// A server that sends back the body it is sent, or as many bytes as the query says; and what is dropped, if the path says `leak`.
fn origin(seen: Seen) -> u16 {
    serve(move |stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut stream = stream;
        while let Some(lines) = head(&mut reader) {
            let mut body = Vec::new();
            if field(&lines, "transfer-encoding").is_some() {
                if super::fake::chunks(&mut reader, &mut body).is_none() {
                    return;
                }
            } else if let Some(length) = field(&lines, "content-length") {
                body.resize(length.parse().unwrap(), 0);
                if reader.read_exact(&mut body).is_err() {
                    return;
                }
            }
            seen.lock().unwrap().push(body.clone());
            if let Some((_, size)) = lines[0].split(' ').nth(1).and_then(|target| target.split_once("?bytes=")) {
                body = bytes(size.parse().unwrap());
            }
            if lines[0].contains("/leak") {
                body = PATTERN.to_vec();
            }
            let told = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            if stream.write_all(&[told.as_bytes(), &body].concat()).is_err() {
                return;
            }
        }
    })
}

/// A frontend in mode tcp for this chain, with TLS, whose bytes go to the server.
fn raw(port: u16, chain: &str, origin: u16, certificate: &std::path::Path) -> String {
    format!(
        "frontend raw-{chain}\n  mode tcp\n  bind 127.0.0.1:{port} ssl crt {}\n  tcp-request content service-chain {chain}\n  \
         log-format \"raw %ts chain=%[inspection_chain] said=%[inspection_verdicts] to=%s\"\n  default_backend raw-{chain}\n\
         backend raw-{chain}\n  mode tcp\n  timeout server 2s\n  server r 127.0.0.1:{origin}\n",
        certificate.display()
    )
}

/// Asks over TLS; what curl says of the end, and what it got.
fn ask_raw(place: &Place, port: u16, path: &str, body: Option<&[u8]>) -> (bool, Vec<u8>) {
    let into = place.0.join("raw-got");
    let _ = std::fs::remove_file(&into);
    let mut command = Command::new("curl");
    command.args(["-s", "-k", "--http1.1", "--max-time", "15", "-H", "Expect:", "-o"]).arg(&into);
    if let Some(body) = body {
        let from = place.0.join("raw-body");
        std::fs::write(&from, body).unwrap();
        command.arg("--data-binary").arg(format!("@{}", from.display()));
    }
    let done = command.arg(format!("https://127.0.0.1:{port}{path}")).output().expect("curl runs");
    (done.status.success(), std::fs::read(into).unwrap_or_default())
}

#[test]
fn what_passes_a_device_of_packets_is_the_same_behind_it() {
    let Some(device) = Device::new() else { return };
    let place = Place::new("packets-clean-tls");
    let (origin, port) = (origin(Seen::default()), free_port());
    let sections = device.section("ips", 8082, "  timeout server 5s\n")
        + &device.section("second", 8083, "  timeout server 5s\n")
        + "service-chain both\n  inspect ips\n  inspect second\n"
        + &raw(port, "both", origin, &place.certificate());
    let front = Front::start_with("packets-clean", 2, "", &sections, &["ips", "both"], origin);
    let (mut least, before) = (0, device.forwarded());
    for (chain, said) in [("ips", "said=ips.request=passed:"), ("both", "said=ips.request=passed:")] {
        for (turn, size) in [0, 1, 16_383, 16_384, 100_003, 1_000_000].into_iter().enumerate() {
            let (body, http2) = (bytes(size), turn % 2 == 1);
            for more in [&[][..], CHUNKED] {
                let got = front.ask(http2, &format!("/{chain}/"), Some(&body), more);
                assert!(got.status == 200 && got.body == body, "{chain}, {size} bytes: {}", got.status);
                let line = front.logged("chain=");
                assert!(line.contains(said) && line.ends_with("to=o"), "{line}");
                assert_eq!(line.matches("=passed:").count(), if chain == "both" { 2 } else { 1 }, "{line}");
            }
            let got = front.ask(!http2, &format!("/{chain}/?bytes={size}"), None, &[]);
            assert!(got.status == 200 && got.body == body, "{chain}, {size} bytes downloaded: {}", got.status);
            front.logged("chain=");
            least += 5 * size as u64;
        }
    }
    for size in [0, 1, 16_384, 100_003, 1_000_000] {
        let body = bytes(size);
        assert_eq!(ask_raw(&place, port, "/raw", Some(&body)), (true, body), "{size} bytes after TLS");
        let line = front.logged("raw ");
        assert!(line.contains("raw -- chain=both said=ips.connection=passed:"), "{line}");
        assert!(line.contains(",second.connection=passed:") && line.ends_with("to=r"), "{line}");
        least += 2 * size as u64;
    }
    let forwarded = device.forwarded() - before;
    assert!(forwarded > least, "{forwarded} bytes passed the device, and {least} were sent");
}

#[test]
fn what_a_device_drops_reaches_nobody() {
    let Some(device) = Device::new() else { return };
    let place = Place::new("packets-drops-tls");
    let seen = Seen::default();
    let origin = origin(seen.clone());
    let (mut sections, mut ports) = (String::new(), Vec::new());
    for (name, at, more) in [("deny", 8082, ""), ("bypass", 8083, "  on-failure bypass\n")] {
        sections += &device.section(name, at, &format!("  timeout server 1500ms\n{more}"));
        let port = free_port();
        sections += &raw(port, name, origin, &place.certificate());
        ports.push((name, port));
    }
    let front = Front::start_with("packets-drops", 2, "", &sections, &["deny", "bypass"], origin);
    for (chain, port) in ports {
        for http2 in [false, true] {
            let got = front.ask(http2, &format!("/{chain}/"), Some(PATTERN), &[]);
            assert_eq!(got.status, 503, "{chain}: {:?}", String::from_utf8_lossy(&got.body));
            let line = front.logged("chain=");
            assert!(line.contains(&format!("said={chain}.request=denied(timeout):")), "{line}");
            let got = front.ask(http2, &format!("/{chain}/leak"), None, &[]);
            assert!(got.status == 503 && !got.body.ends_with(PATTERN), "{chain}: {}", got.status);
            front.logged("=denied(timeout):");
        }
        assert!(seen.lock().unwrap().iter().all(|body| body != PATTERN), "{chain}");
        // As bytes: the connection ends, in both directions.
        let (ended_well, got) = ask_raw(&place, port, "/", Some(PATTERN));
        assert!(!ended_well && got.is_empty(), "{chain}");
        let line = front.logged("raw ");
        assert!(line.contains(&format!("raw sD chain={chain} said={chain}.connection=passed:")), "{line}");
        let (ended_well, got) = ask_raw(&place, port, "/leak", None);
        assert!(!ended_well && !got.ends_with(PATTERN), "{chain}");
        let line = front.logged("raw ");
        assert!(line.contains("raw sD "), "{line}");
        assert!(seen.lock().unwrap().iter().all(|body| body != PATTERN), "{chain}");
        let body = bytes(1000);
        assert_eq!(front.ask(true, &format!("/{chain}/"), Some(&body), &[]), Got { status: 200, body });
        front.logged("chain=");
    }
}

#[test]
fn a_device_of_packets_that_is_down_is_passed_by_or_not() {
    let Some(device) = Device::new() else { return };
    let place = Place::new("packets-down-tls");
    let origin = origin(Seen::default());
    let (mut sections, mut ports) = (String::new(), Vec::new());
    for (name, at, more) in [("deny", 8082, ""), ("bypass", 8083, "  on-failure bypass\n")] {
        sections += &device.section(name, at, more);
        let port = free_port();
        sections += &raw(port, name, origin, &place.certificate());
        ports.push((name, port));
    }
    let front = Front::start_with("packets-down", 2, "", &sections, &["deny", "bypass"], origin);
    for forwards in [true, false, true] {
        device.forward(forwards);
        for (chain, port) in &ports {
            let body = bytes(30_000);
            let (status, said) = match (forwards, *chain) {
                (true, _) => (200, "passed:"),
                (false, "deny") => (503, "denied(unreachable):"),
                (false, _) => (200, "bypassed(unreachable):"),
            };
            for http2 in [false, true] {
                let got = front.ask(http2, &format!("/{chain}/"), Some(&body), &[]);
                assert!(got.status == status && (status != 200 || got.body == body), "{chain}: {}", got.status);
                let line = front.logged("chain=");
                assert!(line.contains(&format!("said={chain}.request={said}")), "{line}");
            }
            let (ended_well, got) = ask_raw(&place, *port, "/", Some(&body));
            assert_eq!((ended_well, got == body), (status == 200, status == 200), "{chain}");
            let line = front.logged("raw ");
            assert!(line.contains(&format!("said={chain}.connection={said}")), "{line}");
            assert!(line.contains(if status == 200 { "raw -- " } else { "raw PR " }), "{line}");
        }
    }
}

/// A proxy with this device, its port for bytes after TLS, and where its certificate is.
fn lenient(name: &str, device: &Device) -> (Front, u16, Place) {
    let place = Place::new(&format!("{name}-tls"));
    let (origin, port) = (origin(Seen::default()), free_port());
    let sections = device.section("ips", 8082, "  timeout server 5s\n  on-failure bypass\n")
        + &raw(port, "ips", origin, &place.certificate());
    (Front::start_with(name, 2, "", &sections, &["ips"], origin), port, place)
}

#[test]
fn what_a_device_resets_is_refused() {
    let Some(device) = Device::new() else { return };
    let (front, port, place) = lenient("packets-reset", &device);
    let rejects =
        ["-I", "FORWARD", "-p", "tcp", "-m", "string", "--algo", "bm", "--string", "RESET-THIS", "-j", "REJECT"];
    assert!(device.filters(&[&rejects[..], &["--reject-with", "tcp-reset"]].concat()));
    assert_eq!(front.ask(false, "/ips/", Some(b"RESET-THIS"), &[]).status, 503);
    let line = front.logged("chain=");
    assert!(
        line.contains("said=ips.request=denied(closed):") || line.contains("said=ips.request=denied(timeout):"),
        "{line}"
    );
    assert!(!ask_raw(&place, port, "/", Some(b"RESET-THIS")).0);
    front.logged("raw ");
}

#[test]
fn what_a_device_translates_is_refused() {
    let Some(device) = Device::new() else { return };
    let (front, port, place) = lenient("packets-translated", &device);
    // With other addresses nobody can tell whose it is.
    assert!(device.filters(&["-t", "nat", "-A", "POSTROUTING", "-j", "MASQUERADE"]));
    assert_eq!(front.ask(false, "/ips/", Some(b"x"), &[]).status, 503);
    front.logged("none with its addresses was sent to a device");
    front.logged("said=ips.request=denied(closed):");
    // Of bytes nothing is sent before it has come back.
    assert_eq!(ask_raw(&place, port, "/", Some(b"some")), (true, b"some".to_vec()));
    front.logged("said=ips.connection=bypassed(");
}

#[test]
fn connections_at_a_device_of_packets_are_counted_where_they_are() {
    let Some(device) = Device::new() else { return };
    let place = Place::new("packets-counted-tls");
    let (origin, port, socket) = (origin(Seen::default()), free_port(), place.0.join("sock"));
    let sections =
        device.section("ips", 8082, "  timeout server 5s\n") + &raw(port, "ips", origin, &place.certificate());
    let global = format!("  stats socket {}\n", socket.display());
    let front = Front::start_with("packets-counted", 2, &global, &sections, &["ips"], origin);
    for _ in 0..3 {
        assert_eq!(front.ask(true, "/ips/", Some(b"some"), &[]).status, 200);
    }
    for _ in 0..2 {
        assert!(ask_raw(&place, port, "/", Some(b"some")).0);
        front.logged("raw ");
    }
    let mut asked = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    asked.write_all(b"show stat\n").unwrap();
    let mut stat = String::new();
    asked.read_to_string(&mut stat).unwrap();
    let names: Vec<&str> = stat.lines().next().unwrap().trim_start_matches("# ").split(',').collect();
    for (row, name, expected) in [
        ("web,FRONTEND,", "req_tot", "3"),
        ("raw-ips,FRONTEND,", "stot", "2"),
        ("raw-ips,BACKEND,", "stot", "2"),
        ("raw-ips,r,", "stot", "2"),
        ("ips,FRONTEND,", "stot", "5"),
        ("ips,FRONTEND,", "ereq", "0"),
        ("ips,FRONTEND,", "dreq", "0"),
        ("ips,BACKEND,", "stot", "5"),
        ("ips,BACKEND,", "hrsp_2xx", "3"),
        ("ips,d,", "stot", "5"),
        ("origin,BACKEND,", "stot", "3"),
    ] {
        let line = stat.lines().find(|line| line.starts_with(row)).unwrap_or_else(|| panic!("{row}: {stat}"));
        let at = names.iter().position(|column| *column == name).unwrap();
        assert_eq!(line.split(',').nth(at).unwrap(), expected, "{row}{name}");
    }
}

#[test]
fn a_device_of_packets_is_not_down_because_ports_are_short_here() {
    let Some(device) = Device::new() else { return };
    let place = Place::new("packets-ports-tls");
    let (origin, port, socket) = (origin(Seen::default()), free_port(), place.0.join("sock"));
    let checked =
        "  timeout server 5s\n  default-server check inter 60s observe layer4 error-limit 2 on-error mark-down\n";
    let sections = device.section("ips", 8082, checked) + &raw(port, "ips", origin, &place.certificate());
    let global = format!("  stats socket {} level admin\n", socket.display());
    let front = Front::start_with("packets-ports", 2, &global, &sections, &["ips"], origin);
    let narrow = "echo 40000 40003 >/proc/sys/net/ipv4/ip_local_port_range";
    assert!(ran("ip", &["netns", "exec", &device.0[0], "sh", "-c", narrow]));
    // Connections that have ended keep their ports for a minute.
    let mut failed = 0;
    for _ in 0..20 {
        failed += u32::from(!ask_raw(&place, port, "/", Some(b"some")).0);
        if failed == 3 {
            break;
        }
    }
    assert_eq!(failed, 3, "there are only four ports");
    front.logged("Connect() failed for backend ips: ");
    let mut asked = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    asked.write_all(b"show servers state ips\n").unwrap();
    let mut state = String::new();
    asked.read_to_string(&mut state).unwrap();
    let line = state.lines().find(|line| line.contains(" ips ")).unwrap();
    assert_eq!(line.split(' ').nth(5), Some("2"), "it is up: {line}");
}

#[test]
fn a_reload_loses_nothing_that_is_at_a_device_of_packets() {
    let Some(device) = Device::new() else { return };
    let place = Place::new("packets-reload");
    let (port, echo) =
        (free_port(), serve(|mut stream| drop(std::io::copy(&mut stream.try_clone().unwrap(), &mut stream))));
    let text = format!(
        "global\n  nbthread 2\ndefaults\n  mode tcp\n  timeout client 20s\n  timeout server 20s\n  timeout connect 2s\n{}\
         frontend f\n  bind 127.0.0.1:{port}\n  tcp-request content service-chain ips\n  default_backend b\nbackend b\n  server e 127.0.0.1:{echo}\n",
        device.section("ips", 8082, "")
    );
    let config = place.file("test.cfg", &text);
    let running: Running = crate::common::running::master(&place, &config);
    until("a worker serves", || crate::common::running::successes(&place) == 1);
    let says = |stream: &mut TcpStream, what: &[u8]| {
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(what).unwrap();
        let mut got = vec![0; what.len()];
        stream.read_exact(&mut got).unwrap();
        assert_eq!(got, what);
    };
    let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    let mut before = connect();
    says(&mut before, b"before");
    running.signal(crate::common::running::USR2);
    until("another worker serves", || crate::common::running::successes(&place) == 2);
    says(&mut before, b"and after");
    let since = Instant::now();
    let forwarded = device.forwarded();
    says(&mut connect(), &bytes(50_000));
    assert!(device.forwarded() - forwarded > 100_000, "it passes the device, {:?} later", since.elapsed());
    says(&mut before, b"at the end");
}

/// A service in mode tcp whose device is none: what is sent to it goes to that port.
fn without_device(name: &str, back: u16, to: u16) -> String {
    format!(
        "service {name}\n  mode tcp\n  bind 127.0.0.1:{back}\n  timeout connect 1s\n  server d 127.0.0.1:{to}\n\
         service-chain {name}\n  inspect {name}\n"
    )
}

#[test]
fn whoever_comes_without_having_been_sent_is_refused() {
    let back = free_port();
    let front = Front::start_with(
        "packets-strangers",
        2,
        "",
        &without_device("ips", back, free_port()),
        &[],
        origin(Seen::default()),
    );
    for said in [&b""[..], b"GET /past HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, back)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(said).unwrap();
        let mut got = Vec::new();
        let end = stream.read_to_end(&mut got);
        assert!(end.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset) && got.is_empty());
        let line = front.logged("none with its addresses was sent to a device");
        assert!(line.contains(" ips/"), "{line}");
    }
    // Health checks say nothing, and nothing is said of them.
    drop(TcpStream::connect((Ipv4Addr::LOCALHOST, back)).unwrap());
    assert_eq!(front.ask(false, "/", None, &[]).status, 200);
    let line = front.logged("");
    assert!(line.contains("chain=- "), "{line}");
}

#[test]
fn a_connection_that_becomes_one_of_http_does_not_pass_by_a_device() {
    let (port, origin) = (free_port(), origin(Seen::default()));
    let sections = without_device("ips", free_port(), free_port())
        + &format!(
            "frontend switched\n  mode tcp\n  bind 127.0.0.1:{port}\n  tcp-request inspect-delay 2s\n  \
             tcp-request content service-chain ips\n  tcp-request content accept if HTTP\n  \
             log-format \"raw %ts chain=%[inspection_chain] said=%[inspection_verdicts] to=%s\"\n  default_backend origin\n"
        );
    let front = Front::start_with("packets-switched", 2, "", &sections, &[], origin);
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    assert_eq!(String::from_utf8_lossy(&got), "");
    let line = front.logged("raw ");
    assert!(line.contains("raw PR chain=ips said=ips.connection=denied(unsuitable):0 to=<NOSRV>"), "{line}");
}

#[test]
fn a_check_finds_a_device_that_forwards_nothing() {
    let Some(device) = Device::new() else { return };
    let section =
        device.section("ips", 8082, "  default-server check inter 300ms fall 1 rise 1\n  timeout check 300ms\n");
    let front = Front::start_with("packets-checked", 2, "", &section, &["ips"], origin(Seen::default()));
    let status = || front.ask(false, "/ips/", None, &[]).status;
    until("it is checked", || status() == 200);
    device.forward(false);
    until("the check has failed", || {
        let since = Instant::now();
        // Nothing is connected to: that would take a second.
        status() == 503 && since.elapsed() < Duration::from_millis(900)
    });
    device.forward(true);
    until("the check has succeeded", || status() == 200);
}

/// What is answered to a client of this address, as a proxy in front says.
fn ask_from(port: u16, client: &str, request: &str) -> String {
    let family = if client.contains(':') { "TCP6" } else { "TCP4" };
    let to = if client.contains(':') { "2001:db8::1" } else { "192.0.2.200" };
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    write!(stream, "PROXY {family} {client} {to} 4000 80\r\n{request}").unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn a_device_of_packets_sees_the_address_of_the_client() {
    let Some(device) = Device::new() else { return };
    // Nobody has that address: a 'bind' line without 'transparent' could not be there.
    let nobody = "198.51.100.9";
    device.route("203.0.113.0/24", nobody);
    assert!(device.filters(&["-I", "FORWARD", "-s", "203.0.113.66", "-j", "DROP"]));
    let [a, _, b] = &device.0;
    let (origin, http, raw) = (origin(Seen::default()), free_port(), free_port());
    let sections = format!(
        "service all\n  mode tcp\n  bind {nobody}:8082 transparent namespace {b}\n  timeout connect 1s\n  source 0.0.0.0 usesrc clientip\n  \
         server d {nobody}:8082 namespace {a} check\nservice-chain all\n  inspect all\n\
         service one\n  mode tcp\n  bind {BEHIND}:8083 namespace {b}\n  timeout connect 1s\n  \
         server d {BEHIND}:8083 namespace {a} source 0.0.0.0 usesrc clientip\nservice-chain one\n  inspect one\n\
         frontend raw\n  mode tcp\n  bind 127.0.0.1:{raw} accept-proxy\n  tcp-request content service-chain all\n  \
         log-format \"raw %ts said=%[inspection_verdicts]\"\n  default_backend raw\nbackend raw\n  mode tcp\n  server r 127.0.0.1:{origin}\n\
         @frontend\n  bind 127.0.0.1:{http} accept-proxy\n"
    );
    let front = Front::start_with("packets-clients", 2, "", &sections, &["all", "one"], origin);
    for chain in ["all", "one"] {
        let request = format!("GET /{chain}/?bytes=0 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        for (client, status, said) in [
            ("203.0.113.7", "200", "passed:"),
            ("203.0.113.66", "503", "denied(unreachable):"),
            ("203.0.113.8", "200", "passed:"),
            ("203.0.113.7", "200", "passed:"),
            // It has no address of the kind that the device forwards.
            ("2001:db8::7", "200", "passed:"),
        ] {
            let answer = ask_from(http, client, &request);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{chain}, {client}: {answer}");
            let line = front.logged("chain=");
            assert!(line.contains(&format!("said={chain}.request={said}")), "{client}: {line}");
        }
    }
    let request = "GET /?bytes=0 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    for (client, is_served) in [("203.0.113.66", false), ("203.0.113.7", true)] {
        let answer = ask_from(raw, client, request);
        assert_eq!(answer.starts_with("HTTP/1.1 200 "), is_served, "{client}: {answer}");
        let said = if is_served { "said=all.connection=passed:" } else { "said=all.connection=denied(unreachable):" };
        assert!(front.logged("raw ").contains(said));
    }
}
