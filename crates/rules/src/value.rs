//! Samples: typed values, and conversions between types.

use std::{
    borrow::Cow,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// The types of the manual's section 7, by the names in its keyword tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// Any type; it is only known at run time.
    Any,
    /// True or false.
    Bool,
    /// Signed 64-bit integer.
    Int,
    /// An IPv4 or IPv6 address.
    Addr,
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
    /// Text.
    Str,
    /// Bytes.
    Bin,
    /// An HTTP method.
    Method,
}

impl Type {
    /// The manual's short name.
    pub fn name(self) -> &'static str {
        match self {
            Type::Any => "any",
            Type::Bool => "bool",
            Type::Int => "sint",
            Type::Addr => "addr",
            Type::Ipv4 => "ipv4",
            Type::Ipv6 => "ipv6",
            Type::Str => "str",
            Type::Bin => "bin",
            Type::Method => "meth",
        }
    }

    /// Whether a value of type `self` may be used where `to` is wanted. The conversion may still fail at run time: not
    /// every text is an address.
    pub fn casts_to(self, to: Type) -> bool {
        use Type::{Addr, Any, Bin, Bool, Int, Ipv4, Ipv6, Method, Str};
        match (self, to) {
            (Any, _) | (_, Any) => true,
            (Bool, Bool | Int | Str | Bin) => true,
            (Int, Bool | Int | Addr | Ipv4 | Ipv6 | Str | Bin) => true,
            // Where an address may be of either family, it is no number.
            (Ipv4, Int) => true,
            (Addr | Ipv4 | Ipv6, Addr | Ipv4 | Ipv6 | Str | Bin) => true,
            (Str, _) => true,
            (Bin, Str | Bin | Method) => true,
            (Method, Str | Bin | Method) => true,
            _ => false,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A sample. Text and bytes are borrowed from the message until a converter has to change them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// See [`Type::Bool`].
    Bool(bool),
    /// See [`Type::Int`].
    Int(i64),
    /// See [`Type::Ipv4`].
    Ipv4(Ipv4Addr),
    /// See [`Type::Ipv6`].
    Ipv6(Ipv6Addr),
    /// See [`Type::Str`].
    Str(Cow<'a, [u8]>),
    /// See [`Type::Bin`].
    Bin(Cow<'a, [u8]>),
    /// See [`Type::Method`].
    Method(Cow<'a, [u8]>),
}

impl<'a> Value<'a> {
    /// Borrowed text.
    pub fn str(bytes: &'a [u8]) -> Self {
        Value::Str(Cow::Borrowed(bytes))
    }
    /// Borrowed bytes.
    pub fn bin(bytes: &'a [u8]) -> Self {
        Value::Bin(Cow::Borrowed(bytes))
    }
    /// Owned text.
    pub fn string(bytes: impl Into<Vec<u8>>) -> Value<'static> {
        Value::Str(Cow::Owned(bytes.into()))
    }
    /// An address of either family.
    pub fn ip(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => Value::Ipv4(ip),
            IpAddr::V6(ip) => Value::Ipv6(ip),
        }
    }
    /// The value's type.
    pub fn kind(&self) -> Type {
        match self {
            Value::Bool(_) => Type::Bool,
            Value::Int(_) => Type::Int,
            Value::Ipv4(_) => Type::Ipv4,
            Value::Ipv6(_) => Type::Ipv6,
            Value::Str(_) => Type::Str,
            Value::Bin(_) => Type::Bin,
            Value::Method(_) => Type::Method,
        }
    }
    /// The bytes of text, bytes or a method; `None` for other types.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Str(bytes) | Value::Bin(bytes) | Value::Method(bytes) => Some(bytes),
            _ => None,
        }
    }
    /// The first `most` bytes of text, bytes or a method; other types are unchanged.
    pub(crate) fn cut(self, most: usize) -> Value<'a> {
        let cut = |bytes: Cow<'a, [u8]>| match bytes {
            Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[..most.min(bytes.len())]),
            Cow::Owned(mut bytes) => {
                bytes.truncate(most);
                bytes.shrink_to_fit();
                Cow::Owned(bytes)
            }
        };
        match self {
            Value::Str(bytes) => Value::Str(cut(bytes)),
            Value::Bin(bytes) => Value::Bin(cut(bytes)),
            Value::Method(bytes) => Value::Method(cut(bytes)),
            other => other,
        }
    }
    /// Makes an owned copy of what it borrows.
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Value::Bool(b) => Value::Bool(b),
            Value::Int(n) => Value::Int(n),
            Value::Ipv4(ip) => Value::Ipv4(ip),
            Value::Ipv6(ip) => Value::Ipv6(ip),
            Value::Str(bytes) => Value::Str(Cow::Owned(bytes.into_owned())),
            Value::Bin(bytes) => Value::Bin(Cow::Owned(bytes.into_owned())),
            Value::Method(bytes) => Value::Method(Cow::Owned(bytes.into_owned())),
        }
    }
    /// A copy that borrows from this value.
    pub fn borrowed(&self) -> Value<'_> {
        match self {
            Value::Bool(b) => Value::Bool(*b),
            Value::Int(n) => Value::Int(*n),
            Value::Ipv4(ip) => Value::Ipv4(*ip),
            Value::Ipv6(ip) => Value::Ipv6(*ip),
            Value::Str(bytes) => Value::str(bytes),
            Value::Bin(bytes) => Value::bin(bytes),
            Value::Method(bytes) => Value::Method(Cow::Borrowed(bytes)),
        }
    }

    /// Converts to another type, if the value permits.
    pub fn cast(self, to: Type) -> Option<Value<'a>> {
        if to == Type::Any || self.kind() == to {
            return Some(self);
        }
        match to {
            Type::Any => Some(self),
            Type::Bool => match self {
                Value::Bool(b) => Some(Value::Bool(b)),
                Value::Int(n) => Some(Value::Bool(n != 0)),
                Value::Str(text) => parse_int(&text).map(|n| Value::Bool(n != 0)),
                _ => None,
            },
            Type::Int => match self {
                Value::Bool(b) => Some(Value::Int(b.into())),
                Value::Ipv4(ip) => Some(Value::Int(u32::from(ip).into())),
                Value::Str(text) => parse_int(&text).map(Value::Int),
                _ => None,
            },
            Type::Addr => match self {
                Value::Ipv4(_) | Value::Ipv6(_) => Some(self),
                Value::Int(n) => Some(Value::Ipv4(Ipv4Addr::from(n as u32))),
                Value::Str(text) => parse_ip(&text).map(Value::ip),
                _ => None,
            },
            Type::Ipv4 => match self {
                Value::Ipv6(ip) => v6_to_v4(ip).map(Value::Ipv4),
                Value::Int(n) => Some(Value::Ipv4(Ipv4Addr::from(n as u32))),
                Value::Str(text) => split_ipv4(&text).map(|(ip, _)| Value::Ipv4(ip)),
                _ => None,
            },
            Type::Ipv6 => match self {
                Value::Ipv4(ip) => Some(Value::Ipv6(ip.to_ipv6_mapped())),
                Value::Int(n) => Some(Value::Ipv6(Ipv4Addr::from(n as u32).to_ipv6_mapped())),
                Value::Str(text) => std::str::from_utf8(&text).ok()?.parse().ok().map(Value::Ipv6),
                _ => None,
            },
            Type::Str => match self {
                Value::Str(bytes) | Value::Method(bytes) => Some(Value::Str(bytes)),
                // Text ends at a NUL, like a C string.
                Value::Bin(bytes) => Some(Value::Str(match (memchr::memchr(0, &bytes), bytes) {
                    (None, bytes) => bytes,
                    (Some(end), Cow::Borrowed(bytes)) => Cow::Borrowed(&bytes[..end]),
                    (Some(end), Cow::Owned(mut bytes)) => {
                        bytes.truncate(end);
                        Cow::Owned(bytes)
                    }
                })),
                other => Some(Value::string(other.to_text())),
            },
            Type::Bin => match self {
                Value::Str(bytes) | Value::Bin(bytes) | Value::Method(bytes) => Some(Value::Bin(bytes)),
                Value::Int(n) => Some(Value::Bin(Cow::Owned(n.to_be_bytes().to_vec()))),
                Value::Ipv4(ip) => Some(Value::Bin(Cow::Owned(ip.octets().to_vec()))),
                Value::Ipv6(ip) => Some(Value::Bin(Cow::Owned(ip.octets().to_vec()))),
                Value::Bool(b) => Some(Value::Bin(Cow::Owned(i64::from(b).to_be_bytes().to_vec()))),
            },
            Type::Method => match self {
                Value::Str(bytes) | Value::Bin(bytes) | Value::Method(bytes) => Some(Value::Method(bytes)),
                _ => None,
            },
        }
    }

    /// Converts to an integer, if the type has such a conversion.
    pub fn to_int(&self) -> Option<i64> {
        match self {
            Value::Bool(b) => Some((*b).into()),
            Value::Int(n) => Some(*n),
            Value::Ipv4(ip) => Some(u32::from(*ip).into()),
            Value::Str(text) => parse_int(text),
            _ => None,
        }
    }

    /// Appends the text form, as written to a header or a log line.
    pub fn write_text(&self, out: &mut Vec<u8>) {
        match self {
            Value::Bool(b) => out.push(if *b { b'1' } else { b'0' }),
            Value::Int(n) => write_int(out, *n),
            Value::Ipv4(ip) => write_ipv4(out, *ip),
            Value::Ipv6(ip) => out.extend_from_slice(Ip6Text(*ip).to_string().as_bytes()),
            Value::Str(bytes) | Value::Bin(bytes) | Value::Method(bytes) => out.extend_from_slice(bytes),
        }
    }

    /// The text form.
    pub fn to_text(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write_text(&mut out);
        out
    }
}

/// An IPv6 address as inet_ntop(3) writes it, and therefore HAProxy's logs.
struct Ip6Text(Ipv6Addr);

impl fmt::Display for Ip6Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The C library also writes the deprecated IPv4-compatible form with dots (::1.2.3.4).
        let octets = self.0.octets();
        if octets[..12] == [0; 12] && (octets[12] != 0 || octets[13] != 0) {
            return write!(f, "::{}.{}.{}.{}", octets[12], octets[13], octets[14], octets[15]);
        }
        write!(f, "{}", self.0)
    }
}

/// Appends a decimal number without using the formatter, since counters and timers are most of a log line.
#[inline]
pub fn write_int(out: &mut Vec<u8>, n: i64) {
    if n < 0 {
        out.push(b'-');
    }
    penstock_http::push_decimal(out, n.unsigned_abs());
}

/// Appends an IPv4 address.
fn write_ipv4(out: &mut Vec<u8>, ip: Ipv4Addr) {
    for (place, octet) in ip.octets().into_iter().enumerate() {
        if place > 0 {
            out.push(b'.');
        }
        write_int(out, octet.into());
    }
}

/// The number at the start of a text: an optional sign and digits, as HAProxy parses samples; 0 without digits.
/// Saturates. `None` for an empty text.
pub fn parse_int(text: &[u8]) -> Option<i64> {
    if text.is_empty() {
        return None;
    }
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let mut n: i64 = 0;
    for &byte in digits {
        if !byte.is_ascii_digit() {
            break;
        }
        let digit = i64::from(byte - b'0');
        // Accumulated as a negative number, since the smallest number has no positive counterpart.
        n = n.saturating_mul(10).saturating_sub(digit);
    }
    Some(if negative { n } else { n.saturating_neg() })
}

/// An address in a sample's text. Anything after an IPv4 address, such as a port, is ignored.
pub fn parse_ip(text: &[u8]) -> Option<IpAddr> {
    split_ipv4(text).map(|(ip, _)| IpAddr::V4(ip)).or_else(|| std::str::from_utf8(text).ok()?.parse().ok())
}

/// The IPv4 address at the start of a text, and the rest; leading zeros do not make a number octal.
pub(crate) fn split_ipv4(text: &[u8]) -> Option<(Ipv4Addr, &[u8])> {
    let mut octets = [0u8; 4];
    let mut rest = text;
    for (place, octet) in octets.iter_mut().enumerate() {
        if place > 0 {
            rest = rest.strip_prefix(b".")?;
        }
        let len = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        *octet = std::str::from_utf8(&rest[..len]).ok()?.parse().ok()?;
        rest = &rest[len..];
    }
    (rest.first() != Some(&b'.')).then(|| (octets.into(), rest))
}

/// The IPv4 address in a mapped, compatible or 6to4 address.
pub fn v6_to_v4(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let o = ip.octets();
    if o[..10] == [0; 10] && (o[10..12] == [0, 0] || o[10..12] == [0xff, 0xff]) {
        return Some(Ipv4Addr::new(o[12], o[13], o[14], o[15]));
    }
    (o[..2] == [0x20, 0x02]).then(|| Ipv4Addr::new(o[2], o[3], o[4], o[5]))
}

/// Upper-case hexadecimal.
pub(crate) fn hex_of(bytes: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    bytes.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]).collect()
}
