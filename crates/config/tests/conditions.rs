//! The conditions of `.if` and `-cc`, beside HAProxy's `-cc`.

#[path = "../../../tests/reference.rs"]
mod reference;

use penstock_config::{Env, evaluate_condition};
use std::process::Command;

/// HAProxy's exit status: 0 for true, 1 for false, 2 for a mistake.
fn ours(condition: &str) -> i32 {
    let env = Env { variables: [("A".to_owned(), "alpha".to_owned())].into(), ..Env::default() };
    match evaluate_condition(condition, &env) {
        Ok(true) => 0,
        Ok(false) => 1,
        Err(_) => 2,
    }
}

const TERMS: &[&str] = &[
    "1",
    "0",
    "!0",
    "! 1",
    "defined(A)",
    "defined(B)",
    "defined",
    "streq(a,b)",
    "streq(a)",
    "strneq(a,\"b,c\")",
    "(1)",
    "(0||1)",
    "(1",
    ")",
    "feature(OPENSSL)",
    "feature(NONE)",
    "version_atleast(2.4-dev19)",
    "version_before(3.1)",
    "foo",
    "streq(a,b,c)",
    "12x",
    "\"1\"",
    "streq('a b',\"a b\")",
    "defined( A )",
    "openssl_version_atleast(1.1.1)",
];

#[test]
fn conditions_have_haproxys_values() {
    let Some(binary) = reference::haproxy() else { return };
    let mut conditions: Vec<String> = TERMS.iter().map(|t| (*t).to_owned()).collect();
    // Each with its neighbours, so that every operator stands beside every term.
    for (i, term) in TERMS.iter().enumerate() {
        let (second, third) = (TERMS[(i + 7) % TERMS.len()], TERMS[(i + 3) % TERMS.len()]);
        conditions.push(format!("{term} && {second} || {third}"));
        conditions.push(format!("{term}||{second}&&{third}"));
        conditions.push(format!("{term} {second}"));
    }
    for condition in conditions {
        let output = Command::new(binary).args(["-cc", &condition]).env("A", "alpha").env_remove("B").output();
        let theirs = output.expect("haproxy was found a moment ago").status.code();
        assert_eq!(Some(ours(&condition)), theirs, "{condition}");
    }
}
