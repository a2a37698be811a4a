//! How long a body is (RFC 9112 section 6.3).

use crate::bytes::list;
use crate::error::Error;
use crate::fields::{Fields, Known};
use crate::head::Version;
use crate::request::RequestHead;
use crate::response::ResponseHead;

/// How the end of a message's body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    None,
    /// So many bytes.
    Length(u64),
    /// In chunks.
    Chunked,
    /// Until the connection ends, of a response alone.
    UntilClose,
    /// Not a body at all: after this response both sides speak another protocol (101, or 2xx to CONNECT).
    Tunnel,
}

/// How the body of a request ends.
///
/// Whatever two parsers could read in two ways is refused: repeated lengths even when equal, a length beside a coding,
/// a coding in HTTP/1.0. RFC 9112 sections 6.1 and 6.3 permit each of these refusals.
///
/// # Errors
/// When nobody can be sure.
pub fn request_framing(head: &RequestHead) -> Result<Framing, Error> {
    let framing = stated_framing(head)?;
    // RFC 1945 gave these no body, so a server of its age reads what follows the head as the next request.
    let bodiless = matches!(head.method(), b"GET" | b"HEAD" | b"DELETE") && head.version() == Version::Http10;
    if bodiless && !matches!(framing, Framing::None | Framing::Length(0)) {
        return Err(Error::BodyInHttp10);
    }
    Ok(framing)
}

fn stated_framing(head: &RequestHead) -> Result<Framing, Error> {
    let fields = &head.fields;
    if fields.has(Known::TransferEncoding) {
        if head.version() == Version::Http10 {
            return Err(Error::CodingVersion);
        }
        only_chunked(fields)?;
        if fields.has(Known::ContentLength) {
            return Err(Error::LengthAndCoding);
        }
        return Ok(Framing::Chunked);
    }
    let mut values = fields.all_known(Known::ContentLength);
    match (values.next(), values.next()) {
        (None, _) => Ok(Framing::None),
        (Some(value), None) => Ok(Framing::Length(parse_length(value)?)),
        (Some(_), Some(_)) => Err(Error::ContentLengths),
    }
}

/// How the body of a response ends, to a request with this method; `upgrade` when that request asked for another
/// protocol.
///
/// A server is less suspect than a client, and sites depend on old ones: equal lengths count once, and a coding beats a
/// length, as with HAProxy. What is sent on is unambiguous either way, because the fields are corrected here: one length
/// or one coding, and neither where RFC 9110 section 8.6 forbids them (1xx, 204).
///
/// # Errors
/// When nobody can be sure, or when a 101 answers a request that asked for no upgrade.
pub fn response_framing(head: &mut ResponseHead, request_method: &[u8], upgrade: bool) -> Result<Framing, Error> {
    let status = head.status();
    let tunnel = status == 101 || (request_method == b"CONNECT" && (200..300).contains(&status));
    if tunnel || matches!(status, 100..200 | 204) {
        head.fields.remove_known(Known::TransferEncoding);
        head.fields.remove_known(Known::ContentLength);
        return match status {
            101 if !upgrade => Err(Error::Unexpected),
            _ if tunnel => Ok(Framing::Tunnel),
            _ => Ok(Framing::None),
        };
    }
    let framing = if head.fields.has(Known::TransferEncoding) {
        if head.version() == Version::Http10 {
            return Err(Error::CodingVersion);
        }
        only_chunked(&head.fields)?;
        head.fields.remove_known(Known::ContentLength);
        Framing::Chunked
    } else {
        match agreed_length(&mut head.fields)? {
            Some(length) => Framing::Length(length),
            None => Framing::UntilClose,
        }
    };
    Ok(if request_method == b"HEAD" || status == 304 { Framing::None } else { framing })
}

/// The one coding we speak, once.
fn only_chunked(fields: &Fields) -> Result<(), Error> {
    let mut values = fields.all_known(Known::TransferEncoding);
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(Error::TransferCoding);
    };
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(());
    }
    match list(value).last() {
        Some(last) if last.eq_ignore_ascii_case(b"chunked") => {
            let others = list(value).filter(|coding| !coding.eq_ignore_ascii_case(b"chunked")).count();
            let repeated = list(value).count() - others > 1;
            Err(if others > 0 && !repeated { Error::UnsupportedCoding } else { Error::TransferCoding })
        }
        _ => Err(Error::TransferCoding),
    }
}

/// The length all `Content-Length` values agree on; several are made one.
fn agreed_length(fields: &mut Fields) -> Result<Option<u64>, Error> {
    // Nearly always there is one, and it is a number.
    if let Some(length) = lone_length(fields) {
        return Ok(Some(length));
    }
    let mut agreed = None;
    let mut seen = 0;
    for value in fields.all_known(Known::ContentLength) {
        for element in value.split(|&byte| byte == b',').map(crate::bytes::trim) {
            let length = parse_length(element)?;
            if agreed.is_some_and(|other| other != length) {
                return Err(Error::ContentLengths);
            }
            agreed = Some(length);
            seen += 1;
        }
    }
    if let (Some(length), 2..) = (agreed, seen) {
        let mut text = Vec::with_capacity(20);
        crate::bytes::push_decimal(&mut text, length);
        fields.set(b"content-length", &text)?;
    }
    Ok(agreed)
}

fn lone_length(fields: &Fields) -> Option<u64> {
    let mut values = fields.all_known(Known::ContentLength);
    let (value, None) = (values.next()?, values.next()) else { return None };
    parse_length(value).ok()
}

/// Digits only: no sign, no space, no list; and no more than 64 bits.
fn parse_length(value: &[u8]) -> Result<u64, Error> {
    if value.is_empty() || value.len() > 20 {
        return Err(Error::ContentLength);
    }
    value.iter().try_fold(0u64, |length, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0')).ok_or(Error::ContentLength)?;
        length.checked_mul(10).and_then(|length| length.checked_add(digit)).ok_or(Error::ContentLength)
    })
}
