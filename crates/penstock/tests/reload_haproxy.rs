//! Listening sockets from HAProxy to penstock and back, by the exchange that both speak (`-x`): the same configuration, and
//! no client is turned away.

mod common;
#[path = "../../../tests/reference.rs"]
mod reference;

use common::{
    Place, free_port, penstock,
    running::{AtEnd, Running, TERM, is_alive, until},
};
use std::{
    io::{Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

/// One that takes over from the process behind the stats socket, and tells it to finish.
fn heir(mut program: Command, config: &Path, stats: &Path, of: Option<&Running>) -> Running {
    program.arg("-db").arg("-f").arg(config);
    if let Some(of) = of {
        program.arg("-x").arg(stats).arg("-sf").arg(of.id().to_string());
    }
    Running(program.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

/// One request to the unix socket.
fn is_alive_at(path: &Path) -> bool {
    let Ok(mut stream) = UnixStream::connect(path) else { return false };
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut answer = String::new();
    let _ = stream.write_all(b"GET /alive HTTP/1.0\r\n\r\n");
    let _ = stream.read_to_string(&mut answer);
    answer.contains(" 200 ")
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
    let (enough, answered, lost) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let _end = AtEnd(&enough);
        for number in 0..12 {
            let (enough, answered, lost, unix) = (&enough, &answered, &lost, &unix);
            scope.spawn(move || {
                while !enough.load(Relaxed) {
                    let ok = match number % 3 {
                        0 => is_alive(plain),
                        1 => is_alive(bound),
                        _ => is_alive_at(unix),
                    };
                    if ok { answered } else { lost }.fetch_add(1, Relaxed);
                }
            });
        }
        for to_penstock in [true, true, false, true] {
            let program = if to_penstock { penstock() } else { Command::new("haproxy") };
            let new = heir(program, &config, &stats, Some(&serves));
            assert_eq!(std::mem::replace(&mut serves, new).end(), 0);
            assert_eq!(inode(&unix), first, "the socket was taken over");
        }
    });
    let (answered, lost) = (answered.into_inner(), lost.into_inner());
    eprintln!("{answered} answered, {lost} lost");
    assert!(answered > 100 && lost == 0, "{answered} answered, {lost} lost");
    serves.signal(TERM);
    serves.end();
    assert!(TcpStream::connect(("127.0.0.1", plain)).is_err());
}
