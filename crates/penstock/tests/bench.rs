//! `penstock bench` as typed, against the real penstock and, where they are installed, nginx and haproxy.

mod common;

use common::{Place, free_port, penstock, run};
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

/// A server that is killed at the test's end.
struct Server {
    child: Child,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A certificate with its key, PEM.
fn certificate() -> String {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    made.cert.pem() + &made.signing_key.serialize_pem()
}

fn start(mut command: Command, port: u16) -> Server {
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let server = Server { child, port };
    let end = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < end, "the server does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    server
}

/// penstock, haproxy and nginx, those that are there, each with the same certificate and both versions of HTTP.
fn servers(place: &Place) -> Vec<(&'static str, Server)> {
    let pem = place.file("site.pem", &certificate());
    let proxy = |port: u16| {
        place.file(
            &format!("{port}.cfg"),
            &format!(
                "global\n  nbthread 1\ndefaults\n  mode http\n  timeout client 20s\n  timeout server 20s\n  timeout connect 5s\n\
                 frontend a\n  bind 127.0.0.1:{port} ssl crt {} alpn h2,http/1.1\n  monitor-uri /\n",
                pem.display()
            ),
        )
    };
    let with_file = |program: &str, port: u16| {
        let mut command = Command::new(program);
        command.arg("-db").arg("-f").arg(proxy(port));
        command
    };
    let mut servers = vec![];
    let port = free_port();
    servers.push(("penstock", start(with_file(env!("CARGO_BIN_EXE_penstock"), port), port)));
    if Path::new("/usr/sbin/haproxy").exists() {
        let port = free_port();
        servers.push(("haproxy", start(with_file("/usr/sbin/haproxy", port), port)));
    } else {
        eprintln!("haproxy is not installed: it is not measured");
    }
    if Path::new("/usr/sbin/nginx").exists() {
        let (port, folder) = (free_port(), place.0.display());
        let file = place.file(
            "nginx.conf",
            &format!(
                "daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;\nevents {{}}\nhttp {{\n\
                 access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;\n\
                 uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;\nserver {{ listen 127.0.0.1:{port} ssl http2;\n\
                 ssl_certificate {pem}; ssl_certificate_key {pem};\nlocation / {{ return 200 hello; }} }} }}\n",
                pem = pem.display()
            ),
        );
        let mut command = Command::new("/usr/sbin/nginx");
        command.arg("-c").arg(file);
        servers.push(("nginx", start(command, port)));
    } else {
        eprintln!("nginx is not installed: it is not measured");
    }
    servers
}

fn load(server: &Server, options: &[&str]) -> (Output, serde_json::Value) {
    let url = format!("https://127.0.0.1:{}/", server.port);
    let pid = server.child.id().to_string();
    let mut command = penstock();
    command.args(["bench", "load", &url, "--server", &pid, "--json", "-"]).args(options);
    let output = command.output().unwrap();
    let report = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output, report)
}

#[test]
fn every_mode_goes_through_on_every_server() {
    let place = Place::new("bench-modes");
    for (name, server) in servers(&place) {
        for (options, handshakes) in [
            (&["--mode", "handshake", "-c", "4"][..], 60),
            (&["--mode", "handshake", "-c", "4", "--tls", "1.2"], 60),
            (&["--mode", "request", "-c", "4"], 60),
            (&["--mode", "request", "-c", "4", "--http2"], 60),
            (&["-c", "4"], 4),
            (&["-c", "4", "--http2", "--streams", "4"], 4),
        ] {
            let (output, report) = load(&server, &[options, &["-n", "60"]].concat());
            let what = format!("{name} {options:?}: {}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(output.status.code(), Some(0), "{what} {}", report["errors"]);
            assert_eq!(report["done"], 60, "{what}");
            assert_eq!(report["full_handshakes"], handshakes, "{what}");
            assert_eq!(report["resumed_handshakes"], 0, "{what}");
            // A client's goodbye that comes with its Finished is answered at once.
            assert!(name != "penstock" || report["unclean_closes"] == 0, "{what}: {}", report["unclean_closes"]);
            assert!(report["server"]["user_seconds"].as_f64().unwrap() >= 0.0, "{what}");
        }
        let (_, report) = load(&server, &["--mode", "handshake", "--resume", "-c", "2", "-n", "40"]);
        assert_eq!((&report["full_handshakes"], &report["resumed_handshakes"]), (&2.into(), &38.into()), "{name}");
        let (_, report) = load(&server, &["--mode", "idle", "-c", "20", "-d", "3s"]);
        assert_eq!(report["held"], 20, "{name}");
    }
}

#[test]
fn what_cannot_be_measured_is_a_sentence_and_a_failure() {
    let gone = format!("https://127.0.0.1:{}/", free_port());
    for (arguments, says) in [
        (&["bench", "load", &gone][..], "the server refused the connection"),
        (&["bench", "load"], "it needs the URL of one server"),
        (&["bench", "load", "a", "-s", "x"], "there is no -s"),
        (&["bench", "load", "a", "-c", "0"], "-c cannot be '0'"),
        (&["bench", "load", "a", "--group", "p1"], "'p1' is not among the groups"),
        (&["bench", "load", "ftp://a"], "neither https nor http"),
        (&["bench", "load", "a", "--agents", "unix:/nobody", "--ca", "x"], "belong together"),
        (&["bench", "agent", "--listen", "0.0.0.0:0"], "can be reached from other machines"),
        (&["bench", "certs"], "it needs a directory"),
        (&["bench", "lod"], "unknown command 'lod'"),
    ] {
        let arguments: Vec<&dyn AsRef<std::ffi::OsStr>> = arguments.iter().map(|a| a as _).collect();
        let output = run(&arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(says), "{said}");
    }
}

/// A server that does this with every connection.
fn unkind(deed: fn(TcpStream)) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        listener.incoming().flatten().for_each(|socket| drop(std::thread::spawn(move || deed(socket))))
    });
    port
}

#[test]
fn a_server_that_is_none_is_a_sentence_each_and_a_failure() {
    let place = Place::new("bench-unkind");
    let roots = place.file("roots.pem", &certificate());
    let servers = servers(&place);
    let reset = unkind(|mut socket| {
        // Unread bytes in the buffer of a socket that is closed make it a reset.
        let _ = socket.read(&mut [0; 1]);
    });
    let silent = unkind(|_socket| std::thread::sleep(Duration::from_secs(20)));
    let clear = unkind(|mut socket| {
        let _ = socket.write_all(b"220 mail.example ESMTP\r\n");
        std::thread::sleep(Duration::from_secs(2));
    });
    let verify = roots.display().to_string();
    for (port, more, says) in [
        (reset, &[][..], "the server reset the connection during the handshake"),
        (silent, &["--timeout", "300ms"], "the server did not answer in time, during the handshake"),
        (clear, &[], "the server does not speak TLS: its first bytes are no TLS record"),
        (servers[0].1.port, &["--verify", &verify], "the server's certificate is not accepted: "),
        (servers[0].1.port, &["--suite", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"], "the TLS alert HandshakeFailure"),
    ] {
        let url = format!("https://localhost:{port}/");
        let output = penstock().args(["bench", "load", &url, "-d", "1s"]).args(more).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{says}: {said}");
        assert!(said.contains(says) && said.lines().count() == 1, "{says}: {said}");
    }
}

#[test]
fn an_interrupted_run_keeps_what_it_has_measured() {
    let place = Place::new("bench-interrupt");
    let servers = servers(&place);
    let url = format!("https://127.0.0.1:{}/", servers[0].1.port);
    let json = place.0.join("result.json");
    let mut running = penstock();
    running.args(["bench", "load", &url, "-d", "60s", "--json"]).arg(&json).stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = running.spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    penstock_sys::kill(running.id() as i32, 2).unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(130));
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!(report["partial"], true);
    assert!(report["done"].as_u64().unwrap() > 0);
}
