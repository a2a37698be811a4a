//! `penstock top` beside a running server, and beside what is none.

mod common;

use common::{Place, free_port, penstock, run};
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    time::Duration,
};

fn once(address: &str) -> (Option<i32>, String) {
    let output = run(&[&"top", &address, &"--once", &"--interval", &"0.2"]);
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

#[test]
fn one_view_of_a_running_server() {
    let place = Place::new("top");
    let (port, metrics) = (free_port(), free_port());
    let config = place.file(
        "top.cfg",
        &format!(
            "global\n nbthread 1\n maxconn 100\ndefaults\n mode http\n timeout client 5s\n timeout server 5s\n timeout connect 1s\n\
             frontend shop\n bind 127.0.0.1:{port}\n monitor-uri /alive\n default_backend app\n\
             backend app\n server dead 127.0.0.1:1 check inter 100ms fall 1\n\
             frontend metrics\n bind 127.0.0.1:{metrics}\n http-request use-service prometheus-exporter\n"
        ),
    );
    let mut server = penstock().args(["-db", "-f"]).arg(config).spawn().unwrap();
    let address = format!("127.0.0.1:{metrics}");
    let up = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(25));
        TcpStream::connect(&address).is_ok()
    });
    assert!(up, "the server never listened");
    // Its check has had time to fail.
    std::thread::sleep(Duration::from_millis(500));
    let (code, shown) = once(&address);
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(code, Some(0), "{shown}");
    for part in [&format!("penstock top  http://{address}/metrics")[..], "ENGINE ", "turns", "> shop", "< app"] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    assert!(shown.lines().any(|line| line.starts_with("  dead") && line.contains("DOWN")), "{shown}");
    assert!(!shown.contains('\x1b'), "a script gets no escapes");
}

/// Runs `top` in a terminal with this many columns, by `script`, which every Debian has.
struct Terminal {
    child: std::process::Child,
    keys: std::process::ChildStdin,
    seen: std::sync::mpsc::Receiver<Vec<u8>>,
    bytes: Vec<u8>,
}

impl Terminal {
    fn open(columns: u32, address: &str) -> Terminal {
        let line = format!(
            "stty cols {columns} rows 60; exec {} top {address} --interval 0.2",
            env!("CARGO_BIN_EXE_penstock")
        );
        let mut child = std::process::Command::new("script")
            .args(["-qec", &line, "/dev/null"])
            .env("TERM", "xterm")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let (keys, mut out) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (tell, seen) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut chunk = [0; 16384];
            while let Ok(count @ 1..) = out.read(&mut chunk) {
                let _ = tell.send(chunk[..count].to_vec());
            }
        });
        Terminal { child, keys, seen, bytes: Vec::new() }
    }

    /// The lines of the first whole screen from now on of which something is true.
    fn until(&mut self, what: &str, holds: impl Fn(&[String]) -> bool) -> Vec<String> {
        loop {
            let chunk = self.seen.recv_timeout(Duration::from_secs(60));
            let chunk =
                chunk.unwrap_or_else(|_| panic!("{what} was never seen: {}", String::from_utf8_lossy(&self.bytes)));
            self.bytes.extend(chunk);
            let text = String::from_utf8_lossy(&self.bytes).into_owned();
            let whole = text.split("\x1b[H").skip(1).filter_map(|screen| screen.split_once("\x1b[J"));
            let found =
                whole.map(|(screen, _)| screen.split("\r\n").map(plain).collect::<Vec<_>>()).find(|lines| holds(lines));
            if let Some(lines) = found {
                self.bytes.clear();
                return lines;
            }
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server that ends with its test.
struct Server(std::process::Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A line without what sets its style.
fn plain(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some((before, behind)) = rest.split_once("\x1b[") {
        out.push_str(before);
        rest = behind.split_once(|c: char| c.is_ascii_alphabetic()).map_or("", |(_, rest)| rest);
    }
    (out + rest).trim_end().to_owned()
}

#[test]
fn in_a_terminal_every_heading_is_whole_and_keys_are_obeyed() {
    let place = Place::new("top-terminal");
    let (port, metrics) = (free_port(), free_port());
    let config = place.file(
        "top.cfg",
        &format!(
            "global\n nbthread 1\n maxconn 100\ndefaults\n mode http\n timeout client 5s\n timeout server 5s\n timeout connect 1s\n\
             frontend shop\n bind 127.0.0.1:{port}\n default_backend app\nbackend app\n server one 127.0.0.1:1\n server two 127.0.0.1:1\n\
             frontend metrics\n bind 127.0.0.1:{metrics}\n http-request use-service prometheus-exporter\n"
        ),
    );
    let _server = Server(penstock().args(["-db", "-f"]).arg(config).spawn().unwrap());
    let address = format!("127.0.0.1:{metrics}");
    let up = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(25));
        TcpStream::connect(&address).is_ok()
    });
    assert!(up, "the server never listened");
    let line = |lines: &[String], begins: &str| lines.iter().find(|line| line.starts_with(begins)).cloned();
    for (columns, classes, proxies) in [
        (80, "wait p50 p99 wrong late", "req/s resp ms 5xx/s err/s"),
        (120, "wait p50 p99 redone wrong late", "4xx/s 5xx/s err/s"),
        (200, "wait p50 p99 redone wrong late", "3xx/s 4xx/s 5xx/s err/s"),
    ] {
        let mut terminal = Terminal::open(columns, &address);
        let lines = terminal.until("the view", |lines| lines.iter().any(|line| line.starts_with("  two")));
        for line in &lines {
            assert!(line.chars().count() <= columns as usize, "{columns}: {line}");
        }
        for (begins, ends) in [("CLASS", classes), ("PROXY / SERVER", proxies)] {
            let head = line(&lines, begins).unwrap_or_else(|| panic!("{begins} in {lines:#?}"));
            let words = head.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.ends_with(ends), "{columns}: {words}");
        }
        let keys = lines.last().unwrap();
        assert!(keys.starts_with("? help") && keys.ends_with("p servers  e engine"), "{columns}: {keys}");
        terminal.press("?");
        terminal.until("the help", |lines| line(lines, "s, S").is_some() && line(lines, "CLASS").is_none());
        terminal.press("x/one\r");
        terminal.until("the filter", |lines| line(lines, "  one").is_some() && line(lines, "  two").is_none());
        terminal.press("\x1b");
        terminal.until("all rows", |lines| line(lines, "  two").is_some());
        terminal.press("s");
        terminal.until("the order", |lines| {
            line(lines, "  app/two").is_some() && lines.iter().any(|l| l.contains("*queue"))
        });
        terminal.press("Sn");
        terminal.until("one proxy", |lines| line(lines, "> shop").is_some() && line(lines, "< app").is_none());
        terminal.press("e ");
        terminal.until("a pause without the engine", |lines| {
            line(lines, "CLASS").is_none() && lines.last().is_some_and(|line| line.starts_with("PAUSED"))
        });
        terminal.press("q");
        assert!(terminal.child.wait().unwrap().success(), "{columns}");
        terminal.bytes.extend(terminal.seen.try_iter().flatten());
        assert!(String::from_utf8_lossy(&terminal.bytes).contains("\x1b[?25h\x1b[?1049l"), "the terminal is put back");
    }
}

#[test]
fn what_is_no_server_is_said_to_be_none() {
    let (code, said) = once("127.0.0.1:1");
    assert!(code == Some(1) && said.contains("cannot read http://127.0.0.1:1/metrics"), "{said}");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let other = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let _ = stream.read(&mut [0; 1024]);
        stream.write_all(b"HTTP/1.0 200 OK\r\n\r\ngo_threads 7\n").unwrap();
    });
    let (code, said) = once(&address);
    other.join().unwrap();
    assert!(code == Some(1) && said.contains("has no metrics of a load balancer"), "{said}");
    for arguments in
        [&["top", "https://host"][..], &["top", "--interval", "0"], &["top", "a", "b"], &["top", "--twice"]]
    {
        let output = penstock().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(String::from_utf8(output.stderr).unwrap().starts_with("penstock: top: "), "{arguments:?}");
    }
}
