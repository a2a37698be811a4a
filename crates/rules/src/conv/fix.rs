//! FIX (Financial Information eXchange): a message is a list of fields `tag=value`, each ended by a byte of value 1. The first says which
//! version it is, the second how long what follows is, and the last is a checksum.

use super::spec::{ConvSpec, conv};
use crate::{
    keyword::{ArgKind::FixTag, Args as _, arg},
    value::{
        Type::{Bin, Bool},
        Value,
    },
};
use std::borrow::Cow;

const END: u8 = 1;
const BEGIN_STRING: u32 = 8;
const BODY_LENGTH: u32 = 9;
const CHECK_SUM: u32 = 10;
const MSG_TYPE: u32 = 35;

/// Names for tags, as the manual lists them.
const TAGS: [(&str, u32); 6] = [
    ("BeginString", BEGIN_STRING),
    ("BodyLength", BODY_LENGTH),
    ("CheckSum", CHECK_SUM),
    ("MsgType", MSG_TYPE),
    ("SenderCompID", 49),
    ("TargetCompID", 56),
];

/// The versions, and the highest tag that each defines. All of 5.0 call themselves by the name of their transport.
const VERSIONS: [(&[u8], u32); 6] = [
    (b"FIX.4.0", 140),
    (b"FIX.4.1", 211),
    (b"FIX.4.2", 446),
    (b"FIX.4.3", 659),
    (b"FIX.4.4", 956),
    (b"FIXT.1.1", 1_621),
];

/// Tags that users may define.
const OF_USERS: std::ops::RangeInclusive<u32> = 10_000..=19_999;

/// The length of the shortest message: before that much is there, nothing is decided.
const SHORTEST: usize = 26;

pub(super) const TABLE: &[ConvSpec] = &[
    conv(
        "fix_is_valid",
        &[],
        Bin,
        Bool,
        "Whether it is a FIX message; nothing while it is incomplete.",
        |_, value, _| is_valid(value.bytes()?).map(Value::Bool),
    ),
    conv(
        "fix_tag_value",
        &[arg("tag", FixTag)],
        Bin,
        Bin,
        "The value of the first field with this tag in a FIX message.",
        |_, value, args| {
            let wanted = u32::try_from(args.int(0)?).ok()?;
            let mut rest = value.bytes()?;
            loop {
                let field = Field::first(rest)?.ok()?;
                if field.tag == wanted {
                    return (!field.value.is_empty()).then(|| Value::Bin(Cow::Owned(field.value.to_vec())));
                }
                if field.tag == CHECK_SUM {
                    return None;
                }
                rest = &rest[field.whole..];
            }
        },
    ),
];

/// A tag by its number or its name.
pub(crate) fn tag_named(text: &str) -> Option<u32> {
    number(text.as_bytes())
        .filter(|tag| *tag != 0)
        .or_else(|| TAGS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, tag)| *tag))
}

struct Field<'a> {
    tag: u32,
    value: &'a [u8],
    /// How many bytes it has, its end included.
    whole: usize,
}

/// What begins a field and cannot become one.
struct NoField;

impl Field<'_> {
    /// The first field; `None` if its end has not come.
    fn first(message: &[u8]) -> Option<Result<Field<'_>, NoField>> {
        let equals = memchr::memchr(b'=', message)?;
        let length = memchr::memchr(END, &message[equals..])?;
        let value = &message[equals + 1..equals + length];
        Some(match number(&message[..equals]) {
            None | Some(0) => Err(NoField),
            Some(tag) => Ok(Field { tag, value, whole: equals + length + 1 }),
        })
    }
}

/// Whether it is a message; `None` if that depends on what has not come yet.
fn is_valid(message: &[u8]) -> Option<bool> {
    if message.len() < SHORTEST {
        return None;
    }
    let (mut at, mut sum, mut highest, mut body) = (0, 0_u8, 0, 0..0);
    for place in 1_usize.. {
        let Ok(field) = Field::first(&message[at..])? else { return Some(false) };
        let fits = match place {
            1 => {
                highest = VERSIONS.iter().find(|(name, _)| *name == field.value).map_or(0, |(_, highest)| *highest);
                field.tag == BEGIN_STRING && highest > 0
            }
            2 => {
                let start = at + field.whole;
                let length = number(field.value).filter(|length| *length > 0);
                body = start..start.saturating_add(length.unwrap_or(0) as usize);
                field.tag == BODY_LENGTH && length.is_some()
            }
            3 => field.tag == MSG_TYPE,
            _ if field.tag == CHECK_SUM => {
                return Some(body.end == at && field.value.len() == 3 && number(field.value) == Some(sum.into()));
            }
            _ => field.tag <= highest || OF_USERS.contains(&field.tag),
        };
        if !fits {
            return Some(false);
        }
        let bytes = &message[at..at + field.whole];
        sum = bytes.iter().fold(sum, |sum, byte| sum.wrapping_add(*byte));
        at += field.whole;
    }
    None
}

/// A number of decimal digits.
fn number(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGON: &[u8] = b"8=FIX.4.4\x019=12\x0135=A\x0149=ABCD\x0110=022\x01";

    /// The message, with the checksum that it should have.
    fn summed(message: &[u8]) -> Vec<u8> {
        let sum = message.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
        [message, format!("10={sum:03}\x01").as_bytes()].concat()
    }

    #[test]
    fn every_cut_of_a_message_is_incomplete() {
        let whole = summed(b"8=FIX.4.4\x019=13\x0135=A\x0149=ABCD\x01");
        assert_eq!(is_valid(&whole), Some(true));
        for cut in 0..whole.len() {
            assert_ne!(is_valid(&whole[..cut]), Some(true), "{cut}");
        }
        // What follows the message is of no interest.
        assert_eq!(is_valid(&[&whole, &b"8"[..]].concat()), Some(true));
    }

    #[test]
    fn lengths_and_sums_are_compared() {
        assert_eq!(is_valid(LOGON), Some(false));
        for changed in [
            &b"8=FIX.4.5\x019=13\x0135=A\x0149=ABCD\x01"[..],
            b"8=FIX.4.4\x019=12\x0135=A\x0149=ABCD\x01",
            b"8=FIX.4.4\x019=x3\x0135=A\x0149=ABCD\x01",
            b"8=FIX.4.4\x019=13\x0149=A\x0149=ABCD\x01",
            b"8=FIX.4.0\x019=14\x0135=A\x01141=ABCD\x01",
        ] {
            assert_eq!(is_valid(&summed(changed)), Some(false), "{}", String::from_utf8_lossy(changed));
        }
    }
}
