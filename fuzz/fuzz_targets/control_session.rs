//! Any bytes of a client of a stats socket: whole or cut anywhere, the answers are the same as far as they go, no answer has an empty line before its
//! end, and nothing grows beyond its bound.

#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_control::{Level, Session, Settings, SeverityOutput, Step, TABLE};
use std::time::Duration;

const SETTINGS: Settings = Settings {
    table: TABLE,
    level: Level::Admin,
    severity: SeverityOutput::None,
    timeout: Duration::from_secs(10),
    line_max: 256,
    payload_max: 512,
    name: "",
    expert: false,
    experimental: false,
};

fn talk(mut sent: &[u8], part: usize) -> Vec<u8> {
    let mut session = Session::new(SETTINGS);
    session.receive(b"prompt\n");
    let mut out = Vec::new();
    loop {
        match session.step(Duration::ZERO) {
            Step::Run(request) => {
                session.write(format!("{:?}\n\n\n", request.command).as_bytes());
                session.finish(Duration::ZERO);
            }
            Step::Look if sent.is_empty() => session.nothing_came(),
            Step::Read if sent.is_empty() => break,
            Step::Read | Step::Look => {
                let taken = session.receive(&sent[..part.min(sent.len())]);
                assert!(taken > 0);
                sent = &sent[taken..];
            }
            Step::Send => {}
            Step::Finish => unreachable!("it has been finished"),
            Step::Close => break,
        }
        // A payload, the longest line that may end it, and two bytes for the end of that line.
        assert!(session.room() <= 512 + 64 + 2);
        out.extend_from_slice(session.output());
        session.sent(session.output().len());
    }
    assert!(!out.windows(3).any(|bytes| bytes == b"\n\n\n"));
    out
}

fuzz_target!(|data: &[u8]| {
    let (part, sent) = data.split_first().map_or((1, data), |(&part, rest)| (usize::from(part).max(1), rest));
    // Once it is not interactive any more, it ends where it has nothing left to carry out: here or there, as what came was cut.
    let whole = talk(sent, usize::MAX);
    for cut in [talk(sent, 1), talk(sent, part)] {
        assert!(whole.starts_with(&cut) || cut.starts_with(&whole));
    }
});
