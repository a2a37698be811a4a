//! The head of a response.

use crate::bytes::{is_field_value, push_decimal};
use crate::error::Error;
use crate::fields::Fields;
use crate::head::{Next, Parse, Progress, Version};
use crate::limits::Limits;

/// A response's version, status, reason and fields, owned and reusable.
#[derive(Clone, Debug, Default)]
pub struct ResponseHead {
    /// The fields.
    pub fields: Fields,
    reason: Vec<u8>,
    status: u16,
    version: Version,
}

impl ResponseHead {
    /// An empty head.
    pub fn new() -> ResponseHead {
        ResponseHead::default()
    }

    /// A head put together by us, with the usual reason for its status.
    pub fn from_status(status: u16) -> ResponseHead {
        let mut head = ResponseHead::new();
        head.start(status, Version::Http11);
        head
    }

    /// Forgets the message and keeps the memory.
    pub fn clear(&mut self) {
        self.fields.clear();
        self.reason.clear();
        self.status = 0;
        self.version = Version::Http11;
    }

    /// Starts a new message without fields in this memory, with the usual reason for its status.
    pub fn start(&mut self, status: u16, version: Version) {
        self.clear();
        self.set_status(status);
        self.version = version;
    }

    /// Reads a complete head from the start of `input`.
    ///
    /// # Errors
    ///
    /// At the first line that cannot be part of a valid head.
    pub fn parse(&mut self, input: &[u8], limits: &Limits) -> Result<Parse, Error> {
        self.read(&mut Progress::default(), input, limits)
    }

    /// Reads a head from the start of `input`. After [`Parse::Partial`], call again with the same progress and bytes, and more behind
    /// them; after anything else the next call starts a new message.
    ///
    /// A line may end in a bare LF here, as old CGI servers write: it is sent on as CRLF.
    ///
    /// # Errors
    /// As [`ResponseHead::parse`].
    pub fn read(&mut self, progress: &mut Progress, input: &[u8], limits: &Limits) -> Result<Parse, Error> {
        if progress.is_new() {
            self.clear();
        }
        let parsed = self.read_lines(progress, input, limits);
        progress.after(&parsed);
        parsed
    }

    fn read_lines(&mut self, progress: &mut Progress, input: &[u8], limits: &Limits) -> Result<Parse, Error> {
        let Progress { stage, lines } = progress;
        loop {
            let Some(line) = lines.next(input, limits, true)? else {
                if *stage == Next::StartLine {
                    check_version_prefix(lines.rest(input))?;
                }
                return Ok(Parse::Partial);
            };
            if *stage == Next::StartLine {
                self.parse_start_line(line)?;
                *stage = Next::Fields;
            } else if line.is_empty() {
                return Ok(Parse::Complete { consumed: lines.consumed() });
            } else {
                limits.admit_field(self.fields.len())?;
                self.fields.push_line(line)?;
            }
        }
    }

    fn parse_start_line(&mut self, line: &[u8]) -> Result<(), Error> {
        let (version, rest) = line.split_at_checked(8).ok_or(Error::StartLine)?;
        self.version = Version::parse(version)?;
        // The reason may be absent, and the space before it too (RFC 9112 section 4 asks to be lenient here).
        let (status, reason) = match rest {
            [b' ', a, b, c] => ([*a, *b, *c], &b""[..]),
            [b' ', a, b, c, b' ', reason @ ..] => ([*a, *b, *c], reason),
            _ => return Err(Error::StartLine),
        };
        if !status.iter().all(u8::is_ascii_digit) || status[0] == b'0' {
            return Err(Error::Status);
        }
        if !is_field_value(reason) {
            return Err(Error::StartLine);
        }
        self.status = status.iter().fold(0, |number, digit| number * 10 + u16::from(digit - b'0'));
        self.reason.extend_from_slice(reason);
        Ok(())
    }

    /// The status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// What the head counts for; see [`Fields::weight`].
    pub fn weight(&self) -> u64 {
        self.fields.weight(Version::Http11.as_str().len() + 3 + self.reason.len())
    }

    /// The reason phrase, perhaps empty.
    pub fn reason(&self) -> &[u8] {
        &self.reason
    }

    /// The version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Whether this is an interim response (1xx) which another follows; 101 is not.
    pub fn is_interim(&self) -> bool {
        (100..200).contains(&self.status) && self.status != 101
    }

    /// Sets the version, for the side to which the response is sent.
    pub fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    /// Sets the status, with its usual reason.
    pub fn set_status(&mut self, status: u16) {
        self.status = status;
        self.reason.clear();
        self.reason.extend_from_slice(reason_of(status).as_bytes());
    }

    /// Sets the reason.
    ///
    /// # Errors
    /// If `reason` has a control character.
    pub fn set_reason(&mut self, reason: &[u8]) -> Result<(), Error> {
        if !is_field_value(reason) {
            return Err(Error::StartLine);
        }
        self.reason.clear();
        self.reason.extend_from_slice(reason);
        Ok(())
    }

    /// Appends the head as it is sent over HTTP/1: start line, fields, empty line.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        self.write_start_line(out);
        self.fields.write_to(out);
        out.extend_from_slice(b"\r\n");
    }

    /// Appends the start line as it is sent over HTTP/1.
    pub fn write_start_line(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(if self.version == Version::Http10 { b"HTTP/1.0 " } else { b"HTTP/1.1 " });
        push_decimal(out, u64::from(self.status));
        out.push(b' ');
        out.extend_from_slice(&self.reason);
        out.extend_from_slice(b"\r\n");
    }
}

/// Refuses what cannot become a status line, so that a server which speaks another protocol costs no timeout.
fn check_version_prefix(rest: &[u8]) -> Result<(), Error> {
    let len = rest.len().min(5);
    if rest[..len] == b"HTTP/"[..len] { Ok(()) } else { Err(Error::StartLine) }
}

/// The reason for a status, as HAProxy writes it.
pub(crate) fn reason_of(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        102 => "Processing",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        207 => "Multi-Status",
        210 => "Content Different",
        226 => "IM Used",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        305 => "Use Proxy",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        310 => "Too many Redirects",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Time-out",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Request Entity Too Large",
        414 => "Request-URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Requested range unsatisfiable",
        417 => "Expectation failed",
        418 => "I'm a teapot",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        423 => "Locked",
        424 => "Method failure",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        449 => "Retry With",
        450 => "Blocked by Windows Parental Controls",
        451 => "Unavailable For Legal Reasons",
        456 => "Unrecoverable Error",
        499 => "client has closed connection",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway or Proxy Error",
        503 => "Service Unavailable",
        504 => "Gateway Time-out",
        505 => "HTTP Version not supported",
        506 => "Variant also negotiate",
        507 => "Insufficient storage",
        508 => "Loop detected",
        509 => "Bandwidth Limit Exceeded",
        510 => "Not extended",
        511 => "Network authentication required",
        520 => "Web server is returning an unknown error",
        _ => match status / 100 {
            1 => "Informational",
            2 => "Success",
            3 => "Redirection",
            4 => "Client Error",
            _ => "Server Error",
        },
    }
}
