//! A request read whole, read in two pieces, and read back from what we write must be one and the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_http::{Limits, Parse, Progress, RequestHead, request_framing};

fuzz_target!(|data: &[u8]| {
    let Some((&split, input)) = data.split_first() else { return };
    let limits = Limits::default();
    let mut head = RequestHead::new();
    let whole = head.parse(input, &limits);

    let (mut pieces, mut progress) = (RequestHead::new(), Progress::default());
    let first = pieces.read(&mut progress, &input[..input.len().min(usize::from(split))], &limits);
    let split = if first == Ok(Parse::Partial) { pieces.read(&mut progress, input, &limits) } else { first };
    assert_eq!(split.is_ok(), whole.is_ok());

    if let Ok(Parse::Complete { consumed }) = whole {
        assert!(consumed <= input.len());
        let mut written = Vec::new();
        head.write_to(&mut written);
        // What we write may be longer than what came: a space after each colon, a CR before each LF.
        assert!(written.len() <= consumed + 2 * (head.fields.len() + 2));
        let limits = Limits { head_bytes: written.len(), ..limits };
        let mut again = RequestHead::new();
        assert_eq!(again.parse(&written, &limits), Ok(Parse::Complete { consumed: written.len() }));
        assert_eq!(request_framing(&mut again), request_framing(&mut head));
        // The one thing no head may bring to the server: a second reading.
        assert!(!written.contains(&0));
        assert_eq!(written.iter().filter(|byte| **byte == b'\n').count(), head.fields.len() + 2);
        assert_eq!(written.iter().filter(|byte| **byte == b'\r').count(), head.fields.len() + 2);
    }
});
