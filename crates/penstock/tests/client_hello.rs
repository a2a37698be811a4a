//! `tcp-request client-hello`: connections that are refused, passed on or decrypted because of their ClientHello, with openssl and curl.

mod common;

use common::{
    Place, free_port, run,
    running::{Running, until},
};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket},
    process::{Command, Output},
    time::Duration,
};

/// Writes a certificate and its key for `name` into one file.
fn certificate(place: &Place, name: &str) {
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    let made = params.self_signed(&key).unwrap();
    place.file(&format!("{name}.pem"), &(made.pem() + &key.serialize_pem()));
}

/// A frontend that decrypts, and the server behind it that connections may be passed on to, both in one process.
fn configuration(place: &Place, [front, behind, log]: [u16; 3], rules: &str, more: &str) -> String {
    certificate(place, "front.test");
    certificate(place, "bank.test");
    let here = place.0.display();
    format!(
        "global\n  nbthread 1\n  log 127.0.0.1:{log} local0\ndefaults\n  mode http\n  timeout client 5s\n  timeout server 5s\n  \
         timeout connect 5s\n  log global\n  option httplog\n{more}\n\
         frontend front\n  bind 127.0.0.1:{front} ssl crt {here}/front.test.pem alpn h2,http/1.1\n{rules}\n  \
         http-request return status 200 content-type text/plain lf-string \"front %[var(sess.name)]\\n\"\n\
         backend bank\n  mode tcp\n  server s 127.0.0.1:{behind}\n\
         backend web\n  server s 127.0.0.1:{behind}\n\
         frontend behind\n  no log\n  bind 127.0.0.1:{behind} ssl crt {here}/bank.test.pem\n  \
         http-request return status 200 content-type text/plain string \"bank\\n\"\n"
    )
}

const RULES: &str = "  tcp-request client-hello bypass bank if { req.ssl_sni -m end .bank.test }\n  \
                     tcp-request client-hello reject if { req.ssl_sni,lower -m beg evil }\n  \
                     tcp-request client-hello set-var(sess.name) req.ssl_sni";

fn curl(front: u16, name: &str) -> Output {
    let to = format!("{name}:{front}:127.0.0.1");
    let url = format!("https://{name}:{front}/");
    Command::new("curl").args(["-skv", "--max-time", "10", "--resolve", &to, &url]).output().expect("curl runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

struct Front {
    port: u16,
    log: UdpSocket,
    _running: Running,
    _place: Place,
}

fn start(name: &str, rules: &str, more: &str) -> Front {
    let place = Place::new(name);
    let log = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    log.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let port = free_port();
    let text = configuration(&place, [port, free_port(), log.local_addr().unwrap().port()], rules, more);
    let file = place.file("test.cfg", &text);
    let running = Running::start(&[&"-f", &file]);
    until("it listens", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
    Front { port, log, _running: running, _place: place }
}

impl Front {
    /// The next log line that contains `word`.
    fn logged(&self, word: &str) -> String {
        let mut buffer = [0; 4096];
        loop {
            let length = self.log.recv(&mut buffer).unwrap_or_else(|e| panic!("no line with {word}: {e}"));
            let line = text(&buffer[..length]).trim_end().to_owned();
            if line.contains(word) {
                return line;
            }
        }
    }
    fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }
}

#[test]
fn a_name_decides_who_decrypts() {
    let front = start("hello-names", RULES, "");
    let decrypted = curl(front.port, "shop.test");
    assert_eq!(text(&decrypted.stdout), "front shop.test\n", "a variable of the rules is there for those that follow");
    assert!(text(&decrypted.stderr).contains("front.test"), "{}", text(&decrypted.stderr));
    let bypassed = curl(front.port, "a.bank.test");
    assert_eq!(text(&bypassed.stdout), "bank\n");
    let said = text(&bypassed.stderr);
    assert!(said.contains("bank.test") && !said.contains("front.test"), "the server's own certificate: {said}");
    let line = front.logged("bank/s");
    // The rule is in line 14 of the configuration.
    assert!(line.contains(" front bank/s ") && line.ends_with("client-hello:14"), "{line}");
    let refused = curl(front.port, "evil.test");
    assert_eq!(text(&refused.stdout), "");
    assert!(front.logged("refused").contains("Connection refused by the client-hello rule at line 15"));
}

#[test]
fn each_action_does_what_it_says() {
    let rules = "  tcp-request client-hello silent-drop if { req.ssl_sni drop.test }\n  \
                 tcp-request client-hello set-var-fmt(sess.name) \"to %[req.ssl_sni]\"\n  \
                 tcp-request client-hello unset-var(sess.name) if { req.ssl_sni -m beg plain }\n  \
                 tcp-request client-hello accept if { req.ssl_sni -m end .test }\n  \
                 tcp-request client-hello reject";
    let front = start("hello-actions", rules, "  log-format \"said %[var(sess.name)] rule %[hello_rule_line]\"");
    assert_eq!(text(&curl(front.port, "shop.test").stdout), "front to shop.test\n");
    let line = front.logged("said");
    assert!(line.ends_with("said to shop.test rule 17"), "{line:?}");
    assert_eq!(text(&curl(front.port, "plain.test").stdout), "front \n");
    let line = front.logged("said");
    assert!(line.ends_with("said - rule 17"), "{line:?}");
    assert_eq!(text(&curl(front.port, "shop.other").stdout), "");
    assert!(front.logged("refused").contains("by the client-hello rule at line 18"));
    assert_eq!(text(&curl(front.port, "drop.test").stdout), "");
    assert!(front.logged("refused").contains("by the client-hello rule at line 14"));
}

#[test]
fn a_hello_in_pieces_is_waited_for_and_what_is_no_hello_is_refused_as_ever() {
    let front = start("hello-pieces", RULES, "");
    // Records of 50 bytes, which RFC 8446, 5.1 permits.
    let whole = hello("x.bank.test");
    let mut stream = TcpStream::connect(front.address()).unwrap();
    for part in whole[5..].chunks(50) {
        stream.write_all(&[&[22, 3, 1, 0, part.len() as u8], part].concat()).unwrap();
    }
    let mut answer = [0; 1];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [22], "the server's handshake");
    drop(stream);
    assert!(front.logged("bank/s").contains("client-hello:14"));
    // One byte at a time.
    let mut stream = TcpStream::connect(front.address()).unwrap();
    for byte in &whole {
        stream.write_all(&[*byte]).unwrap();
        std::thread::sleep(Duration::from_micros(300));
    }
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [22], "the server's handshake");
    drop(stream);
    let mut stream = TcpStream::connect(front.address()).unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(!text(&rest).contains("200"), "{}", text(&rest));
    assert!(front.logged("handshake").contains("SSL handshake failure"));
}

#[test]
fn a_hello_that_does_not_fit_does_not_evade_the_rules() {
    let front = start("hello-long", RULES, "  timeout client 2s");
    let mut stream = TcpStream::connect(front.address()).unwrap();
    // A handshake message of 16,300 bytes, which is permitted, in records of 100: 17,115 bytes.
    let mut message = vec![0; 16_300];
    message[..6].copy_from_slice(&[1, 0, 0x3f, 0xa8, 3, 3]);
    let bytes: Vec<u8> = message.chunks(100).flat_map(|part| [&[22, 3, 1, 0, 100][..], part].concat()).collect();
    let _ = stream.write_all(&bytes);
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.is_empty());
    let line = front.logged("bufsize");
    assert!(
        line.contains("ClientHello does not fit in tune.bufsize") || line.contains("SSL handshake failure"),
        "{line}"
    );
}

#[test]
fn a_hello_that_cannot_be_read_is_not_passed_on() {
    let rules = "  tcp-request client-hello reject if { req.ssl_sni,lower -m beg evil }\n  \
                 tcp-request client-hello bypass bank";
    let front = start("hello-unread", rules, "");
    let whole = hello("evil.test");
    let record = |part: &[u8]| [&[22, 3, 1][..], &(part.len() as u16).to_be_bytes(), part].concat();
    let mut long = vec![0; 17_000];
    long[..6].copy_from_slice(&[1, 0, 0x42, 0x64, 3, 3]);
    let unreadable: [(&str, Vec<u8>); 4] = [
        ("an empty record before it", [&[22, 3, 1, 0, 0][..], &whole].concat()),
        ("an empty record in it", [record(&whole[5..40]), vec![22, 3, 1, 0, 0], record(&whole[40..])].concat()),
        ("a message of 17,000 bytes", long.chunks(4_000).flat_map(record).collect()),
        ("2,100 records", [&[1, 0, 0x0f, 0, 3, 3][..], &[0; 2_094]].concat().chunks(1).flat_map(record).collect()),
    ];
    for (what, bytes) in unreadable {
        let mut stream = TcpStream::connect(front.address()).unwrap();
        let _ = stream.write_all(&bytes);
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty(), "{what}: {rest:?}");
        let line = front.logged("front/1: ");
        assert!(
            line.contains("Connection cannot be bypassed by the client-hello rule at line 15: a "),
            "{what}: {line}"
        );
    }
    assert_eq!(text(&curl(front.port, "good.test").stdout), "bank\n");
    assert_eq!(text(&curl(front.port, "evil.test").stdout), "");
}

#[test]
fn a_name_with_a_dot_at_its_end_does_not_evade_the_rules() {
    let front = start("hello-dot", RULES, "");
    for name in ["evil.test.", "a.bank.test.", "shop.test."] {
        let mut stream = TcpStream::connect(front.address()).unwrap();
        stream.write_all(&hello(name)).unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty(), "{name}: {rest:?}");
        let line = front.logged("refused");
        assert!(
            line.ends_with("Connection refused: the server name in the ClientHello ends with a dot"),
            "{name}: {line}"
        );
    }
}

/// A ClientHello for this name, as openssl makes it.
fn hello(name: &str) -> Vec<u8> {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut child = Command::new("openssl")
        .args(["s_client", "-connect", &address, "-servername", name])
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("openssl runs");
    let (mut stream, _) = listener.accept().unwrap();
    let mut head = [0; 5];
    stream.read_exact(&mut head).unwrap();
    let mut body = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
    stream.read_exact(&mut body).unwrap();
    drop(stream);
    let _ = child.wait();
    [&head[..], &body].concat()
}

#[test]
fn what_cannot_be_is_refused_with_its_place() {
    let place = Place::new("hello-bad");
    for (rules, wanted) in [
        ("  tcp-request client-hello bypass web", "'web' is not in mode tcp"),
        ("  tcp-request client-hello bypass nowhere", "nowhere"),
        ("  tcp-request client-hello bypass", "the name of a backend"),
        ("  tcp-request client-hello deny", "'deny' is not an action of 'tcp-request client-hello'"),
        ("  tcp-request client-hello reject if { path / }", "path"),
        ("  tcp-request content bypass bank", "it may stand in tcp-request client-hello"),
    ] {
        let file = place.file("bad.cfg", &configuration(&place, [1, 2, 3], rules, ""));
        let output = run(&[&"-c", &"-f", &file]);
        let said = text(&output.stderr);
        assert!(said.contains(wanted) && said.contains("bad.cfg:14"), "{rules}: {said}");
        assert_eq!(output.status.success(), wanted == "path", "{rules}: {said}");
    }
    let file = place.file(
        "clear.cfg",
        "defaults\n  mode http\n  timeout client 1s\n  timeout server 1s\n  timeout connect 1s\nfrontend f\n  bind 127.0.0.1:1\n  \
         tcp-request client-hello reject\n  http-request deny\n",
    );
    let said = text(&run(&[&"-c", &"-f", &file]).stderr);
    assert!(said.contains("has no effect: no 'bind' line here has 'ssl'"), "{said}");
}
