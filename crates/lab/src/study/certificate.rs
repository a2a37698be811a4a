//! Certificates to serve: self-signed, made for the study.

use super::catalogue::Key;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, RsaKeySize,
};
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
        let pem = key_pair(key).and_then(|key| Ok(for_localhost()?.self_signed(&key)?.pem() + &key.serialize_pem()));
        write(&path, &pem.map_err(cannot)?)?;
    }
    Ok(path)
}

/// An authority that clients of proxies trust, with its key.
///
/// # Errors
/// A sentence.
pub fn authority(directory: &Path, key: Key) -> Result<PathBuf, String> {
    let path = directory.join(match key {
        Key::Rsa2048 => "authority-rsa2048.pem",
        Key::Rsa4096 => "authority-rsa4096.pem",
        Key::EcdsaP256 => "authority-p256.pem",
    });
    if !path.exists() {
        let key = key_pair(key).map_err(cannot)?;
        let pem = authority_params("proxies").self_signed(&key).map_err(cannot)?.pem();
        write(&path, &(pem + &key.serialize_pem()))?;
    }
    Ok(path)
}

/// The certificate of the backend servers, with its key, and the authority that has signed it.
#[derive(Clone, Debug)]
pub struct Origins {
    /// The certificate, with its key.
    pub certificate: PathBuf,
    /// The authority, with its key.
    pub authority: PathBuf,
    /// The authority's certificate alone.
    pub roots: PathBuf,
}

/// Makes them.
///
/// # Errors
/// A sentence.
pub fn origins(directory: &Path) -> Result<Origins, String> {
    let key = key_pair(Key::EcdsaP256).map_err(cannot)?;
    let (params, authority_key) = (authority_params("servers"), key_pair(Key::EcdsaP256).map_err(cannot)?);
    let roots = params.self_signed(&authority_key).map_err(cannot)?.pem();
    let authority = roots.clone() + &authority_key.serialize_pem();
    let issuer = Issuer::new(params, authority_key);
    let made = for_localhost().and_then(|params| params.signed_by(&key, &issuer)).map_err(cannot)?;
    let [certificate, authority_file, roots_file] =
        ["origin.pem", "origin-authority.pem", "origin-authority.crt"].map(|name| directory.join(name));
    write(&certificate, &(made.pem() + &key.serialize_pem()))?;
    write(&authority_file, &authority)?;
    write(&roots_file, &roots)?;
    Ok(Origins { certificate, authority: authority_file, roots: roots_file })
}

fn cannot(e: rcgen::Error) -> String {
    format!("cannot make a certificate: {e}")
}

fn write(path: &Path, pem: &str) -> Result<(), String> {
    let mut options = std::fs::OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(0o600).open(path);
    opened.and_then(|mut file| file.write_all(pem.as_bytes())).map_err(|e| format!("{}: {e}", path.display()))
}

fn key_pair(key: Key) -> Result<KeyPair, rcgen::Error> {
    match key {
        Key::Rsa2048 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
        Key::Rsa4096 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_4096),
        Key::EcdsaP256 => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256),
    }
}

fn for_localhost() -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    Ok(params)
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("study of {name}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}
