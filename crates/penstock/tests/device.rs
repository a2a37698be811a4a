//! The real binary with a QuickAssist device, which is the device double: real handshakes by OpenSSL's client, and what an
//! operator sees. Any figure in here would be the double's.

mod common;

use common::{
    Place,
    doubled::{Doubled, ended_well},
    free_port, penstock,
    running::{PATIENCE, TERM, USR1, USR2},
};
use penstock_qat_double::Double;
use std::{
    io::Write as _,
    net::TcpStream,
    ops::{Deref, DerefMut},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

/// A penstock that drives the double.
struct Server {
    process: Doubled,
    tls: u16,
}

/// How a client shakes hands: version, and what it signs with.
const CLIENTS: [&[&str]; 4] = [
    &["-tls1_3", "-groups", "X25519"],
    &["-tls1_3", "-groups", "P-384"],
    &["-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256", "-groups", "P-256"],
    &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256", "-groups", "X25519:P-256"],
];

fn openssl(arguments: &[&str]) -> Output {
    Command::new("openssl").args(arguments).stdin(Stdio::null()).output().expect("openssl is installed")
}

impl Server {
    /// Writes certificates and a configuration, and starts.
    fn start(double: &Double, name: &str, global: &str, flags: &[&str]) -> Server {
        let (place, tls, metrics) = (Place::new(name), free_port(), free_port());
        let config = configuration(&place, global, tls, metrics);
        let process = Doubled::start(double, place, &config, [tls, metrics], flags);
        Server { process, tls }
    }

    /// A client that asks once and leaves.
    fn client(&self, how: &[&str]) -> Child {
        let at = format!("127.0.0.1:{}", self.tls);
        let mut client = Command::new("openssl")
            .args(["s_client", "-connect", &at, "-servername", "site.test", "-ign_eof", "-quiet", "-verify_quiet"])
            .args(how)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl is installed");
        let request = b"GET /alive HTTP/1.1\r\nhost: site.test\r\nconnection: close\r\n\r\n";
        // One that is turned away has closed it.
        let _ = client.stdin.as_mut().map(|stdin| stdin.write_all(request));
        client
    }

    /// Sends this many requests of each kind at once; returns how many were answered.
    fn clients(&self, of_each: usize) -> usize {
        let clients: Vec<Child> = (0..of_each).flat_map(|_| CLIENTS).map(|how| self.client(how)).collect();
        clients.into_iter().map(answered).filter(|answered| *answered).count()
    }

    /// The sum of a metric over its labels.
    fn metric(&self, name: &str) -> f64 {
        // Workers report every 200 ms.
        std::thread::sleep(Duration::from_millis(400));
        let page = self.metrics();
        let is = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
        page.lines().filter(is).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
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

fn answered(client: Child) -> bool {
    let output = client.wait_with_output().unwrap();
    output.stdout.windows(15).any(|window| window == b"HTTP/1.1 200 OK")
}

fn configuration(place: &Place, global: &str, tls: u16, metrics: u16) -> std::path::PathBuf {
    let directory = place.0.join("certs");
    std::fs::create_dir(&directory).unwrap();
    for (name, key) in [("rsa.pem", &["rsa:2048"][..]), ("ecdsa.pem", &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"])] {
        let file = directory.join(name);
        let file = file.to_str().unwrap();
        let subject = ["-nodes", "-subj", "/CN=site.test", "-days", "30", "-keyout", file, "-out"];
        let certificate = format!("{file}.crt");
        let made = openssl(&[&["req", "-x509", "-newkey"], key, &subject, &[certificate.as_str()]].concat());
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let both = std::fs::read_to_string(file).unwrap() + &std::fs::read_to_string(&certificate).unwrap();
        std::fs::write(file, both).unwrap();
        std::fs::remove_file(certificate).unwrap();
    }
    place.file(
        "device.cfg",
        &format!(
            "global\n  maxconn 1000\n  {global}\ndefaults\n  mode http\n  timeout client 10s\n  timeout server 10s\n  \
             timeout connect 5s\nfrontend a\n  bind 127.0.0.1:{tls} ssl crt {0}/rsa.pem crt {0}/ecdsa.pem\n  monitor-uri /alive\nfrontend m\n  bind \
             127.0.0.1:{metrics}\n  http-request use-service prometheus-exporter if {{ path /metrics }}\n",
            directory.display()
        ),
    )
}

#[test]
fn clients_shake_hands_by_the_device() {
    for engine in ["hw", "hw+sw"] {
        let double = Double::new("service_us 100");
        let global = format!("nbthread 2\n  tune.crypto.engine {engine}");
        let mut server = Server::start(&double, &format!("hands-{engine}"), &global, &[]);
        assert_eq!(server.clients(6), 24, "{engine}");
        let given = server.metric("penstock_device_operations_total");
        // Beside software, an idle machine's is as likely to be predicted to answer first.
        assert!(engine == "hw+sw" || given > 24.0, "{engine}: {given}");
        assert_eq!(server.metric("penstock_engine_redone_total"), 0.0, "{engine}");
        assert_eq!(server.metric("penstock_device_instance_up"), 2.0);
        server.signal(TERM);
        server.ends_within(Duration::from_secs(10));
        ended_well(&double, 1);
    }
}

#[test]
fn nobody_notices_what_a_device_does_wrong() {
    for (fault, counted) in [
        ("wrong 3", "penstock_engine_wrong_total"),
        ("silent 3", "penstock_engine_late_total"),
        ("late 3\nlate_ms 150", "penstock_engine_late_total"),
        ("fail 6", "penstock_engine_failed_total"),
        ("retry 20", "penstock_device_ring_full_total"),
        ("restart 1", "penstock_device_operations_total"),
        ("dead 1", "penstock_device_operations_total"),
    ] {
        // What X25519 gives is only sampled: a handshake with a wrong secret fails, as it does with any key that is wrong.
        let double = Double::new("x25519 0");
        let name = fault.replace([' ', '\n'], "-");
        let mut server = Server::start(&double, &name, "nbthread 1\n  tune.crypto.engine hw", &[]);
        assert_eq!(server.clients(1), 4, "{fault}");
        double.command(fault);
        assert_eq!(server.clients(4), 16, "{fault}");
        assert!(server.metric(counted) > 0.0, "{fault}");
        server.signal(TERM);
        server.ends_within(Duration::from_secs(10));
        ended_well(&double, 1);
    }
}

#[test]
fn a_handshake_that_fails_by_a_wrong_secret_is_put_down_to_the_device() {
    // It does nothing but X25519, of which nothing shows a wrong answer but another computation.
    let double = Double::new("rsa 0\necdsa 0\necdh 0");
    let server = Server::start(&double, "suspect", "nbthread 1\n  tune.crypto.engine hw", &[]);
    let shakes = || answered(server.client(CLIENTS[0]));
    // A worker's first exchange is computed again, and right.
    assert!(shakes());
    double.command("rsa 0\necdsa 0\necdh 0\nwrong 1");
    assert!(!shakes(), "nobody can see it before the client does");
    assert_eq!(server.metric("penstock_device_suspected_total"), 1.0);
    double.command("rsa 0\necdsa 0\necdh 0\nwrong 2");
    assert!(shakes(), "found, and computed by the library");
    assert_eq!(server.metric("penstock_engine_wrong_total"), 1.0);
    assert_eq!(server.metric("penstock_device_benched_total"), 1.0);
}

#[test]
fn a_device_is_let_go_of_with_handshakes_in_flight() {
    // 50 ms each: within the deadline, and long enough to end in the middle.
    for (signal, engine) in [(TERM, "hw"), (TERM, "hw+sw"), (USR1, "hw"), (USR1, "hw+sw")] {
        let double = Double::new("service_us 50000\nengines 64");
        let global = format!("nbthread 2\n  tune.crypto.engine {engine}");
        let mut server = Server::start(&double, &format!("flight-{signal}-{engine}"), &global, &[]);
        let clients: Vec<Child> = (0..5).flat_map(|_| CLIENTS).map(|how| server.client(how)).collect();
        // By now the first are being answered, and the last have not been started.
        std::thread::sleep(Duration::from_millis(250));
        server.signal(signal);
        server.ends_within(Duration::from_secs(10));
        // They have been answered or turned away.
        for client in clients {
            let _ = answered(client);
        }
        ended_well(&double, 1);
    }
}

#[test]
fn a_reload_takes_the_device_over_with_requests_in_flight() {
    let double = Double::new("service_us 20000\nengines 64");
    let global = "nbthread 2\n  tune.crypto.engine hw+sw";
    let mut server = Server::start(&double, "reload", global, &["-W"]);
    for _ in 0..2 {
        let clients: Vec<Child> = (0..4).flat_map(|_| CLIENTS).map(|how| server.client(how)).collect();
        server.signal(USR2);
        assert_eq!(clients.into_iter().map(answered).filter(|answered| *answered).count(), 16);
        // The new worker serves before the old one goes.
        std::thread::sleep(Duration::from_millis(1500));
    }
    assert_eq!(server.clients(2), 8);
    server.signal(TERM);
    server.ends_within(Duration::from_secs(20));
    ended_well(&double, 3);
}

#[test]
fn a_successor_takes_the_device_over_that_its_predecessor_had_for_itself() {
    for engine in ["hw", "hw+sw"] {
        let double = Double::new("exclusive 1\nservice_us 2000");
        let global = format!("nbthread 2\n  tune.crypto.engine {engine}");
        let mut server = Server::start(&double, &format!("heir-{engine}"), &global, &["-W"]);
        // Kept open by a client that says nothing: the first worker drains for as long.
        let silent = TcpStream::connect(("127.0.0.1", server.tls)).unwrap();
        let clients: Vec<Child> = (0..4).flat_map(|_| CLIENTS).map(|how| server.client(how)).collect();
        server.signal(USR2);
        assert_eq!(clients.into_iter().map(answered).filter(|answered| *answered).count(), 16, "{engine}");
        let until = Instant::now() + PATIENCE;
        while server.metric("penstock_device_instance_up") != 2.0 {
            assert!(Instant::now() < until, "{engine}: the new worker has no device");
        }
        assert_eq!(server.clients(4), 16, "{engine}");
        // Each worker takes up the device when it next looks, which may be after the first of these.
        while engine == "hw" && server.metric("penstock_device_operations_total") == 0.0 {
            assert!(Instant::now() < until, "{engine}: the device is given nothing");
            assert_eq!(server.clients(1), 4);
        }
        assert_eq!(server.metric("penstock_engine_redone_total"), 0.0);
        drop(silent);
        server.signal(TERM);
        let said = server.ends_within(Duration::from_secs(20));
        assert!(said.contains("the QuickAssist device is not free yet: the device has no instance left"), "{said}");
        assert!(said.contains(&format!("the QuickAssist device is free: '{engine}' computes")), "{said}");
        assert_eq!(double.violations(), [""; 0]);
        assert_eq!(double.pinned(), Some(0));
    }
}

/// A process in the background, told to end however the test ends.
struct Daemon(i32);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = penstock_sys::kill(self.0, TERM);
    }
}

#[test]
fn a_daemon_drives_its_device() {
    let double = Double::new("");
    let (place, tls, metrics) = (Place::new("daemon"), free_port(), free_port());
    let config = configuration(&place, "nbthread 1\n  tune.crypto.engine hw", tls, metrics);
    let pidfile = place.0.join("pid");
    let started = penstock()
        .env("LD_LIBRARY_PATH", double.path())
        .args(["-D", "-p"])
        .arg(&pidfile)
        .arg("-f")
        .arg(config)
        .status()
        .unwrap();
    assert!(started.success());
    let daemon = Daemon(std::fs::read_to_string(pidfile).unwrap().trim().parse().unwrap());
    // It is not a child of this process, so it is polled by its pid.
    let server = Server { process: Doubled::of(Command::new("true").spawn().unwrap(), place, metrics), tls };
    let served = server.clients(2);
    let given = server.metric("penstock_device_operations_total");
    drop(daemon);
    let until = Instant::now() + Duration::from_secs(10);
    while TcpStream::connect(("127.0.0.1", tls)).is_ok() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(served, 8);
    assert!(given > 0.0);
    let until = Instant::now() + Duration::from_secs(10);
    // The last it does: its memory was given back before.
    while !double.log().iter().any(|line| line.starts_with("stop")) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    ended_well(&double, 1);
}

#[test]
fn what_keeps_a_device_from_being_used_is_said_once_and_where_it_is_demanded_nothing_starts() {
    for (double, why) in [
        (Double::new("available 0"), "libqat sees no QuickAssist device"),
        (Double::new("").without("cpaCyRsaDecrypt"), "libqat.so.4 is of another version: it lacks cpaCyRsaDecrypt"),
        (Double::new("layout 1"), "libqat is of another version: its structures have another layout"),
        (Double::new("starts 0"), "libqat does not start"),
        (Double::new("wrong 1000000"), "the device answers wrongly (rsa2048)"),
    ] {
        let (place, tls, metrics) = (Place::new("refused"), free_port(), free_port());
        let config = configuration(&place, "nbthread 1\n  tune.crypto.engine hw", tls, metrics);
        let output = penstock().env("LD_LIBRARY_PATH", double.path()).arg("-f").arg(config).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("the engine 'hw'") && said.contains(why), "{said}");
        drop(place);

        let preferred = "nbthread 1\n  tune.crypto.engine hw+sw";
        let mut server = Server::start(&double, "preferred", preferred, &[]);
        assert_eq!(server.clients(1), 4);
        server.signal(TERM);
        let said = server.ends_within(Duration::from_secs(10));
        assert_eq!(said.matches(why).count(), 1, "{said}");
        assert_eq!(double.violations(), [""; 0]);
    }
}

#[test]
fn the_device_is_shown_by_vv() {
    let double = Double::new("instances 3\nnodes 2\nx25519 0");
    let shown = |path: &std::path::Path| {
        let output = penstock().env("LD_LIBRARY_PATH", path).arg("-vv").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let page = shown(double.path());
    for line in [
        "hw+sw: a QuickAssist device for what costs less by it",
        "by libqat.so.4: 3 instances for crypto, 1 for compression",
        "double, device 0, node 1, up: RSA ECDSA ECDH",
        "us on the device; not by 'auto'",
    ] {
        assert!(page.contains(line), "{line} in {page}");
    }
    ended_well(&double, 1);
    let none = Double::new("available 0");
    assert!(shown(none.path()).contains("QuickAssist               no: libqat sees no QuickAssist device"));
}
