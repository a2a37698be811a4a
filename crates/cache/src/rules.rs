//! What may be answered from a cache, and what may be stored.

use crate::date;
use penstock_http::{Known, RequestHead, ResponseHead, Version, list};

/// Whether a stored response may answer this request.
pub(crate) fn may_answer(request: &RequestHead, has_body: bool) -> bool {
    // The body is not in the key, and the response may depend on it.
    if has_body || !is_recent(request) || !is_read(request.method()) || is_authorized(request) {
        return false;
    }
    let fields = &request.fields;
    if !fields.has(Known::CacheControl) {
        return fields.get(b"pragma").is_none_or(|value| !value.eq_ignore_ascii_case(b"no-cache"));
    }
    // A limit of the age that the client accepts is not compared with that of the response: the server is asked.
    fields.all_known(Known::CacheControl).flat_map(list).all(|directive| {
        !["no-cache", "max-age", "max-stale", "min-fresh"].iter().any(|word| starts_with(directive, word))
    })
}

/// Whether the response to this request may be stored, as far as the request decides it.
pub(crate) fn may_store_for(request: &RequestHead, has_body: bool) -> bool {
    is_recent(request)
        && request.method() == b"GET"
        && !has_body
        && !request
            .fields
            .all_known(Known::CacheControl)
            .flat_map(list)
            .any(|directive| directive.eq_ignore_ascii_case(b"no-store"))
}

/// Whether a cache answers requests with this method.
pub(crate) fn is_read(method: &[u8]) -> bool {
    matches!(method, b"GET" | b"HEAD")
}

/// Whether a successful request with this method may have changed what is stored for its target (RFC 9111 section 4.4).
pub(crate) fn is_unsafe_method(method: &[u8]) -> bool {
    !matches!(method, b"GET" | b"HEAD" | b"OPTIONS" | b"TRACE")
}

fn is_recent(request: &RequestHead) -> bool {
    request.version() != Version::Http10
}

/// Whether the response belongs to whoever logged in.
pub(crate) fn is_authorized(request: &RequestHead) -> bool {
    request.fields.get(b"authorization").is_some()
}

fn starts_with(directive: &[u8], word: &str) -> bool {
    directive.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()))
}

/// How long a response may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lifetime {
    /// How long the response may still be used, in seconds.
    pub left_s: u64,
    /// How old the response is now, in seconds.
    pub age_s: u64,
}

/// How long a response may be used, `max_age_s` at most; `None` if it must not be stored. `authorized` says whether the client
/// had logged in.
pub(crate) fn lifetime(response: &ResponseHead, authorized: bool, max_age_s: u64, now_s: u64) -> Option<Lifetime> {
    if response.status() != 200 {
        return None;
    }
    let fields = &response.fields;
    if fields.get_all(b"pragma").flat_map(list).any(|value| value.eq_ignore_ascii_case(b"no-cache")) {
        return None;
    }
    let (mut public, mut shared, mut any) = (false, None, None);
    for directive in fields.all_known(Known::CacheControl).flat_map(list) {
        let (name, value) = match directive.iter().position(|&byte| byte == b'=') {
            Some(at) => (&directive[..at], Some(&directive[at + 1..])),
            None => (directive, None),
        };
        match name.to_ascii_lowercase().as_slice() {
            // Those that name fields forbid them alone, and a cache may take them for the whole (RFC 9111 section 5.2.2).
            b"no-store" | b"no-cache" | b"private" => return None,
            b"public" => public = true,
            // Of several the lowest, and one that cannot be read makes the response stale (RFC 9111 section 4.2.1).
            b"s-maxage" => shared = Some(seconds(value)?.min(shared.unwrap_or(u64::MAX))),
            b"max-age" => any = Some(seconds(value)?.min(any.unwrap_or(u64::MAX))),
            _ => {}
        }
    }
    if authorized && !public {
        return None;
    }
    let expires = || fields.get(b"expires").map(|value| date::parse(value).unwrap_or(0).saturating_sub(now_s));
    let explicit = shared.or(any).or_else(expires);
    if explicit.is_none() && !fields.has(Known::Etag) && !fields.has(Known::LastModified) {
        return None;
    }
    let age_s = match fields.get(b"age") {
        Some(value) => seconds(Some(value))?,
        None => 0,
    };
    let left_s = match explicit {
        Some(lifetime) => lifetime.checked_sub(age_s)?,
        // Another cache has kept it for as long as it chose to.
        None if fields.get(b"age").is_some() => return None,
        None => max_age_s,
    };
    let left_s = left_s.min(max_age_s);
    (left_s > 0).then_some(Lifetime { left_s, age_s })
}

/// A number of seconds, in quotes or not; more than any lifetime is as good as the largest.
fn seconds(value: Option<&[u8]>) -> Option<u64> {
    let value = value?;
    let digits = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(value);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // RFC 9111 section 1.2.2: 2^31 stands for everything longer.
    Some(digits.iter().fold(0_u64, |sum, digit| (sum * 10 + u64::from(digit - b'0')).min(1 << 31)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(lines: &str) -> RequestHead {
        let mut head = RequestHead::from_parts(b"GET", b"/", Version::Http11).unwrap();
        for (name, value) in fields(lines) {
            head.fields.append(name, value).unwrap();
        }
        head
    }
    fn fields(lines: &str) -> impl Iterator<Item = (&[u8], &[u8])> {
        lines.split('|').filter_map(|line| line.split_once(": ")).map(|(n, v)| (n.as_bytes(), v.as_bytes()))
    }
    fn life(of_request: &str, lines: &str) -> Option<(u64, u64)> {
        let mut head = ResponseHead::from_status(200);
        for (name, value) in fields(lines) {
            head.fields.append(name, value).unwrap();
        }
        let authorized = is_authorized(&request(of_request));
        lifetime(&head, authorized, 60, 784_111_777).map(|life| (life.left_s, life.age_s))
    }

    #[test]
    fn a_response_is_stored_for_as_long_as_it_says() {
        let cases: &[(&str, Option<(u64, u64)>)] = &[
            ("cache-control: max-age=5", Some((5, 0))),
            ("cache-control: max-age=500", Some((60, 0))),
            ("cache-control: max-age=99999999999999999999999", Some((60, 0))),
            ("cache-control: MAX-AGE=\"5\"", Some((5, 0))),
            ("cache-control: max-age=5, s-maxage=7", Some((7, 0))),
            ("cache-control: max-age=0, s-maxage=7", Some((7, 0))),
            ("cache-control: max-age=9|cache-control: max-age=5", Some((5, 0))),
            ("cache-control: max-age=5|age: 3", Some((2, 3))),
            ("cache-control: max-age=5|age: 5", None),
            ("cache-control: max-age=5|age: x", None),
            ("cache-control: max-age=0|etag: \"x\"", None),
            ("cache-control: max-age=00|etag: \"x\"", None),
            ("cache-control: max-age=-5|etag: \"x\"", None),
            ("cache-control: max-age|etag: \"x\"", None),
            ("cache-control: max-age=5x", None),
            ("cache-control: max-age=5, s-maxage=0", None),
            ("cache-control: public", None),
            ("cache-control: max-age=5, no-store", None),
            ("cache-control: no-store, max-age=5, public", None),
            ("cache-control: max-age=5, Private", None),
            ("cache-control: max-age=5, private=\"x\"", None),
            ("cache-control: max-age=5, no-cache=\"set-cookie\"", None),
            ("cache-control: max-age=5|pragma: no-cache", None),
            ("etag: \"x\"", Some((60, 0))),
            ("last-modified: x", Some((60, 0))),
            ("etag: \"x\"|age: 1", None),
            ("etag: \"x\"|age: 0", None),
            ("", None),
            ("expires: Sun, 06 Nov 1994 08:49:47 GMT", Some((10, 0))),
            ("expires: Sun, 06 Nov 1994 08:49:37 GMT|etag: \"x\"", None),
            ("expires: 0|etag: \"x\"", None),
            ("expires: Sun, 06 Nov 1990 08:49:37 GMT|cache-control: max-age=4", Some((4, 0))),
        ];
        for (lines, expected) in cases {
            assert_eq!(life("", lines), *expected, "{lines}");
        }
    }

    #[test]
    fn nothing_is_stored_for_no_time() {
        let mut head = ResponseHead::from_status(200);
        head.fields.append(b"cache-control", b"max-age=5").unwrap();
        assert_eq!(lifetime(&head, false, 0, 0), None);
    }

    #[test]
    fn a_response_to_a_login_is_stored_only_if_it_is_public() {
        assert_eq!(life("authorization: Basic x", "cache-control: max-age=5"), None);
        assert_eq!(life("authorization: Basic x", "cache-control: max-age=5, public"), Some((5, 0)));
    }

    #[test]
    fn only_200_is_stored() {
        for status in [201, 203, 204, 206, 301, 304, 404, 500] {
            let mut head = ResponseHead::from_status(status);
            head.fields.append(b"cache-control", b"max-age=5").unwrap();
            assert_eq!(lifetime(&head, false, 60, 0), None, "{status}");
        }
    }

    #[test]
    fn clients_that_ask_for_the_server_or_log_in_are_not_answered() {
        let no = ["no-cache", "No-Cache=x", "max-age=3", "max-stale", "min-fresh=1", "foo, no-cache"];
        for value in no {
            assert!(!may_answer(&request(&format!("cache-control: {value}")), false), "{value}");
        }
        assert!(!may_answer(&request("pragma: no-cache"), false));
        assert!(!may_answer(&request("authorization: x"), false));
        for lines in ["", "cache-control: no-store", "cache-control: only-if-cached", "cookie: a=b", "range: bytes=0-1"]
        {
            assert!(may_answer(&request(lines), false), "{lines}");
        }
        assert!(may_answer(&request("pragma: no-cache|cache-control: no-store"), false));
        assert!(!may_answer(&request(""), true));
    }

    #[test]
    fn requests_decide_about_storing_too() {
        assert!(may_store_for(&request("cache-control: no-cache"), false));
        assert!(!may_store_for(&request("cache-control: no-store"), false));
        assert!(!may_store_for(&request(""), true));
        let head = RequestHead::from_parts(b"HEAD", b"/", Version::Http11).unwrap();
        assert!(!may_store_for(&head, false));
        let old = RequestHead::from_parts(b"GET", b"/", Version::Http10).unwrap();
        assert!(!may_store_for(&old, false) && !may_answer(&old, false));
    }
}
