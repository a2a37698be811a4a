//! Extracts the part of a request that `balance` looks at.

use memchr::memchr;
use penstock_config::model::BalanceKey;
use std::net::IpAddr;

/// The parts of a request that a key may come from; the caller fills in those that the backend's `balance` needs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Subject<'a> {
    /// The client's address, for `source`.
    pub source: Option<IpAddr>,
    /// The request target as received, for `uri` and `url_param`.
    pub target: &'a [u8],
    /// For `hdr`: the first field with the named header, up to its first comma.
    pub header: Option<&'a [u8]>,
    /// The buffered part of a POST's body, for `url_param`.
    pub body: &'a [u8],
    /// The value of `hash`'s expression, or of the RDP cookie.
    pub sample: Option<&'a [u8]>,
}

/// An IPv4 address as a number; the 32-bit words of an IPv6 address are combined by XOR.
pub(super) fn fold_address(ip: IpAddr) -> u32 {
    match ip {
        IpAddr::V4(ip) => u32::from(ip),
        IpAddr::V6(ip) => {
            let bits = u128::from(ip);
            [96, 64, 32, 0].iter().fold(0, |h, shift| h ^ (bits >> shift) as u32)
        }
    }
}

/// The bytes to hash; `None` means falling back to a rotation.
pub(super) fn extract<'a>(key: &BalanceKey, subject: &Subject<'a>) -> Option<&'a [u8]> {
    match key {
        BalanceKey::Uri { whole, path_only, len, depth } => {
            let target = if *path_only { path_of(subject.target) } else { subject.target };
            Some(uri(target, *whole, *len, *depth))
        }
        // HAProxy looks into bodies even without `check_post`.
        BalanceKey::UrlParam { name, .. } => {
            let in_query = memchr(b'?', subject.target).map(|at| &subject.target[at + 1..]);
            let in_query = in_query.and_then(|query| param(query, name.as_bytes()));
            in_query.or_else(|| post_param(subject.body, name.as_bytes()))
        }
        BalanceKey::Hdr { use_domain_only, .. } => {
            let value = subject.header.filter(|v| !v.is_empty())?;
            Some(if *use_domain_only { domain(value) } else { value })
        }
        BalanceKey::Sample(_) => subject.sample.filter(|s| !s.is_empty()),
        // An address is not hashed as a string of bytes: see `fold_address`.
        BalanceKey::Source => None,
    }
}

/// The path of a target in absolute form starts after its authority.
fn path_of(target: &[u8]) -> &[u8] {
    if target.first() == Some(&b'/') {
        return target;
    }
    let Some(scheme) = memchr::memmem::find(target, b"://") else { return target };
    let rest = &target[scheme + 3..];
    memchr(b'/', rest).map_or(&[][..], |at| &rest[at..])
}

/// The target up to the query (or including it with `whole`), at most `len` bytes and `depth` directories.
fn uri(target: &[u8], whole: bool, len: Option<u32>, depth: Option<u32>) -> &[u8] {
    let limit = len.filter(|&n| n > 0).map_or(target.len(), |n| target.len().min(n as usize));
    // The path's first slash does not count as a directory.
    let mut slashes = depth.filter(|&n| n > 0).map(|n| n + 1);
    let end = target[..limit].iter().position(|&c| match (c, &mut slashes) {
        (b'/', Some(left)) => {
            *left -= 1;
            *left == 0
        }
        (b'?', _) => !whole,
        _ => false,
    });
    &target[..end.unwrap_or(limit)]
}

/// The value of `name` in a query string. Empty values count.
fn param<'a>(query: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    query.split(|&c| c == b'&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix(b"="))
}

/// The value of `name` in a body. If the body contains bytes that are invalid in a form, there is none.
fn post_param<'a>(body: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let value = param(body, name)?;
    match value.first() {
        None => Some(value),
        Some(b' ' | b'\t' | b'\r' | b'\n') => Some(&[]),
        Some(c) if c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(c) => Some(value),
        Some(_) => None,
    }
}

/// The label before the top-level one: `example` in `www.example.com`. Going backwards, the last dot ends it and the
/// next one starts it; but a dot adjacent to the last one, or at the very start, is ignored, so that `x..c` gives `x.`;
/// names without a dot are used as a whole.
fn domain(host: &[u8]) -> &[u8] {
    let (mut start, mut end) = (host.len(), None);
    while start > 0 {
        match end {
            Some(_) if host[start - 1] == b'.' => break,
            None if host.get(start) == Some(&b'.') => end = Some(start),
            _ => {}
        }
        start -= 1;
    }
    &host[start..end.unwrap_or(host.len())]
}
