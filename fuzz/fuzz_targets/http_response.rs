//! A response that is taken can be written and read back, and its framing is then beyond doubt.

#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_http::{Limits, Parse, ResponseHead, response_framing};

fuzz_target!(|input: &[u8]| {
    let limits = Limits::default();
    let mut head = ResponseHead::new();
    let Ok(Parse::Complete { consumed }) = head.parse(input, &limits) else { return };
    assert!(consumed <= input.len());
    let Ok(framing) = response_framing(&mut head, b"GET", true) else { return };
    let mut written = Vec::new();
    head.write_to(&mut written);
    // What we write may be longer than what came: a space after each colon, a CR before each LF.
    assert!(written.len() <= consumed + 2 * (head.fields.len() + 2));
    let limits = Limits { head_bytes: written.len(), ..limits };
    let mut again = ResponseHead::new();
    assert_eq!(again.parse(&written, &limits), Ok(Parse::Complete { consumed: written.len() }));
    assert_eq!(response_framing(&mut again, b"GET", true), Ok(framing));
    assert_eq!(written.iter().filter(|byte| **byte == b'\n').count(), head.fields.len() + 2);
});
