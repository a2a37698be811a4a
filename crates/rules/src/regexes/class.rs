//! Sets of bytes, and the escapes that stand for a byte or a set, inside of `[...]` and outside.

use std::{ops::RangeInclusive, str::FromStr};

/// A set of bytes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bytes([u64; 4]);

/// What a backslash and what follows it stand for.
#[derive(Debug, PartialEq)]
pub(super) enum Escaped {
    Byte(u8),
    Set(Bytes),
    Character(char),
}

impl Bytes {
    const NONE: Bytes = Bytes([0; 4]);

    fn of(is_in: impl Fn(u8) -> bool) -> Bytes {
        let mut bytes = Bytes::NONE;
        (0..=255).filter(|&byte| is_in(byte)).for_each(|byte| bytes.add(byte..=byte));
        bytes
    }

    fn add(&mut self, bytes: RangeInclusive<u8>) {
        bytes.for_each(|byte| self.0[usize::from(byte) / 64] |= 1 << (byte % 64));
    }

    fn add_all(&mut self, other: &Bytes) {
        self.0.iter_mut().zip(other.0).for_each(|(one, other)| *one |= other);
    }

    fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte) / 64] >> (byte % 64) & 1 == 1
    }

    /// Appends it as a class.
    pub(super) fn put(&self, out: &mut String) {
        out.push('[');
        self.put_ranges(out);
        out.push(']');
    }

    /// Appends what is between the brackets of a class.
    pub(super) fn put_ranges(&self, out: &mut String) {
        let mut start = None;
        for byte in 0..=u8::MAX {
            if !self.has(byte) {
                continue;
            }
            let from = *start.get_or_insert(byte);
            if byte == u8::MAX || !self.has(byte + 1) {
                put_in_class(out, from);
                if from < byte {
                    out.push('-');
                    put_in_class(out, byte);
                }
                start = None;
            }
        }
    }
}

fn put_in_class(out: &mut String, byte: u8) {
    match char::from(byte) {
        c if c.is_ascii_alphanumeric() => out.push(c),
        _ => out.push_str(&format!("\\x{byte:02x}")),
    }
}

fn wrong(what: &str) -> String {
    format!("cannot be read: {what}")
}

fn take(rest: &mut &str) -> Option<char> {
    let c = rest.chars().next()?;
    *rest = &rest[c.len_utf8()..];
    Some(c)
}

/// What a backslash and `c` stand for, with what of `rest` belongs to it.
pub(super) fn escaped(c: char, rest: &mut &str) -> Result<Escaped, String> {
    let horizontal = |byte| matches!(byte, b'\t' | b' ' | 0xa0);
    let vertical = |byte| matches!(byte, b'\n'..=b'\r' | 0x85);
    Ok(match c {
        'a' => Escaped::Byte(0x07),
        'e' => Escaped::Byte(0x1b),
        'f' => Escaped::Byte(0x0c),
        'n' => Escaped::Byte(b'\n'),
        'r' => Escaped::Byte(b'\r'),
        't' => Escaped::Byte(b'\t'),
        'h' => Escaped::Set(Bytes::of(horizontal)),
        'H' => Escaped::Set(Bytes::of(|byte| !horizontal(byte))),
        'v' => Escaped::Set(Bytes::of(vertical)),
        'V' => Escaped::Set(Bytes::of(|byte| !vertical(byte))),
        '0' => Escaped::Byte(octal(c, rest)?),
        'c' => match take(rest) {
            Some(control @ ' '..='~') => Escaped::Byte(control.to_ascii_uppercase() as u8 ^ 0x40),
            _ => return Err(wrong("\\c without a printable ASCII character")),
        },
        'o' => Escaped::Byte(braced(rest, 8)?.ok_or_else(|| wrong("\\o without a brace"))?),
        'x' => match braced(rest, 16)? {
            Some(byte) => Escaped::Byte(byte),
            None => {
                let digits = rest.bytes().take(2).take_while(u8::is_ascii_hexdigit).count();
                let byte = u8::from_str_radix(&rest[..digits], 16).map_err(|_| wrong("digits missing after \\x"))?;
                *rest = &rest[digits..];
                Escaped::Byte(byte)
            }
        },
        c if c.is_ascii_alphanumeric() => return Err(wrong(&format!("\\{c} means nothing"))),
        c => Escaped::Character(c),
    })
}

/// A byte of up to three octal digits, of which the first has been read.
pub(super) fn octal(first: char, rest: &mut &str) -> Result<u8, String> {
    let more = rest.bytes().take(2).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
    let digits: String = [first].into_iter().chain(rest[..more].chars()).collect();
    *rest = &rest[more..];
    u8::from_str_radix(&digits, 8).map_err(|_| wrong("an octal number above \\377"))
}

/// A byte as a number in braces, if one follows.
fn braced(rest: &mut &str, radix: u32) -> Result<Option<u8>, String> {
    let Some(inner) = rest.strip_prefix('{') else { return Ok(None) };
    let (digits, behind) = inner.split_once('}').ok_or_else(|| wrong("a number without its closing brace"))?;
    *rest = behind;
    let number = u32::from_str_radix(digits.trim_matches([' ', '\t']), radix);
    let number = number
        .ok()
        .filter(|_| !digits.contains('+'))
        .ok_or_else(|| wrong("a number in braces has no digits, or wrong ones"))?;
    u8::try_from(number).map(Some).map_err(|_| wrong("a character above \\x{ff}, where texts are bytes"))
}

/// A part of a class.
enum Part {
    Byte(u8),
    /// The bytes of a character of several.
    Bytes(Vec<u8>),
    Set(Bytes),
    /// A hyphen that is not escaped.
    Hyphen,
}

/// The bytes of a class, of which the bracket, and the circumflex behind it, have been read.
pub(super) fn class(rest: &mut &str) -> Result<Bytes, String> {
    let mut bytes = Bytes::NONE;
    // What may be the start of a range, and whether a hyphen behind it has been read.
    let (mut start, mut hyphen) = (None::<u8>, false);
    // The hyphen behind a set may only be the last of a class.
    let mut behind_set = false;
    let (mut quoted, mut is_first) = (false, true);
    loop {
        let Some(c) = take(rest) else { return Err(wrong("a class without its closing bracket")) };
        let part = match c {
            '\\' if quoted => match rest.strip_prefix('E') {
                Some(behind) => {
                    (*rest, quoted) = (behind, false);
                    continue;
                }
                None => Part::Byte(b'\\'),
            },
            c if quoted => literal(c),
            ']' if !is_first => {
                if hyphen {
                    bytes.add(b'-'..=b'-');
                }
                return Ok(bytes);
            }
            '[' => match named(rest)? {
                Some(set) => Part::Set(set),
                None => Part::Byte(b'['),
            },
            '\\' => match in_class(rest)? {
                Some(part) => part,
                None => {
                    quoted = rest.strip_prefix('Q').is_some();
                    *rest = &rest[1..];
                    continue;
                }
            },
            '-' => Part::Hyphen,
            c => literal(c),
        };
        is_first = false;
        if behind_set && hyphen {
            return Err(wrong("a range begins with more than a byte"));
        }
        match part {
            Part::Hyphen if (start.is_some() || behind_set) && !hyphen => hyphen = true,
            Part::Byte(_) | Part::Hyphen => {
                let byte = if let Part::Byte(byte) = part { byte } else { b'-' };
                match start.filter(|_| hyphen) {
                    Some(from) if from > byte => return Err(wrong("a range ends before its start")),
                    Some(from) => {
                        bytes.add(from..=byte);
                        start = None;
                    }
                    None => {
                        bytes.add(byte..=byte);
                        start = Some(byte);
                    }
                }
                (hyphen, behind_set) = (false, false);
            }
            Part::Bytes(list) => {
                // Without its UTF mode PCRE2 knows bytes only: the first one ends a range, the last one may start one.
                if let Some(from) = start.filter(|_| hyphen) {
                    bytes.add(from..=list[0]);
                }
                list.iter().for_each(|&byte| bytes.add(byte..=byte));
                (start, hyphen, behind_set) = (list.last().copied(), false, false);
            }
            Part::Set(_) if hyphen => return Err(wrong("a range ends with more than a byte")),
            Part::Set(set) => {
                bytes.add_all(&set);
                (start, behind_set) = (None, true);
            }
        }
    }
}

fn literal(c: char) -> Part {
    match penstock_config::byte_of(c) {
        Some(byte) => Part::Byte(byte),
        None if c.is_ascii() => Part::Byte(c as u8),
        None => Part::Bytes(c.encode_utf8(&mut [0; 4]).as_bytes().to_vec()),
    }
}

/// An escape in a class; `None`, with nothing read, for `\Q` and `\E`.
fn in_class(rest: &mut &str) -> Result<Option<Part>, String> {
    if rest.starts_with(['Q', 'E']) {
        return Ok(None);
    }
    let Some(c) = take(rest) else { return Err(wrong("a backslash at its end")) };
    let set = |is_in: fn(&u8) -> bool| Part::Set(Bytes::of(|byte| is_in(&byte)));
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let is_space = |byte: &u8| matches!(byte, b'\t'..=b'\r' | b' ');
    Ok(Some(match c {
        'b' => Part::Byte(0x08),
        'd' => set(u8::is_ascii_digit),
        'D' => set(|byte| !byte.is_ascii_digit()),
        'w' => Part::Set(Bytes::of(|byte| is_word(&byte))),
        'W' => Part::Set(Bytes::of(|byte| !is_word(&byte))),
        's' => Part::Set(Bytes::of(|byte| is_space(&byte))),
        'S' => Part::Set(Bytes::of(|byte| !is_space(&byte))),
        '1'..='7' => Part::Byte(octal(c, rest)?),
        '8' | '9' => Part::Byte(c as u8),
        'N' | 'R' | 'B' | 'X' | 'A' | 'z' | 'Z' | 'G' | 'K' | 'C' => {
            return Err(wrong(&format!("\\{c} means nothing in a class")));
        }
        'p' | 'P' => return Err(format!("uses \\{c}, which is not supported")),
        c => match escaped(c, rest)? {
            Escaped::Byte(byte) => Part::Byte(byte),
            Escaped::Set(set) => Part::Set(set),
            Escaped::Character(c) => literal(c),
        },
    }))
}

/// The set of a name such as `[:alpha:]`, of which the bracket has been read; `None`, with nothing more read, if the bracket
/// stands for itself.
fn named(rest: &mut &str) -> Result<Option<Bytes>, String> {
    let Some(sign) = rest.chars().next().filter(|sign| ":.=".contains(*sign)) else { return Ok(None) };
    let inner = &rest[1..];
    let Some((name, _)) = inner.split_once(sign).filter(|(_, behind)| behind.starts_with(']')) else { return Ok(None) };
    if name.contains([']', '\\', '[']) {
        return Ok(None);
    }
    if sign != ':' {
        return Err(wrong("POSIX collating elements are not supported"));
    }
    *rest = &inner[name.len() + 2..];
    let (name, negated) = name.strip_prefix('^').map_or((name, false), |name| (name, true));
    let Ok(Named(is_in)) = name.parse() else { return Err(wrong("unknown name of a POSIX class")) };
    Ok(Some(Bytes::of(|byte| is_in(&byte) != negated)))
}

/// Which bytes a POSIX class has.
struct Named(fn(&u8) -> bool);

impl FromStr for Named {
    type Err = ();

    fn from_str(name: &str) -> Result<Named, ()> {
        Ok(Named(match name {
            "alnum" => u8::is_ascii_alphanumeric,
            "alpha" => u8::is_ascii_alphabetic,
            "ascii" => u8::is_ascii,
            "blank" => |byte| matches!(byte, b'\t' | b' '),
            "cntrl" => u8::is_ascii_control,
            "digit" => u8::is_ascii_digit,
            "graph" => u8::is_ascii_graphic,
            "lower" => u8::is_ascii_lowercase,
            "print" => |byte| matches!(byte, b' '..=b'~'),
            "punct" => u8::is_ascii_punctuation,
            "space" => |byte| matches!(byte, b'\t'..=b'\r' | b' '),
            "upper" => u8::is_ascii_uppercase,
            "word" => |byte| byte.is_ascii_alphanumeric() || *byte == b'_',
            "xdigit" => u8::is_ascii_hexdigit,
            _ => return Err(()),
        }))
    }
}
