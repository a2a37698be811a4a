//! Other people's clients, on the native engine and on one that makes every operation wait.

mod common;

use common::*;
use penstock_config::model::{BindTls, Verify};
use penstock_engine::{Settings, doubles::Manner};
use penstock_tls::Acceptor;
use std::{
    io::Write,
    net::SocketAddr,
    process::{Command, Stdio},
    rc::Rc,
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::{spawn_blocking, spawn_local},
};

const MANNERS: [Option<Manner>; 2] = [None, Some(Manner::Late(Duration::from_millis(2)))];

fn worker<R>(manner: Option<Manner>, body: impl Future<Output = R>) -> R {
    on_worker(manner, Settings::default(), body)
}

/// Answers one HTTP request a connection with what was agreed on.
async fn http_server(acceptor: Acceptor) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = Rc::new(acceptor);
    spawn_local(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            spawn_local(async move {
                let Ok(mut tls) = acceptor.accept(socket, Vec::new()).await else { return };
                let mut request = [0; 4096];
                let _ = tls.read(&mut request).await;
                let facts = tls.facts();
                let body = format!("{} {} {}\n", facts.version, facts.cipher, facts.group.unwrap_or("-"));
                let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
                let _ = tls.write_all((head + &body).as_bytes()).await;
                let _ = tls.shutdown().await;
                let _ = tls.read(&mut request).await;
            });
        }
    });
    address
}

/// Runs a client to its end with `lines` on its input, each after a moment; gives all it says.
async fn run(program: &'static str, arguments: Vec<String>, lines: &'static [&'static str]) -> String {
    spawn_blocking(move || {
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{program}: {e}"));
        let mut input = child.stdin.take().unwrap();
        for line in lines {
            std::thread::sleep(Duration::from_millis(300));
            let _ = input.write_all(line.as_bytes());
        }
        std::thread::sleep(Duration::from_millis(if lines.is_empty() { 0 } else { 500 }));
        drop(input);
        let output = child.wait_with_output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    })
    .await
    .unwrap()
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn two_sites() -> penstock_tls::Memory {
    let ca = Authority::new("ca");
    files(&[
        ("/rsa.pem", &ca.sign(Kind::Rsa2048, "a.test")),
        ("/ecdsa.pem", &ca.sign(Kind::P256, "a.test")),
        ("/ca.pem", &ca.pem),
        ("/me.pem", &ca.sign(Kind::P256, "me")),
    ])
}

#[test]
fn curl_speaks_every_version_suite_and_group() {
    let files = two_sites();
    for manner in MANNERS {
        worker(manner, async {
            for (file, kind) in [("/rsa.pem", "RSA"), ("/ecdsa.pem", "ECDSA")] {
                let port = http_server(acceptor(crt(&[file]), &files)).await.port();
                let base = format!("-sSk --max-time 20 --resolve a.test:{port}:127.0.0.1 https://a.test:{port}/ ");
                for (options, expected) in [
                    ("--tlsv1.3 --curves X25519", "TLSv1.3 TLS_AES_128_GCM_SHA256 X25519".to_owned()),
                    ("--tlsv1.3 --curves P-384", "TLSv1.3 TLS_AES_128_GCM_SHA256 SECP384R1".to_owned()),
                    (
                        "--tls-max 1.2 --curves P-256 --ciphers AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES256-GCM-SHA384",
                        format!("TLSv1.2 ECDHE-{kind}-AES256-GCM-SHA384 SECP256R1"),
                    ),
                ] {
                    let said = run("curl", words(&(base.clone() + options)), &[]).await;
                    assert_eq!(said.trim(), expected, "{manner:?} {kind} {options}");
                }
            }
        });
    }
}

#[test]
fn gnutls_speaks_every_version_suite_and_group() {
    let files = two_sites();
    for manner in MANNERS {
        worker(manner, async {
            for file in ["/rsa.pem", "/ecdsa.pem"] {
                let port = http_server(acceptor(crt(&[file]), &files)).await.port();
                for (priority, expected) in [
                    ("NORMAL:-VERS-ALL:+VERS-TLS1.3", "TLSv1.3 TLS_AES_128_GCM_SHA256"),
                    ("NORMAL:-VERS-ALL:+VERS-TLS1.3:-GROUP-ALL:+GROUP-SECP256R1", "SECP256R1"),
                    ("NORMAL:-VERS-ALL:+VERS-TLS1.2:-CIPHER-ALL:+CHACHA20-POLY1305", "CHACHA20-POLY1305"),
                ] {
                    let line = format!("--insecure --sni-hostname a.test --priority {priority} -p {port} 127.0.0.1");
                    let said = run("gnutls-cli", words(&line), &["GET / HTTP/1.1\r\n\r\n"]).await;
                    assert!(said.contains("200 OK") && said.contains(expected), "{manner:?} {priority}: {said}");
                }
            }
        });
    }
}

#[test]
fn openssl_updates_its_keys_and_may_not_renegotiate() {
    let files = two_sites();
    worker(None, async {
        let address = echo_server(acceptor(crt(&["/rsa.pem"]), &files)).await;
        let line = format!("s_client -connect {address} -tls1_3 -nocommands");
        let plain = run("openssl", words(&line), &["unlikely-1\n"]).await;
        assert_eq!(plain.matches("unlikely-1").count(), 1, "{plain}");
        // K asks for a key update of both sides, k updates the client's own.
        let line = format!("s_client -connect {address} -tls1_3");
        let said =
            run("openssl", words(&line), &["K\n", "unlikely-2\n", "k\n", "unlikely-3\n", "K\n", "unlikely-4\n"]).await;
        for echo in ["unlikely-2", "unlikely-3", "unlikely-4"] {
            assert!(said.contains(echo), "{said}");
        }
        let line = format!("s_client -connect {address} -tls1_2");
        let said = run("openssl", words(&line), &["before\n", "R\n", "after\n"]).await;
        assert!(said.contains("before") && said.contains("RENEGOTIATING") && !said.contains("after"), "{said}");
    });
}

#[test]
fn a_staple_is_sent_to_who_asks() {
    let ca = Authority::new("ca");
    let numbered = |params: &mut rcgen::CertificateParams| params.serial_number = Some(0x1234u64.into());
    let mut files = files(&[("/a.pem", &ca.sign_with(Kind::Rsa2048, "a.test", numbered))]);
    files.0.insert("/a.pem.ocsp".into(), ca.ocsp(0x1234, true));
    worker(None, async {
        let address = echo_server(acceptor(crt(&["/a.pem"]), &files)).await;
        for version in ["-tls1_2", "-tls1_3"] {
            let line = format!("s_client -connect {address} {version}");
            let said = run("openssl", words(&(line.clone() + " -status")), &[]).await;
            assert!(said.contains("OCSP Response Status: successful") && said.contains("Cert Status: good"), "{said}");
            let said = run("openssl", words(&line), &[]).await;
            assert!(!said.contains("OCSP Response Status"), "{said}");
        }
        // Its clients are the ones to know.
        files.0.insert("/a.pem.ocsp".into(), ca.ocsp(0x1234, false));
        let address = echo_server(acceptor(crt(&["/a.pem"]), &files)).await;
        let said = run("openssl", words(&format!("s_client -connect {address} -status")), &[]).await;
        assert!(said.contains("Cert Status: revoked"), "{said}");
    });
}

#[test]
fn openssl_presents_a_certificate_when_asked() {
    let files = two_sites();
    let folder = tempfile::tempdir().unwrap();
    let me = folder.path().join("me.pem");
    std::fs::write(&me, &files.0[std::path::Path::new("/me.pem")]).unwrap();
    for manner in MANNERS {
        worker(manner, async {
            let mut tls = BindTls { ..crt(&["/rsa.pem"]) };
            tls.conf.verify = Some(Verify::Required);
            tls.conf.ca_file = Some(path("/ca.pem"));
            let address = facts_server(acceptor(tls, &files)).await;
            for version in ["-tls1_2", "-tls1_3"] {
                let me = me.display();
                let line = format!("s_client -connect {address} {version} -cert {me} -key {me} -ign_eof");
                let said = run("openssl", words(&line), &[]).await;
                assert!(said.contains("peer=true verify=0"), "{manner:?} {version}: {said}");
                assert!(said.contains("CN = ca"), "the authority is named to the client: {said}");
            }
        });
    }
}
