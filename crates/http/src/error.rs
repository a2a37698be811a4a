//! What can be wrong with a message.

use std::fmt;

/// Why a message is refused. Each error is fatal to its connection: after it, the start of the next message cannot be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Error {
    /// The start line is not `method SP target SP version` or `version SP status [SP reason]`.
    StartLine,
    /// The method is not a token.
    Method,
    /// `PRI`, which belongs to HTTP/2's preface and to nothing else (RFC 9113 section 11.6).
    PrefaceMethod,
    /// The target is empty, has a byte it may not have, or a form its method does not allow.
    Target,
    /// Not `HTTP/` digit `.` digit, or a version that HTTP/1 does not have.
    Version,
    /// A status that is not three digits from 100 up.
    Status,
    /// The connection preface of HTTP/2 where HTTP/1 was expected.
    Http2Preface,
    /// A line that ends in a bare LF, or a CR that no LF follows.
    LineEnd,
    /// A field line without a colon, with an empty name, or with a name that is not a token (a space before the colon).
    FieldName,
    /// A control character in a field value, NUL included.
    FieldValue,
    /// A line that starts with white space: the folding that RFC 9112 section 5.2 ended.
    Folded,
    /// More field lines than the limit.
    TooManyFields,
    /// The head or the trailer section is longer than the limit.
    TooLarge,
    /// Too many empty lines before the start line.
    EmptyLines,
    /// An HTTP/1.1 request without a `Host`.
    NoHost,
    /// More than one `Host`.
    ManyHosts,
    /// A `Host` or an authority that is not `host [":" port]`.
    Authority,
    /// The authority in the target and the `Host` are not the same.
    HostMismatch,
    /// `Content-Length` is not a plain decimal number below 2^63.
    ContentLength,
    /// Several `Content-Length` values which differ.
    ContentLengths,
    /// `Content_Length` or `Transfer_Encoding`: some servers take it for the field that says where the body ends.
    FramingTwin,
    /// `Content-Length` and `Transfer-Encoding` in one message.
    LengthAndCoding,
    /// A CONNECT with a body.
    BodyOfConnect,
    /// `Transfer-Encoding` that does not end in one `chunked`, or that is repeated.
    TransferCoding,
    /// Codings that RFC 9112 knows and we do not, before a final `chunked`.
    UnsupportedCoding,
    /// `Transfer-Encoding` in a message that is not HTTP/1.1.
    CodingVersion,
    /// A body behind an HTTP/1.0 GET, HEAD or DELETE.
    BodyInHttp10,
    /// A chunk size that is not hexadecimal, is too long, or is followed by something else than an extension and CRLF.
    ChunkSize,
    /// Chunk data that CRLF does not follow.
    ChunkEnd,
    /// The chunk extensions of one chunk are longer than any sender needs.
    ChunkExtension,
    /// The connection ended before the message did.
    Truncated,
    /// A request for a WebSocket whose `Sec-WebSocket-Key` is missing or not one (RFC 6455 section 4.2.1).
    WebSocketKey,
    /// A 101 to a WebSocket without `Sec-WebSocket-Accept`, or with one that does not answer our key.
    WebSocketProof,
    /// An extended CONNECT, or a 101, to a protocol that carries HTTP past the rules.
    Upgrade,
    /// A message of HTTP/2 that is not one (RFC 9113 section 8.1.1).
    Malformed,
    /// A `101` without a request for it, or any other interim response in the wrong place.
    Unexpected,
}

impl Error {
    /// The status a client gets for a request refused for this reason; a refused response is 502 whatever the reason.
    ///
    /// HAProxy answers 400 to nearly all of these, a head that is too large included.
    pub fn status(self) -> u16 {
        match self {
            Error::BodyInHttp10 => 413,
            Error::UnsupportedCoding => 422,
            _ => 400,
        }
    }

    /// What is wrong, in a few words.
    pub fn as_str(self) -> &'static str {
        match self {
            Error::StartLine => "malformed start line",
            Error::Method => "malformed method",
            Error::PrefaceMethod => "the method of HTTP/2's preface",
            Error::Target => "malformed request target",
            Error::Version => "malformed or unsupported version",
            Error::Status => "malformed status",
            Error::Http2Preface => "HTTP/2 preface on an HTTP/1 connection",
            Error::LineEnd => "line not ended by CRLF",
            Error::FieldName => "malformed field name",
            Error::FieldValue => "forbidden character in a field value",
            Error::Folded => "folded field line",
            Error::TooManyFields => "too many fields",
            Error::TooLarge => "head too large",
            Error::EmptyLines => "too many empty lines before the start line",
            Error::NoHost => "no Host field",
            Error::ManyHosts => "more than one Host field",
            Error::Authority => "malformed authority",
            Error::HostMismatch => "Host differs from the authority of the target",
            Error::ContentLength => "malformed Content-Length",
            Error::ContentLengths => "differing Content-Length values",
            Error::FramingTwin => "a field that some servers take for Content-Length or Transfer-Encoding",
            Error::LengthAndCoding => "both Content-Length and Transfer-Encoding",
            Error::BodyOfConnect => "a CONNECT has no body",
            Error::TransferCoding => "malformed Transfer-Encoding",
            Error::UnsupportedCoding => "unsupported transfer coding",
            Error::CodingVersion => "Transfer-Encoding outside HTTP/1.1",
            Error::BodyInHttp10 => "a body where HTTP/1.0 has none",
            Error::ChunkSize => "malformed chunk size",
            Error::ChunkEnd => "chunk not ended by CRLF",
            Error::ChunkExtension => "chunk extension too long",
            Error::Truncated => "message truncated",
            Error::WebSocketKey => "WebSocket upgrade without its key",
            Error::WebSocketProof => "WebSocket upgrade without its proof",
            Error::Upgrade => "upgrade to a protocol that carries HTTP",
            Error::Malformed => "malformed message of HTTP/2",
            Error::Unexpected => "unexpected interim response",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl std::error::Error for Error {}
