//! Converts heads between h2's types and ours, as HAProxy maps them.

use super::websocket;
use base64::Engine;
use bytes::Bytes;
use h2::ext::Protocol;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, uri};
use penstock_http::{Error, Fields, Known, Limits, RequestHead, ResponseHead, Version, trailers};
use std::{
    hash::{BuildHasher, RandomState},
    io::Write,
};

/// Fills `head` from a request that h2 has validated. Its `path` is given separately if it is one that h2 cannot
/// represent.
///
/// # Errors
///
/// If it has more fields than the limit, or `Host` and `:authority` differ.
pub(super) fn read_request<B>(
    request: &Request<B>,
    path: Option<&[u8]>,
    head: &mut RequestHead,
    limits: &Limits,
) -> Result<(), Error> {
    let uri = request.uri();
    let authority = uri.authority().map(|authority| authority.as_str().as_bytes());
    let scheme = uri.scheme_str().unwrap_or("https").as_bytes();
    let path = path.unwrap_or_else(|| uri.path_and_query().map_or("/", |path| path.as_str()).as_bytes());
    let websocket = request.extensions().get::<Protocol>().is_some();
    let method = if websocket { b"GET" } else { request.method().as_str().as_bytes() };
    head.start_http2(method, scheme, authority, path)?;
    read_fields(request.headers(), &mut head.fields, limits, authority, scheme)?;
    if let Some(protocol) = request.extensions().get::<Protocol>() {
        if !penstock_http::may_upgrade_to(protocol.as_str().as_bytes()) {
            return Err(Error::Upgrade);
        }
        // RFC 8441: for HTTP/1 servers this becomes an upgrade (RFC 6455), with a key of our choice.
        head.fields.set(b"connection", b"upgrade")?;
        head.fields.set(b"upgrade", protocol.as_str().as_bytes())?;
        // Another protocol has no use for the key, and its server does not answer it.
        if websocket::is_asked_for(head) && !head.fields.has(Known::SecWebsocketKey) {
            head.fields.append(b"sec-websocket-key", websocket_key().as_bytes())?;
        }
        penstock_http::websocket::check_request(&head.fields)?;
    }
    Ok(())
}

/// Sixteen arbitrary bytes in base64 (RFC 6455 section 4.1). They need not be secret: they only serve to show that the
/// server knows the protocol.
fn websocket_key() -> String {
    let random = || RandomState::new().hash_one(()).to_ne_bytes();
    base64::engine::general_purpose::STANDARD.encode([random(), random()].concat())
}

/// Appends fields, with those of `Cookie` joined into one (RFC 9113 section 8.2.3).
fn read_fields(
    map: &HeaderMap,
    fields: &mut Fields,
    limits: &Limits,
    authority: Option<&[u8]>,
    scheme: &[u8],
) -> Result<(), Error> {
    // `Host` may be added, made of the authority.
    limits.admit_field(map.len() + 1)?;
    // A client can express in five bytes what takes 4 KiB here, so all of it is copied once, into an allocation of the
    // exact size.
    fields.reserve(map.len() + 1, map.iter().map(|(name, value)| name.as_str().len() + value.len()).sum());
    let mut hosts = 0;
    for (name, value) in map {
        if *name == http::header::COOKIE {
            continue;
        }
        if *name == http::header::HOST {
            hosts += 1;
            match authority {
                Some(authority) if is_same_place(authority, value.as_bytes(), scheme) => continue,
                Some(_) => return Err(Error::HostMismatch),
                None if hosts > 1 => return Err(Error::ManyHosts),
                None => {
                    penstock_http::split_authority(value.as_bytes()).ok_or(Error::Authority)?;
                }
            }
        }
        fields.append(name.as_str().as_bytes(), value.as_bytes().trim_ascii())?;
    }
    let mut crumbs = map.get_all(http::header::COOKIE).iter();
    if let Some(first) = crumbs.next() {
        match crumbs.next() {
            None => fields.append(b"cookie", first.as_bytes())?,
            Some(second) => {
                let mut cookie = [first.as_bytes(), b"; ", second.as_bytes()].concat();
                for crumb in crumbs {
                    cookie.extend_from_slice(b"; ");
                    cookie.extend_from_slice(crumb.as_bytes());
                }
                fields.append(b"cookie", &cookie)?;
            }
        }
    }
    Ok(())
}

/// Whether both name the same host and port; either may omit the port that the scheme implies.
fn is_same_place(authority: &[u8], host: &[u8], scheme: &[u8]) -> bool {
    let default_port = match scheme {
        b"http" => Some(80),
        b"https" => Some(443),
        _ => None,
    };
    let both = penstock_http::split_authority(authority).zip(penstock_http::split_authority(host));
    both.is_some_and(|(authority, host)| authority.same_as(&host, default_port))
}

/// Converts h2's trailers, leaving out fields that may not be trailers.
///
/// # Errors
///
/// If they have more fields than the limit.
pub(super) fn read_trailers(map: &HeaderMap, limits: &Limits) -> Result<Fields, Error> {
    limits.admit_field(map.len())?;
    let mut fields = Fields::new();
    for (name, value) in map {
        // A value that is not valid in our representation is dropped.
        let _ = fields.append(name.as_str().as_bytes(), value.as_bytes());
    }
    trailers::keep_honest(&mut fields);
    Ok(fields)
}

/// Fills `head` from a response that h2 has validated.
pub(super) fn read_response<B>(response: &Response<B>, head: &mut ResponseHead, limits: &Limits) -> Result<(), Error> {
    head.start(response.status().as_u16(), Version::Http2);
    limits.admit_field(response.headers().len())?;
    for (name, value) in response.headers() {
        head.fields.append(name.as_str().as_bytes(), value.as_bytes())?;
    }
    Ok(())
}

/// Converts a response for h2; status 101 becomes the 200 of RFC 8441.
pub(super) fn write_response(head: &ResponseHead) -> Result<Response<()>, Error> {
    let status = if head.status() == 101 { 200 } else { head.status() };
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(status).map_err(|_| Error::Status)?;
    *response.headers_mut() =
        write_fields(&head.fields, |known| known == Known::SecWebsocketAccept && head.status() == 101)?;
    Ok(response)
}

/// Converts a request for h2, with the scheme of its target (RFC 9113 section 8.3.1) or else `scheme`, that of the connection; a
/// WebSocket handshake becomes the extended CONNECT of RFC 8441.
pub(super) fn write_request(head: &RequestHead, scheme: &str) -> Result<Request<()>, Error> {
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(head.method()).map_err(|_| Error::Method)?;
    if websocket::is_asked_for(head) {
        *request.method_mut() = Method::CONNECT;
        request.extensions_mut().insert(Protocol::from_static("websocket"));
    }
    *request.version_mut() = http::Version::HTTP_2;
    let authority = head.host().filter(|host| !host.is_empty());
    let authority = authority.map(uri::Authority::try_from).transpose().map_err(|_| Error::Authority)?;
    let mut parts = uri::Parts::default();
    if head.method() == b"CONNECT" {
        // Its target includes the port, which `Host` may omit.
        parts.authority = Some(uri::Authority::try_from(head.target()).map_err(|_| Error::Authority)?);
    } else {
        match authority {
            Some(_) => {
                let scheme = head.scheme().unwrap_or(scheme.as_bytes());
                parts.scheme = Some(uri::Scheme::try_from(scheme).map_err(|_| Error::Target)?);
            }
            // An HTTP/1.0 request without a host. h2 accepts it only in this form, and sends `:scheme http`.
            None => *request.version_mut() = http::Version::HTTP_11,
        }
        parts.authority = authority;
        let path = head.path_and_query();
        let path = if path.is_empty() { b"/" } else { path };
        let as_it_is = uri::PathAndQuery::try_from(path);
        let encoded = as_it_is.or_else(|_| uri::PathAndQuery::from_maybe_shared(encode(path)));
        parts.path_and_query = Some(encoded.map_err(|_| Error::Target)?);
    }
    *request.uri_mut() = Uri::from_parts(parts).map_err(|_| Error::Target)?;
    *request.headers_mut() = write_fields(&head.fields, |known| known == Known::Host)?;
    Ok(request)
}

/// A path in which every byte that RFC 3986 allows in none is percent-encoded, as its section 2.1 says: h2 sends no other.
fn encode(path: &[u8]) -> Bytes {
    let mut encoded = Vec::with_capacity(path.len() + 16);
    for &byte in path {
        match byte {
            ..=b' ' | 0x7f.. | b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' => {
                // Writing to a vector does not fail.
                let _ = write!(encoded, "%{byte:02X}");
            }
            _ => encoded.push(byte),
        }
    }
    encoded.into()
}

/// Converts fields for h2, without those that belong to an HTTP/1 connection (RFC 9113 section 8.2.2).
///
/// All values share one copy of the lines, so that they cost a response one allocation, however many there are.
pub(super) fn write_fields(fields: &Fields, unwanted: impl Fn(Known) -> bool) -> Result<HeaderMap, Error> {
    let mut lines = Vec::with_capacity(fields.wire_len());
    fields.write_to(&mut lines);
    let lines = Bytes::from(lines);
    let mut map = HeaderMap::with_capacity(fields.len());
    let mut at = 0;
    for field in fields.iter() {
        let value_at = at + field.name.len() + 2;
        let value_end = value_at + field.value.len();
        at = value_end + 2;
        // Rules may leave white space at the ends, which HTTP/2 forbids (RFC 9113 section 8.2.1).
        let value = lines[value_at..value_end].trim_ascii();
        let te = field.known == Known::Te && !value.eq_ignore_ascii_case(b"trailers");
        if is_of_connection(field.known) || te || unwanted(field.known) {
            continue;
        }
        let name = HeaderName::from_lowercase(field.name).map_err(|_| Error::FieldName)?;
        let value = HeaderValue::from_maybe_shared(lines.slice_ref(value)).map_err(|_| Error::FieldValue)?;
        map.append(name, value);
    }
    Ok(map)
}

fn is_of_connection(known: Known) -> bool {
    matches!(
        known,
        Known::Connection
            | Known::KeepAlive
            | Known::ProxyConnection
            | Known::TransferEncoding
            | Known::Upgrade
            | Known::Http2Settings
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(uri: &str, fields: &[(&'static str, &'static str)]) -> Request<()> {
        let mut request = Request::builder().method("GET").uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    fn read(request: &Request<()>) -> Result<String, Error> {
        let mut head = RequestHead::new();
        read_request(request, None, &mut head, &Limits::default())?;
        let mut out = Vec::new();
        head.write_to(&mut out);
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn bytes_that_no_path_may_have_are_encoded() {
        for (path, sent) in [(&b"/\xe9?\"\xff"[..], "/%E9?%22%FF"), (b"/caf%C3%A9", "/caf%C3%A9"), (b"/a<b", "/a%3Cb")]
        {
            let mut head = RequestHead::new();
            head.start_http2(b"GET", b"https", Some(b"h"), path).unwrap();
            let request = write_request(&head, "https").unwrap();
            assert_eq!(request.uri().path_and_query().unwrap().as_str(), sent);
        }
    }

    #[test]
    fn a_request_reads_like_one_of_http_1() {
        let request = request("https://a.example/x?y", &[("cookie", "a=b"), ("accept", "*/*"), ("cookie", "c=d")]);
        let text = "GET /x?y HTTP/1.1\r\nhost: a.example\r\naccept: */*\r\ncookie: a=b; c=d\r\n\r\n";
        assert_eq!(read(&request).as_deref(), Ok(text));
    }

    #[test]
    fn host_may_repeat_the_authority_and_nothing_else() {
        let same = request("https://a.example/", &[("host", "A.example")]);
        assert_eq!(read(&same).as_deref(), Ok("GET / HTTP/1.1\r\nhost: a.example\r\n\r\n"));
        let port = request("https://a.example/", &[("host", "a.example:443")]);
        assert_eq!(read(&port).as_deref(), Ok("GET / HTTP/1.1\r\nhost: a.example\r\n\r\n"));
        assert_eq!(read(&request("https://a.example/", &[("host", "a.example:80")])), Err(Error::HostMismatch));
        assert_eq!(read(&request("/", &[])).as_deref(), Ok("GET / HTTP/1.1\r\nhost: \r\n\r\n"));
        assert_eq!(read(&request("https://a.example/", &[("host", "b")])), Err(Error::HostMismatch));
        assert_eq!(read(&request("/", &[("host", "b")])).as_deref(), Ok("GET / HTTP/1.1\r\nhost: b\r\n\r\n"));
        assert_eq!(read(&request("/", &[("host", "b"), ("host", "b")])), Err(Error::ManyHosts));
    }

    #[test]
    fn an_extended_connect_is_an_upgrade() {
        let mut request = request("https://a.example/chat", &[("sec-websocket-version", "13")]);
        *request.method_mut() = Method::CONNECT;
        request.extensions_mut().insert(Protocol::from_static("websocket"));
        let text = read(&request).unwrap();
        assert!(text.starts_with("GET /chat HTTP/1.1\r\nhost: a.example\r\nsec-websocket-version: 13\r\n"), "{text}");
        assert!(text.contains("\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: "), "{text}");
        let mut head = ResponseHead::from_status(101);
        head.fields.append(b"sec-websocket-accept", b"x").unwrap();
        head.fields.append(b"sec-websocket-protocol", b"y").unwrap();
        let response = write_response(&head).unwrap();
        assert_eq!((response.status().as_u16(), response.headers().len()), (200, 1));
    }

    #[test]
    fn an_extended_connect_to_a_protocol_that_carries_http_is_refused() {
        for protocol in ["h2c", "HTTP/2.0", "tls/1.0"] {
            let mut request = request("https://a.example/", &[]);
            *request.method_mut() = Method::CONNECT;
            request.extensions_mut().insert(Protocol::from_static(protocol));
            assert_eq!(read(&request), Err(Error::Upgrade), "{protocol}");
        }
    }

    #[test]
    fn what_belongs_to_an_http_1_connection_stays_there() {
        let mut head = ResponseHead::from_status(200);
        for (name, value) in [
            ("connection", "close"),
            ("keep-alive", "5"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "x"),
            ("set-cookie", "a"),
            ("te", "gzip"),
            ("set-cookie", "b"),
        ] {
            head.fields.append(name.as_bytes(), value.as_bytes()).unwrap();
        }
        let response = write_response(&head).unwrap();
        let left: Vec<_> = response.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        assert_eq!(left, [("set-cookie", &b"a"[..]), ("set-cookie", b"b")]);
    }
}
