//! Responses that vary by fields of the request (RFC 9111 section 4.1).

use penstock_http::{Fields, RequestHead, ResponseHead, list};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Codings with a name (IANA's registry of content codings), each a bit of a set; `x-gzip` and `x-compress` are other names.
const CODINGS: &[(&[u8], u16)] = &[
    (b"identity", IDENTITY),
    (b"gzip", 1 << 1),
    (b"x-gzip", 1 << 1),
    (b"deflate", 1 << 2),
    (b"br", 1 << 3),
    (b"zstd", 1 << 4),
    (b"compress", 1 << 5),
    (b"x-compress", 1 << 5),
    (b"exi", 1 << 6),
    (b"pack200-gzip", 1 << 7),
    (b"aes128gcm", 1 << 8),
    (b"dcb", 1 << 9),
    (b"dcz", 1 << 10),
];
const IDENTITY: u16 = 1;

/// Codings in `Accept-Encoding` from which on the field is not evaluated.
const CODINGS_MAX: usize = 16;

fn coding(name: &[u8]) -> Option<u16> {
    CODINGS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, bit)| *bit)
}

/// What a request says in the fields by which responses may vary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The codings that it accepts; `None` if that is not evaluated.
    codings: Option<u16>,
    referer: Box<[u8]>,
    origin: Box<[u8]>,
}

impl Asked {
    /// Reads the fields of a request.
    pub(crate) fn of(request: &RequestHead) -> Asked {
        let fields = &request.fields;
        Asked { codings: accepted(fields), referer: joined(fields, b"referer"), origin: joined(fields, b"origin") }
    }
    /// Bytes that its values take.
    pub(crate) fn size(&self) -> usize {
        self.referer.len() + self.origin.len()
    }
}

/// The values of a field, so that no two different lists of values have the same result.
fn joined(fields: &Fields, name: &[u8]) -> Box<[u8]> {
    let mut all = Vec::new();
    for value in fields.get_all(name) {
        all.extend_from_slice(value);
        // No value contains a line end.
        all.push(b'\n');
    }
    all.into()
}

/// The codings that a request accepts (RFC 9110 section 12.5.3).
fn accepted(fields: &Fields) -> Option<u16> {
    let (mut some, mut yes, mut no, mut others, mut count) = (false, 0, 0, None, 0);
    for value in fields.get_all(b"accept-encoding") {
        some = true;
        for element in list(value) {
            count += 1;
            if count >= CODINGS_MAX {
                return None;
            }
            let mut parts = element.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
            let name = parts.next().unwrap_or_default();
            let refused = parts.any(|part| {
                let weight = part.strip_prefix(b"q=").or_else(|| part.strip_prefix(b"Q="));
                weight.is_some_and(|weight| weight.iter().all(|byte| matches!(byte, b'0' | b'.')))
            });
            if name == b"*" {
                others = Some(!refused);
            } else if let Some(bit) = coding(name) {
                *(if refused { &mut no } else { &mut yes }) |= bit;
            }
        }
    }
    // Without the field, everything is acceptable; without an element for it, identity is unless `*` refuses it.
    let rest = match others {
        _ if !some => u16::MAX,
        Some(true) => u16::MAX,
        Some(false) => 0,
        None => IDENTITY,
    };
    Some((yes | rest) & !no)
}

/// The fields by which a response varies, and what they were when it was stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Variant {
    /// The codings of the body, if it varies by `Accept-Encoding`.
    codings: Option<u16>,
    referer: Option<Box<[u8]>>,
    origin: Option<Box<[u8]>>,
}

impl Variant {
    /// The variant of a response to a request that said `asked`; `None` if the response cannot be stored, since it varies by
    /// something else, or at all and what the request said is not known.
    pub(crate) fn of(response: &ResponseHead, asked: Option<&Asked>) -> Option<Variant> {
        let mut variant = Variant::default();
        for value in response.fields.get_all(b"vary") {
            let asked = asked.filter(|_| list(value).next().is_some())?;
            for name in list(value) {
                match name.to_ascii_lowercase().as_slice() {
                    b"accept-encoding" => {
                        asked.codings?;
                        variant.codings = Some(codings(&response.fields)?);
                    }
                    b"referer" => variant.referer = Some(asked.referer.clone()),
                    b"origin" => variant.origin = Some(asked.origin.clone()),
                    _ => return None,
                }
            }
        }
        Some(variant)
    }
    /// Whether this variant answers a request that says `asked`; if that is not known, it must not vary.
    pub(crate) fn answers(&self, asked: Option<&Asked>) -> bool {
        let Some(asked) = asked else { return *self == Variant::default() };
        self.codings.is_none_or(|needed| asked.codings.is_some_and(|accepted| needed & !accepted == 0))
            && self.referer.as_ref().is_none_or(|referer| *referer == asked.referer)
            && self.origin.as_ref().is_none_or(|origin| *origin == asked.origin)
    }
    /// Whether two requests that say this in the fields by which it varies are the same to a response of its kind.
    pub(crate) fn is_same_for(&self, one: Option<&Asked>, other: Option<&Asked>) -> bool {
        let Some((one, other)) = one.zip(other) else { return one == other };
        (self.codings.is_none() || one.codings == other.codings)
            && (self.referer.is_none() || one.referer == other.referer)
            && (self.origin.is_none() || one.origin == other.origin)
    }
    /// Whether the response varies at all.
    pub(crate) fn varies(&self) -> bool {
        *self != Variant::default()
    }
    /// Whether another response varies by the same fields.
    pub(crate) fn is_like(&self, other: &Variant) -> bool {
        (self.codings.is_some(), self.referer.is_some(), self.origin.is_some())
            == (other.codings.is_some(), other.referer.is_some(), other.origin.is_some())
    }
    pub(crate) fn size(&self) -> usize {
        [&self.referer, &self.origin].into_iter().flatten().map(|value| value.len()).sum()
    }
    /// A number for what it varies by; 0 if it does not vary.
    pub(crate) fn number(&self) -> u64 {
        if !self.varies() {
            return 0;
        }
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

/// The codings of a body; `None` if one is not known.
fn codings(fields: &Fields) -> Option<u16> {
    let mut all = 0;
    for value in fields.get_all(b"content-encoding") {
        list(value).next()?;
        for name in list(value) {
            all |= coding(name)?;
        }
    }
    Some(if all == 0 { IDENTITY } else { all })
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_http::Version;

    fn asked(lines: &[(&str, &str)]) -> Asked {
        let mut head = RequestHead::from_parts(b"GET", b"/", Version::Http11).unwrap();
        for (name, value) in lines {
            head.fields.append(name.as_bytes(), value.as_bytes()).unwrap();
        }
        Asked::of(&head)
    }
    fn response(vary: &str, coding: Option<&str>) -> ResponseHead {
        let mut head = ResponseHead::from_status(200);
        head.fields.append(b"vary", vary.as_bytes()).unwrap();
        if let Some(coding) = coding {
            head.fields.append(b"content-encoding", coding.as_bytes()).unwrap();
        }
        head
    }

    #[test]
    fn a_coded_body_goes_to_those_who_accept_its_coding() {
        let gzip = Variant::of(&response("Accept-Encoding", Some("gzip")), Some(&asked(&[]))).unwrap();
        let yes = ["gzip", "GZIP", "deflate, gzip;q=0.1", "gzip ; q=0.8", "*", "x-gzip", "foo, gzip", "br, *;q=0.5"];
        let no = ["", "br", "gzip;q=0", "gzip;q=0.000, *", "*;q=0", "identity"];
        for value in yes {
            assert!(gzip.answers(Some(&asked(&[("accept-encoding", value)]))), "{value}");
        }
        for value in no {
            assert!(!gzip.answers(Some(&asked(&[("accept-encoding", value)]))), "{value}");
        }
        assert!(gzip.answers(Some(&asked(&[]))));
        let plain = Variant::of(&response("Accept-Encoding", None), Some(&asked(&[]))).unwrap();
        assert!(plain.answers(Some(&asked(&[("accept-encoding", "br")]))));
        assert!(!plain.answers(Some(&asked(&[("accept-encoding", "br, identity;q=0")]))));
        assert!(!plain.answers(Some(&asked(&[("accept-encoding", "*;q=0")]))));
        let both = Variant::of(&response("Accept-Encoding", Some("deflate, gzip")), Some(&asked(&[]))).unwrap();
        assert!(!both.answers(Some(&asked(&[("accept-encoding", "gzip")]))));
    }

    #[test]
    fn what_cannot_be_told_apart_is_not_stored() {
        for vary in ["*", "Cookie", "Accept-Encoding, Cookie", "", "User-Agent"] {
            assert_eq!(Variant::of(&response(vary, None), Some(&asked(&[]))), None, "{vary}");
        }
        assert_eq!(Variant::of(&response("Referer", None), None), None);
        assert_eq!(Variant::of(&response("Accept-Encoding", Some("foo")), Some(&asked(&[]))), None);
        let many = vec!["x"; CODINGS_MAX].join(",");
        assert_eq!(Variant::of(&response("Accept-Encoding", None), Some(&asked(&[("accept-encoding", &many)]))), None);
    }

    #[test]
    fn a_request_that_was_not_read_for_it_gets_nothing_that_varies() {
        let gzip = Variant::of(&response("Accept-Encoding", Some("gzip")), Some(&asked(&[]))).unwrap();
        assert!(!gzip.answers(None) && Variant::default().answers(None));
    }

    #[test]
    fn referer_and_origin_are_compared_byte_for_byte() {
        for name in ["referer", "origin"] {
            let variant = Variant::of(&response(name, None), Some(&asked(&[(name, "x")]))).unwrap();
            assert!(variant.answers(Some(&asked(&[(name, "x")]))));
            for others in [&[][..], &[(name, "y")], &[(name, "x"), (name, "x")], &[(name, "")]] {
                assert!(!variant.answers(Some(&asked(others))), "{others:?}");
            }
        }
    }
}
