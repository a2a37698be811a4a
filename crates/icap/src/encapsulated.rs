//! `Encapsulated`: where the HTTP heads and the body of an answer are.

use crate::{error::Error, head::Head};
use std::ops::Range;

/// Bytes of HTTP heads in an answer, both together.
const HEADS_BYTES_MAX: usize = 128 * 1024;

/// The parts of an answer, by their offsets from its head's end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Encapsulated {
    pub request: Option<Range<usize>>,
    pub response: Option<Range<usize>>,
    /// The offset at which the heads end.
    pub heads: usize,
    pub has_body: bool,
}

impl Encapsulated {
    /// Reads the field of an answer; one without it has neither heads nor a body.
    ///
    /// # Errors
    /// If the parts are unknown, out of order, or have no offsets.
    pub fn of(head: &Head) -> Result<Encapsulated, Error> {
        let mut parts = Vec::new();
        for part in head.list("encapsulated") {
            let (name, offset) = part.split_at(memchr::memchr(b'=', part).ok_or(Error::Encapsulated)?);
            parts.push((name.to_ascii_lowercase(), number(&offset[1..]).ok_or(Error::Encapsulated)?));
        }
        let Some(((last, heads), before)) = parts.split_last() else { return Ok(Encapsulated::default()) };
        let has_body = match last.as_slice() {
            b"req-body" | b"res-body" | b"opt-body" => true,
            b"null-body" => false,
            _ => return Err(Error::Encapsulated),
        };
        let mut found = Encapsulated { heads: *heads, has_body, ..Encapsulated::default() };
        for (place, (name, start)) in before.iter().enumerate() {
            let end = parts[place + 1].1;
            if start >= &end || (place == 0 && *start != 0) {
                return Err(Error::Encapsulated);
            }
            match (name.as_slice(), place) {
                (b"req-hdr", 0) => found.request = Some(*start..end),
                (b"res-hdr", _) if found.response.is_none() => found.response = Some(*start..end),
                _ => return Err(Error::Encapsulated),
            }
        }
        if (before.is_empty() && *heads != 0) || *heads > HEADS_BYTES_MAX {
            return Err(Error::Encapsulated);
        }
        Ok(found)
    }
}

fn number(text: &[u8]) -> Option<usize> {
    let digits = !text.is_empty() && text.len() <= 9 && text.iter().all(u8::is_ascii_digit);
    digits.then(|| text.iter().fold(0, |number, digit| number * 10 + usize::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: &str) -> Result<Encapsulated, Error> {
        let text = format!("ICAP/1.0 200 OK\r\nEncapsulated: {value}\r\n\r\n");
        Encapsulated::of(&Head::parse(text.as_bytes(), 0).unwrap().unwrap().0)
    }

    #[test]
    fn parts_are_found_in_their_order_and_no_other() {
        let both = of("req-hdr=0, res-hdr=45, res-body=100").unwrap();
        assert_eq!((both.request, both.response, both.heads, both.has_body), (Some(0..45), Some(45..100), 100, true));
        let empty = of("res-hdr=0, null-body=20").unwrap();
        assert_eq!((empty.request, empty.response, empty.heads, empty.has_body), (None, Some(0..20), 20, false));
        assert_eq!(of("null-body=0").unwrap(), Encapsulated::default());
        for wrong in [
            "null-body=5",
            "res-hdr=0",
            "res-hdr=1, null-body=5",
            "res-hdr=5, null-body=5",
            "res-hdr=0, res-hdr=5, null-body=9",
            "res-hdr=0, req-hdr=5, null-body=9",
            "req-hdr=0, req-body=9, res-body=12",
            "req-hdr=0, null-body=-1",
            "req-hdr=0, null-body=",
            "req-hdr=0, null-body",
            "req-hdr=0, null-body=1000000",
            "req-hdr=0, null-body=99999999999999999999",
            "other=0, null-body=5",
        ] {
            assert_eq!(of(wrong), Err(Error::Encapsulated), "{wrong}");
        }
    }
}
