//! Log lines in CBOR (RFC 8949; configuration manual of HAProxy 3.0, 8.2.6, flag `cbor`).
//!
//! As in HAProxy, what is missing or empty is null, and of indefinite length are objects, lists of captures, bytes, and text of
//! clients, in which each escape is a piece.

use super::{
    alias::{AliasSpec, captures_of, write_capture},
    flags::Flags,
    json::{self, FieldType},
};
use crate::{
    context::Context,
    expr::Expr,
    value::{Type, Value},
};

/// Major types and simple values (RFC 8949 sections 3.1 and 3.3).
const INTEGER: u8 = 0;
const NEGATIVE: u8 = 1;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const FALSE: u8 = 0xf4;
const TRUE: u8 = 0xf5;
const NULL: u8 = 0xf6;
/// Beginnings and the end of what has no length.
const BYTES_BEGIN: u8 = 0x5f;
const TEXT_BEGIN: u8 = 0x7f;
const LIST_BEGIN: u8 = 0x9f;
pub(super) const OBJECT_BEGIN: u8 = 0xbf;
pub(super) const END: u8 = 0xff;

/// The aliases whose text is escaped.
const ESCAPED: &[&str] = &["HM", "HP", "HPO", "HQ", "HU", "HV", "ft", "hr", "hs", "r"];

/// Writes what an alias stands for.
pub(super) fn alias(ctx: &Context<'_>, spec: &AliasSpec, flags: Flags, kind: Option<FieldType>, out: &mut Vec<u8>) {
    let plain = Flags { quote: false, escape: false, mandatory: false, ..flags };
    if let Some(captures) = captures_of(spec.name, ctx) {
        if captures.is_empty() {
            return out.push(NULL);
        }
        out.push(LIST_BEGIN);
        for capture in captures {
            let mut written = Vec::new();
            write_capture(capture.as_deref(), plain, &mut written);
            pieces(&written, b"#", out);
        }
        return out.push(END);
    }
    let mut written = Vec::new();
    (spec.write)(ctx, plain, &mut written);
    match json::number_of(spec, flags, &written) {
        Some(n) if kind == Some(FieldType::Bool) => boolean(n != 0, out),
        Some(n) => integer(n, out),
        None if written.is_empty() => out.push(NULL),
        None if matches!(spec.name, "hr" | "hs") => pieces(&written, b"#{|}", out),
        None if ESCAPED.contains(&spec.name) => pieces(&written, b"#", out),
        None => text(&written, out),
    }
}

/// Writes the value of an expression.
pub(super) fn sample(ctx: &Context<'_>, expr: &Expr, kind: Option<FieldType>, out: &mut Vec<u8>) {
    match json::typed(ctx, expr, kind) {
        None => out.push(NULL),
        Some(Value::Int(n)) => integer(n, out),
        Some(Value::Bool(is)) => boolean(is, out),
        Some(Value::Bin(bytes)) => {
            out.push(BYTES_BEGIN);
            if !bytes.is_empty() {
                head(BYTES, bytes.len() as u64, out);
                out.extend_from_slice(&bytes);
            }
            out.push(END);
        }
        Some(value) => match value.cast(Type::Str).map(|value| value.to_text()) {
            Some(written) if !written.is_empty() => text(&written, out),
            _ => out.push(NULL),
        },
    }
}

/// Writes text of definite length.
pub(super) fn text(bytes: &[u8], out: &mut Vec<u8>) {
    head(TEXT, bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Writes text in pieces: `#` and two digits are one, and so is any other of the bytes `alone`. What precedes an escape is one
/// even if it is empty.
fn pieces(bytes: &[u8], alone: &[u8], out: &mut Vec<u8>) {
    out.push(TEXT_BEGIN);
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| alone.contains(byte)) {
        let is_escape = rest[at] == b'#';
        if at > 0 || is_escape {
            text(&rest[..at], out);
        }
        let end = rest.len().min(at + if is_escape { 3 } else { 1 });
        text(&rest[at..end], out);
        rest = &rest[end..];
    }
    if !rest.is_empty() {
        text(rest, out);
    }
    out.push(END);
}

fn integer(n: i64, out: &mut Vec<u8>) {
    match u64::try_from(n) {
        Ok(n) => head(INTEGER, n, out),
        // -1 - n, which is not below 0.
        Err(_) => head(NEGATIVE, !n as u64, out),
    }
}

fn boolean(is: bool, out: &mut Vec<u8>) {
    out.push(if is { TRUE } else { FALSE });
}

/// The major type and its number, in as few bytes as it takes (RFC 8949 section 3).
fn head(major: u8, n: u64, out: &mut Vec<u8>) {
    let bytes = n.to_be_bytes();
    let (info, len) = match n {
        0..=23 => return out.push(major << 5 | n as u8),
        24..=0xff => (24, 1),
        0x100..=0xffff => (25, 2),
        0x1_0000..=0xffff_ffff => (26, 4),
        _ => (27, 8),
    };
    out.push(major << 5 | info);
    out.extend_from_slice(&bytes[8 - len..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        out.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The examples of RFC 8949, appendix A.
    #[test]
    fn numbers_take_as_few_bytes_as_they_need() {
        for (n, bytes) in [
            (0, "00"),
            (23, "17"),
            (24, "1818"),
            (100, "1864"),
            (1000, "1903e8"),
            (1_000_000, "1a000f4240"),
            (1_000_000_000_000, "1b000000e8d4a51000"),
            (-1, "20"),
            (-10, "29"),
            (-100, "3863"),
            (-1000, "3903e7"),
            (i64::MIN, "3b7fffffffffffffff"),
        ] {
            assert_eq!(written(|out| integer(n, out)), bytes, "{n}");
        }
        assert_eq!(written(|out| text(b"IETF", out)), "6449455446");
        assert_eq!(written(|out| text(b"", out)), "60");
    }

    #[test]
    fn an_escape_is_a_piece_and_so_is_a_brace_of_a_list() {
        assert_eq!(written(|out| pieces(b"a#FF#22b", b"#", out)), "7f61616323464660632332326162ff");
        assert_eq!(written(|out| pieces(b"{|#22}", b"#{|}", out)), "7f617b617c6063233232617dff");
        assert_eq!(written(|out| pieces(b"{}", b"#", out)), "7f627b7dff");
    }
}
