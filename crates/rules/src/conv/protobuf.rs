//! Fields of Protocol Buffers (its encoding is documented at protobuf.dev), alone or in gRPC's frames.
//!
//! A message is a list of fields; each begins with a number, whose last three bits say how long it is, and the others which field it is.

use super::spec::{ConvSpec, conv};
use crate::{
    keyword::{
        Arg,
        ArgKind::{FieldNumber, OneOf},
        ArgSpec, Args as _, arg, opt,
    },
    value::{Type::Bin, Value},
};
use std::borrow::Cow;

const ARGS: &[ArgSpec] = &[arg("field_number", FieldNumber), opt("field_type", OneOf(TYPES))];

/// The types that give an integer. Those of each encoding stand together, in the order of `Encoding`.
const TYPES: &[&str] = &[
    "int32", "uint32", "int64", "uint64", "bool", "enum", "sint32", "sint64", "fixed64", "sfixed64", "double",
    "fixed32", "sfixed32", "float",
];

/// What stands before each message of gRPC: whether it is compressed, and its length.
const FRAME_HEAD: usize = 5;

pub(super) const TABLE: &[ConvSpec] = &[
    conv("protobuf", ARGS, Bin, Bin, "A field of a Protocol Buffers message.", |_, value, args| {
        found(value.bytes()?, args)
    }),
    conv("ungrpc", ARGS, Bin, Bin, "A field of the first message of gRPC that has it.", |_, value, args| {
        let mut rest = value.bytes()?;
        while rest.len() > FRAME_HEAD {
            let (head, body) = rest.split_at(FRAME_HEAD);
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
            let (message, after) = body.split_at_checked(length as usize)?;
            if let Some(value) = found(message, args) {
                return Some(value);
            }
            rest = after;
        }
        None
    }),
];

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content<'a> {
    Varint(&'a [u8], u64),
    Eight([u8; 8]),
    Bytes(&'a [u8]),
    Four([u8; 4]),
}

/// The message goes on with what is no field.
struct Broken;

fn found(message: &[u8], args: &[Arg]) -> Option<Value<'static>> {
    let Some(Arg::Numbers(path)) = args.first() else { return None };
    let content = search(message, path).ok()??;
    let Some(wanted) = args.word(1) else {
        return Some(Value::Bin(Cow::Owned(match content {
            Content::Varint(raw, _) | Content::Bytes(raw) => raw.to_vec(),
            Content::Eight(raw) => raw.to_vec(),
            Content::Four(raw) => raw.to_vec(),
        })));
    };
    // As the manual says, a fraction is cut off.
    Some(Value::Int(match (TYPES[wanted], content) {
        ("sint32" | "sint64", Content::Varint(_, n)) => (n >> 1) as i64 ^ -((n & 1) as i64),
        ("int32" | "uint32" | "int64" | "uint64" | "bool" | "enum", Content::Varint(_, n)) => n as i64,
        ("double", Content::Eight(raw)) => f64::from_le_bytes(raw) as i64,
        ("fixed64" | "sfixed64", Content::Eight(raw)) => i64::from_le_bytes(raw),
        ("float", Content::Four(raw)) => f32::from_le_bytes(raw) as i64,
        ("fixed32", Content::Four(raw)) => u32::from_le_bytes(raw).into(),
        ("sfixed32", Content::Four(raw)) => i32::from_le_bytes(raw).into(),
        _ => return None,
    }))
}

/// The first field at the end of this path, which leads through messages in messages.
fn search<'a>(mut message: &'a [u8], path: &[u32]) -> Result<Option<Content<'a>>, Broken> {
    let Some((&first, inner)) = path.split_first() else { return Ok(None) };
    while !message.is_empty() {
        let (number, content, rest) = field(message).ok_or(Broken)?;
        message = rest;
        if number != u64::from(first) {
            continue;
        }
        match content {
            _ if inner.is_empty() => return Ok(Some(content)),
            Content::Bytes(nested) => {
                if let Some(found) = search(nested, inner)? {
                    return Ok(Some(found));
                }
            }
            _ => {}
        }
    }
    Ok(None)
}

/// The first field: its number, what it holds, and what follows.
fn field(message: &[u8]) -> Option<(u64, Content<'_>, &[u8])> {
    let (key, after) = varint(message)?;
    let (content, rest) = match key & 7 {
        0 => {
            let (n, rest) = varint(after)?;
            (Content::Varint(&after[..after.len() - rest.len()], n), rest)
        }
        1 => after.split_first_chunk().map(|(raw, rest)| (Content::Eight(*raw), rest))?,
        2 => {
            let (length, after) = varint(after)?;
            let (bytes, rest) = after.split_at_checked(usize::try_from(length).ok()?)?;
            (Content::Bytes(bytes), rest)
        }
        5 => after.split_first_chunk().map(|(raw, rest)| (Content::Four(*raw), rest))?,
        // Groups are not used any more.
        _ => return None,
    };
    Some((key >> 3, content, rest))
}

/// A number in groups of seven bits, the lowest first, and what follows.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let length = bytes.iter().take(10).position(|byte| byte & 0x80 == 0)? + 1;
    let (raw, rest) = bytes.split_at(length);
    let number = raw.iter().rev().fold(0_u64, |n, byte| n << 7 | u64::from(byte & 0x7f));
    Some((number, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Vec<u32> {
        text.split('.').map(|number| number.parse().unwrap()).collect()
    }

    #[test]
    fn a_path_leads_through_messages() {
        // 1 { 1: "ab", 2: 150 }, 1 { 3: "c" }, 4: 7
        let message = b"\x0a\x07\x0a\x02ab\x10\x96\x01\x0a\x03\x1a\x01c\x20\x07";
        let find = |text: &str| search(message, &path(text)).ok().flatten();
        assert_eq!(find("1.1"), Some(Content::Bytes(b"ab")));
        assert_eq!(find("1.2"), Some(Content::Varint(b"\x96\x01", 150)));
        assert_eq!(find("1.3"), Some(Content::Bytes(b"c")));
        assert_eq!(find("4"), Some(Content::Varint(b"\x07", 7)));
        assert_eq!((find("4.1"), find("5"), find("1.4"), find("0")), (None, None, None, None));
    }

    #[test]
    fn every_cut_and_every_byte_that_is_wrong_ends() {
        let message = b"\x0a\x07\x0a\x02ab\x10\x96\x01\x11abcdefgh\x1dabcd\x20\x07";
        for cut in 0..message.len() {
            let _ = search(&message[..cut], &[9]);
            for byte in 0..=255 {
                let mut wrong = message.to_vec();
                wrong[cut] = byte;
                let _ = search(&wrong, &[1, 2]);
            }
        }
        assert!(search(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", &[1]).is_err());
        assert!(search(b"\x0a\x05ab", &[2]).is_err());
    }
}
