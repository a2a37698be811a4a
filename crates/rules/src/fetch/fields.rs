//! Values of header fields and cookies: by name, by number, one after the other.

use super::internal::int;
use crate::{
    expr::{Cursor, Fetched, Missing},
    keyword::{Arg, Args},
    value::Value,
};
use penstock_http::{Fields, Known};
use std::{
    borrow::Cow,
    net::{IpAddr, Ipv4Addr},
};

/// How many values an iteration gives.
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

/// Chooses among values: all one after the other, the one of a number (negative from the end), or the last.
fn choose<'c, I>(mut values: I, occurrence: Option<i64>, cursor: &mut Cursor) -> Result<&'c [u8], Missing>
where
    I: Iterator<Item = &'c [u8]>,
{
    match occurrence.unwrap_or(0) {
        0 if cursor.iterating => {
            let value = values.nth(cursor.given).ok_or(Missing::Absent)?;
            cursor.given += 1;
            // Asking once more costs less than looking ahead.
            cursor.more = true;
            Ok(value)
        }
        0 => values.last().ok_or(Missing::Absent),
        n if n > 0 => values.nth(n as usize - 1).ok_or(Missing::Absent),
        n => {
            let back = usize::try_from(n.unsigned_abs()).unwrap_or(usize::MAX);
            let all: Vec<&[u8]> = values.collect();
            all.len().checked_sub(back).map(|at| all[at]).ok_or(Missing::Absent)
        }
    }
}

/// Field lines of a name; all of them without one.
fn lines<'c>(fields: &'c Fields, name: Option<&'c [u8]>) -> impl Iterator<Item = &'c [u8]> {
    fields
        .iter()
        .filter(move |field| name.is_none_or(|name| name.is_empty() || field.name.eq_ignore_ascii_case(name)))
        .map(|field| field.value)
}

/// Values in field lines, at commas outside quotes.
fn elements<'c>(fields: &'c Fields, name: Option<&'c [u8]>) -> impl Iterator<Item = &'c [u8]> {
    lines(fields, name).flat_map(split_commas)
}

/// Splits a field's value at commas outside quoted strings, and trims.
fn split_commas(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    split_raw(value).map(<[u8]>::trim_ascii)
}

/// The same with the white space around each value.
pub(crate) fn split_raw(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(value);
    std::iter::from_fn(move || {
        let value = rest?;
        let end = if memchr::memchr2(b',', b'"', value).is_none() { value.len() } else { comma(value) };
        rest = value.get(end + 1..);
        Some(&value[..end])
    })
}

fn comma(value: &[u8]) -> usize {
    let mut quoted = false;
    let mut at = 0;
    while at < value.len() {
        match value[at] {
            b'"' => quoted = !quoted,
            b'\\' if quoted => at += 1,
            b',' if !quoted => return at,
            _ => {}
        }
        at += 1;
    }
    value.len()
}

pub(super) fn line<'c>(fields: &'c Fields, args: &'c [Arg], cursor: &mut Cursor) -> Result<&'c [u8], Missing> {
    choose(lines(fields, args.bytes(0)), args.int(1), cursor)
}

pub(super) fn element<'c>(fields: &'c Fields, args: &'c [Arg], cursor: &mut Cursor) -> Result<&'c [u8], Missing> {
    choose(elements(fields, args.bytes(0)), args.int(1), cursor)
}

pub(super) fn count_lines<'c>(fields: &Fields, name: Option<&[u8]>) -> Fetched<'c> {
    int(lines(fields, name).count() as i64)
}

pub(super) fn count_elements<'c>(fields: &Fields, name: Option<&[u8]>) -> Fetched<'c> {
    int(elements(fields, name).count() as i64)
}

pub(super) fn element_ip<'c>(fields: &'c Fields, args: &'c [Arg], cursor: &mut Cursor) -> Fetched<'c> {
    let value = element(fields, args, cursor)?;
    parse_ip(value).map(Value::ip).ok_or(Missing::Absent)
}

/// An address; an IPv4 one may have a port after it.
pub(super) fn parse_ip(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    if let Ok(ip) = text.parse() {
        return Some(ip);
    }
    text.split_once(':')?.0.parse::<Ipv4Addr>().ok().map(IpAddr::V4)
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

/// The integers of HAProxy's binary protocols: below 240 in one byte, else four bits and then seven at a time.
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

/// `name=value` pairs at semicolons (RFC 6265, section 4.2.1); a value may be quoted, and keeps its quotes.
fn cookie_pairs(line: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    line.split(|&byte| byte == b';').filter_map(|pair| {
        let pair = pair.trim_ascii();
        let equals = memchr::memchr(b'=', pair)?;
        Some((pair[..equals].trim_ascii_end(), pair[equals + 1..].trim_ascii_start()))
    })
}

pub(super) fn request_cookie<'c>(
    fields: &'c Fields,
    name: Option<&'c [u8]>,
    cursor: &mut Cursor,
) -> Result<&'c [u8], Missing> {
    let pairs = fields.all_known(Known::Cookie).flat_map(cookie_pairs);
    choose(named(pairs, name), None, cursor)
}

/// Only the first pair of a Set-Cookie is the cookie; the rest are its attributes, which count where no name is asked for.
pub(super) fn response_cookie<'c>(
    fields: &'c Fields,
    name: Option<&'c [u8]>,
    cursor: &mut Cursor,
) -> Result<&'c [u8], Missing> {
    let pairs_of_line = if name.is_none_or(<[u8]>::is_empty) { usize::MAX } else { 1 };
    let pairs = fields.all_known(Known::SetCookie).flat_map(|line| cookie_pairs(line).take(pairs_of_line));
    choose(named(pairs, name), None, cursor)
}

fn named<'c>(
    pairs: impl Iterator<Item = (&'c [u8], &'c [u8])>,
    name: Option<&'c [u8]>,
) -> impl Iterator<Item = &'c [u8]> {
    pairs.filter(move |(known, _)| name.is_none_or(|name| name.is_empty() || *known == name)).map(|(_, value)| value)
}
