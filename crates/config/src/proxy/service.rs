//! `service`: what such a section has beyond a backend's words.

use super::draft::Draft;
use crate::{
    args::{Args, Parsed, Reported},
    keyword::{Keyword, ONE, Places, between},
    model::{CheckKind, Device, Fate, LogFormat, Mode, Proxy, ProxyKind, Scheme, Service, ServiceMode, TapTarget},
    span::{Line, Span, Spanned, Word},
    surroundings::Surroundings,
};
use std::{net::SocketAddr, sync::Arc};

mod packets;

type Entry = Keyword<Draft>;

pub(super) const KEYWORDS: &[Entry] = &[
    Entry::new("reqmod", ONE, "The ICAP service that inspects requests", |d, a| path(d, a, |s| &mut s.reqmod))
        .at(Places::SERVICE),
    Entry::new("respmod", ONE, "The ICAP service that inspects responses", |d, a| path(d, a, |s| &mut s.respmod))
        .at(Places::SERVICE),
    Entry::new("device", between(1, 3), "How a device is asked: as a server, or as a proxy", device)
        .at(Places::SERVICE),
    Entry::new("on-failure", between(1, 3), "What becomes of messages if the service fails", |d, a| {
        let fate = fate(a)?;
        let status = match fate == Fate::Deny && a.take_if("status") {
            true => Some(a.number("a status", 400..=599u16)?),
            false => None,
        };
        let service = of(d);
        service.on_failure = fate;
        service.deny_status = status.unwrap_or(service.deny_status);
        a.unexpected(&["status"])
    })
    .at(Places::SERVICE),
    Entry::new(
        "max-body",
        between(1, 2),
        "Longest body kept for the service, and what becomes of longer ones",
        |d, a| {
            let size = a.size("a size", 1..=1 << 40)?;
            let fate = if a.peek().is_some() { Some(fate(a)?) } else { None };
            let service = of(d);
            (service.max_body, service.too_long) = (size, fate);
            Ok(())
        },
    )
    .at(Places::SERVICE),
    Entry::new("tap", between(2, 6), "Where a copy of the traffic goes, as packets", tap).at(Places::SERVICE),
    Entry::new("tap-buffer", ONE, "Most bytes of the copy that wait for its reader", |d, a| {
        of(d).tap_buffer = a.size("a size", 64 << 10..=1 << 40)?;
        Ok(())
    })
    .at(Places::SERVICE),
    Entry::new("tap-port", ONE, "The server's port in the copy", |d, a| {
        of(d).tap_port = Some(a.number("a port", 1..=u16::MAX)?);
        Ok(())
    })
    .at(Places::SERVICE),
];

/// The words of a tap.
const OF_TAPS: &[&str] = &["tap", "tap-buffer", "tap-port"];
/// The other words that a tap may have.
const ALSO_OF_TAPS: &[&str] = &["mode", "description", "id"];

/// The words of services in mode http and tcp alone: where requests come back, and how long they may take.
const OF_HTTP: &[&str] = &["bind", "timeout client", "timeout http-request", "timeout http-keep-alive"];
/// The word of a service in mode http alone.
const OF_DEVICES: &str = "device";
/// The words of a service in mode icap alone.
const OF_ICAP: &[&str] = &["reqmod", "respmod"];

/// The words that services have in common with backends.
const SHARED: &[&str] = &[
    "mode",
    "server",
    "server-template",
    "default-server",
    "balance",
    "hash-type",
    "hash-balance-factor",
    "timeout connect",
    "timeout server",
    "timeout queue",
    "timeout check",
    "description",
    "id",
    "fullconn",
    "source",
    "option allbackups",
    "option log-health-checks",
];

/// Whether a `service` section may have this keyword.
pub(super) fn has(keyword: &Keyword<Draft>) -> bool {
    keyword.places.has(Places::SERVICE) || SHARED.contains(&keyword.name) || OF_HTTP.contains(&keyword.name)
}

fn of(draft: &mut Draft) -> &mut Service {
    draft.proxy.service.get_or_insert_default()
}

fn fate(args: &mut Args<'_>) -> Parsed<Fate> {
    args.choice("what becomes of the message", &[("deny", Fate::Deny), ("bypass", Fate::Bypass)])
}

fn path(draft: &mut Draft, args: &mut Args<'_>, field: fn(&mut Service) -> &mut Option<String>) -> Parsed {
    let word = args.word("a path")?;
    let visible = word.text.bytes().all(|byte| byte.is_ascii_graphic());
    if !word.text.starts_with('/') || !visible {
        return args.wrong(word, format!("'{}' is not the path of a service", word.text), "for instance /avscan");
    }
    *field(of(draft)) = Some(word.text.clone());
    Ok(())
}

/// `device` of a service.
fn device(draft: &mut Draft, args: &mut Args<'_>) -> Parsed {
    let is_explicit = args.choice("a kind of device", &[("reverse-proxy", false), ("explicit-proxy", true)])?;
    of(draft).device = match is_explicit {
        true if args.take_if("scheme") => {
            let schemes = [("http", Scheme::Http), ("https", Scheme::Https)];
            Device::ExplicitProxy(Some(args.choice("a scheme", &schemes)?))
        }
        true => Device::ExplicitProxy(None),
        false => Device::ReverseProxy,
    };
    args.unexpected(if is_explicit { &["scheme"] } else { &[] })
}

/// `mode` of a service.
pub(super) fn mode(draft: &mut Draft, args: &mut Args<'_>) -> Parsed {
    if let Some(word) = args.peek().filter(|word| word.text == "spop") {
        let message = "services in mode 'spop' are not supported".to_owned();
        return args.wrong(word, message, "expected 'icap', 'http', 'tcp' or 'tap'");
    }
    let modes = [
        ("icap", ServiceMode::Icap),
        ("http", ServiceMode::Http),
        ("tcp", ServiceMode::Tcp),
        ("tap", ServiceMode::Tap),
    ];
    of(draft).mode = Some(args.choice("the mode of a service", &modes)?);
    Ok(())
}

/// Where a tap's file begins anew, and how many are kept, unless its line says so.
const ROTATE: u64 = 100 << 20;
const KEEP: u32 = 10;

/// Where packets on an interface are sent, unless its line says so: an address that no station has been given (locally administered), so that
/// only those take notice that listen to everything.
const NOBODY: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// `tap` of a service.
fn tap(draft: &mut Draft, args: &mut Args<'_>) -> Parsed {
    args.only_once(of(draft).tap.is_some())?;
    let kind = args.word("'file', 'fifo', 'pcap-over-ip' or 'interface'")?;
    let (to, span) = match kind.text.as_str() {
        "file" => {
            let path = args.path("a path")?;
            if path.value.file_name().is_none() || path.value.to_string_lossy().ends_with('/') {
                args.error("the path has no file name").hint("for instance /var/lib/penstock/copy.pcapng");
                return Err(Reported);
            }
            let (mut rotate, mut keep) = (ROTATE, KEEP);
            while args.peek().is_some() {
                if args.take_if("rotate") {
                    rotate = args.size("a size", 64 << 10..=1 << 40)?;
                } else if args.take_if("keep") {
                    keep = args.number("a number of files", 1..=10_000u32)?;
                } else {
                    args.unexpected(&["rotate", "keep"])?;
                }
            }
            (TapTarget::File { path: path.value, rotate, keep }, path.span)
        }
        "fifo" => {
            let path = args.path("a path")?;
            (TapTarget::Fifo(path.value), path.span)
        }
        "pcap-over-ip" => {
            let listens = args.choice("who connects", &[("connect", false), ("listen", true)])?;
            let word = args.word("an address and a port")?;
            let Ok(address) = word.text.parse::<SocketAddr>() else {
                let message = format!("'{}' is not an address with a port", word.text);
                return args.wrong(word, message, "for instance 127.0.0.1:57012, or [::1]:57012");
            };
            (if listens { TapTarget::Listen(address) } else { TapTarget::Connect(address) }, word.span)
        }
        "interface" => {
            let name = args.word("a network interface")?;
            // IFNAMSIZ is 16, with a zero at the end.
            if name.text.len() > 15 || name.text.contains('/') {
                let message = format!("no network interface can have the name '{}'", name.text);
                return args.wrong(name, message, "'ip link' lists them");
            }
            let to = if args.take_if("mac") { station(args)? } else { NOBODY };
            (TapTarget::Interface { name: name.text.clone(), to }, name.span)
        }
        other => {
            let message = format!("a tap cannot write to '{other}'");
            return args.wrong(kind, message, "expected 'file', 'fifo', 'pcap-over-ip' or 'interface'");
        }
    };
    of(draft).tap = Some(Spanned { value: to, span });
    args.unexpected(&[])
}

/// The address of a station on a network, as `02:00:00:00:00:01`.
fn station(args: &mut Args<'_>) -> Parsed<[u8; 6]> {
    let word = args.word("an address of six bytes")?;
    let byte = |text: &str| match text.len() {
        1 | 2 if text.bytes().all(|digit| digit.is_ascii_hexdigit()) => u8::from_str_radix(text, 16).ok(),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = word.text.split(':').map(byte).collect();
    match bytes.and_then(|bytes| bytes.try_into().ok()) {
        Some(station) => Ok(station),
        None => {
            let message = format!("'{}' is not the address of a station", word.text);
            args.wrong(word, message, "for instance 02:00:00:00:00:01")
        }
    }
}

/// Begins a service with what the defaults say of timeouts and servers; the rest of them is about proxies.
pub(crate) fn begin(name: String, base: Option<&Draft>, span: Span) -> Draft {
    let mut draft = Draft::new(name, ProxyKind::Backend, Places::SERVICE, span);
    if let Some(base) = base {
        draft.proxy.timeouts = base.proxy.timeouts.clone();
        draft.proxy.balance = base.proxy.balance.clone();
        draft.proxy.hash_type = base.proxy.hash_type;
        draft.proxy.source = base.proxy.source.clone();
        draft.proxy.logs = base.proxy.logs.clone();
        draft.proxy.log_global = base.proxy.log_global;
        draft.default_server = base.default_server.clone();
    }
    draft.proxy.service = Some(Box::default());
    draft
}

/// Checks a service at the end of its section, and derives from its words what a backend would be told.
pub(crate) fn finish(draft: &mut Draft, around: &mut Surroundings) -> Parsed {
    let service = draft.proxy.service.as_ref().expect("only services come here");
    let mode = service.mode;
    let fits = |name: &str| match mode {
        None => true,
        Some(ServiceMode::Icap) => !OF_TAPS.contains(&name) && !OF_HTTP.contains(&name) && name != OF_DEVICES,
        Some(ServiceMode::Http) => !OF_TAPS.contains(&name) && !OF_ICAP.contains(&name),
        Some(ServiceMode::Tcp) => {
            !OF_TAPS.contains(&name) && !OF_ICAP.contains(&name) && !["max-body", OF_DEVICES].contains(&name)
        }
        Some(ServiceMode::Tap) => OF_TAPS.contains(&name) || ALSO_OF_TAPS.contains(&name),
    };
    let mut misplaced: Vec<_> = draft.seen.iter().filter(|(name, _)| !fits(name)).collect();
    misplaced.sort_by_key(|(_, span)| span.line);
    let usesrc = draft.proxy.servers.iter().filter_map(|server| server.settings.source.as_ref());
    let usesrc = usesrc.chain(&draft.proxy.source).find_map(|source| source.clientip);
    if let Some(span) = usesrc.filter(|_| mode.is_some_and(|mode| mode != ServiceMode::Tcp)) {
        around
            .diagnostics
            .error(span, "'usesrc clientip' has no effect but in a service in mode tcp")
            .hint("other services are told the client's address over HTTP or ICAP, or by 'send-proxy'");
        return Err(Reported);
    }
    if let Some((name, span)) = misplaced.first() {
        let (mode, hint) = match mode {
            Some(ServiceMode::Tap) => {
                ("tap", "a tap copies traffic and answers nothing: it has 'tap', 'tap-buffer' and 'tap-port'")
            }
            Some(ServiceMode::Http) if OF_ICAP.contains(name) => ("http", "write it into a service in mode icap"),
            Some(ServiceMode::Http) => ("http", "write it into a service in mode tap"),
            Some(ServiceMode::Tcp) if **name == "max-body" => ("tcp", "what passes a device of packets is never kept"),
            Some(ServiceMode::Tcp) if **name == OF_DEVICES => {
                ("tcp", "a device of packets is asked nothing: it passes them on")
            }
            Some(ServiceMode::Tcp) if OF_ICAP.contains(name) => ("tcp", "write it into a service in mode icap"),
            Some(ServiceMode::Tcp) => ("tcp", "write it into a service in mode tap"),
            _ if OF_HTTP.contains(name) || **name == OF_DEVICES => ("icap", "write it into a service in mode http"),
            _ => ("icap", "write it into a service in mode tap"),
        };
        around.diagnostics.error(**span, format!("'{name}' has no effect in a service in mode {mode}")).hint(hint);
        return Err(Reported);
    }
    let proxy = &mut draft.proxy;
    let name = &proxy.name;
    let service = proxy.service.as_ref().expect("only services come here");
    let missing = |around: &mut Surroundings, what: &str, hint: &str| {
        if draft.seen.contains_key(what.trim_matches('\'')) {
            // What is wrong with it has been said.
            return Err(Reported);
        }
        around.diagnostics.error(proxy.span, format!("service '{name}' has no {what}")).hint(hint);
        Err(Reported)
    };
    if service.mode.is_none() {
        return missing(around, "mode", "add 'mode icap', 'mode http', 'mode tcp' or 'mode tap'");
    }
    if service.mode == Some(ServiceMode::Tap) {
        if service.tap.is_none() {
            return missing(around, "'tap'", "add for instance 'tap file /var/lib/penstock/copy.pcapng'");
        }
        proxy.mode = Mode::Tcp;
        return Ok(());
    }
    if matches!(service.mode, Some(ServiceMode::Http | ServiceMode::Tcp)) {
        let is_of_packets = service.mode == Some(ServiceMode::Tcp);
        if proxy.servers.is_empty() {
            return missing(
                around,
                "server",
                match is_of_packets {
                    true => {
                        "add the way through the device, for instance 'server ips1 192.0.2.1:8082 namespace inside'"
                    }
                    false => "add the device, for instance 'server waf1 127.0.0.1:8081 check'",
                },
            );
        }
        if proxy.binds.is_empty() {
            return missing(
                around,
                "'bind'",
                match is_of_packets {
                    true => "add the address at the other side of the device, for instance 'bind 192.0.2.1:8082'",
                    false => {
                        "add the address to which the device forwards requests, for instance 'bind 127.0.0.1:8082'"
                    }
                },
            );
        }
        if is_of_packets {
            packets::check(proxy, around)?;
        }
        if let Some(span) = draft.seen.get("max-body") {
            if service.on_failure == Fate::Deny {
                around
                    .diagnostics
                    .error(*span, "'max-body' has no effect in a service in mode http without 'on-failure bypass'")
                    .hint("bodies are kept only for requests that can go on without the device");
                return Err(Reported);
            }
            if service.too_long.is_some() {
                around
                    .diagnostics
                    .error(*span, "'max-body' of a service in mode http does not decide about longer bodies")
                    .hint("they pass the device as well, and are denied if it fails: write the size alone");
                return Err(Reported);
            }
        }
        // It is both: servers that are asked, and a listener for what they send on.
        proxy.kind = ProxyKind::Listen;
        proxy.mode = Mode::Http;
        proxy.options.log = LogFormat::Http;
        // Only requests that are refused are logged here, and no connections without one.
        proxy.options.dontlognull = true;
        suspend_what_fails(proxy);
        return Ok(());
    }
    let Some(path) = service.reqmod.as_ref().or(service.respmod.as_ref()) else {
        return missing(
            around,
            "'reqmod' or 'respmod'",
            "add for instance 'reqmod /avscan', 'respmod /avscan', or both",
        );
    };
    if proxy.servers.is_empty() {
        return missing(around, "server", "add for instance 'server av1 127.0.0.1:1344 check'");
    }
    proxy.mode = Mode::Tcp;
    // A check asks for what every service has to answer.
    proxy.check = CheckKind::Tcp;
    proxy.tcp_check = check(proxy, path);
    suspend_what_fails(proxy);
    Ok(())
}

/// Has servers that are checked suspended once they fail, until their check succeeds.
fn suspend_what_fails(proxy: &mut Proxy) {
    for server in &mut proxy.servers {
        let settings = &server.settings;
        if settings.check.enabled && settings.observe.is_none() {
            let settings = Arc::make_mut(&mut Arc::make_mut(server).settings);
            settings.observe = Some("layer7".to_owned());
            settings.on_error.get_or_insert_with(|| "mark-down".to_owned());
            settings.error_limit = settings.error_limit.min(ERROR_LIMIT);
        }
    }
}

/// Failures in a row after which a server is suspended.
const ERROR_LIMIT: u32 = 3;

/// The steps of the health check: OPTIONS, and an answer that promises something; what is no such answer in its first bytes is not
/// waited on.
fn check(proxy: &Proxy, path: &str) -> Vec<Line> {
    let line = |words: &[&str]| Line {
        words: words.iter().map(|text| Word { text: (*text).to_owned(), span: proxy.span }).collect(),
        span: proxy.span,
    };
    let asked = format!(
        "OPTIONS icap://{name}{path} ICAP/1.0\r\nHost: {name}\r\nConnection: close\r\nEncapsulated: null-body=0\r\n\r\n",
        name = proxy.name
    );
    vec![
        line(&["connect"]),
        line(&["send", &asked]),
        line(&["expect", "min-recv", "13", "rstring", "^ICAP/1\\.0 200 "]),
    ]
}
