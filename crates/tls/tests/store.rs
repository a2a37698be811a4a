//! What commands on the store do to the connections that come after them.

mod common;

use common::*;
use penstock_config::{
    Config, Diagnostics, Span,
    model::{BindTls, ServerTls, TlsConf, TlsVersion, Verify},
};
use penstock_engine::Settings;
use penstock_tls::{
    Acceptor, Connector, Memory, Store,
    store::{AuthorityKind, Refusal, Status},
};
use std::net::SocketAddr;

fn worker<R>(body: impl Future<Output = R>) -> R {
    on_worker(None, Settings::default(), body)
}

fn build(tls: BindTls, store: &Store, files: &Memory) -> Acceptor {
    let mut said = Diagnostics::default();
    let built = Acceptor::build(&Config::default(), &bind(tls), store, files, &mut said);
    built.unwrap_or_else(|| panic!("{said:?}"))
}

fn anyone() -> Connector {
    let conf = TlsConf { verify: Some(Verify::None), ..TlsConf::default() };
    connector(ServerTls { conf, ..ServerTls::default() }, &Memory::default())
}

/// The common name of the certificate that a client gets that asks for `name`.
async fn shown(address: SocketAddr, name: &str) -> String {
    let said = ask(&anyone(), address, Some(name)).await;
    said.map_or_else(|error| error, |said| said.rsplit_once("server=").unwrap().1.to_owned())
}

/// A self-signed certificate whose common name is its first name.
fn named(names: &[&str]) -> String {
    let key = key(Kind::P256);
    let mut params =
        rcgen::CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, names[0]);
    params.self_signed(&key).unwrap().pem() + &key.serialize_pem()
}

#[test]
fn a_commit_changes_certificate_and_names_at_once_on_every_line() {
    let files = files(&[("/a.pem", &named(&["a.test", "old.test"])), ("/b.pem", &named(&["b.test"]))]);
    worker(async {
        let store = shared();
        let one = facts_server(build(crt(&["/b.pem", "/a.pem"]), &store, &files)).await;
        let two = facts_server(build(crt(&["/a.pem"]), &store, &files)).await;
        assert_eq!(shown(one, "old.test").await, "a.test");

        let next = named(&["next.test", "new.test"]);
        assert_eq!(store.set_certificate("/a.pem", &next).unwrap(), ("/a.pem".to_owned(), true));
        assert_eq!(shown(one, "old.test").await, "a.test", "nothing changes before the commit");
        assert_eq!(store.commit_certificate("/a.pem"), Ok(2));
        for (address, name, expected) in [
            (one, "new.test", "next.test"),
            (one, "old.test", "b.test"),
            (one, "b.test", "b.test"),
            (two, "new.test", "next.test"),
            (two, "anything.test", "next.test"),
        ] {
            assert_eq!(shown(address, name).await, expected, "{name}");
        }
    });
}

#[test]
fn what_cannot_be_used_changes_nothing() {
    let pem = named(&["a.test"]);
    let (cert, key) = pem.split_at(pem.find("-----BEGIN PRIVATE").unwrap());
    let files = files(&[("/a.pem", &pem), ("/b.pem", &named(&["b.test"]))]);
    let other = named(&["c.test"]);
    let foreign_key = &other[other.find("-----BEGIN PRIVATE").unwrap()..];
    worker(async {
        let store = shared();
        let address = facts_server(build(crt(&["/a.pem", "/b.pem"]), &store, &files)).await;
        let refusal = |result: Result<(String, bool), penstock_tls::store::StoreError>| result.unwrap_err().refusal;
        for payload in ["garbage", "", key, "-----BEGIN CERTIFICATE-----\nMIIB!!\n-----END CERTIFICATE-----\n"] {
            let error = store.set_certificate("/a.pem", payload).unwrap_err();
            assert_eq!(error.to_string(), "unable to load certificate from file '/a.pem'.\nCan't load the payload");
        }
        assert_eq!(store.certificates().transaction, None);
        assert_eq!(refusal(store.set_certificate("/none.pem", &pem)), Refusal::Unknown);
        assert_eq!(store.commit_certificate("/a.pem").unwrap_err().refusal, Refusal::NoTransaction);

        store.set_certificate("/a.pem", &(cert.to_owned() + foreign_key)).unwrap();
        let error = store.commit_certificate("/a.pem").unwrap_err();
        assert_eq!(error.to_string(), "inconsistencies between private key and certificate loaded '/a.pem'.");
        // Someone else's transaction: neither changed nor ended by one about another certificate.
        assert_eq!(refusal(store.set_certificate("/b.pem", &other)), Refusal::OtherTransaction);
        assert_eq!(store.commit_certificate("/b.pem").unwrap_err().refusal, Refusal::OtherTransaction);
        assert_eq!(store.abort_certificate("/b.pem").unwrap_err().refusal, Refusal::OtherTransaction);
        assert_eq!(store.certificates().transaction.as_deref(), Some("/a.pem"));

        store.set_certificate("/a.pem", cert).unwrap();
        let error = store.commit_certificate("/a.pem").unwrap_err();
        assert_eq!(error.to_string(), "The transaction must contain at least a certificate and a private key!");
        store.set_certificate("/a.pem.key", key).unwrap();
        assert_eq!(store.certificate("*/a.pem").unwrap().status, Status::Unused);
        store.abort_certificate("/a.pem").unwrap();
        assert_eq!(store.delete_certificate("/a.pem").unwrap_err().refusal, Refusal::InUse);
        assert_eq!(shown(address, "a.test").await, "a.test");
    });
}

/// The sequence of ACME clients: a new certificate comes into a directory, and leaves it.
#[test]
fn a_new_certificate_is_presented_once_it_is_listed() {
    let files = files(&[("/dir/a.pem", &named(&["a.test"]))]);
    worker(async {
        let store = shared();
        let address = facts_server(build(crt(&["/dir"]), &store, &files)).await;
        store.new_certificate("/dir/n.pem").unwrap();
        assert_eq!(store.certificate("/dir/n.pem").unwrap().status, Status::Empty);
        assert_eq!(store.add_to_crt_list("/dir", "/dir/n.pem").unwrap_err().refusal, Refusal::Incomplete);
        store.set_certificate("/dir/n.pem", &named(&["n.test"])).unwrap();
        assert_eq!(store.commit_certificate("/dir/n.pem"), Ok(0));
        assert_eq!(store.certificate("/dir/n.pem").unwrap().status, Status::Unused);
        assert_eq!(shown(address, "n.test").await, "a.test");
        assert_eq!(store.add_to_crt_list("/dir/", "/dir/n.pem"), Ok(("/dir/n.pem".to_owned(), 1)));
        assert_eq!(shown(address, "n.test").await, "n.test");
        assert_eq!(store.certificate("/dir/n.pem").unwrap().status, Status::Used);

        // With settings and filters of its own, beside the first entry.
        store.add_to_crt_list("/dir", "/dir/n.pem [ssl-max-ver TLSv1.2] *.wild.test !no.wild.test").unwrap();
        let said = ask(&anyone(), address, Some("x.wild.test")).await.unwrap();
        assert!(said.contains("version=TLSv1.2") && said.ends_with("server=n.test"), "{said}");
        assert_eq!(shown(address, "no.wild.test").await, "a.test");
        assert_eq!(store.remove_from_crt_list("/dir", "/dir/n.pem", None).unwrap_err().refusal, Refusal::BadIndex);
        store.remove_from_crt_list("/dir", "/dir/n.pem", Some(2)).unwrap();
        assert_eq!(shown(address, "x.wild.test").await, "a.test");
        assert_eq!(store.delete_certificate("/dir/n.pem").unwrap_err().refusal, Refusal::InUse);
        store.remove_from_crt_list("/dir", "/dir/n.pem", None).unwrap();
        assert_eq!(shown(address, "n.test").await, "a.test");
        assert_eq!(store.remove_from_crt_list("/dir", "/dir/a.pem", None).unwrap_err().refusal, Refusal::InUse);
        store.delete_certificate("/dir/n.pem").unwrap();
    });
}

#[test]
fn settings_that_cannot_be_used_are_refused_before_anything_changes() {
    let files = files(&[("/list", "/a.pem\n"), ("/a.pem", &named(&["a.test"]))]);
    let store = shared();
    let tls = BindTls { crt_list: vec![path("/list")], ..BindTls::default() };
    let _acceptor = build(tls, &store, &files);
    for (line, expected) in [
        ("/a.pem [bogus] x.test", "parsing [CLI:1]: unknown ssl keyword bogus"),
        ("/a.pem [ciphers AES128-SHA ssl-max-ver TLSv1.2]", "'ciphers AES128-SHA' leaves nothing"),
        ("/a.pem [verify required]", "no authority is named"),
        ("/a.pem [verify required ca-file /gone.pem]", "'ca-file' : unable to load /gone.pem"),
        ("/none.pem", "certificate '/none.pem' does not exist!"),
        ("", "should contain the certificate name"),
    ] {
        let error = store.add_to_crt_list("/list", line).unwrap_err().to_string();
        assert!(error.starts_with("Can't edit the crt-list: ") && error.contains(expected), "{line}: {error}");
    }
    assert_eq!(store.crt_list("/list").unwrap().len(), 1);
    assert_eq!(store.crt_list("/none").unwrap_err().refusal, Refusal::Unknown);
}

/// The attack: a session made under an authority that is no longer trusted, offered after the change.
#[test]
fn a_session_of_before_a_change_of_authorities_is_not_resumed() {
    let (ca, other) = (Authority::new("ca"), Authority::new("other"));
    let revoked = ca.sign_with(Kind::P256, "me", |params| params.serial_number = Some(7u64.into()));
    let files = files(&[
        ("/a.pem", &ca.sign(Kind::P256, "a.test")),
        ("/ca.pem", &ca.pem),
        ("/me.pem", &revoked),
        ("/crl.pem", &ca.revoke(&[])),
    ]);
    for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
        for no_tls_tickets in [false, true] {
            worker(async {
                let store = shared();
                let mut tls = crt(&["/a.pem"]);
                tls.conf.verify = Some(Verify::Required);
                (tls.conf.ca_file, tls.conf.crl_file) = (Some(path("/ca.pem")), Some(path("/crl.pem")));
                tls.conf.no_tls_tickets = no_tls_tickets;
                let address = facts_server(build(tls, &store, &files)).await;
                let conf = TlsConf { verify: Some(Verify::None), max_ver: Some(version), ..TlsConf::default() };
                let me = connector(ServerTls { conf, crt: Some(path("/me.pem")), ..ServerTls::default() }, &files);
                let resumes = async |me: &Connector| match ask(me, address, Some("a.test")).await {
                    Ok(said) => Ok(said.contains("resumed=true")),
                    Err(_) => Err(()),
                };
                assert_eq!(resumes(&me).await, Ok(false));
                assert_eq!(resumes(&me).await, Ok(true));

                // A renewed certificate for the same names is the same policy: sessions go on.
                store.set_certificate("/a.pem", &ca.sign(Kind::P256, "a.test")).unwrap();
                store.commit_certificate("/a.pem").unwrap();
                assert_eq!(resumes(&me).await, Ok(true));

                store.set_authority(AuthorityKind::Crl, "/crl.pem", &ca.revoke(&[7]), false).unwrap();
                assert_eq!(resumes(&me).await, Ok(true), "nothing changes before the commit");
                assert_eq!(store.commit_authority(AuthorityKind::Crl, "/crl.pem"), Ok(1));
                assert_eq!(resumes(&me).await, Err(()), "{version:?} {no_tls_tickets}: revoked");
                store.set_authority(AuthorityKind::Crl, "/crl.pem", &ca.revoke(&[]), false).unwrap();
                store.commit_authority(AuthorityKind::Crl, "/crl.pem").unwrap();
                assert!(resumes(&me).await.is_ok());

                store.set_authority(AuthorityKind::Ca, "/ca.pem", &other.pem, false).unwrap();
                store.commit_authority(AuthorityKind::Ca, "/ca.pem").unwrap();
                assert_eq!(resumes(&me).await, Err(()), "{version:?} {no_tls_tickets}: another authority");
                // With the first one added, the client is let in again, by a whole handshake.
                store.set_authority(AuthorityKind::Ca, "/ca.pem", &ca.pem, true).unwrap();
                store.commit_authority(AuthorityKind::Ca, "/ca.pem").unwrap();
                assert_eq!(resumes(&me).await, Ok(false));
                assert_eq!(store.authority(AuthorityKind::Ca, "/ca.pem").unwrap().certificates.len(), 2);
            });
        }
    }
}

#[test]
fn servers_follow_their_certificates_and_authorities() {
    let (ca, other) = (Authority::new("ca"), Authority::new("other"));
    let files = files(&[
        ("/server.pem", &ca.sign(Kind::P256, "s.test")),
        ("/ca.pem", &ca.pem),
        ("/me.pem", &ca.sign(Kind::P256, "me")),
    ]);
    worker(async {
        let mut tls = crt(&["/server.pem"]);
        (tls.conf.verify, tls.conf.ca_file) = (Some(Verify::Optional), Some(path("/ca.pem")));
        let address = facts_server(acceptor(tls, &files)).await;

        let store = shared();
        let server = ServerTls { crt: Some(path("/me.pem")), ..trusting("/ca.pem", TlsConf::default()) };
        let connector =
            Connector::build(&server, Span::default(), &store, &files, &mut Diagnostics::default()).unwrap();
        let said = ask(&connector, address, Some("s.test")).await.unwrap();
        assert!(said.contains("peer=true verify=0"), "{said}");
        assert_eq!(store.certificate("/me.pem").unwrap().status, Status::Used);
        assert_eq!(store.delete_authority(AuthorityKind::Ca, "/ca.pem").unwrap_err().refusal, Refusal::InUse);

        store.set_certificate("/me.pem", &other.sign(Kind::P256, "me")).unwrap();
        assert_eq!(store.commit_certificate("/me.pem"), Ok(1));
        assert!(ask(&connector, address, Some("s.test")).await.is_err(), "the server does not know this client");
        store.set_certificate("/me.pem", &ca.sign(Kind::P256, "me")).unwrap();
        store.commit_certificate("/me.pem").unwrap();
        ask(&connector, address, Some("s.test")).await.unwrap();
        store.set_authority(AuthorityKind::Ca, "/ca.pem", &other.pem, false).unwrap();
        assert_eq!(store.commit_authority(AuthorityKind::Ca, "/ca.pem"), Ok(1));
        assert!(ask(&connector, address, Some("s.test")).await.is_err(), "we do not know this server any more");

        drop(connector);
        assert_eq!(store.certificate("/me.pem").unwrap().status, Status::Unused, "the server is gone");
        store.delete_certificate("/me.pem").unwrap();
        store.delete_authority(AuthorityKind::Ca, "/ca.pem").unwrap();
    });
}

#[test]
fn a_response_set_at_run_time_is_sent_along() {
    let ca = Authority::new("ca");
    let sign = |serial: u64| ca.sign_with(Kind::P256, "a.test", |params| params.serial_number = Some(serial.into()));
    let pem = sign(0x1001);
    let mut files = files(&[("/a.pem", &pem), ("/a.pem.issuer", &ca.pem), ("/b.pem", &sign(0x1002))]);
    files.0.insert("/a.pem.ocsp".into(), Vec::new());
    let base64 = |der: &[u8]| {
        use base64::Engine;
        base64::engine::general_purpose::STANDARD.encode(der)
    };
    let store = shared();
    let _acceptor = build(crt(&["/a.pem", "/b.pem"]), &store, &files);
    let before = store.response("/a.pem").unwrap();
    assert_eq!((before.serial.as_str(), before.answer), ("1001", None));
    assert!(
        before.key.starts_with("303b300906052b0e03021a05000414") && before.key.ends_with("02021001"),
        "{}",
        before.key
    );

    let good = ca.ocsp(0x1001, true);
    for (response, expected) in [
        ("bad!!".to_owned(), "'set ssl ocsp-response' received invalid base64 encoded response."),
        (base64(b"not OCSP"), "Unable to parse OCSP response."),
        (
            base64(&ca.ocsp(0x1002, true)),
            "OCSP single response: Certificate ID does not match any certificate or issuer.",
        ),
    ] {
        assert_eq!(store.set_response(&response).unwrap_err().to_string(), expected);
    }
    assert_eq!(store.response("/a.pem").unwrap().answer, None);
    store.set_response(&base64(&ca.ocsp(0x1001, false))).unwrap();
    assert_eq!(store.response(&before.key).unwrap().answer.unwrap().status, "revoked");
    store.set_response(&base64(&good)).unwrap();
    let after = store.response(&before.key).unwrap();
    assert_eq!(after.der, good);
    assert_eq!(after.answer.unwrap().status, "good");

    // In a transaction, with the certificate it is about.
    store.set_certificate("/a.pem", &pem).unwrap();
    store.set_certificate("/a.pem.issuer", &ca.pem).unwrap();
    store.set_certificate("/a.pem.ocsp", &base64(&ca.ocsp(0x1002, true))).unwrap();
    assert!(store.commit_certificate("/a.pem").unwrap_err().to_string().contains("does not match"));
    store.set_certificate("/a.pem.ocsp", &base64(&good)).unwrap();
    store.commit_certificate("/a.pem").unwrap();
    assert_eq!(store.response("/a.pem").unwrap().der, good);
}

#[test]
fn a_dump_can_be_loaded_again() {
    let ca = Authority::new("ca");
    let pem = ca.sign(Kind::P256, "a.test") + &ca.pem;
    let store = shared();
    let _acceptor = build(crt(&["/a.pem"]), &store, &files(&[("/a.pem", &pem)]));
    let before = store.certificate("/a.pem").unwrap();
    assert_eq!(before.chain.len(), 2);
    let dump = store.dump_certificate("/a.pem").unwrap();
    store.set_certificate("/a.pem", &dump).unwrap();
    store.commit_certificate("/a.pem").unwrap();
    assert_eq!(store.certificate("/a.pem").unwrap(), before);
}

#[test]
fn names_are_told_with_their_certificates() {
    let files = files(&[
        ("/list", "/a.pem [] *.a.test !x.a.test\n/b.pem\n"),
        ("/a.pem", &named(&["a.test"])),
        ("/b.pem", &named(&["b.test"])),
    ]);
    let store = shared();
    let _acceptor = build(BindTls { crt_list: vec![path("/list")], ..BindTls::default() }, &store, &files);
    let names: Vec<_> =
        store.names(None).into_iter().map(|view| (view.name, view.excluded, view.certificate)).collect();
    let of_a = |name: &str| (name.to_owned(), vec!["x.a.test".to_owned()], "/a.pem".to_owned());
    assert_eq!(names, [of_a("*.a.test"), ("b.test".to_owned(), Vec::new(), "/b.pem".to_owned())]);
    assert!(store.names(Some("another")).is_empty());
}

/// Commits while clients come and while one stays: no client fails, and the one that stays is not closed. With PENSTOCK_ENDURANCE=1
/// a thousand of them beside five thousand other certificates, the memory looked at, and what the one that stays waits told.
#[test]
fn commits_under_load_cost_no_connection_and_no_memory() {
    let long = std::env::var_os("PENSTOCK_ENDURANCE").is_some();
    let (commits, others) = if long { (1000, 5000) } else { (60, 100) };
    let pems: Vec<String> = (0..4).map(|_| named(&["a.test", "www.a.test"])).collect();
    let mut files = files(&[("/dir/a.pem", &pems[0])]);
    for other in 0..others {
        files.0.insert(format!("/dir/z{other}.pem").into(), named(&[&format!("z{other}.test")]).into_bytes());
    }
    let store = shared();
    let acceptor = build(crt(&["/dir"]), &store, &files);
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        worker(async {
            tell.send(echo_server(acceptor).await).unwrap();
            std::future::pending::<()>().await;
        });
    });
    let address = told.recv().unwrap();
    let over = std::sync::atomic::AtomicBool::new(false);
    let is_over = || over.load(std::sync::atomic::Ordering::Relaxed);
    std::thread::scope(|scope| {
        let coming: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    worker(async {
                        let mut count = 0u32;
                        while !is_over() {
                            let socket = tokio::net::TcpStream::connect(address).await.unwrap();
                            let mut tls =
                                anyone().connect(socket, Some("a.test")).await.expect("a handshake during a commit");
                            assert_eq!(round_trip(&mut tls).await.unwrap(), *b"x");
                            count += 1;
                        }
                        count
                    })
                })
            })
            .collect();
        let staying = scope.spawn(|| {
            worker(async {
                let socket = tokio::net::TcpStream::connect(address).await.unwrap();
                let mut tls = anyone().connect(socket, Some("a.test")).await.unwrap();
                let mut times = Vec::new();
                while !is_over() {
                    let began = std::time::Instant::now();
                    assert_eq!(round_trip(&mut tls).await.unwrap(), *b"x");
                    times.push((began, began.elapsed()));
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                }
                times
            })
        });
        let commit = |number: usize| {
            store.set_certificate("/dir/a.pem", &pems[number % pems.len()]).unwrap();
            assert_eq!(store.commit_certificate("/dir/a.pem"), Ok(1));
            std::thread::sleep(std::time::Duration::from_millis(5));
        };
        let idle = std::time::Duration::from_millis(if long { 6000 } else { 50 });
        std::thread::sleep(idle);
        (0..commits / 5).for_each(commit);
        let (began, before) = (std::time::Instant::now(), resident_kib());
        (0..commits).for_each(commit);
        let after = resident_kib();
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        let came: u32 = coming.into_iter().map(|one| one.join().unwrap()).sum();
        let times = staying.join().unwrap();
        assert!(came > 10 && times.len() > 10, "{came} came, the one that stayed asked {} times", times.len());
        if long {
            let start = times[0].0;
            let p99 = |during: &dyn Fn(std::time::Instant) -> bool| {
                let mut chosen: Vec<_> = times.iter().filter(|(at, _)| during(*at)).map(|(_, took)| *took).collect();
                chosen.sort();
                (chosen.len(), chosen[chosen.len() / 2], chosen[chosen.len() * 99 / 100])
            };
            println!("{came} handshakes; memory {before} KiB, after {commits} commits {after} KiB");
            println!("round trips without commits: n, median, p99 {:?}", p99(&|at| at < start + idle));
            println!("round trips during commits: n, median, p99 {:?}", p99(&|at| at > began));
            // A thousand certificates that stayed would be some ten MiB.
            assert!(after < before + 3 * 1024, "{before} KiB before, {after} KiB after {commits} commits");
        }
    });
}

async fn round_trip(tls: &mut penstock_tls::TlsStream<tokio::net::TcpStream>) -> std::io::Result<[u8; 1]> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    tls.write_all(b"x").await?;
    let mut byte = [0];
    tls.read_exact(&mut byte).await?;
    Ok(byte)
}

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
