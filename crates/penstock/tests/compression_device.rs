//! The real binary with a QuickAssist device that compresses, which is the device double: whatever it does, clients decode what
//! the server sent. Any figure in here would be the double's.

mod common;

use common::{
    Place,
    doubled::{Doubled, ended_well},
    free_port, penstock,
    running::{TERM, USR1, USR2},
};
use flate2::read::{DeflateDecoder, GzDecoder, ZlibDecoder};
use penstock_qat_double::Double;
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    ops::{Deref, DerefMut},
    thread::{self, JoinHandle},
    time::Duration,
};

/// Text that compresses, different for each length.
fn text(len: usize) -> Vec<u8> {
    let mut state = len as u32 + 1;
    let mut text = Vec::with_capacity(len + 40);
    while text.len() < len {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        writeln!(text, "<li class=\"row\">{}</li>", state >> 20).unwrap();
    }
    text.truncate(len);
    text
}

/// A server that answers `/LEN/PIECE/MS` with so many bytes, in chunks of so many, with so long a pause after each. It ends with the
/// test's process.
fn origin() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // Whoever goes away in the middle is of no interest here.
            thread::spawn(move || drop(answer(stream)));
        }
    });
    port
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let line = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let path = line.split(' ').nth(1).unwrap_or_default();
    let mut numbers = path.trim_matches('/').split('/').map(|number| number.parse::<usize>().unwrap_or(1));
    let mut next = || numbers.next().unwrap_or(1);
    let (len, piece, pause) = (next(), next(), next());
    stream.write_all(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
    )?;
    for piece in text(len).chunks(piece) {
        stream.write_all(&[format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat())?;
        thread::sleep(Duration::from_millis(pause as u64));
    }
    stream.write_all(b"0\r\n\r\n")
}

struct Server {
    process: Doubled,
    algorithm: &'static str,
    port: u16,
}

impl Server {
    fn start(double: &Double, name: &str, algorithm: &'static str, global: &str, flags: &[&str]) -> Server {
        let (place, port, metrics) = (Place::new(name), free_port(), free_port());
        let config = configuration(&place, algorithm, global, port, metrics);
        let process = Doubled::start(double, place, &config, [port, metrics], flags);
        Server { process, algorithm, port }
    }

    /// Asks for a body; whether what came is compressed, and is what the server sent.
    fn client(&self, len: usize, piece: usize, pause: usize) -> JoinHandle<bool> {
        let (port, algorithm) = (self.port, self.algorithm);
        thread::spawn(move || {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            let coding = if algorithm == "gzip" { "gzip" } else { "deflate" };
            let path = format!("/{len}/{piece}/{pause}");
            let request =
                format!("GET {path} HTTP/1.1\r\nHost: h\r\nAccept-Encoding: {coding}\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).unwrap();
            let mut received = Vec::new();
            let _ = stream.read_to_end(&mut received);
            let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") else { return false };
            let head = String::from_utf8_lossy(&received[..end]).to_ascii_lowercase();
            assert!(
                head.starts_with("http/1.1 200") && head.contains(&format!("content-encoding: {coding}")),
                "{head}"
            );
            let Some(body) = dechunked(&received[end + 4..]) else { return false };
            let mut out = Vec::new();
            let read = match algorithm {
                "gzip" => GzDecoder::new(&body[..]).read_to_end(&mut out),
                "deflate" => ZlibDecoder::new(&body[..]).read_to_end(&mut out),
                _ => DeflateDecoder::new(&body[..]).read_to_end(&mut out),
            };
            assert!(read.is_ok() && out == text(len), "{algorithm} {path}: {read:?}, {} bytes", out.len());
            true
        })
    }

    /// Bodies of many sizes, all at once: each is what the server sent.
    fn bodies(&self) {
        let mut clients = Vec::new();
        for len in [1, 100, 1023, 1024, 5000, 65_535, 65_536, 65_537, 300_000] {
            clients.extend([(1 << 20, 0), (16_384, 0), (7000, 1)].map(|(piece, pause)| self.client(len, piece, pause)));
        }
        for client in clients {
            assert!(client.join().unwrap(), "a whole body");
        }
    }

    /// The value of a metric of compression by the device.
    fn metric(&self, name: &str) -> f64 {
        // Workers report every 200 ms while clients come, and each second.
        thread::sleep(Duration::from_millis(1200));
        let page = self.metrics();
        let name = format!("penstock_device_compression_{name} ");
        page.lines()
            .find_map(|line| line.strip_prefix(&name)?.parse().ok())
            .unwrap_or_else(|| panic!("{name}in {page}"))
    }

    fn ends(&mut self) -> String {
        self.ends_within(Duration::from_secs(20))
    }
}

impl Deref for Server {
    type Target = Doubled;
    fn deref(&self) -> &Doubled {
        &self.process
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut Doubled {
        &mut self.process
    }
}

fn configuration(place: &Place, algorithm: &str, global: &str, port: u16, metrics: u16) -> std::path::PathBuf {
    place.file(
        "compression.cfg",
        &format!(
            "global\n  maxconn 1000\n  {global}\ndefaults\n  mode http\n  timeout client 20s\n  timeout server 20s\n  \
             timeout connect 5s\nfrontend a\n  bind 127.0.0.1:{port}\n  compression algo {algorithm}\n  default_backend b\n\
             backend b\n  server o 127.0.0.1:{}\nfrontend m\n  bind 127.0.0.1:{metrics}\n  http-request use-service \
             prometheus-exporter if {{ path /metrics }}\n",
            origin()
        ),
    )
}

fn dechunked(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|window| window == b"\r\n")?;
        let len = usize::from_str_radix(std::str::from_utf8(&rest[..end]).ok()?, 16).ok()?;
        if len == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(end + 2..end + 2 + len)?);
        rest = rest.get(end + 2 + len + 2..)?;
    }
}

#[test]
fn bodies_are_compressed_by_the_device() {
    for algorithm in ["gzip", "deflate", "raw-deflate"] {
        let double = Double::new("service_us 200\ncompression 2");
        let global = "nbthread 2\n  tune.compression.engine hw";
        let mut server = Server::start(&double, &format!("compress-{algorithm}"), algorithm, global, &[]);
        server.bodies();
        assert!(server.metric("bytes_total") > 500_000.0, "{algorithm}");
        assert!(server.metric("software_bytes_total") > 100.0, "{algorithm}: short bodies");
        assert_eq!((server.metric("redone_total"), server.metric("instances_up")), (0.0, 2.0), "{algorithm}");
        server.signal(TERM);
        server.ends();
        ended_well(&double, 1);
    }
}

#[test]
fn auto_gives_the_device_long_pieces_only() {
    // It does nothing but compression.
    let double = Double::new("instances 0");
    let server = Server::start(&double, "compress-auto", "gzip", "nbthread 1\n  tune.compression.engine auto", &[]);
    assert!(server.client(8000, 8000, 0).join().unwrap());
    assert_eq!(server.metric("pieces_total"), 0.0);
    assert!(server.client(100_000, 100_000, 0).join().unwrap());
    assert!(server.metric("pieces_total") > 0.0);
}

#[test]
fn nobody_notices_what_a_device_does_wrong() {
    for (fault, counted) in [
        ("deflate_wrong 2", "wrong_total"),
        ("deflate_short 2", "wrong_total"),
        ("deflate_overflow 2", "failed_total"),
        ("deflate_fail 6", "failed_total"),
        ("deflate_silent 3", "late_total"),
        ("deflate_late 3\nlate_ms 400", "late_total"),
        ("deflate_retry 5", "full_total"),
        ("ring 1\nservice_us 5000", "full_total"),
        ("deflate_unaligned 4", "bytes_total"),
        ("restart 1", "software_bytes_total"),
        ("dead 1", "software_bytes_total"),
    ] {
        let double = Double::new("");
        let name = format!("compress-{}", fault.replace([' ', '\n'], "-"));
        let global = "nbthread 1\n  tune.compression.engine hw";
        let mut server = Server::start(&double, &name, "gzip", global, &[]);
        assert!(server.client(100_000, 30_000, 0).join().unwrap(), "{fault}");
        assert!(server.metric("bytes_total") > 0.0, "{fault}");
        double.command(fault);
        server.bodies();
        assert!(server.metric(counted) > 0.0, "{fault}");
        server.signal(TERM);
        server.ends();
        ended_well(&double, 1);
    }
}

#[test]
fn a_device_is_let_go_of_with_pieces_in_flight() {
    // 40 ms for a full piece: within the deadline, and long enough to end in the middle.
    for signal in [TERM, USR1] {
        let double = Double::new("service_us 40000\nengines 64");
        let global = "nbthread 2\n  tune.compression.engine hw";
        let mut server = Server::start(&double, &format!("compress-flight-{signal}"), "gzip", global, &[]);
        let clients: Vec<_> = (0..12).map(|client| server.client(600_000 + client, 1 << 20, 0)).collect();
        thread::sleep(Duration::from_millis(250));
        server.signal(signal);
        server.ends();
        for client in clients {
            let whole = client.join().unwrap();
            assert!(whole || signal == TERM, "who drains sends everything");
        }
        ended_well(&double, 1);
    }
}

#[test]
fn a_reload_takes_the_device_over_with_pieces_in_flight() {
    let double = Double::new("service_us 20000\nengines 64");
    let global = "nbthread 2\n  tune.compression.engine hw";
    let mut server = Server::start(&double, "compress-reload", "gzip", global, &["-W"]);
    let clients: Vec<_> = (0..8).map(|client| server.client(600_000 + client, 1 << 20, 0)).collect();
    thread::sleep(Duration::from_millis(200));
    server.signal(USR2);
    for client in clients {
        assert!(client.join().unwrap());
    }
    // The new worker serves before the old one goes.
    thread::sleep(Duration::from_millis(1500));
    server.bodies();
    assert!(server.metric("bytes_total") > 0.0);
    server.signal(TERM);
    server.ends();
    ended_well(&double, 2);
}

#[test]
fn without_a_device_software_compresses_or_nothing_starts() {
    for (double, why) in [
        (Double::new("available 0"), "libqat sees no QuickAssist device"),
        (Double::new("starts 0"), "libqat does not start"),
        (Double::new("compression 0"), "it has no instance for compression"),
        (Double::new("deflate_layout 1"), "it has no instance for compression"),
        (Double::new("").without("cpaDcInitSession"), "it has no instance for compression"),
    ] {
        // An instance for handshakes opens the device, and does not make it compress.
        let (place, port, metrics) = (Place::new("compress-refused"), free_port(), free_port());
        let config = configuration(&place, "gzip", "nbthread 1\n  tune.compression.engine hw", port, metrics);
        let output = penstock().env("LD_LIBRARY_PATH", double.path()).arg("-f").arg(config).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("compression by 'hw'") && said.contains(why), "{said}");
        drop(place);

        let global = "nbthread 1\n  tune.compression.engine auto";
        let mut server = Server::start(&double, "compress-without", "gzip", global, &[]);
        server.bodies();
        server.signal(TERM);
        let said = server.ends();
        assert_eq!(said.matches(why).count(), 1, "{said}");
        assert_eq!(double.violations(), [""; 0]);
    }
    let double = Double::new("available 0");
    let place = Place::new("compress-check");
    let config = configuration(&place, "gzip", "tune.compression.engine auto", free_port(), free_port());
    let checked = penstock().env("LD_LIBRARY_PATH", double.path()).args(["-c", "-f"]).arg(config).output().unwrap();
    assert_eq!(checked.status.code(), Some(0), "{}", String::from_utf8_lossy(&checked.stderr));
}
