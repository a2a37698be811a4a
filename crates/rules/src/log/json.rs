//! Log lines in JSON (configuration manual of HAProxy 3.0, 8.2.6, flag `json`).

use super::{
    alias::{AliasSpec, captures_of, write_capture},
    flags::Flags,
};
use crate::{
    context::Context,
    expr::Expr,
    value::{Type, Value, write_int},
};

/// The type that a field's name can give its value: `%(name:sint)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldType {
    Text,
    Int,
    Bool,
    /// As it comes.
    Raw,
}

/// The aliases that are numbers.
const NUMBERS: &[&str] = &[
    "B", "ST", "Ta", "Tc", "Td", "Th", "Ti", "Tq", "TR", "Tr", "Ts", "Tt", "Tu", "Tw", "U", "ac", "bc", "bp", "bq",
    "cp", "fc", "fp", "lc", "ms", "pid", "rc", "rt", "sc", "sp", "sq", "sslew",
];
/// Those among them that the flag `X` makes text.
const HEXADECIMAL: &[&str] = &["Ts", "bp", "cp", "fp", "lc", "ms", "pid", "rt", "sp"];

/// Writes what an alias stands for.
pub(super) fn alias(ctx: &Context<'_>, spec: &AliasSpec, flags: Flags, kind: Option<FieldType>, out: &mut Vec<u8>) {
    let plain = Flags { quote: false, escape: false, mandatory: false, ..flags };
    if let Some(captures) = captures_of(spec.name, ctx) {
        if captures.is_empty() {
            out.extend_from_slice(b"null");
            return;
        }
        out.push(b'[');
        for (at, capture) in captures.iter().enumerate() {
            if at > 0 {
                out.extend_from_slice(b", ");
            }
            let mut written = Vec::new();
            write_capture(capture.as_deref(), plain, &mut written);
            text(&written, out);
        }
        out.push(b']');
        return;
    }
    let mut written = Vec::new();
    (spec.write)(ctx, plain, &mut written);
    match number_of(spec, flags, &written) {
        Some(n) => number(n, kind, out),
        None => text(&written, out),
    }
}

/// The number that an alias has written, if it is one of those that are numbers.
pub(super) fn number_of(spec: &AliasSpec, flags: Flags, written: &[u8]) -> Option<i64> {
    if !NUMBERS.contains(&spec.name) || flags.hexadecimal && HEXADECIMAL.contains(&spec.name) {
        return None;
    }
    // A total that may still grow has a plus sign in front, which no number of JSON has.
    std::str::from_utf8(written).ok()?.trim_start_matches('+').parse().ok()
}

/// The value of an expression as the type that its field's name asks for.
pub(super) fn typed<'c>(ctx: &'c Context<'_>, expr: &'c Expr, kind: Option<FieldType>) -> Option<Value<'c>> {
    let value = expr.eval(ctx).ok()?;
    match (kind, &value) {
        (Some(FieldType::Text), _) => value.cast(Type::Str),
        (Some(FieldType::Int), _) | (Some(FieldType::Raw), Value::Bool(_)) => value.cast(Type::Int),
        (Some(FieldType::Bool), _) => value.cast(Type::Bool),
        (None | Some(FieldType::Raw), _) => Some(value),
    }
}

/// Writes the value of an expression; text that is not there is empty.
pub(super) fn sample(ctx: &Context<'_>, expr: &Expr, kind: Option<FieldType>, out: &mut Vec<u8>) {
    match typed(ctx, expr, kind) {
        None => text(b"", out),
        Some(Value::Int(n)) => write_int(out, n),
        Some(Value::Bool(is)) => boolean(is, out),
        Some(value) => text(&value.cast(Type::Str).map_or_else(Vec::new, |value| value.to_text()), out),
    }
}

fn number(n: i64, kind: Option<FieldType>, out: &mut Vec<u8>) {
    match kind {
        Some(FieldType::Text) => {
            out.push(b'"');
            write_int(out, n);
            out.push(b'"');
        }
        Some(FieldType::Bool) => boolean(n != 0, out),
        _ => write_int(out, n),
    }
}

fn boolean(is: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(if is { b"true" } else { b"false" });
}

/// Writes text between quotes. JSON is UTF-8 without control characters (RFC 8259, 7 and 8.1): these are escaped, and what is not UTF-8
/// is replaced.
pub(super) fn text(bytes: &[u8], out: &mut Vec<u8>) {
    // As in every log line, text ends at a NUL.
    let bytes = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    out.push(b'"');
    for c in String::from_utf8_lossy(bytes).chars() {
        match c {
            '"' | '\\' => out.extend([b'\\', c as u8]),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            c if c.is_control() => out.extend_from_slice(format!("\\u{:04x}", c as u32).as_bytes()),
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        text(bytes, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn text_is_valid_json_whatever_it_contains() {
        assert_eq!(written(b"a/b"), r#""a/b""#);
        assert_eq!(written("é€😀".as_bytes()), "\"é€😀\"");
        assert_eq!(written(b"\"\\\n\r\t\x01\x1b\x7f"), r#""\"\\\n\r\t\u0001\u001b\u007f""#);
        assert_eq!(written(b"a\x80b\xc3"), "\"a\u{fffd}b\u{fffd}\"");
        assert_eq!(written(b"a\0b"), "\"a\"");
        assert_eq!(written(b""), "\"\"");
    }
}
