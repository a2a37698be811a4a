//! Certificates of X.509 version 1, which `openssl x509 -req` makes by default. webpki reads version 3 alone, so two things are done here
//! for such a leaf: checking the signatures of its key, and a chain of one step, from the leaf to a certificate that is trusted itself.
//!
//! A leaf of version 1 has no extensions, hence no alternative names, usages or distribution points to check. Whatever could restrict
//! the authority's right to issue it (constraints of names or usages) makes the authority unusable for it.

use crate::der::{SEQUENCE, element};
use rustls::{
    CertificateError, DigitallySignedStruct, Error, client::danger::HandshakeSignatureValid,
    crypto::WebPkiSupportedAlgorithms,
};
use rustls_pki_types::{CertificateDer, SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer, UnixTime};
use x509_parser::{
    prelude::{FromDer, X509Certificate},
    time::ASN1Time,
    x509::{SubjectPublicKeyInfo, X509Version},
};

/// Whether a certificate has version 1.
pub(crate) fn is(der: &CertificateDer<'_>) -> bool {
    parse(der).is_some_and(|parsed| parsed.version() == X509Version::V1)
}

/// The verdict on a leaf of version 1; `None` on others, and on one that was issued by a certificate which the peer sent along: those are
/// webpki's to judge.
pub(crate) fn verify(
    leaf: &CertificateDer<'_>,
    above: &[CertificateDer<'_>],
    anchors: &[CertificateDer<'static>],
    now: UnixTime,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Option<Result<(), Error>> {
    if !is(leaf) {
        return None;
    }
    match verify_chain(leaf, anchors, now, algorithms) {
        Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)) if is_issued_by_one_of(leaf, above) => None,
        verdict => Some(verdict),
    }
}

/// Whether one of these certificates has the name that the leaf's issuer has.
fn is_issued_by_one_of(leaf: &CertificateDer<'_>, others: &[CertificateDer<'_>]) -> bool {
    let Some(leaf) = parse(leaf) else { return false };
    others.iter().filter_map(parse).any(|other| other.subject().as_raw() == leaf.issuer().as_raw())
}

/// Checks the chain of a leaf whose issuer is one of the `anchors`.
///
/// # Errors
///
/// If the issuer is not among them, did not sign it, or one of the two is not valid now.
fn verify_chain(
    leaf: &CertificateDer<'_>,
    anchors: &[CertificateDer<'static>],
    now: UnixTime,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<(), Error> {
    let parsed = parse(leaf).ok_or(CertificateError::BadEncoding)?;
    let named = anchors.iter().filter_map(parse).filter(|anchor| anchor.subject().as_raw() == parsed.issuer().as_raw());
    let issuers: Vec<X509Certificate<'_>> = named.filter(may_issue).collect();
    if issuers.is_empty() {
        return Err(CertificateError::UnknownIssuer.into());
    }
    let signed = signature(leaf, &parsed).ok_or(CertificateError::BadEncoding)?;
    let Some(issuer) = issuers.iter().find(|issuer| signed.is_by(issuer.public_key(), algorithms)) else {
        return Err(CertificateError::BadSignature.into());
    };
    let now = i64::try_from(now.as_secs()).ok().and_then(|secs| ASN1Time::from_timestamp(secs).ok());
    let now = now.ok_or(CertificateError::BadEncoding)?;
    for validity in [parsed.validity(), issuer.validity()] {
        if now > validity.not_after {
            return Err(CertificateError::Expired.into());
        }
        if now < validity.not_before {
            return Err(CertificateError::NotValidYet.into());
        }
    }
    Ok(())
}

/// Checks the signature that a peer with this leaf made in a handshake of TLS 1.2.
///
/// # Errors
///
/// If it is not by the leaf's key, or of a scheme that is not supported.
pub(crate) fn verify_tls12(
    message: &[u8],
    leaf: &CertificateDer<'_>,
    dss: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error> {
    let parsed = parse(leaf).ok_or(CertificateError::BadEncoding)?;
    let possible = algorithms.mapping.iter().find(|(scheme, _)| *scheme == dss.scheme).map_or(&[][..], |(_, all)| all);
    match possible.iter().any(|algorithm| fits(*algorithm, parsed.public_key(), message, dss.signature())) {
        true => Ok(HandshakeSignatureValid::assertion()),
        false => Err(CertificateError::BadSignature.into()),
    }
}

/// As [`verify_tls12`], for TLS 1.3.
///
/// # Errors
///
/// As [`verify_tls12`].
pub(crate) fn verify_tls13(
    message: &[u8],
    leaf: &CertificateDer<'_>,
    dss: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error> {
    let parsed = parse(leaf).ok_or(CertificateError::BadEncoding)?;
    let key = SubjectPublicKeyInfoDer::from(parsed.public_key().raw);
    rustls::crypto::verify_tls13_signature_with_raw_key(message, &key, dss, algorithms)
}

/// A certificate with nothing behind it.
pub(crate) fn parse<'a>(der: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    X509Certificate::from_der(der).ok().filter(|(rest, _)| rest.is_empty()).map(|(_, parsed)| parsed)
}

/// Whether an anchor may issue leaves without restriction.
fn may_issue(anchor: &X509Certificate<'_>) -> bool {
    let is_free = matches!(anchor.name_constraints(), Ok(None)) && matches!(anchor.extended_key_usage(), Ok(None));
    may_sign(anchor) && (anchor.version() == X509Version::V1 || is_free)
}

/// Whether a certificate is that of an authority. One of version 1 is if it is self-signed, as in OpenSSL.
pub(crate) fn may_sign(authority: &X509Certificate<'_>) -> bool {
    if authority.version() == X509Version::V1 {
        return authority.subject().as_raw() == authority.issuer().as_raw();
    }
    authority.is_ca() && lets_sign(authority)
}

/// Whether the key usage of a certificate, if it states one, lets it sign others.
pub(crate) fn lets_sign(authority: &X509Certificate<'_>) -> bool {
    authority.key_usage().is_ok_and(|usage| usage.is_none_or(|usage| usage.value.key_cert_sign()))
}

/// What an issuer has signed.
pub(crate) struct Signed<'a> {
    /// The contents of the identifier of the signature's algorithm.
    algorithm: &'a [u8],
    message: &'a [u8],
    signature: &'a [u8],
}

impl Signed<'_> {
    /// Whether it was signed by this key.
    pub(crate) fn is_by(&self, key: &SubjectPublicKeyInfo<'_>, algorithms: &WebPkiSupportedAlgorithms) -> bool {
        let mut possible = algorithms.all.iter().filter(|known| *known.signature_alg_id() == *self.algorithm);
        possible.any(|algorithm| fits(*algorithm, key, self.message, self.signature))
    }
}

/// What the issuer of a certificate has signed; `None` if that is not well formed.
pub(crate) fn signature<'a>(der: &'a CertificateDer<'_>, parsed: &'a X509Certificate<'_>) -> Option<Signed<'a>> {
    // RFC 5280 section 4.1.1.2: the algorithm is named twice, and both must be the same.
    if parsed.tbs_certificate.signature != parsed.signature_algorithm || parsed.signature_value.unused_bits != 0 {
        return None;
    }
    let (SEQUENCE, certificate, _) = element(der)? else { return None };
    let (SEQUENCE, _, rest) = element(certificate)? else { return None };
    let (SEQUENCE, algorithm, _) = element(rest)? else { return None };
    Some(Signed { algorithm, message: parsed.tbs_certificate.as_ref(), signature: &parsed.signature_value.data })
}

/// Whether an algorithm is for keys of this kind, and takes the signature for one by this key.
fn fits(
    algorithm: &dyn SignatureVerificationAlgorithm,
    key: &SubjectPublicKeyInfo<'_>,
    message: &[u8],
    signature: &[u8],
) -> bool {
    let kind = element(key.raw).and_then(|(_, contents, _)| element(contents)).map(|(_, kind, _)| kind);
    kind.is_some_and(|kind| *algorithm.public_key_alg_id() == *kind)
        && algorithm.verify_signature(&key.subject_public_key.data, message, signature).is_ok()
}
