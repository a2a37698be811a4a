//! Converters from text to text, or to a part of it.

use super::spec::{ConvSpec, bytes_arg, conv, int_arg};
use crate::{
    keyword::{
        Arg,
        ArgKind::{FromOrVar, Int as Number, NonZero, Regex, Str as Text, Var, Within, Word},
        ArgSpec, Args, arg, opt,
    },
    value::{
        Type::{Bin, Bool, Int, Str},
        Value,
    },
};
use std::{borrow::Cow, ops::Range};
use subtle::ConstantTimeEq as _;

const FIELD: &[ArgSpec] = &[arg("index", NonZero), arg("delimiters", Word), opt("count", Number)];
const CHARS: &[ArgSpec] = &[arg("chars", Text)];
const VAR: &[ArgSpec] = &[arg("var", Var)];

pub(super) const TABLE: &[ConvSpec] = &[
    conv(
        "add_item",
        &[arg("delimiter", Text), opt("var", Var), opt("suffix", Text)],
        Str,
        Str,
        "Appends a variable and a suffix, after a delimiter where both sides are there.",
        |ctx, value, args| {
            let mut out = value.to_text();
            let item = args.var(1).and_then(|var| ctx.var(var)).map(|value| value.to_text()).unwrap_or_default();
            let suffix = args.bytes(2).unwrap_or_default();
            if !out.is_empty() && (!item.is_empty() || !suffix.is_empty()) {
                out.extend_from_slice(args.bytes(0).unwrap_or_default());
            }
            out.extend_from_slice(&item);
            out.extend_from_slice(suffix);
            Some(Value::string(out))
        },
    ),
    conv(
        "bytes",
        &[arg("offset", FromOrVar(0)), opt("length", FromOrVar(1))],
        Bin,
        Bin,
        "Bytes from an offset, at most `length` of them.",
        |ctx, value, args| {
            let offset = usize::try_from(int_arg(ctx, args, 0)?).ok()?;
            let size = value.bytes()?.len();
            // Behind the end there is nothing, whatever the length.
            let length = match args.len() {
                2.. if offset < size => usize::try_from(int_arg(ctx, args, 1)?).ok()?,
                _ => usize::MAX,
            };
            cut(value, |bytes| {
                let rest = bytes.get(offset..).unwrap_or_default();
                &rest[..rest.len().min(length)]
            })
        },
    ),
    conv(
        "concat",
        &[opt("start", Text), opt("var", Var), opt("end", Text)],
        Str,
        Str,
        "Appends a text, a variable and a text.",
        |ctx, value, args| {
            let mut out = value.to_text();
            out.extend_from_slice(args.bytes(0).unwrap_or_default());
            if let Some(value) = args.var(1).and_then(|var| ctx.var(var)) {
                value.write_text(&mut out);
            }
            out.extend_from_slice(args.bytes(2).unwrap_or_default());
            Some(Value::string(out))
        },
    ),
    conv("cut_crlf", &[], Str, Str, "Ends at the first CR or LF.", |_, value, _| {
        cut(value, |text| memchr::memchr2(b'\r', b'\n', text).map_or(text, |end| &text[..end]))
    }),
    conv(
        "field",
        FIELD,
        Str,
        Str,
        "The field of a number, and more after it, between delimiters.",
        |_, value, args| {
            let (index, count) = (args.int(0)?, args.int(2).unwrap_or(1));
            let delimiters = args.bytes(1)?;
            let place = field(value.bytes()?, index, delimiters, count)?;
            cut(value, |text| &text[place.clone()])
        },
    ),
    conv("host_only", &[], Str, Str, "A Host value without its port, in lower case.", |_, value, _| {
        let text = value.bytes()?;
        Some(Value::string(text[..host_len(text)].to_ascii_lowercase()))
    }),
    conv(
        "iif",
        &[arg("true", Text), arg("false", Text)],
        Bool,
        Str,
        "One text for true, another for false.",
        |_, value, args| {
            let at = if value.to_int()? != 0 { 0 } else { 1 };
            Some(Value::str(args.bytes(at)?))
        },
    ),
    conv(
        "param",
        &[arg("name", Text), opt("delimiter", Word)],
        Str,
        Str,
        "The value of a parameter, empty if it has none.",
        |_, value, args| {
            let (name, delimiter) = (args.bytes(0)?, args.bytes(1).unwrap_or(b"&"));
            let place = param(value.bytes()?, name, delimiter)?;
            cut(value, |text| &text[place.clone()])
        },
    ),
    conv(
        "language",
        &[arg("values", Text), opt("default", Text)],
        Str,
        Str,
        "The language an Accept-Language prefers among some.",
        |_, value, args| language(value.bytes()?, args.bytes(0)?).or(args.bytes(1)).map(Value::str),
    ),
    conv("length", &[], Str, Int, "Its length in bytes.", |_, value, _| Some(Value::Int(value.bytes()?.len() as i64))),
    conv("lower", &[], Str, Str, "In lower case.", |_, value, _| match value {
        Value::Str(text) if !text.iter().any(u8::is_ascii_uppercase) => Some(Value::Str(text)),
        other => Some(Value::string(other.bytes()?.to_ascii_lowercase())),
    }),
    conv("ltrim", CHARS, Str, Str, "Without some characters at its beginning.", |_, value, args| {
        let chars = args.bytes(0)?;
        cut(value, |text| {
            let start = text.iter().position(|byte| !chars.contains(byte)).unwrap_or(text.len());
            &text[start..]
        })
    }),
    conv("port_only", &[], Str, Int, "The port of a Host value, 0 where there is none.", |_, value, _| {
        let text = value.bytes()?;
        let port = text.get(host_len(text) + 1..).unwrap_or_default();
        Some(Value::Int(std::str::from_utf8(port).ok().and_then(|port| port.parse::<u32>().ok()).map_or(0, i64::from)))
    }),
    conv(
        "regsub",
        &[arg("regex", Regex), arg("replacement", Text), opt("flags", Within("gi"))],
        Str,
        Str,
        "Replaces what a regular expression matches; `g` all of it, `i` in any case.",
        |_, value, args| {
            let Some(Arg::Regex(regex)) = args.first() else { return None };
            let all = args.bytes(2).is_some_and(|flags| flags.contains(&b'g'));
            let text = value.bytes()?;
            if !regex.is_match(text) {
                return Some(value);
            }
            let mut out = Vec::with_capacity(text.len());
            regex.replace(text, args.bytes(1)?, all, &mut out);
            Some(Value::string(out))
        },
    ),
    conv("rtrim", CHARS, Str, Str, "Without some characters at its end.", |_, value, args| {
        let chars = args.bytes(0)?;
        cut(value, |text| {
            let end = text.iter().rposition(|byte| !chars.contains(byte)).map_or(0, |last| last + 1);
            &text[..end]
        })
    }),
    conv(
        "secure_memcmp",
        VAR,
        Bin,
        Bool,
        "Whether it equals a variable, in time that depends on lengths only.",
        |ctx, value, args| {
            let other = ctx.var(args.var(0)?)?.cast(Bin)?;
            Some(Value::Bool(value.bytes()?.ct_eq(other.bytes()?).into()))
        },
    ),
    conv("strcmp", VAR, Str, Int, "Compares with a variable as strcmp(3) does.", |ctx, value, args| {
        let other = bytes_arg(ctx, args, 0)?;
        Some(Value::Int(compare(value.bytes()?, &other)))
    }),
    conv("upper", &[], Str, Str, "In upper case.", |_, value, _| {
        Some(Value::string(value.bytes()?.to_ascii_uppercase()))
    }),
    conv("word", FIELD, Str, Str, "As `field`, but delimiters in a row are one.", |_, value, args| {
        let (index, count) = (args.int(0)?, args.int(2).unwrap_or(1));
        let delimiters = args.bytes(1)?;
        let place = word(value.bytes()?, index, delimiters, count)?;
        cut(value, |text| &text[place.clone()])
    }),
];

/// Where the value of the first parameter of this name is.
fn param(text: &[u8], name: &[u8], delimiter: &[u8]) -> Option<Range<usize>> {
    let mut at = 0;
    loop {
        let len = memchr::memmem::find(&text[at..], delimiter).unwrap_or(text.len() - at);
        match text[at..at + len].strip_prefix(name) {
            Some(b"") => return Some(at + len..at + len),
            Some([b'=', value @ ..]) => return Some(at + len - value.len()..at + len),
            _ => {}
        }
        at += len + delimiter.len();
        if at > text.len() {
            return None;
        }
    }
}

/// Part of the text, borrowed if the text was borrowed.
fn cut<'c>(value: Value<'c>, part: impl Fn(&[u8]) -> &[u8]) -> Option<Value<'c>> {
    let shorten = |bytes: Cow<'c, [u8]>| match bytes {
        Cow::Borrowed(bytes) => Cow::Borrowed(part(bytes)),
        Cow::Owned(bytes) => Cow::Owned(part(&bytes).to_vec()),
    };
    match value {
        Value::Str(bytes) => Some(Value::Str(shorten(bytes))),
        Value::Bin(bytes) => Some(Value::Bin(shorten(bytes))),
        _ => None,
    }
}

/// The length of the host in `HOST:PORT`: up to the last colon outside brackets, or all of `text` if there is none.
fn host_len(text: &[u8]) -> usize {
    let from = memchr::memrchr(b']', text).unwrap_or(0);
    memchr::memrchr(b':', &text[from..]).map_or(text.len(), |at| from + at)
}

/// The field at `index`, where every delimiter counts. A `count` of 0 means all that follow (or precede it, when
/// counting from the end). `None` if there is no such field.
fn field(text: &[u8], index: i64, delimiters: &[u8], count: i64) -> Option<Range<usize>> {
    let spans: Vec<(usize, usize)> = spans(text, delimiters).collect();
    select(text, &spans, index, count)
}

/// The word at `index`, where adjacent delimiters and those at the ends do not count. `None` if there is no such word.
fn word(text: &[u8], index: i64, delimiters: &[u8], count: i64) -> Option<Range<usize>> {
    let spans: Vec<(usize, usize)> = spans(text, delimiters).filter(|(start, end)| start != end).collect();
    select(text, &spans, index, count)
}

fn spans<'t>(text: &'t [u8], delimiters: &'t [u8]) -> impl Iterator<Item = (usize, usize)> + 't {
    let mut start = Some(0);
    std::iter::from_fn(move || {
        let from = start?;
        let end = text[from..].iter().position(|byte| delimiters.contains(byte)).map(|at| from + at);
        start = end.map(|end| end + 1);
        Some((from, end.unwrap_or(text.len())))
    })
}

/// If more are asked for than there are, the result extends to the end of the text, including delimiters.
fn select(text: &[u8], spans: &[(usize, usize)], index: i64, count: i64) -> Option<Range<usize>> {
    let place = usize::try_from(index.unsigned_abs()).ok()?.checked_sub(1)?;
    let more = if count <= 0 { usize::MAX } else { usize::try_from(count).unwrap_or(usize::MAX) - 1 };
    if index > 0 {
        let start = spans.get(place)?.0;
        let end = place.checked_add(more).and_then(|last| spans.get(last)).map_or(text.len(), |(_, end)| *end);
        Some(start..end)
    } else {
        let last = spans.len().checked_sub(place + 1)?;
        let start = last.checked_sub(more).map_or(0, |first| spans[first].0);
        Some(start..spans[last].1)
    }
}

fn compare(a: &[u8], b: &[u8]) -> i64 {
    match a.iter().zip(b).find(|(x, y)| x != y) {
        Some((x, y)) => i64::from(*x) - i64::from(*y),
        None => match a.len().cmp(&b.len()) {
            std::cmp::Ordering::Less => -1,
            std::cmp::Ordering::Equal => 0,
            std::cmp::Ordering::Greater => 1,
        },
    }
}

/// The entry of `known` (separated by semicolons) that a list of languages with q-values prefers.
fn language<'k>(accept: &[u8], known: &'k [u8]) -> Option<&'k [u8]> {
    let mut best: Option<(u32, &[u8])> = None;
    for item in accept.split(|&byte| byte == b',') {
        let mut parts = item.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
        let tag = parts.next()?;
        let q = parts.find_map(|part| part.strip_prefix(b"q=")).map_or(1000, thousandths);
        if q == 0 || best.is_some_and(|(sofar, _)| sofar >= q) {
            continue;
        }
        let base = memchr::memchr(b'-', tag).map(|at| &tag[..at]);
        let find = |tag: &[u8]| known.split(|&byte| byte == b';').find(|known| *known == tag);
        if let Some(found) = find(tag).or_else(|| find(base?)) {
            best = Some((q, found));
        }
    }
    best.map(|(_, found)| found)
}

/// A q-value (RFC 9110, section 12.4.2) in thousandths; 1000 if it is invalid.
fn thousandths(text: &[u8]) -> u32 {
    if text.first() != Some(&b'0') {
        return 1000;
    }
    let digit = |at: usize| text.get(at).filter(|b| b.is_ascii_digit()).map_or(0, |b| u32::from(b - b'0'));
    (digit(2) * 100 + digit(3) * 10 + digit(4)).min(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_words_of_the_manual() {
        let text = b"f1_f2_f3__f5";
        for (index, count, expected) in [
            (5, 1, "f5"),
            (2, 0, "f2_f3__f5"),
            (2, 2, "f2_f3"),
            (-2, 3, "f2_f3_"),
            (-3, 0, "f1_f2_f3"),
            (4, 1, ""),
            (-1, 1, "f5"),
        ] {
            let place = field(text, index, b"_", count).expect("the field is there");
            assert_eq!(&text[place], expected.as_bytes(), "field({index},_,{count})");
        }
        assert_eq!(field(text, 6, b"_", 1), None);
        for (index, count, expected) in
            [(4, 1, "f5"), (2, 0, "f2_f3__f5"), (3, 2, "f3__f5"), (-2, 3, "f1_f2_f3"), (-3, 0, "f1_f2")]
        {
            let place = word(text, index, b"_", count).expect("the word is there");
            assert_eq!(&text[place], expected.as_bytes(), "word({index},_,{count})");
        }
        assert_eq!(word(text, 5, b"_", 1), None);
        assert_eq!(word(b"/f1/f2/f3/f4", 1, b"/", 1), Some(1..3));
    }

    #[test]
    fn the_preferred_language() {
        assert_eq!(language(b"de;q=0.5, fr-CA;q=0.8, en;q=0.8", b"es;fr;en"), Some(&b"fr"[..]));
        assert_eq!(language(b"de, en;q=0", b"es;fr;en"), None);
    }
}
