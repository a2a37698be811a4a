//! The head of an ICAP answer.

use crate::error::Error;
use memchr::memmem;
use penstock_http::is_token;

/// Bytes of a head; services describe what they found in a few hundred.
const HEAD_BYTES_MAX: usize = 16 * 1024;
const FIELDS_MAX: usize = 100;

/// Status and fields of an answer. A folded line, as c-icap's virus scanner writes, is joined by one space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The status.
    pub status: u16,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Head {
    /// Parses the head that `input` begins with, and says where it ends; `None` while it is not complete. `seen` is how much of
    /// the input an earlier call has looked at.
    ///
    /// # Errors
    /// If it is malformed, or too large.
    pub fn parse(input: &[u8], seen: usize) -> Result<Option<(Head, usize)>, Error> {
        const END: &[u8] = b"\r\n\r\n";
        const BEGIN: &[u8] = b"ICAP/1.0 ";
        let known = input.len().min(BEGIN.len());
        if input[..known] != BEGIN[..known] {
            return Err(Error::StatusLine);
        }
        let from = seen.saturating_sub(END.len() - 1);
        let Some(found) = memmem::find(&input[from..], END) else {
            return if input.len() > HEAD_BYTES_MAX { Err(Error::HeadTooLarge) } else { Ok(None) };
        };
        let end = from + found + END.len();
        if end > HEAD_BYTES_MAX {
            return Err(Error::HeadTooLarge);
        }
        Ok(Some((Self::read(&input[..end - END.len()])?, end)))
    }

    fn read(text: &[u8]) -> Result<Head, Error> {
        let mut lines = Lines(Some(text));
        let status = lines.next().and_then(|line| status(&line[9..])).ok_or(Error::StatusLine)?;
        let mut fields: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for line in lines {
            if line.iter().any(|&byte| byte == 0x7f || (byte < 0x20 && byte != b'\t')) {
                return Err(Error::Field);
            }
            if matches!(line.first(), Some(b' ' | b'\t')) {
                let (_, value) = fields.last_mut().ok_or(Error::Field)?;
                if !value.is_empty() {
                    value.push(b' ');
                }
                value.extend_from_slice(line.trim_ascii());
                continue;
            }
            let colon = memchr::memchr(b':', line).ok_or(Error::Field)?;
            if !is_token(&line[..colon]) {
                return Err(Error::Field);
            }
            if fields.len() == FIELDS_MAX {
                return Err(Error::HeadTooLarge);
            }
            fields.push((line[..colon].to_ascii_lowercase(), line[colon + 1..].trim_ascii().to_vec()));
        }
        Ok(Head { status, fields })
    }

    /// The first value of a field, whose name is given in lower case.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.all(name).next()
    }
    /// All values of a field.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.fields.iter().filter(move |(known, _)| known == name.as_bytes()).map(|(_, value)| &value[..])
    }
    /// The elements of all values of a list field.
    pub fn list(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.all(name).flat_map(penstock_http::list)
    }
    /// Whether the service closes the connection after this answer.
    pub fn closes(&self) -> bool {
        self.list("connection").any(|word| word.eq_ignore_ascii_case(b"close"))
    }
}

/// Splits at CRLF alone: a bare CR or LF stays in its line, where it is refused as a control character.
struct Lines<'a>(Option<&'a [u8]>);

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];
    fn next(&mut self) -> Option<&'a [u8]> {
        let text = self.0?;
        let (line, rest) = match memmem::find(text, b"\r\n") {
            Some(at) => (&text[..at], Some(&text[at + 2..])),
            None => (text, None),
        };
        self.0 = rest;
        Some(line)
    }
}

/// Three digits, and a reason phrase, which is ignored.
fn status(text: &[u8]) -> Option<u16> {
    let (digits, reason) = text.split_at_checked(3)?;
    let valid = digits.iter().all(u8::is_ascii_digit)
        && matches!(reason, [] | [b' ', ..])
        && reason.iter().all(|&byte| byte >= 0x20 && byte != 0x7f);
    valid.then(|| digits.iter().fold(0, |number, digit| number * 10 + u16::from(digit - b'0')))
}

/// The name of the threat that a service says it has found, from the fields that services use for it.
pub fn threat(head: &Head) -> Option<Vec<u8>> {
    let named = |value: &[u8]| {
        let parts = value.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
        let mut threats = parts.filter_map(|part| part.strip_prefix(b"Threat="));
        threats.next().filter(|name| !name.is_empty()).map(<[u8]>::to_vec)
    };
    let mut found = head.all("x-infection-found").filter_map(named);
    found.next().or_else(|| head.get("x-virus-id").filter(|name| !name.is_empty()).map(<[u8]>::to_vec))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Option<(Head, usize)>, Error> {
        Head::parse(text.as_bytes(), 0)
    }

    #[test]
    fn folded_lines_are_joined_and_the_threat_is_found() {
        let text = "ICAP/1.0 200 OK\r\nServer: C-ICAP/0.5.10\r\nX-Infection-Found: Type=0; Resolution=2;\r\n\t Threat=Eicar-Test;\r\n\
                    Connection: keep-alive\r\nEncapsulated: res-hdr=0,\r\n res-body=5\r\n\r\nrest";
        let (head, end) = parsed(text).unwrap().unwrap();
        assert_eq!((head.status, &text[end..]), (200, "rest"));
        assert_eq!(head.get("encapsulated"), Some(&b"res-hdr=0, res-body=5"[..]));
        assert_eq!(threat(&head), Some(b"Eicar-Test".to_vec()));
        assert!(!head.closes());
    }

    #[test]
    fn what_no_service_says_is_refused_and_a_beginning_is_not() {
        for text in
            ["HTTP/1.1 200 OK\r\n\r\n", "I", "ICAP/1.0 20 OK\r\n\r\n", "ICAP/1.0 2000\r\n\r\n", "ICAP/1.1 200 OK"]
        {
            let expected = if text == "I" { Ok(None) } else { Err(Error::StatusLine) };
            assert_eq!(parsed(text), expected, "{text}");
        }
        for field in ["A", ": b", "A b: c", " folded: first", "A: b\nC: d", "A: \0", "A: b\rc"] {
            assert_eq!(parsed(&format!("ICAP/1.0 200 OK\r\n{field}\r\n\r\n")), Err(Error::Field), "{field}");
        }
        let long = format!("ICAP/1.0 200 OK\r\nA: {}\r\n\r\n", "b".repeat(HEAD_BYTES_MAX));
        assert_eq!(parsed(&long), Err(Error::HeadTooLarge));
        assert_eq!(parsed(&long[..long.len() - 4]), Err(Error::HeadTooLarge), "it is not waited for");
        let many = format!("ICAP/1.0 200 OK\r\n{}\r\n", "A: b\r\n".repeat(FIELDS_MAX + 1));
        assert_eq!(parsed(&many), Err(Error::HeadTooLarge));
    }
}
