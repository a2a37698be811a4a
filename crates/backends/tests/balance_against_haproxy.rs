//! The same requests through the real HAProxy and through [`Balancer`]: every choice of server must be the same.
//!
//! HAProxy answers from its own unix sockets, so that no port is used; a PROXY header gives each request its source.

#[path = "../../../tests/reference.rs"]
mod reference;

use penstock_backends::balance::{Balancer, Demand, Load, Member, Settings, Subject, hash_of};
use penstock_config::model::{Balance, BalanceKey, HashFunction, HashType};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

struct HaProxy {
    child: Child,
    dir: tempfile::TempDir,
}

impl HaProxy {
    /// `None`, said aloud, where HAProxy is not installed.
    fn start(sections: &str) -> Option<HaProxy> {
        reference::haproxy()?;
        let dir = tempfile::tempdir().expect("a temporary directory");
        let at = dir.path().display();
        let config = format!(
            "global\n nbthread 1\n stats socket {at}/admin level admin\n\
             defaults\n mode http\n timeout client 20s\n timeout server 20s\n timeout connect 5s\n timeout queue 20s\n\
             listen answer\n bind unix@{at}/answer\n http-request return status 200 if !{{ path_beg /hold }}\n\
             {sections}",
        )
        .replace("ANSWER", &format!("unix@{at}/answer"))
        .replace("DIR", &at.to_string());
        std::fs::write(dir.path().join("haproxy.cfg"), config).expect("a writable directory");
        let file = dir.path().join("haproxy.cfg");
        let mut command = Command::new("haproxy");
        let said = dir.path().join("said");
        let stderr = std::fs::File::create(&said).expect("a writable directory");
        let command = command.arg("-db").arg("-f").arg(file).stdout(Stdio::null()).stderr(stderr);
        let child = command.spawn().expect("haproxy starts");
        let mut haproxy = HaProxy { child, dir };
        let deadline = Instant::now() + Duration::from_secs(20);
        while UnixStream::connect(haproxy.socket("admin")).is_err() {
            let said = || std::fs::read_to_string(&said).unwrap_or_default();
            if let Some(end) = haproxy.child.try_wait().expect("a child of ours") {
                panic!("haproxy ended, {end}: {}", said());
            }
            assert!(Instant::now() < deadline, "haproxy does not listen: {}", said());
            std::thread::sleep(Duration::from_millis(10));
        }
        // It answers only when every other socket listens too.
        haproxy.command("show info");
        Some(haproxy)
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, line: &str) -> String {
        let mut socket = UnixStream::connect(self.socket("admin")).expect("the stats socket answers");
        writeln!(socket, "{line}").expect("a command fits the socket");
        let mut answer = String::new();
        socket.read_to_string(&mut answer).expect("an answer in text");
        answer
    }
}

impl Drop for HaProxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One request and its answer's server.
fn ask(socket: &Path, request: &Request) -> String {
    let mut stream = UnixStream::connect(socket).expect("the frontend listens");
    let mut text = format!("PROXY TCP4 {} 127.0.0.1 1000 80\r\n", request.source);
    if request.source.contains(':') {
        text = format!("PROXY TCP6 {} ::1 1000 80\r\n", request.source);
    }
    let body = request.body.as_deref().unwrap_or("");
    let method = if request.body.is_some() { "POST" } else { "GET" };
    let _ = write!(
        text,
        "{method} {} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        request.target,
        request.host,
        body.len()
    );
    stream.write_all(text.as_bytes()).expect("a request fits the socket");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer in text");
    let name = answer.lines().find_map(|line| line.strip_prefix("x-srv: "));
    name.unwrap_or_else(|| panic!("no server for {text:?}: {answer:?}")).to_string()
}

#[derive(Clone, Debug)]
struct Request {
    source: String,
    target: String,
    host: String,
    body: Option<String>,
}

impl Request {
    fn new(n: u32) -> Request {
        let n = n.wrapping_mul(2_654_435_761);
        let [a, b, c, d] = n.to_be_bytes();
        let words = ["img", "static", "api/v1", "a/b/c/d/e", ""];
        let word = words[(n >> 7) as usize % words.len()];
        let hosts = ["example.com", "www.example.com", "a.b.c.d.example.org", "localhost", ".x", "x.", "10.0.0.1"];
        let parameter = match n >> 9 & 7 {
            0 => String::new(),
            1 => "?sid=".into(),
            2 => format!("?a=1&sid={n}&b=2"),
            3 => format!("?xsid={a}&sid={b}"),
            _ => format!("?sid={n:x}"),
        };
        Request {
            source: if n & 16 == 0 {
                format!("{}.{b}.{c}.{d}", 1 + a % 220)
            } else {
                format!("2001:db8:{b:x}:{c:x}::{d:x}:{a:x}")
            },
            target: format!("/{word}/{b}/{c}.html{parameter}"),
            host: if n & 3 == 0 { format!("h{a}.site{b}.example") } else { hosts[n as usize % hosts.len()].into() },
            body: (n & 96 == 0).then(|| format!("x=1&sid={c}{d}")),
        }
    }

    fn subject<'a>(&'a self, balance: &Balance) -> Subject<'a> {
        let header = match &balance.key {
            Some(BalanceKey::Hdr { name, .. }) if name == "host" => Some(self.host.as_bytes()),
            _ => None,
        };
        Subject {
            source: self.source.parse().ok(),
            target: self.target.as_bytes(),
            header,
            body: self.body.as_deref().unwrap_or("").as_bytes(),
            sample: None,
        }
    }
}

/// Weight, `id`, `backup`.
type Servers = &'static [(u32, Option<u32>, bool)];

const EVEN: Servers = &[(1, None, false), (1, None, false), (1, None, false)];
const UNEVEN: Servers = &[(10, None, false), (3, None, false), (7, None, false), (1, None, false), (0, None, false)];
const HEAVY: Servers = &[(256, None, false), (100, Some(77), false), (13, None, false), (255, Some(2), false)];
const BACKUPS: Servers = &[(2, None, false), (3, None, true), (5, None, false), (1, None, true)];
const ONLY_BACKUPS: Servers = &[(4, None, true), (6, None, true), (1, None, true)];
const SETS: [Servers; 5] = [EVEN, UNEVEN, HEAVY, BACKUPS, ONLY_BACKUPS];

fn settings(balance: Balance, hash_type: HashType, allbackups: bool) -> Settings {
    Settings { balance, hash_type, factor: 0, allbackups, seed: 1 }
}

fn members(servers: Servers) -> Vec<Member> {
    let mut next_id = 1;
    let mut members = Vec::new();
    for &(weight, id, backup) in servers {
        while id.is_none() && servers.iter().any(|server| server.1 == Some(next_id)) {
            next_id += 1;
        }
        members.push(Member::new(id.unwrap_or(next_id), weight, backup));
        next_id += 1;
    }
    members
}

/// A pair of sections around one `balance` line; `s0`, `s1`... are its servers.
fn section(name: &str, lines: &str, servers: Servers) -> String {
    let mut text = format!(
        "listen {name}\n bind unix@DIR/{name} accept-proxy\n option http-server-close\n http-response set-header x-srv %s\n {lines}\n"
    );
    for (index, (weight, id, backup)) in servers.iter().enumerate() {
        let id = id.map(|id| format!(" id {id}")).unwrap_or_default();
        let backup = if *backup { " backup" } else { "" };
        let _ = writeln!(text, " server s{index} ANSWER weight {weight}{id}{backup}");
    }
    text
}

fn by_source() -> Balance {
    Balance::by("source", BalanceKey::Source)
}

fn uri(whole: bool, path_only: bool, len: Option<u32>, depth: Option<u32>) -> Balance {
    Balance::by("uri", BalanceKey::Uri { whole, path_only, len, depth })
}

#[test]
fn every_hash_maps_every_key_to_the_same_server() {
    let keys: Vec<(&str, Balance)> = vec![
        ("balance source", by_source()),
        ("balance uri", uri(false, false, None, None)),
        ("balance uri whole", uri(true, false, None, None)),
        ("balance uri path-only len 12", uri(false, true, Some(12), None)),
        ("balance uri depth 2", uri(false, false, None, Some(2))),
        (
            "balance url_param sid",
            Balance::by("url_param", BalanceKey::UrlParam { name: "sid".into(), check_post: None }),
        ),
        (
            "balance url_param sid check_post",
            Balance::by("url_param", BalanceKey::UrlParam { name: "sid".into(), check_post: Some(64) }),
        ),
        ("balance hdr(host)", Balance::by("hdr", BalanceKey::Hdr { name: "host".into(), use_domain_only: false })),
        (
            "balance hdr(host) use_domain_only",
            Balance::by("hdr", BalanceKey::Hdr { name: "host".into(), use_domain_only: true }),
        ),
    ];
    let functions = [
        ("sdbm", HashFunction::Sdbm),
        ("djb2", HashFunction::Djb2),
        ("wt6", HashFunction::Wt6),
        ("crc32", HashFunction::Crc32),
    ];
    let mut cases = Vec::new();
    let mut text = String::new();
    for (index, (line, balance)) in keys.iter().enumerate() {
        for consistent in [false, true] {
            for avalanche in [false, true] {
                for (nth, (word, function)) in functions.iter().enumerate() {
                    let turn = index + nth + usize::from(consistent) * 2 + usize::from(avalanche);
                    let servers = SETS[turn % SETS.len()];
                    let method = if consistent { "consistent" } else { "map-based" };
                    let suffix = if avalanche { " avalanche" } else { "" };
                    let allbackups = turn % 2 == 0;
                    let option = if allbackups { " option allbackups\n" } else { "" };
                    let lines =
                        format!("{line}\n hash-type {method} {word}{suffix}\n{option} option http-buffer-request");
                    let name = format!("c{}", cases.len());
                    text += &section(&name, &lines, servers);
                    let hash_type = HashType { consistent, function: *function, avalanche };
                    cases.push((name, lines, balance.clone(), hash_type, servers, allbackups));
                }
            }
        }
    }
    let Some(haproxy) = HaProxy::start(&text) else { return };
    let mut compared = 0;
    for (name, lines, balance, hash_type, servers, allbackups) in &cases {
        let mut balancer = Balancer::new(&settings(balance.clone(), *hash_type, *allbackups), members(servers));
        for n in 0..40 {
            let request = Request::new(n);
            let theirs = ask(&haproxy.socket(name), &request);
            let hash = balance.key.as_ref().and_then(|key| hash_of(key, hash_type, &request.subject(balance)));
            let ours = balancer.choose(&Demand { hash, ..Demand::default() }, 0);
            let ours = ours.map(|server| format!("s{server}")).unwrap_or_default();
            assert_eq!(ours, theirs, "{lines}\n{servers:?}\n{request:?}");
            compared += 1;
        }
    }
    assert_eq!(compared, 144 * 40);
}

/// What happens between the requests of a sequence.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// That many requests.
    Ask(u32),
    Weight(usize, u32),
    Down(usize),
    Up(usize),
}
use Step::{Ask, Down, Up, Weight};

fn play(lines: &str, balance: &Balance, hash_type: HashType, servers: Servers, allbackups: bool, steps: &[Step]) {
    let option = if allbackups { "\n option allbackups" } else { "" };
    let Some(haproxy) = HaProxy::start(&section("lb", &format!("{lines}{option}"), servers)) else { return };
    let mut balancer = Balancer::new(&settings(balance.clone(), hash_type, allbackups), members(servers));
    let mut weights: Vec<u32> = servers.iter().map(|server| server.0).collect();
    let mut ready = vec![true; servers.len()];
    let mut asked = 0;
    for step in steps {
        match *step {
            Ask(times) => {
                for _ in 0..times {
                    let request = Request::new(asked);
                    let theirs = ask(&haproxy.socket("lb"), &request);
                    let hash = balance.key.as_ref().and_then(|key| hash_of(key, &hash_type, &request.subject(balance)));
                    let ours = balancer.choose(&Demand { hash, ..Demand::default() }, 0);
                    if let Some(server) = ours {
                        // HAProxy has finished a request when it has answered it.
                        balancer.take(server);
                        balancer.release(server);
                    }
                    let ours = ours.map(|server| format!("s{server}")).unwrap_or_default();
                    assert_eq!(ours, theirs, "{lines}, {servers:?}, request {asked} after {step:?} of {steps:?}");
                    asked += 1;
                }
                continue;
            }
            Weight(server, weight) => {
                haproxy.command(&format!("set server lb/s{server} weight {weight}"));
                weights[server] = weight;
            }
            Down(server) => {
                haproxy.command(&format!("disable server lb/s{server}"));
                ready[server] = false;
            }
            Up(server) => {
                haproxy.command(&format!("enable server lb/s{server}"));
                ready[server] = true;
            }
        }
        let (Weight(server, _) | Down(server) | Up(server)) = *step else { continue };
        balancer.update(server, ready[server], weights[server], None);
    }
}

/// Servers 0 to 2 exist in every set.
const TURMOIL: &[Step] =
    &[Ask(37), Down(1), Ask(11), Down(0), Ask(9), Up(1), Ask(23), Up(0), Ask(41), Down(2), Ask(3), Up(2), Ask(58)];

const REWEIGHED: &[Step] = &[
    Ask(13),
    Weight(0, 5),
    Ask(29),
    Weight(1, 40),
    Ask(17),
    Weight(2, 0),
    Ask(31),
    Weight(2, 9),
    Ask(50),
    Weight(0, 1),
    Weight(1, 1),
    Ask(60),
];

#[test]
fn roundrobin_gives_the_same_sequence() {
    for (nth, servers) in SETS.into_iter().enumerate() {
        for steps in [TURMOIL, REWEIGHED] {
            play(
                "balance roundrobin",
                &Balance::plain("roundrobin"),
                HashType::default(),
                servers,
                nth % 2 == 0,
                steps,
            );
        }
    }
}

#[test]
fn static_rr_gives_the_same_sequence() {
    for servers in SETS {
        play("balance static-rr", &Balance::plain("static-rr"), HashType::default(), servers, true, TURMOIL);
    }
}

#[test]
fn leastconn_of_idle_servers_and_first_give_the_same_sequence() {
    for servers in SETS {
        play("balance leastconn", &Balance::plain("leastconn"), HashType::default(), servers, true, TURMOIL);
        play("balance leastconn", &Balance::plain("leastconn"), HashType::default(), servers, false, REWEIGHED);
        play("balance first", &Balance::plain("first"), HashType::default(), servers, false, TURMOIL);
    }
}

#[test]
fn hashes_follow_servers_that_come_and_go() {
    let consistent = HashType { consistent: true, function: HashFunction::Sdbm, avalanche: true };
    let parameter = Balance::by("url_param", BalanceKey::UrlParam { name: "sid".into(), check_post: None });
    for servers in SETS {
        let lines = "balance url_param sid\n hash-type consistent sdbm avalanche";
        play(lines, &parameter, consistent, servers, false, TURMOIL);
        play("balance source", &by_source(), HashType::default(), servers, true, TURMOIL);
    }
    play("balance source\n hash-type consistent sdbm avalanche", &by_source(), consistent, EVEN, true, REWEIGHED);
}

/// Connections that stay open, by `open` (a number to remember it by) and `close`.
#[test]
fn leastconn_and_random_loads_follow_open_connections() {
    let mut text = String::new();
    let cases: [(&str, Servers, Option<u32>); 4] =
        [("even", EVEN, None), ("uneven", UNEVEN, None), ("heavy", HEAVY, None), ("limited", UNEVEN, Some(3))];
    for (name, servers, maxconn) in cases {
        let limit = maxconn.map(|n| format!(" default-server maxconn {n}\n")).unwrap_or_default();
        text += &section(name, &format!("balance leastconn\n{limit}"), servers);
    }
    let Some(haproxy) = HaProxy::start(&text) else { return };
    for (name, servers, maxconn) in cases {
        let mut list = members(servers);
        list.iter_mut()
            .for_each(|member| (member.maxconn, member.minconn) = (maxconn.unwrap_or(0), maxconn.unwrap_or(0)));
        let mut balancer = Balancer::new(&settings(Balance::plain("leastconn"), HashType::default(), false), list);
        let load = Load { sessions: 1, fullconn: 1 };
        let mut open: Vec<(UnixStream, usize)> = Vec::new();
        let mut random = 12345_u32;
        for step in 0..60 {
            random = random.wrapping_mul(1_103_515_245).wrapping_add(12345);
            let full = maxconn.is_some_and(|n| open.len() >= 4 * n as usize);
            if (random >> 16).is_multiple_of(3) && !open.is_empty() || full {
                let (stream, server) = open.remove((random >> 20) as usize % open.len());
                drop(stream);
                balancer.release(server);
                wait_for_load(&haproxy, name, server, balancer.members()[server].served);
                continue;
            }
            let ours = balancer.choose(&Demand { load, ..Demand::default() }, 0).expect("a server has room");
            balancer.take(ours);
            let mut stream = UnixStream::connect(haproxy.socket(name)).expect("the frontend listens");
            let request =
                "PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\nPOST /hold HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n";
            stream.write_all(request.as_bytes()).expect("a request fits the socket");
            open.push((stream, ours));
            let (ours, want) = (format!("s{ours}"), balancer.members()[ours].served);
            let seen = wait_for_load(&haproxy, name, ours[1..].parse().expect("a number"), want);
            assert!(seen, "{name}, step {step}: not on {ours}:\n{}", haproxy.command("show stat -1 4 -1"));
        }
    }
}

/// Waits until HAProxy reports this number of sessions of `server`; false if it never does.
fn wait_for_load(haproxy: &HaProxy, proxy: &str, server: usize, want: u32) -> bool {
    let deadline = Instant::now() + Duration::from_secs(2);
    let line = format!("{proxy},s{server},");
    while Instant::now() < deadline {
        let stat = haproxy.command("show stat");
        let now = stat.lines().find_map(|l| l.strip_prefix(&line)).and_then(|l| l.split(',').nth(2)?.parse().ok());
        if now == Some(want) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    false
}
