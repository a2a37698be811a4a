//! Each thing that may be wrong with what an operator gives has its own sentence, and nothing starts. On the real binary.

mod common;

use common::{Place, free_port, run};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use std::net::TcpListener;

/// Starts with this configuration (`%` stands for the test's directory) and gives the exit status and what was said.
fn start(place: &Place, config: &str) -> (Option<i32>, String) {
    let text = config.replace('%', place.0.to_str().expect("a plain name"));
    let output = run(&[&"-db", &"-f", &place.file("bad.cfg", &text)]);
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// As `-c` reads it.
fn check(place: &Place, config: &str) -> (Option<i32>, String) {
    let text = config.replace('%', place.0.to_str().expect("a plain name"));
    let output = run(&[&"-c", &"-f", &place.file("bad.cfg", &text)]);
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// A frontend with this certificate.
fn with_certificate(file: &str) -> String {
    format!(
        "global\n  maxconn 100\ndefaults\n  mode http\n  timeout client 5s\n  timeout server 5s\n  timeout connect 5s\n\
         frontend f\n  bind 127.0.0.1:{} ssl crt %/{file}\n  monitor-uri /alive\n",
        free_port()
    )
}

/// A certificate that ended with that year, and its key.
fn certificate(year: i32) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(year, 12, 31);
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

#[test]
fn each_certificate_that_cannot_serve_has_its_own_sentence() {
    let place = Place::new("certificates");
    let ((mine, my_key), (_, other_key)) = (certificate(4000), certificate(4000));
    place.file("mismatch.pem", &(mine.clone() + &other_key));
    place.file("no-key.pem", &mine);
    place.file("no-certificate.pem", &my_key);
    place.file("garbage.pem", "not a certificate");
    place.file("broken.pem", &(mine.replace("MII", "AAA") + &my_key));
    std::fs::create_dir(place.0.join("empty.d")).unwrap();
    // A file that even root cannot read.
    std::os::unix::fs::symlink("loop.pem", place.0.join("loop.pem")).unwrap();
    for (file, sentence) in [
        ("mismatch.pem", "does not belong to its certificate"),
        ("no-key.pem", "no private key for"),
        ("no-certificate.pem", "holds no certificate"),
        ("garbage.pem", "holds no certificate"),
        ("missing.pem", "cannot be read: it does not exist"),
        ("loop.pem", "cannot be read"),
        ("broken.pem", "broken.pem"),
        ("empty.d", "empty.d"),
    ] {
        let (status, said) = start(&place, &with_certificate(file));
        assert_eq!(status, Some(1), "{file}: {said}");
        assert!(said.contains("error: ") && said.contains(sentence), "{file}: {said}");
        assert!(said.contains("bad.cfg:9:") && said.contains("nothing was started"), "{file}: {said}");
    }
}

#[test]
fn a_store_with_a_missing_file_is_refused_when_it_is_checked() {
    let place = Place::new("store");
    let config = with_certificate("x.pem").replace("crt %/x.pem", "crt @s/x");
    let config = config.replace("defaults\n", "crt-store s\n  crt-base %\n  load crt missing.pem alias x\ndefaults\n");
    let (status, said) = check(&place, &config);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("missing.pem") && said.contains("does not exist"), "{said}");
}

/// HAProxy serves an expired certificate without a word, `-dW` and `zero-warning` or not; we say so, and serve it too.
#[test]
fn an_expired_certificate_is_a_notice_that_names_the_day() {
    let place = Place::new("expired");
    let (old, key) = certificate(2021);
    place.file("old.pem", &(old + &key));
    let config = with_certificate("old.pem");
    let (status, said) = check(&place, &config);
    assert_eq!(status, Some(0), "{said}");
    assert!(
        said.contains("notice: the certificate in") && said.contains("expired on Dec 31") && said.contains("2021"),
        "{said}"
    );
    let (status, said) = check(&place, &config.replace("global\n", "global\n  zero-warning\n"));
    assert_eq!(status, Some(0), "{said}");
}

#[test]
fn every_port_in_use_is_named() {
    let place = Place::new("ports");
    let taken = [TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap()];
    let ports = taken.each_ref().map(|listener| listener.local_addr().unwrap().port());
    let (status, said) = start(
        &place,
        &format!(
            "global\n  maxconn 100\ndefaults\n  mode http\n  timeout client 5s\nfrontend f\n  bind 127.0.0.1:{}\n  bind \
             127.0.0.1:{}\n  bind 127.0.0.1:{}\n  monitor-uri /alive\n",
            ports[0],
            free_port(),
            ports[1]
        ),
    );
    assert_eq!(status, Some(1), "{said}");
    for port in ports {
        let line = said.lines().find(|line| line.contains(&port.to_string()));
        assert!(line.is_some_and(|line| line.contains("Address already in use")), "{port}: {said}");
    }
}

#[test]
fn all_errors_of_every_kind_are_listed_at_once() {
    let place = Place::new("at-once");
    let (mine, _) = certificate(4000);
    place.file("no-key.pem", &mine);
    // More descriptors than a Linux kernel can ever give to a process.
    let config = with_certificate("no-key.pem").replace("maxconn 100", "maxconn 2000000000")
        + "  default_backend nowhere\n  use_backend gone if { path /x }\n  acl bad unknown_fetch\nbackend b\n  server s \
           127.0.0.1:1 weigth 3\n";
    let (status, said) = start(&place, &config);
    assert_eq!(status, Some(1), "{said}");
    for sentence in [
        "'maxconn 2000000000' needs 40000000",
        "no private key for",
        "no backend is called 'nowhere'",
        "no backend is called 'gone'",
        "unknown_fetch",
        "weigth",
        "there are 6 errors in the configuration; nothing was started",
    ] {
        assert!(said.contains(sentence), "'{sentence}' is not in:\n{said}");
    }
}

#[test]
fn a_limit_of_descriptors_too_low_for_maxconn_says_what_would_fit() {
    let place = Place::new("descriptors");
    let config = format!(
        "global\n  maxconn 2000000000\ndefaults\n  mode http\n  timeout client 5s\nfrontend f\n  bind 127.0.0.1:{}\n  \
         monitor-uri /alive\n",
        free_port()
    );
    let (status, said) = start(&place, &config);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("above this process's limit") && said.contains("or write 'maxconn "), "{said}");
    // -c judges the file alone: the service may have another limit.
    let (status, said) = check(&place, &config);
    assert!(!said.contains("descriptors"), "{status:?} {said}");
}
