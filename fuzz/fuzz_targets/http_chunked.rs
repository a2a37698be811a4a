//! A chunked body gives the same payload whole and in pieces, and what is forwarded of it reads the same again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_http::{BodyReader, Framing, Limits, Step, write_last_chunk};

/// Payload and what would be forwarded; `None` when the body is malformed or incomplete.
fn read(input: &[u8], piece: usize, limits: Limits) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut body = BodyReader::new(Framing::Chunked, limits);
    let (mut payload, mut forwarded, mut at, mut seen) = (Vec::new(), Vec::new(), 0, 0);
    loop {
        match body.step(&input[at..seen]).ok()? {
            Step::Data(len) => {
                payload.extend_from_slice(&input[at..at + len]);
                forwarded.extend_from_slice(&input[at..at + len]);
                at += len;
            }
            Step::Framing(len) => {
                forwarded.extend_from_slice(&input[at..at + len]);
                at += len;
            }
            Step::Skip(len) => at += len,
            Step::NeedMore if seen == input.len() => return None,
            Step::NeedMore => seen = input.len().min(seen + piece),
            Step::End => break,
        }
    }
    write_last_chunk(body.trailers(), &mut forwarded);
    Some((payload, forwarded))
}

fuzz_target!(|data: &[u8]| {
    let Some((&piece, input)) = data.split_first() else { return };
    let limits = Limits::default();
    let whole = read(input, input.len().max(1), limits);
    assert_eq!(read(input, usize::from(piece).max(1), limits), whole);
    if let Some((payload, forwarded)) = whole {
        // Trailers may be longer as we write them: a space after each colon.
        let limits = Limits { head_bytes: limits.head_bytes + limits.fields, ..limits };
        assert_eq!(read(&forwarded, forwarded.len(), limits), Some((payload, forwarded)));
    }
});
