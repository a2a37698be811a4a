//! Certificates to serve: self-signed, made for the study.

use super::catalogue::Key;
use rcgen::{CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, RsaKeySize};
use std::{
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// The certificate of this kind in this directory, with its key in the same file; made when it is first asked for.
///
/// # Errors
/// A sentence.
pub fn file(directory: &Path, key: Key) -> Result<PathBuf, String> {
    let name = match key {
        Key::Rsa2048 => "rsa2048.pem",
        Key::Rsa4096 => "rsa4096.pem",
        Key::EcdsaP256 => "p256.pem",
    };
    let path = directory.join(name);
    if !path.exists() {
        let pem = made(key).map_err(|e| format!("cannot make a certificate: {e}"))?;
        let mut options = std::fs::OpenOptions::new();
        let opened = options.write(true).create_new(true).mode(0o600).open(&path);
        opened.and_then(|mut file| file.write_all(pem.as_bytes())).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(path)
}

fn made(key: Key) -> Result<String, rcgen::Error> {
    let key = match key {
        Key::Rsa2048 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
        Key::Rsa4096 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_4096),
        Key::EcdsaP256 => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256),
    }?;
    let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    Ok(params.self_signed(&key)?.pem() + &key.serialize_pem())
}
