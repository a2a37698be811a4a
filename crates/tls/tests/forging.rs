//! `generate-certificates`: certificates made while clients wait, on every engine, and what cannot sign them.

mod common;

use common::*;
use penstock_config::{
    Config, Diagnostics, Env, Source, Span, Spanned,
    model::{Bind, BindTls, ServerTls, TlsConf, Verify},
};
use penstock_engine::{Class, Settings, worker};
use penstock_lanes::Lanes;
use penstock_tls::{Acceptor, Connector, HandshakeError, Memory, Store, store::AuthorityKind};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, KeyUsagePurpose, date_time_ymd};
use std::{net::IpAddr, process::Command, rc::Rc};
use tokio::io::{DuplexStream, duplex};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// What can be wrong with an authority, and what is not.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    NoAuthority,
    MayNotSign,
    Expired,
}

/// The parts of an authority's file: its certificate and its key.
fn authority(kind: Kind, fault: Fault) -> (String, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::OrganizationName, "Forging & Söhne");
    params.distinguished_name.push(DnType::CommonName, "Authority");
    params.is_ca =
        if fault == Fault::NoAuthority { IsCa::ExplicitNoCa } else { IsCa::Ca(BasicConstraints::Unconstrained) };
    let may = if fault == Fault::MayNotSign { KeyUsagePurpose::CrlSign } else { KeyUsagePurpose::KeyCertSign };
    params.key_usages = vec![may, KeyUsagePurpose::DigitalSignature];
    if fault == Fault::Expired {
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
    }
    let key = key(kind);
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

/// The TLS settings of a line that makes certificates, as a configuration says it.
fn forging(pass: Option<&str>, chain: bool) -> BindTls {
    let pass = pass.map_or_else(String::new, |pass| format!("ca-sign-pass '{pass}'"));
    let chain = if chain { "ca-sign-use-chain" } else { "" };
    let line = format!("bind :443 ssl crt /own.pem generate-certificates ca-sign-file /ca.pem {pass} {chain}");
    let source = Source { name: "test.cfg".into(), text: format!("frontend f\n    mode tcp\n    {line}\n") };
    let (config, said) = penstock_config::load([source], &Env::default());
    assert!(!said.has_errors(), "{said:?}");
    config.proxies.iter().next().unwrap().binds[0].tls.clone().unwrap()
}

/// The files of a line whose authority's file has this content.
fn with_authority(pem: &str, certificate: &str) -> Memory {
    files(&[("/own.pem", &self_signed(Kind::P256, &["own.test"])), ("/ca.pem", pem), ("/ca.crt", certificate)])
}

#[track_caller]
fn built(store: &Store, bind: &Bind, files: &Memory) -> Acceptor {
    let mut said = Diagnostics::default();
    let acceptor = Acceptor::build(&Config::default(), bind, store, files, &mut said);
    assert!(!said.has_errors(), "{said:?}");
    acceptor.unwrap()
}

/// Why a line cannot be used.
fn refusal(tls: BindTls, files: &Memory) -> String {
    let mut said = Diagnostics::default();
    let acceptor = Acceptor::build(&Config::default(), &bind(tls), &shared(), files, &mut said);
    assert!(acceptor.is_none());
    said.list.iter().map(|diagnostic| diagnostic.message.as_str()).collect::<Vec<_>>().join("; ")
}

fn ends() -> (DuplexStream, DuplexStream) {
    duplex(64 * 1024)
}

/// One handshake. Both sides' results; the chain that the client was shown.
async fn visit(
    acceptor: &Acceptor,
    connector: &Connector,
    name: Option<&str>,
    destination: Option<IpAddr>,
) -> (Result<(), HandshakeError>, Result<Vec<Vec<u8>>, HandshakeError>) {
    let (here, there) = ends();
    let server = async { acceptor.accept_at(here, Vec::new(), || destination).await.map(drop) };
    let client = async {
        let tls = connector.connect(there, name).await?;
        Ok(tls.facts().peer.as_ref().map(|peer| peer.chain.clone()).unwrap_or_default())
    };
    tokio::join!(server, client)
}

const CLIENTS: usize = 24;

#[test]
fn every_engine_signs_certificates_that_clients_verify() {
    let (certificate, key) = authority(Kind::Rsa2048, Fault::None);
    let files = with_authority(&(certificate.clone() + &key), &certificate);
    for engine in engines() {
        let store = Store::new(&Config::default());
        let acceptor = Rc::new(built(&store, &bind(forging(None, false)), &files));
        let connector = Rc::new(connector(trusting("/ca.crt", TlsConf::default()), &files));
        behind(engine, async {
            for round in 0..2 {
                let mut tasks = Vec::new();
                for number in 0..CLIENTS {
                    let (acceptor, connector) = (acceptor.clone(), connector.clone());
                    tasks.push(tokio::task::spawn_local(async move {
                        let name = format!("host{number}.test");
                        let (server, client) = visit(&acceptor, &connector, Some(&name), None).await;
                        server.and(client.map(drop)).unwrap_or_else(|e| panic!("{name}, round {round}: {e}"));
                    }));
                }
                for task in tasks {
                    task.await.unwrap();
                }
            }
        });
        let counts = store.forgeries();
        assert_eq!((counts.made, counts.kept, counts.refused), (24, 24, 0), "{engine:?}");
    }
}

#[test]
fn handshakes_for_one_new_name_wait_for_one_signature() {
    let (certificate, key) = authority(Kind::Rsa2048, Fault::None);
    let files = with_authority(&(certificate.clone() + &key), &certificate);
    for engine in engines() {
        let store = Store::new(&Config::default());
        let acceptor = Rc::new(built(&store, &bind(forging(None, false)), &files));
        let connector = Rc::new(connector(trusting("/ca.crt", TlsConf::default()), &files));
        behind(engine, async {
            let mut tasks = Vec::new();
            for number in 0..CLIENTS {
                let (acceptor, connector) = (acceptor.clone(), connector.clone());
                tasks.push(tokio::task::spawn_local(async move {
                    if number % 6 == 0 {
                        // Whoever leaves, maybe while it has the certificate signed for all, keeps nobody waiting.
                        let visit = visit(&acceptor, &connector, Some("new.test"), None);
                        let _ = tokio::time::timeout(std::time::Duration::from_micros(number as u64 * 50), visit).await;
                        return;
                    }
                    let (server, client) = visit(&acceptor, &connector, Some("new.test"), None).await;
                    server.and(client.map(drop)).unwrap_or_else(|e| panic!("{engine:?}: {e}"));
                }));
            }
            for task in tasks {
                task.await.unwrap();
            }
        });
        let counts = store.forgeries();
        assert_eq!((counts.made, counts.refused), (1, 0), "{engine:?}");
    }
}

#[test]
fn signatures_of_the_authority_share_batches() {
    let (certificate, key) = authority(Kind::Rsa2048, Fault::None);
    let files = with_authority(&(certificate.clone() + &key), &certificate);
    let acceptor = Rc::new(built(&shared(), &bind(forging(None, false)), &files));
    let connector = Rc::new(connector(trusting("/ca.crt", TlsConf::default()), &files));
    let counters = on_lanes(Lanes::portable(), async {
        let mut tasks = Vec::new();
        for number in 0..CLIENTS {
            let (acceptor, connector) = (acceptor.clone(), connector.clone());
            tasks.push(tokio::task::spawn_local(async move {
                let _ = visit(&acceptor, &connector, Some(&format!("host{number}.test")), None).await;
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        worker::counters()
    });
    // The line's own certificate is ECDSA: whatever RSA was computed is the authority's.
    let rsa = counters.class(Class::ALL.into_iter().find(|class| class.name() == "rsa2048").unwrap());
    assert_eq!(rsa.ops, CLIENTS as u64);
    assert!(rsa.mean_fill().is_some_and(|fill| fill >= 3.0), "{:?} operations a batch", rsa.mean_fill());
}

#[test]
fn a_certificate_has_the_authority_as_issuer_the_name_as_alternative_and_ends_in_time() {
    for kind in [Kind::Rsa2048, Kind::Rsa4096, Kind::P256, Kind::P384] {
        let (certificate, key) = authority(kind, Fault::None);
        let files = with_authority(&(certificate.clone() + &key), &certificate);
        let acceptor = built(&shared(), &bind(forging(None, true)), &files);
        let connector = connector(trusting("/ca.crt", TlsConf::default()), &files);
        let long = format!("{}.{}.test", "a".repeat(60), "b".repeat(60));
        on_worker(None, Settings::default(), async {
            for name in ["WWW.host.test", &long] {
                let (server, client) = visit(&acceptor, &connector, Some(name), None).await;
                server.unwrap();
                let chain = client.unwrap();
                let [leaf, above] = chain.as_slice() else { panic!("{} certificates", chain.len()) };
                let (leaf, above) =
                    (X509Certificate::from_der(leaf).unwrap().1, X509Certificate::from_der(above).unwrap().1);
                assert_eq!(leaf.issuer().as_raw(), above.subject().as_raw());
                assert!(!leaf.is_ca());
                let alternative = leaf.subject_alternative_name().unwrap().unwrap();
                let name = name.to_ascii_lowercase();
                assert_eq!(alternative.value.general_names, [GeneralName::DNSName(&name)]);
                // A common name has at most 64 characters; a subject may be empty if the alternative name is critical.
                let common = leaf.subject().iter_common_name().next().map(|common| common.as_str().unwrap().to_owned());
                assert_eq!(
                    (common, alternative.critical),
                    if name.len() > 64 { (None, true) } else { (Some(name), false) }
                );
                assert!(leaf.validity().is_valid() && leaf.validity().not_after <= above.validity().not_after);
                assert!(leaf.raw_serial().len() <= 20 && leaf.raw_serial()[0] < 0x80);
            }
        });
    }
}

#[test]
fn what_is_no_name_gets_the_lines_own_certificate_or_with_strict_sni_none() {
    let (certificate, key) = authority(Kind::P256, Fault::None);
    let own = self_signed(Kind::P256, &["own.test"]);
    let files = files(&[("/own.pem", &own), ("/ca.pem", &(certificate.clone() + &key)), ("/ca.crt", &certificate)]);
    let store = Store::new(&Config::default());
    let lenient = built(&store, &bind(forging(None, false)), &files);
    let strict = built(&store, &bind(BindTls { strict_sni: true, ..forging(None, false) }), &files);
    let address = "192.0.2.7".parse().ok();
    let transparent = built(&store, &Bind { transparent: true, ..bind(forging(None, false)) }, &files);
    let anyone = connector(
        ServerTls { conf: TlsConf { verify: Some(Verify::None), ..TlsConf::default() }, ..Default::default() },
        &files,
    );
    on_worker(None, Settings::default(), async {
        let issuer = |chain: Vec<Vec<u8>>| X509Certificate::from_der(&chain[0]).unwrap().1.issuer().to_string();
        let own = "CN=rcgen self signed cert";
        // A name with a certificate, and none at all.
        assert_eq!(issuer(visit(&lenient, &anyone, Some("own.test"), None).await.1.unwrap()), own);
        assert_eq!(issuer(visit(&lenient, &anyone, None, address).await.1.unwrap()), own);
        let (server, client) = visit(&strict, &anyone, None, address).await;
        assert!(matches!(server, Err(HandshakeError::UnknownName)) && client.is_err());
        assert_eq!(store.forgeries(), Default::default());
        // A transparent proxy's client with an address in its URL.
        let chain = visit(&transparent, &anyone, None, address).await.1.unwrap();
        let (_, leaf) = X509Certificate::from_der(&chain[0]).unwrap();
        let alternative = leaf.subject_alternative_name().unwrap().unwrap();
        assert_eq!(alternative.value.general_names, [GeneralName::IPAddress(&[192, 0, 2, 7])]);
        assert_eq!(store.forgeries().made, 1);
        assert!(visit(&strict, &anyone, Some("any.test"), None).await.0.is_ok(), "a made certificate counts");
    });
    // A ClientHello with a name that rustls would not send.
    let hello = hello_for("*.test");
    on_worker(None, Settings::default(), async {
        let before = store.forgeries();
        let (here, _there) = ends();
        let refused = strict.accept(here, hello.clone()).await.map(drop);
        assert!(matches!(refused, Err(HandshakeError::UnknownName)), "{refused:?}");
        let after = store.forgeries();
        assert_eq!((after.made - before.made, after.refused - before.refused), (0, 1));
    });
}

/// The ClientHello of OpenSSL's client for this name.
fn hello_for(name: &str) -> Vec<u8> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut client = Command::new("openssl")
        .args(["s_client", "-connect", &address, "-servername", name])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let (mut socket, _) = listener.accept().unwrap();
    let mut hello = vec![0; 4096];
    let read = std::io::Read::read(&mut socket, &mut hello).unwrap();
    hello.truncate(read);
    client.kill().unwrap();
    client.wait().unwrap();
    hello
}

#[test]
fn only_so_many_are_kept_and_those_used_last() {
    let (certificate, key) = authority(Kind::P256, Fault::None);
    let files = with_authority(&(certificate.clone() + &key), &certificate);
    let mut config = Config::default();
    config.global.tune.ssl_ctx_cache_size = 2;
    let store = Store::new(&config);
    let acceptor = built(&store, &bind(forging(None, false)), &files);
    let connector = connector(trusting("/ca.crt", TlsConf::default()), &files);
    on_worker(None, Settings::default(), async {
        // `b` is used least recently when `c` comes.
        for (name, made, kept) in [("a", 1, 0), ("b", 2, 0), ("a", 2, 1), ("c", 3, 1), ("a", 3, 2), ("b", 4, 2)] {
            let name = format!("{name}.test");
            visit(&acceptor, &connector, Some(&name), None).await.0.unwrap();
            let counts = store.forgeries();
            assert_eq!((counts.made, counts.kept), (made, kept), "{name}");
        }
    });
}

#[test]
fn an_authority_that_cannot_sign_is_refused_at_start() {
    let (certificate, key) = authority(Kind::P256, Fault::None);
    let line = || forging(None, false);
    let other = self_signed(Kind::P256, &["a.test"]);
    let said = |pem: &str| refusal(line(), &with_authority(pem, &certificate));
    assert_eq!(said(""), "'/ca.pem' holds no certificate");
    assert!(said(&certificate).contains("no private key for '/ca.pem'"));
    let mismatched = certificate.clone() + other.split_once("-----END CERTIFICATE-----\n").unwrap().1;
    assert_eq!(said(&mismatched), "the private key of '/ca.pem' does not belong to its certificate");
    for (fault, why) in [(Fault::NoAuthority, "no basic constraint CA:TRUE"), (Fault::MayNotSign, "keyCertSign")] {
        let (certificate, key) = authority(Kind::P256, fault);
        assert!(said(&(certificate + &key)).contains(why));
    }
    assert!(
        said(&(certificate.clone() + &key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"))).contains("is encrypted")
    );
    // HAProxy starts with one that has expired, and so do we, with a notice; it signs nothing.
    let (certificate, key) = authority(Kind::P256, Fault::Expired);
    let files = with_authority(&(certificate.clone() + &key), &certificate);
    let store = Store::new(&Config::default());
    let acceptor = built(&store, &bind(BindTls { strict_sni: true, ..line() }), &files);
    let connector = connector(trusting("/ca.crt", TlsConf::default()), &files);
    on_worker(None, Settings::default(), async {
        let (server, client) = visit(&acceptor, &connector, Some("a.test"), None).await;
        assert!(matches!(server, Err(HandshakeError::UnknownName)) && client.is_err());
    });
    assert_eq!((store.forgeries().made, store.forgeries().refused), (0, 1));
}

#[test]
fn the_authority_for_servers_that_do_not_validate_is_another_one() {
    let (certificate, key) = authority(Kind::P256, Fault::None);
    let (other, other_key) = authority(Kind::P256, Fault::None);
    let with_second = |pem: &str| {
        let mut tls = forging(None, false);
        let file = Spanned { value: "/second.pem".into(), span: Span::default() };
        tls.generate.as_mut().unwrap().ca_sign_untrusted = Some(file);
        let own = self_signed(Kind::P256, &["own.test"]);
        (tls, files(&[("/own.pem", &own), ("/ca.pem", &(certificate.clone() + &key)), ("/second.pem", pem)]))
    };
    let (tls, files) = with_second(&(other + &other_key));
    built(&shared(), &bind(tls), &files);
    // The same file, and another certificate of the same key.
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let again = params.self_signed(&KeyPair::from_pem(&key).unwrap()).unwrap().pem();
    for pem in [&certificate, &again] {
        let (tls, files) = with_second(&(pem.clone() + &key));
        assert!(refusal(tls, &files).contains("clients would trust every server"));
    }
}

/// The key, encrypted as this command of OpenSSL's does it.
fn encrypted(key: &str, arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    std::fs::write(&file, key).unwrap();
    let output = Command::new("openssl").args(arguments).arg("-in").arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_key_under_a_passphrase_is_opened_with_ca_sign_pass() {
    let (certificate, key) = authority(Kind::P256, Fault::None);
    let topk8 = ["pkcs8", "-topk8", "-passout", "pass:open sesame"];
    let ways: [&[&str]; 5] = [
        &[],
        &["-v2", "aes-128-cbc"],
        &["-v2prf", "hmacWithSHA1"],
        &["-v2prf", "hmacWithSHA512", "-iter", "20000"],
        &["-v2prf", "hmacWithSHA384"],
    ];
    for way in ways {
        let locked = encrypted(&key, &[&topk8, way].concat());
        let files = with_authority(&(certificate.clone() + &locked), &certificate);
        let acceptor = built(&shared(), &bind(forging(Some("open sesame"), false)), &files);
        let connector = connector(trusting("/ca.crt", TlsConf::default()), &files);
        on_worker(None, Settings::default(), async {
            let (server, client) = visit(&acceptor, &connector, Some("a.test"), None).await;
            server.and(client.map(drop)).unwrap();
        });
        let wrong = refusal(forging(Some("open barley"), false), &files);
        assert_eq!(wrong, "the private key in '/ca.pem' has another passphrase", "{way:?}");
        assert!(refusal(forging(None, false), &files).contains("is encrypted"));
    }
    let old = encrypted(&key, &["ec", "-aes128", "-passout", "pass:open sesame"]);
    let scrypt = encrypted(&key, &[&topk8[..], &["-scrypt"]].concat());
    for unsupported in [old, scrypt] {
        let files = with_authority(&(certificate.clone() + &unsupported), &certificate);
        let why = refusal(forging(Some("open sesame"), false), &files);
        assert!(why.contains("encrypted in a way that is not supported"), "{why}");
    }
}

#[test]
fn nothing_made_under_the_previous_policy_on_clients_is_presented_again() {
    let (certificate, key) = authority(Kind::P256, Fault::None);
    let files = with_authority(&(certificate.clone() + &key), &certificate);
    let store = Store::new(&Config::default());
    let conf = TlsConf { verify: Some(Verify::Optional), ca_file: Some(path("/ca.crt")), ..TlsConf::default() };
    let acceptor = built(&store, &bind(BindTls { conf, ..forging(None, false) }), &files);
    let connector = connector(trusting("/ca.crt", TlsConf::default()), &files);
    on_worker(None, Settings::default(), async {
        for made in [1, 1, 2] {
            if made == 2 {
                store
                    .set_authority(AuthorityKind::Ca, "/ca.crt", &authority(Kind::P384, Fault::None).0, false)
                    .unwrap();
                store.commit_authority(AuthorityKind::Ca, "/ca.crt").unwrap();
            }
            visit(&acceptor, &connector, Some("a.test"), None).await.0.unwrap();
            assert_eq!(store.forgeries().made, made);
        }
    });
}
