//! `normalize-uri`: each rule applies one normalisation.

use std::borrow::Cow;

/// The normalisations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Normalizer {
    FragmentEncode,
    FragmentStrip,
    PathMergeSlashes,
    PathStripDot,
    PathStripDotdot { full: bool },
    PercentDecodeUnreserved { strict: bool },
    PercentToUppercase { strict: bool },
    QuerySortByName,
}

impl Normalizer {
    pub(crate) const NAMES: &'static [&'static str] = &[
        "fragment-encode",
        "fragment-strip",
        "path-merge-slashes",
        "path-strip-dot",
        "path-strip-dotdot",
        "percent-decode-unreserved",
        "percent-to-uppercase",
        "query-sort-by-name",
    ];

    /// Finds a normalisation by name; `option` says whether the word after it (`full`, `strict`) is there.
    pub(crate) fn parse(name: &str, option: bool) -> Option<Normalizer> {
        Some(match name {
            "fragment-encode" => Normalizer::FragmentEncode,
            "fragment-strip" => Normalizer::FragmentStrip,
            "path-merge-slashes" => Normalizer::PathMergeSlashes,
            "path-strip-dot" => Normalizer::PathStripDot,
            "path-strip-dotdot" => Normalizer::PathStripDotdot { full: option },
            "percent-decode-unreserved" => Normalizer::PercentDecodeUnreserved { strict: option },
            "percent-to-uppercase" => Normalizer::PercentToUppercase { strict: option },
            "query-sort-by-name" => Normalizer::QuerySortByName,
            _ => return None,
        })
    }

    /// The word that may follow the name.
    pub(crate) fn option(name: &str) -> Option<&'static str> {
        match name {
            "path-strip-dotdot" => Some("full"),
            "percent-decode-unreserved" | "percent-to-uppercase" => Some("strict"),
            _ => None,
        }
    }

    /// The new path and query, or `None` if it is unchanged. `Err` if a strict one finds a malformed sequence.
    pub(crate) fn apply(self, target: &[u8]) -> Result<Option<Vec<u8>>, ()> {
        let query = memchr::memchr(b'?', target).unwrap_or(target.len());
        let (path, rest) = target.split_at(query);
        let new = match self {
            Normalizer::FragmentEncode => percent_hash(target),
            Normalizer::FragmentStrip => target[..memchr::memchr(b'#', target).unwrap_or(target.len())].to_vec(),
            Normalizer::PathMergeSlashes => {
                let mut path = path.to_vec();
                path.dedup_by(|a, b| *a == b'/' && *b == b'/');
                [&path[..], rest].concat()
            }
            Normalizer::PathStripDot => [&strip_dot(path)[..], rest].concat(),
            Normalizer::PathStripDotdot { full } => [&strip_dotdot(path, full)[..], rest].concat(),
            Normalizer::PercentDecodeUnreserved { strict } => percent(target, strict, |byte, text| {
                if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                    Cow::Owned(vec![byte])
                } else {
                    Cow::Borrowed(text)
                }
            })?,
            Normalizer::PercentToUppercase { strict } => {
                percent(target, strict, |_, text| Cow::Owned(text.to_ascii_uppercase()))?
            }
            Normalizer::QuerySortByName => {
                let Some(query) = rest.strip_prefix(b"?") else { return Ok(None) };
                // As in HAProxy, there is no parameter behind the last `&`.
                let query = query.strip_suffix(b"&").unwrap_or(query);
                let mut parameters: Vec<&[u8]> = query.split(|&byte| byte == b'&').collect();
                parameters.sort_by_key(|parameter| parameter.split(|&byte| byte == b'=').next());
                [path, b"?", &parameters.join(&b'&')].concat()
            }
        };
        Ok((new != target).then_some(new))
    }
}

fn percent_hash(target: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(target.len() + 2);
    for &byte in target {
        if byte == b'#' {
            out.extend_from_slice(b"%23");
        } else {
            out.push(byte);
        }
    }
    out
}

/// Rewrites each `%XX`, given its byte and its text.
fn percent<'t>(target: &'t [u8], strict: bool, rewrite: impl Fn(u8, &'t [u8]) -> Cow<'t, [u8]>) -> Result<Vec<u8>, ()> {
    let mut out = Vec::with_capacity(target.len());
    let mut at = 0;
    while at < target.len() {
        if target[at] != b'%' {
            out.push(target[at]);
            at += 1;
            continue;
        }
        let digit = |at: usize| target.get(at).and_then(|&b| char::from(b).to_digit(16));
        match (digit(at + 1), digit(at + 2)) {
            (Some(high), Some(low)) => {
                out.extend_from_slice(&rewrite((high * 16 + low) as u8, &target[at..at + 3]));
                at += 3;
            }
            _ if strict => return Err(()),
            _ => {
                out.push(b'%');
                at += 1;
            }
        }
    }
    Ok(out)
}

fn strip_dot(path: &[u8]) -> Vec<u8> {
    let parts: Vec<&[u8]> = path.split(|&byte| byte == b'/').collect();
    let last = parts.len() - 1;
    let kept = parts.iter().enumerate().filter(|(at, part)| *part != b"." || *at == last);
    let mut kept: Vec<&[u8]> = kept.map(|(_, part)| *part).collect();
    if let Some(end) = kept.last_mut().filter(|end| **end == b".") {
        *end = b"";
    }
    kept.join(&b'/')
}

fn strip_dotdot(path: &[u8], full: bool) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = path.split(|&byte| byte == b'/').collect();
    let trailing = parts.last() == Some(&&b".."[..]);
    if trailing {
        parts.push(b"");
    }
    let mut kept: Vec<&[u8]> = Vec::with_capacity(parts.len());
    for (at, part) in parts.into_iter().enumerate() {
        match kept.last() {
            // The first part is what precedes the first slash.
            Some(before) if part == b".." && kept.len() > 1 && *before != b".." => {
                kept.pop();
            }
            _ if part == b".." && full && at > 0 => {}
            _ => kept.push(part),
        }
    }
    kept.join(&b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(name: &str, option: bool, target: &str) -> String {
        match Normalizer::parse(name, option).unwrap().apply(target.as_bytes()) {
            Ok(Some(new)) => String::from_utf8(new).unwrap(),
            Ok(None) => target.to_owned(),
            Err(()) => "400".to_owned(),
        }
    }

    #[test]
    fn examples_of_the_manual() {
        for (name, option, before, after) in [
            ("fragment-encode", false, "/#foo", "/%23foo"),
            ("fragment-strip", false, "/#foo", "/"),
            ("path-strip-dot", false, "/.", "/"),
            ("path-strip-dot", false, "/./bar/", "/bar/"),
            ("path-strip-dot", false, "/a/./a", "/a/a"),
            ("path-strip-dot", false, "/.well-known/", "/.well-known/"),
            ("path-strip-dotdot", false, "/foo/../", "/"),
            ("path-strip-dotdot", false, "/foo/../bar/", "/bar/"),
            ("path-strip-dotdot", false, "/foo/bar/../", "/foo/"),
            ("path-strip-dotdot", false, "/../bar/", "/../bar/"),
            ("path-strip-dotdot", false, "/bar/../../", "/../"),
            ("path-strip-dotdot", false, "/foo//../", "/foo/"),
            ("path-strip-dotdot", false, "/foo/%2E%2E/", "/foo/%2E%2E/"),
            ("path-strip-dotdot", true, "/../bar/", "/bar/"),
            ("path-strip-dotdot", true, "/bar/../../", "/"),
            ("path-strip-dotdot", true, "/foo/..", "/"),
            ("path-merge-slashes", false, "//", "/"),
            ("path-merge-slashes", false, "/foo//bar?a=//", "/foo/bar?a=//"),
            ("percent-decode-unreserved", false, "/%61dmin", "/admin"),
            ("percent-decode-unreserved", false, "/foo%3Fbar=baz", "/foo%3Fbar=baz"),
            ("percent-decode-unreserved", false, "/%%36%36", "/%66"),
            ("percent-decode-unreserved", true, "/%%36%36", "400"),
            ("percent-to-uppercase", false, "/%6f", "/%6F"),
            ("percent-to-uppercase", false, "/%zz", "/%zz"),
            ("percent-to-uppercase", true, "/%zz", "400"),
            ("query-sort-by-name", false, "/?c=3&a=1&b=2", "/?a=1&b=2&c=3"),
            ("query-sort-by-name", false, "/a?&b&", "/a?&b"),
            ("query-sort-by-name", false, "/a?b&&a&&", "/a?&&a&b"),
            ("query-sort-by-name", false, "/?aaa=3&a=1&aa=2", "/?a=1&aa=2&aaa=3"),
            ("query-sort-by-name", false, "/?a=3&b=4&a=1&b=5&a=2", "/?a=3&a=1&a=2&b=4&b=5"),
        ] {
            assert_eq!(normal(name, option, before), after, "{name} {before}");
        }
    }
}
