//! What handshakes are, on every engine there is, and on those that are slow, flaky, wrong or dead. Each scenario is several
//! connections at once, both ends of which are this worker's: on lanes their operations come together.

mod common;

use common::*;
use penstock_config::model::{BindTls, ServerTls, TlsConf, TlsVersion, Verify};
use penstock_engine::{doubles::Manner, worker};
use penstock_tls::{Connector, Memory};
use std::{rc::Rc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::spawn_local,
};

const AT_ONCE: usize = 6;

fn sites() -> Memory {
    let (ca, stranger) = (Authority::new("ca"), Authority::new("stranger"));
    let mut sites = files(&[
        ("/ca.pem", &ca.pem),
        ("/me.pem", &ca.sign(Kind::P256, "me")),
        ("/other.pem", &stranger.sign(Kind::P256, "other")),
    ]);
    for kind in [Kind::Rsa2048, Kind::Rsa4096, Kind::P256, Kind::P384] {
        sites.0.insert(format!("/{kind:?}.pem").into(), ca.sign(kind, "a.test").into_bytes());
    }
    sites
}

fn of(kind: Kind) -> BindTls {
    crt(&[&format!("/{kind:?}.pem")])
}

fn client(files: &Memory, version: TlsVersion, curves: &str, own: Option<&str>) -> Connector {
    let conf = TlsConf {
        verify: Some(Verify::Required),
        ca_file: Some(path("/ca.pem")),
        min_ver: Some(version),
        max_ver: Some(version),
        curves: (!curves.is_empty()).then(|| text(curves)),
        ..TlsConf::default()
    };
    connector(ServerTls { conf, crt: own.map(path), ..ServerTls::default() }, files)
}

/// What this many clients get at once, each in the order of its visits.
async fn visit(tls: BindTls, files: &Memory, client: Connector, visits: usize) -> Vec<Result<String, String>> {
    let address = facts_server(acceptor(tls, files)).await;
    let client = Rc::new(client);
    let mut all = Vec::new();
    for _ in 0..visits {
        let one = || {
            let client = client.clone();
            spawn_local(async move { ask(&client, address, Some("a.test")).await })
        };
        let tasks: Vec<_> = (0..AT_ONCE).map(|_| one()).collect();
        for task in tasks {
            all.push(task.await.unwrap());
        }
    }
    all
}

const FULL: [(Kind, TlsVersion, &str, [&str; 2]); 8] = [
    (Kind::Rsa2048, TlsVersion::Tls13, "X25519", ["version=TLSv1.3", "group=X25519"]),
    (Kind::Rsa2048, TlsVersion::Tls12, "P-256", ["version=TLSv1.2 cipher=ECDHE-RSA", "group=SECP256R1"]),
    (Kind::Rsa4096, TlsVersion::Tls13, "P-384", ["version=TLSv1.3", "group=SECP384R1"]),
    (Kind::P256, TlsVersion::Tls13, "P-256", ["version=TLSv1.3", "group=SECP256R1"]),
    (Kind::P256, TlsVersion::Tls12, "X25519", ["version=TLSv1.2 cipher=ECDHE-ECDSA", "group=X25519"]),
    (Kind::P384, TlsVersion::Tls13, "X25519", ["version=TLSv1.3", "group=X25519"]),
    (Kind::P384, TlsVersion::Tls12, "P-384", ["version=TLSv1.2 cipher=ECDHE-ECDSA", "group=SECP384R1"]),
    (Kind::Rsa2048, TlsVersion::Tls13, "", ["version=TLSv1.3", "group=X25519MLKEM768"]),
];

#[test]
fn full_handshakes_of_every_kind_version_and_group() {
    let files = sites();
    for engine in engines() {
        behind(engine, async {
            for (kind, version, curves, expected) in FULL {
                for said in visit(of(kind), &files, client(&files, version, curves, None), 1).await {
                    let said = said.unwrap_or_else(|e| panic!("{engine:?} {kind:?} {version:?} {curves}: {e}"));
                    assert!(expected.iter().all(|part| said.contains(part)), "{engine:?}: {said}");
                    assert!(said.contains("server=a.test") && said.contains("resumed=false"), "{engine:?}: {said}");
                }
            }
        });
    }
}

#[test]
fn a_client_without_our_group_is_asked_to_say_hello_again() {
    let files = sites();
    for engine in engines() {
        behind(engine, async {
            let mut tls = of(Kind::Rsa2048);
            tls.conf.curves = Some(text("P-256"));
            for said in visit(tls, &files, client(&files, TlsVersion::Tls13, "X25519:P-256", None), 1).await {
                assert!(said.as_ref().is_ok_and(|said| said.contains("group=SECP256R1")), "{engine:?}: {said:?}");
            }
        });
    }
}

#[test]
fn clients_present_certificates_and_strangers_are_refused() {
    let files = sites();
    for engine in engines() {
        behind(engine, async {
            for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
                for (own, let_in) in [(Some("/me.pem"), true), (Some("/other.pem"), false), (None, false)] {
                    let mut tls = of(Kind::Rsa2048);
                    (tls.conf.verify, tls.conf.ca_file) = (Some(Verify::Required), Some(path("/ca.pem")));
                    for said in visit(tls, &files, client(&files, version, "", own), 1).await {
                        match said {
                            Ok(said) => assert!(let_in && said.contains("peer=true verify=0"), "{engine:?}: {said}"),
                            Err(said) => assert!(!let_in, "{engine:?} {own:?} {version:?}: {said}"),
                        }
                    }
                }
            }
        });
    }
}

#[test]
fn sessions_resume() {
    let files = sites();
    for engine in engines() {
        behind(engine, async {
            for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
                let said = visit(of(Kind::P256), &files, client(&files, version, "", None), 2).await;
                let resumed = said.iter().flatten().filter(|said| said.contains("resumed=true")).count();
                // A ticket is used once: of those who come together some may find none left.
                assert!(said.iter().all(Result::is_ok) && resumed > 0, "{engine:?} {version:?}: {said:?}");
            }
        });
    }
}

#[test]
fn a_name_we_do_not_have_is_refused_with_its_alert() {
    let files = sites();
    for engine in engines() {
        behind(engine, async {
            let tls = BindTls { strict_sni: true, ..of(Kind::P256) };
            let address = facts_server(acceptor(tls, &files)).await;
            let client = client(&files, TlsVersion::Tls13, "", None);
            let said = ask(&client, address, Some("b.test")).await;
            assert!(said.as_ref().is_err_and(|said| said.contains("UnrecognisedName")), "{engine:?}: {said:?}");
        });
    }
}

#[test]
fn a_megabyte_comes_back_as_it_went() {
    let files = sites();
    let sent: Rc<Vec<u8>> = Rc::new((0..1u32 << 20).map(|i| ((i * 7) >> 3) as u8).collect());
    for engine in engines() {
        behind(engine, async {
            let address = echo_server(acceptor(of(Kind::Rsa2048), &files)).await;
            let client = client(&files, TlsVersion::Tls13, "", None);
            let tls = client.connect(TcpStream::connect(address).await.unwrap(), Some("a.test")).await.unwrap();
            let (mut from, mut to) = tokio::io::split(tls);
            let mine = sent.clone();
            let sending = spawn_local(async move {
                to.write_all(&mine).await.unwrap();
                to.shutdown().await.unwrap();
            });
            let mut back = Vec::new();
            from.read_to_end(&mut back).await.unwrap();
            sending.await.unwrap();
            assert!(back == *sent, "{engine:?}");
        });
    }
}

#[test]
fn clients_that_leave_at_any_moment_leave_nothing_behind() {
    let files = sites();
    for engine in engines() {
        behind(engine, async {
            let acceptor = Rc::new(acceptor(of(Kind::Rsa2048), &files));
            let client = Rc::new(client(&files, TlsVersion::Tls13, "", None));
            let wrong = || worker::counters().classes.iter().map(|class| class.wrong).sum::<u64>();
            // What engines before this one have done on this thread counts too.
            let before = wrong();
            let serving: Vec<_> = (0..24u64)
                .map(|number| {
                    let (acceptor, client) = (acceptor.clone(), client.clone());
                    let (here, there) = tokio::io::duplex(64 * 1024);
                    spawn_local(async move {
                        let leaving = Duration::from_micros(number * number * 40);
                        let _ = tokio::time::timeout(leaving, client.connect(there, Some("a.test"))).await;
                    });
                    spawn_local(async move { acceptor.accept(here, Vec::new()).await.map(|_| ()) })
                })
                .collect();
            for task in serving {
                let _ = task.await.unwrap();
            }
            // What was abandoned is forgotten within a deadline.
            tokio::time::sleep(Duration::from_millis(120)).await;
            assert_eq!(penstock_tls::stack_counts().used, 0, "{engine:?}");
            assert_eq!(penstock_tls::line_counts().waiting, 0, "{engine:?}");
            let is_wrong = match engine {
                Behind::Double(manner) => matches!(manner, Manner::Wrong | Manner::WrongAtFirst(_)),
                Behind::Device(_, command) => command.starts_with("wrong"),
                Behind::Native | Behind::Lanes(_) => false,
            };
            assert_eq!(wrong() > before, is_wrong, "{engine:?}");
        });
    }
}
