//! Which fields may come behind a body.

use crate::{Fields, Known, connection::is_said_of_a_client};

/// Takes out of a trailer section whatever says how a message is framed, routed or authenticated, or what its content is:
/// behind the body it comes too late to be honest, and a receiver that merges it into the head would believe it (RFC 9110 section
/// 6.5.1).
///
/// Every trailer section passes here, whichever protocol it came by and wherever it goes.
pub fn keep_honest(trailers: &mut Fields) {
    trailers.remove_if(|field| is_forbidden(field.name));
}

fn is_forbidden(name: &[u8]) -> bool {
    use Known as K;
    if name.contains(&b'_') {
        // Behind CGI and its kin `content_length` and `content-length` are one name.
        let twin: Vec<u8> = name.iter().map(|&b| if b == b'_' { b'-' } else { b }).collect();
        return is_forbidden(&twin);
    }
    let known = matches!(
        K::of(name),
        K::Host
            | K::ContentLength
            | K::TransferEncoding
            | K::Connection
            | K::KeepAlive
            | K::ProxyConnection
            | K::Upgrade
            | K::Te
            | K::Trailer
            | K::Expect
            | K::Range
            | K::CacheControl
            | K::Authorization
            | K::ProxyAuthorization
            | K::Cookie
            | K::SetCookie
            | K::WwwAuthenticate
            | K::ContentType
            | K::ContentEncoding
            | K::Location
            | K::Vary
            | K::Forwarded
            | K::XForwardedFor
            | K::XForwardedProto
            | K::Http2Settings
    );
    known || is_said_of_a_client(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_too_late_is_taken_out_and_the_rest_stays() {
        let mut fields = Fields::new();
        for name in ["grpc-status", "Content-Length", "content_length", "x-forwarded-host", "X_Real_IP", "x-checksum"] {
            fields.append(name.to_ascii_lowercase().as_bytes(), b"1").unwrap();
        }
        keep_honest(&mut fields);
        let left: Vec<_> = fields.iter().map(|field| field.name).collect();
        assert_eq!(left, [&b"grpc-status"[..], b"x-checksum"]);
    }
}
