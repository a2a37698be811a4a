//! `log-forward` sections: their limits, and reloads.

mod common;

use common::{
    Place, free_port,
    running::{PATIENCE, Running, USR2, master, successes, until},
};
use std::{
    collections::BTreeSet,
    io::Write,
    net::{TcpStream, UdpSocket},
    path::PathBuf,
    time::Duration,
};

/// A log server, and a configuration whose only section forwards to it what comes to a port.
fn start(place: &Place, lines: &str) -> (UdpSocket, u16, PathBuf) {
    let syslog = UdpSocket::bind("127.0.0.1:0").unwrap();
    syslog.set_read_timeout(Some(PATIENCE)).unwrap();
    let port = free_port();
    let text = format!(
        "global\n  nbthread 1\nlog-forward f\n  bind 127.0.0.1:{port}\n  dgram-bind 127.0.0.1:{port}\n{lines}  \
         log {} format raw local0\n",
        syslog.local_addr().unwrap()
    );
    (syslog, port, place.file("forward.cfg", &text))
}

fn receive(syslog: &UdpSocket) -> String {
    let mut line = [0; 1024];
    let count = syslog.recv(&mut line).unwrap();
    String::from_utf8_lossy(&line[..count]).trim_end().to_owned()
}

fn connect(port: u16) -> TcpStream {
    let mut stream = None;
    until("it listens", || {
        stream = TcpStream::connect(("127.0.0.1", port)).ok();
        stream.is_some()
    });
    stream.expect("`until` returned")
}

#[test]
fn more_senders_than_maxconn_wait_until_one_leaves() {
    let place = Place::new("forward-maxconn");
    let (syslog, port, config) = start(&place, "  maxconn 1\n");
    let _running = Running::start(&[&"-db", &"-f", &config]);
    let mut first = connect(port);
    first.write_all(b"<30>first\n").unwrap();
    assert_eq!(receive(&syslog), "first");
    let mut second = connect(port);
    second.write_all(b"<30>second\n").unwrap();
    syslog.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(syslog.recv(&mut [0; 100]).is_err(), "the second sender is read while the first is there");
    first.write_all(b"<30>last of the first\n").unwrap();
    assert_eq!(receive(&syslog), "last of the first");
    drop(first);
    syslog.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(receive(&syslog), "second");
}

#[test]
fn a_reload_loses_no_datagram_and_no_connection() {
    const COUNT: usize = 2_000;
    let place = Place::new("forward-reload");
    let (syslog, port, config) = start(&place, "");
    let master = master(&place, &config);
    until("the first worker serves", || successes(&place) == 1);
    let mut connection = connect(port);
    connection.write_all(b"<30>before\n").unwrap();
    assert_eq!(receive(&syslog), "before");
    let receiver = syslog.try_clone().unwrap();
    let received = std::thread::spawn(move || {
        let mut numbers = BTreeSet::new();
        while numbers.len() < COUNT {
            numbers.insert(receive(&receiver).parse::<usize>().unwrap());
        }
        numbers
    });
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.connect(("127.0.0.1", port)).unwrap();
    for number in 0..COUNT {
        if number == COUNT / 4 {
            master.signal(USR2);
        }
        if number == COUNT / 2 {
            until("the second worker serves", || successes(&place) == 2);
        }
        sender.send(format!("<30>{number}").as_bytes()).unwrap();
        std::thread::sleep(Duration::from_micros(500));
    }
    assert_eq!(received.join().unwrap(), (0..COUNT).collect());
    // The worker that it came to serves it still.
    connection.write_all(b"<30>after\n").unwrap();
    assert_eq!(receive(&syslog), "after");
}
