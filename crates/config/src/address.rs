//! Addresses (manual section 11): families, ports, ranges and offsets.

use crate::{
    args::{Args, Parsed},
    model::{ListenAddress, ServerHost, ServerPort},
    span::Word,
    words,
};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::PathBuf,
};

/// Families that HAProxy knows and that are refused wherever an address is read.
/// The longest name in the abstract namespace, behind the zero that it begins with.
const ABSTRACT_MAX: usize = 107;

/// Such a name as HAProxy's `abns@` has it: with zeros to its full length, so that both find each other.
fn padded(name: &str) -> String {
    let mut padded = name.to_owned();
    padded.extend(std::iter::repeat_n('\0', ABSTRACT_MAX.saturating_sub(name.len())));
    padded
}

const REFUSED: &[(&str, &str)] = &[
    ("quic4@", "QUIC is not served: give a TCP address"),
    ("quic6@", "QUIC is not served: give a TCP address"),
    ("sockpair@", "a sockpair only exists inside HAProxy's own process tree"),
    ("udp@", "this address is used for connections, not datagrams"),
    ("udp4@", "this address is used for connections, not datagrams"),
    ("udp6@", "this address is used for connections, not datagrams"),
    ("uxdg@", "this address is used for connections, not datagrams"),
    ("rhttp@", "reverse HTTP is not served"),
    ("rev@", "reverse HTTP is not served"),
];

/// The longest path of a socket (`sun_path` without its final NUL).
const UNIX_PATH_MAX: usize = 107;

/// An address whose use has not yet said what its parts must be.
pub(crate) enum Address {
    Unix(String),
    Abstract(String),
    Fd(i32),
    /// The host without brackets, and the text after the last colon.
    Net {
        host: String,
        port: Option<String>,
        family: Option<Family>,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

/// Removes prefixes and splits host from port. Environment variables are expanded even without quotes around them, as in `bind
/// ${ADDRESS}:80` (manual section 2.3 and the `bind` line's example).
pub(crate) fn parse(args: &mut Args<'_>, word: &Word, text: &str) -> Parsed<Address> {
    let expanded = words::expand(text, args.around);
    let text = expanded.as_ref();
    if let Some((prefix, why)) = REFUSED.iter().find(|(prefix, _)| text.starts_with(prefix)) {
        return args.wrong(word, format!("addresses that begin with '{prefix}' are not supported"), *why);
    }
    let text = text.strip_prefix("stream+").unwrap_or(text);
    let (family, rest) = match text.split_once('@') {
        Some(("unix" | "uxst", path)) => return Ok(Address::Unix(path.to_owned())),
        Some(("abns", name)) => return Ok(Address::Abstract(padded(name))),
        Some(("abnsz", name)) => return Ok(Address::Abstract(name.to_owned())),
        Some(("fd", number)) => {
            return match number.parse() {
                Ok(fd) if fd >= 0 => Ok(Address::Fd(fd)),
                _ => args.wrong(word, format!("'{number}' is not a file descriptor"), "expected a number, as in fd@3"),
            };
        }
        Some(("ip" | "tcp" | "mptcp", rest)) => (None, rest),
        Some(("ipv4" | "tcp4" | "mptcp4", rest)) => (Some(Family::V4), rest),
        Some(("ipv6" | "tcp6" | "mptcp6", rest)) => (Some(Family::V6), rest),
        Some((other, _)) if !other.is_empty() && other.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'+') => {
            let known = ["unix", "abns", "fd", "ip", "ipv4", "ipv6", "tcp", "tcp4", "tcp6"];
            let hint = crate::args::expected(other, known.into_iter());
            return args.wrong(word, format!("'{other}@' is not an address family"), hint);
        }
        _ if text.starts_with('/') => return Ok(Address::Unix(text.to_owned())),
        _ => (None, text),
    };
    // HAProxy takes what follows the last colon as the port, so that `:::443` is port 443 of `::`.
    let (host, port) = match rest.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, tail)) if tail.starts_with(':') => (host, Some(&tail[1..])),
        Some(_) => return args.wrong(word, format!("'{rest}' is not an address"), "expected ':' and a port after ']'"),
        None => rest.rsplit_once(':').map_or((rest, None), |(host, port)| (host, Some(port))),
    };
    Ok(Address::Net { host: host.to_owned(), port: port.map(str::to_owned), family })
}

/// An address of `bind` (one of its comma-separated list): a path follows the prefix of `unix-bind`.
pub(crate) fn bound(args: &mut Args<'_>, word: &Word, text: &str) -> Parsed<ListenAddress> {
    match (listen(args, word, text)?, &args.around.unix_bind.prefix) {
        (ListenAddress::Unix(path), Some(prefix)) => {
            let whole = format!("{prefix}{}", path.display());
            if whole.len() > UNIX_PATH_MAX {
                let message = "the path of the socket is too long behind the prefix of 'unix-bind'";
                return args.wrong(word, message, "the system allows 107 bytes");
            }
            Ok(ListenAddress::Unix(PathBuf::from(whole)))
        }
        (address, _) => Ok(address),
    }
}

/// An address of `bind` or of `stats socket`.
pub(crate) fn listen(args: &mut Args<'_>, word: &Word, text: &str) -> Parsed<ListenAddress> {
    let (host, port, family) = match parse(args, word, text)? {
        Address::Unix(path) if path.is_empty() => {
            return args.wrong(word, "the path of the socket is missing", "expected unix@/path");
        }
        Address::Unix(path) if path.len() > UNIX_PATH_MAX => {
            return args.wrong(word, "the path of the socket is too long", "the system allows 107 bytes");
        }
        Address::Unix(path) => return Ok(ListenAddress::Unix(PathBuf::from(path))),
        Address::Abstract(name) => return Ok(ListenAddress::Abstract(name)),
        Address::Fd(fd) => return Ok(ListenAddress::Fd(fd)),
        Address::Net { host, port, family } => (host, port, family),
    };
    let Some(port) = port.filter(|p| !p.is_empty()) else {
        return args.wrong(
            word,
            format!("'{text}' has no port"),
            "expected ADDRESS:PORT, for instance :443, 192.0.2.1:80 or [::]:443",
        );
    };
    let (first, last) = port.split_once('-').unwrap_or((&port, &port));
    let first = args.number_in(word, first, "a port", 1..=65535)?;
    let last = args.number_in(word, last, "a port", 1..=65535)?;
    if last < first {
        return args.wrong(word, format!("the port range '{port}' runs backwards"), format!("write {last}-{first}"));
    }
    Ok(match ip(&host, family) {
        Some(ip) => ListenAddress::Ip { ip, first, last },
        None => ListenAddress::Host { host: host_name(args, word, &host)?, first, last },
    })
}

/// The address of a server, and its port or `None`.
pub(crate) fn server(args: &mut Args<'_>, word: &Word) -> Parsed<(ServerHost, ServerPort)> {
    let none = ServerPort::Offset(0);
    if crate::words::expand(&word.text, args.around).is_empty() {
        let text = format!("'{}' resolves to an empty address", word.text);
        return args.wrong(word, text, "is an environment variable missing?");
    }
    let (host, port, family) = match parse(args, word, &word.text)? {
        Address::Unix(path) => return Ok((ServerHost::Unix(PathBuf::from(path)), none)),
        Address::Abstract(name) => return Ok((ServerHost::Abstract(name), none)),
        Address::Fd(_) => {
            return args.wrong(word, "a server cannot be a file descriptor", "expected an address and a port");
        }
        Address::Net { host, port, family } => (host, port, family),
    };
    let port = match port.as_deref() {
        None | Some("") => none,
        Some(offset) if offset.starts_with(['+', '-']) => {
            let number: i32 = args.number_in(word, offset.trim_start_matches('+'), "a port offset", -65535..=65535)?;
            ServerPort::Offset(number)
        }
        // HAProxy reads `:0` like no port at all.
        Some(port) => match args.number_in(word, port, "a port", 0..=65535)? {
            0 => none,
            port => ServerPort::Fixed(port),
        },
    };
    let host = match ip(&host, family) {
        Some(ip) => ServerHost::Ip(ip),
        None => ServerHost::Name(host_name(args, word, &host)?),
    };
    Ok((host, port))
}

/// The address of an agent: an IP address or a name, without a port. An IPv6 address needs no brackets here.
pub(crate) fn agent(args: &mut Args<'_>, word: &Word) -> Parsed<ServerHost> {
    if let Ok(ip) = word.text.parse() {
        return Ok(ServerHost::Ip(ip));
    }
    if word.text.starts_with('[') || !word.text.contains([':', '@']) {
        let (host, port) = server(args, word)?;
        if port == ServerPort::Offset(0) && matches!(host, ServerHost::Ip(_) | ServerHost::Name(_)) {
            return Ok(host);
        }
    }
    let text = format!("'{}' is not the address of an agent", word.text);
    args.wrong(word, text, "for instance 192.0.2.1 or 2001:db8::1; its port is written as 'agent-port'")
}

/// An IP address; `*` and the empty string mean every address.
pub(crate) fn ip(host: &str, family: Option<Family>) -> Option<IpAddr> {
    match (host, family) {
        ("" | "*", Some(Family::V6)) => Some(Ipv6Addr::UNSPECIFIED.into()),
        ("" | "*", _) => Some(Ipv4Addr::UNSPECIFIED.into()),
        (host, None) => host.parse().ok(),
        (host, Some(Family::V4)) => host.parse::<Ipv4Addr>().ok().map(Into::into),
        (host, Some(Family::V6)) => host.parse::<Ipv6Addr>().ok().map(Into::into),
    }
}

pub(crate) fn host_name(args: &mut Args<'_>, word: &Word, host: &str) -> Parsed<String> {
    let plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    // All digits and dots, but not an address: 10.0.0.256 or 10.0.0 would only fail later, in a resolver.
    let number = host.bytes().all(|c| c.is_ascii_digit() || c == b'.');
    if host.is_empty() || number || !host.bytes().all(plain) || host.len() > 253 {
        return args.wrong(
            word,
            format!("'{host}' is neither an address nor a host name"),
            "expected for instance 192.0.2.1:80, [2001:db8::1]:80, www.example.com:80 or unix@/path",
        );
    }
    Ok(host.to_owned())
}
