//! The certificates of the scenarios, made once a run: `{{cert NAME}}` and `{{ca NAME}}` are files in PEM.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_RSA_SHA256,
    RevocationReason, RevokedCertParams, RsaKeySize, SerialNumber, SignatureAlgorithm, date_time_ymd,
};

/// How a key is made.
#[derive(Clone, Copy)]
enum Key {
    Rsa2048,
    Rsa4096,
    P256,
    P384,
}

/// One certificate: file name, key, common name, alternative names.
struct Plan {
    name: &'static str,
    key: Key,
    common_name: &'static str,
    names: &'static [&'static str],
}

const fn plan(name: &'static str, key: Key, common_name: &'static str, names: &'static [&'static str]) -> Plan {
    Plan { name, key, common_name, names }
}

const SERVERS: &[Plan] = &[
    plan("rsa", Key::Rsa2048, "rsa.example", &["rsa.example", "localhost", "127.0.0.1"]),
    plan("rsa4096", Key::Rsa4096, "big.example", &["big.example"]),
    plan("ecdsa", Key::P256, "ecdsa.example", &["ecdsa.example", "localhost", "127.0.0.1"]),
    plan("p384", Key::P384, "p384.example", &["p384.example"]),
    plan("one", Key::P256, "one.example", &["one.example"]),
    plan("two", Key::P256, "two.example", &["two.example"]),
    plan("wild", Key::P256, "*.wild.example", &["*.wild.example"]),
    plan("withdrawn", Key::P256, "withdrawn.example", &["withdrawn.example"]),
    plan("expired", Key::P256, "expired.example", &["expired.example"]),
    // Two keys for one name: HAProxy bundles NAME.rsa and NAME.ecdsa when asked for NAME.
    plan("dual.rsa", Key::Rsa2048, "dual.example", &["dual.example"]),
    plan("dual.ecdsa", Key::P256, "dual.example", &["dual.example"]),
];

const CLIENTS: &[Plan] = &[
    plan("client", Key::P256, "alice", &[]),
    plan("client-rsa", Key::Rsa2048, "bob", &[]),
    plan("revoked", Key::P256, "mallory", &[]),
];

/// The folder with the certificates of this run.
pub struct Certificates {
    folder: tempfile::TempDir,
}

static SHARED: OnceLock<Certificates> = OnceLock::new();

impl Certificates {
    /// The certificates, made at the first call.
    pub fn shared() -> &'static Self {
        SHARED.get_or_init(|| Self::make().expect("a temporary folder can be written"))
    }

    /// Removes the files at the end of the run: a static is never dropped.
    pub fn clean_up() {
        if let Some(shared) = SHARED.get() {
            let _ = std::fs::remove_dir_all(shared.folder.path());
        }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A file with certificate and key.
    pub fn pem(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.pem"))
    }

    fn make() -> Result<Self, Box<dyn std::error::Error>> {
        let folder = tempfile::Builder::new().prefix("penstock-certs-").tempdir()?;
        let at = |name: &str| folder.path().join(name);
        let authority = self::authority("Scenario CA", Key::P256)?;
        // A client that verifies RSA signatures alone needs a chain of them.
        let rsa_authority = self::authority("Scenario RSA CA", Key::Rsa2048)?;
        std::fs::write(at("ca.crt"), format!("{}{}", authority.certificate, rsa_authority.certificate))?;
        let stranger = self::authority("Another CA", Key::P256)?;
        std::fs::write(at("other-ca.crt"), stranger.certificate.as_bytes())?;
        for (name, by) in [("authority", &authority), ("rsa-authority", &rsa_authority)] {
            std::fs::write(at(&format!("{name}.pem")), by.certificate.clone() + &by.issuer.key().serialize_pem())?;
        }

        let write = |plan: &Plan, by: &Authority, file: &str| -> Result<String, Box<dyn std::error::Error>> {
            let key = key(plan.key)?;
            let certificate = params(plan)?.signed_by(&key, &by.issuer)?.pem();
            std::fs::write(at(&format!("{file}.pem")), format!("{certificate}{}", key.serialize_pem()))?;
            std::fs::write(at(&format!("{file}.crt")), &certificate)?;
            std::fs::write(at(&format!("{file}.key")), key.serialize_pem())?;
            Ok(certificate)
        };
        for plan in SERVERS {
            let rsa = matches!(plan.key, Key::Rsa2048 | Key::Rsa4096);
            write(plan, if rsa { &rsa_authority } else { &authority }, plan.name)?;
        }
        for plan in CLIENTS {
            write(plan, &authority, plan.name)?;
        }
        write(&plan("stranger", Key::P256, "stranger", &[]), &stranger, "stranger")?;
        // HAProxy looks for dual.pem.rsa and dual.pem.ecdsa.
        for kind in ["rsa", "ecdsa"] {
            std::fs::copy(at(&format!("dual.{kind}.pem")), at(&format!("dual.pem.{kind}")))?;
        }
        let mismatched = std::fs::read_to_string(at("one.crt"))? + &std::fs::read_to_string(at("two.key"))?;
        std::fs::write(at("mismatched.pem"), mismatched)?;
        std::fs::write(at("garbage.pem"), "this is not a certificate\n")?;
        std::fs::write(at("revoked.crl"), revocations(&authority)?)?;
        // A folder as `crt` may name it.
        std::fs::create_dir(at("folder"))?;
        for name in ["one", "two", "wild"] {
            std::fs::copy(at(&format!("{name}.pem")), at("folder").join(format!("{name}.pem")))?;
        }
        Ok(Self { folder })
    }
}

struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

fn authority(name: &str, kind: Key) -> Result<Authority, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    params.key_identifier_method = KeyIdMethod::Sha256;
    let key = key(kind)?;
    let certificate = params.self_signed(&key)?.pem();
    Ok(Authority { certificate, issuer: Issuer::new(params, key) })
}

fn key(kind: Key) -> Result<KeyPair, rcgen::Error> {
    let ec = |algorithm: &'static SignatureAlgorithm| KeyPair::generate_for(algorithm);
    match kind {
        Key::Rsa2048 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
        Key::Rsa4096 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_4096),
        Key::P256 => ec(&PKCS_ECDSA_P256_SHA256),
        Key::P384 => ec(&PKCS_ECDSA_P384_SHA384),
    }
}

fn params(plan: &Plan) -> Result<CertificateParams, rcgen::Error> {
    let names: Vec<String> = plan.names.iter().map(|n| (*n).to_owned()).collect();
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CountryName, "CH");
    params.distinguished_name.push(DnType::OrganizationName, "Scenario");
    params.distinguished_name.push(DnType::CommonName, plan.common_name);
    let client = plan.names.is_empty();
    params.extended_key_usages =
        vec![if client { ExtendedKeyUsagePurpose::ClientAuth } else { ExtendedKeyUsagePurpose::ServerAuth }];
    params.use_authority_key_identifier_extension = true;
    params.not_before = date_time_ymd(2024, 1, 1);
    params.not_after = if plan.name == "expired" { date_time_ymd(2024, 2, 1) } else { date_time_ymd(2044, 1, 1) };
    params.serial_number = Some(SerialNumber::from(serial(plan.name)));
    Ok(params)
}

/// A fixed serial for each name, so that logs and headers that carry it can be compared between runs.
fn serial(name: &str) -> Vec<u8> {
    let mut serial = vec![0x10];
    serial.extend(name.bytes().take(8));
    serial
}

fn revocations(authority: &Authority) -> Result<String, rcgen::Error> {
    let revoked = |name| RevokedCertParams {
        serial_number: SerialNumber::from(serial(name)),
        revocation_time: date_time_ymd(2024, 6, 1),
        reason_code: Some(RevocationReason::KeyCompromise),
        invalidity_date: None,
    };
    let list = CertificateRevocationListParams {
        this_update: date_time_ymd(2024, 1, 1),
        next_update: date_time_ymd(2044, 1, 1),
        crl_number: SerialNumber::from(1u64),
        issuing_distribution_point: None,
        revoked_certs: vec![revoked("revoked"), revoked("withdrawn")],
        key_identifier_method: KeyIdMethod::Sha256,
    };
    list.signed_by(&authority.issuer)?.pem()
}
