//! The PROXY protocol against the examples of its specification, and what must be refused.

use std::net::SocketAddr;

use penstock_http::proxy_protocol::{Error, Header, Parse, Ssl, Tlvs, V2_SIGNATURE, parse, write_v1, write_v2};

fn whole(input: &[u8]) -> Header {
    for split in 0..input.len() {
        assert_eq!(parse(&input[..split]), Ok(Parse::Partial), "after {split} bytes");
    }
    let more = [input, b"GET /"].concat();
    match parse(&more) {
        Ok(Parse::Complete(header, len)) if len == input.len() => *header,
        other => panic!("{other:?}"),
    }
}

fn pair(from: &str, to: &str) -> Option<(SocketAddr, SocketAddr)> {
    Some((from.parse().unwrap(), to.parse().unwrap()))
}

#[test]
fn version_1_examples_of_section_2_1() {
    let line = b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n";
    assert_eq!(whole(line).addresses, pair("255.255.255.255:65535", "255.255.255.255:65535"));
    let line = b"PROXY TCP6 ffff:f:f:f:f:f:f:ffff ffff::1 65535 0\r\n";
    assert_eq!(whole(line).addresses, pair("[ffff:f:f:f:f:f:f:ffff]:65535", "[ffff::1]:0"));
    assert_eq!(whole(b"PROXY UNKNOWN\r\n").addresses, None);
    let worst = b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n";
    assert_eq!(whole(worst).addresses, None);
}

#[test]
fn version_1_lines_that_are_none_are_refused() {
    for line in [
        &b"PROXY TCP4 1.2.3.4 5.6.7.8 1 65536\r\n"[..],
        b"PROXY TCP4 1.2.3.4 5.6.7.8 +1 2\r\n",
        b"PROXY TCP4 1.2.3.4 ::1 1 2\r\n",
        b"PROXY TCP6 1.2.3.4 5.6.7.8 1 2\r\n",
        b"PROXY TCP4  1.2.3.4 5.6.7.8 1 2\r\n",
        b"PROXY TCP4 1.2.3.4 5.6.7.8 1\r\n",
        b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2 3\r\n",
        b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\n",
        b"PROXY UDP4 1.2.3.4 5.6.7.8 1 2\r\n",
        b"PROXY TCP4 01.2.3.4 5.6.7.8 1 2\r\n",
    ] {
        assert_eq!(parse(line), Err(Error::Line), "{:?}", String::from_utf8_lossy(line));
    }
    assert_eq!(parse(&[b"PROXY UNKNOWN ".as_slice(), &[b'x'; 100]].concat()), Err(Error::Line));
    assert_eq!(parse(b"proxy "), Err(Error::Signature));
    assert_eq!(parse(b"GET /"), Err(Error::Signature));
}

#[test]
fn version_2_carries_addresses_and_tlvs_there_and_back() {
    let tlvs = Tlvs {
        alpn: Some(b"h2".to_vec()),
        authority: Some(b"example.com".to_vec()),
        unique_id: Some(vec![7; 128]),
        netns: Some(b"blue".to_vec()),
        ssl: Some(Ssl {
            client: 7,
            verify: 0,
            version: Some(b"TLSv1.3".to_vec()),
            common_name: Some(b"me".to_vec()),
            cipher: Some(b"ECDHE-RSA-AES128-GCM-SHA256".to_vec()),
            sig_alg: Some(b"SHA256".to_vec()),
            key_alg: Some(b"RSA2048".to_vec()),
        }),
        others: vec![(0xea, b"vpce-1".to_vec())],
    };
    for addresses in [pair("1.2.3.4:5", "6.7.8.9:10"), pair("[2001:db8::1]:5", "[2001:db8::2]:10")] {
        for checksum in [false, true] {
            let header = Header { addresses, tlvs: tlvs.clone(), ..Header::default() };
            let mut out = Vec::new();
            write_v2(&header, checksum, &mut out).unwrap();
            assert_eq!(whole(&out), header);
        }
    }
}

#[test]
fn version_2_bytes_are_those_of_the_specification() {
    let mut out = Vec::new();
    let header = Header { addresses: pair("1.2.3.4:258", "5.6.7.8:772"), ..Header::default() };
    write_v2(&header, false, &mut out).unwrap();
    assert_eq!(out[..16], *b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c");
    assert_eq!(out[16..], [1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4]);
    out.clear();
    write_v2(&Header { local: true, ..Header::default() }, false, &mut out).unwrap();
    assert_eq!(out, b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00");
    assert!(whole(&out).local);
}

#[test]
fn without_addresses_version_2_is_local_whatever_else_it_says() {
    let mut out = Vec::new();
    write_v2(&Header::default(), false, &mut out).unwrap();
    assert_eq!(out, b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00");
    for family in [0x00, 0x11, 0x31, 0x41, 0xff] {
        let bytes = [&V2_SIGNATURE[..], &[0x20, family, 0, 3], b"any"].concat();
        assert_eq!(whole(&bytes), Header { local: true, ..Header::default() });
    }
}

#[test]
fn an_ipv4_address_beside_one_of_ipv6_is_not_lost() {
    let mapped = pair("[::ffff:192.0.2.9]:5", "[2001:db8::2]:10");
    let mut out = Vec::new();
    write_v1(mapped, &mut out);
    assert_eq!(whole(&out).addresses, mapped);
    out.clear();
    write_v2(&Header { addresses: mapped, ..Header::default() }, false, &mut out).unwrap();
    assert_eq!(whole(&out).addresses, mapped);
}

#[test]
fn crc32c_is_the_one_everybody_computes() {
    // Against the definition, which is itself checked with the value of the CRC catalogue.
    let header = Header {
        addresses: pair("1.2.3.4:5", "6.7.8.9:10"),
        tlvs: Tlvs { others: vec![(0xe0, b"123456789".to_vec())], ..Tlvs::default() },
        ..Header::default()
    };
    let mut out = Vec::new();
    write_v2(&header, true, &mut out).unwrap();
    // It is the first of the fields, as HAProxy writes them.
    let sum = out.windows(3).position(|field| field == [3, 0, 4]).unwrap() + 3;
    let mut zeroed = out.clone();
    zeroed[sum..sum + 4].fill(0);
    assert_eq!(out[sum..sum + 4], bitwise_crc32c(&zeroed).to_be_bytes());
    assert_eq!(bitwise_crc32c(b"123456789"), 0xe306_9283);
    let at = out.len() - 1;
    out[at] ^= 1;
    assert_eq!(parse(&out), Err(Error::Checksum));
}

/// The definition, a bit at a time.
fn bitwise_crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
    })
}

#[test]
fn version_2_headers_that_are_none_are_refused_before_their_length_has_come() {
    let with = |rest: &[u8]| [&V2_SIGNATURE[..], rest].concat();
    assert_eq!(parse(&with(b"\x31")), Err(Error::Command));
    assert_eq!(parse(&with(b"\x22")), Err(Error::Command));
    assert_eq!(parse(&with(b"\x21\x41\x00\x0c")), Err(Error::Command));
    assert_eq!(parse(&with(b"\x21\x13\x00\x0c")), Err(Error::Command));
    for family in [b"\x00", b"\x01", b"\x10", b"\x12", b"\x20", b"\x22", b"\x31", b"\x32"] {
        assert_eq!(parse(&with(&[b"\x21", &family[..], b"\x00\xd8"].concat())), Err(Error::Command));
    }
    assert_eq!(parse(&with(b"\x21\x11\x00\x0b")), Err(Error::Length));
    assert_eq!(parse(&with(b"\x21\x21\x00\x0c")), Err(Error::Length));
    assert_eq!(parse(&with(b"\x21\x11\xff\xff")), Err(Error::Length));
    let address = [0; 12];
    let tlv = |tlv: &[u8]| {
        let len = (12 + tlv.len()) as u16;
        with(&[b"\x21\x11", &len.to_be_bytes()[..], &address, tlv].concat())
    };
    for wrong in [
        &b"\x01"[..],
        b"\x01\x00",
        b"\x01\x00\x05abc",
        b"\x03\x00\x03abc",
        b"\x20\x00\x04abcd",
        b"\x20\x00\x08abcde\x21\x00\x09",
    ] {
        assert_eq!(parse(&tlv(wrong)), Err(Error::Tlv), "{wrong:?}");
    }
    let long_id = [&b"\x05\x00\x81"[..], &[7; 129]].concat();
    assert_eq!(parse(&tlv(&long_id)), Err(Error::Tlv));
    let long_name = [&b"\x02\x01\x00"[..], &[b'a'; 256]].concat();
    assert_eq!(parse(&tlv(&long_name)), Err(Error::Tlv));
}

#[test]
fn version_1_is_written_as_it_is_read() {
    let mut out = Vec::new();
    write_v1(pair("1.2.3.4:5", "6.7.8.9:10"), &mut out);
    assert_eq!(out, b"PROXY TCP4 1.2.3.4 6.7.8.9 5 10\r\n");
    out.clear();
    write_v1(pair("[::1]:5", "[2001:db8::1]:10"), &mut out);
    assert_eq!(out, b"PROXY TCP6 ::1 2001:db8::1 5 10\r\n");
    out.clear();
    write_v1(None, &mut out);
    assert_eq!(out, b"PROXY UNKNOWN\r\n");
}
