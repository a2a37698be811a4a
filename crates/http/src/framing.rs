//! How long a body is (RFC 9112 section 6.3).

use crate::bytes::list;
use crate::connection::{Connection, may_upgrade_to};
use crate::error::Error;
use crate::fields::{Fields, Known};
use crate::head::Version;
use crate::request::RequestHead;
use crate::response::ResponseHead;
use crate::websocket;

/// How the end of a message's body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    None,
    /// A body of this many bytes.
    Length(u64),
    /// A body in chunks.
    Chunked,
    /// A body that ends with the connection; for responses only.
    UntilClose,
    /// Not a body at all: after this response both sides speak another protocol (101, or 2xx to CONNECT).
    Tunnel,
}

/// How the body of a request ends.
///
/// Whatever two parsers could read in two ways is refused: a length beside a coding, a coding in HTTP/1.0. RFC 9112 sections 6.1
/// and 6.3 permit each of these refusals. Equal lengths are made one, as the latter permits too and HAProxy does.
///
/// # Errors
/// When the length cannot be known for certain.
pub fn request_framing(head: &mut RequestHead) -> Result<Framing, Error> {
    let framing = stated_framing(head)?;
    // RFC 1945 gave these no body, so a server of its age reads what follows the head as the next request.
    let bodiless = matches!(head.method(), b"GET" | b"HEAD" | b"DELETE") && head.version() == Version::Http10;
    if bodiless && !matches!(framing, Framing::None | Framing::Length(0)) {
        return Err(Error::BodyInHttp10);
    }
    // RFC 9110, 9.3.6: it has no content. A server that knows so reads what a length covers as the next request.
    if head.method() == b"CONNECT" && !matches!(framing, Framing::None | Framing::Length(0)) {
        return Err(Error::BodyOfConnect);
    }
    Ok(framing)
}

fn stated_framing(head: &mut RequestHead) -> Result<Framing, Error> {
    let version = head.version();
    let fields = &mut head.fields;
    if fields.has(Known::ContentLengthTwin) || fields.has(Known::TransferEncodingTwin) {
        return Err(Error::FramingTwin);
    }
    if fields.has(Known::TransferEncoding) {
        if version == Version::Http10 {
            return Err(Error::CodingVersion);
        }
        only_chunked(fields)?;
        if fields.has(Known::ContentLength) {
            return Err(Error::LengthAndCoding);
        }
        return Ok(Framing::Chunked);
    }
    Ok(agreed_length(fields)?.map_or(Framing::None, Framing::Length))
}

/// Makes the fields of a message about to be sent state how its body is framed, whatever rules have made of them: a recipient
/// that is told anything else takes the rest of the body for the next message. Returns the framing to use. To a recipient that reads
/// chunks, that is chunks for a body whose length rules have taken away, as in HAProxy, and for a response that would end with its
/// connection; to any other, a response in chunks ends with its connection.
///
/// Where there is no body, `Content-Length` stays in a response if it is a length, since it may be that of the response to a GET.
pub fn state_framing(fields: &mut Fields, framing: Framing, reads_chunks: bool, is_request: bool) -> Framing {
    let has_length = fields.has(Known::ContentLength);
    let stated = lone_length(fields);
    match framing {
        Framing::Length(length) => {
            fields.remove_known(Known::TransferEncoding);
            let is_stated =
                stated.is_some() || fields.all_known(Known::ContentLength).any(|value| parse_length(value).is_ok());
            if !is_stated && reads_chunks {
                fields.remove_known(Known::ContentLength);
                fields.append(b"transfer-encoding", b"chunked").expect("a name and a token");
                return Framing::Chunked;
            }
            if stated != Some(length) {
                fields.set(b"content-length", length.to_string().as_bytes()).expect("a name and a number");
            }
        }
        Framing::Chunked | Framing::UntilClose if !is_request => {
            fields.remove_known(Known::ContentLength);
            if !reads_chunks {
                fields.remove_known(Known::TransferEncoding);
                return Framing::UntilClose;
            }
            fields.set(b"transfer-encoding", b"chunked").expect("a name and a token");
            return Framing::Chunked;
        }
        Framing::Chunked => {
            fields.remove_known(Known::ContentLength);
            // In these letters, since recipients may compare them, and in one line.
            if reads_chunks && !fields.all_known(Known::TransferEncoding).eq([&b"chunked"[..]]) {
                fields.set(b"transfer-encoding", b"chunked").expect("a name and a token");
            }
        }
        Framing::UntilClose => {
            fields.remove_known(Known::ContentLength);
        }
        Framing::None if is_request => {
            fields.remove_known(Known::TransferEncoding);
            if has_length && stated != Some(0) {
                fields.remove_known(Known::ContentLength);
            }
        }
        Framing::None => {
            if has_length && stated.is_none() {
                fields.remove_known(Known::ContentLength);
            }
            if fields.has(Known::TransferEncoding) && (stated.is_some() || only_chunked(fields).is_err()) {
                fields.remove_known(Known::TransferEncoding);
            }
        }
        Framing::Tunnel => {
            fields.remove_known(Known::TransferEncoding);
        }
    }
    framing
}

/// How the body of a response ends, to a request with this method; `upgrade` when that request asked for another
/// protocol.
///
/// A server is less suspect than a client, and sites depend on old ones: equal lengths count once, and a coding beats a
/// length, as with HAProxy. What is sent on is unambiguous either way, because the fields are corrected here: one length
/// or one coding, and neither where RFC 9110 section 8.6 forbids them (1xx, 204).
///
/// # Errors
/// When the length cannot be known for certain, or when a 101 answers a request that asked for no upgrade, or names no protocol.
pub fn response_framing(head: &mut ResponseHead, request_method: &[u8], upgrade: bool) -> Result<Framing, Error> {
    let status = head.status();
    let tunnel = status == 101 || (request_method == b"CONNECT" && (200..300).contains(&status));
    // What makes no sense is refused even where it would be taken out: such a server may mean something by it.
    let framing = framing_of_response(head)?;
    if tunnel || matches!(status, 100..200 | 204) {
        head.fields.remove_known(Known::TransferEncoding);
        head.fields.remove_known(Known::ContentLength);
        return match status {
            // RFC 9110, 15.2.2: it names the protocol. A server that can be made to say 101 would open a tunnel past the rules.
            101 if !upgrade || !Connection::of(&head.fields).upgrade => Err(Error::Unexpected),
            101 if head.fields.all_known(Known::Upgrade).flat_map(list).any(|it| !may_upgrade_to(it)) => {
                Err(Error::Upgrade)
            }
            101 => websocket::check_response(&head.fields).map(|()| Framing::Tunnel),
            _ if tunnel => Ok(Framing::Tunnel),
            _ => Ok(Framing::None),
        };
    }
    Ok(if request_method == b"HEAD" || status == 304 { Framing::None } else { framing })
}

/// What the fields of a response say, whatever its status.
fn framing_of_response(head: &mut ResponseHead) -> Result<Framing, Error> {
    if head.fields.has(Known::TransferEncoding) {
        if head.version() == Version::Http10 {
            return Err(Error::CodingVersion);
        }
        only_chunked(&head.fields)?;
        head.fields.remove_known(Known::ContentLength);
        return Ok(Framing::Chunked);
    }
    Ok(agreed_length(&mut head.fields)?.map_or(Framing::UntilClose, Framing::Length))
}

/// The one coding we speak, once. Several fields are read as one list (RFC 9110 section 5.3).
fn only_chunked(fields: &Fields) -> Result<(), Error> {
    let mut values = fields.all_known(Known::TransferEncoding);
    if let (Some(value), None) = (values.next(), values.next())
        && value.eq_ignore_ascii_case(b"chunked")
    {
        return Ok(());
    }
    let codings = || fields.all_known(Known::TransferEncoding).flat_map(list);
    match codings().last() {
        Some(last) if last.eq_ignore_ascii_case(b"chunked") => {
            let others = codings().filter(|coding| !coding.eq_ignore_ascii_case(b"chunked")).count();
            let repeated = codings().count() - others > 1;
            Err(if others > 0 && !repeated { Error::UnsupportedCoding } else { Error::TransferCoding })
        }
        _ => Err(Error::TransferCoding),
    }
}

/// The length all `Content-Length` values agree on; several are made one, without zeros in front.
fn agreed_length(fields: &mut Fields) -> Result<Option<u64>, Error> {
    // Nearly always there is one, and it is a number.
    if let Some(length) = lone_length(fields)
        && fields.known(Known::ContentLength).is_some_and(|value| value[0] != b'0' || value.len() == 1)
    {
        return Ok(Some(length));
    }
    let mut agreed = None;
    for value in fields.all_known(Known::ContentLength) {
        for element in value.split(|&byte| byte == b',').map(crate::bytes::trim) {
            let length = parse_length(element)?;
            if agreed.is_some_and(|other| other != length) {
                return Err(Error::ContentLengths);
            }
            agreed = Some(length);
        }
    }
    if let Some(length) = agreed {
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

/// Digits only: no sign, no space, no list; and no more than fits a signed number of 64 bits, which is what many parsers
/// read it into.
fn parse_length(value: &[u8]) -> Result<u64, Error> {
    if value.is_empty() || value.len() > 20 {
        return Err(Error::ContentLength);
    }
    value.iter().try_fold(0u64, |length, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0')).ok_or(Error::ContentLength)?;
        let length = length.checked_mul(10).and_then(|length| length.checked_add(digit));
        length.filter(|&length| length <= i64::MAX as u64).ok_or(Error::ContentLength)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::new();
        for (name, value) in lines {
            fields.append(name.as_bytes(), value.as_bytes()).unwrap();
        }
        fields
    }

    /// What rules may have left, put together in every way: the fields that are sent state the framing that is used.
    #[test]
    fn whatever_rules_leave_the_fields_state_how_the_body_is_framed() {
        let lengths: [&[&str]; 7] = [&[], &["4"], &["5"], &["x"], &["4", "4"], &["4", "7"], &["+4"]];
        let codings: [&[&str]; 6] =
            [&[], &["chunked"], &["gzip"], &["chunked", "chunked"], &["identity"], &["gzip, chunked"]];
        for (length, coding) in lengths.iter().flat_map(|length| codings.iter().map(move |coding| (length, coding))) {
            let mut lines: Vec<_> = length.iter().map(|value| ("content-length", *value)).collect();
            lines.extend(coding.iter().map(|value| ("transfer-encoding", *value)));
            for framing in [Framing::None, Framing::Length(4), Framing::Chunked] {
                for reads_chunks in [true, false] {
                    let mut request = RequestHead::from_parts(b"POST", b"/", Version::Http11).unwrap();
                    request.fields = fields(&lines);
                    let used = state_framing(&mut request.fields, framing, reads_chunks, true);
                    if reads_chunks {
                        assert_eq!(request_framing(&mut request), Ok(used), "{lines:?} {framing:?}");
                    } else if framing == Framing::Length(4) {
                        assert_eq!(request.fields.known(Known::ContentLength), Some(&b"4"[..]), "{lines:?}");
                    }
                }
            }
            for framing in [Framing::None, Framing::Length(4), Framing::Chunked, Framing::UntilClose] {
                for reads_chunks in [true, false] {
                    let mut response = ResponseHead::from_status(200);
                    response.fields = fields(&lines);
                    let used = state_framing(&mut response.fields, framing, reads_chunks, false);
                    let read =
                        response_framing(&mut response, if framing == Framing::None { b"HEAD" } else { b"GET" }, false);
                    assert_eq!(read, Ok(used), "{lines:?} {framing:?}");
                    assert!(reads_chunks || used != Framing::Chunked);
                }
            }
        }
    }
}
