//! What mutual TLS between the machines of a test needs, made at once.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Writes `ca.pem` and for each host, and for `controller`, `NAME.pem` and `NAME.key`. The authority's key is not
/// kept: to add a machine, make all of them again. Returns the names of the files written.
///
/// # Errors
/// A sentence.
pub fn write(folder: &Path, hosts: &[String]) -> Result<Vec<PathBuf>, String> {
    fs::create_dir_all(folder).map_err(|e| format!("{} cannot be made: {e}", folder.display()))?;
    let made = |e: rcgen::Error| format!("a certificate cannot be made: {e}");
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.distinguished_name.push(DnType::CommonName, "penstock bench");
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().map_err(made)?).map_err(made)?;
    let mut files = vec![store(folder, "ca.pem", &issuer.pem(), 0o644)?];
    for host in std::iter::once("controller").chain(hosts.iter().map(String::as_str)) {
        if host.contains('/') {
            return Err(format!("'{host}' is no name of a host"));
        }
        let mut params =
            CertificateParams::new(vec![host.to_owned()]).map_err(|_| format!("'{host}' is no name of a host"))?;
        params.distinguished_name.push(DnType::CommonName, host);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().map_err(made)?;
        let certificate = params.signed_by(&key, &issuer).map_err(made)?;
        files.push(store(folder, &format!("{host}.pem"), &certificate.pem(), 0o644)?);
        files.push(store(folder, &format!("{host}.key"), &key.serialize_pem(), 0o600)?);
    }
    Ok(files)
}

fn store(folder: &Path, name: &str, text: &str, mode: u32) -> Result<PathBuf, String> {
    let path = folder.join(name);
    let _ = fs::remove_file(&path);
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|e| format!("{} cannot be written: {e}", path.display()))?;
    Ok(path)
}
