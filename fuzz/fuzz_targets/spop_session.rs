//! What an agent sends means the same however it arrives, is bounded in what it makes of it, and ends at most its connection.

#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_spop::{AgentEvent, AgentSession, AgentSettings, ack_actions, check_answer};

fn run(bytes: &[u8], step: usize) -> (Vec<AgentEvent>, Vec<u8>, bool) {
    let settings = AgentSettings {
        max_frame_size: 1024,
        pipelining: true,
        waiting_max: 3,
        is_async: true,
        fragments: true,
        engine_id: "e".into(),
        hello_ms: None,
        idle_ms: None,
    };
    let mut session = AgentSession::new(settings, 0);
    let mut events = Vec::new();
    for piece in bytes.chunks(step) {
        session.input(piece, 0, &mut events);
    }
    let mut number = 0;
    while session.room() {
        number += 1;
        session.notify(1, number, &[7; 300], 0).ok();
        assert!(number <= 3, "it has room for ever");
    }
    (events, session.output().to_vec(), session.is_over())
}

fuzz_target!(|input: (u8, &[u8])| {
    let (step, bytes) = input;
    let whole = run(bytes, bytes.len().max(1));
    assert_eq!(whole, run(bytes, usize::from(step).max(1)));
    let ended = whole.0.iter().filter(|event| matches!(event, AgentEvent::Ended(_))).count();
    assert!(ended <= 1);
    for event in &whole.0 {
        if let AgentEvent::Acknowledged { actions, .. } = event {
            assert!(ack_actions(actions).count() <= actions.len());
        }
    }
    let _ = check_answer(bytes, 1024);
});
