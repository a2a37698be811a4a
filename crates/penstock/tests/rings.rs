//! Where log lines cannot go. Servers of a ring: those that take nothing, cannot be reached, or are there when the process ends.

mod common;

use common::{
    Place, free_port,
    running::{PATIENCE, Running, TERM, master, said, until},
};
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
};

/// Starts a process whose only frontend logs the paths of requests to the ring `r`, which has these lines.
fn start(place: &Place, ring: &str) -> (Running, u16) {
    let port = free_port();
    let text = format!(
        "global\n  nbthread 1\n  tune.http.logurilen 16384\nring r\n{ring}\ndefaults\n  mode http\n  timeout client 20s\n  timeout server 20s\n  timeout connect 5s\n  \
         option dontlognull\n  \
         log-format %HP\nfrontend f\n  bind 127.0.0.1:{port}\n  log ring@r len 16384 local0\n  http-request return status 200\n"
    );
    let config = place.file("ring.cfg", &text);
    let running = Running::start(&[&"-db", &"-f", &config]);
    until("it listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    (running, port)
}

/// Asks on one connection for paths that begin with these numbers, and have some 8 KiB.
fn ask(port: u16, numbers: std::ops::RangeInclusive<usize>) {
    let rest = "x".repeat(8_000);
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    for number in numbers {
        client.write_all(format!("GET /{number}/{rest} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes()).unwrap();
        let (mut answer, mut byte) = (Vec::new(), [0]);
        while !answer.ends_with(b"\r\n\r\n") {
            client.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
    }
}

/// The numbers of the lines that end in what a server has received.
fn numbers(received: &[u8]) -> Vec<usize> {
    let whole = received.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let text = std::str::from_utf8(&received[..whole]).unwrap();
    text.lines().filter_map(|line| line.split('/').nth(1)?.parse().ok()).collect()
}

fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let mut accepted = None;
    until("the ring's server is connected to", || {
        accepted = listener.accept().ok();
        accepted.is_some()
    });
    let (stream, _) = accepted.expect("`until` returned");
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn a_server_that_takes_nothing_is_connected_to_again_and_misses_no_line() {
    const LAST: usize = 1_500;
    let place = Place::new("ring-stalls");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 65_536).unwrap();
    let ring = format!(
        "  size 32m\n  timeout connect 5s\n  timeout server 500ms\n  server s {}",
        listener.local_addr().unwrap()
    );
    let (running, port) = start(&place, &ring);
    let mut first = accept(&listener);
    // More than the system's buffers hold.
    let client = std::thread::spawn(move || ask(port, 1..=LAST));
    let mut second = accept(&listener);
    let rest = std::thread::spawn(move || {
        let (mut received, mut some) = (Vec::new(), vec![0; 1 << 20]);
        // Only the end is looked at, since a reader that is slow loses its connection, too.
        while numbers(&received[received.len().saturating_sub(9_000)..]).last() != Some(&LAST) {
            let count = second.read(&mut some).unwrap();
            assert!(count > 0, "the connection ended after {} bytes", received.len());
            received.extend_from_slice(&some[..count]);
        }
        numbers(&received)
    });
    let mut received = Vec::new();
    let is_whole = first.read_to_end(&mut received).is_ok();
    let (before, after) = (numbers(&received), rest.join().unwrap());
    client.join().unwrap();
    assert!(!before.is_empty() && before.len() < LAST, "{}", before.len());
    assert_eq!(before, (1..=before.len()).collect::<Vec<_>>());
    assert_eq!(after, (after[0]..=LAST).collect::<Vec<_>>());
    // A system that is short of memory may drop what it has taken for the first connection.
    assert!(after[0] == before.len() + 1 || (!is_whole && after[0] > before.len()), "{} {}", before.len(), after[0]);
    drop(running);
}

#[test]
fn the_last_lines_reach_the_server_before_the_process_ends() {
    let place = Place::new("ring-ends");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (running, port) = start(
        &place,
        &format!("  size 1m\n  timeout connect 5s\n  timeout server 5s\n  server s {}", listener.local_addr().unwrap()),
    );
    let mut server = accept(&listener);
    ask(port, 1..=5);
    running.signal(TERM);
    let mut received = Vec::new();
    server.read_to_end(&mut received).unwrap();
    assert_eq!(numbers(&received), [1, 2, 3, 4, 5]);
    assert_eq!(running.end(), 128 + TERM);
}

#[test]
fn a_server_that_does_not_answer_is_given_up_after_timeout_connect_and_reported() {
    let place = Place::new("ring-connects");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // With a queue of one place, which is taken, the system answers nobody.
    rustix::net::listen(&listener, 0).unwrap();
    let _taken = TcpStream::connect(address).unwrap();
    let syslog = UdpSocket::bind("127.0.0.1:0").unwrap();
    syslog.set_read_timeout(Some(PATIENCE)).unwrap();
    let ring = format!(
        "  timeout connect 200ms\n  timeout server 5s\n  server s {address}\nglobal\n  log {} local0",
        syslog.local_addr().unwrap()
    );
    let (_running, _) = start(&place, &ring);
    let mut line = [0; 1024];
    let told = loop {
        let count = syslog.recv(&mut line).unwrap();
        let text = String::from_utf8_lossy(&line[..count]).into_owned();
        if text.contains("Ring r") {
            break text;
        }
    };
    assert!(told.contains("Ring r: the server s receives nothing: timed out"), "{told}");
}

#[test]
fn a_socket_that_takes_no_log_lines_is_told_of_once() {
    let (place, port) = (Place::new("log-nowhere"), free_port());
    let nowhere = place.0.join("no-such-socket").display().to_string();
    let text = format!(
        "defaults\n  mode http\n  timeout client 20s\n  log-format %HP\nfrontend f\n  bind 127.0.0.1:{port}\n  log {nowhere} local0\n  \
         http-request return status 200\n"
    );
    let _running = master(&place, &place.file("nowhere.cfg", &text));
    until("it listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    ask(port, 1..=3);
    let told = format!("log lines for {nowhere} are lost: No such file or directory");
    until("it is told of", || said(&place).contains(&told));
    ask(port, 4..=6);
    assert_eq!(said(&place).matches(&told).count(), 1, "{}", said(&place));
}
