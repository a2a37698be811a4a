//! Operations of the runtime API on certificates.

use super::{
    State, Store, StoreError, authorities,
    error::{Refusal, other_transaction},
    servers,
};
use crate::certificate::{Certificate, Flaw, Material, certificates, is_encrypted, private_key, sections};
use base64::Engine as _;
use penstock_engine::SigningKey;
use rustls_pki_types::CertificateDer;
use std::sync::Arc;
use x509_parser::{
    prelude::{FromDer, GeneralName, X509Certificate},
    time::ASN1Time,
};
use zeroize::Zeroizing;

/// Whether an item of the store is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// A `bind` or `server` line uses the item.
    Used,
    /// Nothing uses the item, which includes what a transaction has not committed yet.
    Unused,
    /// The item was created by `new ssl ...`, and nothing has been committed to it.
    Empty,
}

impl Status {
    /// HAProxy's word for the status.
    pub fn word(self) -> &'static str {
        match self {
            Status::Used => "Used",
            Status::Unused => "Unused",
            Status::Empty => "Empty",
        }
    }
}

/// The names of all certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateFile {
    /// The one that a transaction is about.
    pub transaction: Option<String>,
    /// All names, sorted.
    pub names: Vec<String>,
}

/// A certificate, as shown to operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateView {
    /// The name, with a star in front for the transaction's version.
    pub name: String,
    /// Whether the certificate is used.
    pub status: Status,
    /// The certificate, and those of its issuers that are sent with it.
    pub chain: Vec<Described>,
    /// The name of its OCSP response, in hexadecimal; empty if it has none.
    pub ocsp_key: String,
}

/// One certificate in OpenSSL's format.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Described {
    /// In upper-case hexadecimal.
    pub serial: String,
    /// `Nov 24 15:11:06 2026 GMT`.
    pub not_before: String,
    /// As `not_before`.
    pub not_after: String,
    /// `DNS:NAME`; empty for an alternative name that is not shown. Addresses are omitted.
    pub alternative_names: Vec<String>,
    /// `RSA2048`, `EC256`.
    pub algorithm: String,
    /// SHA-1 of the certificate, in upper-case hexadecimal.
    pub fingerprint: String,
    /// `/C=FR/CN=a.example`.
    pub subject: String,
    /// As `subject`.
    pub issuer: String,
}

/// A name that a line has a certificate for, for `show ssl sni`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct NameView {
    pub frontend: String,
    /// `FILE:LINE` of the `bind` line.
    pub place: String,
    /// A name, or a star and what follows it.
    pub name: String,
    /// Names that the certificate's filters exclude from its wildcards.
    pub excluded: Vec<String>,
    /// `rsa` or `ecdsa`.
    pub kind: &'static str,
    pub certificate: String,
    /// In OpenSSL's format.
    pub not_after: String,
    pub not_before: String,
    /// Whether the certificate has expired.
    pub expired: bool,
}

impl Store {
    /// The names that lines have certificates for, optionally only those of one frontend.
    pub fn names(&self, frontend: Option<&str>) -> Vec<NameView> {
        let state = self.state();
        let mut views = Vec::new();
        for line in state.lines.iter().filter(|line| frontend.is_none_or(|wanted| wanted == line.frontend)) {
            let table = line.live.load_full();
            for (name, contexts) in table.names.all() {
                for context in contexts {
                    let Some(instance) = line.instances.get(&context.order) else { continue };
                    let (not_before, not_after, expired) = authorities::validity(context.certificate.leaf());
                    views.push(NameView {
                        frontend: line.frontend.clone(),
                        place: line.place.clone(),
                        name: name.clone(),
                        excluded: instance.excluded.clone(),
                        kind: match context.certificate.kind() {
                            penstock_engine::KeyKind::Rsa { .. } => "rsa",
                            _ => "ecdsa",
                        },
                        certificate: instance.certificate.to_string(),
                        not_after,
                        not_before,
                        expired,
                    });
                }
            }
        }
        views
    }

    /// The names of all certificates.
    pub fn certificates(&self) -> CertificateFile {
        let state = self.state();
        CertificateFile {
            transaction: state.certificate_change.as_ref().map(|(name, _)| name.clone()),
            names: state.certificates.keys().cloned().collect(),
        }
    }

    /// One certificate; with a star before the name, the transaction's version.
    ///
    /// # Errors
    ///
    /// If there is none of that name.
    pub fn certificate(&self, name: &str) -> Result<CertificateView, StoreError> {
        const NOT_FOUND: &str = "Can't display the certificate: Not found or the certificate is a bundle!";
        let not_found = || StoreError::new(Refusal::Unknown, NOT_FOUND);
        let state = self.state();
        if let Some(wanted) = name.strip_prefix('*') {
            let (_, material) =
                state.certificate_change.as_ref().filter(|(ongoing, _)| ongoing == wanted).ok_or_else(not_found)?;
            let chain = material.chain.iter().filter_map(|der| describe(der)).collect();
            return Ok(CertificateView {
                name: name.to_owned(),
                status: Status::Unused,
                chain,
                ocsp_key: String::new(),
            });
        }
        let slot = state.certificates.get(name).ok_or_else(not_found)?;
        let Some(certificate) = &slot.certificate else {
            let (name, status) = (name.to_owned(), Status::Empty);
            return Ok(CertificateView { name, status, chain: Vec::new(), ocsp_key: String::new() });
        };
        Ok(CertificateView {
            name: name.to_owned(),
            status: if state.is_used(name) { Status::Used } else { Status::Unused },
            chain: certificate.certified.cert.iter().filter_map(|der| describe(der)).collect(),
            ocsp_key: certificate.ocsp_id.as_ref().map(|id| hex_lower(&id.to_der())).unwrap_or_default(),
        })
    }

    /// Creates an empty certificate.
    ///
    /// # Errors
    ///
    /// If the name is taken.
    pub fn new_certificate(&self, name: &str) -> Result<(), StoreError> {
        let state = &mut *self.state();
        if state.certificates.contains_key(name) {
            return Err(StoreError::new(Refusal::Taken, format!("Certificate '{name}' already exists!")));
        }
        state.refused.remove(name);
        state.certificates.entry(name.to_owned()).or_default();
        Ok(())
    }

    /// Starts a transaction that replaces the certificate, key, issuer or OCSP response (according to the extension of
    /// the name), or changes the current one; returns the certificate's name, and whether the transaction is new.
    ///
    /// # Errors
    ///
    /// If the payload is none of these, there is no certificate of that name, or the current transaction is about
    /// another. (HAProxy 2.6 would change that other one.)
    pub fn set_certificate(&self, name: &str, payload: &str) -> Result<(String, bool), StoreError> {
        let state = &mut *self.state();
        let (name, part) = state.part(name, self.settings().extras.replace_extension);
        let name = name.as_str();
        let ongoing = state.certificate_change.as_ref();
        let mut material = match ongoing {
            Some((other, _)) if other != name => return Err(other_transaction(other, "set", name)),
            Some((_, material)) => material.clone(),
            None => match state.certificates.get(name) {
                Some(slot) => slot.certificate.as_ref().map(|certificate| certificate.material()).unwrap_or_default(),
                None => {
                    const TEXT: &str = "Can't replace a certificate which is not referenced by the configuration!";
                    return Err(StoreError::new(Refusal::Unknown, TEXT));
                }
            },
        };
        let new = ongoing.is_none();
        replace(&mut material, part, payload).map_err(|why| {
            let text = why.replace("{}", name) + "\nCan't load the payload";
            StoreError::new(Refusal::BadInput, text)
        })?;
        let name = name.to_owned();
        state.certificate_change = Some((name.clone(), material));
        Ok((name, new))
    }

    /// Makes all lines that have the certificate present the transaction's version, and ends the transaction; returns
    /// how many lines that are.
    ///
    /// # Errors
    ///
    /// If there is no transaction about this certificate, or its parts do not form one; the transaction continues then,
    /// and nothing has changed.
    pub fn commit_certificate(&self, name: &str) -> Result<usize, StoreError> {
        let (settings, state) = (self.settings(), &mut *self.state());
        let material = match &state.certificate_change {
            None => return Err(StoreError::new(Refusal::NoTransaction, "No ongoing transaction! !")),
            Some((ongoing, _)) if ongoing != name => return Err(other_transaction(ongoing, "set", name)),
            Some((_, material)) => material.clone(),
        };
        let certificate = Certificate::new(material).map_err(|flaw| refusal(&flaw, name))?;
        let certificate = Arc::new(certificate);
        let draft = state.draft_certificate(name, &certificate);
        let servers = servers::draft(settings, state, |_, used| used == Some(name), Some((name, &certificate)));
        let servers = servers.map_err(|why| StoreError::new(Refusal::BadInput, why))?;
        let instances = draft.len() + servers.len();
        state.certificates.entry(name.to_owned()).or_default().certificate = Some(certificate);
        state.apply(draft);
        state.apply_servers(servers);
        state.certificate_change = None;
        Ok(instances)
    }

    /// Drops the transaction.
    ///
    /// # Errors
    ///
    /// If there is none about this certificate.
    pub fn abort_certificate(&self, name: &str) -> Result<(), StoreError> {
        let state = &mut *self.state();
        match &state.certificate_change {
            None => Err(StoreError::new(Refusal::NoTransaction, "No ongoing transaction!")),
            Some((ongoing, _)) if ongoing != name => Err(other_transaction(ongoing, "abort", name)),
            Some(_) => {
                state.certificate_change = None;
                Ok(())
            }
        }
    }

    /// Removes a certificate that is not used.
    ///
    /// # Errors
    ///
    /// If there is none of that name, it is in use, or the transaction is about it.
    pub fn delete_certificate(&self, name: &str) -> Result<(), StoreError> {
        let refuse =
            |refusal, text: String| Err(StoreError::new(refusal, format!("Can't remove the certificate: {text}")));
        let state = &mut *self.state();
        if state.certificate_change.as_ref().is_some_and(|(ongoing, _)| ongoing == name) {
            return refuse(Refusal::OtherTransaction, format!("ongoing transaction for the certificate '{name}'"));
        }
        if !state.certificates.contains_key(name) {
            return refuse(Refusal::Unknown, format!("certificate '{name}' doesn't exist!"));
        }
        if state.is_used(name) || state.is_listed(name) {
            return refuse(Refusal::InUse, format!("certificate '{name}' in use, can't be deleted!"));
        }
        state.certificates.remove(name);
        Ok(())
    }

    /// The private key, the certificate and those of its issuers, in PEM.
    ///
    /// # Errors
    ///
    /// If there is none of that name, or it is empty.
    pub fn dump_certificate(&self, name: &str) -> Result<Zeroizing<String>, StoreError> {
        let state = self.state();
        let found = state.certificates.get(name).and_then(|slot| slot.certificate.as_ref());
        let Some(certificate) = found else {
            const TEXT: &str = "Can't dump the certificate: Not found or the certificate is a bundle!";
            return Err(StoreError::new(Refusal::Unknown, TEXT));
        };
        let key = certificate.key.der().expose();
        let mut text = Zeroizing::new(String::new());
        text.push_str(&Zeroizing::new(pem(key_label(key), key)));
        certificate.certified.cert.iter().for_each(|der| text.push_str(&pem("CERTIFICATE", der)));
        Ok(text)
    }
}

/// The file of a certificate that a payload replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Certificate,
    Key,
    Issuer,
    Response,
    Timestamps,
}

impl State {
    fn is_used(&self, name: &str) -> bool {
        let instances = self.certificates.get(name).is_some_and(|slot| !slot.instances.is_empty());
        instances || self.server_refers(|_, used| used == Some(name))
    }

    /// The certificate that a name refers to, and which of its files. With `ssl-load-extra-del-ext`, `x.key` belongs to `x.crt` if there
    /// is no certificate `x`.
    fn part(&self, name: &str, replace_extension: bool) -> (String, Part) {
        const PARTS: [(&str, Part); 4] =
            [(".key", Part::Key), (".issuer", Part::Issuer), (".ocsp", Part::Response), (".sctl", Part::Timestamps)];
        if self.certificates.contains_key(name) {
            return (name.to_owned(), Part::Certificate);
        }
        let found = PARTS.iter().find_map(|(extension, part)| Some((name.strip_suffix(extension)?, *part)));
        let Some((stem, part)) = found else { return (name.to_owned(), Part::Certificate) };
        if replace_extension && !self.certificates.contains_key(stem) {
            return (format!("{stem}.crt"), part);
        }
        (stem.to_owned(), part)
    }
}

/// Replaces a part of a transaction's material; after an error (a sentence with `{}` for the name) it is unchanged.
fn replace(material: &mut Material, part: Part, payload: &str) -> Result<(), String> {
    const NO_KEY: &str = "unable to load private key from file '{}'.";
    match part {
        Part::Certificate => {
            const NONE: &str = "unable to load certificate from file '{}'.";
            let mut sections = sections(payload.as_bytes()).map_err(|_| NONE)?;
            let chain = certificates(&sections);
            if chain.is_empty() || X509Certificate::from_der(&chain[0]).is_err() {
                return Err(NONE.into());
            }
            let key = private_key(&mut sections).map(SigningKey::from_der).transpose().map_err(|_| NO_KEY)?;
            if key.is_none() && is_encrypted(payload.as_bytes()) {
                return Err(NO_KEY.into());
            }
            *material = Material { chain, key: key.map(Arc::new), issuer: None, response: None };
        }
        Part::Key => {
            let mut sections = sections(payload.as_bytes()).map_err(|_| NO_KEY)?;
            let key = private_key(&mut sections).ok_or(NO_KEY)?;
            material.key = Some(Arc::new(SigningKey::from_der(key).map_err(|_| NO_KEY)?));
        }
        Part::Issuer => {
            const NONE: &str = "'{}' cannot be read or parsed'.";
            let issuer = sections(payload.as_bytes()).ok().and_then(|found| certificates(&found).into_iter().next());
            material.issuer = Some(issuer.ok_or(NONE)?);
        }
        Part::Response => {
            material.response = Some(base64_of(payload).ok_or("Error reading OCSP response in base64 format")?)
        }
        Part::Timestamps => {
            return Err("'{}.sctl' has no use: timestamps are sent only as part of certificates.".into());
        }
    }
    Ok(())
}

fn refusal(flaw: &Flaw, name: &str) -> StoreError {
    match flaw {
        Flaw::Incomplete => StoreError::new(
            Refusal::Incomplete,
            "The transaction must contain at least a certificate and a private key!",
        ),
        Flaw::Mismatch => StoreError::new(
            Refusal::Mismatch,
            format!("inconsistencies between private key and certificate loaded '{name}'."),
        ),
        Flaw::Undecodable(_) => {
            StoreError::new(Refusal::BadInput, format!("unable to load certificate from file '{name}'."))
        }
        Flaw::Response(why, _) => StoreError::new(Refusal::BadInput, why.at_run_time()),
    }
}

/// Decodes base64 that may be split into lines.
pub(super) fn base64_of(text: &str) -> Option<Vec<u8>> {
    let text: String = text.split_whitespace().collect();
    base64::engine::general_purpose::STANDARD.decode(text).ok()
}

pub(super) fn hex_lower(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn hex_upper(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

/// A certificate in OpenSSL's format; `None` if it cannot be decoded.
pub(super) fn describe(der: &CertificateDer<'_>) -> Option<Described> {
    use penstock_rules::x509;
    let (_, parsed) = X509Certificate::from_der(der).ok()?;
    let fingerprint = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY, der);
    let alternative = parsed.subject_alternative_name().ok().flatten().map(|extension| extension.value);
    let names = alternative.iter().flat_map(|names| &names.general_names);
    let algorithm = || match parsed.public_key().algorithm.algorithm.to_id_string().as_str() {
        "1.3.101.112" => "ED25519".to_owned(),
        _ => String::new(),
    };
    Some(Described {
        serial: hex_upper(strip_sign(parsed.raw_serial())),
        not_before: time(&parsed.validity().not_before),
        not_after: time(&parsed.validity().not_after),
        alternative_names: names
            .filter_map(|name| match name {
                GeneralName::DNSName(name) => Some(format!("DNS:{name}")),
                GeneralName::IPAddress(_) => None,
                _ => Some(String::new()),
            })
            .collect(),
        algorithm: x509::key_with_size(der).unwrap_or_else(algorithm),
        fingerprint: hex_upper(fingerprint.as_ref()),
        subject: x509::one_line(parsed.subject()),
        issuer: x509::one_line(parsed.issuer()),
    })
}

/// The bytes of a positive number without a leading zero for its sign.
pub(super) fn strip_sign(serial: &[u8]) -> &[u8] {
    match serial {
        [0, rest @ ..] if !rest.is_empty() => rest,
        _ => serial,
    }
}

/// A time in OpenSSL's format: `Nov  4 15:11:06 2026 GMT`.
pub(super) fn time(time: &ASN1Time) -> String {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let at = time.to_datetime();
    let month = MONTHS[usize::from(u8::from(at.month())) - 1];
    format!("{month} {:2} {:02}:{:02}:{:02} {} GMT", at.day(), at.hour(), at.minute(), at.second(), at.year())
}

/// The PEM label for this kind of key.
fn key_label(der: &[u8]) -> &'static str {
    use rustls_pki_types::PrivateKeyDer;
    match PrivateKeyDer::try_from(der) {
        Ok(PrivateKeyDer::Pkcs1(_)) => "RSA PRIVATE KEY",
        Ok(PrivateKeyDer::Sec1(_)) => "EC PRIVATE KEY",
        _ => "PRIVATE KEY",
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    let body = Zeroizing::new(base64::engine::general_purpose::STANDARD.encode(der));
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in body.as_bytes().chunks(64) {
        // Base64 is ASCII.
        text.push_str(std::str::from_utf8(line).unwrap_or_default());
        text.push('\n');
    }
    text + &format!("-----END {label}-----\n")
}
