//! How an alias or a sample is written: quoted, escaped, in hexadecimal.

use crate::value::{Value, hex_of, write_int};
use std::net::{IpAddr, SocketAddr};

/// The flags that `%{...}` sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// `Q`: enclosed in double quotes.
    pub quote: bool,
    /// `E`: `"`, `\` and `]` are escaped with a backslash.
    pub escape: bool,
    /// `X`: addresses and some numbers in hexadecimal.
    pub hexadecimal: bool,
    /// Whether a missing value is written as `-`.
    pub mandatory: bool,
    /// `json` or `cbor`: how the value is encoded.
    pub encoding: Option<Encoding>,
    /// `bin`: a line in CBOR is not written in hexadecimal.
    pub binary: bool,
}

/// How the values of a line are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// As JSON.
    Json,
    /// As CBOR.
    Cbor,
}

impl Flags {
    pub(super) fn quoted(self, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        if self.quote {
            out.push(b'"');
        }
        write(out);
        if self.quote {
            out.push(b'"');
        }
    }

    /// Writes text, quoted and escaped as the flags say; missing text becomes `-` in a log line.
    pub(super) fn text(self, text: Option<&[u8]>, out: &mut Vec<u8>) {
        // As in HAProxy, text ends at a NUL: receivers of log lines may read no further.
        let text = text.map(|text| text.split(|&byte| byte == 0).next().unwrap_or_default());
        self.quoted(out, |out| match text {
            Some(text) if !text.is_empty() && self.escape => {
                for &byte in text {
                    if is_structural(byte) {
                        out.push(b'\\');
                    }
                    out.push(byte);
                }
            }
            Some(text) if !text.is_empty() => out.extend_from_slice(text),
            _ if self.mandatory && !self.quote => out.push(b'-'),
            _ => {}
        });
    }

    pub(super) fn number(self, n: u64, out: &mut Vec<u8>) {
        if self.hexadecimal {
            out.extend_from_slice(format!("{:04X}", n as u32).as_bytes());
        } else {
            write_int(out, n as i64);
        }
    }

    pub(super) fn ip(self, addr: Option<SocketAddr>, without: Option<&str>, out: &mut Vec<u8>) {
        match addr.map(|addr| addr.ip()) {
            Some(IpAddr::V4(ip)) if self.hexadecimal => {
                out.extend_from_slice(&hex_of(&ip.octets()));
            }
            Some(IpAddr::V6(ip)) if self.hexadecimal => {
                out.extend_from_slice(&hex_of(&ip.octets()));
            }
            Some(ip) => self.quoted(out, |out| Value::ip(ip).write_text(out)),
            None => self.text(without.map(str::as_bytes), out),
        }
    }

    pub(super) fn port(self, addr: Option<SocketAddr>, without: Option<u32>, out: &mut Vec<u8>) {
        match addr.map(|addr| u32::from(addr.port())).or(without) {
            Some(port) if self.hexadecimal => out.extend_from_slice(format!("{port:04X}").as_bytes()),
            Some(port) => write_int(out, port.into()),
            None => self.text(None, out),
        }
    }
}

/// What a receiver of structured data takes for punctuation (RFC 5424, 6.3.3).
const fn is_structural(byte: u8) -> bool {
    matches!(byte, b'"' | b'\\' | b']')
}

/// The set of bytes that a log line shows unchanged, without those that are `special`.
pub(super) const fn plain_but(special: &[u8]) -> [bool; 256] {
    let mut plain = [false; 256];
    let mut byte = 0x20;
    while byte < 0x7f {
        plain[byte] = true;
        byte += 1;
    }
    let mut at = 0;
    while at < special.len() {
        plain[special[at] as usize] = false;
        at += 1;
    }
    plain
}

/// Writes bytes that are not `plain`, which could be confused with the log's own punctuation, as `#` and two digits. With
/// the flag `E`, the others are escaped.
pub(super) fn write_escaped(mut text: &[u8], plain: &[bool; 256], flags: Flags, out: &mut Vec<u8>) {
    let is_fine = |byte: &u8| plain[usize::from(*byte)] && !(flags.escape && is_structural(*byte));
    loop {
        let fine = text.iter().position(|byte| !is_fine(byte)).unwrap_or(text.len());
        out.extend_from_slice(&text[..fine]);
        let Some(&byte) = text.get(fine) else { return };
        if plain[usize::from(byte)] {
            out.extend([b'\\', byte]);
        } else {
            out.push(b'#');
            out.extend_from_slice(&hex_of(&[byte]));
        }
        text = &text[fine + 1..];
    }
}
