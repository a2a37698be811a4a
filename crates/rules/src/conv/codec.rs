//! Encodings: base64, hexadecimal, percent signs, JSON strings, dates.

use super::spec::{ConvSpec, conv};
use crate::{
    context::Context,
    keyword::{
        Arg,
        ArgKind::{Int as Number, OneOf, Range, Str as Text},
        ArgSpec, Args, arg, opt,
    },
    time,
    value::{
        Type::{Bin, Int, Str},
        Value, hex_of,
    },
};
use base64::{
    Engine as _,
    engine::{
        DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::STANDARD,
        general_purpose::URL_SAFE_NO_PAD,
    },
};
use std::borrow::Cow;

const NUMBERS: &[ArgSpec] = &[arg("separator", Text), arg("chunk_size", Range(1, 8)), opt("truncate", Number)];
const CHUNKS: &[ArgSpec] = &[opt("separator", Text), opt("chunk_size", Range(1, i64::MAX)), opt("truncate", Number)];
const FORMAT: &[ArgSpec] = &[arg("format", Text), opt("offset", Number)];

/// The bits of a number that count as a date: HAProxy uses 55 of them, so that no date is before 1970.
const DATES: i64 = 0x007f_ffff_ffff_ffff;

pub(super) const TABLE: &[ConvSpec] = &[
    conv("b64dec", &[], Str, Bin, "Decodes base64.", |_, value, _| {
        const ENGINE: GeneralPurpose = GeneralPurpose::new(
            &base64::alphabet::STANDARD,
            GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
        );
        ENGINE.decode(value.bytes()?).ok().map(|bytes| Value::Bin(Cow::Owned(bytes)))
    }),
    conv("base64", &[], Bin, Str, "Encodes in base64.", |_, value, _| {
        Some(Value::string(STANDARD.encode(value.bytes()?)))
    }),
    conv("be2dec", NUMBERS, Bin, Str, "Big-endian numbers of some bytes each, in decimal.", |_, value, args| {
        chunks(value.bytes()?, args, 8, |chunk, out| {
            let n = chunk.iter().fold(0u64, |n, &byte| n << 8 | u64::from(byte));
            penstock_http::push_decimal(out, n);
        })
    }),
    conv("be2hex", CHUNKS, Bin, Str, "Bytes in hexadecimal, some at a time.", |_, value, args| {
        chunks(value.bytes()?, args, usize::MAX, |chunk, out| out.extend_from_slice(&hex_of(chunk)))
    }),
    conv("hex", &[], Bin, Str, "In hexadecimal.", |_, value, _| Some(Value::string(hex_of(value.bytes()?)))),
    conv("hex2i", &[], Str, Int, "The number that hexadecimal digits write.", |_, value, _| {
        let digit = |&byte: &u8| char::from(byte).to_digit(16).map(i64::from);
        let digits: Option<Vec<i64>> = value.bytes()?.iter().map(digit).collect();
        Some(Value::Int(digits?.into_iter().fold(0i64, |n, digit| n.wrapping_shl(4) | digit)))
    }),
    conv("htonl", &[], Int, Bin, "The low 32 bits as bytes in network order.", |_, value, _| {
        Some(Value::Bin(Cow::Owned((value.to_int()? as u32).to_be_bytes().to_vec())))
    }),
    conv(
        "http_date",
        &[opt("offset", Number), opt("unit", OneOf(&["s", "ms", "us"]))],
        Int,
        Str,
        "A date as HTTP fields write it.",
        |_, value, args| {
            let at = value.to_int()?.saturating_add(args.int(0).unwrap_or(0));
            let (unit, digits) = match args.word(1) {
                Some(1) => (1_000, 3),
                Some(2) => (1_000_000, 6),
                _ => (1, 0),
            };
            let mut out = Vec::with_capacity(36);
            time::Civil::from_unix(at.div_euclid(unit) & DATES).write_http(&mut out);
            if digits > 0 {
                // A unit below one second also shows the fraction: 12:14:14.655 GMT.
                let zone = out.len() - b" GMT".len();
                let fraction = format!(".{:0digits$}", at.rem_euclid(unit));
                out.splice(zone..zone, fraction.into_bytes());
            }
            Some(Value::string(out))
        },
    ),
    conv(
        "json",
        &[opt("input", OneOf(&["ascii", "utf8", "utf8s", "utf8p", "utf8ps"]))],
        Str,
        Str,
        "Escaped as the inside of a JSON string.",
        |_, value, args| json_escape(value.bytes()?, args.word(0).unwrap_or(0)).map(Value::string),
    ),
    conv("ltime", FORMAT, Int, Str, "A date in local time, by a format of strftime(3).", |ctx, value, args| {
        Some(formatted(ctx, value.to_int()?, args, 1, true))
    }),
    conv("ms_ltime", FORMAT, Int, Str, "As ltime, of milliseconds; %N is the fraction.", |ctx, value, args| {
        Some(formatted(ctx, value.to_int()?, args, 1_000, true))
    }),
    conv("ms_utime", FORMAT, Int, Str, "As utime, of milliseconds; %N is the fraction.", |ctx, value, args| {
        Some(formatted(ctx, value.to_int()?, args, 1_000, false))
    }),
    conv("ub64dec", &[], Str, Bin, "Decodes base64url.", |_, value, _| {
        const ENGINE: GeneralPurpose = GeneralPurpose::new(
            &base64::alphabet::URL_SAFE,
            GeneralPurposeConfig::new()
                .with_decode_padding_mode(DecodePaddingMode::Indifferent)
                .with_decode_allow_trailing_bits(true),
        );
        ENGINE.decode(value.bytes()?).ok().map(|bytes| Value::Bin(Cow::Owned(bytes)))
    }),
    conv("ub64enc", &[], Bin, Str, "Encodes in base64url.", |_, value, _| {
        Some(Value::string(URL_SAFE_NO_PAD.encode(value.bytes()?)))
    }),
    conv(
        "url_dec",
        &[opt("in_form", Number)],
        Str,
        Str,
        "Decodes percent signs; `+` is a space in a query.",
        |_, value, args| url_decode(value.bytes()?, args.int(0).unwrap_or(0) != 0).map(Value::string),
    ),
    conv("url_enc", &[opt("type", OneOf(&["query"]))], Str, Str, "Encodes with percent signs.", |_, value, _| {
        Some(Value::string(url_encode(value.bytes()?)))
    }),
    conv("us_ltime", FORMAT, Int, Str, "As ltime, of microseconds; %N is the fraction.", |ctx, value, args| {
        Some(formatted(ctx, value.to_int()?, args, 1_000_000, true))
    }),
    conv("us_utime", FORMAT, Int, Str, "As utime, of microseconds; %N is the fraction.", |ctx, value, args| {
        Some(formatted(ctx, value.to_int()?, args, 1_000_000, false))
    }),
    conv("utime", FORMAT, Int, Str, "A date in UTC, by a format of strftime(3).", |ctx, value, args| {
        Some(formatted(ctx, value.to_int()?, args, 1, false))
    }),
];

fn chunks<'c>(bytes: &[u8], args: &[Arg], max: usize, write: impl Fn(&[u8], &mut Vec<u8>)) -> Option<Value<'c>> {
    let separator = args.bytes(0).unwrap_or_default();
    let size = args.int(1).map_or(Some(1), |n| usize::try_from(n).ok())?.clamp(1, max);
    let truncate = args.int(2).unwrap_or(0) != 0;
    let mut out = Vec::new();
    for (at, chunk) in bytes.chunks(size).enumerate() {
        if truncate && chunk.len() < size {
            break;
        }
        if at > 0 {
            out.extend_from_slice(separator);
        }
        write(chunk, &mut out);
    }
    Some(Value::string(out))
}

/// Writes a date of which `per_second` make a second, in which the offset is too.
fn formatted<'c>(ctx: &Context<'_>, date: i64, args: &[Arg], per_second: i64, local: bool) -> Value<'c> {
    let mut format = Cow::Borrowed(args.bytes(0).unwrap_or_default());
    let date = (date & DATES).saturating_add(args.int(1).unwrap_or(0));
    let unix = date.div_euclid(per_second);
    if per_second > 1 {
        let nanos = date.rem_euclid(per_second) * (1_000_000_000 / per_second);
        format = Cow::Owned(with_fraction(&format, nanos));
    }
    let offset = if local { ctx.world.utc_offset_s(unix) } else { 0 };
    let mut out = Vec::new();
    time::format(unix, offset, &format, &mut out);
    Value::string(out)
}

/// Puts the fraction of a second in place of `%N`, and as many digits of it as a width says in place of `%3N`.
fn with_fraction(format: &[u8], nanos: i64) -> Vec<u8> {
    let digits = format!("{nanos:09}").into_bytes();
    let mut out = Vec::with_capacity(format.len() + digits.len());
    let mut rest = format;
    while let Some((&byte, after)) = rest.split_first() {
        let width = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
        rest = match (byte, after) {
            (b'%', [b'%', after @ ..]) => {
                out.extend_from_slice(b"%%");
                after
            }
            (b'%', _) if after.get(width) == Some(&b'N') => {
                let wanted = std::str::from_utf8(&after[..width]).ok().and_then(|width| width.parse().ok());
                out.extend_from_slice(&digits[..wanted.unwrap_or(digits.len()).min(digits.len())]);
                &after[width + 1..]
            }
            _ => {
                out.push(byte);
                after
            }
        };
    }
    out
}

fn url_decode(text: &[u8], mut form: bool) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' if form => out.push(b' '),
            b'%' => {
                let mut digit = || bytes.next().and_then(|b| char::from(b).to_digit(16));
                let (high, low) = (digit()?, digit()?);
                out.push((high * 16 + low) as u8);
            }
            b'?' => {
                form = true;
                out.push(b'?');
            }
            byte => out.push(byte),
        }
    }
    Some(out)
}

/// Encodes all but the unreserved characters of RFC 3986, section 2.3.
fn url_encode(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 16);
    for &byte in text {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte);
        } else {
            out.push(b'%');
            out.extend_from_slice(&hex_of(&[byte]));
        }
    }
    out
}

/// `mode` is the index in ascii, utf8, utf8s, utf8p, utf8ps.
fn json_escape(text: &[u8], mode: usize) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() + 16);
    let silent = matches!(mode, 2 | 4);
    let mut rest = text;
    while !rest.is_empty() {
        let (code, len) = if mode == 0 {
            (Some(u32::from(rest[0])), 1)
        } else {
            match decode_utf8(rest, matches!(mode, 3 | 4)) {
                (None, _) if !silent => return None,
                decoded => decoded,
            }
        };
        rest = &rest[len..];
        match code {
            None => {}
            Some(c @ (0x22 | 0x5c | 0x2f)) => out.extend([b'\\', c as u8]),
            Some(0x08) => out.extend(b"\\b"),
            Some(0x0c) => out.extend(b"\\f"),
            Some(0x0a) => out.extend(b"\\n"),
            Some(0x0d) => out.extend(b"\\r"),
            Some(0x09) => out.extend(b"\\t"),
            Some(c @ 0x20..=0x7e) => out.push(c as u8),
            // Only four digits can be written, so larger code points are errors too.
            Some(0x1_0000..) if silent => {}
            Some(0x1_0000..) => return None,
            Some(c) => out.extend(format!("\\u{c:04x}").into_bytes()),
        }
    }
    Some(out)
}

/// One character and its length; `None` if it is not UTF-8. `permissive` accepts overlong forms.
fn decode_utf8(bytes: &[u8], permissive: bool) -> (Option<u32>, usize) {
    let first = bytes[0];
    let (len, mut code) = match first {
        0..=0x7f => return (Some(first.into()), 1),
        0xc0..=0xdf => (2, u32::from(first & 0x1f)),
        0xe0..=0xef => (3, u32::from(first & 0x0f)),
        0xf0..=0xf7 => (4, u32::from(first & 0x07)),
        _ => return (None, 1),
    };
    for at in 1..len {
        match bytes.get(at) {
            Some(&byte) if byte & 0xc0 == 0x80 => code = code << 6 | u32::from(byte & 0x3f),
            _ => return (None, at),
        }
    }
    let least = [0, 0, 0x80, 0x800, 0x1_0000][len];
    let valid = (permissive || code >= least) && char::from_u32(code).is_some();
    (valid.then_some(code), len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_of_the_manual() {
        assert_eq!(json_escape(b"Very \"Ugly\" UA 1/2", 2).unwrap(), b"Very \\\"Ugly\\\" UA 1\\/2");
        assert_eq!(json_escape("é\n".as_bytes(), 1).unwrap(), b"\\u00e9\\n");
        assert_eq!(json_escape("é".as_bytes(), 0).unwrap(), b"\\u00c3\\u00a9");
        assert_eq!(json_escape(b"a\xffb", 1), None);
        assert_eq!(json_escape(b"a\xffb", 2).unwrap(), b"ab");
    }

    #[test]
    fn percent_signs() {
        assert_eq!(url_decode(b"a+b%20c?d+e", false).unwrap(), b"a+b c?d e");
        assert_eq!(url_decode(b"a+b", true).unwrap(), b"a b");
        assert_eq!(url_decode(b"a%2", false), None);
        assert_eq!(url_encode(b"a b/\xe9~"), b"a%20b%2F%E9~");
    }
}
