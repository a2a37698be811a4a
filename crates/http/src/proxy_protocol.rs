//! The PROXY protocol, versions 1 and 2: who the client is, said by the proxy before us.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The longest version 1 line, CRLF included.
pub const V1_BYTES_MAX: usize = 107;
/// The twelve bytes a version 2 header starts with.
pub const V2_SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// The longest version 2 header taken: addresses and TLVs of any sane size. (The length field could say 65551.)
pub const V2_BYTES_MAX: usize = 16 + 4096;

/// What a header says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Source and destination; `None` for `LOCAL` and `UNKNOWN`, where the connection's own addresses hold.
    pub addresses: Option<(SocketAddr, SocketAddr)>,
    /// Whether the proxy speaks for itself (health checks): version 2's `LOCAL`.
    pub local: bool,
    /// The TLVs of version 2.
    pub tlvs: Tlvs,
}

/// The TLVs of a header, in order and as they are sent, so that many small ones take no more memory than they did on the way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tlvs {
    bytes: Vec<u8>,
    /// Where the value of a checksum is, which is computed when the header is written.
    checksum: Option<usize>,
}

impl Tlvs {
    /// Type and value of each.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &[u8])> {
        records(&self.bytes).filter_map(Result::ok)
    }

    /// The first value of a type.
    pub fn first(&self, kind: u8) -> Option<&[u8]> {
        self.iter().find(|found| found.0 == kind).map(|(_, value)| value)
    }

    /// Appends one.
    ///
    /// # Errors
    /// [`Error::Length`] when the value does not fit in its length field.
    pub fn push(&mut self, kind: u8, value: &[u8]) -> Result<(), Error> {
        write_record(kind, value, &mut self.bytes)
    }

    /// Appends a CRC-32C, which [`write_v2`] computes.
    pub fn push_checksum(&mut self) {
        self.checksum = Some(self.bytes.len() + 3);
        self.bytes.extend_from_slice(&[CRC32C, 0, 4, 0, 0, 0, 0]);
    }
}

/// What `PP2_TYPE_SSL` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ssl {
    /// Bits: 1 over TLS, 2 a certificate in this connection, 4 a certificate in this session.
    pub client: u8,
    /// 0 when the client's certificate was verified.
    pub verify: u32,
    /// `PP2_SUBTYPE_SSL_VERSION`
    pub version: Option<Vec<u8>>,
    /// `PP2_SUBTYPE_SSL_CN`
    pub common_name: Option<Vec<u8>>,
    /// `PP2_SUBTYPE_SSL_CIPHER`
    pub cipher: Option<Vec<u8>>,
    /// `PP2_SUBTYPE_SSL_SIG_ALG`
    pub sig_alg: Option<Vec<u8>>,
    /// `PP2_SUBTYPE_SSL_KEY_ALG`
    pub key_alg: Option<Vec<u8>>,
}

impl Ssl {
    /// Reads the value of a `PP2_TYPE_SSL`.
    ///
    /// # Errors
    /// If it is too short, or a part of it runs past its end.
    pub fn parse(value: &[u8]) -> Result<Ssl, Error> {
        let &[client, a, b, c, d, ref rest @ ..] = value else { return Err(Error::Tlv) };
        let mut ssl = Ssl { client, verify: u32::from_be_bytes([a, b, c, d]), ..Ssl::default() };
        for record in records(rest) {
            let (kind, value) = record?;
            let slot = match kind {
                SSL_VERSION => &mut ssl.version,
                SSL_CN => &mut ssl.common_name,
                SSL_CIPHER => &mut ssl.cipher,
                SSL_SIG_ALG => &mut ssl.sig_alg,
                SSL_KEY_ALG => &mut ssl.key_alg,
                _ => continue,
            };
            *slot = Some(value.to_vec());
        }
        Ok(ssl)
    }

    /// The value of a `PP2_TYPE_SSL`.
    ///
    /// # Errors
    /// [`Error::Length`] when a part does not fit in its length field.
    pub fn to_value(&self) -> Result<Vec<u8>, Error> {
        let mut value = vec![self.client];
        value.extend_from_slice(&self.verify.to_be_bytes());
        let parts = [
            (SSL_VERSION, &self.version),
            (SSL_CN, &self.common_name),
            (SSL_KEY_ALG, &self.key_alg),
            (SSL_SIG_ALG, &self.sig_alg),
            (SSL_CIPHER, &self.cipher),
        ];
        for (kind, part) in parts {
            if let Some(part) = part {
                write_record(kind, part, &mut value)?;
            }
        }
        Ok(value)
    }
}

/// How far a parse came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parse {
    /// Valid so far, but incomplete; call again with the same bytes and those that follow.
    Partial,
    /// The header, and how many bytes it took.
    Complete(Box<Header>, usize),
}

/// Why a header is refused. The connection is closed without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Neither version's first bytes.
    Signature,
    /// A malformed version 1 line.
    Line,
    /// A version or a command that the specification does not have, or a family other than TCP over IPv4 and IPv6: of another
    /// HAProxy takes nothing either.
    Command,
    /// A length too small for its family, or larger than [`V2_BYTES_MAX`].
    Length,
    /// A TLV that runs past its end, or one of a wrong size.
    Tlv,
    /// A checksum that does not match.
    Checksum,
}

impl std::fmt::Display for Error {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Error::Signature => "not a PROXY header",
            Error::Line => "malformed PROXY line",
            Error::Command => "unknown PROXY version, command or family",
            Error::Length => "PROXY header of an impossible length",
            Error::Tlv => "malformed PROXY TLV",
            Error::Checksum => "PROXY header with a wrong checksum",
        })
    }
}

impl std::error::Error for Error {}

/// Family and transport of version 2.
const TCP4: u8 = 0x11;
const TCP6: u8 = 0x21;

/// `PP2_TYPE_ALPN`
pub const ALPN: u8 = 0x01;
/// `PP2_TYPE_AUTHORITY`: the name the client asked for, as in SNI.
pub const AUTHORITY: u8 = 0x02;
/// `PP2_TYPE_UNIQUE_ID`, at most 128 bytes.
pub const UNIQUE_ID: u8 = 0x05;
/// `PP2_TYPE_SSL`, see [`Ssl`].
pub const SSL: u8 = 0x20;
/// The type of the field that names a network namespace.
pub const NETNS: u8 = 0x30;
const CRC32C: u8 = 0x03;
const NOOP: u8 = 0x04;
const SSL_VERSION: u8 = 0x21;
const SSL_CN: u8 = 0x22;
const SSL_CIPHER: u8 = 0x23;
const SSL_SIG_ALG: u8 = 0x24;
const SSL_KEY_ALG: u8 = 0x25;

/// The longest value of a TLV that is taken, HAProxy's.
const VALUE_BYTES_MAX: usize = 1024;

/// The types as HAProxy's configuration language names them, in `fc_pp_tlv`.
pub const NAMES: &[(&str, u8)] = &[
    ("ALPN", ALPN),
    ("AUTHORITY", AUTHORITY),
    ("CRC32C", CRC32C),
    ("NETNS", 0x30),
    ("NOOP", NOOP),
    ("SSL", SSL),
    ("SSL_CIPHER", SSL_CIPHER),
    ("SSL_CN", SSL_CN),
    ("SSL_KEY_ALG", SSL_KEY_ALG),
    ("SSL_SIG_ALG", SSL_SIG_ALG),
    ("SSL_VERSION", SSL_VERSION),
    ("UNIQUE_ID", UNIQUE_ID),
];

/// Reads a header of either version from the start of `input`.
///
/// # Errors
/// At the first byte that neither version has at its place.
pub fn parse(input: &[u8]) -> Result<Parse, Error> {
    let starts = |signature: &[u8]| {
        let len = input.len().min(signature.len());
        input[..len] == signature[..len]
    };
    if starts(&V2_SIGNATURE) {
        parse_v2(input)
    } else if starts(b"PROXY ") {
        parse_v1(input)
    } else {
        Err(Error::Signature)
    }
}

fn parse_v1(input: &[u8]) -> Result<Parse, Error> {
    let window = &input[..input.len().min(V1_BYTES_MAX)];
    let Some(end) = memchr::memchr(b'\n', window) else {
        return if window.len() == V1_BYTES_MAX { Err(Error::Line) } else { Ok(Parse::Partial) };
    };
    let line = window[..end].strip_suffix(b"\r").ok_or(Error::Line)?;
    let line = std::str::from_utf8(line).map_err(|_| Error::Line)?;
    let mut words = line.split(' ');
    let (Some("PROXY"), Some(family)) = (words.next(), words.next()) else { return Err(Error::Line) };
    let mut header = Header::default();
    if family != "UNKNOWN" {
        let rest = [words.next(), words.next(), words.next(), words.next()];
        let ([Some(source), Some(destination), Some(from), Some(to)], None) = (rest, words.next()) else {
            return Err(Error::Line);
        };
        let address = |word: &str| -> Result<IpAddr, Error> {
            let address: IpAddr = word.parse().map_err(|_| Error::Line)?;
            match family {
                "TCP4" if address.is_ipv4() => Ok(address),
                "TCP6" if address.is_ipv6() => Ok(address),
                _ => Err(Error::Line),
            }
        };
        header.addresses = Some((
            SocketAddr::new(address(source)?, v1_port(from)?),
            SocketAddr::new(address(destination)?, v1_port(to)?),
        ));
    }
    Ok(Parse::Complete(Box::new(header), end + 1))
}

fn v1_port(word: &str) -> Result<u16, Error> {
    if word.is_empty() || !word.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Error::Line);
    }
    word.parse().map_err(|_| Error::Line)
}

fn parse_v2(input: &[u8]) -> Result<Parse, Error> {
    // What is here is checked at once, so that a wrong header does not wait for its announced length.
    match input.get(12) {
        None => return Ok(Parse::Partial),
        Some(0x20 | 0x21) => {}
        Some(_) => return Err(Error::Command),
    }
    let Some(fixed) = input.first_chunk::<16>() else { return Ok(Parse::Partial) };
    let len = 16 + usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if len > V2_BYTES_MAX {
        return Err(Error::Length);
    }
    // LOCAL says nothing of the client, whatever its family (specification section 2.2).
    let local = fixed[12] == 0x20;
    let address_len = match fixed[13] {
        _ if local => 0,
        TCP4 => 12,
        TCP6 => 36,
        _ => return Err(Error::Command),
    };
    if len < 16 + address_len {
        return Err(Error::Length);
    }
    let Some(whole) = input.get(..len) else { return Ok(Parse::Partial) };
    let mut header = Header { local, ..Header::default() };
    if !local {
        let (addresses, tlvs) = whole[16..].split_at(address_len);
        header.addresses = Some(match fixed[13] {
            TCP4 => inet::<4>(addresses, |bytes| Ipv4Addr::from(bytes).into()),
            _ => inet::<16>(addresses, |bytes| Ipv6Addr::from(bytes).into()),
        });
        header.tlvs = read_tlvs(whole, len - tlvs.len())?;
    }
    Ok(Parse::Complete(Box::new(header), len))
}

/// Two addresses, then two ports.
fn inet<const N: usize>(bytes: &[u8], ip: impl Fn([u8; N]) -> IpAddr) -> (SocketAddr, SocketAddr) {
    let at = |start: usize| -> [u8; N] {
        bytes[start..start + N].try_into().expect("the caller gives two addresses and two ports")
    };
    let port = |start: usize| u16::from_be_bytes([bytes[start], bytes[start + 1]]);
    (SocketAddr::new(ip(at(0)), port(2 * N)), SocketAddr::new(ip(at(N)), port(2 * N + 2)))
}

/// Splits `type, length, value` records.
fn records(mut bytes: &[u8]) -> impl Iterator<Item = Result<(u8, &[u8]), Error>> {
    std::iter::from_fn(move || {
        let &[kind, high, low, ref rest @ ..] = bytes else {
            return if std::mem::take(&mut bytes).is_empty() { None } else { Some(Err(Error::Tlv)) };
        };
        let len = usize::from(u16::from_be_bytes([high, low]));
        let Some((value, rest)) = rest.split_at_checked(len) else {
            bytes = &[];
            return Some(Err(Error::Tlv));
        };
        bytes = rest;
        Some(Ok((kind, value)))
    })
}

fn read_tlvs(whole: &[u8], start: usize) -> Result<Tlvs, Error> {
    let mut tlvs = Tlvs::default();
    let mut end = start;
    for record in records(&whole[start..]) {
        let (kind, value) = record?;
        end += 3 + value.len();
        match kind {
            CRC32C => {
                let stated: [u8; 4] = value.try_into().map_err(|_| Error::Tlv)?;
                if crc32c_with_zeroed(whole, end - 4) != u32::from_be_bytes(stated) {
                    return Err(Error::Checksum);
                }
                tlvs.checksum = Some(tlvs.bytes.len() + 3);
            }
            AUTHORITY if value.len() > 255 => return Err(Error::Tlv),
            UNIQUE_ID if value.len() > 128 => return Err(Error::Tlv),
            _ if value.len() > VALUE_BYTES_MAX => return Err(Error::Tlv),
            SSL => drop(Ssl::parse(value)?),
            _ => {}
        }
        tlvs.push(kind, value)?;
    }
    Ok(tlvs)
}

/// Appends a version 1 line; `UNKNOWN` when there are no addresses or they are of two families.
pub fn write_v1(addresses: Option<(SocketAddr, SocketAddr)>, out: &mut Vec<u8>) {
    let line = match addresses {
        Some((from, to)) if from.is_ipv4() == to.is_ipv4() => {
            let family = if from.is_ipv4() { 4 } else { 6 };
            format!("PROXY TCP{family} {} {} {} {}\r\n", from.ip(), to.ip(), from.port(), to.port())
        }
        _ => "PROXY UNKNOWN\r\n".to_owned(),
    };
    out.extend_from_slice(line.as_bytes());
}

/// Appends a version 2 header.
///
/// An IPv4 address beside an IPv6 one is written mapped. Without addresses it is `LOCAL`, as in HAProxy.
///
/// # Errors
/// [`Error::Length`] when the TLVs do not fit in the length field.
pub fn write_v2(header: &Header, out: &mut Vec<u8>) -> Result<(), Error> {
    let start = out.len();
    out.extend_from_slice(&V2_SIGNATURE);
    match header.addresses.filter(|_| !header.local) {
        None => out.extend_from_slice(&[0x20, 0, 0, 0]),
        Some((SocketAddr::V4(from), SocketAddr::V4(to))) => {
            out.extend_from_slice(&[0x21, TCP4, 0, 0]);
            out.extend_from_slice(&from.ip().octets());
            out.extend_from_slice(&to.ip().octets());
            out.extend_from_slice(&from.port().to_be_bytes());
            out.extend_from_slice(&to.port().to_be_bytes());
        }
        Some((from, to)) => {
            out.extend_from_slice(&[0x21, TCP6, 0, 0]);
            out.extend_from_slice(&mapped(from.ip()));
            out.extend_from_slice(&mapped(to.ip()));
            out.extend_from_slice(&from.port().to_be_bytes());
            out.extend_from_slice(&to.port().to_be_bytes());
        }
    }
    let tlvs_at = out.len();
    out.extend_from_slice(&header.tlvs.bytes);
    let len = u16::try_from(out.len() - start - 16).map_err(|_| Error::Length)?;
    out[start + 14..start + 16].copy_from_slice(&len.to_be_bytes());
    if let Some(sum_at) = header.tlvs.checksum.map(|at| tlvs_at + at) {
        let sum = crc32c_with_zeroed(&out[start..], sum_at - start);
        out[sum_at..sum_at + 4].copy_from_slice(&sum.to_be_bytes());
    }
    Ok(())
}

fn mapped(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

fn write_record(kind: u8, value: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    let len = u16::try_from(value.len()).map_err(|_| Error::Length)?;
    out.push(kind);
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(value);
    Ok(())
}

/// CRC-32C of a header whose own checksum, at `at`, counts as zero. Public data: table look-ups are fine.
fn crc32c_with_zeroed(header: &[u8], at: usize) -> u32 {
    let step = |crc: u32, byte: u8| CRC32C_TABLE[usize::from(crc as u8 ^ byte)] ^ (crc >> 8);
    let crc = header[..at].iter().fold(!0, |crc, &byte| step(crc, byte));
    let crc = [0; 4].iter().fold(crc, |crc, &byte| step(crc, byte));
    !header[at + 4..].iter().fold(crc, |crc, &byte| step(crc, byte))
}

/// The reflected Castagnoli polynomial, a byte at a time.
const CRC32C_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let mut crc = at as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { 0x82f6_3b78 ^ (crc >> 1) } else { crc >> 1 };
            bit += 1;
        }
        table[at] = crc;
        at += 1;
    }
    table
};
