//! OCSP responses to staple: enough of RFC 6960 to know whether one may be sent, and until when. Pure.
//!
//! The signature is not checked: the response is ours to hand on, the client's to verify.

use x509_parser::prelude::{ASN1Time, FromDer};

/// What a response says of the one certificate it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Staple {
    /// Seconds since 1970 from which it is no longer to be sent; `None` where it does not say.
    pub until: Option<i64>,
}

/// A responder's clock may be ahead of ours by this much, seconds (HAProxy allows as much).
const SKEW: i64 = 300;

/// Reads the response of a certificate with this serial number.
///
/// # Errors
/// Why it is of no use to a client now.
pub(crate) fn read(der: &[u8], serial: &[u8], now: i64) -> Result<Staple, &'static str> {
    let Some((successful, basic)) = basic_response(der) else { return Err("it is not an OCSP response in DER") };
    if !successful {
        return Err("the responder did not answer the question");
    }
    let Some((single, more)) = basic.and_then(single_response) else { return Err("it is not an OCSP response in DER") };
    if more {
        return Err("it answers for more than one certificate");
    }
    let Some(single) = single_fields(single) else { return Err("it is not an OCSP response in DER") };
    if single.serial != serial {
        return Err("it is about another certificate");
    }
    match single.status {
        0x80 => {}
        0xA1 => return Err("it says that the certificate is revoked"),
        _ => return Err("it does not know the certificate"),
    }
    if single.this_update > now + SKEW {
        return Err("it is not valid yet");
    }
    match single.next_update {
        Some(until) if until <= now => Err("it has expired"),
        until => Ok(Staple { until }),
    }
}

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
const OID: u8 = 0x06;
const ENUMERATED: u8 = 0x0A;
const TIME: u8 = 0x18;
const CONTEXT_0: u8 = 0xA0;

/// One element: its tag, its content, what follows it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (len, rest) = match first {
        0..=0x7F => (usize::from(first), rest),
        0x81..=0x83 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7F))?;
            (bytes.iter().fold(0, |len, byte| len << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(len)?;
    Some((tag, content, rest))
}

/// The content of the element at the front, which must have this tag; and what follows.
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

/// BasicOCSPResponse ::= SEQUENCE { tbsResponseData SEQUENCE { [0] version?, responderID, producedAt, responses }, ... }
/// The first of the responses, and whether there are more.
fn single_response(basic: &[u8]) -> Option<(&[u8], bool)> {
    let (basic, _) = expect(basic, SEQUENCE)?;
    let (mut data, _) = expect(basic, SEQUENCE)?;
    if let Some((_, rest)) = expect(data, CONTEXT_0) {
        data = rest;
    }
    let (_, _responder, rest) = element(data)?;
    let (_, rest) = expect(rest, TIME)?;
    let (responses, _) = expect(rest, SEQUENCE)?;
    let (single, more) = expect(responses, SEQUENCE)?;
    Some((single, !more.is_empty()))
}

struct Single<'a> {
    serial: &'a [u8],
    status: u8,
    this_update: i64,
    next_update: Option<i64>,
}

/// SingleResponse ::= SEQUENCE { certID, certStatus, thisUpdate, [0] nextUpdate?, ... }, with
/// CertID ::= SEQUENCE { hashAlgorithm, issuerNameHash, issuerKeyHash, serialNumber }
fn single_fields(single: &[u8]) -> Option<Single<'_>> {
    let (id, rest) = expect(single, SEQUENCE)?;
    let (_, id) = expect(id, SEQUENCE)?;
    let (_, id) = expect(id, OCTETS)?;
    let (_, id) = expect(id, OCTETS)?;
    let (serial, _) = expect(id, INTEGER)?;
    let (status, _, rest) = element(rest)?;
    let time = |der| ASN1Time::from_der(der).ok().map(|(_, time)| time.timestamp());
    let this_update = time(rest)?;
    let (_, rest) = expect(rest, TIME)?;
    let next_update = match expect(rest, CONTEXT_0) {
        Some((explicit, _)) => Some(time(explicit)?),
        None => None,
    };
    Some(Single { serial, status, this_update, next_update })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
        let len = content.len();
        let head = if len < 0x80 { vec![tag, len as u8] } else { vec![tag, 0x82, (len >> 8) as u8, len as u8] };
        [head, content.to_vec()].concat()
    }

    /// A response about the certificate 0x1234, as far as it is read.
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
    fn only_a_good_and_current_answer_about_this_certificate_is_sent() {
        const NOW: i64 = 1_790_000_000; // September 2026
        const GOOD: u8 = 0x80;
        let until = ASN1Time::from_der(&tlv(TIME, b"20270101000000Z")).unwrap().1.timestamp();
        let fine = response(GOOD, "20260101000000Z", Some("20270101000000Z"));
        assert_eq!(read(&fine, &[0x12, 0x34], NOW), Ok(Staple { until: Some(until) }));
        assert_eq!(read(&response(GOOD, "20260101000000Z", None), &[0x12, 0x34], NOW), Ok(Staple { until: None }));
        let table = [
            (response(GOOD, "20260101000000Z", Some("20260201000000Z")), "it has expired"),
            (response(GOOD, "20280101000000Z", None), "it is not valid yet"),
            (response(0xA1, "20260101000000Z", None), "it says that the certificate is revoked"),
            (response(0x82, "20260101000000Z", None), "it does not know the certificate"),
            (vec![SEQUENCE, 3, ENUMERATED, 1, 6], "the responder did not answer the question"),
            (b"-----BEGIN".to_vec(), "it is not an OCSP response in DER"),
        ];
        for (der, expected) in table {
            assert_eq!(read(&der, &[0x12, 0x34], NOW), Err(expected));
        }
        assert_eq!(read(&fine, &[0x12, 0x35], NOW), Err("it is about another certificate"));
        for cut in 0..fine.len() {
            assert!(read(&fine[..cut], &[0x12, 0x34], NOW).is_err());
        }
    }

    proptest::proptest! {
        #[test]
        fn any_byte_may_be_wrong(place in 0usize..200, mask in 1u8.., noise in proptest::collection::vec(0u8.., 0..64)) {
            let mut der = response(0x80, "20260101000000Z", Some("20270101000000Z"));
            let place = place % der.len();
            der[place] ^= mask;
            let _ = read(&der, &[0x12, 0x34], 1_790_000_000);
            let _ = read(&noise, &[0x12, 0x34], 1_790_000_000);
        }
    }
}
