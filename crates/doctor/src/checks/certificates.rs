//! Certificates: kind and size of key, chain, days left, OCSP; and RSA certificates without an ECDSA one beside them.

use super::Case;
use crate::{
    Finding, Level,
    finding::{Area::Certificates as Area, count},
};
use penstock_config::{Config, Span};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use std::collections::{BTreeMap, BTreeSet};
use x509_parser::{
    oid_registry::{OID_KEY_TYPE_EC_PUBLIC_KEY, OID_PKCS1_RSAENCRYPTION},
    prelude::{FromDer, GeneralName, ParsedExtension, X509Certificate},
    public_key::PublicKey,
};

const DAY: i64 = 86_400;
/// The most files of a directory or list that are examined; the report says when there are more.
const FILES_MAX: usize = 2_000;

/// The properties of a certificate that matter.
#[derive(Debug)]
struct Leaf {
    file: String,
    names: BTreeSet<String>,
    /// `None` for what is neither RSA nor ECDSA.
    rsa_bits: Option<usize>,
    is_ecdsa: bool,
    not_after: i64,
    not_before: i64,
    chain: usize,
    chain_bytes: usize,
    has_root: bool,
    is_self_signed: bool,
    sha1: bool,
    ocsp_url: bool,
    stapled: bool,
}

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let Some(config) = case.config else { return Vec::new() };
    let mut found = Vec::new();
    let (files, cut) = files(case, config);
    let mut leaves = Vec::new();
    for (file, place) in files {
        match read(case, &file) {
            Ok(Some(leaf)) => leaves.push(leaf),
            // A key or a staple beside its certificate.
            Ok(None) => {}
            Err(why) => found.push(
                Finding::new(
                    "certificate-unreadable",
                    Area,
                    Level::Critical,
                    66,
                    format!("the certificate {file} cannot be used: {why}"),
                )
                .seen(place)
                .means("the configuration does not start")
                .by_hand("give the file to the user that runs the check, or correct 'crt'"),
            ),
        }
    }
    if cut {
        found.push(Finding::new(
            "certificates-many",
            Area,
            Level::Notice,
            1,
            format!("only the first {FILES_MAX} certificates were looked at"),
        ));
    }
    let before = found.len();
    for leaf in &leaves {
        found.extend(days(case.now, leaf));
        found.extend(chain(leaf));
        found.extend(key(leaf));
        if leaf.ocsp_url && !leaf.stapled {
            found.push(
                Finding::new(
                    "certificate-ocsp",
                    Area,
                    Level::Notice,
                    6,
                    format!("{} names an OCSP responder, and has no staple", leaf.file),
                )
                .seen(format!("{}.ocsp is not there", leaf.file))
                .means("clients that check ask the responder themselves, before the page")
                .by_hand(format!("fetch the response regularly into {}.ocsp", leaf.file)),
            );
        }
    }
    found.extend(rsa_alone(&leaves));
    if found.len() == before && !leaves.is_empty() {
        found.push(Finding::good(
            "certificates",
            Area,
            format!("{}: keys, chains and dates are in order", count(leaves.len(), "certificate")),
        ));
    }
    found
}

/// The files that `crt` and `crt-list` name, each with where it is named.
fn files(case: &Case<'_>, config: &Config) -> (BTreeMap<String, String>, bool) {
    let mut files = BTreeMap::new();
    let place = |span: Span| {
        let source = config.source(span.file).map_or("", |source| source.name.as_str());
        format!("{source}:{}", span.line)
    };
    let base = config.global.crt_base.as_ref();
    for tls in config.proxies.iter().filter(|p| !p.disabled).flat_map(|p| p.binds.iter().filter_map(|b| b.tls.as_ref()))
    {
        for crt in tls.default_crt.iter().chain(&tls.crt) {
            let path = crt.value.display().to_string();
            let inside: Vec<String> = std::fs::read_dir(&crt.value)
                .map(|entries| {
                    entries.flatten().filter(|e| e.path().is_file()).map(|e| e.path().display().to_string()).collect()
                })
                .unwrap_or_else(|_| vec![path]);
            for file in inside.into_iter().filter(|file| !is_companion(file)) {
                files.insert(file, place(crt.span));
            }
        }
        for list in &tls.crt_list {
            let path = list.value.display().to_string();
            let text = (case.read)(&path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
            for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
                let Some(name) = line.split([' ', '\t', '[']).next().filter(|name| !name.is_empty()) else { continue };
                let file = match base {
                    Some(base) if !name.starts_with('/') => base.join(name).display().to_string(),
                    _ => name.to_owned(),
                };
                files.insert(file, place(list.span));
            }
        }
    }
    let cut = files.len() > FILES_MAX;
    (files.into_iter().take(FILES_MAX).collect(), cut)
}

/// Whether a file that lies beside a certificate is not one itself.
fn is_companion(file: &str) -> bool {
    ["key", "ocsp", "issuer", "sctl"].iter().any(|end| file.ends_with(&format!(".{end}")))
}

fn read(case: &Case<'_>, file: &str) -> Result<Option<Leaf>, String> {
    let bytes = match (case.read)(file) {
        Ok(bytes) => bytes,
        // `site.pem` may stand for site.pem.rsa and site.pem.ecdsa.
        Err(e) => {
            return if ["rsa", "ecdsa"].iter().any(|kind| (case.read)(&format!("{file}.{kind}")).is_ok()) {
                Ok(None)
            } else {
                Err(e.to_string())
            };
        }
    };
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(&bytes).collect::<Result<_, _>>().map_err(|e| format!("not valid PEM: {e}"))?;
    let Some(first) = chain.first() else { return Ok(None) };
    let (_, leaf) = X509Certificate::from_der(first).map_err(|e| format!("not a certificate: {e}"))?;
    let mut names: BTreeSet<String> =
        leaf.subject().iter_common_name().filter_map(|n| n.as_str().ok()).map(str::to_lowercase).collect();
    if let Ok(Some(san)) = leaf.subject_alternative_name() {
        names.extend(san.value.general_names.iter().filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(name.to_lowercase()),
            _ => None,
        }));
    }
    let algorithm = &leaf.public_key().algorithm.algorithm;
    let rsa_bits = match leaf.public_key().parsed() {
        Ok(PublicKey::RSA(key)) if *algorithm == OID_PKCS1_RSAENCRYPTION => Some(key.key_size()),
        _ => None,
    };
    let is_self_signed = leaf.subject() == leaf.issuer();
    let root = |der: &CertificateDer<'_>| {
        X509Certificate::from_der(der).is_ok_and(|(_, certificate)| certificate.subject() == certificate.issuer())
    };
    let ocsp_url = leaf.extensions().iter().any(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityInfoAccess(access) => {
            access.accessdescs.iter().any(|d| d.access_method.to_id_string() == "1.3.6.1.5.5.7.48.1")
        }
        _ => false,
    });
    Ok(Some(Leaf {
        names,
        is_ecdsa: *algorithm == OID_KEY_TYPE_EC_PUBLIC_KEY,
        rsa_bits,
        not_after: leaf.validity().not_after.timestamp(),
        not_before: leaf.validity().not_before.timestamp(),
        chain: chain.len(),
        chain_bytes: chain.iter().map(|der| der.len()).sum(),
        has_root: chain.len() > 1 && chain.last().is_some_and(root),
        is_self_signed,
        // sha1WithRSAEncryption, ecdsa-with-SHA1.
        sha1: ["1.2.840.113549.1.1.5", "1.2.840.10045.4.1"]
            .contains(&leaf.signature_algorithm.algorithm.to_id_string().as_str()),
        ocsp_url,
        stapled: (case.read)(&format!("{file}.ocsp")).is_ok(),
        file: file.to_owned(),
    }))
}

fn days(now: i64, leaf: &Leaf) -> Option<Finding> {
    let left = (leaf.not_after - now).div_euclid(DAY);
    let finding = |level, worth, text: String, consequence: &str| {
        let date = format!("{}: valid for {left} more days", leaf.file);
        Some(
            Finding::new("certificate-days", Area, level, worth, text)
                .seen(date)
                .means(consequence)
                .by_hand("renew it, and reload (SIGUSR2)"),
        )
    };
    if now < leaf.not_before {
        return finding(
            Level::Critical,
            68,
            format!("{} is not valid yet", leaf.file),
            "every client refuses it; is the clock right?",
        );
    }
    match left {
        i64::MIN..0 => finding(Level::Critical, 69, format!("{} has expired", leaf.file), "every client refuses it"),
        0..7 => finding(
            Level::Critical,
            67,
            format!("{} expires in {left} days", leaf.file),
            "then every client refuses it",
        ),
        7..21 => finding(
            Level::Warning,
            33,
            format!("{} expires in {left} days", leaf.file),
            "renewal should have happened by now: with 90-day certificates it is due at 30",
        ),
        _ => None,
    }
}

fn chain(leaf: &Leaf) -> Vec<Finding> {
    let mut found = Vec::new();
    if leaf.chain == 1 && !leaf.is_self_signed {
        found.push(
            Finding::new(
                "certificate-chain",
                Area,
                Level::Warning,
                32,
                format!("{} comes without its issuer", leaf.file),
            )
            .seen("one certificate in the file, which another one has signed")
            .means("clients that do not know the issuer refuse it: programs mostly, as browsers fetch it")
            .by_hand("append the issuer's certificates, the root left out"),
        );
    }
    if leaf.has_root {
        found.push(
            Finding::new("certificate-chain", Area, Level::Notice, 5, format!("{} carries its root", leaf.file))
                .seen(format!("{} certificates, the last one signed by itself; {} bytes", leaf.chain, leaf.chain_bytes))
                .means("a thousand bytes and more that clients have and ignore, in every full handshake")
                .by_hand("leave the last certificate out"),
        );
    }
    // Ten segments of 1,460 bytes go out before the first acknowledgement; the rest of the flight takes some as well.
    if leaf.chain_bytes > 12_000 {
        found.push(
            Finding::new(
                "certificate-chain",
                Area,
                Level::Notice,
                7,
                format!("the chain of {} is {} bytes long", leaf.file, leaf.chain_bytes),
            )
            .seen(count(leaf.chain, "certificate"))
            .means("it does not fit the first window of TCP: a round trip more in every full handshake")
            .by_hand("a shorter chain, or ECDSA certificates"),
        );
    }
    if leaf.sha1 {
        found.push(
            Finding::new("certificate-sha1", Area, Level::Warning, 31, format!("{} is signed with SHA-1", leaf.file))
                .means("browsers refuse it")
                .by_hand("have it issued anew"),
        );
    }
    found
}

fn key(leaf: &Leaf) -> Option<Finding> {
    // aws-lc on a Sapphire Rapids, µs a signature: RSA-2048 407, RSA-3072 1068, RSA-4096 2190; ECDSA P-256 20.7.
    let bits = leaf.rsa_bits?;
    let finding = |level, worth| {
        Finding::new("certificate-key", Area, level, worth, format!("{} has an RSA key of {bits} bits", leaf.file))
            .seen(format!("{}: the public key of the first certificate", leaf.file))
    };
    let times = match bits {
        ..2048 => {
            let finding = finding(Level::Critical, 65).means("too short to be safe, and refused here");
            return Some(finding.by_hand("a new key, ECDSA P-256 at best"));
        }
        2048 => return None,
        2049..=3072 => "2.6 times the signature of RSA-2048, and fifty times that of ECDSA P-256",
        3073..=4096 => "5.4 times the signature of RSA-2048, and a hundred times that of ECDSA P-256",
        _ => "many times the signature of RSA-4096, and no engine has lanes for it",
    };
    Some(
        finding(Level::Warning, 37)
            .means(format!("each full handshake pays {times}"))
            .by_hand("ECDSA P-256 is as strong as RSA-3072; or RSA-2048 for clients without ECDSA, beside it"),
    )
}

/// RSA certificates for names that no ECDSA certificate has.
fn rsa_alone(leaves: &[Leaf]) -> Option<Finding> {
    let covered: BTreeSet<&String> = leaves.iter().filter(|l| l.is_ecdsa).flat_map(|l| &l.names).collect();
    let alone: Vec<&Leaf> =
        leaves.iter().filter(|l| l.rsa_bits.is_some() && !l.names.iter().all(|name| covered.contains(name))).collect();
    let first = alone.first()?;
    let mut finding = Finding::new("certificate-rsa", Area, Level::Warning, 42, format!("{} without an ECDSA one beside", count(alone.len(), "RSA certificate")))
        .means("an RSA-2048 signature costs some twenty times an ECDSA one, and nearly every client of today takes ECDSA ('penstock plan --measure' measures here)")
        .by_hand(format!("a second certificate with a P-256 key: {0}.rsa and {0}.ecdsa are loaded together by 'crt {0}'", first.file));
    finding.evidence =
        alone.iter().take(5).map(|leaf| format!("{}: RSA-{}", leaf.file, leaf.rsa_bits.unwrap_or(0))).collect();
    Some(finding)
}
