//! `host [":" port]`, as it stands in a `Host` field and in an absolute or CONNECT target.

/// An authority taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authority<'a> {
    /// The host; an IPv6 address keeps its brackets.
    pub host: &'a [u8],
    /// The port, when one is written: `a:` has none.
    pub port: Option<u16>,
}

impl Authority<'_> {
    /// Whether two authorities name the same place for a scheme whose port is `default_port`.
    pub fn same_as(&self, other: &Authority<'_>, default_port: Option<u16>) -> bool {
        self.host.eq_ignore_ascii_case(other.host) && self.port.or(default_port) == other.port.or(default_port)
    }
}

/// Takes an authority apart; `None` when it is not one. User information (`user@host`) is not accepted: RFC 9110
/// section 4.2.4 has it treated as an error, since it serves to hide the host.
pub fn split_authority(bytes: &[u8]) -> Option<Authority<'_>> {
    let (host, rest) = match bytes {
        [b'[', ..] => {
            let end = bytes.iter().position(|&byte| byte == b']')?;
            let inside = &bytes[1..end];
            // An IPv6 address, perhaps with a zone; or the `vN.` form of the future, of the same bytes.
            if inside.is_empty() || !inside.iter().all(|&byte| byte == b':' || is_reg_name(byte)) {
                return None;
            }
            bytes.split_at(end + 1)
        }
        _ => {
            // What follows, if anything, is no part of a host: below it has to be a port.
            bytes.split_at(bytes.iter().position(|&byte| !is_reg_name(byte)).unwrap_or(bytes.len()))
        }
    };
    let port = match rest {
        [] | [b':'] => None,
        [b':', digits @ ..] => Some(parse_port(digits)?),
        _ => return None,
    };
    Some(Authority { host, port })
}

fn parse_port(digits: &[u8]) -> Option<u16> {
    if digits.len() > 5 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let port = digits.iter().fold(0u32, |port, digit| port * 10 + u32::from(digit - b'0'));
    u16::try_from(port).ok()
}

/// RFC 3986 section 3.2.2: unreserved, percent-encoded, sub-delims; but no comma, as in HAProxy 3.0: it may be where
/// someone put two `Host` fields together, and whoever reads them later takes one or the other.
fn is_reg_name(byte: u8) -> bool {
    REG_NAME[usize::from(byte)]
}

static REG_NAME: [bool; 256] = {
    let mut table = [false; 256];
    let mut at = 0;
    while at < 256 {
        let byte = at as u8;
        table[at] = byte.is_ascii_alphanumeric()
            || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'%' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*')
            || matches!(byte, b'+' | b';' | b'=');
        at += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_are_taken_apart() {
        let split = |text: &'static str| split_authority(text.as_bytes()).map(|it| (it.host, it.port));
        assert_eq!(split("a.example:8443"), Some((&b"a.example"[..], Some(8443))));
        assert_eq!(split("a_b:"), Some((&b"a_b"[..], None)));
        assert_eq!(split("[::1]:80"), Some((&b"[::1]"[..], Some(80))));
        assert_eq!(split(""), Some((&b""[..], None)));
        for wrong in ["u@a", "a/b", "a b", "a:b", "a:65536", "a:1:2", "[]", "[::1", "[::1]x", "a:+80", "a\0", "a,b:x"] {
            assert_eq!(split(wrong), None, "{wrong:?}");
        }
    }
}
