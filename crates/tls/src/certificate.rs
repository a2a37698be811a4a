//! A certificate with its key, and the files that accompany it.

use crate::{
    Loader,
    ocsp::{self, CertificateId, Unusable},
    pkcs8::{self, Locked},
    provider::Key,
};
use arc_swap::ArcSwapOption;
use penstock_config::{Diagnostics, Span};
use penstock_engine::{KeyKind, SigningKey};
use rustls::sign::CertifiedKey;
use rustls_pki_types::{
    CertificateDer,
    pem::{PemObject, SectionKind},
};
use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};
use x509_parser::{
    nom,
    prelude::{FromDer, GeneralName, X509Certificate, X509Error},
};
use zeroize::{Zeroize, Zeroizing};

/// Why a certificate cannot be decoded.
fn malformed(error: &nom::Err<X509Error>) -> String {
    match error {
        nom::Err::Error(X509Error::Der(_) | X509Error::NomError(_))
        | nom::Err::Failure(X509Error::Der(_) | X509Error::NomError(_))
        | nom::Err::Incomplete(_) => "its DER encoding is damaged or cut short".into(),
        nom::Err::Error(other) | nom::Err::Failure(other) => other.to_string(),
    }
}

/// A certificate ready for use: its key matches, and its names are known.
pub(crate) struct Certificate {
    pub certified: Arc<CertifiedKey>,
    pub key: Arc<SigningKey>,
    /// The common name and DNS names, in lower case.
    pub names: Vec<String>,
    /// The issuer if it is not in the chain; only needed for OCSP.
    issuer: Option<CertificateDer<'static>>,
    /// The identity of the certificate for OCSP, if a response may be stapled to it.
    pub ocsp_id: Option<CertificateId>,
    stapled: ArcSwapOption<Stapled>,
}

/// An OCSP response, with the certificate that it is stapled to.
struct Stapled {
    certified: Arc<CertifiedKey>,
    response: Vec<u8>,
    /// Seconds since 1970 at which it becomes stale.
    until: Option<i64>,
}

impl Certificate {
    /// Combines the parts.
    ///
    /// # Errors
    ///
    /// If a part is missing, cannot be decoded, or does not match the others.
    pub fn new(material: Material) -> Result<Certificate, Flaw> {
        let Material { chain, key, issuer, response } = material;
        let leaf = chain.first().ok_or(Flaw::Incomplete)?;
        let (_, parsed) = X509Certificate::from_der(leaf).map_err(|e| Flaw::Undecodable(malformed(&e)))?;
        let key = key.ok_or(Flaw::Incomplete)?;
        let own = parsed.public_key();
        let presented = Key::new(key.clone());
        if presented.spki() != own.raw && !same_point(presented.spki(), own.subject_public_key.as_ref()) {
            return Err(Flaw::Mismatch);
        }
        let names = names(&parsed);
        let ocsp_id = response.as_ref().and_then(|_| {
            let above = chain.get(1).or(issuer.as_ref())?;
            let (_, above) = X509Certificate::from_der(above).ok()?;
            Some(CertificateId::of(&parsed, &above))
        });
        let certified = Arc::new(CertifiedKey::new(chain, Arc::new(presented)));
        let certificate = Certificate { certified, key, names, issuer, ocsp_id, stapled: ArcSwapOption::empty() };
        // In HAProxy, an empty file reserves the place for a response that is set at run time.
        match response.filter(|response| !response.is_empty()).map(|response| certificate.staple(response, now())) {
            Some(Err(why)) => Err(Flaw::Response(why, Box::new(certificate))),
            _ => Ok(certificate),
        }
    }

    pub fn leaf(&self) -> &CertificateDer<'static> {
        &self.certified.cert[0]
    }

    pub fn kind(&self) -> KeyKind {
        self.key.kind()
    }

    /// The parts of the certificate, for a transaction that replaces some of them.
    pub fn material(&self) -> Material {
        let reserved = self.ocsp_id.as_ref().map(|_| Vec::new());
        Material {
            chain: self.certified.cert.clone(),
            key: Some(self.key.clone()),
            issuer: self.issuer.clone(),
            response: self.stapled.load().as_ref().map(|stapled| stapled.response.clone()).or(reserved),
        }
    }

    /// The stapled OCSP response, if there is one.
    pub fn response(&self) -> Option<Vec<u8>> {
        self.stapled.load().as_ref().map(|stapled| stapled.response.clone())
    }

    /// Staples `response` from now on.
    ///
    /// # Errors
    ///
    /// Why clients could not use it.
    pub fn staple(&self, response: Vec<u8>, now: i64) -> Result<(), Unusable> {
        let (_, parsed) = X509Certificate::from_der(self.leaf()).map_err(|_| Unusable::AnotherCertificate)?;
        let until = ocsp::check(&response, parsed.raw_serial(), self.ocsp_id.as_ref(), now)?;
        let mut certified = CertifiedKey::clone(&self.certified);
        certified.ocsp = Some(response.clone());
        self.stapled.store(Some(Arc::new(Stapled { certified: Arc::new(certified), response, until })));
        Ok(())
    }

    /// What a client is sent, including the OCSP response while that is current.
    pub fn presented(&self) -> Arc<CertifiedKey> {
        match &*self.stapled.load() {
            Some(stapled) if stapled.until.is_none_or(|until| now() < until) => stapled.certified.clone(),
            _ => self.certified.clone(),
        }
    }
}

/// The contents of a certificate's files, before they are checked against each other.
#[derive(Clone, Default)]
pub(crate) struct Material {
    /// The certificate, followed by those of its issuers.
    pub chain: Vec<CertificateDer<'static>>,
    pub key: Option<Arc<SigningKey>>,
    /// The issuer if it is not in the chain.
    pub issuer: Option<CertificateDer<'static>>,
    /// The OCSP response; an empty one reserves its place.
    pub response: Option<Vec<u8>>,
}

/// Why the parts do not form a certificate.
pub(crate) enum Flaw {
    /// There is no certificate, or no key.
    Incomplete,
    /// The certificate cannot be decoded.
    Undecodable(String),
    /// The key belongs to another certificate.
    Mismatch,
    /// Only the OCSP response is wrong; without it, the certificate can be used.
    Response(Unusable, Box<Certificate>),
}

/// The files to look for beside a certificate (`ssl-load-extra-files`, `ssl-load-extra-del-ext`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extras {
    pub key: bool,
    pub ocsp: bool,
    pub sctl: bool,
    pub issuer: bool,
    pub bundle: bool,
    /// Whether the extra file's extension replaces `.crt` instead of being appended.
    pub replace_extension: bool,
}

impl Extras {
    pub fn new(files: Option<&[String]>, replace_extension: bool) -> Extras {
        let wants = |what: &str| files.is_none_or(|list| list.iter().any(|word| word == what || word == "all"));
        Extras {
            key: wants("key"),
            ocsp: wants("ocsp"),
            sctl: wants("sctl"),
            issuer: wants("issuer"),
            bundle: wants("bundle"),
            replace_extension,
        }
    }

    fn beside(&self, path: &Path, extension: &str) -> PathBuf {
        if self.replace_extension && path.extension().is_some_and(|extension| extension == "crt") {
            return path.with_extension(extension);
        }
        let mut name = path.as_os_str().to_owned();
        name.push(".");
        name.push(extension);
        name.into()
    }
}

/// The files of a certificate if they are named one by one (`crt-store`), and the passphrase of its key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts {
    pub key: Option<PathBuf>,
    pub ocsp: Option<PathBuf>,
    pub passphrase: Option<Passphrase>,
}

/// A passphrase, which is not shown.
#[derive(Clone)]
pub(crate) struct Passphrase(pub Zeroizing<String>);

impl fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Passphrase")
    }
}

/// Loads the certificate at `path`. Each possible problem has an error message of its own.
pub(crate) fn load(
    path: &Path,
    parts: &Parts,
    extras: &Extras,
    loader: &dyn Loader,
    span: Span,
    diagnostics: &mut Diagnostics,
) -> Option<Certificate> {
    let files = Files { path, parts, extras, loader };
    match files.certificate(span, diagnostics) {
        Ok(certificate) => Some(certificate),
        Err(Problem { message, hint }) => {
            let said = diagnostics.error(span, message);
            hint.map(|hint| said.hint(hint));
            None
        }
    }
}

/// A problem that keeps a certificate from being loaded, as a sentence, and what to do about it.
struct Problem {
    message: String,
    hint: Option<&'static str>,
}

impl From<String> for Problem {
    fn from(message: String) -> Problem {
        Problem { message, hint: None }
    }
}

/// Reads the files of one certificate, one in each step.
struct Files<'a> {
    path: &'a Path,
    parts: &'a Parts,
    extras: &'a Extras,
    loader: &'a dyn Loader,
}

impl Files<'_> {
    fn certificate(&self, span: Span, diagnostics: &mut Diagnostics) -> Result<Certificate, Problem> {
        let shown = self.path.display();
        let material = self.material()?;
        let certificate = match Certificate::new(material) {
            Ok(certificate) => certificate,
            Err(Flaw::Response(why, certificate)) => {
                let file = self.response_file().unwrap_or_default();
                diagnostics.warning(span, format!("the OCSP response '{}' is not sent: {why}", file.display()));
                *certificate
            }
            Err(Flaw::Mismatch) => {
                return Err(format!("the private key of '{shown}' does not belong to its certificate").into());
            }
            Err(Flaw::Undecodable(why)) => {
                return Err(Problem {
                    message: format!("the certificate in '{shown}' cannot be decoded: {why}"),
                    hint: Some("'openssl x509 -in FILE -noout -text' shows where it breaks off"),
                });
            }
            // `material` has checked that there are both.
            Err(Flaw::Incomplete) => return Err(format!("'{shown}' is incomplete").into()),
        };
        validity(certificate.leaf(), &shown.to_string(), span, diagnostics);
        if self.extras.sctl && self.loader.read(&self.extras.beside(self.path, "sctl")).is_ok() {
            diagnostics
                .notice(span, format!("'{shown}.sctl' is not used: timestamps are sent only as part of certificates"));
        }
        Ok(certificate)
    }

    fn material(&self) -> Result<Material, Problem> {
        let shown = self.path.display();
        let pem = self.loader.read(self.path).map(Zeroizing::new);
        let pem = pem.map_err(|e| format!("certificate '{shown}' cannot be read: {}", reason(&e)))?;
        let mut sections = match sections(&pem) {
            Ok(sections) => sections,
            // OpenSSL's older encrypted format has header lines in the section.
            Err(_) if is_encrypted(&pem) => return Err(self.encrypted(self.path)),
            Err(e) => return Err(format!("'{shown}' is not valid PEM: {e}").into()),
        };
        let chain = certificates(&sections);
        if chain.is_empty() {
            return Err(Problem {
                message: format!("'{shown}' holds no certificate"),
                hint: Some("a PEM section 'BEGIN CERTIFICATE' is expected, then those of its issuers"),
            });
        }
        let key = match private_key(&mut sections) {
            Some(key) if self.parts.key.is_none() => key,
            _ if is_encrypted(&pem) => self.decrypted(&pem, self.path)?,
            _ => self.key_beside()?,
        };
        let key = SigningKey::from_der(key);
        let key = key.map_err(|e| format!("the private key of '{shown}' cannot be used: {e}"))?;
        Ok(Material { chain, key: Some(Arc::new(key)), issuer: self.issuer(), response: self.response() })
    }

    /// The key from a file of its own.
    fn key_beside(&self) -> Result<Vec<u8>, Problem> {
        let shown = self.path.display();
        if self.parts.key.is_none() && !self.extras.key {
            return Err(format!("'{shown}' holds no private key").into());
        }
        let file = self.parts.key.clone().unwrap_or_else(|| self.extras.beside(self.path, "key"));
        let pem = self.loader.read(&file).map(Zeroizing::new).map_err(|e| {
            let (key, why) = (file.display(), reason(&e));
            format!("no private key for '{shown}': none in it, and '{key}' cannot be read: {why}")
        })?;
        if is_encrypted(&pem) {
            return self.decrypted(&pem, &file);
        }
        let found = sections(&pem).ok().and_then(|mut sections| private_key(&mut sections));
        found.ok_or_else(|| format!("'{}' holds no private key", file.display()).into())
    }

    fn decrypted(&self, pem: &[u8], file: &Path) -> Result<Vec<u8>, Problem> {
        let Some(Passphrase(passphrase)) = &self.parts.passphrase else { return Err(self.encrypted(file)) };
        match pkcs8::decrypt(pem, passphrase) {
            Ok(mut key) => Ok(std::mem::take(&mut key)),
            Err(Locked::Passphrase) => {
                Err(format!("the private key in '{}' has another passphrase", file.display()).into())
            }
            Err(Locked::Scheme) => Err(self.encrypted(file)),
        }
    }

    fn encrypted(&self, file: &Path) -> Problem {
        let shown = file.display();
        match self.parts.passphrase {
            None => Problem {
                message: format!(
                    "the private key in '{shown}' is encrypted, and there is no way to enter its passphrase"
                ),
                hint: Some("decrypt it with 'openssl pkey -in FILE -out FILE.key' and protect the file by its mode"),
            },
            Some(_) => Problem {
                message: format!("the private key in '{shown}' is encrypted in a way that is not supported"),
                hint: Some("'openssl pkcs8 -topk8 -in FILE -out FILE.key' encrypts it by PBES2 with AES"),
            },
        }
    }

    fn issuer(&self) -> Option<CertificateDer<'static>> {
        let pem = self.extras.issuer.then(|| self.loader.read(&self.extras.beside(self.path, "issuer")))?.ok()?;
        certificates(&sections(&pem).ok()?).into_iter().next()
    }

    fn response(&self) -> Option<Vec<u8>> {
        self.loader.read(&self.response_file()?).ok()
    }

    fn response_file(&self) -> Option<PathBuf> {
        let beside = || self.extras.ocsp.then(|| self.extras.beside(self.path, "ocsp"));
        self.parts.ocsp.clone().or_else(beside)
    }
}

/// The certificates among the sections of a PEM file, in order.
pub(crate) fn certificates(sections: &[(SectionKind, Vec<u8>)]) -> Vec<CertificateDer<'static>> {
    let found = sections.iter().filter(|(kind, _)| *kind == SectionKind::Certificate);
    found.map(|(_, der)| der.clone().into()).collect()
}

/// The sections of a PEM file that have a meaning here.
pub(crate) fn sections(pem: &[u8]) -> Result<Vec<(SectionKind, Vec<u8>)>, String> {
    <(SectionKind, Vec<u8>)>::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|e| match e {
        rustls_pki_types::pem::Error::MissingSectionEnd { .. } => "a section has no end".to_owned(),
        rustls_pki_types::pem::Error::Base64Decode(why) => format!("bad base64 ({why})"),
        other => other.to_string(),
    })
}

/// The system's error message, without its number.
pub(crate) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "it does not exist".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::IsADirectory => "it is a directory".to_owned(),
        _ => error.to_string(),
    }
}

/// The names that a certificate is valid for: its common name, then its alternative names.
pub(crate) fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let common = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    let alternative = certificate.subject_alternative_name().ok().flatten().map(|ext| ext.value);
    let alternative = alternative.iter().flat_map(|names| &names.general_names).filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(*name),
        _ => None,
    });
    let mut names: Vec<String> = Vec::new();
    for name in common.chain(alternative).map(str::to_ascii_lowercase) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Whether a certificate with the name `pattern` is for `host`, both in lower case: a star stands for the first label.
pub(crate) fn covers(pattern: &str, host: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some(suffix) => host.find('.').is_some_and(|dot| host[dot..] == *suffix && dot > 0),
        None => pattern == host,
    }
}

/// Takes out the first private key and wipes all others, so that no copy is left.
pub(crate) fn private_key(sections: &mut [(SectionKind, Vec<u8>)]) -> Option<Vec<u8>> {
    let is_key = |kind: &SectionKind| {
        matches!(kind, SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey)
    };
    let mut keys = sections.iter_mut().filter(|(kind, _)| is_key(kind)).map(|(_, der)| der);
    let first = keys.next().map(std::mem::take);
    keys.for_each(|other| other.zeroize());
    first
}

/// Whether a PEM file has an encrypted key: PKCS#8 says so in its label, OpenSSL's older form in a header line.
pub(crate) fn is_encrypted(pem: &[u8]) -> bool {
    let text = String::from_utf8_lossy(pem);
    text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED")
}

/// Compares a public key with the bits of another. SubjectPublicKeyInfo has more than one encoding (a curve may be
/// given by its parameters); the key bits have only one.
fn same_point(spki: &[u8], bits: &[u8]) -> bool {
    x509_parser::x509::SubjectPublicKeyInfo::from_der(spki)
        .is_ok_and(|(_, own)| own.subject_public_key.as_ref() == bits)
}

/// Seconds since 1970.
pub(crate) fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64)
}

/// Warns about an expired certificate. HAProxy starts with one and so do we, even if warnings are errors (`-dW`).
fn validity(leaf: &[u8], shown: &str, span: Span, diagnostics: &mut Diagnostics) {
    let Ok((_, parsed)) = X509Certificate::from_der(leaf) else { return };
    let now = now();
    let validity = parsed.validity();
    if now > validity.not_after.timestamp() {
        diagnostics.notice(span, format!("the certificate in '{shown}' expired on {}", validity.not_after));
    } else if now < validity.not_before.timestamp() {
        diagnostics.notice(span, format!("the certificate in '{shown}' is not valid before {}", validity.not_before));
    }
}
