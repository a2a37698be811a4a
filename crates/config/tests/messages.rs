//! What people see: each mistake, and the whole rendered message.

use penstock_config::{Env, Severity, Source, load};

fn rendered(name: &str, text: &str) -> String {
    let env = Env { diagnostic_mode: true, ..Env::default() };
    let (config, diagnostics) = load([Source::new("haproxy.cfg", text.as_bytes())], &env);
    let mut diagnostics = diagnostics;
    // The configurations are short: timeouts are missing in most of them.
    if name != "no timeouts" {
        diagnostics.list.retain(|d| !d.message.contains("' has no 'timeout "));
    }
    diagnostics.render(&config.files, Severity::Notice, false)
}

/// `make generate` writes the expected text anew; review it as code.
#[test]
fn every_mistake_has_its_message() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/messages.txt");
    let golden = std::fs::read_to_string(path).expect("tests/messages.txt is in the tree");
    let mut fresh = String::new();
    let mut cases = 0;
    for case in golden.split("======== ").skip(1) {
        let (name, rest) = case.split_once('\n').expect("a name");
        let (source, _) = rest.split_once("--------\n").expect("a line of dashes ends the configuration");
        fresh.push_str(&format!("======== {name}\n{source}--------\n{}", rendered(name, source)));
        cases += 1;
    }
    assert!(cases >= 25, "{cases} mistakes");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &fresh).expect("tests/messages.txt is written");
        return;
    }
    for (expected, found) in golden.split("======== ").skip(1).zip(fresh.split("======== ").skip(1)) {
        assert_eq!(expected, found);
    }
}
