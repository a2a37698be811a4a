//! `log` and the formats of log lines.

use super::draft::Draft;
use crate::{
    address::{self as addresses, Address, Family},
    args::{Args, Parsed, expected},
    keyword::{ALL, FRONT, Keyword, ONE, SOME},
    model::{LogAddress, LogTarget, LogTransport, ServerHost},
    span::Word,
    syslog,
};
use std::path::PathBuf;

type Entry = Keyword<Draft>;

pub(super) const KEYWORDS: &[Entry] = &[
    Entry::new("log", SOME, "Where log lines go: a target, or 'global'", |d, a| {
        line(&mut d.proxy.logs, &mut d.proxy.log_global, a)
    })
    .no(),
    Entry::new("log-format", ONE, "Format of log lines", |d, a| {
        d.proxy.log_format = Some(a.word("a format")?.clone());
        Ok(())
    })
    .at(FRONT),
    Entry::new("log-format-sd", ONE, "The structured data of RFC 5424 lines", |d, a| {
        d.proxy.log_format_sd = Some(a.word("a format")?.clone());
        Ok(())
    })
    .at(FRONT),
    Entry::new(
        "error-log-format",
        ONE,
        "Format of the log line for a connection that failed before it became a session",
        |d, a| {
            d.proxy.error_log_format = Some(a.word("a format")?.clone());
            Ok(())
        },
    )
    .at(FRONT),
    Entry::new("log-tag", ONE, "The tag of syslog lines", |d, a| {
        d.proxy.log_tag = Some(a.text("a tag")?);
        Ok(())
    })
    .spare()
    .at(ALL),
    Entry::refused(
        "log-steps",
        "Steps of a transaction that are logged",
        "it is a word of later versions than HAProxy 3.0",
        "remove it; 'option logasap' says when a line is written",
    )
    .at(FRONT),
];

const FACILITIES: &[&str] = &[
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "auth2", "ftp", "ntp", "audit",
    "alert", "cron2", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
];

const TRANSPORTS: &[(&str, LogTransport)] = &[
    ("local", LogTransport::Local),
    ("rfc3164", LogTransport::Rfc3164),
    ("rfc5424", LogTransport::Rfc5424),
    ("priority", LogTransport::Priority),
    ("short", LogTransport::Short),
    ("timed", LogTransport::Timed),
    ("iso", LogTransport::Iso),
    ("raw", LogTransport::Raw),
];

/// Parses what follows `log`, or `no log`: a target, or `global`.
pub(crate) fn line(logs: &mut Vec<LogTarget>, global: &mut bool, args: &mut Args<'_>) -> Parsed {
    if args.negated {
        args.rest();
        logs.clear();
        *global = false;
        return Ok(());
    }
    if args.take_if("global") {
        *global = true;
        return args.unexpected(&[]);
    }
    logs.push(target(args)?);
    Ok(())
}

/// Parses `ADDRESS [len N] [format F] [sample R:S] FACILITY [LEVEL [MINLEVEL]]`.
pub(crate) fn target(args: &mut Args<'_>) -> Parsed<LogTarget> {
    let word = args.word("the address of a log")?;
    let address = address(args, word)?;
    let mut target = LogTarget {
        address,
        len: 1024,
        format: LogTransport::Usual,
        sample: None,
        facility: 0,
        level: 7,
        minlevel: 0,
        span: args.span,
    };
    loop {
        if args.take_if("len") {
            target.len = args.number("a length", 80..=65535)?;
        } else if args.take_if("format") {
            target.format = format(args)?;
        } else if args.take_if("sample") {
            target.sample = Some(sample(args)?);
        } else if args.take_if("profile") {
            let word = args.word("the name of a log profile")?;
            return args.wrong(
                word,
                "log profiles are of later versions than HAProxy 3.0",
                "use 'log-format' in the proxy",
            );
        } else {
            break;
        }
    }
    target.facility = position(args, "a syslog facility", FACILITIES)?;
    if args.peek().is_some() {
        target.level = level(args)?;
    }
    if args.peek().is_some() {
        target.minlevel = level(args)?;
    }
    args.unexpected(&[])?;
    Ok(target)
}

/// Parses the name of a format.
pub(crate) fn format(args: &mut Args<'_>) -> Parsed<LogTransport> {
    args.choice("a log format", TRANSPORTS)
}

/// Parses a syslog level by its name: 0 is `emerg`, 7 is `debug`.
pub(super) fn level(args: &mut Args<'_>) -> Parsed<u8> {
    position(args, "a syslog level", &syslog::LEVELS)
}

fn position(args: &mut Args<'_>, what: &str, names: &[&str]) -> Parsed<u8> {
    let word = args.word(what)?;
    match names.iter().position(|name| *name == word.text) {
        Some(place) => Ok(place as u8),
        None => {
            let hint = expected(&word.text, names.iter().copied());
            args.wrong(word, format!("'{}' is not {what}", word.text), hint)
        }
    }
}

/// Parses `RANGES:SIZE`, for instance `1,3-4:10`.
fn sample(args: &mut Args<'_>) -> Parsed<String> {
    let word = args.word("a sampling rule")?;
    let valid = word.text.split_once(':').is_some_and(|(ranges, size)| {
        let size: u32 = size.parse().unwrap_or(0);
        size > 0
            && ranges.split(',').all(|range| {
                let (low, high) = range.split_once('-').unwrap_or((range, range));
                matches!((low.parse::<u32>(), high.parse::<u32>()), (Ok(l), Ok(h)) if 1 <= l && l <= h && h <= size)
            })
    });
    match valid {
        true => Ok(word.text.clone()),
        false => {
            args.wrong(word, format!("'{}' is not a sampling rule", word.text), "for instance 1:10 or 2-3,8-11:11")
        }
    }
}

fn address(args: &mut Args<'_>, word: &Word) -> Parsed<LogAddress> {
    let expanded = crate::words::expand(&word.text, args.around);
    let text = expanded.as_ref();
    let host_port = text.strip_prefix("udp@").or(text.strip_prefix("dgram+ip@")).unwrap_or(text);
    match text.split_once('@') {
        _ if text == "stdout" => return Ok(LogAddress::Fd(1)),
        _ if text == "stderr" => return Ok(LogAddress::Fd(2)),
        _ if text.starts_with('/') => return Ok(LogAddress::Unix(PathBuf::from(text))),
        Some(("fd", number)) => {
            return Ok(LogAddress::Fd(args.number_in(word, number, "a file descriptor", 0..=i32::MAX)?));
        }
        Some(("unix" | "uxdg", path)) => return Ok(LogAddress::Unix(PathBuf::from(path))),
        Some(("ring", name)) => return Ok(LogAddress::Ring(name.to_owned())),
        Some(("backend", _)) => {
            return args.wrong(word, "logs cannot be sent to a backend", "give the address of a syslog server");
        }
        Some(("tcp" | "tcp4" | "tcp6", _)) => return stream(args, word, text),
        Some(("uxst" | "abns", _)) => {
            return args.wrong(
                word,
                "logs are sent to datagram sockets of the host, not to streams",
                "for instance '/dev/log'",
            );
        }
        _ => {}
    }
    let family = |prefix: &str, name: &str| text.strip_prefix(prefix).map(|rest| format!("{name}@{rest}"));
    let plain = family("udp4@", "ipv4").or_else(|| family("udp6@", "ipv6"));
    let (host, port) = host_and_port(args, word, plain.as_deref().unwrap_or(host_port))?;
    Ok(LogAddress::Udp(host, port))
}

/// A log server over TCP: a ring of its own that has this server (manual section 4.2, `log`).
fn stream(args: &mut Args<'_>, word: &Word, text: &str) -> Parsed<LogAddress> {
    let (host, port) = host_and_port(args, word, text.strip_prefix("tcp@").unwrap_or(text))?;
    let host = host.parse().map_or(ServerHost::Name(host), ServerHost::Ip);
    let name = crate::ring::of_log_line(host, port, args.span, args.around);
    Ok(LogAddress::Ring(name))
}

/// Parses the address of a log server; the port is 514 unless there is one.
fn host_and_port(args: &mut Args<'_>, word: &Word, text: &str) -> Parsed<(String, u16)> {
    match addresses::parse(args, word, text)? {
        Address::Net { host, port, family } => {
            let port = match port.as_deref() {
                None | Some("") => 514,
                // As in HAProxy, 0 is no port at all.
                Some(port) => match args.number_in(word, port, "a port", 0..=65535)? {
                    0 => 514,
                    port => port,
                },
            };
            let host = if matches!(host.as_str(), "" | "*") { "127.0.0.1" } else { &host };
            let valid = match host.parse::<std::net::IpAddr>() {
                Ok(ip) => family.is_none_or(|family| (family == Family::V4) == ip.is_ipv4()),
                Err(_) => host.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.')),
            };
            if !valid {
                return args.wrong(word, format!("'{host}' is not the address of a log"), "for instance 127.0.0.1:514");
            }
            Ok((host.to_owned(), port))
        }
        _ => {
            args.wrong(word, format!("'{text}' is not the address of a log"), "for instance 127.0.0.1:514 or /dev/log")
        }
    }
}
