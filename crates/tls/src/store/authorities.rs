//! CA files and CRL files: loaded with the lines that name them, and changed through the runtime API.

use super::{
    State, Store, StoreError,
    certificates::{Described, Status, describe, hex_upper, strip_sign, time},
    error::{Refusal, other_transaction},
    lines::Builder,
    servers,
};
use crate::{
    authorities,
    certificate::{certificates, sections},
};
use penstock_config::{Spanned, model::TlsConf};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, pem::SectionKind};
use std::path::PathBuf;
use x509_parser::prelude::{CertificateRevocationList, FromDer, X509Certificate};

/// The two kinds of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorityKind {
    /// Certificates of authorities (`ca-file`, `ca-verify-file`).
    Ca,
    /// Revocation lists (`crl-file`).
    Crl,
}

impl AuthorityKind {
    /// HAProxy's word for the kind in messages.
    pub fn word(self) -> &'static str {
        match self {
            AuthorityKind::Ca => "CA",
            AuthorityKind::Crl => "CRL",
        }
    }
}

/// The contents of a file.
#[derive(Clone)]
pub(super) struct Authority {
    kind: AuthorityKind,
    certificates: Vec<CertificateDer<'static>>,
    lists: Vec<CertificateRevocationListDer<'static>>,
}

impl Authority {
    fn is_empty(&self) -> bool {
        self.certificates.is_empty() && self.lists.is_empty()
    }
}

/// The name of a file, and the number of items in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorityFile {
    /// The name, with a star in front for the transaction's version.
    pub name: String,
    /// Certificates, or lists.
    pub count: usize,
}

/// A CRL or CA file, as shown to operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorityView {
    /// The name, with a star in front for the transaction's version.
    pub name: String,
    /// Whether the file is used.
    pub status: Status,
    /// For a CA file, its certificates with their numbers.
    pub certificates: Vec<(usize, Described)>,
    /// For a CRL file, its lists with their numbers.
    pub lists: Vec<(usize, RevocationView)>,
}

/// A revocation list in OpenSSL's format.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct RevocationView {
    pub version: u32,
    pub signature_algorithm: String,
    pub issuer: String,
    pub last_update: String,
    pub next_update: Option<String>,
    /// Serial numbers in hexadecimal, with the date of revocation.
    pub revoked: Vec<(String, String)>,
}

impl Builder<'_> {
    /// The certificates of a `ca-file`, which is read if it is not in the store.
    pub fn authority(&mut self, file: &Spanned<PathBuf>) -> Option<Vec<CertificateDer<'static>>> {
        let name = file.value.display().to_string();
        if let Some(known) = self.state.authorities.get(&name) {
            if known.certificates.is_empty() {
                self.diagnostics.error(file.span, format!("'{name}' holds no certificate of an authority"));
                return None;
            }
            return Some(known.certificates.clone());
        }
        let found = authorities::certificates(file, self.loader, self.diagnostics)?;
        let authority = Authority { kind: AuthorityKind::Ca, certificates: found.clone(), lists: Vec::new() };
        self.state.authorities.insert(name, authority);
        Some(found)
    }

    /// Reads the files of authorities that are named to no effect, since nobody is verified by them: a slip in their names is an
    /// error all the same.
    pub fn authorities_of(&mut self, conf: &TlsConf) -> Option<()> {
        for file in [&conf.ca_file, &conf.ca_verify_file].into_iter().flatten() {
            self.authority(file)?;
        }
        conf.crl_file.as_ref().map_or(Some(()), |file| self.revocations(file).map(drop))
    }

    /// The lists of a `crl-file`, which is read if it is not in the store.
    pub fn revocations(&mut self, file: &Spanned<PathBuf>) -> Option<Vec<CertificateRevocationListDer<'static>>> {
        let name = file.value.display().to_string();
        match self.state.authorities.get(&name) {
            Some(known) if !known.lists.is_empty() => return Some(known.lists.clone()),
            // A CA file that is also named as a CRL file is read again for its lists.
            Some(known) if known.kind == AuthorityKind::Crl => {
                self.diagnostics.error(file.span, format!("'{name}' holds no revocation list"));
                return None;
            }
            _ => {}
        }
        let found = authorities::revocations(file, self.loader, self.diagnostics)?;
        let fresh = || Authority { kind: AuthorityKind::Crl, certificates: Vec::new(), lists: Vec::new() };
        self.state.authorities.entry(name).or_insert_with(fresh).lists.clone_from(&found);
        Some(found)
    }
}

/// Whether these settings name that file.
fn names(conf: &TlsConf, file: &str) -> bool {
    let is = |named: &Option<Spanned<PathBuf>>| named.as_ref().is_some_and(|named| named.value.as_os_str() == file);
    is(&conf.ca_file) || is(&conf.ca_verify_file) || is(&conf.crl_file)
}

impl State {
    fn change(&mut self, kind: AuthorityKind) -> &mut Option<(String, Authority)> {
        match kind {
            AuthorityKind::Ca => &mut self.ca_change,
            AuthorityKind::Crl => &mut self.crl_change,
        }
    }

    fn refers(&self, file: &str) -> bool {
        self.line_refers(|conf| names(conf, file)) || self.server_refers(|tls, _| names(&tls.conf, file))
    }
}

impl Store {
    /// The CA files, or the CRL files; separately, the transaction's, if there is one.
    pub fn authorities(&self, kind: AuthorityKind) -> (Option<AuthorityFile>, Vec<AuthorityFile>) {
        let state = &mut *self.state();
        let file = |name: &str, authority: &Authority| AuthorityFile {
            name: name.to_owned(),
            count: match kind {
                AuthorityKind::Ca => authority.certificates.len(),
                AuthorityKind::Crl => authority.lists.len(),
            },
        };
        let change = state.change(kind).as_ref().map(|(name, authority)| file(&format!("*{name}"), authority));
        let known = state.authorities.iter().filter(|(_, authority)| authority.kind == kind);
        (change, known.map(|(name, authority)| file(name, authority)).collect())
    }

    /// One file, or only its item with the given number (from 1); with a star before the name, the transaction's
    /// version.
    ///
    /// # Errors
    ///
    /// If there is none of that name, or the number is invalid.
    pub fn authority(&self, kind: AuthorityKind, name: &str) -> Result<AuthorityView, StoreError> {
        let (file, index) = match name.rsplit_once(':') {
            Some((file, digits)) => match digits.parse::<usize>() {
                Ok(index @ 1..) => (file, Some(index)),
                _ => {
                    let text = format!("wrong {} index after colons in '{name}'!", kind.word());
                    return Err(StoreError::new(Refusal::BadIndex, text));
                }
            },
            None => (name, None),
        };
        let state = &mut *self.state();
        let not_found =
            || StoreError::new(Refusal::Unknown, format!("Can't display the {} file : Not found!", kind.word()));
        let (status, authority) = match file.strip_prefix('*') {
            Some(wanted) => {
                let change = state.change(kind).as_ref().filter(|(ongoing, _)| ongoing == wanted);
                (Status::Unused, change.map(|(_, authority)| authority.clone()).ok_or_else(not_found)?)
            }
            None => {
                let known = state.authorities.get(file).filter(|authority| authority.kind == kind);
                let known = known.cloned().ok_or_else(not_found)?;
                let status = match known.is_empty() {
                    true => Status::Empty,
                    false if state.refers(file) => Status::Used,
                    false => Status::Unused,
                };
                (status, known)
            }
        };
        let wanted = |number: &usize| index.is_none_or(|index| index == *number);
        let described = authority.certificates.iter().filter_map(|der| describe(der));
        let lists = authority.lists.iter().filter_map(|der| describe_list(der));
        Ok(AuthorityView {
            name: file.to_owned(),
            status,
            certificates: (1..).zip(described).filter(|(number, _)| wanted(number)).collect(),
            lists: (1..).zip(lists).filter(|(number, _)| wanted(number)).collect(),
        })
    }

    /// Creates an empty file.
    ///
    /// # Errors
    ///
    /// If the name is taken.
    pub fn new_authority(&self, kind: AuthorityKind, name: &str) -> Result<(), StoreError> {
        let state = &mut *self.state();
        if state.authorities.contains_key(name) {
            let text = format!("{} file '{name}' already exists!", kind.word());
            return Err(StoreError::new(Refusal::Taken, text));
        }
        let empty = Authority { kind, certificates: Vec::new(), lists: Vec::new() };
        state.authorities.insert(name.to_owned(), empty);
        Ok(())
    }

    /// Starts a transaction that replaces the contents of a file, or changes the current one; returns whether it is
    /// new. With `add`, the existing contents stay.
    ///
    /// # Errors
    ///
    /// If the payload contains nothing of that kind, there is no file of that name, or the current transaction is about
    /// another file.
    pub fn set_authority(&self, kind: AuthorityKind, name: &str, payload: &str, add: bool) -> Result<bool, StoreError> {
        let state = &mut *self.state();
        let known = state.authorities.get(name).filter(|authority| authority.kind == kind).cloned();
        let change = state.change(kind);
        if let Some((ongoing, _)) = change.as_ref().filter(|(ongoing, _)| ongoing != name) {
            return Err(other_transaction(ongoing, "set", name));
        }
        let Some(known) = known else {
            let word = kind.word();
            let text = format!("Can't replace a {word} file which is not referenced by the configuration!");
            return Err(StoreError::new(Refusal::Unknown, text));
        };
        let new = change.is_none();
        let mut next = match change {
            Some((_, ongoing)) if add => ongoing.clone(),
            None if add => known,
            _ => Authority { kind, certificates: Vec::new(), lists: Vec::new() },
        };
        read(&mut next, payload).map_err(|why| StoreError::new(Refusal::BadInput, why))?;
        *change = Some((name.to_owned(), next));
        Ok(new)
    }

    /// Makes all lines that name the file verify by the contents in the transaction, and ends that; returns how many
    /// certificates and servers are affected. Sessions from before are not resumed if the policy has changed.
    ///
    /// # Errors
    ///
    /// If there is no transaction about this file, or nothing can be verified by it; the transaction continues then,
    /// and nothing has changed.
    pub fn commit_authority(&self, kind: AuthorityKind, name: &str) -> Result<usize, StoreError> {
        let (settings, state) = (self.settings(), &mut *self.state());
        let next = match state.change(kind) {
            None => return Err(StoreError::new(Refusal::NoTransaction, "No ongoing transaction! !")),
            Some((ongoing, _)) if ongoing != name => return Err(other_transaction(ongoing, "set", name)),
            Some((_, next)) => next.clone(),
        };
        let before = state.authorities.insert(name.to_owned(), next);
        let drafts = state.draft_authorities(settings, |conf| names(conf, name)).and_then(|lines| {
            let servers = servers::draft(settings, state, |tls, _| names(&tls.conf, name), None)?;
            Ok((lines, servers))
        });
        match drafts {
            Ok((lines, servers)) => {
                let instances = lines.len() + servers.len();
                state.apply(lines);
                state.apply_servers(servers);
                *state.change(kind) = None;
                Ok(instances)
            }
            Err(why) => {
                match before {
                    Some(before) => state.authorities.insert(name.to_owned(), before),
                    None => state.authorities.remove(name),
                };
                Err(StoreError::new(Refusal::BadInput, why))
            }
        }
    }

    /// Drops the transaction.
    ///
    /// # Errors
    ///
    /// If there is none about this file.
    pub fn abort_authority(&self, kind: AuthorityKind, name: &str) -> Result<(), StoreError> {
        let state = &mut *self.state();
        let change = state.change(kind);
        match change {
            None => Err(StoreError::new(Refusal::NoTransaction, "No ongoing transaction!")),
            Some((ongoing, _)) if ongoing != name => Err(other_transaction(ongoing, "abort", name)),
            Some(_) => {
                *change = None;
                Ok(())
            }
        }
    }

    /// Removes a file that no line names.
    ///
    /// # Errors
    ///
    /// If there is none of that name, it is in use or of the other kind, or the transaction is about it.
    pub fn delete_authority(&self, kind: AuthorityKind, name: &str) -> Result<(), StoreError> {
        let word = kind.word();
        let refuse =
            |refusal, text: String| Err(StoreError::new(refusal, format!("Can't remove the {word} file: {text}")));
        let state = &mut *self.state();
        if state.change(kind).as_ref().is_some_and(|(ongoing, _)| ongoing == name) {
            return refuse(Refusal::OtherTransaction, format!("ongoing transaction for the {word} file '{name}'"));
        }
        let Some(known) = state.authorities.get(name) else {
            return refuse(Refusal::Unknown, format!("{word} file '{name}' doesn't exist!"));
        };
        if state.refers(name) {
            return refuse(Refusal::InUse, format!("{word} file '{name}' in use, can't be deleted!"));
        }
        if known.kind != kind {
            let (own, other) = match kind {
                AuthorityKind::Ca => ("ca-file", "CRL"),
                AuthorityKind::Crl => ("crl-file", "CA"),
            };
            return refuse(Refusal::Unknown, format!("'del ssl {own}' does not work on {other} files!"));
        }
        state.authorities.remove(name);
        Ok(())
    }
}

/// Adds the contents of a payload, or says why it cannot be used.
fn read(authority: &mut Authority, payload: &str) -> Result<(), &'static str> {
    const INVALID: &str = "Invalid payload";
    let found = sections(payload.as_bytes()).map_err(|_| INVALID)?;
    match authority.kind {
        AuthorityKind::Ca => {
            let found = certificates(&found);
            let good = !found.is_empty() && found.iter().all(|der| X509Certificate::from_der(der).is_ok());
            authority.certificates.extend(good.then_some(found).ok_or(INVALID)?);
        }
        AuthorityKind::Crl => {
            let lists = found.into_iter().filter(|(kind, _)| *kind == SectionKind::Crl).map(|(_, der)| der);
            let lists: Vec<CertificateRevocationListDer<'static>> = lists.map(Into::into).collect();
            if lists.iter().any(|der| authorities::is_version_1(der)) {
                return Err("A revocation list of X.509 version 1: RFC 5280 has version 2");
            }
            let good = !lists.is_empty() && lists.iter().all(|der| CertificateRevocationList::from_der(der).is_ok());
            authority.lists.extend(good.then_some(lists).ok_or(INVALID)?);
        }
    }
    Ok(())
}

fn describe_list(der: &CertificateRevocationListDer<'_>) -> Option<RevocationView> {
    use penstock_rules::x509;
    let (_, list) = CertificateRevocationList::from_der(der).ok()?;
    let revoked = list.iter_revoked_certificates();
    Some(RevocationView {
        version: list.version().map_or(1, |version| version.0 + 1),
        signature_algorithm: signature(&list.signature_algorithm.algorithm.to_id_string()),
        issuer: x509::one_line(list.issuer()),
        last_update: time(&list.last_update()),
        next_update: list.next_update().map(|at| time(&at)),
        revoked: revoked.map(|one| (hex_upper(strip_sign(one.raw_serial())), time(&one.revocation_date))).collect(),
    })
}

/// OpenSSL's long name of a signature algorithm, or its number if it has none.
fn signature(oid: &str) -> String {
    const NAMES: [(&str, &str); 9] = [
        ("1.2.840.113549.1.1.5", "sha1WithRSAEncryption"),
        ("1.2.840.113549.1.1.10", "rsassaPss"),
        ("1.2.840.113549.1.1.11", "sha256WithRSAEncryption"),
        ("1.2.840.113549.1.1.12", "sha384WithRSAEncryption"),
        ("1.2.840.113549.1.1.13", "sha512WithRSAEncryption"),
        ("1.2.840.10045.4.3.2", "ecdsa-with-SHA256"),
        ("1.2.840.10045.4.3.3", "ecdsa-with-SHA384"),
        ("1.2.840.10045.4.3.4", "ecdsa-with-SHA512"),
        ("1.3.101.112", "ED25519"),
    ];
    NAMES.iter().find(|(known, _)| *known == oid).map_or(oid, |(_, name)| name).to_owned()
}

/// The dates from and until which a certificate is valid, in OpenSSL's format; and whether it has expired.
pub(super) fn validity(der: &CertificateDer<'_>) -> (String, String, bool) {
    let Ok((_, parsed)) = X509Certificate::from_der(der) else { return Default::default() };
    let validity = parsed.validity();
    let expired = crate::certificate::now() > validity.not_after.timestamp();
    (time(&validity.not_before), time(&validity.not_after), expired)
}
