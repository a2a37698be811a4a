//! `option checkcache`: a response whose cookie a cache could give to other clients is not delivered.

use crate::exchange::state::Exchange;
use penstock_config::model::{Cookie, Proxy};
use penstock_http::{Fields, Known, list};

/// Whether a cache could store the response to be sent, to which the server has set a cookie. That may have been taken out since; the
/// cookie that names the server is no matter.
pub(crate) fn finds(x: &Exchange, proxy: &Proxy) -> bool {
    !is_private(x, proxy.cookie.as_ref()) && {
        let shared_by_default = is_safe(x.request.method()) && is_storable(x.response.status());
        may_be_shared(shared_by_default, &x.response.fields)
    }
}

/// Whether `cookie ... insert nocache` has made the response one for this client alone.
fn is_private(x: &Exchange, cookie: Option<&Cookie>) -> bool {
    cookie.is_some_and(|cookie| cookie.nocache) && matches!(x.log.cookie[1], b'I' | b'U')
}

fn is_safe(method: &[u8]) -> bool {
    matches!(method, b"GET" | b"HEAD" | b"OPTIONS" | b"TRACE")
}

fn is_storable(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 206 | 300 | 301 | 404 | 405 | 410 | 414 | 501)
}

/// Whether a shared cache could store the response with its cookie. As in HAProxy, the last word about it counts, except that a
/// lifetime of 0 is final; and what has neither a lifetime nor a validator is stored by nobody.
fn may_be_shared(by_default: bool, fields: &Fields) -> bool {
    if fields.get_all(b"pragma").any(|value| value.eq_ignore_ascii_case(b"no-cache")) {
        return false;
    }
    let mut lasts = [Known::Etag, Known::LastModified].iter().any(|&field| fields.has(field));
    lasts |= fields.get(b"expires").is_some();
    let (mut with_cookie, mut expired) = (by_default, false);
    for directive in fields.all_known(Known::CacheControl).flat_map(list) {
        let directive = directive.to_ascii_lowercase();
        match &directive[..] {
            b"public" => with_cookie = true,
            b"private" | b"no-cache" | b"no-store" => with_cookie = false,
            b"max-age=0" | b"s-maxage=0" => expired = true,
            other if other.starts_with(b"no-cache=\"set-cookie") => with_cookie = false,
            other => lasts |= other.starts_with(b"max-age=") || other.starts_with(b"s-maxage="),
        }
    }
    with_cookie && lasts && !expired
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(by_default: bool, head: &[(&str, &str)]) -> bool {
        let mut fields = Fields::default();
        for (name, value) in head {
            fields.append(name.as_bytes(), value.as_bytes()).expect("a field");
        }
        may_be_shared(by_default, &fields)
    }

    #[test]
    fn the_last_word_counts_and_something_must_last() {
        let etag = ("etag", "\"a\"");
        assert!(!shared(true, &[]));
        assert!(!shared(true, &[("cache-control", "public")]));
        assert!(shared(true, &[etag]));
        assert!(!shared(false, &[etag]));
        assert!(shared(false, &[etag, ("cache-control", "public")]));
        assert!(!shared(true, &[etag, ("pragma", "no-cache"), ("cache-control", "public")]));
        assert!(shared(true, &[etag, ("pragma", "x, no-cache")]));
        for (directives, is_shared) in [
            ("max-age=5", true),
            ("s-maxage=5", true),
            ("private, public", true),
            ("public, private", false),
            ("no-store", false),
            ("No-Cache=\"Set-Cookie, x\"", false),
            ("no-cache=\"x, set-cookie\"", true),
            ("max-age=0, public", false),
            ("max-age=0, max-age=5", false),
            ("private=\"x\"", true),
        ] {
            assert_eq!(shared(true, &[etag, ("cache-control", directives)]), is_shared, "{directives}");
        }
    }
}
