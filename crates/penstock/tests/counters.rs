//! Counters that outlive a process: across reloads, in the place of a worker that died, and by a file.

mod common;

use common::{
    Place,
    crowd::{answer, asking, is_alive},
    free_port, penstock,
    running::{KILL, Running, TERM, USR2, children, master, signal_to, successes, until},
};
use std::{
    collections::HashMap,
    io::{Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
};

fn config(place: &Place, port: u16, global: &str) -> String {
    format!(
        "global\n  nbthread 2\n  stats socket {} level admin\n{global}defaults\n  mode http\n  timeout client 10s\n  timeout server 10s\n  timeout \
         connect 1s\nfrontend a\n  guid a-site\n  bind 127.0.0.1:{port} guid-prefix a-sock\n  option socket-stats\n  monitor-uri \
         /alive\n  default_backend b\nbackend b\n  guid b-all\n  retries 0\n  server s 127.0.0.1:1 guid b-s\n  server t 127.0.0.1:1 \
         backup\n",
        socket(place).display()
    )
}

fn socket(place: &Place) -> std::path::PathBuf {
    place.0.join("stats")
}

fn command(place: &Place, command: &str) -> String {
    let mut stream = UnixStream::connect(socket(place)).unwrap();
    stream.write_all(format!("{command}\n").as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// `show stat`: each row's counters by column.
fn counters(place: &Place) -> HashMap<String, HashMap<String, u64>> {
    let text = command(place, "show stat");
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next().unwrap().trim_start_matches("# ").split(',').collect();
    let rows = lines.filter(|line| !line.is_empty()).map(|line| {
        let cells: Vec<&str> = line.split(',').collect();
        let counted =
            columns.iter().zip(&cells).filter_map(|(name, cell)| Some(((*name).to_owned(), cell.parse().ok()?)));
        (format!("{}/{}", cells[0], cells[1]), counted.collect())
    });
    rows.collect()
}

/// How many sessions the frontend, its socket, the server and the backend have had, how many connections the process.
fn sessions(place: &Place) -> [u64; 5] {
    let counters = counters(place);
    let info = command(place, "show info");
    let connections = info.lines().find_map(|line| line.strip_prefix("CumConns: ")).unwrap().parse().unwrap();
    let of = |row: &str| counters[row]["stot"];
    [of("a/FRONTEND"), of("a/sock-1"), of("b/s"), of("b/BACKEND"), connections]
}

/// Requests that the backend answers with 503, since its servers do not exist.
fn ask(port: u16, times: u32) {
    for _ in 0..times {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.0 503") || answer.starts_with("HTTP/1.1 503"), "{answer}");
    }
}

#[test]
fn counters_go_on_in_the_worker_after_one_that_was_killed() {
    let place = Place::new("counters-killed");
    let port = free_port();
    let master = master(&place, &place.file("a.cfg", &config(&place, port, "")));
    until("it answers", || is_alive(port));
    ask(port, 10);
    // What was shown is never more than what is shown later, although the worker has had no time to put anything in order.
    let shown = sessions(&place);
    assert!(shown.iter().all(|sessions| *sessions >= 10), "{shown:?}");
    for round in 1..=2 {
        let before = successes(&place);
        let before_workers = children(master.id());
        signal_to(before_workers[0], KILL);
        until("another worker serves", || successes(&place) > before);
        let later = sessions(&place);
        assert!(shown.iter().zip(&later).all(|(shown, later)| later >= shown), "{shown:?}, then {later:?}");
        let counted = counters(&place);
        ask(port, 5);
        let [more, ..] = sessions(&place);
        assert_eq!(more, later[0] + 5, "round {round}");
        assert_eq!(counters(&place)["b/BACKEND"]["hrsp_5xx"], counted["b/BACKEND"]["hrsp_5xx"] + 5);
    }
    // Gauges and what is of one process only begin anew.
    assert_eq!(counters(&place)["a/FRONTEND"]["scur"], 0);
    command(&place, "clear counters all");
    assert_eq!(sessions(&place)[0], 0, "an operator may begin anew");
    master.signal(TERM);
    assert_eq!(master.end(), 0);
}

#[test]
fn counters_go_on_across_reloads_with_those_of_who_still_drains() {
    let place = Place::new("counters-reload");
    let port = free_port();
    let master = master(&place, &place.file("a.cfg", &config(&place, port, "")));
    until("it answers", || is_alive(port));
    ask(port, 10);
    let mut busy = asking_slowly(port);
    let before = sessions(&place);
    master.signal(USR2);
    until("another worker serves", || successes(&place) > 1);
    let after = sessions(&place);
    assert!(before.iter().zip(&after).all(|(before, after)| after >= before), "{before:?}, then {after:?}");
    ask(port, 5);
    // The former worker's last exchange is counted as well.
    busy.write_all(b"host: a\r\n\r\n").unwrap();
    let mut rest = String::new();
    busy.read_to_string(&mut rest).unwrap();
    until("it is counted", || counters(&place)["b/BACKEND"]["hrsp_5xx"] == 16);
    master.signal(USR2);
    until("a third worker serves", || successes(&place) > 2 && children(master.id()).len() == 1);
    assert_eq!(counters(&place)["b/BACKEND"]["hrsp_5xx"], 16);
    master.signal(TERM);
    assert_eq!(master.end(), 0);
}

/// A client in the middle of its request.
fn asking_slowly(port: u16) -> std::net::TcpStream {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nconnection: close\r\n").unwrap();
    // Another client is answered: by then the first one has been accepted.
    answer(asking(&format!("127.0.0.1:{port}")).unwrap()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    stream
}

#[test]
fn a_stats_file_is_what_counters_begin_with() {
    let place = Place::new("counters-file");
    let port = free_port();
    let file = place.0.join("counters");
    let global = format!("  stats-file {}\n", file.display());
    let config = place.file("a.cfg", &config(&place, port, &global));
    let first = Running::start(&[&"-f", &config]);
    until("it answers", || is_alive(port));
    ask(port, 10);
    let [shown, ..] = sessions(&place);
    let dumped = command(&place, "dump stats-file");
    // What has no guid is not in it.
    let names: Vec<&str> = dumped.lines().filter_map(|line| line.split_once(',').map(|(name, _)| name)).collect();
    assert_eq!(names, ["#fe guid", "a-site", "a-sock-0", "#be guid", "b-s", "b-all"]);
    std::fs::write(&file, dumped).unwrap();
    first.signal(TERM);
    assert_eq!(first.end(), 128 + TERM);
    let second = Running::start(&[&"-f", &config]);
    until("it answers again", || is_alive(port));
    ask(port, 5);
    let [later, ..] = sessions(&place);
    assert!(later >= shown + 5, "{shown}, then {later}");
    assert_eq!(counters(&place)["b/BACKEND"]["hrsp_5xx"], 15);
    second.signal(TERM);
    assert_eq!(second.end(), 128 + TERM);
}

#[test]
fn a_stats_file_that_cannot_be_read_is_told_and_does_no_harm() {
    let place = Place::new("counters-garbage");
    let port = free_port();
    let file = place.0.join("counters");
    let global = format!("  stats-file {}\n", file.display());
    let config = place.file("a.cfg", &config(&place, port, &global));
    let check = || {
        let output = penstock().arg("-c").arg("-f").arg(&config).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(check().contains("cannot read the stats file: No such file"), "{}", check());
    std::fs::write(&file, b"#fe guid,stot,\na-site,many,\na-site,1,2,3,\n\xff\n").unwrap();
    assert!(
        check().contains(
            "2 lines of the stats file cannot be read and are passed over; the first: line 2: 'many' is not a count"
        ),
        "{}",
        check()
    );
    std::fs::write(&file, b"#fe guid,stot,\na-site,7,\n").unwrap();
    assert_eq!(check(), "");
}
