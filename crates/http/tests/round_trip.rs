//! Messages read whole, read in pieces, and written again.

use penstock_http::{BodyReader, Framing, Known, Limits, Parse, Progress, RequestHead, ResponseHead, Step, Version};

const REQUEST: &[u8] =
    b"GET /a/b?c=d HTTP/1.1\r\nHost: example.com\r\nX-CaSe:  v \r\nAccept:*/*\r\nCookie: a=b\r\nCookie: c=d\r\n\r\n";

#[test]
fn request_is_written_in_canonical_form() {
    let mut head = RequestHead::new();
    assert_eq!(head.parse(REQUEST, &Limits::default()), Ok(Parse::Complete { consumed: REQUEST.len() }));
    assert_eq!((head.method(), head.path(), head.query()), (&b"GET"[..], &b"/a/b"[..], Some(&b"c=d"[..])));
    assert_eq!(head.fields.known(Known::Host), Some(&b"example.com"[..]));
    assert_eq!(head.fields.get_all(b"Cookie").count(), 2);
    let mut out = Vec::new();
    head.write_to(&mut out);
    assert_eq!(
        out,
        b"GET /a/b?c=d HTTP/1.1\r\nhost: example.com\r\nx-case: v\r\naccept: */*\r\ncookie: a=b\r\ncookie: c=d\r\n\r\n"
    );
}

#[test]
fn request_split_anywhere_reads_the_same() {
    for split in 0..REQUEST.len() {
        let (mut head, mut progress) = (RequestHead::new(), Progress::default());
        assert_eq!(head.read(&mut progress, &REQUEST[..split], &Limits::default()), Ok(Parse::Partial), "at {split}");
        let whole = head.read(&mut progress, REQUEST, &Limits::default());
        assert_eq!(whole, Ok(Parse::Complete { consumed: REQUEST.len() }));
        assert_eq!(head.fields.len(), 5);
    }
}

#[test]
fn fields_change_without_moving_the_others() {
    let mut head = RequestHead::new();
    head.parse(REQUEST, &Limits::default()).unwrap();
    head.fields.set(b"X-Case", b"w").unwrap();
    assert_eq!(head.fields.remove(b"COOKIE"), 2);
    assert!(!head.fields.has(Known::Cookie));
    head.fields.set_value_at(0, b"b.example").unwrap();
    assert!(head.fields.append(b"x", b"a\r\nb: c").is_err());
    head.set_path(b"/x").unwrap();
    let mut out = Vec::new();
    head.write_to(&mut out);
    assert_eq!(out, b"GET /x?c=d HTTP/1.1\r\nhost: b.example\r\naccept: */*\r\nx-case: w\r\n\r\n");
}

#[test]
fn http2_request_is_absolute_to_the_rules_and_origin_form_on_the_wire() {
    let mut head = RequestHead::new();
    head.start_http2(b"GET", b"https", Some(b"example.com"), b"/a?b").unwrap();
    assert_eq!((head.target(), head.path()), (&b"https://example.com/a?b"[..], &b"/a"[..]));
    assert_eq!(head.version(), Version::Http2);
    head.set_path(b"/c").unwrap();
    let mut out = Vec::new();
    head.write_to(&mut out);
    assert_eq!(out, b"GET /c?b HTTP/1.1\r\nhost: example.com\r\n\r\n");
}

#[test]
fn an_http2_request_loses_a_port_that_says_nothing_as_one_of_http1_does() {
    let written = |scheme: &[u8], authority: &[u8]| {
        let mut head = RequestHead::new();
        head.start_http2(b"GET", scheme, Some(authority), b"/a").unwrap();
        let mut out = head.target().to_vec();
        out.push(b' ');
        head.write_to(&mut out);
        String::from_utf8(out).unwrap()
    };
    assert_eq!(written(b"https", b"a:443"), "https://a/a GET /a HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(written(b"http", b"a:"), "http://a/a GET /a HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(written(b"https", b"a:80"), "https://a:80/a GET /a HTTP/1.1\r\nhost: a:80\r\n\r\n");
}

#[test]
fn a_path_that_is_set_to_nothing_becomes_a_slash() {
    let line = |target: &[u8], change: fn(&mut RequestHead)| {
        let mut head = RequestHead::from_parts(b"GET", target, Version::Http11).unwrap();
        change(&mut head);
        String::from_utf8(head.target().to_vec()).unwrap()
    };
    assert_eq!(line(b"/a", |head| head.set_path(b"").unwrap()), "/");
    assert_eq!(line(b"/a?q", |head| head.set_path(b"").unwrap()), "/?q");
    assert_eq!(line(b"http://h/a?q", |head| head.set_path(b"").unwrap()), "http://h/?q");
    assert_eq!(line(b"/a?q", |head| head.set_path_and_query(b"").unwrap()), "/");
    assert_eq!(line(b"/a?q", |head| head.set_path_and_query(b"?x").unwrap()), "/?x");
    assert_eq!(line(b"/a?q", |head| head.set_target(b"").unwrap()), "/");
}

#[test]
fn response_is_read_and_written() {
    let mut head = ResponseHead::new();
    let input = b"HTTP/1.1 404 Not Found\r\nServer: x\r\n\r\nrest";
    assert_eq!(head.parse(input, &Limits::default()), Ok(Parse::Complete { consumed: input.len() - 4 }));
    assert_eq!((head.status(), head.reason()), (404, &b"Not Found"[..]));
    let mut out = Vec::new();
    head.write_to(&mut out);
    assert_eq!(out, b"HTTP/1.1 404 Not Found\r\nserver: x\r\n\r\n");
}

#[test]
fn chunked_body_goes_on_without_its_extensions() {
    let input = b"5;a=b\r\nhello\r\n6\r\n world\r\n0\r\nX-T: 1\r\nContent-Length: 3\r\n\r\nGET";
    let mut body = BodyReader::new(Framing::Chunked, Limits::default());
    let (mut at, mut payload, mut forwarded) = (0, Vec::new(), Vec::new());
    loop {
        match body.step(&input[at..]).unwrap() {
            Step::Data(len) => {
                payload.extend_from_slice(&input[at..at + len]);
                forwarded.extend_from_slice(&input[at..at + len]);
                at += len;
            }
            Step::Framing(len) => {
                forwarded.extend_from_slice(&input[at..at + len]);
                at += len;
            }
            Step::Skip(len) => at += len,
            Step::NeedMore => panic!("the body is whole"),
            Step::End => break,
        }
    }
    penstock_http::write_last_chunk(body.trailers(), &mut forwarded);
    assert_eq!(payload, b"hello world");
    assert_eq!(forwarded, b"5\r\nhello\r\n6\r\n world\r\n0\r\nx-t: 1\r\n\r\n");
    assert_eq!(&input[at..], b"GET");
}

#[test]
fn a_method_that_is_none_is_refused_whether_or_not_its_end_has_come() {
    // A long one is a method all the same, and its end is waited for.
    for (after, whole) in [("", Ok(())), ("(", Err(penstock_http::Error::Method))] {
        let start = "G".repeat(1000) + after;
        let line = start.clone() + " / HTTP/1.0\r\n\r\n";
        let parse = |text: &str| RequestHead::new().parse(text.as_bytes(), &Limits::default());
        assert_eq!(parse(&line).map(drop), whole);
        assert_eq!(parse(&start).map(drop), whole);
    }
}

#[test]
fn a_port_that_says_nothing_is_dropped_beside_an_authority() {
    for (line, host, target, left) in [
        ("GET http://a:80/x", "a", "http://a/x", "a"),
        ("GET http://a/x", "a:80", "http://a/x", "a:80"),
        ("GET https://a:443/?x", "a:443", "https://a/?x", "a"),
        ("GET http://a:443/x", "a:443", "http://a:443/x", "a:443"),
        ("CONNECT a:443", "a:443", "a:443", "a"),
        ("GET /x", "a:80", "/x", "a:80"),
    ] {
        let raw = format!("{line} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let mut head = RequestHead::new();
        assert_eq!(
            head.parse(raw.as_bytes(), &Limits::default()),
            Ok(Parse::Complete { consumed: raw.len() }),
            "{line}"
        );
        assert_eq!((head.target(), head.host()), (target.as_bytes(), Some(left.as_bytes())), "{line}");
    }
}

#[test]
fn a_head_is_not_finished_by_another_connections_bytes() {
    let begun = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX-First: a\r\nX-Sec";
    let other = b"HTTP/1.1 404 Not Found\r\nX-Only: b\r\n\r\n";
    let mut head = ResponseHead::new();
    assert_eq!(head.read(&mut Progress::default(), begun, &Limits::default()), Ok(Parse::Partial));
    let whole = head.read(&mut Progress::default(), other, &Limits::default());
    assert_eq!((whole, head.status()), (Ok(Parse::Complete { consumed: other.len() }), 404));
    assert_eq!(head.fields.iter().map(|field| field.name).collect::<Vec<_>>(), [b"x-only"]);
}
