//! The head of a request to a service.

use penstock_http::{Known, RequestHead, ResponseHead, TargetForm, Version};
use std::fmt::Write;

/// What a service is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IcapMethod {
    /// To describe itself.
    Options,
    /// To look at a request, before it goes to its server.
    Reqmod,
    /// To look at a response, before it goes to its client.
    Respmod,
}

impl IcapMethod {
    /// The method as in the request's first line.
    pub fn as_str(self) -> &'static str {
        match self {
            IcapMethod::Options => "OPTIONS",
            IcapMethod::Reqmod => "REQMOD",
            IcapMethod::Respmod => "RESPMOD",
        }
    }
}

/// A request to a service.
#[derive(Clone, Copy, Debug)]
pub struct IcapRequest<'a> {
    /// What the service is asked to do.
    pub method: IcapMethod,
    /// The service's host and port.
    pub host: &'a str,
    /// The service's path, with its slash.
    pub path: &'a str,
    /// More fields, such as `X-Client-IP`.
    pub fields: &'a [(&'a str, String)],
    /// The scheme of the client's request, which its head does not say.
    pub scheme: &'a str,
    /// The client's request.
    pub request: Option<&'a RequestHead>,
    /// The server's response.
    pub response: Option<&'a ResponseHead>,
}

impl IcapRequest<'_> {
    /// Appends the head and the HTTP heads in it. `allow` is the value of `Allow`, `preview` that of `Preview`.
    pub(crate) fn write(&self, has_body: bool, allow: &str, preview: Option<usize>, out: &mut Vec<u8>) {
        let mut heads = Vec::new();
        let request = self.request.filter(|_| self.method != IcapMethod::Options);
        let response = self.response.filter(|_| self.method == IcapMethod::Respmod);
        let mut encapsulated = String::new();
        // Writing to a string cannot fail.
        if let Some(head) = request {
            let _ = write!(encapsulated, "req-hdr={}, ", heads.len());
            write_request(head, self.scheme, &mut heads);
        }
        if let Some(head) = response {
            let _ = write!(encapsulated, "res-hdr={}, ", heads.len());
            write_response(head, &mut heads);
        }
        let body = match (has_body, self.method) {
            (false, _) | (_, IcapMethod::Options) => "null-body",
            (true, IcapMethod::Reqmod) => "req-body",
            (true, IcapMethod::Respmod) => "res-body",
        };
        let _ = write!(encapsulated, "{body}={}", heads.len());
        let (method, host, path) = (self.method.as_str(), self.host, self.path);
        let mut head = format!("{method} icap://{host}{path} ICAP/1.0\r\nHost: {host}\r\n");
        if !allow.is_empty() {
            let _ = write!(head, "Allow: {allow}\r\n");
        }
        if let Some(bytes) = preview {
            let _ = write!(head, "Preview: {bytes}\r\n");
        }
        for (name, value) in self.fields {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        let _ = write!(head, "Encapsulated: {encapsulated}\r\n\r\n");
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(&heads);
    }
}

/// Fields that belong to one connection and not to the message that a service sees. `Content-Length` stays: it is what the peer
/// announced, and services decide by it.
pub fn is_of_connection(name: &[u8]) -> bool {
    use Known as K;
    let known = K::of(name);
    matches!(
        known,
        K::Connection
            | K::KeepAlive
            | K::ProxyConnection
            | K::Te
            | K::Trailer
            | K::TransferEncoding
            | K::TransferEncodingTwin
            | K::ContentLengthTwin
            | K::Upgrade
            | K::Expect
            | K::Http2Settings
    )
}

fn write_fields<'a>(fields: impl Iterator<Item = penstock_http::Field<'a>>, out: &mut Vec<u8>) {
    for field in fields.filter(|field| !is_of_connection(field.name)) {
        for part in [field.name, b": ", field.value, b"\r\n"] {
            out.extend_from_slice(part);
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// The request in absolute form, as proxies send it: a service decides by the whole address.
fn write_request(head: &RequestHead, scheme: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(head.method());
    out.push(b' ');
    let host = head.host().filter(|host| !host.is_empty());
    match host {
        // Rules may have changed the host of a target that was absolute already.
        Some(host) if matches!(head.form(), TargetForm::Origin | TargetForm::Absolute) => {
            let path = head.path_and_query();
            let slash = if path.starts_with(b"/") { &b""[..] } else { b"/" };
            for part in [head.scheme().unwrap_or(scheme.as_bytes()), b"://", host, slash, path] {
                out.extend_from_slice(part);
            }
        }
        _ => out.extend_from_slice(head.target()),
    }
    out.extend_from_slice(if head.version() == Version::Http10 { b" HTTP/1.0\r\n" } else { b" HTTP/1.1\r\n" });
    if let Some(host) = host.filter(|_| !head.fields.has(Known::Host)) {
        for part in [b"host: ", host, b"\r\n"] {
            out.extend_from_slice(part);
        }
    }
    write_fields(head.fields.iter(), out);
}

fn write_response(head: &ResponseHead, out: &mut Vec<u8>) {
    head.write_start_line(out);
    write_fields(head.fields.iter(), out);
}
