//! What holds for any bytes: splits do not matter, what is written is read back, and another parser agrees.

use penstock_http::{BodyReader, Error, Fields, Framing, Limits, Parse, Progress, RequestHead, ResponseHead, Step};
use penstock_http::{chunk_head, write_last_chunk};
use proptest::prelude::*;

/// Bytes that look like a message often enough to get past the first line.
fn near_request() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        Just(&b"GET / HTTP/1.1\r\n"[..]),
        Just(&b"POST http://a/b?c HTTP/1.0\r\n"[..]),
        Just(&b"Host: a\r\n"[..]),
        Just(&b"Content-Length: 5\r\n"[..]),
        Just(&b"Transfer-Encoding: chunked\r\n"[..]),
        Just(&b"X: y\r\n"[..]),
        Just(&b"\r\n"[..]),
        Just(&b"\n"[..]),
        Just(&b"\r"[..]),
        Just(&b" "[..]),
        Just(&b":"[..]),
        Just(&b"\0"[..]),
        Just(&b"a"[..]),
    ];
    (proptest::bool::weighted(0.9), prop::collection::vec(word, 0..12)).prop_map(|(start, words)| {
        let start = if start { &b"GET / HTTP/1.1\r\nHost: a\r\n"[..] } else { b"" };
        [start, &words.concat()].concat()
    })
}

fn written(head: &RequestHead) -> Vec<u8> {
    let mut out = Vec::new();
    head.write_to(&mut out);
    out
}

/// Payload, what would be forwarded, and what is left.
fn read_body(body: &mut BodyReader, input: &[u8], step_len: usize) -> Result<(Vec<u8>, Vec<u8>, usize), Error> {
    let (mut payload, mut forwarded, mut at, mut seen) = (Vec::new(), Vec::new(), 0, 0);
    loop {
        match body.step(&input[at..seen])? {
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
            Step::NeedMore if seen == input.len() => return Err(Error::Truncated),
            Step::NeedMore => seen = input.len().min(seen + step_len),
            Step::End => break,
        }
    }
    write_last_chunk(body.trailers(), &mut forwarded);
    Ok((payload, forwarded, at))
}

proptest! {
    #[test]
    fn a_request_in_pieces_reads_as_it_does_whole(input in near_request(), piece in 1usize..20) {
        let limits = Limits::default();
        let mut whole = RequestHead::new();
        let expected = whole.parse(&input, &limits);
        let (mut head, mut progress) = (RequestHead::new(), Progress::default());
        let mut seen = 0;
        let got = loop {
            match head.read(&mut progress, &input[..seen], &limits) {
                Ok(Parse::Partial) if seen < input.len() => seen = input.len().min(seen + piece),
                other => break other,
            }
        };
        // Which of several faults is seen first may depend on the split; that there is one may not.
        prop_assert_eq!(got.map_err(Error::status), expected.map_err(Error::status));
        if matches!(expected, Ok(Parse::Complete { .. })) {
            prop_assert_eq!(written(&head), written(&whole));
        }
    }

    #[test]
    fn what_is_written_is_read_back_the_same(input in near_request()) {
        let limits = Limits::default();
        let mut head = RequestHead::new();
        if let Ok(Parse::Complete { consumed }) = head.parse(&input, &limits) {
            prop_assert!(consumed <= input.len());
            let out = written(&head);
            let mut again = RequestHead::new();
            prop_assert_eq!(again.parse(&out, &limits), Ok(Parse::Complete { consumed: out.len() }));
            prop_assert_eq!(written(&again), out);
        }
    }

    #[test]
    fn httparse_reads_what_we_read(input in near_request()) {
        let mut head = RequestHead::new();
        if let Ok(Parse::Complete { consumed }) = head.parse(&input, &Limits::default()) {
            let mut space = [httparse::EMPTY_HEADER; 128];
            let mut theirs = httparse::Request::new(&mut space);
            prop_assert_eq!(theirs.parse(&input), Ok(httparse::Status::Complete(consumed)));
            prop_assert_eq!(theirs.method.unwrap().as_bytes(), head.method());
            prop_assert_eq!(theirs.path.unwrap().as_bytes(), head.target());
            prop_assert_eq!(theirs.headers.len(), head.fields.len());
            for (theirs, ours) in theirs.headers.iter().zip(head.fields.iter()) {
                prop_assert!(theirs.name.as_bytes().eq_ignore_ascii_case(ours.name));
                prop_assert_eq!(theirs.value.trim_ascii(), ours.value);
            }
        }
    }

    #[test]
    fn any_bytes_make_no_response_parser_panic(input in prop::collection::vec(any::<u8>(), 0..200)) {
        let input = [b"HTTP/1.1 200 ", &input[..]].concat();
        let mut head = ResponseHead::new();
        let _ = head.parse(&input, &Limits::default());
    }

    #[test]
    fn chunks_arrive_whole_whatever_the_split(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..6),
        piece in 1usize..50,
    ) {
        let mut input = Vec::new();
        for chunk in &chunks {
            chunk_head(chunk.len(), &mut input);
            input.extend_from_slice(chunk);
            input.extend_from_slice(b"\r\n");
        }
        let mut trailers = Fields::new();
        trailers.append(b"x-sum", b"1").unwrap();
        write_last_chunk(&trailers, &mut input);
        let len = input.len();
        input.extend_from_slice(b"next");
        let mut body = BodyReader::new(Framing::Chunked, Limits::default());
        let (payload, forwarded, end) = read_body(&mut body, &input, piece).unwrap();
        prop_assert_eq!(payload, chunks.concat());
        prop_assert_eq!(&forwarded[..], &input[..len]);
        prop_assert_eq!(end, len);
    }

    #[test]
    fn chunk_noise_is_read_alike_in_pieces(
        noise in prop::collection::vec(
            prop_oneof![Just(b'0'), Just(b'3'), Just(b'a'), Just(b';'), Just(b'\r'), Just(b'\n'), Just(b' ')], 0..30),
        piece in 1usize..5,
    ) {
        let read = |piece| {
            let mut body = BodyReader::new(Framing::Chunked, Limits::default());
            read_body(&mut body, &noise, piece)
        };
        let (whole, split) = (read(usize::MAX / 2), read(piece));
        prop_assert_eq!(whole.is_ok(), split.is_ok());
        if let (Ok(whole), Ok(split)) = (whole, split) {
            prop_assert_eq!(whole, split);
        }
    }
}

#[test]
fn a_body_cut_short_is_never_a_clean_end() {
    for (framing, input) in [
        (Framing::Length(5), &b"hell"[..]),
        (Framing::Length(5), b""),
        (Framing::Chunked, b""),
        (Framing::Chunked, b"5\r\nhello\r\n"),
        (Framing::Chunked, b"5\r\nhello\r\n0\r\n"),
        (Framing::Chunked, b"5\r\nhello\r\n0\r\nX: 1\r\n"),
    ] {
        let mut body = BodyReader::new(framing, Limits::default());
        assert_eq!(read_body(&mut body, input, 100), Err(Error::Truncated));
        assert_eq!(body.finish(), Err(Error::Truncated));
    }
    let mut body = BodyReader::new(Framing::UntilClose, Limits::default());
    assert_eq!(body.step(b"hello"), Ok(Step::Data(5)));
    assert_eq!(body.finish(), Ok(()));
    assert_eq!(body.step(b""), Ok(Step::End));
}

#[test]
fn a_trailer_section_without_end_is_refused_at_the_limit() {
    let mut body = BodyReader::new(Framing::Chunked, Limits { head_bytes: 1000, ..Limits::default() });
    assert_eq!(body.step(b"0\r\n"), Ok(Step::Skip(3)));
    assert_eq!(body.step(&[b'x'; 1001]), Err(Error::TooLarge));
}
