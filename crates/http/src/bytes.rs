//! Classes of bytes, and the few operations every part needs on them.

/// For each byte: itself in lower case when RFC 9110 section 5.6.2 allows it in a token, otherwise 0.
pub(crate) const TOKEN_LOWER: [u8; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let byte = at as u8;
        if byte.is_ascii_alphanumeric()
            || matches!(
                byte,
                b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
            )
        {
            table[at] = byte.to_ascii_lowercase();
        }
        at += 1;
    }
    table
};

/// Turns the token that `bytes` begin with into lower case; returns its length. Field names are mostly letters and hyphens,
/// which are done eight at a time.
pub(crate) fn lower_token(bytes: &mut [u8]) -> usize {
    let mut len = 0;
    while let Some(word) = bytes[len..].first_chunk_mut() {
        let (lower, letters) = lower_letters(u64::from_le_bytes(*word));
        *word = lower.to_le_bytes();
        len += letters;
        if letters < word.len() {
            break;
        }
    }
    for byte in &mut bytes[len..] {
        let lower = TOKEN_LOWER[usize::from(*byte)];
        if lower == 0 {
            break;
        }
        *byte = lower;
        len += 1;
    }
    len
}

/// One in each byte of a word, and the top bit of each.
const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
const TOPS: u64 = u64::from_ne_bytes([0x80; 8]);

/// Puts the letters and hyphens that a word begins with, lowest byte first, into lower case; returns the word and their number.
fn lower_letters(word: u64) -> (u64, usize) {
    // Each sum below sets the top bit of its byte by whether the byte reaches a bound; bytes under 0x80 carry nothing over.
    let reaches = |word: u64, bound: u8| word.wrapping_add(ONES * u64::from(0x80 - bound));
    let ascii = word & !TOPS;
    let lower = ascii | (ONES * 0x20);
    let letters = reaches(lower, b'a') & !reaches(lower, b'z' + 1);
    let hyphens = reaches(ascii, b'-') & !reaches(ascii, b'-' + 1);
    let others = (!(letters | hyphens) | word) & TOPS;
    if others == 0 {
        return (lower, 8);
    }
    // All bits below the first other byte.
    let begin = (others ^ others.wrapping_sub(1)) >> 8;
    (word | (begin & (ONES * 0x20)), others.trailing_zeros() as usize / 8)
}

/// Whether these bytes are an RFC 9110 token: a method, a field name, a transfer coding.
pub fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&byte| TOKEN_LOWER[byte as usize] != 0)
}

/// Whether a field value may be sent on: no control character but the tab (RFC 9110 section 5.5).
///
/// It sees every byte of every message, so it looks at sixteen or eight of them at a time.
pub(crate) fn is_field_value(bytes: &[u8]) -> bool {
    let allowed = |byte: u8| (byte >= 0x20 || byte == b'\t') && byte != 0x7f;
    // Without a way out of the loop this is a handful of vector instructions.
    let all_allowed = |block: &[u8; 16]| block.iter().fold(true, |all, &byte| all & allowed(byte));
    let is_fine =
        |word: &[u8; 8]| !may_hold_control(u64::from_ne_bytes(*word)) || word.iter().all(|&byte| allowed(byte));
    // The last block or word overlaps the one before it.
    if let Some(last) = bytes.last_chunk() {
        bytes.as_chunks().0.iter().all(all_allowed) && all_allowed(last)
    } else if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        is_fine(first) && is_fine(last)
    } else {
        bytes.iter().all(|&byte| allowed(byte))
    }
}

/// Whether some byte of eight is below 0x20 or 0x7f; also true for a few that are not, never false for one that is
/// (S. E. Anderson, "Bit Twiddling Hacks", "determine if a word has a byte less than n").
fn may_hold_control(word: u64) -> bool {
    let below = word.wrapping_sub(ONES * 0x20) & !word;
    let deleted = word ^ (ONES * 0x7f);
    let equal = deleted.wrapping_sub(ONES) & !deleted;
    (below | equal) & TOPS != 0
}

/// Whether a request target may be sent on: visible ASCII only, and no fragment, which no client may send
/// (RFC 9112 section 3.2).
pub(crate) fn is_target(bytes: &[u8]) -> bool {
    !bytes.is_empty() && !bytes.iter().fold(false, |bad, &byte| bad | (byte <= 0x20) | (byte >= 0x7f) | (byte == b'#'))
}

/// Whether the pseudo-header fields of HTTP/2 may hold this target: bytes from 0x80 up pass, as in HAProxy.
pub(crate) fn is_http2_target(bytes: &[u8]) -> bool {
    !bytes.is_empty() && !bytes.iter().fold(false, |bad, &byte| bad | (byte <= 0x20) | (byte == 0x7f) | (byte == b'#'))
}

/// Whether a target passes under `option accept-invalid-http-request`: bytes from 0x80 up are let through, as is a fragment.
pub(crate) fn is_lenient_target(bytes: &[u8]) -> bool {
    !bytes.is_empty() && !bytes.iter().fold(false, |bad, &byte| bad | (byte <= 0x20) | (byte == 0x7f))
}

/// Without the spaces and tabs at both ends.
pub(crate) fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// The elements of a comma-separated list, trimmed; empty ones are left out (RFC 9110 section 5.6.1.2).
pub fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(trim).filter(|element| !element.is_empty())
}

/// Appends a number in decimal. Log lines are made of small ones, so up to four digits go without a loop.
#[inline]
pub fn push_decimal(out: &mut Vec<u8>, number: u64) {
    if number < 10 {
        out.push(b'0' + number as u8);
    } else {
        push_digits(out, number);
    }
}

fn push_digits(out: &mut Vec<u8>, number: u64) {
    let digit = |value: u64| b'0' + (value % 10) as u8;
    match number {
        0..100 => out.extend_from_slice(&[digit(number / 10), digit(number)]),
        100..1_000 => out.extend_from_slice(&[digit(number / 100), digit(number / 10), digit(number)]),
        _ => {
            let (above, below) = (number / 10_000, number % 10_000);
            if above > 0 {
                push_decimal(out, above);
            }
            out.extend_from_slice(&[digit(below / 1_000), digit(below / 100), digit(below / 10), digit(below)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_ends_at_the_first_byte_that_may_not_be_in_one_wherever_it_stands() {
        for place in 0..20 {
            for byte in 0..=255 {
                let mut name = *b"Content-Security-Pol";
                name[place] = byte;
                let expected = name.iter().position(|&byte| TOKEN_LOWER[usize::from(byte)] == 0).unwrap_or(name.len());
                let mut lower = name;
                assert_eq!(lower_token(&mut lower), expected, "{byte} at {place}");
                assert_eq!(lower[..expected], name[..expected].to_ascii_lowercase());
                assert_eq!(lower[expected..], name[expected..]);
            }
        }
    }

    #[test]
    fn a_control_character_is_found_wherever_it_stands() {
        for len in [3, 8, 11, 16, 17, 31, 40] {
            assert!(
                is_field_value(&vec![b'a'; len])
                    && is_field_value(&vec![b'\t'; len])
                    && is_field_value(&vec![0xff; len])
            );
            for (place, byte) in (0..len).flat_map(|place| [(place, 0), (place, b'\r'), (place, 0x1f), (place, 0x7f)]) {
                let mut value = vec![b'a'; len];
                value[place] = byte;
                assert!(!is_field_value(&value), "{byte} at {place} of {len}");
            }
        }
    }

    #[test]
    fn decimals_have_no_leading_zeros_and_all_digits() {
        for number in (0..20).map(|power| 10u64.pow(power)).flat_map(|n| [n - 1, n, n + 1]).chain([u64::MAX, 90_007]) {
            let mut out = Vec::new();
            push_decimal(&mut out, number);
            assert_eq!(out, number.to_string().into_bytes());
        }
    }
}
