//! Why an answer of a service cannot be used.

use std::fmt;

/// What is wrong with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The status line is not one of ICAP/1.0.
    StatusLine,
    /// A line of the head is malformed.
    Field,
    /// The head is longer, or has more fields, than any service needs.
    HeadTooLarge,
    /// `Encapsulated` is missing, malformed, or does not fit the request.
    Encapsulated,
    /// An HTTP head in the answer is malformed, or does not end where `Encapsulated` says.
    Http(penstock_http::Error),
    /// The answer has no HTTP head, or one of the wrong kind.
    NoHead,
    /// A chunk of the body is malformed.
    Chunk,
    /// The body is longer than allowed.
    BodyTooLong,
    /// The answer refers to a part of the original body that does not exist, or although it was not allowed to.
    OriginalBody,
    /// `100 Continue` although nothing more was announced.
    Continue,
    /// A status that means the service did not do its work.
    Status(u16),
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Error::StatusLine => "malformed status line",
            Error::Field => "malformed field",
            Error::HeadTooLarge => "head too large",
            Error::Encapsulated => "malformed Encapsulated",
            Error::Http(error) => return write!(formatter, "HTTP head: {error}"),
            Error::NoHead => "no HTTP head of the right kind",
            Error::Chunk => "malformed chunk",
            Error::BodyTooLong => "body too long",
            Error::OriginalBody => "reference to a part of the body that is not there",
            Error::Continue => "unexpected 100 Continue",
            Error::Status(status) => return write!(formatter, "status {status}"),
        })
    }
}

impl std::error::Error for Error {}

impl From<penstock_http::Error> for Error {
    fn from(error: penstock_http::Error) -> Error {
        Error::Http(error)
    }
}
