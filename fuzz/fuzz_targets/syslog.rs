//! Any bytes as a stream of syslog messages: cut in the same places however they arrive, no byte read twice or passed over,
//! and no header that loses a part of its message.
#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_rules::syslog::{HeaderKind, SyslogMessage, bsd_time, frame, ietf_time};

const MAX: usize = 256;

fuzz_target!(|input: &[u8]| {
    let mut rest = input;
    while let Ok(Some((place, end))) = frame(rest, MAX) {
        assert!(place.start <= place.end && place.end <= end && end <= rest.len() && 0 < end && end <= MAX);
        for cut in [end - 1, end / 2, 0] {
            assert_eq!(frame(&rest[..cut], MAX), Ok(None), "less than a message is not one yet");
        }
        read(&rest[place]);
        rest = &rest[end..];
    }
    assert!(rest.len() < MAX || frame(rest, MAX).is_err(), "that many bytes always decide");
    read(input);
});

fn read(bytes: &[u8]) {
    let message = SyslogMessage::parse(bytes);
    let plain = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    assert!(plain.ends_with(message.text));
    assert!(message.priority.is_some() || message.text == plain);
    if message.header == HeaderKind::None {
        assert!(message.time.is_none() && message.host.is_none() && message.tag.is_none());
    }
    if let Some(time) = message.time {
        let turned = if message.header == HeaderKind::Bsd { ietf_time(time, b"2026") } else { bsd_time(time) };
        assert!(turned.is_some() || message.header == HeaderKind::Ietf);
    }
}
