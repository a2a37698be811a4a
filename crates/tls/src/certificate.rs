//! A certificate with its key and the files beside it.

use crate::{Loader, ocsp, provider::Key};
use penstock_config::{Diagnostics, Span};
use penstock_engine::{KeyKind, SigningKey};
use rustls::sign::CertifiedKey;
use rustls_pki_types::{
    CertificateDer,
    pem::{PemObject, SectionKind},
};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};
use x509_parser::{
    nom,
    prelude::{FromDer, GeneralName, X509Certificate, X509Error},
};
use zeroize::{Zeroize, Zeroizing};

/// Why a certificate cannot be decoded, in words.
fn malformed(error: &nom::Err<X509Error>) -> String {
    match error {
        nom::Err::Error(X509Error::Der(_) | X509Error::NomError(_))
        | nom::Err::Failure(X509Error::Der(_) | X509Error::NomError(_))
        | nom::Err::Incomplete(_) => "its DER encoding is damaged or cut short".into(),
        nom::Err::Error(other) | nom::Err::Failure(other) => other.to_string(),
    }
}

/// A certificate ready to be presented.
pub(crate) struct Certificate {
    pub certified: Arc<CertifiedKey>,
    /// The same with an OCSP response, and the time (seconds since 1970) from which that is stale.
    pub stapled: Option<(Arc<CertifiedKey>, Option<i64>)>,
    pub kind: KeyKind,
    /// Common name and DNS names, lower case.
    pub names: Vec<String>,
}

/// Which files beside a certificate are looked for (`ssl-load-extra-files`, `ssl-load-extra-del-ext`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extras {
    pub key: bool,
    pub ocsp: bool,
    pub sctl: bool,
    pub bundle: bool,
    /// The extra file's extension replaces the certificate's instead of following it.
    pub replace_extension: bool,
}

impl Extras {
    pub fn new(files: Option<&[String]>, replace_extension: bool) -> Extras {
        let wants = |what: &str| files.is_none_or(|list| list.iter().any(|word| word == what || word == "all"));
        Extras {
            key: wants("key"),
            ocsp: wants("ocsp"),
            sctl: wants("sctl"),
            bundle: wants("bundle"),
            replace_extension,
        }
    }

    fn beside(&self, path: &Path, extension: &str) -> PathBuf {
        if self.replace_extension && path.extension().is_some() {
            return path.with_extension(extension);
        }
        let mut name = path.as_os_str().to_owned();
        name.push(".");
        name.push(extension);
        name.into()
    }
}

/// Where the parts of a certificate are when they are named one by one (`crt-store`).
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts {
    pub key: Option<PathBuf>,
    pub ocsp: Option<PathBuf>,
}

/// Loads the certificate at `path`. Each thing that can be wrong with it is its own sentence.
pub(crate) fn load(
    path: &Path,
    parts: &Parts,
    extras: &Extras,
    loader: &dyn Loader,
    span: Span,
    diagnostics: &mut Diagnostics,
) -> Option<Certificate> {
    let shown = path.display();
    let pem = match loader.read(path) {
        Ok(pem) => Zeroizing::new(pem),
        Err(e) => {
            diagnostics.error(span, format!("certificate '{shown}' cannot be read: {}", reason(&e)));
            return None;
        }
    };
    let mut sections = match sections(&pem) {
        Ok(sections) => sections,
        // OpenSSL's older form has header lines within the section.
        Err(_) if is_encrypted(&pem) => return encrypted(&shown.to_string(), span, diagnostics),
        Err(e) => {
            diagnostics.error(span, format!("'{shown}' is not valid PEM: {e}"));
            return None;
        }
    };
    let chain: Vec<CertificateDer<'static>> = sections
        .iter()
        .filter(|(kind, _)| *kind == SectionKind::Certificate)
        .map(|(_, der)| der.clone().into())
        .collect();
    let Some(leaf) = chain.first() else {
        diagnostics
            .error(span, format!("'{shown}' holds no certificate"))
            .hint("a PEM section 'BEGIN CERTIFICATE' is expected, then those of its issuers");
        return None;
    };
    let leaf = leaf.clone();
    let parsed = match X509Certificate::from_der(&leaf) {
        Ok((_, parsed)) => parsed,
        Err(e) => {
            diagnostics
                .error(span, format!("the certificate in '{shown}' cannot be decoded: {}", malformed(&e)))
                .hint("'openssl x509 -in FILE -noout -text' shows where it breaks off");
            return None;
        }
    };

    let key_path = parts.key.clone().unwrap_or_else(|| extras.beside(path, "key"));
    let key = match private_key(&mut sections) {
        Some(key) if parts.key.is_none() => key,
        _ if is_encrypted(&pem) => return encrypted(&shown.to_string(), span, diagnostics),
        _ if parts.key.is_none() && !extras.key => {
            diagnostics.error(span, format!("'{shown}' holds no private key"));
            return None;
        }
        _ => {
            let beside = match loader.read(&key_path) {
                Ok(pem) => Zeroizing::new(pem),
                Err(e) => {
                    let why = reason(&e);
                    diagnostics.error(
                        span,
                        format!(
                            "no private key for '{shown}': none in it, and '{}' cannot be read: {why}",
                            key_path.display()
                        ),
                    );
                    return None;
                }
            };
            if is_encrypted(&beside) {
                return encrypted(&key_path.display().to_string(), span, diagnostics);
            }
            let found = self::sections(&beside).ok().and_then(|mut sections| private_key(&mut sections));
            let Some(key) = found else {
                diagnostics.error(span, format!("'{}' holds no private key", key_path.display()));
                return None;
            };
            key
        }
    };
    let key = match SigningKey::from_der(key) {
        Ok(key) => Arc::new(key),
        Err(e) => {
            diagnostics.error(span, format!("the private key of '{shown}' cannot be used: {e}"));
            return None;
        }
    };
    let certified_spki = parsed.public_key();
    if key.spki() != certified_spki.raw && !same_point(&key, certified_spki.subject_public_key.as_ref()) {
        diagnostics.error(span, format!("the private key of '{shown}' does not belong to its certificate"));
        return None;
    }
    validity(&parsed, &shown.to_string(), span, diagnostics);

    let certified = CertifiedKey::new(chain, Arc::new(Key::new(key.clone())));
    let serial = parsed.raw_serial();
    let stapled = staple(path, parts, extras, loader, serial, span, diagnostics).map(|(response, until)| {
        let mut stapled = certified.clone();
        stapled.ocsp = Some(response);
        (Arc::new(stapled), until)
    });
    if extras.sctl && loader.read(&extras.beside(path, "sctl")).is_ok() {
        diagnostics
            .notice(span, format!("'{shown}.sctl' is not used: timestamps are sent only as part of certificates"));
    }
    Some(Certificate { kind: key.kind(), names: names(&parsed), certified: Arc::new(certified), stapled })
}

/// Every section of a PEM that means something here.
pub(crate) fn sections(pem: &[u8]) -> Result<Vec<(SectionKind, Vec<u8>)>, String> {
    <(SectionKind, Vec<u8>)>::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|e| match e {
        rustls_pki_types::pem::Error::MissingSectionEnd { .. } => "a section has no end".to_owned(),
        rustls_pki_types::pem::Error::Base64Decode(why) => format!("bad base64 ({why})"),
        other => other.to_string(),
    })
}

/// The reason a file system gives, without the number.
pub(crate) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "it does not exist".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::IsADirectory => "it is a directory".to_owned(),
        _ => error.to_string(),
    }
}

/// The DNS names a certificate speaks for: its common name, then its alternative names.
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

/// Takes the first private key out. Any other is wiped: no copy stays behind.
fn private_key(sections: &mut [(SectionKind, Vec<u8>)]) -> Option<Vec<u8>> {
    let is_key = |kind: &SectionKind| {
        matches!(kind, SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey)
    };
    let mut keys = sections.iter_mut().filter(|(kind, _)| is_key(kind)).map(|(_, der)| der);
    let first = keys.next().map(std::mem::take);
    keys.for_each(|other| other.zeroize());
    first
}

/// PKCS#8 says so in its label, OpenSSL's older form in a header line of the section.
fn is_encrypted(pem: &[u8]) -> bool {
    let text = String::from_utf8_lossy(pem);
    text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED")
}

fn encrypted<T>(file: &str, span: Span, diagnostics: &mut Diagnostics) -> Option<T> {
    diagnostics
        .error(span, format!("the private key in '{file}' is encrypted, and there is no way to enter its passphrase"))
        .hint("decrypt it with 'openssl pkey -in FILE -out FILE.key' and protect the file by its mode");
    None
}

/// SubjectPublicKeyInfo has more than one encoding (a curve may be named by parameters); the key bits have one.
fn same_point(key: &SigningKey, bits: &[u8]) -> bool {
    let spki = key.spki();
    x509_parser::x509::SubjectPublicKeyInfo::from_der(&spki)
        .is_ok_and(|(_, own)| own.subject_public_key.as_ref() == bits)
}

/// Seconds since 1970.
pub(crate) fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64)
}

/// HAProxy starts with an expired certificate and so do we, even where warnings are errors (`-dW`), but not without a word.
fn validity(parsed: &X509Certificate<'_>, shown: &str, span: Span, diagnostics: &mut Diagnostics) {
    let now = now();
    let validity = parsed.validity();
    if now > validity.not_after.timestamp() {
        diagnostics.notice(span, format!("the certificate in '{shown}' expired on {}", validity.not_after));
    } else if now < validity.not_before.timestamp() {
        diagnostics.notice(span, format!("the certificate in '{shown}' is not valid before {}", validity.not_before));
    }
}

fn staple(
    path: &Path,
    parts: &Parts,
    extras: &Extras,
    loader: &dyn Loader,
    serial: &[u8],
    span: Span,
    diagnostics: &mut Diagnostics,
) -> Option<(Vec<u8>, Option<i64>)> {
    let file = match &parts.ocsp {
        Some(file) => file.clone(),
        None if extras.ocsp => extras.beside(path, "ocsp"),
        None => return None,
    };
    // An empty file is HAProxy's way to reserve the place for a response set at run time.
    let response = loader.read(&file).ok().filter(|response| !response.is_empty())?;
    match ocsp::read(&response, serial, now()) {
        Ok(staple) => Some((response, staple.until)),
        Err(why) => {
            diagnostics.warning(span, format!("the OCSP response '{}' is not sent: {why}", file.display()));
            None
        }
    }
}
