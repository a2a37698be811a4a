//! Workers that die, on the real binary: each is replaced, waiting clients are served, and only what was in flight is lost.

mod common;

use common::{
    Place,
    crowd::{Crowd, answer, asking, dial, is_alive},
    free_port, penstock,
    running::{KILL, Running, TERM, USR1, USR2, children, freeze, master, said, signal_to, successes, until},
};
use std::{
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

fn config(global: &str, binds: &[&str]) -> String {
    let binds: String = binds.iter().map(|bind| format!("  bind {bind}\n")).collect();
    format!(
        "global\n  nbthread 2\n{global}defaults\n  mode http\n  timeout client 10s\n  timeout server 10s\n  timeout connect \
         10s\nfrontend a\n{binds}  monitor-uri /alive\n"
    )
}

/// Kills the worker, which has served for long enough not to count as one that fails, and waits until another one serves.
fn kill_worker(place: &Place, master: &Running) {
    std::thread::sleep(Duration::from_millis(1100));
    let [worker] = children(master.id())[..] else { panic!("there is not one worker") };
    let before = successes(place);
    signal_to(worker, KILL);
    until("another worker serves", || successes(place) > before);
}

/// Open descriptors of a process, once their number stays: a master lets a worker go some moments after it has ended.
fn descriptors(pid: u32) -> usize {
    let count = || std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let mut last = count();
    until("the number of descriptors stays", || {
        std::thread::sleep(Duration::from_millis(300));
        std::mem::replace(&mut last, count()) == last
    });
    last
}

/// Resident memory, in kB.
fn memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Only what the worker had in flight fails: at most one request of each client for each worker that was killed.
fn lost_at_most(crowd: &Crowd, kills: usize, clients: usize) {
    let lost: usize = crowd.lost.values().sum();
    eprintln!("{} answered, {lost} lost: {:?}", crowd.answered, crowd.lost);
    assert!(crowd.answered > 100 && lost <= kills * clients, "{} answered, lost: {:?}", crowd.answered, crowd.lost);
    // No client was refused: the listening sockets were there all the time.
    assert!(!crowd.lost.keys().any(|why| why.contains("refused")), "{:?}", crowd.lost);
}

#[test]
fn a_killed_worker_is_replaced_and_who_waits_is_served() {
    let place = Place::new("killed");
    let port = free_port();
    let tcp = format!("127.0.0.1:{port}");
    let unix = place.0.join("sock").display().to_string();
    let master = master(&place, &place.file("a.cfg", &config("", &[&tcp, &unix])));
    until("the worker has reported", || successes(&place) == 1);
    let old = children(master.id())[0];
    // The file has changed by now, but no reload was requested.
    place.file("a.cfg", "nonsense\n");
    freeze(old);
    let waiting: Vec<_> = (0..16).map(|n| asking([&tcp, &unix][n % 2]).unwrap()).collect();
    signal_to(old, KILL);
    for client in waiting {
        answer(client).unwrap();
    }
    assert!(is_alive(port));
    assert!(
        said(&place).contains(&format!("Current worker ({old}) exited with code 137 (Killed)")),
        "{}",
        said(&place)
    );
    master.signal(TERM);
    assert_eq!(master.end(), 0);
    assert!(dial(&tcp).is_err() && dial(&unix).is_err(), "copies of sockets are closed as well");
}

#[test]
fn killed_workers_under_load_lose_what_they_had_in_flight() {
    let place = Place::new("killed-load");
    let port = free_port();
    let tcp = format!("127.0.0.1:{port}");
    let kills = if std::env::var_os("PENSTOCK_ENDURANCE").is_some() { 50 } else { 4 };
    let master = master(&place, &place.file("a.cfg", &config("", &[&tcp])));
    until("the worker has reported", || successes(&place) == 1);
    kill_worker(&place, &master);
    let (descriptors_before, memory_before) = (descriptors(master.id()), memory(master.id()));
    let crowd = Crowd::around(8, &[tcp], || (0..kills).for_each(|_| kill_worker(&place, &master)));
    lost_at_most(&crowd, kills, 8);
    assert_eq!(descriptors(master.id()), descriptors_before, "descriptors of the master");
    let grown = memory(master.id()).saturating_sub(memory_before);
    assert!(grown < 2048, "the master has grown by {grown} kB");
    master.signal(TERM);
    assert_eq!(master.end(), 0);
}

#[test]
fn many_reloads_under_load_lose_nobody_and_leak_nothing() {
    let place = Place::new("reloads");
    let port = free_port();
    let tcp = format!("127.0.0.1:{port}");
    let reloads = if std::env::var_os("PENSTOCK_ENDURANCE").is_some() { 200 } else { 8 };
    let master = master(&place, &place.file("a.cfg", &config("", &[&tcp])));
    until("it answers", || is_alive(port));
    let reload = || {
        let before = successes(&place);
        master.signal(USR2);
        until("another worker has taken over", || successes(&place) > before && children(master.id()).len() == 1);
    };
    (0..3).for_each(|_| reload());
    let (descriptors_before, memory_before) = (descriptors(master.id()), memory(master.id()));
    Crowd::around(8, &[tcp], || (0..reloads).for_each(|_| reload())).lost_nobody();
    assert_eq!(descriptors(master.id()), descriptors_before, "descriptors of the master");
    let grown = memory(master.id()).saturating_sub(memory_before);
    assert!(grown < 2048, "the master has grown by {grown} kB");
    master.signal(TERM);
    assert_eq!(master.end(), 0);
}

#[test]
fn workers_that_die_again_and_again_end_the_service() {
    let place = Place::new("again");
    let port = free_port();
    let master = master(&place, &place.file("a.cfg", &config("", &[&format!("127.0.0.1:{port}")])));
    until("the worker has reported", || successes(&place) == 1);
    let begun = Instant::now();
    while !said(&place).contains("8 workers in a row have failed: the service ends") {
        for child in children(master.id()) {
            let _ = penstock_sys::kill(child as i32, KILL);
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", said(&place));
        std::thread::sleep(Duration::from_millis(2));
    }
    // Pauses of 6.3 s in all come between them.
    assert!(begun.elapsed() > Duration::from_secs(6), "{}", said(&place));
    assert_ne!(master.end(), 0);
}

#[test]
fn with_no_exit_on_failure_clients_wait_for_a_reload_in_the_end() {
    let place = Place::new("outlives");
    let port = free_port();
    let tcp = format!("127.0.0.1:{port}");
    let text = config("  master-worker no-exit-on-failure\n", &[&tcp]);
    let master = master(&place, &place.file("a.cfg", &text));
    until("the worker has reported", || successes(&place) == 1);
    let begun = Instant::now();
    while !said(&place).contains("clients wait for a reload") {
        for child in children(master.id()) {
            let _ = penstock_sys::kill(child as i32, KILL);
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", said(&place));
        std::thread::sleep(Duration::from_millis(2));
    }
    let waiting: Vec<_> = (0..8).map(|_| asking(&tcp).unwrap()).collect();
    master.signal(USR2);
    for client in waiting {
        answer(client).unwrap();
    }
    master.signal(TERM);
    assert_eq!(master.end(), 0);
}

#[test]
fn a_stuck_worker_is_replaced() {
    let place = Place::new("stuck");
    let port = free_port();
    let tcp = format!("127.0.0.1:{port}");
    let said_to = std::fs::File::create(place.0.join("said")).unwrap();
    let text = config("", &[&tcp]) + "  http-request return status 200\n";
    let config = place.file("a.cfg", &text);
    let mut command = penstock();
    command.arg("-W").arg("-f").arg(&config).env("PENSTOCK_PLANT_FAULT", "spin").stderr(Stdio::from(said_to));
    let master = Running(command.spawn().unwrap());
    until("it answers", || is_alive(port));
    let mut client = dial(&tcp).unwrap();
    client.write_all(b"GET /planted-fault HTTP/1.0\r\n\r\n").unwrap();
    until("the watchdog has ended it", || said(&place).contains("exited with code 134 (Aborted)"));
    until("it answers again", || is_alive(port));
    master.signal(TERM);
    assert_eq!(master.end(), 0);
}

#[test]
fn a_worker_whose_master_dies_finishes_and_ends() {
    let place = Place::new("orphan");
    let port = free_port();
    let tcp = format!("127.0.0.1:{port}");
    let master = master(&place, &place.file("a.cfg", &config("", &[&tcp])));
    until("it answers", || is_alive(port));
    let worker = children(master.id())[0];
    let mut busy = dial(&tcp).unwrap();
    busy.write_all(b"GET /alive HTTP/1.1\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(200));
    master.signal(KILL);
    until("nothing listens any more", || dial(&tcp).is_err());
    // Who was being served is served.
    busy.write_all(b"host: a\r\n\r\n").unwrap();
    answer(busy).unwrap();
    until("the worker has ended", || !Path::new(&format!("/proc/{worker}")).exists());
    assert!(said(&place).contains("The master is gone"), "{}", said(&place));
    drop(master);
}

#[test]
fn a_former_worker_survives_only_so_many_reloads() {
    let place = Place::new("max-reloads");
    let port = free_port();
    let tcp = format!("127.0.0.1:{port}");
    let text = config("  mworker-max-reloads 1\n", &[&tcp]).replace("timeout client 10s", "timeout client 60s");
    let master = master(&place, &place.file("a.cfg", &text));
    until("it answers", || is_alive(port));
    let old = children(master.id())[0];
    let mut busy = dial(&tcp).unwrap();
    busy.write_all(b"GET /alive HTTP/1.1\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(200));
    for reload in 1..=2 {
        let before = successes(&place);
        master.signal(USR2);
        until("another worker serves", || successes(&place) > before);
        if reload == 1 {
            std::thread::sleep(Duration::from_millis(300));
            assert!(children(master.id()).contains(&old), "it has a client, and may survive one reload");
        }
    }
    until("it was ended", || {
        said(&place).contains(&format!("Former worker ({old}) exited with code 143 (Terminated)"))
    });
    master.signal(USR1);
    assert_eq!(master.end(), 0);
}
