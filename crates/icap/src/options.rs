//! What a service says about itself in its answer to OPTIONS.

use crate::head::Head;
use std::time::Duration;

/// A service's description of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceOptions {
    /// Whether the service modifies requests, and responses.
    pub methods: [bool; 2],
    /// Changes whenever the service answers differently than before.
    pub istag: Vec<u8>,
    /// How many bytes of a body it wants to see before it decides.
    pub preview: Option<usize>,
    /// Whether the service may refer to the original body (`Allow: 206`).
    pub allow_206: bool,
    /// How long this holds.
    pub ttl: Option<Duration>,
}

/// The longest preview; what a service asks for beyond is not sent before it says `100 Continue`.
const PREVIEW_MAX: usize = 1 << 20;

impl ServiceOptions {
    /// Reads the answer to OPTIONS.
    pub fn of(head: &Head) -> ServiceOptions {
        let number = |name| std::str::from_utf8(head.get(name)?).ok()?.parse::<u64>().ok();
        let takes = |method: &[u8]| head.list("methods").any(|word| word.eq_ignore_ascii_case(method));
        ServiceOptions {
            methods: [takes(b"REQMOD"), takes(b"RESPMOD")],
            istag: head.get("istag").unwrap_or_default().to_vec(),
            preview: number("preview").map(|bytes| usize::try_from(bytes).unwrap_or(PREVIEW_MAX).min(PREVIEW_MAX)),
            allow_206: head.list("allow").any(|word| word == b"206"),
            ttl: number("options-ttl").map(Duration::from_secs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_c_icap_is_understood() {
        let text = b"ICAP/1.0 200 OK\r\nMethods: RESPMOD, REQMOD\r\nService: C-ICAP/0.5.10 server - Antivirus service\r\n\
                     ISTag: \"CI0001-abc\"\r\nTransfer-Preview: *\r\nOptions-TTL: 3600\r\nDate: Wed, 25 Nov 2026 18:00:00 GMT\r\n\
                     Preview: 1024\r\nAllow: 204, 206\r\nEncapsulated: null-body=0\r\n\r\n";
        let options = ServiceOptions::of(&Head::parse(text, 0).unwrap().unwrap().0);
        let expected = ServiceOptions {
            methods: [true, true],
            istag: b"\"CI0001-abc\"".to_vec(),
            preview: Some(1024),
            allow_206: true,
            ttl: Some(Duration::from_secs(3600)),
        };
        assert_eq!(options, expected);
    }
}
