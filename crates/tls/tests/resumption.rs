//! Sessions come back where they were made, and nowhere else.

mod common;

use common::*;
use penstock_config::{
    Config, Diagnostics,
    model::{BindTls, ServerTls, TlsConf, TlsVersion, Verify},
};
use penstock_engine::Settings;
use penstock_tls::{Acceptor, Connector, Memory, Store};
use std::{net::SocketAddr, process::Command};
use tokio::task::spawn_blocking;

fn worker<R>(body: impl Future<Output = R>) -> R {
    on_worker(None, Settings::default(), body)
}

fn client(max_ver: TlsVersion) -> Connector {
    let conf = TlsConf { verify: Some(Verify::None), max_ver: Some(max_ver), ..TlsConf::default() };
    connector(ServerTls { conf, ..ServerTls::default() }, &Memory::default())
}

fn build(tls: BindTls, shared: &Store, files: &Memory) -> Acceptor {
    Acceptor::build(&Config::default(), &bind(tls), shared, files, &mut Diagnostics::default()).unwrap()
}

#[test]
fn sessions_resume_by_ticket_and_by_cache() {
    let files = files(&[("/a.pem", &self_signed(Kind::P256, &["a.test"]))]);
    worker(async {
        for no_tls_tickets in [false, true] {
            let mut tls = crt(&["/a.pem"]);
            tls.conf.no_tls_tickets = no_tls_tickets;
            let address = facts_server(acceptor(tls, &files)).await;
            for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
                let client = client(version);
                for resumed in [false, true, true] {
                    let said = ask(&client, address, Some("a.test")).await.unwrap();
                    assert!(said.contains(&format!("resumed={resumed}")), "{version:?} {no_tls_tickets}: {said}");
                }
            }
        }
    });
}

#[test]
fn workers_and_reloads_share_sessions() {
    let files = files(&[("/a.pem", &self_signed(Kind::P256, &["a.test"]))]);
    worker(async {
        let shared = shared();
        let before = facts_server(build(crt(&["/a.pem"]), &shared, &files)).await;
        let after = facts_server(build(crt(&["/a.pem"]), &shared, &files)).await;
        let stranger = facts_server(build(crt(&["/a.pem"]), &self::shared(), &files)).await;
        let client = client(TlsVersion::Tls13);
        for (address, resumed) in [(before, false), (after, true), (stranger, false)] {
            let said = ask(&client, address, Some("a.test")).await.unwrap();
            assert!(said.contains(&format!("resumed={resumed}")), "{said}");
        }
    });
}

/// The attack: a session from a frontend that asks for no client certificate, offered to one that does.
#[test]
fn a_ticket_from_verify_none_never_resumes_where_verification_is_required() {
    let (ca, other) = (Authority::new("ca"), Authority::new("other"));
    let files = files(&[
        ("/a.pem", &ca.sign(Kind::P256, "a.test")),
        ("/ca.pem", &ca.pem),
        ("/other.pem", &other.pem),
        ("/crl.pem", &ca.revoke(&[])),
        ("/me.pem", &ca.sign(Kind::P256, "me")),
    ]);
    let guarded = |verify, ca: &str, crl: Option<&str>, ignored: Option<&str>| {
        let mut tls = crt(&["/a.pem"]);
        tls.conf.verify = Some(verify);
        tls.conf.ca_file = Some(path(ca));
        tls.conf.crl_file = crl.map(path);
        tls.crt_ignore_err = ignored.map(str::to_owned);
        tls
    };
    // All of one process: the same ticket keys, the same cache, and even the same name.
    for no_tls_tickets in [false, true] {
        worker(async {
            let shared = shared();
            let policies = [
                guarded(Verify::None, "/ca.pem", None, None),
                guarded(Verify::Optional, "/ca.pem", None, None),
                guarded(Verify::Required, "/ca.pem", None, None),
                guarded(Verify::Optional, "/ca.pem", Some("/crl.pem"), None),
                guarded(Verify::Optional, "/ca.pem", None, Some("all")),
                guarded(Verify::Optional, "/other.pem", None, Some("all")),
            ];
            let mut addresses = Vec::new();
            for mut tls in policies {
                tls.conf.no_tls_tickets = no_tls_tickets;
                addresses.push(facts_server(build(tls, &shared, &files)).await);
            }
            for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
                for (made, offered) in (0..addresses.len()).flat_map(|a| (0..addresses.len()).map(move |b| (a, b))) {
                    let conf = TlsConf { verify: Some(Verify::None), max_ver: Some(version), ..TlsConf::default() };
                    let server = ServerTls { conf, crt: Some(path("/me.pem")), ..ServerTls::default() };
                    let client = connector(server, &files);
                    let first = ask(&client, addresses[made], Some("a.test")).await.unwrap();
                    assert!(first.contains("resumed=false"), "{first}");
                    let second = ask(&client, addresses[offered], Some("a.test")).await.unwrap();
                    let expected = format!("resumed={}", made == offered);
                    assert!(second.contains(&expected), "{version:?}: made at {made}, offered at {offered}: {second}");
                }
            }
        });
    }
}

/// `openssl s_client` with these arguments; both streams of what it says.
async fn s_client(address: SocketAddr, arguments: Vec<String>) -> String {
    spawn_blocking(move || {
        let output = Command::new("openssl")
            .args(["s_client", "-connect", &address.to_string(), "-servername", "a.test", "-ign_eof"])
            .args(arguments)
            .stdin(std::process::Stdio::null())
            .output()
            .expect("openssl is installed");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    })
    .await
    .unwrap()
}

#[test]
fn openssl_resumes_with_both_versions_and_a_key_file() {
    use base64::Engine;
    let line = |fill| base64::engine::general_purpose::STANDARD.encode([fill; 80]) + "\n";
    let files =
        files(&[("/a.pem", &self_signed(Kind::Rsa2048, &["a.test"])), ("/keys", &[1, 2, 3].map(line).concat())]);
    let folder = tempfile::tempdir().unwrap();
    worker(async {
        // Two processes with one key file, as in a cluster.
        let tls = || BindTls { tls_ticket_keys: Some(path("/keys")), ..crt(&["/a.pem"]) };
        let one = facts_server(build(tls(), &shared(), &files)).await;
        let two = facts_server(build(tls(), &shared(), &files)).await;
        for version in ["-tls1_2", "-tls1_3"] {
            let session = folder.path().join(version).display().to_string();
            let words = |flag: &str| vec![version.to_owned(), flag.to_owned(), session.clone()];
            let said = s_client(one, words("-sess_out")).await;
            assert!(said.contains("resumed=false"), "{said}");
            let said = s_client(two, words("-sess_in")).await;
            assert!(said.contains("resumed=true"), "{version}: {said}");
        }
    });
}
