//! What the fetches show of a certificate, in OpenSSL's format.

use crate::value::hex_of;
use aws_lc_rs::digest;
use x509_parser::{
    asn1_rs::{Any, Tag},
    certificate::X509Certificate,
    oid_registry::Oid,
    prelude::FromDer as _,
    public_key::PublicKey,
    time::ASN1Time,
    x509::{AttributeTypeAndValue, SubjectPublicKeyInfo, X509Name},
};

/// A part of a distinguished name, and its format.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamePart<'a> {
    /// The short name of an attribute; `None` for all of them.
    pub(crate) entry: Option<&'a str>,
    /// Which occurrence: from 1 at the start, or from -1 at the end.
    pub(crate) occurrence: i64,
    /// Whether to write `C=FR` in reverse order with commas, rather than `/C=FR`.
    pub(crate) rfc2253: bool,
}

fn parse(der: &[u8]) -> Option<X509Certificate<'_>> {
    X509Certificate::from_der(der).ok().map(|(_, certificate)| certificate)
}

/// Whether it is a public key, of whatever algorithm (RFC 5280, 4.1).
pub(crate) fn is_public_key(der: &[u8]) -> bool {
    SubjectPublicKeyInfo::from_der(der).is_ok_and(|(rest, _)| rest.is_empty())
}

pub(crate) fn subject(der: &[u8], part: &NamePart<'_>) -> Option<String> {
    distinguished(parse(der)?.subject(), part)
}

pub(crate) fn issuer(der: &[u8], part: &NamePart<'_>) -> Option<String> {
    distinguished(parse(der)?.issuer(), part)
}

pub(crate) fn serial(der: &[u8]) -> Option<Vec<u8>> {
    Some(parse(der)?.raw_serial().to_vec())
}

pub(crate) fn version(der: &[u8]) -> Option<u32> {
    Some(parse(der)?.version().0 + 1)
}

pub(crate) fn not_after(der: &[u8]) -> Option<String> {
    Some(stamp(&parse(der)?.validity().not_after))
}

pub(crate) fn not_before(der: &[u8]) -> Option<String> {
    Some(stamp(&parse(der)?.validity().not_before))
}

pub(crate) fn sha1(der: &[u8]) -> Vec<u8> {
    digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, der).as_ref().to_vec()
}

pub(crate) fn key_algorithm(der: &[u8]) -> Option<String> {
    let certificate = parse(der)?;
    Some(algorithm(&certificate.public_key().algorithm.algorithm))
}

pub(crate) fn signature_algorithm(der: &[u8]) -> Option<String> {
    let certificate = parse(der)?;
    Some(algorithm(&certificate.signature_algorithm.algorithm))
}

/// `RSA2048`, `EC256`.
pub fn key_with_size(der: &[u8]) -> Option<String> {
    let certificate = parse(der)?;
    let key = certificate.public_key().parsed().ok()?;
    let kind = match key {
        PublicKey::RSA(_) => "RSA",
        PublicKey::EC(_) => "EC",
        PublicKey::DSA(_) => "DSA",
        _ => return None,
    };
    Some(format!("{kind}{}", key.key_size()))
}

/// `YYMMDDhhmmssZ`.
fn stamp(time: &ASN1Time) -> String {
    let at = time.to_datetime();
    format!(
        "{:02}{:02}{:02}{:02}{:02}{:02}Z",
        at.year().rem_euclid(100),
        u8::from(at.month()),
        at.day(),
        at.hour(),
        at.minute(),
        at.second()
    )
}

/// A name in OpenSSL's one-line format: `/C=FR/O=Acme/CN=a.example`.
pub fn one_line(name: &X509Name<'_>) -> String {
    name.iter_attributes().map(|a| format!("/{}={}", short_name(a.attr_type()), text(a.attr_value()))).collect()
}

/// A name in the format of OpenSSL's printed certificates: `C = FR, O = Acme, CN = a.example`.
pub fn spaced(name: &X509Name<'_>) -> String {
    let parts = name.iter_attributes().map(|a| format!("{} = {}", short_name(a.attr_type()), text(a.attr_value())));
    parts.collect::<Vec<_>>().join(", ")
}

fn distinguished(name: &X509Name<'_>, part: &NamePart<'_>) -> Option<String> {
    let attributes: Vec<(String, String)> =
        name.iter_attributes().map(|a| (short_name(a.attr_type()), text(a.attr_value()))).collect();
    let Some(entry) = part.entry else {
        return Some(if part.rfc2253 { rfc2253(name) } else { one_line(name) });
    };
    let mut values = attributes.iter().filter(|(name, _)| name.eq_ignore_ascii_case(entry)).map(|(_, value)| value);
    let nth = usize::try_from(part.occurrence.unsigned_abs().max(1) - 1).ok()?;
    if part.occurrence < 0 { values.rev().nth(nth).cloned() } else { values.nth(nth).cloned() }
}

/// A name as RFC 2253 writes it, and OpenSSL with XN_FLAG_RFC2253: the last part first, attributes of one part joined by `+`. What could be
/// mistaken for another attribute is escaped.
fn rfc2253(name: &X509Name<'_>) -> String {
    let parts: Vec<String> = name
        .iter_rdn()
        .map(|part| {
            let attributes: Vec<String> = part.iter().map(escaped_attribute).collect();
            attributes.into_iter().rev().collect::<Vec<_>>().join("+")
        })
        .collect();
    parts.into_iter().rev().collect::<Vec<_>>().join(",")
}

/// `CN=a\, b`; the value of a type that is not known, or that is no text, is its encoding in hexadecimal.
fn escaped_attribute(attribute: &AttributeTypeAndValue<'_>) -> String {
    let name = short_name(attribute.attr_type());
    let is_known = !name.starts_with(|first: char| first.is_ascii_digit());
    let value = attribute.attr_value();
    match as_utf8(value).filter(|_| is_known) {
        Some(text) => format!("{name}={}", escaped(&text)),
        None => format!("{name}=#{}", encoding(value)),
    }
}

/// What a value of a string type says, in UTF-8; `None` for other types.
fn as_utf8(value: &Any<'_>) -> Option<Vec<u8>> {
    let of_units = |size: usize| {
        let unit = |bytes: &[u8]| bytes.iter().fold(0u32, |unit, byte| unit << 8 | u32::from(*byte));
        let text: String =
            value.data.chunks(size).map(|bytes| char::from_u32(unit(bytes)).unwrap_or('\u{fffd}')).collect();
        text.into_bytes()
    };
    Some(match value.tag() {
        Tag::Utf8String => value.data.to_vec(),
        Tag::BmpString => text(value).into_bytes(),
        Tag::UniversalString => of_units(4),
        Tag::NumericString | Tag::PrintableString | Tag::T61String | Tag::Ia5String | Tag::VisibleString => of_units(1),
        _ => return None,
    })
}

fn escaped(text: &[u8]) -> String {
    let last = text.len().saturating_sub(1);
    let mut out = String::with_capacity(text.len());
    for (at, &byte) in text.iter().enumerate() {
        match byte {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' => out.extend(['\\', char::from(byte)]),
            b' ' if at == 0 || at == last => out.push_str("\\ "),
            b'#' if at == 0 => out.push_str("\\#"),
            b' '..=b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\{byte:02X}")),
        }
    }
    out
}

/// The DER encoding of a value, in hexadecimal.
fn encoding(value: &Any<'_>) -> String {
    let length = value.data.len();
    let bytes = length.to_be_bytes();
    let significant = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
    let constructed = if value.header.is_constructed() { 0x20 } else { 0 };
    let mut der = vec![value.tag().0 as u8 | constructed];
    match length {
        0..128 => der.push(length as u8),
        _ => {
            der.push(0x80 | significant.len() as u8);
            der.extend_from_slice(significant);
        }
    }
    der.extend_from_slice(value.data);
    String::from_utf8(hex_of(&der)).unwrap_or_default()
}

/// The bytes of a string type as text; wide types are decoded as UTF-16.
fn text(value: &Any<'_>) -> String {
    const BMP_STRING: u32 = 30;
    if value.tag().0 == BMP_STRING {
        let units: Vec<u16> = value.data.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
        return String::from_utf16_lossy(&units);
    }
    String::from_utf8_lossy(value.data).into_owned()
}

/// OpenSSL's short name of an attribute, or its number if it has none.
fn short_name(oid: &Oid<'_>) -> String {
    let number = oid.to_id_string();
    let known = match number.as_str() {
        "2.5.4.3" => "CN",
        "2.5.4.4" => "SN",
        "2.5.4.5" => "serialNumber",
        "2.5.4.6" => "C",
        "2.5.4.7" => "L",
        "2.5.4.8" => "ST",
        "2.5.4.9" => "street",
        "2.5.4.10" => "O",
        "2.5.4.11" => "OU",
        "2.5.4.12" => "title",
        "2.5.4.13" => "description",
        "2.5.4.15" => "businessCategory",
        "2.5.4.16" => "postalAddress",
        "2.5.4.17" => "postalCode",
        "2.5.4.18" => "postOfficeBox",
        "2.5.4.20" => "telephoneNumber",
        "2.5.4.41" => "name",
        "2.5.4.42" => "GN",
        "2.5.4.43" => "initials",
        "2.5.4.44" => "generationQualifier",
        "2.5.4.45" => "x500UniqueIdentifier",
        "2.5.4.46" => "dnQualifier",
        "2.5.4.51" => "houseIdentifier",
        "2.5.4.65" => "pseudonym",
        "2.5.4.72" => "role",
        "2.5.4.97" => "organizationIdentifier",
        "1.2.840.113549.1.9.1" => "emailAddress",
        "1.2.840.113549.1.9.2" => "unstructuredName",
        "1.2.840.113549.1.9.8" => "unstructuredAddress",
        "0.9.2342.19200300.100.1.1" => "UID",
        "0.9.2342.19200300.100.1.3" => "mail",
        "0.9.2342.19200300.100.1.25" => "DC",
        "1.3.6.1.4.1.311.60.2.1.1" => "jurisdictionL",
        "1.3.6.1.4.1.311.60.2.1.2" => "jurisdictionST",
        "1.3.6.1.4.1.311.60.2.1.3" => "jurisdictionC",
        _ => return number,
    };
    known.to_owned()
}

/// OpenSSL's short name of a key or signature algorithm.
fn algorithm(oid: &Oid<'_>) -> String {
    let number = oid.to_id_string();
    let known = match number.as_str() {
        "1.2.840.113549.1.1.1" => "rsaEncryption",
        "1.2.840.113549.1.1.5" => "RSA-SHA1",
        "1.2.840.113549.1.1.10" => "RSASSA-PSS",
        "1.2.840.113549.1.1.11" => "RSA-SHA256",
        "1.2.840.113549.1.1.12" => "RSA-SHA384",
        "1.2.840.113549.1.1.13" => "RSA-SHA512",
        "1.2.840.10045.2.1" => "id-ecPublicKey",
        "1.2.840.10045.4.3.2" => "ecdsa-with-SHA256",
        "1.2.840.10045.4.3.3" => "ecdsa-with-SHA384",
        "1.2.840.10045.4.3.4" => "ecdsa-with-SHA512",
        "1.3.101.112" => "ED25519",
        "1.3.101.113" => "ED448",
        _ => return number,
    };
    known.to_owned()
}

/// OpenSSL's name of a result of verifying a certificate, without `X509_V_` or `X509_V_ERR_`.
pub fn result_name(number: u32) -> Option<&'static str> {
    RESULTS.get(number as usize).copied().filter(|name| !name.is_empty())
}

/// The number of a result by its name.
pub fn result_number(name: &str) -> Option<u32> {
    RESULTS.iter().position(|known| *known == name).map(|at| at as u32)
}

/// The results of OpenSSL 3 by their numbers.
const RESULTS: &[&str] = &[
    "OK",
    "UNSPECIFIED",
    "UNABLE_TO_GET_ISSUER_CERT",
    "UNABLE_TO_GET_CRL",
    "UNABLE_TO_DECRYPT_CERT_SIGNATURE",
    "UNABLE_TO_DECRYPT_CRL_SIGNATURE",
    "UNABLE_TO_DECODE_ISSUER_PUBLIC_KEY",
    "CERT_SIGNATURE_FAILURE",
    "CRL_SIGNATURE_FAILURE",
    "CERT_NOT_YET_VALID",
    "CERT_HAS_EXPIRED",
    "CRL_NOT_YET_VALID",
    "CRL_HAS_EXPIRED",
    "ERROR_IN_CERT_NOT_BEFORE_FIELD",
    "ERROR_IN_CERT_NOT_AFTER_FIELD",
    "ERROR_IN_CRL_LAST_UPDATE_FIELD",
    "ERROR_IN_CRL_NEXT_UPDATE_FIELD",
    "OUT_OF_MEM",
    "DEPTH_ZERO_SELF_SIGNED_CERT",
    "SELF_SIGNED_CERT_IN_CHAIN",
    "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
    "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
    "CERT_CHAIN_TOO_LONG",
    "CERT_REVOKED",
    "NO_ISSUER_PUBLIC_KEY",
    "PATH_LENGTH_EXCEEDED",
    "INVALID_PURPOSE",
    "CERT_UNTRUSTED",
    "CERT_REJECTED",
    "SUBJECT_ISSUER_MISMATCH",
    "AKID_SKID_MISMATCH",
    "AKID_ISSUER_SERIAL_MISMATCH",
    "KEYUSAGE_NO_CERTSIGN",
    "UNABLE_TO_GET_CRL_ISSUER",
    "UNHANDLED_CRITICAL_EXTENSION",
    "KEYUSAGE_NO_CRL_SIGN",
    "UNHANDLED_CRITICAL_CRL_EXTENSION",
    "INVALID_NON_CA",
    "PROXY_PATH_LENGTH_EXCEEDED",
    "KEYUSAGE_NO_DIGITAL_SIGNATURE",
    "PROXY_CERTIFICATES_NOT_ALLOWED",
    "INVALID_EXTENSION",
    "INVALID_POLICY_EXTENSION",
    "NO_EXPLICIT_POLICY",
    "DIFFERENT_CRL_SCOPE",
    "UNSUPPORTED_EXTENSION_FEATURE",
    "UNNESTED_RESOURCE",
    "PERMITTED_VIOLATION",
    "EXCLUDED_VIOLATION",
    "SUBTREE_MINMAX",
    "APPLICATION_VERIFICATION",
    "UNSUPPORTED_CONSTRAINT_TYPE",
    "UNSUPPORTED_CONSTRAINT_SYNTAX",
    "UNSUPPORTED_NAME_SYNTAX",
    "CRL_PATH_VALIDATION_ERROR",
    "PATH_LOOP",
    "SUITE_B_INVALID_VERSION",
    "SUITE_B_INVALID_ALGORITHM",
    "SUITE_B_INVALID_CURVE",
    "SUITE_B_INVALID_SIGNATURE_ALGORITHM",
    "SUITE_B_LOS_NOT_ALLOWED",
    "SUITE_B_CANNOT_SIGN_P_384_WITH_P_256",
    "HOSTNAME_MISMATCH",
    "EMAIL_MISMATCH",
    "IP_ADDRESS_MISMATCH",
    "DANE_NO_MATCH",
    "EE_KEY_TOO_SMALL",
    "CA_KEY_TOO_SMALL",
    "CA_MD_TOO_WEAK",
    "INVALID_CALL",
    "STORE_LOOKUP",
    "NO_VALID_SCTS",
    "PROXY_SUBJECT_NAME_VIOLATION",
    "OCSP_VERIFY_NEEDED",
    "OCSP_VERIFY_FAILED",
    "OCSP_CERT_UNKNOWN",
    "UNSUPPORTED_SIGNATURE_ALGORITHM",
    "SIGNATURE_ALGORITHM_MISMATCH",
    "SIGNATURE_ALGORITHM_INCONSISTENCY",
    "INVALID_CA",
    "PATHLEN_INVALID_FOR_NON_CA",
    "PATHLEN_WITHOUT_KU_KEY_CERT_SIGN",
    "KU_KEY_CERT_SIGN_INVALID_FOR_NON_CA",
    "ISSUER_NAME_EMPTY",
    "SUBJECT_NAME_EMPTY",
    "MISSING_AUTHORITY_KEY_IDENTIFIER",
    "MISSING_SUBJECT_KEY_IDENTIFIER",
    "EMPTY_SUBJECT_ALT_NAME",
    "EMPTY_SUBJECT_SAN_NOT_CRITICAL",
    "CA_BCONS_NOT_CRITICAL",
    "AUTHORITY_KEY_IDENTIFIER_CRITICAL",
    "SUBJECT_KEY_IDENTIFIER_CRITICAL",
    "CA_CERT_MISSING_KEY_USAGE",
    "EXTENSIONS_REQUIRE_VERSION_3",
    "EC_KEY_EXPLICIT_PARAMS",
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn openssl(arguments: &[&str]) -> Option<Vec<u8>> {
        let output = Command::new("openssl").args(arguments).output().ok()?;
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        Some(output.stdout)
    }

    #[test]
    fn names_in_the_format_of_rfc_2253_are_those_of_openssl() {
        let folder = tempfile::tempdir().unwrap();
        let [key, file] = ["key", "certificate"].map(|name| folder.path().join(name).display().to_string());
        let curve = ["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", &key];
        let Some(_) = openssl(&curve) else {
            eprintln!("SKIP: openssl is not installed: no names are compared with its");
            return;
        };
        let whole = NamePart { entry: None, occurrence: 1, rfc2253: true };
        for (subject, options) in [
            ("/C=FR/O=Acme/CN=a.example", ""),
            ("/O=Evil/CN=mallory,CN=admin", ""),
            ("/CN=a\\+b\\/CN=admin", ""),
            ("/CN=mallory\n,CN=admin", ""),
            ("/O=x+CN=y/CN= lead trail ", "-multivalue-rdn"),
            ("/O=x+CN=y+OU=z/L=Ulm", "-multivalue-rdn"),
            ("/CN=#first#second", ""),
            ("/CN=\"quoted\";<a>=b", ""),
            ("/CN=\u{e9}t\u{e9}\u{20ac}", "-utf8"),
            ("/CN=\u{e9}t\u{e9}", ""),
            ("/CN=back\\\\slash\u{7f}", ""),
            ("/DC=org/DC=example/UID=u1/emailAddress=a@b.example", ""),
            ("/GN=g/SN=s/initials=i/title=t/dnQualifier=d/pseudonym=p/name=n/generationQualifier=q/description=d", ""),
            ("/1.2.3.4=known to nobody/CN=x", ""),
            ("/street=s/postalCode=1/postalAddress=a/telephoneNumber=2/role=r/mail=m@x/unstructuredName=u", ""),
        ] {
            let mut make = vec!["req", "-new", "-x509", "-days", "2", "-key", &key, "-subj", subject];
            make.extend(["-outform", "DER", "-out", &file]);
            make.extend(Some(options).filter(|options| !options.is_empty()));
            openssl(&make);
            let asked = ["x509", "-inform", "DER", "-in", &file, "-noout", "-subject", "-nameopt", "RFC2253"];
            let said = String::from_utf8(openssl(&asked).unwrap()).unwrap();
            let certificate = std::fs::read(&file).unwrap();
            let ours = super::subject(&certificate, &whole).unwrap();
            assert_eq!(
                Some(ours.as_str()),
                said.strip_suffix('\n').and_then(|said| said.strip_prefix("subject=")),
                "{subject}"
            );
        }
    }
}
