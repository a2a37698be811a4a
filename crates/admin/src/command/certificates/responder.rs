//! Sends a request to an OCSP responder (RFC 6960, appendix A), over HTTP without TLS, as is usual for responders.

use std::{
    io::{Read, Write},
    net::{TcpStream, ToSocketAddrs},
    time::{Duration, Instant},
};

/// Time limit for the whole exchange.
const LIMIT: Duration = Duration::from_secs(10);
/// Upper bound on a response; real ones, with certificates, are smaller.
const RESPONSE_MAX: usize = 64 << 10;

/// Asks the responder at `url`; returns the response in DER.
///
/// # Errors
///
/// A sentence for the client: the URL is not an HTTP one, no answer comes in time, or the answer is not a response.
pub(super) fn ask(url: &str, question: &[u8]) -> Result<Vec<u8>, String> {
    let failed = |why: &dyn std::fmt::Display| format!("OCSP responder '{url}': {why}");
    let (host, path) = parts(url).ok_or_else(|| failed(&"not an HTTP URI"))?;
    let address = if host.contains(':') { host.to_owned() } else { format!("{host}:80") };
    let address = address.to_socket_addrs().map_err(|e| failed(&e))?.next();
    let end = Instant::now() + LIMIT;
    let address = address.ok_or_else(|| failed(&"it has no address"))?;
    let mut stream = TcpStream::connect_timeout(&address, LIMIT).map_err(|e| failed(&e))?;
    stream.set_write_timeout(Some(LIMIT)).map_err(|e| failed(&e))?;
    let head = format!(
        "POST {path} HTTP/1.0\r\nHost: {host}\r\nContent-Type: application/ocsp-request\r\nContent-Length: {}\r\n\r\n",
        question.len()
    );
    stream.write_all(&[head.as_bytes(), question].concat()).map_err(|e| failed(&e))?;
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || answer.len() > RESPONSE_MAX {
            return Err(failed(&"the answer takes too long or is too long"));
        }
        stream.set_read_timeout(Some(left)).map_err(|e| failed(&e))?;
        match stream.read(&mut buffer).map_err(|e| failed(&e))? {
            0 => break,
            read => answer.extend_from_slice(&buffer[..read]),
        }
    }
    body(&answer).ok_or_else(|| failed(&"HTTP error"))
}

/// Host (possibly with a port) and path of an HTTP URI.
fn parts(url: &str) -> Option<(&str, &str)> {
    let rest = url.strip_prefix("http://")?;
    let (host, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    (!host.is_empty() && plain(host) && plain(path)).then_some((host, path))
}

/// The body of a successful response to an HTTP/1.0 request. It ends with the connection, or where its length says.
fn body(answer: &[u8]) -> Option<Vec<u8>> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.")?.split(' ').nth(1)?;
    let length =
        lines.filter_map(|line| line.split_once(':')).find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let body = &answer[end + 4..];
    let body = match length {
        Some((_, length)) => body.get(..length.trim().parse().ok()?)?,
        None => body,
    };
    (status == "200" && !body.is_empty()).then(|| body.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn uris_are_taken_apart_or_refused() {
        assert_eq!(parts("http://ocsp.example"), Some(("ocsp.example", "/")));
        assert_eq!(parts("http://ocsp.example:8080/a/b?c"), Some(("ocsp.example:8080", "/a/b?c")));
        for bad in ["https://ocsp.example/", "ldap://x", "http://", "http:///a", "http://a b/", "http://a/\r\nX: y"] {
            assert_eq!(parts(bad), None, "{bad}");
        }
    }

    #[test]
    fn only_a_whole_good_answer_counts() {
        assert_eq!(body(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc").unwrap(), b"abc");
        assert_eq!(body(b"HTTP/1.0 200 OK\r\n\r\nabc").unwrap(), b"abc");
        for bad in [
            &b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"[..],
            b"HTTP/1.1 404 Not Found\r\n\r\nabc",
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"garbage",
            b"",
        ] {
            assert_eq!(body(bad), None);
        }
    }

    #[test]
    fn a_responder_is_asked_and_answers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/ocsp", listener.local_addr().unwrap());
        let responder = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"question") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                request.push(byte[0]);
            }
            stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 6\r\n\r\nanswer").unwrap();
            String::from_utf8(request).unwrap()
        });
        assert_eq!(ask(&url, b"question").unwrap(), b"answer");
        let request = responder.join().unwrap();
        assert!(request.starts_with("POST /ocsp HTTP/1.0\r\n") && request.contains("application/ocsp-request"));
        assert!(
            ask("http://127.0.0.1:1/", b"question").unwrap_err().starts_with("OCSP responder 'http://127.0.0.1:1/'")
        );
    }
}
