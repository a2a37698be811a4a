//! `penstock top` beside a running server, and beside what is none.

mod common;

use common::{Place, free_port, penstock, run};
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    time::Duration,
};

fn once(address: &str) -> (Option<i32>, String) {
    let output = run(&[&"top", &address, &"--once", &"--interval", &"0.2"]);
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

#[test]
fn one_view_of_a_running_server() {
    let place = Place::new("top");
    let (port, metrics) = (free_port(), free_port());
    let config = place.file(
        "top.cfg",
        &format!(
            "global\n nbthread 1\n maxconn 100\ndefaults\n mode http\n timeout client 5s\n timeout server 5s\n timeout connect 1s\n\
             frontend shop\n bind 127.0.0.1:{port}\n monitor-uri /alive\n default_backend app\n\
             backend app\n server dead 127.0.0.1:1 check inter 100ms fall 1\n\
             frontend metrics\n bind 127.0.0.1:{metrics}\n http-request use-service prometheus-exporter\n"
        ),
    );
    let mut server = penstock().args(["-db", "-f"]).arg(config).spawn().unwrap();
    let address = format!("127.0.0.1:{metrics}");
    let up = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(25));
        TcpStream::connect(&address).is_ok()
    });
    assert!(up, "the server never listened");
    // Its check has had time to fail.
    std::thread::sleep(Duration::from_millis(500));
    let (code, shown) = once(&address);
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(code, Some(0), "{shown}");
    for part in [&format!("penstock top  http://{address}/metrics")[..], "ENGINE ", "turns", "> shop", "< app"] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    assert!(shown.lines().any(|line| line.starts_with("  dead") && line.contains("DOWN")), "{shown}");
    assert!(!shown.contains('\x1b'), "a script gets no escapes");
}

#[test]
fn what_is_no_server_is_said_to_be_none() {
    let (code, said) = once("127.0.0.1:1");
    assert!(code == Some(1) && said.contains("cannot read http://127.0.0.1:1/metrics"), "{said}");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let other = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let _ = stream.read(&mut [0; 1024]);
        stream.write_all(b"HTTP/1.0 200 OK\r\n\r\ngo_threads 7\n").unwrap();
    });
    let (code, said) = once(&address);
    other.join().unwrap();
    assert!(code == Some(1) && said.contains("has no metrics of a load balancer"), "{said}");
    for arguments in
        [&["top", "https://host"][..], &["top", "--interval", "0"], &["top", "a", "b"], &["top", "--twice"]]
    {
        let output = penstock().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(String::from_utf8(output.stderr).unwrap().starts_with("penstock: top: "), "{arguments:?}");
    }
}
