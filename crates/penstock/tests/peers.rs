//! Peers on the real binary: what one process counts, the others learn. The other peer is a real HAProxy, another
//! penstock, the process before a reload, or one that breaks the protocol.

mod common;
#[path = "../../../tests/reference.rs"]
mod reference;

use common::{
    Place, free_port, penstock,
    running::{Running, TERM, USR1, USR2, children, until},
};
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Program {
    Penstock,
    HAProxy,
}

/// Ports and files of two peers, `a` and `b`.
struct Pair {
    place: Place,
    peers: [u16; 2],
    webs: [u16; 2],
    origins: [u16; 2],
    /// A line for the global section.
    global: &'static str,
}

/// Tables with every type of key and of data.
const TABLES: &str = "
backend all
  stick-table type ip size 1k expire 10m peers both store server_id,gpt0,gpc0,gpc0_rate(1h),conn_cnt,conn_rate(1h),\
    conn_cur,sess_cnt,sess_rate(1h),http_req_cnt,http_req_rate(1h),http_err_cnt,http_err_rate(1h),bytes_in_cnt,\
    bytes_in_rate(1h),bytes_out_cnt,bytes_out_rate(1h),gpc1,gpc1_rate(1h),server_key,http_fail_cnt,http_fail_rate(1h)
backend arrays
  stick-table type string len 10 size 1k expire 10m peers both store gpt(2),gpc(3),gpc_rate(2,1h)
backend strings
  stick-table type string size 1k peers both store gpc0
backend sixes
  stick-table type ipv6 size 1k expire 10m peers both store gpc0
backend blocks
  stick-table type binary len 5 size 1k expire 10m peers both store gpc0
backend numbers
  stick-table type integer size 1k expire 10m peers both store gpc0
";

const NAMES: [&str; 8] = ["all", "arrays", "strings", "sixes", "blocks", "numbers", "both/own", "app"];

impl Pair {
    fn new(name: &str) -> Pair {
        Pair {
            place: Place::new(name),
            peers: [free_port(), free_port()],
            webs: [free_port(), free_port()],
            origins: [free_port(), free_port()],
            global: "",
        }
    }

    fn socket(&self, me: usize) -> PathBuf {
        self.place.0.join(format!("{me}.sock"))
    }

    /// The configuration of one of the two. `section` is what its `peers` section says.
    fn config(&self, me: usize, section: &str) -> PathBuf {
        let (socket, web, origin) = (self.socket(me).display().to_string(), self.webs[me], self.origins[me]);
        let name = ["a", "b"][me];
        self.place.file(
            &format!("{me}.cfg"),
            &format!(
                "global\n  localpeer {name}\n  stats socket {socket} level admin expose-fd listeners\n\
                 {}defaults\n  mode \
                 http\n  timeout client 5s\n  timeout server 5s\n  timeout connect 5s\npeers both\n{section}  table own \
                 type integer size 100 expire 10m store gpc0\n{}\nbackend app\n  stick-table type string size 1k expire \
                 10m peers both\n  stick on url_param(who)\n  server s1 127.0.0.1:{origin}\n  server s2 127.0.0.1:{origin}\nfrontend \
                 origin\n  bind 127.0.0.1:{origin}\n  http-request return status 200\nfrontend \
                 f\n  bind 127.0.0.1:{web}\n  http-request track-sc0 src table all\n  http-request track-sc1 \
                 url_param(block) table blocks if {{ url_param(block) -m found }}\n  http-request sc-inc-gpc0(1) if {{ \
                 url_param(block) -m found }}\n  default_backend app\n",
                self.global,
                TABLES.replace("\\\n    ", "")
            ),
        )
    }

    /// Both as `peer` lines.
    fn lines(&self) -> String {
        let [a, b] = self.peers;
        format!("  peer a 127.0.0.1:{a}\n  peer b 127.0.0.1:{b}\n")
    }

    fn start(&self, me: usize, program: Program) -> Running {
        let config = self.config(me, &self.lines());
        self.run(me, program, &config)
    }

    fn run(&self, me: usize, program: Program, config: &Path) -> Running {
        let mut command = if program == Program::HAProxy { Command::new("haproxy") } else { penstock() };
        let said = std::fs::File::create(self.place.0.join(format!("{me}.said"))).unwrap();
        command.arg("-db").arg("-f").arg(config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        let running = Running(command.spawn().unwrap());
        until("it answers", || UnixStream::connect(self.socket(me)).is_ok());
        running
    }

    fn say(&self, me: usize, command: &str) -> String {
        let Ok(mut stream) = UnixStream::connect(self.socket(me)) else { return String::new() };
        stream.write_all(format!("{command}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    /// The entries of a table, without what is local to a process: where they are, for how long, who uses them.
    fn entries(&self, me: usize, table: &str) -> Vec<String> {
        let shown = self.say(me, &format!("show table {table}"));
        let mut lines: Vec<String> = shown
            .lines()
            .filter(|line| line.starts_with("0x"))
            .map(|line| {
                let words = line.split(' ').skip(1);
                let is_local = |word: &&str| ["exp=", "use=", "shard="].iter().any(|local| word.starts_with(local));
                words.filter(|word| !is_local(word)).collect::<Vec<_>>().join(" ")
            })
            .collect();
        lines.sort();
        lines
    }

    fn get(&self, me: usize, target: &str) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.webs[me])).unwrap();
        stream.write_all(format!("GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes()).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    }

    /// Sets and counts something in every table of one process.
    fn fill(&self, me: usize, seed: u32) {
        let all = [
            "gpt0",
            "gpc0",
            "gpc0_rate",
            "conn_cnt",
            "conn_rate",
            "sess_cnt",
            "sess_rate",
            "http_req_cnt",
            "http_req_rate",
            "http_err_cnt",
            "http_err_rate",
            "bytes_in_cnt",
            "bytes_in_rate",
            "bytes_out_cnt",
            "bytes_out_rate",
            "gpc1",
            "gpc1_rate",
            "http_fail_cnt",
            "http_fail_rate",
        ];
        let values: String = all.iter().zip(seed..).map(|(name, value)| format!(" data.{name} {value}")).collect();
        for command in [
            format!("set table all key 10.0.0.{seed}{values}"),
            format!("set table all key 10.0.1.{seed} data.bytes_out_cnt 5000000000"),
            format!("set table arrays key k{seed} data.gpt 7"),
            format!("set table strings key {seed}-is-a-string-of-more-than-31-bytes data.gpc0 {seed}"),
            format!("set table sixes key 2001:db8::{seed} data.gpc0 {seed}"),
            format!("set table numbers key {} data.gpc0 {seed}", 4_000_000_000 + u64::from(seed)),
            format!("set table both/own key {seed} data.gpc0 {seed}"),
        ] {
            assert_eq!(self.say(me, &command).trim(), "", "{command}");
        }
        self.get(me, &format!("/?who=w{seed}&block=b{seed}"));
    }

    /// Waits until both have the same entries, as many as this in each table.
    fn agree(&self, each: &dyn Fn(&str) -> usize) {
        for table in NAMES {
            let end = Instant::now() + Duration::from_secs(15);
            loop {
                let (one, other) = (self.entries(0, table), self.entries(1, table));
                if one == other && one.len() == each(table) {
                    break;
                }
                let said = |me| std::fs::read_to_string(self.place.0.join(format!("{me}.said"))).unwrap_or_default();
                assert!(
                    Instant::now() < end,
                    "{table}, {} expected:\n{one:#?}\n{other:#?}\n{}\n{}",
                    each(table),
                    said(0),
                    said(1)
                );
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    /// Whether this process has a session with the other.
    fn is_connected(&self, me: usize) -> bool {
        self.say(me, "show info").contains("ConnectedPeers: 1")
    }
}

/// How many entries [`Pair::fill`] makes in a table; each call also counts the client itself.
fn filled(table: &str, times: usize) -> usize {
    if table == "all" { 2 * times + 1 } else { times }
}

/// Starts `first`, which counts; then the other, which is to learn it; then both count.
fn exchange(name: &str, first: Program, second: Program) {
    if (first == Program::HAProxy || second == Program::HAProxy) && reference::haproxy().is_none() {
        return;
    }
    let mut pair = Pair::new(name);
    if first == second {
        // HAProxy 2.6 spins and aborts with a number as small as this.
        pair.global = "  tune.peers.max-updates-at-once 7\n";
    }
    let one = pair.start(0, first);
    pair.fill(0, 1);
    let two = pair.start(1, second);
    pair.agree(&|table| filled(table, 1));
    pair.fill(1, 2);
    pair.agree(&|table| filled(table, 2));
    pair.fill(0, 3);
    pair.agree(&|table| filled(table, 3));
    // A pushed value replaces what is known.
    pair.say(1, "set table numbers key 4000000001 data.gpc0 77");
    until("it is replaced", || pair.entries(0, "numbers").iter().any(|line| line.ends_with("gpc0=77")));
    let shown = pair.say(if first == Program::Penstock { 0 } else { 1 }, "show peers dict");
    assert!(shown.contains("last_status=ESTA"), "{shown}");
    for process in [one, two] {
        process.signal(TERM);
        process.end();
    }
}

#[test]
fn haproxy_learns_what_penstock_counts_and_the_other_way_round() {
    exchange("peers-ph", Program::Penstock, Program::HAProxy);
}

#[test]
fn penstock_learns_what_haproxy_counts_and_the_other_way_round() {
    exchange("peers-hp", Program::HAProxy, Program::Penstock);
}

#[test]
fn two_penstocks_agree() {
    exchange("peers-pp", Program::Penstock, Program::Penstock);
}

#[test]
fn a_peer_that_was_away_learns_what_it_missed() {
    let pair = Pair::new("peers-away");
    let one = pair.start(0, Program::Penstock);
    let two = pair.start(1, Program::Penstock);
    until("they are connected", || pair.is_connected(0) && pair.is_connected(1));
    pair.fill(0, 1);
    pair.agree(&|table| filled(table, 1));
    two.signal(TERM);
    two.end();
    until("the session is over", || !pair.is_connected(0));
    pair.fill(0, 2);
    let two = pair.start(1, Program::Penstock);
    // The new process asks for everything.
    pair.agree(&|table| filled(table, 2));
    for process in [one, two] {
        process.signal(TERM);
        process.end();
    }
}

#[test]
fn a_disabled_section_exchanges_nothing() {
    let pair = Pair::new("peers-disabled");
    let two = pair.start(1, Program::Penstock);
    for (words, connects) in [
        ("  disabled\n", false),
        ("  disable\n", false),
        ("  disabled\n  enabled\n", true),
        ("  disable\n  enable\n", true),
    ] {
        let one = pair.run(0, Program::Penstock, &pair.config(0, &(pair.lines() + words)));
        if connects {
            until("they are connected", || pair.is_connected(0));
        } else {
            std::thread::sleep(Duration::from_millis(300));
            assert!(TcpStream::connect(("127.0.0.1", pair.peers[0])).is_err(), "{words}");
            assert!(pair.say(0, "show peers").contains("disabled=1"));
            // Its tables count all the same.
            pair.fill(0, 1);
            assert_eq!(pair.entries(0, "both/own").len(), 1);
        }
        one.signal(TERM);
        one.end();
    }
    two.signal(TERM);
    two.end();
}

#[test]
fn a_reload_keeps_tables() {
    let pair = Pair::new("peers-reload");
    let [a, b] = pair.peers;
    let config = pair.config(0, &format!("  peer a 127.0.0.1:{a}\n  peer b 127.0.0.1:{b}\n"));
    let master = common::running::master(&pair.place, &config);
    until("it answers", || UnixStream::connect(pair.socket(0)).is_ok());
    pair.fill(0, 1);
    for number in 0..400 {
        pair.say(0, &format!("set table numbers key {number} data.gpc0 {number}"));
    }
    let before: Vec<_> = NAMES.iter().map(|table| pair.entries(0, table)).collect();
    assert_eq!(before[5].len(), 401);
    // One that has asked others in vain calls itself up to date.
    until("it knows everything", || pair.say(0, "show peers").contains("resync=done"));
    for _ in 0..2 {
        let old = children(master.id());
        master.signal(USR2);
        until(
            "another worker has taken over",
            || matches!(&children(master.id())[..], [worker] if !old.contains(worker)),
        );
        for (table, before) in NAMES.iter().zip(&before) {
            let mut now = Vec::new();
            until("it has learned everything", || {
                now = pair.entries(0, table);
                now == *before
            });
        }
    }
    assert!(pair.say(0, "show peers").contains("resync=done taught=1"), "{}", pair.say(0, "show peers"));
    master.signal(TERM);
    assert_eq!(master.end(), 0);
}

#[test]
fn a_haproxy_that_takes_our_place_is_taught() {
    if reference::haproxy().is_none() {
        return;
    }
    let pair = Pair::new("peers-heir");
    let config = pair.config(0, &pair.lines());
    let first = pair.run(0, Program::Penstock, &config);
    pair.fill(0, 1);
    let before: Vec<_> = NAMES.iter().map(|table| pair.entries(0, table)).collect();
    let mut heir = Command::new("haproxy");
    heir.arg("-db").arg("-f").arg(&config).arg("-x").arg(pair.socket(0)).arg("-sf").arg(first.id().to_string());
    let heir = Running(heir.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    assert_eq!(first.end(), 0);
    let shown = |entries: Vec<String>| {
        entries.iter().map(|entry| entry.replace("conn_cur=1", "conn_cur=0")).collect::<Vec<_>>()
    };
    for (table, before) in NAMES.iter().zip(before) {
        let before = shown(before);
        until("it has learned everything", || shown(pair.entries(0, table)) == before);
    }
    heir.signal(TERM);
    heir.end();
}

#[test]
fn a_process_without_successor_ends_soon() {
    let pair = Pair::new("peers-end");
    let one = pair.start(0, Program::Penstock);
    let begun = Instant::now();
    one.signal(USR1);
    assert_eq!(one.end(), 0);
    assert!(begun.elapsed() < Duration::from_secs(7), "{:?}", begun.elapsed());
}

/// What a penstock answers to these bytes, until it closes the connection or has nothing to say for a while.
fn ask(port: u16, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(700))).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(read) = stream.read(&mut buffer) {
        if read == 0 {
            answer.extend(b"<end>");
            break;
        }
        answer.extend(&buffer[..read]);
    }
    answer
}

#[test]
fn a_peer_that_lies_is_told_so_and_nothing_else_happens() {
    let pair = Pair::new("peers-lies");
    let one = pair.start(0, Program::Penstock);
    let port = pair.peers[0];
    for (hello, status) in [
        ("HAProxyS 2.1\na\nstranger 1 1\n", "504\n<end>"),
        ("HAProxyS 2.1\nz\nb 1 1\n", "503\n<end>"),
        ("HAProxyS 3.0\na\nb 1 1\n", "502\n<end>"),
        ("GET / HTTP/1.1\r\n\r\n\r\n", "501\n<end>"),
    ] {
        assert_eq!(String::from_utf8_lossy(&ask(port, hello.as_bytes())), status, "{hello}");
    }
    let hello = b"HAProxyS 2.1\na\nb 1 1\n";
    let lies = |bytes: &[u8]| ask(port, &[hello, bytes].concat());
    for (lie, farewell) in [
        // A length of 16 MB, and one of more than 64 bits.
        (&[10, 128, 0xff, 0xff, 0xff, 0xff, 7][..], &[1, 1][..]),
        (&[10, 128, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], &[1, 0]),
        // An update of no table, a definition that ends early, a definition with keys of 2^60 bytes.
        (&[10, 128, 5, 0, 0, 0, 1, 9], &[1, 0]),
        (&[10, 130, 3, 1, 9, b'x'], &[1, 0]),
    ] {
        let answer = lies(lie);
        assert!(
            answer.starts_with(b"200\n") && answer.ends_with(&[farewell, b"<end>"].concat()),
            "{lie:?}: {answer:?}"
        );
    }
    let said = || pair.say(0, "show peers");
    assert!(said().contains("proto_err=4"), "{}", said());
    // It asks for everything, over and over, and never reads: what waits for it is bounded.
    let mut flood = TcpStream::connect(("127.0.0.1", port)).unwrap();
    flood.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    flood.write_all(hello).unwrap();
    for number in 0..1_000 {
        pair.say(0, &format!("set table numbers key {number} data.gpc0 {number}"));
    }
    let before = memory(one.id());
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) && flood.write(&[0; 4096]).is_ok() {}
    let grown = memory(one.id()).saturating_sub(before);
    assert!(grown < 20 << 20, "{grown} bytes");
    assert_eq!(pair.entries(0, "numbers").len(), 1_000, "and others are answered");
    drop(flood);
    one.signal(TERM);
    one.end();
}

/// The memory of a process, in bytes.
fn memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn a_peer_that_says_nothing_is_left_and_connected_to_again() {
    let pair = Pair::new("peers-silent");
    let listener = TcpListener::bind(("127.0.0.1", pair.peers[1])).unwrap();
    let one = pair.start(0, Program::Penstock);
    let (mut first, _) = listener.accept().unwrap();
    let mut hello = [0; 20];
    first.read_exact(&mut hello[..17]).unwrap();
    assert_eq!(&hello[..17], b"HAProxyS 2.1\nb\na ");
    first.write_all(b"200\n").unwrap();
    until("there is a session", || pair.is_connected(0));
    // Its heartbeats go on; ours never come.
    let begun = Instant::now();
    let mut rest = Vec::new();
    first.read_to_end(&mut rest).unwrap();
    assert!((3..9).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    assert!(rest.windows(2).any(|two| two == [0, 4]), "it sent a heartbeat: {rest:?}");
    let (_again, _) = listener.accept().unwrap();
    assert!(pair.say(0, "show peers").contains("no_hbt=1"));
    one.signal(TERM);
    one.end();
}

#[test]
fn peers_speak_tls() {
    let pair = Pair::new("peers-tls");
    let pem = pair.place.0.join("both.pem").display().to_string();
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=peers", "-keyout", &pem, "-out", &format!("{pem}.crt")])
        .output();
    if !made.is_ok_and(|made| made.status.success()) {
        return;
    }
    let certificate = std::fs::read_to_string(format!("{pem}.crt")).unwrap();
    let key = std::fs::read_to_string(&pem).unwrap();
    std::fs::write(&pem, certificate + &key).unwrap();
    let section = |me: usize| {
        let [mine, other] = if me == 0 { pair.peers } else { [pair.peers[1], pair.peers[0]] };
        let (name, others) = if me == 0 { ("a", "b") } else { ("b", "a") };
        format!(
            "  default-bind ssl crt {pem} verify required ca-file {pem}\n  bind 127.0.0.1:{mine}\n  default-server ssl \
             verify required ca-file {pem} crt {pem}\n  server {name}\n  server {others} 127.0.0.1:{other}\n"
        )
    };
    let second = if reference::haproxy().is_some() { Program::HAProxy } else { Program::Penstock };
    let one = pair.run(0, Program::Penstock, &pair.config(0, &section(0)));
    pair.fill(0, 1);
    let two = pair.run(1, second, &pair.config(1, &section(1)));
    pair.agree(&|table| filled(table, 1));
    pair.fill(1, 2);
    pair.agree(&|table| filled(table, 2));
    assert_eq!(ask(pair.peers[0], b"HAProxyS 2.1\na\nb 1 1\n").first(), Some(&21), "a TLS alert");
    for process in [one, two] {
        process.signal(TERM);
        process.end();
    }
}
