//! Just enough DER to take an RSA key apart into its numbers.

/// The numbers of an RSA key in PKCS#8 (RFC 5208; RFC 8017, A.1.2): n, e, d, p, q, dp, dq, qinv.
pub(crate) fn rsa_numbers(pkcs8: &[u8]) -> Option<[&[u8]; 8]> {
    const INTEGER: u8 = 0x02;
    const OCTET_STRING: u8 = 0x04;
    const SEQUENCE: u8 = 0x30;
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
