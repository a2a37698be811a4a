//! Checks that an error file holds what will be sent: one whole HTTP/1 response.

/// The first mistake in the content of an error file. `bufsize` bounds a message here as it does on the wire.
pub fn mistake(content: &[u8], bufsize: usize) -> Option<String> {
    // An empty file, like /dev/null, means that the connection is closed without a response.
    if content.is_empty() {
        return None;
    }
    if content.len() > bufsize {
        return Some(format!("it has {} bytes, more than a buffer holds (tune.bufsize is {bufsize})", content.len()));
    }
    let mut rest = content;
    let status = line(&mut rest)?;
    let valid = status.strip_prefix(b"HTTP/1.").and_then(|s| s.split_first()).is_some_and(|(minor, tail)| {
        let code = tail.strip_prefix(b" ").and_then(|t| t.get(..3));
        matches!(minor, b'0' | b'1') && code.is_some_and(|c| c.iter().all(u8::is_ascii_digit))
    });
    if !valid {
        return Some("it does not begin with a status line, such as 'HTTP/1.0 503 Service Unavailable'".into());
    }
    let mut length = None;
    loop {
        let Some(field) = line(&mut rest) else {
            return Some("no empty line ends its header fields".into());
        };
        if field.is_empty() {
            break;
        }
        let colon = field.iter().position(|c| *c == b':').unwrap_or(0);
        let (name, value) = (&field[..colon], field.get(colon + 1..).unwrap_or_default());
        if colon == 0 || !name.iter().all(|c| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(c)) {
            return Some(format!("'{}' is not a header field", String::from_utf8_lossy(field).escape_debug()));
        }
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            return Some("its body cannot be in chunks".into());
        }
        if name.eq_ignore_ascii_case(b"content-length") {
            length = std::str::from_utf8(value).ok().map(|v| v.trim().parse::<usize>().unwrap_or(usize::MAX));
        }
    }
    if !rest.is_empty() && matches!(status.get(9..12), Some(b"204" | b"304")) {
        return Some(format!(
            "it has a body, which a response with the status {} has not",
            &status[9..12].escape_ascii()
        ));
    }
    match length {
        Some(length) if length != rest.len() => {
            Some(format!("its Content-Length is not the {} bytes that follow its header", rest.len()))
        }
        _ => None,
    }
}

/// Takes a line; bytes without a line feed at their end are not one.
fn line<'c>(rest: &mut &'c [u8]) -> Option<&'c [u8]> {
    let end = rest.iter().position(|c| *c == b'\n');
    let Some(end) = end else { return if rest.is_empty() { None } else { Some(std::mem::take(rest)) } };
    let line = &rest[..end];
    *rest = &rest[end + 1..];
    Some(line.strip_suffix(b"\r").unwrap_or(line))
}

#[cfg(test)]
mod tests {
    use super::mistake;

    #[test]
    fn whole_responses_pass_and_others_do_not() {
        for good in [
            "",
            "HTTP/1.0 503 No\n\nbody",
            "HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\nbody",
            "HTTP/1.0 200 OK\r\n\r\n",
            "HTTP/1.1 204 No Content\r\n\r\n",
        ] {
            assert_eq!(mistake(good.as_bytes(), 16384), None, "{good:?}");
        }
        for bad in [
            "hello",
            "<html>\n\n",
            "HTTP/1.0 503 No\r\n",
            "HTTP/1.0 503 No\r\nContent-Length: 3\r\n\r\nbody",
            "HTTP/1.0 503 No\r\nContent-Length: 30\r\n\r\nbody",
            "HTTP/1.0 503 No\r\nTransfer-Encoding: chunked\r\n\r\nbody",
            "HTTP/1.0 503 No\r\nX Y: a\r\n\r\nbody",
            "HTTP/2.0 503 No\r\n\r\n",
            "HTTP/1.0 5x3 No\r\n\r\n",
            "HTTP/1.1 204 No Content\r\n\r\nbody",
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\nbody",
        ] {
            assert!(mistake(bad.as_bytes(), 16384).is_some(), "{bad:?}");
        }
        let big = format!("HTTP/1.0 503 No\r\n\r\n{}", "a".repeat(17_000));
        assert!(mistake(big.as_bytes(), 16384).is_some());
        assert!(mistake(big.as_bytes(), 32768).is_none());
    }
}
