//! What the header blocks of HTTP/2 say, beside a decoder that is stricter than a proxy may be.
//!
//! The decoder behind this one ends a whole connection for a byte that may not be in one field, and has no place for paths
//! that HAProxy lets through. A malformed request is an error of its stream alone (RFC 9113 section 8.1.1), but its block
//! has to be decoded all the same, since the next one may refer to it (RFC 7541 section 2.2). So each block is read here
//! first, by what the dynamic table holds in lengths alone, and what the decoder would not take is replaced by as many
//! harmless bytes: both tables stay as they would be. Pure: blocks in, blocks and verdicts out.

mod huffman;

use crate::{authority::split_authority, bytes::TOKEN_LOWER};
use std::collections::VecDeque;

/// What a block says of its request.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Field lines, pseudo-header fields among them.
    pub fields: u32,
    /// Those of them that are spelt out, and not found in a table.
    pub literals: u32,
    /// Bytes of all names and values, decoded.
    pub size: usize,
    /// The request is malformed (RFC 9113 section 8.1.1).
    pub malformed: bool,
    /// The path as it was sent, where the decoder gets another in its place.
    pub path: Option<Box<[u8]>>,
}

/// A block that cannot be decoded: an error of its connection (RFC 7541 section 2.3.3 and others).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undecodable;

/// What a name means here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Method,
    Scheme,
    Authority,
    Path,
    Protocol,
    Te,
    ContentLength,
    Regular,
    /// A field of an HTTP/1 connection (RFC 9113 section 8.2.2), or of responses.
    Forbidden,
    /// Not a valid name. The decoder is given another of the same length.
    Bad,
}

impl Name {
    fn of(name: &[u8]) -> Name {
        match name {
            b":method" => Name::Method,
            b":scheme" => Name::Scheme,
            b":authority" => Name::Authority,
            b":path" => Name::Path,
            b":protocol" => Name::Protocol,
            b"te" => Name::Te,
            b"content-length" => Name::ContentLength,
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => Name::Forbidden,
            _ => Name::Regular,
        }
    }
    fn of_static(index: usize) -> Name {
        match index {
            1 => Name::Authority,
            2 | 3 => Name::Method,
            4 | 5 => Name::Path,
            6 | 7 => Name::Scheme,
            // `:status`
            8..=14 => Name::Bad,
            28 => Name::ContentLength,
            57 => Name::Forbidden,
            _ => Name::Regular,
        }
    }
    fn is_pseudo(self) -> bool {
        matches!(self, Name::Method | Name::Scheme | Name::Authority | Name::Path | Name::Protocol)
    }
}

/// What a value is for its name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Good,
    /// `:method CONNECT`
    Connect,
    /// Malformed, in a way that the decoder takes.
    Wrong,
    /// Not a valid value. The decoder is given another of the same length.
    Bad,
    /// A path that the decoder has no place for.
    Path(Box<[u8]>),
    /// A list of this length alone (RFC 9110 section 8.6). The decoder is given it once, behind zeros.
    Lengths(u64),
}

/// An entry of the dynamic table.
#[derive(Debug)]
struct Entry {
    name: Name,
    value: Value,
    name_len: usize,
    value_len: usize,
}

impl Entry {
    /// RFC 7541 section 4.1.
    fn size(&self) -> usize {
        self.name_len + self.value_len + 32
    }
}

/// Lengths of the names and values of RFC 7541 appendix A.
#[rustfmt::skip]
const STATIC: [(u8, u8); 61] = [
    (10, 0), (7, 3), (7, 4), (5, 1), (5, 11), (7, 4), (7, 5), (7, 3), (7, 3), (7, 3), (7, 3), (7, 3), (7, 3), (7, 3),
    (14, 0), (15, 13), (15, 0), (13, 0), (6, 0), (27, 0), (3, 0), (5, 0), (13, 0), (13, 0), (19, 0), (16, 0), (16, 0),
    (14, 0), (16, 0), (13, 0), (12, 0), (6, 0), (4, 0), (4, 0), (6, 0), (7, 0), (4, 0), (4, 0), (8, 0), (17, 0), (13, 0),
    (8, 0), (19, 0), (13, 0), (4, 0), (8, 0), (12, 0), (18, 0), (19, 0), (5, 0), (7, 0), (7, 0), (11, 0), (6, 0), (10, 0),
    (25, 0), (17, 0), (10, 0), (4, 0), (3, 0), (16, 0),
];

/// The dynamic table of one direction of a connection, and what its blocks say.
#[derive(Debug)]
pub struct Mirror {
    /// The latest first.
    table: VecDeque<Entry>,
    size: usize,
    size_max: usize,
    /// What the decoder allows for `size_max`.
    limit: usize,
}

/// How large a table is until somebody says otherwise (RFC 9113 section 6.5.2).
const USUAL_SIZE: usize = 4096;

impl Default for Mirror {
    fn default() -> Self {
        Mirror::with_limit(USUAL_SIZE)
    }
}

/// A field that no request may have: the decoder takes it for an error of the stream.
pub const POISON: &[u8] = b"\0\x02te\x01x";

impl Mirror {
    /// The state of a decoder that allows a table of this many bytes.
    pub fn with_limit(limit: usize) -> Mirror {
        Mirror { table: VecDeque::new(), size: 0, size_max: USUAL_SIZE, limit }
    }

    /// Reads a whole block of a request, or of its `trailers`. Where the decoder is to have another block instead, that is
    /// put into `other`, which must be empty.
    ///
    /// # Errors
    /// If the block cannot be decoded. Nothing after it can be either.
    pub fn read(&mut self, block: &[u8], trailers: bool, other: &mut Vec<u8>) -> Result<Block, Undecodable> {
        let mut request = Request { trailers, ..Request::default() };
        let (mut input, mut copied) = (Input { block, at: 0 }, 0);
        // Nothing but changes of the table's size came before.
        let mut first_of_block = true;
        while let Some(&first) = block.get(input.at) {
            let begin = input.at;
            let resizable = std::mem::replace(&mut first_of_block, first & 0xe0 == 0x20);
            if first & 0xe0 == 0x20 {
                // RFC 7541 sections 4.2 and 6.3.
                self.size_max =
                    input.integer(5).ok().filter(|&size| resizable && size <= self.limit).ok_or(Undecodable)?;
                self.make_room(0);
            } else if first & 0x80 != 0 {
                self.indexed(input.integer(7)?, &mut request)?;
            } else {
                let indexing = first & 0x40 != 0;
                let mut entry = self.literal(&mut input, indexing)?;
                request.take(entry.name, &entry.value, entry.size() - 32);
                request.block.literals += 1;
                if entry.name == Name::Bad || matches!(entry.value, Value::Bad | Value::Path(_) | Value::Lengths(_)) {
                    other.extend_from_slice(&block[copied..begin]);
                    write_harmless(&mut entry, indexing, other);
                    copied = input.at;
                }
                if indexing {
                    self.insert(entry);
                }
            }
        }
        let said = request.end();
        if copied > 0 || said.malformed {
            other.extend_from_slice(&block[copied..]);
        }
        if said.malformed {
            other.extend_from_slice(POISON);
        }
        Ok(said)
    }

    fn indexed(&self, index: usize, request: &mut Request) -> Result<(), Undecodable> {
        if let Some(&(name, value)) = STATIC.get(index.wrapping_sub(1)) {
            request.take(Name::of_static(index), &Value::Good, usize::from(name) + usize::from(value));
        } else {
            let entry = self.entry(index)?;
            request.take(entry.name, &entry.value, entry.size() - 32);
        }
        Ok(())
    }

    fn entry(&self, index: usize) -> Result<&Entry, Undecodable> {
        index.checked_sub(STATIC.len() + 1).and_then(|at| self.table.get(at)).ok_or(Undecodable)
    }

    fn literal(&self, input: &mut Input<'_>, indexing: bool) -> Result<Entry, Undecodable> {
        let index = input.integer(if indexing { 6 } else { 4 })?;
        let (name, name_len) = match index {
            0 => input.string()?.name()?,
            1..=61 => (Name::of_static(index), usize::from(STATIC[index - 1].0)),
            _ => self.entry(index).map(|entry| (entry.name, entry.name_len))?,
        };
        let (value, value_len) = input.string()?.value(name)?;
        Ok(Entry { name, value, name_len, value_len })
    }

    fn insert(&mut self, entry: Entry) {
        let size = entry.size();
        self.make_room(size);
        if size <= self.size_max {
            self.size += size;
            self.table.push_front(entry);
        }
    }

    fn make_room(&mut self, size: usize) {
        while self.size + size > self.size_max {
            let Some(entry) = self.table.pop_back() else { return };
            self.size -= entry.size();
        }
    }
}

/// Writes a literal that takes the same place in the dynamic table, and that every decoder takes.
fn write_harmless(entry: &mut Entry, indexing: bool, out: &mut Vec<u8>) {
    let filler = |out: &mut Vec<u8>, len| out.resize(out.len() + len, b'x');
    out.push(if indexing { 0x40 } else { 0 });
    write_length(entry.name_len, out);
    if matches!(entry.value, Value::Path(_)) {
        out.extend_from_slice(b":path");
        write_length(entry.value_len, out);
        out.push(b'/');
        filler(out, entry.value_len - 1);
    } else if let Value::Lengths(length) = entry.value {
        entry.value = Value::Good;
        out.extend_from_slice(b"content-length");
        write_length(entry.value_len, out);
        out.extend_from_slice(format!("{length:0width$}", width = entry.value_len).as_bytes());
    } else {
        // From now on the decoder has another name here than the peer.
        entry.name = Name::Bad;
        filler(out, entry.name_len);
        write_length(entry.value_len, out);
        filler(out, entry.value_len);
    }
}

/// The length of a string as it is (RFC 7541 sections 5.1 and 5.2).
fn write_length(len: usize, out: &mut Vec<u8>) {
    let Some(mut rest) = len.checked_sub(127) else { return out.push(len as u8) };
    out.push(127);
    while rest >= 128 {
        out.push((rest & 127) as u8 | 128);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// The position of the reader in a block.
struct Input<'a> {
    block: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    fn byte(&mut self) -> Result<u8, Undecodable> {
        let byte = *self.block.get(self.at).ok_or(Undecodable)?;
        self.at += 1;
        Ok(byte)
    }
    /// RFC 7541 section 5.1.
    fn integer(&mut self, prefix: u32) -> Result<usize, Undecodable> {
        let mask = (1 << prefix) - 1;
        let mut value = usize::from(self.byte()?) & mask;
        if value < mask {
            return Ok(value);
        }
        // As much as a length or an index may need; the decoder has the same bound.
        for shift in [0, 7, 14, 21] {
            let byte = self.byte()?;
            value += usize::from(byte & 127) << shift;
            if byte < 128 {
                return Ok(value);
            }
        }
        Err(Undecodable)
    }
    fn string(&mut self) -> Result<Text<'a>, Undecodable> {
        let huffman = self.block.get(self.at).is_some_and(|&byte| byte >= 128);
        let len = self.integer(7)?;
        let bytes = self.block.get(self.at..).and_then(|rest| rest.get(..len)).ok_or(Undecodable)?;
        self.at += len;
        Ok(Text { bytes, huffman })
    }
}

/// A string as it came.
struct Text<'a> {
    bytes: &'a [u8],
    huffman: bool,
}

/// No name that means anything here is longer.
const NAME_MAX: usize = 24;

impl Text<'_> {
    /// Gives each byte to `each`; how many there are.
    fn each(&self, mut each: impl FnMut(u8)) -> Result<usize, Undecodable> {
        if !self.huffman {
            self.bytes.iter().for_each(|&byte| each(byte));
            return Ok(self.bytes.len());
        }
        let mut len = 0;
        let counted = |byte| {
            len += 1;
            each(byte);
        };
        huffman::decode(self.bytes, counted).ok_or(Undecodable)?;
        Ok(len)
    }
    fn decoded(&self) -> Result<Vec<u8>, Undecodable> {
        let mut bytes = Vec::with_capacity(self.bytes.len() * 2);
        self.each(|byte| bytes.push(byte))?;
        Ok(bytes)
    }
    fn name(&self) -> Result<(Name, usize), Undecodable> {
        let (mut start, mut at, mut lower) = ([0; NAME_MAX], 0, true);
        let len = self.each(|byte| {
            if let Some(place) = start.get_mut(at) {
                *place = byte;
            }
            lower &= TOKEN_LOWER[usize::from(byte)] == byte && byte != 0 || at == 0 && byte == b':';
            at += 1;
        })?;
        let name = start.get(..len).map_or(Name::Regular, Name::of);
        let known = start[0] != b':' || name.is_pseudo();
        // The decoder takes an empty name for the end of the block.
        let name = if lower && known { name } else { Name::Bad };
        if len == 0 { Err(Undecodable) } else { Ok((name, len)) }
    }
    fn value(&self, name: Name) -> Result<(Value, usize), Undecodable> {
        match name {
            Name::Path => self.path(),
            Name::Method | Name::Scheme | Name::Authority | Name::Protocol | Name::Te | Name::ContentLength => {
                let bytes = self.decoded()?;
                Ok((short_value(name, &bytes), bytes.len()))
            }
            Name::Regular | Name::Forbidden | Name::Bad => {
                let mut good = true;
                let len = self.each(|byte| good &= byte >= 0x20 && byte != 0x7f || byte == b'\t')?;
                Ok((if good { Value::Good } else { Value::Bad }, len))
            }
        }
    }
    /// A path may have what HAProxy lets pass over HTTP/2, which is anything but controls, blanks and a fragment.
    fn path(&self) -> Result<(Value, usize), Undecodable> {
        let (mut good, mut plain, mut first) = (true, true, None);
        let len = self.each(|byte| {
            first.get_or_insert(byte);
            good &= byte > 0x20 && byte != 0x7f && byte != b'#';
            plain &= byte < 0x80 && !matches!(byte, b'<' | b'>' | b'"' | b'`');
        })?;
        let absolute = first == Some(b'/');
        let value = match (good, plain) {
            (true, true) if absolute || first == Some(b'*') && len == 1 => Value::Good,
            (true, true) => Value::Wrong,
            (true, false) if absolute => Value::Path(self.decoded()?.into()),
            _ => Value::Bad,
        };
        Ok((value, len))
    }
}

/// What the value of a field is that has little choice.
fn short_value(name: Name, bytes: &[u8]) -> Value {
    if name == Name::ContentLength
        && let Some(length) = repeated_length(bytes)
    {
        return Value::Lengths(length);
    }
    let token = !bytes.is_empty() && bytes.iter().all(|&byte| TOKEN_LOWER[usize::from(byte)] != 0);
    let good = match name {
        Name::Method if bytes == b"CONNECT" => return Value::Connect,
        Name::Method => token,
        Name::Scheme => {
            token
                && bytes[0].is_ascii_alphabetic()
                && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte))
        }
        Name::Authority => split_authority(bytes).is_some_and(|authority| !authority.host.is_empty()),
        Name::Te => bytes == b"trailers",
        Name::ContentLength => !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit),
        _ => bytes.is_ascii(),
    };
    match (good, name) {
        (true, _) => Value::Good,
        (false, Name::Te | Name::ContentLength)
            if bytes.iter().all(|&byte| byte >= 0x20 && byte != 0x7f || byte == b'\t') =>
        {
            Value::Wrong
        }
        (false, _) => Value::Bad,
    }
}

/// The length that a list has alone, if the decoder can read a number that is as long as the list.
fn repeated_length(bytes: &[u8]) -> Option<u64> {
    /// The decoder reads no longer numbers.
    const DIGITS_MAX: usize = 19;
    if bytes.len() > DIGITS_MAX || !bytes.contains(&b',') {
        return None;
    }
    let mut lengths = bytes.split(|&byte| byte == b',').map(|length| {
        let length = crate::bytes::trim(length);
        let digits = length.iter().all(u8::is_ascii_digit);
        std::str::from_utf8(length).ok().filter(|_| digits)?.parse::<u64>().ok()
    });
    let first = lengths.next()??;
    lengths.all(|other| other == Some(first)).then_some(first)
}

/// What has been read of a block.
#[derive(Default)]
struct Request {
    block: Block,
    trailers: bool,
    /// A bit for each pseudo-header field.
    pseudo: u8,
    regular: bool,
    connect: bool,
}

impl Request {
    fn take(&mut self, name: Name, value: &Value, size: usize) {
        self.block.fields += 1;
        self.block.size += size;
        let misplaced = if name.is_pseudo() {
            let bit = 1 << name as u8;
            let twice = self.pseudo & bit != 0;
            self.pseudo |= bit;
            twice || self.regular || self.trailers
        } else {
            self.regular = true;
            false
        };
        self.connect |= *value == Value::Connect;
        if let Value::Path(path) = value {
            self.block.path = Some(path.clone());
        }
        self.block.malformed |=
            misplaced || matches!(name, Name::Forbidden | Name::Bad) || matches!(value, Value::Wrong | Value::Bad);
    }
    /// Checks that the required pseudo-header fields are there (RFC 9113 sections 8.3.1 and 8.5).
    fn end(mut self) -> Block {
        let has = |name: Name| self.pseudo & 1 << name as u8 != 0;
        let tunnel = self.connect && !has(Name::Protocol);
        let whole = has(Name::Method)
            && has(Name::Scheme) != tunnel
            && has(Name::Path) != tunnel
            && (self.connect || !has(Name::Protocol));
        self.block.malformed |= !self.trailers && !whole;
        self.block
    }
}

#[cfg(test)]
mod tests;
