//! The protocol's variable-length integers: one byte below 240; above, four bits in the first byte and seven in each of
//! the others.

use crate::Flaw;

/// Appends a number.
pub fn write(mut value: u64, out: &mut Vec<u8>) {
    if value < 0xf0 {
        out.push(value as u8);
        return;
    }
    out.push(value as u8 | 0xf0);
    value = (value - 0xf0) >> 4;
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value = (value - 0x80) >> 7;
    }
    out.push(value as u8);
}

/// Takes a number off the front of `input`; `None` if it is not there in full yet.
///
/// # Errors
///
/// If it does not fit into 64 bits.
pub fn read(input: &mut &[u8]) -> Result<Option<u64>, Flaw> {
    let Some((&first, rest)) = input.split_first() else { return Ok(None) };
    let mut value = u64::from(first);
    if first < 0xf0 {
        *input = rest;
        return Ok(Some(value));
    }
    // 64 bits are four in the first byte and sixty in at most nine others.
    for (at, &byte) in rest.iter().enumerate() {
        let shift = 4 + 7 * at as u32;
        let part = u64::from(byte);
        let shifted =
            if shift < 64 && (part << shift) >> shift == part { part << shift } else { return Err(Flaw::Number) };
        value = value.checked_add(shifted).ok_or(Flaw::Number)?;
        if byte < 0x80 {
            *input = &rest[at + 1..];
            return Ok(Some(value));
        }
    }
    if rest.len() >= 9 { Err(Flaw::Number) } else { Ok(None) }
}

/// A number that must be there.
pub(crate) fn take(input: &mut &[u8]) -> Result<u64, Flaw> {
    read(input)?.ok_or(Flaw::Short)
}

/// Takes `count` bytes that must be there.
pub(crate) fn bytes<'a>(input: &mut &'a [u8], count: u64) -> Result<&'a [u8], Flaw> {
    let count = usize::try_from(count).map_err(|_| Flaw::Short)?;
    let (taken, rest) = input.split_at_checked(count).ok_or(Flaw::Short)?;
    *input = rest;
    Ok(taken)
}

/// Four bytes that must be there, as a number in network order.
pub(crate) fn word(input: &mut &[u8]) -> Result<u32, Flaw> {
    let taken = bytes(input, 4)?;
    Ok(u32::from_be_bytes(taken.try_into().map_err(|_| Flaw::Short)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_the_specification_shows() {
        for (value, expected) in [
            (0u64, &[0u8][..]),
            (0xef, &[0xef]),
            (0xf0, &[0xf0, 0]),
            (0x1234, &[0xf4, 0x94, 0x01]),
            (60_000, &[0xf0, 0x97, 0x1c]),
            (10_000, &[0xf0, 0xe2, 0x03]),
        ] {
            let mut out = Vec::new();
            write(value, &mut out);
            assert_eq!(out, expected, "{value}");
        }
    }

    #[test]
    fn every_length_is_read_back_and_is_incomplete_when_cut() {
        let edges = (0..64).flat_map(|bits| [(1u64 << bits) - 1, 1 << bits, (1u64 << bits).wrapping_add(0xf0)]);
        for value in edges.chain([2287, 2288, 264_431, 264_432, u64::MAX]) {
            let mut out = Vec::new();
            write(value, &mut out);
            assert_eq!(read(&mut &out[..]), Ok(Some(value)), "{value}");
            for cut in 0..out.len() {
                assert_eq!(read(&mut &out[..cut]), Ok(None), "{value} cut at {cut}");
            }
        }
    }

    #[test]
    fn what_does_not_fit_into_64_bits_is_refused_and_not_waited_for() {
        assert_eq!(read(&mut &[0xff; 12][..]), Err(Flaw::Number));
        assert_eq!(read(&mut &[0xff; 10][..]), Err(Flaw::Number));
        let mut most = Vec::new();
        write(u64::MAX, &mut most);
        *most.last_mut().unwrap() += 1;
        assert_eq!(read(&mut &most[..]), Err(Flaw::Number));
    }
}
