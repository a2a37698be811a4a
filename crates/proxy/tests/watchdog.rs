//! A stuck worker and a broken invariant end the process, with a word on where it was. Each runs in a process of its own:
//! this test binary, told by the environment to be the victim.

mod common;

use common::{Client, Origin, Proxy, port};
use std::process::{Command, Output};

const VICTIM: &str = "PENSTOCK_TEST_VICTIM";

/// Not a test of its own: what the others run in another process.
#[test]
fn victim() {
    if std::env::var_os(VICTIM).is_none() {
        return;
    }
    let origin = Origin::fixed(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let port = port();
    let fault = std::env::var("PENSTOCK_PLANT_FAULT").unwrap();
    // A rule that spins does so for every request.
    let rule = if fault == "rule" { " http-request allow if TRUE\n" } else { "" };
    let _proxy = Proxy::start(&format!(
        "global\n nbthread 2\ndefaults\n mode http\n timeout client 9s\n timeout server 9s\n timeout connect 9s\n\
         listen web\n bind 127.0.0.1:{port}\n{rule} server s1 127.0.0.1:{}\n",
        origin.port
    ));
    assert!(
        fault == "rule"
            || Client::connect(port).send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").response().starts_with("HTTP/1.1 200")
    );
    let mut client = Client::connect(port);
    client.send("GET /planted-fault HTTP/1.1\r\nhost: x\r\n\r\n");
    if fault == "busy" {
        assert!(client.response().starts_with("HTTP/1.1 200"));
        return;
    }
    let _ = client.rest();
    std::thread::sleep(common::PATIENCE);
}

fn run(fault: &str) -> (Output, String) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "victim", "--nocapture"])
        .env(VICTIM, "1")
        .env("PENSTOCK_PLANT_FAULT", fault)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, text)
}

fn aborted(output: &Output) -> bool {
    use std::os::unix::process::ExitStatusExt;
    output.status.signal() == Some(6)
}

#[test]
fn a_turn_that_does_not_end_is_named_with_its_connection_and_place_and_ends_the_process() {
    let (output, text) = run("spin");
    assert!(aborted(&output), "{output:?}");
    assert!(text.contains("is in one turn of the connection of client 127.0.0.1:"), "{text}");
    assert!(text.contains("to web, bind in test.cfg:9 for 1."), "{text}");
    assert!(text.contains("busy with running rules"), "{text}");
    assert!(text.contains("fault::spin"), "the function that spins is not named:\n{text}");
}

#[test]
fn a_rule_that_does_not_end_is_named_with_its_place() {
    let (output, text) = run("rule");
    assert!(aborted(&output), "{output:?}");
    assert!(text.contains("busy with running rules, at 'http-request' in test.cfg:10;"), "{text}");
}

#[test]
fn a_worker_that_is_busy_for_seconds_in_short_turns_is_left_alone() {
    let (output, text) = run("busy");
    assert!(output.status.success(), "{output:?}\n{text}");
}

#[test]
fn a_broken_invariant_is_named_with_its_backtrace_and_ends_the_process() {
    let (output, text) = run("invariant");
    assert!(aborted(&output), "{output:?}");
    assert!(text.contains("broken invariant: a planted fault") && text.contains("fault::broken"), "{text}");
}

#[test]
fn an_idle_process_is_left_alone() {
    let origin = Origin::fixed(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let port = port();
    let _proxy = Proxy::start(&format!(
        "global\n nbthread 2\ndefaults\n mode http\n timeout client 9s\n timeout server 9s\n timeout connect 9s\n\
         listen web\n bind 127.0.0.1:{port}\n server s1 127.0.0.1:{}\n",
        origin.port
    ));
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert!(Client::connect(port).send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").response().starts_with("HTTP/1.1 200"));
}
