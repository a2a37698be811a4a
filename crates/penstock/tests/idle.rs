//! A process that has nothing to do wakes rarely.

mod common;

use common::{Place, free_port, penstock, running::Running};
use std::{collections::HashMap, net::TcpStream, time::Duration};

/// How often each thread has waited so far, by its name.
fn waits(pid: u32) -> HashMap<String, u64> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let folder = entry.unwrap().path();
        let status = std::fs::read_to_string(folder.join("status")).unwrap();
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        let name = std::fs::read_to_string(folder.join("comm")).unwrap();
        (name.trim().to_owned(), count.trim().parse().unwrap())
    };
    threads.map(read).collect()
}

#[test]
fn an_idle_process_wakes_a_few_times_a_second() {
    let place = Place::new("idle");
    let port = free_port();
    let text = format!(
        "global\n  nbthread 2\n  stats socket {}/admin level admin\ndefaults\n  mode http\n  timeout client 5s\n  timeout server 5s\n  \
         timeout connect 5s\nfrontend f\n  bind 127.0.0.1:{port}\n  default_backend b\nbackend b\n  server s 127.0.0.1:9\n",
        place.0.display()
    );
    let config = place.file("idle.cfg", &text);
    let running = Running(penstock().args(["-db", "-f"]).arg(config).spawn().unwrap());
    common::running::until("it listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    // What the first connection has started ends.
    std::thread::sleep(Duration::from_secs(2));
    let before = waits(running.id());
    std::thread::sleep(Duration::from_secs(5));
    let after = waits(running.id());
    // The worker that samples rates does so four times a second, and a timer of the runtime may take two steps. Measured: 9.5 for that
    // worker, 2.1 for another, 1 to 2 for the rest.
    let limit = |name: &str| if name == "worker-1" { 15 } else { 4 };
    for (name, count) in &after {
        let woken = count - before.get(name).copied().unwrap_or(*count);
        assert!(woken <= 5 * limit(name), "{name} woke {woken} times in 5 s: {before:?}, {after:?}");
    }
    assert!(after.len() >= 5, "the main thread, two workers, the watchdog and the control thread: {after:?}");
}
