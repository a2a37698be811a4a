//! Handshakes over real sockets, on engines that answer late, out of order, wrongly, never, or not at all.

mod common;

use common::*;
use penstock_config::model::{TlsConf, TlsVersion};
use penstock_engine::{Class, Counters, Settings, doubles::Manner, worker};
use penstock_lanes::Lanes;
use std::{
    net::SocketAddr,
    process::Command,
    rc::Rc,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::{spawn_blocking, spawn_local},
};

const CLIENTS: usize = 24;

fn settings() -> Settings {
    Settings { deadline: Duration::from_millis(60), ..Settings::default() }
}

/// Two dozen connections at once, half of TLS 1.2 and half of 1.3, over two kinds of certificate; then what the engine's
/// counters say. Client and server share the worker, so both sides' operations wait.
fn crowd(manner: Option<Manner>) -> Counters {
    // The newest first starves the oldest under load: that one needs patience to show what it is for.
    let patient = Settings { deadline: Duration::from_secs(10), ..settings() };
    let settings = if matches!(manner, Some(Manner::Reversed(_))) { patient } else { settings() };
    on_worker(manner, settings, visits(CLIENTS))
}

/// What [`crowd`] does, on whatever engine there is.
async fn visits(clients: usize) -> Counters {
    let (rsa, ecdsa) = (self_signed(Kind::Rsa2048, &["rsa.test"]), self_signed(Kind::P256, &["ecdsa.test"]));
    let files = files(&[("/rsa.pem", &rsa), ("/ecdsa.pem", &ecdsa)]);
    let mut tasks = Vec::new();
    for (file, name) in [("/rsa.pem", "rsa.test"), ("/ecdsa.pem", "ecdsa.test")] {
        let address = echo_server(acceptor(crt(&[file]), &files)).await;
        for max_ver in [TlsVersion::Tls12, TlsVersion::Tls13] {
            let conf = TlsConf { max_ver: Some(max_ver), ..TlsConf::default() };
            let connector = Rc::new(connector(trusting(file, conf), &files));
            for number in 0..clients / 4 {
                let connector = connector.clone();
                tasks.push(spawn_local(async move {
                    let socket = TcpStream::connect(address).await.unwrap();
                    let mut tls = connector.connect(socket, Some(name)).await.unwrap();
                    let message = format!("connection {number} to {name}");
                    tls.write_all(message.as_bytes()).await.unwrap();
                    tls.shutdown().await.unwrap();
                    let mut echo = String::new();
                    tls.read_to_string(&mut echo).await.unwrap();
                    assert_eq!(echo, message);
                }));
            }
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    worker::counters()
}

fn total(counters: &Counters, what: fn(&penstock_engine::ClassCounters) -> u64) -> u64 {
    counters.classes.iter().map(what).sum()
}

#[test]
fn native_computes_inline_and_nothing_waits() {
    let counters = crowd(None);
    assert_eq!(counters.class(Class::Rsa2048).inline, CLIENTS as u64 / 2);
    assert_eq!(total(&counters, |c| c.ops), total(&counters, |c| c.inline));
    assert_eq!(total(&counters, |c| c.batches), 0);
}

#[test]
fn lanes_serve_both_versions_in_batches() {
    for lanes in [Lanes::detect(), Lanes::portable()] {
        let counters = on_lanes(lanes, async {
            // The first use of a key is native, while it is prepared.
            visits(4).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
            visits(CLIENTS).await
        });
        assert_eq!(total(&counters, |c| c.redone + c.wrong + c.late), 0, "{counters:?}");
        for class in [Class::EcdsaP256, Class::X25519Agree] {
            let counters = counters.class(class);
            assert!(counters.batches > 0 && counters.batches < counters.ops, "{class:?}: {counters:?}");
        }
        assert!(total(&counters, |c| c.at_hand) > 0, "TLS 1.2 finds its key pairs made");
    }
}

#[test]
fn alone_nothing_waits() {
    let files = files(&[("/a.pem", &self_signed(Kind::P256, &["a.test"]))]);
    let counters = on_lanes(Lanes::detect(), async {
        let address = echo_server(acceptor(crt(&["/a.pem"]), &files)).await;
        for _ in 0..3 {
            s_client(address, &["-groups", "X25519"]).await;
        }
        worker::counters()
    });
    assert_eq!(total(&counters, |c| c.ops), total(&counters, |c| c.inline + c.at_hand), "{counters:?}");
}

#[test]
fn a_prompt_engine_gets_batches_of_more_than_one() {
    let counters = crowd(Some(Manner::Prompt));
    assert_eq!(total(&counters, |c| c.redone + c.wrong + c.late), 0);
    assert!(counters.class(Class::Rsa2048).batches < CLIENTS as u64 / 2, "{counters:?}");
}

#[test]
fn a_late_engine_is_waited_for() {
    let counters = crowd(Some(Manner::Late(Duration::from_millis(5))));
    assert_eq!(total(&counters, |c| c.redone), 0);
    assert_eq!(counters.class(Class::Rsa2048).wait[..13].iter().sum::<u64>(), 0, "none under 4 ms");
}

#[test]
fn answers_out_of_order_reach_their_own_handshakes() {
    let counters = crowd(Some(Manner::Reversed(Duration::from_millis(2))));
    assert_eq!(total(&counters, |c| c.wrong + c.late), 0);
}

#[test]
fn a_wrong_engine_is_found_out_redone_and_benched() {
    let counters = crowd(Some(Manner::Wrong));
    assert!(total(&counters, |c| c.wrong) > 0);
    assert_eq!((counters.benched, counters.is_benched), (1, true));
    assert!(total(&counters, |c| c.inline) > 0, "on the bench, all is native");
}

#[test]
fn an_engine_that_never_answers_costs_its_deadline_and_is_benched() {
    let began = Instant::now();
    let counters = crowd(Some(Manner::Never));
    assert!(total(&counters, |c| c.late) >= u64::from(settings().late_max));
    assert!(counters.is_benched);
    assert!(began.elapsed() > settings().deadline);
}

#[test]
fn an_engine_that_fails_or_has_no_room_is_stood_in_for() {
    for manner in [Manner::Failing, Manner::Full] {
        let counters = crowd(Some(manner));
        assert!(total(&counters, |c| c.redone) > 0);
        assert_eq!(total(&counters, |c| c.wrong + c.late), 0);
    }
}

#[test]
fn a_benched_engine_comes_back_when_a_trial_passes() {
    let settings = Settings { bench: Duration::from_millis(10), ..settings() };
    let files = files(&[("/a.pem", &self_signed(Kind::Rsa2048, &["a.test"]))]);
    let counters = on_worker(Some(Manner::WrongAtFirst(3)), settings, async {
        let address = echo_server(acceptor(crt(&["/a.pem"]), &files)).await;
        let connector = connector(trusting("/a.pem", TlsConf::default()), &files);
        for _ in 0..20 {
            let socket = TcpStream::connect(address).await.unwrap();
            connector.connect(socket, Some("a.test")).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        worker::counters()
    });
    assert!(counters.benched >= 1);
    assert!(!counters.is_benched, "{counters:?}");
}

#[test]
fn clients_that_vanish_while_parked_leave_nothing_behind() {
    let files = files(&[("/a.pem", &self_signed(Kind::Rsa2048, &["a.test"]))]);
    let counters = on_worker(Some(Manner::Late(Duration::from_millis(20))), settings(), async {
        let acceptor = Rc::new(acceptor(crt(&["/a.pem"]), &files));
        let connector = Rc::new(connector(trusting("/a.pem", TlsConf::default()), &files));
        for cut_ms in 0..40 {
            let (here, there) = tokio::io::duplex(64 * 1024);
            let (acceptor, connector) = (acceptor.clone(), connector.clone());
            // The client connects for real, so that the server parks in its key exchange and in its signature.
            spawn_local(async move { connector.connect(there, Some("a.test")).await.is_ok() });
            let server = acceptor.accept(here, Vec::new());
            let _ = tokio::time::timeout(Duration::from_millis(cut_ms * 2), server).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        worker::counters()
    });
    assert!(total(&counters, |c| c.abandoned) > 0);
    assert_eq!(total(&counters, |c| c.wrong), 0);
}

/// What `openssl s_client` says about a connection.
async fn s_client(address: SocketAddr, arguments: &'static [&'static str]) -> String {
    spawn_blocking(move || {
        let output = Command::new("openssl")
            .args(["s_client", "-connect", &address.to_string(), "-brief"])
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
fn openssl_is_served_on_every_engine() {
    let manners = [
        None,
        Some(Manner::Prompt),
        Some(Manner::Late(Duration::from_millis(3))),
        Some(Manner::Wrong),
        Some(Manner::Never),
    ];
    let files = files(&[
        ("/rsa.pem", &self_signed(Kind::Rsa2048, &["a.test"])),
        ("/ec.pem", &self_signed(Kind::P256, &["a.test"])),
    ]);
    let serve = async |engine: &str| {
        let rsa = echo_server(acceptor(crt(&["/rsa.pem"]), &files)).await;
        let ecdsa = echo_server(acceptor(crt(&["/ec.pem"]), &files)).await;
        for address in [rsa, ecdsa] {
            let groups: [&'static [&'static str]; 4] = [
                &["-groups", "X25519", "-tls1_3"],
                &["-groups", "P-256", "-tls1_2"],
                &["-groups", "P-384", "-tls1_3"],
                // A share we have no use for: the client is asked for another, and says hello again.
                &["-groups", "P-521:P-256", "-tls1_3"],
            ];
            for groups in groups {
                let said = s_client(address, groups).await;
                assert!(said.contains("CONNECTION ESTABLISHED"), "{engine} {groups:?}: {said}");
            }
        }
    };
    for manner in manners {
        on_worker(manner, settings(), serve(&format!("{manner:?}")));
    }
    for lanes in [Lanes::detect(), Lanes::portable()] {
        on_lanes(lanes, serve(&lanes.implementation().to_string()));
    }
}
