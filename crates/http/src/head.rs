//! What request and response heads have in common: reading lines from a buffer that may not hold them all yet.

use memchr::memchr;

use crate::error::Error;
use crate::limits::Limits;

/// How far a parse came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parse {
    /// The head is not all there.
    Partial,
    /// The head is whole; the body, if any, starts at `consumed`.
    Complete {
        /// Bytes of the input that the head took, empty lines before it included.
        consumed: usize,
    },
}

/// A version of HTTP, as the rules and the logs know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    #[default]
    Http11,
    /// HTTP/2
    Http2,
}

impl Version {
    /// The version as in a start line or a log.
    pub fn as_str(self) -> &'static str {
        match self {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
            Version::Http2 => "HTTP/2.0",
        }
    }

    /// From a start line. A higher minor version is answered as 1.1 (RFC 9110 section 2.5).
    pub(crate) fn parse(bytes: &[u8]) -> Result<Version, Error> {
        match bytes {
            b"HTTP/1.1" => Ok(Version::Http11),
            b"HTTP/1.0" => Ok(Version::Http10),
            [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'2'..=b'9'] => Ok(Version::Http11),
            _ => Err(Error::Version),
        }
    }
}

/// How far the head at the start of a connection's buffer has been read, so that no byte of a slow one is looked at twice. It belongs
/// to the connection that the bytes come from: a head that is read anew, from another connection, starts with another.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    pub(crate) stage: Next,
    pub(crate) lines: Lines,
}

/// What of a head comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Next {
    #[default]
    StartLine,
    Fields,
}

impl Progress {
    /// Whether nothing of a head has been read.
    pub(crate) fn is_new(&self) -> bool {
        self.lines.at == 0
    }

    /// The next head begins afresh, unless there is more to come of this one.
    pub(crate) fn after(&mut self, parsed: &Result<Parse, Error>) {
        if *parsed != Ok(Parse::Partial) {
            *self = Progress::default();
        }
    }
}

/// How far the lines of a head have been read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lines {
    /// Start of the line being read.
    at: usize,
    /// No LF before this.
    scanned: usize,
    /// Start of the start line: just past the empty lines before it.
    origin: usize,
}

impl Lines {
    /// The next line without its end, or `None` while it is not all there.
    pub(crate) fn next<'a>(
        &mut self,
        input: &'a [u8],
        limits: &Limits,
        bare_lf: bool,
    ) -> Result<Option<&'a [u8]>, Error> {
        let found = memchr(b'\n', &input[self.scanned..]);
        let seen = found.map_or(input.len(), |offset| self.scanned + offset + 1);
        if seen - self.origin > limits.head_bytes {
            return Err(Error::TooLarge);
        }
        if found.is_none() {
            self.scanned = seen;
            return Ok(None);
        }
        let line = &input[self.at..seen - 1];
        (self.at, self.scanned) = (seen, seen);
        match line {
            [line @ .., b'\r'] => Ok(Some(line)),
            line if bare_lf => Ok(Some(line)),
            _ => Err(Error::LineEnd),
        }
    }

    /// Says that what was read so far comes before the message.
    pub(crate) fn skip(&mut self) {
        self.origin = self.at;
    }

    /// Bytes of whole lines read.
    pub(crate) fn consumed(&self) -> usize {
        self.at
    }

    /// The part of the current line that is there.
    pub(crate) fn rest<'a>(&self, input: &'a [u8]) -> &'a [u8] {
        &input[self.at..]
    }
}
