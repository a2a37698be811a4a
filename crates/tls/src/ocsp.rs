//! OCSP responses for stapling: enough of RFC 6960 to tell whether one may be sent, and until when. Pure.
//!
//! The signature is not checked: that is up to the client.

use crate::der::{SEQUENCE, element};
use aws_lc_rs::digest;
use std::fmt;
use x509_parser::prelude::{ASN1Time, FromDer, X509Certificate};

/// By how many seconds a responder's clock may be ahead of ours (the same as HAProxy).
const SKEW: i64 = 300;

/// Why clients could not use a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unusable {
    NotOcsp,
    Unsuccessful,
    Several,
    AnotherCertificate,
    UnknownStatus,
    NotYetValid,
    Expired,
}

impl Unusable {
    /// HAProxy's sentence for a response that is set at run time.
    pub fn at_run_time(self) -> &'static str {
        match self {
            Unusable::NotOcsp => "Unable to parse OCSP response.",
            Unusable::Unsuccessful => "OCSP response status not successful.",
            Unusable::Several => "OCSP response ignored because contains multiple single responses.",
            Unusable::AnotherCertificate => {
                "OCSP single response: Certificate ID does not match any certificate or issuer."
            }
            Unusable::UnknownStatus => "OCSP single response: certificate status is unknown.",
            Unusable::NotYetValid => "OCSP single response: not valid yet.",
            Unusable::Expired => "OCSP single response: no longer valid.",
        }
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unusable::NotOcsp => "it is not an OCSP response in DER",
            Unusable::Unsuccessful => "the responder did not answer the question",
            Unusable::Several => "it answers for more than one certificate",
            Unusable::AnotherCertificate => "it is about another certificate",
            Unusable::UnknownStatus => "it does not know the certificate",
            Unusable::NotYetValid => "it is not valid yet",
            Unusable::Expired => "it has expired",
        })
    }
}

/// The identity of a certificate in OCSP, hashed with SHA-1 like OpenSSL.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CertificateId {
    pub issuer_name: Vec<u8>,
    pub issuer_key: Vec<u8>,
    pub serial: Vec<u8>,
}

impl CertificateId {
    pub fn of(leaf: &X509Certificate<'_>, issuer: &X509Certificate<'_>) -> CertificateId {
        let sha1 = |bytes: &[u8]| digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, bytes).as_ref().to_vec();
        CertificateId {
            issuer_name: sha1(issuer.subject().as_raw()),
            issuer_key: sha1(&issuer.public_key().subject_public_key.data),
            serial: leaf.raw_serial().to_vec(),
        }
    }

    /// The identity in DER, by which HAProxy's runtime API names a response.
    pub fn to_der(&self) -> Vec<u8> {
        /// SHA-1, without parameters.
        const SHA1: [u8; 11] = [SEQUENCE, 9, OID, 5, 0x2B, 0x0E, 3, 2, 0x1A, 5, 0];
        let part = |tag: u8, content: &[u8]| [&[tag, content.len() as u8], content].concat();
        let id = [
            SHA1.to_vec(),
            part(OCTETS, &self.issuer_name),
            part(OCTETS, &self.issuer_key),
            part(INTEGER, &self.serial),
        ];
        part(SEQUENCE, &id.concat())
    }

    /// OCSPRequest ::= SEQUENCE { tbsRequest SEQUENCE { requestList SEQUENCE OF SEQUENCE { reqCert } } }, without
    /// signature and extensions, which suits caching responders best.
    pub fn question(&self) -> Vec<u8> {
        // Four headers of two bytes around an identity of 75 bytes: each length fits into one byte.
        let within = |content: &[u8]| [&[SEQUENCE, content.len() as u8], content].concat();
        within(&within(&within(&within(&self.to_der()))))
    }
}

/// The first URI of the OCSP responder for a certificate (RFC 5280, 4.2.2.1).
pub(crate) fn responder(leaf: &[u8]) -> Option<String> {
    use x509_parser::{extensions::ParsedExtension, prelude::GeneralName};
    const OCSP: &str = "1.3.6.1.5.5.7.48.1";
    let (_, parsed) = X509Certificate::from_der(leaf).ok()?;
    let access = parsed.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityInfoAccess(access) => Some(access),
        _ => None,
    })?;
    access.accessdescs.iter().find_map(|description| match &description.access_location {
        GeneralName::URI(uri) if description.access_method.to_id_string() == OCSP => Some((*uri).to_owned()),
        _ => None,
    })
}

/// What a response says about its one certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer<'a> {
    pub id: CertificateId,
    /// The responder's name in DER, if it is identified by name.
    pub responder: Option<&'a [u8]>,
    /// In seconds since 1970.
    pub produced: i64,
    pub this_update: i64,
    pub next_update: Option<i64>,
    pub status: Status,
}

/// The state of the certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Good,
    Revoked,
    Unknown,
}

/// Parses a response.
///
/// # Errors
///
/// If it is invalid, or not about exactly one certificate.
pub(crate) fn answer(der: &[u8]) -> Result<Answer<'_>, Unusable> {
    let (successful, basic) = basic_response(der).ok_or(Unusable::NotOcsp)?;
    if !successful {
        return Err(Unusable::Unsuccessful);
    }
    let found = basic.and_then(single_response).ok_or(Unusable::NotOcsp)?;
    if found.more {
        return Err(Unusable::Several);
    }
    single_fields(&found).ok_or(Unusable::NotOcsp)
}

/// Until when (seconds since 1970; `None` if the response does not say) a response may be stapled to the certificate
/// with this serial number and, if its issuer is known, this identity.
///
/// # Errors
///
/// Why clients could not use it now.
pub(crate) fn check(der: &[u8], serial: &[u8], id: Option<&CertificateId>, now: i64) -> Result<Option<i64>, Unusable> {
    const SHA1_LEN: usize = 20;
    let answer = answer(der)?;
    // A responder may use another hash; then only the serial number can be compared.
    let another = |id: &CertificateId| answer.id.issuer_name.len() == SHA1_LEN && answer.id != *id;
    if answer.id.serial != serial || id.is_some_and(another) {
        return Err(Unusable::AnotherCertificate);
    }
    // That a certificate is revoked is for its clients to know, as in HAProxy.
    if answer.status == Status::Unknown {
        return Err(Unusable::UnknownStatus);
    }
    if answer.this_update > now + SKEW {
        return Err(Unusable::NotYetValid);
    }
    match answer.next_update {
        Some(until) if until <= now => Err(Unusable::Expired),
        until => Ok(until),
    }
}

const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
const OID: u8 = 0x06;
const ENUMERATED: u8 = 0x0A;
const TIME: u8 = 0x18;
const CONTEXT_0: u8 = 0xA0;
const CONTEXT_1: u8 = 0xA1;

/// The content of the first element, which must have this tag, and the rest.
fn expect(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    element(der).filter(|(found, ..)| *found == tag).map(|(_, content, rest)| (content, rest))
}

/// OCSPResponse ::= SEQUENCE { responseStatus ENUMERATED, [0] SEQUENCE { responseType OID, response OCTET STRING } }
fn basic_response(der: &[u8]) -> Option<(bool, Option<&[u8]>)> {
    let (outer, _) = expect(der, SEQUENCE)?;
    let (status, rest) = expect(outer, ENUMERATED)?;
    if status != [0] {
        return Some((false, None));
    }
    let (explicit, _) = expect(rest, CONTEXT_0)?;
    let (typed, _) = expect(explicit, SEQUENCE)?;
    let (_, rest) = expect(typed, OID)?;
    let (basic, _) = expect(rest, OCTETS)?;
    Some((true, Some(basic)))
}

struct Found<'a> {
    responder: Option<&'a [u8]>,
    produced: i64,
    single: &'a [u8],
    more: bool,
}

/// BasicOCSPResponse ::= SEQUENCE { tbsResponseData SEQUENCE { [0] version?, responderID, producedAt, responses }, ...
/// }. Returns the first of the responses, and whether there are more.
fn single_response(basic: &[u8]) -> Option<Found<'_>> {
    let (basic, _) = expect(basic, SEQUENCE)?;
    let (mut data, _) = expect(basic, SEQUENCE)?;
    if let Some((_, rest)) = expect(data, CONTEXT_0) {
        data = rest;
    }
    // responderID ::= CHOICE { [1] Name, [2] KeyHash }
    let (tag, responder, rest) = element(data)?;
    let produced = time(rest)?;
    let (_, rest) = expect(rest, TIME)?;
    let (responses, _) = expect(rest, SEQUENCE)?;
    let (single, more) = expect(responses, SEQUENCE)?;
    Some(Found { responder: (tag == CONTEXT_1).then_some(responder), produced, single, more: !more.is_empty() })
}

/// SingleResponse ::= SEQUENCE { certID, certStatus, thisUpdate, [0] nextUpdate?, ... }, with
/// CertID ::= SEQUENCE { hashAlgorithm, issuerNameHash, issuerKeyHash, serialNumber }
fn single_fields<'a>(found: &Found<'a>) -> Option<Answer<'a>> {
    let (id, rest) = expect(found.single, SEQUENCE)?;
    let (_, id) = expect(id, SEQUENCE)?;
    let (issuer_name, id) = expect(id, OCTETS)?;
    let (issuer_key, id) = expect(id, OCTETS)?;
    let (serial, _) = expect(id, INTEGER)?;
    let (status, _, rest) = element(rest)?;
    let this_update = time(rest)?;
    let (_, rest) = expect(rest, TIME)?;
    let next_update = match expect(rest, CONTEXT_0) {
        Some((explicit, _)) => Some(time(explicit)?),
        None => None,
    };
    Some(Answer {
        id: CertificateId {
            issuer_name: issuer_name.to_vec(),
            issuer_key: issuer_key.to_vec(),
            serial: serial.to_vec(),
        },
        responder: found.responder,
        produced: found.produced,
        this_update,
        next_update,
        status: match status {
            0x80 => Status::Good,
            0xA1 => Status::Revoked,
            _ => Status::Unknown,
        },
    })
}

fn time(der: &[u8]) -> Option<i64> {
    ASN1Time::from_der(der).ok().map(|(_, time)| time.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
        let len = content.len();
        let head = if len < 0x80 { vec![tag, len as u8] } else { vec![tag, 0x82, (len >> 8) as u8, len as u8] };
        [head, content.to_vec()].concat()
    }

    /// A response about the certificate 0x1234, with the fields that are parsed here.
    fn response(status: u8, this: &str, next: Option<&str>) -> Vec<u8> {
        let id =
            [tlv(SEQUENCE, &[]), tlv(OCTETS, &[1; 20]), tlv(OCTETS, &[2; 20]), tlv(INTEGER, &[0x12, 0x34])].concat();
        let next = next.map(|next| tlv(CONTEXT_0, &tlv(TIME, next.as_bytes()))).unwrap_or_default();
        let single = [tlv(SEQUENCE, &id), tlv(status, &[]), tlv(TIME, this.as_bytes()), next].concat();
        let responses = tlv(SEQUENCE, &tlv(SEQUENCE, &single));
        let data = [tlv(0xA1, b"responder"), tlv(TIME, b"20260101000000Z"), responses].concat();
        let basic = tlv(SEQUENCE, &tlv(SEQUENCE, &data));
        let typed = tlv(SEQUENCE, &[tlv(OID, &[0x2B]), tlv(OCTETS, &basic)].concat());
        tlv(SEQUENCE, &[tlv(ENUMERATED, &[0]), tlv(CONTEXT_0, &typed)].concat())
    }

    #[test]
    fn only_a_current_answer_about_this_certificate_is_sent() {
        const NOW: i64 = 1_790_000_000; // September 2026
        const GOOD: u8 = 0x80;
        let until = ASN1Time::from_der(&tlv(TIME, b"20270101000000Z")).unwrap().1.timestamp();
        let fine = response(GOOD, "20260101000000Z", Some("20270101000000Z"));
        assert_eq!(check(&fine, &[0x12, 0x34], None, NOW), Ok(Some(until)));
        assert_eq!(check(&response(GOOD, "20260101000000Z", None), &[0x12, 0x34], None, NOW), Ok(None));
        assert_eq!(check(&response(0xA1, "20260101000000Z", None), &[0x12, 0x34], None, NOW), Ok(None));
        let table = [
            (response(GOOD, "20260101000000Z", Some("20260201000000Z")), Unusable::Expired),
            (response(GOOD, "20280101000000Z", None), Unusable::NotYetValid),
            (response(0x82, "20260101000000Z", None), Unusable::UnknownStatus),
            (vec![SEQUENCE, 3, ENUMERATED, 1, 6], Unusable::Unsuccessful),
            (b"-----BEGIN".to_vec(), Unusable::NotOcsp),
        ];
        for (der, expected) in table {
            assert_eq!(check(&der, &[0x12, 0x34], None, NOW), Err(expected));
        }
        assert_eq!(check(&fine, &[0x12, 0x35], None, NOW), Err(Unusable::AnotherCertificate));
        for cut in 0..fine.len() {
            assert!(check(&fine[..cut], &[0x12, 0x34], None, NOW).is_err());
        }
    }

    proptest::proptest! {
        #[test]
        fn any_byte_may_be_wrong(place in 0usize..200, mask in 1u8.., noise in proptest::collection::vec(0u8.., 0..64)) {
            let mut der = response(0x80, "20260101000000Z", Some("20270101000000Z"));
            let place = place % der.len();
            der[place] ^= mask;
            let _ = check(&der, &[0x12, 0x34], None, 1_790_000_000);
            let _ = check(&noise, &[0x12, 0x34], None, 1_790_000_000);
        }
    }
}
