//! HAProxy's command line on the real binary: exit statuses, files, processes and signals. Needs no other program.

mod common;

use common::{
    Place,
    crowd::is_alive,
    free_port, penstock, run,
    running::{INT, Running, TERM, USR1, USR2, children, until},
};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Command, Stdio},
    time::Duration,
};

fn code(arguments: &[&dyn AsRef<std::ffi::OsStr>]) -> i32 {
    run(arguments).status.code().expect("it was not killed")
}

#[test]
fn checking_gives_haproxys_exit_statuses() {
    let place = Place::new("check");
    let ok = place.config(free_port());
    let bad = place.file("bad.cfg", "frontend a\n  bindd :80\n  mode htp\n");
    let empty = place.file("empty.cfg", "");
    let valid = run(&[&"-c", &"-f", &ok]);
    assert_eq!((valid.status.code(), &valid.stdout[..]), (Some(0), &b"Configuration file is valid\n"[..]));
    assert!(run(&[&"-c", &"-q", &"-f", &ok]).stdout.is_empty());
    assert_eq!(code(&[&"-c", &"-f", &empty]), 2);
    assert_eq!(code(&[&"-f", &empty]), 1);
    assert_eq!(code(&[&"check", &ok]), 0);
    assert_eq!(code(&[&"-c", &"-f", &"/no/such/file.cfg"]), 1);
    assert_eq!(code(&[&"-C", &"/no/such/dir", &"-c", &"-f", &ok]), 1);
    assert_eq!(code(&[&"-C", &place.0, &"-c", &"-f", &"ok.cfg"]), 0);
    let refused = run(&[&"-c", &"-f", &bad]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(said.contains("bad.cfg:2:3") && said.contains("bad.cfg:3:8"), "both mistakes are listed at once:\n{said}");
}

#[test]
fn several_files_and_directories_are_one_configuration() {
    let place = Place::new("files");
    let front =
        place.file("1.cfg", "defaults\n  mode http\n  timeout client 1s\n  timeout server 1s\n  timeout connect 1s\n");
    let back = place.file(
        "2.cfg",
        &format!(
            "frontend f\n  bind 127.0.0.1:{}\n  default_backend b\nbackend b\n  server s 127.0.0.1:9\n",
            free_port()
        ),
    );
    assert_eq!(code(&[&"-c", &"-f", &front, &"-f", &back]), 0);
    assert_eq!(code(&[&"-c", &"--", &front, &back]), 0);
    assert_eq!(code(&[&"-c", &"-f", &place.0]), 0);
}

#[test]
fn conditions_versions_and_unknown_options_have_haproxys_exit_statuses() {
    assert_eq!(code(&[&"-cc", &"version_atleast(2.4)"]), 0);
    assert_eq!(code(&[&"-cc", &"version_atleast(9.4)"]), 1);
    assert_eq!(code(&[&"-cc", &"foo("]), 2);
    assert_eq!(code(&[&"-v"]), 0);
    assert_eq!(code(&[&"-vv"]), 0);
    assert_eq!(code(&[&"-h"]), 1);
    assert_eq!(code(&[&"-Z"]), 1);
    assert_eq!(code(&[&"-f"]), 1);
    assert_eq!(code(&[]), 1);
    let said = run(&[&"-vv"]).stdout;
    assert!(String::from_utf8(said).unwrap().contains("Crypto engine"));
}

#[test]
fn a_port_in_use_is_a_sentence_and_nothing_starts() {
    let place = Place::new("port");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let refused = run(&[&"-f", &place.config(port)]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(said.contains(&port.to_string()) && said.to_lowercase().contains("in use"), "{said}");
}

#[test]
fn sigterm_ends_now_and_sigusr1_drains() {
    let place = Place::new("signals");
    for (signal, status) in [(TERM, 128 + TERM), (INT, 128 + INT), (USR1, 0)] {
        let port = free_port();
        let running = Running::start(&[&"-db", &"-f", &place.config(port)]);
        until("it answers", || is_alive(port));
        running.signal(signal);
        assert_eq!(running.end(), status);
        assert!(!is_alive(port));
    }
}

#[test]
fn grace_delays_a_soft_stop_and_hard_stop_after_ends_it() {
    let place = Place::new("hard-stop");
    let port = free_port();
    let text = std::fs::read_to_string(place.config(port)).unwrap();
    let text =
        text.replace("global\n", "global\n  grace 1s\n  hard-stop-after 300ms\n").replace("client 5s", "client 1h");
    let running = Running::start(&[&"-db", &"-f", &place.file("stop.cfg", &text)]);
    until("it answers", || is_alive(port));
    // A request that never ends: without a limit, its timeout would keep the process for an hour.
    let mut slow = TcpStream::connect(("127.0.0.1", port)).unwrap();
    slow.write_all(b"GET /alive HTTP/1.1\r\n").unwrap();
    running.signal(USR1);
    assert!(is_alive(port), "the time of grace has only begun");
    assert_eq!(running.end(), 0);
    assert_eq!(slow.read(&mut [0; 1024]).unwrap_or(0), 0, "an ended process answers nothing");
}

#[test]
fn a_daemon_serves_once_its_parent_has_gone_and_leaves_its_pid() {
    let place = Place::new("daemon");
    let port = free_port();
    let pidfile = place.0.join("pid");
    assert_eq!(code(&[&"-D", &"-p", &pidfile, &"-f", &place.config(port)]), 0);
    // The parent ends only when the child serves: no waiting here.
    assert!(is_alive(port));
    let pid = std::fs::read_to_string(&pidfile).unwrap().trim().parse().unwrap();
    penstock_sys::kill(pid, TERM).unwrap();
    until("the daemon is gone", || !is_alive(port));
}

#[test]
fn a_daemon_that_cannot_serve_says_why_where_it_was_started() {
    let place = Place::new("daemon-fails");
    let text = std::fs::read_to_string(place.config(free_port())).unwrap();
    let config = place.file("chroot.cfg", &text.replace("global\n", "global\n  chroot /not/there/at/all\n"));
    for mode in [&["-D"][..], &["-D", "-W"]] {
        let ended = penstock().args(mode).arg("-f").arg(&config).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert!(said.contains("cannot chroot to /not/there/at/all"), "{mode:?}: {said}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_ends_no_check_in_a_panic() {
    let place = Place::new("closed-pipe");
    let config = place.file("wrong.cfg", &"no such keyword\n".repeat(900));
    let mut check = penstock().args(["-c", "-f"]).arg(config).stderr(Stdio::piped()).spawn().unwrap();
    drop(check.stderr.take());
    assert_eq!(check.wait().unwrap().code(), Some(1));
}

#[test]
fn a_new_process_takes_over_with_sf() {
    let place = Place::new("sf");
    let port = free_port();
    let config = place.config(port);
    let old = Running::start(&[&"-db", &"-f", &config]);
    until("it answers", || is_alive(port));
    let new = Running::start(&[&"-db", &"-f", &config, &"-sf", &old.id().to_string()]);
    assert_eq!(old.end(), 0);
    assert!(is_alive(port));
    new.signal(TERM);
    assert_eq!(new.end(), 128 + TERM);
}

#[test]
fn a_master_replaces_its_worker_on_sigusr2_and_keeps_it_when_the_new_one_fails() {
    let place = Place::new("master");
    let port = free_port();
    let config = place.config(port);
    let pidfile = place.0.join("pid");
    let master = Running::start(&[&"-W", &"-p", &pidfile, &"-f", &config]);
    until("it answers", || is_alive(port));
    let workers = || children(master.id());
    until("there is one worker", || workers().len() == 1);
    let first = workers()[0];
    assert_eq!(std::fs::read_to_string(&pidfile).unwrap().trim(), master.id().to_string());

    master.signal(USR2);
    until("another worker has taken over", || workers().len() == 1 && workers()[0] != first);
    assert!(is_alive(port));
    let second = workers()[0];

    std::fs::write(&config, "nonsense\n").unwrap();
    master.signal(USR2);
    std::thread::sleep(Duration::from_millis(300));
    until("the failed worker is gone", || workers() == [second]);
    assert!(is_alive(port));

    master.signal(TERM);
    assert_eq!(master.end(), 0);
    until("the port is free", || !is_alive(port));
}

#[test]
fn systemd_keeps_the_process_that_it_started_whatever_the_file_says() {
    let place = Place::new("service");
    let port = free_port();
    let text = std::fs::read_to_string(place.config(port)).unwrap();
    let config = place.file("daemon.cfg", &text.replace("global\n", "global\n  daemon\n"));
    let master = Running::start(&[&"-Ws", &"-f", &config]);
    until("it answers", || is_alive(port));
    assert_eq!(children(master.id()).len(), 1, "the worker is a child of the process that was started");
    master.signal(TERM);
    assert_eq!(master.end(), 0);
}

#[test]
fn debug_mode_shows_requests() {
    let place = Place::new("debug");
    let port = free_port();
    let config = place.file(
        "debug.cfg",
        &format!(
            "defaults\n  mode http\n  timeout client 5s\n  timeout server 5s\n  timeout connect 5s\nfrontend shown\n  \
             bind 127.0.0.1:{port}\n  http-request return status 200\n"
        ),
    );
    let mut child = penstock().arg("-d").arg("-f").arg(config).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let running = Running(child);
    until("it answers", || is_alive(port));
    running.signal(TERM);
    let mut said = String::new();
    out.read_to_string(&mut said).unwrap();
    assert!(said.contains("shown.clireq[127.0.0.1:") && said.contains("]: GET /alive HTTP/1.0"), "{said}");
    running.end();
}

#[test]
fn quickstart_needs_nothing_and_leaves_nothing() {
    let before = quickstart_directories();
    let mut child = penstock().arg("quickstart").stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let running = Running(child);
    let mut said = String::new();
    for line in out.by_ref().lines() {
        said += &line.unwrap();
        if said.contains("Your own: ") {
            break;
        }
    }
    if said.is_empty() {
        // Its ports are fixed; on a machine that uses them it has said so and ended.
        assert_eq!(running.end(), 1);
        return;
    }
    assert!(said.contains("curl -k https://127.0.0.1:8443/") && said.contains("engine"), "{said}");
    // More requests in a row than a backend has threads, the last with a body.
    for n in 0..40 {
        let mut curl = Command::new("curl");
        curl.args(["-sk", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "10", "https://127.0.0.1:8443/"]);
        let output = if n < 39 { &mut curl } else { curl.args(["-d", "name=value"]) }.output().expect("curl runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "200", "request {n}");
    }
    running.signal(INT);
    assert_eq!(running.end(), 128 + INT);
    assert_eq!(quickstart_directories(), before);
}

fn quickstart_directories() -> usize {
    let temporary = std::fs::read_dir(std::env::temp_dir()).unwrap().flatten();
    temporary.filter(|e| e.file_name().to_string_lossy().starts_with("penstock-quickstart-")).count()
}
