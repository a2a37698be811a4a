//! Listening sockets from HAProxy to penstock and back, by the exchange that both speak (`-x`): the same configuration, and
//! no client is turned away.

mod common;
#[path = "../../../tests/reference.rs"]
mod reference;

use common::{
    Place,
    crowd::{Crowd, dial, is_alive},
    free_port, penstock,
    running::{Running, TERM, until},
};
use std::{
    path::Path,
    process::{Command, Stdio},
};

/// One that takes over from the process behind the stats socket, and tells it to finish.
fn heir(mut program: Command, config: &Path, stats: &Path, of: Option<&Running>) -> Running {
    program.arg("-db").arg("-f").arg(config);
    if let Some(of) = of {
        program.arg("-x").arg(stats).arg("-sf").arg(of.id().to_string());
    }
    Running(program.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

#[test]
fn haproxy_is_replaced_and_comes_back_without_a_lost_connection() {
    replace_in_turn("x-haproxy", "nbthread 1");
}

#[test]
fn sockets_that_cannot_be_opened_twice_are_shared_by_the_workers() {
    replace_in_turn("x-haproxy-alone", "nbthread 3\n  noreuseport");
}

/// HAProxy, penstock twice, HAProxy, penstock: each the heir of the one before, under load.
fn replace_in_turn(name: &str, global: &str) {
    if reference::haproxy().is_none() {
        return;
    }
    let place = Place::new(name);
    let [plain, bound] = [(); 2].map(|()| free_port());
    let (unix, stats) = (place.0.join("sock"), place.0.join("stats"));
    let config = place.file(
        "a.cfg",
        &format!(
            "global\n  {global}\n  stats socket {} expose-fd listeners\ndefaults\n  mode http\n  timeout client 10s\n  timeout \
             server 10s\n  timeout connect 10s\nfrontend a\n  bind 127.0.0.1:{plain}\n  bind 127.0.0.1:{bound} interface lo\n  \
             bind unix@{}\n  monitor-uri /alive\n",
            stats.display(),
            unix.display()
        ),
    );
    let mut serves = heir(Command::new("haproxy"), &config, &stats, None);
    until("it answers", || is_alive(plain));
    // A new socket would be another file.
    let inode = |path: &Path| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap());
    let first = inode(&unix);
    let addresses = [format!("127.0.0.1:{plain}"), format!("127.0.0.1:{bound}"), unix.display().to_string()];
    let crowd = Crowd::around(12, &addresses, || {
        for to_penstock in [true, true, false, true] {
            let program = if to_penstock { penstock() } else { Command::new("haproxy") };
            let new = heir(program, &config, &stats, Some(&serves));
            assert_eq!(std::mem::replace(&mut serves, new).end(), 0);
            assert_eq!(inode(&unix), first, "the socket was taken over");
        }
    });
    crowd.lost_nobody();
    serves.signal(TERM);
    serves.end();
    assert!(dial(&addresses[0]).is_err());
}
