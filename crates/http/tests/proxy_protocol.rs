//! The PROXY protocol against the examples of its specification, and what must be refused.

use std::net::SocketAddr;

use penstock_http::proxy_protocol::{
    ALPN, AUTHORITY, Error, Header, Parse, SSL, Ssl, Tlvs, UNIQUE_ID, V2_SIGNATURE, parse, write_v1, write_v2,
};

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
    let ssl = Ssl {
        client: 7,
        verify: 0,
        version: Some(b"TLSv1.3".to_vec()),
        common_name: Some(b"me".to_vec()),
        cipher: Some(b"ECDHE-RSA-AES128-GCM-SHA256".to_vec()),
        sig_alg: Some(b"SHA256".to_vec()),
        key_alg: Some(b"RSA2048".to_vec()),
    };
    let block = ssl.to_value().unwrap();
    assert_eq!(Ssl::parse(&block), Ok(ssl));
    let fields = [
        (ALPN, &b"h2"[..]),
        (AUTHORITY, b"example.com"),
        (UNIQUE_ID, &[7; 128]),
        (SSL, &block),
        (0xea, b"vpce-1"),
        (0xea, b"vpce-2"),
    ];
    for addresses in [pair("1.2.3.4:5", "6.7.8.9:10"), pair("[2001:db8::1]:5", "[2001:db8::2]:10")] {
        for checksum in [false, true] {
            let mut header = Header { addresses, ..Header::default() };
            fields[..2].iter().for_each(|(kind, value)| header.tlvs.push(*kind, value).unwrap());
            if checksum {
                header.tlvs.push_checksum();
            }
            fields[2..].iter().for_each(|(kind, value)| header.tlvs.push(*kind, value).unwrap());
            let mut out = Vec::new();
            write_v2(&header, &mut out).unwrap();
            let again = whole(&out);
            assert_eq!(again.addresses, addresses);
            let values = again.tlvs.iter().filter(|(kind, _)| *kind != 3).collect::<Vec<_>>();
            assert_eq!((values, again.tlvs.first(3).is_some()), (fields.to_vec(), checksum));
            assert_eq!(again.tlvs.first(0xea), Some(&b"vpce-1"[..]));
        }
    }
}

#[test]
fn values_of_more_than_haproxy_takes_are_refused() {
    for (kind, most) in [(AUTHORITY, 255), (UNIQUE_ID, 128), (0xe0, 1024)] {
        for (len, taken) in [(most, true), (most + 1, false)] {
            let mut header = Header { addresses: pair("1.2.3.4:5", "6.7.8.9:10"), ..Header::default() };
            header.tlvs.push(kind, &vec![b'a'; len]).unwrap();
            let mut out = Vec::new();
            write_v2(&header, &mut out).unwrap();
            assert_eq!(parse(&out).is_ok(), taken, "{len} bytes of {kind:#x}");
        }
    }
}

#[test]
fn version_2_bytes_are_those_of_the_specification() {
    let mut out = Vec::new();
    let header = Header { addresses: pair("1.2.3.4:258", "5.6.7.8:772"), ..Header::default() };
    write_v2(&header, &mut out).unwrap();
    assert_eq!(out[..16], *b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c");
    assert_eq!(out[16..], [1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4]);
    out.clear();
    write_v2(&Header { local: true, ..Header::default() }, &mut out).unwrap();
    assert_eq!(out, b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00");
    assert!(whole(&out).local);
}

#[test]
fn without_addresses_version_2_is_local_whatever_else_it_says() {
    let mut out = Vec::new();
    write_v2(&Header::default(), &mut out).unwrap();
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
    write_v2(&Header { addresses: mapped, ..Header::default() }, &mut out).unwrap();
    assert_eq!(whole(&out).addresses, mapped);
}

#[test]
fn crc32c_is_the_one_everybody_computes() {
    // Against the definition, which is itself checked with the value of the CRC catalogue.
    let mut tlvs = Tlvs::default();
    tlvs.push_checksum();
    tlvs.push(0xe0, b"123456789").unwrap();
    let header = Header { addresses: pair("1.2.3.4:5", "6.7.8.9:10"), tlvs, ..Header::default() };
    let mut out = Vec::new();
    write_v2(&header, &mut out).unwrap();
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
