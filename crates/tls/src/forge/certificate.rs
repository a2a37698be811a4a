//! The DER of a certificate (RFC 5280, 4.1), in the two steps that its signature needs. Pure.

use super::Name;
use aws_lc_rs::{digest, rand};
use penstock_engine::{KeyKind, Scheme};
use rustls_pki_types::{AlgorithmIdentifier, alg_id};
use std::net::IpAddr;
use x509_parser::time::ASN1Time;
use yasna::{
    DERWriter, Tag, construct_der,
    models::ObjectIdentifier,
    tags::{TAG_GENERALIZEDTIME, TAG_UTCTIME},
};

/// How an authority signs.
#[derive(Clone, Copy)]
pub(super) struct Signature {
    pub scheme: Scheme,
    algorithm: AlgorithmIdentifier,
}

impl Signature {
    pub fn of(kind: KeyKind) -> Signature {
        let (scheme, algorithm) = match kind {
            KeyKind::Rsa { .. } => (Scheme::RsaPkcs1Sha256, alg_id::RSA_PKCS1_SHA256),
            KeyKind::EcdsaP256 => (Scheme::EcdsaP256Sha256, alg_id::ECDSA_SHA256),
            KeyKind::EcdsaP384 => (Scheme::EcdsaP384Sha384, alg_id::ECDSA_SHA384),
            KeyKind::EcdsaP521 => (Scheme::EcdsaP521Sha512, alg_id::ECDSA_SHA512),
            KeyKind::Ed25519 => (Scheme::Ed25519, alg_id::ED25519),
        };
        Signature { scheme, algorithm }
    }

    fn write(self, out: DERWriter<'_>) {
        out.write_sequence(|out| out.next().write_der(self.algorithm.as_ref()));
    }
}

/// What a certificate says.
pub(super) struct Contents<'a> {
    pub signature: Signature,
    /// The authority's subject in DER.
    pub issuer: &'a [u8],
    pub issuer_key: Option<&'a [u8]>,
    /// Those it is valid for; the first one is the common name too.
    pub names: &'a [Name],
    /// Seconds since 1970.
    pub not_before: i64,
    pub not_after: i64,
    /// A SubjectPublicKeyInfo in DER.
    pub public_key: &'a [u8],
}

/// Longest common name (`ub-common-name`); a longer name is only among the alternative ones.
const COMMON_NAME_MAX: usize = 64;

const COMMON_NAME: &[u64] = &[2, 5, 4, 3];
const SUBJECT_KEY: &[u64] = &[2, 5, 29, 14];
const KEY_USAGE: &[u64] = &[2, 5, 29, 15];
const ALTERNATIVE_NAME: &[u64] = &[2, 5, 29, 17];
const BASIC_CONSTRAINTS: &[u64] = &[2, 5, 29, 19];
const AUTHORITY_KEY: &[u64] = &[2, 5, 29, 35];
const EXTENDED_KEY_USAGE: &[u64] = &[2, 5, 29, 37];
const SERVER_AUTHENTICATION: &[u64] = &[1, 3, 6, 1, 5, 5, 7, 3, 1];

/// The part that is signed (TBSCertificate). `None` without randomness, or with dates that cannot be encoded.
pub(super) fn to_sign(contents: &Contents<'_>) -> Option<Vec<u8>> {
    // Positive, at most 20 bytes, unpredictable (RFC 5280, 4.1.2.2).
    let mut serial = [0; 16];
    rand::fill(&mut serial).ok()?;
    serial[0] = serial[0] & 0x7F | 0x40;
    let (not_before, not_after) = (Time::at(contents.not_before)?, Time::at(contents.not_after)?);
    let common_name = contents.names.first().map(Name::to_string).filter(|name| name.len() <= COMMON_NAME_MAX);
    let key_id = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, contents.public_key);
    Some(construct_der(|out| {
        out.write_sequence(|out| {
            out.next().write_tagged(Tag::context(0), |out| out.write_u8(2));
            out.next().write_bigint_bytes(&serial, true);
            contents.signature.write(out.next());
            out.next().write_der(contents.issuer);
            out.next().write_sequence(|out| {
                not_before.write(out.next());
                not_after.write(out.next());
            });
            out.next().write_sequence(|out| {
                let Some(name) = &common_name else { return };
                out.next().write_set(|out| {
                    out.next().write_sequence(|out| {
                        out.next().write_oid(&oid(COMMON_NAME));
                        out.next().write_utf8_string(name);
                    });
                });
            });
            out.next().write_der(contents.public_key);
            out.next().write_tagged(Tag::context(3), |out| {
                out.write_sequence(|out| {
                    extension(out.next(), BASIC_CONSTRAINTS, true, |out| out.write_sequence(|_| ()));
                    // digitalSignature: the key signs handshakes.
                    extension(out.next(), KEY_USAGE, true, |out| out.write_bitvec_bytes(&[0x80], 1));
                    extension(out.next(), EXTENDED_KEY_USAGE, false, |out| {
                        out.write_sequence(|out| out.next().write_oid(&oid(SERVER_AUTHENTICATION)));
                    });
                    extension(out.next(), SUBJECT_KEY, false, |out| out.write_bytes(key_id.as_ref()));
                    if let Some(issuer_key) = contents.issuer_key {
                        extension(out.next(), AUTHORITY_KEY, false, |out| {
                            out.write_sequence(|out| {
                                out.next().write_tagged_implicit(Tag::context(0), |out| out.write_bytes(issuer_key));
                            });
                        });
                    }
                    // Critical if there is no other name (RFC 5280, 4.2.1.6).
                    extension(out.next(), ALTERNATIVE_NAME, common_name.is_none(), |out| {
                        out.write_sequence(|out| contents.names.iter().for_each(|name| alternative(out.next(), name)));
                    });
                });
            });
        });
    }))
}

/// The certificate: what was signed, and the signature.
pub(super) fn signed(to_sign: &[u8], signature: Signature, signed: &[u8]) -> Vec<u8> {
    construct_der(|out| {
        out.write_sequence(|out| {
            out.next().write_der(to_sign);
            signature.write(out.next());
            out.next().write_bitvec_bytes(signed, signed.len() * 8);
        });
    })
}

fn oid(numbers: &[u64]) -> ObjectIdentifier {
    ObjectIdentifier::from_slice(numbers)
}

fn extension(out: DERWriter<'_>, id: &[u64], critical: bool, value: impl FnOnce(DERWriter<'_>)) {
    out.write_sequence(|out| {
        out.next().write_oid(&oid(id));
        // DER leaves out a default (X.690, 11.5).
        if critical {
            out.next().write_bool(true);
        }
        out.next().write_bytes(&construct_der(value));
    });
}

/// A GeneralName.
fn alternative(out: DERWriter<'_>, name: &Name) {
    match name {
        Name::Dns(name) => out.write_tagged_implicit(Tag::context(2), |out| out.write_ia5_string(name)),
        Name::Ip(IpAddr::V4(address)) => {
            out.write_tagged_implicit(Tag::context(7), |out| out.write_bytes(&address.octets()));
        }
        Name::Ip(IpAddr::V6(address)) => {
            out.write_tagged_implicit(Tag::context(7), |out| out.write_bytes(&address.octets()));
        }
    }
}

/// A time as certificates write it: with two digits for the year up to 2049, then with four (RFC 5280, 4.1.2.5).
struct Time {
    tag: Tag,
    text: String,
}

impl Time {
    fn at(seconds: i64) -> Option<Time> {
        let at = ASN1Time::from_timestamp(seconds).ok()?.to_datetime();
        let (month, rest) = (u8::from(at.month()), (at.day(), at.hour(), at.minute(), at.second()));
        let rest = format!("{month:02}{:02}{:02}{:02}{:02}Z", rest.0, rest.1, rest.2, rest.3);
        Some(match at.year() {
            year @ 1950..=2049 => Time { tag: TAG_UTCTIME, text: format!("{:02}{rest}", year % 100) },
            year @ 0..=9999 => Time { tag: TAG_GENERALIZEDTIME, text: format!("{year:04}{rest}") },
            _ => return None,
        })
    }

    fn write(&self, out: DERWriter<'_>) {
        out.write_tagged_implicit(self.tag, |out| out.write_bytes(self.text.as_bytes()));
    }
}
