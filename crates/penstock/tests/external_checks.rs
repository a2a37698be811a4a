//! The programs of external checks end with the process that has started them, whatever they have started themselves.

mod common;

use common::{
    Place, free_port,
    running::{KILL, Running, TERM, USR2, children, master, said, until},
};
use std::{os::unix::fs::PermissionsExt, path::PathBuf};

/// A service whose check starts a program that does not end, and the file in which that writes its process ids.
fn service(name: &str) -> (Place, PathBuf, PathBuf) {
    let place = Place::new(name);
    let pids = place.0.join("pids");
    let script = format!("#!/bin/sh\nsleep 300 &\necho $$ $! >> {}\nwait\n", pids.display());
    let program = place.file("check.sh", &script);
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let text = format!(
        "global\n  nbthread 1\n  external-check\n  insecure-fork-wanted\ndefaults\n  mode http\n  timeout client 5s\n  \
         timeout server 5s\n  timeout connect 5s\nlisten l\n  bind 127.0.0.1:{}\n  option external-check\n  \
         external-check command {}\n  external-check path /usr/bin:/bin\n  server s 127.0.0.1:9 check inter 120s\n",
        free_port(),
        program.display()
    );
    let config = place.file("a.cfg", &text);
    (place, config, pids)
}

/// The processes of all checks so far, once there are those of this many.
fn started(pids: &PathBuf, checks: usize) -> Vec<u32> {
    let read = || std::fs::read_to_string(pids).unwrap_or_default();
    until("the program runs", || read().lines().count() >= checks);
    read().split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// Whether a process is there, and is not one that only waits to be collected.
fn runs(pid: &u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    state.is_ok_and(|text| !text.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z")))
}

#[test]
fn programs_end_with_the_process_and_with_the_worker_that_a_reload_replaces() {
    let (place, config, pids) = service("external-ends");
    let running = master(&place, &config);
    let first = started(&pids, 1);
    assert!(first.iter().all(runs));
    let worker = children(running.id())[0];
    running.signal(USR2);
    let all = started(&pids, 2);
    until("the former worker has ended", || !children(running.id()).contains(&worker));
    until("its program has ended", || !first.iter().any(runs));
    assert!(all[2..].iter().all(runs), "{}", said(&place));
    running.signal(TERM);
    running.end();
    until("all programs have ended", || !all.iter().any(runs));
}

#[test]
fn a_program_ends_with_a_worker_that_is_killed() {
    let (_place, config, pids) = service("external-killed");
    let running = Running::start(&[&"-db", &"-f", &config]);
    let all = started(&pids, 1);
    running.signal(KILL);
    running.end();
    until("the program has ended", || !runs(&all[0]));
    // What it has started itself is nobody's.
    let _ = std::process::Command::new("kill").arg("-9").arg(all[1].to_string()).status();
}
