//! Conversations with a session, as clients have them.

use penstock_control::{Command, Level, Session, Settings, Severity, SeverityOutput, Statistics, Step, TABLE};
use proptest::prelude::*;
use std::time::Duration;

const SETTINGS: Settings = Settings {
    table: TABLE,
    level: Level::Admin,
    severity: SeverityOutput::None,
    timeout: Duration::from_secs(10),
    line_max: 128,
    payload_max: 64,
    name: "",
    expert: false,
    experimental: false,
};

/// What a client gets that sends this text in parts of these lengths (the last length applies to the rest), and whether its session is over.
/// Commands are answered by their name.
fn talk(settings: Settings, sent: &[u8], parts: &[usize]) -> (String, bool) {
    talk_at(settings, sent, parts, false)
}

/// As [`talk`], but with `all_is_there` everything has arrived from the start, though it is read in parts.
fn talk_at(settings: Settings, sent: &[u8], parts: &[usize], all_is_there: bool) -> (String, bool) {
    let mut session = Session::new(settings);
    let mut out = Vec::new();
    let mut rest = sent;
    let mut parts = parts.iter().copied();
    let over = loop {
        match session.step(Duration::from_secs(93_784)) {
            Step::Run(request) => {
                match request.command {
                    Command::Process(_) => session.say(Severity::Info, "a process"),
                    Command::Statistics(Statistics::Info(_)) => session.write(b"Name: x\n\nPid: 1\n"),
                    other => session.write(format!("{other:?}\n").as_bytes()),
                }
                session.finish(Duration::from_secs(93_784));
            }
            Step::Look if rest.is_empty() || !all_is_there => session.nothing_came(),
            Step::Read if rest.is_empty() => break false,
            Step::Read | Step::Look => {
                assert!(session.room() > 0, "it reads, and takes nothing");
                let part = parts.next().unwrap_or(rest.len()).clamp(1, rest.len());
                let taken = session.receive(&rest[..part]);
                assert!(taken > 0);
                rest = &rest[taken..];
            }
            Step::Send => {}
            Step::Finish => panic!("it has been finished"),
            Step::Close => break true,
        }
        let sent = session.output().len().min(7);
        out.extend_from_slice(&session.output()[..sent]);
        session.sent(sent);
    };
    out.extend_from_slice(session.output());
    (String::from_utf8(out).unwrap(), over)
}

fn answers(sent: &str) -> String {
    let (answers, over) = talk(SETTINGS, sent.as_bytes(), &[]);
    format!("{answers}{}", if over { "." } else { "" })
}

#[test]
fn one_line_is_answered_and_the_session_is_over() {
    assert_eq!(answers("show version\n"), "a process\n\n.");
    assert_eq!(answers("show version\r\n"), "a process\n\n.");
    assert_eq!(answers("show version; show version\n"), "a process\n\na process\n\n.");
    assert_eq!(answers("show version\nshow version\n"), "a process\n\na process\n\n.", "what came with it counts");
    assert_eq!(answers("show version\nshow"), "a process\n\n", "and is waited for");
    assert_eq!(answers("show version"), "");
    assert_eq!(answers("quit; show version\n"), ".");
}

#[test]
fn no_answer_has_an_empty_line() {
    assert_eq!(answers("show info; show cli level\n"), "Name: x\nPid: 1\n\nadmin\n\n.");
}

#[test]
fn a_prompt_keeps_the_session() {
    assert_eq!(answers("prompt\nshow version\n"), "\n> a process\n\n> ");
    assert_eq!(answers("prompt\nprompt;show version\n"), "\n> \na process\n\n.");
    assert_eq!(answers("prompt;show version\nquit;show version\n"), "\n> a process\n\n> .");
    assert_eq!(answers("prompt i\nshow version\n\n"), answers("prompt i\nshow version\n\n"));
    assert_eq!(answers("prompt i\nshow version\n"), "\na process\n\n");
    assert_eq!(answers("prompt p timed\nshow version\n"), "\n[1:02:03:04]> a process\n\n[1:02:03:04]> ");
    assert_eq!(answers("prompt p\nprompt n\n"), "\n> \n.");
}

#[test]
fn levels_only_go_down() {
    assert_eq!(answers("operator;show cli level;user;show cli level\n"), "\noperator\n\n\nuser\n\n.");
    assert_eq!(
        answers("user;operator;show env;show cli level\n"),
        "\nPermission denied\n\nPermission denied\n\nuser\n\n."
    );
    assert_eq!(answers("user;expert-mode on\n"), "\nPermission denied\n\n.");
    assert_eq!(answers("expert-mode;expert-mode on;expert-mode\n"), "expert-mode is OFF\n\n\nexpert-mode is ON\n\n.");
}

#[test]
fn sentences_have_their_severity_and_data_has_none() {
    let number = "set severity-output number;";
    assert_eq!(answers(&format!("{number}show version;show info\n")), "\n[6]: a process\n\nName: x\nPid: 1\n\n.");
    assert_eq!(answers(&format!("{number}set timeout foo\n")), "\n[3]: 'set timeout' only supports 'cli'.\n\n.");
    assert_eq!(answers("set severity-output string;set timeout cli x\n"), "\n[err]: Invalid timeout value.\n\n.");
    let unknown = answers(&format!("{number}foo\n"));
    assert!(unknown.starts_with("\n[6]: Unknown command. Please enter"), "{unknown}");
}

#[test]
fn a_payload_belongs_to_the_last_command_of_its_line() {
    assert_eq!(
        answers("prompt\nshow version;show version <<\na\nb\n\nshow version\n"),
        "\n> a process\n\n> + + + a process\n\n> a process\n\n> "
    );
    assert_eq!(answers("show version <<EOF\na\n\nb\nEOF\n"), "a process\n\n.");
    assert_eq!(answers("show version <<\r\na\r\n\r\n"), "a process\n\n.");
    assert_eq!(answers("show version <<\na\n"), "");
}

#[test]
fn what_is_too_long_is_refused_and_ends_the_session() {
    let line = "x".repeat(129);
    let sentence = "A line may have 128 bytes, as tune.bufsize says.\n\n.";
    assert_eq!(answers(&format!("{line}\nshow version\n")), sentence);
    assert_eq!(answers(&format!("prompt\n{line}")), format!("\n> {}", sentence.replace("\n\n.", "\n\n> .")));
    let sentence = "A payload may have 64 bytes, as tune.cli.max-payload-size says.\n\n.";
    assert_eq!(answers(&format!("show version <<\n{}\n\n", "x".repeat(65))), sentence);
    assert_eq!(answers(&format!("show version <<\n{}\n", "x\n".repeat(33))), sentence);
    assert_eq!(answers(&format!("show version <<\n{}\n\n", "x".repeat(63))), "a process\n\n.");
}

#[test]
fn a_zero_byte_is_refused_and_ends_the_session() {
    let sentence = "A command and its payload cannot contain a zero byte.\n\n.";
    assert_eq!(answers("show version\0;show version\nshow version\n"), sentence);
    assert_eq!(answers("show version <<\na\nb\0\nc\n\nshow version\n"), sentence);
}

#[test]
fn a_payload_of_any_length_is_answered_the_same_wherever_it_is_cut() {
    let long = "E".repeat(20);
    for (end, newline) in [("", "\n"), ("", "\r\n"), ("E", "\n"), ("E", "\r\n"), (&long, "\n"), (&long, "\r\n")] {
        for length in 40..=66 {
            let begin = format!("prompt\nx <<{end}{newline}");
            let sent = format!("{begin}{}\n{end}{newline}show version\n", "x".repeat(length));
            let whole = talk(SETTINGS, sent.as_bytes(), &[]);
            assert_eq!(whole.0.contains("tune.cli"), length >= 64, "{end} {length}");
            for cut in 1..sent.len() {
                assert_eq!(talk(SETTINGS, sent.as_bytes(), &[cut]), whole, "{end} {length} {cut}");
            }
            assert_eq!(talk(SETTINGS, sent.as_bytes(), &vec![1; sent.len()]), whole, "{end} {length}");
        }
    }
}

#[test]
fn lines_that_were_sent_together_are_answered_however_they_are_read() {
    let sent = "show version\n".repeat(40);
    let (answers, over) = talk_at(SETTINGS, sent.as_bytes(), &["show version\n".len(); 40], true);
    assert_eq!((answers, over), ("a process\n\n".repeat(40), true));
}

#[test]
fn a_line_of_many_pages_is_answered_as_fast_as_its_client_reads() {
    let mut session = Session::new(Settings { line_max: 16_384, ..SETTINGS });
    session.receive("help;".repeat(3000).as_bytes());
    session.receive(b"\n");
    let mut whole = 0;
    loop {
        match session.step(Duration::ZERO) {
            Step::Send => {}
            Step::Look => session.nothing_came(),
            Step::Close => break,
            other => panic!("{other:?}"),
        }
        let made = session.output().len();
        assert!(made < 100_000, "{made} bytes are made before any is sent");
        session.sent(made);
        whole += made;
    }
    assert!(whole > 10_000_000, "{whole}");
}

#[test]
fn a_timeout_is_changed() {
    let mut session = Session::new(SETTINGS);
    session.receive(b"set timeout cli 3m\n");
    assert!(matches!(session.step(Duration::ZERO), Step::Look));
    session.nothing_came();
    assert!(matches!(session.step(Duration::ZERO), Step::Close));
    assert_eq!(session.timeout(), Duration::from_secs(180));
}

/// Lines that say much, and anything else.
fn conversation() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![
        "show version",
        "prompt p",
        "prompt i",
        "quit",
        ";",
        "\n",
        "\n",
        "\r\n",
        " <<\n",
        " <<E\n",
        "E\n",
        "show info",
        "\\",
        "help",
        "user",
        "set severity-output number",
        "expert-mode on",
        "\n\n",
        "show stat 1 2 3 json",
        "x",
        " ",
    ]);
    let piece = prop_oneof![8 => known.prop_map(|text| text.as_bytes().to_vec()), 1 => prop::collection::vec(any::<u8>(), 0..200)];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn wherever_the_input_is_cut_the_answers_are_the_same(
        lines in conversation(),
        parts in prop::collection::vec(1_usize..40, 0..60),
    ) {
        let sent = [b"prompt\n".to_vec(), lines].concat();
        let (whole, over) = talk(SETTINGS, &sent, &[]);
        for parts in [parts, vec![1; sent.len()]] {
            let (cut, ended) = talk(SETTINGS, &sent, &parts);
            // Not interactive any more, it ends where it has nothing left to carry out: here or there, as what came was cut.
            let is_same =
                if ended || over { whole.starts_with(&cut) || cut.starts_with(&whole) } else { whole == cut };
            prop_assert!(is_same, "{whole:?} {cut:?}");
        }
    }
}
