//! The ClientHello parser: bytes in, the client's offer out.
//!
//! This is what `req.ssl_sni` and similar fetches look at, and what the TLS acceptor uses to choose a configuration
//! before the TLS library has seen a byte. It reads the message through any number of records (RFC 8446, section 5.1
//! permits fragmented handshake messages), allocates only if there is more than one, and is bounded in bytes and in
//! records.

use std::{borrow::Cow, fmt, ops::Range};

/// The longest handshake message accepted; even the largest real ones (with hybrid key shares, or a ticket that
/// contains a client certificate chain) stay far below.
pub const MAX_MESSAGE: usize = 16 * 1024;

/// Most records that one ClientHello may be spread over. Most clients use one or two; some send one byte per record, to
/// evade filters that only look at the first.
pub const MAX_RECORDS: usize = 2048;

/// The longest prefix of a connection that [`ClientHello::read`] ever needs: a caller that buffers this many bytes can
/// always decide.
pub const MAX_INPUT: usize = MAX_MESSAGE + 5 * MAX_RECORDS;

/// Why the bytes are not a ClientHello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelloError {
    /// The first byte is not that of a handshake record; it is probably another protocol.
    NotTls,
    /// A record of another type, or of an impossible length, came before the message was complete.
    BadRecord,
    /// A handshake message, but not a ClientHello.
    NotClientHello,
    /// Longer than [`MAX_MESSAGE`] or spread over more than [`MAX_RECORDS`].
    TooLong,
    /// A length inside the message is wrong, in the named field.
    Malformed(&'static str),
}

impl fmt::Display for HelloError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HelloError::NotTls => f.write_str("not a TLS handshake"),
            HelloError::BadRecord => f.write_str("a record that cannot belong to a ClientHello"),
            HelloError::NotClientHello => f.write_str("a handshake message other than a ClientHello"),
            HelloError::TooLong => f.write_str("a ClientHello past the limit"),
            HelloError::Malformed(field) => write!(f, "a ClientHello with a malformed {field}"),
        }
    }
}

impl std::error::Error for HelloError {}

/// Extension numbers (IANA "TLS ExtensionType Values").
pub mod extension {
    #![allow(missing_docs)]
    pub const SERVER_NAME: u16 = 0;
    pub const STATUS_REQUEST: u16 = 5;
    pub const SUPPORTED_GROUPS: u16 = 10;
    pub const EC_POINT_FORMATS: u16 = 11;
    pub const SIGNATURE_ALGORITHMS: u16 = 13;
    pub const ALPN: u16 = 16;
    pub const EXTENDED_MASTER_SECRET: u16 = 23;
    pub const SESSION_TICKET: u16 = 35;
    pub const PRE_SHARED_KEY: u16 = 41;
    pub const EARLY_DATA: u16 = 42;
    pub const SUPPORTED_VERSIONS: u16 = 43;
    pub const SIGNATURE_ALGORITHMS_CERT: u16 = 50;
    pub const KEY_SHARE: u16 = 51;
}

/// A client's offer. Ranges refer to the message; nothing is interpreted before it is asked for.
#[derive(Clone, Debug)]
pub struct ClientHello<'a> {
    message: Cow<'a, [u8]>,
    random: Range<usize>,
    session_id: Range<usize>,
    cipher_suites: Range<usize>,
    extensions: Range<usize>,
    sni: Option<Range<usize>>,
    /// How many bytes of input carried the message: whole records, as far as they have arrived.
    pub consumed: usize,
    /// The version field of the first record.
    pub record_version: u16,
    /// `legacy_version`; TLS 1.3 clients send 0x0303.
    pub legacy_version: u16,
}

impl<'a> ClientHello<'a> {
    /// Parses a ClientHello from the start of a connection. `Ok(None)` if it is valid so far, but incomplete.
    ///
    /// # Errors
    ///
    /// As soon as the bytes can no longer become a ClientHello within the limits.
    pub fn read(input: &'a [u8]) -> Result<Option<Self>, HelloError> {
        let Some((message, consumed)) = reassemble(input)? else { return Ok(None) };
        let mut hello = Self::parse(message)?;
        hello.consumed = consumed;
        hello.record_version = u16::from_be_bytes([input[1], input[2]]);
        Ok(Some(hello))
    }

    /// Parses the handshake message itself: its type byte, its length and its body.
    fn parse(message: Cow<'a, [u8]>) -> Result<Self, HelloError> {
        let mut at = Cursor { bytes: &message, pos: 4, end: message.len() };
        let legacy_version = at.u16("version")?;
        let random = at.take(32, "random")?;
        let session_id = at.vec8("session id")?;
        if session_id.len() > 32 {
            return Err(HelloError::Malformed("session id"));
        }
        let cipher_suites = at.vec16("list of cipher suites")?;
        if cipher_suites.is_empty() || cipher_suites.len() % 2 != 0 {
            return Err(HelloError::Malformed("list of cipher suites"));
        }
        at.vec8("list of compression methods")?;
        // A TLS 1.2 hello may end here; anything that follows must be the single list of extensions.
        let extensions = if at.pos == at.end { at.end..at.end } else { at.vec16("list of extensions")? };
        if at.pos != at.end {
            return Err(HelloError::Malformed("end"));
        }
        let mut sni = None;
        let mut walk = Cursor { bytes: &message, pos: extensions.start, end: extensions.end };
        while walk.pos != walk.end {
            let kind = walk.u16("extension")?;
            let body = walk.vec16("extension")?;
            if kind == extension::SERVER_NAME && sni.is_none() {
                sni = host_name(&message, body)?;
            }
        }
        Ok(ClientHello {
            random,
            session_id,
            cipher_suites,
            extensions,
            sni,
            consumed: 0,
            record_version: 0,
            legacy_version,
            message,
        })
    }

    /// The 32 random bytes.
    pub fn random(&self) -> &[u8] {
        &self.message[self.random.clone()]
    }
    /// `legacy_session_id`.
    pub fn session_id(&self) -> &[u8] {
        &self.message[self.session_id.clone()]
    }
    /// The suites in the client's order, including GREASE.
    pub fn cipher_suites(&self) -> impl Iterator<Item = u16> + '_ {
        pairs(&self.message[self.cipher_suites.clone()])
    }
    /// The suites as encoded in the message, two bytes each.
    pub fn cipher_suites_bytes(&self) -> &[u8] {
        &self.message[self.cipher_suites.clone()]
    }
    /// The host name of `server_name`, as sent (not lower-cased, not checked to be a DNS name).
    pub fn sni(&self) -> Option<&[u8]> {
        self.sni.clone().map(|range| &self.message[range])
    }
    /// All extensions in order, as number and body.
    pub fn extensions(&self) -> impl Iterator<Item = (u16, &[u8])> + '_ {
        let mut rest = &self.message[self.extensions.clone()];
        std::iter::from_fn(move || {
            let kind = u16::from_be_bytes([*rest.first()?, *rest.get(1)?]);
            let len = usize::from(u16::from_be_bytes([*rest.get(2)?, *rest.get(3)?]));
            let body = rest.get(4..4 + len)?;
            rest = &rest[4 + len..];
            Some((kind, body))
        })
    }
    /// The body of the first extension of this number.
    pub fn extension(&self, number: u16) -> Option<&[u8]> {
        self.extensions().find(|(kind, _)| *kind == number).map(|(_, body)| body)
    }
    /// The protocols of ALPN, in the client's order. Stops at a malformed entry.
    pub fn alpn(&self) -> impl Iterator<Item = &[u8]> + '_ {
        let mut rest = self.extension(extension::ALPN).and_then(|body| body.get(2..)).unwrap_or_default();
        std::iter::from_fn(move || {
            let len = usize::from(*rest.first()?);
            let name = rest.get(1..=len)?;
            rest = &rest[1 + len..];
            (!name.is_empty()).then_some(name)
        })
    }
    /// The versions of `supported_versions`; empty if there is no such extension.
    pub fn supported_versions(&self) -> impl Iterator<Item = u16> + '_ {
        pairs(self.extension(extension::SUPPORTED_VERSIONS).and_then(|body| body.get(1..)).unwrap_or_default())
    }
    /// Whether the client accepts this protocol version, according to `supported_versions` or else `legacy_version`.
    pub fn supports_version(&self, version: u16) -> bool {
        if self.extension(extension::SUPPORTED_VERSIONS).is_some() {
            self.supported_versions().any(|v| v == version)
        } else {
            self.legacy_version >= version && version < 0x0304
        }
    }
    /// The groups of `supported_groups`.
    pub fn groups(&self) -> impl Iterator<Item = u16> + '_ {
        pairs(self.extension(extension::SUPPORTED_GROUPS).and_then(|body| body.get(2..)).unwrap_or_default())
    }
    /// The schemes of `signature_algorithms`.
    pub fn signature_algorithms(&self) -> impl Iterator<Item = u16> + '_ {
        pairs(self.extension(extension::SIGNATURE_ALGORITHMS).and_then(|body| body.get(2..)).unwrap_or_default())
    }
    /// The groups for which the client sent a key share.
    pub fn key_shares(&self) -> impl Iterator<Item = u16> + '_ {
        let mut rest = self.extension(extension::KEY_SHARE).and_then(|body| body.get(2..)).unwrap_or_default();
        std::iter::from_fn(move || {
            let group = u16::from_be_bytes([*rest.first()?, *rest.get(1)?]);
            let len = usize::from(u16::from_be_bytes([*rest.get(2)?, *rest.get(3)?]));
            rest = rest.get(4 + len..)?;
            Some(group)
        })
    }
    /// Whether the client presents a TLS 1.2 session ticket (the extension is there and not empty).
    pub fn has_session_ticket(&self) -> bool {
        self.extension(extension::SESSION_TICKET).is_some_and(|body| !body.is_empty())
    }
    /// Whether the client presents a TLS 1.3 pre-shared key (ticket).
    pub fn has_pre_shared_key(&self) -> bool {
        self.extension(extension::PRE_SHARED_KEY).is_some()
    }
    /// Whether the client announces 0-RTT data.
    pub fn has_early_data(&self) -> bool {
        self.extension(extension::EARLY_DATA).is_some()
    }
    /// Whether the client asks for a stapled OCSP response.
    pub fn wants_ocsp(&self) -> bool {
        self.extension(extension::STATUS_REQUEST).is_some()
    }
    /// The handshake message: type, length and body.
    pub fn message(&self) -> &[u8] {
        &self.message
    }
}

/// A message, and how many bytes of input it took.
type Reassembled<'a> = (Cow<'a, [u8]>, usize);

/// Joins the first handshake message from its records.
fn reassemble(input: &[u8]) -> Result<Option<Reassembled<'_>>, HelloError> {
    let Some((&kind, _)) = input.split_first() else { return Ok(None) };
    if kind != RECORD_HANDSHAKE {
        return Err(HelloError::NotTls);
    }
    let mut joined: Vec<u8> = Vec::new();
    let mut rest = input;
    for _ in 0..MAX_RECORDS {
        let Some(fragment) = record(rest, joined.is_empty())? else { return Ok(None) };
        let consumed = (input.len() - rest.len() + 5 + fragment.len).min(input.len());
        // The type and the length are checked as soon as they have arrived, before waiting for a body that cannot fit.
        let byte = |at: usize| joined.get(at).or_else(|| fragment.bytes.get(at.checked_sub(joined.len())?)).copied();
        if byte(0).is_some_and(|kind| kind != HANDSHAKE_CLIENT_HELLO) {
            return Err(HelloError::NotClientHello);
        }
        if let [Some(high), Some(middle), Some(low)] = [byte(1), byte(2), byte(3)] {
            let len = 4 + (usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low));
            if len > MAX_MESSAGE {
                return Err(HelloError::TooLong);
            }
            if let Some(here) = fragment.bytes.get(..len.saturating_sub(joined.len())) {
                let message = if joined.is_empty() {
                    Cow::Borrowed(here)
                } else {
                    joined.extend_from_slice(here);
                    Cow::Owned(joined)
                };
                return Ok(Some((message, consumed)));
            }
        }
        if fragment.bytes.len() < fragment.len {
            return Ok(None);
        }
        joined.extend_from_slice(fragment.bytes);
        rest = &rest[5 + fragment.len..];
    }
    Err(HelloError::TooLong)
}

const RECORD_HANDSHAKE: u8 = 22;
const HANDSHAKE_CLIENT_HELLO: u8 = 1;
/// RFC 8446, section 5.2: 2^14 bytes of plaintext; HAProxy and OpenSSL accept 2048 more.
const RECORD_MAX: usize = (1 << 14) + 2048;

/// One record: its announced length, and as much of its fragment as has arrived.
struct Fragment<'a> {
    len: usize,
    bytes: &'a [u8],
}

fn record(rest: &[u8], first: bool) -> Result<Option<Fragment<'_>>, HelloError> {
    // Each byte is checked as soon as it has arrived, so that no time is spent waiting for another protocol.
    let bad = if first { HelloError::NotTls } else { HelloError::BadRecord };
    if rest.first().is_some_and(|&kind| kind != RECORD_HANDSHAKE) || rest.get(1).is_some_and(|&major| major != 3) {
        return Err(bad);
    }
    let Some(header) = rest.get(..5) else { return Ok(None) };
    let len = usize::from(u16::from_be_bytes([header[3], header[4]]));
    if len == 0 || len > RECORD_MAX {
        return Err(HelloError::BadRecord);
    }
    Ok(Some(Fragment { len, bytes: &rest[5..rest.len().min(5 + len)] }))
}

/// RFC 6066, section 3: a list of names, of which type 0 is the host name.
fn host_name(message: &[u8], body: Range<usize>) -> Result<Option<Range<usize>>, HelloError> {
    if body.is_empty() {
        return Ok(None);
    }
    let mut at = Cursor { bytes: message, pos: body.start, end: body.end };
    let list = at.vec16("server name")?;
    let mut names = Cursor { bytes: message, pos: list.start, end: list.end };
    while names.pos != names.end {
        let kind = names.take(1, "server name")?;
        let name = names.vec16("server name")?;
        if message[kind.start] == 0 {
            return Ok((!name.is_empty()).then_some(name));
        }
    }
    Ok(None)
}

fn pairs(bytes: &[u8]) -> impl Iterator<Item = u16> + '_ {
    bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
}

/// A position in the message that never passes `end`.
struct Cursor<'a> {
    bytes: &'a [u8],
    pos: usize,
    end: usize,
}

impl Cursor<'_> {
    fn take(&mut self, len: usize, field: &'static str) -> Result<Range<usize>, HelloError> {
        if self.end - self.pos < len {
            return Err(HelloError::Malformed(field));
        }
        self.pos += len;
        Ok(self.pos - len..self.pos)
    }
    fn u16(&mut self, field: &'static str) -> Result<u16, HelloError> {
        let at = self.take(2, field)?;
        Ok(u16::from_be_bytes([self.bytes[at.start], self.bytes[at.start + 1]]))
    }
    fn vec8(&mut self, field: &'static str) -> Result<Range<usize>, HelloError> {
        let at = self.take(1, field)?;
        self.take(usize::from(self.bytes[at.start]), field)
    }
    fn vec16(&mut self, field: &'static str) -> Result<Range<usize>, HelloError> {
        let len = self.u16(field)?;
        self.take(usize::from(len), field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn vec16(body: &[u8]) -> Vec<u8> {
        [&(body.len() as u16).to_be_bytes()[..], body].concat()
    }

    fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &vec16(body)].concat()
    }

    fn message(extensions: &[u8]) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.push(0);
        body.extend(vec16(&[0x13, 0x01, 0xc0, 0x2f]));
        body.extend([1, 0]);
        body.extend(vec16(extensions));
        let mut message = vec![1, 0];
        message.extend(vec16(&body));
        message
    }

    fn sample() -> Vec<u8> {
        let name = [&[0][..], &vec16(b"www.Example.com")].concat();
        let mut extensions = extension(0, &vec16(&name));
        extensions.extend(extension(16, &vec16(b"\x02h2\x08http/1.1")));
        extensions.extend(extension(43, &[4, 3, 4, 3, 3]));
        extensions.extend(extension(10, &vec16(&[0x11, 0xec, 0, 29])));
        extensions.extend(extension(13, &vec16(&[4, 3, 8, 4])));
        extensions.extend(extension(51, &vec16(&[&[0, 29][..], &vec16(&[9; 32])].concat())));
        extensions.extend(extension(35, b""));
        message(&extensions)
    }

    fn records(message: &[u8], size: usize) -> Vec<u8> {
        message.chunks(size).flat_map(|part| [&[22, 3, 1][..], &vec16(part)].concat()).collect()
    }

    #[test]
    fn reads_every_offer() {
        let bytes = records(&sample(), 9999);
        let hello = ClientHello::read(&bytes).unwrap().unwrap();
        assert_eq!(hello.sni(), Some(&b"www.Example.com"[..]));
        assert_eq!(hello.alpn().collect::<Vec<_>>(), [&b"h2"[..], b"http/1.1"]);
        assert_eq!(hello.supported_versions().collect::<Vec<_>>(), [0x0304, 0x0303]);
        assert!(hello.supports_version(0x0303) && hello.supports_version(0x0304) && !hello.supports_version(0x0302));
        assert_eq!(hello.groups().collect::<Vec<_>>(), [0x11ec, 29]);
        assert_eq!(hello.signature_algorithms().collect::<Vec<_>>(), [0x0403, 0x0804]);
        assert_eq!(hello.key_shares().collect::<Vec<_>>(), [29]);
        assert_eq!(hello.cipher_suites().collect::<Vec<_>>(), [0x1301, 0xc02f]);
        assert!(!hello.has_session_ticket() && !hello.has_pre_shared_key());
        assert_eq!(hello.consumed, bytes.len());
        assert_eq!(hello.record_version, 0x0301);
    }

    #[test]
    fn every_fragmentation_reads_the_same() {
        let message = sample();
        for size in message.len().div_ceil(MAX_RECORDS)..=message.len() {
            let bytes = records(&message, size);
            let hello = ClientHello::read(&bytes).unwrap().expect("the whole message is there");
            assert_eq!(hello.message(), message, "records of {size}");
            assert_eq!(hello.consumed, bytes.len());
        }
    }

    #[test]
    fn every_prefix_is_partial() {
        for size in [5, 100, 9999] {
            let bytes = records(&sample(), size);
            for cut in 0..bytes.len() {
                assert!(ClientHello::read(&bytes[..cut]).unwrap().is_none(), "records of {size} cut at {cut}");
            }
        }
    }

    #[test]
    fn refuses_what_cannot_become_a_hello_at_once() {
        assert_eq!(ClientHello::read(b"GET / HTTP/1.1\r\n").unwrap_err(), HelloError::NotTls);
        assert_eq!(ClientHello::read(&[22, 2]).unwrap_err(), HelloError::NotTls);
        assert_eq!(ClientHello::read(&[22, 3, 1, 0, 0]).unwrap_err(), HelloError::BadRecord);
        assert_eq!(ClientHello::read(&[22, 3, 1, 0, 9, 2]).unwrap_err(), HelloError::NotClientHello);
        assert_eq!(ClientHello::read(&[22, 3, 1, 0, 9, 1, 1, 0, 0]).unwrap_err(), HelloError::TooLong);
        let mut long = vec![1, 0, 0x0b, 0xb8];
        long.resize(4 + 0xbb8, 0);
        let dribble = records(&long, 1);
        assert_eq!(ClientHello::read(&dribble).unwrap_err(), HelloError::TooLong);
    }

    #[test]
    fn a_length_that_does_not_fit_is_named() {
        let mut bytes = records(&sample(), 9999);
        bytes[5 + 4 + 2 + 32] = 33;
        assert_eq!(ClientHello::read(&bytes).unwrap_err(), HelloError::Malformed("session id"));
        let short = records(&message(&[0, 0, 0, 9, 1]), 9999);
        assert_eq!(ClientHello::read(&short).unwrap_err(), HelloError::Malformed("extension"));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(at in 0usize..200, byte: u8, size in 1usize..300, tail in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut bytes = records(&sample(), size);
            bytes.extend(tail);
            let at = at % bytes.len();
            bytes[at] = byte;
            if let Ok(Some(hello)) = ClientHello::read(&bytes) {
                let _ = (hello.sni(), hello.alpn().count(), hello.groups().count(), hello.key_shares().count());
                let _ = (hello.supported_versions().count(), hello.signature_algorithms().count());
            }
        }
    }
}
