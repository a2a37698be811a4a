//! Sessions listed and ended while there are thousands of them, and traffic goes on.

mod common;

use common::{
    Place, free_port,
    running::{Running, until},
};
use serde_json::Value;
use std::{
    collections::HashMap,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

const IDLE: usize = 2000;

fn ask(socket: &PathBuf, command: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(format!("{command}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The number of each session of a frontend, by its client's port.
fn listed(answer: &str, frontend: &str) -> HashMap<u16, String> {
    let lines = answer.lines().filter(|line| line.contains(&format!(" fe={frontend} ")));
    let entry = |line: &str| {
        let (id, rest) = line.split_once(": ").unwrap();
        let source = rest.split("src=127.0.0.1:").nth(1).unwrap().split(' ').next().unwrap();
        (source.parse().unwrap(), id.to_string())
    };
    lines.map(entry).collect()
}

/// Accepts every connection, and sends nothing.
fn silent_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in listener.incoming() {
            kept.push(stream);
        }
    });
    port
}

#[test]
fn thousands_of_sessions_are_listed_while_traffic_goes_on_and_one_is_ended() {
    let place = Place::new("sessions");
    let ([raw, http, queued], server) = ([(); 3].map(|()| free_port()), silent_server());
    let file = place.file(
        "a.cfg",
        &format!(
            "global\n  nbthread 2\n  stats socket {}/admin level admin\ndefaults\n  timeout client 60s\n  timeout server 60s\n  \
             timeout connect 5s\nlisten raw\n  bind 127.0.0.1:{raw}\n  server s 127.0.0.1:{server}\n\
             frontend web\n  mode http\n  bind 127.0.0.1:{http}\n  http-request return status 200\n\
             listen queued\n  mode http\n  bind 127.0.0.1:{queued}\n  server s 127.0.0.1:{server} maxconn 1\n",
            place.0.display()
        ),
    );
    let socket = place.0.join("admin");
    let _process = Running::start(&[&"-db", &"-f", &file]);
    until("it answers", || UnixStream::connect(&socket).is_ok());
    let clients: Vec<TcpStream> = (0..IDLE).map(|_| TcpStream::connect(("127.0.0.1", raw)).unwrap()).collect();
    until("all are there", || listed(&ask(&socket, "show sess"), "raw").len() == IDLE);

    // Clients keep asking, and none of them waits for the lists.
    let (over, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let steady = std::thread::spawn({
        let (over, served) = (over.clone(), served.clone());
        move || {
            let mut client = TcpStream::connect(("127.0.0.1", http)).unwrap();
            while !over.load(Ordering::Relaxed) {
                client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
                let mut answer = [0; 512];
                let length = client.read(&mut answer).unwrap();
                assert!(answer[..length].starts_with(b"HTTP/1.1 200 "));
                served.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let before = listed(&ask(&socket, "show sess"), "raw");
    assert_eq!(before.len(), IDLE);
    let mut ids: Vec<&String> = before.values().collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), IDLE, "each has a number of its own");
    assert_eq!(listed(&ask(&socket, "show sess"), "raw"), before, "which it keeps");
    let json: Value = serde_json::from_str(ask(&socket, "show sess json").trim()).unwrap();
    let of_json = json.as_array().unwrap().iter().filter(|session| session["frontend"] == "raw");
    assert!(of_json.clone().all(|session| before.values().any(|id| session["id"] == id.as_str())));
    assert_eq!(of_json.count(), IDLE);
    let requests = served.load(Ordering::Relaxed);
    until("requests are answered between lists", || served.load(Ordering::Relaxed) > requests + 10);

    // One is ended by its number, and no other.
    let port = |client: &TcpStream| client.local_addr().unwrap().port();
    let chosen = &clients[IDLE / 2];
    let id = &before[&port(chosen)];
    assert!(ask(&socket, &format!("show sess {id}")).contains("server=s (id=1)"));
    assert_eq!(ask(&socket, &format!("shutdown session {id}")), "\n");
    chosen.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut chosen_stream = chosen.try_clone().unwrap();
    assert_eq!(chosen_stream.read(&mut [0; 8]).unwrap(), 0);
    assert_eq!(ask(&socket, &format!("shutdown session {id}")), "No such session (use 'show sess').\n\n");
    let mut after = before.clone();
    after.remove(&port(chosen));
    assert_eq!(listed(&ask(&socket, "show sess"), "raw"), after);

    // One that waits in a queue can be ended as well.
    let ask_queued = || {
        let mut client = TcpStream::connect(("127.0.0.1", queued)).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        client
    };
    let first = ask_queued();
    until("it is served", || ask(&socket, "show sess").contains("be=queued srv=s "));
    let mut second = ask_queued();
    until("it waits", || ask(&socket, "show sess").contains("be=queued srv=<none> "));
    let id = listed(&ask(&socket, "show sess"), "queued").remove(&port(&second)).unwrap();
    ask(&socket, &format!("shutdown session {id}"));
    second.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut answer = String::new();
    second.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    drop(first);
    over.store(true, Ordering::Relaxed);
    steady.join().unwrap();
}
