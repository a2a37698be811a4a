//! The tables of `probes`, asked of the HAProxy that is installed. Without one this says so and passes.
//!
//! A row without a reason must have the same fate there; a row with one must have the fate it says, so that a reason
//! which no longer holds is noticed.

#[path = "../../../tests/reference.rs"]
mod reference;

#[allow(dead_code, reason = "shared by two tests")]
mod probes;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use probes::{Fate, Probe, requests, responses};

/// Ended with the test.
struct Haproxy {
    process: Child,
    address: SocketAddr,
    config: std::path::PathBuf,
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_file(&self.config);
    }
}

fn start_haproxy(origin: SocketAddr, name: &str) -> Option<Haproxy> {
    let program = reference::haproxy_30()?;
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = std::env::temp_dir().join(format!("penstock-{name}-{}.cfg", std::process::id()));
    // With the whole request waited for, a body that is malformed gets its 400 and never reaches the origin.
    let text = format!(
        "defaults\n mode http\n timeout client 5s\n timeout server 5s\n timeout connect 2s\n \
         timeout http-request 5s\n retries 0\n option http-buffer-request\n\
         listen probe\n bind {address}\n server origin {origin}\n"
    );
    std::fs::write(&config, text).unwrap();
    let process = Command::new(program)
        .args(["-db", "-f"])
        .arg(&config)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    for _ in 0..200 {
        if TcpStream::connect(address).is_ok() {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    Some(Haproxy { process, address, config })
}

/// Answers each connection, after its first bytes, with what `answer` makes of them.
fn start_origin(answer: impl Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, answer) = (stream.unwrap(), answer.clone());
            thread::spawn(move || {
                let mut buffer = [0; 16384];
                let Ok(len @ 1..) = stream.read(&mut buffer) else { return };
                let _ = stream.write_all(&answer(&buffer[..len]));
                let _ = stream.shutdown(std::net::Shutdown::Write);
                while matches!(stream.read(&mut buffer), Ok(1..)) {}
            });
        }
    });
    address
}

/// What a client reads until the first head is whole, or the connection ends.
fn ask(address: SocketAddr, raw: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(7))).unwrap();
    let _ = stream.write_all(raw);
    let mut got = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return got,
            Ok(len) => got.extend_from_slice(&buffer[..len]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return got,
        }
        if memchr::memmem::find(&got, b"\r\n\r\n").is_some() {
            return got;
        }
    }
}

fn status(answer: &[u8]) -> u16 {
    let text = answer.get(9..12).unwrap_or_default();
    std::str::from_utf8(text).unwrap_or_default().parse().unwrap_or(0)
}

/// Asks all at once, since each may wait for a timeout, and lists every row that does not hold.
fn compare(probes: Vec<Probe>, fate: impl Fn(usize, &Probe) -> Fate + Sync) {
    let wrong = std::sync::Mutex::new(Vec::new());
    thread::scope(|scope| {
        for (at, probe) in probes.iter().enumerate() {
            let (wrong, fate) = (&wrong, &fate);
            scope.spawn(move || {
                let expected = probe.differs.map_or(probe.ours, |(theirs, _)| theirs);
                let seen = fate(at, probe);
                if seen != expected {
                    wrong.lock().unwrap().push(format!("{}: expected {expected:?}, HAProxy: {seen:?}", probe.name));
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn haproxy_gives_requests_the_fate_the_table_says() {
    let origin = start_origin(|_| b"HTTP/1.1 299 From Origin\r\nContent-Length: 0\r\n\r\n".to_vec());
    let Some(haproxy) = start_haproxy(origin, "requests") else { return };
    compare(requests::all(), |_, probe| match status(&ask(haproxy.address, &probe.raw)) {
        299 => Fate::Forwarded,
        status => Fate::Refused(status),
    });
}

#[test]
fn haproxy_gives_responses_the_fate_the_table_says() {
    let origin = start_origin(|request| {
        let number = request[5..].split(|byte| *byte == b' ').next().unwrap();
        let number: usize = std::str::from_utf8(number).unwrap().parse().unwrap();
        responses::all().swap_remove(number).raw.into_owned()
    });
    let Some(haproxy) = start_haproxy(origin, "responses") else { return };
    compare(responses::all(), |at, _| {
        let request = format!("GET /{at} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        match status(&ask(haproxy.address, request.as_bytes())) {
            502 => Fate::Refused(502),
            _ => Fate::Forwarded,
        }
    });
}
