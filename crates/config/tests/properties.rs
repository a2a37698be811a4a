//! What holds for any input.

use penstock_config::{Env, Severity, Source, evaluate_condition, load, manual, model::ProxyId, units};
use proptest::prelude::*;
use std::time::Duration;

/// Lines made of known keywords and likely values, so that parsers are reached and not only the table.
fn line() -> impl Strategy<Value = String> {
    let sections = ["global", "defaults", "defaults d", "frontend f", "backend b", "listen l from d", "userlist u"];
    let names: Vec<&str> = manual::keywords().iter().map(|k| k.name).chain(sections).collect();
    let values = [
        "a",
        "1",
        "-1",
        "99999999999",
        "10s",
        "25d",
        "1us",
        "32k",
        ":80",
        "127.0.0.1:80-90",
        "[::1]:443",
        "unix@/a",
        "fd@3",
        "x@y",
        "%[src]",
        "\"",
        "'",
        "\\",
        "\\x41",
        "\"${A[*]}\"",
        "\"${B-c}\"",
        "#",
        "if",
        "{",
        "}",
        "on",
        "all",
        "auto:1/1-4",
        "0-3",
        "name",
        "ssl",
        "crt",
        "check",
        "inter",
        "weight",
        "from",
        "no",
        "default",
        "é",
        "\u{fffd}",
        ",",
        "a,b",
        "1:2",
        "local0",
        "len",
        "=",
        "/",
        "!",
    ];
    let word = prop::sample::select(values.to_vec());
    let conditions = [".if 1", ".if !(0", ".elif defined(A)", ".else", ".endif", ".alert x"];
    prop_oneof![
        8 => (prop::sample::select(names), prop::collection::vec(word, 0..6))
            .prop_map(|(name, words)| format!("{name} {}", words.join(" "))),
        1 => prop::sample::select(conditions.to_vec()).prop_map(str::to_owned),
        1 => "\\PC{0,40}",
        1 => any::<String>(),
    ]
}

fn env() -> Env<'static> {
    let variables = [("A", " x  y ")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    Env { variables, diagnostic_mode: true, ..Env::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_the_reader_panic_and_findings_lie_in_their_lines(lines in prop::collection::vec(line(), 0..30)) {
        let text = lines.join("\n");
        let (config, diagnostics) = load([Source::new("p.cfg", text.as_bytes())], &env());
        for span in diagnostics.list.iter().filter_map(|d| d.span) {
            let line = config.files[0].text.split('\n').nth(span.line as usize - 1);
            prop_assert!(line.is_some_and(|l| span.start <= span.end && span.start as usize <= l.len()), "{:?}", span);
        }
        let rendered = diagnostics.render(&config.files, Severity::Notice, false);
        prop_assert!(rendered.chars().all(|c| c == '\n' || !c.is_control()));
    }

    #[test]
    fn lines_are_read_alike_whatever_the_space_between_words(words in prop::collection::vec("[a-z/.]{1,8}", 1..10)) {
        let read = |separator: &str| {
            let text = format!("backend b\nacl n{separator}{}\n", words.join(separator));
            let (config, _) = load([Source::new("p.cfg", text.as_bytes())], &env());
            config.proxies[ProxyId(0)].acls[0].words.iter().map(|w| w.text.clone()).collect::<Vec<_>>()
        };
        prop_assert_eq!(read(" "), read("\t \t"));
        prop_assert_eq!(read(" ").len(), words.len() + 1);
    }

    #[test]
    fn quoting_any_text_gives_that_text(text in "[ -~]{1,30}") {
        // Between double quotes, these three are what a backslash must protect.
        let quoted = text.replace('\\', "\\\\").replace('"', "\\\"").replace('$', "\\$");
        let source = format!("backend b\nacl n \"{quoted}\" end\n");
        let (config, diagnostics) = load([Source::new("p.cfg", source.as_bytes())], &env());
        prop_assert!(!diagnostics.has_errors());
        prop_assert_eq!(&config.proxies[ProxyId(0)].acls[0].words[1].text, &text);
    }

    #[test]
    fn conditions_and_units_take_any_text(text in any::<String>()) {
        let _ = evaluate_condition(&text, &env());
        let _ = units::time(&text, Duration::from_millis(1));
        let _ = units::size(&text);
        let _ = units::nearest(&text, ["maxconn"]);
    }
}

#[test]
fn ten_thousand_servers_are_read() {
    let mut text = "defaults\n mode http\n timeout connect 1s\n timeout client 1s\n timeout server 1s\n".to_owned();
    for backend in 0..100 {
        text.push_str(&format!("backend b{backend}\n default-server inter 3s fall 5 rise 2 maxconn 100\n"));
        for server in 0..100 {
            text.push_str(&format!(
                " server s{server} 10.{backend}.0.{server}:8080 check weight 10 cookie s{server}\n"
            ));
        }
    }
    let start = std::time::Instant::now();
    let (config, diagnostics) = load([Source::new("many.cfg", text.as_bytes())], &Env::default());
    println!("{} servers in {:?}", config.proxies.iter().map(|p| p.servers.len()).sum::<usize>(), start.elapsed());
    assert!(diagnostics.list.is_empty(), "{:?}", diagnostics.list.first());
    assert_eq!(config.proxies.iter().map(|p| p.servers.len()).sum::<usize>(), 10_000);
    // One backend with all of them: nothing may look through the others for each.
    let one: String = (0..9_999).map(|i| format!(" server s{i} 10.0.0.1:80 track last\n")).collect();
    let start = std::time::Instant::now();
    let text = format!("backend b\n{one} server last 10.0.0.1:80 check\n");
    let (config, _) = load([Source::new("one.cfg", text.as_bytes())], &Env::default());
    println!("one backend in {:?}", start.elapsed());
    assert_eq!(config.proxies[ProxyId(0)].servers.len(), 10_000);
}

#[test]
fn a_file_of_mistakes_is_given_up_in_time() {
    let text = "global\n".to_owned() + &"maxcon 1\n".repeat(200_000);
    let (config, diagnostics) = load([Source::new("bad.cfg", text.as_bytes())], &Env::default());
    assert_eq!(diagnostics.list.len(), 1001);
    assert!(diagnostics.render(&config.files, Severity::Error, false).ends_with("reading stops after 1000 errors\n"));
}
