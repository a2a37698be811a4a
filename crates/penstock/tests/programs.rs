//! `program` sections and notifications to systemd, on the real binary.

mod common;

use common::{
    Place,
    crowd::is_alive,
    free_port, penstock,
    running::{KILL, Running, TERM, USR2, children, master, said, signal_to, successes, until},
};
use std::{os::unix::net::UnixDatagram, path::Path, process::Stdio, time::Duration};

fn config(port: u16, rest: &str) -> String {
    format!(
        "global\n  nbthread 1\ndefaults\n  mode http\n  timeout client 5s\n  timeout server 5s\n  timeout connect 5s\nfrontend \
         a\n  bind 127.0.0.1:{port}\n  monitor-uri /alive\n{rest}"
    )
}

/// A script that writes its id, its user and group and its environment to files, and stays.
fn script(place: &Place, name: &str) -> String {
    let dir = place.0.display();
    let text = format!(
        "#!/bin/sh\nenv >{dir}/{name}.env\n(id -u; id -g) >{dir}/{name}.id\ntrap 'echo ended >>{dir}/{name}.ends; exit 0' USR1 TERM\n\
         echo $$ >{dir}/{name}.tmp; mv {dir}/{name}.tmp {dir}/{name}.pid\nwhile :; do sleep 0.05; done\n"
    );
    let path = place.file(name, &text);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&path, mode).unwrap();
    path.display().to_string()
}

fn pid_of(place: &Place, name: &str) -> Option<u32> {
    std::fs::read_to_string(place.0.join(format!("{name}.pid"))).ok()?.trim().parse().ok()
}

fn forget(place: &Place, name: &str) {
    let _ = std::fs::remove_file(place.0.join(format!("{name}.pid")));
}

#[test]
fn a_program_is_started_replaced_and_ended_with_the_service() {
    let place = Place::new("program");
    let port = free_port();
    let path = script(&place, "helper");
    let master = master(
        &place,
        &place.file("a.cfg", &config(port, &format!("program helper\n  command {path} one 'two words'\n"))),
    );
    until("the program runs", || pid_of(&place, "helper").is_some());
    let first = pid_of(&place, "helper").unwrap();
    assert!(children(master.id()).contains(&first));
    let arguments = std::fs::read_to_string(format!("/proc/{first}/cmdline")).unwrap();
    assert!(arguments.ends_with("\0one\0two words\0"), "{arguments:?}");
    let environment = std::fs::read_to_string(place.0.join("helper.env")).unwrap();
    assert!(environment.contains("HAPROXY_MWORKER=1\n") && environment.contains("HAPROXY_CFGFILES="), "{environment}");
    assert!(!environment.contains("PENSTOCK_WORKER"), "{environment}");

    forget(&place, "helper");
    signal_to(first, KILL);
    until("it runs again", || pid_of(&place, "helper").is_some());
    assert!(is_alive(port), "the service does not end with a program");

    let second = pid_of(&place, "helper").unwrap();
    forget(&place, "helper");
    master.signal(USR2);
    until("another one runs after the reload", || pid_of(&place, "helper").is_some_and(|pid| pid != second));
    until("the one before has ended", || !children(master.id()).contains(&second));
    let ended = format!("Former program 'helper' ({second}) exited with code 0 (Exit)");
    until("that is in the log", || said(&place).contains(&ended));
    let third = pid_of(&place, "helper").unwrap();
    master.signal(TERM);
    assert_eq!(master.end(), 0);
    assert!(!Path::new(&format!("/proc/{third}")).exists());
}

#[test]
fn a_program_that_a_reload_does_not_start_again_runs_on() {
    let place = Place::new("program-stays");
    let port = free_port();
    let path = script(&place, "helper");
    let section = format!("program helper\n  command {path}\n  no option start-on-reload\n");
    let master = master(&place, &place.file("a.cfg", &config(port, &section)));
    until("the program runs", || pid_of(&place, "helper").is_some());
    let first = pid_of(&place, "helper").unwrap();
    forget(&place, "helper");
    master.signal(USR2);
    until("the reload is over", || successes(&place) == 2);
    std::thread::sleep(Duration::from_millis(300));
    assert!(children(master.id()).contains(&first) && pid_of(&place, "helper").is_none());
    // One that a configuration no longer has ends.
    place.file("a.cfg", &config(port, ""));
    master.signal(USR2);
    until("it has ended", || !children(master.id()).contains(&first));
    master.signal(TERM);
    assert_eq!(master.end(), 0);
}

#[test]
fn a_program_runs_as_its_user_and_group() {
    if !common::study::has_namespaces() {
        return common::study::skip("programs of another user: only root may start them");
    }
    let place = Place::new("program-user");
    std::fs::set_permissions(&place.0, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let path = script(&place, "helper");
    let section = format!("program helper\n  command {path}\n  user nobody\n  group nogroup\n");
    let master = master(&place, &place.file("a.cfg", &config(free_port(), &section)));
    until("the program runs", || pid_of(&place, "helper").is_some());
    assert_eq!(std::fs::read_to_string(place.0.join("helper.id")).unwrap(), "65534\n65534\n");
    master.signal(TERM);
    assert_eq!(master.end(), 0);
}

#[test]
fn programs_that_cannot_be_had_are_said_and_do_not_stop_the_service() {
    let place = Place::new("program-missing");
    let port = free_port();
    let section = "program helper\n  command /no/such/program\n";
    let file = place.file("a.cfg", &config(port, section));
    let alone = common::run(&[&"-c", &"-f", &file]);
    assert!(String::from_utf8_lossy(&alone.stderr).contains("a 'program' section needs a master"), "{alone:?}");
    assert_eq!(alone.status.code(), Some(1));
    let master = master(&place, &file);
    until("it answers", || is_alive(port));
    until("it is left alone", || said(&place).contains("program 'helper' has failed 8 times in a row"));
    assert!(said(&place).contains("Cannot execute /no/such/program"), "{}", said(&place));
    assert!(is_alive(port));
    master.signal(TERM);
    assert_eq!(master.end(), 0);
    for (section, why) in [
        ("program p\n  user root\n", "the program 'p' has no command"),
        ("program p\n  command /bin/true\n  user no-such-user\n", "there is no user 'no-such-user'"),
    ] {
        let file = place.file("bad.cfg", &config(port, section));
        let said = common::run(&[&"-W", &"-c", &"-f", &file]);
        assert!(String::from_utf8_lossy(&said.stderr).contains(why), "{said:?}");
    }
}

/// What systemd would receive.
fn told(socket: &UnixDatagram) -> String {
    let mut bytes = [0; 4096];
    let received = socket.recv(&mut bytes).expect("the service tells something");
    String::from_utf8_lossy(&bytes[..received]).into_owned()
}

#[test]
fn systemd_is_told_each_state() {
    let place = Place::new("notify");
    let port = free_port();
    let socket = UnixDatagram::bind(place.0.join("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let file = place.file("a.cfg", &config(port, ""));
    let mut command = penstock();
    command.arg("-Ws").arg("-f").arg(&file).env("NOTIFY_SOCKET", place.0.join("notify")).stderr(Stdio::null());
    let master = Running(command.spawn().unwrap());
    assert_eq!(told(&socket), "READY=1\nSTATUS=Ready.\n");
    assert!(is_alive(port), "it is ready when it says so");
    master.signal(USR2);
    let reloading = told(&socket);
    let since = reloading.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC=")).expect("since when");
    assert!(reloading.starts_with("RELOADING=1\n") && since.parse::<u64>().unwrap() > 0, "{reloading}");
    assert_eq!(told(&socket), "READY=1\nSTATUS=Ready.\n");
    std::fs::write(&file, "nonsense\n").unwrap();
    master.signal(USR2);
    assert!(told(&socket).starts_with("RELOADING=1\n"));
    assert_eq!(told(&socket), "READY=1\nSTATUS=Reload failed!\n");
    master.signal(TERM);
    assert_eq!(told(&socket), "STOPPING=1\n");
    assert_eq!(master.end(), 0);
}
