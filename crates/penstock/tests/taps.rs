//! Services in mode tap: the real tshark finds in the copy what client and server have said, and nothing that happens to the copy
//! changes the traffic.

#[path = "common/mod.rs"]
mod common;
#[allow(dead_code, reason = "the services in it are for other tests")]
#[path = "services/fake.rs"]
mod fake;

use common::{
    Place, bytes, free_port, run,
    running::{Running, TERM, USR2, master, signal_to, successes, until},
};
use std::{
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

/// A running penstock that copies.
struct Front {
    http1: u16,
    http2: u16,
    tcp: u16,
    place: Place,
    running: Running,
}

impl Front {
    /// Starts with these lines in the service `copy`.
    fn start(name: &str, tap: &str) -> Front {
        let place = Place::new(name);
        let (http1, http2, tcp) = (free_port(), free_port(), free_port());
        let tap = tap.replace("COPY", &place.0.display().to_string());
        let file = place.file("test.cfg", &config(&place, &tap, [http1, http2, tcp]));
        let running = Running::start(&[&"-f", &file]);
        until("it listens", || TcpStream::connect((Ipv4Addr::LOCALHOST, tcp)).is_ok());
        Front { http1, http2, tcp, place, running }
    }
    /// Sends a request with curl; the body of the response.
    fn ask(&self, http2: bool, path: &str, body: Option<&[u8]>, more: &[&str]) -> Vec<u8> {
        let mut command = Command::new("curl");
        command.args(["-s", "-f", "-k", "--max-time", "30", "-H", "Expect:"]).args(more);
        if let Some(body) = body {
            let from = self.place.0.join("body");
            std::fs::write(&from, body).unwrap();
            command.arg("--data-binary").arg(format!("@{}", from.display()));
        }
        let url = match http2 {
            true => format!("https://127.0.0.1:{}{path}", self.http2),
            false => format!("http://127.0.0.1:{}{path}", self.http1),
        };
        let done = command.arg(url).output().expect("curl runs");
        assert!(done.status.success(), "{path}: {:?}", done.status);
        done.stdout
    }
    /// Says something over `mode tcp`, and reads the answer to its end.
    fn say(&self, what: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.tcp)).unwrap();
        stream.write_all(what).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        got
    }
    /// The answer to a command.
    fn command(&self, line: &str) -> String {
        let mut stream = UnixStream::connect(self.place.0.join("sock")).unwrap();
        writeln!(stream, "{line}").unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        said
    }
    /// A figure of `show taps json`.
    fn figure(&self, name: &str) -> u64 {
        let said = self.command("show taps json");
        let list: serde_json::Value = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"));
        list[0][name].as_u64().unwrap_or_else(|| panic!("{name}: {said}"))
    }
    fn state(&self) -> String {
        let list: serde_json::Value = serde_json::from_str(&self.command("show taps json")).unwrap();
        list[0]["state"].as_str().unwrap().to_owned()
    }
    /// Ends it; what it has copied into files, in the order of their names.
    fn end(self) -> (Place, Vec<PathBuf>) {
        self.running.signal(TERM);
        self.running.end();
        let files = copies(&self.place);
        (self.place, files)
    }
}

fn config(place: &Place, tap: &str, [http1, http2, tcp]: [u16; 3]) -> String {
    let here = place.0.display();
    let certificate = place.certificate().display().to_string();
    let origin = fake::origin();
    format!(
        "global\n  nbthread 2\n  stats socket {here}/sock level admin\ndefaults\n  mode http\n  timeout client 20s\n  \
         timeout server 20s\n  timeout connect 2s\nservice copy\n  mode tap\n{tap}\nservice-chain copied\n  \
         inspect copy unless {{ path_beg /private }}\nfrontend web\n  bind 127.0.0.1:{http1}\n  \
         bind 127.0.0.1:{http2} ssl crt {certificate} alpn h2\n  http-request service-chain copied\n  default_backend origin\n\
         backend origin\n  server o 127.0.0.1:{origin}\nservice-chain stream\n  inspect copy\nfrontend raw\n  mode tcp\n  \
         bind 127.0.0.1:{tcp}\n  tcp-request content service-chain stream\n  default_backend raw\nbackend raw\n  mode tcp\n  \
         server o 127.0.0.1:{}\n",
        echo()
    )
}

/// A server that sends everything back once it has it.
fn echo() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || {
                let mut stream = stream.unwrap();
                let mut said = Vec::new();
                // A probe that leaves without a word is nobody's fault.
                let _ = stream.read_to_end(&mut said).and_then(|_| stream.write_all(&said));
            });
        }
    });
    port
}

/// The files of a tap.
fn copies(place: &Place) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(&place.0).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.filter(|path| path.to_string_lossy().ends_with("Z.pcapng")).collect();
    files.sort();
    files
}

fn tshark(file: &Path, arguments: &[&str]) -> String {
    let output = run_tshark(file, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Of a file that is still being written and may end in the middle of a packet.
fn tshark_so_far(file: &Path, arguments: &[&str]) -> String {
    String::from_utf8(run_tshark(file, arguments).stdout).unwrap()
}

fn run_tshark(file: &Path, arguments: &[&str]) -> Output {
    Command::new("tshark").arg("-r").arg(file).args(arguments).output().expect("tshark runs")
}

/// What client and server said in each connection of a capture, as tshark puts it together.
fn conversations(file: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    (0..).map_while(|stream| conversation(&tshark(file, &["-q", "-z", &followed(stream)]))).collect()
}

/// The statistics of tshark that have what was said in the connection of this number.
fn followed(stream: usize) -> String {
    format!("follow,tcp,raw,{stream}")
}

/// What they said in the connection that tshark has followed, if there is one.
fn conversation(text: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    let (mut client, mut server) = (Vec::new(), Vec::new());
    if text.contains("Node 0: :0") {
        return None;
    }
    for line in text.lines() {
        let digits = line.trim();
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            continue;
        }
        let side = if line.starts_with('\t') { &mut server } else { &mut client };
        side.extend((0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()));
    }
    Some((client, server))
}

/// Nothing in it looks to tshark as if something were wrong or missing.
fn is_sound(file: &Path) {
    let faults = "tcp.checksum.status == 0 || (tcp.analysis.flags && !tcp.analysis.reused_ports)";
    assert_eq!(tshark(file, &["-o", "tcp.check_checksum:TRUE", "-Y", faults]), "");
}

/// A message's head in lower case, and its body.
fn parts(message: &[u8]) -> (String, Vec<u8>) {
    let at = message.windows(4).position(|four| four == b"\r\n\r\n").expect("a head ends");
    (String::from_utf8_lossy(&message[..at]).to_lowercase(), message[at + 4..].to_vec())
}

/// A body without its chunks.
fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let line = body.windows(2).position(|two| two == b"\r\n").expect("a chunk's size ends");
        let size = usize::from_str_radix(std::str::from_utf8(&body[..line]).unwrap(), 16).unwrap();
        body = &body[line + 2..];
        if size == 0 {
            assert_eq!(body, b"\r\n");
            return out;
        }
        out.extend_from_slice(&body[..size]);
        body = &body[size + 2..];
    }
}

#[test]
fn the_copy_is_what_client_and_server_have_said() {
    let front = Front::start("taps-copy", "  tap file COPY/copy.pcapng\n  tap-port 80");
    let (body, small) = (bytes(100_003), bytes(30_000));
    assert_eq!(front.ask(false, "/posted", Some(&body), &[]), body);
    assert_eq!(front.ask(false, "/chunked", Some(&small), &["-H", "Transfer-Encoding: chunked"]), small);
    assert_eq!(front.ask(true, "/second?bytes=70000", None, &[]), bytes(70_000));
    assert_eq!(front.ask(true, "/stream", Some(&small), &[]), small);
    assert_eq!(front.ask(false, "/private", Some(&small), &[]), small);
    assert_eq!(front.say(&body), body);
    until("all is written", || front.figure("waiting") == 0);
    let text = front.command("show taps");
    assert!(text.contains("\ncopy writing 6 0 ") || text.contains("\ncopy writing 5 0 "), "{text}");
    let (_place, files) = front.end();
    assert_eq!(files.len(), 1);
    is_sound(&files[0]);
    let found = conversations(&files[0]);
    let http: Vec<_> = found.iter().filter(|(client, _)| client.windows(8).any(|part| part == b"HTTP/1.1")).collect();
    let starts = |at: usize, line: &str| {
        let (head, _) = parts(&http[at].0);
        assert!(head.starts_with(&line.to_lowercase()), "{head}");
        assert!(parts(&http[at].1).0.starts_with("http/1.1 200"));
    };
    assert_eq!(http.len(), 4, "the private one is not copied");
    starts(0, "POST /posted HTTP/1.1");
    assert!(parts(&http[0].0).1 == body && parts(&http[0].1).1 == body);
    starts(1, "POST /chunked HTTP/1.1");
    assert!(unchunked(&parts(&http[1].0).1) == small && parts(&http[1].1).1 == small);
    starts(2, "GET /second?bytes=70000 HTTP/1.1");
    assert!(parts(&http[2].0).1.is_empty() && parts(&http[2].1).1 == bytes(70_000));
    starts(3, "POST /stream HTTP/1.1");
    let sent = parts(&http[3].0);
    let sent = if sent.0.contains("chunked") { unchunked(&sent.1) } else { sent.1 };
    assert!(sent == small && parts(&http[3].1).1 == small);
    assert!(found.iter().any(|(client, server)| *client == body && *server == body), "the connection of mode tcp");
    // The protocol is recognised, since `tap-port` says 80.
    let asked = tshark(&files[0], &["-Y", "http.request", "-T", "fields", "-e", "http.request.uri"]);
    assert_eq!(asked.lines().collect::<Vec<_>>(), ["/posted", "/chunked", "/second?bytes=70000", "/stream"]);
    let ended = tshark(&files[0], &["-Y", "tcp.flags.fin == 1"]).lines().count();
    assert_eq!(ended, 2 * found.len(), "each connection ends on both sides");
}

#[test]
fn a_reader_that_stands_still_holds_nothing_up_and_what_it_misses_is_counted() {
    let place = Place::new("taps-fifo");
    let fifo = place.0.join("pipe");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let front = Front::start("taps-stalled", &format!("  tap fifo {}\n  tap-buffer 128k", fifo.display()));
    assert_eq!(front.ask(false, "/early?bytes=10", None, &[]), bytes(10));
    assert!(front.figure("missed") >= 1, "nobody reads yet");
    let mut reader = std::fs::File::open(&fifo).unwrap();
    until("it has a reader", || front.state() == "writing");
    let missed = front.figure("missed");
    for _ in 0..10 {
        assert_eq!(front.ask(true, "/x?bytes=1000000", None, &[]), bytes(1_000_000));
    }
    // Of some, the beginning had room and the rest had not; of the others, not even the beginning.
    let lost = front.figure("dropped") + (front.figure("missed") - missed) * 1_000_000;
    assert!(lost > 8_500_000, "{}", front.command("show taps"));
    // Ends of connections may exceed it.
    assert!(front.figure("waiting") < 160 << 10);
    let copy = place.0.join("read.pcapng");
    let reading = std::thread::spawn(move || {
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        read
    });
    until("it has caught up", || front.figure("waiting") == 0);
    assert_eq!(front.ask(false, "/late?bytes=5000", None, &[]), bytes(5_000));
    drop(front.end());
    std::fs::write(&copy, reading.join().unwrap()).unwrap();
    let found = conversations(&copy);
    let (late, answer) = found.last().unwrap();
    assert!(late.starts_with(b"GET /late") && parts(answer).1 == bytes(5_000));
    assert!(!tshark(&copy, &["-Y", "tcp.analysis.lost_segment"]).is_empty(), "the gaps are seen");
}

#[test]
fn full_files_are_followed_by_others_and_the_oldest_go() {
    let front = Front::start("taps-rotate", "  tap file COPY/copy.pcapng rotate 200k keep 3");
    for number in 0..8 {
        let path = format!("/number-{number}?bytes=150000");
        assert_eq!(front.ask(number % 2 == 0, &path, None, &[]), bytes(150_000));
    }
    until("all is written", || front.figure("waiting") == 0);
    let (_place, files) = front.end();
    assert_eq!(files.len(), 3);
    for file in &files {
        assert!(std::fs::metadata(file).unwrap().len() < 260 << 10);
        assert!(!tshark(file, &[]).is_empty());
    }
    let kept = files.iter().map(|file| std::fs::read(file).unwrap()).collect::<Vec<_>>().concat();
    let has = |path: &[u8]| kept.windows(path.len()).any(|part| part == path);
    assert!(has(b"GET /number-7") && !has(b"GET /number-0"));
}

#[test]
fn a_file_that_cannot_be_written_costs_the_copy_and_not_the_traffic() {
    let place = Place::new("taps-folder");
    let folder = place.0.join("copies");
    std::fs::create_dir(&folder).unwrap();
    let front = Front::start("taps-failed", &format!("  tap file {}/copy.pcapng rotate 64k", folder.display()));
    // It listens before it opens the file.
    assert_eq!(front.ask(false, "/private?bytes=1", None, &[]), bytes(1));
    std::fs::remove_dir_all(&folder).unwrap();
    until("the next file fails", || {
        assert_eq!(front.ask(false, "/x?bytes=50000", None, &[]), bytes(50_000));
        front.state() == "failed"
    });
    assert!(front.command("show taps").contains("copy.pcapng: No such file"), "{}", front.command("show taps"));
    let missed = front.figure("missed");
    assert_eq!(front.ask(true, "/y?bytes=50000", None, &[]), bytes(50_000));
    assert!(front.figure("missed") > missed || front.state() == "writing");
    std::fs::create_dir(&folder).unwrap();
    until("it is written again", || front.state() == "writing");
    assert_eq!(front.ask(false, "/again?bytes=100", None, &[]), bytes(100));
    until("all is written", || front.figure("waiting") == 0);
    let file = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    assert!(conversations(&file)[0].0.starts_with(b"GET /again"));
}

#[test]
fn pcap_over_ip_is_read_from_a_listener_and_from_a_connection() {
    let port = free_port();
    let listening = Front::start("taps-listen", &format!("  tap pcap-over-ip listen 127.0.0.1:{port}"));
    let reader = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let to = reader.local_addr().unwrap();
    let connecting = Front::start("taps-connect", &format!("  tap pcap-over-ip connect {to}"));
    let streams = [TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap(), reader.accept().unwrap().0];
    for (front, mut stream) in [listening, connecting].into_iter().zip(streams) {
        until("it has a reader", || front.state() == "writing");
        let body = bytes(40_000);
        assert_eq!(front.ask(false, "/copied", Some(&body), &[]), body);
        until("all is written", || front.figure("waiting") == 0);
        let (place, _) = front.end();
        let mut read = Vec::new();
        stream.read_to_end(&mut read).unwrap();
        assert_eq!(read[..4], [0xd4, 0xc3, 0xb2, 0xa1], "the older format, which every program reads");
        let file = place.0.join("read.pcap");
        std::fs::write(&file, read).unwrap();
        is_sound(&file);
        let found = conversations(&file);
        let (client, server) = found.iter().find(|(client, _)| client.starts_with(b"POST /copied")).unwrap();
        assert!(parts(client).1 == body && parts(server).1 == body);
    }
}

/// A pair of network interfaces: one here, and `sensor` in a network namespace. They go with it.
struct Wire {
    near: String,
    namespace: String,
}

impl Wire {
    /// `None` where they cannot be made.
    fn new(mtu: &str) -> Option<Wire> {
        let id = std::process::id();
        let wire = Wire { near: format!("tap{id}"), namespace: format!("penstock-tap-{id}") };
        let (near, far) = (wire.near.as_str(), wire.namespace.as_str());
        let made = ip(&["netns", "add", far])
            && ip(&[
                "link", "add", near, "mtu", mtu, "type", "veth", "peer", "name", "sensor", "mtu", mtu, "netns", far,
            ])
            && ip(&["link", "set", near, "up"])
            && ip(&["-n", far, "link", "set", "sensor", "up"]);
        if !made {
            common::study::skip("network interfaces cannot be made here: no copy is sent to one");
        }
        made.then_some(wire)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        ip(&["link", "delete", &self.near]);
        ip(&["netns", "delete", &self.namespace]);
    }
}

fn ip(arguments: &[&str]) -> bool {
    Command::new("ip").args(arguments).output().is_ok_and(|output| output.status.success())
}

#[test]
fn a_sensor_at_the_other_end_of_a_wire_sees_the_packets() {
    let Some(wire) = Wire::new("1400") else { return };
    let tap = format!("  tap interface {} mac 02:aa:00:00:00:07", wire.near);
    let front = Front::start("taps-interface", &tap);
    assert_eq!(front.state(), "writing");
    let file = front.place.0.join("seen.pcapng");
    let mut sensor = Command::new("ip")
        .args(["netns", "exec", &wire.namespace, "tshark", "-q", "-i", "sensor", "-w"])
        .arg(&file)
        .stderr(Stdio::null())
        .spawn()
        .expect("tshark runs");
    let size = || std::fs::metadata(&file).map_or(0, |found| found.len());
    until("the sensor looks", || {
        assert_eq!(front.ask(false, "/early?bytes=1000", None, &[]), bytes(1_000));
        size() > 4_000
    });
    let body = bytes(50_000);
    assert_eq!(front.ask(true, "/copied", Some(&body), &[]), body);
    until("all has been seen", || {
        let seen = |arguments: &[&str]| tshark_so_far(&file, arguments);
        let stream = seen(&["-Y", "tcp contains \"POST /copied\"", "-T", "fields", "-e", "tcp.stream"]);
        let stream = stream.trim().parse().ok();
        let said = stream.and_then(|stream| conversation(&seen(&["-q", "-z", &followed(stream)])));
        said.is_some_and(|(_, server)| server.windows(4).any(|four| four == b"\r\n\r\n") && parts(&server).1 == body)
    });
    // Without a network there is no copy; the traffic goes on, and so does the copy once the network is back.
    assert!(ip(&["link", "set", &wire.near, "down"]));
    until("it has failed", || {
        assert_eq!(front.ask(false, "/unseen?bytes=10", None, &[]), bytes(10));
        front.state() == "failed"
    });
    assert!(front.command("show taps").contains("Network is down"), "{}", front.command("show taps"));
    assert!(ip(&["link", "set", &wire.near, "up"]));
    until("it is written again", || front.state() == "writing");
    assert_eq!(front.ask(false, "/again?bytes=10", None, &[]), bytes(10));
    until("that has been seen", || !tshark_so_far(&file, &["-Y", "tcp contains \"GET /again\""]).is_empty());
    signal_to(sensor.id(), TERM);
    sensor.wait().unwrap();
    let _place = front.end();
    let addresses = tshark(&file, &["-Y", "tcp", "-T", "fields", "-e", "eth.dst"]);
    assert!(addresses.lines().all(|address| address == "02:aa:00:00:00:07"), "{addresses}");
    assert_eq!(
        tshark(&file, &["-o", "tcp.check_checksum:TRUE", "-Y", "tcp.checksum.status == 0 || ip.len > 1400"]),
        ""
    );
    assert!(!tshark(&file, &["-Y", "ip.len > 1300"]).is_empty(), "packets are as long as the interface takes them");
}

#[test]
fn a_reload_begins_a_file_of_its_own() {
    let place = Place::new("taps-reload");
    let ports = [free_port(), free_port(), free_port()];
    let tap = "  tap file COPY/copy.pcapng".replace("COPY", &place.0.display().to_string());
    let text = config(&place, &tap, ports).replace("  nbthread 2\n", "  nbthread 1\n");
    let text = text.lines().filter(|line| !line.contains("stats socket")).collect::<Vec<_>>().join("\n") + "\n";
    let file = place.file("test.cfg", &text);
    let running = master(&place, &file);
    until("it serves", || successes(&place) == 1);
    let ask = |path: &str| {
        let done = Command::new("curl").args(["-s", "-f"]).arg(format!("http://127.0.0.1:{}{path}", ports[0])).output();
        assert!(done.unwrap().status.success(), "{path}");
    };
    ask("/before?bytes=1");
    running.signal(USR2);
    until("the next serves", || successes(&place) == 2);
    ask("/after?bytes=1");
    running.signal(TERM);
    running.end();
    let files = copies(&place);
    let asked: Vec<_> = files.iter().map(|file| conversations(file)).collect();
    assert_eq!(asked.len(), 2, "{files:?}");
    assert!(asked[0].iter().any(|(client, _)| client.starts_with(b"GET /before")));
    assert!(asked[1].iter().any(|(client, _)| client.starts_with(b"GET /after")));
}

#[test]
fn during_a_reload_two_processes_write_whole_packets_to_one_pipe() {
    let place = Place::new("taps-shared-pipe");
    let fifo = place.0.join("pipe");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let ports = [free_port(), free_port(), free_port()];
    let text = config(&place, &format!("  tap fifo {}\n  tap-buffer 64m", fifo.display()), ports);
    let text = text.lines().filter(|line| !line.contains("stats socket")).collect::<Vec<_>>().join("\n") + "\n";
    let running = master(&place, &place.file("test.cfg", &text));
    until("it serves", || successes(&place) == 1);
    // It reads more slowly than they write, so that the pipe is full and takes parts of packets.
    let read = Arc::new(Mutex::new(Vec::new()));
    let reading = std::thread::spawn({
        let (read, mut pipe) = (read.clone(), std::fs::File::open(&fifo).unwrap());
        move || {
            let mut part = [0; 16 << 10];
            while let Ok(length @ 1..) = pipe.read(&mut part) {
                read.lock().unwrap().extend_from_slice(&part[..length]);
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    let sections = || read.lock().unwrap().windows(4).filter(|word| *word == b"\x0a\x0d\x0d\x0a").count();
    let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, ports[2])).unwrap();
    let half = bytes(1_000_000);
    until("the first writes", || sections() == 1);
    let mut early = connect();
    early.write_all(&half).unwrap();
    running.signal(USR2);
    until("the next serves", || successes(&place) == 2);
    until("the next writes", || sections() == 2);
    let mut late = connect();
    let both = std::thread::spawn({
        let mut late = late.try_clone().unwrap();
        let all = [&half[..], &half].concat();
        move || late.write_all(&all).unwrap()
    });
    early.write_all(&half).unwrap();
    both.join().unwrap();
    for stream in [&mut early, &mut late] {
        stream.shutdown(Shutdown::Write).unwrap();
        let mut echoed = Vec::new();
        stream.read_to_end(&mut echoed).unwrap();
        assert_eq!(echoed.len(), 2 * half.len());
    }
    drop((early, late));
    // At the end a reader has a second for what is left.
    until("nearly all is read", || read.lock().unwrap().len() > 8 * half.len());
    running.signal(TERM);
    running.end();
    reading.join().unwrap();
    let copy = place.0.join("read.pcapng");
    std::fs::write(&copy, &*read.lock().unwrap()).unwrap();
    is_sound(&copy);
    for (client, server) in conversations(&copy) {
        assert!(client == [&half[..], &half].concat() && server == client, "{} {}", client.len(), server.len());
    }
}

#[test]
fn what_cannot_work_is_refused_at_start() {
    let place = Place::new("taps-refused");
    let good = "service copy\n  mode tap\n  tap file /tmp/copy.pcapng\n";
    let av = "service av\n  mode icap\n  reqmod /av\n  server s 127.0.0.1:1344\n";
    for (text, line, message) in [
        ("service copy\n  mode tap\n", 1, "service 'copy' has no 'tap'"),
        ("service copy\n  mode tap\n  tap file /no/such/copy.pcapng\n", 3, "cannot write into the folder '/no/such'"),
        ("service copy\n  mode tap\n  tap fifo /no/such/pipe\n", 3, "cannot open the named pipe"),
        ("service copy\n  mode tap\n  tap fifo /dev/null\n", 3, "'/dev/null' is not a named pipe"),
        ("service copy\n  mode tap\n  tap socket /x\n", 3, "a tap cannot write to 'socket'"),
        ("service copy\n  mode tap\n  tap interface nowhere\n", 3, "cannot use the network interface 'nowhere'"),
        (
            "service copy\n  mode tap\n  tap interface lo mac 02:00:00\n",
            3,
            "'02:00:00' is not the address of a station",
        ),
        ("service copy\n  mode tap\n  tap interface a/b\n", 3, "no network interface can have the name 'a/b'"),
        ("service copy\n  mode tap\n  tap pcap-over-ip connect somewhere\n", 3, "is not an address with a port"),
        ("service copy\n  mode tap\n  tap pcap-over-ip call 127.0.0.1:1\n", 3, "'call' is not who connects"),
        ("service copy\n  mode tap\n  tap file /tmp/a rotate 1\n", 3, "out of range"),
        ("service copy\n  mode tap\n  tap file /tmp/a sometimes\n", 3, "'tap' does not take 'sometimes'"),
        ("GOOD  tap file /tmp/b\n", 4, "'tap' is set already"),
        ("GOOD  server s 127.0.0.1:1\n", 4, "'server' has no effect in a service in mode tap"),
        ("GOOD  on-failure bypass\n", 4, "'on-failure' has no effect in a service in mode tap"),
        ("AV  tap-port 80\n", 5, "'tap-port' has no effect in a service in mode icap"),
        ("AVGOODservice-chain c\n  inspect copy\n  inspect av\n", 10, "'av' comes after 'copy'"),
        ("GOODservice-chain c\n  inspect copy if { status 200 }\n", 5, "the copy for 'copy' begins before"),
        (
            "AVservice-chain c\n  inspect av\nfrontend f\n  mode tcp\n  bind :1\n  tcp-request content service-chain c\n",
            10,
            "the service 'av' of this chain inspects messages of HTTP",
        ),
        (
            "GOODservice-chain c\n  inspect copy\nfrontend f\n  mode http\n  bind :1\n  tcp-request content service-chain c\n",
            9,
            "this section is in mode http",
        ),
        ("backend b\n  mode tap\n", 2, "mode 'tap' is a mode of services"),
    ] {
        let file = place.file("bad.cfg", &text.replace("GOOD", good).replace("AV", av));
        let done = run(&[&"-c", &"-f", &file]);
        let said = String::from_utf8_lossy(&done.stderr).into_owned() + &String::from_utf8_lossy(&done.stdout);
        assert!(!done.status.success(), "{text} passes: {said}");
        assert!(said.contains(message) && said.contains(&format!("bad.cfg:{line}")), "{text}: {said}");
    }
    // What only opening shows.
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let tap = format!("  tap pcap-over-ip listen {}", taken.local_addr().unwrap());
    let file = place.file("taken.cfg", &config(&place, &tap, [free_port(), free_port(), free_port()]));
    let done = run(&[&"-f", &file]);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(!done.status.success() && said.contains("cannot write the copy to pcap-over-ip listen"), "{said}");
    assert!(said.contains("taken.cfg:11"), "{said}");
}
