//! A start that finds another process on its addresses, on the real binary: refused, or taken over from when told.

mod common;
#[path = "../../../tests/reference.rs"]
mod reference;

use common::{
    Place,
    crowd::{Crowd, answer, asking, is_alive},
    free_port, penstock,
    running::{Running, TERM, freeze, until},
};
use std::{
    path::Path,
    process::{Command, Stdio},
};

fn config(binds: &[String]) -> String {
    let binds: String = binds.iter().map(|bind| format!("  bind {bind}\n")).collect();
    format!(
        "global\n  nbthread 2\ndefaults\n  mode http\n  timeout client 10s\n  timeout server 10s\n  timeout connect 10s\nfrontend \
         a\n{binds}  monitor-uri /alive\n"
    )
}

fn start(mut program: Command, config: &Path, words: &[&str]) -> Running {
    program.arg("-f").arg(config).args(words).stdin(Stdio::null()).stderr(Stdio::null());
    Running(program.spawn().unwrap())
}

#[test]
fn a_second_start_is_refused_and_says_who_listens() {
    let place = Place::new("stranger");
    let port = free_port();
    let unix = place.0.join("sock").display().to_string();
    let file = place.file("a.cfg", &config(&[format!("127.0.0.1:{port}"), unix.clone()]));
    let first = start(penstock(), &file, &["-db"]);
    until("it answers", || is_alive(port));
    for mode in ["-db", "-W", "-D"] {
        let second = common::run(&[&mode, &"-f", &file]);
        let said = String::from_utf8_lossy(&second.stderr).into_owned();
        assert_eq!(second.status.code(), Some(1), "{mode}: {said}");
        assert!(said.contains(&format!("Address already in use (os error 98)) [127.0.0.1:{port}]")), "{said}");
        assert!(said.contains(&format!("process {} (penstock) listens there", first.id())), "{said}");
        assert!(said.contains(&format!("Address already in use (os error 98)) [{unix}]")), "{said}");
    }
    asking(&unix).and_then(answer).unwrap();
    first.signal(TERM);
    assert_eq!(first.end(), 128 + TERM);
}

#[test]
fn a_configuration_may_name_an_address_twice_or_a_part_of_another() {
    let place = Place::new("stranger-own");
    let port = free_port();
    let binds = [format!("127.0.0.1:{port}"), format!("127.0.0.1:{port}"), format!("*:{port}")];
    let master = start(penstock(), &place.file("a.cfg", &config(&binds)), &["-db"]);
    until("it answers", || is_alive(port));
    master.signal(TERM);
    assert_eq!(master.end(), 128 + TERM);
}

/// What one needs to copy sockets of another process.
fn may_take_over() -> bool {
    let may = common::study::has_namespaces();
    if !may {
        common::study::skip("taking sockets over without -x: only root surely may");
    }
    may
}

#[test]
fn processes_without_a_master_take_over_with_sf_alone() {
    if !may_take_over() {
        return;
    }
    let place = Place::new("sf");
    let port = free_port();
    let tcp = format!("127.0.0.1:{port}");
    let unix = place.0.join("sock").display().to_string();
    let file = place.file("a.cfg", &config(&[tcp.clone(), unix.clone()]));
    let mut serves = start(penstock(), &file, &["-db"]);
    until("it answers", || is_alive(port));
    let crowd = Crowd::around(8, &[tcp.clone(), unix.clone()], || {
        for _ in 0..4 {
            let heir = start(penstock(), &file, &["-db", "-sf", &serves.id().to_string()]);
            assert_eq!(std::mem::replace(&mut serves, heir).end(), 0);
        }
    });
    crowd.lost_nobody();
    // A client that waits in a process that hangs is served as well.
    freeze(serves.id());
    let waiting: Vec<_> = (0..16).map(|n| asking([&tcp, &unix][n % 2]).unwrap()).collect();
    let heir = start(penstock(), &file, &["-db", "-st", &serves.id().to_string()]);
    for client in waiting {
        answer(client).unwrap();
    }
    drop(serves);
    heir.signal(TERM);
    assert_eq!(heir.end(), 128 + TERM);
}

#[test]
fn a_master_takes_over_from_a_master() {
    if !may_take_over() {
        return;
    }
    let place = Place::new("sf-master");
    let port = free_port();
    let tcp = format!("127.0.0.1:{port}");
    let file = place.file("a.cfg", &config(std::slice::from_ref(&tcp)));
    let first = start(penstock(), &file, &["-W"]);
    until("it answers", || is_alive(port));
    let crowd = Crowd::around(8, &[tcp], || {
        let heir = start(penstock(), &file, &["-W", "-sf", &first.id().to_string()]);
        assert_eq!(first.end(), 0);
        std::thread::sleep(std::time::Duration::from_millis(300));
        heir.signal(TERM);
        assert_eq!(heir.end(), 0);
    });
    // The last one ends under load: later connections are refused.
    assert!(
        crowd.answered > 100
            && crowd.lost.keys().all(|why| why.contains("refused") || why.contains("reset") || why.contains("closed")),
        "{:?}",
        crowd.lost
    );
}

#[test]
fn haproxy_is_taken_over_from_with_sf_alone() {
    if !may_take_over() || reference::haproxy().is_none() {
        return;
    }
    let place = Place::new("sf-haproxy");
    let port = free_port();
    let tcp = format!("127.0.0.1:{port}");
    let file = place.file("a.cfg", &config(std::slice::from_ref(&tcp)));
    let haproxy = start(Command::new("haproxy"), &file, &["-db"]);
    until("it answers", || is_alive(port));
    let mut heir = None;
    let crowd = Crowd::around(8, std::slice::from_ref(&tcp), || {
        heir = Some(start(penstock(), &file, &["-db", "-sf", &haproxy.id().to_string()]));
        assert_eq!(haproxy.end(), 0);
    });
    crowd.lost_nobody();
    let heir = heir.unwrap();
    assert!(is_alive(port));
    heir.signal(TERM);
    assert_eq!(heir.end(), 128 + TERM);
}
