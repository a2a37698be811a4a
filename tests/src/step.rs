//! The steps of a scenario: each does something with the proxy and reports the result.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::Failure;
use crate::client;
use crate::message::{Inbox, Message, Outcome};
use crate::normalise;
use crate::origin::raw_message;
use crate::process::describe;
use crate::run::Run;
use crate::scenario::Section;
use crate::wire::{Ending, Verb, Wire, play, quote};

/// Carries out one section and gives its transcript lines.
pub fn perform(run: &mut Run<'_>, section: &Section) -> Result<Vec<String>, Failure> {
    let mut lines = match section.kind.as_str() {
        "request" => request(run, section)?,
        "tcp" => tcp(run, section)?,
        "runtime" => runtime(run, section)?,
        "curl" => curl(run, section)?,
        "shell" => shell(run, section)?,
        "wait" => wait(run, section)?,
        "signal" => signal(run, section)?,
        "stop" | "start" => {
            for name in &section.arguments {
                let origin = run.origin(name)?;
                match section.kind.as_str() {
                    "stop" => origin.stop(),
                    _ => origin.listen().map_err(|e| e.to_string())?,
                }
            }
            Vec::new()
        }
        other => return Err(format!("[{other}] is not a step")),
    };
    if section.kind == "tcp"
        && let Some(process) = &run.process
    {
        // A script may leave before its origin has received what it sent.
        process.wait_idle();
    }
    lines.extend(run.recorder.drain());
    Ok(lines)
}

fn wire(run: &mut Run<'_>, section: &Section) -> Result<Wire, Failure> {
    let name = section.arguments.first().ok_or("it needs the name of a bind")?;
    if section.has("unix") {
        return client::open_unix(&run.folder().join(format!("{name}.sock")));
    }
    let address = run.bind(name)?;
    client::open(address, section)
}

/// `[request BIND ...]`: one request, or `repeat=N` of them, each on its own connection unless `keep` or `again`.
fn request(run: &mut Run<'_>, section: &Section) -> Result<Vec<String>, Failure> {
    let text = run.fill(&section.text)?;
    let bytes = raw_message(&text)?;
    let method = text.split(' ').next().unwrap_or_default().to_owned();
    let repeat = section.number("repeat", 1)?;
    let pipeline = section.number("pipeline", 1)?;
    let name = section.arguments.first().cloned().unwrap_or_default();
    let mut lines = Vec::new();
    let mut origins = Vec::new();
    for _ in 0..repeat {
        let mut inbox = match section.has("again").then(|| run.kept.remove(&name)).flatten() {
            Some(inbox) => inbox,
            None if section.has("again") => return Err("`again` goes on with a connection that was kept".to_owned()),
            None => Inbox::new(wire(run, section)?, None),
        };
        let sent = bytes.repeat(pipeline);
        if let Err(e) = inbox.wire.write_all(&sent).and_then(|()| inbox.wire.flush()) {
            lines.push(format!("< sending failed: {}", Ending::of(&e).word()));
        }
        let mut open = true;
        for _ in 0..pipeline {
            let (seen, message) = responses(&mut inbox, &method, section.has("decode"));
            if repeat == 1 {
                lines.extend(seen);
            }
            match message {
                Some(message) => {
                    open &= stays_open(&message, &text);
                    origins.push(message.field("x-origin").map_or(message.status().to_string(), str::to_owned));
                }
                None => open = false,
            }
        }
        if open && (section.has("keep") || section.has("again")) {
            run.kept.insert(name.clone(), inbox);
        } else if !open || section.has("watch") {
            lines.extend(end_of(&mut inbox, section.has("watch")));
        }
    }
    if repeat > 1 {
        // Which server each went to is what a repeated request is about; the origins' own lines would be noise.
        run.recorder.drain();
        lines.insert(0, format!("= {}", origins.join(" ")));
    }
    Ok(lines)
}

/// Reads responses up to a final one, or 101.
fn responses(inbox: &mut Inbox, method: &str, decode: bool) -> (Vec<String>, Option<Message>) {
    let mut lines = Vec::new();
    loop {
        match inbox.response(method) {
            Outcome::Message(mut message) => {
                let coded = if decode { message.decode() } else { None };
                lines.extend(message.lines("< "));
                lines.extend(coded.map(|coded| format!("< {coded}")));
                if message.status() == 101 || !(100..200).contains(&message.status()) {
                    return (lines, Some(message));
                }
            }
            Outcome::Nothing(bytes, ending) => {
                let what = if bytes.is_empty() { String::new() } else { format!("{}, ", quote(&bytes)) };
                lines.push(format!("< nothing: {what}{}", ending.word()));
                return (lines, None);
            }
        }
    }
}

fn stays_open(response: &Message, request: &str) -> bool {
    let old = response.start.starts_with("HTTP/1.0") || request.lines().next().is_some_and(|l| l.ends_with("HTTP/1.0"));
    response.cut.is_none()
        && !response.has_token("connection", "close")
        && (!old || response.has_token("connection", "keep-alive"))
}

/// Whether the proxy ended the connection, and that nothing came before the end. `watch` asks it of a connection that
/// may stay open, where half a second without an end must do as the answer.
fn end_of(inbox: &mut Inbox, watch: bool) -> Option<String> {
    if watch {
        inbox.wire.set_read_timeout(Duration::from_millis(500)).ok()?;
    }
    let (rest, ending) = inbox.take_all();
    let extra = if rest.is_empty() { String::new() } else { format!(" after {}", quote(&rest)) };
    Some(format!("< then {}{extra}", ending.word()))
}

/// `[runtime NAME ...]`: commands for the stats socket `{{unix NAME}}`, each line on a connection of its own, on which `\n` stands for
/// the end of a line; or, with `session`, all lines on one.
fn runtime(run: &mut Run<'_>, section: &Section) -> Result<Vec<String>, Failure> {
    let text = run.fill(&section.text)?;
    let name = section.arguments.first().ok_or("it needs the name of a stats socket")?;
    let path = run.folder().join(format!("{name}.sock"));
    let conversations: Vec<String> = match section.has("session") {
        true => vec![text],
        false => text.lines().map(|line| line.replace("\\n", "\n")).collect(),
    };
    let mut lines = Vec::new();
    for sent in conversations {
        let mut stream = stats_socket(&path)?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).map_err(|e| e.to_string())?;
        lines.extend(sent.lines().map(|line| format!("> {line}")));
        let written = stream.write_all(format!("{sent}\n").as_bytes());
        let _ = written.and_then(|()| stream.shutdown(std::net::Shutdown::Write));
        let mut answer = Vec::new();
        let ending = match stream.read_to_end(&mut answer) {
            Ok(_) => None,
            Err(e) => Some(format!("< then {}", Ending::of(&e).word())),
        };
        lines.extend(String::from_utf8_lossy(&answer).lines().map(|line| format!("< {line}").trim_end().to_owned()));
        lines.extend(ending);
    }
    Ok(lines)
}

/// A connection to a stats socket, which may appear a little after the listeners that the start is known by.
fn stats_socket(path: &Path) -> Result<UnixStream, Failure> {
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        match UnixStream::connect(path) {
            Ok(stream) => return Ok(stream),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(e) => return Err(format!("{}: {e}", path.display())),
        }
    }
}

/// `[tcp BIND ...]`: a connection script.
fn tcp(run: &mut Run<'_>, section: &Section) -> Result<Vec<String>, Failure> {
    let script = Verb::script(&run.fill(&section.text)?)?;
    let wire = match wire(run, section) {
        Ok(wire) => wire,
        // A listener that refuses by RST may do so before connect(2) returns.
        Err(_) if run.process.is_some() => return Ok(vec!["< connect failed".to_owned()]),
        Err(failure) => return Err(failure),
    };
    let mut lines = Vec::new();
    play(wire, &script, &mut |line| lines.push(format!("< {line}")));
    Ok(lines)
}

/// `[curl]`: its arguments; the response is taken apart as for `[request]`.
fn curl(run: &mut Run<'_>, section: &Section) -> Result<Vec<String>, Failure> {
    let arguments = run.fill(&section.text.replace('\n', " "))?;
    let command = format!("curl -sS -i --max-time 15 --noproxy '*' {arguments}");
    let output = sh(run, &command)?;
    let mut lines = Vec::new();
    let mut rest = &output.stdout[..];
    while rest.starts_with(b"HTTP/") {
        let Some(end) = rest.windows(4).position(|w| w == b"\r\n\r\n") else { break };
        let head = String::from_utf8_lossy(&rest[..end]);
        let mut fields = head.split("\r\n");
        lines.push(format!("< {}", fields.next().unwrap_or_default().trim_end()));
        let mut fields: Vec<String> = fields
            .map(|f| f.split_once(':').map_or(f.to_owned(), |(n, v)| format!("{}:{v}", n.to_ascii_lowercase())))
            .collect();
        fields.sort_by(|a, b| a.split(':').next().cmp(&b.split(':').next()));
        lines.extend(fields.into_iter().map(|f| format!("< {f}")));
        rest = &rest[end + 4..];
    }
    if !rest.is_empty() {
        lines.push(format!("< body {}", quote(rest)));
    }
    if !output.status.success() {
        lines.push(describe(output.status));
    }
    Ok(lines)
}

/// `[shell]`: a command; its output line by line, and its exit.
fn shell(run: &mut Run<'_>, section: &Section) -> Result<Vec<String>, Failure> {
    let command = run.fill(&section.text)?;
    let output = sh(run, &command)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines: Vec<String> = text.lines().map(|l| format!("| {l}")).collect();
    lines.push(describe(output.status));
    Ok(lines)
}

fn sh(run: &Run<'_>, command: &str) -> Result<std::process::Output, Failure> {
    Command::new("timeout")
        .args(["30", "bash", "-o", "pipefail", "-c", command])
        .current_dir(run.folder())
        .env("LC_ALL", "C")
        .stdin(std::process::Stdio::null())
        .output()
        .map_err(|e| format!("bash: {e}"))
}

/// `[wait ms N]`, `[wait log]` with a pattern, `[wait state PROXY/SERVER WORD]` from the stats of `{{stats listen}}`.
fn wait(run: &mut Run<'_>, section: &Section) -> Result<Vec<String>, Failure> {
    let arguments: Vec<&str> = section.arguments.iter().map(String::as_str).collect();
    let end = Instant::now() + Duration::from_secs(12);
    match arguments[..] {
        ["ms", number] => {
            std::thread::sleep(Duration::from_millis(number.parse().map_err(|_| "ms needs a number")?));
            Ok(Vec::new())
        }
        ["log"] => {
            let pattern = section.text.trim();
            while !run.syslog.lines().iter().any(|l| normalise::matches(pattern, l)) {
                if Instant::now() > end {
                    return Err(format!("no log line matches `{pattern}`: {:#?}", run.syslog.lines()));
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            Ok(Vec::new())
        }
        ["state", server, ..] => {
            let wanted = arguments[2..].join(" ");
            loop {
                let state = state_of(run, server)?;
                if state.starts_with(&wanted) {
                    return Ok(vec![format!("state {server}: {state}")]);
                }
                if Instant::now() > end {
                    return Err(format!("{server} is `{state}`, not `{wanted}`"));
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        _ => Err("wait for what?".to_owned()),
    }
}

fn state_of(run: &mut Run<'_>, server: &str) -> Result<String, Failure> {
    let address = run.bind("stats")?;
    let plain = Section { kind: "request".into(), arguments: Vec::new(), text: String::new(), line: 0 };
    let mut inbox = Inbox::new(client::open(address, &plain)?, None);
    inbox
        .wire
        .write_all(b"GET /stats;csv HTTP/1.1\r\nHost: stats\r\nConnection: close\r\n\r\n")
        .map_err(|e| e.to_string())?;
    let Outcome::Message(page) = inbox.response("GET") else { return Err("the stats page does not answer".into()) };
    let page = String::from_utf8_lossy(&page.body).into_owned();
    let mut rows = page.lines().map(|l| l.split(',').collect::<Vec<_>>());
    let column = rows.next().and_then(|names| names.iter().position(|n| *n == "status"));
    let column = column.ok_or("the stats page has no status column")?;
    let row = rows.find(|r| r.len() > column && format!("{}/{}", r[0], r[1]) == server);
    row.map(|r| r[column].to_owned()).ok_or_else(|| format!("{server} is not on the stats page"))
}

/// `[signal NAME]`: sends it; with `wait`, waits for the end and says how it was. `[signal 0 wait]` only waits, for a
/// process that a step before has asked to end: HAProxy, as it ends, is killed by a second USR1.
fn signal(run: &mut Run<'_>, section: &Section) -> Result<Vec<String>, Failure> {
    let signal = match section.arguments.first().map(String::as_str) {
        Some("0") => None,
        Some("TERM") => Some(Signal::TERM),
        Some("USR1") => Some(Signal::USR1),
        Some("INT") => Some(Signal::INT),
        Some("HUP") => Some(Signal::HUP),
        other => return Err(format!("which signal? {other:?}")),
    };
    let process = run.process.as_mut().ok_or("nothing runs")?;
    if let Some(signal) = signal {
        process.signal(signal);
    }
    if !section.has("wait") {
        return Ok(Vec::new());
    }
    match process.wait_end(Duration::from_secs(10)) {
        Some(status) => Ok(vec![describe(status)]),
        None => Ok(vec!["still running".to_owned()]),
    }
}
