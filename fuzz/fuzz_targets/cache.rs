//! Whatever a server and two clients say, a stored response lives no longer than allowed, a part of it is a part of it, and the cache
//! holds no more than it may.

#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_cache::{Cache, CacheLimits, CachedPart, is_not_modified};
use penstock_http::{Fields, Framing, Known, RequestHead, ResponseHead, Version};

const LIMITS: CacheLimits =
    CacheLimits { total: 1 << 16, object: 1 << 15, age_s: 60, vary: true, variants: 3, ranges: true, collapse_ms: 0 };

/// The names of fields that decide something, by the first byte of a line.
const NAMES: [&[u8]; 16] = [
    b"cache-control",
    b"etag",
    b"last-modified",
    b"date",
    b"age",
    b"expires",
    b"pragma",
    b"vary",
    b"accept-ranges",
    b"range",
    b"if-range",
    b"if-none-match",
    b"if-modified-since",
    b"accept-encoding",
    b"authorization",
    b"connection",
];

/// How values begin, by the second byte of a line; what follows is as it comes.
const BEGINNINGS: [&[u8]; 16] = [
    b"",
    b"max-age=",
    b"s-maxage=",
    b"public,",
    b"no-store",
    b"private",
    b"no-cache",
    b"\"x\"",
    b"W/\"x\"",
    b"bytes=",
    b"bytes=-",
    b"bytes=1-",
    b"Sun, 06 Nov 1994 08:49:37 GMT",
    b"accept-encoding",
    b"max-age=9",
    b"none",
];

/// Fields from lines.
fn add(fields: &mut Fields, lines: &[u8]) {
    for line in lines.split(|byte| *byte == b'\n').take(32) {
        let [name, beginning, rest @ ..] = line else { continue };
        let value = [BEGINNINGS[usize::from(*beginning) % 16], rest].concat();
        // One that is none is left out.
        let _ = fields.append(NAMES[usize::from(*name) % 16], &value);
    }
}

/// A request for one target.
fn request(lines: &[u8]) -> RequestHead {
    let mut head = RequestHead::from_parts(b"GET", b"/", Version::Http11).unwrap();
    head.fields.append(b"host", b"h").unwrap();
    add(&mut head.fields, lines);
    head
}

fuzz_target!(|input: &[u8]| {
    let mut parts = input.splitn(5, |byte| *byte == 0);
    let mut part = || parts.next().unwrap_or_default();
    let (stored_for, response, asked, times, body) = (part(), part(), part(), part(), part());
    let time = |at: usize| times.get(at).map_or(0, |byte| u64::from(*byte));
    // About the dates above, and as long afterwards as lifetimes are.
    let (now, later) = (784_111_700 + time(0), time(1));
    let cache = Cache::new("c", LIMITS);
    let first = request(stored_for);
    let mut head = ResponseHead::from_status(200);
    add(&mut head.fields, response);
    let Some(query) = cache.query(&first, b"GET", false) else { return };
    let Some(mut storing) = cache.store(&query, &head, Framing::Chunked, now) else { return };
    let forbidden = head.fields.all_known(Known::CacheControl).flat_map(penstock_http::list).any(|directive| {
        [&b"no-store"[..], b"private", b"no-cache"].iter().any(|word| directive.eq_ignore_ascii_case(word))
    });
    assert!(!forbidden, "stored against the server's word");
    if !body.chunks(100).all(|piece| storing.append(piece)) {
        return;
    }
    storing.complete(None);
    assert!(cache.used() <= LIMITS.total);

    let second = request(asked);
    let Some(query) = cache.query(&second, b"GET", false) else { return };
    let Some(entry) = cache.find(&query, now + later) else { return };
    assert!(query.may_answer() && later < LIMITS.age_s);
    assert_eq!(entry.len(), body.len() as u64);
    is_not_modified(&second, &entry);
    let part = CachedPart::of(&second, &entry);
    if let CachedPart::Bytes(bytes) = &part {
        assert!(bytes.start < bytes.end && bytes.end <= entry.len());
        let (piece, at) = entry.place(bytes.start);
        assert_eq!(entry.piece(piece).unwrap()[at], body[bytes.start as usize]);
    }
    let mut answer = entry.head.clone();
    part.write_head(&mut answer, entry.len());
    assert_eq!(answer.fields.has(Known::Etag), part != CachedPart::Missing && entry.head.fields.has(Known::Etag));
});
