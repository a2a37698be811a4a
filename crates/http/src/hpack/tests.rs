use super::*;

/// A literal, which is to be remembered or not.
fn literal(indexing: bool, name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut out = vec![if indexing { 0x40 } else { 0 }];
    for text in [name, value] {
        write_length(text.len(), &mut out);
        out.extend_from_slice(text);
    }
    out
}

/// `:method GET`, `:scheme http`.
const BEGIN: &[u8] = b"\x82\x86";

fn read(mirror: &mut Mirror, fields: &[Vec<u8>]) -> (Block, Vec<u8>) {
    let (mut other, block) = (Vec::new(), [BEGIN, &fields.concat()].concat());
    let said = mirror.read(&block, false, &mut other).unwrap();
    (said, other)
}

#[test]
fn what_is_well_formed_stays_as_it_is() {
    let mut mirror = Mirror::default();
    let (said, other) = read(&mut mirror, &[b"\x84\x41\x01h".to_vec(), literal(true, b"x-a", b"b\xff\tc")]);
    assert_eq!(said, Block { fields: 5, literals: 2, size: 10 + 11 + 6 + 11 + 7, ..Block::default() });
    assert!(other.is_empty());
    let (said, other) = read(&mut mirror, &[b"\x84\xbe\xbf\x7e\x01d".to_vec()]);
    assert!(said.malformed && other.ends_with(POISON), "a pseudo-header field behind another");
    let (said, _) = read(&mut mirror, &[b"\x84\xc0\xbe\x7e\x01d".to_vec()]);
    assert_eq!((said.malformed, said.fields), (false, 6));
}

#[test]
fn what_is_malformed_is_an_error_of_its_stream_and_keeps_its_place_in_the_table() {
    let cases: [(&[u8], &[u8]); 12] = [
        (b"Foo", b"x"),
        (b"a b", b"x"),
        (b"x:y", b"x"),
        (b"x\xff", b"x"),
        (b":foo", b"x"),
        (b":status", b"200"),
        (b"x", b"a\rb"),
        (b"x", b"a\nb"),
        (b"x", b"a\0b"),
        (b"te", b"gz\0ip"),
        (b":authority", b"a b"),
        (b":path", b"/a#b"),
    ];
    for (name, value) in cases {
        for indexing in [false, true] {
            let mut mirror = Mirror::default();
            let bad = literal(indexing, name, value);
            let (said, other) = read(&mut mirror, &[literal(true, b"kept", b"1"), bad.clone()]);
            assert!(said.malformed, "{name:?}");
            let tail = literal(indexing, &b"x".repeat(name.len()), &b"x".repeat(value.len()));
            assert_eq!(other, [BEGIN, &literal(true, b"kept", b"1"), &tail, POISON].concat());
            assert_eq!(mirror.table.len(), 1 + usize::from(indexing));
            // A block that refers to the entry is malformed as well; others are not affected.
            let (said, other) = read(&mut mirror, &[vec![0x84, if indexing { 0xbf } else { 0xbe }]]);
            assert_eq!((said.malformed, other.is_empty()), (false, true));
            let (said, _) = read(&mut mirror, &[b"\x84\xbe".to_vec()]);
            assert_eq!(said.malformed, indexing);
        }
    }
}

#[test]
fn what_the_decoder_would_take_as_well_only_makes_the_stream_end() {
    for (name, value) in [
        ("connection", "close"),
        ("te", "gzip"),
        ("content-length", "+1"),
        ("upgrade", "x"),
        (":method", "GET"),
        (":path", "a"),
    ] {
        let field = literal(true, name.as_bytes(), value.as_bytes());
        let (said, other) = read(&mut Mirror::default(), std::slice::from_ref(&field));
        assert!(said.malformed, "{name}");
        assert_eq!(other, [BEGIN, &field, POISON].concat());
    }
    assert!(read(&mut Mirror::default(), &[]).0.malformed, "no path");
    let trailers = Mirror::default().read(b"", true, &mut Vec::new()).unwrap();
    assert!(!trailers.malformed);
}

#[test]
fn a_list_of_equal_lengths_is_given_to_the_decoder_as_one() {
    let mut mirror = Mirror::default();
    for (list, number) in [("000, 00", "0000000"), ("3,03", "0003"), ("12 , 12", "0000012")] {
        let (said, other) = read(&mut mirror, &[b"\x84".to_vec(), literal(true, b"content-length", list.as_bytes())]);
        assert!(!said.malformed, "{list}");
        assert_eq!(other, [BEGIN, b"\x84", &literal(true, b"content-length", number.as_bytes())].concat());
        let (said, other) = read(&mut mirror, &[b"\x84\xbe".to_vec()]);
        assert_eq!((said.malformed, other.is_empty()), (false, true), "the decoder has the number in its table");
    }
    for list in ["3,", ",3", "3, 4", "3,+3", "3, 3, 3, 3, 3, 3, 3, 3"] {
        let (said, _) = read(&mut mirror, &[b"\x84".to_vec(), literal(false, b"content-length", list.as_bytes())]);
        assert!(said.malformed, "{list}");
    }
}

#[test]
fn a_path_that_the_decoder_has_no_place_for_is_handed_over_beside_it() {
    let mut mirror = Mirror::default();
    for path in ["/a<b>", "/\"", "/caf\u{e9}", "/?`"] {
        let (said, other) = read(&mut mirror, &[literal(true, b":path", path.as_bytes())]);
        assert_eq!((said.malformed, said.path.as_deref()), (false, Some(path.as_bytes())));
        let harmless = format!("/{}", "x".repeat(path.len() - 1));
        assert_eq!(other, [BEGIN, &literal(true, b":path", harmless.as_bytes())].concat());
        let (said, other) = read(&mut mirror, &[b"\xbe".to_vec()]);
        assert_eq!((said.path.as_deref(), other.is_empty()), (Some(path.as_bytes()), true));
    }
}

#[test]
fn the_table_is_as_large_as_the_peer_says() {
    let mut mirror = Mirror::default();
    for n in 0..200u8 {
        read(&mut mirror, &[literal(true, b"name", &[b'a' + n % 26])]);
    }
    assert_eq!((mirror.table.len(), mirror.size), (4096 / 37, 4096 / 37 * 37));
    mirror.read(b"\x3f\x2b\x82", true, &mut Vec::new()).unwrap();
    assert_eq!((mirror.table.len(), mirror.size_max), (2, 74));
    read(&mut mirror, &[literal(true, b"longer-than-all", &[b'x'; 80])]);
    assert_eq!((mirror.table.len(), mirror.size), (0, 0));
}

#[test]
fn the_table_grows_as_far_as_the_decoder_allows() {
    let grow = |limit, block: &[u8]| Mirror::with_limit(limit).read(block, false, &mut Vec::new()).map(drop);
    assert_eq!(grow(4096, b"\x20\x3f\xe1\x1f\x82"), Ok(()));
    assert_eq!(grow(4097, b"\x3f\xe2\x1f\x82"), Ok(()));
    assert_eq!(grow(4096, b"\x3f\xe2\x1f\x82"), Err(Undecodable));
}

#[test]
fn what_nobody_can_decode_is_told_apart() {
    for block in [
        &b"\x80"[..],
        b"\xbe",
        b"\x40\x05ab",
        b"\xff\xff\xff\xff\xff\x0f",
        b"\x40\x00\x00",
        b"\x04\x81\x00",
        b"\x04",
        // A larger table than is allowed, and a change of its size that comes too late.
        b"\x3f\xe2\x1f\x82",
        b"\x82\x20",
    ] {
        assert_eq!(Mirror::default().read(block, false, &mut Vec::new()), Err(Undecodable), "{block:?}");
    }
}
