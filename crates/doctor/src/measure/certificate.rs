//! Certificates to measure with: the operator's, or made on the spot.

use penstock_engine::{KeyKind, SigningKey};
use rcgen::{CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, RsaKeySize};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use std::sync::Arc;

/// A chain and its key.
pub(super) struct Identity {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
    pub(super) signing: Arc<SigningKey>,
    /// What the report calls it.
    pub(super) description: String,
}

impl Identity {
    /// Reads the operator's certificate and key.
    pub(super) fn read(name: &str, pem: &[u8], key: Option<&[u8]>) -> Result<Identity, String> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(pem)
            .collect::<Result<_, _>>()
            .map_err(|e| format!("{name} is not valid PEM: {e}"))?;
        if chain.is_empty() {
            return Err(format!("{name} holds no certificate"));
        }
        let key = PrivateKeyDer::from_pem_slice(key.unwrap_or(pem))
            .map_err(|_| format!("{name} holds no private key; --key names its file"))?;
        Identity::new(chain, key, name)
    }

    /// RSA-2048, self-signed.
    pub(super) fn rsa2048() -> Result<Identity, String> {
        let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048);
        Identity::made(key.map_err(|e| format!("cannot make an RSA key: {e}"))?)
    }

    /// ECDSA P-256, self-signed.
    pub(super) fn ecdsa() -> Result<Identity, String> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256);
        Identity::made(key.map_err(|e| format!("cannot make an ECDSA key: {e}"))?)
    }

    fn made(key: KeyPair) -> Result<Identity, String> {
        let bad = |e: rcgen::Error| format!("cannot make a certificate: {e}");
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).map_err(bad)?;
        params.distinguished_name = DistinguishedName::new();
        let certificate = params.self_signed(&key).map_err(bad)?;
        let der = PrivateKeyDer::try_from(key.serialize_der()).map_err(|e| format!("cannot use the key made: {e}"))?;
        Identity::new(vec![certificate.der().clone()], der, "made for this measurement")
    }

    fn new(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>, name: &str) -> Result<Identity, String> {
        let signing = SigningKey::from_der(key.secret_der().to_vec()).map_err(|e| format!("{name}: {e}"))?;
        let kind = match signing.kind() {
            KeyKind::Rsa { bits } => format!("RSA-{bits}"),
            KeyKind::EcdsaP256 => "ECDSA P-256".into(),
            KeyKind::EcdsaP384 => "ECDSA P-384".into(),
            KeyKind::EcdsaP521 => "ECDSA P-521".into(),
            KeyKind::Ed25519 => "Ed25519".into(),
        };
        let description = format!("certificate {kind} ({name}), chain of {}", chain.len());
        Ok(Identity { chain, key, signing: Arc::new(signing), description })
    }

    pub(super) fn is_ecdsa(&self) -> bool {
        !matches!(self.signing.kind(), KeyKind::Rsa { .. })
    }
}
