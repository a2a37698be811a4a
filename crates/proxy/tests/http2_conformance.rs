//! h2spec against a running data plane, on clear text by prior knowledge. Without h2spec this says so and passes.

mod common;

use common::{Origin, Proxy, port};
use std::{io::Write, process::Command, time::Duration};

/// What `go install github.com/summerwind/h2spec/cmd/h2spec@latest` makes, or another path in `H2SPEC`.
fn h2spec() -> Command {
    Command::new(std::env::var_os("H2SPEC").unwrap_or_else(|| "h2spec".into()))
}

#[test]
fn every_test_of_h2spec_passes() {
    if h2spec().arg("--version").output().is_err() {
        eprintln!("skipped: h2spec is not installed");
        return;
    }
    // Not at once: some tests send what is wrong with a request in a second packet, and want to be told before they are
    // answered.
    let origin = Origin::start(|recorder, _| {
        while recorder.head().is_some() {
            std::thread::sleep(Duration::from_millis(20));
            recorder.stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").unwrap();
        }
    });
    let port = port();
    let _proxy = Proxy::start(&format!(
        "global\n nbthread 1\ndefaults\n mode http\n timeout client 20s\n timeout server 20s\n timeout connect 5s\n\
         listen web\n bind 127.0.0.1:{port} proto h2\n server s1 127.0.0.1:{}\n",
        origin.port
    ));
    let output = h2spec().args(["-h", "127.0.0.1", "-p", &port.to_string(), "-o", "2", "-S"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let summary = text.lines().rfind(|line| line.contains("tests,")).unwrap_or_default();
    assert_eq!(summary, "146 tests, 146 passed, 0 skipped, 0 failed", "{text}");
}
