//! Converters for the value of a Forwarded field (RFC 7239): `rfc7239_*`. One element of it is read, as fetches give them.

use super::spec::{ConvSpec, conv};
use crate::{
    keyword::{ArgKind::OneOf, ArgSpec, Args, arg},
    value::{
        Type::{Any, Bool, Str},
        Value,
    },
};
use std::net::{Ipv4Addr, Ipv6Addr};

const FIELDS: &[&str] = &["proto", "host", "for", "by"];
const FIELD: &[ArgSpec] = &[arg("field", OneOf(FIELDS))];

pub(super) const TABLE: &[ConvSpec] = &[
    conv("rfc7239_field", FIELD, Str, Str, "A parameter of a Forwarded field.", |_, value, args| {
        let found = parse(value.bytes()?)?[args.word(0)?]?;
        Some(Value::string(found))
    }),
    conv("rfc7239_is_valid", &[], Str, Bool, "Whether it is a valid Forwarded field.", |_, value, _| {
        Some(Value::Bool(parse(value.bytes()?).is_some()))
    }),
    conv("rfc7239_n2nn", &[], Str, Any, "The name in a node of a Forwarded field.", |_, value, _| {
        Some(match node(std::str::from_utf8(value.bytes()?).ok()?)?.0 {
            Name::Ipv4(ip) => Value::Ipv4(ip),
            Name::Ipv6(ip) => Value::Ipv6(ip),
            Name::Unknown => Value::str(b"unknown"),
            Name::Obfuscated(name) => Value::string(name),
        })
    }),
    conv("rfc7239_n2np", &[], Str, Any, "The port in a node of a Forwarded field.", |_, value, _| {
        Some(match node(std::str::from_utf8(value.bytes()?).ok()?)?.1? {
            Port::Number(port) => Value::Int(port.into()),
            Port::Obfuscated(port) => Value::string(port),
        })
    }),
];

/// The parameters of an element, in the order of `FIELDS`, if it is valid: there is at least one, each is one of those
/// and stands there once, and what a token cannot hold is in quotes.
fn parse(text: &[u8]) -> Option<[Option<&str>; 4]> {
    let mut found = [None; 4];
    for pair in std::str::from_utf8(text).ok()?.split(';') {
        let (name, value) = pair.split_once('=')?;
        let at = FIELDS.iter().position(|field| field.eq_ignore_ascii_case(name))?;
        let bare = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let text = bare.unwrap_or(value);
        let is_valid = match at {
            0 => bare.is_none() && matches!(value, "http" | "https"),
            1 => is_host(text),
            _ => node(text).is_some(),
        };
        let needs_quotes = text.bytes().any(|byte| b":[]".contains(&byte));
        if !is_valid || needs_quotes && bare.is_none() || found[at].replace(text).is_some() {
            return None;
        }
    }
    Some(found)
}

enum Name<'a> {
    Ipv4(Ipv4Addr),
    Ipv6(Ipv6Addr),
    Unknown,
    Obfuscated(&'a str),
}

enum Port<'a> {
    Number(u16),
    Obfuscated(&'a str),
}

/// Reads a node (RFC 7239, section 6): a name, and perhaps a port.
fn node(text: &str) -> Option<(Name<'_>, Option<Port<'_>>)> {
    let (name, port) = split_port(text);
    let name = match name.strip_prefix('[') {
        Some(rest) => Name::Ipv6(rest.strip_suffix(']')?.parse().ok()?),
        None if name == "unknown" => Name::Unknown,
        None if is_obfuscated(name) => Name::Obfuscated(name),
        None => Name::Ipv4(name.parse().ok()?),
    };
    let port = match port {
        None => None,
        Some(port) if is_obfuscated(port) => Some(Port::Obfuscated(port)),
        Some(port) => Some(Port::Number(number(port)?)),
    };
    Some((name, port))
}

/// `_` and at least one more character.
fn is_obfuscated(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    text.len() > 1 && text.starts_with('_') && text.bytes().all(allowed)
}

fn is_host(text: &str) -> bool {
    let (name, port) = split_port(text);
    let is_name = match name.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').is_some_and(|ip| ip.parse::<Ipv6Addr>().is_ok()),
        None => !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte)),
    };
    is_name && port.is_none_or(|port| number(port).is_some())
}

/// Takes off the port, which follows the last colon outside brackets.
fn split_port(text: &str) -> (&str, Option<&str>) {
    let end = text.rfind(']').map_or(0, |end| end + 1);
    match text[end..].find(':') {
        Some(colon) => (&text[..end + colon], Some(&text[end + colon + 1..])),
        None => (text, None),
    }
}

/// A port: digits alone, and not 0.
fn number(text: &str) -> Option<u16> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?.filter(|port| *port != 0)
}
