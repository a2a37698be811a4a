//! The strictest reading of HTTP/1.1 that a server could apply: what a proxy sends on must pass it, since whatever
//! does not could be read in two ways.

use crate::Failure;
use crate::wire::quote;

/// A message that was read strictly.
pub struct Strict {
    /// Its request or status line.
    pub start: String,
}

/// Splits a connection's bytes into requests. An incomplete last one is fine: its sender gave up.
pub fn requests(bytes: &[u8]) -> Result<Vec<Strict>, Failure> {
    let mut messages = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let Some((message, used)) = request(rest)? else { break };
        messages.push(message);
        rest = &rest[used..];
    }
    Ok(messages)
}

fn request(bytes: &[u8]) -> Result<Option<(Strict, usize)>, Failure> {
    let Some(end) = find(bytes, b"\r\n\r\n") else {
        check_bytes(bytes)?;
        return Ok(None);
    };
    let fields = head(&bytes[..end])?;
    let mut at = end + 4;
    let lengths: Vec<&str> = values(&fields, "content-length");
    let encodings: Vec<&str> = values(&fields, "transfer-encoding");
    let start = fields[0].1.clone();
    match (&lengths[..], &encodings[..]) {
        ([], []) => {}
        ([length], []) if !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit()) => {
            at += length.parse::<usize>().map_err(|e| e.to_string())?;
            if at > bytes.len() {
                return Ok(None);
            }
        }
        ([], [encoding]) if encoding.eq_ignore_ascii_case("chunked") => match chunks(&bytes[at..])? {
            Some(used) => at += used,
            None => return Ok(None),
        },
        _ => return Err(format!("ambiguous framing: lengths {lengths:?}, encodings {encodings:?}")),
    }
    Ok(Some((Strict { start }, at)))
}

/// The start line (under an empty name) and the fields, names in lower case.
fn head(bytes: &[u8]) -> Result<Vec<(String, String)>, Failure> {
    check_bytes(bytes)?;
    let text = String::from_utf8_lossy(bytes).into_owned();
    let mut lines = text.split("\r\n");
    let mut fields = vec![(String::new(), lines.next().unwrap_or_default().to_owned())];
    for line in lines {
        let Some((name, value)) = line.split_once(':') else { return Err(format!("no field: {line:?}")) };
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if name.is_empty() || !name.bytes().all(token) {
            return Err(format!("a field name that is no token: {name:?}"));
        }
        fields.push((name.to_ascii_lowercase(), value.trim_matches([' ', '\t']).to_owned()));
    }
    Ok(fields)
}

/// No control byte but CRLF at line ends and tabs, and no line that continues the one before.
fn check_bytes(bytes: &[u8]) -> Result<(), Failure> {
    for (i, &b) in bytes.iter().enumerate() {
        let wrong = match b {
            b'\r' => bytes.get(i + 1).is_some_and(|&n| n != b'\n'),
            b'\n' => i == 0 || bytes[i - 1] != b'\r' || matches!(bytes.get(i + 1), Some(b' ' | b'\t')),
            b'\t' => false,
            _ => b < 0x20 || b == 0x7f,
        };
        if wrong {
            return Err(format!("byte {b:#04x} at {i} of {}", quote(bytes)));
        }
    }
    Ok(())
}

/// The length of a chunked body, if it is complete.
fn chunks(bytes: &[u8]) -> Result<Option<usize>, Failure> {
    let mut at = 0;
    loop {
        let Some(line) = find(&bytes[at..], b"\r\n") else { return Ok(None) };
        let text = &bytes[at..at + line];
        check_bytes(text)?;
        let digits = text.split(|&b| b == b';').next().unwrap_or_default();
        let digits = std::str::from_utf8(digits).unwrap_or_default();
        if digits.is_empty() || digits.len() > 15 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(format!("a chunk size of {}", quote(text)));
        }
        let size = usize::from_str_radix(digits, 16).map_err(|e| e.to_string())?;
        at += line + 2;
        if size == 0 {
            break;
        }
        match bytes.get(at + size..at + size + 2) {
            None => return Ok(None),
            Some(b"\r\n") => at += size + 2,
            Some(_) => return Err(format!("no line end after a chunk: {}", quote(&bytes[at..]))),
        }
    }
    loop {
        let Some(line) = find(&bytes[at..], b"\r\n") else { return Ok(None) };
        check_bytes(&bytes[at..at + line])?;
        at += line + 2;
        if line == 0 {
            return Ok(Some(at));
        }
    }
}

fn values<'a>(fields: &'a [(String, String)], name: &str) -> Vec<&'a str> {
    fields.iter().filter(|(n, _)| n == name).map(|(_, v)| v.as_str()).collect()
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|w| w == what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clean_requests_pass_and_ambiguous_ones_do_not() {
        let two = b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nhiGET /b HTTP/1.1\r\nHost: x\r\n\r\n";
        let read = requests(two).expect("clean");
        assert_eq!(read.iter().map(|m| m.start.as_str()).collect::<Vec<_>>(), ["POST / HTTP/1.1", "GET /b HTTP/1.1"]);
        for bad in [
            &b"GET / HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"[..],
            b"GET / HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi",
            b"GET / HTTP/1.1\r\nContent-Length: +2\r\n\r\nhi",
            b"GET / HTTP/1.1\nHost: x\r\n\r\n",
            b"GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
            b"GET / HTTP/1.1\r\nA: \0\r\n\r\n",
            b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;\nx\r\n0\r\n\r\n",
        ] {
            assert!(requests(bad).is_err(), "{}", quote(bad));
        }
    }
}
