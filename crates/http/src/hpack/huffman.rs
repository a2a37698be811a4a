//! The Huffman code of HPACK (RFC 7541 appendix B), read only.

/// How many bits the code of each byte has. Codes of one length are numbered in the order of their bytes, and each length
/// goes on where the one before ended: that is the whole code.
#[rustfmt::skip]
const BITS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];

const LONGEST: usize = 30;

/// For each length: the first code beyond it, aligned to the left of 32 bits; its first code so aligned; and where its bytes
/// begin in [`BYTES`].
const LENGTHS: [(u32, u32, u16); LONGEST + 1] = {
    let mut lengths = [(0, 0, 0); LONGEST + 1];
    let (mut code, mut at, mut bits) = (0u64, 0, 1);
    while bits <= LONGEST {
        let first = code;
        let mut byte = 0;
        while byte < 256 {
            code += (BITS[byte] as usize == bits) as u64;
            byte += 1;
        }
        let shift = 32 - bits;
        lengths[bits] = ((code << shift) as u32, (first << shift) as u32, at);
        at += (code - first) as u16;
        code <<= 1;
        bits += 1;
    }
    lengths
};

/// All bytes in the order of their codes.
const BYTES: [u8; 256] = {
    let mut bytes = [0; 256];
    let (mut at, mut bits) = (0, 1);
    while bits <= LONGEST {
        let mut byte = 0;
        while byte < 256 {
            if BITS[byte] as usize == bits {
                bytes[at] = byte as u8;
                at += 1;
            }
            byte += 1;
        }
        bits += 1;
    }
    bytes
};

/// For the first eight bits of a code: its byte, and how many bits it has; none if there are more. Text consists of these codes.
const SHORT: [(u8, u8); 256] = {
    let mut short = [(0, 0); 256];
    let (mut first, mut at) = (0, 0);
    while first < 256 {
        let byte = BYTES[at];
        let bits = BITS[byte as usize];
        if bits > 8 {
            break;
        }
        let end = first + (1 << (8 - bits));
        while first < end {
            short[first] = (byte, bits);
            first += 1;
        }
        at += 1;
    }
    short
};

/// Gives each byte of an encoded string to `each`; `None` where it is not one.
pub(super) fn decode(encoded: &[u8], mut each: impl FnMut(u8)) -> Option<()> {
    let (mut window, mut have) = (0u64, 0);
    let mut rest = encoded.iter();
    loop {
        while have <= 32
            && let Some(&byte) = rest.next()
        {
            window |= u64::from(byte) << (56 - have);
            have += 8;
        }
        let head = (window >> 32) as u32;
        // What is left is padding: the most significant bits of the end's code, all ones, and less than a byte.
        if have < 8 && head == padding(have) {
            return Some(());
        }
        let (byte, bits) = match SHORT[(head >> 24) as usize] {
            (_, 0) => {
                let bits = (9..=LONGEST).find(|&bits| head < LENGTHS[bits].0)?;
                let (_, first, at) = LENGTHS[bits];
                (BYTES[usize::from(at) + ((head - first) >> (32 - bits)) as usize], bits)
            }
            (byte, bits) => (byte, usize::from(bits)),
        };
        if bits > have {
            return None;
        }
        each(byte);
        window <<= bits;
        have -= bits;
    }
}

/// `bits` ones, then zeros.
fn padding(bits: usize) -> u32 {
    !(u32::MAX.checked_shr(bits as u32).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(encoded: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        decode(encoded, |byte| bytes.push(byte)).map(|()| bytes)
    }

    /// RFC 7541 appendix C.4 and C.6.
    #[test]
    fn the_examples_of_the_rfc_are_read() {
        let examples: [(&[u8], &str); 5] = [
            (b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff", "www.example.com"),
            (b"\xa8\xeb\x10\x64\x9c\xbf", "no-cache"),
            (b"\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf", "custom-value"),
            (b"\x64\x02", "302"),
            (
                b"\xd0\x7a\xbe\x94\x10\x54\xd4\x44\xa8\x20\x05\x95\x04\x0b\x81\x66\xe0\x82\xa6\x2d\x1b\xff",
                "Mon, 21 Oct 2013 20:13:21 GMT",
            ),
        ];
        for (encoded, text) in examples {
            assert_eq!(decoded(encoded).as_deref(), Some(text.as_bytes()));
        }
        assert_eq!(decoded(b""), Some(Vec::new()));
    }

    #[test]
    fn every_byte_is_read_back() {
        for byte in 0..=255u8 {
            let bits = usize::from(BITS[usize::from(byte)]);
            let (_, first, at) = LENGTHS[bits];
            let place = BYTES.iter().position(|&other| other == byte).unwrap() as u32 - u32::from(at);
            let code = (u64::from(first) << 8) + (u64::from(place) << (40 - bits)) + ((1 << (40 - bits)) - 1);
            let encoded = &code.to_be_bytes()[3..][..bits.div_ceil(8)];
            assert_eq!(decoded(encoded), Some(vec![byte]), "{encoded:02x?}");
        }
    }

    #[test]
    fn padding_is_ones_and_less_than_a_byte() {
        assert_eq!(decoded(b"\x07"), Some(b"0".to_vec()));
        assert_eq!(decoded(b"\x06"), None, "padding of 110");
        assert_eq!(decoded(b"\x07\xff"), None, "a byte of padding");
        assert_eq!(decoded(b"\xff\xff\xff\xff"), None, "the end's code");
    }
}
