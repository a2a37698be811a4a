//! `penstock bench load` through a proxy, the real penstock, that makes certificates for the names it is asked for.

mod common;

use common::{
    Place, free_port, penstock,
    running::{Running, until},
    study::said,
};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, KeyUsagePurpose};
use std::{
    io::{Read, Write},
    net::TcpStream,
};

/// An authority's certificate in NAME.crt, with its key in NAME.pem.
fn authority(place: &Place, name: &str) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    place.file(&format!("{name}.crt"), &pem);
    place.file(&format!("{name}.pem"), &(pem + &key.serialize_pem()));
}

/// An explicit proxy that intercepts, and behind it a server that has a certificate for every name, in two processes.
struct Proxy {
    port: u16,
    metrics: u16,
    place: Place,
    _servers: [Running; 2],
}

impl Proxy {
    fn start(name: &str) -> Proxy {
        let place = Place::new(name);
        authority(&place, "clients");
        authority(&place, "origins");
        let own = rcgen::generate_simple_self_signed(["own.test".to_owned()]).unwrap();
        place.file("own.pem", &(own.cert.pem() + &own.signing_key.serialize_pem()));
        let (port, origin, metrics, here) = (free_port(), free_port(), free_port(), place.0.display());
        let head = "global\n  nbthread 1\n  tune.ssl.cachesize 0\ndefaults\n  mode http\n  timeout client 20s\n  \
                    timeout server 20s\n  timeout connect 5s\n";
        let proxy = place.file(
            "proxy.cfg",
            &format!(
                "{head}frontend proxy\n  bind 127.0.0.1:{port} ssl-on-connect crt {here}/own.pem alpn h2,http/1.1 no-tls-tickets \
                   generate-certificates ca-sign-file {here}/clients.pem\n\
                   tcp-request client-hello intercept origin\n\
                   http-request deny status 403 if METH_CONNECT !{{ hdr(host),host_only -m end .example }}\n\
                   default_backend origin\n\
                 backend origin\n  server o 127.0.0.1:{origin} ssl verify required ca-file {here}/origins.crt sni ssl_fc_sni \
                   alpn h2,http/1.1\n\
                 frontend metrics\n  bind 127.0.0.1:{metrics}\n  http-request use-service prometheus-exporter\n"
            ),
        );
        let origin_file = place.file(
            "origin.cfg",
            &format!(
                "{head}frontend origin\n  bind 127.0.0.1:{origin} ssl crt {here}/own.pem alpn h2,http/1.1 generate-certificates \
                   ca-sign-file {here}/origins.pem\n  http-request return status 200 content-type text/plain lf-string \"%[ssl_fc_sni]\"\n"
            ),
        );
        let servers = [Running::start(&[&"-f", &origin_file]), Running::start(&[&"-f", &proxy])];
        until("they listen", || [origin, port].iter().all(|port| TcpStream::connect(("127.0.0.1", *port)).is_ok()));
        Proxy { port, metrics, place, _servers: servers }
    }

    /// How many certificates the proxy has made.
    fn made(&self) -> u64 {
        let mut socket = TcpStream::connect(("127.0.0.1", self.metrics)).unwrap();
        socket.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut page = String::new();
        socket.read_to_string(&mut page).unwrap();
        let counted =
            page.lines().find_map(|line| line.strip_prefix("penstock_generated_certificates_total{result=\"made\"} "));
        counted.unwrap_or_else(|| panic!("{page}")).parse().unwrap()
    }

    /// The outcome of a load, and how many certificates it took.
    fn load(&self, url: &str, more: &[&str]) -> (Option<i32>, serde_json::Value, String, u64) {
        let before = self.made();
        let mut command = penstock();
        command.args(["bench", "load", url, "--proxy", &format!("127.0.0.1:{}", self.port), "--json", "-"]).args(more);
        let output = command.output().unwrap();
        let report = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (output.status.code(), report, said(&output), self.made() - before)
    }
}

#[test]
fn each_new_name_takes_a_certificate_of_its_own_which_the_authority_has_signed() {
    let proxy = Proxy::start("bench-proxy");
    let roots = proxy.place.0.join("clients.crt").display().to_string();
    for (more, handshakes) in [
        (&["--mode", "handshake"][..], 40),
        (&["--mode", "request"], 40),
        (&["--mode", "request", "--http2"], 40),
        (&[], 8),
        (&["--http2", "--streams", "2", "-t", "2"], 8),
    ] {
        let more = [&["-n", "40", "-c", "8", "--verify", &roots], more].concat();
        let (code, report, said, made) = proxy.load("https://{n}.example/", &more);
        assert_eq!(code, Some(0), "{more:?}: {said}");
        assert_eq!((&report["done"], &report["full_handshakes"]), (&40.into(), &handshakes.into()), "{more:?}");
        // One more for the run's first connection, which tries the server.
        assert_eq!(made, handshakes + 1, "{more:?}");
        assert_eq!(report["latency"]["tunnel"]["count"], handshakes, "{more:?}: {}", report["latency"]["tunnel"]);
        if report["responses"] != 0 {
            // What the server answers with is the name that it was asked for: 24 digits and the domain.
            assert_eq!(
                (&report["statuses"]["2xx"], &report["body_bytes"]),
                (&40.into(), &(40 * 32).into()),
                "{more:?}"
            );
        }
    }
    // The same name again: one certificate serves all.
    let (code, _, said, made) =
        proxy.load("https://same.example/", &["-n", "40", "--mode", "handshake", "--verify", &roots]);
    assert_eq!((code, made), (Some(0), 1), "{said}");
    // By the name in the handshake alone, while every tunnel leads to one.
    let options = ["-n", "40", "--mode", "handshake", "--verify", &roots, "--sni", "a{n}.test"];
    let (code, _, said, made) = proxy.load("https://same.example/", &options);
    assert_eq!((code, made), (Some(0), 41), "{said}");
}

#[test]
fn a_tunnel_that_is_refused_is_a_sentence_and_a_failure() {
    let proxy = Proxy::start("bench-proxy-refused");
    let (code, _, said, _) = proxy.load("https://{n}.elsewhere/", &["-n", "5"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the proxy made no tunnel: its answer has the status 403"), "{said}");
    let (code, _, said, _) = proxy.load("https://{n}.example/", &["--resume"]);
    assert!(code == Some(1) && said.contains("have no sessions to resume"), "{said}");
    let (code, _, said, _) = proxy.load("https://a.example/", &["--connect", "127.0.0.1:1"]);
    assert!(code == Some(1) && said.contains("either an address or a proxy"), "{said}");
    let output = penstock().args(["bench", "load", "a.example", "--proxy", "b.example:1"]).output().unwrap();
    assert!(common::study::said(&output).contains("--proxy cannot be 'b.example:1': expected ADDRESS:PORT"));
}
