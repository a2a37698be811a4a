//! No text, however wrong, makes the compilers panic; and what they accept runs on any request.

mod support;

use penstock_config::{NoFiles, model::ProxyId};
use penstock_rules::{
    Linker, Place, Places, conv, fetch,
    log::{ALIASES, Purpose},
};
use proptest::prelude::*;
use support::{Stage, compile};

const ALL: Place = Place { proxy: Some(ProxyId(0)), place: Places::ALWAYS };

/// Requests that look at every corner: nothing, something usual, something odd.
fn stages() -> Vec<Stage> {
    let mut hello = Stage::empty();
    hello.body = b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03".to_vec();
    hello.complete = false;
    vec![
        Stage::empty(),
        Stage::request(
            "POST /a/b?x=1&y=%zz HTTP/1.1\r\nHost: h\r\nX: a,\"b,c\",,\r\nCookie: a=1;;b\r\nAuthorization: Basic !\r\nContent-Length: 3\r\n\r\nq=1",
        ),
        hello,
    ]
}

/// Words that mean something, and bytes that do not.
fn piece() -> impl Strategy<Value = String> {
    let names: Vec<String> = fetch::names().chain(conv::names()).map(str::to_owned).collect();
    let arguments = [
        "(",
        ")",
        ",",
        "\"",
        "'",
        "\\",
        "(1)",
        "(-1)",
        "(,)",
        "(9999999999999999999)",
        "(txn.a)",
        "(/,g)",
        "(a,b,c)",
        "(x,-3,2)",
        "(0,0)",
        "(:,2)",
        "(.*,\\1)",
    ];
    prop_oneof![
        4 => proptest::sample::select(names),
        4 => proptest::sample::select(arguments.map(str::to_owned).to_vec()),
        1 => "\\PC{0,4}",
    ]
}

fn text() -> impl Strategy<Value = String> {
    proptest::collection::vec(piece(), 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn expressions(text in text()) {
        let compiled = compile("defaults\n  timeout client 1s\nbackend b\n  stick-table type string size 9 store gpc0,conn_rate(1s)\n");
        let mut linker = Linker::new(&compiled.config, &NoFiles);
        if let Ok((expr, end)) = linker.expression_in(&text, 0, ALL) {
            prop_assert!(end <= text.len() && text.is_char_boundary(end));
            for mut stage in stages() {
                let _ = stage.with(|ctx| expr.eval(ctx).map(|value| value.to_text()));
                let _ = stage.with(|ctx| expr.any(ctx, |_| false));
            }
        }
    }

    #[test]
    fn log_formats(pieces in proptest::collection::vec(prop_oneof![
        proptest::sample::select(ALIASES.iter().map(|alias| format!("%{}", alias.name)).collect::<Vec<_>>()),
        text().prop_map(|text| format!("%[{text}]")),
        proptest::sample::select(["%", "%%", "%{+Q}", "%{-X", "%{+Q,+E}o", "[", "]", " ", "%["].map(str::to_owned).to_vec()),
        "\\PC{0,4}",
    ], 0..8)) {
        let text = pieces.concat();
        let compiled = compile("defaults\n  timeout client 1s\n");
        for purpose in [Purpose::Log, Purpose::Http, Purpose::Text, Purpose::UniqueId] {
            let mut linker = Linker::new(&compiled.config, &NoFiles);
            if let Ok(format) = linker.log_format(&text, purpose, ALL) {
                for mut stage in stages() {
                    let mut out = Vec::new();
                    stage.with(|ctx| format.render(ctx, &mut out));
                }
            }
        }
    }

    #[test]
    fn rules(rules in proptest::collection::vec((
        proptest::sample::select(vec!["http-request", "http-response", "tcp-request content", "tcp-request connection", "acl", "stick", "use_backend", "redirect", "stick-table", "http-after-response"]),
        proptest::collection::vec(prop_oneof![
            proptest::sample::select(penstock_rules::ACTIONS.iter().map(|action| action.name.to_owned()).collect::<Vec<_>>()),
            proptest::sample::select(["if", "unless", "{", "}", "!", "or", "||", "-m", "-i", "-f", "-M", "--", "beg", "reg", "gt", "5", "path", "src", "hdr(x)", "code", "location", "status", "len", "track-sc0", "set-var(txn.x)", "table", "on", "a"].map(str::to_owned).to_vec()),
            text().prop_map(|text| text.replace([' ', '\n', '\r', '\0', '#'], "")),
        ], 0..8),
    ), 1..4)) {
        let mut config = "defaults\n  mode http\n  timeout client 1s\nlisten l\n  bind :9999\n".to_owned();
        for (directive, words) in rules {
            config += &format!("  {directive} {}\n", words.join(" "));
        }
        let compiled = compile(&config);
        for diagnostic in &compiled.diagnostics.list {
            prop_assert!(!diagnostic.message.is_empty());
        }
        for mut stage in stages() {
            let rules = &compiled.rules[ProxyId(0)];
            stage.with(|ctx| {
                for list in [&rules.tcp_connection, &rules.tcp_content, &rules.http_request, &rules.http_response] {
                    list.run(ctx, 0);
                }
            });
        }
    }
}
