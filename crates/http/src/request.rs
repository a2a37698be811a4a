//! The head of a request.

use crate::authority::{Authority, split_authority};
use crate::bytes::{is_http2_target, is_lenient_target, is_target, is_token};
use crate::error::Error;
use crate::fields::{Fields, Known, empty};
use crate::head::{Next, Parse, Progress, Version};
use crate::limits::Limits;
use crate::target::{Parts, TargetForm};
use crate::websocket;

mod proxied;

pub use proxied::OwnTarget;

/// A request's method, target, version and fields, owned and reusable.
///
/// HTTP/2 requests have the same shape: `:method` is the method, `:scheme`, `:authority` and `:path` make an absolute
/// target, and `:authority` is also the `Host`. Such a target is sent to an HTTP/1 server in origin form.
#[derive(Clone, Debug, Default)]
pub struct RequestHead {
    /// The fields.
    pub fields: Fields,
    method: Vec<u8>,
    target: Vec<u8>,
    parts: Parts,
    version: Version,
    /// The minor version of a request line that says more than 1.1, as a digit.
    minor: Option<u8>,
    /// The target was put together from HTTP/2's pseudo-header fields.
    assembled: bool,
}

impl RequestHead {
    /// An empty head.
    pub fn new() -> RequestHead {
        RequestHead::default()
    }

    /// Builds a head from its parts.
    ///
    /// # Errors
    ///
    /// If [`RequestHead::parse`] would not accept the method or the target.
    pub fn from_parts(method: &[u8], target: &[u8], version: Version) -> Result<RequestHead, Error> {
        let mut head = RequestHead::new();
        head.start(method, target, version)?;
        Ok(head)
    }

    /// Forgets the message and keeps the memory.
    pub fn clear(&mut self) {
        self.fields.clear();
        self.method.clear();
        self.target.clear();
        self.parts = Parts::default();
        self.version = Version::Http11;
        self.minor = None;
        self.assembled = false;
    }

    /// Forgets the target and the fields, and gives back their memory: what comes after a request has been sent needs no more than its
    /// method and version.
    pub fn release(&mut self) {
        self.fields.release();
        empty(&mut self.target);
        (self.parts, self.assembled) = (Parts::default(), false);
    }

    /// Gives back memory that the head does not use, for one that may have to be sent again.
    pub fn shrink(&mut self) {
        self.fields.shrink();
    }

    /// Starts a new message without fields in this memory.
    ///
    /// # Errors
    /// As [`RequestHead::from_parts`].
    pub fn start(&mut self, method: &[u8], target: &[u8], version: Version) -> Result<(), Error> {
        self.clear();
        self.take_start_line(method, target, is_target)?;
        self.version = version;
        Ok(())
    }

    /// Starts a new message from HTTP/2's pseudo-header fields; the caller appends the regular ones.
    ///
    /// # Errors
    /// When one of them is malformed or missing for its method (RFC 9113 section 8.3.1).
    pub fn start_http2(
        &mut self,
        method: &[u8],
        scheme: &[u8],
        authority: Option<&[u8]>,
        path: &[u8],
    ) -> Result<(), Error> {
        self.clear();
        if method == b"PRI" {
            return Err(Error::PrefaceMethod);
        }
        if method == b"CONNECT" {
            self.take_start_line(method, authority.ok_or(Error::NoHost)?, is_target)?;
        } else if let Some(authority) = authority.filter(|_| path != b"*") {
            if !matches!(path.first(), Some(b'/')) || !is_http2_target(path) {
                return Err(Error::Target);
            }
            let mut target = std::mem::take(&mut self.target);
            for part in [scheme, b"://", authority, path] {
                target.extend_from_slice(part);
            }
            let taken = self.take_start_line(method, &target, is_http2_target);
            self.assembled = true;
            taken?;
        } else {
            self.take_start_line(method, path, is_http2_target)?;
        }
        if let Some(authority) = authority {
            split_authority(authority).ok_or(Error::Authority)?;
            self.fields.append(b"host", authority)?;
        }
        self.version = Version::Http2;
        if method != b"CONNECT" {
            self.drop_default_port();
        }
        Ok(())
    }

    /// Reads a head that is all there, from the start of `input`.
    ///
    /// # Errors
    /// At the first byte that no valid head has at its place, even when the head is not all there.
    pub fn parse(&mut self, input: &[u8], limits: &Limits) -> Result<Parse, Error> {
        self.read(&mut Progress::default(), input, limits)
    }

    /// Reads a head from the start of `input`. After [`Parse::Partial`], call again with the same progress and bytes, and more behind
    /// them; after anything else the next call starts a new message.
    ///
    /// # Errors
    /// As [`RequestHead::parse`].
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
            let Some(line) = lines.next(input, limits, limits.lenient)? else {
                if *stage == Next::StartLine {
                    check_method_prefix(lines.rest(input))?;
                }
                return Ok(Parse::Partial);
            };
            if *stage == Next::StartLine {
                if line.is_empty() {
                    // RFC 9112 section 2.2: at least one empty line before a request line is ignored.
                    lines.skip();
                    if lines.consumed() > EMPTY_LINE_BYTES_MAX {
                        return Err(Error::EmptyLines);
                    }
                    continue;
                }
                self.parse_start_line(line, limits)?;
                *stage = Next::Fields;
            } else if line.is_empty() {
                self.check_host(limits)?;
                websocket::check_request(&self.fields)?;
                if self.method == b"PRI" {
                    return Err(Error::PrefaceMethod);
                }
                self.drop_default_port();
                if self.form() == TargetForm::Absolute && self.path_and_query().is_empty() {
                    // An empty path is `/` (RFC 9110 section 4.2.3).
                    self.target.push(b'/');
                }
                return Ok(Parse::Complete { consumed: lines.consumed() });
            } else {
                limits.admit_field(self.fields.len())?;
                self.fields.push_line(line)?;
            }
        }
    }

    /// Reads a head for rules that look at bytes before they are known to be HTTP: as [`RequestHead::parse`], but the
    /// preface of HTTP/2 is the request that it is formed like, `PRI * HTTP/2.0` (RFC 9113 section 3.4).
    ///
    /// # Errors
    /// As [`RequestHead::parse`].
    pub fn peek(&mut self, input: &[u8], limits: &Limits) -> Result<Parse, Error> {
        const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\n";
        match self.parse(input, limits) {
            Err(Error::Http2Preface) if input.starts_with(PREFACE) => {
                self.start(b"OPTIONS", b"*", Version::Http2)?;
                self.method.clear();
                self.method.extend_from_slice(b"PRI");
                Ok(Parse::Complete { consumed: PREFACE.len() })
            }
            Err(Error::Http2Preface) if PREFACE.starts_with(input) => Ok(Parse::Partial),
            other => other,
        }
    }

    fn parse_start_line(&mut self, line: &[u8], limits: &Limits) -> Result<(), Error> {
        if line.starts_with(b"PRI * HTTP/2.0") {
            return Err(Error::Http2Preface);
        }
        let mut words = line.split(|&byte| byte == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(Error::StartLine);
        };
        self.version = Version::parse(version)?;
        self.minor = version.last().copied().filter(|minor| *minor > b'1');
        if method == b"PRI" {
            // Refused at the end of the head, whose other faults come first, whatever its target.
            self.method.extend_from_slice(method);
            return Ok(());
        }
        self.take_start_line(method, target, if limits.lenient { is_lenient_target } else { is_target })
    }

    /// Takes method and target. When `self.target` was lent out to build the target, its memory comes back here.
    fn take_start_line(&mut self, method: &[u8], target: &[u8], is_valid: fn(&[u8]) -> bool) -> Result<(), Error> {
        if !is_token(method) {
            return Err(Error::Method);
        }
        if !is_valid(target) {
            return Err(Error::Target);
        }
        let parts = Parts::of(method, target).ok_or(Error::Target)?;
        let authority = split_authority(&target[parts.authority.0..parts.authority.1]).ok_or(Error::Authority)?;
        match parts.form {
            TargetForm::Authority if authority.host.is_empty() || authority.port.is_none() => {
                return Err(Error::Authority);
            }
            TargetForm::Absolute if authority.host.is_empty() => return Err(Error::Authority),
            _ => {}
        }
        self.parts = parts;
        self.method.clear();
        self.method.extend_from_slice(method);
        self.target.clear();
        self.target.extend_from_slice(target);
        Ok(())
    }

    /// RFC 9112 section 3.2: one `Host`, well formed, the same as the authority of the target if that has one.
    fn check_host(&self, limits: &Limits) -> Result<(), Error> {
        let mut hosts = self.fields.all_known(Known::Host);
        let Some(host) = hosts.next() else {
            return if self.version == Version::Http11 && !limits.lenient { Err(Error::NoHost) } else { Ok(()) };
        };
        if hosts.next().is_some() {
            return Err(Error::ManyHosts);
        }
        let host = split_authority(host).ok_or(Error::Authority)?;
        match self.authority() {
            Some(authority) if !host.same_as(&authority, self.default_port()) => Err(Error::HostMismatch),
            _ => Ok(()),
        }
    }

    /// An authority in the target, and the `Host` beside it, lose a port that says nothing, as in HAProxy: caches and
    /// rules then see one name for one place (RFC 3986 section 6.2.3). A CONNECT target keeps its port, which it needs.
    fn drop_default_port(&mut self) {
        let Some(Authority { host, port }) = self.authority() else { return };
        let (start, end) = self.parts.authority;
        // A colon without a port behind it says nothing either.
        if end - start == host.len() || port.is_some_and(|port| self.default_port() != Some(port)) {
            return;
        }
        let host = host.to_vec();
        if self.form() == TargetForm::Absolute {
            // What was valid with a port is valid without.
            let _ = self.splice(start, &host, end);
        }
        let position = self.fields.iter().position(|field| field.known == Known::Host);
        if let Some(position) = position {
            let _ = self.fields.set_value_at(position, &host);
        }
    }

    /// The method.
    pub fn method(&self) -> &[u8] {
        &self.method
    }

    /// The target as received or set.
    pub fn target(&self) -> &[u8] {
        &self.target
    }

    /// What the head counts for; see [`Fields::weight`].
    pub fn weight(&self) -> u64 {
        self.fields.weight(self.method.len() + self.target.len() + Version::Http11.as_str().len())
    }

    /// The form of the target.
    pub fn form(&self) -> TargetForm {
        self.parts.form
    }

    /// The version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The version as the request line had it, which may be higher than the one it is treated as.
    pub fn received_version(&self) -> [u8; 8] {
        let mut text = *self.version.as_str().as_bytes().first_chunk().expect("each has as many letters");
        if let Some(minor) = self.minor {
            text[7] = minor;
        }
        text
    }

    /// The path and the query, `*` for the asterisk form; empty for CONNECT, and for an absolute target that was set without a path.
    pub fn path_and_query(&self) -> &[u8] {
        &self.target[self.parts.path_at..]
    }

    /// The path, without the query.
    pub fn path(&self) -> &[u8] {
        let whole = self.path_and_query();
        &whole[..memchr::memchr(b'?', whole).unwrap_or(whole.len())]
    }

    /// What follows the first `?`, if there is one.
    pub fn query(&self) -> Option<&[u8]> {
        let whole = self.path_and_query();
        memchr::memchr(b'?', whole).map(|at| &whole[at + 1..])
    }

    /// The scheme of an absolute target.
    pub fn scheme(&self) -> Option<&[u8]> {
        (self.parts.form == TargetForm::Absolute).then(|| &self.target[..self.parts.scheme_len])
    }

    /// The authority of the target, when it has one.
    pub fn authority(&self) -> Option<Authority<'_>> {
        let (start, end) = self.parts.authority;
        if end == 0 { None } else { split_authority(&self.target[start..end]) }
    }

    /// The value of `Host`, or else the authority in the target, port and all.
    pub fn host(&self) -> Option<&[u8]> {
        let (start, end) = self.parts.authority;
        self.fields.known(Known::Host).or((end > 0).then(|| &self.target[start..end]))
    }

    /// Sets the version, for the side to which the request is sent.
    pub fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    /// Sets the method. Between CONNECT and another method the target must be set too, and first.
    ///
    /// # Errors
    /// If `method` is not a token; nothing is changed then.
    pub fn set_method(&mut self, method: &[u8]) -> Result<(), Error> {
        if !is_token(method) {
            return Err(Error::Method);
        }
        self.method.clear();
        self.method.extend_from_slice(method);
        Ok(())
    }

    /// Sets the target (`http-request set-uri`); an empty one becomes `/`.
    ///
    /// # Errors
    /// If `target` is not valid; nothing is changed then.
    pub fn set_target(&mut self, target: &[u8]) -> Result<(), Error> {
        let method = std::mem::take(&mut self.method);
        let target = if target.is_empty() { b"/" } else { target };
        let taken = self.take_start_line(&method, target, is_lenient_target);
        self.method = method;
        if taken.is_ok() {
            self.assembled = false;
        }
        taken
    }

    /// Makes `Host` say what an absolute target says, as a proxy has to (RFC 9112, 3.2.2). Other targets name no host.
    ///
    /// # Errors
    /// If the target names a host that cannot be one.
    pub fn take_host_of_target(&mut self) -> Result<(), Error> {
        if self.form() != TargetForm::Absolute {
            return Ok(());
        }
        let (start, end) = self.parts.authority;
        let authority = self.target[start..end].to_vec();
        split_authority(&authority).ok_or(Error::Authority)?;
        self.fields.set(b"host", &authority)
    }

    /// Makes an absolute target name the host that the last `Host` names: whoever gets such a target ignores the field (RFC 9112, 3.2.2). If
    /// that is no host, the path alone is the target, so that no other host is named.
    pub fn put_host_into_target(&mut self) {
        if self.form() != TargetForm::Absolute {
            return;
        }
        let Some(host) = self.fields.all_known(Known::Host).last().map(<[u8]>::to_vec) else { return };
        let (start, end) = self.parts.authority;
        let is_host = split_authority(&host).is_some_and(|authority| !authority.host.is_empty());
        if !is_host || self.splice(start, &host, end).is_err() {
            let path = self.path_and_query();
            let path = if path.starts_with(b"/") { path.to_vec() } else { [b"/", path].concat() };
            // What was valid behind an authority is valid without one.
            let _ = self.set_target(&path);
        }
    }

    /// Another path; scheme, authority and query stay. An empty one becomes `/`: a request line needs a path.
    ///
    /// # Errors
    /// As [`RequestHead::set_target`].
    pub fn set_path(&mut self, path: &[u8]) -> Result<(), Error> {
        let query_at = self.parts.path_at + self.path().len();
        self.splice(self.parts.path_at, if path.is_empty() { b"/" } else { path }, query_at)
    }

    /// Sets path and query; scheme and authority stay. An empty path becomes `/`.
    ///
    /// # Errors
    /// As [`RequestHead::set_target`].
    pub fn set_path_and_query(&mut self, path_and_query: &[u8]) -> Result<(), Error> {
        let with_path = match path_and_query {
            [] | [b'?', ..] => &[b"/", path_and_query].concat(),
            _ => path_and_query,
        };
        self.splice(self.parts.path_at, with_path, self.target.len())
    }

    /// Sets the query, given without its `?`. A `?` that is there stays, even before nothing; none is added for an empty query.
    ///
    /// # Errors
    /// As [`RequestHead::set_target`].
    pub fn set_query(&mut self, query: &[u8]) -> Result<(), Error> {
        let query_at = self.parts.path_at + self.path().len();
        let mut part = Vec::with_capacity(query.len() + 1);
        if !query.is_empty() || query_at < self.target.len() {
            part.push(b'?');
            part.extend_from_slice(query);
        }
        self.splice(query_at, &part, self.target.len())
    }

    /// Replaces `target[start..end]`.
    fn splice(&mut self, start: usize, part: &[u8], end: usize) -> Result<(), Error> {
        let target = [&self.target[..start], part, &self.target[end..]].concat();
        let assembled = self.assembled;
        self.set_target(&target)?;
        self.assembled = assembled && self.parts.form == TargetForm::Absolute;
        Ok(())
    }

    /// Appends the head as it is sent over HTTP/1: start line, fields, empty line. A request that came over HTTP/2 without an authority
    /// gets an empty `Host` (RFC 9112 section 3.2), since a server of HTTP/1.1 refuses a request that has none.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        self.write_start_line(out);
        if self.version == Version::Http2 && !self.fields.has(Known::Host) {
            out.extend_from_slice(b"host: \r\n");
        }
        self.fields.write_to(out);
        out.extend_from_slice(b"\r\n");
    }

    /// Appends the start line as it is sent over HTTP/1.
    pub fn write_start_line(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.method);
        out.push(b' ');
        if self.assembled && self.is_for_http() {
            let path = self.path_and_query();
            if !path.starts_with(b"/") {
                out.push(b'/');
            }
            out.extend_from_slice(path);
        } else {
            out.extend_from_slice(&self.target);
        }
        out.extend_from_slice(if self.version == Version::Http10 { b" HTTP/1.0\r\n" } else { b" HTTP/1.1\r\n" });
    }

    /// Whether the scheme is one of HTTP's. To a server, a path alone means one of these: any other it has to be told.
    fn is_for_http(&self) -> bool {
        self.scheme()
            .is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"http") || scheme.eq_ignore_ascii_case(b"https"))
    }

    /// The port that an authority of this target need not name. CONNECT has no scheme: 80 and 443 stand for the two there
    /// are.
    fn default_port(&self) -> Option<u16> {
        if self.form() == TargetForm::Authority {
            return self.authority().and_then(|authority| authority.port).filter(|port| matches!(port, 80 | 443));
        }
        match self.scheme() {
            Some(scheme) if scheme.eq_ignore_ascii_case(b"http") => Some(80),
            Some(scheme) if scheme.eq_ignore_ascii_case(b"https") => Some(443),
            _ => None,
        }
    }
}

/// Room for a few CRLF that some clients send after a body.
const EMPTY_LINE_BYTES_MAX: usize = 16;

/// Refuses bytes that cannot become a request line, so that a peer which speaks another protocol gets its error at once.
fn check_method_prefix(rest: &[u8]) -> Result<(), Error> {
    let method = rest.split(|&byte| byte == b' ').next().unwrap_or_default();
    match method {
        [] if rest.is_empty() => Ok(()),
        b"\r" => Ok(()),
        _ if is_token(method) => Ok(()),
        _ => Err(Error::Method),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::KEEP_WAITING;

    #[test]
    fn a_released_head_has_its_method_and_version_and_little_memory() {
        let long = "y".repeat(6000);
        let text = format!("POST http://h/{long}?q HTTP/1.0\r\nhost: h\r\nlong: {long}\r\n\r\n");
        let mut head = RequestHead::new();
        assert!(matches!(head.parse(text.as_bytes(), &Limits::default()), Ok(Parse::Complete { .. })));
        head.shrink();
        assert_eq!(head.fields.get(b"long"), Some(long.as_bytes()), "what may be needed again stays");
        head.release();
        assert_eq!((head.method(), head.version()), (&b"POST"[..], Version::Http10));
        assert!(head.target().is_empty() && head.path_and_query().is_empty() && head.authority().is_none());
        assert!(head.fields.is_empty() && !head.fields.has(Known::Host));
        assert!(head.target.capacity() <= KEEP_WAITING && head.fields.capacity() <= 2 * KEEP_WAITING);
    }
}
