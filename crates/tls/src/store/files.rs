//! The files that a path in the configuration stands for: a certificate, or a `load` line of a `crt-store`.

use crate::{
    Loader,
    certificate::{self, Certificate, Extras, Parts},
};
use penstock_config::{Diagnostics, Span, model::CrtStore};
use std::path::{Path, PathBuf};

/// Reads the certificate of a file, or of a `load` line of a `crt-store`.
pub fn load(
    stores: &[CrtStore],
    extras: &Extras,
    path: &Path,
    loader: &dyn Loader,
    span: Span,
    diagnostics: &mut Diagnostics,
) -> Option<Certificate> {
    let (path, parts) = match stored(stores, path) {
        Some(Ok(found)) => found,
        Some(Err(what)) => {
            diagnostics.error(span, what);
            return None;
        }
        None => (path.to_owned(), Parts::default()),
    };
    certificate::load(&path, &parts, extras, loader, span, diagnostics)
}

/// Whether HAProxy would read this file of a directory.
pub fn is_certificate_file(path: &Path) -> bool {
    let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let reserved = |e: &std::ffi::OsStr| ["key", "issuer", "ocsp", "sctl"].iter().any(|r| e == *r);
    !hidden && !path.extension().is_some_and(reserved)
}

/// `@STORE/NAME` refers to a `crt-store`.
pub fn is_stored(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().starts_with(b"@")
}

/// One `load` line of a `crt-store`.
pub struct Load<'c> {
    /// The certificate's file as written, by which lines may refer to it.
    pub crt: &'c str,
    pub alias: Option<&'c str>,
    pub path: PathBuf,
    parts: Parts,
    pub span: Span,
}

/// The `load` lines of a `crt-store`.
pub fn loads(store: &CrtStore) -> impl Iterator<Item = Load<'_>> {
    let based = |base: &Option<PathBuf>, file: &str| match base {
        Some(base) if !file.starts_with('/') => base.join(file),
        _ => PathBuf::from(file),
    };
    store.loads.iter().filter_map(move |line| {
        let crt = line.value_of("crt")?;
        let parts = Parts {
            key: line.value_of("key").map(|key| based(&store.key_base, key)),
            ocsp: line.value_of("ocsp").map(PathBuf::from),
            passphrase: None,
        };
        Some(Load { crt, alias: line.value_of("alias"), path: based(&store.crt_base, crt), parts, span: line.span })
    })
}

/// The files that a `crt-store` has for a name; `None` for a path that none loads. What a store without a name loads, without an alias, is
/// also known by its path alone.
fn stored(stores: &[CrtStore], path: &Path) -> Option<Result<(PathBuf, Parts), String>> {
    let text = path.to_str()?;
    let Some(text) = text.strip_prefix('@') else {
        let mut unnamed = stores.iter().filter(|store| store.name.is_empty()).flat_map(loads);
        let found = unnamed.find(|load| load.alias.is_none() && (load.crt == text || load.path == path));
        return found.map(|load| Ok((load.path, load.parts)));
    };
    let (store_name, wanted) = text.split_once('/')?;
    let Some(store) = stores.iter().find(|store| store.name == store_name) else {
        return Some(Err(format!("there is no crt-store '{store_name}'")));
    };
    let found = loads(store).find(|load| load.alias == Some(wanted) || load.crt == wanted);
    Some(match found {
        Some(load) => Ok((load.path, load.parts)),
        None => Err(format!("crt-store '{store_name}' loads no certificate '{wanted}'")),
    })
}
