//! Under the name `haproxy`, a link, the program is haproxy to those who look: processes, messages, version.

mod common;

use common::{
    Place,
    crowd::is_alive,
    free_port,
    running::{Running, TERM, children, until},
};
use std::{
    net::UdpSocket,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

fn link(place: &Place) -> PathBuf {
    let link = place.0.join("haproxy");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_penstock"), &link).unwrap();
    link
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_version_begins_as_clients_expect() {
    let place = Place::new("link-version");
    let output = Command::new(link(&place)).arg("-v").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let version = said.strip_prefix("HAProxy version ").and_then(|rest| rest.split(['-', ' ']).next()).unwrap();
    let numbers: Vec<u32> = version.split('.').map(|n| n.parse().unwrap()).collect();
    assert!(numbers.len() == 3 && numbers >= vec![2, 7, 0] && said.contains(&format!("{version}-")), "{said}");
    let own = common::run(&[&"-v"]);
    assert!(String::from_utf8(own.stdout).unwrap().starts_with("penstock version "));
}

#[test]
fn findings_come_first_in_lines_that_programs_read() {
    let place = Place::new("link-check");
    let bad =
        place.file("bad.cfg", "defaults\n    mode htp\nfrontend f\n    bind 127.0.0.1:1\n    tiemout client 1s\n");
    let check = |program: &Path| Command::new(program).arg("-c").arg("-f").arg(&bad).output().unwrap();
    for program in [link(&place), env!("CARGO_BIN_EXE_penstock").into()] {
        let output = check(&program);
        let said = stderr(&output);
        let alerts: Vec<_> = said.lines().filter(|line| line.starts_with("[ALERT]    (")).collect();
        assert!(alerts[0].contains(&format!(") : config : parsing [{}:2] : ", bad.display())), "{said}");
        assert!(alerts[1].contains(":5] : unknown keyword 'tiemout'"), "{said}");
        assert!(alerts.last().unwrap().ends_with(" : config : Fatal errors found in configuration."), "{said}");
        assert!(
            said.starts_with("[") && said.contains("\n 2 | ") | said.contains("\n2 | "),
            "underlined text follows: {said}"
        );
        assert_eq!(output.status.code(), Some(1));
    }
    // Warnings and notices have theirs under that name alone.
    let odd =
        place.file("odd.cfg", "defaults\n    mode http\nlisten l\n    bind 127.0.0.1:1\n    server s 127.0.0.1:2\n");
    let check = |program: &Path| stderr(&Command::new(program).arg("-c").arg("-f").arg(&odd).output().unwrap());
    assert!(check(&place.0.join("haproxy")).starts_with("[WARNING]  ("));
    assert!(!check(Path::new(env!("CARGO_BIN_EXE_penstock"))).contains("[WARNING]"));
    let quiet = Command::new(place.0.join("haproxy")).args(["-q", "-c", "-f"]).arg(&bad).output().unwrap();
    assert_eq!(stderr(&quiet), "");
}

#[test]
fn what_fails_at_start_is_said_in_haproxys_form() {
    let place = Place::new("link-start");
    let output = Command::new(link(&place)).args(["-c", "-f", "/no/such/file"]).output().unwrap();
    assert!(stderr(&output).starts_with("[ALERT]    (") && stderr(&output).contains("/no/such/file"), "{output:?}");
}

#[test]
fn wrong_arguments_are_told_in_haproxys_form() {
    let place = Place::new("link-usage");
    let link = link(&place);
    for arguments in [&["-Z"][..], &["-f"], &["-f", "x", "-sf", "abc"], &["-cc", "foo("]] {
        let said = stderr(&Command::new(&link).args(arguments).output().unwrap());
        let first = said.lines().next().unwrap_or_default();
        assert!(first.starts_with("[ALERT]    (") && !first.contains("penstock"), "{arguments:?}: {said}");
    }
    let said = stderr(&Command::new(&link).arg("-Z").output().unwrap());
    assert!(said.contains("Usage: haproxy -f <file|dir>"), "{said}");
}

#[test]
fn processes_and_log_lines_bear_the_name() {
    let place = Place::new("link-process");
    let port = free_port();
    let log = UdpSocket::bind("127.0.0.1:0").unwrap();
    log.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let config = std::fs::read_to_string(place.config(port)).unwrap();
    let logs = format!("global\n  log {} local0\n", log.local_addr().unwrap());
    let config =
        config.replace("global\n", &logs).replace("mode http\n", "mode http\n  log global\n  option httplog\n")
            + "  http-request return status 200\n";
    let said = std::fs::File::create(place.0.join("said")).unwrap();
    let mut command = Command::new(link(&place));
    command.arg("-W").arg("-f").arg(place.file("a.cfg", &config)).stdin(Stdio::null()).stderr(said);
    let master = Running(command.spawn().unwrap());
    until("it answers", || is_alive(port));
    let worker = children(master.id())[0];
    for pid in [master.id(), worker] {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap();
        assert_eq!(read("comm"), "haproxy\n");
        assert!(read("cmdline").split('\0').next().unwrap().ends_with("/haproxy"));
    }
    let mut client = common::crowd::dial(&format!("127.0.0.1:{port}")).unwrap();
    std::io::Write::write_all(&mut client, b"GET /logged HTTP/1.0\r\n\r\n").unwrap();
    let mut bytes = [0; 4096];
    let line = loop {
        let received = log.recv(&mut bytes).unwrap();
        let line = String::from_utf8_lossy(&bytes[..received]).into_owned();
        if line.contains("/logged") {
            break line;
        }
    };
    assert!(line.contains(&format!(" haproxy[{worker}]: ")), "{line}");
    let said = || std::fs::read_to_string(place.0.join("said")).unwrap();
    until("the master has said so", || said().contains("Loading success."));
    assert!(
        said().starts_with(&format!("[NOTICE]   ({}) : New worker ({worker}) forked\n", master.id())),
        "{}",
        said()
    );
    master.signal(TERM);
    assert_eq!(master.end(), 0);
}
