//! The master's commands (`-S`), on the real binary, over a unix socket.

mod common;

use common::{
    Place,
    crowd::{Crowd, dial, is_alive},
    free_port, penstock,
    running::{KILL, Running, TERM, USR2, children, exhaust, signal_to, until},
};
use std::{
    io::{Read, Write},
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

struct Service {
    place: Place,
    port: u16,
    master: Running,
}

impl Service {
    fn start(name: &str, words: &str) -> Service {
        let place = Place::new(name);
        let port = free_port();
        let config = place.config(port);
        let said = std::fs::File::create(place.0.join("said")).unwrap();
        let mut command = penstock();
        command.arg("-W").arg("-S").arg(format!("{}{words}", place.0.join("master").display())).arg("-f").arg(config);
        let service = Service { port, master: Running(command.stderr(Stdio::from(said)).spawn().unwrap()), place };
        until("the worker serves", || service.said().contains("Loading success."));
        service
    }
    fn said(&self) -> String {
        std::fs::read_to_string(self.place.0.join("said")).unwrap()
    }
    fn socket(&self) -> PathBuf {
        self.place.0.join("master")
    }
    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }
    /// What comes of a line, to the end of the connection.
    fn ask(&self, line: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(line.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
    fn workers(&self) -> Vec<u32> {
        children(self.master.id())
    }
    fn break_configuration(&self) -> String {
        let path = self.place.0.join("ok.cfg");
        let good = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{good}  no-such-keyword\n")).unwrap();
        good
    }
    fn stop(self) {
        self.master.signal(TERM);
        assert_eq!(self.master.end(), 0);
    }
}

/// Reads until what came ends so.
fn read_until(stream: &mut UnixStream, end: &str) -> String {
    let mut seen = Vec::new();
    while !seen.ends_with(end.as_bytes()) {
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "closed after {:?}", String::from_utf8_lossy(&seen));
        seen.push(byte[0]);
    }
    String::from_utf8(seen).unwrap()
}

#[test]
fn processes_are_shown_in_columns_that_clients_cut() {
    let service = Service::start("cli-proc", "");
    let (master, worker) = (service.master.id(), service.workers()[0]);
    let page = service.ask("show proc\n");
    let lines: Vec<_> = page.lines().collect();
    assert_eq!(lines[0], "#<PID>          <type>          <reloads>       <uptime>        <version>      ");
    let cells =
        |line: &str| -> Vec<String> { (0..4).map(|n| line[n * 16..(n + 1) * 16].trim_end().to_owned()).collect() };
    assert_eq!(cells(lines[1])[..3], [master.to_string(), "master".into(), "0 [failed: 0]".into()]);
    assert_eq!(lines[2], "# workers");
    assert_eq!(cells(lines[3])[..3], [worker.to_string(), "worker".into(), "0".into()]);
    assert_eq!(lines[4..], ["# programs", ""]);
    assert!(page.ends_with("\n\n"), "{page}");
    service.stop();
}

#[test]
fn a_reload_answers_with_what_came_of_it() {
    let service = Service::start("cli-reload", "");
    let first = service.workers();
    let answer = service.ask("reload;show proc\n");
    assert!(answer.starts_with("Success=1\n--\n[NOTICE]   ("), "{answer}");
    assert!(answer.ends_with(" : Loading success.\n\n") && !answer.contains("#<PID>"), "{answer}");
    until("the former worker has ended", || matches!(&service.workers()[..], [worker] if !first.contains(worker)));
    assert_eq!(service.ask("show startup-logs\n"), answer.replacen("Success=1\n--\n", "", 1));

    let good = service.break_configuration();
    let second = service.workers();
    let answer = service.ask("reload\n");
    assert!(answer.starts_with("Success=0\n--\n") && answer.contains("no-such-keyword"), "{answer}");
    assert!(answer.ends_with(" : Loading failure!\n\n"), "{answer}");
    assert_eq!(answer.matches("\n\n").count(), 1, "no empty line within: {answer}");
    until("the new one has ended", || service.workers() == second);
    assert!(is_alive(service.port));
    let mut stream = service.connect();
    stream.write_all(b"prompt\n").unwrap();
    read_until(&mut stream, "master[ReloadFailed]> ");
    assert!(service.ask("show proc\n").contains(" 2 [failed: 1] "));

    std::fs::write(service.place.0.join("ok.cfg"), good).unwrap();
    assert!(service.ask("reload\n").starts_with("Success=1\n"));
    assert!(service.ask("show proc\n").contains(" 3 [failed: 0] "));
    let mut gone = String::new();
    stream.read_to_string(&mut gone).unwrap();
    assert_eq!(gone, "", "a reload ends other connections");
    service.stop();
}

/// The process that answers on a stats socket, or behind the master's.
fn pid_in(answer: &str) -> Option<u32> {
    answer.lines().find_map(|line| line.strip_prefix("Pid: "))?.parse().ok()
}

#[test]
fn what_follows_a_reload_reaches_the_new_worker() {
    let service = Service::start("cli-next", "");
    let (config, stats) = (service.place.0.join("ok.cfg"), service.place.0.join("stats"));
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("global\n stats socket {} level admin\n{text}", stats.display())).unwrap();
    for reload in 0..20 {
        assert!(service.ask("reload\n").starts_with("Success=1\n"));
        let mut stream = UnixStream::connect(&stats).unwrap();
        stream.write_all(b"show info\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let current = pid_in(&service.ask("@1 show info\n"));
        assert!(current.is_some() && pid_in(&answer) == current, "after reload {reload}: {answer}");
    }
    service.stop();
}

#[test]
fn a_socket_whose_file_was_removed_is_back_after_a_reload() {
    let service = Service::start("cli-removed", "");
    std::fs::remove_file(service.socket()).unwrap();
    service.master.signal(USR2);
    until("the socket is back", || UnixStream::connect(service.socket()).is_ok());
    assert!(service.ask("show proc\n").contains("# workers"));
    service.stop();
}

#[test]
fn ctl_fails_with_a_reload() {
    let service = Service::start("cli-ctl", "");
    let reload = || penstock().arg("ctl").arg("-s").arg(service.socket()).arg("reload").output().unwrap();
    assert!(reload().status.success());
    service.break_configuration();
    let failed = reload();
    assert!(
        !failed.status.success() && String::from_utf8_lossy(&failed.stderr).contains("no-such-keyword"),
        "{failed:?}"
    );
    service.stop();
}

#[test]
fn a_hard_reload_stops_the_former_worker() {
    let service = Service::start("cli-hard", "");
    let first = service.workers()[0];
    let mut busy = dial(&format!("127.0.0.1:{}", service.port)).unwrap();
    busy.write_all(b"GET /alive HTTP/1.1\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert!(service.ask("hard-reload\n").starts_with("Success=1\n"));
    until("it was stopped", || service.said().contains(&format!("Former worker ({first}) exited with code 143")));
    service.stop();
}

#[test]
fn reloads_by_the_socket_lose_no_connection() {
    let service = Service::start("cli-hitless", "");
    let crowd = Crowd::around(8, &[format!("127.0.0.1:{}", service.port)], || {
        for _ in 0..10 {
            assert!(service.ask("reload\n").starts_with("Success=1\n"));
        }
    });
    crowd.lost_nobody();
    service.stop();
}

#[test]
fn reloads_asked_for_meanwhile_become_one() {
    let service = Service::start("cli-many", "");
    std::thread::scope(|scope| {
        let asked: Vec<_> = (0..5).map(|_| scope.spawn(|| service.ask("reload\n"))).collect();
        for asked in asked {
            assert!(asked.join().unwrap().starts_with("Success=1\n"));
        }
    });
    service.stop();
}

#[test]
fn levels_modes_and_rights_of_the_socket_hold() {
    let service = Service::start("cli-level", ",mode,600,level,user");
    assert_eq!(std::fs::metadata(service.socket()).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(service.ask("show cli level;reload\n"), "user\n\nPermission denied\n\n");
    assert_eq!(service.ask("expert-mode on\n"), "Permission denied\n\n");
    assert!(service.ask("show cli sockets\n").contains(&format!("unix@{} user all\n", service.socket().display())));
    service.stop();

    let service = Service::start("cli-modes", "");
    let mut stream = service.connect();
    stream.write_all(b"prompt\nexpert-mode on\nexperimental-mode on\nmcli-debug-mode on\n").unwrap();
    assert_eq!(read_until(&mut stream, "(xed)> "), "master> master(e)> master(xe)> master(xed)> ");
    stream.write_all(format!("@1\n@\n@!{}\n", service.workers()[0]).as_bytes()).unwrap();
    let worker = service.workers()[0];
    let wanted = format!("{worker}(xed)> master(xed)> {worker}(xed)> ");
    assert_eq!(read_until(&mut stream, &wanted), wanted);
    service.stop();
}

#[test]
fn clients_that_send_too_much_or_stay_silent_hold_up_nobody() {
    let service = Service::start("cli-crowd", "");
    let silent: Vec<_> = (0..9).map(|_| service.connect()).collect();
    assert!(service.ask("show version\n").ends_with("\n\n"), "the tenth is served");
    let mut long = service.connect();
    // The answer comes before all of it is taken.
    let _ = long.write_all(&[b'a'; 64 << 10]);
    let mut answer = String::new();
    let _ = long.read_to_string(&mut answer);
    drop(silent);
    assert!(service.ask("show version\n").ends_with("\n\n"));
    // The master goes on whatever its clients do.
    signal_to(service.workers()[0], KILL);
    until("another worker serves", || service.said().matches("Loading success.").count() == 2);
    service.stop();
}

#[test]
fn a_port_serves_as_well_as_a_path() {
    let place = Place::new("cli-port");
    let (port, commands) = (free_port(), free_port());
    let address = format!("127.0.0.1:{commands},level,operator");
    let master = Running::start(&[&"-W", &"-S", &address, &"-f", &place.config(port)]);
    until("it answers", || is_alive(port));
    let ask = || {
        let mut stream = dial(&format!("127.0.0.1:{commands}")).unwrap();
        stream.write_all(b"@1 show cli level\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    // Before it hears from the worker, the master has nobody to ask.
    until("the worker is known", || !ask().starts_with("Can't find"));
    assert_eq!(ask(), "operator\n\n");
    master.signal(TERM);
    assert_eq!(master.end(), 0);
}

#[test]
fn a_path_that_is_taken_is_refused_and_a_stale_one_replaced() {
    let service = Service::start("cli-taken", "");
    let config = service.place.config(free_port());
    let said = common::run(&[&"-W", &"-S", &service.socket(), &"-f", &config]);
    assert_eq!(said.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&said.stderr).contains("Address already in use"), "{said:?}");
    service.master.signal(KILL);
    let path = service.socket();
    until("nobody answers", || UnixStream::connect(&path).is_err());
    assert!(path.exists());
    let again = Running(penstock().arg("-W").arg("-S").arg(&path).arg("-f").arg(&config).spawn().unwrap());
    until("another one answers", || UnixStream::connect(&path).is_ok());
    again.signal(TERM);
    assert_eq!(again.end(), 0);
}

#[test]
fn commands_reach_the_worker_and_its_answers_the_client() {
    let service = Service::start("cli-worker", "");
    let worker = service.workers()[0];
    let pid = format!("\nPid: {worker}\n");
    assert!(service.ask("@1 show info\n").contains(&pid));
    assert!(service.ask(&format!("@!{worker} show info\n")).contains(&pid));
    let both = service.ask("@1; show info; show version\n");
    assert!(both.contains(&pid) && both.ends_with("\n\n") && both.matches("\n\n").count() == 2, "{both}");
    // As HAProxy's Data Plane API asks: the sentence has its severity.
    assert!(service.ask("set severity-output number;@1 no-such-command;quit\n").starts_with("[6]: Unknown command"));
    assert_eq!(service.ask("@1 show cli level\n"), "admin\n\n");
    assert_eq!(service.ask("operator;@1 show cli level\n"), "operator\n\n");
    assert_eq!(service.ask("expert-mode on;@1 expert-mode\n"), "expert-mode is ON\n\n");
    assert!(service.ask("@@1 show info;show version\n").contains(&pid));

    let mut stream = service.connect();
    stream.write_all(b"prompt\n@1\nshow version\n").unwrap();
    let seen = read_until(&mut stream, &format!("\n\n{worker}> "));
    assert!(seen.starts_with(&format!("master> {worker}> ")), "{seen}");
    // Both ways: the worker has the client to itself until it says quit.
    stream.write_all(b"@\n@@1\n").unwrap();
    read_until(&mut stream, "> ");
    read_until(&mut stream, "> ");
    stream.write_all(b"show info\n").unwrap();
    assert!(read_until(&mut stream, "\n> ").contains(&pid));
    stream.write_all(b"quit\n").unwrap();
    read_until(&mut stream, "master> ");

    // A former worker that still has a client is reached by its id.
    let mut busy = dial(&format!("127.0.0.1:{}", service.port)).unwrap();
    busy.write_all(b"GET /alive HTTP/1.1\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert!(service.ask("reload\n").starts_with("Success=1\n"));
    assert!(service.ask(&format!("@!{worker} show info\n")).contains(&pid));
    assert!(!service.ask("@1 show info\n").contains(&pid));
    assert!(service.ask("show proc\n").contains(&format!("# old workers\n{worker} ")));
    drop(busy);
    service.stop();
}

#[test]
fn a_worker_without_descriptors_is_reached_and_stays() {
    let service = Service::start("cli-exhausted", "");
    let worker = service.workers()[0];
    let crowd = exhaust(worker, 20, service.port);
    for _ in 0..5 {
        let info = service.ask("@1 show info\n");
        assert!(info.contains(&format!("\nPid: {worker}\n")), "{info:?}: {}", service.said());
    }
    drop(crowd);
    until("others are served", || is_alive(service.port));
    assert_eq!(service.workers(), [worker]);
    service.stop();
}

#[test]
fn workers_know_where_the_master_answers() {
    let service = Service::start("cli-environment", "");
    let environment =
        |pid: u32| std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("environ")).unwrap();
    let worker = environment(service.workers()[0]);
    let has = |text: &str| worker.split('\0').any(|variable| variable == text);
    assert!(has(&format!("HAPROXY_MASTER_CLI=unix@{}", service.socket().display())), "{worker:?}");
    assert!(has("HAPROXY_MWORKER=1"));
    assert!(has(&format!("HAPROXY_CFGFILES={}", service.place.0.join("ok.cfg").display())));
    service.stop();
}

#[test]
fn addresses_that_are_none_are_refused() {
    let place = Place::new("cli-address");
    let config = place.config(free_port());
    for (address, why) in
        [("/tmp/x,level,god", "level"), ("/no/such/dir/sock", "No such file"), ("/tmp/x,nonsense", "nonsense")]
    {
        let said: std::process::Output = Command::new(env!("CARGO_BIN_EXE_penstock"))
            .args(["-W", "-S", address, "-f"])
            .arg(&config)
            .output()
            .unwrap();
        assert_eq!(said.status.code(), Some(1), "{address}");
        assert!(String::from_utf8_lossy(&said.stderr).contains(why), "{address}: {said:?}");
    }
}
