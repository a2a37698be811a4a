//! What is kept is what a process needs to be told to be where the one before it was.

use super::*;

fn given(text: &str) -> Given {
    let (line, payload) = text.split_once('\n').map_or((text, None), |(line, payload)| (line, Some(payload)));
    Given { words: line.split(' ').map(String::from).collect(), payload: payload.map(|text| text.as_bytes().to_vec()) }
}

fn list(_: PatternKind, name: &str) -> Option<String> {
    match name {
        "#0" => None,
        "#1" => Some("m".into()),
        name => Some(name.into()),
    }
}

fn ticket_keys(which: &str) -> Option<String> {
    matches!(which, "#0" | "k.keys").then(|| "k.keys".into())
}

fn files() -> FilesRead<'static> {
    FilesRead { digest: &|_| None, list: &list, stapled: &|_| Some("a.pem".into()), ticket_keys: &ticket_keys }
}

/// The file after these commands, and what a process that reads it is told.
fn after(commands: &[&str]) -> (Vec<String>, Vec<String>) {
    let files = &files();
    let mut kept = KeptChanges::default();
    let mut file = Vec::new();
    for text in commands {
        let given = given(text);
        let command = given.command().unwrap_or_else(|| panic!("no command: {text}"));
        assert!(KeptChanges::concerns(&command), "{text}");
        file.extend(Event::lines(&kept.record(&command, given, files)).lines().map(str::to_owned));
    }
    let mut again = KeptChanges::default();
    file.iter().for_each(|line| again.read(Event::parse(line).expect("a line").0, files));
    let shown = |kept: &KeptChanges| {
        let text = |event: &Event| {
            let payload = event.given.payload.as_deref().map(String::from_utf8_lossy);
            event.given.words.join(" ") + &payload.map_or(String::new(), |payload| format!("\n{payload}"))
        };
        kept.lines().map(text).collect::<Vec<_>>()
    };
    assert_eq!(shown(&kept), shown(&again), "the file says the same: {file:#?}");
    let length = kept.lines().map(|event| event.line().len() as u64 + 1).sum::<u64>();
    assert_eq!((kept.length(), again.length()), (length, length));
    let shown = shown(&kept);
    (file, shown)
}

#[test]
fn a_certificate_is_kept_when_it_is_committed_and_only_the_last_one() {
    let (file, kept) = after(&["set ssl cert a.pem\nONE"]);
    assert!(file.is_empty() && kept.is_empty(), "a key is written nowhere before its transaction is committed");
    let (file, kept) = after(&[
        "set ssl cert a.pem\nONE",
        "commit ssl cert a.pem",
        "set ssl cert a.pem.ocsp\nSTAPLE",
        "commit ssl cert a.pem",
        "set ssl cert a.pem\nTWO",
        "abort ssl cert a.pem",
        "set ssl cert a.pem\nTHREE",
        "commit ssl cert a.pem",
    ]);
    assert_eq!(kept, ["set ssl cert a.pem.ocsp\nSTAPLE", "set ssl cert a.pem\nTHREE", "commit ssl cert a.pem"]);
    assert_eq!(file.len(), 6);
}

#[test]
fn what_acme_does_is_kept_and_what_is_deleted_again_is_not() {
    let made =
        ["new ssl cert n.pem", "set ssl cert n.pem\nONE", "commit ssl cert n.pem", "add ssl crt-list certs n.pem"];
    assert_eq!(after(&made).1, made);
    let undone = [&made[..], &["del ssl crt-list certs n.pem", "del ssl cert n.pem"]].concat();
    assert!(after(&undone).1.is_empty());
    assert_eq!(after(&["del ssl crt-list certs old.pem", "del ssl cert old.pem"]).1.len(), 2);
}

#[test]
fn lists_keep_the_last_word_on_each_key() {
    assert_eq!(after(&["set map m k 1", "set map m k 2", "set map #1 k 3"]).1, ["set map m k 3"]);
    assert_eq!(after(&["add map m k 1", "set map m k 2", "add map m l 1"]).1.len(), 3);
    assert_eq!(after(&["add map m k 1", "add map m l 1", "del map m k"]).1, ["add map m l 1", "del map m k"]);
    assert_eq!(after(&["add map m k 1", "clear map m", "add acl a x"]).1, ["clear map m", "add acl a x"]);
    assert!(after(&["add acl #0 x", "set map m #0x1 v"]).1.is_empty(), "what has no file, or only a number");
}

#[test]
fn a_version_is_kept_whole_when_it_is_committed() {
    let (file, kept) = after(&[
        "add map m old 1",
        "prepare map m",
        "add map @1 m\na 1\nb 2\n",
        "prepare map m",
        "add map @2 m c 3",
        "add map @2 m\nd 4\n",
    ]);
    assert_eq!((file.len(), kept.len()), (1, 1));
    let (_, kept) =
        after(&["add map m old 1", "add map @1 m x 1", "add map @2 m c 3", "add map @2 m\nd 4\n", "commit map @2 m"]);
    assert_eq!(kept, ["clear map m", "add map m c 3", "add map m\nd 4\n"]);
}

#[test]
fn what_is_told_of_a_command_has_no_secrets() {
    let told = |line: &str| Given { words: line.split(' ').map(str::to_owned).collect(), payload: None }.told();
    assert_eq!(told("set server b/s weight 3"), "set server b/s weight 3");
    assert_eq!(told("set server b/s agent-send word"), "set server b/s agent-send ***");
    assert_eq!(told("add server b/s 127.0.0.1:80 agent-send word check"), "add server b/s 127.0.0.1:80 agent-send ***");
    assert_eq!(told("set ssl ocsp-response word"), "set ssl ocsp-response ***");
    assert_eq!(told("nothing known"), "***");
}

#[test]
fn an_added_server_is_kept_with_its_settings() {
    let (_, kept) = after(&[
        "set server b/configured weight 3",
        "add server b/s 127.0.0.1:80 weight 5",
        "enable server b/s",
        "set server b/s weight 6",
        "set server b/s state drain",
        "set weight b/s 7",
        "set server b/s ssl on",
        "set server b/s ssl off",
    ]);
    let last = ["set server b/s state drain", "set weight b/s 7", "set server b/s ssl off"];
    assert_eq!(kept, [&["add server b/s 127.0.0.1:80 weight 5"][..], &last].concat());
    assert!(after(&["add server b/s 127.0.0.1:80", "enable server b/s", "del server b/s"]).1.is_empty());
    assert_eq!(
        after(&["del server b/configured"]).1,
        ["set server b/configured state maint", "del server b/configured"]
    );
}

#[test]
fn a_transaction_remembers_one_content_for_each_of_its_files() {
    let files = &files();
    let mut kept = KeptChanges::default();
    for content in ["ONE", "TWO", "THREE"] {
        let given = given(&format!("set ssl cert a.pem\n{content}"));
        kept.record(&given.command().expect("a command"), given, files);
    }
    assert_eq!(kept.transactions["certificate"].len(), 1);
}

#[test]
fn a_list_with_many_keys_is_kept_in_little_time() {
    // Looking through all lines for each would take minutes.
    let files = &files();
    let mut kept = KeptChanges::default();
    for number in 0..20_000 {
        let given = given(&format!("set map m k{number} 1"));
        kept.record(&given.command().expect("a command"), given, files);
    }
    let mut made = 0;
    kept.retain(|_| {
        made += 1;
        made % 2 == 0
    });
    assert_eq!((made, kept.lines().count(), kept.by_key.len()), (20_000, 10_000, 10_000));
}

#[test]
fn the_ticket_keys_that_are_in_use_are_kept_and_the_others_are_to_leave_the_file() {
    let keys = ["set ssl tls-key #0 AA", "set ssl tls-key k.keys BB", "set ssl tls-key k.keys CC"];
    let mut kept = KeptChanges::default();
    let mut tell = |line: &str| {
        let given = given(line);
        kept.record(&given.command().expect("a command"), given, &files());
        kept.has_dropped_keys()
    };
    assert!(!keys.map(&mut tell).contains(&true));
    assert!(tell("set ssl tls-key #0 DD"));
    let (_, kept) = after(&[&keys[..], &["set ssl tls-key #0 DD"]].concat());
    assert_eq!(kept, ["BB", "CC", "DD"].map(|key| format!("set ssl tls-key k.keys {key}")));
}

#[test]
fn bytes_that_are_no_text_survive_and_other_lines_are_none() {
    let event = Event {
        given: Given { words: vec!["add".into()], payload: Some(b"\xff\0\n".to_vec()) },
        file: Some(("f".into(), Some("d".into()))),
    };
    assert_eq!(Event::parse(&event.line()), Some((event.clone(), 0)));
    let three = Event::lines(&[event.clone(), event.clone(), event.clone()]);
    let more: Vec<usize> = three.lines().map(|line| Event::parse(line).expect("a line").1).collect();
    assert_eq!(more, [2, 0, 0]);
    for line in ["", "{", "[]", "{\"words\":3}", "{\"words\":[1]}", "# penstock"] {
        assert_eq!(Event::parse(line), None, "{line}");
    }
}
