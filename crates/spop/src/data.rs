//! Typed data: the values in messages and actions.

use penstock_peers::varint;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A value. The four kinds of integers are one: HAProxy reads them all into 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentData<'a> {
    /// No value.
    Null,
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An IPv4 address.
    Ipv4(Ipv4Addr),
    /// An IPv6 address.
    Ipv6(Ipv6Addr),
    /// Text, which need not be UTF-8.
    Text(&'a [u8]),
    /// Bytes.
    Binary(&'a [u8]),
}

const BOOL: u8 = 1;
const INT32: u8 = 2;
pub(crate) const UINT32: u8 = 3;
const INT64: u8 = 4;
const UINT64: u8 = 5;
const IPV4: u8 = 6;
const IPV6: u8 = 7;
const TEXT: u8 = 8;
const BINARY: u8 = 9;
/// The flag that makes a truth value true.
const TRUE: u8 = 0x10;

impl<'a> AgentData<'a> {
    /// Appends the value; integers go as signed 64 bits, as HAProxy sends them.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        match self {
            AgentData::Null => out.push(0),
            AgentData::Bool(value) => out.push(BOOL | if value { TRUE } else { 0 }),
            AgentData::Int(value) => {
                out.push(INT64);
                varint::write(value.cast_unsigned(), out);
            }
            AgentData::Ipv4(ip) => {
                out.push(IPV4);
                out.extend(ip.octets());
            }
            AgentData::Ipv6(ip) => {
                out.push(IPV6);
                out.extend(ip.octets());
            }
            AgentData::Text(bytes) => {
                out.push(TEXT);
                write_bytes(bytes, out);
            }
            AgentData::Binary(bytes) => {
                out.push(BINARY);
                write_bytes(bytes, out);
            }
        }
    }

    /// Takes a value off the front of `input`, where all of it must be.
    pub(crate) fn take(input: &mut &'a [u8]) -> Option<AgentData<'a>> {
        let kind = input.split_off_first()?;
        Some(match kind & 0x0f {
            0 => AgentData::Null,
            BOOL => AgentData::Bool(kind & TRUE != 0),
            INT32 | UINT32 | INT64 | UINT64 => AgentData::Int(take_number(input)?.cast_signed()),
            IPV4 => AgentData::Ipv4(Ipv4Addr::from(*take_array::<4>(input)?)),
            IPV6 => AgentData::Ipv6(Ipv6Addr::from(*take_array::<16>(input)?)),
            TEXT => AgentData::Text(take_bytes(input)?),
            BINARY => AgentData::Binary(take_bytes(input)?),
            _ => return None,
        })
    }
}

/// Appends a length and that many bytes: a string without a type.
pub(crate) fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    varint::write(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Takes a length and that many bytes.
pub(crate) fn take_bytes<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(take_number(input)?).ok()?;
    input.split_off(..length)
}

/// Takes a number that must be there.
pub(crate) fn take_number(input: &mut &[u8]) -> Option<u64> {
    varint::read(input).ok().flatten()
}

fn take_array<'a, const N: usize>(input: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    input.split_off(..N)?.first_chunk()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn values_are_what_haproxy_2_6_sends_and_are_read_back() {
        // Recorded from HAProxy 2.6.12: `args str(abc) bool(true) int(-5) int(300) bin(00ff) src`.
        for (value, bytes) in [
            (AgentData::Null, &b"\x00"[..]),
            (AgentData::Bool(true), b"\x11"),
            (AgentData::Bool(false), b"\x01"),
            (AgentData::Int(300), b"\x04\xfc\x03"),
            (AgentData::Int(-5), b"\x04\xfb\xf0\xfe\xfe\xfe\xfe\xfe\xfe\xfe\x0e"),
            (AgentData::Ipv4(Ipv4Addr::LOCALHOST), b"\x06\x7f\x00\x00\x01"),
            (AgentData::Ipv6(Ipv6Addr::LOCALHOST), b"\x07\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01"),
            (AgentData::Text(b"abc"), b"\x08\x03abc"),
            (AgentData::Binary(b"\x00\xff"), b"\x09\x02\x00\xff"),
        ] {
            let mut out = Vec::new();
            value.write(&mut out);
            assert_eq!(out, bytes, "{value:?}");
            let mut input = bytes;
            assert_eq!(AgentData::take(&mut input), Some(value));
            assert!(input.is_empty());
            for cut in 0..bytes.len() {
                assert_eq!(AgentData::take(&mut &bytes[..cut]), None, "{value:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn integers_of_every_width_are_integers() {
        for kind in [INT32, UINT32, INT64, UINT64] {
            assert_eq!(AgentData::take(&mut &[kind, 42][..]), Some(AgentData::Int(42)));
        }
    }

    #[test]
    fn what_is_no_value_is_not_read() {
        for bytes in [&b"\x0a"[..], b"\x0f\x00", b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x08\x05abc"] {
            assert_eq!(AgentData::take(&mut &bytes[..]), None, "{bytes:?}");
        }
    }
}
