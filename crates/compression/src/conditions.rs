//! Whether a message is compressed.

use crate::CompressionSettings;
use penstock_http::{Fields, Framing, RequestHead, ResponseHead, Version, list};

/// What a response answers, as far as it decides about compression.
#[derive(Clone, Copy, Debug)]
pub struct Response<'a> {
    /// The response's head as the server sent it.
    pub head: &'a ResponseHead,
    /// How the response's body is framed.
    pub framing: Framing,
    /// The version of the request.
    pub asked: Version,
    /// Whether the request was HEAD.
    pub head_only: bool,
}

/// Whether this response may be compressed by an algorithm that its client accepts.
pub fn may_compress_response(settings: CompressionSettings<'_>, response: Response<'_>) -> bool {
    let Response { head, framing, asked, head_only } = response;
    let fields = &head.fields;
    !head_only
        && asked != Version::Http10
        && head.version() != Version::Http10
        && matches!(head.status(), 200..=203)
        && has_known_end(framing)
        && is_large_enough(framing, settings.min_size())
        && fields.get(b"content-encoding").is_none()
        && may_be_transformed(fields)
        && has_usable_etag(fields)
        && is_listed(fields, settings.types())
}

/// Whether this request may be compressed.
pub fn may_compress_request(settings: CompressionSettings<'_>, head: &RequestHead, framing: Framing) -> bool {
    let fields = &head.fields;
    head.version() != Version::Http10
        && has_known_end(framing)
        && is_large_enough(framing, settings.request_min_size())
        && fields.get(b"content-encoding").is_none()
        && may_be_transformed(fields)
        && is_listed(fields, settings.request_types())
}

/// Whether there is a body, and its end is the message's own: a body that ends with the connection could not be told from
/// a cut one.
fn has_known_end(framing: Framing) -> bool {
    match framing {
        Framing::Length(length) => length > 0,
        Framing::Chunked => true,
        Framing::UntilClose | Framing::None | Framing::Tunnel => false,
    }
}

fn is_large_enough(framing: Framing, least: u64) -> bool {
    !matches!(framing, Framing::Length(length) if length < least)
}

/// Whether the message may be transformed: `Cache-Control: no-transform` forbids it (RFC 9111 sections 5.2.1.6 and
/// 5.2.2.6).
fn may_be_transformed(fields: &Fields) -> bool {
    let mut directives = fields.get_all(b"cache-control").flat_map(list);
    !directives.any(|directive| directive.eq_ignore_ascii_case(b"no-transform"))
}

/// Whether there is no more than one entity tag, and that one is in quotes: it can be made weak.
fn has_usable_etag(fields: &Fields) -> bool {
    let mut tags = fields.get_all(b"etag");
    let Some(tag) = tags.next() else { return true };
    let quoted = tag.strip_prefix(b"W/").unwrap_or(tag);
    tags.next().is_none() && quoted.len() >= 2 && quoted.starts_with(b"\"") && quoted.ends_with(b"\"")
}

/// Whether the content type begins like one of `types`; parts of several types are not compressed.
fn is_listed(fields: &Fields, types: &[String]) -> bool {
    let begins = |value: &[u8], with: &str| {
        value.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with.as_bytes()))
    };
    match fields.get(b"content-type") {
        None => types.is_empty(),
        Some(value) if begins(value, "multipart") => false,
        Some(value) => types.is_empty() || types.iter().any(|listed| begins(value, listed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_config::model::Compression;

    fn response(lines: &[(&str, &str)]) -> ResponseHead {
        let mut head = ResponseHead::from_status(200);
        for (name, value) in lines {
            head.fields.append(name.as_bytes(), value.as_bytes()).unwrap();
        }
        head
    }

    fn decide(conf: &Compression, head: &ResponseHead, framing: Framing) -> bool {
        let settings = CompressionSettings::of(Some(conf), None).unwrap();
        may_compress_response(settings, Response { head, framing, asked: Version::Http11, head_only: false })
    }

    #[test]
    fn a_response_is_compressed_unless_something_speaks_against_it() {
        let conf = Compression { types: vec!["text/".into()], min_size: 10, ..Compression::default() };
        let text = ("content-type", "text/plain; charset=utf-8");
        for (lines, framing, expected) in [
            (&[text][..], Framing::Length(10), true),
            (&[text], Framing::Length(9), false),
            (&[text], Framing::Length(0), false),
            (&[text], Framing::Chunked, true),
            (&[text], Framing::UntilClose, false),
            (&[text], Framing::None, false),
            (&[("content-type", "TEXT/html")], Framing::Chunked, true),
            (&[("content-type", "application/text")], Framing::Chunked, false),
            (&[], Framing::Chunked, false),
            (&[text, ("content-encoding", "br")], Framing::Chunked, false),
            (&[text, ("content-encoding", "identity")], Framing::Chunked, false),
            (&[text, ("cache-control", "private, No-Transform")], Framing::Chunked, false),
            (&[text, ("cache-control", "no-transform=1")], Framing::Chunked, true),
            (&[text, ("etag", "\"a\"")], Framing::Chunked, true),
            (&[text, ("etag", "W/\"a\"")], Framing::Chunked, true),
            (&[text, ("etag", "a")], Framing::Chunked, false),
            (&[text, ("etag", "\"")], Framing::Chunked, false),
            (&[text, ("etag", "\"a\""), ("etag", "\"b\"")], Framing::Chunked, false),
        ] {
            assert_eq!(decide(&conf, &response(lines), framing), expected, "{lines:?} {framing:?}");
        }
        let all = Compression::default();
        assert!(decide(&all, &response(&[]), Framing::Chunked));
        assert!(!decide(&all, &response(&[("content-type", "Multipart/mixed")]), Framing::Chunked));
    }

    #[test]
    fn status_version_and_method_decide_too() {
        let conf = Compression::default();
        let settings = CompressionSettings::of(None, Some(&conf)).unwrap();
        for (status, server, asked, head_only, expected) in [
            (203, Version::Http11, Version::Http11, false, true),
            (204, Version::Http11, Version::Http11, false, false),
            (206, Version::Http11, Version::Http11, false, false),
            (404, Version::Http11, Version::Http11, false, false),
            (200, Version::Http10, Version::Http11, false, false),
            (200, Version::Http11, Version::Http10, false, false),
            (200, Version::Http11, Version::Http2, false, true),
            (200, Version::Http2, Version::Http2, false, true),
            (200, Version::Http11, Version::Http11, true, false),
        ] {
            let mut head = ResponseHead::from_status(status);
            head.set_version(server);
            let response = Response { head: &head, framing: Framing::Length(7), asked, head_only };
            assert_eq!(may_compress_response(settings, response), expected, "{response:?}");
        }
    }
}
