//! Certificates of a configuration, made here: keys, chains and dates that are wrong in one way each.

use penstock_config::{Env, Source, load};
use penstock_doctor::{Host, Level, Subject, examine};
use rcgen::{
    BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, RsaKeySize,
};
use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

/// A certificate for `site.example` by an authority of its own: its PEM, and that of the authority.
fn made(rsa: Option<RsaKeySize>, days: i64) -> (String, String) {
    let key = match rsa {
        Some(size) => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, size).unwrap(),
        None => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap(),
    };
    let mut authority = CertificateParams::new(vec![]).unwrap();
    authority.distinguished_name.push(rcgen::DnType::CommonName, "Authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    let root = authority.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(authority, authority_key);
    let mut leaf = CertificateParams::new(vec!["site.example".to_owned()]).unwrap();
    let date = |seconds: i64| {
        let days = seconds.div_euclid(86_400);
        // Civil date of a day number (Howard Hinnant's algorithm).
        let z = days + 719_468;
        let era = z.div_euclid(146_097);
        let doe = z - era * 146_097;
        let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
        let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
        let mp = (5 * doy + 2) / 153;
        let month = if mp < 10 { mp + 3 } else { mp - 9 };
        rcgen::date_time_ymd(
            (yoe + era * 400 + i64::from(month <= 2)) as i32,
            month as u8,
            (doy - (153 * mp + 2) / 5 + 1) as u8,
        )
    };
    leaf.not_before = date(now() - 100 * 86_400);
    leaf.not_after = date(now() + days * 86_400);
    let certificate = leaf.signed_by(&key, &issuer).unwrap();
    (certificate.pem(), root.pem())
}

/// Names of what is found above good, with these files in one directory.
fn found(files: &[(&str, String)]) -> Vec<(&'static str, Level)> {
    let lines: String = files.iter().map(|(name, _)| format!(" bind :443 ssl crt /certs/{name}\n")).collect();
    let text = format!("frontend f\n mode http\n timeout client 1s\n{lines}");
    let (config, diagnostics) = load([Source::new("t.cfg", text.as_bytes())], &Env::default());
    assert!(!diagnostics.has_errors(), "{diagnostics:?}");
    let map: BTreeMap<String, Vec<u8>> =
        files.iter().map(|(name, pem)| (format!("/certs/{name}"), pem.clone().into_bytes())).collect();
    let read = |path: &str| map.get(path).cloned().ok_or_else(|| std::io::ErrorKind::NotFound.into());
    let host = Host::recorded("== /proc/x\n").unwrap();
    let subject =
        Subject { host: &host, config: Some(&config), now: now(), read: &read, resumed: Some((10_000, 9_000)) };
    let findings = examine(&subject);
    findings
        .iter()
        .filter(|f| f.level > Level::Good && f.id.starts_with("certificate"))
        .map(|f| (f.id, f.level))
        .collect()
}

#[test]
fn each_fault_of_a_certificate_is_found_alone() {
    use Level::{Critical, Notice, Warning};
    let (ecdsa, root) = made(None, 60);
    let (rsa, rsa_root) = made(Some(RsaKeySize::_2048), 60);
    // A chain of two whose end is not its own issuer.
    let chain = |leaf: &str, other: &str| format!("{leaf}{other}");
    let intermediate = &ecdsa;
    assert_eq!(found(&[("site.pem", chain(&ecdsa, intermediate))]), []);
    assert_eq!(found(&[("site.pem", ecdsa.clone())]), [("certificate-chain", Warning)]);
    assert_eq!(found(&[("site.pem", chain(&ecdsa, &root))]), [("certificate-chain", Notice)]);
    assert_eq!(found(&[("site.pem", chain(&rsa, intermediate))]), [("certificate-rsa", Warning)]);
    let both = [("site.pem.rsa", chain(&rsa, intermediate)), ("site.pem.ecdsa", chain(&ecdsa, intermediate))];
    assert_eq!(found(&both), [], "ECDSA beside RSA for the same name");
    let (large, _) = made(Some(RsaKeySize::_4096), 60);
    assert_eq!(
        found(&[("site.pem", chain(&large, intermediate))]),
        [("certificate-rsa", Warning), ("certificate-key", Warning)]
    );
    for (days, level) in [(-1, Critical), (3, Critical), (15, Warning)] {
        let (leaf, _) = made(None, days);
        assert_eq!(found(&[("site.pem", chain(&leaf, intermediate))]), [("certificate-days", level)], "{days}");
    }
    let _ = rsa_root;
}

#[test]
fn what_cannot_be_read_is_critical() {
    assert_eq!(
        found(&[("site.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".into())]),
        [("certificate-unreadable", Level::Critical)]
    );
    let text = "frontend f\n mode http\n timeout client 1s\n bind :443 ssl crt /certs/none.pem\n";
    let (config, _) = load([Source::new("t.cfg", text.as_bytes())], &Env::default());
    let host = Host::recorded("== /proc/x\n").unwrap();
    let none = |_: &str| Err(std::io::ErrorKind::PermissionDenied.into());
    let findings = examine(&Subject { host: &host, config: Some(&config), now: 0, read: &none, resumed: None });
    assert_eq!((findings[0].id, findings[0].level), ("certificate-unreadable", Level::Critical));
}
