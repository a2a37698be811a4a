//! Just enough DER to see what a private key is, to take an RSA key apart into its numbers, and to write a public key of a curve.

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const SEQUENCE: u8 = 0x30;

/// The object identifiers of algorithms and curves (RFC 8017, A.1; RFC 5480, 2.1.1).
pub(crate) const RSA: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01";
pub(crate) const EC: &[u8] = b"\x2a\x86\x48\xce\x3d\x02\x01";
pub(crate) const P256: &[u8] = b"\x2a\x86\x48\xce\x3d\x03\x01\x07";
pub(crate) const P384: &[u8] = b"\x2b\x81\x04\x00\x22";
pub(crate) const P521: &[u8] = b"\x2b\x81\x04\x00\x23";

/// The algorithm that a key in PKCS#8 names (RFC 5208, 5), and the curve if that is named too. `None` for other forms of keys.
pub(crate) fn algorithm(pkcs8: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let (info, _) = element(pkcs8, SEQUENCE)?;
    let (_version, info) = element(info, INTEGER)?;
    let (identifier, _) = element(info, SEQUENCE)?;
    let (algorithm, parameters) = element(identifier, OBJECT_IDENTIFIER)?;
    Some((algorithm, element(parameters, OBJECT_IDENTIFIER).map(|(curve, _)| curve)))
}

/// A point of a curve as a SubjectPublicKeyInfo (RFC 5480, 2).
pub(crate) fn ec_public_key(curve: &[u8], point: &[u8]) -> Vec<u8> {
    let identifier = [written(OBJECT_IDENTIFIER, EC), written(OBJECT_IDENTIFIER, curve)].concat();
    // The first byte of a bit string is how many bits its last byte lacks.
    let bits = [&[0], point].concat();
    written(SEQUENCE, &[written(SEQUENCE, &identifier), written(BIT_STRING, &bits)].concat())
}

/// The numbers of an RSA key in PKCS#8 (RFC 5208; RFC 8017, A.1.2): n, e, d, p, q, dp, dq, qinv.
pub(crate) fn rsa_numbers(pkcs8: &[u8]) -> Option<[&[u8]; 8]> {
    let (mut info, _) = element(pkcs8, SEQUENCE)?;
    for tag in [INTEGER, SEQUENCE] {
        info = element(info, tag)?.1;
    }
    let (private, _) = element(info, OCTET_STRING)?;
    let (numbers, _) = element(private, SEQUENCE)?;
    let (_version, mut rest) = element(numbers, INTEGER)?;
    let mut out = [&[][..]; 8];
    for number in &mut out {
        (*number, rest) = element(rest, INTEGER)?;
    }
    Some(out)
}

/// The content of the element at the start of `der`, which must have this tag, and what follows it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..0x80 => (usize::from(first), rest),
        _ => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7F))?;
            let fits = bytes.len() <= size_of::<u32>();
            (fits.then(|| bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)))?, rest)
        }
    };
    (found == tag).then(|| rest.split_at_checked(length))?
}

/// An element of this tag and content, which is shorter than 256 bytes.
fn written(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).expect("a public key of a curve is at most 158 bytes");
    let head: &[u8] = if length < 0x80 { &[tag, length] } else { &[tag, 0x81, length] };
    [head, content].concat()
}
