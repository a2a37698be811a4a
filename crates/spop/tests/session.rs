//! Connections to agents: greetings, acknowledgements, fragments, timeouts, and agents that lie.

use penstock_spop::{AgentEvent, AgentSession, AgentSettings, AgentStatus, check_answer, check_request};
use proptest::prelude::*;

const FIN: u32 = 1;
const HELLO: u8 = 101;
const DISCONNECT: u8 = 102;
const ACK: u8 = 103;

fn settings() -> AgentSettings {
    AgentSettings {
        max_frame_size: 1024,
        pipelining: true,
        waiting_max: 3,
        is_async: true,
        fragments: true,
        engine_id: "e".into(),
        hello_ms: Some(100),
        idle_ms: Some(1000),
    }
}

/// A frame whose numbers are below 240.
fn frame(kind: u8, flags: u32, stream: u8, number: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (7 + payload.len() as u32).to_be_bytes().to_vec();
    bytes.push(kind);
    bytes.extend(flags.to_be_bytes());
    bytes.extend([stream, number]);
    bytes.extend(payload);
    bytes
}

fn hello(capabilities: &str) -> Vec<u8> {
    let mut payload = b"\x07version\x08\x032.0\x0emax-frame-size\x03\xf0\x01\x0ccapabilities\x08".to_vec();
    payload.push(capabilities.len() as u8);
    payload.extend(capabilities.bytes());
    frame(HELLO, FIN, 0, 0, &payload)
}

fn farewell(code: u8) -> Vec<u8> {
    frame(DISCONNECT, FIN, 0, 0, &[b"\x0bstatus-code\x03", &[code][..]].concat())
}

fn acknowledged(stream: u64, frame: u64, actions: &[u8]) -> AgentEvent {
    AgentEvent::Acknowledged { stream, frame, actions: actions.to_vec() }
}

/// A session whose agent has greeted; both say what they said with it.
fn open(settings: AgentSettings, capabilities: &str) -> AgentSession {
    let mut session = AgentSession::new(settings, 0);
    let mut events = Vec::new();
    session.input(&hello(capabilities), 0, &mut events);
    assert_eq!(events, [AgentEvent::Ready]);
    let bytes = session.output().len();
    session.sent(bytes);
    session
}

fn input(session: &mut AgentSession, bytes: &[u8], now: u64) -> Vec<AgentEvent> {
    let mut events = Vec::new();
    session.input(bytes, now, &mut events);
    events
}

fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

#[test]
fn a_payload_is_sent_and_acknowledged() {
    let mut session = open(settings(), "pipelining");
    assert!(session.room() && !session.is_async());
    session.notify(5, 1, b"\x02m1\x00", 0).unwrap();
    assert_eq!(text(session.output()), text(&frame(3, FIN, 5, 1, b"\x02m1\x00")));
    assert_eq!(session.waiting(), 1);
    assert_eq!(input(&mut session, &frame(ACK, FIN, 5, 1, b"abc"), 1), [acknowledged(5, 1, b"abc")]);
    assert_eq!(session.waiting(), 0);
}

#[test]
fn without_pipelining_one_payload_waits_at_a_time() {
    for (ours, theirs, most) in [(true, "pipelining", 3), (true, "", 1), (false, "pipelining", 1)] {
        let mut session = open(AgentSettings { pipelining: ours, ..settings() }, theirs);
        for number in 0..most {
            assert!(session.room(), "{ours} {theirs} {number}");
            session.notify(5, number, b"", 0).unwrap();
        }
        assert!(!session.room(), "{ours} {theirs}");
        input(&mut session, &frame(ACK, FIN, 5, 0, b""), 1);
        assert!(session.room(), "{ours} {theirs}");
    }
}

#[test]
fn acknowledgements_come_over_other_connections_where_both_sides_say_so() {
    for (ours, theirs, both) in [(true, "async", true), (true, "", false), (false, "async", false)] {
        assert_eq!(open(AgentSettings { is_async: ours, ..settings() }, theirs).is_async(), both);
    }
    let mut session = open(settings(), "pipelining,async");
    session.notify(5, 1, b"", 0).unwrap();
    session.forget(5, 1);
    assert_eq!(session.waiting(), 0);
    assert_eq!(input(&mut session, &frame(ACK, FIN, 9, 9, b""), 1), [acknowledged(9, 9, b"")]);
}

#[test]
fn payloads_are_sent_in_fragments_where_both_sides_say_so() {
    // The agent's frames have at most 256 bytes; a frame's numbers and flags take seven.
    let payload: Vec<u8> = (0..600u32).map(|at| at as u8).collect();
    let mut session = open(settings(), "fragmentation");
    session.notify(5, 1, &payload, 0).unwrap();
    let expected = [
        frame(3, 0, 5, 1, &payload[..249]),
        frame(0, 0, 5, 1, &payload[249..498]),
        frame(0, FIN, 5, 1, &payload[498..]),
    ];
    assert_eq!(text(session.output()), text(&expected.concat()));
    for (ours, theirs) in [(true, ""), (false, "fragmentation")] {
        let mut session = open(AgentSettings { fragments: ours, ..settings() }, theirs);
        assert_eq!(session.notify(5, 1, &payload[..250], 0), Err(AgentStatus::TOO_BIG));
        assert_eq!((session.output(), session.waiting()), (&[][..], 0));
        assert_eq!(session.notify(5, 1, &payload[..249], 0), Ok(()));
    }
}

#[test]
fn an_agent_that_lies_costs_its_connection_and_is_told_why() {
    let ended = |code| vec![AgentEvent::Ended(AgentStatus(code))];
    for (bytes, code, understood) in [
        (vec![0, 0, 4, 1], 3, false),
        (frame(ACK, 0, 5, 1, b""), 10, true),
        (hello("pipelining"), 4, true),
        (vec![0, 0, 0, 3, 103, 0, 0], 4, false),
    ] {
        let mut session = open(settings(), "pipelining");
        session.notify(5, 1, b"", 0).unwrap();
        session.sent(session.output().len());
        assert_eq!(input(&mut session, &bytes, 0), ended(code), "{bytes:?}");
        let told = [b"status-code\x03", &[code as u8][..]].concat();
        assert!(session.output().windows(told.len()).any(|part| part == told), "{}", text(session.output()));
        assert!(!session.room() && !session.is_over());
        // Nothing that comes now counts, up to the agent's own farewell, if it can be told.
        assert_eq!(input(&mut session, &[frame(ACK, FIN, 5, 1, b""), farewell(0)].concat(), 0), []);
        assert_eq!(session.is_over(), understood, "{bytes:?}");
    }
    let mut session = AgentSession::new(settings(), 0);
    assert_eq!(input(&mut session, &frame(ACK, FIN, 0, 0, b""), 0), ended(4), "an acknowledgement before the hello");
    let mut session = AgentSession::new(settings(), 0);
    assert_eq!(input(&mut session, &frame(HELLO, FIN, 0, 0, b""), 0), ended(5));
}

#[test]
fn an_agent_may_leave_with_a_status_of_its_own() {
    let mut session = open(settings(), "pipelining");
    let all = [frame(ACK, FIN, 5, 1, b""), farewell(77), frame(ACK, FIN, 5, 2, b"")].concat();
    let ended = AgentEvent::Ended(AgentStatus(77));
    assert_eq!(input(&mut session, &all, 0), [acknowledged(5, 1, b""), ended]);
    assert!(session.is_over() && session.output().is_empty());
}

#[test]
fn a_connection_that_closes_has_an_input_output_error() {
    let mut session = open(settings(), "pipelining");
    session.notify(5, 1, b"", 0).unwrap();
    let mut events = Vec::new();
    session.closed(&mut events);
    assert_eq!(events, [AgentEvent::Ended(AgentStatus::IO)]);
    assert!(session.is_over() && session.output().is_empty());
}

#[test]
fn silence_ends_a_connection() {
    let mut session = AgentSession::new(settings(), 50);
    let mut events = Vec::new();
    assert_eq!(session.deadline(), Some(150));
    session.tick(149, &mut events);
    assert_eq!(events, []);
    session.tick(150, &mut events);
    assert_eq!(events, [AgentEvent::Ended(AgentStatus::TIMEOUT)]);
    assert!(session.is_over());

    let mut session = open(settings(), "pipelining");
    assert_eq!(session.deadline(), Some(1000));
    session.notify(5, 1, b"", 400).unwrap();
    assert_eq!(session.deadline(), Some(1400));
    session.notify(5, 2, b"", 900).unwrap();
    assert_eq!(session.deadline(), Some(1400), "what we say is not the agent's sign of life");
    input(&mut session, &frame(ACK, FIN, 5, 1, b""), 950);
    assert_eq!(session.deadline(), Some(1950));
    let (mut events, before) = (Vec::new(), session.output().len());
    session.tick(1950, &mut events);
    assert_eq!(events, [AgentEvent::Ended(AgentStatus::TIMEOUT)]);
    assert!(session.output().len() > before && !session.is_over());
    session.tick(2950, &mut events);
    assert!(session.is_over(), "an agent that does not answer our farewell is not waited for");
}

#[test]
fn a_greeting_in_drops_gets_no_more_time() {
    let mut session = AgentSession::new(settings(), 0);
    let greeting = hello("");
    for (at, byte) in greeting[..greeting.len() - 1].iter().enumerate() {
        assert_eq!(input(&mut session, &[*byte], at as u64), []);
        assert_eq!(session.deadline(), Some(100));
    }
    assert_eq!(input(&mut session, &greeting[greeting.len() - 1..], 99), [AgentEvent::Ready]);
    assert_eq!(session.deadline(), Some(1099), "from here on it is a silence that ends the connection");
}

#[test]
fn payloads_that_nobody_waits_for_make_room_and_are_no_sign_of_life() {
    let mut session = open(AgentSettings { waiting_max: 1, ..settings() }, "pipelining");
    for number in 0..9 {
        assert!(session.room(), "{number}");
        session.notify(5, number, b"", number * 100).unwrap();
        session.forget(5, number);
    }
    assert_eq!(session.deadline(), Some(1000));
    assert_eq!(input(&mut session, &frame(ACK, FIN, 5, 0, b""), 900), [acknowledged(5, 0, b"")]);
    session.notify(5, 9, b"", 950).unwrap();
    assert_eq!(session.deadline(), Some(1950));
}

#[test]
fn an_agent_that_does_not_read_is_sent_no_more_than_a_frame_and_a_payload() {
    let mut session = open(AgentSettings { waiting_max: usize::MAX, ..settings() }, "pipelining,fragmentation");
    let mut number = 0;
    while session.room() {
        session.notify(5, number, &[7; 200], 0).unwrap();
        session.forget(5, number);
        number += 1;
    }
    assert_eq!(number, 2, "its frames have at most 256 bytes");
    session.sent(300);
    assert!(session.room());
}

#[test]
fn unknown_frames_are_skipped() {
    let mut session = open(settings(), "pipelining");
    let all = [frame(200, FIN, 1, 1, b"x"), frame(ACK, FIN, 5, 1, b"")].concat();
    assert_eq!(input(&mut session, &all, 0), [acknowledged(5, 1, b"")]);
}

#[test]
fn a_check_asks_for_a_hello() {
    let request = text(&check_request(1024));
    assert!(request.ends_with("capabilities\\x08\\x00\\x0bhealthcheck\\x11"), "{request}");
    let answer = hello("");
    for cut in 0..answer.len() {
        assert_eq!(check_answer(&answer[..cut], 1024), Ok(None), "cut at {cut}");
    }
    assert_eq!(check_answer(&answer, 1024), Ok(Some(())));
    assert_eq!(check_answer(&farewell(9), 1024), Err(AgentStatus(9)));
    assert_eq!(check_answer(&frame(ACK, FIN, 0, 0, b""), 1024), Err(AgentStatus::INVALID));
    assert_eq!(check_answer(b"HTTP/1.1 400 Bad Request\r\n", 1024), Err(AgentStatus::TOO_BIG));
}

/// Everything a session says and does when its agent's bytes come in pieces of this size.
fn run(bytes: &[u8], step: usize) -> (Vec<AgentEvent>, Vec<u8>, bool) {
    let mut session = AgentSession::new(settings(), 0);
    let mut events = Vec::new();
    bytes.chunks(step).for_each(|piece| session.input(piece, 0, &mut events));
    (events, session.output().to_vec(), session.is_over())
}

#[test]
fn cut_anywhere_a_conversation_is_the_same() {
    let all = [
        hello("pipelining,async,fragmentation"),
        frame(ACK, FIN, 5, 1, b"abc"),
        frame(200, FIN, 5, 1, &[7; 200]),
        frame(ACK, FIN, 6, 1, &[1; 100]),
        farewell(0),
    ]
    .concat();
    let whole = run(&all, all.len());
    assert_eq!(whole.0.len(), 4);
    for step in 1..all.len() {
        assert_eq!(run(&all, step), whole, "in pieces of {step}");
    }
}

proptest! {
    #[test]
    fn nothing_that_an_agent_sends_depends_on_its_pieces(
        noise in proptest::collection::vec(any::<u8>(), 0..80),
        at in 0usize..120,
        step in 1usize..40,
    ) {
        let mut all = [hello("async"), frame(ACK, FIN, 5, 1, b"abc"), frame(ACK, FIN, 5, 2, &[]), farewell(3)].concat();
        let at = at.min(all.len());
        all.splice(at..at, noise);
        prop_assert_eq!(run(&all, step), run(&all, all.len()));
    }
}
