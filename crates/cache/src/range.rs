//! Ranges of a stored response (RFC 9110 section 14).

use crate::{CacheEntry, date};
use penstock_http::{Known, RequestHead, ResponseHead, list, push_decimal};
use std::ops::Range;

/// How much of a stored response a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CachedPart {
    /// All of it.
    Whole,
    /// These bytes of the body, at least one.
    Bytes(Range<u64>),
    /// Bytes that it does not have.
    Missing,
}

impl CachedPart {
    /// What this request asks for, once [`is_not_modified`](crate::is_not_modified) has said that it is to be answered.
    ///
    /// A server may ignore what it does not care to answer (section 14.2). Several ranges get the whole: they cost more than they
    /// save, and overlapping ones are a known attack. So do ranges of an empty body, for which there is no `Content-Range`, and of
    /// one with trailers, which belong to all of it.
    pub fn of(request: &RequestHead, entry: &CacheEntry) -> CachedPart {
        let mut ranges = request.fields.get_all(b"range");
        let (Some(range), None) = (ranges.next(), ranges.next()) else { return CachedPart::Whole };
        let refused =
            entry.head.fields.get_all(b"accept-ranges").flat_map(list).any(|it| it.eq_ignore_ascii_case(b"none"));
        if request.method() != b"GET"
            || refused
            || entry.is_empty()
            || entry.trailers.is_some()
            || !is_same(request, entry)
        {
            return CachedPart::Whole;
        }
        parse(range, entry.len()).unwrap_or(CachedPart::Whole)
    }

    /// Changes a copy of the stored head into that of this part.
    pub fn write_head(&self, head: &mut ResponseHead, length: u64) {
        let mut value = b"bytes ".to_vec();
        match self {
            CachedPart::Whole => return,
            CachedPart::Bytes(bytes) => {
                head.set_status(206);
                push_decimal(&mut value, bytes.start);
                value.push(b'-');
                push_decimal(&mut value, bytes.end - 1);
            }
            CachedPart::Missing => {
                // What describes the stored response does not describe the error, its lifetime least of all.
                let date = head.fields.known(Known::Date).map(<[u8]>::to_vec);
                let version = head.version();
                *head = ResponseHead::from_status(416);
                head.set_version(version);
                if let Some(date) = date {
                    head.fields.append(b"date", &date).expect("it was a field before");
                }
                value.push(b'*');
            }
        }
        value.push(b'/');
        push_decimal(&mut value, length);
        let mut sent = Vec::new();
        push_decimal(&mut sent, self.length(length));
        head.fields.set(b"content-range", &value).expect("a name and numbers");
        head.fields.set(b"content-length", &sent).expect("a name and a number");
    }

    /// How many bytes this part of a body of `length` has.
    pub fn length(&self, length: u64) -> u64 {
        match self {
            CachedPart::Whole => length,
            CachedPart::Bytes(bytes) => bytes.end - bytes.start,
            CachedPart::Missing => 0,
        }
    }
}

/// Whether what is stored is what the client has a part of already, if it says so by `If-Range` (section 13.1.5).
fn is_same(request: &RequestHead, entry: &CacheEntry) -> bool {
    let mut fields = request.fields.get_all(b"if-range");
    let Some(wanted) = fields.next() else { return true };
    let own = &entry.head.fields;
    if fields.next().is_some() {
        return false;
    }
    if wanted.starts_with(b"\"") {
        // Compared strongly: a weak tag, which begins with W/, equals none.
        return own.known(Known::Etag) == Some(wanted);
    }
    // A date identifies a response only if it was made a second later at least (section 8.8.2.2).
    let (Some(modified), Some(made)) = (own.known(Known::LastModified), own.known(Known::Date)) else { return false };
    let is_strong = date::parse(modified).zip(date::parse(made)).is_some_and(|(modified, made)| made > modified);
    is_strong && modified == wanted
}

/// One range of bytes of a body of `length`, which is not 0; `None` if it cannot be read, or is none.
fn parse(range: &[u8], length: u64) -> Option<CachedPart> {
    let at = range.iter().position(|&byte| byte == b'=')?;
    if !range[..at].eq_ignore_ascii_case(b"bytes") {
        return None;
    }
    let one = range[at + 1..].trim_ascii();
    let dash = one.iter().position(|&byte| byte == b'-')?;
    let bytes = match (&one[..dash], &one[dash + 1..]) {
        (b"", suffix) => match number(suffix)? {
            0 => return Some(CachedPart::Missing),
            wanted => length.saturating_sub(wanted)..length,
        },
        (first, b"") => number(first)?..length,
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return None;
            }
            first..last.saturating_add(1).min(length)
        }
    };
    Some(if bytes.start < length { CachedPart::Bytes(bytes) } else { CachedPart::Missing })
}

/// A number; one that is larger than any body is as good as the largest.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0, |sum: u64, digit| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cache, CacheLimits};
    use penstock_http::{Fields, Framing, Version};
    use std::sync::Arc;

    fn request(method: &str, fields: &[(&str, &str)]) -> RequestHead {
        let mut head = RequestHead::from_parts(method.as_bytes(), b"/", Version::Http11).unwrap();
        head.fields.append(b"host", b"h").unwrap();
        for (name, value) in fields {
            head.fields.append(name.as_bytes(), value.as_bytes()).unwrap();
        }
        head
    }
    fn entry(body: &[u8], fields: &[(&str, &str)], trailers: bool) -> Arc<CacheEntry> {
        let limits = CacheLimits {
            total: 1 << 20,
            object: 1 << 19,
            age_s: 60,
            vary: true,
            variants: 3,
            ranges: true,
            collapse_ms: 0,
        };
        let cache = Cache::new("c", limits);
        let query = cache.query(&request("GET", &[]), b"GET", false).unwrap();
        let mut head = ResponseHead::from_status(200);
        head.fields.append(b"cache-control", b"max-age=10").unwrap();
        for (name, value) in fields {
            head.fields.append(name.as_bytes(), value.as_bytes()).unwrap();
        }
        let mut storing = cache.store(&query, &head, Framing::Chunked, 0).unwrap();
        for piece in body.chunks(3) {
            assert!(storing.append(piece));
        }
        let mut last = Fields::new();
        last.append(b"x-sum", b"1").unwrap();
        storing.complete(trailers.then_some(&last));
        cache.find(&query, 0).unwrap()
    }
    fn part(range: &str, fields: &[(&str, &str)]) -> CachedPart {
        CachedPart::of(&request("GET", &[("range", range)]), &entry(b"0123456789", fields, false))
    }

    #[test]
    fn one_range_is_answered_and_what_is_none_is_ignored() {
        use CachedPart::{Bytes, Missing, Whole};
        for (range, expected) in [
            ("bytes=0-0", Bytes(0..1)),
            ("bytes=2-4", Bytes(2..5)),
            ("BYTES=2-4", Bytes(2..5)),
            ("bytes= 2-4 ", Bytes(2..5)),
            ("bytes=9-", Bytes(9..10)),
            ("bytes=0-", Bytes(0..10)),
            ("bytes=5-99999999999999999999999999", Bytes(5..10)),
            ("bytes=-1", Bytes(9..10)),
            ("bytes=-10", Bytes(0..10)),
            ("bytes=-99999999999999999999999999", Bytes(0..10)),
            ("bytes=10-", Missing),
            ("bytes=10-11", Missing),
            ("bytes=18446744073709551615-18446744073709551615", Missing),
            ("bytes=-0", Missing),
            ("bytes=4-2", Whole),
            ("bytes=-", Whole),
            ("bytes=", Whole),
            ("bytes", Whole),
            ("bytes=a-b", Whole),
            ("bytes=+1-2", Whole),
            ("bytes=--1", Whole),
            ("bytes=1-2-3", Whole),
            ("bytes=0-1,3-4", Whole),
            ("bytes=0-1,", Whole),
            ("lines=0-1", Whole),
            ("bytes =0-1", Whole),
        ] {
            assert_eq!(part(range, &[]), expected, "{range}");
        }
    }

    #[test]
    fn a_part_is_sent_only_where_a_part_means_something() {
        assert_eq!(part("bytes=0-1", &[("accept-ranges", "none")]), CachedPart::Whole);
        assert_eq!(part("bytes=0-1", &[("accept-ranges", "bytes")]), CachedPart::Bytes(0..2));
        let range = ("range", "bytes=0-1");
        let stored = entry(b"0123456789", &[], false);
        assert_eq!(CachedPart::of(&request("HEAD", &[range]), &stored), CachedPart::Whole);
        assert_eq!(CachedPart::of(&request("GET", &[range, range]), &stored), CachedPart::Whole);
        assert_eq!(CachedPart::of(&request("GET", &[]), &stored), CachedPart::Whole);
        assert_eq!(CachedPart::of(&request("GET", &[range]), &entry(b"", &[], false)), CachedPart::Whole);
        assert_eq!(CachedPart::of(&request("GET", &[range]), &entry(b"0123", &[], true)), CachedPart::Whole);
    }

    #[test]
    fn if_range_takes_strong_validators_alone() {
        const MADE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
        const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
        for (own, wanted, same) in [
            (&[("etag", "\"x\"")][..], "\"x\"", true),
            (&[("etag", "\"x\"")], "\"y\"", false),
            (&[("etag", "\"x\"")], "W/\"x\"", false),
            (&[("etag", "W/\"x\"")], "W/\"x\"", false),
            (&[("etag", "W/\"x\"")], "\"x\"", false),
            (&[("etag", "\"x\"")], "\"x\", \"y\"", false),
            (&[], "\"x\"", false),
            (&[("last-modified", MADE), ("date", LATER)], MADE, true),
            (&[("last-modified", MADE), ("date", LATER)], LATER, false),
            (&[("last-modified", MADE), ("date", MADE)], MADE, false),
            (&[("last-modified", MADE)], MADE, false),
            (&[("last-modified", "x"), ("date", LATER)], "x", false),
        ] {
            let asked = request("GET", &[("range", "bytes=0-1"), ("if-range", wanted)]);
            let expected = if same { CachedPart::Bytes(0..2) } else { CachedPart::Whole };
            assert_eq!(CachedPart::of(&asked, &entry(b"0123456789", own, false)), expected, "{own:?} {wanted}");
        }
        let twice = request("GET", &[("range", "bytes=0-1"), ("if-range", "\"x\""), ("if-range", "\"x\"")]);
        assert_eq!(CachedPart::of(&twice, &entry(b"01", &[("etag", "\"x\"")], false)), CachedPart::Whole);
    }

    #[test]
    fn a_place_in_the_body_is_found_whatever_its_pieces() {
        let body: Vec<u8> = (0..=255).cycle().take(50_000).collect();
        let stored = entry(&body, &[], false);
        for at in [0, 1, 2, 3, 4095, 4096, 4097, 16_383, 16_384, 20_000, 49_999] {
            let (piece, offset) = stored.place(at as u64);
            assert_eq!(stored.piece(piece).unwrap()[offset], body[at], "{at}");
        }
        assert_eq!(stored.piece(stored.place(50_000).0), None);
    }

    #[test]
    fn an_error_does_not_inherit_what_describes_the_response() {
        let stored = entry(b"0123456789", &[("etag", "\"x\""), ("date", "Sun, 06 Nov 1994 08:49:37 GMT")], false);
        let mut head = stored.head.clone();
        CachedPart::Missing.write_head(&mut head, 10);
        let mut text = Vec::new();
        head.fields.write_to(&mut text);
        let expected = "date: Sun, 06 Nov 1994 08:49:37 GMT\r\ncontent-range: bytes */10\r\ncontent-length: 0\r\n";
        assert_eq!((head.status(), String::from_utf8(text).unwrap().as_str()), (416, expected));
    }
}
