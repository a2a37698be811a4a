//! A PROXY header that is taken can be written as version 2 and means the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_http::proxy_protocol::{Parse, parse, write_v2};

fuzz_target!(|input: &[u8]| {
    let Ok(Parse::Complete(header, len)) = parse(input) else { return };
    assert!(len <= input.len());
    let mut out = Vec::new();
    write_v2(&header, &mut out).expect("what was read fits");
    if let Ok(Parse::Complete(again, _)) = parse(&out) {
        assert_eq!(again.addresses, header.addresses);
        // A header without addresses is LOCAL, of which nothing more is read.
        assert!(again.local || again.tlvs == header.tlvs);
    }
});
