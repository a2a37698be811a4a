//! Values of header fields and cookies: by name, by number, or one after another.

use super::internal::int;
use crate::{
    keyword::{Arg, Args},
    sample::{Cursor, Fetched, Missing},
    turn::{self, cost},
    value::{Value, split_ipv4},
};
use penstock_http::{Fields, Known};
use std::{borrow::Cow, cell::Cell, net::IpAddr};

/// How many values an iteration returns.
pub(super) fn count<'c>(mut next: impl FnMut(&mut Cursor) -> bool) -> Fetched<'c> {
    let mut cursor = Cursor { iterating: true, ..Cursor::default() };
    let mut n = 0;
    loop {
        cursor.more = false;
        n += i64::from(next(&mut cursor));
        if !cursor.more {
            return int(n);
        }
    }
}

/// Selects among the values in field lines, separated by commas or semicolons: all one after another, the one with a
/// given number (negative from the end), or the last. `split` takes the next value off a line, or returns nothing for a
/// part that is not a value.
///
/// The work for each value is proportional to its length: a client can fill a line with thousands of them, and
/// restarting at the first for each would take seconds.
fn choose<'c>(
    lines: impl Iterator<Item = &'c [u8]>,
    split: impl Fn(&mut Option<&'c [u8]>) -> Option<&'c [u8]>,
    occurrence: Option<i64>,
    cursor: &mut Cursor,
) -> Result<&'c [u8], Missing> {
    let looked_at = Cell::new(0_usize);
    let split = |rest: &mut Option<&'c [u8]>| {
        looked_at.set(looked_at.get() + 1);
        split(rest)
    };
    let chosen = chosen(lines, &split, occurrence, cursor);
    turn::spend(looked_at.get().div_ceil(cost::PARTS) as u32);
    chosen
}

fn chosen<'c>(
    lines: impl Iterator<Item = &'c [u8]>,
    split: &impl Fn(&mut Option<&'c [u8]>) -> Option<&'c [u8]>,
    occurrence: Option<i64>,
    cursor: &mut Cursor,
) -> Result<&'c [u8], Missing> {
    if cursor.iterating && occurrence.unwrap_or(0) == 0 {
        for line in lines.skip(cursor.given) {
            let mut rest = line.get(cursor.position..);
            while rest.is_some() {
                let found = split(&mut rest);
                cursor.position = rest.map_or(usize::MAX, |rest| line.len() - rest.len());
                if let Some(value) = found {
                    // One more call costs less than looking ahead.
                    cursor.more = true;
                    return Ok(value);
                }
            }
            (cursor.given, cursor.position) = (cursor.given + 1, 0);
        }
        return Err(Missing::Absent);
    }
    let mut values = lines.flat_map(|line| {
        let mut rest = Some(line);
        std::iter::from_fn(move || {
            while rest.is_some() {
                if let Some(value) = split(&mut rest) {
                    return Some(value);
                }
            }
            None
        })
    });
    match occurrence.unwrap_or(0) {
        0 => values.last().ok_or(Missing::Absent),
        n if n > 0 => values.nth(n as usize - 1).ok_or(Missing::Absent),
        n => {
            let back = usize::try_from(n.unsigned_abs()).unwrap_or(usize::MAX);
            let all: Vec<&[u8]> = values.collect();
            all.len().checked_sub(back).map(|at| all[at]).ok_or(Missing::Absent)
        }
    }
}

/// Field lines with a name, or all of them if `name` is `None`.
fn lines<'c>(fields: &'c Fields, name: Option<&'c [u8]>) -> impl Iterator<Item = &'c [u8]> {
    fields
        .iter()
        .filter(move |field| name.is_none_or(|name| name.is_empty() || field.name.eq_ignore_ascii_case(name)))
        .map(|field| field.value)
}

/// The values in field lines, separated by commas outside quotes.
fn elements<'c>(fields: &'c Fields, name: Option<&'c [u8]>) -> impl Iterator<Item = &'c [u8]> {
    lines(fields, name).inspect(|line| turn::spend_on_bytes(line.len(), cost::COUNTED_BYTES)).flat_map(split_commas)
}

/// Splits a field's value at commas outside quoted strings, and trims.
fn split_commas(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    split_raw(value).map(<[u8]>::trim_ascii)
}

/// Splits a field's value at commas outside quoted strings, and keeps the white space around each part.
pub(crate) fn split_raw(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(value);
    std::iter::from_fn(move || next_raw(&mut rest))
}

/// Takes the text up to the next comma.
fn next_raw<'c>(rest: &mut Option<&'c [u8]>) -> Option<&'c [u8]> {
    next_part(rest, b',')
}

/// Takes the text up to the next delimiter outside quoted strings.
fn next_part<'c>(rest: &mut Option<&'c [u8]>, delimiter: u8) -> Option<&'c [u8]> {
    let value = (*rest)?;
    let plain = memchr::memchr2(delimiter, b'"', value).is_none();
    let end = if plain { value.len() } else { end_of_part(value, |byte| byte == delimiter) };
    *rest = value.get(end + 1..);
    Some(&value[..end])
}

fn end_of_part(value: &[u8], is_end: impl Fn(u8) -> bool) -> usize {
    let mut quoted = false;
    let mut at = 0;
    while at < value.len() {
        match value[at] {
            b'"' => quoted = !quoted,
            b'\\' if quoted => at += 1,
            byte if !quoted && is_end(byte) => return at,
            _ => {}
        }
        at += 1;
    }
    value.len()
}

pub(super) fn line<'c>(fields: &'c Fields, args: &'c [Arg], cursor: &mut Cursor) -> Result<&'c [u8], Missing> {
    let name = args.bytes(0).ok_or(Missing::Absent)?;
    choose(lines(fields, Some(name)), |rest| rest.take().map(<[u8]>::trim_ascii), args.int(1), cursor)
}

pub(super) fn element<'c>(fields: &'c Fields, args: &'c [Arg], cursor: &mut Cursor) -> Result<&'c [u8], Missing> {
    let name = args.bytes(0).ok_or(Missing::Absent)?;
    choose(lines(fields, Some(name)), |rest| next_raw(rest).map(<[u8]>::trim_ascii), args.int(1), cursor)
}

pub(super) fn count_lines<'c>(fields: &Fields, name: Option<&[u8]>) -> Fetched<'c> {
    int(lines(fields, name).count() as i64)
}

pub(super) fn count_elements<'c>(fields: &Fields, name: Option<&[u8]>) -> Fetched<'c> {
    int(elements(fields, name).count() as i64)
}

pub(super) fn element_ip<'c>(fields: &'c Fields, args: &'c [Arg], cursor: &mut Cursor) -> Fetched<'c> {
    loop {
        cursor.more = false;
        let text = element(fields, args, cursor)?;
        if let Some(ip) = parse_ip(text).or_else(|| bracketed_ip(text)) {
            return Ok(Value::ip(ip));
        }
        // An ACL looks at every address, whatever a client writes before it.
        if !cursor.more {
            return Err(Missing::Absent);
        }
    }
}

/// An address of IPv6 in brackets, without a port.
fn bracketed_ip(text: &[u8]) -> Option<IpAddr> {
    let inner = text.strip_prefix(b"[")?.strip_suffix(b"]")?;
    std::str::from_utf8(inner).ok()?.parse().ok().map(IpAddr::V6)
}

/// Parses a text that is just an address; an IPv4 address may be followed by a port.
pub(super) fn parse_ip(text: &[u8]) -> Option<IpAddr> {
    if let Some((ip, rest)) = split_ipv4(text) {
        let port = || std::str::from_utf8(rest.strip_prefix(b":")?).ok()?.parse::<u16>().ok();
        return (rest.is_empty() || port().is_some()).then_some(IpAddr::V4(ip));
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

pub(super) fn names<'c>(fields: &Fields, delimiter: Option<&[u8]>) -> Value<'c> {
    let names: Vec<&[u8]> = fields.iter().map(|field| field.name).collect();
    Value::string(names.join(delimiter.unwrap_or(b",")))
}

pub(super) fn all<'c>(fields: &Fields) -> Value<'c> {
    let mut out = Vec::with_capacity(fields.wire_len() + 2);
    fields.write_to(&mut out);
    out.extend_from_slice(b"\r\n");
    Value::Bin(Cow::Owned(out))
}

pub(super) fn all_binary<'c>(fields: &Fields) -> Value<'c> {
    let mut out = Vec::with_capacity(fields.wire_len() + 2);
    for field in fields.iter() {
        for part in [field.name, field.value] {
            write_varint(&mut out, part.len() as u64);
            out.extend_from_slice(part);
        }
    }
    out.extend_from_slice(&[0, 0]);
    Value::Bin(Cow::Owned(out))
}

/// Writes an integer as in HAProxy's binary protocols: below 240 in one byte, else four bits and then seven at a time.
fn write_varint(out: &mut Vec<u8>, mut n: u64) {
    if n < 240 {
        out.push(n as u8);
        return;
    }
    out.push(n as u8 | 240);
    n = (n - 240) >> 4;
    while n >= 128 {
        out.push(n as u8 | 128);
        n = (n - 128) >> 7;
    }
    out.push(n as u8);
}

/// The offset at which the first cookie of a line ends: at a semicolon (RFC 6265, section 4.2.1), at a comma (RFC 2965,
/// section 3.2.2) outside quoted strings, or at the end of the line.
pub fn end_of_cookie(line: &[u8]) -> usize {
    match memchr::memchr3(b';', b',', b'"', line) {
        None => line.len(),
        Some(_) => end_of_part(line, |byte| matches!(byte, b';' | b',')),
    }
}

/// The cookies of a line, with the white space around each.
pub fn cookies(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(line);
    std::iter::from_fn(move || next_cookie_raw(&mut rest))
}

fn next_cookie_raw<'c>(rest: &mut Option<&'c [u8]>) -> Option<&'c [u8]> {
    let line = (*rest)?;
    let end = end_of_cookie(line);
    *rest = line.get(end + 1..);
    Some(&line[..end])
}

/// Takes the next `name=value` pair off a line; a quoted value keeps its quotes. Returns the value if it is the pair
/// asked for.
///
/// As with HAProxy, the last pair before a comma or the line's end does not count if it is only the name and `=`, without even
/// a space before it. One before a semicolon has an empty value. What begins with `$` says something of other cookies (RFC 2965,
/// section 3.3.4), and is none.
fn next_cookie<'c>(rest: &mut Option<&'c [u8]>, name: Option<&[u8]>) -> Option<&'c [u8]> {
    let line = (*rest)?;
    let raw = next_cookie_raw(rest)?;
    let last = match line.get(raw.len()) {
        Some(b',') => {
            *rest = rest.map(<[u8]>::trim_ascii_start);
            true
        }
        ended_by => ended_by.is_none(),
    };
    if last && raw.trim_ascii_end().len() <= name.unwrap_or_default().len() + 1 {
        return None;
    }
    let pair = raw.trim_ascii();
    let equals = memchr::memchr(b'=', pair)?;
    let known = pair[..equals].trim_ascii_end();
    if known.starts_with(b"$") {
        return None;
    }
    name.is_none_or(|name| name.is_empty() || known == name).then(|| pair[equals + 1..].trim_ascii_start())
}

/// Names of the cookies in a request, or of the one that each Set-Cookie of a response sets. As with HAProxy, what has no `=` is
/// none, nor is an attribute that begins with `$`, and only a value's quotes protect a semicolon.
pub(super) fn cookie_names<'c>(fields: &Fields, known: Known, delimiter: Option<&[u8]>) -> Value<'c> {
    let delimiter = delimiter.and_then(<[u8]>::first).copied().unwrap_or(b',');
    let mut out = Vec::new();
    for line in fields.all_known(known) {
        let mut rest = line;
        while let Some(at) = memchr::memchr2(b'=', b';', rest) {
            let name = rest[..at].trim_ascii();
            let value = (rest[at] == b'=').then(|| &rest[at + 1..]);
            rest = match value {
                Some(value) => value.get(end_of_cookie(value) + 1..).unwrap_or_default(),
                None => &rest[at + 1..],
            };
            if value.is_none() || name.starts_with(b"$") {
                continue;
            }
            if !out.is_empty() {
                out.push(delimiter);
            }
            out.extend_from_slice(name);
            if known == Known::SetCookie {
                break;
            }
        }
    }
    Value::string(out)
}

/// Without a name, and outside ACLs, the first pair is used.
fn occurrence(name: Option<&[u8]>, cursor: &Cursor) -> Option<i64> {
    (!cursor.iterating && name.is_none_or(<[u8]>::is_empty)).then_some(1)
}

pub(super) fn request_cookie<'c>(
    fields: &'c Fields,
    name: Option<&'c [u8]>,
    cursor: &mut Cursor,
) -> Result<&'c [u8], Missing> {
    choose(fields.all_known(Known::Cookie), |rest| next_cookie(rest, name), occurrence(name, cursor), cursor)
}

/// The first pair of a Set-Cookie is the cookie, and so is the first after a comma; the others are attributes. As with HAProxy,
/// those are used if no name is asked for, and as long as they have the cookie's own name.
pub(super) fn response_cookie<'c>(
    fields: &'c Fields,
    name: Option<&'c [u8]>,
    cursor: &mut Cursor,
) -> Result<&'c [u8], Missing> {
    let any = name.is_none_or(<[u8]>::is_empty);
    let split = |rest: &mut Option<&'c [u8]>| {
        let line = rest.unwrap_or_default();
        let found = next_cookie(rest, name);
        if !any && found.is_none() && line[..end_of_cookie(line)].contains(&b'=') {
            let end = end_of_part(line, |byte| byte == b',');
            *rest = line.get(end + 1..).map(<[u8]>::trim_ascii_start);
        }
        found
    };
    choose(fields.all_known(Known::SetCookie), split, occurrence(name, cursor), cursor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_costs_what_it_takes_to_look_through() {
        let mut fields = Fields::new();
        fields.append(b"cookie", "a=1; ".repeat(2_000).as_bytes()).unwrap();
        let spent = |look: &dyn Fn()| {
            turn::begin(10_000);
            look();
            let spent = turn::spent_of(10_000);
            turn::end();
            spent
        };
        let parts = 2_000 / cost::PARTS as u32;
        let one = spent(&|| assert!(request_cookie(&fields, Some(b"z"), &mut Cursor::default()).is_err()));
        assert!((parts..parts + 2).contains(&one), "{one}");
        let all = spent(&|| {
            let mut cursor = Cursor { iterating: true, ..Cursor::default() };
            assert_eq!(std::iter::from_fn(|| request_cookie(&fields, Some(b"a"), &mut cursor).ok()).count(), 2_000);
        });
        assert!((parts..4 * parts).contains(&all), "{all}");
    }

    #[test]
    fn an_iteration_looks_at_each_byte_of_a_line_once() {
        let line = vec![b','; 14_000];
        let looked = Cell::new(0_usize);
        let split = |rest: &mut Option<&'static [u8]>| {
            let before = rest.map_or(0, <[u8]>::len);
            let found = next_raw(rest);
            looked.set(looked.get() + before - rest.map_or(0, <[u8]>::len));
            found
        };
        let line: &'static [u8] = Box::leak(line.into_boxed_slice());
        let mut cursor = Cursor { iterating: true, ..Cursor::default() };
        let mut values = 0;
        while choose([line].into_iter(), split, None, &mut cursor).is_ok() {
            values += 1;
        }
        assert_eq!((values, looked.get()), (14_001, 14_000));
    }

    #[test]
    fn values_are_the_same_one_after_the_other_and_by_number() {
        let lines: [&[u8]; 4] = [b"a, \"b,c\" ,d", b"", b",e", b"f"];
        let split = |rest: &mut Option<&'static [u8]>| next_raw(rest).map(<[u8]>::trim_ascii);
        let mut cursor = Cursor { iterating: true, ..Cursor::default() };
        let all: Vec<&[u8]> = std::iter::from_fn(|| choose(lines.into_iter(), split, None, &mut cursor).ok()).collect();
        assert_eq!(all, [&b"a"[..], b"\"b,c\"", b"d", b"", b"", b"e", b"f"]);
        for (at, value) in all.iter().enumerate() {
            let number = at as i64 + 1;
            let cursor = &mut Cursor::default();
            assert_eq!(choose(lines.into_iter(), split, Some(number), cursor).ok(), Some(*value));
            let back = number - all.len() as i64 - 1;
            assert_eq!(choose(lines.into_iter(), split, Some(back), cursor).ok(), Some(*value));
        }
        assert_eq!(choose(lines.into_iter(), split, None, &mut Cursor::default()).ok(), Some(&b"f"[..]));
    }

    #[test]
    fn cookies_are_pairs_and_a_named_one_is_the_first_of_its_set_cookie() {
        let find = |line: &'static [u8], name: Option<&'static [u8]>| {
            let mut rest = Some(line);
            let mut all = Vec::new();
            while rest.is_some() {
                all.extend(next_cookie(&mut rest, name));
            }
            all
        };
        assert_eq!(find(b"a=1; b = 2;c; a=\"3\"", None), [&b"1"[..], b"2", b"\"3\""]);
        assert_eq!(find(b"a=1; b = 2;c; a=\"3\"", Some(b"a")), [&b"1"[..], b"\"3\""]);
        // What HAProxy 2.6 says of each.
        let none: [&[u8]; 0] = [];
        for line in [&b"c="[..], b"d=1;c=", b"c=,", b"c= , d=1", b"a=1, c=", b"x=\"1;c=\";c=", b"c", b"d=1; c"] {
            assert_eq!(find(line, Some(b"c")), none, "{}", line.escape_ascii());
        }
        for line in [&b"c=;"[..], b"c =", b"d=1; c=", b"a=1 ; c=", b"\"a,b\"; c="] {
            assert_eq!(find(line, Some(b"c")), [b""], "{}", line.escape_ascii());
        }
        assert_eq!(find(b"c=; c=2", Some(b"c")), [&b""[..], b"2"]);
        assert_eq!(find(b"$Version=1; a=2; $Path=/, b=3", None), [&b"2"[..], b"3"]);
        assert_eq!(find(b"$Version=1; a=2", Some(b"$Version")), none);
    }
}
