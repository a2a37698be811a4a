//! An answer of an ICAP service means the same however it arrives, and what is taken of it is framed by us alone.

#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_http::{Known, Limits, RequestHead, ResponseHead};
use penstock_icap::{IcapMethod, ServiceDecision, IcapRequest, Start, Transaction};

const LONGEST: u64 = 1 << 16;

fn decide(method: IcapMethod, answer: &[u8], step: usize) -> Option<(Option<Vec<u8>>, Option<Vec<u8>>, Option<u64>)> {
    let (request, response) = (RequestHead::from_parts(b"GET", b"/", Default::default()).unwrap(), ResponseHead::from_status(200));
    let (request, response) = (Some(&request), Some(&response));
    let asked = IcapRequest { method, host: "h", path: "/", fields: &[], scheme: "http", request, response };
    let start = Start { has_body: true, bytes: b"0123456789", complete: true, preview: Some(4), allow_206: true };
    let mut transaction = Transaction::new(&asked, start, Limits::default(), LONGEST);
    for piece in answer.chunks(step) {
        transaction.input(piece).ok()?;
        let length = transaction.output().len();
        transaction.sent(length);
    }
    let ServiceDecision::Modified(found) = transaction.finish()? else { return Some((None, None, None)) };
    let mut written = Vec::new();
    if let Some(head) = &found.request {
        assert!(!head.fields.has(Known::TransferEncoding) && !head.fields.has(Known::ContentLength));
        head.write_to(&mut written);
    }
    if let Some(head) = &found.response {
        assert!(!head.fields.has(Known::TransferEncoding) && !head.fields.has(Known::ContentLength));
        head.write_to(&mut written);
    }
    assert!(found.body.as_ref().is_none_or(|body| body.len() <= LONGEST));
    Some((Some(written), found.body.map(|body| body.to_vec()), found.original_from))
}

fuzz_target!(|input: (bool, u8, &[u8])| {
    let (requests, step, answer) = input;
    let method = if requests { IcapMethod::Reqmod } else { IcapMethod::Respmod };
    let whole = decide(method, answer, answer.len().max(1));
    assert_eq!(decide(method, answer, usize::from(step).max(1)), whole);
});
