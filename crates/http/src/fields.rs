//! The fields of a message: one buffer, and an index into it.

use crate::bytes::{is_field_value, lower_token};
use crate::error::Error;

macro_rules! known {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// Fields that the proxy itself looks for in every message. Finding one, or that it is absent, costs no
        /// comparison of strings.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Known {
            $($(#[$doc])* #[doc = concat!("`", $name, "`")] $variant,)*
            /// Any other name.
            Other,
        }

        impl Known {
            /// The variant for a name in lower case.
            pub fn of(lower: &[u8]) -> Known {
                // The compiler switches on the length first.
                $(const $variant: &[u8] = $name.as_bytes();)*
                #[allow(non_upper_case_globals, reason = "patterns named as their variants")]
                match lower {
                    $($variant => Known::$variant,)*
                    _ => Known::Other,
                }
            }

            /// The field's name, in lower case; empty for `Other`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Known::$variant => $name,)*
                    Known::Other => "",
                }
            }
        }
    };
}

#[allow(non_upper_case_globals, reason = "constants named as the variants they stand for")]
mod known {
    known! {
        Te = "te",
        Via = "via",
        Date = "date",
        Etag = "etag",
        Host = "host",
        Vary = "vary",
        Range = "range",
        Accept = "accept",
        Cookie = "cookie",
        Expect = "expect",
        Origin = "origin",
        Server = "server",
        Referer = "referer",
        Trailer = "trailer",
        Upgrade = "upgrade",
        Location = "location",
        Forwarded = "forwarded",
        Connection = "connection",
        KeepAlive = "keep-alive",
        /// Read as `content-length` by servers that make variables of field names.
        ContentLengthTwin = "content_length",
        /// Read as `transfer-encoding` by servers that make variables of field names.
        TransferEncodingTwin = "transfer_encoding",
        SetCookie = "set-cookie",
        UserAgent = "user-agent",
        ContentType = "content-type",
        Authorization = "authorization",
        CacheControl = "cache-control",
        LastModified = "last-modified",
        IfNoneMatch = "if-none-match",
        ContentLength = "content-length",
        Http2Settings = "http2-settings",
        AcceptEncoding = "accept-encoding",
        AcceptLanguage = "accept-language",
        ContentEncoding = "content-encoding",
        IfModifiedSince = "if-modified-since",
        ProxyConnection = "proxy-connection",
        XForwardedFor = "x-forwarded-for",
        XForwardedProto = "x-forwarded-proto",
        SecWebsocketKey = "sec-websocket-key",
        WwwAuthenticate = "www-authenticate",
        TransferEncoding = "transfer-encoding",
        SecWebsocketAccept = "sec-websocket-accept",
        ProxyAuthorization = "proxy-authorization",
    }
}
pub use known::Known;

/// One field line: `name: value CRLF` at `at` in the buffer, the name in lower case.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: u32,
    value_len: u32,
    name_len: u16,
    known: Known,
}

impl Entry {
    fn value_at(&self) -> usize {
        self.at as usize + self.name_len as usize + 2
    }

    /// Just past the CRLF.
    fn end(&self) -> usize {
        self.value_at() + self.value_len as usize + 2
    }
}

/// A field as seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// The name, in lower case.
    pub name: &'a [u8],
    /// The value, without white space at its ends.
    pub value: &'a [u8],
    /// The variant for the name, if it is a field that the proxy knows.
    pub known: Known,
}

/// The fields of one message, in order, each line kept in the form in which it will be sent.
///
/// A change appends a line to the buffer and moves the index: nothing is ever shifted, and lines that still follow each
/// other are written with one copy. Names are kept in lower case, as HAProxy sends them.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    buf: Vec<u8>,
    index: Vec<Entry>,
    /// A bit for each known field that is there.
    present: u64,
}

/// A buffer grown past this by one unusual message is given back before the next.
const KEEP_BYTES: usize = 32 * 1024;

/// What each list of a message that is not needed any more keeps for the next message: most heads fit, and whoever waits long for
/// a server or a reader costs no more.
pub(crate) const KEEP_WAITING: usize = 2048;

/// Forgets what is in `list`, and gives back its memory if that is much: as a whole, so that the next message of its size fits in
/// the same place. Made smaller, it would leave holes that do not.
pub(crate) fn empty<T>(list: &mut Vec<T>) {
    list.clear();
    if list.capacity() * size_of::<T>() > KEEP_WAITING {
        *list = Vec::new();
    }
}

impl Fields {
    /// No fields.
    pub fn new() -> Fields {
        Fields::default()
    }

    /// Forgets every field and keeps the memory.
    pub fn clear(&mut self) {
        self.buf.clear();
        if self.buf.capacity() > KEEP_BYTES {
            self.buf.shrink_to(KEEP_BYTES);
        }
        self.index.clear();
        self.present = 0;
    }

    /// Forgets every field, and keeps no more memory than a few small ones need.
    pub(crate) fn release(&mut self) {
        self.clear();
        empty(&mut self.buf);
        empty(&mut self.index);
    }

    /// Gives back memory that the fields do not use, if it is much.
    pub(crate) fn shrink(&mut self) {
        if self.buf.capacity() - self.buf.len() > KEEP_WAITING {
            self.buf.shrink_to_fit();
        }
    }

    /// How many bytes the fields have room for, and what finds them.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.buf.capacity() + self.index.capacity() * size_of::<Entry>()
    }

    /// Makes room for `lines` more lines, whose names and values are `text` bytes.
    pub fn reserve(&mut self, lines: usize, text: usize) {
        self.index.reserve_exact(lines);
        self.buf.reserve_exact(text + lines * ": \r\n".len());
    }

    /// Number of field lines.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Bytes of all lines as they would be sent.
    pub fn wire_len(&self) -> usize {
        self.index.iter().map(|entry| entry.end() - entry.at as usize).sum()
    }

    /// Bytes of all names and values.
    pub fn text_len(&self) -> usize {
        self.index.iter().map(|entry| entry.name_len as usize + entry.value_len as usize).sum()
    }

    /// The size that the fields count for in logs and statistics (`%B`, `%U`, `bin`, `bout`, `req.len`), with a start line of
    /// `start_line` bytes. HAProxy counts messages in its own form, not as they are on the wire: twenty bytes and the parts of the
    /// start line, names and values (`connection: close` and `keep-alive` are not kept), and one byte for the end.
    pub fn weight(&self, start_line: usize) -> u64 {
        let kept = |value: &[u8]| !(value.eq_ignore_ascii_case(b"close") || value.eq_ignore_ascii_case(b"keep-alive"));
        let dropped = self.all_known(Known::Connection).filter(|value| !kept(value));
        let dropped: usize = dropped.map(|value| Known::Connection.name().len() + value.len()).sum();
        (20 + start_line + self.text_len() - dropped + 1) as u64
    }

    /// All fields in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Field<'_>> + ExactSizeIterator {
        self.index.iter().map(|entry| self.view(entry))
    }

    /// The field at a position in the order.
    pub fn at(&self, position: usize) -> Option<Field<'_>> {
        self.index.get(position).map(|entry| self.view(entry))
    }

    /// Whether a known field is there at all.
    pub fn has(&self, known: Known) -> bool {
        self.present & bit(known) != 0
    }

    /// The value of the first field line of a known name.
    pub fn known(&self, known: Known) -> Option<&[u8]> {
        if !self.has(known) {
            return None;
        }
        self.index.iter().find(|entry| entry.known == known).map(|entry| self.view(entry).value)
    }

    /// The values of all field lines of a known name.
    pub fn all_known(&self, known: Known) -> impl DoubleEndedIterator<Item = &[u8]> {
        let index = if self.has(known) { &self.index[..] } else { &[] };
        index.iter().filter(move |entry| entry.known == known).map(|entry| self.view(entry).value)
    }

    /// The value of the first field line of this name, whatever its case.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.index.iter().find(|entry| self.is_named(entry, name)).map(|entry| self.view(entry).value)
    }

    /// The values of all field lines of this name, whatever its case.
    pub fn get_all<'a>(&'a self, name: &'a [u8]) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        self.index.iter().filter(move |entry| self.is_named(entry, name)).map(|entry| self.view(entry).value)
    }

    /// Adds a field line at the end.
    ///
    /// # Errors
    /// When the name is not a token or the value has a control character: what would split the message is never written.
    pub fn append(&mut self, name: &[u8], value: &[u8]) -> Result<(), Error> {
        let entry = self.write_line(name, value)?;
        self.push(entry);
        Ok(())
    }

    /// Removes every field line of this name; returns how many there were.
    pub fn remove(&mut self, name: &[u8]) -> usize {
        let before = self.index.len();
        let buf = &self.buf;
        self.index.retain(|entry| !name_at(buf, entry).eq_ignore_ascii_case(name));
        let removed = before - self.index.len();
        if removed > 0 {
            self.note_present();
        }
        removed
    }

    /// Removes every field line of a known name; returns how many there were.
    pub fn remove_known(&mut self, known: Known) -> usize {
        if !self.has(known) {
            return 0;
        }
        let before = self.index.len();
        self.index.retain(|entry| entry.known != known);
        self.present &= !bit(known);
        before - self.index.len()
    }

    /// Removes the field lines a predicate names; returns how many there were.
    pub fn remove_if(&mut self, mut unwanted: impl FnMut(Field<'_>) -> bool) -> usize {
        let before = self.index.len();
        let buf = &self.buf;
        self.index.retain(|entry| !unwanted(view(buf, entry)));
        self.note_present();
        before - self.index.len()
    }

    /// Removes every field line of this name, then adds one at the end.
    ///
    /// # Errors
    /// As [`Fields::append`]; nothing is changed then.
    pub fn set(&mut self, name: &[u8], value: &[u8]) -> Result<(), Error> {
        let entry = self.write_line(name, value)?;
        self.remove(name);
        self.push(entry);
        Ok(())
    }

    /// Gives the field line at a position in the order another value.
    ///
    /// # Errors
    /// When the value has a control character; nothing is changed then.
    ///
    /// # Panics
    /// When there is no such position.
    pub fn set_value_at(&mut self, position: usize, value: &[u8]) -> Result<(), Error> {
        if !is_field_value(value) {
            return Err(Error::FieldValue);
        }
        let old = self.index[position];
        let at = self.buf.len();
        let name = old.at as usize..old.at as usize + old.name_len as usize;
        self.buf.extend_from_within(name);
        self.buf.extend_from_slice(b": ");
        self.buf.extend_from_slice(value);
        self.buf.extend_from_slice(b"\r\n");
        self.index[position] = Entry { at: at as u32, value_len: value.len() as u32, ..old };
        Ok(())
    }

    /// Appends all lines as they are sent, without the empty line that ends a head.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        let mut run = 0..0;
        for entry in &self.index {
            if entry.at as usize != run.end {
                out.extend_from_slice(&self.buf[run.clone()]);
                run.start = entry.at as usize;
            }
            run.end = entry.end();
        }
        out.extend_from_slice(&self.buf[run]);
    }

    /// Takes one line of a head as it was received, without its line end.
    pub(crate) fn push_line(&mut self, line: &[u8]) -> Result<(), Error> {
        let at = self.buf.len();
        // Copied whole; only a name in capitals or unusual spacing needs a second touch.
        self.buf.extend_from_slice(line);
        let name_len = lower_token(&mut self.buf[at..]);
        if name_len == 0 && matches!(line.first(), Some(b' ' | b'\t')) {
            return Err(Error::Folded);
        }
        if name_len == 0 || name_len > usize::from(u16::MAX) || line.get(name_len) != Some(&b':') {
            return Err(Error::FieldName);
        }
        let value = &line[name_len + 1..];
        if !is_field_value(value) {
            return Err(if value.contains(&b'\r') { Error::LineEnd } else { Error::FieldValue });
        }
        let value_len = match value {
            [b' ', rest @ ..] if is_trimmed(rest) => rest.len(),
            _ => {
                let value = crate::bytes::trim(value);
                self.buf.truncate(at + name_len);
                self.buf.extend_from_slice(b": ");
                self.buf.extend_from_slice(value);
                value.len()
            }
        };
        self.buf.extend_from_slice(b"\r\n");
        let known = Known::of(&self.buf[at..at + name_len]);
        self.push(Entry { at: at as u32, value_len: value_len as u32, name_len: name_len as u16, known });
        Ok(())
    }

    fn push(&mut self, entry: Entry) {
        self.present |= bit(entry.known);
        self.index.push(entry);
    }

    fn write_line(&mut self, name: &[u8], value: &[u8]) -> Result<Entry, Error> {
        if !crate::bytes::is_token(name) || name.len() > usize::from(u16::MAX) {
            return Err(Error::FieldName);
        }
        if !is_field_value(value) {
            return Err(Error::FieldValue);
        }
        let at = self.buf.len();
        self.buf.extend(name.iter().map(u8::to_ascii_lowercase));
        let known = Known::of(&self.buf[at..]);
        self.buf.extend_from_slice(b": ");
        self.buf.extend_from_slice(value);
        self.buf.extend_from_slice(b"\r\n");
        Ok(Entry { at: at as u32, value_len: value.len() as u32, name_len: name.len() as u16, known })
    }

    fn note_present(&mut self) {
        self.present = self.index.iter().fold(0, |present, entry| present | bit(entry.known));
    }

    fn is_named(&self, entry: &Entry, name: &[u8]) -> bool {
        entry.name_len as usize == name.len() && name_at(&self.buf, entry).eq_ignore_ascii_case(name)
    }

    fn view(&self, entry: &Entry) -> Field<'_> {
        view(&self.buf, entry)
    }
}

fn bit(known: Known) -> u64 {
    1 << (known as u8)
}

fn name_at<'a>(buf: &'a [u8], entry: &Entry) -> &'a [u8] {
    &buf[entry.at as usize..][..entry.name_len as usize]
}

fn view<'a>(buf: &'a [u8], entry: &Entry) -> Field<'a> {
    Field { name: name_at(buf, entry), value: &buf[entry.value_at()..][..entry.value_len as usize], known: entry.known }
}

fn is_trimmed(value: &[u8]) -> bool {
    !matches!(value.first(), Some(b' ' | b'\t')) && !matches!(value.last(), Some(b' ' | b'\t'))
}
