//! An agent that speaks HAProxy's SPOP (its `doc/SPOE.txt`, part 3), written by that document and not by the code it tests.
//!
//! Each line of its section is a command. `hello ...` says how it greets: `hello version=3.0 max-frame-size=256
//! capabilities=fragmentation`, `hello none`. All others say what follows each NOTIFY, in order: `set SCOPE NAME TYPE[:VALUE]`,
//! `unset SCOPE NAME`, `raw HEX` add to its acknowledgement; `delay MS` waits before that; `if NAME` runs the rest of the
//! line only if the payload has a message of that name; `silent`, `close`, `disconnect CODE`, `frame HEX` come in place of
//! it; `late` gives it after the acknowledgement of the next payload.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::Failure;
use crate::wire::{Wire, quote};

/// How an agent behaves.
#[derive(Debug)]
pub struct Agent {
    hello: Option<[String; 3]>,
    commands: Vec<(Option<String>, Command)>,
    /// Whether a greeting was noted: how many connections are opened beside those that are needed is each program's business.
    was_greeted: AtomicBool,
}

#[derive(Clone, Debug)]
enum Command {
    Act(Vec<u8>),
    Delay(Duration),
    Silent,
    Close,
    Disconnect(u64),
    Frame(Vec<u8>),
    Late,
}

impl Agent {
    /// Reads the commands of an `[origin NAME spop]` section.
    pub fn parse(text: &str) -> Result<Agent, Failure> {
        let mut hello = Some(["2.0", "16380", "pipelining,async"].map(str::to_owned));
        let mut commands = Vec::new();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let mut words: Vec<&str> = line.split_whitespace().collect();
            let wrong = || format!("the agent does not understand: {line}");
            if words[0] == "hello" {
                if words[1..] == ["none"] {
                    hello = None;
                }
                for word in words[1..].iter().filter(|word| **word != "none") {
                    let (name, value) = word.split_once('=').ok_or_else(wrong)?;
                    let names = ["version", "max-frame-size", "capabilities"];
                    let at = names.iter().position(|known| *known == name).ok_or_else(wrong)?;
                    hello.as_mut().ok_or_else(wrong)?[at] = value.to_owned();
                }
                continue;
            }
            let mut only = None;
            if words[0] == "if" && words.len() > 2 {
                only = Some(words[1].to_owned());
                words.drain(..2);
            }
            let command = match words[..] {
                ["set", scope, name, value] => {
                    let mut action = vec![1, 3, scope_number(scope).ok_or_else(wrong)?];
                    string(name.as_bytes(), &mut action);
                    data(value, &mut action).ok_or_else(wrong)?;
                    Command::Act(action)
                }
                ["unset", scope, name] => {
                    let mut action = vec![2, 2, scope_number(scope).ok_or_else(wrong)?];
                    string(name.as_bytes(), &mut action);
                    Command::Act(action)
                }
                ["raw", hex] => Command::Act(bytes(hex).ok_or_else(wrong)?),
                ["frame", hex] => Command::Frame(bytes(hex).ok_or_else(wrong)?),
                ["delay", ms] => Command::Delay(Duration::from_millis(ms.parse().map_err(|_| wrong())?)),
                ["disconnect", code] => Command::Disconnect(code.parse().map_err(|_| wrong())?),
                ["silent"] => Command::Silent,
                ["close"] => Command::Close,
                ["late"] => Command::Late,
                _ => return Err(wrong()),
            };
            commands.push((only, command));
        }
        Ok(Agent { hello, commands, was_greeted: AtomicBool::new(false) })
    }

    /// Serves a connection; says in lines what it was told.
    pub fn serve(&self, wire: &mut Wire, note: &mut dyn FnMut(String)) {
        let mut late = Vec::new();
        let mut payload = Vec::new();
        while let Some(frame) = read_frame(wire) {
            let mut rest = &frame[..];
            let Some((kind, flags, stream, number)) = head(&mut rest) else {
                return note("a frame without a head".into());
            };
            match kind {
                1 => {
                    let greets = described(rest);
                    if !greets.contains("healthcheck=true") && !self.was_greeted.swap(true, Ordering::Relaxed) {
                        note(format!("hello {greets}"));
                    }
                    let Some([version, size, capabilities]) = &self.hello else { continue };
                    let mut hello = Vec::new();
                    string(b"version", &mut hello);
                    data(&format!("str:{version}"), &mut hello);
                    string(b"max-frame-size", &mut hello);
                    data(&format!("uint32:{size}"), &mut hello);
                    string(b"capabilities", &mut hello);
                    data(&format!("str:{capabilities}"), &mut hello);
                    send(wire, &framed(101, 0, 0, &hello));
                }
                2 => {
                    note(format!("disconnect {}", described(rest)));
                    send(wire, &framed(102, 0, 0, &farewell(0)));
                    return;
                }
                3 | 0 => {
                    payload.extend_from_slice(rest);
                    if flags & 1 == 0 {
                        continue;
                    }
                    let payload = std::mem::take(&mut payload);
                    let fragments = if kind == 0 { " in fragments" } else { "" };
                    let (lines, names) = messages(&payload);
                    lines.into_iter().for_each(|line| note(format!("notify{fragments}: {line}")));
                    let mut actions = Vec::new();
                    let mut answers = true;
                    let mut is_late = false;
                    for (only, command) in &self.commands {
                        if only.as_ref().is_some_and(|only| !names.contains(only)) {
                            continue;
                        }
                        match command {
                            Command::Act(action) => actions.extend_from_slice(action),
                            Command::Delay(time) => std::thread::sleep(*time),
                            Command::Silent => answers = false,
                            Command::Late => is_late = true,
                            Command::Close => return,
                            Command::Disconnect(code) => {
                                send(wire, &framed(102, 0, 0, &farewell(*code)));
                                return;
                            }
                            Command::Frame(bytes) => {
                                send(wire, bytes);
                                answers = false;
                            }
                        }
                    }
                    let ack = framed(103, stream, number, &actions);
                    match (answers, is_late) {
                        (true, true) => late.push(ack),
                        (true, false) => {
                            send(wire, &ack);
                            late.drain(..).for_each(|ack| send(wire, &ack));
                        }
                        _ => {}
                    }
                }
                other => note(format!("frame of type {other}")),
            }
        }
    }
}

fn send(wire: &mut Wire, bytes: &[u8]) {
    // Who does not read any more is noticed by the next read.
    let _ = wire.write_all(bytes).and_then(|()| wire.flush());
}

fn read_frame(wire: &mut Wire) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    wire.read_exact(&mut length).ok()?;
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    wire.read_exact(&mut frame).ok()?;
    Some(frame)
}

fn framed(kind: u8, stream: u64, number: u64, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![kind, 0, 0, 0, 1];
    write_number(stream, &mut frame);
    write_number(number, &mut frame);
    frame.extend_from_slice(payload);
    let mut out = (frame.len() as u32).to_be_bytes().to_vec();
    out.append(&mut frame);
    out
}

fn farewell(code: u64) -> Vec<u8> {
    let mut payload = Vec::new();
    string(b"status-code", &mut payload);
    data(&format!("uint32:{code}"), &mut payload);
    string(b"message", &mut payload);
    data("str:bye", &mut payload);
    payload
}

fn head(rest: &mut &[u8]) -> Option<(u8, u32, u64, u64)> {
    let kind = *rest.split_off_first()?;
    let flags = u32::from_be_bytes(*rest.split_off(..4)?.first_chunk()?);
    Some((kind, flags, number(rest)?, number(rest)?))
}

/// The messages of a payload, one in a line, and their names.
fn messages(mut rest: &[u8]) -> (Vec<String>, Vec<String>) {
    let (mut lines, mut names) = (Vec::new(), Vec::new());
    while !rest.is_empty() {
        let Some((name, count)) = text(&mut rest).zip(rest.split_off_first()) else { break };
        let mut line = name.clone();
        for _ in 0..*count {
            let Some(pair) = pair(&mut rest) else { break };
            line.push(' ');
            line.push_str(&pair);
        }
        lines.push(line);
        names.push(name);
    }
    (lines, names)
}

/// A list of names and values; the identifier of an engine is random.
fn described(mut rest: &[u8]) -> String {
    let mut pairs = Vec::new();
    while let Some(pair) = pair(&mut rest) {
        pairs.push(if pair.starts_with("engine-id=") { "engine-id=ID".to_owned() } else { pair });
    }
    pairs.join(" ")
}

fn pair(rest: &mut &[u8]) -> Option<String> {
    let name = text(rest)?;
    let value = value(rest)?;
    Some(if name.is_empty() { value } else { format!("{name}={value}") })
}

fn value(rest: &mut &[u8]) -> Option<String> {
    let kind = *rest.split_off_first()?;
    Some(match kind & 0xf {
        0 => "null".to_owned(),
        1 => (kind & 0x10 != 0).to_string(),
        2 => format!("int32:{}", number(rest)? as i32),
        3 => format!("uint32:{}", number(rest)?),
        4 => format!("int64:{}", number(rest)?.cast_signed()),
        5 => format!("uint64:{}", number(rest)?),
        6 => Ipv4Addr::from(*rest.split_off(..4)?.first_chunk::<4>()?).to_string(),
        7 => Ipv6Addr::from(*rest.split_off(..16)?.first_chunk::<16>()?).to_string(),
        8 => format!("str:{}", text(rest)?),
        9 => {
            let length = number(rest)? as usize;
            let bytes = rest.split_off(..length)?;
            match length {
                0..=200 => format!("bin:{}", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
                long => format!("bin:({long} bytes)"),
            }
        }
        other => format!("type {other}"),
    })
}

fn text(rest: &mut &[u8]) -> Option<String> {
    let length = number(rest)? as usize;
    let bytes = rest.split_off(..length)?;
    Some(match bytes.len() {
        0..=200 => quote(bytes).trim_matches('"').to_owned(),
        long => format!("({long} bytes)"),
    })
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let first = u64::from(*rest.split_off_first()?);
    let mut value = first;
    let mut shift = 4;
    let mut last = first;
    while last >= if shift == 4 { 0xf0 } else { 0x80 } {
        last = u64::from(*rest.split_off_first()?);
        value = value.wrapping_add(last.checked_shl(shift)?);
        shift += 7;
    }
    Some(value)
}

fn write_number(mut value: u64, out: &mut Vec<u8>) {
    if value < 0xf0 {
        return out.push(value as u8);
    }
    out.push(value as u8 | 0xf0);
    value = (value - 0xf0) >> 4;
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value = (value - 0x80) >> 7;
    }
    out.push(value as u8);
}

fn string(bytes: &[u8], out: &mut Vec<u8>) {
    write_number(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Appends `TYPE[:VALUE]`.
fn data(text: &str, out: &mut Vec<u8>) -> Option<()> {
    let (kind, value) = text.split_once(':').unwrap_or((text, ""));
    match kind {
        "null" => out.push(0),
        "true" => out.push(0x11),
        "false" => out.push(0x01),
        "int32" | "uint32" | "int64" | "uint64" => {
            out.push(2 + ["int32", "uint32", "int64", "uint64"].iter().position(|known| *known == kind)? as u8);
            let value: i64 = value.parse().ok()?;
            write_number(value.cast_unsigned(), out);
        }
        "ip4" => {
            out.push(6);
            out.extend(value.parse::<Ipv4Addr>().ok()?.octets());
        }
        "ip6" => {
            out.push(7);
            out.extend(value.parse::<Ipv6Addr>().ok()?.octets());
        }
        "str" => {
            out.push(8);
            string(value.as_bytes(), out);
        }
        "bin" => {
            out.push(9);
            string(&bytes(value)?, out);
        }
        _ => return None,
    }
    Some(())
}

fn scope_number(name: &str) -> Option<u8> {
    ["proc", "sess", "txn", "req", "res"].iter().position(|known| *known == name).map(|at| at as u8)
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok()).collect()
}
