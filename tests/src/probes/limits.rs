//! Slow clients cost their timeout, and running out of something leaves the proxy reachable.

use std::io::{Read, Write};
use std::process::Command;
use std::time::{Duration, Instant};

use super::{Probe, with_penstock};
use crate::Failure;
use crate::client;
use crate::message::{Inbox, Outcome};
use crate::run::Run;
use crate::scenario::Section;
use crate::wire::{Ending, Wire};

pub fn probes() -> Vec<Probe> {
    let mut probes = vec![
        Probe::new("limits/slow-client-hello-ends-at-its-timeout", slow_client_hello),
        Probe::new("limits/slow-head-ends-at-its-timeout", slow_head),
        Probe::new("limits/endless-head-is-refused", endless_head),
        Probe::new("limits/endless-trailers-are-refused", endless_trailers),
        Probe::new("limits/out-of-descriptors-stats-still-answer", out_of_descriptors),
    ];
    if std::env::var_os("PENSTOCK_ENDURANCE").is_some() {
        // One after the other: together they would need more descriptors than many machines allow.
        probes.push(Probe::new("limits/ten-thousand-idle-connections", || {
            idle_connections("", "tcp")?;
            idle_connections(" ssl crt {{cert ecdsa}}", "tcp tls")
        }));
    }
    probes
}

fn open(run: &mut Run<'_>, name: &str) -> Result<Wire, Failure> {
    let plain = Section { kind: "tcp".into(), arguments: Vec::new(), text: String::new(), line: 0 };
    client::open(run.bind(name)?, &plain)
}

pub(super) fn get(run: &mut Run<'_>, name: &str, target: &str) -> Result<u16, Failure> {
    let mut inbox = Inbox::new(open(run, name)?, None);
    let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    inbox.wire.write_all(request.as_bytes()).map_err(|e| e.to_string())?;
    match inbox.response("GET") {
        Outcome::Message(m) => Ok(m.status()),
        Outcome::Nothing(_, ending) => Err(format!("no answer on {name}: {}", ending.word())),
    }
}

/// The beginning of a ClientHello record, a byte now and then: the connection ends though bytes keep coming.
fn slow_client_hello() -> Result<(), Failure> {
    let config = "[config]\ndefaults\n    mode http\n    timeout connect 1s\n    timeout client 400ms\n    timeout server \
                  1s\nfrontend f\n    bind {{bind tls}} ssl crt {{cert ecdsa}}\n    http-request return status 200\n";
    with_penstock(config, |run| {
        let mut wire = open(run, "tls")?;
        wire.set_read_timeout(Duration::from_millis(100)).map_err(|e| e.to_string())?;
        drip(&mut wire, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    })
}

fn slow_head() -> Result<(), Failure> {
    let config = "[config]\ndefaults\n    mode http\n    timeout connect 1s\n    timeout client 20s\n    timeout \
                  http-request 400ms\n    timeout server 1s\nfrontend f\n    bind {{bind http}}\n    http-request return \
                  status 200\n";
    with_penstock(config, |run| {
        let mut wire = open(run, "http")?;
        wire.set_read_timeout(Duration::from_millis(100)).map_err(|e| e.to_string())?;
        drip(&mut wire, b"GET / HTTP/1.1\r\nX-Slow: ")
    })
}

/// Sends the start, then a byte every read timeout, until the peer ends; within a time far above any timeout set.
fn drip(wire: &mut Wire, start: &[u8]) -> Result<(), Failure> {
    let end = Instant::now() + Duration::from_secs(10);
    let _ = wire.write_all(start);
    let mut buffer = [0; 4096];
    while Instant::now() < end {
        match wire.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(_) => continue,
            Err(e) if Ending::of(&e) == Ending::Broken => return Ok(()),
            Err(_) => {}
        }
        if wire.write_all(b"a").is_err() {
            return Ok(());
        }
    }
    Err("the connection is still open, long after its timeout".to_owned())
}

const PLAIN: &str = "[config]\nlisten l\n    bind {{bind http}}\n    server s1 {{origin a}}\n";

fn endless_head() -> Result<(), Failure> {
    with_penstock(PLAIN, |run| {
        let wire = open(run, "http")?;
        refused(wire, b"GET / HTTP/1.1\r\nHost: h\r\n", b"X-Filler: 0123456789012345678901234567890123456789\r\n")
    })
}

fn endless_trailers() -> Result<(), Failure> {
    with_penstock(PLAIN, |run| {
        let wire = open(run, "http")?;
        let head = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
        refused(wire, head, b"X-Filler: 0123456789012345678901234567890123456789\r\n")
    })
}

/// Sends up to a megabyte of `repeated` after `start`: the peer must have ended the connection by then.
fn refused(mut wire: Wire, start: &[u8], repeated: &[u8]) -> Result<(), Failure> {
    let mut sent = wire.write_all(start).is_ok();
    for _ in 0..(1 << 20) / repeated.len() {
        sent = sent && wire.write_all(repeated).is_ok();
        if !sent {
            return Ok(());
        }
    }
    wire.set_read_timeout(Duration::from_secs(2)).map_err(|e| e.to_string())?;
    let mut answer = Vec::new();
    match wire.read_to_end(&mut answer) {
        Ending::Open => Err("a megabyte of fields was taken".to_owned()),
        Ending::Closed | Ending::Broken => Ok(()),
    }
}

/// The process may open only a few more descriptors; clients take them all and stay. The stats page answers.
fn out_of_descriptors() -> Result<(), Failure> {
    let config = "[config]\n{{stats listen}}\nlisten l\n    bind {{bind http}}\n    server s1 {{origin a}}\n";
    with_penstock(config, |run| {
        let pid = run.process.as_ref().ok_or("it does not run")?.id();
        let open_now = std::fs::read_dir(format!("/proc/{pid}/fd")).map_err(|e| e.to_string())?.count();
        let limit = open_now + 20;
        let set = Command::new("prlimit")
            .args(["--pid", &pid.to_string(), &format!("--nofile={limit}:{limit}")])
            .status()
            .map_err(|e| format!("prlimit: {e}"))?;
        if !set.success() {
            return Err("prlimit cannot lower the limit".to_owned());
        }
        let mut idle = Vec::new();
        for _ in 0..100 {
            let mut wire = open(run, "http")?;
            let _ = wire.write_all(b"GET / HTTP/1.1\r\n");
            idle.push(wire);
        }
        std::thread::sleep(Duration::from_millis(300));
        match get(run, "stats", "/stats;csv") {
            Ok(200) => {}
            Ok(status) => return Err(format!("the stats page answers {status}")),
            Err(e) => return Err(format!("with all descriptors taken: {e}")),
        }
        drop(idle);
        std::thread::sleep(Duration::from_millis(300));
        match get(run, "http", "/") {
            Ok(200) => Ok(()),
            other => Err(format!("after the clients left: {other:?}")),
        }
    })
}

/// Ten thousand idle keep-alive connections, then every one of them is still served. `bind` is the rest of the bind
/// line, `client` how a scenario would open the connection.
fn idle_connections(bind: &str, client: &str) -> Result<(), Failure> {
    const CONNECTIONS: usize = 10_000;
    // No server is asked, so that a connection is one descriptor, not the two that maxconn would reckon with.
    let config = format!(
        "[config]\nglobal\n    nbthread 1\n    maxconn 12000\n    ulimit-n 13000\ndefaults\n    mode http\n    timeout connect \
         1s\n    timeout client 300s\n    timeout server 1s\nfrontend f\n    bind {{{{bind http}}}}{bind}\n    http-request \
         return status 200\n"
    );
    let arguments = client.split(' ').skip(1).map(str::to_owned);
    let arguments = std::iter::once("http".to_owned()).chain(arguments).collect();
    let section = Section { kind: "tcp".into(), arguments, text: String::new(), line: 0 };
    with_penstock(&config, |run| {
        let address = run.bind("http")?;
        let mut inboxes: Vec<Inbox> = Vec::new();
        for round in 0..2 {
            for at in 0..CONNECTIONS {
                if round == 0 {
                    inboxes.push(Inbox::new(client::open(address, &section)?, None));
                }
                let inbox = &mut inboxes[at];
                inbox.wire.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").map_err(|e| e.to_string())?;
                match inbox.response("GET") {
                    Outcome::Message(m) if m.status() == 200 => {}
                    other => return Err(format!("connection {at} in round {round}: {other:?}")),
                }
            }
        }
        Ok(())
    })
}
