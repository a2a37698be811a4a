//! Reloads on the real binary: whatever changes from one worker to the next, no client is turned away.

mod common;

use common::{
    Place,
    crowd::{Crowd, answer, asking, dial, is_alive},
    free_port,
    running::{CONT, Running, TERM, USR1, USR2, children, freeze, signal_to, until},
};
use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

/// A configuration that answers `/alive` by itself; `threads` and `binds` are what the reloads of these tests change.
fn config(threads: usize, settings: &str, binds: &[&str]) -> String {
    let binds: String = binds.iter().map(|bind| format!("  bind {bind}\n")).collect();
    format!(
        "global\n  nbthread {threads}\ndefaults\n  mode http\n  timeout client 10s\n  timeout server 10s\n  timeout connect \
         10s\nfrontend a\n{settings}{binds}  monitor-uri /alive\n"
    )
}

/// One at a time: each closes when it has been answered, so that a waiting one comes into its place.
const ONE: &str = "  maxconn 1\n  backlog 100\n";

fn master(config: &Path) -> Running {
    Running::start(&[&"-W", &"-f", &config])
}

/// Reloads, and waits until the new worker is the only one.
fn reload(master: &Running) {
    let before = children(master.id());
    master.signal(USR2);
    until(
        "another worker has taken over",
        || matches!(&children(master.id())[..], [worker] if !before.contains(worker)),
    );
}

/// A worker of whose sockets the master surely has copies, since it has told the one before to drain.
fn settled_worker(master: &Running) -> u32 {
    reload(master);
    children(master.id())[0]
}

fn stop(master: Running) {
    master.signal(TERM);
    assert_eq!(master.end(), 0);
}

#[test]
fn reloads_in_a_row_lose_no_connection() {
    let place = Place::new("hitless");
    let port = free_port();
    let tcp = format!("127.0.0.1:{port}");
    let unix = place.0.join("sock").display().to_string();
    let abns = format!("abns@penstock-test-{port}");
    let master = master(&place.file("a.cfg", &config(2, "", &[&tcp, &unix, &abns])));
    until("it answers", || is_alive(port));
    Crowd::around(24, &[tcp.clone(), tcp, unix, abns], || (0..20).for_each(|_| reload(&master))).lost_nobody();
    stop(master);
}

#[test]
fn threads_that_come_and_go_lose_no_connection() {
    let place = Place::new("threads");
    let port = free_port();
    let tcp = format!("127.0.0.1:{port}");
    let master = master(&place.file("a.cfg", &config(2, "", &[&tcp])));
    until("it answers", || is_alive(port));
    let crowd = Crowd::around(24, std::slice::from_ref(&tcp), || {
        for threads in [1, 4, 3, 1, 2, 5, 1, 4, 1] {
            place.file("a.cfg", &config(threads, "", &[&tcp]));
            reload(&master);
        }
    });
    crowd.lost_nobody();
    stop(master);
}

#[test]
fn who_waits_for_a_place_is_served_after_the_reload() {
    let place = Place::new("queue");
    let port = free_port();
    let tcp = format!("127.0.0.1:{port}");
    let unix = place.0.join("sock").display().to_string();
    let config = |threads| config(threads, ONE, &[&tcp, &format!("unix@{unix}")]);
    let master = master(&place.file("a.cfg", &config(4)));
    until("it answers", || is_alive(port));
    for threads in [1, 3, 3] {
        // It has the only place, and does not speak until the old worker has long been told to drain.
        let mut first = dial(&tcp).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        let waiting: Vec<_> = (0..64).map(|n| asking(if n % 2 == 0 { &tcp } else { &unix }).unwrap()).collect();
        let workers = children(master.id());
        place.file("a.cfg", &config(threads));
        master.signal(USR2);
        until("there is a new worker", || children(master.id()).len() == 2);
        std::thread::sleep(Duration::from_secs(1));
        first.write_all(b"GET /alive HTTP/1.0\r\n\r\n").unwrap();
        answer(first).unwrap();
        for client in waiting {
            answer(client).unwrap();
        }
        until("the old worker has ended", || !children(master.id()).contains(&workers[0]));
    }
    stop(master);
}

#[test]
fn a_worker_that_hangs_keeps_nobody_from_its_heir() {
    let place = Place::new("hangs");
    let port = free_port();
    let tcp = format!("127.0.0.1:{port}");
    let master = master(&place.file("a.cfg", &config(2, "", &[&tcp])));
    until("it answers", || is_alive(port));
    let old = settled_worker(&master);
    freeze(old);
    let waiting: Vec<_> = (0..32).map(|_| asking(&tcp).unwrap()).collect();
    master.signal(USR2);
    for client in waiting {
        answer(client).unwrap();
    }
    signal_to(old, CONT);
    until("the old worker has ended", || !children(master.id()).contains(&old));
    assert!(is_alive(port));
    stop(master);
}

#[test]
fn an_idle_client_may_ask_once_more() {
    let place = Place::new("idle");
    let port = free_port();
    let tcp = format!("127.0.0.1:{port}");
    let master = master(&place.file("a.cfg", &config(1, "  option idle-close-on-response\n", &[&tcp])));
    until("it answers", || is_alive(port));
    let mut idle = dial(&tcp).unwrap();
    idle.write_all(b"GET /alive HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    let mut answered = [0; 4096];
    let n = idle.read(&mut answered).unwrap();
    assert!(String::from_utf8_lossy(&answered[..n]).contains(" 200 "));
    let old = children(master.id());
    master.signal(USR2);
    until("the old worker has been told to end, and closes with an answer", || {
        std::thread::sleep(Duration::from_millis(200));
        idle.write_all(b"GET /alive HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        let n = idle.read(&mut answered).unwrap();
        let said = String::from_utf8_lossy(&answered[..n]);
        assert!(said.contains(" 200 "), "{said}");
        said.contains("connection: close")
    });
    assert_eq!(idle.read(&mut answered).unwrap(), 0);
    until("the old worker has ended", || !children(master.id()).contains(&old[0]));
    stop(master);
}

/// What exposes the listening sockets of a process at that path.
fn exposing(text: &str, path: &Path) -> String {
    text.replace("global\n", &format!("global\n  stats socket {} expose-fd listeners\n", path.display()))
}

#[test]
fn processes_without_a_master_take_over_with_x() {
    let place = Place::new("x");
    let port = free_port();
    let tcp = format!("127.0.0.1:{port}");
    let unix = place.0.join("sock").display().to_string();
    let abns = format!("abns@penstock-test-{port}");
    let stats = place.0.join("stats");
    let text = |threads| exposing(&config(threads, "", &[&tcp, &unix, &abns]), &stats);
    let file = place.file("a.cfg", &text(2));
    let mut serves = Running::start(&[&"-db", &"-f", &file]);
    until("it answers", || is_alive(port));
    let crowd = Crowd::around(16, &[tcp.clone(), unix.clone(), abns.clone()], || {
        for threads in [2, 1, 3, 2, 4, 1] {
            place.file("a.cfg", &text(threads));
            let heir = Running::start(&[&"-db", &"-f", &file, &"-x", &stats, &"-sf", &serves.id().to_string()]);
            assert_eq!(std::mem::replace(&mut serves, heir).end(), 0);
        }
    });
    crowd.lost_nobody();

    let refused = common::run(&[&"-db", &"-f", &file, &"-x", &place.0.join("nothing")]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(said.contains("cannot take over the listening sockets of the process behind"), "{said}");

    let mut curious = UnixStream::connect(&stats).unwrap();
    curious.write_all(b"show info\n").unwrap();
    let mut said = String::new();
    curious.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("Name: "), "{said}");
    // One that neither asks nor leaves does not keep the process for long.
    let _silent = UnixStream::connect(&stats).unwrap();
    serves.signal(USR1);
    assert_eq!(serves.end(), 0);
    assert!(dial(&tcp).is_err(), "copies are closed as well");
}

#[test]
fn who_waits_for_a_place_is_served_by_a_process_with_x() {
    let place = Place::new("x-queue");
    let port = free_port();
    let tcp = format!("127.0.0.1:{port}");
    let stats = place.0.join("stats");
    let file = place.file("a.cfg", &exposing(&config(1, ONE, &[&tcp]), &stats));
    let old = Running::start(&[&"-db", &"-f", &file]);
    until("it answers", || is_alive(port));
    let mut first = dial(&tcp).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let waiting: Vec<_> = (0..32).map(|_| asking(&tcp).unwrap()).collect();
    let new = Running::start(&[&"-db", &"-f", &file, &"-x", &stats, &"-sf", &old.id().to_string()]);
    for client in waiting {
        answer(client).unwrap();
    }
    first.write_all(b"GET /alive HTTP/1.0\r\n\r\n").unwrap();
    answer(first).unwrap();
    assert_eq!(old.end(), 0);
    new.signal(TERM);
    assert_eq!(new.end(), 128 + TERM);
}

#[test]
fn an_address_that_goes_serves_who_came_and_one_that_comes_is_served() {
    let place = Place::new("addresses");
    let [stays, goes, comes] = [(); 3].map(|()| free_port());
    let [stays_at, goes_at, comes_at] = [stays, goes, comes].map(|port| format!("127.0.0.1:{port}"));
    let [leaves, enters] = ["leaves", "enters"].map(|name| place.0.join(name).display().to_string());
    let master = master(&place.file("a.cfg", &config(2, "", &[&stays_at, &goes_at, &leaves])));
    until("it answers", || is_alive(goes));
    let old = settled_worker(&master);
    // They are not accepted until the new worker serves and the old one has been asked to drain.
    freeze(old);
    let waiting: Vec<_> = [&goes_at, &leaves].into_iter().cycle().take(32).map(|to| asking(to).unwrap()).collect();
    place.file("a.cfg", &config(2, "", &[&stays_at, &comes_at, &enters]));
    master.signal(USR2);
    until("the new worker answers", || is_alive(comes) && is_alive(stays));
    std::thread::sleep(Duration::from_millis(200));
    signal_to(old, CONT);
    for client in waiting {
        answer(client).unwrap();
    }
    until("the old worker has ended", || !children(master.id()).contains(&old));
    assert!(dial(&goes_at).is_err() && dial(&leaves).is_err(), "nothing listens there any more");
    asking(&enters).and_then(answer).unwrap();
    stop(master);
}

#[test]
fn an_answer_that_is_being_read_is_not_cut() {
    let place = Place::new("answer");
    let socket = place.0.join("admin");
    let bind = format!("127.0.0.1:{}", free_port());
    let backend = "backend b\n  server-template s 1-3000 127.0.0.1:9 disabled\n";
    let text = config(1, "", &[&bind])
        .replace("global\n", &format!("global\n  stats socket {} level admin\n", socket.display()));
    let path = place.file("answer.cfg", &format!("{text}{backend}"));
    let master = master(&path);
    until("the socket is there", || socket.exists() && UnixStream::connect(&socket).is_ok());
    let before = children(master.id());
    let mut client = UnixStream::connect(&socket).unwrap();
    client.write_all(b"show stat\n").unwrap();
    let mut answer = vec![0; 8192];
    client.read_exact(&mut answer).unwrap();
    master.signal(USR2);
    until("another worker is there", || children(master.id()).iter().any(|worker| !before.contains(worker)));
    // Longer than the former worker needs to end.
    std::thread::sleep(Duration::from_secs(2));
    client.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    assert_eq!(answer.lines().filter(|line| line.starts_with("b,s")).count(), 3000);
    assert!(answer.ends_with("\n\n"));
    until("the former worker has ended", || children(master.id()).iter().all(|worker| !before.contains(worker)));
    stop(master);
}

#[test]
fn a_failed_reload_loses_no_connection() {
    let place = Place::new("failed");
    let [port, taken] = [(); 2].map(|()| free_port());
    let _other = std::net::TcpListener::bind(("127.0.0.1", taken)).unwrap();
    let [tcp, taken] = [port, taken].map(|port| format!("127.0.0.1:{port}"));
    let unix = place.0.join("sock").display().to_string();
    let master = master(&place.file("a.cfg", &config(1, "", &[&tcp, &unix])));
    until("it answers", || is_alive(port));
    let worker = children(master.id());
    let crowd = Crowd::around(16, &[tcp.clone(), unix.clone()], || {
        for _ in 0..5 {
            // Everything can be had but the last address.
            place.file("a.cfg", &config(4, "", &[&tcp, &unix, &taken]));
            master.signal(USR2);
            until("there is a new worker", || children(master.id()).len() == 2);
            until("it has failed", || children(master.id()).len() == 1);
        }
    });
    crowd.lost_nobody();
    assert_eq!(children(master.id()), worker);
    place.file("a.cfg", &config(1, "", &[&tcp, &unix]));
    reload(&master);
    asking(&unix).and_then(answer).unwrap();
    stop(master);
}
