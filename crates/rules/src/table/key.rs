//! Keys: their types, and how a sample becomes one.

use crate::value::{Type, Value, v6_to_v4};

/// The type of a table's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyType {
    /// `ip`.
    Ip,
    /// `ipv6`.
    Ipv6,
    /// `integer`.
    Integer,
    /// `string len N`.
    String(usize),
    /// `binary len N`.
    Binary(usize),
}

impl KeyType {
    /// The sample type a key is made from.
    pub fn sample(self) -> Type {
        match self {
            KeyType::Ip => Type::Ipv4,
            KeyType::Ipv6 => Type::Ipv6,
            KeyType::Integer => Type::Int,
            KeyType::String(_) => Type::Str,
            KeyType::Binary(_) => Type::Bin,
        }
    }
    /// The manual's word.
    pub fn name(self) -> &'static str {
        match self {
            KeyType::Ip => "ip",
            KeyType::Ipv6 => "ipv6",
            KeyType::Integer => "integer",
            KeyType::String(_) => "string",
            KeyType::Binary(_) => "binary",
        }
    }

    /// Makes a key of a sample; `None` if the sample does not fit the table.
    pub(super) fn key(self, value: Value<'_>, key: &mut KeyBuffer) -> Option<()> {
        key.len = 0;
        match (self, value) {
            (KeyType::Ip, Value::Ipv4(ip)) => key.push(&ip.octets()),
            (KeyType::Ip, Value::Ipv6(ip)) => key.push(&v6_to_v4(ip)?.octets()),
            (KeyType::Ipv6, Value::Ipv4(ip)) => key.push(&ip.to_ipv6_mapped().octets()),
            (KeyType::Ipv6, Value::Ipv6(ip)) => key.push(&ip.octets()),
            (KeyType::Ip, other) => match other.cast(Type::Ipv4)? {
                Value::Ipv4(ip) => key.push(&ip.octets()),
                _ => return None,
            },
            (KeyType::Ipv6, other) => match other.cast(Type::Ipv6)? {
                Value::Ipv6(ip) => key.push(&ip.octets()),
                _ => return None,
            },
            (KeyType::Integer, other) => key.push(&(other.to_int()? as u32).to_be_bytes()),
            (KeyType::String(max), other) => match other.bytes() {
                // A string ends at a NUL, as in HAProxy's tables.
                Some(text) => {
                    let text = memchr::memchr(0, text).map_or(text, |end| &text[..end]);
                    key.push(&text[..text.len().min(max)]);
                }
                None => {
                    let text = other.to_text();
                    key.push(&text[..text.len().min(max)]);
                }
            },
            (KeyType::Binary(len), other) => {
                let Value::Bin(bytes) = other.cast(Type::Bin)? else { return None };
                key.push(&bytes[..bytes.len().min(len)]);
                key.pad(len);
            }
        }
        Some(())
    }

    /// The same on the heap, to be kept.
    pub(crate) fn kept(self, value: Value<'_>) -> Option<Box<[u8]>> {
        let mut room = KeyBuffer::new();
        self.key(value, &mut room)?;
        Some(room.bytes().into())
    }
}

/// Space for a key without allocating: only strings and blocks longer than 64 bytes go to the heap.
pub(super) struct KeyBuffer {
    short: [u8; 64],
    long: Vec<u8>,
    len: usize,
}

impl KeyBuffer {
    pub fn new() -> Self {
        KeyBuffer { short: [0; 64], long: Vec::new(), len: 0 }
    }
    fn push(&mut self, bytes: &[u8]) {
        self.len = bytes.len();
        match self.short.get_mut(..bytes.len()) {
            Some(room) => room.copy_from_slice(bytes),
            None => self.long = bytes.to_vec(),
        }
    }
    fn pad(&mut self, len: usize) {
        if len <= self.len {
            return;
        }
        if len > self.short.len() {
            if self.long.is_empty() {
                self.long = self.short[..self.len].to_vec();
            }
            self.long.resize(len, 0);
        } else {
            self.short[self.len..len].fill(0);
        }
        self.len = len;
    }
    pub fn bytes(&self) -> &[u8] {
        if self.len <= self.short.len() && self.long.is_empty() { &self.short[..self.len] } else { &self.long }
    }
}
