//! Which certificate a client gets, and every sentence about one that cannot be had.

mod common;

use common::*;
use penstock_config::{
    Config, Diagnostics, Severity,
    model::{BindTls, ServerTls, TlsConf, TlsVersion, Verify},
};
use penstock_engine::Settings;
use penstock_tls::{Acceptor, Connector, Memory};

/// A client that trusts everybody, and has these words.
fn anyone(conf: TlsConf) -> Connector {
    let conf = TlsConf { verify: Some(Verify::None), ..conf };
    connector(ServerTls { conf, ..ServerTls::default() }, &Memory::default())
}

/// Whose signatures it can verify is decided by its suites, in TLS 1.2.
fn only(ciphers: &str) -> Connector {
    anyone(TlsConf { ciphers: Some(text(ciphers)), max_ver: Some(TlsVersion::Tls12), ..TlsConf::default() })
}

fn worker<R>(body: impl Future<Output = R>) -> R {
    on_worker(None, Settings::default(), body)
}

#[test]
fn rsa_and_ecdsa_stand_side_by_side_for_one_name() {
    let ca = Authority::new("ca");
    let files = files(&[
        ("/site.pem.rsa", &ca.sign(Kind::Rsa2048, "site.test")),
        ("/site.pem.ecdsa", &ca.sign(Kind::P256, "site.test")),
        ("/other.pem", &ca.sign(Kind::P256, "other.test")),
    ]);
    worker(async {
        let address = facts_server(acceptor(crt(&["/site.pem", "/other.pem"]), &files)).await;
        for sni in [None, Some("site.test"), Some("unknown.test")] {
            // With no name to go by, an RSA-only client still gets the RSA half of the bundle.
            let said = ask(&only("ECDHE-RSA-AES128-GCM-SHA256"), address, sni).await.unwrap();
            assert!(
                said.contains("cipher=ECDHE-RSA-AES128-GCM-SHA256") && said.ends_with("server=site.test"),
                "{said}"
            );
            let said =
                ask(&only("ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256"), address, sni).await.unwrap();
            assert!(said.contains("cipher=ECDHE-ECDSA-AES128-GCM-SHA256"), "{said}");
        }
        let said = ask(&anyone(TlsConf::default()), address, Some("other.test")).await.unwrap();
        assert!(said.contains("version=TLSv1.3") && said.ends_with("server=other.test"), "{said}");
    });
}

#[test]
fn names_choose_and_strict_sni_refuses() {
    let ca = Authority::new("ca");
    let files = files(&[
        ("/d/a.pem", &ca.sign(Kind::P256, "first.test")),
        ("/d/b.pem", &ca.sign(Kind::P256, "*.wild.test")),
        ("/d/b.pem.ocsp", ""),
        ("/d/.hidden", "not a certificate"),
    ]);
    worker(async {
        let client = anyone(TlsConf::default());
        let address = facts_server(acceptor(crt(&["/d"]), &files)).await;
        for (sni, server) in [
            (Some("first.test"), "first.test"),
            (Some("x.WILD.test"), "*.wild.test"),
            (Some("x.y.wild.test"), "first.test"),
            (None, "first.test"),
        ] {
            let said = ask(&client, address, sni).await.unwrap();
            assert!(said.ends_with(&format!("server={server}")), "{sni:?}: {said}");
        }
        let strict = BindTls { strict_sni: true, ..crt(&["/d"]) };
        let address = facts_server(acceptor(strict, &files)).await;
        assert!(ask(&client, address, Some("x.wild.test")).await.is_ok());
        for sni in [None, Some("nobody.test")] {
            let refused = ask(&client, address, sni).await.unwrap_err();
            assert!(refused.contains("UnrecognizedName") || refused.contains("UnrecognisedName"), "{refused}");
        }
    });
}

#[test]
fn a_crt_list_line_has_its_own_settings() {
    let ca = Authority::new("ca");
    let files = files(&[
        ("/default.pem", &ca.sign(Kind::P256, "default.test")),
        ("/open.pem", &ca.sign(Kind::P256, "open.test")),
        ("/guarded.pem", &ca.sign(Kind::P256, "guarded.test")),
        ("/ca.pem", &ca.pem),
        (
            "/list",
            "/default.pem !*\n/open.pem [alpn h2,http/1.1 ssl-max-ver TLSv1.2] *.open.test !shut.open.test\n\
             /guarded.pem [verify required ca-file /ca.pem ciphersuites TLS_AES_256_GCM_SHA384]\n",
        ),
    ]);
    worker(async {
        let tls = BindTls { crt_list: vec![path("/list")], ..BindTls::default() };
        let address = facts_server(acceptor(tls, &files)).await;
        let client = anyone(TlsConf { alpn: Some(vec!["h2".to_owned()]), ..TlsConf::default() });
        let said = ask(&client, address, Some("a.open.test")).await.unwrap();
        assert!(
            said.contains("version=TLSv1.2") && said.contains("alpn=h2") && said.ends_with("server=open.test"),
            "{said}"
        );
        // A client whose protocols we do not have is served without ALPN, as OpenSSL does.
        let said = ask(&client, address, Some("shut.open.test")).await.unwrap();
        assert!(said.contains("alpn=-") && said.ends_with("server=default.test"), "{said}");
        let said = ask(&client, address, Some("open.test")).await.unwrap();
        assert!(said.ends_with("server=default.test"), "filters replace the certificate's own names: {said}");
        assert!(ask(&client, address, Some("guarded.test")).await.is_err(), "no client certificate");
    });
}

#[test]
fn a_key_may_stand_beside_its_certificate() {
    let pem = self_signed(Kind::Rsa2048, &["a.test"]);
    let (cert, key) = pem.split_at(pem.find("-----BEGIN PRIVATE KEY").unwrap());
    let files = files(&[("/a.pem", cert), ("/a.pem.key", key)]);
    acceptor(crt(&["/a.pem"]), &files);
}

fn complaints(tls: BindTls, files: &Memory) -> Vec<(Severity, String)> {
    let mut diagnostics = Diagnostics::default();
    let built = Acceptor::build(&Config::default(), &bind(tls), &shared(), files, &mut diagnostics);
    assert_eq!(built.is_none(), diagnostics.has_errors());
    diagnostics.list.into_iter().map(|d| (d.severity, d.message)).collect()
}

#[test]
fn each_thing_wrong_is_its_own_sentence_and_all_are_said_at_once() {
    let ca = Authority::new("ca");
    let good = ca.sign(Kind::P256, "good.test");
    let split = good.find("-----BEGIN PRIVATE KEY").unwrap();
    let other_key = key(Kind::P256).serialize_pem();
    let expired = ca.sign_with(Kind::P256, "old.test", |params| params.not_after = rcgen::date_time_ymd(2021, 5, 6));
    let files = files(&[
        ("/nokey.pem", &good[..split]),
        ("/nocert.pem", &good[split..]),
        ("/mismatch.pem", &(good[..split].to_owned() + &other_key)),
        (
            "/encrypted.pem",
            &(good[..split].to_owned()
                + "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n-----END ENCRYPTED PRIVATE KEY-----\n"),
        ),
        ("/broken.pem", "-----BEGIN CERTIFICATE-----\nMIIB!!\n-----END CERTIFICATE-----\n"),
        ("/expired.pem", &expired),
        ("/list", "/expired.pem [verify sometimes]\n/gone.pem\n"),
    ]);
    let mut tls = crt(&[
        "/absent.pem",
        "/nokey.pem",
        "/nocert.pem",
        "/mismatch.pem",
        "/encrypted.pem",
        "/broken.pem",
        "/expired.pem",
    ]);
    tls.crt_list = vec![path("/list")];
    tls.conf.ciphers = Some(text("AES128-SHA"));
    let said = complaints(tls, &files);
    for (severity, expected) in [
        (Severity::Error, "certificate '/absent.pem' cannot be read: it does not exist"),
        (
            Severity::Error,
            "no private key for '/nokey.pem': none in it, and '/nokey.pem.key' cannot be read: it does not exist",
        ),
        (Severity::Error, "'/nocert.pem' holds no certificate"),
        (Severity::Error, "the private key of '/mismatch.pem' does not belong to its certificate"),
        (Severity::Error, "the private key in '/encrypted.pem' is encrypted"),
        (Severity::Error, "'/broken.pem' is not valid PEM"),
        (Severity::Notice, "the certificate in '/expired.pem' expired on"),
        (Severity::Error, "/list:1: 'verify sometimes'"),
        (Severity::Error, "/list:2: certificate '/gone.pem' cannot be read"),
        (Severity::Error, "'ciphers AES128-SHA' leaves nothing that we can speak"),
    ] {
        assert!(
            said.iter().any(|(s, message)| *s == severity && message.starts_with(expected)),
            "{expected}\n{said:#?}"
        );
    }
}

#[test]
fn a_line_without_certificate_or_authority_does_not_start() {
    let files = files(&[("/a.pem", &self_signed(Kind::P256, &["a.test"]))]);
    let said = complaints(BindTls::default(), &files);
    assert!(said[0].1.contains("without a certificate"), "{said:?}");
    let mut tls = crt(&["/a.pem"]);
    tls.conf.verify = Some(Verify::Required);
    let said = complaints(tls, &files);
    assert!(said[0].1.contains("no authority is named"), "{said:?}");
}

#[test]
fn keys_come_in_every_form_openssl_writes() {
    let folder = tempfile::tempdir().unwrap();
    let openssl = |arguments: &str| {
        let output = std::process::Command::new("openssl")
            .args(arguments.split(' '))
            .current_dir(folder.path())
            .output()
            .expect("openssl is installed");
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    };
    for (form, begins, make) in [
        ("pkcs1", "RSA PRIVATE KEY", "genrsa -traditional -out key 2048"),
        ("pkcs8", "PRIVATE KEY", "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out key"),
        ("sec1", "EC PARAMETERS", "ecparam -genkey -name prime256v1 -out key"),
        ("sec1-384", "EC PRIVATE KEY", "ecparam -genkey -noout -name secp384r1 -out key"),
        ("sec1-521", "EC PRIVATE KEY", "ecparam -genkey -noout -name secp521r1 -out key"),
        ("ed25519", "PRIVATE KEY", "genpkey -algorithm ED25519 -out key"),
    ] {
        openssl(make);
        openssl("req -x509 -new -key key -subj /CN=a.test -days 2 -out cert");
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(read("key").contains(&format!("BEGIN {begins}")), "{form}");
        let files = files(&[("/a.pem", &(read("cert") + &read("key")))]);
        worker(async {
            let address = facts_server(acceptor(crt(&["/a.pem"]), &files)).await;
            let said = ask(&anyone(TlsConf::default()), address, Some("a.test")).await.unwrap();
            assert!(said.ends_with("server=a.test"), "{form}: {said}");
        });
    }
    openssl("genrsa -aes128 -passout pass:x -traditional -out key 2048");
    let pem = std::fs::read_to_string(folder.path().join("cert")).unwrap()
        + &std::fs::read_to_string(folder.path().join("key")).unwrap();
    let said = complaints(crt(&["/a.pem"]), &files(&[("/a.pem", &pem)]));
    assert!(said[0].1.contains("is encrypted"), "{said:?}");
}
