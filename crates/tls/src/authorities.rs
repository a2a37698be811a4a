//! Reads files of certificate authorities and of revocation lists.

use crate::{
    Loader,
    certificate::{reason, sections},
};
use penstock_config::{Diagnostics, Spanned};
use rustls::RootCertStore;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, pem::SectionKind};
use std::path::{Path, PathBuf};
use x509_parser::prelude::{CertificateRevocationList, FromDer as _};

/// Paths at which distributions store the authorities that `@system-ca` means, OpenSSL's own first.
const SYSTEM_CA: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// The certificates of a `ca-file`: a PEM file, a directory of such files, or the system's authorities.
pub(crate) fn certificates(
    file: &Spanned<PathBuf>,
    loader: &dyn Loader,
    diagnostics: &mut Diagnostics,
) -> Option<Vec<CertificateDer<'static>>> {
    let read = sections_of(file, loader, diagnostics)?;
    let found: Vec<CertificateDer<'static>> =
        read.into_iter().filter(|(kind, _)| *kind == SectionKind::Certificate).map(|(_, der)| der.into()).collect();
    if found.is_empty() {
        diagnostics.error(file.span, format!("'{}' holds no certificate of an authority", file.value.display()));
        return None;
    }
    Some(found)
}

/// The lists of a `crl-file`.
pub(crate) fn revocations(
    file: &Spanned<PathBuf>,
    loader: &dyn Loader,
    diagnostics: &mut Diagnostics,
) -> Option<Vec<CertificateRevocationListDer<'static>>> {
    let read = sections_of(file, loader, diagnostics)?;
    let found: Vec<CertificateRevocationListDer<'static>> =
        read.into_iter().filter(|(kind, _)| *kind == SectionKind::Crl).map(|(_, der)| der.into()).collect();
    if found.is_empty() {
        diagnostics.error(file.span, format!("'{}' holds no revocation list", file.value.display()));
        return None;
    }
    if found.iter().any(|der| is_version_1(der)) {
        diagnostics
            .error(
                file.span,
                format!(
                    "'{}' holds a revocation list of X.509 version 1; RFC 5280 has version 2",
                    file.value.display()
                ),
            )
            .hint("OpenSSL writes version 2 where 'crl_extensions' is set in the section of its 'ca' command");
        return None;
    }
    Some(found)
}

/// Whether a list has version 1, without a number and reasons; OpenSSL's `ca` writes such lists by default.
pub(crate) fn is_version_1(der: &[u8]) -> bool {
    CertificateRevocationList::from_der(der).is_ok_and(|(_, list)| list.version().is_none_or(|version| version.0 == 0))
}

/// A store of trust anchors; certificates that cannot serve as one are reported in a warning.
pub(crate) fn roots(
    certificates: &[CertificateDer<'static>],
    file: &Spanned<PathBuf>,
    diagnostics: &mut Diagnostics,
) -> RootCertStore {
    let mut store = RootCertStore::empty();
    let refused = certificates.iter().filter(|certificate| store.add((*certificate).clone()).is_err()).count();
    if refused > 0 {
        let shown = file.value.display();
        diagnostics.warning(file.span, format!("{refused} certificates in '{shown}' cannot serve as authorities"));
    }
    store
}

type Sections = Vec<(SectionKind, Vec<u8>)>;

fn sections_of(file: &Spanned<PathBuf>, loader: &dyn Loader, diagnostics: &mut Diagnostics) -> Option<Sections> {
    let shown = file.value.display();
    if file.value == Path::new("@system-ca") {
        let own = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
        let places = own.into_iter().chain(SYSTEM_CA.map(PathBuf::from));
        let Some(pem) = places.filter_map(|place| loader.read(&place).ok()).next() else {
            diagnostics
                .error(file.span, "this system has no store of authorities for '@system-ca'")
                .hint("install the package ca-certificates, or name a file");
            return None;
        };
        return sections(&pem).ok();
    }
    let files = match loader.list(&file.value) {
        Ok(Some(files)) => files.into_iter().filter(|path| is_authority_file(path)).collect(),
        Ok(None) => vec![file.value.clone()],
        Err(e) => {
            diagnostics.error(file.span, format!("directory '{shown}' cannot be read: {}", reason(&e)));
            return None;
        }
    };
    let mut all = Vec::new();
    for path in files {
        let shown = path.display();
        match loader
            .read(&path)
            .map_err(|e| format!("cannot be read: {}", reason(&e)))
            .and_then(|pem| sections(&pem).map_err(|e| format!("is not valid PEM: {e}")))
        {
            Ok(sections) => all.extend(sections),
            Err(e) => {
                diagnostics.error(file.span, format!("'{shown}' {e}"));
                return None;
            }
        }
    }
    Some(all)
}

/// Whether HAProxy would read this file of a directory.
fn is_authority_file(path: &Path) -> bool {
    let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    !hidden && path.extension().is_some_and(|e| e == "pem" || e == "crt" || e == "cer" || e == "crl")
}
