//! The forms a request target takes (RFC 9112 section 3.2).

/// Which form a target has, decided by its first bytes and the method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TargetForm {
    /// `/path?query`
    #[default]
    Origin,
    /// `scheme://authority/path?query`
    Absolute,
    /// `host:port`, of CONNECT alone.
    Authority,
    /// `*`
    Asterisk,
}

/// The form of a target, and the offsets of its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) form: TargetForm,
    /// Length of the scheme, without `://`.
    pub(crate) scheme_len: usize,
    /// Start and end of the authority.
    pub(crate) authority: (usize, usize),
    /// Start of the path; the length of the target when it has none.
    pub(crate) path_at: usize,
}

impl Parts {
    /// Takes a target apart; `None` when it has none of the four forms.
    pub(crate) fn of(method: &[u8], target: &[u8]) -> Option<Parts> {
        if method == b"CONNECT" {
            return Some(Parts {
                form: TargetForm::Authority,
                scheme_len: 0,
                authority: (0, target.len()),
                path_at: target.len(),
            });
        }
        match target {
            [b'/', ..] => Some(Parts::default()),
            // RFC 9112 section 3.2.4: of OPTIONS alone.
            b"*" if method == b"OPTIONS" => Some(Parts { form: TargetForm::Asterisk, ..Parts::default() }),
            _ => {
                let scheme_len = target.iter().position(|&byte| !is_scheme(byte))?;
                if scheme_len == 0 || !target[0].is_ascii_alphabetic() || !target[scheme_len..].starts_with(b"://") {
                    return None;
                }
                let start = scheme_len + 3;
                // A query without a path before it is in the authority, which then is none: servers and caches do not agree
                // where such a path begins.
                let end = memchr::memchr(b'/', &target[start..]).map(|n| start + n);
                let end = end.unwrap_or(target.len());
                Some(Parts { form: TargetForm::Absolute, scheme_len, authority: (start, end), path_at: end })
            }
        }
    }
}

fn is_scheme(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')
}
