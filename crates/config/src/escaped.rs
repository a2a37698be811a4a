//! Bytes that are not UTF-8, carried through text.
//!
//! A configuration is text for people, and bytes for HAProxy: a header in Latin-1, a pattern in an old code page. Words are text
//! here. A byte that is part of no character is represented by a character of its own, at the very end of the last private-use
//! plane, and becomes that byte again when it is compared or sent.

use std::borrow::Cow;

/// Byte `n` is represented by the character `BASE + n`.
const BASE: u32 = 0x10_ff00;

fn character(byte: u8) -> char {
    char::from_u32(BASE + u32::from(byte)).expect("U+10FF00 to U+10FFFF are characters")
}

fn byte(character: char) -> Option<u8> {
    u32::from(character).checked_sub(BASE).and_then(|n| u8::try_from(n).ok())
}

/// Text that stands for these bytes, whatever they are.
pub fn text_of(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for known in chunk.valid().chars() {
            match byte(known) {
                // Such characters are not expected in a text; where they occur all the same, each of their bytes is carried by
                // itself.
                Some(_) => out.extend(known.encode_utf8(&mut [0; 4]).bytes().map(character)),
                None => out.push(known),
            }
        }
        out.extend(chunk.invalid().iter().copied().map(character));
    }
    out
}

/// Text from the bytes of a word, some of which were spelled (`\xe9`), and some of which are [`text_of`] already.
pub(crate) fn word_of(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| {
        let mut out = String::with_capacity(error.as_bytes().len() + 8);
        for chunk in error.as_bytes().utf8_chunks() {
            out.push_str(chunk.valid());
            out.extend(chunk.invalid().iter().copied().map(character));
        }
        out
    })
}

/// The bytes that a text stands for.
pub fn bytes_of(text: &str) -> Cow<'_, [u8]> {
    if !text.chars().any(|c| byte(c).is_some()) {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut out = Vec::with_capacity(text.len());
    for c in text.chars() {
        match byte(c) {
            Some(byte) => out.push(byte),
            None => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Cow::Owned(out)
}

/// The byte that a character of a text stands for, if it stands for one that is not UTF-8.
pub fn byte_of(character: char) -> Option<u8> {
    byte(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sequence_of_bytes_comes_back() {
        let all: Vec<u8> = (0..=255).collect();
        let own = "a\u{10ffe9}b";
        for bytes in [&b"plain"[..], "é€\u{1f600}".as_bytes(), b"caf\xe9", b"\xff\xfe\xc3", own.as_bytes(), &all] {
            assert_eq!(bytes_of(&text_of(bytes)).as_ref(), bytes);
        }
    }

    #[test]
    fn spelled_bytes_join_those_that_stand_there() {
        let mut word = text_of(b"\xe9").into_bytes();
        word.extend(b"-\xe8-\xc3\xa9");
        assert_eq!(bytes_of(&word_of(word)).as_ref(), b"\xe9-\xe8-\xc3\xa9".as_slice());
    }
}
