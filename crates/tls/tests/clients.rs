//! Client certificates, in OpenSSL's numbers, and servers that are verified.

mod common;

use common::*;
use penstock_config::model::{BindTls, ServerTls, TlsConf, TlsVersion, Verify};
use penstock_engine::{Settings, doubles::Manner};
use penstock_tls::{Connector, Memory};
use std::time::Duration;

struct Setup {
    files: Memory,
}

fn setup() -> Setup {
    let (ca, stranger) = (Authority::new("ca"), Authority::new("stranger"));
    let past = rcgen::date_time_ymd(2021, 1, 1);
    let future = rcgen::date_time_ymd(2080, 1, 1);
    let numbered =
        |serial: u64| ca.sign_with(Kind::P256, "client", |params| params.serial_number = Some(serial.into()));
    let list = [
        ("/site.pem", ca.sign(Kind::Rsa2048, "site.test")),
        ("/ca.pem", ca.pem.clone()),
        ("/stranger.pem", stranger.pem.clone()),
        ("/good.pem", numbered(7)),
        ("/good4096.pem", ca.sign(Kind::Rsa4096, "client")),
        ("/revoked.pem", numbered(8)),
        ("/crl.pem", ca.revoke(&[8])),
        ("/unknown.pem", stranger.sign(Kind::P256, "client")),
        ("/self.pem", self_signed(Kind::P256, &["client"])),
        ("/expired.pem", ca.sign_with(Kind::P256, "client", |params| params.not_after = past)),
        ("/early.pem", ca.sign_with(Kind::P256, "client", |params| params.not_before = future)),
    ];
    // The same from an authority that nobody trusts, alone and with that authority behind it.
    let forged = stranger.sign_with(Kind::P256, "client", |params| params.not_after = past);
    let with = |certificate: &str| format!("{certificate}{}", stranger.pem);
    let more = [
        ("/forged-chain.pem", with(&forged)),
        ("/forged.pem", forged),
        ("/unknown-chain.pem", with(&stranger.sign(Kind::P256, "client"))),
        (
            "/both.pem",
            ca.sign_with(Kind::P256, "client", |params| {
                params.not_after = past;
                params.serial_number = Some(8u64.into());
            }),
        ),
    ];
    let list: Vec<(&str, &str)> = list.iter().chain(&more).map(|(name, content)| (*name, content.as_str())).collect();
    Setup { files: files(&list) }
}

impl Setup {
    fn bind(&self, verify: Verify, change: impl FnOnce(&mut BindTls)) -> BindTls {
        let mut tls = crt(&["/site.pem"]);
        tls.conf = TlsConf { verify: Some(verify), ca_file: Some(path("/ca.pem")), ..TlsConf::default() };
        change(&mut tls);
        tls
    }

    fn client(&self, certificate: Option<&str>, max_ver: Option<TlsVersion>) -> Connector {
        let conf = TlsConf { ca_file: Some(path("/ca.pem")), max_ver, ..TlsConf::default() };
        connector(ServerTls { conf, crt: certificate.map(path), ..ServerTls::default() }, &self.files)
    }
}

fn worker<R>(body: impl Future<Output = R>) -> R {
    on_worker(None, Settings::default(), body)
}

#[test]
fn who_is_let_in_and_with_what_number_he_is_refused() {
    let setup = setup();
    worker(async {
        let crl = |tls: &mut BindTls| tls.conf.crl_file = Some(path("/crl.pem"));
        let required = facts_server(acceptor(setup.bind(Verify::Required, crl), &setup.files)).await;
        let optional = facts_server(acceptor(setup.bind(Verify::Optional, |_| ()), &setup.files)).await;
        for max_ver in [TlsVersion::Tls12, TlsVersion::Tls13] {
            let client = |certificate| setup.client(certificate, Some(max_ver));
            for good in ["/good.pem", "/good4096.pem"] {
                let said = ask(&client(Some(good)), required, Some("site.test")).await.unwrap();
                assert!(said.contains("peer=true verify=0"), "{said}");
                last_said().await;
            }
            for (certificate, number) in
                [("/revoked.pem", 23), ("/unknown.pem", 20), ("/self.pem", 18), ("/expired.pem", 10), ("/early.pem", 9)]
            {
                assert!(ask(&client(Some(certificate)), required, Some("site.test")).await.is_err());
                let said = last_said().await;
                let expected = format!("31: SSL client certificate not trusted (verification result {number})");
                assert_eq!(said, expected, "{certificate} {max_ver:?}");
            }
            assert!(ask(&client(None), required, Some("site.test")).await.is_err());
            assert!(last_said().await.starts_with("34: SSL handshake failure"));

            let said = ask(&client(None), optional, Some("site.test")).await.unwrap();
            assert!(said.contains("peer=false verify=0"), "{said}");
            assert!(ask(&client(Some("/unknown.pem")), optional, Some("site.test")).await.is_err());
        }
    });
}

#[test]
fn an_ignored_error_lets_in_and_is_told() {
    let setup = setup();
    worker(async {
        let ignoring = |list: &'static str| move |tls: &mut BindTls| tls.crt_ignore_err = Some(list.to_owned());
        let some = facts_server(acceptor(setup.bind(Verify::Required, ignoring("10,18")), &setup.files)).await;
        for (certificate, number) in [("/expired.pem", 10), ("/self.pem", 18)] {
            let client = setup.client(Some(certificate), None);
            // Twice: a resumed session still says so.
            for resumed in [false, true] {
                let said = ask(&client, some, Some("site.test")).await.unwrap();
                assert!(said.contains(&format!("verify={number} leaf_err={number} ca_err=0")), "{said}");
                assert!(said.contains(&format!("resumed={resumed}")), "{said}");
            }
        }
        assert!(ask(&setup.client(Some("/unknown.pem"), None), some, Some("site.test")).await.is_err());
        let all = facts_server(acceptor(setup.bind(Verify::Optional, ignoring("all")), &setup.files)).await;
        let said = ask(&setup.client(Some("/unknown.pem"), None), all, Some("site.test")).await.unwrap();
        // An issuer that is not at hand and, once that is ignored, a signature that cannot be checked: OpenSSL keeps the last.
        assert!(said.contains("verify=21 leaf_err=20"), "{said}");
    });
}

/// webpki stops at an error of the leaf, before it knows who issued it: whoever ignores that error must not let everybody in.
#[test]
fn an_ignored_error_hides_no_other() {
    let setup = setup();
    worker(async {
        let line = |leaf: &'static str, above: &'static str, lists: bool| {
            setup.bind(Verify::Required, |tls| {
                tls.crt_ignore_err = (!leaf.is_empty()).then(|| leaf.to_owned());
                tls.ca_ignore_err = (!above.is_empty()).then(|| above.to_owned());
                tls.conf.crl_file = lists.then(|| path("/crl.pem"));
            })
        };
        // What HAProxy 3.0 says of each: what is last, first of the leaf, and first of the authorities; nothing if it refuses.
        for (leaf, above, lists, certificate, said) in [
            ("10", "", false, "/expired.pem", Some("verify=10 leaf_err=10 ca_err=0")),
            ("10", "", false, "/forged.pem", None),
            ("10", "", false, "/forged-chain.pem", None),
            ("10", "all", false, "/forged.pem", None),
            ("10", "19", false, "/forged-chain.pem", Some("verify=10 leaf_err=10 ca_err=19")),
            ("10,20,21", "", false, "/forged.pem", Some("verify=10 leaf_err=20 ca_err=0")),
            ("20", "", false, "/unknown.pem", None),
            ("20,21", "", false, "/unknown.pem", Some("verify=21 leaf_err=20 ca_err=0")),
            ("all", "", false, "/unknown-chain.pem", None),
            ("", "all", false, "/unknown-chain.pem", Some("verify=19 leaf_err=0 ca_err=19")),
            ("10", "", true, "/both.pem", None),
            ("10,23", "", true, "/both.pem", Some("verify=10 leaf_err=23 ca_err=0")),
            ("10", "", true, "/expired.pem", Some("verify=10 leaf_err=10 ca_err=0")),
        ] {
            let server = facts_server(acceptor(line(leaf, above, lists), &setup.files)).await;
            let got = ask(&setup.client(Some(certificate), None), server, Some("site.test")).await;
            let what = format!("{certificate}, crt-ignore-err '{leaf}', ca-ignore-err '{above}': {got:?}");
            match said {
                Some(said) => assert!(got.is_ok_and(|got| got.contains(said)), "{what}"),
                None => assert!(got.is_err(), "{what}"),
            }
        }
    });
}

/// What webpki does not look at, or not any more after an error: HAProxy 3.0 refuses each of these.
#[test]
fn chains_that_openssl_refuses_are_refused() {
    use rcgen::{BasicConstraints, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, KeyUsagePurpose, NameConstraints};
    let ca = Authority::new("ca");
    let past = rcgen::date_time_ymd(2021, 1, 1);
    let signs_not = ca.below("signs not", |params| params.key_usages = vec![KeyUsagePurpose::DigitalSignature]);
    let short = ca.below("short", |params| params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0)));
    let too_deep = short.below("too deep", |_| ());
    let good = ca.below("good", |_| ());
    let mut namesakes = vec![Authority::new("stranger").below("same", |_| ())];
    for _ in 0..150 {
        namesakes.push(namesakes[0].below("same", |_| ()));
    }
    let limited = ca.below("limited", |params| {
        let permitted_subtrees = vec![GeneralSubtree::DnsName("good.example".into())];
        params.name_constraints = Some(NameConstraints { permitted_subtrees, excluded_subtrees: Vec::new() });
    });
    let nameless = |name: &'static str| {
        move |params: &mut rcgen::CertificateParams| {
            params.subject_alt_names.clear();
            params.distinguished_name.push(rcgen::DnType::CommonName, name);
        }
    };
    let no_signature =
        |params: &mut rcgen::CertificateParams| params.key_usages = vec![KeyUsagePurpose::KeyEncipherment];
    let expired_server = |params: &mut rcgen::CertificateParams| {
        params.not_after = past;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    };
    let expired = |params: &mut rcgen::CertificateParams| params.not_after = past;
    let sign =
        |by: &Authority, change: &dyn Fn(&mut rcgen::CertificateParams)| by.sign_with(Kind::P256, "client", change);
    let chain = |leaf: String, above: &[&Authority]| above.iter().fold(leaf, |chain, by| chain + &by.pem);
    let cases = [
        ("/good.pem", "", chain(sign(&good, &|_| ()), &[&good]), true),
        ("/signs-not.pem", "", chain(sign(&signs_not, &|_| ()), &[&signs_not]), false),
        ("/signs-not-ignored.pem", "all", chain(sign(&signs_not, &|_| ()), &[&signs_not]), false),
        ("/within.pem", "", chain(sign(&limited, &nameless("a.good.example")), &[&limited]), true),
        ("/beyond.pem", "", chain(sign(&limited, &nameless("a.bad.example")), &[&limited]), false),
        ("/no-signature.pem", "", sign(&ca, &no_signature), false),
        // For these, webpki would try all ways from one namesake to another: seconds.
        ("/namesakes.pem", "", chain(sign(&namesakes[0], &|_| ()), &namesakes.iter().collect::<Vec<_>>()), false),
        ("/expired.pem", "10", chain(sign(&good, &expired), &[&good]), true),
        ("/expired-server.pem", "10", sign(&ca, &expired_server), false),
        ("/expired-too-deep.pem", "10", chain(sign(&too_deep, &expired), &[&too_deep, &short]), false),
    ];
    let site = ca.sign(Kind::Rsa2048, "site.test");
    let mut list = vec![("/site.pem", site.as_str()), ("/ca.pem", ca.pem.as_str())];
    list.extend(cases.iter().map(|(name, _, pem, _)| (*name, pem.as_str())));
    let setup = Setup { files: files(&list) };
    worker(async {
        for (name, ignored, _, is_let_in) in &cases {
            let bind = setup.bind(Verify::Required, |tls| {
                tls.crt_ignore_err = (!ignored.is_empty()).then(|| (*ignored).to_owned());
            });
            let server = facts_server(acceptor(bind, &setup.files)).await;
            let got = ask(&setup.client(Some(name), None), server, Some("site.test")).await;
            assert_eq!(got.is_ok(), *is_let_in, "{name}, ignoring '{ignored}': {got:?}");
        }
    });
}

#[test]
fn a_server_is_verified_by_chain_and_by_name() {
    let setup = setup();
    let server = |ca: &str, verify, verifyhost: Option<&str>| {
        let conf = TlsConf { ca_file: Some(path(ca)), verify, ..TlsConf::default() };
        connector(ServerTls { conf, verifyhost: verifyhost.map(str::to_owned), ..ServerTls::default() }, &setup.files)
    };
    worker(async {
        let address = facts_server(acceptor(crt(&["/site.pem"]), &setup.files)).await;
        assert!(ask(&server("/ca.pem", None, None), address, Some("site.test")).await.is_ok());
        // Without a name to go by, only the chain counts; `verifyhost` gives one.
        assert!(ask(&server("/ca.pem", None, None), address, None).await.is_ok());
        assert!(ask(&server("/ca.pem", None, Some("site.test")), address, None).await.is_ok());
        let refused = ask(&server("/ca.pem", None, Some("other.test")), address, None).await.unwrap_err();
        assert!(refused.starts_with("Server presented an SSL certificate different from"), "{refused}");
        let refused = ask(&server("/ca.pem", None, None), address, Some("other.test")).await.unwrap_err();
        assert!(refused.starts_with("Server presented an SSL certificate different from"), "{refused}");
        // What is no name is not "without a name".
        for odd in ["other.test:80", "site.test:80", "127.0.0.1", "::1", "a b"] {
            let refused = ask(&server("/ca.pem", None, None), address, Some(odd)).await.unwrap_err();
            assert!(refused.starts_with("Server presented an SSL certificate different from"), "{odd}: {refused}");
            assert!(ask(&server("/ca.pem", Some(Verify::None), None), address, Some(odd)).await.is_ok(), "{odd}");
        }
        assert!(ask(&server("/stranger.pem", None, None), address, Some("site.test")).await.is_err());
        assert!(ask(&server("/stranger.pem", Some(Verify::None), None), address, Some("other.test")).await.is_ok());
        // Its own certificate as the authority, as self-made setups have it.
        let own = facts_server(acceptor(crt(&["/self.pem"]), &setup.files)).await;
        assert!(ask(&server("/self.pem", None, None), own, Some("client")).await.is_ok());
    });
}

#[test]
fn client_certificates_work_while_every_operation_waits() {
    let setup = setup();
    let manner = Some(Manner::Late(Duration::from_millis(2)));
    on_worker(manner, Settings::default(), async {
        let address = facts_server(acceptor(setup.bind(Verify::Required, |_| ()), &setup.files)).await;
        for max_ver in [TlsVersion::Tls12, TlsVersion::Tls13] {
            for certificate in ["/good.pem", "/good4096.pem"] {
                let client = setup.client(Some(certificate), Some(max_ver));
                let said = ask(&client, address, Some("site.test")).await.unwrap();
                assert!(said.contains("peer=true verify=0"), "{said}");
            }
        }
    });
}
